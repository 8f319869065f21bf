"""The labels of the native engine: four environment variables on each process, one small file in each directory.

A plain process has no place for labels but its environment, which the kernel keeps readable in /proc and which
children inherit. Nothing is ever recognised by its name alone: no label, not ours.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gevent
import psutil
from msgspec import Struct

from bench_common.directories import own_directories, own_directory
from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_worker.engines.base import OWNER_LABEL, RUN_LABEL, TICKET_LABEL, WORKER_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLES: Final = {
    RUN_LABEL: "WEIGHBRIDGE_RUN",
    WORKER_LABEL: "WEIGHBRIDGE_WORKER",
    TICKET_LABEL: "WEIGHBRIDGE_TICKET",
    OWNER_LABEL: "WEIGHBRIDGE_OWNER",
}
LABEL_FILE: Final = "labels.json"
STEM: Final = "weighbridge-native"
"""How the name of the directory with the private directories begins; the user's number follows."""

_DEATH_TIMEOUT_S = 5.0
_EXEC_RETRIES = 4
_EXEC_RETRY_S = 0.001
_STAT_STATE = 0
_STAT_GROUP = 2
_STAT_START_TICKS = 19
"""Positions in /proc/PID/stat after the command's name (proc(5): fields 3, 5 and 22)."""


class LabelledProcess(Struct, frozen=True):
    """A live process that carries our labels; `start_ticks` tells it from a later one with the same number."""

    pid: int
    start_ticks: int
    command: str
    labels: Mapping[str, str]
    age_s: float


class LabelledDirectory(Struct, frozen=True):
    """A private directory that carries our labels."""

    path: Path
    labels: Mapping[str, str]
    age_s: float


def matches(labels: Mapping[str, str], run_id: str | None, worker_id: str | None) -> bool:
    """Say whether something with these labels is ours, of that run (None: any) and of that worker (None: any)."""
    return RUN_LABEL in labels and all(
        wanted is None or labels.get(label) == wanted
        for label, wanted in ((RUN_LABEL, run_id), (WORKER_LABEL, worker_id))
    )


def private_root() -> Path:
    """Make and return the directory of the private directories: on $TMPDIR, else on /var/tmp, which is a disk.

    /tmp is memory on many systems, and a baseline that writes to memory is no match for a container that writes to a
    disk. Nobody else may read or write there. Others may pass through it: a server that gives up root's rights
    has to get into its own directory, which is open to nobody unless the server itself opens it. Raises
    `EngineUnavailable` where there can be no such directory.
    """
    try:
        return own_directory(_parent(), STEM, mode=0o711)
    except InfrastructureError as error:
        raise EngineUnavailable(f"{error}, or set TMPDIR to another disk") from error


def _parent() -> Path:
    return Path(os.environ.get("TMPDIR") or ("/var/tmp" if Path("/var/tmp").is_dir() else tempfile.gettempdir()))  # noqa: S108  what is used there is checked


def write_labels(directory: Path, labels: Mapping[str, str]) -> None:
    """Label a private directory."""
    (directory / LABEL_FILE).write_text(json.dumps(dict(labels)), encoding="utf-8")


def labelled_directories() -> list[LabelledDirectory]:
    """Return every private directory of this user that carries a label."""
    candidates: list[Path] = []
    for root, owner in own_directories(_parent(), STEM):
        if owner == os.geteuid():
            with suppress(OSError):
                candidates += root.iterdir()
    found = []
    for path in candidates:
        try:
            labels: Any = json.loads((path / LABEL_FILE).read_text(encoding="utf-8"))
            age_s = time.time() - path.stat().st_mtime
        except (OSError, ValueError):
            continue
        if isinstance(labels, dict) and isinstance(labels.get(RUN_LABEL), str):
            found.append(LabelledDirectory(path, labels, max(0.0, age_s)))
    return found


def labelled_processes() -> Iterator[LabelledProcess]:
    """Yield every live process that carries a label and that this user may inspect."""
    now, boot_time, ticks_per_s = time.time(), psutil.boot_time(), os.sysconf("SC_CLK_TCK")
    for pid in _all_processes():
        labels = _labels_of(pid)
        if pid == os.getpid() or RUN_LABEL not in labels:
            continue
        try:
            command, fields = read_stat(pid)
        except OSError:
            continue
        start_ticks = int(fields[_STAT_START_TICKS])
        yield LabelledProcess(pid, start_ticks, command, labels, now - boot_time - start_ticks / ticks_per_s)


def _all_processes() -> list[int]:
    return psutil.pids()


def _labels_of(pid: int) -> dict[str, str]:
    environment = b""
    for _ in range(_EXEC_RETRIES):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if environment:
                break
            # In the middle of an exec a process has a program and, for an instant, no environment to read.
            _ = Path(f"/proc/{pid}/exe").readlink()
        except OSError:
            return {}
        gevent.sleep(_EXEC_RETRY_S)
    if b"WEIGHBRIDGE_" not in environment:
        return {}
    variables = dict(item.partition("=")[::2] for item in os.fsdecode(environment).split("\0"))
    return {label: variables[name] for label, name in VARIABLES.items() if name in variables}


def read_stat(pid: int) -> tuple[str, list[str]]:
    """Return the command's name and the fields after it of /proc/PID/stat; raise `OSError` when it has ended."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    before, _, after = text.rpartition(")")
    return before.partition("(")[2], after.split()


def state_of(pid: int) -> str:
    """Return the kernel's letter for the state of a process (``T`` stopped), or ``X`` when it has ended."""
    try:
        return read_stat(pid)[1][_STAT_STATE]
    except OSError:
        return "X"


def states_of_group(leader: int) -> set[str]:
    """Return the kernel's letters for the states of all processes of a process group."""
    states = set()
    for pid in _all_processes():
        try:
            fields = read_stat(pid)[1]
        except OSError:
            continue
        if int(fields[_STAT_GROUP]) == leader:
            states.add(fields[_STAT_STATE])
    return states


def kill_labelled(process: LabelledProcess) -> None:
    """Kill a labelled process and return when it is dead; one that has already ended is no error.

    The pidfd pins the process, so the check of its labels and the signal concern the same one. Raises
    `InfrastructureError` when it may not be killed or does not die.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if _labels_of(process.pid) != dict(process.labels) or _start_ticks(process.pid) != process.start_ticks:
            return
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        deadline = time.monotonic() + _DEATH_TIMEOUT_S
        while state_of(process.pid) not in "ZX" and _start_ticks(process.pid) == process.start_ticks:
            if time.monotonic() > deadline:
                raise InfrastructureError(f"process {process.pid} ({process.command}) did not exit after SIGKILL")
            gevent.sleep(0.002)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise InfrastructureError(f"process {process.pid} is another user's: {error.strerror}") from error
    finally:
        os.close(pidfd)


def _start_ticks(pid: int) -> int:
    try:
        return int(read_stat(pid)[1][_STAT_START_TICKS])
    except OSError:
        return -1
