"""Scales: from values to pixels, with ticks at round values and the words that a caption needs.

Times come in seconds, sizes in bytes. A caption takes its words from the scale that was drawn (`Scale.words`), so it
cannot claim that an axis begins at 0 where it does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_TIMES: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_LONG_STEPS: Final = (15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
COUNT: Final = "count"
"""The unit of an axis of whole things."""
_LONG_S: Final = 120.0
_FEWEST: Final = 2
"""Ticks without which an axis cannot be read."""
_ROUND: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` on pixels from `start` to `end`; which of the two is larger does not matter."""

    low: float
    high: float
    start: float
    end: float
    unit: str = ""
    """``s``, ``B``, ``B/s``, ``%`` ..."""
    log: bool = False
    levels: Sequence[float] = ()
    """The values that have a tick each, instead of round ones."""

    def __call__(self, value: float) -> float:
        """Return the place of a value; one outside of the scale is at its end."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return at most about `most` round values on the scale, in order, with their labels."""
        if self.levels:
            return [(level, f"{level:g}") for level in self.levels]
        values = _log_ticks(self.low, self.high, most) if self.log else self._linear_ticks(max(2, most))
        return [(value, tick_label(value, self.unit)) for value in values if self.low <= value <= self.high]

    def _linear_ticks(self, most: int) -> list[float]:
        span = self.high - self.low
        step = _round_step(span / most, self.unit)
        first = math.ceil(self.low / step - _ROUND)
        return [place * step for place in range(first, math.floor(self.high / step + _ROUND) + 1)]

    def words(self, what: str) -> str:
        """Return a sentence on this axis for a caption."""
        if self.log:
            return f"{what}: logarithmic axis."
        return f"{what}: the axis begins at {'0' if self.low == 0 else tick_label(self.low, self.unit)}."


def linear(values: Iterable[float], start: float, end: float, unit: str = "") -> Scale:
    """Return a scale from 0 to a little more than the largest value; below 0 if values are."""
    known = [value for value in values if math.isfinite(value)]
    high, low = max(known, default=1.0), min(0.0, *known, 0.0)
    return Scale(low * 1.05, (high if high > low else low + 1.0) * 1.05, start, end, unit)


def logarithmic(values: Iterable[float], start: float, end: float, unit: str = "", room: float = 1.15) -> Scale:
    """Return a logarithmic scale of the positive values, with `room` as a factor at each end."""
    known = [value for value in values if math.isfinite(value) and value > 0]
    low, high = min(known, default=1.0) / room, max(known, default=10.0) * room
    return Scale(low, high, start, end, unit, log=True)


def log_if_wide(values: Sequence[float], start: float, end: float, unit: str = "", beyond: float = 4.0) -> Scale:
    """Return a scale from 0, or a logarithmic one if the largest value is more than `beyond` times the smallest."""
    known = [value for value in values if math.isfinite(value) and value > 0]
    wide = bool(known) and len(known) == len(values) and max(known) / min(known) > beyond
    return (logarithmic if wide else linear)(values, start, end, unit)


def tick_label(value: float, unit: str) -> str:
    """Return a round value with its unit: ``20 ms``, ``1.5 GiB/s``, ``3 min``, ``50 %``."""
    if abs(value) < 1e-15:  # noqa: PLR2004  what is left of a sum of steps
        return "0"
    size, slash, per = unit.partition("/")
    if unit == "s":
        return _time_label(value)
    if size in ("B", "bytes"):
        power = min(max(0, int(math.log2(abs(value)) // 10)) if abs(value) >= 1 else 0, len(_BINARY) - 1)
        return f"{_plain(value / 1024**power)} {_BINARY[power]}{slash}{per}"
    if unit == "%":
        return f"{_plain(value)} %"
    return _plain(value)


def _time_label(value: float) -> str:
    if abs(value) >= _LONG_S and not value % 3600:
        return f"{_plain(value / 3600)} h"
    if abs(value) >= _LONG_S and not value % 60:
        return f"{_plain(value / 60)} min"
    scale, unit = next((pair for pair in _TIMES if abs(value) >= pair[0] * (1 - _ROUND)), _TIMES[-1])
    return f"{_plain(value / scale)} {unit}"


def _plain(value: float) -> str:
    size = abs(value)
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.4g}{letter}"
    return f"{value:.4g}"


def _round_step(least: float, unit: str) -> float:
    """Return the smallest round step that is not less than `least`."""
    if unit == "s" and least > _LONG_STEPS[0] / 1.5:
        return next((step for step in _LONG_STEPS if step >= least), math.ceil(least / 86400) * 86400.0)
    if unit.partition("/")[0] in ("B", "bytes") and least > 1:
        return 2.0 ** math.ceil(math.log2(least))
    if unit == COUNT:
        least = max(1.0, least)
    power = 10.0 ** math.floor(math.log10(least))
    return next(
        step * power
        for step in ((1, 2, 5, 10) if unit == COUNT else (1, 2, 2.5, 5, 10))
        if step * power >= least * (1 - _ROUND)
    )


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return 1, 2 and 5 of each power of ten if there is room for them, else powers of ten; at least two values."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))

    def inside(steps: Sequence[float], every: int = 1) -> list[float]:
        powers = [power for power in range(first, last + 1) if not power % every]
        return [value for power in powers for step in steps for value in [step * 10.0**power] if low <= value <= high]

    few = inside((1, 2, 5))
    if _FEWEST <= len(few) <= most:
        return few
    decades = inside((1,))
    halves = inside((1, 3))
    if len(decades) <= _FEWEST < len(halves) <= most:
        return halves
    if len(decades) >= _FEWEST:
        every = math.ceil(len(decades) / max(_FEWEST, most))
        return next(
            (found for step in range(every, 0, -1) for found in [inside((1,), step)] if len(found) >= _FEWEST),
            decades,
        )
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        found = inside(steps)
        if len(found) >= _FEWEST:
            return found
    step = _round_step((high - low) / 3, "")
    return [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
