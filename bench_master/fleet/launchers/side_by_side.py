"""Many hosts at once: what goes wrong on one is its own outcome, and stops no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from bench_common.errors import InfrastructureError, WeighbridgeError
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.launchers.base import FAILED, Outcome

T = TypeVar("T")

AT_ONCE: Final = 32
"""How many hosts are dealt with side by side."""


def side_by_side(hosts: Sequence[FleetHost], deed: Callable[[FleetHost], T]) -> dict[str, T | InfrastructureError]:
    """Do something on every host at once; return by host what came of it, or the error that it met."""

    def attempt(host: FleetHost) -> T | InfrastructureError:
        try:
            return deed(host)
        except InfrastructureError as error:
            return error
        except WeighbridgeError as error:
            return InfrastructureError(str(error))
        except OSError as error:
            # Of a file of ours, most likely: a key that cannot be written, a wheel that cannot be read.
            where = f"{error.filename} here: " if error.filename else ""
            return InfrastructureError(f"{where}{error.strerror or error}")
        except Exception as error:  # noqa: BLE001  what one host does to us stops no other
            return InfrastructureError(f"{type(error).__name__}: {error}")

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return {host.name: done for host, done in zip(hosts, pool.map(attempt, hosts), strict=True)}


def each_worker(host: FleetHost, deed: Callable[[str], Outcome]) -> list[Outcome]:
    """Do something for every worker of a host, by its name; one that fails stops no other, and hides none."""
    outcomes = []
    for worker in host.worker_names:
        try:
            outcomes.append(deed(worker))
        except WeighbridgeError as error:
            outcomes.append(Outcome(host.name, worker, FAILED, str(error)))
    return outcomes


def outcomes_of(
    hosts: Sequence[FleetHost], found: Mapping[str, list[Outcome] | InfrastructureError]
) -> list[Outcome]:
    """Return the outcomes of all workers, in the order of the hosts; what failed on a host failed for each."""
    outcomes: list[Outcome] = []
    for host in hosts:
        done = found[host.name]
        if isinstance(done, InfrastructureError):
            outcomes += [Outcome(host.name, name, FAILED, str(done)) for name in host.worker_names]
        else:
            outcomes += done
    return outcomes
