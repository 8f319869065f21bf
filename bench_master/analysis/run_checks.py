"""What the diagnosis finds in a run: in its hosts' series of trials, in each treatment, in the rounds' differences.

Rounds in drawn order cancel what happens to both sides of them, so their verdicts stand; a single treatment's median
then means nothing, and is not given. Any weaker design cannot carry a word over such a series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_common.treatment import START_COST_STEP
from bench_master.analysis.verdict_types import DIRECTED_WORDS, ComparisonReport, FlagLevel, FlagReport, PartReport
from bench_master.run_data.aggregate import JOB, Aggregator
from bench_master.run_data.trial_values import TrialTable
from bench_master.verdicts import diagnosis, signed_rank
from bench_master.verdicts.decision import DEFAULT_MARGIN
from bench_master.verdicts.diagnosis import CarryOver, Finding, Values
from bench_master.verdicts.reasons import Code, Reason, because

_LEVELS: Final = {"refusal": 0, "warning": 1, "note": 2}
_ORDER: Final = {"regimes": 0, "step": 1, "drift": 2, "neighbours": 3}
"""Which of several findings names a series: what explains most of it."""


class Pair(Struct, frozen=True):
    """Two treatments to compare, by index: `b` against its baseline `a`."""

    a: int
    b: int
    name: str
    """What tells `b` from `a`."""
    group: str
    """What both have in common, where that tells groups of comparisons apart."""
    rounds: int | None = None
    """The first so many rounds judge it; None for all."""


class _Trial(Struct, frozen=True):
    """A trial with a value above 0."""

    trial: int
    treatment: int
    block: int
    log: float
    residual: float
    """Distance of its logarithm from the median of its treatment."""


class RunChecks:
    """The findings of a run whose `pairs` are compared; `cancels`: its rounds cancel what both sides share."""

    def __init__(
        self, ledger: Aggregator, trials: TrialTable, pairs: Sequence[Pair], margin: float, *, cancels: bool
    ) -> None:
        self._ledger = ledger
        self._trials = trials
        self._pairs = pairs
        self._margin = math.log1p(margin)
        self._cancels = cancels
        self._titles = [treatment.title for treatment in ledger.treatments]
        self._judged = sorted({index for pair in pairs for index in (pair.a, pair.b)})
        names = host_names(ledger)
        self._hosts = {
            span.trial: ", ".join(sorted({names.get(one, "") for one in span.workers})) for span in ledger.spans()
        }
        """The hosts of each trial."""
        self._by_treatment = {index: list(_measured(trials, index)) for index in self._judged}
        series_of_hosts = self._series()
        # Three tests of each series, and two of each pair's ratios.
        series = len(series_of_hosts) + len(self._by_treatment) + len(ledger.speeds)
        level = diagnosis.FALSE_ALARMS["series"] / max(1, 3 * series + 2 * len(pairs))
        # Without drawn rounds the checks guard the words: a missed drift is worse than a false alarm.
        self._level = level if cancels else diagnosis.LEVEL / max(1, len(pairs))
        """The level of each test, so that all of them together find something in few runs where nothing is."""
        self._carry_over_level = diagnosis.FALSE_ALARMS["carry-over"] / max(1, len(pairs))
        self._find = partial(diagnosis.find, margin=self._margin, level=self._level, of=series if cancels else 1)
        self._run_findings = {
            hosts: self._find([one.residual for one in own], level=level if cancels else diagnosis.LEVEL)
            for hosts, own in series_of_hosts.items()
        }
        self._own_findings = {
            index: self._find([one.log for one in own]) for index, own in self._by_treatment.items()
        }
        speed_flags = list(self._speed_flags())
        self.without_summary = {
            index: reason for index in self._judged if (reason := self._why_no_summary(index)) is not None
        }
        """Why a treatment has no single number, by index."""
        found = [*self._run_flags(), *speed_flags, *self._warm_up_flags(), *self._outlier_flags()]
        self.flags = sorted(found, key=lambda flag: _LEVELS[flag.level])
        """What was found in the whole run, the gravest first."""

    # -- series -----------------------------------------------------------------------------------------------------

    def _series(self) -> dict[str, list[_Trial]]:
        """Return the trials of all judged treatments in the order in which they ran, by their hosts."""
        found: dict[str, list[_Trial]] = {}
        for one in sorted((one for own in self._by_treatment.values() for one in own), key=lambda one: one.trial):
            place = self._hosts.get(one.trial) or str(self._ledger.treatments[one.treatment].environment or "the run")
            found.setdefault(place, []).append(one)
        return found

    def _difference(self, pair: Pair) -> Values:
        """Return the logarithms of a pair's ratios, round by round."""
        a, b = ({one.block: one.log for one in self._by_treatment[index]} for index in (pair.a, pair.b))
        return np.array([b[block] - a[block] for block in sorted(a.keys() & b.keys())])

    # -- flags of the run -------------------------------------------------------------------------------------------

    def _run_flags(self) -> Iterator[FlagReport]:
        level: FlagLevel = "warning" if self._cancels else "refusal"
        for hosts, findings in self._run_findings.items():
            if findings:
                shown = findings_data(findings)
                reason = because(Code.HOST_SERIES, place=hosts, findings=shown, cancelled=self._cancels)
                yield _flag(findings, hosts, level, reason)

    def _speed_flags(self) -> Iterator[FlagReport]:
        """Yield a warning for each host whose own speed changed."""
        names = host_names(self._ledger)
        for worker, readings in self._ledger.speeds.items():
            wall, cpu = (np.log([getattr(one, name) for one in readings]) for name in ("wall_ns", "cpu_ns"))
            findings = self._find(wall)
            if not findings:
                continue
            reason = because(
                Code.SPEED_CHANGED,
                host=names.get(worker, "the machine"),
                findings=findings_data(findings),
                by_others=not self._find(cpu),
                cancelled=self._cancels,
            )
            yield replace(_flag(findings, names.get(worker, ""), "warning", reason), kind="speed")

    def _warm_up_flags(self) -> Iterator[FlagReport]:
        slowest = []
        for index, own in self._by_treatment.items():
            if len(own) >= signed_rank.MIN_ROUNDS:  # of fewer the first one is the slowest by chance
                logs = np.array([one.log for one in own]) * (
                    1 if self._trials.measures[index].direction == "lower" else -1
                )
                slowest.append(bool(logs[0] > logs[1:].max()))
        if diagnosis.warm_up_too_short(slowest):
            share = sum(slowest) / len(slowest)
            reason = because(Code.WARM_UP_TOO_SHORT, slowest=sum(slowest), treatments=len(slowest))
            yield FlagReport("warm-up", "the run", "warning", None, share, reason)

    def _outlier_flags(self) -> Iterator[FlagReport]:
        for index, own in self._by_treatment.items():
            places = diagnosis.outliers([one.log for one in own])
            if places:
                title, rounds = self._titles[index], [own[place].block + 1 for place in places]
                reason = because(Code.OUTLIERS, treatment=title, trials=len(places), of=len(own), rounds=rounds)
                yield FlagReport("outliers", title, "note", None, len(places) / len(own), reason)

    # -- treatments -------------------------------------------------------------------------------------------------

    def _why_no_summary(self, index: int) -> Reason | None:
        """Return why a treatment has no single number; None if it has one."""
        own = self._by_treatment[index]
        findings = self._own_findings[index] or self._shared_findings(own)
        if not findings:
            return None
        return because(
            Code.NO_SINGLE_NUMBER,
            treatment=self._titles[index],
            findings=findings_data(findings),
            values=_spread_values(findings, np.array([one.log for one in own])),
            unit=self._trials.measures[index].unit,
        )

    def _shared_findings(self, own: Sequence[_Trial]) -> list[Finding]:
        """Return what a host's whole series shows and a treatment's own, shorter one shows in size."""
        logs = np.array([one.log for one in own])
        found: list[Finding] = []
        for series, findings in self._run_findings.items():
            if not any(self._hosts.get(one.trial) == series for one in own):
                continue
            for one in findings:
                test = {"drift": diagnosis.drift, "step": diagnosis.step}.get(one.kind)
                mine = test(logs) if test is not None else None
                if mine is not None and abs(mine.size) > self._margin and mine.size * one.size > 0:
                    found.append(mine)
                if one.kind == "regimes" and one.modes is not None:
                    found += self._shared_regimes(own, one)
        return found

    def _shared_regimes(self, own: Sequence[_Trial], regimes: Finding) -> list[Finding]:
        low, high = regimes.modes or (0.0, 0.0)
        above = np.array([one.residual > (low + high) / 2.0 for one in own])
        if not len(own) or min(above.mean(), 1.0 - above.mean()) < 1.0 / diagnosis.REGIME_SHARE:
            return []
        logs = np.array([one.log for one in own])
        modes = (float(np.median(logs[~above])), float(np.median(logs[above])))
        return [
            replace(regimes, size=modes[1] - modes[0], switches=int((above[1:] != above[:-1]).sum()), modes=modes)
        ]

    # -- one comparison ---------------------------------------------------------------------------------------------

    def refusal(self, pair: Pair, *, cancels: bool) -> Reason | None:
        """Return what in the series of a pair refuses every word, without drawn rounds; None for nothing."""
        if cancels:
            return None
        for index in (pair.a, pair.b):
            if index in self.without_summary:
                return self.without_summary[index]
        places = {self._hosts.get(one.trial) for index in (pair.a, pair.b) for one in self._by_treatment[index]}
        for place, findings in self._run_findings.items():
            if findings and place in places:
                return because(Code.HOST_SERIES, place=place, findings=findings_data(findings), cancelled=False)
        findings = self._find(self._difference(pair))
        return because(Code.RATIOS_SERIES, findings=findings_data(findings)) if findings else None

    def applied(
        self, pair: Pair, report: ComparisonReport, parts: Callable[[], Sequence[PartReport]]
    ) -> ComparisonReport:
        """Return a comparison with its flags and what follows from them; `parts` gives those of a changed effect."""
        flags = [*report.flags]
        for index in (pair.a, pair.b):
            if index in self.without_summary:
                title, findings = self._titles[index], self._own_findings[index]
                reason = self.without_summary[index]
                flags.append(
                    _flag(findings, title, "warning", reason)
                    if findings
                    else FlagReport("spread", title, "warning", None, None, reason)
                )
        carried = self._carry_over(pair)
        if carried is not None:
            # Half of it may be in the ratio either way.
            half = abs(carried.shift) / 2.0
            sizes = {"ratio": math.exp(carried.shift), "half": math.exp(half)}
            first, second = self._titles[pair.a], self._titles[pair.b]
            reason = because(Code.CARRY_OVER, treatment=first, other=second, **sizes)
            size = sizes["half"] - 1.0
            flags.append(FlagReport("carry-over", f"{first}, {second}", "warning", carried.p, size, reason))
            undone = because(Code.DEPENDS_ON_CARRY_OVER, half=sizes["half"])
            report = allowing_for(report, half, self._margin, undone)
        report = replace(
            report,
            a_value=None if pair.a in self.without_summary else report.a_value,
            b_value=None if pair.b in self.without_summary else report.b_value,
        )
        changed = [*self._changes(pair)] if report.scale == "ratio" else []
        if not changed:
            return replace(report, flags=flags)
        return self._without_ratio(pair, replace(report, flags=flags, parts=parts()), changed)

    def _changes(self, pair: Pair) -> list[Finding]:
        findings = self._find(self._difference(pair))
        return [one for one in findings if one.kind in ("drift", "step")]

    def _without_ratio(self, pair: Pair, report: ComparisonReport, changed: Sequence[Finding]) -> ComparisonReport:
        """Return a comparison whose effect changed during the run: it has no one ratio, and its halves must agree."""
        differences = self._difference(pair)
        first, last = (signed_rank.estimate(half) for half in np.array_split(differences, 2))
        ends = {"first": math.exp(first), "last": math.exp(last)}
        reason = because(Code.EFFECT_CHANGED, **ends)
        flag = _flag(changed, report.name, "warning", reason)
        kept = report.verdict == "refused" or (report.verdict in DIRECTED_WORDS and first * last > 0.0)
        return replace(
            report,
            verdict=report.verdict if kept else "inconclusive",
            reasons=report.reasons if report.verdict == "refused" else [reason],
            ratio=None,
            low=None,
            high=None,
            tipping=None,
            more_rounds=None,
            flags=[*report.flags, flag],
        )

    def after(self, pair: Pair) -> tuple[list[float], list[float]]:
        """Return the residuals of trials that came right after the sides of a pair.

        Those count that either side could have come before: the first trial of each round, and all of other
        treatments. Within a round the trial before one side is never its own.
        """
        trials = sorted((one for own in self._by_treatment.values() for one in own), key=lambda one: one.trial)
        after: dict[int, list[float]] = {pair.a: [], pair.b: []}
        for before, one in pairwise(trials):
            is_free = one.block != before.block or one.treatment not in after
            if before.treatment in after and one.trial == before.trial + 1 and is_free:
                after[before.treatment].append(one.residual)
        return after[pair.a], after[pair.b]

    def _carry_over(self, pair: Pair) -> CarryOver | None:
        """Return a carry-over that is shown and larger than the margin."""
        found = diagnosis.carry_over(*self.after(pair))
        is_shown = found is not None and found.p <= self._carry_over_level and abs(found.shift) > self._margin
        return found if is_shown else None

    def _can_find_carry_over(self, pair: Pair) -> bool:
        after_a, after_b = self.after(pair)
        return diagnosis.can_find_carry_over(len(after_a), len(after_b), self._carry_over_level)

    # -- what was not found -----------------------------------------------------------------------------------------

    def looked_for(self, found: Iterable[FlagReport]) -> list[str]:
        """Return what was looked for and is not among the flags of the run and its comparisons."""
        kinds = {kind for flag in found for kind in (flag.kind, *flag.also)} | {
            one.kind for findings in (*self._run_findings.values(), *self._own_findings.values()) for one in findings
        }
        longest = max((len(series) for series in self._series().values()), default=0)
        checks = {
            "drift": ("drift", diagnosis.can_find(diagnosis.drift, longest, self._level)),
            "step": ("steps", diagnosis.can_find(diagnosis.step, longest, self._level)),
            "neighbours": ("autocorrelation", diagnosis.can_find(diagnosis.neighbours, longest, self._level)),
            "regimes": ("regimes", longest >= diagnosis.MIN_REGIMES),
            "carry-over": ("carry-over", any(map(self._can_find_carry_over, self._pairs))),
            "speed": (
                "changes of the hosts' speed",
                any(
                    diagnosis.can_find(diagnosis.drift, len(own), self._level) for own in self._ledger.speeds.values()
                ),
            ),
        }
        return [name for kind, (name, possible) in checks.items() if possible and kind not in kinds]


