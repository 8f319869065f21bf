"""Podman through its API, which speaks Docker's: the same verbs, calls and stamps as the engine ``docker``.

Podman has no daemon: where no service of its API runs, the worker starts a private ``podman system service`` for as
long as the engine is open. That uses the user's own storage, so it sees the images and containers that ``podman``
sees; only its socket is private. It ends with the process that started it, however that ends: the kernel sends it a
signal then (``PR_SET_PDEATHSIG``). `missing` copies Weighbridge's images from Docker's store, where they are built.
"""

from __future__ import annotations

import fcntl
import os
import re
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
from typing import TYPE_CHECKING, Any, ClassVar, Final

import gevent
import psutil
from gevent.lock import RLock
from msgspec.structs import replace

from bench_common.directories import runtime_directories, runtime_directory
from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_common.requirements import STATS_INTERVAL
from bench_common.safe_text import shorten
from bench_worker.engines.base import (
    PROBE_S,
    DaemonProcesses,
    Engine,
    EngineOptions,
    EngineStatus,
    Leftover,
    OperationResult,
    unavailable_advice,
)
from bench_worker.engines.daemon_processes import podman_daemon
from bench_worker.engines.docker import probe as docker_probe
from bench_worker.engines.docker.context import connection_address
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.errors import call_errors, container_id
from bench_worker.engines.docker.http import DockerApiError, TimedRequest
from bench_worker.engines.docker.image_copy import ensure_image
from bench_worker.engines.docker.podman_monitors import (
    MONITOR,
    find_forgotten,
    remove_monitor,
    running_monitors,
)
from bench_worker.program_digest import listening_program
from bench_worker.timing.processes import SpawnFailed, WaitTimeout, spawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import Container
    from bench_worker.timing.processes import Process

PROGRAM: Final = "podman"
ADVICE: Final = "install Podman (`apt-get install podman`), or point CONTAINER_HOST at a `podman system service`"

_PREFIX: Final = "weighbridge-podman-"
_SOCKETS: Final = "podman"
"""The name of the directories with the folders for sockets."""
_ALIVE: Final = "run/libpod/alive"
_STORE: Final = "var/lib/containers/storage"
_POLL_S: Final = 0.02
_END_S: Final = 5.0
_MAX_ERROR_CHARS: Final = 500
_ENDED_MEANWHILE: Final = re.compile(r"could not be stopped: .*container state improper: stopped")
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
class HardLimits:
    """What a service cannot exceed when it makes containers: hard limits by name as Docker's API has them."""

    ulimits: Mapping[str, int]


class PrivateService:
    """A ``podman system service`` of our own; `start` it, and `end` it in any case.

    `prefix` begins the name of its folder.
    """

    def __init__(self, program: str = PROGRAM, prefix: str = _PREFIX) -> None:
        self.program = program
        self._prefix = prefix
        self._process: Process | None = None
        self._folder: Path | None = None
        self._lock = -1
        """Open while the folder is in use."""

    @property
    def started(self) -> bool:
        """Whether there was one to start."""
        return self._folder is not None

    def start(self, timeout_s: float) -> str:
        """Return the address of its socket once that answers; raise `EngineUnavailable` with its output."""
        if forgets_containers():
            raise EngineUnavailable(
                "Podman would forget the state of the containers that run on this host: /run is one of its own here, "
                "and lacks the host's /run/libpod; start the worker where /run is the host's"
            )
        self._folder, self._lock = folder, _ = _make_folder(self._prefix)
        path, log = folder / "podman.sock", folder / "log"
        runtime = private_runtime()
        words = [*(["--runtime", runtime] if runtime else []), "system", "service", "--time", "0", f"unix://{path}"]
        argv = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), self.program, *words]
        try:
            self._process = spawn(argv, env=os.environ, cwd="/", stdout_path=str(log), stderr_path=str(log) + ".err")
        except SpawnFailed as error:
            raise EngineUnavailable(str(error)) from error
        deadline = time.monotonic() + timeout_s
        while not is_listening(f"unix://{path}"):
            if self._process.exit is not None or time.monotonic() > deadline:
                ended = "ended at once" if self._process.exit is not None else f"did not answer in {timeout_s:g} s"
                output = Path(str(log) + ".err").read_text(encoding="utf-8", errors="replace").strip()
                raise EngineUnavailable(f"`podman system service` {ended}: {shorten(output, _MAX_ERROR_CHARS)}")
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
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def forgets_containers(own: Path = Path("/"), others: Iterable[Path] | None = None) -> bool:
    """Return whether a Podman that starts here would set the live containers of the host back to never started.

    It does so to all containers of its store where ``/run/libpod/alive`` is missing, as it is after a boot. In a
    mount namespace with a ``/run`` of its own the file is missing, too, though the host's is there. `own` is the root
    of this namespace, `others` are those of the processes that this one descends from, as far as they can be seen.
    Podman of another user than root has its files elsewhere.
    """
    if (own / _ALIVE).exists():
        return False
    if others is None:
        others = (Path(f"/proc/{parent.pid}/root") for parent in psutil.Process().parents())
    return any(_is_hidden(own, other) for other in others)


