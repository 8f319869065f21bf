"""What a kind of job is, and which kinds there are: life cycles and guests, and what packages register.

A kind has a name, which tags its jobs on the wire, and parts that are loaded when somebody needs them: a worker never
loads the master's part, and a run without a kind loads nothing of it. What registers a kind names its parts as texts,
so the module of the `JobKind` itself imports next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from bench_common import import_safely, load_entry, registered
from bench_common.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_common.treatment import Operation

GROUP: Final = "weighbridge.job_kinds"
"""The entry points of kinds of jobs from packages; each has the name of its kind."""
TAG: Final = "kind"
"""The key that says on the wire, and in a stats file, of which kind a job is."""


class Job:
    """What the jobs of a treatment do, as it travels: a struct with the tag field `TAG` and the tag of its kind.

    What follows from the job alone, and what everybody asks, is here; the rest is in the parts of its kind.
    """

    __slots__ = ()

    uses_engine: ClassVar[bool] = True
    """Whether `Treatment.engine` is an engine that runs its containers; otherwise its kind knows what that is."""
    does_one_operation: ClassVar[bool] = False
    """Whether a job does one of its operations, and its row has `records.SINGLE_FIELDS`; otherwise it does each."""
    place_fields: ClassVar[frozenset[str]] = frozenset()
    """Those of its fields that say which one of several alike things is used: two of these may be compared."""

    def cost_name(self, engine: str) -> str:
        """Return what the processes of what it uses are sampled as: `engine`, and its place where it names one."""
        places = (getattr(self, name) for name in sorted(self.place_fields))
        words = [word for place in places for word in ([place] if isinstance(place, str) else place) if word]
        return f"{engine}@{','.join(words)}" if words else engine

    @property
    def population(self) -> int | None:
        """How many things its workers together make before the first trial; None: nothing, so nobody is asked."""
        return None

    @property
    def needs_whole_population(self) -> bool:
        """Whether a run ends before its first trial where a part of the population could not be made."""
        return True

    @property
    def engine_operations(self) -> tuple[Operation, ...]:
        """The operations that the scenario itself asks of the engine."""
        return ()


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: its name and where its parts are, each as ``module:attribute``."""

    name: str
    """The tag of its jobs."""
    job: str
    rules: str
    """Its `job_rules.JobRules`: what a job does, as master and worker derive it from the treatment."""
    master: str = ""
    """Its `bench_master.scenario.master_part.MasterPart`, for the master; the kernel's kinds need none."""
    host: str = ""
    """Its `bench_worker.host_part.HostPart`, for the agents of workers; empty: it needs nothing of a host."""
    runner: str = ""
    """Its `bench_worker.job_runner.JobRunner`, for workers; empty: an engine's containers run its operations."""

    @property
    def job_type(self) -> type[Job]:
        """What its jobs are on the wire."""
        loaded: type[Job] = load_part(self.job)
        return loaded


KERNEL: Final = (
    JobKind("guest", job="bench_common.treatment:Guest", rules="bench_workloads.guest:GuestRules"),
    JobKind("lifecycle", job="bench_common.treatment:Lifecycle", rules="bench_common.lifecycle:LifecycleRules"),
)
"""The kinds that are no packages of their own."""


@cache
def load_part(place: str) -> Any:
    """Return what a part of a kind names; raise `UsageError` if it cannot be loaded."""
    module, _, attribute = place.partition(":")
    try:
        return getattr(import_safely(partial(import_module, module)), attribute)
    except Exception as error:  # somebody else's module may raise anything when imported
        raise UsageError(f"{place} cannot be loaded: {type(error).__name__}: {error}") from error


@cache
def job_kind(name: str) -> JobKind:
    """Return the kind of that name; raise `UsageError` if there is none, or if it cannot be loaded."""
    for kind in KERNEL:
        if kind.name == name:
            return kind
    entries = {entry.name: entry for entry in registered(GROUP)}
    if name not in entries:
        known = sorted({*entries, *(kind.name for kind in KERNEL)})
        raise UsageError(f"unknown kind of job {name!r}{did_you_mean(name, known)}; one of: {', '.join(known)}")
    try:
        kind = load_entry(entries[name])
    except Exception as error:  # as above
        raise UsageError(f"the kind of job {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(kind, JobKind) or kind.name != name:
        raise UsageError(f"{entries[name].value} is not a JobKind of the name {name!r}")
    return kind


def package_kinds(complain: Callable[[str], object]) -> list[JobKind]:
    """Return the kinds from packages, sorted by name; `complain` gets what is wrong with each that is left out."""
    found = []
    for name in sorted({entry.name for entry in registered(GROUP)} - {kind.name for kind in KERNEL}):
        try:
            found.append(job_kind(name))
        except UsageError as error:
            complain(str(error))
    return found


@cache
def installed_job_type(name: str) -> type[Job] | None:
    """Return what the jobs of a kind are; None if it is not installed here, where runs of it can still be read."""
    try:
        return job_kind(name).job_type
    except UsageError:
        return None


def kind_of(job: Job) -> JobKind:
    """Return the kind of a job."""
    return job_kind(kind_name(job))


def kind_name(job: Job) -> str:
    """Return the name of a job's kind."""
    name: str = type(job).__struct_config__.tag  # type: ignore[attr-defined]
    return name


def read_job(wanted: type, plain: Any) -> Any:
    """Return the job in plain values, for decoders (``dec_hook``); raise `ValueError` for what is none."""
    if wanted is not Job:
        raise NotImplementedError(f"no decoder for {wanted}")
    if not isinstance(plain, dict) or not isinstance(plain.get(TAG), str):
        raise TypeError(f"a job is a map with the key {TAG!r}")
    try:
        return msgspec.convert(plain, job_kind(plain[TAG]).job_type)
    except UsageError as error:
        raise ValueError(str(error)) from error
