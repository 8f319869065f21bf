"""The tables of `bench_master/verdicts/power_tables.py`: how large an effect the intervals of verdicts show, by
simulation.

An interval moves with the effect: what it shows follows from one simulation of rounds without any. Effects are in
standard deviations of the rounds' differences, which are normal.

    difference  the effect that is shown in four runs of five: the 80 % quantile of minus the lower end
    same        how far the narrower interval of *same* reaches in nine runs of ten: the 90 % quantile of the upper
    end looks       as difference, at any look up to the last one

    python benchmarks/power_tables.py [--runs N] > bench_master/verdicts/power_tables.py
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from common import parser_of

from bench_master.verdicts.signed_rank import NO_INTERVAL, critical_value
from bench_master.verdicts.stopping import FEWEST_ROUNDS, MOST_ROUNDS, nominal_levels
from bench_master.verdicts.student import t_quantile

Values = np.ndarray[Any, Any]
FAMILIES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
ROWS = (*range(FEWEST_ROUNDS, 21), 25, 30, 40, 50, 60)
ALPHA = 0.05
HEAD = '''"""How large an effect intervals show, in standard deviations of the rounds' differences.

Written by benchmarks/power_tables.py, which says how. Each row has a column for each of `FAMILIES`. Between the rows
Student's formula holds, as far off as it is at them.
"""

from __future__ import annotations

from typing import Final

FAMILIES: Final = {families}
"""How many comparisons hold together."""
'''


class Ends:
    """The lower ends of the intervals of made-up rounds."""

    def __init__(self, rounds: Values) -> None:
        self.count = rounds.shape[1]
        one, other = np.triu_indices(self.count)
        self.walsh = ((rounds[:, one] + rounds[:, other]) / 2.0).astype(np.float32)
        self.walsh.sort(axis=1)
        self.mean, self.error = rounds.mean(axis=1), rounds.std(axis=1, ddof=1) / math.sqrt(self.count)

    def exact(self, level: float) -> Values:
        """Return those of the exact intervals; infinite where there is none."""
        c = critical_value(self.count, level)
        return np.full(len(self.mean), -np.inf) if c == NO_INTERVAL else np.asarray(self.walsh[:, c])

    def student(self, level: float) -> Values:
        """Return those of Student's intervals."""
        return np.asarray(self.mean - t_quantile(1.0 - level / 2.0, self.count - 1) * self.error)

    def family(self, level: float, comparisons: int) -> Values:
        """Return those of `signed_rank.family_interval`."""
        if critical_value(self.count, level / comparisons) != NO_INTERVAL:
            return self.exact(level / comparisons)
        return np.minimum(self.exact(level), self.student(level / comparisons))

    def look(self, level: float, comparisons: int) -> Values:
        """Return those of `signed_rank.look_interval`."""
        exact = self.exact(level)
        return exact if comparisons == 1 else np.minimum(exact, self.student(level / comparisons))


def table(name: str, rows: Mapping[int, list[float]], what: str) -> str:
    """Return a table as Python."""
    lines = [
        f'    {rounds}: "{" ".join(f"{value:.3g}" for value in row)}",'
        for rounds, row in rows.items()
        if rounds in ROWS
    ]
    return "\n".join([f"\n{name}: Final = {{", *lines, "}", f'"""{what}"""'])


def main() -> None:
    """Print the module."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=4000)
    runs = parser.parse_args().runs
    everything = np.random.default_rng(20140901).normal(size=(runs, MOST_ROUNDS))
    difference, same = dict[int, list[float]](), dict[int, list[float]]()
    best = {(last, k): np.full(runs, -np.inf) for last in range(FEWEST_ROUNDS, MOST_ROUNDS + 1) for k in FAMILIES}
    for rounds in range(FEWEST_ROUNDS, MOST_ROUNDS + 1):
        ends = Ends(everything[:, :rounds])
        difference[rounds] = [float(np.quantile(-ends.family(ALPHA, k), 0.8)) for k in FAMILIES]
        same[rounds] = [float(np.quantile(-ends.family(2.0 * ALPHA, k), 0.9)) for k in FAMILIES]
        for last in range(rounds, MOST_ROUNDS + 1):
            level = nominal_levels(rounds, last)[0]
            for k in FAMILIES if level > 0.0 else ():
                np.maximum(best[last, k], ends.look(level, k), out=best[last, k])
    looks = {
        last: [float(np.quantile(-best[last, k], 0.8)) for k in FAMILIES]
        for last in range(FEWEST_ROUNDS, MOST_ROUNDS + 1)
    }
    print(HEAD.format(families=FAMILIES), end="")
    print(table("DIFFERENCE", difference, "By rounds: what is shown in four runs of five."))
    print(table("SAME", same, "By rounds: how far the interval of *same* reaches in nine runs of ten."))
    print(table("LOOKS", looks, "By the last look: what is shown in four runs of five at any look."))


if __name__ == "__main__":
    main()
