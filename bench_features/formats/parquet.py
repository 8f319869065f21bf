"""The Parquet report: trials, jobs and samples (operations, transfers and metrics, too) as columns, a file for each.

Times are whole nanoseconds; what has no value is null. Each column has its unit and meaning in the metadata of its
field. A row group is written as soon as it is full, so memory does not grow with the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, TextIO

import numpy as np

from bench_common.errors import UsageError
from bench_common.safe_text import one_line
from bench_master.analysis.tables import Batch, Column, Tables, Texts, joined
from bench_master.reports import ReportSource

TABLES: Final = ("trials", "jobs", "operations", "transfers", "metrics", "samples")
ALWAYS: Final = frozenset({"trials", "jobs", "samples"})
"""Tables that have a file even without rows."""
GROUP_ROWS: Final = 1 << 17
"""Rows of a row group, from which on it is written."""


class ParquetReport:
    """Writes a folder of Parquet files, which ``--format parquet=FOLDER`` names. It needs pyarrow."""

    name: ClassVar[str] = "parquet"
    needs_times: ClassVar[bool] = False

    def __init__(self) -> None:
        if find_spec("pyarrow") is None:
            raise UsageError(
                "--format parquet: needs pyarrow, which is not installed: pip install 'weighbridge[parquet]'"
            )

    def write(self, source: ReportSource, out: TextIO) -> NoReturn:  # noqa: ARG002  the protocol's names
        """Refuse: Parquet is no text, and has several files."""
        raise UsageError("--format parquet: writes several files: expected a directory: --format parquet=FOLDER")

    def write_folder(self, source: ReportSource, folder: Path) -> None:
        """Write the files into a folder, which is made if it is missing; files of the same names are replaced."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder.mkdir(exist_ok=True)
        document = source.document
        tables = Tables(source.run)
        about = {
            "weighbridge.run_id": one_line(str(document.run.run_id)),
            "weighbridge.run_state": document.run_state,
            "weighbridge.incomplete": json.dumps(list(document.incomplete)),
            "weighbridge.scenario": one_line(str(document.scenario.name)),
            "weighbridge.created": one_line(str(document.run.created)),
        }
        for table in TABLES:
            groups = _groups(tables, table)
            first = next(groups, None)
            path = folder / f"{table}.parquet"
            if first is None and table not in ALWAYS:
                # A file of an earlier report would be taken for one of this run.
                path.unlink(missing_ok=True)
                continue
            first = first or tables.empty(table)
            schema = _schema(pa, tables, table, first, about)
            part = path.with_name(f".{path.name}.tmp")
            try:
                with pq.ParquetWriter(part, schema, compression="zstd") as writer:
                    writer.write_table(_arrow(pa, first, schema))
                    for group in groups:
                        writer.write_table(_arrow(pa, group, schema))
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)


def _groups(tables: Tables, table: str) -> Iterator[Batch]:
    """Yield batches that are large enough for a row group of their own."""
    held: list[Batch] = []
    rows = 0
    for batch in tables.batches(table):
        held.append(batch)
        rows += len(next(iter(batch.values())))
        if rows >= GROUP_ROWS:
            yield joined(held)
            held, rows = [], 0
    if held:
        yield joined(held)


def _schema(pa: Any, tables: Tables, table: str, first: Batch, about: dict[str, str]) -> Any:
    fields = []
    for name, field in tables.fields(table).items():
        metadata = {"about": field.about, **({"unit": field.unit} if field.unit else {})}
        fields.append(pa.field(name, _kind(pa, first[name]), metadata=metadata))
    return pa.schema(fields, metadata=about)


def _kind(pa: Any, column: Column) -> Any:
    return pa.string() if isinstance(column, Texts) else pa.from_numpy_dtype(column.dtype)


def _arrow(pa: Any, batch: Batch, schema: Any) -> Any:
    return pa.table([_arrow_column(pa, column) for column in batch.values()], schema=schema)


def _arrow_column(pa: Any, column: Column) -> Any:
    if isinstance(column, Texts):
        names = pa.array(list(column.names), pa.string())
        return names.take(pa.array(column.codes, mask=column.codes < 0))
    if isinstance(column, np.ma.MaskedArray):
        return pa.array(np.asarray(column.data), mask=np.ma.getmaskarray(column))
    return pa.array(column)
