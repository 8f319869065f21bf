"""What a command line says about verdicts on the differences between treatments or runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from bench_common.argument_types import InvalidValue
from bench_common.options import Option
from bench_common.stats.reader import SUFFIX
from bench_common.thresholds import parse_verdict_condition
from bench_common.units import format_share, parse_percent
from bench_master.analysis.trend_source import BaselineWord, TrendSource, baseline_words
from bench_master.verdicts.decision import MAX_MARGIN


class GateOptions(Struct, frozen=True, kw_only=True):
    """What makes the exit code depend on verdicts."""

    fail_on: Annotated[
        tuple[str, ...],
        Option(
            "--fail-on CONDITION",
            "exit code 1 where this is shown, such as slower or 'slower by 5%%'; 4 where a verdict is refused; "
            "repeatable",
            type=gate_condition,
        ),
    ] = ()
    require: Annotated[
        tuple[str, ...],
        Option(
            "--require CONDITION",
            "exit code 0 only where this is shown, such as same or 'not slower by 5%%'; 1 where the opposite is, "
            "else 4; repeatable",
            type=gate_condition,
        ),
    ] = ()
    require_verdict: Annotated[
        bool, Option("--require-verdict", "exit code 4 unless each comparison has a verdict")
    ] = False


class VerdictOptions(GateOptions, frozen=True):
    """What the command line says about verdicts; what it leaves open the scenario says."""

    baseline: Annotated[
        Mapping[str, str],
        Option(
            f"--baseline {'|'.join(['LABEL=VALUE[,...]', 'RUN', *baseline_words()])}",
            "compare with the treatments that have these labels, such as engine=docker (default: the scenario's, "
            "else the first treatment), or with earlier runs: a stats file, or a folder of them; repeatable"
            + "".join(f"; {name}: {word.help}" for name, word in baseline_words().items()),
            action=_Baseline,
            type=baseline,
        ),
    ] = field(default_factory=dict)
    margin: Annotated[
        float | None,
        Option("--margin P%", "smaller differences count as none (default: the scenario's, else 3%%)", type=margin),
    ] = None
    accept: Annotated[
        tuple[str, ...],
        Option(
            "--accept PROPERTY",
            "judge two sides although they differ in this, such as cpu_model or concurrency; repeatable",
        ),
    ] = ()
    failures: Annotated[
        Literal["worst", "at-random"],
        Option(
            "--failures",
            "worst: intervals hold whatever time failed jobs would have taken; at-random: failed jobs are left out "
            "(default: worst)",
        ),
    ] = "worst"
    allow_failures: Annotated[
        bool,
        Option(
            "--allow-failures",
            "exit code 0 although jobs failed, as with the scenario key allow_failures; without it any failed job "
            "gives 1",
        ),
    ] = False
    look: int | None = None
    """Judge as the look after so many rounds does, at a run that goes on; None for a report."""
    earlier: tuple[Path, ...] = ()
    """Stats files of earlier runs to compare with, or folders of them."""
    trend: TrendSource | None = None
    """Where the trend of earlier runs is that judges the run; None not to ask it."""


def gate_condition(text: str) -> str:
    """Return a condition on verdicts if it is well formed: a type of arguments."""
    try:
        parse_verdict_condition(text)
    except ValueError as error:
        raise InvalidValue(str(error)) from None
    return text


class _Baseline(argparse.Action):
    """Stores labels as `VerdictOptions.baseline`, and files and folders as `VerdictOptions.earlier`."""

    def __call__(self, _parser: argparse.ArgumentParser, namespace: Any, values: Any, *_: Any) -> None:
        if isinstance(values, BaselineWord):
            namespace.trend = values.load()
        elif isinstance(values, Path):
            namespace.earlier = [*getattr(namespace, "earlier", ()), values]
        else:
            setattr(namespace, self.dest, {**getattr(namespace, self.dest), **values})
        if getattr(namespace, "earlier", ()) and getattr(namespace, "trend", None) is not None:
            raise argparse.ArgumentError(self, "trend and earlier runs cannot both be the baseline; give one of them")


def baseline(text: str) -> dict[str, str] | Path | BaselineWord:
    """Return labels, the path of a stats file or a folder of them, or a registered word: a type of arguments."""
    words = baseline_words()
    if text in words:
        return words[text]
    path = Path(text)
    if text.endswith(SUFFIX) or (text and path.exists()):
        return path
    if "=" not in text:
        raise InvalidValue(
            f"{text!r}: expected labels such as engine=docker, a stats file or folder, which must exist"
            + "".join(f", or {word}" for word in words)
        )
    return baseline_labels(text)


def baseline_labels(text: str) -> dict[str, str]:
    """Return ``LABEL=VALUE[,LABEL=VALUE]`` as labels: a type of arguments."""
    labels: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (one.strip() for one in part.partition("="))
        if not (key and equals and value):
            raise InvalidValue(f"{text!r}: expected labels such as engine=docker or engine=docker,network=host")
        if key in labels:
            raise InvalidValue(f"{text!r}: {key} is given twice")
        labels[key] = value
    return labels


def margin(text: str) -> float:
    """Return ``3%`` as a share: a type of arguments."""
    try:
        share = parse_percent(text.strip())
    except ValueError as error:
        raise InvalidValue(f"{text!r}: {error}") from error
    if not 0.0 < share <= MAX_MARGIN:
        raise InvalidValue(f"{text!r}: expected more than 0% and at most {format_share(MAX_MARGIN)}")
    return share
