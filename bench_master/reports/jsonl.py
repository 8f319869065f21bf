"""The JSON report, which is the document itself, and the JSON Lines report: a line for each comparison and each job.

`JobWindow` joins jobs with their operations, metrics and errors, which are in other blocks of the stats file.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, TextIO

import numpy as np

from bench_common.job_rows import TRANSFER_ROW
from bench_common.records import OPERATION_FAILED, MetricRecord, Outcome, attempt_of, job_id_of
from bench_common.stats.block_types import MAX_ROWS, Header
from bench_common.stats.reader import Block, has_times
from bench_common.stats.rows import Rows
from bench_master.analysis.report_types import as_json
from bench_master.reports import ReportSource

SLICE_ROWS: Final = 8192
"""Jobs that leave the window at a time: Python objects take ten times the memory of rows."""

MAX_DETAILS: Final = 1 << 20
"""How many details wait for their jobs at most: more than that have no jobs in the file."""

MAX_WINDOWS_WAITED: Final = 2
"""After so many full windows without its job a detail is given up."""

_MOVED: Final = ("bytes", "endpoint", "retries", "redrawn")
"""What a line says of the transfer of a job that does one of its operations."""
_RECORD_ROW: Final = np.dtype([("ticket", np.uint64), ("record", object)])
"""A metric or an error."""


class JobWindow:
    """Holds up to `rows` jobs, and details whose jobs are still missing or have left already."""

    def __init__(self, rows: int) -> None:
        self._limit = rows
        self._jobs: deque[Rows] = deque()
        self._held = 0
        self._details: list[tuple[int, Rows]] = []
        """Rows of operations, transfers and records, each with the number of jobs that had left as they came."""
        self._gone = 0
        """Jobs that have left so far."""

    def add(self, block: Block) -> Iterator[tuple[Rows, list[Rows]]]:
        """Add a block; yield the jobs that leave the window, with their details."""
        if block.kind == "jobs":
            self._jobs.append(block.body)
            self._held += len(block.body)
            while self._held > self._limit and len(self._jobs) > 1:
                yield from self._release_jobs()
        elif block.kind in ("operations", "transfers"):
            self._details.append((self._gone, block.body))
        else:
            self._details.append((self._gone, np.array([(one.ticket, one) for one in block.body], _RECORD_ROW)))

    def drain(self) -> Iterator[tuple[Rows, list[Rows]]]:
        """Yield the remaining jobs; no later block can have details."""
        while self._jobs:
            yield from self._release_jobs()
        self._gone += MAX_WINDOWS_WAITED * self._limit + 1

    def _release_jobs(self) -> Iterator[tuple[Rows, list[Rows]]]:
        parts = [self._jobs.popleft()]
        # A slow run has many blocks of few jobs each: they are looked up together.
        most = min(SLICE_ROWS, self._limit) - len(parts[0])
        while self._jobs and len(self._jobs[0]) <= most:
            most -= len(self._jobs[0])
            parts.append(self._jobs.popleft())
        rows = np.concatenate(parts)
        self._held -= len(rows)
        self._gone += len(rows)
        details = self._details
        mine = [np.isin(theirs["ticket"], rows["ticket"]) for _, theirs in details]
        taken = [theirs[where] for (_, theirs), where in zip(details, mine, strict=True)]
        self._details = [
            (since, theirs[~where]) for (since, theirs), where in zip(details, mine, strict=True) if not where.all()
        ]
        for first in range(0, len(rows), SLICE_ROWS):
            part = rows[first : first + SLICE_ROWS]
            yield part, [theirs[np.isin(theirs["ticket"], part["ticket"])] for theirs in taken]

    def take_expired(self) -> list[Rows]:
        """Return, and forget, the details that have waited too long for their job, or all if they are too many."""
        limit = self._gone - MAX_WINDOWS_WAITED * self._limit
        if sum(len(rows) for _, rows in self._details) > MAX_DETAILS:
            limit = self._gone + 1
        expired = [rows for since, rows in self._details if since < limit]
        self._details = [entry for entry in self._details if entry[0] >= limit]
        return sorted(expired, key=lambda rows: rows.dtype == _RECORD_ROW)


class JsonReport:
    """Writes everything as indented JSON, for programs; a figure without a value is null, never NaN or infinity."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write one JSON object."""
        json.dump(replace_nonfinite(as_json(source.document)), out, indent=2, ensure_ascii=False, allow_nan=False)
        out.write("\n")


def replace_nonfinite(value: Any) -> Any:
    """Return plain values with None for every NaN and infinity, which JSON cannot express."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


WINDOW_ROWS: Final = 2 * MAX_ROWS
"""Jobs to hold until their operations, metrics and errors arrive, which are written within one or two flushes."""


class JsonLinesReport:
    """Writes one JSON object a line: about the run, then each comparison, then each job in the order of their ends.

    A job's operations, metrics and error are in other blocks of the file, close by; they are joined within a window
    of `WINDOW_ROWS` jobs, so memory does not grow with the run. What is further away gets its own line with
    ``"late": true`` and the job's id.
    """

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the lines; instants are seconds since the run began."""
        document, verdicts = source.document, source.document.verdicts
        # The first line says whether the jobs that follow are all of the run.
        about = {
            "run_id": document.run.run_id,
            "run_state": document.run_state,
            "jobs_planned": document.totals.planned,
            "jobs_missing": document.totals.missing,
            "incomplete": list(document.incomplete),
            "damage": document.damage,
        }
        out.write(_text(about) + "\n")
        comparisons = [] if verdicts is None else verdicts.comparisons
        out.writelines(_text({"comparison": as_json(one)}) + "\n" for one in comparisons)
        out.writelines(_text(line) + "\n" for line in job_lines(source))


