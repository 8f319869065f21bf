"""The verdicts of several runs: new ones against earlier ones, treatment by treatment, or the history of a series.

How the runs lie in time decides what they can show: two single runs nothing; runs of two builds in turns, groups of
four occasions, or one occasion against an archive of five can carry words. Runs of another kind (other host,
versions, parameters) are left out, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import UsageError, did_you_mean
from bench_common.thresholds import has_labels
from bench_master.analysis.harness_limits import ceiling_refusal, cpu_refusal, middle_of
from bench_master.analysis.occasions import (
    are_pairs,
    by_occasion,
    count_occasions,
    is_first_drawn,
    sides_in_time,
    take_turns,
)
from bench_master.analysis.run_checks import findings_data, series_flags
from bench_master.analysis.run_summary import (
    changes_of,
    current_regime,
    known_of_one,
    levels_of,
    noise_floor,
    property_differences,
    read_paths,
    summary_of,
    with_titles_of,
)
from bench_master.analysis.verdict_makers import finite_or_none, make_verdicts, with_verdict, words_of
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import (
    ArchiveReport,
    ChangeReport,
    ComparisonReport,
    DesignReport,
    EnvironmentReport,
    FamilyReport,
    FlagReport,
    NoiseFloorReport,
    PropertyReport,
    RunChecksReport,
    RunFileReport,
    StoppingReport,
    VerdictsReport,
    of_side,
)
from bench_master.formatting import listed, plural
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.summary import RunSummary, TreatmentSummary
from bench_master.verdicts import between_runs, diagnosis
from bench_master.verdicts.between_runs import MIN_ARCHIVE, MIN_PAIRS, RunLevels
from bench_master.verdicts.decision import ALPHA, DEFAULT_MARGIN, Rules, Verdict
from bench_master.verdicts.reasons import MAX_NAMED, Code, Reason, because
from bench_master.verdicts.signed_rank import Values
from bench_master.verdicts.stopping import is_settled, nominal_levels

Design: TypeAlias = Literal["single", "pairs", "groups", "occasions", "blocked", "archive", "few", "history"]

MAX_NEW: Final = 3
"""So many new runs are held against an archive by their mean; more are a group."""
ADVICE: Final = "make both builds treatments of one scenario: then one run decides"
MIN_OCCASIONS: Final = 4
"""Fewest occasions on each side for a word about groups that did not take turns."""
_LEAST: Final = 1e-9
"""What is not above it is 0."""


class Sides(Struct, frozen=True):
    """The runs that count, in the order of time, and the others."""

    earlier: Sequence[RunSummary]
    new: Sequence[RunSummary]
    left_out: Sequence[RunFileReport]
    differences: Sequence[PropertyReport]
    """In what the newest run of each side differs from the other."""
    options: VerdictOptions

    @property
    def design(self) -> Design:
        """What the numbers and times of the runs allow."""
        a, b = len(self.earlier), len(self.new)
        if not b:
            return "history"
        if a == b == 1:
            return "single"
        order = sides_in_time(self.earlier, self.new)
        if a == b >= MIN_PAIRS and are_pairs(order):
            return "pairs"
        turns = take_turns(order)
        if a >= MIN_ARCHIVE and b <= MAX_NEW and not (turns and between_runs.can_rank(a, b)):
            return "archive"
        if not between_runs.can_rank(a, b):
            return "few"
        if turns:
            return "groups"
        apart = [count_occasions(side) for side in (self.earlier, self.new)]
        return "occasions" if min(apart) >= MIN_OCCASIONS else "blocked"

    @property
    def margin(self) -> float:
        """Smaller differences are *same*, as a share."""
        if self.options.margin is not None:
            return self.options.margin
        last = self.new[-1:] or self.earlier[-1:]
        return (last[0].margin if last else None) or DEFAULT_MARGIN


def as_file(run: RunSummary, reason: Reason | None = None) -> RunFileReport:
    """Return a run as one line of the lists of runs."""
    return RunFileReport(run.file, run.run_id, run.created, reason)


def choose_runs(
    earlier: Sequence[RunSummary],
    new: Sequence[RunSummary],
    unreadable: Iterable[tuple[str, str]],
    options: VerdictOptions,
) -> Sides:
    """Return the runs that can be compared.

    A run counts once, and not as its own past. Of one run against one every run counts, whatever it lacks: no word
    depends on it.
    """
    out = [
        RunFileReport(file, None, None, because(Code.UNUSABLE_RUN, kind="unreadable", detail=why))
        for file, why in unreadable
    ]
    alone = len(earlier) == len(new) == 1
    seen = set[str]()
    fresh, past = (_usable(runs, seen, out, alone=alone) for runs in (new, earlier))
    like = fresh or past
    if alone and not past:
        raise UsageError(f"{new[0].file}: is the same run as {earlier[0].file}; name two runs")
    if alone:
        past = [with_titles_of(past[0], fresh[0])]
    if alone or not past:
        return Sides(past, fresh, out, _between(past, fresh, options), options)
    fresh, strange = _alike(fresh, like[-1], options)
    out += strange
    kept, others = _alike(past, like[-1], options)
    if not kept and fresh:
        # All of them differ from the new run in the same: that is what is to be compared, or an accident.
        kept, others = _alike(past, past[-1], options)
    return Sides(kept, fresh, [*out, *others], _between(kept, fresh, options), options)


def _usable(runs: Sequence[RunSummary], seen: set[str], out: list[RunFileReport], *, alone: bool) -> list[RunSummary]:
    """Return the runs that count, in the order of time; add their ids to those `seen`."""
    found = []
    for run in sorted(runs, key=lambda one: (math.isnan(one.began_s), one.began_s)):
        if run.run_id is not None and run.run_id in seen:
            out.append(as_file(run, because(Code.UNUSABLE_RUN, kind="twice", detail="")))
        elif run.problem and not alone:
            out.append(as_file(run, run.problem))
        else:
            found.append(run)
            seen.update({run.run_id} if run.run_id is not None else ())
    return found


def _alike(
    runs: Sequence[RunSummary], like: RunSummary, options: VerdictOptions
) -> tuple[list[RunSummary], list[RunFileReport]]:
    """Return the runs that do not differ from `like` in what refuses a word, and the others with the reason."""
    found: list[RunSummary] = []
    out: list[RunFileReport] = []
    for run in runs:
        wrong = [one for one in property_differences(run, like, options.accept) if one.level == "refusal"]
        shared = run.treatments.keys() & like.treatments.keys()
        if not shared:
            out.append(as_file(run, because(Code.UNUSABLE_RUN, kind="scenario", detail=like.file)))
        elif wrong:
            out.append(as_file(run, because(Code.RUNS_DIFFER, properties=_properties(wrong))))
        else:
            found.append(run)
    return found, out


def _properties(differences: Sequence[PropertyReport]) -> list[dict[str, Any]]:
    """Return properties as data of a reason."""
    return [{"name": one.name, "values": list(one.values.values())} for one in differences]


def _between(
    earlier: Sequence[RunSummary], new: Sequence[RunSummary], options: VerdictOptions
) -> list[PropertyReport]:
    return property_differences(earlier[-1], new[-1], options.accept) if earlier and new else []


# -- the report ---------------------------------------------------------------------------------------------------


def compare_runs(
    sides: Sides, *, anchor: Mapping[str, str] | None = None, last_look: int | None = None
) -> VerdictsReport:
    """Return the verdicts on the new runs; without new ones the history of the earlier ones.

    `anchor` are labels of a treatment that is the same in all runs. Raises `UsageError` if no treatment has them.
    With `last_look` pairs are looked at after each of them, up to so many.
    """
    design = sides.design
    looks = last_look if design == "pairs" else None
    comparisons = [] if design == "history" else _comparisons(sides, design, anchor or {}, looks)
    return make_verdicts(
        VerdictsReport(
            comparisons=comparisons,
            question=_question(sides, design),
            family=FamilyReport(ALPHA, max(1, len(comparisons)), sides.margin, "bonferroni-interval"),
            design=DesignReport(
                grade="D" if design in ("single", "few", "blocked") else "C",
                limits=[_limit(sides, design)],
                scope=_scope(sides),
                unit="occasion" if design in _OF_OCCASIONS else "run",
                stopping=None if looks is None else _stopping(comparisons, len(sides.new), looks),
            ),
            runs=RunChecksReport(_flags(sides, design)),
            environment=EnvironmentReport(sides.differences),
            archive=_archive(sides),
        ),
    )


def _stopping(comparisons: Sequence[ComparisonReport], pairs: int, last: int) -> StoppingReport:
    is_over = all(is_settled(one.verdict, pairs) for one in comparisons)
    why = "settled" if is_over else "at-most" if pairs >= last else "budget"
    return StoppingReport(last=last, look=pairs, nominal=nominal_levels(pairs, last)[0], why=why)


_OF_OCCASIONS: Final = ("archive", "occasions")
"""Designs in which an occasion counts once, however many runs it has."""


def _limit(sides: Sides, design: Design) -> Reason:
    """Return what the design limits the words to, or why it has none."""
    if design == "single":
        return because(Code.ONE_RUN_EACH, properties=[])
    if design == "few":
        return because(Code.TOO_FEW_RUNS, new=len(sides.new), earlier=len(sides.earlier))
    return _blocked(sides.earlier, sides.new) if design == "blocked" else because(Code.UNIT, kind=design)


def _blocked(earlier: Sequence[RunSummary], new: Sequence[RunSummary]) -> Reason:
    apart = [count_occasions(side) for side in (earlier, new)]
    return because(Code.RUNS_IN_BLOCKS, earlier=apart[0], new=apart[1], needed=MIN_OCCASIONS)


def _question(sides: Sides, design: Design) -> str:
    earlier, new = plural(len(sides.earlier), "run"), plural(len(sides.new), "run")
    name = (sides.new or sides.earlier)[-1].scenario if sides.new or sides.earlier else ""
    texts: Mapping[Design, str] = {
        "single": "one run against another",
        "pairs": f"{len(sides.new)} pairs of runs in turns",
        "groups": f"{new} against {earlier}, in turns",
        "archive": f"{new} against {plural(len(sides.earlier), 'earlier run')}",
        "history": f"the history of {earlier}",
    }
    return f"{name}: {texts.get(design, f'{new} against {earlier}')}, margin {100 * sides.margin:.3g} %"


def _scope(sides: Sides) -> str:
    hosts = {host for run in (*sides.earlier, *sides.new) for host in run.hosts}
    return scope_of(hosts, len(sides.earlier) + len(sides.new))


def scope_of(hosts: Iterable[str], runs: int) -> str:
    """Return what verdicts between runs are about."""
    names = sorted(hosts)
    where = f"on {'host' if len(names) == 1 else 'hosts'} {', '.join(names) or 'unknown'}"
    return f"{where}, over {plural(runs, 'run')}"


def _flags(sides: Sides, design: Design) -> list[FlagReport]:
    found = list[FlagReport]()
    if design == "occasions" and max(run.began_s for run in sides.earlier) < min(run.began_s for run in sides.new):
        reason = because(Code.ONE_AFTER_THE_OTHER)
        found.append(FlagReport("one after the other", "runs", "warning", None, None, reason))
    if design == "single":
        found += [
            FlagReport("no measurement", run.file, "warning", None, None, run.problem)
            for run in (*sides.earlier, *sides.new)
            if run.problem and not run.imported
        ]
    if sides.new and (gone := {one for run in sides.new for one in run.treatments} - _titles(sides.earlier)):
        reason = because(Code.NO_COUNTERPART, treatments=sorted(gone))
        found.append(FlagReport("no counterpart", "runs", "warning", None, None, reason))
    return found


def _titles(runs: Iterable[RunSummary]) -> set[str]:
    return {title for run in runs for title in run.treatments}


# -- comparisons --------------------------------------------------------------------------------------------------


def _comparisons(
    sides: Sides, design: Design, anchor: Mapping[str, str], last_look: int | None
) -> list[ComparisonReport]:
    titles = [title for title in sides.new[-1].treatments if title in _titles(sides.earlier)]
    anchored = _anchor_title(sides.new[-1], anchor) if anchor else None
    judged = [title for title in titles if title != anchored]
    pairs = len(sides.new)
    rules = Rules(
        comparisons=len(judged),
        margin=sides.margin,
        look=None if last_look is None else nominal_levels(pairs, last_look),
        last_look=last_look if pairs == last_look else None,
    )
    return [_compare(title, sides, design, anchored, rules) for title in judged]


def _anchor_title(run: RunSummary, anchor: Mapping[str, str]) -> str:
    wanted = " ".join(f"{key}={value}" for key, value in anchor.items())
    found = [one.title for one in run.treatments.values() if has_labels(one.labels, anchor.items())]
    if len(found) != 1:
        known = {f"{key}={value}" for one in run.treatments.values() for key, value in one.labels.items()}
        hint = (
            f"no treatment has these labels{did_you_mean(wanted, known)}" if not found else listed(found, MAX_NAMED)
        )
        raise UsageError(f"--anchor {wanted}: {hint}; name one treatment")
    return found[0]


def _compare(title: str, sides: Sides, design: Design, anchored: str | None, rules: Rules) -> ComparisonReport:
    treatment = sides.new[-1].treatments[title]
    measure = treatment.measure
    rules = replace(rules, lower_is_better=measure.direction == "lower", words=words_of(measure))
    accept = sides.options.accept
    (a, earlier, others), (b, new, _) = (levels_of(side, treatment, accept) for side in (sides.earlier, sides.new))
    runs = earlier, new
    counterparts = [run.treatments[title] for run in sides.earlier if title in run.treatments]
    unknown = [name for own in counterparts for name in known_of_one(own, treatment)]
    limits = [middle_of([run.treatments[title].limits for run in side]) for side in runs]
    limited = ceiling_refusal(limits)
    refused = [
        *([limited] if limited is not None else []),
        *_why_refused(sides, design, len(a), len(b), others, unknown),
    ]
    order = sides_in_time(*runs)
    notes: list[Reason] = []
    if design == "archive" and anchored is not None and not refused:
        past, fresh = (_anchored(runs, treatment, anchored) for runs in (sides.earlier, sides.new))
        if past is not None and fresh is not None and between_runs.anchor_helps(a.values, a.values - past.values):
            a, b, notes = past, fresh, [because(Code.RELATIVE_TO, treatment=anchored)]
    if not len(a) or not len(b):
        refused = refused or [because(Code.NO_VALUE)]
        found = compare_levels(treatment, a, b, None, refused, lost=len(others))
        return _with_series_flags(found, sides) if design == "single" else found
    if design == "single" or (refused and len(a) + len(b) == 2):  # noqa: PLR2004  one run each
        within = _within(sides, treatment, rules)
        return _with_series_flags(compare_levels(treatment, a, b, within, refused, lost=len(others)), sides)
    if design in _OF_OCCASIONS:
        made = len(a), len(b)
        a, b = (by_occasion(own, levels) for own, levels in zip(runs, (a, b), strict=True))
        if made != (len(a), len(b)):
            notes.append(because(Code.OCCASIONS, earlier_runs=made[0], earlier=len(a), new_runs=made[1], new=len(b)))
        refused = refused or _too_few_occasions(design, a, b, notes, runs)
    if design == "archive":
        first = current_regime(a, sides.margin)
        regime = a.part(first)
        if len(regime) < MIN_ARCHIVE:
            refused = refused or [because(Code.LEVEL_CHANGED, runs=len(regime), needed=MIN_ARCHIVE)]
            regime = a
        a = regime
    refused = refused or _why_unsteady(a, b, design, sides.margin, order)
    verdict = _judge(a, b, design, rules) if not refused or min(len(a), len(b)) > 1 else None
    if verdict is not None and not refused and verdict.word != "inconclusive":
        taken = cpu_refusal(limits, finite_or_none(verdict.ratio), sides.margin)
        refused = [taken] if taken is not None else []
    return compare_levels(treatment, a, b, verdict, refused, lost=len(others), notes=notes)


def _too_few_occasions(
    design: Design, a: RunLevels, b: RunLevels, notes: Sequence[Reason], runs: Sequence[Sequence[RunSummary]]
) -> list[Reason]:
    """Return why runs of too few occasions carry no word; empty if there are enough."""
    if design == "archive" and len(a) < MIN_ARCHIVE:
        return [*notes, because(Code.TOO_FEW_OCCASIONS, earlier=len(a), needed=MIN_ARCHIVE)]
    if design == "occasions" and min(len(a), len(b)) < MIN_OCCASIONS:
        return [_blocked(*runs)]
    return []


def _why_unsteady(a: RunLevels, b: RunLevels, design: Design, margin: float, order: Sequence[int]) -> list[Reason]:
    """Return why runs are no independent measurements of one level, in the order of time; empty if they look so.

    Unlike rounds of a run they have no drawn order that would cancel a drift. Of pairs in which the same side is
    always first a steady drift is a difference like any other, so the levels themselves must be steady, too.
    """
    size, kind = math.log1p(margin), "archive"
    found: list[diagnosis.Finding] = []
    if design == "archive":
        found = diagnosis.find(a.values, size)
    elif design == "pairs" and len(a) == len(b):
        found, kind = diagnosis.find(b.values - a.values, size), "pairs"
        if not found and not is_first_drawn(order):
            found, kind = diagnosis.find(_in_time(a, b, order), size), "turns"
    elif design == "occasions":
        # Whatever made one side drift goes on between the sides.
        drift, kind = diagnosis.shared_drift([a.values, b.values]), "sides"
        if drift is not None and (drift.p or 0.0) <= diagnosis.TREND_LEVEL and abs(drift.size) > size:
            found = [drift]
    return [because(Code.UNSTABLE_RUNS, kind=kind, findings=findings_data(found))] if found else []


def _in_time(a: RunLevels, b: RunLevels, order: Sequence[int]) -> Values:
    """Return the levels of all runs in the order of time, each less the median of its side."""
    left = [iter((levels.values - np.median(levels.values)).tolist()) for levels in (a, b)]
    return np.array([next(left[side]) for side in order])


def _judge(a: RunLevels, b: RunLevels, design: Design, rules: Rules) -> Verdict | None:
    if design == "pairs" and len(a) == len(b):
        return between_runs.of_pairs(a, b, rules)
    if design == "archive":
        return between_runs.against_archive(a, b, rules)
    return between_runs.of_groups(a, b, rules) if between_runs.can_rank(len(a), len(b)) else None


def _anchored(runs: Sequence[RunSummary], treatment: TreatmentSummary, anchor: str) -> RunLevels | None:
    """Return the levels less those of the anchor in the same runs; None where a run lacks either."""
    values = list[RunLevels]()
    for run in runs:
        own, other = run.treatments.get(treatment.title), run.treatments.get(anchor)
        if own is None or other is None or not own.has_level or not other.has_level:
            return None
        one, base = own.levels, other.levels
        values.append(RunLevels(one.values - base.values, one.low - base.high, one.high - base.low))
    return RunLevels.exact([]).joined(*values)


def _why_refused(
    sides: Sides, design: Design, earlier: int, new: int, others: Sequence[Reason], unknown: Sequence[str]
) -> list[Reason]:
    """Return why there can be no word; empty if there can."""
    wrong = [one for one in sides.differences if one.level == "refusal"]
    if design == "single":
        origin = [run.problem for run in (*sides.earlier, *sides.new) if run.imported and run.problem][:1]
        return [
            *others,
            *origin,
            *([because(Code.ONE_SIDE_STATES, names=list(unknown))] if unknown else []),
            because(Code.ONE_RUN_EACH, properties=[one.name for one in wrong]),
        ]
    if wrong:
        return [because(Code.RUNS_DIFFER, properties=_properties(wrong))]
    if not earlier or not new:
        return [others[-1] if others else because(Code.NO_VALUE)]
    if design == "few":
        return [because(Code.TOO_FEW_RUNS, new=new, earlier=earlier)]
    if design == "archive" and earlier < MIN_ARCHIVE:
        last = others[-1] if others else None
        return [because(Code.TOO_FEW_EARLIER_RUNS, earlier=earlier, needed=MIN_ARCHIVE, since=None, others=last)]
    if design == "blocked":
        return [_blocked(sides.earlier, sides.new)]
    if design == "groups" and not between_runs.can_rank(earlier, new):
        return [because(Code.TOO_FEW_RUNS, new=new, earlier=earlier)]
    if design == "pairs" and earlier != new:
        return [because(Code.PAIR_WITHOUT_VALUE)]
    return []


def _within(sides: Sides, treatment: TreatmentSummary, rules: Rules) -> Verdict | None:
    """Return what the trials of one run each would say if runs did not differ: for the interval alone."""
    levels = []
    for run in (sides.earlier[-1], sides.new[-1]):
        logs = run.treatments[treatment.title].trials.scaled(rules)
        levels.append(
            RunLevels(logs.values, logs.low, logs.high).taken(np.flatnonzero(np.isfinite(logs.values)).tolist())
        )
    a, b = levels
    return between_runs.of_groups(a, b, rules) if between_runs.can_rank(len(a), len(b)) else None


def _with_series_flags(report: ComparisonReport, sides: Sides) -> ComparisonReport:
    """Return the comparison of two runs with what makes the trials of either more than one number."""
    pair = [sides.earlier[-1].treatments[report.b], sides.new[-1].treatments[report.b]]
    flags = [
        list(series_flags(of_side(one.title, side), one.trials.values, one.measure.unit, sides.margin))
        for one, side in zip(pair, ("earlier", "new"), strict=True)
    ]
    whole = [all(flag.level != "refusal" for flag in own) for own in flags]
    return replace(
        report,
        a=report.a if pair[0].title == report.b else pair[0].title,
        a_value=report.a_value if whole[0] else None,
        b_value=report.b_value if whole[1] else None,
        flags=[*report.flags, *flags[0], *flags[1]],
    )


def compare_levels(
    treatment: TreatmentSummary,
    a: RunLevels,
    b: RunLevels,
    verdict: Verdict | None,
    refused: Sequence[Reason] = (),
    *,
    lost: int = 0,
    notes: Sequence[Reason] = (),
) -> ComparisonReport:
    """Return a treatment's comparison: earlier runs `a`, new ones `b`; see `with_verdict` for the reasons."""
    known, measure = bool(len(a)) and bool(len(b)), treatment.measure
    report = ComparisonReport(
        a="earlier runs" if len(a) > 1 else "the earlier run",
        b=treatment.title,
        name=treatment.title,
        labels=dict(treatment.labels),
        measure=measure.name,
        unit=measure.unit,
        direction=measure.direction,
        rounds=min(len(a), len(b)) if len(b) > MAX_NEW or not known else len(a),
        lost=lost,
        a_value=_median(a) if len(a) else None,
        b_value=_median(b) if len(b) else None,
        reasons=[*refused],
    )
    if verdict is not None:
        shown = _shown(verdict, is_refused=bool(refused))
        return with_verdict(replace(report, tipping=verdict.tipping_point), shown, refused, notes)
    if not known:
        return report
    ratio = math.exp(float(b.values.mean() - a.values.mean()))
    return replace(report, ratio=_positive(ratio), tipping=max(ratio, 1.0 / ratio) - 1.0)


