"""The trace report: every operation of every job on a time axis, in the format of Chrome's and Perfetto's viewers.

Format: the "Trace Event Format" of the Chromium project (JSON object form). It is made in one pass over the stats
file and in bounded memory.

Viewers are stricter than the format. To Perfetto a process 0 is the kernel's, and a thread 0 has its process's
number, so numbers begin at 1. Of slices that do not nest, were it by the error of a sum, Perfetto drops one and
speedscope never ends the other; so a start and a duration add up to the very number that others begin or end with.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TextIO

from bench_common.records import OPERATION_FAILED, Outcome, attempt_of, job_id_of
from bench_common.safe_text import shorten
from bench_common.stats.block_types import Header, StoredHost, StoredTreatment, StoredTrial
from bench_common.stats.rows import Rows, SampleColumns
from bench_common.treatment import SOURCE
from bench_master.reports import ReportSource
from bench_master.reports.jsonl import WINDOW_ROWS, JobDetails, JobWindow, replace_nonfinite

Event = dict[str, Any]

MASTER: Final = 1
"""The master's number among the trace's processes; the workers' follow, in the order of the roster."""
FIRST_ROW: Final = 1
"""The number of a process's first row."""
UNKNOWN_WORKER: Final = 1 << 20
"""The process of operations whose job is too far away in the file, so that their worker is unknown."""

MESSAGE_LIMIT: Final = 500
"""How much of an error's message goes into a slice, in characters."""

_MEMORY: Final = ("rss_bytes", "pss_bytes", "cgroup_bytes")
_CPU: Final = ("user", "system", "iowait", "steal")

_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class TraceReport:
    """Writes one JSON object, an event a line: open it at ui.perfetto.dev or in chrome://tracing.

    A process for each worker, a row (thread) for as many jobs as ran there at once, a slice for each job and in
    it one for each operation; readings of hosts and engines are counters; the trials are the slices of the
    master.
    """

    name: ClassVar[str] = "trace"
    needs_times: ClassVar[bool] = True

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the trace; its times are microseconds since the run began."""
        header = source.stats.header
        document = source.document
        about = {
            "run_id": header.get("run_id"),
            "scenario": header.get("scenario", {}).get("name"),
            "run_state": document.run_state,
            "incomplete": list(document.incomplete),
        }
        out.write(f'{{"displayTimeUnit":"ms","otherData":{_encode(replace_nonfinite(about))},"traceEvents":[\n')
        separator = ""
        for event in trace_events(source):
            out.write(separator + _text(event))
            separator = ",\n"
        out.write("\n]}\n")


def _text(event: Event) -> str:
    try:
        return _encode(event)
    except (TypeError, ValueError):
        return _encode(replace_nonfinite(event))


def trace_events(source: ReportSource, window_rows: int = WINDOW_ROWS) -> Iterator[Event]:
    """Yield the events of a trace, in no order of time: viewers sort them."""
    sketch = _TraceBuilder(source.stats.header, source.stats.began_ns)
    window = JobWindow(window_rows)
    yield from _process(MASTER, "master")
    yield from _thread((MASTER, FIRST_ROW), "trials")
    if source.document.incomplete:
        # Viewers do not show what is in `otherData`.
        text = shorten(f"INCOMPLETE: {'; '.join(source.document.incomplete)}", MESSAGE_LIMIT)
        yield {"ph": "i", "s": "g", "name": text, "pid": MASTER, "tid": FIRST_ROW, "ts": 0.0}
    kinds = {"jobs", "operations", "errors", "host", "event", "samples"}
    for block in source.run.blocks(kinds, by_column=False):
        match block.kind:
            case "host":
                yield from sketch.host(block.body)
            case "event":
                yield from sketch.event(block.body)
            case "samples":
                yield from sketch.samples(block.body)
            case _:
                for rows, details in window.add(block):
                    yield from sketch.jobs(rows, details)
                yield from sketch.late(window.take_expired())
    for rows, details in window.drain():
        yield from sketch.jobs(rows, details)
    yield from sketch.late(window.take_expired())


class TrackAllocator:
    """Gives jobs rows in which they do not overlap: as few as there were at once, if they come in order of ends."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, int]] = []

    def place(self, start_ns: int, end_ns: int) -> tuple[int, bool]:
        """Return a row, from 0, that is free from the start on, and whether it is a new one."""
        # The one that has been free for the shortest time: so none is wasted.
        before = bisect_right(self._ends, (start_ns, len(self._ends))) - 1
        lane = self._ends.pop(before)[1] if before >= 0 else len(self._ends)
        insort(self._ends, (end_ns, lane))
        return lane, before < 0


