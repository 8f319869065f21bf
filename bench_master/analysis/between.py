"""The verdicts of several runs: new ones against earlier ones, treatment by treatment, or the history of a series.

How the runs lie in time decides what they can show: two single runs nothing; runs of two builds in turns, two groups
of four, or one run against an archive of five can carry words. Runs of another kind (other host, versions,
parameters) are left out, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import numpy as np

from bench_common.errors import UsageError, did_you_mean
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import label_equals
from bench_master.analysis.run_checks import described, series_flags
from bench_master.analysis.run_summary import (
    RunSummary,
    TreatmentSummary,
    changes_of,
    current_regime,
    known_of_one,
    levels_of,
    noise_floor,
    property_differences,
    read_paths,
    summarize,
    with_titles_of,
)
from bench_master.analysis.verdict_types import (
    VERDICTS_FORMAT,
    VERDICTS_VERSION,
    ArchiveReport,
    ComparisonReport,
    DesignReport,
    EnvironmentReport,
    FamilyReport,
    FlagReport,
    PropertyReport,
    RunChecksReport,
    RunFileReport,
    VerdictOptions,
    VerdictsReport,
    verdict_lines,
)
from bench_master.formatting import format_change, plural
from bench_master.verdicts import between_runs, diagnosis
from bench_master.verdicts.between_runs import MIN_ARCHIVE, MIN_PAIRS, RunLevels
from bench_master.verdicts.decision import ALPHA, DEFAULT_MARGIN, Rules, Verdict, Word

Design: TypeAlias = Literal["single", "pairs", "groups", "archive", "few", "history"]

MAX_NEW: Final = 3
"""So many new runs are held against an archive by their mean; more are a group."""
ADVICE: Final = "make both builds treatments of one scenario: then one run decides"
_LONG: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Sides:
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
        if a == b >= MIN_PAIRS and self.alternate:
            return "pairs"
        if a >= MIN_ARCHIVE and b <= MAX_NEW:
            return "archive"
        return "groups" if between_runs.can_rank(a, b) else "few"

    @property
    def alternate(self) -> bool:
        """Whether the runs of both sides took turns."""
        marked = sorted([(run.began_s, 0) for run in self.earlier] + [(run.began_s, 1) for run in self.new])
        sides = [side for _, side in marked]
        return all(one != other for one, other in pairwise(sides))

    @property
    def margin(self) -> float:
        """Smaller differences are *same*, as a share."""
        if self.options.margin is not None:
            return self.options.margin
        last = self.new[-1:] or self.earlier[-1:]
        return (last[0].margin if last else None) or DEFAULT_MARGIN


def as_file(run: RunSummary, why: str = "") -> RunFileReport:
    """Return a run as one line of the lists of runs."""
    return RunFileReport(run.file, run.run_id, run.created, why)


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
    out = [RunFileReport(file, None, None, why) for file, why in unreadable]
    alone = len(earlier) == len(new) == 1
    fresh, ids = _usable(new, set(), out, alone=alone)
    past, _ = _usable(earlier, ids, out, alone=alone)
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


def _usable(
    runs: Sequence[RunSummary], seen: set[str], out: list[RunFileReport], *, alone: bool
) -> tuple[list[RunSummary], set[str]]:
    """Return the runs that count, in the order of time, and their ids together with those `seen`."""
    found, ids = [], set(seen)
    for run in sorted(runs, key=lambda one: (math.isnan(one.began_s), one.began_s)):
        if run.run_id is not None and run.run_id in ids:
            out.append(as_file(run, "the same run as another file, or as the new one"))
        elif run.problem and not alone:
            out.append(as_file(run, run.problem))
        else:
            found.append(run)
            ids.update({run.run_id} if run.run_id is not None else ())
    return found, ids


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
            out.append(as_file(run, f"another scenario: no treatment in common with {like.file}"))
        elif wrong:
            out.append(as_file(run, f"differs in {_names(wrong)}"))
        else:
            found.append(run)
    return found, out


def _quoted(name: str) -> str:
    return f"'{name}'" if " " in name else name


def _names(differences: Sequence[PropertyReport], most: int = 3) -> str:
    shown = [f"{one.name} ({' against '.join(one.values.values())})" for one in differences[:most]]
    return ", ".join(shown) + (f" and {len(differences) - most} more" if len(differences) > most else "")


def _between(
    earlier: Sequence[RunSummary], new: Sequence[RunSummary], options: VerdictOptions
) -> list[PropertyReport]:
    return property_differences(earlier[-1], new[-1], options.accept) if earlier and new else []


# -- the report ---------------------------------------------------------------------------------------------------


def compare_runs(sides: Sides, *, anchor: Mapping[str, str] | None = None) -> VerdictsReport:
    """Return the verdicts on the new runs; without new ones the history of the earlier ones.

    `anchor` are labels of a treatment that is the same in all runs. Raises `UsageError` if no treatment has them.
    """
    design = sides.design
    comparisons = [] if design == "history" else _comparisons(sides, design, anchor or {})
    refused = list(dict.fromkeys(each.reason for each in comparisons if each.verdict == "refused" and each.reason))
    archive = _archive(sides)
    flags = _flags(sides, design)
    return VerdictsReport(
        format=VERDICTS_FORMAT,
        version=VERDICTS_VERSION,
        answer=_history_answer(archive) if design == "history" else _answer(comparisons),
        question=_question(sides, design),
        family=FamilyReport(ALPHA, max(1, len(comparisons)), sides.margin, "bonferroni-interval"),
        design=DesignReport(
            grade="D" if design in ("single", "few") else "C",
            reasons=[_REASONS[design]],
            order=None,
            seed=None,
            rounds=0,
            scope=_scope(sides),
            unit="run",
            stopping=None,
        ),
        comparisons=comparisons,
        runs=RunChecksReport(flags=flags, looked_for=[], noise_floor=None),
        environment=EnvironmentReport(differences=list(sides.differences)),
        archive=archive,
        refused=refused,
        gates=[],
        exit_code=0,
    )


_REASONS: Final[Mapping[Design, str]] = {
    "single": "one run each: how much runs differ cannot be known from one",
    "few": "too few runs: 5 earlier ones, 4 against 4, or 6 pairs in turns can carry a word",
    "pairs": "runs in turns: the unit is the pair of runs",
    "groups": "two groups of runs: the unit is the run",
    "archive": "against earlier runs: the unit is the run",
    "history": "a series of runs: the unit is the run",
}


def _question(sides: Sides, design: Design) -> str:
    earlier, new = plural(len(sides.earlier), "run"), plural(len(sides.new), "run")
    margin = f"margin {100 * sides.margin:.3g} %"
    name = (sides.new or sides.earlier)[-1].scenario if sides.new or sides.earlier else ""
    texts: Mapping[Design, str] = {
        "single": f"{name}: one run against another, {margin}",
        "pairs": f"{name}: {len(sides.new)} pairs of runs in turns, {margin}",
        "groups": f"{name}: {new} against {earlier}, {margin}",
        "archive": f"{name}: {new} against {earlier.replace(' run', ' earlier run')}, {margin}",
        "few": f"{name}: {new} against {earlier}, {margin}",
        "history": f"{name}: the history of {earlier}, {margin}",
    }
    return texts[design]


def _scope(sides: Sides) -> str:
    hosts = sorted({host for run in (*sides.earlier, *sides.new) for host in run.hosts})
    where = f"on {'host' if len(hosts) == 1 else 'hosts'} {', '.join(hosts) or 'unknown'}"
    return f"{where}, over {plural(len(sides.earlier) + len(sides.new), 'run')}"


def _flags(sides: Sides, design: Design) -> list[FlagReport]:
    found = []
    if design == "groups" and max(run.began_s for run in sides.earlier) < min(run.began_s for run in sides.new):
        text = (
            "all runs of one group came before all of the other: whatever changed on the host between them looks the "
            "same as a difference; run them in turns"
        )
        found.append(FlagReport("one after the other", "runs", "warning", None, None, text))
    found += [
        FlagReport("no measurement", run.file, "warning", None, None, f"{run.file}: {run.problem}")
        for run in (*sides.earlier, *sides.new)
        if run.problem and not run.imported and design == "single"
    ]
    if sides.new and (gone := {one for run in sides.new for one in run.treatments} - _titles(sides.earlier)):
        text = f"in no earlier run, so not compared: {', '.join(sorted(gone))}"
        found.append(FlagReport("no counterpart", "runs", "warning", None, None, text))
    return found


def _titles(runs: Iterable[RunSummary]) -> set[str]:
    return {title for run in runs for title in run.treatments}


def _answer(comparisons: Sequence[ComparisonReport]) -> str:
    return verdict_lines(comparisons)[0] if comparisons else "REFUSED nothing to compare"


def _history_answer(archive: ArchiveReport) -> str:
    if not archive.changes:
        return f"no change in {plural(archive.runs, 'run')}"
    last = archive.changes[-1]
    return (
        f"{last.word.upper()} {last.name} {format_change(last.ratio, sided=True)} since {last.created or last.since}"
    )


# -- comparisons --------------------------------------------------------------------------------------------------


def _comparisons(sides: Sides, design: Design, anchor: Mapping[str, str]) -> list[ComparisonReport]:
    titles = [title for title in sides.new[-1].treatments if title in _titles(sides.earlier)]
    anchored = _anchor_title(sides.new[-1], anchor) if anchor else None
    judged = [title for title in titles if title != anchored]
    return [_compare(title, sides, design, anchored, len(judged)) for title in judged]


def _anchor_title(run: RunSummary, anchor: Mapping[str, str]) -> str:
    wanted = " ".join(f"{key}={value}" for key, value in anchor.items())
    found = [
        one.title
        for one in run.treatments.values()
        if all(key in one.labels and label_equals(one.labels[key], value) for key, value in anchor.items())
    ]
    if len(found) != 1:
        known = {f"{key}={value}" for one in run.treatments.values() for key, value in one.labels.items()}
        what = "no treatment has" if not found else f"{len(found)} treatments have"
        raise UsageError(f"--anchor {wanted}: {what} these labels{did_you_mean(wanted, known)}; name one treatment")
    return found[0]


def _compare(title: str, sides: Sides, design: Design, anchored: str | None, comparisons: int) -> ComparisonReport:
    treatment = sides.new[-1].treatments[title]
    figure = treatment.figure
    rules = Rules(
        comparisons=comparisons,
        margin=sides.margin,
        lower_is_better=figure.direction == "lower",
        words=("slower", "faster") if figure.is_time_or_rate else ("worse", "better"),
    )
    a, others = levels_of(sides.earlier, treatment, sides.options.accept)
    b, _ = levels_of(sides.new, treatment, sides.options.accept)
    counterparts = [run.treatments[title] for run in sides.earlier if title in run.treatments]
    unknown = [name for own in counterparts for name in known_of_one(own, treatment)]
    reason = _why_refused(sides, design, len(a), len(b), others, unknown)
    note = None
    if design == "archive" and anchored is not None and reason is None:
        past, fresh = (_anchored(runs, treatment, anchored) for runs in (sides.earlier, sides.new))
        if past is not None and fresh is not None and between_runs.anchor_helps(a.values, a.values - past.values):
            a, b, note = past, fresh, f"relative to {anchored}"
    if not len(a) or not len(b):
        found = comparison_of(title, treatment, a, b, None, reason or "no value on one side", len(others))
        return _with_series_flags(found, sides) if design == "single" else found
    if design == "single" or (reason is not None and len(a) + len(b) == 2):  # noqa: PLR2004  one run each
        within = _within(sides, treatment, rules)
        return _with_series_flags(comparison_of(title, treatment, a, b, within, reason, len(others)), sides)
    if design == "archive":
        first = current_regime(a, sides.margin)
        regime = a.part(first)
        if len(regime) < MIN_ARCHIVE:
            reason = reason or f"the level changed {plural(len(regime), 'run')} ago; {MIN_ARCHIVE} are needed since"
            regime = a
        a = regime
    reason = reason or _why_unsteady(a, b, design, sides.margin)
    verdict = _judge(a, b, design, rules) if reason is None or min(len(a), len(b)) > 1 else None
    found = comparison_of(title, treatment, a, b, verdict, reason, len(others))
    if note is not None and reason is None:
        found = replace(found, reason=f"{note}; {found.reason}" if found.reason else note)
    return found


def _why_unsteady(a: RunLevels, b: RunLevels, design: Design, margin: float) -> str | None:
    """Return why runs are no independent measurements of one level, in the order of time; None if they look so.

    Unlike rounds of a run they have no drawn order that would cancel a drift.
    """
    if design == "archive":
        series, what, unit = a.values, "the levels of the earlier runs are no steady series", "run"
    elif design == "pairs" and len(a) == len(b):
        series, what, unit = b.values - a.values, "the differences of the pairs are no steady series", "pair"
    else:
        return None
    found = diagnosis.find(series, math.log1p(margin))
    return f"{what}: {described(found, unit)}" if found else None


def _judge(a: RunLevels, b: RunLevels, design: Design, rules: Rules) -> Verdict | None:
    if design == "pairs" and len(a) == len(b):
        return between_runs.of_pairs(a, b, rules)
    if design == "archive":
        return between_runs.against_archive(a, b, rules)
    return between_runs.of_groups(a, b, rules) if between_runs.can_rank(len(a), len(b)) else None


def _anchored(runs: Sequence[RunSummary], treatment: TreatmentSummary, anchor: str) -> RunLevels | None:
    """Return the levels less those of the anchor in the same runs; None where a run lacks either."""
    values = []
    for run in runs:
        own, other = run.treatments.get(treatment.title), run.treatments.get(anchor)
        if own is None or other is None or not own.has_level or not other.has_level:
            return None
        one, base = own.levels, other.levels
        values.append((one.values - base.values, one.low - base.high, one.high - base.low))
    return RunLevels(*(np.concatenate(part) for part in zip(*values, strict=True)))


def _why_refused(
    sides: Sides, design: Design, earlier: int, new: int, others: Sequence[str], unknown: Sequence[str]
) -> str | None:
    """Return why there can be no word; None if there can."""
    if design == "single":
        wrong = [one for one in sides.differences if one.level == "refusal"]
        more = " ..." if len(wrong) > 2 else ""  # noqa: PLR2004  names
        names = ", ".join(one.name for one in wrong[:2])
        also = f"; they also differ in {names}{more}" if wrong else ""
        origin = next((run.problem for run in (*sides.earlier, *sides.new) if run.imported), None)
        alone = [f"only one side states {_few(unknown)}"] if unknown else []
        return "; ".join([*others, *([origin] if origin else []), *alone, f"{_REASONS['single']}{also}"])
    if wrong := [one for one in sides.differences if one.level == "refusal"]:
        return f"the sides differ in {_names(wrong)}; --accept {_quoted(wrong[0].name)} if that is what you compare"
    if not earlier or not new:
        return others[-1] if others else "no value"
    if design == "few":
        return f"{_REASONS['few']}; here {new} against {earlier}"
    if design == "archive" and earlier < MIN_ARCHIVE:
        last = f" (the others: {others[-1]})" if others else ""
        return f"only {plural(earlier, 'earlier run')} of this kind{last}; {MIN_ARCHIVE} are needed"
    if design == "groups" and not between_runs.can_rank(earlier, new):
        return f"only {new} against {earlier} runs have a value; 4 against 4 are needed"
    if design == "pairs" and earlier != new:
        return "a run of a pair has no value"
    return None


def _few(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _within(sides: Sides, treatment: TreatmentSummary, rules: Rules) -> Verdict | None:
    """Return what the trials of one run each would say if runs did not differ: for the interval alone."""
    trials = [run.treatments[treatment.title].trials for run in (sides.earlier[-1], sides.new[-1])]
    levels = []
    for one in trials:
        known = np.isfinite(one.values) & (one.values > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            levels.append(RunLevels(*(np.log(part[known]) for part in (one.values, one.low, one.high))))
    a, b = levels
    return between_runs.of_groups(a, b, rules) if between_runs.can_rank(len(a), len(b)) else None


def _with_series_flags(report: ComparisonReport, sides: Sides) -> ComparisonReport:
    """Return the comparison of two runs with what makes the trials of either more than one number."""
    pair = [sides.earlier[-1].treatments[report.b], sides.new[-1].treatments[report.b]]
    flags = [list(series_flags(one.title, one.trials.values, sides.margin)) for one in pair]
    whole = [all(flag.level != "refusal" for flag in own) for own in flags]
    return replace(
        report,
        a=report.a if pair[0].title == report.b else pair[0].title,
        a_value=report.a_value if whole[0] else None,
        b_value=report.b_value if whole[1] else None,
        flags=[*report.flags, *flags[0], *flags[1]],
    )


def comparison_of(
    title: str,
    treatment: TreatmentSummary,
    a: RunLevels,
    b: RunLevels,
    verdict: Verdict | None,
    reason: str | None,
    lost: int,
) -> ComparisonReport:
    """Return a treatment's comparison: earlier runs `a`, new ones `b`; a `reason` refuses the word of the verdict."""
    known = bool(len(a)) and bool(len(b))
    ratio = math.exp(float(b.values.mean() - a.values.mean())) if known else None
    if verdict is not None:
        ratio = verdict.ratio
    tipping = None if verdict is None else verdict.tipping_point
    if verdict is None and ratio is not None:
        tipping = max(ratio, 1.0 / ratio) - 1.0
    word: Word = "refused" if reason is not None or verdict is None else verdict.word
    figure = treatment.figure
    return ComparisonReport(
        a="earlier runs" if len(a) > 1 else "the earlier run",
        b=title,
        name=title,
        group="",
        labels=treatment.labels,
        figure=figure.name,
        unit=figure.unit,
        direction=figure.direction,
        verdict=word,
        reason=reason if reason is not None else verdict.reason if verdict else "too few runs",
        ratio=_finite(ratio),
        low=None if verdict is None else _finite(verdict.low),
        high=None if verdict is None else _finite(verdict.high),
        scale="ratio",
        confidence=1.0 - ALPHA,
        rounds=min(len(a), len(b)) if len(b) > MAX_NEW or not known else len(a),
        lost=lost,
        p=None if verdict is None or math.isnan(verdict.p) else verdict.p,
        mde=None if verdict is None or word == "refused" else _finite(verdict.smallest_effect),
        tipping=tipping,
        more_rounds=None if verdict is None or word == "refused" else verdict.more_rounds,
        band=None,
        a_value=math.exp(float(np.median(a.values))) if known else None,
        b_value=math.exp(float(np.median(b.values))) if known else None,
        jobs_per_trial=None,
        effective_jobs=None,
        per_round=[],
        per_host=[],
        quantiles=[],
        flags=[],
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > _LONG else None


# -- a run's own report ---------------------------------------------------------------------------------------------


def add_earlier_runs(verdicts: VerdictsReport | None, stats: StatsFile, options: VerdictOptions) -> VerdictsReport:
    """Return the verdicts of a run with those against the earlier runs that the options name.

    Raises `UsageError` and `StatsFileError` for files and folders that cannot be read.
    """
    earlier, unreadable = read_paths(options.earlier, options.failures)
    if verdicts is not None and options.margin is None:
        options = replace(options, margin=verdicts.family.margin)
    sides = choose_runs(earlier, [summarize(stats, options.failures)], unreadable, options)
    found = compare_runs(sides)
    if verdicts is None:
        return found
    archive = found.archive
    summary = None if archive is None else ArchiveReport(archive.runs, archive.sd, archive.low, archive.high)
    comparisons = [_with_next_run(each, sides) for each in verdicts.comparisons]
    return replace(verdicts, comparisons=comparisons, archive=summary, between=found)


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
    regime = levels.part(current_regime(levels, sides.margin))
    if len(regime) < MIN_ARCHIVE:
        return comparison
    mean, reach = float(regime.values.mean()), between_runs.next_run(regime)
    return replace(comparison, next_low=math.exp(mean - reach), next_high=math.exp(mean + reach))


# -- the archive --------------------------------------------------------------------------------------------------


def _archive(sides: Sides) -> ArchiveReport:
    noise, changes = [], []
    like = (sides.new or sides.earlier)[-1] if sides.new or sides.earlier else None
    for treatment in like.treatments.values() if like is not None else ():
        accept = sides.options.accept
        runs = [run for run in sides.earlier if len(levels_of([run], treatment, accept)[0])]
        levels, _ = levels_of(runs, treatment, accept)
        changes += changes_of(runs, levels, treatment, sides.margin)
        floor = noise_floor(levels, treatment, sides.margin)
        noise += [floor] if floor is not None else []
    worst = max(noise, key=lambda each: each.sd or 0.0, default=None)
    return ArchiveReport(
        runs=len(sides.earlier),
        sd=worst.sd if worst else None,
        low=worst.low if worst else None,
        high=worst.high if worst else None,
        earlier=[as_file(run) for run in sides.earlier],
        new=[as_file(run) for run in sides.new],
        left_out=list(sides.left_out),
        noise=noise,
        changes=sorted(changes, key=lambda each: each.created or ""),
    )
