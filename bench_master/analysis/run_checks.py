"""What the diagnosis finds in a run: in its hosts' series of trials, in each treatment, in the rounds' differences.

Rounds in drawn order cancel what happens to both sides of them, so their verdicts stand; a single treatment's median
then means nothing, and is not given. Any weaker design cannot carry a word over such a series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np

from bench_master.analysis.aggregate import Aggregator
from bench_master.analysis.trial_values import TrialTable
from bench_master.analysis.verdict_types import DIRECTED_WORDS, ComparisonReport, FlagLevel, FlagReport
from bench_master.formatting import format_change, format_value
from bench_master.verdicts import diagnosis, signed_rank
from bench_master.verdicts.decision import DEFAULT_MARGIN, MIN_GAP_ROUNDS
from bench_master.verdicts.diagnosis import Finding, Values

EFFECT_CHANGED: Final = "the effect itself changed"
_LEVELS: Final = {"refusal": 0, "warning": 1, "note": 2}
_CANCELLED: Final = "rounds cancel it, the values of single treatments do not hold"
_ORDER: Final = {"regimes": 0, "step": 1, "drift": 2, "neighbours": 3}
"""Which of several findings names a series: what explains most of it."""


class Pair(Protocol):
    """Two treatments to compare, by index."""

    @property
    def a(self) -> int:
        """The baseline."""

    @property
    def b(self) -> int:
        """The treatment."""


@dataclass(frozen=True, slots=True)
class _Trial:
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
        self._level = diagnosis.LEVEL / max(1, len(pairs))
        self._titles = [str(treatment.get("title")) for treatment in ledger.treatments]
        self._judged = sorted({index for pair in pairs for index in (pair.a, pair.b)})
        names = host_names(ledger)
        self._hosts = {
            span.trial: ", ".join(sorted({names.get(one, "") for one in span.workers})) for span in ledger.spans()
        }
        """The hosts of each trial."""
        self._by_treatment = {index: list(_measured(trials, index)) for index in self._judged}
        self._run_findings = {
            hosts: diagnosis.find([one.residual for one in series], self._margin)
            for hosts, series in self._series().items()
        }
        self._own_findings = {
            index: diagnosis.find([one.log for one in own], self._margin, level=self._level)
            for index, own in self._by_treatment.items()
        }
        speed_flags = list(self._speed_flags())
        self.without_summary = {index: text for index in self._judged if (text := self._spread_text(index))}
        """Why a treatment has no single number, in words, by index."""
        found = [*self._run_flags(), *speed_flags, *self._warm_up_flags(), *self._outlier_flags()]
        self.flags = sorted(found, key=lambda flag: _LEVELS[flag.level])
        """What was found in the whole run, the gravest first."""

    # -- series -----------------------------------------------------------------------------------------------------

    def _series(self) -> dict[str, list[_Trial]]:
        """Return the trials of all judged treatments in the order in which they ran, by their hosts."""
        found: dict[str, list[_Trial]] = {}
        for one in sorted((one for own in self._by_treatment.values() for one in own), key=lambda one: one.trial):
            place = self._hosts.get(one.trial) or str(
                self._ledger.treatments[one.treatment].get("environment") or "the run"
            )
            found.setdefault(place, []).append(one)
        return found

    def _difference(self, pair: Pair) -> Values:
        """Return the logarithms of a pair's ratios, round by round."""
        a, b = ({one.block: one.log for one in self._by_treatment[index]} for index in (pair.a, pair.b))
        return np.array([b[block] - a[block] for block in sorted(a.keys() & b.keys())])

    # -- flags of the run -------------------------------------------------------------------------------------------

    @property
    def _consequence(self) -> tuple[FlagLevel, str]:
        return ("warning", _CANCELLED) if self._cancels else ("refusal", "no word can be said over it")

    def _run_flags(self) -> Iterator[FlagReport]:
        level, consequence = self._consequence
        for hosts, findings in self._run_findings.items():
            if findings:
                yield _flag(findings, hosts, level, f"{hosts}: the run has {described(findings)}: {consequence}")

    def _speed_flags(self) -> Iterator[FlagReport]:
        """Yield a warning for each host whose own speed changed."""
        names = host_names(self._ledger)
        for worker, readings in self._ledger.speeds.items():
            wall, cpu = (np.log([getattr(one, name) for one in readings]) for name in ("wall_ns", "cpu_ns"))
            findings = diagnosis.find(wall, self._margin)
            if not findings:
                continue
            cause = "its CPUs did" if diagnosis.find(cpu, self._margin) else "others used its CPUs"
            consequence = _CANCELLED if self._cancels else "no drawn rounds cancel it"
            text = f"{names.get(worker, 'the machine')} changed speed ({described(findings)}; {cause}): {consequence}"
            yield replace(_flag(findings, names.get(worker, ""), "warning", text), kind="speed")

    def _warm_up_flags(self) -> Iterator[FlagReport]:
        slowest = []
        for index, own in self._by_treatment.items():
            if len(own) >= MIN_GAP_ROUNDS:
                logs = np.array([one.log for one in own]) * (
                    1 if self._trials.figures[index].direction == "lower" else -1
                )
                slowest.append(bool(logs[0] > logs[1:].max()))
        if diagnosis.warm_up_too_short(slowest):
            share = sum(slowest) / len(slowest)
            text = (
                f"the first measured round was the slowest of {sum(slowest)} of {len(slowest)} treatments: "
                "the warm-up was too short; raise warmup"
            )
            yield FlagReport("warm-up", "the run", "warning", None, share, text)

    def _outlier_flags(self) -> Iterator[FlagReport]:
        for index, own in self._by_treatment.items():
            places = diagnosis.outliers([one.log for one in own])
            if places:
                rounds = ", ".join(str(own[place].block + 1) for place in places[:5])
                more = " ..." if len(places) > 5 else ""  # noqa: PLR2004  as many as are listed
                text = (
                    f"{self._titles[index]}: {len(places)} of {len(own)} trials lie far from the others "
                    f"(round {rounds}{more}); they count like the others"
                )
                yield FlagReport("outliers", self._titles[index], "note", None, len(places) / len(own), text)

    # -- treatments -------------------------------------------------------------------------------------------------

    def _spread_text(self, index: int) -> str | None:
        """Return why a treatment has no single number; None if it has one."""
        own = self._by_treatment[index]
        findings = self._own_findings[index]
        if not findings:
            findings = self._shared_findings(own)
        if not findings:
            return None
        return spread_text(findings, np.array([one.log for one in own]), self._trials.figures[index].unit)

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

    def refusal(self, pair: Pair, *, cancels: bool) -> str | None:
        """Return what in the series of a pair refuses every word, without drawn rounds; None for nothing."""
        if cancels:
            return None
        for index in (pair.a, pair.b):
            if index in self.without_summary:
                return f"{self._titles[index]} has {self.without_summary[index]}"
        places = {self._hosts.get(one.trial) for index in (pair.a, pair.b) for one in self._by_treatment[index]}
        for place, findings in self._run_findings.items():
            if findings and place in places:
                return f"{place}: the run has {described(findings)}"
        findings = diagnosis.find(self._difference(pair), self._margin, level=self._level)
        return f"the rounds' ratios have {described(findings)}" if findings else None

    def applied(self, pair: Pair, report: ComparisonReport) -> ComparisonReport:
        """Return a comparison with its flags and what follows from them."""
        flags = [*report.flags]
        for index in (pair.a, pair.b):
            if index in self.without_summary:
                text = f"{self._titles[index]}: no single number: {self.without_summary[index]}"
                findings = self._own_findings[index]
                flags.append(
                    _flag(findings, self._titles[index], "warning", text)
                    if findings
                    else FlagReport("spread", self._titles[index], "warning", None, None, text)
                )
        flags += self._carry_over_flags(pair)
        report = replace(
            report,
            a_value=None if pair.a in self.without_summary else report.a_value,
            b_value=None if pair.b in self.without_summary else report.b_value,
        )
        changed = [*self._changes(pair)] if report.scale == "ratio" else []
        if not changed:
            return replace(report, flags=flags)
        return self._without_ratio(pair, replace(report, flags=flags), changed)

    def _changes(self, pair: Pair) -> list[Finding]:
        findings = diagnosis.find(self._difference(pair), self._margin, level=self._level)
        return [one for one in findings if one.kind in ("drift", "step")]

    def _without_ratio(self, pair: Pair, report: ComparisonReport, changed: Sequence[Finding]) -> ComparisonReport:
        """Return a comparison whose effect changed during the run: it has no one ratio, and its halves must agree."""
        differences = self._difference(pair)
        first, last = (signed_rank.estimate(half) for half in np.array_split(differences, 2))
        text = f"{EFFECT_CHANGED}, from {format_change(math.exp(first))} to {format_change(math.exp(last))}"
        flag = _flag(changed, report.name, "warning", f"{report.b}: {text} against {report.a}")
        kept = report.verdict == "refused" or (report.verdict in DIRECTED_WORDS and first * last > 0.0)
        return replace(
            report,
            verdict=report.verdict if kept else "inconclusive",
            reason=report.reason if report.verdict == "refused" else text,
            ratio=None,
            low=None,
            high=None,
            tipping=None,
            more_rounds=None,
            flags=[*report.flags, flag],
        )

    def _carry_over_flags(self, pair: Pair) -> Iterator[FlagReport]:
        """Yield a warning if trials that open a round depend on which side of the pair closed the round before."""
        trials: dict[int, list[_Trial]] = {}
        for one in sorted((one for own in self._by_treatment.values() for one in own), key=lambda one: one.trial):
            trials.setdefault(one.block, []).append(one)
        after: dict[int, list[float]] = {pair.a: [], pair.b: []}
        for block, own in trials.items():
            before = trials.get(block - 1)
            if before and before[-1].treatment in after and own[0].trial == before[-1].trial + 1:
                after[before[-1].treatment].append(own[0].residual)
        found = diagnosis.carry_over(after[pair.a], after[pair.b])
        if found is None or found.p > self._level or abs(found.shift) <= self._margin:
            return
        first, second = self._titles[pair.a], self._titles[pair.b]
        half = format_change(math.exp(abs(found.shift) / 2.0))
        text = (
            f"trials that follow {first} come out {format_change(math.exp(found.shift))} against those that follow "
            f"{second}: the ratio may be off by {half}; let the host settle between trials"
        )
        size = math.expm1(abs(found.shift) / 2.0)
        yield FlagReport("carry-over", f"{first}, {second}", "warning", found.p, size, text)

    # -- what was not found -----------------------------------------------------------------------------------------

    def looked_for(self, found: Iterable[FlagReport]) -> list[str]:
        """Return what was looked for and is not among the flags of the run and its comparisons."""
        kinds = {kind for flag in found for kind in (flag.kind, *flag.also)} | {
            one.kind for findings in (*self._run_findings.values(), *self._own_findings.values()) for one in findings
        }
        longest = max((len(series) for series in self._series().values()), default=0)
        rounds = max((len(own) for own in self._by_treatment.values()), default=0)
        checks = {
            "drift": ("drift", longest >= diagnosis.MIN_DRIFT),
            "step": ("steps", longest > 2 * diagnosis.STEP_SIDE),
            "neighbours": ("neighbours alike", longest >= diagnosis.MIN_NEIGHBOURS),
            "regimes": ("regimes", longest >= diagnosis.MIN_REGIMES),
            "carry-over": ("carry-over", rounds > 2 * diagnosis.STEP_SIDE and bool(self._hosts)),
            "speed": (
                "changes of the hosts' speed",
                any(len(own) >= diagnosis.MIN_DRIFT for own in self._ledger.speeds.values()),
            ),
        }
        return [name for kind, (name, possible) in checks.items() if possible and kind not in kinds]


