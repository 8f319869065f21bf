"""What is read of a host, its engines and its load process while a run goes on: gathered, and sent now and then.

One object belongs to one run, and ends with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Final, Protocol, TypeAlias

import gevent
from gevent.event import Event

from bench_common.errors import InfrastructureError
from bench_worker.host.sampler import HostSampler

log = logging.getLogger(__name__)

SEND_S: Final = 2.0
"""How often, at most, what was gathered is sent."""

Send: TypeAlias = Callable[[str, dict[str, list[int | float]], dict[str, str]], None]


class Sampler(Protocol):
    """What can be read again and again. `units` are those of a row's columns, the same in every row."""

    units: Mapping[str, str]

    def sample(self) -> Row | None:
        """Return a row, or None while there is nothing."""


class Sampling:
    """The samples of one run, until `end`. `send(source, columns, units)` gets what was gathered of a source."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._columns: dict[str, dict[str, list[int | float]]] = {}
        self._units: dict[str, dict[str, str]] = {}
        self._sent_at = monotonic()
        self._over = Event()

    def keep_reading_host(self, interval_s: float) -> None:
        """Read this host, as ``host``, from now on, in a greenlet; where its /proc cannot be read, that is logged."""
        gevent.spawn(self._read_host, interval_s)

    def keep_reading(self, samplers: Mapping[str, Sampler], interval_s: float) -> None:
        """Read each of some sources, by name, from now on, in a greenlet."""
        if samplers:
            gevent.spawn(self._read, samplers, interval_s)

    def add(self, source: str, row: Mapping[str, int | float], units: Mapping[str, str]) -> None:
        """Gather a row of a source that tells by itself."""
        columns = self._columns.setdefault(source, {})
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
        self._units[source] = dict(units)

    def flush(self) -> None:
        """Send what was gathered."""
        gathered, self._columns = self._columns, {}
        self._sent_at = monotonic()
        for source, columns in gathered.items():
            self._send(source, columns, self._units[source])

    def end(self) -> None:
        """Read and send no more."""
        self._over.set()

    def _read_host(self, interval_s: float) -> None:
        try:
            self._read({"host": HostSampler()}, interval_s)
        except InfrastructureError as error:
            log.error("this host cannot be sampled any more: %s", error)  # noqa: TRY400  it says where

    def _read(self, samplers: Mapping[str, Sampler], interval_s: float) -> None:
        for _ in _ticks(interval_s, self._over):
            for source, sampler in samplers.items():
                row = sampler.sample()
                if row is not None:
                    self.add(source, row, sampler.units)
            if monotonic() - self._sent_at >= SEND_S and not self._over.is_set():
                self.flush()


def _ticks(interval_s: float, over: Event) -> Iterator[None]:
    """Yield at each multiple of an interval until it is over: late once is not late for ever."""
    begun, count = monotonic(), 0
    while True:
        count += 1
        if over.wait(max(0.0, begun + count * interval_s - monotonic())):
            return
        yield
        count = max(count, int((monotonic() - begun) / interval_s))