def _shown(verdict: Verdict, *, is_refused: bool) -> Verdict:
    """Return a verdict with open ends where an end is 0, and without an effect where no word could have shown it."""
    effect = math.nan if is_refused else _positive(verdict.smallest_effect)
    ratio, low, high = map(_positive, (verdict.ratio, verdict.low, verdict.high))
    return replace(verdict, ratio=ratio, low=low, high=high, smallest_effect=effect)


def _positive(value: float) -> float:
    return value if value > _LEAST else math.nan


def _median(levels: RunLevels) -> float:
    return math.exp(float(np.median(levels.values)))


# -- a run's own report ---------------------------------------------------------------------------------------------


def add_earlier_runs(verdicts: VerdictsReport | None, run: MeasuredRun, options: VerdictOptions) -> VerdictsReport:
    """Return the verdicts of a run with those against the earlier runs that the options name.

    Raises `UsageError` and `StatsFileError` for files and folders that cannot be read.
    """
    earlier, unreadable = read_paths(options.earlier, options.failures)
    if verdicts is not None and options.margin is None:
        options = replace(options, margin=verdicts.family.margin)
    sides = choose_runs(earlier, [summary_of(run, options.failures)], unreadable, options)
    found = compare_runs(sides)
    if verdicts is None:
        return found
    comparisons = [_with_next_run(each, sides) for each in verdicts.comparisons]
    return beside(replace(verdicts, comparisons=comparisons), found)


