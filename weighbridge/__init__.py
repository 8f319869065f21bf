"""Read the results of a run in Python: ``run = weighbridge.load("run.stats.gz")``.

`Results` has the rows of a stats file as data frames of pandas or polars, whichever is installed, or as structured
arrays of numpy; its `document` is what ``--format json`` prints. Libraries of frames are imported when the first
frame is made. In a notebook a `Results` shows its verdicts.

    import weighbridge

    run = weighbridge.load("run.stats.gz")
    trials = run.trials()
    trials[~trials.warmup].groupby("engine").job_mean_s.median()
"""

from __future__ import annotations

import base64
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from importlib.util import find_spec
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bench_common.cli import check_choice
from bench_common.errors import UsageError, WeighbridgeError
from bench_common.safe_text import one_line, shorten
from bench_common.stats.reader import StatsFile
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.tables import Column, Table, Tables, Texts, frame_name, shared_texts
from bench_master.analysis.verdict_types import ComparisonReport
from bench_master.reports import ReportSource
from bench_master.reports.charts import registered_charts
from bench_master.reports.verdict_text import neighbour_text, trust_sentences, verdict_tables

__all__ = ["Library", "Results", "WeighbridgeError", "load"]

Library: TypeAlias = Literal["pandas", "polars", "numpy"]
"""What a table is returned as: a ``pandas.DataFrame``, a ``polars.DataFrame``, or a structured ``numpy.ndarray``."""

LONGEST_ALTERNATIVE: Final = 2000
"""Characters of a picture in words."""
_LIBRARIES: Final = ("pandas", "polars", "numpy")
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def load(path: str | os.PathLike[str], library: Library | None = None) -> Results:
    """Open a stats file; `library` is what its tables are returned as (None: pandas, else polars).

    Raises `WeighbridgeError` with a message for people if the file cannot be read. An incomplete or damaged file is
    read as far as possible: see `Results.run_state`. The first table of such a file warns of it (`UserWarning`).
    """
    if library is not None:
        check_choice(library, _LIBRARIES, what="library of frames")
    return Results(StatsFile(path), library)


