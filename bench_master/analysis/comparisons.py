"""The verdicts of a run: which treatments are compared, by which figure, and what may be said of each comparison.

A treatment is compared with its counterpart: the treatment with the baseline's labels and otherwise its own. All
comparisons of a report hold together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_common.stats.block_types import Header
from bench_common.thresholds import label_equals
from bench_master.analysis.early_stopping import Looks, extended_alpha, find_looks, noise_floor, stopping_flags
from bench_master.analysis.run_checks import RunChecks
from bench_master.analysis.side_differences import SideDifferences
from bench_master.analysis.treatment_types import TreatmentReport
from bench_master.analysis.verdict_makers import (
    Compared,
    Parts,
    finite_or_none,
    make_comparison,
    make_verdicts,
    words_of,
)
from bench_master.analysis.verdict_types import (
    ComparisonReport,
    DesignReport,
    FamilyReport,
    FlagLevel,
    FlagReport,
    RunChecksReport,
    VerdictOptions,
    VerdictsReport,
)
from bench_master.analysis.within_trials import (
    between_hosts,
    cluster_note,
    effective_jobs,
    failure_flags,
    host_effects,
    hosts_disagree,
    shift_function,
)
from bench_master.run_data.aggregate import Aggregator
from bench_master.run_data.trial_values import TrialTable
from bench_master.scenario.keys_run import label_text
from bench_master.scenario.model import AGAIN, is_again
from bench_master.verdicts.confounds import Design, RunDesign, grade_run, grade_sides
from bench_master.verdicts.decision import DEFAULT_MARGIN, Rules, TrialValues, compare
from bench_master.verdicts.quantiles import enough_jobs, jobs_needed
from bench_master.verdicts.reasons import Code, Reason, because
from bench_master.verdicts.signed_rank import MIN_ROUNDS


class Pair(Struct, frozen=True):
    """Two treatments to compare, by index: `b` against its baseline `a`."""

    a: int
    b: int
    name: str
    """What tells `b` from `a`."""
    group: str
    """What both have in common, where that tells groups of comparisons apart."""


class Evidence(Struct, frozen=True):
    """What verdicts are made of."""

    header: Header
    """Header of the stats file."""
    ledger: Aggregator
    """All that the file says of hosts, trials, jobs and metrics."""
    trials: TrialTable
    """The value of each trial."""
    options: VerdictOptions
    """What the command line says."""
    pairs: Sequence[Pair]
    """The comparisons, which hold together."""
    margin: float
    """Smaller differences are *same*, as a share."""
    looks: Looks | None = None
    """The looks at a run that went on until its verdicts were settled; None for a fixed number of rounds."""

    @property
    def alpha(self) -> float:
        """Return how often any of the comparisons may err."""
        return extended_alpha(len(self.ledger.plan.extensions))

    def title(self, treatment: int) -> str:
        """Return a treatment's title."""
        return str(self.ledger.treatments[treatment].get("title"))


def build_verdicts(
    header: Header, ledger: Aggregator, trials: TrialTable, options: VerdictOptions
) -> VerdictsReport | None:
    """Return the verdicts of a run; None where there are no two treatments to compare.

    The options are checked: see `bench_master.analysis.option_checks`.
    """
    judged = [
        index
        for index in trials.figures
        if not is_again(ledger.treatments[index].get("labels", {}))
        and not (ledger.treatments[index].get("optional") and not ledger.outcomes[index]["done"])
    ]
    stored = header.get("verdicts") or {}
    wanted = options.baseline or stored.get("baseline") or {}
    every = {index: dict(ledger.treatments[index].get("labels", {})) for index in trials.figures}
    again = {index: own for index, own in every.items() if is_again(own)}
    every = {index: own for index, own in every.items() if index not in again}
    baseline = {key: label_text(value) for key, value in wanted.items()}
    pairs, against = find_pairs({index: every[index] for index in judged}, baseline)
    if not pairs:
        return None
    margin = options.margin if options.margin is not None else stored.get("margin") or DEFAULT_MARGIN
    split = ledger.split_blocks()
    trials = trials.without(split)
    design = grade_run(
        RunDesign(header.get("order"), bool(header.get("imported")), bool(header.get("noop")), len(split))
    )
    looks = find_looks(header, ledger.plan.looks, options.look)
    evidence = Evidence(header, ledger, trials, options, pairs, margin, looks)
    sides = SideDifferences(ledger, options.accept, margin)
    checks = RunChecks(ledger, trials, pairs, margin, cancels=design.grade == "A")
    grades = [grade_sides(design, list(sides.hosts(pair.a)), list(sides.hosts(pair.b))) for pair in pairs]
    comparisons = []
    for pair, grade in zip(pairs, grades, strict=True):
        refused_for = refusals(pair, evidence, grade, checks, sides)
        found = _compare_pair(pair, evidence, refused_for, is_of_hosts=grade.grade == "C")
        comparisons.append(checks.applied(pair, found))
    # What holds for every comparison is said of the run.
    design = grades[0] if len({grade.grade for grade in grades}) == 1 else design
    twins = _twins(every, again)
    own = replace(evidence, pairs=twins)
    floor, floor_flags = noise_floor([_compare_pair(pair, own, [], is_of_hosts=False) for pair in twins])
    figures = dict.fromkeys(trials.figures[pair.b].title for pair in pairs)
    return make_verdicts(
        comparisons,
        Parts(
            question=f"{against}: {', '.join(figures)}, margin {100.0 * margin:.4g} %",
            family=FamilyReport(
                alpha=evidence.alpha, comparisons=len(pairs), margin=margin, control="bonferroni-interval"
            ),
            design=_design_report(evidence, design),
            checks=RunChecksReport(
                flags=[*floor_flags, *checks.flags, *stopping_flags(looks, ledger.plan.extensions)],
                looked_for=[
                    *checks.looked_for([*checks.flags, *(flag for one in comparisons for flag in one.flags)]),
                    *([] if sides.reports else ["differences in parameters, versions or hosts"]),
                ],
                noise_floor=floor,
            ),
            differences=sides.reports,
            labels={str(one.get("title")): one.get("labels", {}) for one in ledger.treatments},
        ),
    )


