"""Samples the processes of a store's server on this host: what a request costs the store, beside how long it takes.

A server is who listens where requests go, what it has started, and the other programs of that store beside it: Swift
and Ceph have several.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from bench_common.errors import WeighbridgeError
from bench_features.objects.worker.swift import SERVER_PROCESSES
from bench_worker.engines.base import DaemonProcesses
from bench_worker.host.daemons import DaemonSampler
from bench_worker.host.listeners import is_here, listening_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bench_worker.host.daemons import ProcessKey
    from bench_worker.host.procfs import HostFiles, ProcessStat

PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
FAMILIES: Final = (SERVER_PROCESSES, frozenset({"radosgw", "ceph-osd", "ceph-mon", "ceph-mgr"}))
"""What the processes of stores with several programs are called."""
FORWARDERS: Final = frozenset({"docker-proxy", "rootlessport", "pasta", "pasta.avx2", "slirp4netns"})
"""Programs that listen for a server in a container, which is another process, and not their child."""


def addresses_of(urls: Iterable[str]) -> list[tuple[str, int]]:
    """Return host and port of each URL that names a host."""
    parts = [urlsplit(url) for url in urls]
    return [(part.hostname, part.port or PORTS.get(part.scheme, 0)) for part in parts if part.hostname]


class ServerSampler(DaemonSampler):
    """Gives rows of a store's server, which listens at some of the `endpoints` (URLs) on this host.

    `names` are what the processes of stores are called. Of two Swifts in one control group each gets the other
    programs of both. Raises `WeighbridgeError` where no server is found.
    """

    def __init__(
        self,
        endpoints: Iterable[str],
        names: frozenset[str],
        files: HostFiles | None = None,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._ports = frozenset(port for host, port in addresses_of(endpoints) if is_here(host))
        super().__init__(DaemonProcesses(names=names), files, clock=clock)
        if not self.found:
            raise WeighbridgeError(
                "its server does not listen on this host, or not as a process that this user may see; name its "
                "control group under overhead.cgroups"
            )

    def _find_roots(
        self, table: Mapping[ProcessKey, ProcessStat], keys: Mapping[int, ProcessKey]
    ) -> Iterator[ProcessKey]:
        pids = listening_processes(self._files, self._ports)
        found = [keys[pid] for pid in sorted(pids) if pid in keys and table[keys[pid]].name not in FORWARDERS]
        yield from found
        for root in found:
            own = table[root].name
            others = frozenset(name for family in FAMILIES if own in family for name in family) - {own}
            group = self._files.text(f"/proc/{root[0]}/cgroup")
            for key, one in table.items():
                if one.name in others and self._files.text(f"/proc/{key[0]}/cgroup") == group:
                    yield key