class Results:
    """The results of one run.

    In every table the labels of the treatment (``engine``, ``job``, the keys of the matrix) are the first columns,
    and times are seconds as floats, in columns that end with ``_s``; instants count from the beginning of the run.
    What has no value is NaN in a column of floats and null in others. A label that is called like another column of
    a table has ``label_`` before its name. Warm-up is in every table: leave it out with ``warmup``.

    A table is whole in memory; for runs with very many jobs ``--format jsonl`` writes a line for each.
    """

    def __init__(self, stats: StatsFile, library: Library | None = None) -> None:
        self._source = ReportSource(stats)
        self._library = library
        self._has_warned = False
        # Without a header there is nothing to show; the error names the file.
        _ = stats.header

    @property
    def document(self) -> ReportDocument:
        """The report document: what ``--format json`` prints, with its keys as attributes."""
        return self._source.document

    @property
    def run_state(self) -> str:
        """``complete``, ``incomplete`` (jobs or the end of the run are missing), or ``damaged`` (bytes are)."""
        return self.document.run_state

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self._source.run)

    def trials(self, library: Library | None = None) -> Any:
        """Return a row for each planned trial, in the order of the plan.

        ``trial``, ``block`` (its round), ``warmup``, ``begin_s`` and ``duration_s`` (seconds), ``jobs_done``,
        ``jobs_failed``, ``jobs_lost``, ``jobs_aborted``, and ``job_mean_s``, the mean duration of the jobs that were
        done. Shape: (planned trials, labels + 10).
        """
        return self._frame("trials", library)

    def jobs(self, library: Library | None = None) -> Any:
        """Return a row for each job, in the order in which they ended.

        ``job_id`` and ``attempt`` (from 0), ``trial``, ``block``, ``warmup``, ``worker``, ``outcome`` (``done``,
        ``failed``, ``lost``, ``aborted``), ``start_s``, ``duration_s``, ``end_uncertainty_s`` (how late the end may
        be stamped) and ``wait_s`` (from its arrival to its start, in an open system), in seconds.
        Shape: (jobs, labels + 11).
        """
        return self._frame("jobs", library)

    def operations(self, library: Library | None = None) -> Any:
        """Return a row for each operation that was tried.

        ``job_id``, ``attempt``, ``trial``, ``block``, ``warmup``, ``operation`` (its name), ``ok``, ``counts``
        (whether it enters a latency: its job succeeded, too), ``start_s`` and ``duration_s`` (seconds).
        Shape: (operations, labels + 10).
        """
        return self._frame("operations", library)

    def transfers(self, library: Library | None = None) -> Any:
        """Return a row for each job on an object store; no rows for other jobs.

        ``job_id``, ``attempt``, ``trial``, ``block``, ``warmup``, ``operation``, ``ok``, ``counts``, ``endpoint``
        (its place among those of the store), ``retries``, ``redrawn``, ``bytes`` (content sent or received),
        ``duration_s``, ``last_try_s`` (from its start to its last try) and ``first_uncertainty_s`` (how late the
        first byte may be stamped), in seconds. Shape: (transfers, labels + 15).
        """
        return self._frame("transfers", library)

    def metrics(self, library: Library | None = None) -> Any:
        """Return a row for each metric of each guest job.

        ``job_id``, ``attempt``, ``trial``, ``block``, ``warmup``, ``name``, ``value``, ``unit`` and ``direction``
        (``higher`` or ``lower`` is better). Shape: (metrics, labels + 9).
        """
        return self._frame("metrics", library)

    def samples(self, library: Library | None = None) -> Any:
        """Return a row for each reading of each host, engine and event loop.

        ``time_s`` (seconds; null where unknown), ``worker`` (its name, or ``master``), ``source`` (``host``,
        ``loop``, ``engine:NAME``), ``name``, ``value`` and its ``unit``; the labels, ``trial`` and ``warmup`` are
        those of the trial that was under way, null between trials. An amount covers the interval before its time.
        Shape: (readings, labels + 8).
        """
        return self._frame("samples", library)

    def verdicts(self, library: Library | None = None) -> Any:
        """Return a row for each comparison of a treatment with its baseline; no rows where nothing is compared.

        ``name`` and ``group`` of the treatment, the titles ``a`` (baseline) and ``b``, ``measure``, its ``unit`` and
        ``direction``, ``verdict``, ``reason``, ``ratio`` (b / a) with the ends ``low`` and ``high`` of its interval
        and their ``confidence``, ``rounds``, ``p``, ``mde``, ``a_value`` and ``b_value`` (in `unit`), and others: the
        plain keys of ``verdicts.comparisons`` in the JSON report.
        """
        verdicts = self.document.verdicts
        chosen = _choose_library(library or self._library)
        return _finish(_comparison_columns([] if verdicts is None else verdicts.comparisons), chosen)

    def _frame(self, table: str, library: Library | None) -> Any:
        # A library that is missing is found before a large file is read.
        chosen = _choose_library(library or self._library)
        self._warn_if_incomplete()
        return _finish(_in_seconds(self._tables.table(table)), chosen)

    def _warn_if_incomplete(self) -> None:
        """Warn once where rows may be missing; the caller of a table is the place that is named."""
        run = self._source.run
        if self._has_warned or run.is_whole:
            return
        self._has_warned = True
        state, why = ("damaged", run.damage) if run.damage else ("incomplete", "its file has no end")
        warnings.warn(f"{run.path}: the run is {state}: {why}", stacklevel=4)

    def __repr__(self) -> str:
        run = self.document.run
        return (
            f"<weighbridge.Results of {one_line(str(self._source.stats.path))}: run {run.run_id}, {self.run_state}>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: state of the run, answer, the comparisons as a picture and a table."""
        return "\n".join(_html_lines(self.document))


def _finish(columns: Table, library: Library) -> Any:
    if library == "numpy":
        return _structured(columns)
    return _pandas_frame(columns) if library == "pandas" else _polars_frame(columns)


def _choose_library(asked: Library | None) -> Library:
    """Return the library to use; raise `UsageError` where it, or any, is not installed."""
    if asked is not None:
        check_choice(asked, _LIBRARIES, what="library of frames")
        if find_spec(asked) is None:
            raise UsageError(f"{asked} is not installed: pip install 'weighbridge[{asked}]'")
        return asked
    if find_spec("pandas") is not None:
        return "pandas"
    if find_spec("polars") is not None:
        return "polars"
    raise UsageError(
        "no library of frames is installed: pip install 'weighbridge[pandas]' (or [polars]); "
        'or ask for structured arrays: weighbridge.load(path, "numpy")'
    )


def _in_seconds(columns: Table) -> Table:
    """Return the columns with times in seconds as floats, NaN where there is none."""
    found: Table = {}
    for name, column in columns.items():
        if isinstance(column, Texts) or not name.endswith("_ns"):
            found[name] = column
        else:
            found[frame_name(name)] = np.ma.filled(column.astype(np.float64), np.nan) / 1e9
    return found


def _comparison_columns(comparisons: Sequence[ComparisonReport]) -> Table:
    """Return the plain fields of comparisons as columns; labels and lists are left out."""
    found: Table = {}
    for name, kind in ComparisonReport.__annotations__.items():
        values = [getattr(each, name) for each in comparisons]
        kinds = set(str(kind).split(" | ")) & {"str", "int", "float", "Word"}
        literal = str(kind).startswith("Literal")
        if not all(type(value) in _SCALARS for value in values) or not (kinds or literal):
            continue
        if "float" in kinds or (kinds == {"int"} and "None" in str(kind)):
            found[name] = np.array([np.nan if value is None else value for value in values], np.float64)
        elif "int" in kinds:
            found[name] = np.array(values, np.int64)
        else:
            found[name] = shared_texts(values, np.arange(len(values)))
    return found


def _structured(columns: Table) -> npt.NDArray[Any]:
    """Return a structured array: texts are objects, and so is what is null in some rows; times are floats."""
    arrays = {name: _plain(column) for name, column in columns.items()}
    length = len(next(iter(arrays.values()), ()))
    rows = np.empty(length, dtype=[(name, array.dtype) for name, array in arrays.items()])
    for name, array in arrays.items():
        rows[name] = array
    return rows


def _plain(column: Column) -> npt.NDArray[Any]:
    if isinstance(column, Texts):
        return column.objects()
    if isinstance(column, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(column)
        if not mask.any():
            return np.asarray(column.data)
        plain = np.asarray(column.data).astype(object)
        plain[mask] = None
        return plain
    return column


def _pandas_frame(columns: Table) -> Any:
    import pandas as pd

    def series(column: Column) -> Any:
        if isinstance(column, Texts):
            return pd.Categorical.from_codes(column.codes, categories=list(column.names))
        if isinstance(column, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(column)
            if not mask.any():
                return column.data
            kind = pd.arrays.BooleanArray if column.dtype == np.bool_ else pd.arrays.IntegerArray
            return kind(np.asarray(column.data), mask)
        return column

    return pd.DataFrame({name: series(column) for name, column in columns.items()})


def _polars_frame(columns: Table) -> Any:
    import polars as pl

    def series(name: str, column: Column) -> Any:
        if isinstance(column, Texts):
            names = pl.Series(name, [*column.names, None], dtype=pl.String)
            places = np.where(column.codes < 0, len(column.names), column.codes)
            return names.gather(places.astype(np.uint32)).alias(name)
        if not isinstance(column, np.ma.MaskedArray):
            return pl.Series(name, column)
        known = pl.Series(name, np.asarray(column.data))
        mask = pl.Series("mask", np.ma.getmaskarray(column))
        return pl.select(pl.when(~mask).then(known).alias(name)).to_series()

    return pl.DataFrame([series(name, column) for name, column in columns.items()])


# -- what a notebook shows -------------------------------------------------------------------------------------------


def _html_lines(document: ReportDocument) -> Iterator[str]:
    """Yield the lines of the HTML representation; every text of the run is escaped."""
    yield "<div>"
    yield f"<p><strong>{_html(str(document.scenario.name))}</strong>, run {_html(str(document.run.run_id))}</p>"
    if document.run.noop:
        yield "<p>NO-OP: nothing was executed.</p>"
    if document.incomplete:
        yield f"<p>{_html(document.run_state.upper())}: {_html('; '.join(document.incomplete))}</p>"
    if document.verdicts is not None:
        yield f"<p>{_html(document.verdicts.answer)}</p>"
    elif document.no_verdict:
        yield f"<p>No verdict: {_html(document.no_verdict)}.</p>"
    yield from _forest(document)
    for table in verdict_tables(document):
        yield "<table>"
        if table.caption:
            yield f"<caption>{_html(table.caption)}</caption>"
        titles = "".join(f'<th scope="col">{_html(column.title)}</th>' for column in table.columns)
        yield f"<thead><tr>{titles}</tr></thead>"
        yield "<tbody>"
        for row in table.rows:
            yield f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row.cells)}</tr>"
        yield "</tbody>"
        yield "</table>"
    if text := neighbour_text(document.verdicts):
        yield f"<p>{_html(text)}</p>"
    yield from (f"<p>{_html(sentence)}</p>" for sentence in trust_sentences(document))
    yield from (f"<p>Warning: {_html(warning)}</p>" for warning in document.warnings)
    yield "</div>"


def _forest(document: ReportDocument) -> Iterator[str]:
    """Yield the chart of the comparisons, if there are some.

    It is an image and no element of the page, so that the styles and names of other cells have no part in it, and its
    ground is light also in a dark notebook.
    """
    drawing = registered_charts()
    picture = None if drawing is None else drawing.of_comparisons(document)
    if picture is None:
        return
    image = base64.b64encode(picture.svg.encode()).decode("ascii")
    alternative = _html(shorten(picture.words, LONGEST_ALTERNATIVE))
    yield (
        f'<p><img src="data:image/svg+xml;base64,{image}" width="{picture.width}" style="max-width:100%" '
        f'alt="{alternative}"></p>'
    )


def _html(text: str) -> str:
    return escape(one_line(text))
