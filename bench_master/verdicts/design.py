"""Grades of a run's design: which words its data may carry at all, however clear the figures are.

Only rounds in drawn order on the same hosts make two treatments differ in nothing but themselves and chance. The
same test errs in 16 to 100 % of blocked runs under ordinary drift, and no statistics repairs that afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Grade: TypeAlias = Literal["A", "B", "C", "D"]

MIN_HOSTS: Final = 4
"""Fewest hosts on each side for a word about hosts: 4 against 4 can be divided in 70 ways, 3 against 3 in 20."""


@dataclass(frozen=True, slots=True)
class RunDesign:
    """How a run was done, as far as it matters for the words."""

    order: str | None
    """``interleaved``, ``as-written`` or ``blocked``; None if nobody knows."""
    imported: bool = False
    """Whether the results were measured elsewhere."""
    noop: bool = False
    """Whether the jobs executed nothing."""
    split_rounds: int = 0
    """Rounds of which a part ran before an interruption and a part after it."""


@dataclass(frozen=True, slots=True)
class Design:
    """A grade, and why it is not a better one."""

    grade: Grade
    reasons: Sequence[str] = ()

    @property
    def allows_words(self) -> bool:
        """Whether any word may be said."""
        return self.grade != "D"


def grade_run(run: RunDesign) -> Design:
    """Return the grade of a run whose treatments ran on the same hosts."""
    if run.imported:
        return Design("D", ("the results were measured elsewhere, one treatment after the other",))
    if run.noop:
        return Design("D", ("a no-op run measures the harness",))
    if run.order == "blocked":
        return Design("D", ("not interleaved (order: blocked)",))
    if run.order not in ("interleaved", "as-written"):
        return Design("D", ("nobody knows the order of the trials",))
    reasons = []
    if run.order == "as-written":
        reasons.append("the order of the trials was not drawn (order: as-written)")
    if run.split_rounds:
        rounds = "round was" if run.split_rounds == 1 else "rounds were"
        reasons.append(f"{run.split_rounds} {rounds} split by an interruption and left out")
    return Design("B" if reasons else "A", tuple(reasons))


def grade_sides(run: Design, hosts_a: Sequence[str], hosts_b: Sequence[str]) -> Design:
    """Return the grade of a comparison whose sides ran on these hosts."""
    if set(hosts_a) == set(hosts_b) or not run.allows_words:
        return run
    fewest = min(len(set(hosts_a)), len(set(hosts_b)))
    if set(hosts_a) & set(hosts_b):
        return Design("D", (*run.reasons, "the sides share some of their hosts and not others"))
    if fewest < MIN_HOSTS:
        each = (
            "one host each" if len(set(hosts_a)) == len(set(hosts_b)) == 1 else f"only {fewest} of them on one side"
        )
        text = f"the sides ran on different hosts ({each}); at least {MIN_HOSTS} on each side can be compared"
        return Design("D", (*run.reasons, text))
    return Design("C", (*run.reasons, "the sides ran on different hosts: the words are about hosts"))
