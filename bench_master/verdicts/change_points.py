"""When a series of runs of one treatment on one machine changed: the one definition of a change between runs.

- The past: the series is split where the CUSUM of its ranks is larger than chance makes it once in a thousand series.
- The newest runs, which are too few for that: the newest one, and the mean of the newest three, are held against the
  current level by Student's prediction interval, once in a thousand runs each.
- What the newest runs show is an alarm. The next run confirms it, or it is dropped.

Everything needs size, too: more than the margin. Levels are logarithms, in the order of time. Ranks bear outliers and
skewed noise; runs whose neighbours are alike (a machine that changes by the hour) give more false steps.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from bench_master.verdicts import between_runs, diagnosis
from bench_master.verdicts.between_runs import MIN_ARCHIVE, Prediction, RunLevels
from bench_master.verdicts.signed_rank import Interval, Values

MIN_SEGMENT: Final = 4
"""Runs on either side of a step in the history."""
TREND_P: Final = 0.001
"""A step, and a newest run that stands out, must be less likely than this by chance: a history is looked at often."""
NEWEST: Final = (1, 3)
"""How many of the newest runs are held against those before them."""
CONFIRM_P: Final = 0.05
"""A run confirms an alarm if it lies on the same side, by itself, where one of twenty runs lies by chance."""
UNSETTLED: Final = 20
"""So many newest runs are followed one by one; a change before them is history."""
_REMEMBERED: Final = 400
"""The newest runs that the current level is looked for in."""
_BESIDE: Final = 5
"""A step that is found so near to a known change is that change."""
_NEAR: Final = 200
"""Runs on each side that the size of a step is taken from: the nearest ones."""

_LENGTHS: Final = (
    8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 27, 30, 34, 38, 43, 48, 54, 60, 70, 80, 95, 110, 130,
    160, 200, 260, 340, 450, 600, 800, 1100, 1500, 2000,
)  # fmt: skip
_CRITICAL: Final = (
    2.310, 2.450, 2.612, 2.739, 2.883, 3.001, 3.099, 3.183, 3.229, 3.272, 3.288, 3.348, 3.382, 3.440, 3.489, 3.553,
    3.594, 3.629, 3.686, 3.730, 3.749, 3.795, 3.831, 3.890, 3.891, 3.957, 3.976, 4.014, 4.038, 4.098, 4.128, 4.168,
    4.249, 4.249, 4.278, 4.318, 4.318, 4.345,
)  # fmt: skip
"""For series of `_LENGTHS` runs: what the largest sum exceeds by chance once in a thousand (random permutations;
``benchmarks/trends.py --critical-values`` prints them). Nothing exceeds those of the shortest."""
_SLOPE: Final = 0.09
"""How much the critical value grows with each doubling of a series beyond the table."""


class Step(Struct, frozen=True):
    """A step in a series of runs. Sizes are differences of logarithms."""

    first: int
    """The first run of the new level."""
    difference: float
    """How far the level after it lies above that before it, each up to the next step or break."""
    interval: Interval
    """Of the difference, at 95 %."""


def find_steps(levels: Values, margin: float, breaks: Sequence[int] = ()) -> list[Step]:
    """Return the steps that are larger than the `margin` (a share), in the order of time.

    `breaks` are runs from which on the series is another one, such as the first on another machine: no step is looked
    for across them.
    """
    ends = [0, *sorted({place for place in breaks if 0 < place < len(levels)}), len(levels)]
    return [step for first, last in pairwise(ends) for step in _steps_within(levels, first, last, margin)]


def _steps_within(levels: Values, first: int, last: int, margin: float) -> list[Step]:
    least = math.log1p(margin)
    places = sorted(_split(levels, first, last, least))
    bounds = [first, *places, last]
    found = []
    for before, place, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        a, b = levels[max(before, place - _NEAR) : place], levels[place : min(after, place + _NEAR)]
        found.append(Step(place, *between_runs.shift_between(a, b)))
    return found


def _split(levels: Values, first: int, last: int, least: float) -> list[int]:
    found = diagnosis.largest_sum(levels[first:last], MIN_SEGMENT, untied=True)
    if found is None or found[1] <= critical_value(last - first):
        return []
    place = first + found[0]
    estimate, _ = between_runs.shift_between(levels[max(first, place - _NEAR) : place], levels[place:last][:_NEAR])
    if abs(estimate) <= least:
        return []
    return [*_split(levels, first, place, least), place, *_split(levels, place, last, least)]


def critical_value(n: int) -> float:
    """Return what the largest sum of `n` runs (8 at least) exceeds with a chance of `TREND_P`, if nothing changed."""
    if n > _LENGTHS[-1]:
        return _CRITICAL[-1] + _SLOPE * math.log2(n / _LENGTHS[-1])
    # It grows with the length: that of the next longer series errs to the safe side.
    return _CRITICAL[bisect.bisect_left(_LENGTHS, n)]


# -- the newest runs ------------------------------------------------------------------------------------------------


def standing_out(levels: RunLevels, since: int, margin: float) -> Prediction | None:
    """Return the newest runs if they stand out from the regime before them, by the smaller p; None if they do not.

    `since` is the regime's first run. One outlier pulls the mean of several: the newest run and most of them must be
    beyond the margin by themselves.
    """
    least = math.log1p(margin)
    large = []
    for count in NEWEST:
        before = len(levels) - count
        if before - since < MIN_ARCHIVE:
            continue
        away = levels.values[before:] - levels.values[since:before].mean()
        away *= math.copysign(1.0, float(away.mean()))
        if min(float(away[-1]), float(np.median(away)), float(away.mean())) <= least:
            continue
        new = between_runs.predict(levels.part(since, before), levels.part(before), TREND_P)
        if new.p < TREND_P:
            large.append(new)
    return min(large, key=lambda new: new.p, default=None)


State: TypeAlias = Literal["few", "steady", "unconfirmed", "confirmed"]


class Outlook(Struct, frozen=True):
    """What the newest run of a series says."""

    state: State
    """``few``: the current level has less than `MIN_ARCHIVE` runs; ``unconfirmed``: an alarm, which one more run
    would confirm; ``confirmed``: by a second run or by the history, and not yet the current level."""
    regime: tuple[int, ...]
    """The runs of the current level: what the newest are held against."""
    first: int
    """The first run of the change; the newest run where there is none."""
    adopted: Sequence[tuple[int, int]] = ()
    """Of each change among the newest runs whose level became the current one: the first run of the level before it,
    and its own. The history shows it some runs later."""


def judge_newest(levels: RunLevels, margin: float, start: int = 0) -> Outlook:
    """Return what the newest run says about a series, which begins at `start` (a break, or an acknowledged change).

    A change stays ``confirmed`` while the runs agree with it, until its level has `MIN_ARCHIVE` runs before the
    newest: repeating a run until the gate is green takes as long as a new level takes to establish itself. A change
    that creeps past the checks of the newest runs is confirmed when the history shows it, for as long.
    """
    last = len(levels) - 1
    start = max(start, last - _REMEMBERED)
    begin = max(start, last + 1 - UNSETTLED)
    known = [start + step.first for step in find_steps(levels.values[start:begin], margin)]
    since = max((first for first in known if begin - first >= MIN_ARCHIVE), default=start)
    if last - since < MIN_ARCHIVE:
        return Outlook("few", tuple(range(since, last)), last)
    watch = _Watch(levels, margin, start, since, known)
    for place in range(max(since + MIN_ARCHIVE, begin), last + 1):
        watch.take(place)
    return watch.outlook(last)


class _Watch:
    """Follows the newest runs one by one: an alarm, its confirmation, the end of either."""

    def __init__(self, levels: RunLevels, margin: float, start: int, since: int, known: Sequence[int]) -> None:
        self._levels = levels
        self._margin = margin
        self._start = start
        self._since = since
        self._known = [start, *known]
        self._left_out: set[int] = set()
        """Runs of a confirmed change that went away again."""
        self._first: int | None = None
        """The first run of an alarm; None if there is none."""
        self._sign = 0.0
        self._confirmed = False
        self._adopted: list[tuple[int, int]] = []
        self._until = 0
        """From this run on the new level is the current one."""

    def take(self, place: int) -> None:
        """Look at the run at `place`, as if it were the newest."""
        if self._first is not None and self._confirmed and place >= self._until:
            self._adopted.append((self._since, self._first))
            self._since, self._first = self._first, None
        if self._first is not None:
            if self._agrees(place):
                self._confirm()
                return
            if self._confirmed:
                self._left_out.update(range(self._first, place))
            self._first = None
        self._look_for_alarm(place)
        if self._first is None:
            self._look_for_step(place)

    def _regime(self, end: int) -> tuple[int, ...]:
        return tuple(place for place in range(self._since, end) if place not in self._left_out)

    def _agrees(self, place: int) -> bool:
        assert self._first is not None
        regime = self._levels.taken(self._regime(self._first))
        found = between_runs.predict(regime, self._levels.part(place, place + 1), CONFIRM_P)
        return found.p < CONFIRM_P and found.difference * self._sign > math.log1p(self._margin)

    def _confirm(self) -> None:
        assert self._first is not None
        self._confirmed = True
        self._known.append(self._first)

    def _look_for_alarm(self, place: int) -> None:
        series = [*self._regime(place), place]
        found = standing_out(self._levels.taken(series), 0, self._margin)
        if found is not None:
            self._first, self._confirmed = series[-found.new], False
            self._until = self._first + MIN_ARCHIVE
            self._sign = math.copysign(1.0, found.difference)

    def _look_for_step(self, place: int) -> None:
        """Take a new step of the history for a confirmed change."""
        steps = find_steps(self._levels.values[self._start : place + 1], self._margin)
        if not steps:
            return
        first = self._start + steps[-1].first
        old = any(abs(first - one) <= _BESIDE for one in self._known) or first - self._since < MIN_ARCHIVE
        if old or place - first >= UNSETTLED:
            return
        self._first, self._sign = first, math.copysign(1.0, steps[-1].difference)
        self._until = place + MIN_ARCHIVE - 1
        self._confirm()

    def outlook(self, last: int) -> Outlook:
        """Return what the run at `last` says, the newest that was taken."""
        if self._first is None:
            return Outlook("steady", self._regime(last), last, self._adopted)
        state: State = "confirmed" if self._confirmed else "unconfirmed"
        return Outlook(state, self._regime(self._first), self._first, self._adopted)
