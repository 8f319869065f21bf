"""Reads the rows of a block by column, and only the columns that somebody asks for.

A report goes twice over tens of millions of rows and needs a few numbers of each: putting all of them together to
rows first takes longer than everything that is done with them. What is checked of a block is checked at once, though,
so that nothing can be found wrong with it once it was handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from bench_common.columns import DELTA, OFFSET, Column, ColumnError, check_column, decode_column
from bench_common.records import JOB_ROW, OPERATION_ROW, Outcome

Body: TypeAlias = dict[str, Any]
Where: TypeAlias = npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice

JOB_COLUMNS: Final = {
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

OPERATION_COLUMNS: Final = {
    "ticket": DELTA,
    "treatment": OFFSET,
    "trial": OFFSET,
    "operation": OFFSET,
    "ok": OFFSET,
    "start_ns": DELTA,
    "duration_ns": OFFSET,
}

ONLY_COLUMNS: Final = {"operation": OFFSET, "ok": OFFSET, "delay_ns": OFFSET, "rest_ns": OFFSET}
"""Of a job's only operation: how long after the job it began, and how long before it it ended. Nearly always 0."""

Maker: TypeAlias = "Callable[[Columns], npt.NDArray[Any]]"
"""Makes a column of the rows that it is given, of those of the block or of others of their columns."""

_PLANE_BITS: Final = 8


class Columns:
    """Rows of one block, or some of them. `rows["name"]` is a column, `rows[where]` are the rows of a mask or slice.

    That is how a numpy array of rows is read as well. Integers come as 64-bit words, tickets as unsigned ones.
    """

    __slots__ = ("_length", "_makers", "_ready")

    def __init__(self, length: int, makers: Mapping[str, Maker]) -> None:
        self._length = length
        self._makers = makers
        self._ready: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, key: str) -> npt.NDArray[Any]: ...

    @overload
    def __getitem__(self, key: Where) -> Columns: ...

    def __getitem__(self, key: str | Where) -> npt.NDArray[Any] | Columns:
        if isinstance(key, str):
            column = self._ready.get(key)
            if column is None:
                column = self._ready[key] = self._makers[key](self)
            return column
        if isinstance(key, slice):
            length = len(range(*key.indices(self._length)))
        else:
            length = int(np.count_nonzero(key)) if key.dtype == np.bool_ else len(key)
        return Columns(length, {name: self._part(name, key) for name in self._makers})

    def _part(self, name: str, where: Where) -> Maker:
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
    length, makers = _makers(body, JOB_COLUMNS, JOB_ROW)
    # Wrapping on purpose, here and below: the differences were taken in the same arithmetic.
    makers["start_ns"] = lambda own: own["end_ns"] - own["duration_ns"]
    jobs = Columns(length, makers)
    yield "jobs", jobs
    if single and (kinds is None or "operations" in kinds):
        _, only = _makers({"rows": length, "columns": body["operations"]}, ONLY_COLUMNS, OPERATION_ROW)
        rest = Columns(length, only)
        whole: dict[str, Maker] = {
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
    return Columns(*_makers(body, OPERATION_COLUMNS, OPERATION_ROW))


def field(body: Body, name: str, expected: type) -> Any:
    """Return an entry of a body that is of the type that is expected; raise `ColumnError` if it is not."""
    value = body.get(name)
    if type(value) is not expected:
        raise ColumnError(f"{name} is {type(value).__name__}: {expected.__name__} expected")
    return value


def packed_columns(body: Body) -> tuple[int, dict[str, bytes]]:
    """Return how many rows a body has, and its columns, each of which must be bytes."""
    length, columns = field(body, "rows", int), field(body, "columns", dict)
    return length, {name: field(columns, name, bytes) for name in columns}


def _column_of(columns: Columns, name: str) -> Maker:
    return lambda _: columns[name]


def _makers(body: Body, expected: Mapping[str, int], dtype: np.dtype[np.void]) -> tuple[int, dict[str, Maker]]:
    """Check a body's columns against each other and against the rows that they make; return who unpacks each."""
    length, columns = packed_columns(body)
    if columns.keys() != expected.keys():
        raise ColumnError(f"columns {sorted(columns)}: {sorted(expected)} expected")
    names = dtype.names or ()
    return length, {
        name: _maker(name, data, length, dtype[name] if name in names else np.dtype(np.int64))
        for name, data in columns.items()
    }


def _maker(name: str, data: bytes, length: int, kind: np.dtype[Any]) -> Maker:
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
