"""The row blocks of a stats file: jobs, operations and samples stored by column, the other records by row.

`pack_*` return plain msgpack values; `unpack` returns equal rows from what `blocks.decode` returns, and raises
`ValueError` on anything that a writer would not write. `unpack_by_column` decodes only the columns that a reader asks
for, and checks the block at once.

A column is stored as differences (`DELTA`, for growing values: tickets, instants) or as distances from its minimum
(`OFFSET`, for the rest); its bytes are shuffled into planes (all lowest bytes, then all second bytes ...), of which
only those that hold anything are kept. `docs/stats-file.rst` has the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, overload

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from bench_common.job_rows import JOB_ROW, OPERATION_ROW, TRANSFER_ROW
from bench_common.records import (
    ErrorRecord,
    MetricRecord,
    Outcome,
    OutputRecord,
    TransactionRecord,
)
from bench_common.stats.block_types import MAX_ROWS
from bench_common.stats.blocks import Body

OFFSET: Final = 0
DELTA: Final = 1
FLOAT: Final = 2

_HEAD: Final = struct.Struct("<BBq")
_WORD: Final = 8
_HALF: Final = 4

Column: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float64]


class ColumnError(ValueError):
    """Bytes that are no column of the rows that were announced."""


def encode_column(values: npt.NDArray[np.generic], mode: int) -> bytes:
    """Return the bytes of up to `MAX_ROWS` values: any integers in `OFFSET` or `DELTA`, doubles in `FLOAT`.

    Unsigned 64-bit integers keep their bits and come back as signed ones.
    """
    if values.ndim != 1 or len(values) > MAX_ROWS:
        raise ValueError(f"a column is one-dimensional and has at most {MAX_ROWS} rows, not {values.shape}")
    if mode == FLOAT:
        return _packed_planes(FLOAT, 0, values.astype("<f8").view(np.uint64), _WORD)
    if values.dtype.kind not in "iub":
        raise ValueError(f"integers expected, not {values.dtype}")
    words = values.astype(np.int64)
    if not len(words):
        return _packed_planes(mode, 0, words.view(np.uint64), 0)
    if mode == DELTA:
        base = int(words[0])
        steps = np.diff(words, prepend=words[:1])
        codes = (steps << 1 ^ steps >> 63).view(np.uint64)
    else:
        base = int(words.min())
        codes = words.view(np.uint64) - words.min().view(np.uint64)
    planes = -(-int(codes.max()).bit_length() // _WORD)
    return _packed_planes(mode, base, codes, planes)


def _packed_planes(mode: int, base: int, codes: npt.NDArray[np.uint64], planes: int) -> bytes:
    shuffled = codes.astype("<u8").view(np.uint8).reshape(len(codes), _WORD).T[:planes]
    return _HEAD.pack(mode, planes, base) + shuffled.tobytes()


def check_column(data: bytes, rows: int) -> tuple[int, int, int]:
    """Return mode, planes and base of a column; raise `ColumnError` unless it is one of so many rows.

    What passes can be decoded.
    """
    if not 0 <= rows <= MAX_ROWS:
        raise ColumnError(f"{rows} rows: 0 to {MAX_ROWS} expected")
    if len(data) < _HEAD.size:
        raise ColumnError(f"a column has at least {_HEAD.size} bytes, not {len(data)}")
    mode, planes, base = _HEAD.unpack_from(data)
    if mode not in (OFFSET, DELTA, FLOAT) or planes > _WORD or (mode == FLOAT and (planes, base) != (_WORD, 0)):
        raise ColumnError(f"unknown column: mode {mode}, {planes} planes, base {base}")
    if len(data) != _HEAD.size + planes * rows:
        raise ColumnError(f"{planes} planes of {rows} rows are {planes * rows} bytes, not {len(data) - _HEAD.size}")
    return mode, planes, base


def decode_column(data: bytes, rows: int) -> Column:
    """Return the column of `rows` values; raise `ColumnError` unless the bytes are exactly that."""
    mode, planes, base = check_column(data, rows)
    shuffled = np.frombuffer(data, np.uint8, offset=_HEAD.size).reshape(planes, rows)
    # Half the width where the codes fit it is half the time.
    codes = _unshuffle(shuffled, np.dtype(np.uint32) if planes <= _HALF else np.dtype(np.uint64))
    if mode == FLOAT:
        return codes.view(np.float64)
    if mode == OFFSET:
        words = codes.astype(np.uint64, copy=False)
        words += np.array(base, dtype=np.int64).view(np.uint64)
        return words.view(np.int64)
    signs = codes & codes.dtype.type(1)
    codes >>= codes.dtype.type(1)
    codes ^= np.negative(signs, out=signs)
    values = np.cumsum(codes.view(f"i{codes.itemsize}"), dtype=np.int64)
    values += np.int64(base)
    return values


def _unshuffle(shuffled: npt.NDArray[np.uint8], word: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the codes, one `word` each, whose bytes are in the planes, the lowest first."""
    planes, rows = shuffled.shape
    if not planes:
        return np.zeros(rows, dtype=word)
    codes: npt.NDArray[Any] = shuffled[-1].astype(word)
    for plane in shuffled[-2::-1]:
        codes <<= word.type(_WORD)
        codes |= plane
    return codes


