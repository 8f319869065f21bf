"""What the bodies of a stats file's row blocks hold: jobs, operations and samples as columns, the rest as rows.

`pack_*` make plain msgpack values; `unpack` gives back equal rows and raises `ValueError` on anything that a writer
would not have written. `docs/stats-file.rst` describes the same for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def pack_jobs(rows: Rows) -> Body:
    """Return the body of a ``jobs`` block of `JOB_ROW` rows."""
    duration = rows["end_ns"] - rows["start_ns"]
    arrays = {name: duration if name == "duration_ns" else rows[name] for name in _JOB_COLUMNS}
    return _packed(len(rows), arrays, _JOB_COLUMNS)


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


def unpack(kind: str, body: Body) -> Any:
    """Return the rows of a block: a `JOB_ROW` or `OPERATION_ROW` array, `Samples`, or a list of records.

    A kind without rows (header, event ..., or one of a later minor version) gives its body unchanged.
    """
    unpacker = _UNPACKERS.get(kind)
    return unpacker(body) if unpacker else body


def _unpack_jobs(body: Body) -> Rows:
    columns = _columns(body, _JOB_COLUMNS)
    # Wrapping on purpose: the difference was taken in the same arithmetic.
    columns["start_ns"] = columns["end_ns"] - columns.pop("duration_ns")
    rows = _filled(JOB_ROW, columns)
    if len(rows) and rows["outcome"].max() > max(Outcome):
        raise ColumnError(f"outcome {rows['outcome'].max()}: 0 to {int(max(Outcome))} expected")
    return rows


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
    "jobs": _unpack_jobs,
    "operations": _unpack_operations,
    "samples": _unpack_samples,
    "metrics": _records(MetricRecord),
    "errors": _records(ErrorRecord),
    "outputs": _records(OutputRecord),
}
