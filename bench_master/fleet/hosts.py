"""The hosts of a fleet as an inventory tells them: how each is reached, and what its workers are to be.

Ranges in names: ``blade[01-16]`` is sixteen hosts, ``rack[1-2]n[1,3]`` four. Widths are kept: 01, 02, ... 16.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench_common.errors import UsageError, did_you_mean
from bench_master.scenario.yaml_tree import SourceLocation

MAX_NAMES: Final = 4096
"""How many names one text may stand for."""

_RANGE: Final = re.compile(r"\[([0-9,-]*)\]")
_SPAN: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def has_range(text: str) -> bool:
    """Return whether a text has a range in it."""
    return _RANGE.search(text) is not None


def expand(text: str) -> list[str]:
    """Return the names that a text stands for, in order; the text itself where it has no range.

    Raises `ValueError` with what is wrong with a range, and for more than `MAX_NAMES` names.
    """
    parts = _RANGE.split(text)
    # Every second part is what stood in brackets.
    choices = [_numbers(part) if place % 2 else [part] for place, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MAX_NAMES:
        raise ValueError(f"{text!r} stands for {count} names, and {MAX_NAMES} is the most")
    return ["".join(words) for words in itertools.product(*choices)]


def _numbers(inside: str) -> list[str]:
    found: list[str] = []
    for span in inside.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise ValueError(f"range [{inside}]: expected numbers and spans of them, such as [1-4,7], not {span!r}")
        first, last = match[1], match[2] or match[1]
        low, high = int(first), int(last)
        if high < low:
            raise ValueError(f"range [{inside}] runs backwards: write [{last}-{first}]")
        if high - low >= MAX_NAMES:
            raise ValueError(f"range [{inside}] stands for more than {MAX_NAMES} names")
        padded = len(first) if first.startswith("0") else 0
        found += [str(number).zfill(padded) for number in range(low, high + 1)]
    return found


SSH_PORT: Final = 22
DEFAULT_CONCURRENCY: Final = 64
DEFAULT_DIRECTORY: Final = ".local/share/weighbridge"
"""Where on a host Weighbridge is kept, from the home directory of who logs in."""


@dataclass(frozen=True, slots=True)
class Login:
    """How a host's SSH server is reached; `jump` is the one to go through. None and no keys: nobody has said.

    `origin` says which of it was taken from where, if not from the inventory.
    """

    address: str
    explicit_port: int | None = None
    user: str | None = None
    keys: tuple[Path, ...] = ()
    jump: Login | None = None
    source: str = ""

    @property
    def port(self) -> int:
        """The port of its SSH server."""
        return SSH_PORT if self.explicit_port is None else self.explicit_port


@dataclass(frozen=True, slots=True)
class FleetHost:
    """A host of an inventory with all that holds for it; None means that nobody has said.

    `services_address` is the IP address at which other hosts reach services that run on it.
    """

    name: str
    login: Login
    place: SourceLocation
    environment: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    workers: int = 1
    concurrency: int = DEFAULT_CONCURRENCY
    env: Mapping[str, str] = field(default_factory=dict)
    allow_host_mounts: bool = False
    python: str | None = None
    directory: str = DEFAULT_DIRECTORY
    master: str | None = None
    tunnel: bool = False
    launcher: str = "ssh"
    settings: Mapping[str, str] = field(default_factory=dict)
    services_address: str | None = None

    @property
    def worker_names(self) -> tuple[str, ...]:
        """What its workers are called: as the host; with a number where there are several."""
        if self.workers == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.workers + 1))


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts of a file, in its order."""

    path: str
    hosts: tuple[FleetHost, ...]

    @property
    def worker_names(self) -> tuple[str, ...]:
        """The names of all workers."""
        return tuple(name for host in self.hosts for name in host.worker_names)

    def duplicates(self) -> list[tuple[FleetHost, FleetHost]]:
        """Return pairs of hosts that SSH reaches at one place: a machine that would be weighed against itself."""
        first: dict[tuple[str, int, Login | None], FleetHost] = {}
        reached = [
            (host, first.setdefault(_ssh_address(host), host)) for host in self.hosts if host.launcher == "ssh"
        ]
        return [(other, host) for host, other in reached if other is not host]

    def select(self, names: Sequence[str]) -> Inventory:
        """Return the hosts that `names` (hosts, ranges of them, groups) stand for; all where there are none.

        Raises `UsageError` for a name that stands for nobody.
        """
        if not names:
            return self
        known = {host.name for host in self.hosts} | {group for host in self.hosts for group in host.groups}
        wanted: set[str] = set()
        for name in names:
            try:
                each = expand(name)
            except ValueError as error:
                raise UsageError(f"--only {name}: {error}") from error
            for one in each:
                if one not in known:
                    raise UsageError(
                        f"--only {name}: {self.path} has no host and no group {one!r} with a host in it"
                        f"{did_you_mean(one, known)}"
                    )
            wanted.update(each)
        hosts = tuple(host for host in self.hosts if host.name in wanted or wanted.intersection(host.groups))
        return Inventory(self.path, hosts)


def _ssh_address(host: FleetHost) -> tuple[str, int, Login | None]:
    return host.login.address, host.login.port, host.login.jump