RowSelector: TypeAlias = npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice

JOB_COLUMNS: Final = {
    "ticket": DELTA,
    "treatment": OFFSET,
    "trial": OFFSET,
    "worker": OFFSET,
    "outcome": OFFSET,
    "end_ns": DELTA,
    "duration_ns": OFFSET,
    "uncertainty_ns": OFFSET,
    "wait_ns": OFFSET,
}
"""Jobs arrive in the order of their ends: those differ little, and durations vary less than starts do."""

OPERATION_COLUMNS: Final = {
    "ticket": DELTA,
    "treatment": OFFSET,
    "trial": OFFSET,
    "operation": OFFSET,
    "ok": OFFSET,
    "start_ns": DELTA,
    "duration_ns": OFFSET,
}

TRANSFER_COLUMNS: Final = {
    "ticket": DELTA,
    "treatment": OFFSET,
    "trial": OFFSET,
    "operation": OFFSET,
    "ok": OFFSET,
    "endpoint": OFFSET,
    "retries": OFFSET,
    "redrawn": OFFSET,
    "bytes": OFFSET,
    "duration_ns": OFFSET,
    "last_try_ns": OFFSET,
    "first_uncertainty_ns": OFFSET,
}

SINGLE_OPERATION_COLUMNS: Final = {"operation": OFFSET, "ok": OFFSET, "delay_ns": OFFSET, "rest_ns": OFFSET}
"""Of a job's only operation: how long after the job it began, and how long before it it ended. Nearly always 0."""

Decoder: TypeAlias = "Callable[[Columns], npt.NDArray[Any]]"
"""Makes a column of the rows that it is given, of those of the block or of others of their columns."""

_PLANE_BITS: Final = 8


