"""What can be read of a run's engines, where it asks for that: their processes, or a control group that is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_worker.cgroups import CgroupSampler
from bench_worker.host.daemons import DaemonSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_worker.engines.base import DaemonSide
    from bench_worker.sampling import Sampler


def engine_samplers(
    engines: Mapping[str, str],
    declared: Callable[[str], DaemonSide | None],
    complain: Callable[[str], None],
) -> dict[str, Sampler]:
    """Return what to read of engines, by source: ``engine:NAME``.

    `engines` gives a control group's path by engine, empty: its processes, which are those that its class has
    `declared`. `complain(text)` gets what cannot be read.
    """
    samplers = {name: _sampler(name, cgroup, declared, complain) for name, cgroup in engines.items()}
    return {f"engine:{name}": sampler for name, sampler in samplers.items() if sampler is not None}


def _sampler(
    name: str, cgroup: str, declared: Callable[[str], DaemonSide | None], complain: Callable[[str], None]
) -> Sampler | None:
    if cgroup:
        group = CgroupSampler(cgroup)
        if not group.found:
            complain(f"the overhead of {name} is not known: there is no control group {cgroup}")
            return None
        return group
    side = declared(name)
    if side is None:
        complain(
            f"the overhead of {name} is not known: nobody has said which processes are its own here; "
            f"name its control group under overhead.cgroups.{name}"
        )
    if not side:
        return None
    processes = DaemonSampler(side)
    if not processes.found and side.sockets:
        complain(f"the overhead of {name} is not known: no process of it was found")
    return processes
