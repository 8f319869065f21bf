"""What the bodies of a stats file's row blocks hold: jobs, operations and samples as columns, the rest as rows.

`pack_*` make plain msgpack values; `unpack` gives back equal rows and raises `ValueError` on anything that a writer
would not have written. `docs/stats-file.rst` describes the same for people.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from bench_common.columns import DELTA, FLOAT, OFFSET, Column, ColumnError, decode_column, encode_column
from bench_common.records import JOB_ROW, OPERATION_ROW, ErrorRecord, MetricRecord, OutputRecord
from bench_common.stats_columns import (
    JOB_COLUMNS,
    ONLY_COLUMNS,
    OPERATION_COLUMNS,
    Body,
    Columns,
    field,
    packed_columns,
    unpack_jobs,
    unpack_operations,
)

Rows = npt.NDArray[np.void]
Record = TypeVar("Record", MetricRecord, ErrorRecord, OutputRecord)

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
    arrays = {name: duration if name == "duration_ns" else rows[name] for name in JOB_COLUMNS}
    body = _packed(len(rows), arrays, JOB_COLUMNS)
    if only is not None:
        delay = only["start_ns"] - rows["start_ns"]
        rest = duration - delay - only["duration_ns"]
        arrays = {"operation": only["operation"], "ok": only["ok"], "delay_ns": delay, "rest_ns": rest}
        body["operations"] = _packed(len(only), arrays, ONLY_COLUMNS)["columns"]
    return body


def belong(operations: Rows, jobs: Rows) -> bool:
    """Say whether there is one operation for each job, in the jobs' own order."""
    return len(operations) == len(jobs) and all(
        np.array_equal(operations[name], jobs[name]) for name in ("ticket", "treatment", "trial")
    )


def pack_operations(rows: Rows) -> Body:
    """Return the body of an ``operations`` block of `OPERATION_ROW` rows."""
    return _packed(len(rows), {name: rows[name] for name in OPERATION_COLUMNS}, OPERATION_COLUMNS)


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
    return [
        (name, found.rows(_ROWS[name]) if isinstance(found, Columns) else found)
        for name, found in unpack_by_column(kind, body, kinds)
    ]


def unpack_by_column(kind: str, body: Body, kinds: Collection[str] | None = None) -> list[tuple[str, Any]]:
    """Return the same as `unpack`, with jobs and operations as `Columns`."""
    if kind == "jobs":
        return [(name, rows) for name, rows in unpack_jobs(body, kinds) if kinds is None or name in kinds]
    if kinds is not None and kind not in kinds:
        return []
    unpacker = _UNPACKERS.get(kind)
    return [(kind, unpacker(body) if unpacker else body)]


def _unpack_samples(body: Body) -> Samples:
    units = field(body, "units", dict)
    if not all(isinstance(unit, str) for unit in units.values()):
        raise ColumnError("units are texts")
    rows, columns = packed_columns(body)
    decoded = {name: decode_column(data, rows) for name, data in columns.items()}
    return Samples(field(body, "worker", int), field(body, "source", str), decoded, units)


def _records(record: type[Record]) -> Callable[[Body], list[Record]]:
    types = _RECORD_TYPES[record]

    def unpacked(body: Body) -> list[Record]:
        rows = field(body, "rows", list)
        for row in rows:
            if not isinstance(row, list) or tuple(map(type, row)) != types:
                raise ColumnError(f"not the fields of a {record.__name__}: {row!r:.200}")
        return [record(*row) for row in rows]

    return unpacked


_UNPACKERS: Final[Mapping[str, Callable[[Body], Any]]] = {
    "operations": unpack_operations,
    "samples": _unpack_samples,
    "metrics": _records(MetricRecord),
    "errors": _records(ErrorRecord),
    "outputs": _records(OutputRecord),
}

_ROWS: Final = {"jobs": JOB_ROW, "operations": OPERATION_ROW}