_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _text(line: dict[str, Any]) -> str:
    try:
        return _encode(line)
    except (TypeError, ValueError):
        # It holds NaN or bytes, which JSON cannot express; checking every line would cost half of the report again.
        return _encode(replace_nonfinite(line))


def job_lines(source: ReportSource, window_rows: int = WINDOW_ROWS) -> Iterator[dict[str, Any]]:
    """Yield a line for each job."""
    header = source.stats.header
    disturbed = {one.trial for entry in source.document.treatments for one in entry.disturbances}
    sketch = _LineBuilder(header, source.stats.began_ns, disturbed)
    window = JobWindow(window_rows)
    kinds = {"jobs", "operations", "transfers", "metrics", "errors", "host"}
    for block in source.run.blocks(kinds, by_column=False):
        if block.kind == "host":
            sketch.workers[block.body.worker] = block.body.worker_id
            continue
        for rows, details in window.add(block):
            yield from sketch.jobs(rows, details)
        yield from sketch.late(window.take_expired())
    for rows, details in window.drain():
        yield from sketch.jobs(rows, details)
    yield from sketch.late(window.take_expired())


class _LineBuilder:
    """Turns rows into lines with the names that the header knows."""

    def __init__(self, header: Header, began_ns: int, disturbed: Collection[int]) -> None:
        self._header, self._began_ns, self._disturbed = header, began_ns, disturbed
        self._open = {index for index, one in enumerate(header.treatments) if one.open_load}
        self._timed = has_times(header)
        self.workers: dict[int, Any] = {}

    def jobs(self, rows: Rows, details: Iterable[Rows]) -> Iterator[dict[str, Any]]:
        found = self._found(details)
        for ticket, treatment, trial, worker, outcome, start_ns, end_ns, uncertainty_ns, wait_ns in rows.tolist():
            ran = outcome <= Outcome.FAILED
            line = self._identity(ticket, treatment, trial) | {
                "worker": self.workers.get(worker, worker),
                "outcome": Outcome(outcome).name.lower(),
                "start_s": (start_ns - self._began_ns) / 1e9 if ran or start_ns else None,
                "duration_s": (end_ns - start_ns) / 1e9 if ran else None,
                "end_uncertainty_s": uncertainty_ns / 1e9 if ran else None,
            }
            if treatment in self._open:
                line["wait_s"] = wait_ns / 1e9 if ran else None
            if self._header.imported:
                line |= {"imported": True, "end_uncertainty_s": None}
            if not self._timed:
                line |= {"start_s": None, "duration_s": None}
            _, _, parts = found.get(ticket, (treatment, trial, {"operations": {}, "metrics": {}, "error": None}))
            yield line | parts

    def late(self, expired: Iterable[Rows]) -> Iterator[dict[str, Any]]:
        for ticket, (treatment, trial, parts) in self._found(expired).items():
            yield self._identity(ticket, treatment, trial) | {"late": True, **parts}

    def _identity(self, ticket: int, treatment: int, trial: int) -> dict[str, Any]:
        header = self._header
        entry = header.trials[trial] if trial < len(header.trials) else (treatment, None, False)
        labels = header.treatments[treatment].labels if treatment < len(header.treatments) else {}
        return {
            "id": job_id_of(ticket),
            "attempt": attempt_of(ticket),
            "treatment": labels,
            "trial": trial,
            "block": entry[1],
            "warmup": bool(entry[2]),
            "disturbed": trial in self._disturbed,
        }

    def _found(self, details: Iterable[Rows]) -> dict[int, tuple[int, int, dict[str, Any]]]:
        """Return treatment and trial of each ticket that has details, and what its line says of them."""
        found: dict[int, tuple[int, int, dict[str, Any]]] = {}

        def parts_of(ticket: int, treatment: int, trial: int) -> dict[str, Any]:
            own: dict[str, Any] = {"operations": {}, "metrics": {}, "error": None}
            return found.setdefault(ticket, (treatment, trial, own))[2]

        names = [one.operation_names for one in self._header.treatments]
        for rows in details:
            if rows.dtype == _RECORD_ROW:
                for record in rows["record"]:
                    parts = parts_of(record.ticket, record.treatment, record.trial)
                    if isinstance(record, MetricRecord):
                        parts["metrics"][record.name] = record.value
                    else:
                        error = {"operation": record.operation, "kind": record.kind, "message": record.message}
                        parts["error"] = error
            elif rows.dtype == TRANSFER_ROW:
                for ticket, treatment, trial, *moved in rows[["ticket", "treatment", "trial", *_MOVED]].tolist():
                    parts_of(ticket, treatment, trial)["transfer"] = dict(zip(_MOVED, moved, strict=True))
            else:
                for ticket, treatment, trial, place, ok, start_ns, duration_ns in rows.tolist():
                    known = names[treatment] if treatment < len(names) else ()
                    name = known[place] if place < len(known) else f"operation-{place}"
                    parts_of(ticket, treatment, trial)["operations"][name] = {
                        "ok": int(ok) != OPERATION_FAILED,
                        "start_s": (start_ns - self._began_ns) / 1e9,
                        "duration_s": duration_ns / 1e9,
                    }
        return found
