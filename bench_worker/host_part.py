"""What a kind of job from a package checks on a worker's host before a run, and what the agent keeps of that.

A kind names its `HostPart` as `JobKind.host`. It is loaded in the agent when a master asks for jobs of that kind.
"""

from __future__ import annotations

import abc
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from bench_common.errors import WeighbridgeError
from bench_common.job_kind import Job, kind_of, load_part, package_kinds, read_job
from bench_worker.host.listeners import is_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bench_common.messages import Credentials
    from bench_common.requirements import KindNeed
    from bench_worker.host.sampler import Sampler

log = logging.getLogger(__name__)


class HostPart(abc.ABC):
    """A kind's part on a worker's host. `variables` are always those of the environment."""

    environment: ClassVar[frozenset[str]] = frozenset()
    """The variables that a master may send: how what the jobs use is reached, and nothing else of a process."""
    check: ClassVar[str] = "jobs"
    """The name of the doctor's check."""
    advice: ClassVar[str] = ""
    """What the doctor says to do about a problem."""
    fine: ClassVar[str] = "can be used"
    """What it says of what has none, after `check` and `short`."""

    @abc.abstractmethod
    def describe(self, engine: str, job: Job) -> str:
        """Return what a need is, in a few words."""

    def short(self, engine: str, job: Job) -> str:
        """Return the same in one word, for programs that read the doctor's findings."""
        del job
        return engine

    @abc.abstractmethod
    def find_problem(self, engine: str, job: Job, variables: Mapping[str, str]) -> list[str]:
        """Return why jobs cannot run here, one reason each; what it raises is a reason, too."""

    def server_processes(self, engines: Iterable[str]) -> frozenset[str]:
        """Return what the processes of the servers are called that jobs use, which may run on this host."""
        del engines
        return frozenset()

    def servers(self, engine: str, job: Job, variables: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        """Return host and port of the servers that jobs use, as far as they are known without asking."""
        del engine, job, variables
        return ()

    def cost_sampler(self, engine: str, job: Job, variables: Mapping[str, str]) -> Sampler:
        """Return what samples the processes of the server that jobs use; raise `WeighbridgeError` with why not."""
        del job, variables
        raise WeighbridgeError(f"what {engine} costs is not known here")


def read_need(need: KindNeed) -> Job:
    """Return the job of a need; raise `WeighbridgeError` where its kind is not installed here, or refuses it."""
    try:
        job: Job = read_job(Job, dict(need.job))
    except (TypeError, ValueError) as error:
        raise WeighbridgeError(str(error)) from error
    return job


def host_part(job: Job) -> HostPart | None:
    """Return the part of a job's kind; None where it needs nothing of a host."""
    place = kind_of(job).host
    if not place:
        return None
    made: HostPart = load_part(place)()
    return made


def find_problems(needs: Iterable[KindNeed], variables: Mapping[str, str]) -> list[str]:
    """Return why jobs of kinds from packages cannot run on this host, one reason each."""
    found: dict[str, None] = {}
    for need in needs:
        what = need.engine
        try:
            job = read_need(need)
            part = host_part(job)
            if part is not None:
                what = part.describe(need.engine, job)
                problems = part.find_problem(need.engine, job, variables)
                found |= dict.fromkeys(f"{what}: {problem}" for problem in problems)
        except WeighbridgeError as error:
            found[f"{what}: {error}"] = None
        except Exception as error:  # a third party's part may raise anything; the master gets a reply
            log.exception("%s cannot be checked", what)
            found[f"{what}: {type(error).__name__}"] = None
    return list(found)


class KindsOfRun:
    """What an agent knows of the kinds from packages in its run, or in the next one."""

    def __init__(self) -> None:
        self.credentials: Credentials | None = None
        """How what they use is reached, where the master says so."""
        self._needs: Sequence[KindNeed] = ()

    def variables(self, run_id: str | None) -> dict[str, str]:
        """Return the variables of a run (None: of the next run) as its master sent them."""
        given = self.credentials
        if given is None or run_id not in (None, given.run_id):
            return {}
        parts = [load_part(kind.host) for kind in package_kinds(log.warning) if kind.host]
        allowed = frozenset[str]().union(*(part.environment for part in parts))
        return {name: value for name, value in given.variables.items() if name in allowed}

    def find_problems(self, needs: Sequence[KindNeed]) -> list[str]:
        """Return why jobs of the next run cannot run here, as the function of this name does."""
        self._needs = needs
        return find_problems(needs, {**os.environ, **self.variables(None)})

    @property
    def in_use(self) -> bool:
        """Whether there are jobs of such kinds, which alone know what they made."""
        return bool(self._needs)

    def _parts(self) -> Iterator[tuple[str, Job, HostPart]]:
        """Yield of each need what it runs on, its job and the part of its kind, where there is one."""
        for need in self._needs:
            try:
                job = read_need(need)
                part = host_part(job)
            except WeighbridgeError:
                continue  # the master was told
            if part is not None:
                yield need.engine, job, part

    def cost_samplers(
        self, names: Iterable[str], variables: Mapping[str, str], complain: Callable[[str], None]
    ) -> dict[str, Sampler | None]:
        """Return what to read of the servers that jobs use, by `Job.cost_name`; None for what `complain` was told."""
        found: dict[str, Sampler | None] = {}
        for engine, job, part in self._parts():
            name = job.cost_name(engine)
            if name in found or name not in names:
                continue
            try:
                found[name] = part.cost_sampler(engine, job, {**os.environ, **variables})
            except Exception as error:  # a third party's part may raise anything; the run goes on without
                if not isinstance(error, WeighbridgeError):
                    log.exception("the overhead of %s cannot be sampled", engine)
                found[name] = None
                complain(f"the overhead of {engine} is unknown: {str(error) or type(error).__name__}")
        return found

    @property
    def server_ports(self) -> frozenset[int]:
        """Where the servers that jobs use listen on this host."""
        variables = {**os.environ, **self.variables(None)}
        found: set[int] = set()
        for engine, job, part in self._parts():
            with suppress(WeighbridgeError):  # the master was told
                found.update(port for host, port in part.servers(engine, job, variables) if is_here(host))
        return frozenset(found)

    @property
    def server_processes(self) -> frozenset[str]:
        """What the processes of the servers are called that jobs use, which may run on this host."""
        engines: dict[str, tuple[HostPart, set[str]]] = {}
        for engine, job, part in self._parts():
            engines.setdefault(kind_of(job).name, (part, set()))[1].add(engine)
        return frozenset[str]().union(*(part.server_processes(names) for part, names in engines.values()))
