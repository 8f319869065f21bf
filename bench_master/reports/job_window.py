"""Joins jobs with their operations, metrics and errors, which stand in other blocks of the stats file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from bench_common.records import ErrorRecord, MetricRecord
from bench_common.stats.reader import Block
from bench_common.stats.rows import Rows

SLICE_ROWS: Final = 8192
"""Jobs that leave the window at a time: as Python objects they take ten times the memory of rows."""

MAX_WINDOWS_WAITED: Final = 2
"""How many windows full of jobs may pass by a detail without its own before the detail is given up."""

_Record: TypeAlias = MetricRecord | ErrorRecord


@dataclass(slots=True)
class JobDetails:
    """What belongs to one ticket: operations as (place, ok, start_ns, duration_ns), metrics, the error."""

    treatment: int
    trial: int
    operations: list[tuple[int, int, int, int]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    error: dict[str, str] | None = None


class JobWindow:
    """Holds up to `rows` jobs, and whatever comes for jobs that are not there yet or are gone already."""

    def __init__(self, rows: int) -> None:
        self._limit = rows
        self._jobs: deque[Rows] = deque()
        self._held = 0
        self._operations: list[tuple[int, Rows]] = []
        self._records: list[tuple[int, _Record]] = []
        self._gone = 0
        """Jobs that have left so far. A detail keeps how many those were when it came."""

    def add(self, block: Block) -> Iterator[tuple[Rows, dict[int, JobDetails]]]:
        """Take a block in; yield the jobs that leave the window, with their details by ticket."""
        if block.kind == "jobs":
            self._jobs.append(block.body)
            self._held += len(block.body)
            while self._held > self._limit and len(self._jobs) > 1:
                yield from self._release_jobs()
        elif block.kind == "operations":
            self._operations.append((self._gone, block.body))
        else:
            self._records += [(self._gone, record) for record in block.body]

    def drain(self) -> Iterator[tuple[Rows, dict[int, JobDetails]]]:
        """Yield the jobs that are left; no more can come for any detail."""
        while self._jobs:
            yield from self._release_jobs()
        self._gone += MAX_WINDOWS_WAITED * self._limit + 1

    def _release_jobs(self) -> Iterator[tuple[Rows, dict[int, JobDetails]]]:
        rows = self._jobs.popleft()
        self._held -= len(rows)
        self._gone += len(rows)
        operations, records = self._take_details(rows["ticket"])
        for first in range(0, len(rows), SLICE_ROWS):
            part = rows[first : first + SLICE_ROWS]
            found: dict[int, JobDetails] = {}
            for theirs in operations:
                _add_operations(found, theirs[np.isin(theirs["ticket"], part["ticket"])])
            if records:
                for ticket in part["ticket"].tolist():
                    for record in records.get(ticket, ()):
                        _add_record(found, record)
            yield part, found

    def take_expired(self) -> dict[int, JobDetails]:
        """Return, and forget, the details that have waited too long for their job."""
        limit = self._gone - MAX_WINDOWS_WAITED * self._limit
        found: dict[int, JobDetails] = {}
        for since, rows in self._operations:
            if since < limit:
                _add_operations(found, rows)
        for since, record in self._records:
            if since < limit:
                _add_record(found, record)
        self._operations = [entry for entry in self._operations if entry[0] >= limit]
        self._records = [entry for entry in self._records if entry[0] >= limit]
        return found

    def _take_details(
        self, tickets: np.ndarray[tuple[int], np.dtype[np.uint64]]
    ) -> tuple[list[Rows], dict[int, list[_Record]]]:
        """Take out the operations, and the records by ticket, that belong to these jobs."""
        operations = []
        left = []
        for since, rows in self._operations:
            mine = np.isin(rows["ticket"], tickets)
            operations.append(rows[mine])
            if not mine.all():
                left.append((since, rows[~mine]))
        self._operations = left
        wanted = set(tickets.tolist()) if self._records else set()
        records: dict[int, list[_Record]] = {}
        others = []
        for since, record in self._records:
            if record.ticket in wanted:
                records.setdefault(record.ticket, []).append(record)
            else:
                others.append((since, record))
        self._records = others
        return operations, records


def _add_operations(found: dict[int, JobDetails], rows: Rows) -> None:
    for ticket, treatment, trial, *operation in rows.tolist():
        found.setdefault(ticket, JobDetails(treatment, trial)).operations.append(tuple(operation))


def _add_record(found: dict[int, JobDetails], record: _Record) -> None:
    details = found.setdefault(record.ticket, JobDetails(record.treatment, record.trial))
    if isinstance(record, MetricRecord):
        details.metrics[record.name] = record.value
    else:
        details.error = {"operation": record.operation, "kind": record.kind, "message": record.message}
