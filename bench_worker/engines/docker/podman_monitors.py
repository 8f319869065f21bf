"""Podman's monitors of containers that Podman has forgotten: found by their command lines, and removed.

Podman has its monitor (conmon) make a container, and notes that it is made when this is done. A service that is
killed in between knows a container that was never started: it deletes its record and its files, and kills nothing.
The monitor waits for ever for the runtime's first process, which waits to be started. No list of Podman's has them.

A monitor's command line names the container, its id, the runtime, and its folder in the store. One whose name is that
of a run's container, whose folder is in the service's own store, and whose id the service does not know, is left. The
same path in another mount namespace is another store: that of a Podman in a container, say, whose runs are alive.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import gevent
import psutil
from msgspec import Struct

from bench_common.errors import InfrastructureError
from bench_common.records import KEEP_RUN_PREFIX
from bench_worker.engines.base import Leftover
from bench_worker.timing.processes import SpawnFailed, WaitTimeout, spawn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

PROGRAM: Final = "conmon"
MONITOR: Final = "monitor"
"""The kind of such leftovers."""
_FIELDS: Final = {"-c": "identity", "-n": "name", "-r": "runtime", "-b": "bundle"}
_NAME: Final = re.compile(rf"wb-(?P<run>(?:{KEEP_RUN_PREFIX})?[0-9a-f]{{12}}(?:-\d+-[0-9a-f]{{8}})?)-\d+-\d+.*")
_END_S: Final = 5.0
_POLL_S: Final = 0.02


class Monitor(Struct, frozen=True):
    """A monitor, as its command line has it."""

    pid: int
    identity: str
    """The id of its container."""
    name: str
    runtime: str
    """The path of the runtime's program."""
    bundle: str
    """The container's folder in the store."""
    age_s: float = 0.0

    @property
    def run_id(self) -> str:
        """The run that its container belongs to, by its name; empty for any other container."""
        found = _NAME.fullmatch(self.name)
        return found["run"] if found else ""


def parse_monitor(pid: int, argv: Sequence[str], age_s: float = 0.0) -> Monitor | None:
    """Return the monitor with this command line; None if it is none of a container."""
    if not argv or os.path.basename(argv[0]) != PROGRAM:  # noqa: PTH119  a word, not a file
        return None
    found: dict[str, str] = {}
    for option, value in pairwise(argv):
        if option in _FIELDS:
            found.setdefault(_FIELDS[option], value)  # what follows is for the programs that it starts
    return Monitor(pid, **found, age_s=age_s) if len(found) == len(_FIELDS) else None


def running_monitors(service: int | None = None) -> Iterator[Monitor]:
    """Yield the monitors on this host; with `service`, a process, only those in its mount namespace."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.name() == PROGRAM and (service is None or _mounts(process.pid) == _mounts(service)):
                monitor = parse_monitor(process.pid, process.cmdline(), max(0.0, time.time() - process.create_time()))
                if monitor is not None:
                    yield monitor


def _mounts(pid: int) -> tuple[int, int]:
    """Return the identity of a process's mount namespace (namespaces(7)); raise `OSError` where it cannot be read."""
    found = os.stat(f"/proc/{pid}/ns/mnt")  # noqa: PTH116
    return found.st_dev, found.st_ino


def find_forgotten(
    engine: str, monitors: Iterable[Monitor], known: Collection[str], store: str, run_id: str | None
) -> list[Leftover]:
    """Return the monitors of containers of runs, or of one, that a service with this store does not know.

    `monitors` have to be read before the ids that it knows: a container is known before it has a monitor.
    """
    return [
        Leftover(engine, MONITOR, one.identity, one.name, one.run_id, one.age_s)
        for one in monitors
        if one.run_id
        and run_id in (None, one.run_id)
        and one.identity not in known
        and one.bundle.startswith(f"{store.rstrip('/')}/")
    ]


def remove_monitor(identity: str) -> None:
    """Have the runtime delete the container of a monitor, which ends then; raise `InfrastructureError` if it stays.

    One that is gone meanwhile is as good.
    """
    for monitor in _of(identity):
        # It kills what waits to be started, and removes its own record and the control groups.
        argv = [monitor.runtime, "delete", "--force", identity]
        with suppress(SpawnFailed, WaitTimeout):
            spawn(argv, env=os.environ, cwd="/", stdout_path=os.devnull, stderr_path=os.devnull).wait(_END_S)
    deadline = time.monotonic() + _END_S
    while left := list(_of(identity)):
        if time.monotonic() > deadline:
            for monitor in left:
                _kill_with_children(monitor.pid)
            break
        gevent.sleep(_POLL_S)
    deadline = time.monotonic() + _END_S
    while any(_of(identity)):
        if time.monotonic() > deadline:
            raise InfrastructureError(f"its monitor (conmon, container {identity}) did not exit after SIGKILL")
        gevent.sleep(_POLL_S)


def _of(identity: str) -> Iterator[Monitor]:
    return (one for one in running_monitors() if one.identity == identity)


def _kill_with_children(pid: int) -> None:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (*process.children(recursive=True), process):
            with suppress(psutil.Error):
                one.send_signal(signal.SIGKILL)
