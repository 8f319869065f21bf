"""The course of jobs that do one operation each: what each operation did at each endpoint, second by second.

When an operation ended, what it moved and why it failed is in different blocks of the stats file, close by. They are
joined by ticket within a window of rows, so memory does not grow with jobs; the counts grow with seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from bench_common.histogram import Histogram
from bench_common.records import FIRST_BYTE, OPERATION_DONE, OPERATION_FAILED
from bench_common.stats.block_types import MAX_ROWS, does_one_operation
from bench_common.stats.reader import has_times
from bench_master.run_data.percentiles import select_rows
from bench_master.run_data.transfer_types import SecondReport, SecondsReport, StoreSeriesReport

if TYPE_CHECKING:
    from bench_common.stats.block_types import StoredTreatment
    from bench_common.stats.reader import Block
    from bench_common.stats.rows import Columns
    from bench_master.run_data.measured import MeasuredRun

_WINDOW_ROWS: Final = 8 * MAX_ROWS
"""Rows of a kind that wait for the others of their job."""
_LONGEST_S: Final = 31 * 86_400
_MOST_POINTS: Final = 5_000
"""Numbers of a kind in the series of a treatment; of a longer run the intervals are longer."""
_FEWEST_SECONDS: Final = 3
_SECOND_NS: Final = 1_000_000_000
MB: Final = 1_000_000
_DONE, _FAILED, _BYTES = range(3)
_PLACE: Final = np.dtype(
    [("ticket", "u8"), ("treatment", "i8"), ("trial", "i8"), ("verb", "i8"), ("endpoint", "i8"), ("bytes", "i8")]
)
_END: Final = np.dtype([("ticket", "u8"), ("at_ns", "i8"), ("ok", "i8")])
_FIRST: Final = np.dtype([("ticket", "u8"), ("duration_ns", "i8")])
Rows = npt.NDArray[np.void]


def over_all_sizes(name: str) -> str:
    """Return what an operation for objects of one class is called over those of all: ``read[tiny]`` is ``read``."""
    verb, _, rest = name.partition("[")
    return f"{verb}{FIRST_BYTE}" if rest.endswith(FIRST_BYTE) else verb


class _Window:
    """Rows that may still be asked for, by ticket; what is older than the window is forgotten."""

    def __init__(self) -> None:
        self.parts: list[Rows] = []

    def add(self, rows: Rows) -> None:
        if len(rows):
            self.parts.append(rows)
            while len(self.parts) > 1 and sum(map(len, self.parts)) > _WINDOW_ROWS:
                del self.parts[0]


class AtEndpoint(Struct):
    """What one operation did at one endpoint, beside what its rows of transfers say."""

    firsts: Histogram = field(default_factory=Histogram)
    """Times to the first byte (ns) of successful ones."""
    error_kinds: Counter[str] = field(default_factory=Counter)


class StoreCourse:
    """Takes the rows of a run whose jobs do one operation each (`MeasuredRun.part`)."""

    def __init__(self, run: MeasuredRun) -> None:
        self._verbs: dict[int, Sequence[str]] = {}
        self._verb_of: dict[int, npt.NDArray[np.int64]] = {}
        """By treatment: the place of each operation's verb; -1 of a first byte."""
        if has_times(run.header):
            for index, treatment in enumerate(run.sums.treatments):
                if does_one_operation(treatment):
                    self._add_treatment(index, treatment)
        self._ledger = run.sums
        self._brackets = run.sums.trial_brackets
        self._places, self._ends, self._firsts = _Window(), _Window(), _Window()
        self._failures: dict[int, str] = {}
        self._counts: dict[int, dict[int, dict[tuple[int, int], npt.NDArray[np.int64]]]] = {}
        """By treatment, then trial, then verb and endpoint: done, failed and bytes of each second."""
        self.at_endpoint: dict[tuple[int, int, str], AtEndpoint] = {}
        """By treatment, endpoint and operation."""

    def _add_treatment(self, index: int, treatment: StoredTreatment) -> None:
        names = treatment.operation_names
        verbs = list(dict.fromkeys(over_all_sizes(name) for name in names if not name.endswith(FIRST_BYTE)))
        self._verbs[index] = verbs
        self._verb_of[index] = np.array(
            [-1 if name.endswith(FIRST_BYTE) else verbs.index(over_all_sizes(name)) for name in names], np.int64
        )

    @property
    def kinds(self) -> frozenset[str]:
        """Nothing is read again of a run without objects."""
        return frozenset({"operations", "transfers", "errors"} if self._verbs else ())

    def add(self, block: Block) -> None:
        """Add a block of one of the kinds."""
        if block.kind == "errors":
            # The error of a job that tried no operation has no row of transfers.
            wanted = (
                one for one in block.body if over_all_sizes(one.operation) in self._verbs.get(one.treatment, ())
            )
            self._failures.update((one.ticket, one.kind) for one in wanted if not self._ledger.is_warmup(one.trial))
            for places in self._places.parts:
                self._add_failures(places)
            while len(self._failures) > _WINDOW_ROWS:
                del self._failures[next(iter(self._failures))]
            return
        for index, rows in self._measured(block.body):
            if block.kind == "operations":
                self._add_operations(index, rows)
            else:
                self._add_transfers(index, rows)

    def _measured(self, rows: Columns) -> Iterator[tuple[int, Columns]]:
        listed = self._ledger.listed(rows)
        for index in self._verb_of:
            own = listed["treatment"] == index
            if own.any():
                yield index, select_rows(listed, own)

    def _add_operations(self, index: int, rows: Columns) -> None:
        is_first = self._verb_of[index][rows["operation"].astype(np.int64)] < 0
        if not is_first.all():
            mains = rows[~is_first] if is_first.any() else rows
            ends = np.zeros(len(mains), _END)
            ends["ticket"], ends["ok"] = mains["ticket"], mains["ok"]
            ends["at_ns"] = mains["start_ns"] + mains["duration_ns"]
            for places in self._places.parts:
                ends = self._add_ends(places, ends)
            self._ends.add(ends)
        if is_first.any():
            done = rows[is_first & (rows["ok"] == OPERATION_DONE)]
            firsts = np.zeros(len(done), _FIRST)
            firsts["ticket"], firsts["duration_ns"] = done["ticket"], done["duration_ns"]
            for places in self._places.parts:
                firsts = self._add_firsts(places, firsts)
            self._firsts.add(firsts)

    def _add_transfers(self, index: int, rows: Columns) -> None:
        places = np.zeros(len(rows), _PLACE)
        for name in ("ticket", "treatment", "trial", "endpoint", "bytes"):
            places[name] = rows[name]
        places["verb"] = self._verb_of[index][rows["operation"].astype(np.int64)]
        places = places[np.argsort(places["ticket"], kind="stable")]
        self._ends.parts = [left for part in self._ends.parts if len(left := self._add_ends(places, part))]
        self._firsts.parts = [left for part in self._firsts.parts if len(left := self._add_firsts(places, part))]
        self._add_failures(places)
        self._places.add(places)

    # -- rows of the same jobs ---------------------------------------------------------------------------------

    def _add_ends(self, places: Rows, ends: Rows) -> Rows:
        """Count the operations whose job is there; return the others."""
        found, where = _matches(places, ends)
        own, at = places[where], ends[found]
        for (treatment, trial, verb, endpoint), group in _groups(own, "treatment", "trial", "verb", "endpoint"):
            begin = (self._brackets.get(trial) or (None,))[0]
            if begin is None:
                continue
            seconds = np.clip((at["at_ns"][group] - begin) // _SECOND_NS, 0, _LONGEST_S)
            ok = at["ok"][group]
            moved = np.where(ok == OPERATION_DONE, own["bytes"][group].clip(0), 0)
            counts = self._room(treatment, trial, (verb, endpoint), int(seconds.max()) + 1)
            np.add.at(counts[_DONE], seconds[ok == OPERATION_DONE], 1)
            np.add.at(counts[_FAILED], seconds[ok == OPERATION_FAILED], 1)
            np.add.at(counts[_BYTES], seconds, moved)
        return ends[~found]

    def _room(self, treatment: int, trial: int, key: tuple[int, int], seconds: int) -> npt.NDArray[np.int64]:
        of_trial = self._counts.setdefault(treatment, {}).setdefault(trial, {})
        counts = of_trial.get(key, np.zeros((3, 0), np.int64))
        if counts.shape[1] < seconds:
            counts = of_trial[key] = np.pad(counts, ((0, 0), (0, seconds - counts.shape[1])))
        return counts

    def _add_firsts(self, places: Rows, firsts: Rows) -> Rows:
        found, where = _matches(places, firsts)
        durations = firsts["duration_ns"][found]
        for (treatment, verb, endpoint), group in _groups(places[where], "treatment", "verb", "endpoint"):
            self._at(treatment, endpoint, verb).firsts.record(durations[group])
        return firsts[~found]

    def _add_failures(self, places: Rows) -> None:
        if not self._failures:
            return
        tickets = np.fromiter(self._failures, np.uint64, len(self._failures))
        for place in places[np.isin(places["ticket"], tickets)]:
            kind = self._failures.pop(int(place["ticket"]), None)
            if kind is not None:
                self._at(int(place["treatment"]), int(place["endpoint"]), int(place["verb"])).error_kinds[kind] += 1

    def _at(self, treatment: int, endpoint: int, verb: int) -> AtEndpoint:
        return self.at_endpoint.setdefault((treatment, endpoint, self._verbs[treatment][verb]), AtEndpoint())

    # -- what is told of it -------------------------------------------------------------------------------------

    def _whole_seconds(self, trial: int) -> int:
        """Return how many seconds a trial lasted that ended."""
        begin, end = self._brackets.get(trial) or (None, None)
        return 0 if begin is None or end is None else min((end - begin) // _SECOND_NS, _LONGEST_S)

    def seconds(self, treatment: int, operation: str | None, *, unknown: bool) -> SecondsReport | None:
        """Return the fastest, median and slowest whole second of an operation, or of all.

        `unknown`: whether the content of some is not known.
        """
        found: list[tuple[int, int, int, int]] = []
        for trial, own in self._counts.get(treatment, {}).items():
            whole = self._whole_seconds(trial)
            total = np.zeros((3, whole), np.int64)
            for (verb, _), counts in own.items():
                if operation in (None, self._verbs[treatment][verb]):
                    width = min(whole, counts.shape[1])
                    total[:, :width] += counts[:, :width]
            pairs = zip(total[_DONE].tolist(), total[_BYTES].tolist(), strict=True)
            found += [(done, moved, trial, second) for second, (done, moved) in enumerate(pairs)]
        if len(found) < _FEWEST_SECONDS or not any(done for done, *_ in found):
            return None
        found.sort()
        slowest, median, fastest = (
            SecondReport(trial, second, float(done), None if unknown else moved / MB)
            for done, moved, trial, second in (found[0], found[(len(found) - 1) // 2], found[-1])
        )
        return SecondsReport(len(found), fastest, median, slowest)

    def series(self, treatment: int) -> tuple[float, list[StoreSeriesReport]]:
        """Return the length of an interval in seconds, and the course of each operation at each endpoint.

        It has the whole intervals of a trial; one of less than three seconds has no course.
        """
        long = {
            trial: own
            for trial, own in sorted(self._counts.get(treatment, {}).items())
            if self._whole_seconds(trial) >= _FEWEST_SECONDS
        }
        points, width = sum(self._whole_seconds(trial) * len(own) for trial, own in long.items()), 1
        while points // width > _MOST_POINTS:
            width *= 2
        return float(width), [
            StoreSeriesReport(
                trial,
                self._verbs[treatment][verb],
                endpoint,
                *(_in_intervals(row, self._whole_seconds(trial) // width, width) for row in counts),
            )
            for trial, own in long.items()
            for (verb, endpoint), counts in sorted(own.items())
        ]


def _matches(places: Rows, others: Rows) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.intp]]:
    """Return which of the others have a place, which are in the order of tickets, and where that of each is."""
    where = np.searchsorted(places["ticket"], others["ticket"])
    found = where < len(places)
    found[found] = places["ticket"][where[found]] == others["ticket"][found]
    return found, where[found]


def _groups(rows: Rows, *names: str) -> Iterator[tuple[tuple[Any, ...], npt.NDArray[np.intp]]]:
    """Yield the distinct values of some columns together, and where they stand."""
    if not len(rows):
        return
    keys = np.zeros(len(rows), np.int64)
    for name in names:
        keys = keys * (int(rows[name].max()) + 1) + rows[name]
    _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    for number, first in enumerate(firsts.tolist()):
        yield tuple(int(rows[name][first]) for name in names), np.flatnonzero(inverse == number)


def _in_intervals(row: npt.NDArray[np.int64], intervals: int, width: int) -> list[int]:
    padded = np.zeros(intervals * width, np.int64)
    padded[: len(row)] = row[: len(padded)]
    found: list[int] = padded.reshape(-1, width).sum(axis=1).tolist()
    return found
