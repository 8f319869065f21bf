"""A run as those see it who watch it within the master's process: what they may ask, and the little they may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
    """What an observer may do with a run."""

    scenario: str
    plan: Plan
    snapshot: Callable[[], Snapshot]
    """Returns the run at this instant."""
    durations: Callable[[], Sequence[Histogram]]
    """Returns the durations of each treatment's jobs so far."""
    note: Callable[[str, Mapping[str, Any]], None]
    """Writes an event of a kind, with its fields, to the stats file."""
    remark: Callable[[str], None]
    """Adds a remark to the run's report."""
    notify: Callable[[str], None]
    shares_host: Callable[[], bool]
    """Returns whether a worker runs on the master's host."""
    interrupt: Callable[[], None]
    """Does what one Ctrl-C does."""
    stats: Callable[[], Path | None]
    """Returns the stats file that is being written; None before the run has begun."""


def watched_run(scenario: str, parts: RunParts, session: Session) -> WatchedRun:
    """Return what observers need of a run and its session."""
    recorder = parts.recorder

    def durations() -> Sequence[Histogram]:
        return recorder.live_stats.job_durations()  # others begin with the first job

    return WatchedRun(
        scenario=scenario,
        plan=parts.plan,
        snapshot=session.snapshot,
        durations=durations,
        note=lambda kind, fields: recorder.note(LogEvent(kind, fields)),
        remark=recorder.remark,
        notify=recorder.view.notify,
        shares_host=lambda: any(host.same_clock for _, host in parts.hosts),
        interrupt=session.interrupt,
        stats=lambda: None if recorder.journal is None else recorder.journal.path,
    )
