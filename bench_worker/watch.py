"""Watches the engines of a run, where it asks for that: their processes, or a control group that the user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, Protocol

import gevent

from bench_worker.cgroups import CgroupSampler
from bench_worker.daemons import DaemonSampler
from bench_worker.engines.base import DaemonSide

SEND_S: Final = 2.0
"""How often what was sampled is sent."""


class _Sampler(Protocol):
    units: Mapping[str, str]

    @property
    def found(self) -> bool:
        """Whether there is anything to sample."""

    def sample(self) -> dict[str, int | float] | None:
        """Return a row, or None while there is nothing."""


class Watch:
    """Samples engines at an interval. `engines` gives a control group's path by engine, empty: by its processes.

    `send(source, columns, units)` gets what was sampled, `complain(text)` what cannot be; the source is
    ``engine:NAME``.
    """

    def __init__(
        self,
        engines: Mapping[str, str],
        declared: Callable[[str], DaemonSide | None],
        *,
        send: Callable[[str, dict[str, list[float]], dict[str, str]], None],
        complain: Callable[[str], None],
    ) -> None:
        self._send = send
        self._complain = complain
        self._samplers: dict[str, _Sampler] = {}
        self._rows: dict[str, list[dict[str, int | float]]] = {}
        for name, cgroup in engines.items():
            sampler = self._sampler(name, cgroup, declared)
            if sampler is not None:
                self._samplers[f"engine:{name}"] = sampler

    def _sampler(self, name: str, cgroup: str, declared: Callable[[str], DaemonSide | None]) -> _Sampler | None:
        if cgroup:
            group = CgroupSampler(cgroup)
            if not group.found:
                self._complain(f"the overhead of {name} is not known: there is no control group {cgroup}")
                return None
            return group
        side = declared(name)
        if side is None:
            self._complain(
                f"the overhead of {name} is not known: nobody has said which processes are its own here; "
                f"name its control group under overhead.cgroups.{name}"
            )
        if not side:
            return None
        processes = DaemonSampler(side)
        if not processes.found and side.sockets:
            self._complain(f"the overhead of {name} is not known: no process of it was found")
        return processes

    def keep_sampling(self, interval_s: float, goes_on: Callable[[], bool]) -> None:
        """Sample on a schedule that does not drift, as long as it goes on; a tick that was missed stays missed."""
        begun = sent_at = monotonic()
        count = 0
        while goes_on() and self._samplers:
            count = max(count + 1, int((monotonic() - begun) / interval_s))
            gevent.sleep(max(0.0, begun + count * interval_s - monotonic()))
            for source, sampler in self._samplers.items():
                row = sampler.sample()
                if row is not None:
                    self._rows.setdefault(source, []).append(row)
            if monotonic() - sent_at >= min(SEND_S, interval_s):
                self._flush()
                sent_at = monotonic()

    def _flush(self) -> None:
        rows, self._rows = self._rows, {}
        for source, sampled in rows.items():
            columns: dict[str, list[Any]] = {name: [row[name] for row in sampled] for name in sampled[0]}
            self._send(source, columns, dict(self._samplers[source].units))