# -- what an interval must allow for beyond chance: a shift between the sides of unknown direction ------------------


def allowing_for(report: ComparisonReport, shift: float, margin: float, reason: Reason) -> ComparisonReport:
    """Return a comparison whose interval allows for a shift of so much, a logarithm, either way.

    A word that does not hold with it is withdrawn for `reason`; `margin` is a logarithm, too. Differences keep their
    interval, and refused comparisons theirs.
    """
    if report.scale != "ratio" or report.verdict == "refused":
        return report
    low = None if report.low is None else report.low * math.exp(-shift)
    high = None if report.high is None else report.high * math.exp(shift)
    widened = replace(report, low=low, high=high)
    holds_none = (low or 0.0) > 1.0 or (high is not None and high < 1.0)
    is_within = low is not None and high is not None and max(-math.log(low), math.log(high)) < margin
    if holds_none if report.verdict in DIRECTED_WORDS else report.verdict != "same" or is_within:
        return replace(widened, tipping=max((low or 0.0) - 1.0, 1.0 - (high or math.inf), 0.0))
    return replace(widened, verdict="inconclusive", reasons=[reason], tipping=0.0, more_rounds=None)


def position_effect(again: Sequence[ComparisonReport]) -> float | None:
    """Return the largest effect, a logarithm, that the place in a round may have by treatments that ran twice in it.

    None where they cannot say: none ran twice, or in too few rounds for an interval.
    """
    ends = [end for one in again for end in (one.low, one.high)]
    if not ends or any(one.rounds < signed_rank.MIN_ROUNDS or one.scale != "ratio" for one in again):
        return None
    logs = [abs(math.log(end)) if end else math.inf for end in ends]
    return max(logs) if math.isfinite(max(logs)) else None


