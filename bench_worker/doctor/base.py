"""What a check of the doctor says: a finding, how grave it is, and what to do about it.

What the doctor looks at: a host, watched for a moment and then held still, so that checks are pure functions.
"""

from __future__ import annotations

import abc
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar

from bench_worker.engines.base import EngineStatus
from bench_worker.host.procfs import HostFiles, ProcStat, parse_stat

SAMPLE_S = 0.7
"""How long CPUs and processes are watched, in seconds: long enough for a share of 2 % to be more than one tick."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """A process and the CPU time that it has used, in USER_HZ ticks."""

    pid: int
    name: str
    parent: int
    ticks: int


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """A host as it was found.

    `before` and `after` are the ends of a short watch. `directories` are where runs will write, `ports` what a
    master will bind. `engines` probes, `tools` maps a program that native jobs need to the workloads that need it,
    `advice` says how to come by those that no archive has, `which` finds a program on PATH.
    """

    files: HostFiles
    before: ProcStat | None = None
    after: ProcStat | None = None
    processes_before: Mapping[int, ProcessUsage] = field(default_factory=dict)
    processes_after: Mapping[int, ProcessUsage] = field(default_factory=dict)
    directories: Sequence[str] = ()
    ports: Sequence[int] = ()
    python_version: str = platform.python_version()
    engines: Callable[[], Sequence[EngineStatus]] = tuple
    tools: Callable[[], Mapping[str, Sequence[str]]] = dict
    advice: Callable[[], Mapping[str, str]] = dict
    which: Callable[[str], str | None] = shutil.which
    writable: Callable[[str], bool] = lambda directory: os.access(directory, os.W_OK | os.X_OK)

    @property
    def cpus(self) -> int:
        """CPUs on line, at least 1."""
        return max(1, self.after.cpus if self.after else 1)


def capture(
    files: HostFiles, wait: Callable[[float], object], *, directories: Sequence[str] = (), ports: Sequence[int] = ()
) -> HostSnapshot:
    """Watch this host for `WATCH_S` seconds (`wait` passes them) and return the scene.

    Engines are probed only when a check asks, which is after the watch: probing makes load of its own.
    """
    before, processes_before = _stat(files), read_process_usage(files)
    wait(SAMPLE_S)
    after, processes_after = _stat(files), read_process_usage(files)
    return HostSnapshot(
        files,
        before,
        after,
        processes_before,
        processes_after,
        tuple(dict.fromkeys(directories or (os.getcwd(), tempfile.gettempdir()))),  # noqa: PTH109  a str is wanted
        ports,
        engines=cache(_probe_engines),
        tools=_tools,
        advice=_advice,
    )


def read_process_usage(files: HostFiles) -> dict[int, ProcessUsage]:
    """Return all processes by id; those that end meanwhile are left out."""
    found = {}
    for name in files.names("/proc"):
        if name.isdigit():
            process = parse_process_usage(files.text(f"/proc/{name}/stat") or "")
            if process is not None:
                found[process.pid] = process
    return found


def parse_process_usage(text: str) -> ProcessUsage | None:
    """Parse /proc/PID/stat (proc(5)); a name may hold spaces and brackets, so the last bracket ends it."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    words = tail.split()
    try:
        return ProcessUsage(int(pid), name, int(words[1]), int(words[11]) + int(words[12]))
    except (ValueError, IndexError):
        return None


def _stat(files: HostFiles) -> ProcStat | None:
    text = files.text("/proc/stat")
    return parse_stat(text) if text else None


def _probe_engines() -> Sequence[EngineStatus]:
    from bench_worker.engines.registry import probe_all

    return probe_all()


def _advice() -> Mapping[str, str]:
    from workloads.registry import workload_classes

    return {
        workload.binary: workload.install_hint for workload in workload_classes().values() if workload.install_hint
    }


def _tools() -> Mapping[str, Sequence[str]]:
    from workloads.registry import workload_classes

    needed: dict[str, list[str]] = {}
    for name, workload in workload_classes().items():
        for binary in dict.fromkeys((workload.binary, *(service.binary for service in workload.services))):
            needed.setdefault(binary, []).append(name)
    return needed


class Level(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    """As it should be."""
    NOTE = "note"
    """Worth knowing when the numbers are read; nothing to repair."""
    WARNING = "warning"
    """Results will be noisier, or comparable to fewer others, than they could be."""
    PROBLEM = "problem"
    """This machine cannot measure until it is repaired."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `advice` is what to do; `value` the number or word that the finding is made from."""

    check: str
    level: Level
    finding: str
    advice: str = ""
    value: str | int | float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


class Check(abc.ABC):
    """Looks at one thing of a scene and gives at least one finding; `name` is what the thing is called."""

    name: ClassVar[str]

    @abc.abstractmethod
    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield what was found; touch nothing but `scene`."""

    def ok(self, finding: str, value: str | float | None = None) -> Finding:
        """Return a finding that all is well."""
        return Finding(self.name, Level.OK, finding, "", value)

    def note(self, finding: str, advice: str, value: str | float | None = None) -> Finding:
        """Return a finding that is worth knowing."""
        return Finding(self.name, Level.NOTE, finding, advice, value)

    def warning(self, finding: str, advice: str, value: str | float | None = None) -> Finding:
        """Return a finding that makes results worse."""
        return Finding(self.name, Level.WARNING, finding, advice, value)

    def problem(self, finding: str, advice: str, value: str | float | None = None) -> Finding:
        """Return a finding that makes measuring impossible."""
        return Finding(self.name, Level.PROBLEM, finding, advice, value)
