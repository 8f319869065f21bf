"""What the doctor works with: a snapshot of a host, the checks that judge it, and their findings.

A host is sampled for a moment and then held still, so that checks are pure functions of the snapshot.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from functools import cache
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from bench_worker.engines.base import EngineStatus
from bench_worker.host.procfs import HostFiles, ProcessStat, ProcStat, parse_stat, read_processes

SAMPLE_S = 0.7
"""How long CPUs and processes are sampled, in seconds: a share of 2 % is then more than one tick."""


class HostSnapshot(Struct, frozen=True):
    """The state of a host."""

    files: HostFiles
    """Its files below /proc and /sys."""
    before: ProcStat | None = None
    """CPU times at the start of the sample."""
    after: ProcStat | None = None
    """CPU times at its end."""
    processes_before: Mapping[int, ProcessStat] = field(default_factory=dict)
    """All processes at the start of the sample, by id."""
    processes_after: Mapping[int, ProcessStat] = field(default_factory=dict)
    """All processes at its end."""
    ours: AbstractSet[int] | None = None
    """The processes that are no neighbours; None: the one that asks and its ancestors."""
    directories: Sequence[str] = ()
    requirements: int = 0
    """How many things containers of a scenario need of their engines."""
    missing: Callable[[Sequence[str]], Sequence[str]] = lambda _usable: ()
    """Returns which of them these usable engines lack, one reason each."""
    needed_bytes: int = 0
    """About how much disk the jobs of a scenario take at once; 0: unknown."""
    engines: Callable[[], Sequence[EngineStatus]] = tuple
    tools: Callable[[], Mapping[str, Sequence[str]]] = dict
    """Maps each program that native jobs need to the workloads that need it."""
    advice: Callable[[], Mapping[str, str]] = dict
    """Maps programs that no package archive has to how to install them."""
    packages: Callable[[], Mapping[str, str]] = dict
    """Maps programs to the packages of Debian that have them, where these are not named like the program."""
    which: Callable[[str], str | None] = shutil.which
    """Finds a program on PATH."""
    writable: Callable[[str], bool] = lambda directory: os.access(directory, os.W_OK | os.X_OK)
    """Whether a directory can be written to."""

    @property
    def cpus(self) -> int:
        """CPUs on line, at least 1."""
        return max(1, self.after.cpus if self.after else 1)


def capture(files: HostFiles, wait: Callable[[float], object], *, directories: Sequence[str] = ()) -> HostSnapshot:
    """Sample this host for `SAMPLE_S` seconds, which `wait` lets pass, and return its snapshot.

    Engines are probed only when a check asks, after the sample: probing makes load of its own.
    """
    before, processes_before = _stat(files), read_processes(files)
    wait(SAMPLE_S)
    after, processes_after = _stat(files), read_processes(files)
    return HostSnapshot(
        files,
        before,
        after,
        processes_before,
        processes_after,
        directories=tuple(dict.fromkeys(directories or (os.getcwd(), tempfile.gettempdir()))),  # noqa: PTH109  a str is needed
        engines=cache(_probe_engines),
        tools=_tools,
        advice=_advice,
        packages=_packages,
    )


def _stat(files: HostFiles) -> ProcStat | None:
    text = files.text("/proc/stat")
    return parse_stat(text) if text else None


def _probe_engines() -> Sequence[EngineStatus]:
    from bench_worker.engines.registry import probe_all

    return probe_all()


def _advice() -> Mapping[str, str]:
    from bench_workloads.registry import workload_classes

    return {
        workload.binary: workload.install_hint for workload in workload_classes().values() if workload.install_hint
    }


def _packages() -> Mapping[str, str]:
    from bench_workloads.registry import debian_packages

    return debian_packages()


def _tools() -> Mapping[str, Sequence[str]]:
    from bench_workloads.registry import workload_classes

    needed: dict[str, list[str]] = {}
    for name, workload in workload_classes().items():
        for binary in dict.fromkeys((workload.binary, *(service.binary for service in workload.services))):
            if binary:
                needed.setdefault(binary, []).append(name)
    return needed


class Level(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing when the numbers are read; nothing to repair."""
    WARNING = "warning"
    """Results will be noisier, or comparable to fewer others, than they could be."""
    PROBLEM = "problem"
    """This machine cannot measure until it is repaired."""


class Finding(Struct, frozen=True):
    """One result of a check."""

    check: str
    """The name of the check."""
    level: Level
    finding: str
    advice: str = ""
    """What to do about it."""
    value: str | int | float | None = None
    """The number or word that the finding is made from."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


CheckFunction = Callable[[HostSnapshot], Iterator[Finding]]


class Check(Struct, frozen=True):
    """A check of the doctor."""

    name: str
    """What the report calls it."""
    run: CheckFunction
    """Yields at least one finding of a host, from the snapshot alone."""


CHECKS: Final[list[Check]] = []
"""Every registered check, in the order of the report."""


def check(name: str) -> Callable[[CheckFunction], CheckFunction]:
    """Register the decorated function as the check of that name."""

    def register(function: CheckFunction) -> CheckFunction:
        CHECKS.append(Check(name, function))
        return function

    return register


def ok(finding: str, value: str | float | None = None) -> Finding:
    """Return a finding that all is well; `run_checks` adds the name of the check to it, as to the others."""
    return Finding("", Level.OK, finding, "", value)


def note(finding: str, advice: str, value: str | float | None = None) -> Finding:
    """Return a finding that is worth knowing."""
    return Finding("", Level.NOTE, finding, advice, value)


def warning(finding: str, advice: str, value: str | float | None = None) -> Finding:
    """Return a finding that makes results worse."""
    return Finding("", Level.WARNING, finding, advice, value)


def problem(finding: str, advice: str, value: str | float | None = None) -> Finding:
    """Return a finding that makes measuring impossible."""
    return Finding("", Level.PROBLEM, finding, advice, value)


def run_checks(host: HostSnapshot, checks: Iterable[Check] | None = None) -> Iterator[Finding]:
    """Yield the findings of `checks` (None: all); a check that raises is itself a finding and stops no other."""
    for one in CHECKS if checks is None else checks:
        try:
            for finding in one.run(host):
                yield replace(finding, check=one.name)
        except Exception as error:  # noqa: BLE001  a kernel that nobody foresaw must not end the doctor
            broken = warning(
                f"this check failed: {type(error).__name__}: {error}",
                "please report it, with the text above and your kernel's version",
            )
            yield replace(broken, check=one.name)