class _TraceBuilder:
    """Turns blocks into events with the names that the header knows."""

    def __init__(self, header: Header, began_ns: int) -> None:
        self._treatments: Sequence[StoredTreatment] = header.get("treatments", ())
        self._trials: Sequence[StoredTrial] = header.get("trials", ())
        self._began_ns = began_ns
        self._lanes: dict[int, TrackAllocator] = {}
        self._under_way: dict[int, int] = {}

    def _us(self, instant_ns: int) -> float:
        return (instant_ns - self._began_ns) / 1e3

    def _title(self, treatment: int) -> str:
        known = treatment < len(self._treatments)
        return str(self._treatments[treatment].get("title")) if known else f"treatment {treatment}"

    def host(self, body: StoredHost) -> Iterator[Event]:
        name = f"worker {body.get('worker_id')} on {body.get('host')}"
        yield from _process(_worker(int(body.get("worker", 0))), name)

    def event(self, body: Mapping[str, Any]) -> Iterator[Event]:
        kind, at_ns, trial = body.get("kind"), body.get("at_ns"), body.get("trial")
        if not isinstance(at_ns, int):
            return
        if kind == "trial-begin" and isinstance(trial, int):
            self._under_way[trial] = at_ns
        elif kind == "trial-end" and trial in self._under_way:
            entry = self._trials[trial] if trial < len(self._trials) else (0, None, False)
            more = {"trial": trial, "block": entry[1], "warmup": bool(entry[2])}
            begin_ns = self._under_way.pop(trial)
            yield self._slice(self._title(entry[0]), "trial", (MASTER, FIRST_ROW), begin_ns, at_ns - begin_ns, more)
        elif kind not in ("trial-begin", "trial-end"):
            yield {"ph": "i", "s": "g", "name": str(kind), "pid": MASTER, "tid": FIRST_ROW, "ts": self._us(at_ns)}

    def jobs(self, rows: Rows, details: Mapping[int, JobDetails]) -> Iterator[Event]:
        for ticket, treatment, trial, worker, outcome, start_ns, end_ns, *_ in rows.tolist():
            if outcome > Outcome.FAILED and end_ns <= start_ns:
                continue  # it never ran
            lane, fresh = self._lanes.setdefault(worker, TrackAllocator()).place(start_ns, end_ns)
            place = (_worker(worker), FIRST_ROW + lane)
            if fresh:
                yield from _thread(place, f"jobs, row {lane + 1}")
            found = details.get(ticket)
            about = self._about(ticket, treatment, trial) | {"outcome": Outcome(outcome).name.lower()}
            whole = about
            if found is not None and found.error is not None:
                error = found.error
                whole = about | {
                    "error": f"{error['operation']}: {error['kind']}: {shorten(error['message'], MESSAGE_LIMIT)}"
                }
            yield self._slice(f"job {job_id_of(ticket)}", "job", place, start_ns, end_ns - start_ns, whole)
            if found is not None:
                yield from self._operations(treatment, found, place, about)

    def _operations(
        self, treatment: int, found: JobDetails, place: tuple[int, int], about: Mapping[str, Any]
    ) -> Iterator[Event]:
        known = treatment < len(self._treatments)
        names = self._treatments[treatment].get("operation_names", ()) if known else ()
        for position, ok, start_ns, duration_ns in found.operations:
            name = names[position] if position < len(names) else f"operation-{position}"
            category = "failed operation" if int(ok) == OPERATION_FAILED else "operation"
            yield self._slice(name, category, place, start_ns, duration_ns, about)

    def late(self, expelled: Mapping[int, JobDetails]) -> Iterator[Event]:
        for ticket, found in expelled.items():
            if not found.operations:
                continue
            if UNKNOWN_WORKER not in self._lanes:
                yield from _process(UNKNOWN_WORKER, "operations far from their jobs in the file")
            first, last = found.operations[0], found.operations[-1]
            lane, fresh = self._lanes.setdefault(UNKNOWN_WORKER, TrackAllocator()).place(first[2], last[2] + last[3])
            place = (UNKNOWN_WORKER, FIRST_ROW + lane)
            if fresh:
                yield from _thread(place, f"row {lane + 1}")
            yield from self._operations(
                found.treatment, found, place, self._about(ticket, found.treatment, found.trial)
            )

    def _about(self, ticket: int, treatment: int, trial: int) -> dict[str, Any]:
        about = {"job": job_id_of(ticket), "trial": trial, "treatment": self._title(treatment)}
        attempt = attempt_of(ticket)
        return about | {"attempt": attempt} if attempt else about

    def _slice(
        self,
        name: str,
        category: str,
        place: tuple[int, int],
        start_ns: int,
        duration_ns: int,
        about: Mapping[str, Any],
    ) -> Event:
        start_us = self._us(start_ns)
        return {
            "ph": "X",
            "name": name,
            "cat": category,
            "pid": place[0],
            "tid": place[1],
            "ts": start_us,
            "dur": self._us(start_ns + duration_ns) - start_us,
            "args": about,
        }

    def samples(self, samples: SampleColumns) -> Iterator[Event]:
        process, columns = _worker(samples.worker), samples.columns
        if samples.source.startswith(SOURCE):
            series = _engine_series(samples.source.removeprefix(SOURCE), columns)
        elif samples.source == "host":
            series = _host_series(columns)
        elif "busy_share" in columns:
            series = {"event loop (% busy)": {"busy": 100.0 * columns["busy_share"]}}
        else:
            return
        if "time_ns" not in columns:
            return
        times = columns["time_ns"].tolist()
        for name, parts in series.items():
            for row, instant_ns in enumerate(times):
                # What could not be read is no point of the curve.
                known = {part: float(values[row]) for part, values in parts.items() if math.isfinite(values[row])}
                if known:
                    yield {"ph": "C", "name": name, "pid": process, "ts": self._us(instant_ns), "args": known}


