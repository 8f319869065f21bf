"""At which address other hosts reach this one: what its user says, else the one with which it reaches its master."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

_ELSEWHERE: Final = "192.0.2.1"
"""An address that nobody has (RFC 5737): a route to it is the one to the world."""
_ANY_PORT: Final = 9


def own_address(control: str, given: str | None) -> str:
    """Return an IPv4 address of this host; `control` is the endpoint at which it reaches its master.

    Where the master is reached without leaving the host (a local one, or a tunnel), it is the address that this host
    goes out into the world with; the loopback's, where it does not.
    """
    if given is not None:
        return given
    host = control.removeprefix("tcp://").rpartition(":")[0] if control.startswith("tcp://") else ""
    for other in (host, _ELSEWHERE):
        address = _source(other) if other else None
        if address is not None and not ipaddress.ip_address(address).is_loopback:
            return address
    return "127.0.0.1"


def _source(other: str) -> str | None:
    """Return the address from which a host is reached. Connecting a UDP socket sends nothing (connect(2))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((other, _ANY_PORT))
        except OSError:
            return None
        return str(probe.getsockname()[0])
