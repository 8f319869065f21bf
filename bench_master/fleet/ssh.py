"""SSH connections to hosts. ``known_hosts`` authenticates the host, keys authenticate us, never passwords.

`explain_ssh_error` says why a connection failed and what to do about it. paramiko has no exceptions of its own for
most of what a slow or a full host does; these texts mean:

- ``Error reading SSH protocol banner``: nothing came before the deadline, or the end did;
- ``No existing session``: the deadline passed while keys were agreed on, which it notices only when it goes on;
- an `EOFError` without words: the host closed the connection, or its own deadline for that passed;
- ``Authentication timeout.``, an `AuthenticationException` as those are that mean a refusal;
- ``encountered RSA key, expected OPENSSH key``: a key file is tried as one of every kind, and the last one's fault is
  told, whatever the host has said to the right one.
"""

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

NEAR_DEADLINE_RATIO: Final = 0.9
"""What took this part of a deadline or more ended because of it: the library looks at its clock now and then."""

_KEY_FORMAT_ERRORS: Final = ("key, expected", "private key file")
_OVERLOADED: Final = "it may be overloaded, or have as many logins under way as its MaxStartups lets it"


def explain_ssh_error(error: Exception, login: Login, user: str, *, took_s: float, limit_s: float) -> str:
    """Return why a connection failed with `error`, in a sentence for the user.

    It was tried for `took_s` in all; each step of it may take `limit_s`.
    """
    if isinstance(error, FileNotFoundError):
        return f"key {_describe_keys(login)}: not found"
    if isinstance(error, socket.gaierror):
        return f"{login.address}: no such host; give an 'address:'"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} here: {error.strerror}"
    told = _login_error(error, login, user, limit_s) or _connect_error(
        error, took_s >= NEAR_DEADLINE_RATIO * limit_s, limit_s
    )
    return f"{login.address}:{login.port}{told or f': {str(error) or type(error).__name__}'}"


def _login_error(error: Exception, login: Login, user: str, limit_s: float) -> str | None:
    """Say what became of the login, if it came to that."""
    said, keys = str(error), _describe_keys(login)
    means = f"the key {keys}" if keys else "the agent's keys and those in ~/.ssh"
    see = f"see: ssh -p {login.port} {user}@{login.address}"
    if isinstance(error, paramiko.PasswordRequiredException):
        return (
            f" does not let {user} in by {means} (it has a passphrase, so it has to be in the agent: ssh-add); {see}"
        )
    if isinstance(error, paramiko.AuthenticationException):
        if "timeout" in said:
            return f" neither let {user} in nor refused within {limit_s:g} s: {_OVERLOADED}"
        if "EOF" in said:
            return f" closed the connection while {user} logged in: see its SSH server's log, or {_OVERLOADED}"
        return f" does not let {user} in by {means}; {see}"
    if "No authentication methods" in said:
        return f" has no key of ours to let {user} in by: load one into the agent (ssh-add), or name it with 'key:'"
    if any(words in said for words in _KEY_FORMAT_ERRORS):
        return f" does not let {user} in by {means}, if that is a private key at all ({said}); {see}"
    return None


def _connect_error(error: Exception, late: bool, limit_s: float) -> str | None:  # noqa: FBT001
    """Say what became of the connection before any login; `late`: a deadline passed."""
    said = str(error)
    if isinstance(error, NoValidConnectionsError):
        return f": nothing listens there for SSH, or a firewall is in the way ({_error_text(error)})"
    if "No existing session" in said or isinstance(error, EOFError):
        if late:
            return f" took the connection, and had not agreed on keys with us within {limit_s:g} s: {_OVERLOADED}"
        return f" closed the connection before keys were agreed on: {_OVERLOADED}"
    if isinstance(error, paramiko.SSHException) and "protocol" in said:
        if late and said.startswith("Error reading"):
            silent = f" took the connection, and had not said within {limit_s:g} s that it speaks SSH"
            return f"{silent}: {_OVERLOADED}; or name the port of its SSH server with 'port:'"
        return f" does not speak SSH ({said}); name the port of its SSH server with 'port:'"
    if isinstance(error, TimeoutError):
        return f" did not answer within {limit_s:g} s"
    return None


def _describe_keys(login: Login) -> str:
    return " or ".join(map(str, login.keys))


def _error_text(error: NoValidConnectionsError) -> str:
    return "; ".join(sorted({getattr(each, "strerror", None) or str(each) for each in error.errors.values()}))


CONNECT_TIMEOUT_S: Final = 15.0
"""Time limit for each of connecting, the host's key exchange and the login (s)."""
KEEPALIVE_INTERVAL_S: Final = 15
FOLLOWUP_POLL_S: Final = 0.5
MAX_OUTPUT: Final = 64 << 20


