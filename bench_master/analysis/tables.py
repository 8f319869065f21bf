"""The rows of a stats file as tables: batches of named columns, with the treatment's labels as columns.

Notebooks (`weighbridge.load`) read them. A batch is made of one block, so memory
does not grow with the run. Instants are nanoseconds since the run began, amounts of time nanoseconds, sizes bytes; a
column of numbers that has no value in some rows is a masked array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from bench_common.records import ATTEMPT_SHIFT, JOB_ID, OPERATION_DONE, OPERATION_FAILED, MetricRecord, Outcome
from bench_common.safe_text import one_line
from bench_common.stats.block_types import StoredMetric, StoredTreatment, StoredTrial
from bench_common.stats.reader import has_times
from bench_common.stats.rows import Columns, SampleColumns
from bench_master.run_data.measured import MeasuredRun

Array: TypeAlias = npt.NDArray[Any]


class Texts(Struct, frozen=True):
    """A column of texts: for each row the place of its text in `names`, -1 where it has none."""

    codes: npt.NDArray[np.int32]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)

    def objects(self) -> Array:
        """Return the texts themselves, None where there is none."""
        every = np.array([*self.names, None], dtype=object)
        found: Array = every[self.codes]
        return found


Column: TypeAlias = "Array | Texts"
Batch: TypeAlias = dict[str, Column]
"""Columns of one length by name, in order."""


_JOB: Final = ("job_id", "attempt")
_TRIAL: Final = ("trial", "block", "warmup")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "trials": (
        *_TRIAL, "begin_ns", "duration_ns", "jobs_done", "jobs_failed", "jobs_lost", "jobs_aborted", "job_mean_ns",
    ),
    "jobs": (*_JOB, *_TRIAL, "worker", "outcome", "start_ns", "duration_ns", "end_uncertainty_ns", "wait_ns"),
    "operations": (*_JOB, *_TRIAL, "operation", "ok", "counts", "start_ns", "duration_ns"),
    "transfers": (
        *_JOB, *_TRIAL, "operation", "ok", "counts", "endpoint", "retries", "redrawn", "bytes", "duration_ns",
        "last_try_ns", "first_uncertainty_ns",
    ),
    "metrics": (*_JOB, *_TRIAL, "name", "value", "unit", "direction"),
    "samples": ("time_ns", "worker", "source", "name", "value", "unit", "trial", "warmup"),
}  # fmt: skip
"""The columns of each table after those of the labels, in order."""


class Tables:
    """Makes the tables of one run; of a large file each is read anew when it is asked for."""

    def __init__(self, run: MeasuredRun) -> None:
        header = run.header
        self._run = run
        self._began_ns = run.stats.began_ns
        self._timed = has_times(header)
        self._treatments: Sequence[StoredTreatment] = header.treatments
        self._trials: Sequence[StoredTrial] = header.trials
        self._blocks = np.array([entry[1] for entry in self._trials], np.int64)
        self._warmup = np.array([bool(entry[2]) for entry in self._trials], np.bool_)
        self._treatment_of = np.array([entry[0] for entry in self._trials], np.int64)
        self._workers = {
            -1: "master",
            **{number: one_line(body.worker_id or str(number)) for number, body in run.sums.hosts.items()},
        }
        brackets = run.sums.trial_brackets
        self._begins = {trial: begin for trial, (begin, _) in brackets.items() if begin is not None}
        self._ends = {trial: end for trial, (_, end) in brackets.items() if end is not None}
        self._spans = _Spans(self._begins, self._ends)
        self.labels = self._label_columns()
        """The treatments' labels as columns, with a row for each treatment and one, the last, for none."""

    def batches(self, table: str) -> Iterator[Batch]:
        """Yield the rows of a table in the order of the file; no batch if there are none."""
        if table == "trials":
            yield self._trial_rows()
            return
        makers: dict[str, Callable[[Any], Batch]] = {
            "jobs": self._job_rows,
            "operations": self._operation_rows,
            "transfers": self._transfer_rows,
            "metrics": self._metric_rows,
            "samples": self._sample_rows,
        }
        for block in self._run.blocks({table}):
            batch = makers[table](block.body)
            if len(next(iter(batch.values()), ())):
                yield batch

    def empty(self, table: str) -> Batch:
        """Return a batch without rows, which has the columns and their types."""
        nothing = np.zeros(0, np.int64)
        found: Batch = self._labels_of(nothing)
        for name in COLUMNS[table]:
            if name in _TEXT_COLUMNS:
                found[name] = Texts(np.zeros(0, np.int32), ())
            elif name in _TRUTH_COLUMNS:
                found[name] = np.zeros(0, np.bool_)
            else:
                found[name] = np.zeros(0, np.float64 if name == "value" else np.int64)
        return found

    def _label_columns(self) -> dict[str, Column]:
        keys = list(dict.fromkeys(key for one in self._treatments for key in one.labels))
        own = {name for columns in COLUMNS.values() for name in (*columns, *map(frame_name, columns))}
        found: dict[str, Column] = {}
        for key in keys:
            values = [one.labels.get(key) for one in self._treatments]
            name = one_line(str(key))
            name = f"label_{name}" if name in own else name
            while name in found:
                name += "_"
            found[name] = _label_column([*values, None])
        return found

    def _labels_of(self, treatments: Array) -> Batch:
        """Return the labels of rows by the index of their treatment; one that is not known has none."""
        count = len(self._treatments)
        places = np.where((treatments >= 0) & (treatments < count), treatments, count)
        return {
            name: Texts(column.codes[places], column.names) if isinstance(column, Texts) else column[places]
            for name, column in self.labels.items()
        }

    def _job_columns(self, tickets: Array, treatments: Array, trials: Array) -> Batch:
        """Return the labels, the job and the trial of rows."""
        jobs = tickets & np.uint64(JOB_ID)
        return {
            **self._labels_of(treatments.astype(np.int64)),
            "job_id": jobs.astype(np.int64),
            "attempt": (tickets >> np.uint64(ATTEMPT_SHIFT)).astype(np.int64),
            **self._trial_columns(trials.astype(np.int64)),
        }

    def _trial_columns(self, trials: Array) -> Batch:
        count = len(self._trials)
        known = (trials >= 0) & (trials < count)
        places = np.where(known, trials, 0)
        if not count:
            return {"trial": trials, "block": trials, "warmup": np.zeros(len(trials), np.bool_)}
        return {
            "trial": trials,
            "block": np.where(known, self._blocks[places], -1),
            "warmup": self._warmup[places] & known,
        }

    def _worker_column(self, workers: Array) -> Texts:
        numbers, places = np.unique(workers, return_inverse=True)
        return _shared_texts([self._workers.get(number, str(number)) for number in numbers.tolist()], places)

    def _job_rows(self, rows: Columns) -> Batch:
        ran = rows["outcome"] <= Outcome.FAILED
        started = (ran | (rows["start_ns"] != 0)) & self._timed
        ended = ran & self._timed
        return {
            **self._job_columns(rows["ticket"], rows["treatment"], rows["trial"]),
            "worker": self._worker_column(rows["worker"]),
            "outcome": Texts(rows["outcome"].astype(np.int32), [one.name.lower() for one in Outcome]),
            "start_ns": _where(rows["start_ns"] - self._began_ns, started),
            "duration_ns": _where(rows["end_ns"] - rows["start_ns"], ended),
            "end_uncertainty_ns": _where(rows["uncertainty_ns"], ended),
            "wait_ns": _where(rows["wait_ns"], ended),
        }

    def _operation_column(self, treatments: Array, operations: Array) -> Texts:
        pairs, places = np.unique(np.stack([treatments, operations]), axis=1, return_inverse=True)
        names = []
        for treatment, operation in pairs.T.tolist():
            known = self._treatments[treatment].operation_names if treatment < len(self._treatments) else ()
            names.append(one_line(known[operation]) if operation < len(known) else f"operation-{operation}")
        return _shared_texts(names, places.reshape(-1))

    def _operation_rows(self, rows: Columns) -> Batch:
        return {
            **self._job_columns(rows["ticket"], rows["treatment"], rows["trial"]),
            "operation": self._operation_column(rows["treatment"], rows["operation"]),
            "ok": rows["ok"] != OPERATION_FAILED,
            "counts": rows["ok"] == OPERATION_DONE,
            "start_ns": _where(rows["start_ns"] - self._began_ns, self._timed),
            "duration_ns": _where(rows["duration_ns"], self._timed),
        }

    def _transfer_rows(self, rows: Columns) -> Batch:
        return {
            **self._job_columns(rows["ticket"], rows["treatment"], rows["trial"]),
            "operation": self._operation_column(rows["treatment"], rows["operation"]),
            "ok": rows["ok"] != OPERATION_FAILED,
            "counts": rows["ok"] == OPERATION_DONE,
            "endpoint": rows["endpoint"].astype(np.int64),
            "retries": rows["retries"].astype(np.int64),
            "redrawn": rows["redrawn"].astype(np.bool_),
            "bytes": _where(rows["bytes"], rows["bytes"] >= 0),
            **{
                name: _where(rows[name], self._timed)
                for name in ("duration_ns", "last_try_ns", "first_uncertainty_ns")
            },
        }

    def _metric_rows(self, records: Sequence[MetricRecord]) -> Batch:
        tickets, treatments, trials = _record_places(records)
        pairs = list(dict.fromkeys((record.treatment, record.name) for record in records))
        place = {pair: number for number, pair in enumerate(pairs)}
        places = np.array([place[record.treatment, record.name] for record in records], np.int64)
        declared = [self._declared(treatment, name) for treatment, name in pairs]
        return {
            **self._job_columns(tickets, treatments, trials),
            "name": _shared_texts([one_line(name) for _, name in pairs], places),
            "value": np.array([record.value for record in records], np.float64),
            "unit": _shared_texts([one_line(one.unit) for one in declared], places),
            "direction": _shared_texts([one.direction and one_line(one.direction) for one in declared], places),
        }

    def _declared(self, treatment: int, name: str) -> StoredMetric:
        known = self._treatments[treatment].metrics if treatment < len(self._treatments) else {}
        return known.get(name, StoredMetric())

    def _sample_rows(self, samples: SampleColumns) -> Batch:
        columns = {name: values for name, values in samples.columns.items() if name != "time_ns"}
        readings = len(next(iter(samples.columns.values()), ()))
        times = samples.columns.get("time_ns")
        if times is None:
            trials = np.full(readings, -1)
            instants = _where(np.zeros(readings, np.int64), np.False_)
        else:
            trials = self._spans.trials_at(times)
            instants = _where(times - self._began_ns, np.True_)
        trials = np.tile(trials, len(columns))
        within = (trials >= 0) & (trials < len(self._trials))
        treatments = np.full(len(trials), -1)
        treatments[within] = self._treatment_of[trials[within]]
        warmup = np.zeros(len(trials), np.bool_)
        warmup[within] = self._warmup[trials[within]]
        names = np.repeat(np.arange(len(columns)), readings)
        units = [one_line(str(samples.units.get(name, ""))) for name in columns]
        everywhere = np.zeros(len(trials), np.int64)
        worker = self._workers.get(samples.worker, str(samples.worker))
        return {
            **self._labels_of(treatments),
            "time_ns": _masked_together([instants] * len(columns)),
            "worker": _shared_texts([worker], everywhere),
            "source": _shared_texts([one_line(samples.source)], everywhere),
            "name": _shared_texts([one_line(name) for name in columns], names),
            "value": np.concatenate([np.zeros(0), *(values.astype(np.float64) for values in columns.values())]),
            "unit": _shared_texts(units, names),
            "trial": _where(trials, within),
            "warmup": _where(warmup, within),
        }

    def _trial_rows(self) -> Batch:
        count = len(self._trials)
        counts = np.zeros((len(Outcome), count), np.int64)
        sums = np.zeros(count, np.float64)
        for block in self._run.blocks({"jobs"}):
            rows = block.body
            known = rows[rows["trial"] < count]
            for outcome in Outcome:
                counts[outcome] += np.bincount(known["trial"][known["outcome"] == outcome], minlength=count)
            done = known[known["outcome"] == Outcome.DONE]
            sums += np.bincount(done["trial"], weights=done["end_ns"] - done["start_ns"], minlength=count)
        trials = np.arange(count)
        begins = np.array([self._begins.get(trial, 0) for trial in range(count)], np.int64)
        ends = np.array([self._ends.get(trial, 0) for trial in range(count)], np.int64)
        begun = np.array([trial in self._begins for trial in range(count)], np.bool_)
        ended = np.array([trial in self._ends for trial in range(count)], np.bool_) & begun
        done_counts = counts[Outcome.DONE]
        means = np.rint(sums / np.maximum(done_counts, 1)).astype(np.int64)
        return {
            **self._labels_of(self._treatment_of),
            **self._trial_columns(trials),
            "begin_ns": _where(begins - self._began_ns, begun),
            "duration_ns": _where(ends - begins, ended),
            **{f"jobs_{outcome.name.lower()}": counts[outcome] for outcome in Outcome},
            "job_mean_ns": _where(means, (done_counts > 0) & self._timed),
        }


