"""The rows of a stats file as tables: named columns, with the treatment's labels as columns.

Notebooks (`weighbridge.load`) read them. A table is whole in memory. Instants are nanoseconds since the run began,
amounts of time nanoseconds, sizes bytes; a column of numbers that has no value in some rows is a masked array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from bench_common.records import ATTEMPT_SHIFT, JOB_ID, OPERATION_DONE, OPERATION_FAILED, MetricRecord, Outcome
from bench_common.safe_text import one_line
from bench_common.stats.block_types import StoredMetric, StoredTreatment, StoredTrial
from bench_common.stats.reader import has_times
from bench_common.stats.rows import SampleColumns
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
Table: TypeAlias = dict[str, Column]
"""Columns of one length by name, in order."""

_OWN_COLUMNS: Final = frozenset(
    {
        "attempt", "begin_ns", "block", "bytes", "counts", "direction", "duration_ns", "end_uncertainty_ns",
        "endpoint", "first_uncertainty_ns", "job_id", "job_mean_ns", "jobs_aborted", "jobs_done", "jobs_failed",
        "jobs_lost", "last_try_ns", "name", "ok", "operation", "outcome", "redrawn", "retries", "source", "start_ns",
        "time_ns", "trial", "unit", "value", "wait_ns", "warmup", "worker",
    }
)  # fmt: skip
"""The columns that tables have after those of the labels."""
_PLACES: Final = ("ticket", "treatment", "trial")


class Tables:
    """Makes the tables of one run; of a large file each is read anew when it is asked for."""

    def __init__(self, run: MeasuredRun) -> None:
        header = run.header
        self._run = run
        self._began_ns = run.stats.began_ns
        self._timed = has_times(header)
        self._treatments: Sequence[StoredTreatment] = header.treatments
        self._trials: Sequence[StoredTrial] = header.trials
        self._treatment_of, self._blocks, self._warmup = np.array([*self._trials, (-1, -1, 0)], np.int64).T
        """Treatment, round and warm-up of each trial; the last are those of rows of no trial."""
        self._workers = {
            -1: "master",
            **{number: one_line(body.worker_id or str(number)) for number, body in run.sums.hosts.items()},
        }
        self._begins, self._ends = np.full((2, len(self._trials)), -1)
        """When each trial began and ended; -1 where that is not known."""
        for trial, bracket in run.sums.trial_brackets.items():
            if trial < len(self._trials):
                self._begins[trial], self._ends[trial] = (-1 if at is None else at for at in bracket)
        self.labels = self._label_columns()
        """The treatments' labels as columns, with a row for each treatment and one, the last, for none."""

    def table(self, name: str) -> Table:
        """Return a table with its rows in the order of the file."""
        makers: dict[str, Callable[[], Table]] = {
            "trials": self._trial_rows,
            "jobs": self._job_rows,
            "operations": self._operation_rows,
            "transfers": self._transfer_rows,
            "metrics": self._metric_rows,
            "samples": self._sample_rows,
        }
        return makers[name]()

    def _rows(self, kind: str, *names: str) -> dict[str, Array]:
        """Return columns of all blocks of a kind."""
        found: dict[str, list[Array]] = {name: [] for name in names}
        for block in self._run.blocks({kind}):
            for name, own in found.items():
                own.append(block.body[name])
        nothing = np.zeros(0, np.int64)
        return {name: np.concatenate(own or [nothing]) for name, own in found.items()}

    def _label_columns(self) -> dict[str, Column]:
        keys = list(dict.fromkeys(key for one in self._treatments for key in one.labels))
        own = _OWN_COLUMNS.union(map(frame_name, _OWN_COLUMNS))
        found: dict[str, Column] = {}
        for key in keys:
            values = [one.labels.get(key) for one in self._treatments]
            name = one_line(str(key))
            name = f"label_{name}" if name in own else name
            while name in found:
                name += "_"
            found[name] = _label_column([*values, None])
        return found

    def _labels_of(self, treatments: Array) -> Table:
        """Return the labels of rows by the index of their treatment; one that is not known has none."""
        count = len(self._treatments)
        places = np.where((treatments >= 0) & (treatments < count), treatments, count)
        return {
            name: Texts(column.codes[places], column.names) if isinstance(column, Texts) else column[places]
            for name, column in self.labels.items()
        }

    def _job_columns(self, tickets: Array, treatments: Array, trials: Array) -> Table:
        """Return the labels, the job and the trial of rows."""
        tickets = tickets.astype(np.uint64)
        return {
            **self._labels_of(treatments.astype(np.int64)),
            "job_id": (tickets & np.uint64(JOB_ID)).astype(np.int64),
            "attempt": (tickets >> np.uint64(ATTEMPT_SHIFT)).astype(np.int64),
            **self._trial_columns(trials.astype(np.int64)),
        }

    def _trial_columns(self, trials: Array) -> Table:
        places = np.where((trials >= 0) & (trials < len(self._trials)), trials, -1)
        return {"trial": trials, "block": self._blocks[places], "warmup": self._warmup[places] > 0}

    def _worker_column(self, workers: Array) -> Texts:
        numbers, places = np.unique(workers, return_inverse=True)
        return shared_texts([self._workers.get(number, str(number)) for number in numbers.tolist()], places)

    def _job_rows(self) -> Table:
        rows = self._rows("jobs", *_PLACES, "worker", "outcome", "start_ns", "end_ns", "uncertainty_ns", "wait_ns")
        ran = rows["outcome"] <= Outcome.FAILED
        started = (ran | (rows["start_ns"] != 0)) & self._timed
        ended = ran & self._timed
        return {
            **self._job_columns(*(rows[name] for name in _PLACES)),
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
        return shared_texts(names, places.reshape(-1))

    def _tried_columns(self, rows: Mapping[str, Array]) -> Table:
        return {
            **self._job_columns(*(rows[name] for name in _PLACES)),
            "operation": self._operation_column(rows["treatment"], rows["operation"]),
            "ok": rows["ok"] != OPERATION_FAILED,
            "counts": rows["ok"] == OPERATION_DONE,
        }

    def _operation_rows(self) -> Table:
        rows = self._rows("operations", *_PLACES, "operation", "ok", "start_ns", "duration_ns")
        return {
            **self._tried_columns(rows),
            "start_ns": _where(rows["start_ns"] - self._began_ns, self._timed),
            "duration_ns": _where(rows["duration_ns"], self._timed),
        }

    def _transfer_rows(self) -> Table:
        times = ("duration_ns", "last_try_ns", "first_uncertainty_ns")
        rows = self._rows("transfers", *_PLACES, "operation", "ok", "endpoint", "retries", "redrawn", "bytes", *times)
        return {
            **self._tried_columns(rows),
            "endpoint": rows["endpoint"].astype(np.int64),
            "retries": rows["retries"].astype(np.int64),
            "redrawn": rows["redrawn"].astype(np.bool_),
            "bytes": _where(rows["bytes"], rows["bytes"] >= 0),
            **{name: _where(rows[name], self._timed) for name in times},
        }

    def _metric_rows(self) -> Table:
        records: list[MetricRecord] = [one for block in self._run.blocks({"metrics"}) for one in block.body]
        pairs = list(dict.fromkeys((record.treatment, record.name) for record in records))
        place = {pair: number for number, pair in enumerate(pairs)}
        places = np.array([place[record.treatment, record.name] for record in records], np.int64)
        declared = [self._declared(treatment, name) for treatment, name in pairs]
        return {
            **self._job_columns(
                np.array([record.ticket for record in records], np.uint64),
                np.array([record.treatment for record in records], np.int64),
                np.array([record.trial for record in records], np.int64),
            ),
            "name": shared_texts([one_line(name) for _, name in pairs], places),
            "value": np.array([record.value for record in records], np.float64),
            "unit": shared_texts([one_line(one.unit) for one in declared], places),
            "direction": shared_texts([one.direction and one_line(one.direction) for one in declared], places),
        }

    def _declared(self, treatment: int, name: str) -> StoredMetric:
        known = self._treatments[treatment].metrics if treatment < len(self._treatments) else {}
        return known.get(name, StoredMetric())

    def _sample_rows(self) -> Table:
        series, times, values = list[tuple[str, str, str, str]](), list[Array](), list[Array]()
        for block in self._run.blocks({"samples"}):
            samples: SampleColumns = block.body
            worker = self._workers.get(samples.worker, str(samples.worker))
            at = samples.columns.get("time_ns")
            for name, own in samples.columns.items():
                if name != "time_ns":
                    unit = one_line(str(samples.units.get(name, "")))
                    series.append((worker, one_line(samples.source), one_line(name), unit))
                    times.append(np.full(len(own), -1) if at is None else at)
                    values.append(own.astype(np.float64))
        places = np.repeat(np.arange(len(series)), [len(own) for own in values])
        workers, sources, names, units = (shared_texts([one[part] for one in series], places) for part in range(4))
        instants = np.concatenate([np.zeros(0, np.int64), *times])
        known = instants >= 0
        trials = self._trials_at(instants)
        within = trials >= 0
        return {
            **self._labels_of(self._treatment_of[trials]),
            "time_ns": _where(instants - self._began_ns, known),
            "worker": workers,
            "source": sources,
            "name": names,
            "value": np.concatenate([np.zeros(0), *values]),
            "unit": units,
            "trial": _where(trials, within),
            "warmup": _where(self._warmup[trials] > 0, within),
        }

    def _trials_at(self, times: Array) -> Array:
        """Return the trial that was under way at each instant; -1 where none was."""
        ran = np.flatnonzero(np.minimum(self._begins, self._ends) >= 0)
        if not len(ran):
            return np.full(len(times), -1)
        ran = ran[np.lexsort((self._ends[ran], self._begins[ran]))]
        places = np.searchsorted(self._begins[ran], times, side="right") - 1
        within = (places >= 0) & (times <= self._ends[ran][places])
        return np.where(within, ran[places], -1)

    def _trial_rows(self) -> Table:
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
        done_counts = counts[Outcome.DONE]
        means = np.rint(sums / np.maximum(done_counts, 1)).astype(np.int64)
        return {
            **self._labels_of(self._treatment_of[:-1]),
            **self._trial_columns(np.arange(count)),
            "begin_ns": _where(self._begins - self._began_ns, self._begins >= 0),
            "duration_ns": _where(self._ends - self._begins, np.minimum(self._begins, self._ends) >= 0),
            **{f"jobs_{outcome.name.lower()}": counts[outcome] for outcome in Outcome},
            "job_mean_ns": _where(means, (done_counts > 0) & self._timed),
        }


def frame_name(name: str) -> str:
    """Return the name of a column in frames, whose times are seconds: ``duration_ns`` is ``duration_s``."""
    return f"{name.removesuffix('_ns')}_s" if name.endswith("_ns") else name


def _where(values: Array, known: Any) -> Array:
    """Return whole numbers or truths that are masked where they are not known."""
    if values.dtype != np.bool_:
        values = values.astype(np.int64)
    found: Array = np.ma.array(values, mask=np.broadcast_to(~np.asarray(known), values.shape))
    return found


def shared_texts(names: Sequence[str | None], places: Array) -> Texts:
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
    return shared_texts(names, np.arange(len(names)))


def _label_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else one_line(str(value))