# -- series ----------------------------------------------------------------------------------------------------------


def series_flags(title: str, values: Values, unit: str, margin: float) -> Iterator[FlagReport]:
    """Yield what makes the trials of one treatment, in the order in which they ran, more than one number."""
    known = values[np.isfinite(values) & (values > 0.0)]
    logs = np.log(known)
    findings = diagnosis.find(logs, math.log1p(margin))
    if findings:
        shown, ends = findings_data(findings), _spread_values(findings, logs)
        reason = because(Code.NO_SINGLE_NUMBER, treatment=title, findings=shown, values=ends, unit=unit)
        yield _flag(findings, title, "refusal", reason)
    if len(known) < len(values):
        lost = len(values) - len(known)
        reason = because(Code.SURVIVORS, treatment=title, lost=lost, of=len(values))
        yield FlagReport("failed", title, "warning", None, lost / len(values), reason)


def start_cost_flags(
    ledger: Aggregator, trials: TrialTable, judged: Iterable[int], margin: float
) -> list[FlagReport]:
    """Return a warning on the treatment of which the cost is the largest share, where that is beyond the margin.

    An empty command in the same jobs measures it. It is in both sides, and makes the ratio of short commands smaller.
    """
    found = []
    for index in judged:
        start, job = (ledger.series.get((index, name)) for name in (START_COST_STEP, JOB))
        if start is None or job is None or trials.measures[index].kind not in ("duration", "rate"):
            continue
        cost_ns, time_ns = (series.histogram.quantile(0.5) for series in (start, job))
        if cost_ns and time_ns and cost_ns > margin * time_ns:
            found.append((cost_ns / time_ns, index, cost_ns, time_ns))
    if not found:
        return []
    share, index, cost_ns, time_ns = max(found)
    title = ledger.treatments[index].title
    reason = because(Code.START_COST, treatment=title, cost_s=cost_ns / 1e9, time_s=time_ns / 1e9)
    return [FlagReport("start-cost", title, "warning", None, share, reason)]