def joined(batches: Sequence[Batch]) -> Batch:
    """Return the rows of one or more batches in one; their texts get one list of names."""
    found: Batch = {}
    for name in batches[0]:
        columns = [batch[name] for batch in batches]
        texts = [column for column in columns if isinstance(column, Texts)]
        numbers = [column for column in columns if not isinstance(column, Texts)]
        if texts:
            found[name] = _joined_texts(texts)
        elif any(isinstance(column, np.ma.MaskedArray) for column in numbers):
            found[name] = _masked_together(numbers)
        else:
            found[name] = np.concatenate(numbers)
    return found


def _joined_texts(columns: Sequence[Texts]) -> Texts:
    place: dict[str, int] = {}
    codes = []
    for column in columns:
        own = np.array([*(place.setdefault(name, len(place)) for name in column.names), -1], np.int32)
        codes.append(own[column.codes])
    return Texts(np.concatenate(codes), list(place))


_TEXT_COLUMNS: Final = frozenset({"worker", "outcome", "operation", "name", "unit", "direction", "source"})
_TRUTH_COLUMNS: Final = frozenset({"warmup", "ok", "counts", "redrawn"})


def frame_name(name: str) -> str:
    """Return the name of a column in frames, whose times are seconds: ``duration_ns`` is ``duration_s``."""
    return f"{name.removesuffix('_ns')}_s" if name.endswith("_ns") else name


