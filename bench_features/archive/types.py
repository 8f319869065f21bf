"""What the archive has of its stats files: runs with their treatments, as reports have them; and series of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Struct

from bench_common.argument_types import InvalidValue
from bench_common.options import Option
from bench_common.thresholds import Primary, better_direction
from bench_common.units import parse_duration
from bench_master.analysis.report_types import RunReport, RunState, TotalsReport
from bench_master.run_data.summary import HostSummary
from bench_master.run_data.treatment_types import MetricReport, OperationReport

ID_CHARS: Final = 12
"""How much of a file's hash is shown where its run has no id."""
_RUN_ID: Final = re.compile(r"[0-9A-Za-z-]{4,40}")
"""What a run calls itself; a file may say anything."""


class ArchivedTreatment(Struct, kw_only=True):
    """A treatment of a run."""

    title: str
    series: str
    """The key of its series, the same in all runs that may be compared."""
    labels: dict[str, Any]
    engine_version: str
    failed: int
    measure: Primary | None
    """By what its trials are compared; None of a host's ceiling."""
    trials: list[float]
    """The value of each measured trial that has one."""
    operations: dict[str, OperationReport]
    metrics: dict[str, MetricReport]

    @property
    def value(self) -> float | None:
        """The median of the trials' values; None without any."""
        return median(self.trials) if self.trials else None

    def measures(self) -> dict[str, tuple[Primary, float | None]]:
        """Return every measure by its name, with its value: of others than the primary one that of the report."""
        found: dict[str, tuple[Primary, float | None]] = {}
        for name, metric in self.metrics.items():
            direction = better_direction(metric.unit, metric.direction)
            found[name] = Primary(name, "metric", metric.unit, direction), metric.median
        for name, operation in self.operations.items():
            values = {"mean": operation.mean_s, **operation.percentiles_s, "max": operation.max_s}
            for each, value in values.items():
                found[f"{name}.{each}"] = Primary(f"{name}.{each}", "duration", "s", "lower", name), value
        if self.measure is not None:
            found[self.measure.name] = self.measure, self.value
        return found


class ArchivedRun(Struct, kw_only=True, omit_defaults=True):
    """A run: a row of the index."""

    sha256: str
    """The hash of its stats file's content."""
    state: RunState
    bytes: int
    problem: str = ""
    """Why it enters no trend; empty if it does."""
    run_id: str | None = None
    """The id that the run gave itself; a resumed run keeps it."""
    created: float | None = None
    """When it began (Unix, seconds)."""
    scenario: str | None = None
    report: RunReport | None = None
    """What its report says of the run; None of a file that cannot be read."""
    totals: TotalsReport | None = None
    hosts: dict[str, HostSummary] = {}
    verdict: str = ""
    """What its only comparison found, or how many of several found what; empty without comparisons."""
    trust: str = ""
    """How far its report can be trusted, in a word."""
    treatments: list[ArchivedTreatment] = []
    superseded: bool = False
    """Whether a later file of the same run, which was resumed, is in the archive."""

    @property
    def id(self) -> str:
        """How it is called: as in its report; an earlier file of a resumed run by the hash of its content."""
        own = self.run_id or ""
        return own if _RUN_ID.fullmatch(own) and not self.superseded else self.sha256[:ID_CHARS]

    @property
    def place(self) -> str:
        """The names of its hosts: a part of the identity of its series."""
        return ", ".join(sorted(self.hosts))

    @property
    def version(self) -> str:
        """The version of Weighbridge that ran it."""
        return "" if self.report is None else self.report.versions.get("weighbridge", "")

    @property
    def done(self) -> int:
        """The jobs that were done."""
        return 0 if self.totals is None else self.totals.done

    @property
    def failed(self) -> int:
        """The jobs that failed or were lost."""
        return 0 if self.totals is None else self.totals.failed + self.totals.lost

    @property
    def counts(self) -> bool:
        """Whether it enters trends: it is whole, measured here, and no earlier state of another file."""
        return not self.problem and self.state == "complete" and self.created is not None and not self.superseded


_DAYS_S: Final = {"d": 86_400.0, "w": 7 * 86_400.0}


def span(text: str) -> float:
    """Return a span such as ``30d``, ``2w`` or ``12h`` in seconds: a type of arguments."""
    number, unit = text[:-1], text[-1:]
    if unit.isdigit():  # seconds elsewhere; who asks for the last 5 means days
        raise InvalidValue(f"{text!r}: expected a span of time with its unit, such as {text}d or {text}h")
    if unit in _DAYS_S and number.isascii() and number.replace(".", "", 1).isdigit():
        return float(number) * _DAYS_S[unit]
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidValue(f"{text!r}: expected a span of time, such as 30d, 2w or 12h") from error


def moment(text: str) -> float:
    """Return a date, a time or how long ago it was as Unix seconds: a type of arguments."""
    try:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = datetime.now(UTC) - timedelta(seconds=span(text))
        return (found if found.tzinfo else found.astimezone()).timestamp()
    except (InvalidValue, ValueError, OverflowError) as error:
        raise InvalidValue(
            f"{text!r}: expected a date such as 2026-11-22 or 2026-11-22T18:00, or a span such as 30d or 12h"
        ) from error


class RunFilter(Struct, frozen=True):
    """Which runs are wanted: those that meet all that is given."""

    scenario: Annotated[str | None, Option("--scenario NAME", "only runs of this scenario")] = None
    host: Annotated[str | None, Option("--host NAME", "only runs in which this host took part")] = None
    since_s: Annotated[
        float | None,
        Option("--since TIME", "only runs begun since: a date (2026-11-22), or 30d, 12h ago", type=moment),
    ] = None

    def meets(self, run: ArchivedRun) -> bool:
        """Whether a run meets it."""
        return (
            self.scenario in (None, run.scenario)
            and (self.host is None or self.host in run.hosts)
            and (self.since_s is None or (run.created is not None and run.created >= self.since_s))
        )


class Added(NamedTuple):
    """What became of a file that was added."""

    run: ArchivedRun
    new: bool
    """Whether it was not in the archive before."""


class Series(Struct, frozen=True):
    """The runs of one treatment with the same parameters on hosts of the same names."""

    key: str
    scenario: str
    title: str
    """The treatment's title in its newest run."""
    labels: Mapping[str, Any]
    measure: Primary
    hosts: str
    members: Sequence[tuple[ArchivedRun, ArchivedTreatment]]
    """Its runs, the oldest first."""


class TrendPoint(Struct, frozen=True):
    """One run in a series."""

    run_id: str
    """The run's id in the archive."""
    created: float
    """When it began (Unix, seconds)."""
    version: str
    """The version of the engine under test, else that of Weighbridge."""
    value: float
    """The median of the trials' values, or the value that the report has of another measure."""
    trials: Sequence[float]
    """The value of each measured trial that has one; of the primary measure alone."""
    machine: Mapping[str, str]
    """What identifies and sets the machine: a series breaks where it changes."""
