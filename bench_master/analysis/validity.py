"""How far the run's own stamps may be off, and whether that matters beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench_common.histogram import Histogram, bucket_bounds, nearest_rank
from bench_master.table import counted

MOST: Final = 0.1
"""A timing error beyond this share of the shortest operation's median is warned of."""
TOLD_SHARE: Final = 10
"""Beyond so many times the median the times alone are told."""
ADVICE: Final = (
    "the workers have too much to do at once; keep fewer jobs in flight on each (concurrency), or use more workers"
)
CALM: Final = 0.5
"""A loop that is busy for less than this share of the time does not have too much to do."""
UNAVOIDABLE_S: Final = 500e-6
"""The interpreter's switch interval in a load process: so much there may be in a calm run, whatever is in flight."""


def timing_error(bounds: Histogram) -> dict[str, float | None]:
    """Return the 99th percentile and the maximum, in seconds, of how much too late jobs' ends may be stamped (ns).

    The percentile is the upper end of its bucket, so that it is not less than the true one.
    """
    if bounds.max is None:
        return {"timing_error_p99_s": None, "timing_error_max_s": None}
    bucket, _, _ = bounds.locate(nearest_rank(bounds.n, 0.99))
    return {
        "timing_error_p99_s": min(bucket_bounds(bucket)[1], bounds.max) / 1e9,
        "timing_error_max_s": bounds.max / 1e9,
    }


def shortest_median_s(operations: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the smallest median of a treatment's operations; one that takes no time at all has nothing to spoil."""
    medians = [operation["p50_s"] for operation in operations.values() if operation["p50_s"]]
    return min(medians, default=None)


@dataclass(slots=True)
class Loops:
    """How the workers' event loops were while a treatment's jobs ran, as the batches of results say (ns)."""

    span_ns: int = 0
    busy_ns: int = 0
    lag_max_ns: int = 0

    def add(self, span_ns: int, busy_ns: int, lag_max_ns: int) -> None:
        """Take in a reading of a worker."""
        self.span_ns += span_ns
        self.busy_ns += busy_ns
        self.lag_max_ns = max(self.lag_max_ns, lag_max_ns)

    def document(self) -> dict[str, float | None]:
        """Return the busy share over all workers and the longest lag of any, in seconds; None where nobody told."""
        told = self.span_ns > 0
        return {
            "worker_busy_share": self.busy_ns / self.span_ns if told else None,
            "worker_lag_max_s": self.lag_max_ns / 1e9 if told else None,
        }


def doubt(entry: Mapping[str, Any]) -> str | None:
    """Return why a treatment's shortest operation must not be believed, and what to do; None where it may be."""
    error_s, shortest_s = entry["timing_error_p99_s"], shortest_median_s(entry["operations"])
    if error_s is None or shortest_s is None or error_s <= max(MOST * shortest_s, UNAVOIDABLE_S):
        return None
    return (
        f"the timing error (p99), {error_s * 1e3:.3g} ms, is more than {MOST:.0%} of the shortest operation's "
        f"median, {shortest_s * 1e3:.3g} ms: {_advice(entry)}"
    )


def _advice(entry: Mapping[str, Any]) -> str:
    """Return what to do about stamps of a treatment that are uncertain."""
    busy = entry["worker_busy_share"]
    if busy is None or busy >= CALM:
        return ADVICE
    return (
        f"the workers' loops were busy for {busy:.0%} of the time only, so something else kept them from a CPU; "
        "see what else runs on their hosts, the engine itself included"
    )


def timing_warnings(treatments: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a warning with advice where stamps are too uncertain for a treatment's shortest operation."""
    doubtful = []
    for entry in treatments:
        error_s, shortest_s = entry["timing_error_p99_s"], shortest_median_s(entry["operations"])
        if doubt(entry) is not None and error_s is not None and shortest_s is not None:
            doubtful.append((error_s / shortest_s, error_s, shortest_s, str(entry["title"]), _advice(entry)))
    if not doubtful:
        return []
    worst, error_s, shortest_s, title, advice = max(doubtful)
    # Of an operation that found nothing to do it is a number of six digits, which says no more than the times.
    share = f" ({worst:.0%})" if worst <= TOLD_SHARE else ""
    where = counted(len(doubtful), "treatment")
    text = (
        f"the timing error (p99) is more than {MOST:.0%} of the shortest operation's median in {where}, at worst "
        f"{error_s * 1e3:.3g} ms of {shortest_s * 1e3:.3g} ms{share} in {title}: {advice}"
    )
    return [text]