class _Spans:
    """The trials in the order of time."""

    def __init__(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
        spans = sorted((begin, ends[trial], trial) for trial, begin in begins.items() if trial in ends)
        self._begins = np.array([span[0] for span in spans], np.int64)
        self._ends = np.array([span[1] for span in spans], np.int64)
        self._trials = np.array([span[2] for span in spans], np.int64)

    def trials_at(self, times: Array) -> Array:
        """Return the trial that was under way at each instant; -1 where none was."""
        if not len(self._trials):
            return np.full(len(times), -1)
        places = np.searchsorted(self._begins, times, side="right") - 1
        within = (places >= 0) & (times <= self._ends[places])
        return np.where(within, self._trials[places], -1)


def _where(values: Array, known: Any) -> Array:
    """Return whole numbers or truths that are masked where they are not known."""
    if values.dtype != np.bool_:
        values = values.astype(np.int64)
    found: Array = np.ma.array(values, mask=np.broadcast_to(~np.asarray(known), values.shape))
    return found


def _masked_together(columns: Sequence[Array]) -> Array:
    """Return the rows of columns of which some may be masked, as one masked array; of no columns, no rows."""
    if not columns:
        return np.ma.zeros(0, np.int64)
    values = np.concatenate([np.ma.getdata(column) for column in columns])
    found: Array = np.ma.array(values, mask=np.concatenate([np.ma.getmaskarray(column) for column in columns]))
    return found


def _shared_texts(names: Sequence[str | None], places: Array) -> Texts:
    """Return a column of the text at each place; equal texts get one code, as frames require."""
    unique = list(dict.fromkeys(name for name in names if name is not None))
    code = {name: number for number, name in enumerate(unique)}
    codes = np.array([-1 if name is None else code[name] for name in names], np.int32)
    return Texts(codes[places] if len(codes) else np.zeros(len(places), np.int32), unique)


def _label_column(values: Sequence[Any]) -> Column:
    """Return a label of all treatments: whole numbers, numbers or, of anything else, texts."""
    known = [value for value in values if value is not None]
    if known and all(type(value) is int and abs(value) < 1 << 62 for value in known):
        numbers = np.array([0 if value is None else value for value in values], np.int64)
        return _where(numbers, np.array([value is not None for value in values]))
    if known and all(type(value) in (int, float) for value in known):
        return np.array([np.nan if value is None else float(value) for value in values], np.float64)
    names = [None if value is None else _label_text(value) for value in values]
    return _shared_texts(names, np.arange(len(names)))


def _label_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else one_line(str(value))


def _record_places(records: Sequence[MetricRecord]) -> tuple[Array, Array, Array]:
    """Return tickets, treatments and trials."""
    return (
        np.array([record.ticket for record in records], np.uint64),
        np.array([record.treatment for record in records], np.int64),
        np.array([record.trial for record in records], np.int64),
    )
