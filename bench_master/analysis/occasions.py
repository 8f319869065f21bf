"""When runs were made: on how many occasions, and whether the runs of two sides took turns.

What is constant for some hours (a boot, the neighbours of a day, the temperature of a room) is in all runs of those
hours. So runs that were made shortly after one another are one occasion, which counts once, however many they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from bench_master.run_data.summary import RunSummary
from bench_master.verdicts.between_runs import RunLevels

APART_S: Final = 3600.0
"""Runs that begin so long after one another are two occasions, unless they are of one boot."""
APART_IN_A_BOOT_S: Final = 12 * 3600.0
"""The same for runs of one boot."""


def occasions(runs: Sequence[RunSummary]) -> list[int]:
    """Return the number of each run's occasion, from 0; the runs are in the order of time.

    Runs of which nobody knows when they began are one occasion.
    """
    return occasion_numbers([run.began_s for run in runs], [_boots(run) for run in runs])


def occasion_numbers(began_s: Sequence[float], boots: Sequence[object]) -> list[int]:
    """Return the number of each run's occasion, from 0, by when each began; equal boots that are known are one."""
    numbers = [0] if began_s else []
    for (earlier, own), (later, others) in pairwise(zip(began_s, boots, strict=True)):
        least = APART_IN_A_BOOT_S if own and own == others else APART_S
        numbers.append(numbers[-1] + (later - earlier >= least))
    return numbers


def _boots(run: RunSummary) -> Mapping[str, str]:
    """Return the boot of each host, where all of them are known."""
    boots = {name: host.fingerprint.get("boot_id") for name, host in run.hosts.items()}
    return {name: str(boot) for name, boot in boots.items()} if all(boots.values()) else {}


def count_occasions(runs: Sequence[RunSummary]) -> int:
    """Return on how many occasions runs were made."""
    return len(set(occasions(runs)))


def by_occasion(runs: Sequence[RunSummary], levels: RunLevels) -> RunLevels:
    """Return the mean level of each occasion, from the level of each run."""
    numbers = np.array(occasions(runs), int)
    found = [np.flatnonzero(numbers == number) for number in dict.fromkeys(numbers.tolist())]
    parts = [getattr(levels, name) for name in RunLevels.__struct_fields__]
    return RunLevels(*(np.array([part[places].mean() for places in found]) for part in parts))


def sides_in_time(earlier: Sequence[RunSummary], new: Sequence[RunSummary]) -> list[int]:
    """Return the side of each run in the order of time: 0 for an earlier run, 1 for a new one; empty if unknown."""
    marked = [(run.began_s, side) for side, runs in enumerate((earlier, new)) for run in runs]
    return [] if any(math.isnan(began) for began, _ in marked) else [side for _, side in sorted(marked)]


def take_turns(sides: Sequence[int]) -> bool:
    """Whether the sides change places about as often as in a drawn order: at most once less than on average.

    The number of stretches of one side is that of the test of Wald and Wolfowitz, Annals of Mathematical Statistics
    11 (1940), whose mean is ``1 + 2 m n / (m + n)``.
    """
    first, second = sides.count(0), sides.count(1)
    if not first or not second:
        return False
    stretches = 1 + sum(one != other for one, other in pairwise(sides))
    return stretches >= 2.0 * first * second / (first + second)


def are_pairs(sides: Sequence[int]) -> bool:
    """Whether the runs are pairs in time, with one run of each side, whichever is first."""
    return bool(sides) and not len(sides) % 2 and all(a != b for a, b in zip(sides[::2], sides[1::2], strict=True))


def is_first_drawn(sides: Sequence[int]) -> bool:
    """Whether each side is first in a quarter of the pairs at least: then what drifts favours neither."""
    share = sum(sides[::2]) / max(1, len(sides) // 2)
    return 0.25 <= share <= 0.75  # noqa: PLR2004  quarters
