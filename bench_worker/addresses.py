"""Which address other hosts reach this one at, and where the master's further sockets are."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from bench_common.argument_types import strip_brackets

_UNASSIGNED_ADDRESSES: Final = ("192.0.2.1", "2001:db8::1")
"""Addresses reserved for documentation (RFC 5737, RFC 3849): the route to them is the default route."""
_ANY_PORT: Final = 9


def local_address(control: str, given: str | None) -> str:
    """Return the IP address at which other hosts reach this one: `given`, or found by routes.

    `control` is the endpoint of the master. If the connection to it does not leave the host (a local master, a
    tunnel), the result is the source address of the default route; without such a route, the loopback address.
    """
    if given is not None:
        return given
    host = strip_brackets(_host_of(control)) if control.startswith("tcp://") else ""
    for other in (host, *_UNASSIGNED_ADDRESSES):
        address = _source_address(other) if other else None
        if address is not None and _is_routable(address):
            return address
    return "127.0.0.1"


def resolve_endpoint(endpoint: str, control: str) -> str:
    """Return an endpoint as seen from this host: the port from the master, the host name from `control`."""
    if not endpoint.startswith("tcp://"):
        return endpoint
    return f"tcp://{_host_of(control)}:{endpoint.rpartition(':')[2]}"


def _host_of(control: str) -> str:
    return control.removeprefix("tcp://").rpartition(":")[0]


def _is_routable(text: str) -> bool:
    """Return whether other hosts can use an address: it is neither loopback nor IPv6 link-local."""
    address = ipaddress.ip_address(text)
    return not address.is_loopback and not (isinstance(address, ipaddress.IPv6Address) and address.is_link_local)


def _source_address(other: str) -> str | None:
    """Return the source address of packets to a host; IPv4 if the host has both families.

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