def series_flags(title: str, values: Values, margin: float) -> Iterator[FlagReport]:
    """Yield what makes the trials of one treatment, in the order in which they ran, more than one number."""
    known = values[np.isfinite(values) & (values > 0.0)]
    findings = diagnosis.find(np.log(known), math.log1p(margin))
    if findings:
        yield _flag(findings, title, "refusal", f"{title}: no single number: {described(findings)}")
    if len(known) < len(values):
        lost = len(values) - len(known)
        text = f"{title}: {lost} of {len(values)} trials have no value: what is left are survivors"
        yield FlagReport("failed", title, "warning", None, lost / len(values), text)


def series_warnings(ledger: Aggregator, trials: TrialTable, margin: float = DEFAULT_MARGIN) -> list[str]:
    """Return the flags of treatments that are compared with nothing, in words."""
    return [
        flag.text
        for index in sorted(trials.figures)
        for flag in series_flags(str(ledger.treatments[index].get("title")), trials.values(index).values, margin)
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


def spread_text(findings: Sequence[Finding], logs: Values, unit: str) -> str:
    """Return what a series of trials shows and which values it has, in words; `logs` are their logarithms."""

    def shown(log: float) -> str:
        return format_value(math.exp(log), unit)

    main = min(findings, key=lambda one: _ORDER[one.kind])
    if main.kind == "regimes" and main.modes is not None:
        return f"{described(findings)}: {shown(main.modes[0])} and {shown(main.modes[1])}"
    if main.kind == "neighbours":
        return f"{described(findings)}: between {shown(float(logs.min()))} and {shown(float(logs.max()))}"
    third = max(1, len(logs) // 3)
    begin, end = (main.at, main.at) if main.at is not None else (third, len(logs) - third)
    first, last = float(np.median(logs[:begin])), float(np.median(logs[end:]))
    return f"{described(findings)}: first {shown(first)}, last {shown(last)}"


def host_names(ledger: Aggregator) -> Mapping[int, str]:
    """Return the host's name of each worker."""
    return {number: str(host.get("host") or host.get("environment") or "") for number, host in ledger.hosts.items()}


def described(findings: Sequence[Finding], unit: str = "trial") -> str:
    """Return findings in words, what explains most first, such as ``two regimes, 1.21x apart, 7 switches``.

    `unit` is what the series is of.
    """
    return ", ".join(_described(one, unit) for one in sorted(findings, key=lambda one: _ORDER[one.kind]))


def _described(one: Finding, unit: str) -> str:
    match one.kind:
        case "regimes":
            return f"two regimes, {math.exp(one.size):.2f}x apart, {one.switches} switches"
        case "step":
            return f"a step of {format_change(math.exp(one.size))} after the {_ordinal(one.at or 0)} {unit}"
        case "drift":
            return f"a drift of {format_change(math.exp(one.size))}"
        case "neighbours":
            return f"neighbours alike, correlation {one.correlation or 0.0:.2f}"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _flag(findings: Sequence[Finding], where: str, level: FlagLevel, text: str) -> FlagReport:
    main: Any = min(findings, key=lambda one: _ORDER[one.kind])
    also = [one.kind for one in findings if one is not main]
    return FlagReport(main.kind, where, level, main.p, math.expm1(main.size), text, also)
