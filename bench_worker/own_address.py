"""Addresses between hosts: where others reach this one, and how an endpoint of its master is called from here."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from bench_common.addresses import bare

_ELSEWHERE: Final = ("192.0.2.1", "2001:db8::1")
"""Addresses that nobody has (RFC 5737, RFC 3849): a route to them is the one to the world."""
_ANY_PORT: Final = 9


def own_address(control: str, given: str | None) -> str:
    """Return an IP address of this host; `control` is the endpoint at which it reaches its master.

    Where the master is reached without leaving the host (a local one, or a tunnel), it is the address that this host
    goes out into the world with; the loopback's, where it does not.
    """
    if given is not None:
        return given
    host = bare(_host_of(control)) if control.startswith("tcp://") else ""
    for other in (host, *_ELSEWHERE):
        address = _source(other) if other else None
        if address is not None and _holds_elsewhere(address):
            return address
    return "127.0.0.1"


def seen_from_here(endpoint: str, control: str) -> str:
    """Return an endpoint as seen from here: the master names a port, `control` says under which name we reach it."""
    if not endpoint.startswith("tcp://"):
        return endpoint
    return f"tcp://{_host_of(control)}:{endpoint.rpartition(':')[2]}"


def _host_of(control: str) -> str:
    return control.removeprefix("tcp://").rpartition(":")[0]


def _holds_elsewhere(text: str) -> bool:
    """Return whether an address means the same on other hosts: neither the loopback's nor an IPv6 one of a link."""
    address = ipaddress.ip_address(text)
    return not address.is_loopback and not (isinstance(address, ipaddress.IPv6Address) and address.is_link_local)


def _source(other: str) -> str | None:
    """Return the address from which a host is reached, of IPv4 where it has both.

    Connecting a UDP socket sends nothing (connect(2)).
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((other, _ANY_PORT))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return None
