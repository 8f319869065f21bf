"""What a kind of job from a package gives the master: its key in a scenario, and what a plan says of its jobs.

The kernel's own kinds, life cycles and guests, have keys that work together (`operations`, `workload`, `params`,
`container`), so their keys are in `format` and `resolve` themselves.
"""

from __future__ import annotations

import abc
import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench_common.errors import UsageError
from bench_common.job_kind import kind_name, load_part, package_kinds
from bench_master.scenario.types import INVALID, MapOf, Record, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bench_common.job_kind import Job
    from bench_common.treatment import Scalar, Treatment
    from bench_master.scenario.diagnostics import Diagnostics, Located
    from bench_master.scenario.matrix import Settings
    from bench_master.scenario.yaml_tree import Node, SourceLocation

log = logging.getLogger(__name__)

OF_CONTAINERS: Final = ("container", "services", "until", "swap", "cost")
"""The keys of a job that only containers have."""


@dataclass(frozen=True)
class CeilingProbe:
    """Jobs of a kind against something that answers at once: their rate is what the harness itself can do."""

    kind: str
    """What answers, in words. Probes of one kind show one ceiling."""
    keys: Mapping[str, Any]
    """The keys ``engines`` and ``job`` of a scenario of such jobs."""
    serving: Callable[[], AbstractContextManager[Mapping[str, str]]]
    """Makes a context in which it answers; what it gives are variables of the environment of the run."""
    enough_per_s: float
    """A rate below this is out of reach of the ceiling."""
    jobs: int
    """Jobs in each trial, where these may wait at a worker."""
    hidden: tuple[str, ...] = ()
    """What the names of variables begin with that would lead the jobs elsewhere."""


class MasterPart(abc.ABC):
    """A kind's part on the master. Its key in a job is `name`, and below it is a record.

    Of a scenario without such jobs nobody asks for more than the texts and `engines`: what `record` and `build` need
    may be loaded by them.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """What the key is for, in the scenario's reference."""
    one: ClassVar[str]
    """What a message calls a job, such as ``a job with dice``."""
    many: ClassVar[str]
    """The same of several jobs, such as ``jobs with dice``."""
    does: ClassVar[str]
    """What a job does, such as ``throws dice``."""
    plan_title: ClassVar[str] = ""
    """The head of `plan_lines`."""
    default_engine: ClassVar[str] = ""
    """The engine of a job that names none; empty: it has to name one."""

    @property
    def time_note(self) -> str:
        """What the times of ``list scenarios`` assume of its jobs: ``a throw counts as 1 ms``; empty: nothing."""
        return ""

    @abc.abstractmethod
    def record(self) -> Record:
        """Return what is below its key."""

    @abc.abstractmethod
    def engines(self) -> tuple[str, ...]:
        """Return the names that `engines` may have for its jobs, which no engine has."""

    @abc.abstractmethod
    def build(self, settings: Settings, engine: str, place: SourceLocation, findings: Diagnostics) -> Job | None:
        """Return the job that one cell of the matrix makes of the settings; None where a problem was reported."""

    def engines_expected(self) -> str:
        """Return what `engines` has to have."""
        return f"one or more of: {', '.join(self.engines())}"

    def foreign_engine(self, engine: str) -> str:
        """Return what is wrong with a job of this kind under an engine that is none of its own."""
        return f"engine {engine} runs no {self.many}: use {self.engines_expected()}"

    def misused_engine(self, engine: str) -> str:
        """Return what is wrong with another job under one of its engines."""
        return f"engine {engine} runs {self.many} alone: give this job '{self.name}'"

    def matrix_keys(self) -> dict[str, Shape]:
        """Return the shapes of its keys of a matrix; ``*`` stands for the name of an entry of a map."""
        keys: dict[str, Shape] = {}
        for field in self.record().fields:
            name, shape = f"{self.name}.{field.name}", field.shape
            if isinstance(shape, MapOf) and isinstance(shape.value, Record):
                keys |= {f"{name}.*.{inner.name}": inner.shape for inner in shape.value.fields}
            elif isinstance(shape, Record):
                keys |= {f"{name}.{inner.name}": inner.shape for inner in shape.fields}
            else:
                keys[name] = shape
        return keys

    def short_key(self, key: str) -> str:
        """Return a key of a matrix without what a label need not repeat."""
        return key.removeprefix(f"{self.name}.")

    def check_varied(self, varied: Settings, settings: Settings, findings: Diagnostics) -> bool:
        """Return whether what a matrix varies is there in a job's settings; report what is not."""
        del varied, settings, findings
        return True

    def settle(self, treatments: Sequence[Treatment]) -> tuple[tuple[Treatment, ...], list[str]]:
        """Return all treatments of a scenario as they run beside each other, and notes on what was changed."""
        return tuple(treatments), []

    def plan_lines(self, treatment: Treatment) -> tuple[str, ...]:
        """Return what a plan says of a treatment's jobs; nothing for no line."""
        del treatment
        return ()

    def ceiling(self, treatment: Treatment) -> CeilingProbe | None:
        """Return what shows how many such jobs the harness itself can do; None: nothing does."""
        del treatment
        return None

    # -- what follows from the above ----------------------------------------------------------------------------

    def owns(self, treatment: Treatment) -> bool:
        """Return whether a treatment's jobs are of this kind."""
        return kind_name(treatment.job) == self.name

    def check_job(self, own: Mapping[str, Located[Any]], engines: Located[Any] | None, findings: Diagnostics) -> None:
        """Report keys of a job that are about containers, and the lack of an engine."""
        for key in OF_CONTAINERS:
            if key in own:
                message = f"'{key}' has no meaning for {self.one}, which runs no container: remove it"
                findings.add(own[key].place, message, deep=True)
        if engines is None and not self.default_engine:
            message = f"'engines' is missing: {self.one} needs {self.engines_expected()}"
            findings.add(own[self.name].place, message, deep=True)

    def is_broken(self, own: Mapping[str, Located[Any]]) -> bool:
        """Return whether a job has the key and nothing can be read below it."""
        return self.name in own and own[self.name].value is INVALID


@dataclass(frozen=True)
class KeysOfKind(Shape):
    """What is below the key of a kind: its record, which is made, and loads what it needs, when it is asked."""

    part: MasterPart

    # ruff: noqa: D102  the base class documents what each method does

    @property
    def expected(self) -> str:
        return record_of(self.part).expected

    def read(self, node: Node, findings: Diagnostics) -> Any:
        return record_of(self.part).read(node, findings)

    def schema(self) -> dict[str, Any]:
        return record_of(self.part).schema()

    def label(self, value: Any) -> Scalar:
        return record_of(self.part).label(value)


@cache
def record_of(part: MasterPart) -> Record:
    """Return what is below the key of a kind."""
    return part.record()


@cache
def matrix_keys(part: MasterPart) -> Mapping[str, Shape]:
    """Return the keys of a kind that a matrix can vary."""
    return part.matrix_keys()


@cache
def master_parts() -> dict[str, MasterPart]:
    """Return the parts of all installed kinds from packages by name; those that cannot be used are logged."""
    found: dict[str, MasterPart] = {}
    for kind in package_kinds(log.warning):
        try:
            found[kind.name] = load_part(kind.master)()
        except UsageError as error:
            log.warning("kind of job %r: %s", kind.name, error)
    return found


def part_of(treatment: Treatment) -> MasterPart | None:
    """Return the part of a treatment's kind; None of one of the kernel's."""
    return master_parts().get(kind_name(treatment.job))
