"""A run as its live page sees it: what it may ask, and the one thing that it may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench_master.coordinator.messages import LogEvent

if TYPE_CHECKING:
    from bench_common.histogram import Histogram
    from bench_master.plan import Plan
    from bench_master.progress.view import Snapshot
    from bench_master.run.message_handler import RunParts
    from bench_master.run.session import Session


class WatchedRun(Struct, frozen=True):
    """What the page needs of a run."""

    scenario: str
    """The scenario's name."""
    plan: Plan
    snapshot: Callable[[], Snapshot]
    """Returns the run at this instant."""
    durations: Callable[[], Sequence[Histogram]]
    """Returns the durations of each treatment's jobs so far."""
    note: Callable[[str, Mapping[str, Any]], None]
    """Writes an event of a kind, with its fields, to the stats file."""
    shares_host: Callable[[], bool]
    """Returns whether a worker runs on the master's host."""
    stop: Callable[[str], None]
    """Does what one Ctrl-C does; gets who asked for it."""
    notify: Callable[[str], None]
    """Shows a notification."""


def watched_run(scenario: str, parts: RunParts, session: Session) -> WatchedRun:
    """Return what the page needs of a run and its session."""
    recorder = parts.recorder

    def durations() -> Sequence[Histogram]:
        return recorder.live_stats.job_durations()  # others begin with the first job

    def stop(who: str) -> None:
        recorder.note(LogEvent("stopped-on-page", {"who": who}))
        recorder.remark(f"the run was stopped on its live page, by {who}")
        recorder.view.notify(f"stopped on the live page, by {who}")
        session.interrupt()

    return WatchedRun(
        scenario=scenario,
        plan=parts.plan,
        snapshot=session.snapshot,
        durations=durations,
        note=lambda kind, fields: recorder.note(LogEvent(kind, fields)),
        shares_host=lambda: any(host.same_clock for _, host in parts.hosts),
        stop=stop,
        notify=recorder.view.notify,
    )
