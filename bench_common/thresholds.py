"""Thresholds: the grammar of the conditions that a scenario sets on its own figures.

::

    PATH OPERATOR NUMBER[unit] [where KEY=VALUE[, KEY=VALUE]]

    operations.start.p95_s < 500ms
    start.p95 < 500ms
    metrics.events_per_second.median >= 100 where engine=docker
    overhead.rss_bytes.max < 300MiB
    jobs.failed == 0
    operations.read[tiny].p99 < 20ms
    operations.read[tiny].first.mean < 5ms
    mb_per_s > 100

or on its own verdicts, in a grammar that ``--fail-on`` and ``--require`` share::

    [KEY=VALUE[, KEY=VALUE]] [not] WORD [by N% | by N times]

    not slower by 5%
    engine=podman not slower by 5%
    engine=native faster by 10 times

PATH leads into one treatment of the JSON report: ``operations.NAME.FIELD``, ``metrics.NAME.FIELD``, ``jobs.FIELD``,
``jobs_per_s``, ``mb_per_s``, ``objects.FIELD``, ``overhead.NAME.FIELD``, ``overhead.cpu_s``,
``overhead.cpu_per_job_s``, ``overhead.relative.FIELD``. The grammar is here and not beside the report, because an
impossible path is an error of the scenario.

Likewise the primary measure of a job, by which treatments are compared::

    job.p50    response.p95    start.mean    events_per_second    jobs_per_s    containers
"""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from bench_common.cost import CHANGE_WORDS
from bench_common.errors import did_you_mean
from bench_common.stats.block_types import StoredMetric
from bench_common.units import SIZE_UNITS, TIME_UNITS, unit_converter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

OPERATION_FIELDS: Final = ("n", "errors", "mean_s", "stddev_s", "min_s", "p50_s", "p95_s", "p99_s", "max_s")
METRIC_FIELDS: Final = ("n", "median", "mean", "stddev", "min", "max")
JOB_FIELDS: Final = ("total", "done", "failed", "lost", "aborted", "not_started", "warmup")

TRANSFERRED: Final = "objects"
"""The part of a treatment's report with what its jobs transferred, where each does one of its operations."""
TRANSFERRED_FIELDS: Final = ("content_bytes", "mb_per_s", "retries", "redrawn")
"""What these jobs transferred, all together."""
TRANSFER_FIELDS: Final = ("per_s", *TRANSFERRED_FIELDS)
"""What one of their operations transferred."""
_TRANSFER_UNITS: Final[Mapping[str, str]] = {"content_bytes": "B", "mb_per_s": "MB/s", "per_s": "/s"}

OVERHEAD_UNITS: Final[Mapping[str, str]] = {
    "rss_bytes": "B",
    "pss_bytes": "B",
    "cgroup_bytes": "B",
    "processes": "",
    "cpu_percent": "%",
}
"""Readings of an engine's own processes, with their units."""
OVERHEAD_FIELDS: Final = ("n", "mean", "min", "max")
RELATIVE_UNITS: Final[Mapping[str, str]] = {"memory_percent": "%", "cpu_factor": ""}
"""An engine compared to the baseline, with units."""

_SINGLE: Final = ("cpu_s", "cpu_per_job_s")
_ROOTS: Final = ("operations", "metrics", "overhead", "jobs", "jobs_per_s", TRANSFERRED, "mb_per_s")
_OVERHEAD: Final = (*OVERHEAD_UNITS, *_SINGLE, "relative")
_PERCENTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?)(?:_s)?")
_NAME: Final = re.compile(r"[A-Za-z0-9_][\w-]*(?:\[[\w-]+\](?:\.first)?)?")
_ALTERNATIVE: Final = re.compile(r"([^.]*\](?:\.first)?)\.(.*)")
"""The name of one of several operations, such as ``read[tiny].first``, and the field."""


_RATES: Final[Mapping[str, tuple[str, ...]]] = {"jobs_per_s": ("jobs_per_s",), "mb_per_s": (TRANSFERRED, "mb_per_s")}