def _is_hidden(own: Path, other: Path) -> bool:
    try:
        return (other / _ALIVE).exists() and (own / _STORE).samefile(other / _STORE)
    except OSError:
        return False


def is_private(address: str) -> bool:
    """Say whether an address is that of a private service, of whichever process."""
    return f"/{_PREFIX}" in address


def running_address(place: str = "", prefix: str = _PREFIX) -> str | None:
    """Return the address of Podman's API where one is named or answers.

    A `place` is an address, or a program, for which only a private service comes into question. Else it is
    CONTAINER_HOST, else the connection that CONTAINER_CONNECTION names, else the usual socket, else a private service
    of this process or of the one that started it: a worker's agent has one for the time of a run, and its load
    process need not wait for another.
    """
    by_program = place.startswith("/")
    named = place or os.environ.get("CONTAINER_HOST") or connection_address()
    if named and not by_program:
        return named
    numbers = (os.getpid(), os.getppid())
    ours = [path for pid in numbers for path in _folders(f"{prefix}{_process_mark(pid)}-*/podman.sock")]
    for path in ours if by_program else (default_socket(), *ours):
        address = f"unix://{path}"
        if is_listening(address):
            return address
    return None


def default_socket() -> Path:
    """Return where a service of this user listens when somebody has started one."""
    if os.geteuid() == 0:
        return Path("/run/podman/podman.sock")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}") / "podman" / "podman.sock"


def is_listening(address: str) -> bool:
    """Say whether somebody listens at a ``unix://`` address."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(address.removeprefix("unix://"))
    except OSError:
        return False
    return True


def private_runtime() -> str | None:
    """Return the OCI runtime to configure for a private service; None where its own choice works.

    crun, which is Podman's choice where it is installed, starts nothing where cgroups v1 and v2 are mixed and no
    systemd looks after them.
    """
    mixed = _HYBRID.exists() and not Path("/run/systemd/system").is_dir()
    return "runc" if mixed and shutil.which("runc", path=_with_sbin()) else None


def service_limits(address: str) -> HardLimits:
    """Return the hard limits of the process that listens at `address`, where it cannot raise them.

    Podman gives its containers more open files and processes than its own process may have, and without the
    capability CAP_SYS_RESOURCE none of them starts. Empty where it may raise them, and where this cannot be read.
    """
    try:
        pid = _peer(address)
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        limits = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
    except OSError:
        return HardLimits({})
    return parse_limits(status, limits)


def service_on_this_host(address: str) -> int | None:
    """Return the process of this host that serves an address, if one does: its containers' monitors are here, too."""
    if not address.startswith("unix://"):
        return None
    try:
        pid = _peer(address)
        return pid if psutil.Process(pid).name() == PROGRAM else None
    except (OSError, ValueError, psutil.Error):
        return None


