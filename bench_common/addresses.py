"""Where hosts are: names and IP addresses as people write them, IPv6 beside IPv4.

An IPv6 address stands in brackets where a port follows it (RFC 3986), and nowhere else. Both programs take it with
them and without. What is no host at all is refused where it is given: zmq would ask for its name for ever.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
from typing import Final

_BRACKETS: Final = re.compile(r"\[[^\[\]]*:[^\[\]]*\]")
_NAME: Final = re.compile(r"[^\s:/@\[\]]+")
_WITH_PORT: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:]+):(?P<port>[0-9]+)")


def authority(host: str, port: int | str) -> str:
    """Return host and port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bare(text: str) -> str:
    """Return an address without the brackets that an IPv6 one may have."""
    return text[1:-1] if _BRACKETS.fullmatch(text) else text


def host_name(text: str) -> str:
    """Return `text`, without brackets, if it can be a host's name or is its IP address: a type of arguments."""
    host = bare(text)
    if _NAME.fullmatch(host) or (":" in host and _parsed(host) is not None):
        return host
    match = _WITH_PORT.fullmatch(text)
    hint = f"; the port {match['port']} goes to an option of its own" if match else ""
    raise argparse.ArgumentTypeError(
        f"{text!r}: expected a host's name or IP address, such as 10.0.0.5 or fd00::5{hint}"
    )


def host_address(text: str) -> str:
    """Return `text`, without brackets, if it is an IP address at which others reach a host: a type of arguments."""
    address = _parsed(bare(text))
    if address is None or address.is_unspecified or address.is_multicast:
        raise argparse.ArgumentTypeError(f"{text!r}: expected the IP address of a host, such as 10.0.0.5 or fd00::5")
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_link_local:
            raise argparse.ArgumentTypeError(f"{text!r}: is of one link alone; give one that holds everywhere")
        return str(address.ipv4_mapped or address)
    return str(address)


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
