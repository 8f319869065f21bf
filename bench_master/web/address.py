"""Where a page of ours is served: the address on the command line, and the socket that listens there.

The socket is bound before anything else begins, so that a taken port is an error of usage and not one of a run.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from typing import Final

from msgspec import Struct

from bench_common.argument_types import InvalidValue, authority, strip_brackets
from bench_common.errors import UsageError

DEFAULT_HOST: Final = "127.0.0.1"
MAX_PORT: Final = 65_535
BACKLOG: Final = 16
_ADDRESS: Final = re.compile(r"(?P<host>\[[^\[\]]+\]|[^:\[\]]*):(?P<port>[0-9]{1,5})")


class Address(Struct, frozen=True):
    """Where to listen."""

    host: str
    """An IP address, without brackets."""
    port: int
    """The TCP port; 0 for a free one."""

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return authority(self.host, self.port)


def parse_address(text: str, default_port: int) -> Address:
    """Return what ``ADDRESS:PORT``, ``ADDRESS`` or ``PORT`` means; raise `InvalidValue` for anything else."""
    match = _ADDRESS.fullmatch(text)
    if match:
        host, port = match["host"], match["port"]
    elif text.isascii() and text.isdigit():
        host, port = "", text
    else:
        host, port = text, str(default_port)
    host = {"": DEFAULT_HOST, "localhost": DEFAULT_HOST}.get(host, strip_brackets(host))
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        raise InvalidValue(f"{text!r}: expected ADDRESS:PORT, such as {DEFAULT_HOST}:{default_port}") from None
    if int(port) > MAX_PORT:
        raise InvalidValue(f"{text!r}: expected a port from 0 (a free one) to {MAX_PORT}")
    return Address(str(found), int(port))


def listen(address: Address, *, option: str, allow_any: bool, allow_flag: str) -> socket.socket:
    """Return a socket that listens at an address; `option` and `allow_flag` are those of the command line.

    Raises `UsageError` for an address that other machines reach unless `allow_any`, and for one that cannot be had.
    """
    if not (address.is_loopback or allow_any):
        port = address.port or "PORT"
        raise UsageError(
            f"{option} {address}: other machines could read the page there, unencrypted; use {DEFAULT_HOST} and a "
            f"tunnel (ssh -L {port}:{DEFAULT_HOST}:{port} THIS-HOST), or add {allow_flag}"
        )
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken" if taken else error.strerror or str(error)
        raise UsageError(f"{option} {address}: {why}; name another one, or port 0 for a free one") from error
    return sock


def bound_address(sock: socket.socket) -> Address:
    """Return where a socket listens."""
    host, port = sock.getsockname()[:2]
    return Address(str(host), int(port))
