"""What the trials of a comparison are made of: quantiles of their jobs, hosts, alike jobs, failures.

Each is a comparison of rounds like that of the primary measure, with intervals of its own that hold together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

import numpy as np

from bench_common.thresholds import Primary
from bench_master.analysis.verdict_makers import finite_or_none
from bench_master.analysis.verdict_types import FlagReport, HostEffectReport, QuantileReport
from bench_master.run_data.trial_values import Band, TrialTable, TrialValue
from bench_master.verdicts.between_runs import RunLevels, can_rank, of_groups
from bench_master.verdicts.decision import Rules, TrialValues, Verdict, compare
from bench_master.verdicts.quantiles import MEDIAN, SHIFT_QUANTILES, enough_jobs, intraclass_correlation
from bench_master.verdicts.reasons import Code, because
from bench_master.verdicts.signed_rank import MIN_ROUNDS, swap_p_value

ALIKE: Final = 0.3
"""Above this intraclass correlation more jobs in a trial hardly tell more."""
FAILURE_ALPHA: Final = 0.05
"""How often a family may claim that shares of failed jobs differ where they do not."""


def shift_function(trials: TrialTable, a: int, b: int, rules: Rules) -> list[QuantileReport]:
    """Return the ratio at each of `SHIFT_QUANTILES` that every trial has enough jobs for; empty for others."""
    rounds, *whole = trials.paired(a, b)
    if trials.measures[a].kind != "duration" or len(rounds) < MIN_ROUNDS:
        return []
    _, *alike = trials.paired(a, b, alike=True)
    shown = [
        place
        for place, q in enumerate(SHIFT_QUANTILES)
        if all(one.shift and enough_jobs(one.jobs, q) for side in alike for one in side)
    ]
    found = []
    for place in shown:
        from_trials = whole if SHIFT_QUANTILES[place] == MEDIAN else alike
        sides = [_as_values([one.shift[place] for one in side]) for side in from_trials]
        if any((side.values <= 0.0).any() for side in sides):
            continue
        # They hold together among themselves: they describe one comparison, and decide nothing.
        verdict = compare(sides[0], sides[1], _described(rules, len(shown)))
        found.append(
            QuantileReport(SHIFT_QUANTILES[place], *map(finite_or_none, (verdict.ratio, verdict.low, verdict.high)))
        )
    return found


def host_effects(trials: TrialTable, a: int, b: int, rules: Rules) -> list[HostEffectReport]:
    """Return the ratio on each host where both sides ran on several; empty for a single host."""
    _, first, second = trials.paired(a, b)
    hosts = sorted({name for one in (*first, *second) for name in one.hosts})
    if len(hosts) < 2:  # noqa: PLR2004
        return []
    found = []
    for name in hosts:
        verdict = _on_host(name, trials.measures[a], first, second, _described(rules, len(hosts)))
        # Of few rounds the ends are a range.
        low, high = (verdict.low, verdict.high) if verdict.rounds >= MIN_ROUNDS else (None, None)
        ratio, low, high = map(finite_or_none, (verdict.ratio, low, high))
        found.append(HostEffectReport(name, ratio, low, high, verdict.rounds))
    return found


def between_hosts(trials: TrialTable, a: int, b: int, rules: Rules) -> Verdict | None:
    """Return the verdict on two sides that ran on different hosts: a host counts once, with the median of its trials.

    None where there are too few hosts for a rank sum.
    """
    first, second = _host_levels(trials, a), _host_levels(trials, b)
    return of_groups(first, second, rules) if can_rank(len(first), len(second)) else None


def _host_levels(trials: TrialTable, treatment: int) -> RunLevels:
    by_host: dict[str, list[Band]] = {}
    for one in trials.rounds[treatment].values():
        for name, own in one.hosts.items():
            if own.value > 0.0:
                by_host.setdefault(name, []).append((own.value, own.low, own.high))
    medians = np.array([np.median(np.array(own), axis=0) for own in by_host.values()]).reshape(-1, 3)
    with np.errstate(divide="ignore"):
        return RunLevels(*np.log(medians).T)


def _on_host(
    name: str, measure: Primary, first: Sequence[TrialValue], second: Sequence[TrialValue], rules: Rules
) -> Verdict:
    pairs = [
        (one.hosts[name], other.hosts[name])
        for one, other in zip(first, second, strict=True)
        if name in one.hosts and name in other.hosts
    ]
    known = [
        pair
        for pair in pairs
        if all(each.value > 0.0 and (measure.q is None or enough_jobs(each.jobs, measure.q)) for each in pair)
    ]
    sides = [[(each.value, each.low, each.high) for each in side] for side in zip(*known, strict=True)] or [[], []]
    return compare(_as_values(sides[0]), _as_values(sides[1]), rules)


def _as_values(bands: Sequence[Band]) -> TrialValues:
    values, low, high = np.array(bands).reshape(-1, 3).T
    return TrialValues(values, low, high, "clock")


def hosts_disagree(effects: Sequence[HostEffectReport], where: str) -> Iterator[FlagReport]:
    """Yield a warning if the intervals of two hosts are disjoint: the effect is another one on each."""
    known = [one for one in effects if one.low is not None or one.high is not None]
    for one, other in combinations(known, 2):
        low, high = sorted((one, other), key=lambda each: each.ratio or 0.0)
        if low.high is not None and high.low is not None and low.high < high.low:
            size = (high.ratio or 1.0) / (low.ratio or 1.0) - 1.0
            hosts = [{"host": each.host, "ratio": each.ratio} for each in known]
            reason = because(Code.HOSTS_DISAGREE, hosts=hosts)
            yield FlagReport(kind="hosts", where=where, level="warning", p=None, size=size, reason=reason)
            return


def effective_jobs(trials: TrialTable, a: int, b: int) -> float | None:
    """Return how many independent jobs those of a typical trial are worth, on the side where they are worth less.

    None if their trials have one each. The jobs of unlike engines are unlike alike: both sides together say nothing
    of either.
    """
    known = [_effective_of(trials, index) for index in (a, b)]
    return min((float(one) for one in known if one is not None), default=None)


def _effective_of(trials: TrialTable, treatment: int) -> float | None:
    correlation, sizes = _correlation(trials, treatment), [one.jobs for one in trials.rounds[treatment].values()]
    if correlation is None:
        return None
    jobs = float(np.median([size for size in sizes if size]))
    # Of the jobs that were looked at the correlation is known, not their number.
    return jobs / (1.0 + (jobs - 1.0) * max(0.0, correlation))


def _correlation(trials: TrialTable, treatment: int) -> float | None:
    own = trials.rounds[treatment].values()
    return intraclass_correlation([one.logs for one in own if one.logs is not None])


def cluster_note(trials: TrialTable, a: int, b: int, titles: Sequence[str]) -> Iterator[FlagReport]:
    """Yield a note if the jobs of a trial are so alike, on the side where they are more, that more tell little."""
    correlation, where = max(
        (_correlation(trials, index) or 0.0, titles[place]) for place, index in enumerate((a, b))
    )
    if correlation > ALIKE:
        reason = because(Code.JOBS_ALIKE, treatment=where, correlation=correlation)
        yield FlagReport(kind="clusters", where=where, level="note", p=None, size=correlation, reason=reason)


def failure_flags(trials: TrialTable, a: int, b: int, titles: Sequence[str], rules: Rules) -> Iterator[FlagReport]:
    """Yield a warning if the two sides' shares of failed jobs differ by more than chance swaps their names."""
    _, first, second = trials.paired(a, b)
    shares = [
        [one.failed / (one.jobs + one.failed) if one.jobs + one.failed else math.nan for one in side]
        for side in (first, second)
    ]
    differences = np.array(shares[1]) - np.array(shares[0])
    differences = differences[np.isfinite(differences)]
    if not differences.any():
        return
    p = swap_p_value(differences)
    if p * rules.comparisons > FAILURE_ALPHA:
        return
    worse = int(differences.mean() > 0.0)
    share, other = (float(np.nanmean(shares[side])) for side in (worse, 1 - worse))
    about = {"treatment": titles[worse], "other": titles[1 - worse], "share": share, "other_share": other}
    reason = because(Code.FAILS_MORE_OFTEN, **about, rounds=len(differences), p=p)
    yield FlagReport("failure-share", titles[1], "warning", p, share - other, reason)


def _described(rules: Rules, comparisons: int) -> Rules:
    return Rules(comparisons=comparisons, margin=rules.margin, lower_is_better=rules.lower_is_better)
