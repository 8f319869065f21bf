"""The allow-list: which keys are admitted, and under which name.

One line for each worker, ``<public key in Z85> <name>``; blank lines and lines that begin with ``#`` are remarks.
Deleting a line revokes a key. The file is looked at again at every question, so a change counts from the next
handshake on; a file that can no longer be understood admits nobody until it is repaired.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from bench_common.errors import UsageError, did_you_mean
from bench_common.keys import checked_name, key_problem, read_trusted

LOG: Final = logging.getLogger(__name__)

REMARKS: Final = """\
# Workers that this master admits: <public key> <name>, one a line.
# Delete a line to revoke its key; no restart is needed.
"""

LANE_PREFIX: Final = "weighbridge.lane."
CONTROL_DOMAIN: Final = "weighbridge.control"
RESULTS_DOMAIN: Final = "weighbridge.results"


def lane_domain(name: str) -> str:
    """Return the ZAP domain of the lane of the worker called `name`: no other worker's key is admitted there."""
    return LANE_PREFIX + checked_name(name)


def parse_allow_list(text: str, place: str) -> dict[bytes, str]:
    """Return names by public key; raise `UsageError` with ``place:line:column`` of what is wrong.

    A key and a name may stand there once each: a name is an identity, and two keys would be two of it.
    """
    names: dict[bytes, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        key, _, name = line.strip().partition(" ")
        name = name.strip()
        column = line.index(key) + 1
        problem = key_problem(key)
        if problem:
            raise UsageError(f"{place}:{number}:{column}: {problem}; expected `<public key> <name>`")
        name_column = line.rindex(name) + 1 if name else len(line) + 1
        if not name:
            raise UsageError(f"{place}:{number}:{name_column}: no name; expected `<public key> <name>`")
        try:
            checked_name(name)
        except UsageError as error:
            raise UsageError(f"{place}:{number}:{name_column}: {error}") from error
        if name in lines:
            raise UsageError(f"{place}:{number}:{name_column}: {name} has a key in line {lines[name]} already")
        if key.encode() in names:
            raise UsageError(f"{place}:{number}:{column}: the key of {names[key.encode()]} again")
        names[key.encode()] = name
        lines[name] = number
    return names


class AllowList:
    """The keys that a master admits, as its file says at this moment.

    `admit` is what a `ZapHandler` asks. A connection that stands outlives its key's revocation (ZAP is asked at the
    handshake only), so whoever serves one asks `admits_name` as well. Set `only` to let in some of those alone.
    """

    only: frozenset[str] | None = None

    def __init__(self, path: Path) -> None:
        """Read the file; raise `UsageError` when it is missing, others can write to it, or it is malformed."""
        self.path = path
        self._seen = self._stamp()
        self._names = parse_allow_list(read_trusted(path), str(path))

    def admit(self, domain: str, public_key: bytes) -> str | None:
        """Return the name of the key's owner when `domain` is open to it, else None; `public_key` is in Z85."""
        name = self.entries().get(public_key)
        if name is None:
            return None
        if domain in (CONTROL_DOMAIN, RESULTS_DOMAIN) or domain == LANE_PREFIX + name:
            return name
        return None

    def admits_name(self, name: str) -> bool:
        """Return whether a worker of this name still has a key here."""
        return name in self.entries().values()

    def entries(self) -> dict[bytes, str]:
        """Return names by public key, read again if the file has changed; empty while the file is unusable."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._names = parse_allow_list(read_trusted(self.path), str(self.path))
            except UsageError as error:
                # Half-edited, or tampered with: the last good list may hold the very key that was to be revoked.
                LOG.error("%s; nobody is admitted until it is repaired", error)  # noqa: TRY400  the user's mistake
                self._names = {}
        return {key: name for key, name in self._names.items() if self.only is None or name in self.only}

    def _stamp(self) -> tuple[int, int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def add_worker(path: Path, public_key: bytes, name: str) -> None:
    """Append a worker to the list, which is made if need be; raise `UsageError` if key or name is on it."""
    key = public_key.decode("ascii")
    if key.startswith("#"):
        raise UsageError(f"the public key of {name} begins with '#', which would be a remark here; make another pair")
    text = read_trusted(path) if path.exists() else REMARKS
    if text and not text.endswith("\n"):
        text += "\n"
    text += f"{key} {name}\n"
    parse_allow_list(text, str(path))
    _replace(path, text)


def revoke_worker(path: Path, name: str) -> None:
    """Delete a worker's line; raise `UsageError` with the nearest name if there is none."""
    text = read_trusted(path)
    names = set(parse_allow_list(text, str(path)).values())
    if name not in names:
        raise UsageError(f"{path}: no worker {name!r}{did_you_mean(name, names)}; `keygen --list` shows them")
    kept = [line for line in text.splitlines() if line.startswith("#") or line.split()[1:] != [name]]
    _replace(path, "".join(f"{line}\n" for line in kept))


def _replace(path: Path, text: str) -> None:
    # Written beside and renamed: a master that reads at this moment sees the old list or the new one, never half.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="ascii")
    temporary.chmod(0o600)
    temporary.replace(path)
