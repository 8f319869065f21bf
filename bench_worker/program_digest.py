"""Which program an engine is, to the byte: its path and the digest of its file.

A version does not tell two builds apart. The program of a daemon is that of the process that listens at its socket.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from functools import lru_cache
from typing import Final

PROGRAM: Final = "program"
"""The detail with the path of an engine's program."""
DIGEST: Final = "sha256"
"""The detail with the digest of its file."""

_TIMEOUT_S: Final = 1.0
_PEER: Final = struct.Struct("3i")
_LARGEST_BYTES: Final = 1 << 30
_INIT: Final = 1


def program_details(path: str) -> dict[str, str]:
    """Return a program's path and digest as details of a status; none where it cannot be read."""
    if not path:
        return {}
    try:
        with open(path, "rb") as file:  # noqa: PTH123  also what /proc shows of a program that was replaced
            facts = os.fstat(file.fileno())
            shown = os.readlink(path) if path.startswith("/proc/") else os.path.realpath(path)  # noqa: PTH115
            identity = (facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size)
            return {PROGRAM: shown, DIGEST: _digest(path, identity)} if facts.st_size <= _LARGEST_BYTES else {}
    except OSError:
        return {}


@lru_cache(maxsize=64)
def _digest(path: str, _identity: tuple[int, ...]) -> str:
    """Return the digest of a file; it is read again only when it is another one."""
    with open(path, "rb") as file:  # noqa: PTH123  as above
        return hashlib.file_digest(file, "sha256").hexdigest()


def listening_program(address: str) -> str:
    """Return the path, below ``/proc``, of the program that listens at a Unix socket; empty where nobody can say.

    A socket that systemd opened beforehand is systemd's: its program is not the engine's.
    """
    if address.startswith("tcp://") or not address:
        return ""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_TIMEOUT_S)
            probe.connect(address.removeprefix("unix://"))
            pid, _, _ = _PEER.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    except OSError:
        return ""
    return f"/proc/{pid}/exe" if pid > _INIT else ""
