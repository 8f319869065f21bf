"""When a run that goes on until its question is settled may look, and what it may conclude from a look.

After each round the part of the error that may be spent so far is ``alpha (n / N) ** 1.5``, with N the last look,
which is fixed before the first look. What the discrete test leaves unspent is carried on (Lan and DeMets 1983). The
interval of a look is a repeated confidence interval (Jennison and Turnbull 1989): valid however the run ends.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from bench_master.verdicts.signed_rank import NO_INTERVAL, null_distribution
from bench_master.verdicts.stopping_tables import DIFFERENCE, LAST_LOOKS, SAME

EXPONENT: Final = 1.5
"""How late the error is spent: 1 is evenly over the rounds."""
FEWEST_ROUNDS, MOST_ROUNDS = LAST_LOOKS
GAP_ROUNDS: Final = 5
"""After so many rounds, too few for an interval, a clear gap alone may settle a comparison."""
DEFAULT_MOST_ROUNDS: Final = 30
"""The last look of a run that names none."""
EXTENDED_ALPHA: Final = 0.025
"""The level of a run that was extended because it was inconclusive: tested twice at 5 % it would err 8 %."""


def spent(rounds: int, last: int, alpha: float) -> float:
    """Return how much of `alpha` may be spent by the look after `rounds` rounds of at most `last`."""
    return alpha * float(min(1.0, rounds / last) ** EXPONENT)


@lru_cache(maxsize=64)
def critical_values(last: int, *, same: bool = False) -> tuple[int, ...]:
    """Return, for 0 ... `last` rounds, the c with "reject if min(T, M - T) <= c"; `NO_INTERVAL` where none may be.

    They are those of a difference at 5 %, or with `same` those at 10 % of the two one-sided tests. Raises
    `ValueError` unless `last` is between `FEWEST_ROUNDS` and `MOST_ROUNDS`.
    """
    table = SAME if same else DIFFERENCE
    if last not in table:
        raise ValueError(f"{last}: expected a last look after {FEWEST_ROUNDS} to {MOST_ROUNDS} rounds")
    values = [int(value) for value in table[last].split()]
    return (NO_INTERVAL,) * (last + 1 - len(values)) + tuple(values)


@lru_cache(maxsize=512)
def nominal_levels(rounds: int, last: int) -> tuple[float, float]:
    """Return the levels of the interval that shows a difference, and of that for *same*, after `rounds` rounds.

    0 where this look concludes nothing; so for fewer rounds than have an interval.
    """
    return (
        _level(rounds, critical_values(last)[min(rounds, last)]),
        _level(rounds, critical_values(last, same=True)[min(rounds, last)]),
    )


def _level(rounds: int, critical: int) -> float:
    return 0.0 if critical == NO_INTERVAL else 2.0 * float(null_distribution(rounds)[critical])


def last_look(at_most: int, budget_s: float | None, round_s: float) -> int:
    """Return the last look: as many rounds as a budget has time for by the length of one, and no more than `at_most`.

    At least `FEWEST_ROUNDS`: a budget too small for them ends the run before it.
    """
    affordable = at_most if budget_s is None or round_s <= 0.0 else int(budget_s / round_s)
    return max(FEWEST_ROUNDS, min(at_most, affordable, MOST_ROUNDS))
