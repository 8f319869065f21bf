"""SSH connections to hosts: who they are is proven first, by known_hosts; who we are by keys, never by passwords."""

from __future__ import annotations

import getpass
import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote
from time import monotonic, sleep
from typing import Final

import paramiko

from bench_common.errors import InfrastructureError
from bench_master.fleet.hosts import Login
from bench_master.fleet.known_hosts import KnownHosts
from bench_master.fleet.ssh_faults import explain

CONNECT_S: Final = 15.0
"""How long a host may take to answer, to prove itself and to let us in, each."""
KEEPALIVE_S: Final = 15
SECOND_LOOK_S: Final = 0.5
MAX_OUTPUT: Final = 64 << 20


class HostFailed(InfrastructureError):
    """Something could not be done on one host; the message says what and why, and leaves out the host's name."""


@dataclass(frozen=True, slots=True)
class Said:
    """How a command on a host ended."""

    status: int
    out: bytes
    err: bytes


class Connections:
    """Opens connections, and keeps those to jump hosts, which many hosts share, until `close`."""

    def __init__(self, known: KnownHosts) -> None:
        self._known = known
        # What fails is told by us, for the host that it concerns; the library would add a traceback from its thread.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)
        self._jumps: dict[Login, paramiko.SSHClient] = {}
        self._locks: dict[Login, threading.Lock] = {}
        self._lock = threading.Lock()

    def open(self, login: Login) -> paramiko.SSHClient:
        """Return a connection to a host, through those on the way to it; raise `HostFailed`."""
        client = self._known.client()
        user = login.user or getpass.getuser()
        origin = f" ({login.origin})" if login.origin else ""
        began = monotonic()
        try:
            sock = self._way(login)
            began = monotonic()
            client.connect(
                login.address,
                port=login.port,
                username=user,
                key_filename=[str(key) for key in login.keys] or None,  # type: ignore[arg-type]  # the stubs know one alone
                look_for_keys=not login.keys,
                sock=sock,
                timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
                channel_timeout=CONNECT_S,
            )
        except HostFailed as error:
            client.close()
            raise HostFailed(f"{error}{origin}") from error
        except paramiko.BadHostKeyException as error:
            client.close()
            raise HostFailed(f"{self._known.changed(error)}{origin}") from error
        except Exception as error:
            client.close()
            why = explain(error, login, user, took_s=monotonic() - began, limit_s=CONNECT_S)
            raise HostFailed(f"{why}{origin}") from error
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(KEEPALIVE_S)
        return client

    def close(self) -> None:
        """Close what is shared."""
        for client in self._jumps.values():
            client.close()
        self._jumps.clear()

    def _way(self, login: Login) -> paramiko.Channel | None:
        """Return a channel from the jump host to the host, or None where there is no jump host."""
        if login.jump is None:
            return None
        with self._lock:
            lock = self._locks.setdefault(login.jump, threading.Lock())
        with lock:
            client = self._jumps.get(login.jump)
            transport = client.get_transport() if client is not None else None
            if transport is None or not transport.is_active():
                try:
                    client = self._jumps[login.jump] = self.open(login.jump)
                except HostFailed as error:
                    raise HostFailed(f"jump host {login.jump.address}: {error}") from error
                transport = client.get_transport()
        assert transport is not None
        try:
            return transport.open_channel(
                "direct-tcpip", (login.address, login.port), ("127.0.0.1", 0), timeout=CONNECT_S
            )
        except (paramiko.SSHException, OSError) as error:
            raise HostFailed(
                f"jump host {login.jump.address} does not get through to {login.address}:{login.port}: {error}"
            ) from error


def run_on(
    client: paramiko.SSHClient, command: Sequence[str], *, stdin: Iterable[bytes] = (), timeout_s: float
) -> Said:
    """Run a command on a host, with `stdin` for it; raise `HostFailed` when it does not end in time."""
    transport = client.get_transport()
    if transport is None:
        raise HostFailed("the connection is closed")
    output = _Output()
    try:
        channel = _session(transport)
        with channel:
            channel.settimeout(timeout_s)
            channel.exec_command(" ".join(quote(word) for word in command))
            _send(channel, stdin)
            return output.follow(channel, command[0], timeout_s)
    except (OSError, paramiko.SSHException, EOFError) as error:
        raise HostFailed(f"the connection broke: {str(error) or type(error).__name__}{output.complaint}") from error


def _send(channel: paramiko.Channel, parts: Iterable[bytes]) -> None:
    """Send what a command is to read, or as much as it reads: one that ends before says why."""
    try:
        for part in parts:
            channel.sendall(part)
        channel.shutdown_write()
    except TimeoutError:
        raise
    except OSError:
        if not channel.closed:
            raise


def _session(transport: paramiko.Transport) -> paramiko.Channel:
    """Return a session in which a command can be run; raise `HostFailed` where the host opens none in time."""
    began = monotonic()
    try:
        return transport.open_session(timeout=CONNECT_S)
    except paramiko.SSHException as error:
        if monotonic() - began < CONNECT_S:
            raise
        raise HostFailed(
            f"it let us in, and opened no session within {CONNECT_S:g} s: it may be overloaded"
        ) from error


class _Output:
    """What a command says, both streams of it, up to its end."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.err = bytearray()

    @property
    def complaint(self) -> str:
        """The last words on stderr, to be put behind a message; empty where there are none."""
        words = bytes(self.err).decode("utf-8", "replace").strip()[-300:]
        return f": {words}" if words else ""

    def follow(self, channel: paramiko.Channel, name: str, timeout_s: float) -> Said:
        """Return how the command ended; raise `HostFailed` where it does not in time, or nobody can tell any more."""
        deadline, late = monotonic() + timeout_s, False
        while True:
            # Looked at before what has come is taken: nothing comes after it. One that was cut off is closed, too.
            ended = channel.closed or (channel.eof_received and channel.exit_status_ready())
            if self._take(channel):
                continue
            if ended:
                status = channel.recv_exit_status()
                if status < 0:
                    raise HostFailed(f"the connection broke, or {name} was killed there{self.complaint}")
                return Said(status, bytes(self.out), bytes(self.err))
            if len(self.out) + len(self.err) > MAX_OUTPUT:
                raise HostFailed(f"{name} said more than {MAX_OUTPUT} bytes")
            if late:
                raise HostFailed(f"{name} did not end within {timeout_s:g} s")
            if monotonic() > deadline:
                # It may be us who were kept from looking: what has come meanwhile is read before that is said.
                late = True
                sleep(SECOND_LOOK_S)
                continue
            sleep(0.01)

    def _take(self, channel: paramiko.Channel) -> bool:
        """Take what has come; return whether there was anything."""
        before = len(self.out) + len(self.err)
        if channel.recv_ready():
            self.out += channel.recv(1 << 16)
        if channel.recv_stderr_ready():
            self.err += channel.recv_stderr(1 << 16)
        return len(self.out) + len(self.err) > before


def far_address(client: paramiko.SSHClient) -> str:
    """Return the address at which a host was reached, as it is seen from here."""
    transport = client.get_transport()
    with suppress(OSError, AttributeError, TypeError):
        return str(transport.sock.getpeername()[0])  # type: ignore[union-attr]
    return ""


def local_address(client: paramiko.SSHClient) -> str:
    """Return our own address on the way to a host."""
    transport = client.get_transport()
    with suppress(OSError, AttributeError, TypeError):
        return str(transport.sock.getsockname()[0])  # type: ignore[union-attr]
    return ""
