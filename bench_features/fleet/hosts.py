"""The hosts of a fleet as an inventory describes them: how each is reached, and which workers it runs.

Ranges in names: ``blade[01-16]`` is sixteen hosts, ``rack[1-2]n[1,3]`` four. Leading zeros are kept: 01, 02, ... 16.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from bench_common.engine_traits import EngineLabel
from bench_common.errors import UsageError, did_you_mean
from bench_master.scenario.yaml_tree import SourceLocation

SSH_PORT: Final = 22
DEFAULT_CONCURRENCY: Final = 64
DEFAULT_DIRECTORY: Final = ".local/share/weighbridge"
"""Where Weighbridge is installed on a host, relative to the home directory of the user who logs in."""
MAX_NAMES: Final = 4096
"""How many names one text may expand to."""

_RANGE: Final = re.compile(r"\[([0-9,-]*)\]")
_SPAN: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def has_range(text: str) -> bool:
    """Return whether a text has a range in it."""
    return _RANGE.search(text) is not None


def expand(text: str) -> list[str]:
    """Return the names that a text expands to, in order; the text itself if it has no range.

    Raises `ValueError` for a malformed range, and for more than `MAX_NAMES` names.
    """
    parts = _RANGE.split(text)
    # Every second part is the content of brackets.
    choices = [_numbers(part) if place % 2 else [part] for place, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MAX_NAMES:
        raise ValueError(f"{text!r} expands to {count} names; at most {MAX_NAMES} are allowed")
    return ["".join(words) for words in itertools.product(*choices)]


def _numbers(inside: str) -> list[str]:
    found: list[str] = []
    for span in inside.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise ValueError(f"range [{inside}]: expected numbers and spans, such as [1-4,7], not {span!r}")
        first, last = match[1], match[2] or match[1]
        low, high = int(first), int(last)
        if high < low:
            raise ValueError(f"range [{inside}] runs backwards: write [{last}-{first}]")
        if high - low >= MAX_NAMES:
            raise ValueError(f"range [{inside}] expands to more than {MAX_NAMES} names")
        padded = len(first) if first.startswith("0") else 0
        found += [str(number).zfill(padded) for number in range(low, high + 1)]
    return found


class Login(Struct, frozen=True):
    """How a host's SSH server is reached. Defaults mean that the inventory does not say."""

    address: str
    """Host name or IP address."""
    explicit_port: int | None = None
    """Port of the SSH server, if given."""
    user: str | None = None
    """User name, if given."""
    keys: tuple[Path, ...] = ()
    """Private key files; without any, the agent's keys and those in ``~/.ssh`` are tried."""
    jump: Login | None = None
    """Jump host to connect through."""
    source: str = ""
    """Which settings come from which file, if not from the inventory."""

    @property
    def port(self) -> int:
        """The port of its SSH server."""
        return SSH_PORT if self.explicit_port is None else self.explicit_port


class FleetHost(Struct, frozen=True):
    """A host of an inventory, with groups and defaults applied; None means that the inventory does not say."""

    name: str
    """Its name, which its workers get."""
    login: Login
    """How its SSH server is reached."""
    place: SourceLocation
    """Where in the inventory it is."""
    environment: str | None = None
    """Environment that its workers report."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that are saved with the results."""
    groups: tuple[str, ...] = ()
    """Groups that it belongs to, in increasing precedence."""
    workers: int = 1
    concurrency: int = DEFAULT_CONCURRENCY
    """Maximum number of concurrent jobs of each worker."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its workers."""
    allow_host_mounts: bool = False
    """Whether scenarios may mount directories of the host."""
    allow_cold: bool = False
    """Whether scenarios may drop the host's page cache and fetch images again before a job."""
    allow_host_settings: tuple[str, ...] = ()
    """Settings of the host's kernel that scenarios may change."""
    allow_native: bool = True
    """Whether scenarios may run programs of the host."""
    engines: tuple[EngineLabel, ...] = ()
    """Labels of engines that its workers have."""
    index: bool = True
    """Whether the host's own pip may install packages from its own index."""
    python: str | None = None
    directory: str = DEFAULT_DIRECTORY
    """Where Weighbridge is installed there."""
    master: str | None = None
    """Address at which it reaches the master."""
    tunnel: bool = False
    """Whether it reaches the master through the SSH connection."""
    launcher: str = "ssh"
    """Launcher that starts its workers."""
    settings: Mapping[str, str] = field(default_factory=dict)
    services_address: str | None = None
    """IP address at which other hosts reach services that run on it."""

    @property
    def engine_flags(self) -> tuple[str, ...]:
        """The arguments of ``bench-worker`` that offer its engines under labels."""
        return tuple(word for label in self.engines for word in ("--engine", str(label)))

    @property
    def worker_names(self) -> tuple[str, ...]:
        """The names of its workers: the name of the host, with a number if there are several."""
        if self.workers == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.workers + 1))


class Inventory(Struct, frozen=True):
    """The hosts of a file, in its order."""

    path: str
    hosts: tuple[FleetHost, ...]

    @property
    def worker_names(self) -> tuple[str, ...]:
        """The names of all workers."""
        return tuple(name for host in self.hosts for name in host.worker_names)

    def duplicates(self) -> list[tuple[FleetHost, FleetHost]]:
        """Return pairs of hosts with the same SSH address: a machine that would be compared with itself."""
        first: dict[tuple[str, int, Login | None], FleetHost] = {}
        reached = [
            (host, first.setdefault(_ssh_address(host), host)) for host in self.hosts if host.launcher == "ssh"
        ]
        return [(other, host) for host, other in reached if other is not host]

    def select(self, names: Sequence[str]) -> Inventory:
        """Return the hosts that `names` (hosts, ranges, groups) select; all if there are no names.

        Raises `UsageError` for a name that selects no host.
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
                        f"--only {name}: {self.path} has no host or non-empty group {one!r}{did_you_mean(one, known)}"
                    )
            wanted.update(each)
        hosts = tuple(host for host in self.hosts if host.name in wanted or wanted.intersection(host.groups))
        return Inventory(self.path, hosts)


def _ssh_address(host: FleetHost) -> tuple[str, int, Login | None]:
    return host.login.address, host.login.port, host.login.jump