def parse_measure_path(path: str) -> tuple[str, ...]:
    """Parse a path; raise `ValueError` with what was expected and the nearest valid spelling."""
    root, _, rest = path.partition(".")
    if not rest and root in _RATES:
        return _RATES[root]
    if root == TRANSFERRED:
        return (root, _field(rest, TRANSFERRED_FIELDS))
    if root == "jobs":
        return (root, _field(rest, JOB_FIELDS))
    if root == "overhead":
        return (root, *_overhead(rest))
    if root in ("operations", "metrics"):
        # A percentile may have a decimal point of its own: operations.start.p99.9_s.
        alternative = _ALTERNATIVE.fullmatch(rest)
        name, field = alternative.groups() if alternative is not None else rest.partition(".")[::2]
        if not field:
            raise ValueError(f"{path!r} is not of the form {root}.NAME.FIELD")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be a name in {root}")
        if alternative is not None and field in TRANSFER_FIELDS:
            return (TRANSFERRED, root, name, field)
        return (root, name, _operation_field(field) if root == "operations" else _field(field, METRIC_FIELDS))
    # Short, as reports and `primary` have it: job.p95.
    with suppress(ValueError):
        if _NAME.fullmatch(root):
            return ("operations", root, _operation_field(rest))
    raise UnknownMeasure(
        f"unknown measure {path!r}{did_you_mean(root, _ROOTS)}; one of: operations.NAME.FIELD, "
        "metrics.NAME.FIELD, overhead.NAME.FIELD, jobs.FIELD, jobs_per_s, objects.FIELD, mb_per_s (list measures)"
    )


class UnknownMeasure(ValueError):
    """A path that begins with nothing that a report has."""


def percentile_of(path: tuple[str, ...]) -> float | None:
    """Return the percentile (0..100) in a path; None if there is none."""
    match = _PERCENTILE.fullmatch(path[-1]) if path[0] == "operations" else None
    return float(match[1]) if match else None


def check_unit(path: tuple[str, ...], unit: str) -> None:
    """Raise `ValueError` for a unit that can never fit; a metric's own unit is known only from a report."""
    if not unit or path[0] == "metrics":
        return
    own = measure_unit(path, {})
    if unit_converter(unit, own) is not None:
        return
    for units, kind in ((TIME_UNITS, "time"), (SIZE_UNITS, "size")):
        if own in units:
            hint = did_you_mean(unit, units)
            raise ValueError(f"{unit!r} is not a unit of {kind}{hint}; one of: {', '.join(units)}")
    if own == "%":
        raise ValueError(f"{'.'.join(path)} is in %, not in {unit!r}")
    raise ValueError(f"{'.'.join(path)} is a plain number and takes no unit, not {unit!r}")


def measure_unit(path: tuple[str, ...], holder: Mapping[str, Any]) -> str:
    """Return the unit of a measure; `holder` is the part of the report that contains it."""
    root, field = path[0], path[-1]
    if root == "metrics":
        return "" if field == "n" else str(holder.get("unit", ""))
    if root == "jobs_per_s":
        return "/s"
    if root == TRANSFERRED:
        return _TRANSFER_UNITS.get(field, "")
    if root == "overhead" and field != "n":
        return RELATIVE_UNITS.get(field) or OVERHEAD_UNITS.get(path[1]) or ("s" if field.endswith("_s") else "")
    return "s" if field.endswith("_s") else ""


def _overhead(rest: str) -> tuple[str, ...]:
    name, _, field = rest.partition(".")
    if name not in _OVERHEAD:
        raise ValueError(
            f"unknown measure 'overhead.{name}'{did_you_mean(name, _OVERHEAD)}; one of: {', '.join(_OVERHEAD)}"
        )
    if name == "relative":
        return (name, _field(field, RELATIVE_UNITS))
    if name in _SINGLE:
        if field:
            raise ValueError(f"'overhead.{name}' is a single number and has no {field!r}")
        return (name,)
    if not field:
        raise ValueError(f"'overhead.{name}' is not of the form overhead.NAME.FIELD")
    return (name, _field(field, OVERHEAD_FIELDS))


def _operation_field(field: str) -> str:
    percentile = _PERCENTILE.fullmatch(field)
    if percentile and float(percentile[1]) > 0:
        return f"p{float(percentile[1]):g}_s"
    if f"{field}_s" in OPERATION_FIELDS:
        return f"{field}_s"
    if field in ("median_s", "median"):
        raise ValueError(f"unknown field {field!r} (did you mean 'p50_s'?); one of: {', '.join(OPERATION_FIELDS)}")
    return _field(field, OPERATION_FIELDS)


def _field(field: str, known: Iterable[str]) -> str:
    names = tuple(known)
    if field in names:
        return field
    raise ValueError(f"unknown field {field!r}{did_you_mean(field, names)}; one of: {', '.join(names)}")


OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}

_SYNTAX: Final = "PATH < NUMBER[unit] [where KEY=VALUE], such as 'operations.start.p95_s < 500ms where engine=docker'"
_CONDITION_SYNTAX: Final = "[KEY=VALUE] [not] WORD [by N%], such as 'engine=podman not slower by 5%'"
_SPLIT: Final = re.compile(
    r"\s*(?P<path>[^\s<>=!]+)\s*(?P<operator>[<>=!]+)\s*(?P<number>\S+)(?:\s+(?P<rest>.*\S))?\s*"
)
_NUMBER: Final = re.compile(r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?P<unit>\S*)")
_WHERE: Final = re.compile(r"\s*(?P<key>[^\s=,]+)\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^,]*?)\s*(?:,|$)")


class Threshold(Struct, frozen=True):
    """A parsed threshold. `value` is in `unit` as written (empty: in the measure's own unit)."""

    text: str
    path: tuple[str, ...]
    operator: str
    value: float
    unit: str = ""
    where: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.text

    @property
    def percentile(self) -> float | None:
        """Return the percentile (0..100) that it needs; None if it needs none."""
        return percentile_of(self.path)

    def matches_labels(self, labels: Mapping[str, Any]) -> bool:
        """Return whether it applies to a treatment with these labels."""
        return has_labels(labels, self.where)


def has_labels(labels: Mapping[str, Any], where: Iterable[tuple[str, str]]) -> bool:
    """Return whether labels have these values, as a user wrote them."""
    return all(key in labels and label_equals(labels[key], value) for key, value in where)


VerdictWord: TypeAlias = Literal["slower", "faster", "worse", "better", "different", "same"]
VERDICT_WORDS: Final[tuple[VerdictWord, ...]] = get_args(VerdictWord)
"""What a condition may say of a comparison; ``slower`` is ``worse``, and ``faster`` is ``better``."""

_LABEL: Final = re.compile(r"\s*(?P<key>[^\s=,<>!]+)\s*=\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s,=]+)(?P<end>\s*,|\s|$)")
_SIZE: Final = re.compile(r"(?P<number>\d+\.?\d*|\.\d+)\s*(?P<unit>%|times|x)")


class VerdictCondition(Struct, frozen=True):
    """A parsed condition on verdicts, such as ``engine=podman not slower by 5%``."""

    text: str
    word: VerdictWord
    """What it says of a treatment, compared with the baseline."""
    negated: bool = False
    """Whether ``not`` precedes the word."""
    size: str = ""
    """How much, as it was written: ``5%``, ``2 times``; empty for the word of the verdict itself."""
    where: tuple[tuple[str, str], ...] = ()
    """Labels of the treatments that it applies to; empty for all."""

    def __str__(self) -> str:
        return self.text

    @property
    def factor(self) -> float | None:
        """Its limit as a factor: 1.05 for ``by 5%``; None for the word of the verdict itself."""
        return _parse_factor(self.size, self.text) if self.size else None

    def phrase(self, *, opposite: bool = False) -> str:
        """Return what it says, or the opposite, without its labels: ``not slower by 5%``."""
        return f"{'not ' if self.negated != opposite else ''}{self.word}{f' by {self.size}' if self.size else ''}"

    def matches_labels(self, labels: Mapping[str, Any]) -> bool:
        """Return whether it applies to a treatment with these labels."""
        return has_labels(labels, self.where)


def parse_verdict_condition(text: str) -> VerdictCondition:
    """Parse a condition on verdicts; raise `ValueError` with what is wrong and the nearest spelling."""
    where, rest = _leading_labels(text)
    words, _, conditions = rest.partition(" where ")
    where += _conditions(f"where {conditions}" if conditions else "", text)
    said, by, size = f"{words} ".partition(" by ")
    negated, word = _split_word(said, text)
    size = size.strip()
    if by:
        _parse_factor(size, text)
    if word == "same" and size:
        raise ValueError(f"{text!r}: 'same' is within the margin of the run: leave 'by' out and set the margin")
    return VerdictCondition(" ".join(text.split()), word, negated, size, where)