def _peer(address: str) -> int:
    """Return the process that listens at a ``unix://`` address, 0 where it cannot be seen from here."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        probe.connect(address.removeprefix("unix://"))
        pid, _, _ = _PEER.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        return int(pid)


def parse_limits(status: str, limits: str) -> HardLimits:
    """Return the hard limits that the texts of ``/proc/PID/status`` and ``/proc/PID/limits`` mean; see above."""
    capabilities = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    if capabilities >> _CAP_SYS_RESOURCE & 1:
        return HardLimits({})
    hard = {}
    for row, name in (("Max open files", "nofile"), ("Max processes", "nproc")):
        for line in limits.splitlines():
            # Columns of fixed width: name, soft, hard, unit; "unlimited" needs no limit.
            fields = line.removeprefix(row).split()
            if line.startswith(row) and fields[1].isdecimal():
                hard[name] = int(fields[1])
    return HardLimits(hard)


def _with_sbin() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _folders(pattern: str) -> list[Path]:
    """Return the folders for sockets that this user has made; nobody else can make one there."""
    roots = [path for path, owner in runtime_directories(_SOCKETS) if owner == os.geteuid()]
    return [path for root in roots for path in root.glob(pattern)]


def _process_mark(pid: int) -> str:
    """Return what names a process of our PID namespace: in others, which may share ``/run``, it is another one."""
    with suppress(OSError):
        return f"{pid}.{Path('/proc/self/ns/pid').stat().st_ino}"
    return f"{pid}.0"


def _is_abandoned(folder: Path) -> bool:
    """Return whether the process that made a folder has ended: it holds a lock there while it lives.

    Its process ID would not say: a process in another PID namespace with the same /run does not see it.
    """
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        with suppress(OSError):
            return time.time() - folder.stat().st_mtime > _NEW_S
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)


def _make_folder(prefix: str) -> tuple[Path, int]:
    """Return a new folder for a socket, and the lock that keeps it; remove those of processes that have ended."""
    for one in _folders(f"{_PREFIX}*"):
        if _is_abandoned(one):
            shutil.rmtree(one, ignore_errors=True)
    try:
        folder = Path(
            tempfile.mkdtemp(prefix=f"{prefix}{_process_mark(os.getpid())}-", dir=runtime_directory(_SOCKETS))
        )
        lock = os.open(folder / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / f"{_LOCK}.new").rename(folder / _LOCK)  # locked from the moment at which others see it
    except (OSError, InfrastructureError) as error:
        raise EngineUnavailable(f"no directory for Podman's socket: {error}") from error
    return folder, lock


_LOCK: Final = "lock"
_NEW_S: Final = 60.0
"""A folder without a lock is being made, unless it is older than this."""
_START_S: Final = 30.0
_NO_RUNTIME: Final = "its API has no option for it; start its service with `podman --runtime NAME system service`"
_INIT: Final = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit")
"""Where Podman looks for the first process that ``init: true`` asks for."""


class PodmanEngine(DockerEngine):
    """Podman, through the socket that runs already or one of its own."""

    name: ClassVar[str] = "podman"
    settings: ClassVar[frozenset[str]] = DockerEngine.settings - {"runtime"}
    output_ends_last: ClassVar[bool] = True
    stops_by_sigkill: ClassVar[bool] = True
    scope: ClassVar[str] = "/machine.slice/libpod-{}.scope"

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask the service that runs, or a private one that ends again."""
        service = cls._private_service()
        try:
            address = cls._running_address() or _start(service, PROBE_S)
            status = docker_probe.probe_docker(cls.name, address, cls.operations, cls.settings)
        except EngineUnavailable as error:
            reason = str(error)
            return EngineStatus(cls.name, usable=False, reason=reason, advice=unavailable_advice(reason, ADVICE))
        finally:
            service.end()
        return _with_podman_details(status, private=service.started) if status.usable else cls._failed(status)

    @classmethod
    def program_of(cls, status: EngineStatus) -> str:
        """Return the service's, or the one that a private service would have."""
        return listening_program(status.endpoint) or shutil.which(cls._program()) or ""

    @classmethod
    def _program(cls) -> str:
        return cls.place if cls.place.startswith("/") else PROGRAM

    @classmethod
    def _prefix(cls) -> str:
        return f"{_PREFIX}as-{cls.name}-" if cls.place else _PREFIX

    @classmethod
    def _private_service(cls) -> PrivateService:
        return PrivateService(cls._program(), cls._prefix())

    @classmethod
    def _running_address(cls) -> str | None:
        return running_address(cls.place, cls._prefix())

    @classmethod
    def image_store(cls) -> None:
        """Leave building to Docker, from whose store `missing` copies."""

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return the service that runs, or a private one once it is there, and the monitor of each container."""
        address = cls._running_address() or ""
        socket = address.removeprefix("unix://") if address.startswith("unix://") else None
        return podman_daemon(socket)

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._service = self._private_service()
        self._service_address = ""
        self._limits = HardLimits({})
        self._restart_lock = RLock()

    def open(self) -> None:
        """Connect to the service that runs, or to one that is started now."""
        try:
            self._service_address = self._running_address() or _start(self._service, _START_S)
            self._limits = service_limits(self._service_address)
            super().open()
        except EngineUnavailable as error:
            self._service.end()
            raise EngineUnavailable(f"engine {self.name!r} cannot be used: {error}") from error

    def close(self) -> None:
        """Close the connections, and end a service of our own. Containers go on."""
        super().close()
        self._service.end()

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Make the container; before that, and not timed, those of its named volumes that are not there yet.

        Podman would make them, too, but without the labels by which they are found again.
        """
        self._label(container)
        named = [mount.source for mount in container.settings.storage if mount.kind == "volume" and mount.source]
        if named:
            with self._operation(timeout_s) as before:
                known = {volume["Name"] for volume in before.get("volumes").get("Volumes") or ()}
                for name in sorted(set(named) - known):
                    before.post("volumes", "create", body={"Name": name, "Labels": dict(container.labels)})
        return super().create(container, timeout_s=timeout_s)

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Remove it; where the private service has died, by another one, so that nothing is left of a run."""
        self._revive_service()
        return super().remove(container, timeout_s=timeout_s)

    def _remove_by_force(self, timed: TimedRequest, identity: str) -> None:
        """Remove it, and ask again, within the deadline, where its command ends in that very moment.

        Podman looks whether the container runs, then kills it, and refuses to remove what has ended in between.
        """
        while True:
            try:
                super()._remove_by_force(timed, identity)
            except DockerApiError as error:
                if timed.expired() or not _ENDED_MEANWHILE.search(str(error)):
                    raise
                gevent.sleep(_POLL_S)
            else:
                return

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return what carries the label, and the monitors of containers that this service has forgotten.

        Those are nobody's, whichever worker made them: nothing else of Podman's leads to them.
        """
        found = super().leftovers(run_id, worker_id)
        service = service_on_this_host(self._service_address)
        if service is None:
            return found
        monitors = list(running_monitors(service))
        if not any(one.run_id for one in monitors):
            return found
        try:
            asked = self._lookup()
            known = frozenset(row["Id"] for row in asked.get("containers", "json", all="1"))
            store = str(asked.get("info").get("DockerRootDir") or "")
        except call_errors(DockerApiError) as error:
            raise InfrastructureError(f"{self.name} cannot list what runs left behind: {error}") from error
        return [*found, *(find_forgotten(self.name, monitors, known, store, run_id) if store else ())]

    def discard(self, leftover: Leftover) -> None:
        """Remove one of them; with a container its monitor, which one that was never started would leave."""
        if leftover.what != MONITOR:
            super().discard(leftover)
        if leftover.what in (MONITOR, "container"):
            remove_monitor(leftover.identity)

    def _revive_service(self) -> None:
        if is_private(self._service_address):
            with self._restart_lock:
                if not is_listening(self._service_address):
                    self._restart_service()

    def _restart_service(self) -> None:
        self._service.end()
        self._service = self._private_service()
        with suppress(EngineUnavailable):
            self._service_address = self._service.start(_START_S)
            self._disconnect()
            super().open()

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what its log driver kept of both streams, up to where one of them is full.

        Asked for one stream of a container that goes on writing to the other, Podman reads on and never ends.
        """
        with self._operation(timeout_s) as timed:
            identity = container_id(container, timed)
            stdout, stderr = self._logs(timed, identity, limit_bytes, stdout="1", stderr="1")
        return timed.result(stdout=stdout.data, stderr=stderr.data, truncated=stdout.truncated or stderr.truncated)

    def watch(self, container: Container, *, interval_s: float, timeout_s: float) -> Iterator[OperationResult]:
        """Ask again and again: Podman's own stream comes every five seconds, and cannot be had at another pace."""
        return Engine.watch(self, container, interval_s=interval_s, timeout_s=timeout_s)

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Copy the image from Docker's store where it is not in Podman's, then return what is missing."""
        reason = ensure_image(self._http, settings.image, self.name) if settings.image else ""
        return [reason] if reason else super().missing(settings)

    @classmethod
    def _failed(cls, status: EngineStatus) -> EngineStatus:
        return replace(
            status,
            reason=status.reason.replace("Docker Engine", "service of Podman's API"),
            advice=unavailable_advice(status.reason, ADVICE),
        )

    def _address(self) -> str:
        return self._service_address

    def _body(self, container: Container, timed: TimedRequest) -> dict[str, Any]:
        body = super()._body(container, timed)
        given = body["HostConfig"].get("Ulimits", [])
        known = {limit["Name"] for limit in given}
        body["HostConfig"]["Ulimits"] = given + [
            {"Name": name, "Soft": most, "Hard": most}
            for name, most in self._limits.ulimits.items()
            if name not in known
        ]
        return body


def _start(service: PrivateService, timeout_s: float) -> str:
    if shutil.which(service.program) is None:
        where = "is no program" if service.program.startswith("/") else "is not on PATH, and no service of its API"
        raise EngineUnavailable(f"program {service.program!r} {where}")
    return service.start(timeout_s)


def _with_podman_details(status: EngineStatus, *, private: bool) -> EngineStatus:
    """Return a status with what is Podman's own in it."""
    details = {**status.details, "service": "private" if private else "running", "setting.runtime": _NO_RUNTIME}
    details.pop(STATS_INTERVAL, None)  # it is asked, not listened to
    settings = set(status.settings)
    if private and not any(Path(path).exists() for path in _INIT):
        settings.discard("init")
        details["setting.init"] = "Podman's first process, catatonit, is not installed (`apt-get install catatonit`)"
    endpoint = "a private `podman system service`" if private else status.endpoint
    return replace(status, endpoint=endpoint, settings=tuple(sorted(settings)), details=details)
