"""Which processes of this host listen at given ports: the servers that jobs use, if they run here."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from bench_worker.host.procfs import HostFiles

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS: Final = "0A"
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
_LOCAL_ADDRESS, _STATE, _INODE = 1, 3, 9
"""The columns of the tables, as proc(5) has them."""


def is_here(host: str) -> bool:
    """Return whether a host, by its address or name, is this one, as far as that is known without asking anybody."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET  # noqa: PLR2004
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))  # which only an address of this host allows; nothing is sent
    except OSError:
        return False
    return True


def listening_processes(files: HostFiles, ports: Collection[int]) -> frozenset[int]:
    """Return the processes that have a socket which listens at one of some ports."""
    if not ports:
        return frozenset()
    inodes = set()
    for table in _TABLES:
        for line in (files.text(table) or "").splitlines()[1:]:
            words = line.split()
            if len(words) > _INODE and words[_STATE] == _LISTENS:
                port = int(words[_LOCAL_ADDRESS].rpartition(":")[2], 16)
                if port in ports:
                    inodes.add(words[_INODE])
    return frozenset(int(name) for name in files.names("/proc") if name.isdigit() and _has_one(files, name, inodes))


def _has_one(files: HostFiles, process: str, inodes: Collection[str]) -> bool:
    folder = f"/proc/{process}/fd"
    found = (_SOCKET.fullmatch(files.target(f"{folder}/{name}") or "") for name in files.names(folder))
    return any(one is not None and one[1] in inodes for one in found)
