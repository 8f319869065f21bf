"""The hosts of a fleet as an inventory tells them: how each is reached, and what its workers are to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench_common.errors import UsageError, did_you_mean
from bench_master.fleet.ranges import expand
from bench_master.scenario.tree import Place

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
    given_port: int | None = None
    user: str | None = None
    keys: tuple[Path, ...] = ()
    jump: Login | None = None
    origin: str = ""

    @property
    def port(self) -> int:
        """The port of its SSH server."""
        return SSH_PORT if self.given_port is None else self.given_port


@dataclass(frozen=True, slots=True)
class FleetHost:
    """A host of an inventory with all that holds for it; None means that nobody has said.

    `services_address` is the IP address at which other hosts reach services that run on it.
    """

    name: str
    login: Login
    place: Place
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

    def twins(self) -> list[tuple[FleetHost, FleetHost]]:
        """Return pairs of hosts that SSH reaches at one place: a machine that would be weighed against itself."""
        first: dict[tuple[str, int, Login | None], FleetHost] = {}
        reached = [
            (host, first.setdefault(_whereabouts(host), host)) for host in self.hosts if host.launcher == "ssh"
        ]
        return [(other, host) for host, other in reached if other is not host]

    def only(self, names: Sequence[str]) -> Inventory:
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


def _whereabouts(host: FleetHost) -> tuple[str, int, Login | None]:
    return host.login.address, host.login.port, host.login.jump
