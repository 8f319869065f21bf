"""What a live page draws over time: points that grow coarser, not more, while the run goes on. Pure.

A point has the jobs that ended in a stretch of time, and their latencies as counts of rounded values, so that two
neighbours can become one without an average of percentiles. Where nobody looked there is a gap, not a line, until the
stats file has filled it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

MAX_POINTS: Final = 300
"""With more, neighbours are joined, so that there are at most half as many."""
QUANTILES: Final = (0.5, 0.95)


class Point(Struct):
    """A stretch of time."""

    begin_s: float
    """When it began, in seconds since the run began."""
    end_s: float
    done: int
    """How many jobs were done in it."""
    failed: int
    """How many jobs failed in it."""
    latencies: dict[int, dict[float, int]] = field(default_factory=dict)
    """By treatment: how often each duration (s) occurred among jobs that were done."""

    def join(self, other: Point) -> None:
        """Add the stretch that follows."""
        self.end_s = other.end_s
        self.done += other.done
        self.failed += other.failed
        for treatment, counts in other.latencies.items():
            own = self.latencies.setdefault(treatment, {})
            for value, count in counts.items():
                own[value] = own.get(value, 0) + count

    def row(self) -> list[Any]:
        """Return what the page draws: begin, end, done, failed, and of each treatment its n, p50 and p95."""
        rows = [[treatment, *_summary(counts)] for treatment, counts in sorted(self.latencies.items()) if counts]
        return [self.begin_s, self.end_s, self.done, self.failed, rows]


def _summary(counts: Mapping[float, int]) -> Iterator[float]:
    """Yield the number of values and their quantiles by the nearest rank."""
    total = sum(counts.values())
    yield total
    for share in QUANTILES:
        rank, reached = max(1, -int(-share * total // 1)), 0
        for value in sorted(counts):
            reached += counts[value]
            if reached >= rank:
                yield value
                break


class History:
    """The points of a run, from the snapshots that arrive while somebody looks."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._last: tuple[float, int, int] | None = None
        self._resolution_s = 0.0
        """How long a point lasts at least."""
        self.gap: tuple[float, float] | None = None
        """The last time in which nobody looked, until it is filled."""

    @property
    def size(self) -> int:
        """How many points there are."""
        return len(self._points)

    def pause(self) -> None:
        """Begin a gap: nobody looks."""
        self._last = None

    def fill(self, points: Sequence[Point]) -> None:
        """Put points into the gap: pages have to replace all that they have."""
        if self.gap is None:
            return
        begin, self.gap = self.gap[0], None
        place = sum(point.begin_s < begin for point in self._points)
        self._points[place:place] = points
        if len(self._points) > MAX_POINTS:
            self._thin()

    def add(self, snapshot: Mapping[str, Any]) -> int:
        """Add a snapshot; return from which point on a page has to replace what it has."""
        now = (float(snapshot["elapsed_s"]), int(snapshot["done"]), int(snapshot["failed"]))
        before, self._last = self._last, now
        if before is None:
            self.gap = (self._points[-1].end_s if self._points else 0.0, now[0])
            return len(self._points)
        if now[0] <= before[0]:
            # The clock of a run starts anew when its workers are there.
            self._points, self.gap = [], None
            return 0
        latencies = {
            int(treatment): {float(value): int(count) for value, count in counts}
            for treatment, counts in snapshot["window"]
        }
        # Jobs of an optional treatment that is left out after all are taken back from those that failed.
        new = Point(before[0], now[0], max(0, now[1] - before[1]), max(0, now[2] - before[2]), latencies)
        last = self._points[-1] if self._points else None
        if last is not None and last.end_s == new.begin_s and last.end_s - last.begin_s < self._resolution_s:
            last.join(new)
            return len(self._points) - 1
        self._points.append(new)
        if len(self._points) <= MAX_POINTS:
            return len(self._points) - 1
        self._thin()
        return 0

    def rows(self, begin: int = 0) -> list[list[Any]]:
        """Return the points from one on, as a page gets them."""
        return [point.row() for point in self._points[begin:]]

    def _thin(self) -> None:
        """Join neighbours: what lasts half as long as the new resolution becomes one with the next."""
        self._resolution_s = max(2.0 * self._resolution_s, 2.0)
        while len(self._points) > MAX_POINTS // 2:
            joined: list[Point] = []
            for point in self._points:
                last = joined[-1] if joined else None
                close = last is not None and last.end_s == point.begin_s
                if last is not None and close and point.end_s - last.begin_s <= self._resolution_s * 1.25:
                    last.join(point)
                else:
                    joined.append(point)
            if len(joined) == len(self._points):
                # Gaps everywhere: the oldest go.
                joined = joined[-MAX_POINTS // 2 :]
            self._points = joined
            if len(joined) > MAX_POINTS // 2:
                self._resolution_s *= 2.0
