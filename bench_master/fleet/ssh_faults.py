"""Why a connection to a host failed, and what to do about it: the SSH library's words are for its programmers.

It has no exception for most of what a slow or a full host does. Which words stand for what, with paramiko:

- ``Error reading SSH protocol banner``: nothing came before the deadline, or the end did;
- ``No existing session``: the deadline passed while keys were agreed on, which it notices only when it goes on;
- an `EOFError` without words: the host closed the connection, or its own deadline for that passed;
- ``Authentication timeout.``, an `AuthenticationException` as those are that mean a refusal;
- ``encountered RSA key, expected OPENSSH key``: a key file is tried as one of every kind, and the last one's fault is
  told, whatever the host has said to the right one.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

if TYPE_CHECKING:
    from bench_master.fleet.hosts import Login

NEARLY: Final = 0.9
"""What took this part of a deadline or more ended because of it: the library looks at its clock now and then."""

_OTHER_KIND: Final = ("key, expected", "private key file")
_FULL: Final = "it may be overloaded, or have as many logins under way as its MaxStartups lets it"


def explain(error: Exception, login: Login, user: str, *, took_s: float, limit_s: float) -> str:
    """Return why a connection failed with `error`, in a sentence for the user.

    It was tried for `took_s` in all; each step of it may take `limit_s`.
    """
    if isinstance(error, FileNotFoundError):
        return f"key {_keys(login)}: not found"
    if isinstance(error, socket.gaierror):
        return f"{login.address}: no such host; give an 'address:'"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} here: {error.strerror}"
    told = _not_let_in(error, login, user, limit_s) or _not_begun(error, took_s >= NEARLY * limit_s, limit_s)
    return f"{login.address}:{login.port}{told or f': {str(error) or type(error).__name__}'}"


def _not_let_in(error: Exception, login: Login, user: str, limit_s: float) -> str | None:
    """Say what became of the login, if it came to that."""
    said, keys = str(error), _keys(login)
    means = f"the key {keys}" if keys else "the agent's keys and those in ~/.ssh"
    see = f"see: ssh -p {login.port} {user}@{login.address}"
    if isinstance(error, paramiko.PasswordRequiredException):
        return (
            f" does not let {user} in by {means} (it has a passphrase, so it has to be in the agent: ssh-add); {see}"
        )
    if isinstance(error, paramiko.AuthenticationException):
        if "timeout" in said:
            return f" neither let {user} in nor refused within {limit_s:g} s: {_FULL}"
        if "EOF" in said:
            return f" closed the connection while {user} logged in: see its SSH server's log, or {_FULL}"
        return f" does not let {user} in by {means}; {see}"
    if "No authentication methods" in said:
        return f" has no key of ours to let {user} in by: load one into the agent (ssh-add), or name it with 'key:'"
    if any(words in said for words in _OTHER_KIND):
        return f" does not let {user} in by {means}, if that is a private key at all ({said}); {see}"
    return None


def _not_begun(error: Exception, late: bool, limit_s: float) -> str | None:  # noqa: FBT001
    """Say what became of the connection before any login; `late`: a deadline passed."""
    said = str(error)
    if isinstance(error, NoValidConnectionsError):
        return f": nothing listens there for SSH, or a firewall is in the way ({_reason(error)})"
    if "No existing session" in said or isinstance(error, EOFError):
        if late:
            return f" took the connection, and had not agreed on keys with us within {limit_s:g} s: {_FULL}"
        return f" closed the connection before keys were agreed on: {_FULL}"
    if isinstance(error, paramiko.SSHException) and "protocol" in said:
        if late and said.startswith("Error reading"):
            silent = f" took the connection, and had not said within {limit_s:g} s that it speaks SSH"
            return f"{silent}: {_FULL}; or name the port of its SSH server with 'port:'"
        return f" does not speak SSH ({said}); name the port of its SSH server with 'port:'"
    if isinstance(error, TimeoutError):
        return f" did not answer within {limit_s:g} s"
    return None


def _keys(login: Login) -> str:
    return " or ".join(map(str, login.keys))


def _reason(error: NoValidConnectionsError) -> str:
    return "; ".join(sorted({getattr(each, "strerror", None) or str(each) for each in error.errors.values()}))