class Columns:
    """Rows of one block, or some of them. `rows["name"]` is a column, `rows[where]` are the rows of a mask or slice.

    That is how a numpy array of rows is read as well. Integers come as 64-bit words, tickets as unsigned ones.
    """

    __slots__ = ("_length", "_makers", "_ready")

    def __init__(self, length: int, makers: Mapping[str, Decoder]) -> None:
        self._length = length
        self._makers = makers
        self._ready: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, key: str) -> npt.NDArray[Any]: ...

    @overload
    def __getitem__(self, key: RowSelector) -> Columns: ...

    def __getitem__(self, key: str | RowSelector) -> npt.NDArray[Any] | Columns:
        if isinstance(key, str):
            column = self._ready.get(key)
            if column is None:
                column = self._ready[key] = self._makers[key](self)
            return column
        if isinstance(key, slice):
            length = len(range(*key.indices(self._length)))
        else:
            length = int(np.count_nonzero(key)) if key.dtype == np.bool_ else len(key)
        return Columns(length, {name: self._select(name, key) for name in self._makers})

    def _select(self, name: str, where: RowSelector) -> Decoder:
        return lambda _: self[name][where]

    def rows(self, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """Return the rows as an array of a dtype whose fields are columns."""
        rows = np.empty(self._length, dtype=dtype)
        for name in dtype.names or ():
            rows[name] = self[name]
        return rows


def unpack_jobs(body: Body, kinds: Collection[str] | None = None) -> Iterator[tuple[str, Columns]]:
    """Yield what a ``jobs`` block holds of the wanted kinds: ``jobs``, and ``operations`` if they are in it.

    Jobs have the fields of a `JOB_ROW` and ``duration_ns``. Raises `ColumnError` for what no writer would have
    written.
    """
    single = "operations" in body
    if kinds is not None and "jobs" not in kinds and not (single and "operations" in kinds):
        return
    length, makers = _decoders(body, JOB_COLUMNS, JOB_ROW)
    # Wrapping on purpose, here and below: the differences were taken in the same arithmetic.
    makers["start_ns"] = lambda own: own["end_ns"] - own["duration_ns"]
    jobs = Columns(length, makers)
    yield "jobs", jobs
    if single and (kinds is None or "operations" in kinds):
        _, only = _decoders({"rows": length, "columns": body["operations"]}, SINGLE_OPERATION_COLUMNS, OPERATION_ROW)
        rest = Columns(length, only)
        whole: dict[str, Decoder] = {
            "start_ns": lambda _: jobs["start_ns"] + rest["delay_ns"],
            "duration_ns": lambda _: jobs["duration_ns"] - rest["delay_ns"] - rest["rest_ns"],
        }
        for name in ("ticket", "treatment", "trial"):
            whole[name] = _column_of(jobs, name)
        for name in ("operation", "ok"):
            whole[name] = only[name]
        yield "operations", Columns(length, whole)


def unpack_operations(body: Body) -> Columns:
    """Return the operations of an ``operations`` block; raise `ColumnError` for what no writer would have written."""
    return Columns(*_decoders(body, OPERATION_COLUMNS, OPERATION_ROW))


def unpack_transfers(body: Body) -> Columns:
    """Return the rows of a ``transfers`` block; raise `ColumnError` for what no writer would have written."""
    return Columns(*_decoders(body, TRANSFER_COLUMNS, TRANSFER_ROW))


def _column_of(columns: Columns, name: str) -> Decoder:
    return lambda _: columns[name]


def _decoders(body: Body, expected: Mapping[str, int], dtype: np.dtype[np.void]) -> tuple[int, dict[str, Decoder]]:
    """Check a body's columns against each other and against the rows that they make; return who unpacks each."""
    length, columns = body["rows"], body["columns"]
    if columns.keys() != expected.keys():
        raise ColumnError(f"columns {sorted(columns)}: {sorted(expected)} expected")
    names = dtype.names or ()
    return length, {
        name: _decoder(name, data, length, dtype[name] if name in names else np.dtype(np.int64))
        for name, data in columns.items()
    }


def _decoder(name: str, data: bytes, length: int, kind: np.dtype[Any]) -> Decoder:
    mode, planes, base = check_column(data, length)
    if mode not in (OFFSET, DELTA):
        raise ColumnError("integers expected in every column")
    if kind == np.uint64:
        return lambda _: decode_column(data, length).view(np.uint64)
    if kind.itemsize == np.dtype(np.int64).itemsize:
        return lambda _: decode_column(data, length)
    low, high = 0, int(max(Outcome)) if name == "outcome" else int(np.iinfo(kind).max)
    if mode == OFFSET and low <= base and base + (1 << _PLANE_BITS * planes) - 1 <= high:
        # So few bytes cannot hold a value that does not fit.
        return lambda _: decode_column(data, length)
    column: Column = decode_column(data, length)
    if length:
        for value in (int(column.min()), int(column.max())):
            if not low <= value <= high:
                raise ColumnError(f"{name} {value}: {low} to {high} expected")
    return lambda _: column


Rows = npt.NDArray[np.void]
Record = TypeVar("Record", MetricRecord, ErrorRecord, OutputRecord, TransactionRecord)

_RECORD_TYPES: Final[Mapping[type, tuple[type, ...]]] = {
    MetricRecord: (int, int, int, str, float),
    ErrorRecord: (int, int, int, str, str, str),
    TransactionRecord: (int, int, int, str, str),
    OutputRecord: (int, int, int, str, bytes, bytes, int, bool),
}


INTEGER_SAMPLES: Final = frozenset(
    {"time_ns", "treatment", "trial", "span_ns", "busy_ns", "lag_max_ns", "wall_ns", "wake_up_ns", "wake_ups"}
)
"""Columns of samples that are never fractions."""
MAX_SAMPLE: Final = 1 << 62
"""The largest amount in a sample."""


class SampleColumns(Struct, frozen=True):
    """Readings of one source (``host``, ``loop``) of one worker (its roster number; -1 is the master)."""

    worker: int
    source: str
    columns: Mapping[str, Column]
    units: Mapping[str, str]


def pack_jobs(rows: Rows, only: Rows | None = None) -> Body:
    """Return the body of a ``jobs`` block of `JOB_ROW` rows and of the `only` operation of each, if they `belong`."""
    duration = rows["end_ns"] - rows["start_ns"]
    arrays = {name: duration if name == "duration_ns" else rows[name] for name in JOB_COLUMNS}
    body = _encode_packed(len(rows), arrays, JOB_COLUMNS)
    if only is not None:
        delay = only["start_ns"] - rows["start_ns"]
        rest = duration - delay - only["duration_ns"]
        arrays = {"operation": only["operation"], "ok": only["ok"], "delay_ns": delay, "rest_ns": rest}
        body["operations"] = _encode_packed(len(only), arrays, SINGLE_OPERATION_COLUMNS)["columns"]
    return body


def are_paired(operations: Rows, jobs: Rows) -> bool:
    """Say whether there is one operation for each job, in the jobs' own order."""
    return len(operations) == len(jobs) and all(
        np.array_equal(operations[name], jobs[name]) for name in ("ticket", "treatment", "trial")
    )


def pack_operations(rows: Rows) -> Body:
    """Return the body of an ``operations`` block of `OPERATION_ROW` rows."""
    return _encode_packed(len(rows), {name: rows[name] for name in OPERATION_COLUMNS}, OPERATION_COLUMNS)


def pack_transfers(rows: Rows) -> Body:
    """Return the body of a ``transfers`` block of `TRANSFER_ROW` rows."""
    return _encode_packed(len(rows), {name: rows[name] for name in TRANSFER_COLUMNS}, TRANSFER_COLUMNS)


def _encode_packed(rows: int, arrays: Mapping[str, npt.NDArray[Any]], modes: Mapping[str, int]) -> Body:
    return {"rows": rows, "columns": {name: encode_column(array, modes[name]) for name, array in arrays.items()}}


def pack_samples(samples: SampleColumns) -> Body:
    """Return the body of a ``samples`` block."""
    arrays = {name: np.asarray(values) for name, values in samples.columns.items()}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of one block have one length, not {sorted(lengths)}")
    modes = {}
    for name, array in arrays.items():
        modes[name] = FLOAT if array.dtype.kind == "f" else DELTA if name == "time_ns" else OFFSET
    head = {"worker": samples.worker, "source": samples.source, "units": dict(samples.units)}
    return {**head, **_encode_packed(lengths.pop() if lengths else 0, arrays, modes)}


def pack_records(records: Sequence[Record]) -> Body:
    """Return the body of a block of records, such as ``metrics`` or ``errors``: rows of the fields in their order.

    Each field is made what its reader expects, so that a metric given as 3 or a numpy number is stored as 3.0.
    """
    rows = []
    for record in records:
        types = _RECORD_TYPES[type(record)]
        rows.append([kind(value) for kind, value in zip(types, msgspec.structs.astuple(record), strict=True)])
    return {"rows": rows}


def unpack(kind: str, body: Body, kinds: Collection[str] | None = None) -> list[tuple[str, Any]]:
    """Return what a block holds of the wanted `kinds` (None: of all), as kinds and rows.

    The rows are a `JOB_ROW` or `OPERATION_ROW` array, `SampleColumns`, or a list of records. A ``jobs`` block may
    hold the jobs' operations as well. A kind without rows (header, event ..., or one of a later minor version) gives
    its body.
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


def _unpack_samples(body: Body) -> SampleColumns:
    decoded = {name: decode_column(data, body["rows"]) for name, data in body["columns"].items()}
    for name, column in decoded.items():
        if name in INTEGER_SAMPLES and column.dtype.kind != "i":
            raise ColumnError(f"{name} is no column of integers")
        # What could not be read is not a number. A sum of two samples fits 64 bits; instants are moved by an offset.
        if name != "time_ns" and not ((np.abs(column) <= MAX_SAMPLE) | np.isnan(column)).all():
            raise ColumnError(f"a value of {name} is out of range")
    return SampleColumns(body["worker"], body["source"], decoded, body["units"])


def _records(body: Body) -> Any:
    return body["rows"]


_UNPACKERS: Final[Mapping[str, Callable[[Body], Any]]] = {
    "operations": unpack_operations,
    "transfers": unpack_transfers,
    "samples": _unpack_samples,
    "metrics": _records,
    "errors": _records,
    "outputs": _records,
    "transactions": _records,
}

_ROWS: Final = {"jobs": JOB_ROW, "operations": OPERATION_ROW, "transfers": TRANSFER_ROW}
