"""What the bodies of a stats file's row blocks hold: jobs, operations and samples as columns, the rest as rows.

`pack_*` make plain msgpack values; `unpack` gives back equal rows and raises `ValueError` on anything that a writer
would not have written. `docs/stats-file.rst` describes the same for people.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from bench_common.columns import DELTA, FLOAT, OFFSET, Column, ColumnError, decode_column, encode_column
from bench_common.records import JOB_ROW, OPERATION_ROW, ErrorRecord, MetricRecord, Outcome, OutputRecord

Rows = npt.NDArray[np.void]
Body = dict[str, Any]
Record = TypeVar("Record", MetricRecord, ErrorRecord, OutputRecord)

_JOB_COLUMNS: Final = {
    "ticket": DELTA,
    "treatment": OFFSET,
    "trial": OFFSET,
    "worker": OFFSET,
    "outcome": OFFSET,
    "end_ns": DELTA,
    "duration_ns": OFFSET,
    "bound_ns": OFFSET,
    "wait_ns": OFFSET,
}
"""Jobs arrive in the order of their ends: those differ little, and durations vary less than starts do."""

_OPERATION_COLUMNS: Final = {
    "ticket": DELTA,
    "treatment": OFFSET,
    "trial": OFFSET,
    "operation": OFFSET,
    "ok": OFFSET,
    "start_ns": DELTA,
    "duration_ns": OFFSET,
}

_ONLY_COLUMNS: Final = {"operation": OFFSET, "ok": OFFSET, "delay_ns": OFFSET, "rest_ns": OFFSET}
"""Of a job's only operation: how long after the job it began, and how long before it it ended. Nearly always 0."""

_RECORD_TYPES: Final[Mapping[type, tuple[type, ...]]] = {
    MetricRecord: (int, int, int, str, float),
    ErrorRecord: (int, int, int, str, str, str),
    OutputRecord: (int, int, int, str, bytes, bytes, int, bool),
}


@dataclass(frozen=True, slots=True)
class Samples:
    """Readings of one source (``host``, ``loop``) of one worker (its roster number; -1 is the master)."""

    worker: int
    source: str
    columns: Mapping[str, Column]
    units: Mapping[str, str]


def pack_jobs(rows: Rows, only: Rows | None = None) -> Body:
    """Return the body of a ``jobs`` block of `JOB_ROW` rows and of the `only` operation of each, if they `belong`."""
    duration = rows["end_ns"] - rows["start_ns"]
    arrays = {name: duration if name == "duration_ns" else rows[name] for name in _JOB_COLUMNS}
    body = _packed(len(rows), arrays, _JOB_COLUMNS)
    if only is not None:
        delay = only["start_ns"] - rows["start_ns"]
        rest = duration - delay - only["duration_ns"]
        arrays = {"operation": only["operation"], "ok": only["ok"], "delay_ns": delay, "rest_ns": rest}
        body["operations"] = _packed(len(only), arrays, _ONLY_COLUMNS)["columns"]
    return body


def belong(operations: Rows, jobs: Rows) -> bool:
    """Say whether there is one operation for each job, in the jobs' own order."""
    return len(operations) == len(jobs) and all(
        np.array_equal(operations[name], jobs[name]) for name in ("ticket", "treatment", "trial")
    )


def pack_operations(rows: Rows) -> Body:
    """Return the body of an ``operations`` block of `OPERATION_ROW` rows."""
    return _packed(len(rows), {name: rows[name] for name in _OPERATION_COLUMNS}, _OPERATION_COLUMNS)


def _packed(rows: int, arrays: Mapping[str, npt.NDArray[Any]], modes: Mapping[str, int]) -> Body:
    return {"rows": rows, "columns": {name: encode_column(array, modes[name]) for name, array in arrays.items()}}


def pack_samples(samples: Samples) -> Body:
    """Return the body of a ``samples`` block."""
    arrays = {name: np.asarray(values) for name, values in samples.columns.items()}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of one block have one length, not {sorted(lengths)}")
    modes = {}
    for name, array in arrays.items():
        modes[name] = FLOAT if array.dtype.kind == "f" else DELTA if name == "time_ns" else OFFSET
    head = {"worker": samples.worker, "source": samples.source, "units": dict(samples.units)}
    return {**head, **_packed(lengths.pop() if lengths else 0, arrays, modes)}


def pack_records(records: Sequence[Record]) -> Body:
    """Return the body of a ``metrics``, ``errors`` or ``outputs`` block: rows of the fields in their order.

    Each field is made what its reader expects, so that a metric given as 3 or a numpy number is stored as 3.0.
    """
    rows = []
    for record in records:
        types = _RECORD_TYPES[type(record)]
        rows.append([kind(value) for kind, value in zip(types, astuple(record), strict=True)])
    return {"rows": rows}


