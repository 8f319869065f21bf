"""When somebody looked at a run on its live page, by the events of the stats file, and which trials ran meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from bench_common.stats.reader import RESUMED
from bench_master.run_data.host_samples import TrialSpan

WATCHED: Final = "watched"
"""The kind of the events."""


class _Watch(Struct):
    began_ns: int
    ended_ns: int | None = None
    shares_host: bool = False
    """Whether the page's process ran on the host of a worker."""


class Watches:
    """Collects the times in which somebody looked."""

    def __init__(self) -> None:
        self._watches: list[_Watch] = []

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event."""
        kind, at_ns = event["kind"], event["at_ns"]
        if kind not in (WATCHED, RESUMED):
            return
        last = self._watches[-1] if self._watches else None
        is_open = last is not None and last.ended_ns is None
        if kind == WATCHED and event.get("state") == "began" and not is_open:
            self._watches.append(_Watch(at_ns, shares_host=event.get("shares_host") is True))
        elif last is not None and is_open and event.get("state") != "began":
            # A killed master notes no end: at the latest it was when the run was resumed.
            last.ended_ns = at_ns
            last.shares_host |= event.get("shares_host") is True

    def remarks(self, spans: Iterable[TrialSpan]) -> list[str]:
        """Return what a report says, given the measured trials; nothing unless it may have cost a worker's host."""
        own = [one for one in self._watches if one.shares_host]
        trials = sorted(
            span.trial + 1
            for span in spans
            if any(
                one.began_ns < span.end_ns and (one.ended_ns is None or one.ended_ns > span.begin_ns) for one in own
            )
        )
        if not trials:
            return []
        noun = "trial" if len(trials) == 1 else "trials"
        where = "somebody had the live page open, whose process ran on the host of a worker"
        return [f"watched during {noun} {ranges(trials)}: {where}"]


def ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers in words: ``4-9, 12``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)
