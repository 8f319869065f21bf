"""Why an exchange gave no answer, in one word and in one sentence."""

from __future__ import annotations

import errno
import socket
import ssl
from time import monotonic_ns
from typing import Final

from bench_worker.http import ProtocolError

KINDS: Final = frozenset(
    {"client", "closed", "dns", "protocol", "refused", "reset", "timeout", "tls", "truncated", "unreachable"}
)
"""Kinds of a `WireError`. ``client``: this machine is out of ports, descriptors or memory."""

_KIND_OF_ERRNO: Final = {
    errno.ECONNREFUSED: ("refused", "refused the connection"),
    errno.ECONNRESET: ("reset", "reset the connection"),
    errno.EPIPE: ("reset", "reset the connection"),
    errno.ECONNABORTED: ("reset", "reset the connection"),
    errno.ETIMEDOUT: ("timeout", "did not answer"),
    errno.ENETUNREACH: ("unreachable", "cannot be reached"),
    errno.EHOSTUNREACH: ("unreachable", "cannot be reached"),
    errno.ENETDOWN: ("unreachable", "cannot be reached"),
}


class WireError(Exception):
    """An exchange that gave no answer: `kind` is one of `KINDS`.

    It began at `start_ns` and failed at `end_ns` (CLOCK_MONOTONIC); `answer_begun` says whether any of the answer
    had come.
    """

    def __init__(self, kind: str, message: str, *, start_ns: int, end_ns: int, answer_begun: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.answer_begun = answer_begun


class Ended(Exception):
    """The connection came to its end before an answer, or within one whose length was the argument."""


def failure_of(
    error: Exception, name: str, *, start_ns: int, got: int, answer_begun: bool, expired: bool
) -> WireError:
    """Return what is told of an exchange with the server `name` that failed with `error`.

    `got` bytes of the answer's body had come; `expired`: its deadline has passed.
    """
    end_ns = monotonic_ns()
    took_s = (end_ns - start_ns) / 1e9
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if expired or isinstance(error, TimeoutError):
        kind = "timeout"
        text = f"{name} did not answer in full within {took_s:.3g} s: {got} bytes of the body had come"
        if not answer_begun:
            text = f"{name} did not answer within {took_s:.3g} s"
    elif isinstance(error, ProtocolError):
        kind, text = "protocol", f"{name} does not speak HTTP/1.1: {told}"
    elif isinstance(error, Ended):
        kind = "truncated" if answer_begun else "closed"
        text = f"{name} closed the connection without an answer"
        if answer_begun:
            whole = f" of {error.args[0]}" if error.args else ""
            text = f"{name} closed the connection after {got}{whole} bytes of the answer's body"
    elif isinstance(error, socket.gaierror):
        kind, text = "dns", f"{name} has no address: {told}"
    elif isinstance(error, ssl.SSLError):
        why = getattr(error, "verify_message", "") or error.reason or told
        kind, text = "tls", f"{name}: TLS failed: {why}"
    else:
        number = error.errno if isinstance(error, OSError) else None
        kind, what = _KIND_OF_ERRNO.get(number or 0, ("client", "cannot be reached"))
        after = f" after {got} bytes of the answer's body" if answer_begun else ""
        text = f"{name} {what}{after}: {told}"
    return WireError(kind, text, start_ns=start_ns, end_ns=end_ns, answer_begun=answer_begun)
