"""Print the critical values of runs that go on until their verdicts are settled.

They end ``bench_master/verdicts/stopping.py``; ``python benchmarks/stopping_tables.py`` prints them, to be formatted.

Histories of the signed rank statistic under "no difference" are simulated, and the error is spent along them as
`bench_master.verdicts.stopping` says. About a minute; the same numbers everywhere.
"""

from __future__ import annotations

import sys
import textwrap
from typing import Final

import numpy as np

from bench_master.verdicts.signed_rank import MIN_ROUNDS, NO_INTERVAL
from bench_master.verdicts.stopping import spent

DRAWS: Final = 400_000
"""Simulated histories behind a table ..."""
SEED: Final = 1945
"""... drawn from this seed."""
ALPHAS: Final = (0.05, 0.10)
"""The level of a difference, and that of *same*, which is two one-sided tests at 5 %."""
LONGEST: Final = 60
"""The most rounds of a stored table."""


def simulate(last: int, alphas: tuple[float, ...] = ALPHAS) -> list[list[int]]:
    """Return for each alpha the critical values after 0 ... `last` rounds."""
    drawn = np.random.default_rng(SEED).normal(size=(DRAWS, last)).astype(np.float32)
    rounds = np.ascontiguousarray(drawn.T)
    statistics = np.zeros((last + 1, DRAWS), np.int16)
    for latest in range(last):
        # The statistic counts the positive Walsh averages; a round adds those that it is a part of.
        added = (rounds[: latest + 1] > -rounds[latest]).sum(axis=0, dtype=np.int16)
        statistics[latest + 1] = statistics[latest] + added
    return [_spend(statistics, last, alpha) for alpha in alphas]


def _spend(statistics: np.ndarray, last: int, alpha: float) -> list[int]:
    alive = np.arange(DRAWS)
    values, total = [NO_INTERVAL] * (last + 1), 0.0
    for rounds in range(MIN_ROUNDS, last + 1):
        largest = rounds * (rounds + 1) // 2
        statistic = statistics[rounds][alive]
        smaller = np.minimum(statistic, largest - statistic)
        counts = np.cumsum(np.bincount(smaller, minlength=largest + 1))
        c = int(np.searchsorted(counts, (spent(rounds, last, alpha) - total) * DRAWS, side="right")) - 1
        if c >= 0:
            values[rounds] = c
            total += counts[c] / DRAWS
            alive = alive[smaller > c]
    return values


def main() -> None:
    """Print the tables."""
    out = sys.stdout
    tables = {last: simulate(last) for last in range(MIN_ROUNDS, LONGEST + 1)}
    for place, (name, what) in enumerate(
        (("_DIFFERENCE", "At 5 %: for a difference."), ("_SAME", "At 10 %: for *same*."))
    ):
        out.write(f"{name}: Final = {{\n")
        for last, both in tables.items():
            # A look may have no value between two that have: what was left was too little.
            values = both[place]
            first = next(rounds for rounds, value in enumerate(values) if value != NO_INTERVAL)
            text = " ".join(map(str, values[first:]))
            lines = textwrap.wrap(text, 104)
            out.write(f'    {last}: "{lines[0]}"' if len(lines) == 1 else f'    {last}: "{lines[0]} "')
            for number, line in enumerate(lines[1:], 2):
                out.write(f'\n    "{line}{" " if number < len(lines) else ""}"')
            out.write(",\n")
        out.write(f'}}\n"""{what}"""\n\n' if place == 0 else f'}}\n"""{what}"""\n')


if __name__ == "__main__":
    main()
