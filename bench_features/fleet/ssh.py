"""SSH connections to hosts. ``known_hosts`` authenticates the host, keys authenticate us, never passwords.

`explain_ssh_error` says why a connection failed and what to do about it. paramiko has no exceptions of its own for
most failures of a slow or overloaded host; these texts mean:

- ``Error reading SSH protocol banner``: the deadline passed, or the host closed the connection, before any data;
- ``No existing session``: the deadline passed during the key exchange, which paramiko notices only at its next step;
- an `EOFError` without a text: the host closed the connection, or its own deadline passed;
- a `ConnectionError`: it closed the connection with something of ours unread, which the kernel tells as a reset;
- ``Authentication timeout.``: an `AuthenticationException`, as a refused login is;
- ``encountered RSA key, expected OPENSSH key``: paramiko tries a key file as every key type and raises the error of
  the last one, whatever the host replied to the right one.
"""

from __future__ import annotations

import getpass
import logging
import socket
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from shlex import quote
from time import monotonic, sleep
from typing import Final

import paramiko
from msgspec import Struct
from paramiko.ssh_exception import NoValidConnectionsError

from bench_common.errors import InfrastructureError
from bench_features.fleet.hosts import Login
from bench_features.fleet.known_hosts import KnownHosts

NEAR_DEADLINE_RATIO: Final = 0.9
"""A step that took this share of its time limit or more counts as timed out: paramiko polls its clock."""

_KEY_FORMAT_ERRORS: Final = ("key, expected", "private key file")
_OVERLOADED: Final = "it may be overloaded, or have as many pending logins as its MaxStartups allows"


def explain_ssh_error(error: Exception, login: Login, user: str, *, took_s: float, limit_s: float) -> str:
    """Return why a connection failed with `error`, as a sentence for the user.

    The attempt took `took_s`; each of its steps has a time limit of `limit_s`.
    """
    if isinstance(error, FileNotFoundError):
        return f"key {_describe_keys(login)}: not found"
    if isinstance(error, socket.gaierror):
        return f"{login.address}: no such host; set 'address:'"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} on this machine: {error.strerror}"
    reason = _login_error(error, login, user, limit_s) or _connect_error(
        error, took_s >= NEAR_DEADLINE_RATIO * limit_s, limit_s
    )
    return f"{login.address}:{login.port}{reason or f': {str(error) or type(error).__name__}'}"


def _login_error(error: Exception, login: Login, user: str, limit_s: float) -> str | None:
    """Return why the login failed; None if the connection failed before it."""
    text, keys = str(error), _describe_keys(login)
    credentials = f"the key {keys}" if keys else "the agent's keys and those in ~/.ssh"
    see = f"see: ssh -p {login.port} {user}@{login.address}"
    if isinstance(error, paramiko.PasswordRequiredException):
        return (
            f" refused the login of {user} with {credentials} (it has a passphrase: load it into the agent with "
            f"ssh-add); {see}"
        )
    if isinstance(error, paramiko.AuthenticationException):
        if "timeout" in text:
            return f" neither accepted nor refused the login of {user} within {limit_s:g} s: {_OVERLOADED}"
        if "EOF" in text:
            return f" closed the connection during the login of {user}: see the log of its SSH server; {_OVERLOADED}"
        return f" refused the login of {user} with {credentials}; {see}"
    if "No authentication methods" in text:
        return f": there is no key to log in as {user}: load one into the agent (ssh-add), or name it with 'key:'"
    if any(words in text for words in _KEY_FORMAT_ERRORS):
        return f" refused the login of {user} with {credentials}, if that is a private key ({text}); {see}"
    return None


