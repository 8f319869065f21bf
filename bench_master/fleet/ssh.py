"""SSH connections to hosts: who they are is proven first, by known_hosts; who we are by keys, never by passwords."""

from __future__ import annotations

import getpass
import logging
import socket
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote
from time import monotonic, sleep
from typing import Final

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from bench_common.errors import InfrastructureError
from bench_master.fleet.hosts import Login
from bench_master.fleet.known_hosts import KnownHosts

CONNECT_S: Final = 15.0
"""How long a host may take to answer, to prove itself and to let us in, each."""
KEEPALIVE_S: Final = 15
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
        try:
            client.connect(
                login.address,
                port=login.port,
                username=user,
                key_filename=[str(key) for key in login.keys] or None,  # type: ignore[arg-type]  # the stubs know one alone
                look_for_keys=not login.keys,
                sock=self._way(login),
                timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
                channel_timeout=CONNECT_S,
            )
        except HostFailed as error:
            client.close()
            raise HostFailed(f"{error}{origin}") from error
        except Exception as error:
            client.close()
            raise HostFailed(f"{self._why(login, user, error)}{origin}") from error
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

    def _why(self, login: Login, user: str, error: Exception) -> str:
        """Say why a connection failed, and what to do about it."""
        where = f"{login.address}:{login.port}"
        keys = " or ".join(map(str, login.keys))
        if isinstance(error, paramiko.BadHostKeyException):
            return self._known.changed(error)
        if isinstance(error, (paramiko.PasswordRequiredException, paramiko.AuthenticationException)):
            means = f"the key {keys}" if keys else "the agent's keys and those in ~/.ssh"
            encrypted = isinstance(error, paramiko.PasswordRequiredException)
            locked = " (it has a passphrase, so it has to be in the agent: ssh-add)" if encrypted else ""
            return (
                f"{where} does not let {user} in by {means}{locked}; see: ssh -p {login.port} {user}@{login.address}"
            )
        if "No authentication methods" in str(error):
            return f"no key to log in to {where} with: load one into the agent (ssh-add), or name it with 'key:'"
        if isinstance(error, FileNotFoundError):
            return f"key {keys}: not found"
        if isinstance(error, socket.gaierror):
            return f"{login.address}: no such host; give an 'address:'"
        if isinstance(error, NoValidConnectionsError):
            return f"{where}: nothing listens there for SSH, or a firewall is in the way ({_reason(error)})"
        if isinstance(error, paramiko.SSHException) and "protocol" in str(error):
            return f"{where} does not speak SSH ({error}); name the port of its SSH server with 'port:'"
        if isinstance(error, TimeoutError):
            return f"{where} did not answer within {CONNECT_S:g} s"
        if isinstance(error, OSError) and error.filename:
            return f"{error.filename} here: {error.strerror}"
        return f"{where}: {str(error) or type(error).__name__}"


def _reason(error: NoValidConnectionsError) -> str:
    return "; ".join(sorted({getattr(each, "strerror", None) or str(each) for each in error.errors.values()}))


def run_on(
    client: paramiko.SSHClient, command: Sequence[str], *, stdin: Iterable[bytes] = (), timeout_s: float
) -> Said:
    """Run a command on a host, with `stdin` for it; raise `HostFailed` when it does not end in time."""
    transport = client.get_transport()
    if transport is None:
        raise HostFailed("the connection is closed")
    output = _Output()
    try:
        channel = transport.open_session(timeout=CONNECT_S)
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
        deadline = monotonic() + timeout_s
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
            if monotonic() > deadline:
                raise HostFailed(f"{name} did not end within {timeout_s:g} s")
            sleep(0.01)

    def _take(self, channel: paramiko.Channel) -> bool:
        """Take what has come; return whether there was anything."""
        before = len(self.out) + len(self.err)
        if channel.recv_ready():
            self.out += channel.recv(1 << 16)
        if channel.recv_stderr_ready():
            self.err += channel.recv_stderr(1 << 16)
        return len(self.out) + len(self.err) > before


def local_address(client: paramiko.SSHClient) -> str:
    """Return our own address on the way to a host."""
    transport = client.get_transport()
    with suppress(OSError, AttributeError, TypeError):
        return str(transport.sock.getsockname()[0])  # type: ignore[union-attr]
    return ""