def beside(verdicts: VerdictsReport, found: VerdictsReport) -> VerdictsReport:
    """Return the verdicts of a run with those between runs beside them."""
    archive = found.archive
    summary = None if archive is None else ArchiveReport(archive.runs, archive.sd, archive.low, archive.high)
    return replace(verdicts, archive=summary, between=found)


def _with_next_run(comparison: ComparisonReport, sides: Sides) -> ComparisonReport:
    """Return a comparison within the run, with where earlier runs let the next run's ratio be expected."""
    like = sides.new[-1].treatments if sides.new else {}
    if comparison.scale != "ratio" or comparison.a not in like or comparison.b not in like:
        return comparison
    accept = sides.options.accept
    ratios = []
    for run in sides.earlier:
        a, b = (levels_of([run], like[title], accept)[0].values for title in (comparison.a, comparison.b))
        if len(a) and len(b):
            ratios.append(float(b[0] - a[0]))
    levels = RunLevels.exact(ratios)
    low, high = between_runs.expected(levels.part(current_regime(levels, sides.margin)))
    return replace(comparison, next_low=low, next_high=high)


# -- the archive --------------------------------------------------------------------------------------------------


def _archive(sides: Sides) -> ArchiveReport:
    noise, changes = [], []
    like = (sides.new or sides.earlier)[-1] if sides.new or sides.earlier else None
    accept, left_out = sides.options.accept, {run.file: run for run in sides.earlier}
    for treatment in like.treatments.values() if like is not None else ():
        levels, runs, _ = levels_of(sides.earlier, treatment, accept)
        for run in runs:
            left_out.pop(run.file, None)
        changes += changes_of(runs, levels, treatment, sides.margin)
        if len(levels):
            levels = by_occasion(runs, levels)
        floor = noise_floor(levels, treatment, sides.margin)
        noise += [floor] if floor is not None else []
    changes = sorted(changes, key=lambda each: each.created or "")
    if sides.new or like is None or not like.treatments:
        return archive_of([as_file(run) for run in sides.earlier], sides.new, sides.left_out, noise, changes)
    # A history has the runs of its series alone.
    first = next(iter(like.treatments.values()))
    others = [as_file(run, levels_of([run], first, accept)[2][0]) for run in left_out.values()]
    earlier = [as_file(run) for run in sides.earlier if run.file not in left_out]
    return archive_of(earlier, (), [*sides.left_out, *others], noise, changes)


def archive_of(
    earlier: Sequence[RunFileReport],
    new: Sequence[RunSummary],
    left_out: Sequence[RunFileReport],
    noise: Sequence[NoiseFloorReport],
    changes: Sequence[ChangeReport] = (),
) -> ArchiveReport:
    """Return which runs were compared, and by how much the noisiest series of the earlier ones varies."""
    worst = max(noise, key=lambda each: each.sd or 0.0, default=None)
    spread = (worst.sd, worst.low, worst.high) if worst else (None, None, None)
    files = [as_file(run) for run in new]
    return ArchiveReport(len(earlier), *spread, earlier, files, list(left_out), noise, list(changes))
