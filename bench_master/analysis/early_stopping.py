"""The looks at a run that went on until its verdicts were settled: by which rounds each comparison is judged.

A comparison is judged by the rounds of the look that settled it, or of the last look, at the level of that look: so a
report of the file comes to the words by which the run was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bench_common.stats.block_types import Header
from bench_master.analysis.verdict_types import (
    DIRECTED_WORDS,
    ComparisonReport,
    FlagReport,
    StoppingReport,
    VerdictsReport,
)
from bench_master.scenario.model import originals
from bench_master.verdicts.reasons import Code, because
from bench_master.verdicts.stopping import (
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    Look,
    error_with_earlier_ends,
    extension_level,
    is_settled,
    nominal_levels,
)


class Looks(Struct, frozen=True):
    """The looks that were taken at one run."""

    last: int
    """Round of the last look."""
    warmup: int
    """Warm-up rounds, which are numbered with the others."""
    taken: tuple[Mapping[str, Any], ...]
    """The events of the looks, in order; the one being taken is not among them."""
    ended: str
    """Why the rounds ended: ``settled``, ``at-most``, ``budget``; empty where they were cut short."""
    current: int | None = None
    """Rounds of the look that is being taken; None for a report."""

    def rounds(self, a: int, b: int) -> int:
        """Return by how many rounds the comparison of treatment `b` with `a` is judged; 0 before the first look.

        A pair that no look compared is judged by the rounds that both its sides ran.
        """
        planned = {(one["a"], one["b"]) for look in self.taken for one in look["comparisons"]}
        if planned and (a, b) not in planned:
            # A treatment runs until the last of its own comparisons is settled.
            return min(
                max((self.rounds(*pair) for pair in planned if side in pair), default=self._latest) for side in (a, b)
            )
        for look in self.taken:
            for one in look["comparisons"]:
                if (one["a"], one["b"]) == (a, b) and is_settled(one["verdict"], look["rounds"]):
                    return int(look["rounds"])
        return self._latest

    def first_uncounted_block(self, a: int, b: int) -> int | None:
        """Return the block from which on trials do not count for a comparison; None if all of them do."""
        rounds = self.rounds(a, b)
        return self.warmup + rounds if rounds else None

    def levels(self, a: int, b: int) -> tuple[float, float]:
        """Return the levels of a difference and of *same* at the look by which a comparison is judged."""
        return nominal_levels(self.rounds(a, b), self.last)

    def report(self) -> StoppingReport:
        """Return how the run was stopped."""
        look = self._latest
        nominal = nominal_levels(look, self.last)[0]
        return StoppingReport(last=self.last, look=look, nominal=nominal, why=self.ended or "interrupted")

    @property
    def _latest(self) -> int:
        if self.current is not None:
            return self.current
        return int(self.taken[-1]["rounds"]) if self.taken else 0


def find_looks(header: Header, events: Iterable[Mapping[str, Any]], current: int | None = None) -> Looks | None:
    """Return the looks by the events of a file; None for a run with a fixed number of rounds."""
    rule = header.until_verdict
    if rule is None:
        return None
    last, ended, taken = rule.at_most, "", []
    for event in events:
        if event["kind"] == "last-look":
            last = event["last"]
        elif event["kind"] == "look":
            taken.append(event)
        else:
            ended = event["why"]
    last = min(MOST_ROUNDS, max(FEWEST_ROUNDS, last))
    warmup = len({block for _, block, is_warmup in header.trials if is_warmup})
    return Looks(last, warmup, tuple(taken), ended, current)


def take_look(verdicts: VerdictsReport | None, header: Header, rounds: int) -> Look:
    """Return the look after so many rounds by the verdicts that it comes to: which treatments need no more trials.

    A treatment is settled with all comparisons that it is part of; so is the one that runs it a second time.
    """
    treatments = header.treatments
    places = {treatment.title: index for index, treatment in enumerate(treatments)}
    stopping = verdicts.design.stopping if verdicts is not None else None
    found: Sequence[ComparisonReport] = verdicts.comparisons if verdicts is not None else ()
    still: set[int] = set()
    for one in found:
        # Where no job of a side was done in any round, more of them would fail, too.
        if not (is_settled(one.verdict, rounds) or one.has_failed or one.baseline_has_failed):
            still |= {places[one.a], places[one.b]}
    still |= {again for again, first in originals(one.labels for one in treatments).items() if first in still}
    comparisons = [
        {"a": places[one.a], "b": places[one.b]}
        | {name: getattr(one, name) for name in ("verdict", "ratio", "low", "high")}
        for one in found
    ]
    return Look(
        rounds=rounds,
        last=stopping.last if stopping is not None else rounds,
        nominal=stopping.nominal if stopping is not None else 0.0,
        settled=frozenset(range(len(treatments))) - still,
        comparisons=comparisons,
    )


def noise_floor(found: Sequence[ComparisonReport]) -> tuple[ComparisonReport | None, list[FlagReport]]:
    """Return what a treatment differs from itself, of several the worst, and a warning if that is no noise."""
    if not found:
        return None, []
    worst = max(found, key=lambda one: (one.verdict in DIRECTED_WORDS, _width(one)))
    flags = [
        FlagReport("noise-floor", one.a, "warning", one.p, size, because(Code.DIFFERS_FROM_ITSELF, name=one.name))
        for one in found
        if one.verdict in DIRECTED_WORDS
        for size in [None if one.ratio is None else abs(one.ratio - 1.0)]
    ]
    return worst, flags


def _width(one: ComparisonReport) -> float:
    return math.inf if one.low is None or one.high is None else one.high - one.low


def stopping_flags(looks: Looks | None, extensions: Sequence[int]) -> list[FlagReport]:
    """Return a note on the effects of a run that stopped early, and one on a run that was extended."""
    if extensions:
        count = len(extensions)
        levels = {"level": extension_level(count), "together": error_with_earlier_ends(count)}
        reason = because(Code.EXTENDED, trials=sum(extensions), **levels)
        return [FlagReport(kind="extended", where="", level="note", p=None, size=None, reason=reason)]
    if looks is None or looks.ended != "settled":
        return []
    reason = because(Code.STOPPED_EARLY, round=looks.report().look, last=looks.last)
    return [FlagReport(kind="early-stop", where="", level="note", p=None, size=None, reason=reason)]