def _engine_series(engine: str, columns: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the counters of an engine's own processes, each with its parts; parts are stacked by viewers."""
    series = {f"{engine} {name}": {"bytes": columns[name]} for name in _MEMORY if name in columns}
    if {"cpu_ns", "interval_ns"} <= columns.keys():
        series[f"{engine} CPU (% of one)"] = {"used": 100.0 * columns["cpu_ns"] / columns["interval_ns"].clip(1)}
    if "processes" in columns:
        series[f"{engine} processes"] = {"count": columns["processes"]}
    return series


def _host_series(columns: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    series = {}
    cpu = {part: columns[f"cpu_{part}_percent"] for part in _CPU if f"cpu_{part}_percent" in columns}
    if cpu:
        series["host CPU (% of all)"] = cpu
    if "memory_used_bytes" in columns:
        series["host memory used"] = {"bytes": columns["memory_used_bytes"]}
    return series


def _worker(number: int) -> int:
    return MASTER + 1 + number


def _process(process: int, name: str) -> Iterator[Event]:
    yield _about_row("process_name", (process, FIRST_ROW), "name", name)
    yield _about_row("process_sort_index", (process, FIRST_ROW), "sort_index", process)


def _thread(place: tuple[int, int], name: str) -> Iterator[Event]:
    yield _about_row("thread_name", place, "name", name)
    # By their names a tenth row would come before the second.
    yield _about_row("thread_sort_index", place, "sort_index", place[1])


def _about_row(what: str, place: tuple[int, int], key: str, value: str | int) -> Event:
    return {"ph": "M", "name": what, "pid": place[0], "tid": place[1], "args": {key: value}}
