"""Where a master's sockets are bound: in a private directory for workers of its user, on TCP ports for others."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import pwd
import shutil
import socket as system
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import zmq
from msgspec import Struct

from bench_common.argument_types import CONTROL_PORT, RESULTS_PORT, WORK_PORT, authority
from bench_common.curve import curve_required
from bench_common.errors import InfrastructureError, UsageError
from bench_common.rendezvous import Claim, control_socket, private_directory

_PREFIX: Final = "master-"
_LOCK: Final = "master.lock"


class Ports(Struct, frozen=True):
    """The TCP ports of a master. Lanes take `work` and the ports after it, one a worker."""

    control: int = CONTROL_PORT
    results: int = RESULTS_PORT
    work: int = WORK_PORT


class Endpoints:
    """Binds a master's sockets. `bind_ip` None means: no TCP, workers of this user on this host only.

    Without TCP and with `joinable`, workers that the user starts by hand find the control socket by its port, which
    is then a name. Used as a context manager, it removes its directory in the end. One that a master left behind when
    it was killed is removed by the next.
    """

    def __init__(self, bind_ip: str | None, ports: Ports, *, insecure: bool = False, joinable: bool = False) -> None:
        _check(bind_ip, ports)
        self.bind_ip = bind_ip
        self.ports = ports
        self.curve = bind_ip is not None and curve_required(bind_ip, insecure=insecure)
        parent = private_directory()
        _remove_stale(parent)
        self._claim: Claim | None = None
        if bind_ip is None and joinable:
            self._claim = _claimed(ports.control)
        self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock = _lock(self.directory)
        self._lanes = 0
        self._lane_ports: dict[int, int] = {}
        """The port of the lane of each member, by number."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._claim is not None:
            self._claim.release()
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)

    @property
    def local_control(self) -> str:
        """Where workers of this host reach the control socket."""
        return f"ipc://{self.directory}/control"

    def bind_control(self, socket: zmq.Socket[bytes]) -> None:
        """Bind the control socket."""
        socket.bind(self.local_control)
        if self._claim is not None:
            socket.bind(f"ipc://{self._claim.path}")
        self._bind_tcp(socket, self.ports.control, "--zmq-control-port")

    def bind_results(self, socket: zmq.Socket[bytes], prepare_tcp: Callable[[], None]) -> None:
        """Bind the results socket; `prepare_tcp` sets its options for TCP in between."""
        socket.bind(f"ipc://{self.directory}/results")
        if self.bind_ip is not None:
            prepare_tcp()
        self._bind_tcp(socket, self.ports.results, "--zmq-results-port")

    def results_for(self, *, local: bool) -> str:
        """Return the results endpoint as the welcome names it."""
        return f"ipc://{self.directory}/results" if self.stays_here(local=local) else f"tcp://*:{self.ports.results}"

    def bind_lane(self, socket: zmq.Socket[bytes], member: int, *, local: bool) -> str:
        """Bind a new lane of a member, whose old one is closed; return its endpoint as the welcome names it."""
        self._lanes += 1
        if self.stays_here(local=local):
            endpoint = f"ipc://{self.directory}/lane-{self._lanes}"
            socket.bind(endpoint)
            return endpoint
        # To try a port that another lane has takes as long as to bind one that is free.
        self._lane_ports.pop(member, None)
        taken = set(self._lane_ports.values())
        for port in range(self.ports.work, min(self.ports.work + 4096, 65536)):
            if port in taken:
                continue
            try:
                socket.bind(self._tcp(port))
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE:
                    raise
            else:
                self._lane_ports[member] = port
                return f"tcp://*:{port}"
        raise InfrastructureError(
            f"no port is free for a lane from {self.ports.work} on; try another --zmq-work-port"
        )

    def stays_here(self, *, local: bool) -> bool:
        """Return whether a worker uses the private directory: one of the master's own (`local`), or each of them."""
        return local or self.bind_ip is None

    def _tcp(self, port: int) -> str:
        return f"tcp://{authority(self.bind_ip or '', port)}"

    def _bind_tcp(self, socket: zmq.Socket[bytes], port: int, flag: str) -> None:
        if self.bind_ip is None:
            return
        try:
            socket.bind(self._tcp(port))
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE:
                raise InfrastructureError(
                    f"port {port} of {self.bind_ip} is taken, most likely by another master; end it or give {flag}"
                ) from error
            if error.errno in (errno.ENODEV, errno.EINVAL, errno.EADDRNOTAVAIL):
                raise UsageError(
                    f"--zmq-bind-ip {self.bind_ip}: not an address of this host (0.0.0.0 means all of them)"
                ) from error
            raise


def _check(bind_ip: str | None, ports: Ports) -> None:
    """Raise `UsageError` for what can be no address, and for ports that are in each other's way."""
    try:
        ipaddress.ip_address(bind_ip or "0.0.0.0")  # noqa: S104  None: no address is asked for
    except ValueError:
        interfaces = {name for _, name in system.if_nameindex()}
        if bind_ip not in {"localhost", "*", *interfaces}:
            raise UsageError(
                f"--zmq-bind-ip {bind_ip}: expected an IP address of this host such as 192.168.1.5 or "
                "fd00::5, or 0.0.0.0 for all of them (with IPv6: *)"
            ) from None
    if ports.control == ports.results:
        raise UsageError(
            f"--zmq-control-port and --zmq-results-port are both {ports.control}: give each a port of its own"
        )


def _lock(directory: Path) -> int:
    """Mark a directory as in use for as long as this process lives; return the descriptor that holds the lock."""
    fresh = directory / f".{_LOCK}"
    descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # Locked before it gets the name that others look for.
    fresh.rename(directory / _LOCK)
    return descriptor


def _claimed(port: int) -> Claim:
    path = control_socket(port)
    return Claim(path, f"waits for workers at {path}; end it, or give --zmq-control-port").acquire()


def describe_master() -> str:
    """Return who this master is, for workers to tell another one: user, host and process."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = f"user {os.geteuid()}"
    return f"{user}@{system.gethostname()} (process {os.getpid()})"


def _remove_stale(parent: Path) -> None:
    """Remove the directories, with the keys in them, of masters of this user that were killed."""
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            if lock.parent.lstat().st_uid != os.geteuid():
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
