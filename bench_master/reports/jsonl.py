"""The JSON report, which is the document itself, and the JSON Lines report, which streams a line for each job."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TextIO

from bench_common.records import OPERATION_FAILED, Outcome, attempt_of, job_id_of
from bench_common.stats.rows import MAX_ROWS, Rows
from bench_master.analysis.report_types import as_json
from bench_master.reports import ReportSource
from bench_master.reports.job_window import JobDetails, JobWindow


class JsonReport:
    """Writes the document as indented JSON; a figure without a value is null, never NaN or an infinity."""

    name: ClassVar[str] = "json"
    needs_times: ClassVar[bool] = False

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
    """Writes one JSON object a line and job, in the order in which the jobs ended.

    A job's operations, metrics and error are in other blocks of the file, close by; they are joined within a window
    of `WINDOW_ROWS` jobs, so memory does not grow with the run. What is further away gets its own line with
    ``"late": true`` and the job's id.
    """

    name: ClassVar[str] = "jsonl"
    needs_times: ClassVar[bool] = False

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the lines; instants are seconds since the run began."""
        out.writelines(_text(line) + "\n" for line in job_lines(source))


_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _text(line: dict[str, Any]) -> str:
    try:
        return _encode(line)
    except (TypeError, ValueError):
        # It holds NaN or bytes, which JSON cannot express; checking every line would cost half of the report again.
        return _encode(replace_nonfinite(line))


def job_lines(source: ReportSource, window_rows: int = WINDOW_ROWS) -> Iterator[dict[str, Any]]:
    """Yield what the report writes."""
    header = source.stats.header
    sketch = _LineBuilder(header)
    window = JobWindow(window_rows)
    for block in source.stats.blocks({"jobs", "operations", "metrics", "errors", "host"}):
        if block.kind == "host":
            sketch.workers[int(block.body.get("worker", -1))] = block.body.get("worker_id")
            continue
        for rows, details in window.add(block):
            yield from sketch.jobs(rows, details)
        yield from sketch.late(window.take_expired())
    for rows, details in window.drain():
        yield from sketch.jobs(rows, details)
    yield from sketch.late(window.take_expired())


class _LineBuilder:
    """Turns rows into lines with the names that the header knows."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._treatments: Sequence[Mapping[str, Any]] = header.get("treatments", ())
        self._trials: Sequence[Sequence[Any]] = header.get("trials", ())
        self._open = {index for index, one in enumerate(self._treatments) if one.get("open_load")}
        self._began_ns = int(header.get("clock", {}).get("monotonic_ns", 0))
        self.workers: dict[int, Any] = {}
        self._imported = bool(header.get("imported"))

    def jobs(self, rows: Rows, details: Mapping[int, JobDetails]) -> Iterator[dict[str, Any]]:
        for ticket, treatment, trial, worker, outcome, start_ns, end_ns, bound_ns, wait_ns in rows.tolist():
            ran = outcome <= Outcome.FAILED
            line = self._identity(ticket, treatment, trial) | {
                "worker": self.workers.get(worker, worker),
                "outcome": Outcome(outcome).name.lower(),
                "start_s": (start_ns - self._began_ns) / 1e9 if ran or start_ns else None,
                "duration_s": (end_ns - start_ns) / 1e9 if ran else None,
                "end_uncertainty_s": bound_ns / 1e9 if ran else None,
            }
            if treatment in self._open:
                line["wait_s"] = wait_ns / 1e9 if ran else None
            if self._imported:
                line |= {"imported": True, "start_s": None, "duration_s": None, "end_uncertainty_s": None}
            yield line | self._details(treatment, details.get(ticket))

    def late(self, expelled: Mapping[int, JobDetails]) -> Iterator[dict[str, Any]]:
        for ticket, found in expelled.items():
            yield self._identity(ticket, found.treatment, found.trial) | {
                "late": True,
                **self._details(found.treatment, found),
            }

    def _identity(self, ticket: int, treatment: int, trial: int) -> dict[str, Any]:
        entry = self._trials[trial] if trial < len(self._trials) else (treatment, None, False)
        labels = self._treatments[treatment].get("labels", {}) if treatment < len(self._treatments) else {}
        return {
            "id": job_id_of(ticket),
            "attempt": attempt_of(ticket),
            "treatment": labels,
            "trial": trial,
            "block": entry[1],
            "warmup": bool(entry[2]),
        }

    def _details(self, treatment: int, details: JobDetails | None) -> dict[str, Any]:
        if details is None:
            return {"operations": {}, "metrics": {}, "error": None}
        known = treatment < len(self._treatments)
        names = self._treatments[treatment].get("operation_names", ()) if known else ()
        operations = {}
        for place, ok, start_ns, duration_ns in details.operations:
            name = names[place] if place < len(names) else f"operation-{place}"
            operations[name] = {
                "ok": int(ok) != OPERATION_FAILED,
                "start_s": (start_ns - self._began_ns) / 1e9,
                "duration_s": duration_ns / 1e9,
            }
        return {"operations": operations, "metrics": details.metrics, "error": details.error}
