"""What a job on an object store does, by its seed: the operation, the size class, the size, the object.

Each seed has 63 random bits. The upper 31 choose operation and class, the lower 32 the object; whatever else is drawn
comes from `draw`, which makes further 64-bit words of the seed. So the master can work out what a job was to do, and
a job that is tried again does the same.

Pure: no socket and no clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench_features.objects.common.job import Objects, Sizes

_WORD: Final = (1 << 64) - 1
_CELL_BITS: Final = 31
_PICK: Final = (1 << 32) - 1
_MANTISSA: Final = 2.0**-53

FOR_SIZE: Final = 1
FOR_CONTAINER: Final = 2
FOR_RANGE: Final = 3
FOR_ENDPOINT: Final = 4
FOR_REDRAW: Final = 16
"""What a word is drawn for: words for different purposes are independent. `FOR_REDRAW` is the first of many."""


def draw(seed: int, purpose: int) -> int:
    """Return a 64-bit word for a purpose (SplitMix64: Steele, Lea and Flood, OOPSLA 2014)."""
    word = (seed + purpose * 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def share_of(word: int) -> float:
    """Return a 64-bit word as a number from 0 to 1, without 1."""
    return (word >> 11) * _MANTISSA


def pick_of(seed: int) -> int:
    """Return the 32 bits of a seed that choose the object."""
    return seed & _PICK


@dataclass(frozen=True, slots=True)
class Cell:
    """An operation on objects of a class: one of the alternatives of a job."""

    operation: str
    size_class: int
    """The place of the class in `Objects.classes`."""
    alternative: int
    weight: float
    """Its share of all jobs."""


class Chooser:
    """Chooses the cell and the size of each job of a treatment."""

    def __init__(self, objects: Objects) -> None:
        alternatives = objects.alternatives()
        total = sum(one.weight for one in objects.classes)
        self.cells: tuple[Cell, ...] = tuple(
            Cell(
                operation,
                place,
                alternatives.index((operation, one.name)),
                one.weight / total * weight / sum_of_class,
            )
            for place, one in enumerate(objects.classes)
            for sum_of_class in [sum(weight for _, weight in one.mix)]
            for operation, weight in one.mix
            if weight > 0 and one.weight > 0
        )
        self._limits = _limits([cell.weight for cell in self.cells])
        self._sizes = tuple(sizes_of(one.sizes) for one in objects.classes)

    def cell(self, seed: int) -> Cell:
        """Return what a job is to do."""
        return self.cells[bisect_right(self._limits, seed >> 32)]

    def size(self, size_class: int, seed: int) -> int:
        """Return how many bytes the object has that a job makes."""
        return self._sizes[size_class](draw(seed, FOR_SIZE))


def choose_among(cells: Sequence[Cell], word: int) -> Cell:
    """Return one of some cells by their weights."""
    limits = list(accumulate(cell.weight for cell in cells))
    return cells[min(bisect_right(limits, share_of(word) * limits[-1]), len(cells) - 1)]


def _limits(weights: Sequence[float]) -> list[int]:
    """Return where each but the last weight's part of the 31-bit numbers ends."""
    sums = list(accumulate(weights))
    return [round(limit / sums[-1] * (1 << _CELL_BITS)) for limit in sums[:-1]]


def sizes_of(sizes: Sizes) -> Callable[[int], int]:
    """Return a function of a 64-bit word that returns a size in bytes."""
    low, high = sizes.minimum, sizes.maximum
    match sizes.kind:
        case "fixed":
            return lambda _word: low
        case "uniform":
            span = high - low + 1
            return lambda word: low + (word * span >> 64)
        case "log":
            # One up, so that a class may begin at 0 bytes; the last whole number has its share, too.
            first, ratio = low + 1, (high + 2) / (low + 1)
            return lambda word: min(high, int(first * ratio ** share_of(word)) - 1)
        case _:
            buckets = [size for size, _ in sizes.buckets]
            limits = list(accumulate(weight for _, weight in sizes.buckets))
            last = limits[-1]
            return lambda word: buckets[bisect_right(limits, share_of(word) * last, 0, len(buckets) - 1)]


class Zipf:
    """Ranks from 0, of which the first are drawn most often: rank r in proportion to 1 / (r + 1)**exponent."""

    def __init__(self, exponent: float) -> None:
        self._exponent = exponent
        self._sums = array("d")

    def rank(self, pick: int, count: int) -> int:
        """Return one of `count` ranks by 32 bits."""
        sums = self._sums
        if len(sums) < count:
            reached = sums[-1] if sums else 0.0
            for place in range(len(sums) + 1, count + 1):
                reached += place**-self._exponent
                sums.append(reached)
        return min(bisect_right(sums, (pick + 0.5) * 2.0**-32 * sums[count - 1], 0, count), count - 1)
