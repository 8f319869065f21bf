"""Podman's API: the socket that runs already, or a private ``podman system service`` for as long as it is needed.

A private service uses the user's own storage, so it sees the images and containers that ``podman`` sees; only its
socket is its own. It ends with the process that started it, however that ends: the kernel sends it a signal then
(``PR_SET_PDEATHSIG``).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gevent

from bench_common.errors import EngineUnavailable
from bench_worker.timing.processes import SpawnFailed, WaitTimeout, spawn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_worker.timing.processes import Process

PROGRAM: Final = "podman"
ADVICE: Final = "install Podman (`apt-get install podman`), or point CONTAINER_HOST at a `podman system service`"

_PREFIX: Final = "weighbridge-podman-"
_POLL_S: Final = 0.02
_END_S: Final = 5.0
_LAST_WORDS: Final = 500
_HYBRID: Final = Path("/sys/fs/cgroup/unified/cgroup.controllers")
_CAP_SYS_RESOURCE: Final = 24
_PEER: Final = struct.Struct("3i")

# Run by an interpreter of its own: tied to what started it (which may be gone by then), it becomes podman.
_TIED: Final = (
    "import ctypes, os, signal, sys; "
    "ctypes.CDLL(None).prctl(1, int(signal.SIGTERM)); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a service cannot exceed when it makes containers: hard limits by name as Docker's API has them."""

    ulimits: Mapping[str, int]


class PrivateService:
    """A ``podman system service`` of our own; `start` it, and `end` it in any case."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._folder: Path | None = None

    @property
    def started(self) -> bool:
        """Whether there was one to start."""
        return self._folder is not None

    def start(self, timeout_s: float) -> str:
        """Return the address of its socket once that answers; raise `EngineUnavailable` with what it said."""
        self._folder = folder = _make_folder()
        path, log = folder / "podman.sock", folder / "log"
        runtime = private_runtime()
        words = [*(["--runtime", runtime] if runtime else []), "system", "service", "--time", "0", f"unix://{path}"]
        argv = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), PROGRAM, *words]
        try:
            self._process = spawn(argv, env=os.environ, cwd="/", stdout_path=str(log), stderr_path=str(log) + ".err")
        except SpawnFailed as error:
            raise EngineUnavailable(str(error)) from error
        deadline = time.monotonic() + timeout_s
        while not answers(f"unix://{path}"):
            if self._process.exit is not None or time.monotonic() > deadline:
                ended = "ended at once" if self._process.exit is not None else f"did not answer in {timeout_s:g} s"
                said = Path(str(log) + ".err").read_text(encoding="utf-8", errors="replace").strip()
                raise EngineUnavailable(f"`podman system service` {ended}: {said[-_LAST_WORDS:]}")
            gevent.sleep(_POLL_S)
        return f"unix://{path}"

    def end(self) -> None:
        """End it and remove its socket; containers are not touched."""
        process, self._process = self._process, None
        if process is not None and process.signal_group(signal.SIGTERM):
            try:
                process.wait(_END_S)
            except WaitTimeout:
                process.signal_group(signal.SIGKILL)
                with suppress(WaitTimeout):
                    process.wait(_END_S)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def is_private(address: str) -> bool:
    """Say whether an address is that of a private service, of whichever process."""
    return f"/{_PREFIX}" in address


def running_address() -> str | None:
    """Return the address of Podman's API where one is named or answers.

    CONTAINER_HOST, else the usual socket, else a private service of this process or of the one that started it: a
    worker's agent has one for the time of a run, and its load process need not wait for another.
    """
    named = os.environ.get("CONTAINER_HOST")
    if named:
        return named
    ours = [path for pid in (os.getpid(), os.getppid()) for path in _root().glob(f"{_PREFIX}{pid}-*/podman.sock")]
    for path in (usual_socket(), *ours):
        address = f"unix://{path}"
        if answers(address):
            return address
    return None


def usual_socket() -> Path:
    """Return where a service of this user listens when somebody has started one."""
    if os.geteuid() == 0:
        return Path("/run/podman/podman.sock")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}") / "podman" / "podman.sock"


def answers(address: str) -> bool:
    """Say whether somebody listens at a ``unix://`` address."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(address.removeprefix("unix://"))
    except OSError:
        return False
    return True


def private_runtime() -> str | None:
    """Return the OCI runtime that a private service has to be told to use; None where its own choice will do.

    crun, which is Podman's choice where it is installed, starts nothing where cgroups v1 and v2 are mixed and no
    systemd looks after them.
    """
    mixed = _HYBRID.exists() and not Path("/run/systemd/system").is_dir()
    return "runc" if mixed and shutil.which("runc", path=_with_sbin()) else None


def service_limits(address: str) -> Limits:
    """Return the hard limits of the process that listens at `address`, where it cannot raise them.

    Podman gives its containers more open files and processes than its own process may have, and without the
    capability CAP_SYS_RESOURCE none of them starts. Empty where it may raise them, and where nobody can look.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(address.removeprefix("unix://"))
            pid, _, _ = _PEER.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        limits = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
    except OSError:
        return Limits({})
    return limits_from(status, limits)


def limits_from(status: str, limits: str) -> Limits:
    """Return the hard limits that the texts of ``/proc/PID/status`` and ``/proc/PID/limits`` mean; see above."""
    capabilities = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    if capabilities >> _CAP_SYS_RESOURCE & 1:
        return Limits({})
    hard = {}
    for row, name in (("Max open files", "nofile"), ("Max processes", "nproc")):
        for line in limits.splitlines():
            # Columns of fixed width: name, soft, hard, unit; "unlimited" needs no limit.
            fields = line.removeprefix(row).split()
            if line.startswith(row) and fields[1].isdecimal():
                hard[name] = int(fields[1])
    return Limits(hard)


def _with_sbin() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _root() -> Path:
    """Return where sockets are, and paths short."""
    return Path("/run") if os.geteuid() == 0 else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())


def _make_folder() -> Path:
    """Return a new folder for a socket, and remove those of processes that are gone."""
    root = _root()
    for stale in root.glob(f"{_PREFIX}*"):
        pid = stale.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and stale.stat().st_uid == os.geteuid():
            shutil.rmtree(stale, ignore_errors=True)
    try:
        return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))
    except OSError as error:
        raise EngineUnavailable(f"no folder for Podman's socket can be made in {root}: {error.strerror}") from error