def series_warnings(ledger: Aggregator, trials: TrialTable) -> list[str]:
    """Return the flags of treatments that are compared with nothing, in words."""
    return [
        flag.text
        for index, measure in sorted(trials.measures.items())
        for flag in series_flags(
            ledger.treatments[index].title, trials.values(index).values, measure.unit, DEFAULT_MARGIN
        )
        if flag.kind != "failed"
    ]


def _measured(trials: TrialTable, treatment: int) -> Iterator[_Trial]:
    """Yield the trials of a treatment that have a value above 0, in the order of their rounds."""
    known = [
        (block, one.trial, math.log(one.value))
        for block, one in sorted(trials.rounds[treatment].items())
        if 0.0 < one.value < math.inf
    ]
    middle = float(np.median([log for _, _, log in known])) if known else 0.0
    for block, trial, log in known:
        yield _Trial(trial, treatment, block, log, log - middle)


def _spread_values(findings: Sequence[Finding], logs: Values) -> list[float]:
    """Return two values that say how far a series of trials spreads; `logs` are their logarithms."""
    main = min(findings, key=lambda one: _ORDER[one.kind])
    if main.kind == "regimes" and main.modes is not None:
        ends = main.modes
    elif main.kind == "neighbours":
        ends = (float(logs.min()), float(logs.max()))
    else:
        third = max(1, len(logs) // 3)
        begin, end = (main.at, main.at) if main.at is not None else (third, len(logs) - third)
        ends = (float(np.median(logs[:begin])), float(np.median(logs[end:])))
    return [math.exp(log) for log in ends]


def host_names(ledger: Aggregator) -> Mapping[int, str]:
    """Return the host's name of each worker."""
    return {number: str(host.host or host.environment or "") for number, host in ledger.hosts.items()}


def findings_data(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as data of a reason, what explains most first: each has its ``kind`` and ``ratio``."""
    return [_finding_data(one) for one in sorted(findings, key=lambda one: _ORDER[one.kind])]


def _finding_data(one: Finding) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": one.kind, "ratio": math.exp(one.size)}
    match one.kind:
        case "regimes":
            found["switches"] = one.switches
        case "step":
            found["at"] = one.at or 0
        case "neighbours":
            found["correlation"] = one.correlation or 0.0
    return found


def _flag(findings: Sequence[Finding], where: str, level: FlagLevel, reason: Reason) -> FlagReport:
    main: Any = min(findings, key=lambda one: _ORDER[one.kind])
    also = [one.kind for one in findings if one is not main]
    return FlagReport(main.kind, where, level, main.p, math.expm1(main.size), reason, also)
