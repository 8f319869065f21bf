"""What the archive gives: runs as rows, one run with what is in it, series of runs and their points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, field

from bench_features.archive.contents import TreatmentContents

State: TypeAlias = Literal["complete", "incomplete", "damaged"]

ID_CHARS: Final = 12
"""How much of a run's hash is shown as its id."""
PRIMARY: Final = "primary"
"""The kind of the value by which the treatment's trials are compared; others are `OPERATION` and `METRIC`."""
OPERATION: Final = "operation"
METRIC: Final = "metric"
STATISTICS: Final = ("mean", "p50", "p95", "p99", "max")
"""What is kept of an operation in each trial; of a metric there is its mean."""


class Added(Struct, frozen=True):
    """What became of a file that was added."""

    id: str
    """The run's id."""
    sha256: str
    """The hash of the file's content."""
    new: bool
    """Whether it was not in the archive before."""
    state: State
    """Whether it is whole."""
    problem: str = ""
    """Why it enters no trend; empty if it does."""


class RunFilter(Struct, frozen=True):
    """Which runs are wanted: those that meet all that is given."""

    scenario: str | None = None
    """Name of the scenario."""
    host: str | None = None
    """Name of a host that took part."""
    since_s: float | None = None
    """Begun at or after this time (Unix, seconds)."""
    until_s: float | None = None
    """Begun before this time (Unix, seconds)."""
    tag: str | None = None
    """A tag that it has."""
    limit: int | None = None
    """At most so many, the newest."""
    sha256: str | None = None
    """The hash of its stats file's content."""


class RunRow(Struct, frozen=True):
    """One run, as a list shows it."""

    id: str
    """The first characters of `sha256`."""
    sha256: str
    """The hash of its stats file's content."""
    run_id: str | None
    """The id that the run gave itself; a resumed run keeps it."""
    created: float | None
    """When it began (Unix, seconds)."""
    duration_s: float | None
    """How long it took."""
    state: State
    """Whether it is whole."""
    problem: str
    """Why it enters no trend; empty if it does."""
    scenario: str | None
    """The scenario's name."""
    noop: bool
    """Whether its jobs executed nothing."""
    imported: bool
    """Whether it was measured elsewhere."""
    version: str
    """The version of Weighbridge that ran it."""
    hosts: tuple[str, ...]
    """Names of its hosts."""
    treatments: int
    """How many treatments it has."""
    done: int
    """Measured jobs that were done."""
    failed: int
    """Measured jobs that failed or were lost."""
    bytes: int
    """Size of its stats file."""
    pruned: bool
    """Whether its stats file was removed; what the index has of it stays."""
    superseded: bool
    """Whether a later file of the same run, which was resumed, is in the archive."""
    name: str | None
    """The name that somebody gave it."""
    tags: tuple[str, ...]
    """Its tags, in order."""
    measure: str = ""
    """By what its treatment is compared, where it has a single one."""
    unit: str = ""
    """The unit of that."""
    value: float | None = None
    """The median of the trials' values of it; None where there is no single one."""


class HostRow(Struct, frozen=True):
    """A host of a run."""

    host: str
    """Its name."""
    environment: str | None
    """The environment that it stands for."""
    facts: Mapping[str, str]
    """Its properties that identify it or are set, as text."""
    noise: Mapping[str, str]
    """Its properties that change by themselves and explain nothing."""
    engines: Mapping[str, str]
    """The versions of its engines."""


class Annotation(Struct, frozen=True):
    """What somebody typed about a run or a series."""

    at: str
    """When (ISO 8601)."""
    by: str
    """The name of the user."""
    key: str
    """``name``, ``tag``, ``untag``, ``note``, ``baseline`` or ``acknowledge``."""
    value: str
    run: str
    """The run's hash."""


class RunDetails(Struct, frozen=True):
    """One run with what the index has of it."""

    row: RunRow
    hosts: tuple[HostRow, ...]
    treatments: tuple[TreatmentContents, ...]
    annotations: tuple[Annotation, ...]
    file: Path | None
    """Its stats file; None if it was pruned or is missing."""
    argv: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


class Series(Struct, frozen=True):
    """The runs of one treatment with the same parameters on hosts of the same names."""

    key: str
    """What `points` takes."""
    scenario: str
    title: str
    """The treatment's title in its newest run."""
    labels: Mapping[str, Any]
    measure: str
    """The primary measure."""
    unit: str
    direction: str | None
    """``lower`` or ``higher`` is better."""
    hosts: str
    """Names of the hosts."""
    runs: int
    """How many points it has."""
    newest: float | None
    """When its newest run began (Unix, seconds)."""


class TrendPoint(Struct, frozen=True):
    """One run in a series."""

    run_id: str
    """The run's id in the archive."""
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
    complete: bool
    """Always true: runs that are not whole enter no series."""
