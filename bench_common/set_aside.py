"""What of a run that was resumed no longer counts: the trials that a crash cut short, as they were before.

A trial that was begun and not ended whole is run again when its run is resumed. What it gave before stays in the
file, for whoever wants to see it, and counts in no figure; the event ``resumed`` says which trials these are, and the
first job after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from bench_common.records import JOB_ID, job_id_of

RESUMED: Final = "resumed"
TRIAL_EVENTS: Final = frozenset({"trial-begin", "trial-end", "trial-skipped", "packed"})
ROWS: Final = frozenset({"jobs", "operations"})
RECORDS: Final = frozenset({"metrics", "errors", "outputs"})


class SetAside:
    """Knows what does not count, once it was told every ``resumed`` event of a file."""

    def __init__(self) -> None:
        self._limits: dict[int, tuple[int, int]] = {}
        """For each trial that was run again: the first job, and the instant (ns), from which on it counts."""
        self._first_jobs = np.zeros(1, "<u8")

    def __bool__(self) -> bool:
        return bool(self._limits)

    def note(self, event: Mapping[str, Any]) -> None:
        """Take in an event; all but ``resumed`` are left alone, and so is one that is malformed."""
        if event.get("kind") != RESUMED:
            return
        again, first_job, at_ns = event.get("again"), event.get("first_job"), event.get("at_ns")
        if not isinstance(again, list) or not isinstance(first_job, int) or not isinstance(at_ns, int):
            return
        self._limits.update({trial: (first_job, at_ns) for trial in again if isinstance(trial, int) and trial >= 0})
        # One place more than there are trials to look up, which stands for all that follow.
        self._first_jobs = np.zeros(max(self._limits, default=-1) + 2, "<u8")
        for trial, (first, _) in self._limits.items():
            self._first_jobs[trial] = first

    def counting(self, kind: str, body: Any) -> Any:
        """Return of a block's body what counts; None where nothing of it does."""
        if not self._limits:
            return body
        if kind in ROWS:
            firsts = self._first_jobs[np.minimum(body["trial"], len(self._first_jobs) - 1)]
            keep = (body["ticket"] & np.uint64(JOB_ID)) >= firsts
            if keep.all():
                return body
            return body[keep] if keep.any() else None
        if kind in RECORDS:
            records = [record for record in body if job_id_of(record.ticket) >= self._first_of(record.trial)]
            return records or None
        if kind == "event" and body.get("kind") in TRIAL_EVENTS:
            _, since_ns = self._limits.get(body.get("trial", -1), (0, None))
            at_ns = body.get("at_ns")
            if since_ns is not None and isinstance(at_ns, int) and at_ns < since_ns:
                return None
        return body

    def _first_of(self, trial: int) -> int:
        return self._limits.get(trial, (0, 0))[0]
