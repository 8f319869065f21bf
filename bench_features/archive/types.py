"""What the archive has of its stats files: runs with their hosts and treatments; series and their points."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Struct

from bench_common.options import Option
from bench_features.archive.options import moment

State: TypeAlias = Literal["complete", "incomplete", "damaged"]

ID_CHARS: Final = 12
"""How much of a file's hash is shown where its run has no id."""
_RUN_ID: Final = re.compile(r"[0-9A-Za-z-]{4,40}")
"""What a run calls itself; a file may say anything."""
PRIMARY: Final = "primary"
"""The kind of the value by which the treatment's trials are compared; others are `OPERATION` and `METRIC`."""
OPERATION: Final = "operation"
METRIC: Final = "metric"
STATISTICS: Final = ("mean", "p50", "p95", "p99", "max")
"""What is kept of an operation in each trial; of a metric there is its mean."""


class ArchivedHost(Struct, kw_only=True, omit_defaults=True):
    """A host of a run."""

    label: str
    environment: str | None = None
    facts: dict[str, str] = {}
    """Its properties that identify it or are set."""
    noise: dict[str, str] = {}
    """Its properties that change by themselves and explain nothing."""
    engines: dict[str, str] = {}
    """The versions of its engines."""


class ArchivedValue(Struct, kw_only=True, omit_defaults=True):
    """A measure of a treatment, trial by trial; None where a trial has no value."""

    kind: str
    """`PRIMARY`, `OPERATION` or `METRIC`."""
    name: str
    unit: str = ""
    direction: str | None = None
    """``lower`` or ``higher`` is better; None if undeclared."""
    trials: dict[str, list[float | None]] = {}
    """The value of each measured trial, by statistic; of a primary measure ``value``."""


class ArchivedTreatment(Struct, kw_only=True, omit_defaults=True):
    """A treatment of a run."""

    title: str
    series: str
    """The key of its series, the same in all runs that may be compared."""
    labels: dict[str, Any] = {}
    engine_version: str = ""
    failed: int = 0
    values: list[ArchivedValue] = []

    @property
    def primary(self) -> ArchivedValue | None:
        """The measure by which its trials are compared."""
        return next((value for value in self.values if value.kind == PRIMARY), None)


class ArchivedRun(Struct, kw_only=True, omit_defaults=True):
    """A run: a row of the index."""

    sha256: str
    """The hash of its stats file's content."""
    state: State
    bytes: int
    """Size of the stats file."""
    problem: str = ""
    """Why it enters no trend; empty if it does."""
    run_id: str | None = None
    """The id that the run gave itself; a resumed run keeps it."""
    created: float | None = None
    """When it began (Unix, seconds)."""
    duration_s: float | None = None
    scenario: str | None = None
    noop: bool = False
    imported: bool = False
    version: str = ""
    """The version of Weighbridge that ran it."""
    versions: dict[str, str] = {}
    argv: list[str] = []
    hosts: list[ArchivedHost] = []
    """In the order of their names."""
    done: int = 0
    failed: int = 0
    measure: str = ""
    """By what its treatment is compared, where it has a single one."""
    unit: str = ""
    value: float | None = None
    """The median of the trials' values of that."""
    verdict: str = ""
    """What its only comparison found, or how many of several found what; empty without comparisons."""
    trust: str = ""
    """How far its report can be trusted, in a word."""
    treatment_count: int = 0
    treatments: list[ArchivedTreatment] = []
    """Only a run that was asked for by itself has them."""
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
        return ", ".join(host.label for host in self.hosts)

    @property
    def machine(self) -> dict[str, str]:
        """What identifies and sets its hosts; facts of several hosts have the host's name before them."""
        alone = len(self.hosts) == 1
        return {
            name if alone else f"{host.label}: {name}": value
            for host in self.hosts
            for name, value in host.facts.items()
        }

    @property
    def counts(self) -> bool:
        """Whether it enters trends: it is whole, measured here, and no earlier state of another file."""
        return not self.problem and self.state == "complete" and self.created is not None and not self.superseded


class RunFilter(Struct, frozen=True):
    """Which runs are wanted: those that meet all that is given."""

    scenario: Annotated[str | None, Option("--scenario NAME", "only runs of this scenario")] = None
    host: Annotated[str | None, Option("--host NAME", "only runs in which this host took part")] = None
    since_s: Annotated[
        float | None,
        Option("--since TIME", "only runs begun since: a date (2026-11-22), or 30d, 12h ago", type=moment),
    ] = None
    limit: int | None = None
    """At most so many, the newest."""

    def meets(self, run: ArchivedRun) -> bool:
        """Whether a run meets it, whatever the limit."""
        return (
            self.scenario in (None, run.scenario)
            and (self.host is None or any(host.label == self.host for host in run.hosts))
            and (self.since_s is None or (run.created is not None and run.created >= self.since_s))
        )


class Added(Struct, frozen=True):
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
    measure: str
    unit: str
    direction: str | None
    """``lower`` or ``higher`` is better."""
    hosts: str
    runs: int
    """How many points it has."""


class TrendPoint(Struct, frozen=True):
    """One run in a series."""

    run_id: str
    """The run's id."""
    created: float
    """When it began (Unix, seconds)."""
    version: str
    """The version of the engine under test, else that of Weighbridge."""
    value: float
    """The median of the trials' values."""
    trials: tuple[float, ...]
    """The value of each measured trial that has one."""
    machine: Mapping[str, str]
    """What identifies and sets the machine: a series breaks where it changes."""