class HostError(InfrastructureError):
    """An operation failed on one host; the message says what and why, without the host's name."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command on a host ended."""

    status: int
    stdout: bytes
    stderr: bytes


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
        """Return a connection to a host, through those on the way to it; raise `HostError`."""
        client = self._known.client()
        user = login.user or getpass.getuser()
        origin = f" ({login.source})" if login.source else ""
        began = monotonic()
        try:
            sock = self._jump_channel(login)
            began = monotonic()
            client.connect(
                login.address,
                port=login.port,
                username=user,
                key_filename=[str(key) for key in login.keys] or None,  # type: ignore[arg-type]  # the stubs know one alone
                look_for_keys=not login.keys,
                sock=sock,
                timeout=CONNECT_TIMEOUT_S,
                banner_timeout=CONNECT_TIMEOUT_S,
                auth_timeout=CONNECT_TIMEOUT_S,
                channel_timeout=CONNECT_TIMEOUT_S,
            )
        except HostError as error:
            client.close()
            raise HostError(f"{error}{origin}") from error
        except paramiko.BadHostKeyException as error:
            client.close()
            raise HostError(f"{self._known.changed_key_error(error)}{origin}") from error
        except Exception as error:
            client.close()
            why = explain_ssh_error(error, login, user, took_s=monotonic() - began, limit_s=CONNECT_TIMEOUT_S)
            raise HostError(f"{why}{origin}") from error
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(KEEPALIVE_INTERVAL_S)
        return client

    def close(self) -> None:
        """Close what is shared."""
        for client in self._jumps.values():
            client.close()
        self._jumps.clear()

    def _jump_channel(self, login: Login) -> paramiko.Channel | None:
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
                except HostError as error:
                    raise HostError(f"jump host {login.jump.address}: {error}") from error
                transport = client.get_transport()
        assert transport is not None
        try:
            return transport.open_channel(
                "direct-tcpip", (login.address, login.port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT_S
            )
        except (paramiko.SSHException, OSError) as error:
            raise HostError(
                f"jump host {login.jump.address} does not get through to {login.address}:{login.port}: {error}"
            ) from error


def run_on(
    client: paramiko.SSHClient, command: Sequence[str], *, stdin: Iterable[bytes] = (), timeout_s: float
) -> CommandResult:
    """Run a command on a host, with `stdin` for it; raise `HostError` when it does not end in time."""
    transport = client.get_transport()
    if transport is None:
        raise HostError("the connection is closed")
    output = _Output()
    try:
        channel = _open_session(transport)
        with channel:
            channel.settimeout(timeout_s)
            channel.exec_command(" ".join(quote(word) for word in command))
            _send(channel, stdin)
            return output.wait(channel, command[0], timeout_s)
    except (OSError, paramiko.SSHException, EOFError) as error:
        raise HostError(f"the connection broke: {str(error) or type(error).__name__}{output.stderr_tail}") from error


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


def _open_session(transport: paramiko.Transport) -> paramiko.Channel:
    """Return a session in which a command can be run; raise `HostError` where the host opens none in time."""
    began = monotonic()
    try:
        return transport.open_session(timeout=CONNECT_TIMEOUT_S)
    except paramiko.SSHException as error:
        if monotonic() - began < CONNECT_TIMEOUT_S:
            raise
        raise HostError(
            f"login succeeded, but no session opened within {CONNECT_TIMEOUT_S:g} s: it may be overloaded"
        ) from error


class _Output:
    """What a command says, both streams of it, up to its end."""

    def __init__(self) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()

    @property
    def stderr_tail(self) -> str:
        """The last words on stderr, to be put behind a message; empty where there are none."""
        words = bytes(self.stderr).decode("utf-8", "replace").strip()[-300:]
        return f": {words}" if words else ""

    def wait(self, channel: paramiko.Channel, name: str, timeout_s: float) -> CommandResult:
        """Return how the command ended; raise `HostError` where it does not in time, or nobody can tell any more."""
        deadline, late = monotonic() + timeout_s, False
        while True:
            # Looked at before what has come is taken: nothing comes after it. One that was cut off is closed, too.
            ended = channel.closed or (channel.eof_received and channel.exit_status_ready())
            if self._read_available(channel):
                continue
            if ended:
                status = channel.recv_exit_status()
                if status < 0:
                    raise HostError(f"the connection broke, or {name} was killed on the host{self.stderr_tail}")
                return CommandResult(status, bytes(self.stdout), bytes(self.stderr))
            if len(self.stdout) + len(self.stderr) > MAX_OUTPUT:
                raise HostError(f"{name} printed more than {MAX_OUTPUT} bytes")
            if late:
                raise HostError(f"{name} did not end within {timeout_s:g} s")
            if monotonic() > deadline:
                # It may be us who were kept from looking: what has come meanwhile is read before that is said.
                late = True
                sleep(FOLLOWUP_POLL_S)
                continue
            sleep(0.01)

    def _read_available(self, channel: paramiko.Channel) -> bool:
        """Take what has come; return whether there was anything."""
        before = len(self.stdout) + len(self.stderr)
        if channel.recv_ready():
            self.stdout += channel.recv(1 << 16)
        if channel.recv_stderr_ready():
            self.stderr += channel.recv_stderr(1 << 16)
        return len(self.stdout) + len(self.stderr) > before


def remote_address(client: paramiko.SSHClient) -> str:
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
