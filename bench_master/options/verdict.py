"""The options of verdicts on the differences between treatments: for reports, runs and comparisons of runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from bench_common.argument_types import InvalidValue
from bench_common.thresholds import parse_verdict_condition
from bench_common.units import format_share, parse_percent
from bench_master.analysis.gates import requested_gates
from bench_master.analysis.option_checks import check_verdict_options
from bench_master.analysis.parameters import as_stored
from bench_master.analysis.run_summary import SUFFIX, check_earlier_runs
from bench_master.analysis.trend_source import BaselineWord, baseline_words
from bench_master.analysis.verdict_types import VerdictOptions
from bench_master.scenario import Scenario
from bench_master.scenario.format import MAX_MARGIN

FAILURES: Final = ("worst", "at-random")


def add_verdict_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of `VerdictOptions`."""
    words = baseline_words()
    parser.add_argument(
        "--baseline",
        action=_Baseline,
        type=baseline,
        default={},
        metavar="|".join(["LABEL=VALUE[,...]", "RUN", *words]),
        help="compare with the treatments that have these labels, such as engine=docker (default: the scenario's, "
        "else the first treatment), or with earlier runs: a stats file, or a folder of them; repeatable"
        + "".join(f"; {name}: {word.help}" for name, word in words.items()),
    )
    parser.add_argument(
        "--margin",
        type=margin,
        metavar="P%",
        help="smaller differences count as none (default: the scenario's, else 3%%)",
    )
    parser.add_argument(
        "--accept",
        action=_Accept,
        default=frozenset(),
        metavar="PROPERTY",
        help="judge two sides although they differ in this, such as cpu_model or concurrency; repeatable",
    )
    parser.add_argument(
        "--failures",
        choices=FAILURES,
        default="worst",
        help="failed jobs count as the worst both ways, or are left out as if they failed at random (default: worst)",
    )
    parser.add_argument(
        "--allow-failures",
        action="store_true",
        help="exit code 0 although jobs failed, as with the scenario key allow_failures; without it any failed job "
        "gives 1",
    )
    add_gate_options(parser)


GATES_EPILOG: Final = """\
Gates: CONDITION is [LABEL=VALUE] [not] WORD [by N%], with slower, faster, worse, better, different, same as WORD:
  --fail-on slower                  exit code 1 if a treatment is shown to be slower than its baseline
  --require "not slower by 5%"      exit code 0 only if each is shown not to be 5 % slower; 4 if the data cannot tell
  --require "engine=podman same"    for some treatments only
"""


def add_gate_options(parser: argparse._ActionsContainer) -> None:
    """Add the options that make the exit code depend on verdicts."""
    parser.add_argument(
        "--fail-on",
        action="append",
        type=gate_condition,
        default=[],
        metavar="CONDITION",
        help="exit code 1 where this is shown, such as slower or 'slower by 5%%'; 4 where words are refused; "
        "repeatable",
    )
    parser.add_argument(
        "--require",
        action="append",
        type=gate_condition,
        default=[],
        metavar="CONDITION",
        help="exit code 0 only where this is shown, such as same or 'not slower by 5%%'; 1 where the opposite is, "
        "else 4; repeatable",
    )
    parser.add_argument(
        "--require-verdict", action="store_true", help="exit code 4 unless each comparison has a verdict"
    )


def gate_condition(text: str) -> str:
    """Return a condition on verdicts if it is well formed: a type of arguments."""
    try:
        parse_verdict_condition(text)
    except ValueError as error:
        raise InvalidValue(str(error)) from None
    return text


def apply_verdict_options(scenario: Scenario, options: VerdictOptions) -> Scenario:
    """Return the scenario with the baseline and margin of the command line, so that its stats file has them.

    Raises `UsageError` or `StatsFileError` where no treatment has the labels of the baseline or of a gate, or an
    earlier run cannot be read.
    """
    labels = [treatment.labels for treatment in scenario.treatments]
    treatments = [as_stored(treatment) for treatment in scenario.treatments]
    check_verdict_options(options, requested_gates(options, scenario.thresholds), labels, treatments)
    check_earlier_runs(options.earlier)
    if options.trend is not None:
        options.trend.check()
    return replace(
        scenario,
        baseline=options.baseline or scenario.baseline,
        margin=options.margin if options.margin is not None else scenario.margin,
        allow_failures=options.allow_failures or scenario.allow_failures,
    )


class _Accept(argparse.Action):
    """Gathers names as `VerdictOptions.accept`."""

    def __call__(self, _parser: argparse.ArgumentParser, namespace: Any, values: Any, *_: Any) -> None:
        setattr(namespace, self.dest, getattr(namespace, self.dest) | {values})


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