def _connect_error(error: Exception, late: bool, limit_s: float) -> str | None:  # noqa: FBT001
    """Return why the connection failed before any login; `late`: a time limit passed."""
    text = str(error)
    if isinstance(error, NoValidConnectionsError):
        return f": nothing listens there for SSH, or a firewall is in the way ({_error_text(error)})"
    if "No existing session" in text or isinstance(error, EOFError):
        if late:
            return f" accepted the connection but completed no key exchange within {limit_s:g} s: {_OVERLOADED}"
        return f" closed the connection before the key exchange was complete: {_OVERLOADED}"
    if isinstance(error, ConnectionError):
        return f" closed the connection before the login was complete: {_OVERLOADED}"
    if isinstance(error, paramiko.SSHException) and "protocol" in text:
        if late and text.startswith("Error reading"):
            silent = f" accepted the connection but sent no SSH banner within {limit_s:g} s"
            return f"{silent}: {_OVERLOADED}; or name the port of its SSH server with 'port:'"
        return f" does not speak SSH ({text}); name the port of its SSH server with 'port:'"
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
"""Interval of keep-alive messages on an idle connection (s)."""
FOLLOWUP_POLL_S: Final = 0.5
"""Grace period after a deadline, to read output that arrived while this process was delayed (s)."""
MAX_OUTPUT: Final = 64 << 20
"""How much a command may print (bytes)."""


class HostError(InfrastructureError):
    """An operation failed on one host; the message says what and why, without the host's name."""


class CommandResult(Struct, frozen=True):
    """How a command on a host ended."""

    status: int
    stdout: bytes
    stderr: bytes


class Connections:
    """Opens connections; those to jump hosts are shared by many hosts and stay open until `close`."""

    def __init__(self, known: KnownHosts) -> None:
        self._known = known
        # We report failures, each for its host; paramiko would add a traceback from its thread.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)
        self._jumps: dict[Login, paramiko.SSHClient] = {}
        self._locks: dict[Login, threading.Lock] = {}
        self._lock = threading.Lock()

    def open(self, login: Login) -> paramiko.SSHClient:
        """Return a connection to a host, through its jump hosts; raise `HostError`."""
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
                key_filename=[str(key) for key in login.keys] or None,  # type: ignore[arg-type]  # the stubs allow a single one only
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
        """Close the shared connections."""
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
                f"jump host {login.jump.address} cannot reach {login.address}:{login.port}: {error}"
            ) from error


def run_on(
    client: paramiko.SSHClient, command: Sequence[str], *, stdin: Iterable[bytes] = (), timeout_s: float
) -> CommandResult:
    """Run a command on a host with `stdin` as its input; raise `HostError` if it does not end in time."""
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
    """Send a command's input, or as much as it reads: a command that ends early prints why."""
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
    """Return a channel for one command; raise `HostError` if the host opens none in time."""
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
    """Both output streams of a command, up to its end."""

    def __init__(self) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()

    @property
    def stderr_tail(self) -> str:
        """The end of stderr, to append to a message; empty if there is none."""
        words = bytes(self.stderr).decode("utf-8", "replace").strip()[-300:]
        return f": {words}" if words else ""

    def wait(self, channel: paramiko.Channel, name: str, timeout_s: float) -> CommandResult:
        """Return how the command ended; raise `HostError` if it does not end in time or its exit status is lost."""
        deadline, late = monotonic() + timeout_s, False
        while True:
            # Checked before reading: nothing arrives after it. A channel that was cut off is closed, too.
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
                # This process may have been delayed: output that arrived meanwhile is read before the command fails.
                late = True
                sleep(FOLLOWUP_POLL_S)
                continue
            sleep(0.01)

    def _read_available(self, channel: paramiko.Channel) -> bool:
        """Read what has arrived; return whether there was anything."""
        before = len(self.stdout) + len(self.stderr)
        if channel.recv_ready():
            self.stdout += channel.recv(1 << 16)
        if channel.recv_stderr_ready():
            self.stderr += channel.recv_stderr(1 << 16)
        return len(self.stdout) + len(self.stderr) > before


def remote_address(client: paramiko.SSHClient) -> str:
    """Return the address at which we reached the host."""
    transport = client.get_transport()
    with suppress(OSError, AttributeError, TypeError):
        return str(transport.sock.getpeername()[0])  # type: ignore[union-attr]
    return ""


def local_address(client: paramiko.SSHClient) -> str:
    """Return our own address on the route to the host."""
    transport = client.get_transport()
    with suppress(OSError, AttributeError, TypeError):
        return str(transport.sock.getsockname()[0])  # type: ignore[union-attr]
    return ""