def _leading_labels(text: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the labels that a condition begins with, and the rest."""
    found: list[tuple[str, str]] = []
    position = 0
    while match := _LABEL.match(text, position):
        found.append((match["key"], match["value"].strip("'\"")))
        position = match.end()
    return tuple(found), text[position:].strip()


def _split_word(said: str, text: str) -> tuple[bool, VerdictWord]:
    words = said.split()
    negated = words[:1] == ["not"]
    rest = words[1:] if negated else words
    if len(rest) == 1 and rest[0] in VERDICT_WORDS:
        return negated, rest[0]
    wrong = " ".join(rest)
    if not wrong or set(rest) & set(VERDICT_WORDS):
        raise ValueError(f"{text!r} is not of the form {_CONDITION_SYNTAX}")
    raise ValueError(
        f"{text!r}: unknown word {wrong!r}{did_you_mean(wrong, VERDICT_WORDS)}; one of: {', '.join(VERDICT_WORDS)}"
    )


def _parse_factor(size: str, text: str) -> float:
    match = _SIZE.fullmatch(size)
    number = float(match["number"]) if match else math.nan
    factor = 1 + number / 100 if match and match["unit"] == "%" else number
    if not 1 <= factor < math.inf:
        raise ValueError(f"{text!r}: {size!r} is not a size such as 5% or '2 times'")
    return factor


def parse_condition(text: str) -> Threshold | VerdictCondition:
    """Parse a threshold on figures or on verdicts; raise `ValueError` with what is wrong."""
    if not _is_about_verdicts(text):
        return parse_threshold(text)
    try:
        return parse_verdict_condition(text)
    except ValueError as error:
        raise ValueError(f"threshold {error}") from None


def _is_about_verdicts(text: str) -> bool:
    """Whether a threshold, maybe misspelt, is about verdicts: it has no operator, and a word of theirs."""
    _, rest = _leading_labels(text)
    said = rest.partition(" where ")[0]
    words = said.split()
    if not words or any(sign in said for sign in "<>!="):
        return False
    return words[0] == "not" or "by" in words or any(did_you_mean(word, VERDICT_WORDS) for word in words)


def parse_threshold(text: str) -> Threshold:
    """Parse a threshold; raise `ValueError` with what is wrong, what was expected and the nearest spelling."""
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise ValueError(f"threshold {text!r} is not of the form {_SYNTAX}")
    sign = match["operator"]
    if sign not in OPERATORS:
        hint = " (did you mean '=='?)" if sign == "=" else ""
        raise ValueError(f"threshold {text!r}: unknown operator {sign!r}{hint}; one of: < <= > >= == !=")
    number, rest = match["number"], match["rest"] or ""
    # A unit may stand apart from its number: "500 ms", "100 events/s".
    if rest and not re.match(r"where\b", rest):
        unit, _, rest = rest.partition(" ")
        number, rest = number + unit, rest.strip()
    parsed = _NUMBER.fullmatch(number)
    if parsed is None or not math.isfinite(float(parsed["number"])):
        raise ValueError(
            f"threshold {text!r}: {number!r} is not a number with an optional unit, such as 0.5 or 500ms"
        )
    where, unit = _conditions(rest, text), parsed["unit"]
    try:
        path = parse_measure_path(match["path"])
        check_unit(path, unit)
    except ValueError as error:
        kind = UnknownMeasure if isinstance(error, UnknownMeasure) else ValueError
        raise kind(f"threshold {text!r}: {error}") from None
    return Threshold(
        text=" ".join(text.split()),
        path=path,
        operator=sign,
        value=float(parsed["number"]),
        unit=unit,
        where=where,
    )


def _conditions(rest: str, text: str) -> tuple[tuple[str, str], ...]:
    if not rest:
        return ()
    word, _, conditions = rest.partition(" ")
    if word != "where" or not conditions.strip():
        raise ValueError(f"threshold {text!r}: 'where KEY=VALUE[, KEY=VALUE]' expected, not {rest!r}")
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(conditions):
        match = _WHERE.match(conditions, position)
        if match is None or not match["value"]:
            raise ValueError(f"threshold {text!r}: KEY=VALUE expected after 'where', not {conditions[position:]!r}")
        found.append((match["key"], match["value"].strip("'\"")))
        position = match.end()
    return tuple(found)


def label_equals(label: object, text: str) -> bool:
    """Return whether a label has the value that a user wrote: numbers by value, true/false and null as in YAML."""
    if isinstance(label, bool) or label is None:
        return text.lower() == {True: "true", False: "false", None: "null"}[label]
    if isinstance(label, int | float):
        try:
            return float(text) == float(label)
        except ValueError:
            return False
    return str(label) == text


def required_percentiles(thresholds: Iterable[str]) -> frozenset[float]:
    """Return the percentiles (0..100) that a report needs for these thresholds; invalid ones need none."""
    wanted = set()
    for text in thresholds:
        try:
            percentile = parse_threshold(text).percentile
        except ValueError:
            continue
        if percentile is not None:
            wanted.add(percentile)
    return frozenset(wanted)


JOB_SERIES: Final = "job"
RESPONSE_SERIES: Final = "response"
MEAN: Final = "mean"
JOBS_PER_S: Final = "jobs_per_s"
CONTAINERS: Final = "containers"
_TIMES: Final = frozenset({*TIME_UNITS, "us", "min"})
_QUANTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?)(?:_s)?")


class Primary(Struct, frozen=True):
    """The primary measure of a job: one number for each trial, by which treatments are compared."""

    name: str
    """As reports call it: ``job.p50``, ``jobs_per_s``, or the metric's name."""
    kind: Literal["duration", "metric", "rate", "containers"]
    """Of what it is made."""
    unit: str
    """Its unit; ``s`` for durations."""
    direction: Literal["higher", "lower"]
    series: str | None = None
    """The operation whose durations it is of, ``job`` or ``response``; None for other measures."""
    q: float | None = None
    """The quantile (0..1) of a trial's durations; None for their mean."""

    @property
    def is_time_or_rate(self) -> bool:
        """Whether *faster* and *slower* are the words for it."""
        return is_speed(self.name, self.unit)

    @property
    def title(self) -> str:
        """It in words, such as ``job time (p50 of a trial)``."""
        if self.kind == "rate":
            return "jobs per second"
        if self.series is None:
            return self.name if self.kind == "containers" else f"{self.name} (mean of a trial)"
        return f"{self.series} time ({self.name.partition('.')[2]} of a trial)"


def is_speed(name: str, unit: str) -> bool:
    """Return whether *faster* and *slower* are the words for a measure: it is a time or a rate, and no cost."""
    return name not in CHANGE_WORDS and (unit in _TIMES or unit.endswith("/s"))


def better_direction(unit: str, declared: str | None) -> Literal["higher", "lower"]:
    """Return whether more of a measure is better, or less: as it is declared, or else more of what is per second."""
    more_is_better = declared == "higher" if declared else unit.endswith("/s")
    return "higher" if more_is_better else "lower"


def parse_primary(text: str, operations: Iterable[str], metrics: Mapping[str, StoredMetric]) -> Primary:
    """Parse a primary measure of a job with these operations and metrics.

    Raises `ValueError` with what was expected and the nearest valid spelling.
    """
    if text == JOBS_PER_S:
        return Primary(text, "rate", "1/s", "higher")
    if text == CONTAINERS:
        return Primary(text, "containers", "1", "higher")
    name = text.removeprefix("metrics.")
    if name in metrics:
        unit = metrics[name].unit
        return Primary(name, "metric", unit, better_direction(unit, metrics[name].direction))
    series, _, field = text.removeprefix("operations.").partition(".")
    known = (*dict.fromkeys(operations), JOB_SERIES, RESPONSE_SERIES)
    if series in known and field:
        return _duration(text, series, field)
    everything = [*(f"{one}.p50" for one in known), *metrics, JOBS_PER_S, CONTAINERS]
    hint = did_you_mean(f"{series}.p50" if field else text, everything)
    durations = ", ".join(f"{one}.pNN" for one in known)
    others = ", ".join([*metrics, JOBS_PER_S])
    raise ValueError(f"unknown measure {text!r}{hint}; one of: {durations} (or .mean instead of .pNN), {others}")


def _duration(text: str, series: str, field: str) -> Primary:
    quantile = _QUANTILE.fullmatch(field)
    if quantile is not None and float(quantile[1]) > 0:
        percent = float(quantile[1])
        return Primary(f"{series}.p{percent:g}", "duration", "s", "lower", series, percent / 100.0)
    if field in ("mean", "mean_s"):
        return Primary(f"{series}.{MEAN}", "duration", "s", "lower", series)
    hint = (
        f" (did you mean '{series}.p50'?)" if field.startswith("med") else did_you_mean(field, ("p50", "p95", "mean"))
    )
    raise ValueError(f"{text!r}: {field!r} is no measure of a duration{hint}; expected pNN, such as p95, or mean")