def unpack(kind: str, body: Body, kinds: Collection[str] | None = None) -> list[tuple[str, Any]]:
    """Return what a block holds of the wanted `kinds` (None: of all), as kinds and rows.

    The rows are a `JOB_ROW` or `OPERATION_ROW` array, `Samples`, or a list of records. A ``jobs`` block may hold the
    jobs' operations as well. A kind without rows (header, event ..., or one of a later minor version) gives its body.
    """
    if kind == "jobs":
        return [(name, rows) for name, rows in _unpack_jobs(body, kinds) if kinds is None or name in kinds]
    if kinds is not None and kind not in kinds:
        return []
    unpacker = _UNPACKERS.get(kind)
    return [(kind, unpacker(body) if unpacker else body)]


def _unpack_jobs(body: Body, kinds: Collection[str] | None) -> Iterator[tuple[str, Rows]]:
    single = "operations" in body
    if kinds is not None and "jobs" not in kinds and not (single and "operations" in kinds):
        return
    columns = _columns(body, _JOB_COLUMNS)
    duration = columns.pop("duration_ns")
    # Wrapping on purpose, here and below: the differences were taken in the same arithmetic.
    columns["start_ns"] = columns["end_ns"] - duration
    rows = _filled(JOB_ROW, columns)
    if len(rows) and rows["outcome"].max() > max(Outcome):
        raise ColumnError(f"outcome {rows['outcome'].max()}: 0 to {int(max(Outcome))} expected")
    yield "jobs", rows
    if single and (kinds is None or "operations" in kinds):
        only = _columns({"rows": len(rows), "columns": body["operations"]}, _ONLY_COLUMNS)
        delay = only.pop("delay_ns")
        only["start_ns"] = columns["start_ns"] + delay
        only["duration_ns"] = duration - delay - only.pop("rest_ns")
        shared = {name: columns[name] for name in ("ticket", "treatment", "trial")}
        yield "operations", _filled(OPERATION_ROW, shared | only)


def _unpack_operations(body: Body) -> Rows:
    return _filled(OPERATION_ROW, _columns(body, _OPERATION_COLUMNS))


def _columns(body: Body, expected: Mapping[str, int] | None) -> dict[str, Column]:
    rows, columns = _field(body, "rows", int), _field(body, "columns", dict)
    if expected is not None and columns.keys() != expected.keys():
        raise ColumnError(f"columns {sorted(columns)}: {sorted(expected)} expected")
    decoded = {name: decode_column(_field(columns, name, bytes), rows) for name in columns}
    if expected is not None and any(column.dtype != np.int64 for column in decoded.values()):
        raise ColumnError("integers expected in every column")
    return decoded


def _filled(dtype: np.dtype[np.void], columns: Mapping[str, Column]) -> Rows:
    rows = np.empty(len(columns["ticket"]), dtype=dtype)
    for name in dtype.names or ():
        column, kind = columns[name], dtype[name]
        if kind.itemsize < column.itemsize and len(column):
            limits = np.iinfo(kind)
            if column.min() < limits.min or column.max() > limits.max:
                raise ColumnError(f"column {name} holds a value that does not fit {kind}")
        rows[name] = column.view(np.uint64) if kind == np.uint64 else column
    return rows


def _unpack_samples(body: Body) -> Samples:
    units = _field(body, "units", dict)
    if not all(isinstance(unit, str) for unit in units.values()):
        raise ColumnError("units are texts")
    return Samples(_field(body, "worker", int), _field(body, "source", str), _columns(body, None), units)


def _records(record: type[Record]) -> Callable[[Body], list[Record]]:
    types = _RECORD_TYPES[record]

    def unpacked(body: Body) -> list[Record]:
        rows = _field(body, "rows", list)
        for row in rows:
            if not isinstance(row, list) or tuple(map(type, row)) != types:
                raise ColumnError(f"not the fields of a {record.__name__}: {row!r:.200}")
        return [record(*row) for row in rows]

    return unpacked


def _field(body: Body, name: str, expected: type) -> Any:
    value = body.get(name)
    if type(value) is not expected:
        raise ColumnError(f"{name} is {type(value).__name__}: {expected.__name__} expected")
    return value


_UNPACKERS: Final[Mapping[str, Callable[[Body], Any]]] = {
    "operations": _unpack_operations,
    "samples": _unpack_samples,
    "metrics": _records(MetricRecord),
    "errors": _records(ErrorRecord),
    "outputs": _records(OutputRecord),
}