# -- which treatments are compared -----------------------------------------------------------------------------------


def why_no_verdict(treatments: Sequence[TreatmentReport], baseline: Mapping[str, str], *, noop: bool) -> Reason:
    """Return why a run with these treatments, compared with this baseline, has no verdicts."""
    if noop:
        return because(Code.NOOP)
    ran = [entry for entry in treatments if not entry.skipped]
    skipped = [entry for entry in treatments if entry.skipped]
    lost = [entry for entry in skipped if baseline and _has(entry.treatment, baseline)]
    if lost and not any(_has(entry.treatment, baseline) for entry in ran):
        name = ", ".join(f"{key}={value}" for key, value in baseline.items())
        return because(Code.BASELINE_SKIPPED, baseline=name, why=lost[0].skipped)
    if len(ran) < 2 and skipped:  # noqa: PLR2004  sides
        return because(Code.TREATMENTS_SKIPPED, ran=len(ran), title=skipped[0].title, why=skipped[0].skipped)
    return because(Code.ONE_TREATMENT if len(ran) < 2 else Code.NO_SHARED_JOB)  # noqa: PLR2004  sides


def _has(own: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all(key in own and label_equals(own[key], value) for key, value in wanted.items())


def find_pairs(labels: Mapping[int, Mapping[str, Any]], baseline: Mapping[str, str] | None) -> tuple[list[Pair], str]:
    """Return the comparisons of treatments with these labels, and what is compared with what in words.

    Without a baseline the first label that varies among the treatments of a job decides, and the first treatment has
    its baseline's value. Environments are compared last: they mostly are other hosts.
    """
    if baseline:
        return _pairs_for(labels, baseline, with_fewer_labels=True), _against(baseline)
    jobs: dict[Any, list[int]] = {}
    for index, own in labels.items():
        jobs.setdefault(own.get("job"), []).append(index)
    for key in _varying(jobs.values(), labels):
        # Each job has a first treatment of its own.
        found = [
            (_pairs_for({index: labels[index] for index in members}, first), first)
            for members in jobs.values()
            if len(members) > 1 and key in labels[members[0]]
            for first in [{key: label_text(labels[members[0]][key])}]
        ]
        pairs = [pair for own, _ in found for pair in own]
        if pairs:
            against = {_against(first) for own, first in found if own}
            return _named(pairs, labels, [key]), against.pop() if len(against) == 1 else _subject([key])
    # No treatment differs from another in one label alone.
    pairs = [
        Pair(members[0], other, _own_labels(labels[other], labels[members[0]]), "")
        for members in jobs.values()
        for other in members[1:]
    ]
    return pairs, "Treatments against the first one"


def _twins(labels: Mapping[int, Mapping[str, Any]], again: Mapping[int, Mapping[str, Any]]) -> list[Pair]:
    """Return each treatment that ran a second time with itself."""
    texts = {index: {key: label_text(value) for key, value in own.items()} for index, own in labels.items()}
    varying = [
        key for key in dict.fromkeys(key for own in texts.values() for key in own) if _varies(key, texts.values())
    ]
    first = {tuple(label_text(value) for value in own.values()): index for index, own in labels.items()}
    found = []
    for index, own in again.items():
        twin = first.get(tuple(label_text(value) for key, value in own.items() if key != AGAIN))
        if twin is not None:
            name = " ".join(texts[twin][key] for key in varying if key in texts[twin])
            found.append(Pair(twin, index, name or "a treatment", ""))
    return found


def _varies(key: str, labels: Iterable[Mapping[str, str]]) -> bool:
    return len({own.get(key) for own in labels}) > 1


def _varying(jobs: Iterable[Sequence[int]], labels: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Return the labels that vary among the treatments of a job, in their order; the environment last."""
    found: dict[str, None] = {}
    for members in jobs:
        for key in labels[members[0]]:
            if len({label_text(labels[index].get(key)) for index in members}) > 1:
                found[key] = None
    return sorted(found, key=lambda key: key == "environment")


def _pairs_for(
    labels: Mapping[int, Mapping[str, Any]], baseline: Mapping[str, str], *, with_fewer_labels: bool = False
) -> list[Pair]:
    def rest(index: int) -> tuple[tuple[str, str], ...]:
        return tuple((key, label_text(value)) for key, value in labels[index].items() if key not in baseline)

    counterparts: dict[tuple[tuple[str, str], ...], int] = {}
    for index, own in labels.items():
        if _has(own, baseline):
            counterparts.setdefault(rest(index), index)

    def counterpart(index: int) -> int | None:
        own = rest(index)
        # A baseline may lack labels that mean nothing to it, as plain processes have no network of their own.
        fitting = [other for other in counterparts if set(other) <= set(own)]
        exact = own if own in counterparts else max(fitting, key=len, default=None) if with_fewer_labels else None
        return None if exact is None else counterparts[exact]

    pairs = [
        Pair(other, index, "", "")
        for index, own in labels.items()
        if not _has(own, baseline) and (other := counterpart(index)) is not None
    ]
    return _named(pairs, labels, list(baseline))


def _named(pairs: Sequence[Pair], labels: Mapping[int, Mapping[str, Any]], keys: Sequence[str]) -> list[Pair]:
    """Return the pairs with what tells each treatment from its baseline, and the groups from each other."""
    others = [
        key
        for key in dict.fromkeys(key for pair in pairs for key in labels[pair.b])
        if key not in keys and len({label_text(labels[pair.b].get(key)) for pair in pairs}) > 1
    ]
    return [
        Pair(
            pair.a,
            pair.b,
            " ".join(label_text(labels[pair.b][key]) for key in keys if key in labels[pair.b]),
            " ".join(f"{key}={label_text(labels[pair.b][key])}" for key in others if key in labels[pair.b]),
        )
        for pair in pairs
    ]


def _own_labels(own: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={label_text(value)}" for key, value in own.items() if label_text(base.get(key)) != label_text(value)
    )


def _against(baseline: Mapping[str, str]) -> str:
    return f"{_subject(list(baseline))} against {' '.join(baseline.values())}"


def _subject(keys: Sequence[str]) -> str:
    if len(keys) > 1:
        return "Treatments"
    return _PLURALS.get(keys[0]) or keys[0][:1].upper() + keys[0][1:].replace("_", " ")


_PLURALS: Final = {"engine": "Engines", "environment": "Environments", "job": "Jobs"}


# -- what the design allows ------------------------------------------------------------------------------------------


def _design_report(evidence: Evidence, design: Design) -> DesignReport:
    header, ledger, trials = evidence.header, evidence.ledger, evidence.trials
    hosts = list(dict.fromkeys(str(host.get("host") or host.get("environment")) for host in ledger.hosts.values()))
    where = f"on {'host' if len(hosts) == 1 else 'hosts'} {', '.join(hosts)}, " if hosts else ""
    return DesignReport(
        grade=design.grade,
        limits=list(design.reasons),
        order=header.get("order"),
        seed=header.get("seed"),
        rounds=max((len(own) for own in trials.rounds.values()), default=0),
        scope=f"{where}in this run",
        unit="host" if design.grade == "C" else "round",
        stopping=None if evidence.looks is None else evidence.looks.report(),
    )


def refusals(
    pair: Pair, evidence: Evidence, design: Design, checks: RunChecks, sides: SideDifferences
) -> list[Reason]:
    """Return why no word can be said of a pair; empty if one can."""
    trials = evidence.trials
    first, second = (trials.figures[index] for index in (pair.a, pair.b))
    reasons = [] if design.allows_words else [*design.reasons]
    unlike = sides.refusal(pair)
    reasons += [unlike] if unlike is not None else []
    if (first.name, first.unit) != (second.name, second.unit):
        reasons.append(
            because(Code.UNLIKE_FIGURES, a=first.name, a_unit=first.unit, b=second.name, b_unit=second.unit)
        )
    if first.q is not None:
        fewest = min(trials.fewest_jobs(pair.a), trials.fewest_jobs(pair.b))
        if fewest and not enough_jobs(fewest, first.q):
            reasons.append(because(Code.TOO_FEW_JOBS, figure=first.name, needed=jobs_needed(first.q), fewest=fewest))
    unsteady = checks.refusal(pair, cancels=design.grade == "A")
    return [*reasons, *([unsteady] if unsteady is not None else [])]


# -- one comparison --------------------------------------------------------------------------------------------------


def _compare_pair(
    pair: Pair, evidence: Evidence, refused: Sequence[Reason], *, is_of_hosts: bool
) -> ComparisonReport:
    looks, labels = evidence.looks, evidence.ledger.treatments[pair.b].get("labels", {})
    trials = evidence.trials if looks is None else evidence.trials.before(looks.first_uncounted_block(pair.a, pair.b))
    figure = trials.figures[pair.b]
    sides = trials.sides(pair.a, pair.b)
    a, b = sides.a, sides.b
    differences = bool((a.values <= 0.0).any() or (b.values <= 0.0).any())
    rules = Rules(
        comparisons=len(evidence.pairs),
        margin=evidence.margin,
        alpha=evidence.alpha,
        look=None if looks is None else looks.levels(pair.a, pair.b),
        lower_is_better=figure.direction == "lower",
        words=words_of(figure),
        differences=differences,
    )
    found = compare(a, b, rules)
    by_hosts = between_hosts(trials, pair.a, pair.b, rules) if is_of_hosts and not differences else None
    if is_of_hosts and by_hosts is None:
        refused = refused or [because(Code.TOO_FEW_HOSTS)]
    if by_hosts is not None:
        found = replace(by_hosts, band=found.band, exact=found.exact)
    per_host = host_effects(trials, pair.a, pair.b, rules)
    titles = (evidence.title(pair.a), evidence.title(pair.b))
    flags = [
        *_failure_flags(pair, evidence),
        *failure_flags(trials, pair.a, pair.b, titles, rules),
        *hosts_disagree(per_host, titles[1]),
        *cluster_note(trials, pair.a, pair.b, titles[1]),
    ]
    if evidence.margin < sides.least_margin and found.word in ("same", "inconclusive") and not differences:
        is_refused = found.word == "same"
        flags.append(_margin_flag(pair, evidence, sides.least_margin, "refusal" if is_refused else "warning"))
        refused = refused or ([flags[-1].reason] if is_refused else [])
    report = make_comparison(
        Compared(*titles, pair.name, labels, figure, pair.group),
        found,
        refused,
        rounds=found.rounds,
        lost=0 if by_hosts else len(a.values) - found.rounds,
        tipping=finite_or_none(found.tipping_point) if found.rounds >= MIN_ROUNDS else None,
        values=(_median(a), _median(b)),
    )
    return replace(
        report,
        jobs_per_trial=_jobs_per_trial(pair, trials),
        effective_jobs=effective_jobs(trials, pair.a, pair.b),
        per_round=_per_round(a, b, rules),
        per_host=per_host,
        quantiles=[] if differences else shift_function(trials, pair.a, pair.b, rules),
        flags=flags,
    )


def _per_round(a: TrialValues, b: TrialValues, rules: Rules) -> list[float | None]:
    with np.errstate(divide="ignore", invalid="ignore"):
        each = b.values - a.values if rules.differences else b.values / a.values
    return [finite_or_none(one) for one in each.tolist()]


def _median(side: TrialValues) -> float | None:
    known = side.values[np.isfinite(side.values)]
    return float(np.median(known)) if len(known) else None


def _jobs_per_trial(pair: Pair, trials: TrialTable) -> float | None:
    jobs = [each.jobs for index in (pair.a, pair.b) for each in trials.rounds[index].values() if each.jobs]
    return float(median(jobs)) if jobs else None


def _margin_flag(pair: Pair, evidence: Evidence, least: float, level: FlagLevel) -> FlagReport:
    """Return what is to be said of a margin that is smaller than the figure can tell: it shows no sameness."""
    # Rounded up: what is printed must pass.
    sensible = math.ceil(1000.0 * least) / 1000.0
    figure = evidence.trials.figures[pair.b].name
    reason = because(Code.MARGIN_TOO_NARROW, margin=evidence.margin, figure=figure, least=sensible)
    return FlagReport(kind="margin", where=evidence.title(pair.b), level=level, p=None, size=least, reason=reason)


def _failure_flags(pair: Pair, evidence: Evidence) -> Iterator[FlagReport]:
    """Yield a warning for each side of which jobs failed."""
    left_out = evidence.options.failures == "at-random"
    for index in (pair.a, pair.b):
        own = evidence.trials.rounds[index].values()
        failed, ran = sum(each.failed for each in own), sum(each.failed + each.jobs for each in own)
        if failed:
            title = evidence.title(index)
            reason = because(Code.JOBS_FAILED, treatment=title, failed=failed, of=ran, left_out=left_out)
            yield FlagReport("failures", title, "warning", p=None, size=failed / ran, reason=reason)
