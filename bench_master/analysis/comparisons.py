"""The verdicts of a run: which treatments are compared, by which measure, and what may be said of each comparison.

A treatment is compared with its counterpart: the treatment with the baseline's labels and otherwise its own. All
comparisons of a report hold together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from statistics import median
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_common.stats.block_types import Header
from bench_common.thresholds import has_labels
from bench_master.analysis.answer import badness, is_better
from bench_master.analysis.claims import ClaimedComparison, Claims, judge_claims
from bench_master.analysis.early_stopping import Looks, find_looks, noise_floor, stopping_flags
from bench_master.analysis.failed_sides import failed_jobs, failure_text
from bench_master.analysis.harness_limits import ceiling_refusal, cpu_refusal, limits_of
from bench_master.analysis.run_checks import Pair, RunChecks, allowing_for, position_effect, start_cost_flags
from bench_master.analysis.side_differences import SideDifferences
from bench_master.analysis.verdict_makers import finite_or_none, make_verdicts, with_verdict, words_of
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import (
    ComparisonReport,
    DesignReport,
    EnvironmentReport,
    FamilyReport,
    FlagLevel,
    FlagReport,
    PartReport,
    RunChecksReport,
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
from bench_master.run_data.treatment_types import TreatmentReport
from bench_master.run_data.trial_values import Sides, TrialTable
from bench_master.scenario.keys_run import label_text
from bench_master.scenario.model import is_again, originals
from bench_master.verdicts.confounds import MIN_HOSTS, Design, grade_run, grade_sides
from bench_master.verdicts.decision import ALPHA, DEFAULT_MARGIN, Rules, TrialValues, by_parts, compare
from bench_master.verdicts.quantiles import enough_jobs, jobs_needed
from bench_master.verdicts.reasons import Code, Reason, because
from bench_master.verdicts.signed_rank import MIN_ROUNDS
from bench_master.verdicts.stopping import error_with_earlier_ends, extension_level


class Evidence(Struct, frozen=True):
    """What verdicts are made of."""

    header: Header
    ledger: Aggregator
    """All that the file says of hosts, trials, jobs and metrics."""
    trials: TrialTable
    options: VerdictOptions
    pairs: Sequence[Pair]
    margin: float
    """Smaller differences are *same*, as a share."""
    sides: SideDifferences
    looks: Looks | None = None
    """The looks at a run that went on until its verdicts were settled; None for a fixed number of rounds."""
    claimed: int = 0
    """How many comparisons were claimed before the first job, which hold together, if these are some of them."""
    design: Design = Design("D")
    """What the run's design allows."""
    position: float | None = None
    """The effect that a place in a round may have, a logarithm; None where that is not known."""

    @property
    def alpha(self) -> float:
        """Return how often any of the comparisons may err at this end of the run."""
        # Which rounds judge a claim was fixed before the first of them: an extension is no second chance.
        return ALPHA if self.claimed else extension_level(self.extensions)

    @property
    def extensions(self) -> int:
        """Return how often the run was extended after an end."""
        return len(self.ledger.plan.extensions)

    def title(self, treatment: int) -> str:
        """Return a treatment's title."""
        return self.ledger.treatments[treatment].title


def build_verdicts(
    header: Header,
    ledger: Aggregator,
    trials: TrialTable,
    options: VerdictOptions,
    claimed: Claims | None = None,
) -> VerdictsReport | None:
    """Return the verdicts of a run; None where there are no two treatments to compare.

    Where claims are registered their comparisons come first; the others are exploratory. The options are checked: see
    `bench_master.analysis.gates.check_verdict_options`.
    """
    labels = {index: ledger.treatments[index].labels for index in trials.measures}
    every = {index: own for index, own in labels.items() if not is_again(own)}
    outcomes = ledger.outcomes
    judged = [
        index
        for index in every
        if not ledger.is_skipped(index)
        and (not ledger.treatments[index].optional or outcomes[index]["done"] or outcomes[index]["failed"])
    ]
    pairs, against = find_pairs({index: every[index] for index in judged}, _baseline(header, options))
    texts = {index: _texts(own) for index, own in every.items()}
    claims = _claimed_pairs(claimed, trials, texts, pairs) if claimed is not None else {}
    if not pairs and not claims:
        return None
    margin = options.margin if options.margin is not None else header.verdicts.margin or DEFAULT_MARGIN
    split = ledger.split_blocks()
    trials = trials.without(split)
    looks = find_looks(header, ledger.plan.looks, options.look)
    taken = {frozenset(key[:2]) for key in claims if _is_primary(key, trials)}
    pairs = [pair for pair in pairs if frozenset((pair.a, pair.b)) not in taken]
    sides = SideDifferences(ledger, options.accept, margin)
    evidence = Evidence(header, ledger, trials, options, pairs, margin, sides, looks)
    own = replace(evidence, pairs=_twins(texts, originals(one.labels for one in ledger.treatments)))
    repeated = [_compare_pair(pair, own, [], is_of_hosts=False) for pair in own.pairs]
    floor, floor_flags = noise_floor(repeated)
    position = position_effect(repeated)
    design = grade_run(header, len(split), knows_position_effect=position is not None)
    evidence = replace(evidence, design=design, position=position)
    judged_pairs = [*(pair for key, pair in claims.items() if _is_primary(key, trials)), *pairs]
    checks = RunChecks(ledger, trials, judged_pairs, margin, cancels=design.grade == "A")
    asked = []
    for key, pair in claims.items():
        assert claimed is not None
        own, own_checks = replace(evidence, margin=claimed.margin, claimed=len(claims), looks=None), checks
        if not _is_primary(key, trials):
            own = replace(own, trials=claimed.tables[key[2]].without(split))
            own_checks = RunChecks(ledger, own.trials, [pair], claimed.margin, cancels=design.grade == "A")
        asked.append((pair, own, own_checks))
    asked += [(pair, evidence, checks) for pair in pairs]
    found = [_judge_pair(*one) for one in asked]
    others = [replace(report, exploratory=claimed is not None) for report, _ in found[len(claims) :]]
    of_claims = {key: report for key, (report, _) in zip(claims, found, strict=False)}
    comparisons = [*of_claims.values(), *others]
    # A look during the run asks only for what decides how long it goes on.
    beside = [] if options.look is not None else _neighbours(others, evidence, checks)
    # What holds for every comparison is said of the run.
    design = found[0][1] if len({grade.grade for _, grade in found}) == 1 else design
    measures = dict.fromkeys(own.trials.measures[pair.b].title for pair, own, _ in asked)
    was_extended = evidence.extensions > 0 and bool(pairs)
    return make_verdicts(
        VerdictsReport(
            comparisons=comparisons,
            question=f"{against}: {', '.join(measures)}, margin {100.0 * margin:.4g} %",
            family=FamilyReport(
                alpha=ALPHA if claims else evidence.alpha,
                comparisons=len(claims) or len(pairs),
                exploratory=len(pairs) if claims else 0,
                margin=margin,
                control="bonferroni-interval",
                together=error_with_earlier_ends(evidence.extensions) if was_extended else None,
            ),
            design=_design_report(evidence, design),
            runs=RunChecksReport(
                flags=[
                    *floor_flags,
                    *checks.flags,
                    *start_cost_flags(ledger, trials, judged, margin),
                    *stopping_flags(looks, ledger.plan.extensions),
                ],
                looked_for=[
                    *checks.looked_for([*checks.flags, *(flag for one in comparisons for flag in one.flags)]),
                    *([] if sides.reports else ["differences in parameters, versions or hosts"]),
                ],
                noise_floor=floor,
            ),
            environment=EnvironmentReport(sides.reports),
            claims=None if claimed is None else judge_claims(claimed, of_claims),
            neighbours=beside,
        ),
        {one.title: one.labels for one in ledger.treatments},
    )


def _judge_pair(pair: Pair, evidence: Evidence, checks: RunChecks) -> tuple[ComparisonReport, Design]:
    """Return a comparison, and what the design allows its sides."""
    position = evidence.position
    grade = grade_sides(evidence.design, *(list(evidence.sides.hosts(index)) for index in (pair.a, pair.b)))
    refused_for = _refusals(pair, evidence, grade, checks)
    found = _compare_pair(pair, evidence, refused_for, is_of_hosts=grade.grade == "C")
    if evidence.header.order == "as-written" and position is not None:
        reason = because(Code.DEPENDS_ON_POSITION, effect=math.exp(position))
        found = allowing_for(found, position, math.log1p(evidence.margin), reason)
    return checks.applied(pair, found, partial(_parts, pair, evidence)), grade


# -- registered claims -----------------------------------------------------------------------------------------------


def _claimed_pairs(
    claimed: Claims, trials: TrialTable, labels: Mapping[int, Labels], pairs: Sequence[Pair]
) -> dict[ClaimedComparison, Pair]:
    """Return the pair of each comparison that was claimed, with the name that it has among all pairs, if any."""
    names = {(pair.a, pair.b): pair for pair in pairs}
    found = {}
    for key in claimed.comparisons():
        a, b, measure, rounds = key
        table = trials if _is_primary(key, trials) else claimed.tables.get(measure)
        if table is None or not {a, b} <= table.measures.keys():
            continue
        own = _differing(labels[b], labels[a])
        name = next(iter(own.values())) if len(own) == 1 else _as_text(own)
        known = names.get((a, b)) or Pair(a, b, name, "")
        found[key] = replace(known, rounds=rounds)
    return found


def _is_primary(key: ClaimedComparison, trials: TrialTable) -> bool:
    """Return whether a claimed comparison is about the primary measure of both its treatments."""
    return all(index in trials.measures and trials.measures[index].name == key[2] for index in key[:2])


# -- which treatments are compared -----------------------------------------------------------------------------------


def _baseline(header: Header, options: VerdictOptions) -> dict[str, str]:
    return dict(_texts(options.baseline or header.verdicts.baseline))


def why_no_verdict(header: Header, treatments: Sequence[TreatmentReport], options: VerdictOptions) -> Reason:
    """Return why a run with these treatments has no verdicts."""
    if header.noop:
        return because(Code.NOOP)
    baseline = _baseline(header, options)
    ran = [entry for entry in treatments if not entry.skipped]
    skipped = [entry for entry in treatments if entry.skipped]
    lost = [entry for entry in skipped if baseline and has_labels(entry.treatment, baseline.items())]
    if lost and not any(has_labels(entry.treatment, baseline.items()) for entry in ran):
        name = ", ".join(f"{key}={value}" for key, value in baseline.items())
        return because(Code.BASELINE_SKIPPED, baseline=name, why=lost[0].skipped)
    if len(ran) < 2 and skipped:  # noqa: PLR2004  sides
        return because(Code.TREATMENTS_SKIPPED, ran=len(ran), title=skipped[0].title, why=skipped[0].skipped)
    return because(Code.ONE_TREATMENT if len(ran) < 2 else Code.NO_SHARED_JOB)  # noqa: PLR2004  sides


def find_pairs(labels: Mapping[int, Mapping[str, Any]], baseline: Mapping[str, str] | None) -> tuple[list[Pair], str]:
    """Return the comparisons of treatments with these labels, and what is compared with what in words.

    Without a baseline the first label that varies among the treatments of a job decides, and the first treatment has
    its baseline's value. Environments are compared last: they mostly are other hosts.
    """
    texts = {index: _texts(own) for index, own in labels.items()}
    if baseline:
        bases = [index for index, own in labels.items() if has_labels(own, baseline.items())]
        return _pairs_for(texts, list(baseline), bases, with_fewer_labels=True), _against(baseline)
    jobs: dict[str | None, list[int]] = {}
    for index, own in texts.items():
        jobs.setdefault(own.get("job"), []).append(index)
    keys = dict.fromkeys(key for members in jobs.values() for key in _varying([texts[index] for index in members]))
    for key in sorted(keys, key=lambda key: key == "environment"):
        # Each job has a first treatment of its own.
        found = [
            (_pairs_for({index: texts[index] for index in members}, [key], bases), {key: first})
            for members in jobs.values()
            if len(members) > 1 and (first := texts[members[0]].get(key)) is not None
            for bases in [[index for index in members if texts[index].get(key) == first]]
        ]
        pairs = [pair for own, _ in found for pair in own]
        if pairs:
            against = {_against(first) for own, first in found if own}
            return _named(pairs, texts, [key]), against.pop() if len(against) == 1 else _subject([key])
    # No treatment differs from another in one label alone.
    pairs = [
        Pair(members[0], other, _as_text(_differing(texts[other], texts[members[0]])), "")
        for members in jobs.values()
        for other in members[1:]
    ]
    return pairs, "Treatments against the first one"


def _twins(labels: Mapping[int, Labels], twins: Mapping[int, int]) -> list[Pair]:
    """Return each treatment that ran a second time with itself."""
    varying = _varying(list(labels.values()))
    names = {index: " ".join(own[key] for key in varying if key in own) for index, own in labels.items()}
    return [Pair(first, again, names[first] or "a treatment", "") for again, first in twins.items() if first in names]


def _pairs_for(
    labels: Mapping[int, Labels], keys: Sequence[str], bases: Sequence[int], *, with_fewer_labels: bool = False
) -> list[Pair]:
    """Return each treatment with the one of `bases` that has its labels but for those of `keys`."""
    rest = {index: tuple(item for item in own.items() if item[0] not in keys) for index, own in labels.items()}
    counterparts: dict[tuple[tuple[str, str], ...], int] = {}
    for index in bases:
        counterparts.setdefault(rest[index], index)

    def counterpart(index: int) -> int | None:
        own = rest[index]
        # A baseline may lack labels that mean nothing to it, as plain processes have no network of their own.
        fitting = [other for other in counterparts if set(other) <= set(own)]
        exact = own if own in counterparts else max(fitting, key=len, default=None) if with_fewer_labels else None
        return None if exact is None else counterparts[exact]

    found = {index: counterpart(index) for index in labels if index not in bases}
    return _named([Pair(other, index, "", "") for index, other in found.items() if other is not None], labels, keys)


def _named(pairs: Sequence[Pair], labels: Mapping[int, Labels], keys: Sequence[str]) -> list[Pair]:
    """Return the pairs with what tells each treatment from its baseline, and the groups from each other."""
    own = [labels[pair.b] for pair in pairs]
    others = [key for key in _varying(own) if key not in keys]
    return [
        replace(
            pair,
            name=" ".join(each[key] for key in keys if key in each),
            group=_as_text({key: each[key] for key in others if key in each}),
        )
        for pair, each in zip(pairs, own, strict=True)
    ]


Labels: TypeAlias = Mapping[str, str]
"""The labels of a treatment as texts."""


def _texts(labels: Mapping[str, Any]) -> Labels:
    return {key: label_text(value) for key, value in labels.items()}


def _varying(every: Sequence[Labels]) -> list[str]:
    """Return the labels that vary among treatments, in their order; one that a treatment lacks counts as null."""
    keys = dict.fromkeys(key for own in every for key in own)
    return [key for key in keys if len({own.get(key, "null") for own in every}) > 1]


def _differing(own: Labels, base: Labels) -> Labels:
    return {key: value for key, value in own.items() if base.get(key, "null") != value}


def _as_text(labels: Labels) -> str:
    return " ".join(f"{key}={value}" for key, value in labels.items())


def _against(baseline: Mapping[str, str]) -> str:
    return f"{_subject(list(baseline))} against {' '.join(baseline.values())}"


def _subject(keys: Sequence[str]) -> str:
    if len(keys) > 1:
        return "Treatments"
    return _SUBJECTS.get(keys[0]) or keys[0][:1].upper() + keys[0][1:].replace("_", " ")


_SUBJECTS: Final = {
    "engine": "Engines",
    "environment": "Environments",
    "job": "Jobs",
    "gvisor_platform": "gVisor platform",
}
"""What labels are called that are not what their key says; gVisor begins with a small letter wherever it stands."""


# -- what the design allows ------------------------------------------------------------------------------------------


def _design_report(evidence: Evidence, design: Design) -> DesignReport:
    header, ledger, trials = evidence.header, evidence.ledger, evidence.trials
    hosts = list(dict.fromkeys(str(host.host or host.environment) for host in ledger.hosts.values()))
    where = f"on {'host' if len(hosts) == 1 else 'hosts'} {', '.join(hosts)}, " if hosts else ""
    return DesignReport(
        grade=design.grade,
        limits=list(design.reasons),
        order=header.order,
        seed=header.seed,
        rounds=max((len(own) for own in trials.rounds.values()), default=0),
        scope=f"{where}in this run",
        unit="host" if design.grade == "C" else "round",
        stopping=None if evidence.looks is None else evidence.looks.report(),
    )


def _neighbours(
    comparisons: Sequence[ComparisonReport], evidence: Evidence, checks: RunChecks
) -> list[ComparisonReport]:
    """Return each treatment against the next better one of its group, where their baseline does not lie between.

    The order of the values chooses these pairs, so their intervals hold together with those of all pairs of
    treatments that it could have chosen.
    """
    groups: dict[tuple[int, str, str], list[tuple[Pair, ComparisonReport]]] = {}
    for pair, found in zip(evidence.pairs, comparisons, strict=True):
        is_ranked = found.verdict != "refused" and found.ratio is not None and found.scale == "ratio"
        if is_ranked:
            groups.setdefault((pair.a, pair.group, found.measure), []).append((pair, found))
    possible = [pair for own in groups.values() for pair in combinations((pair for pair, _ in own), 2)]
    if not possible or len(possible) > _MOST_PAIRS or evidence.design.grade == "C":
        return []
    # What else differs is told of each treatment and its baseline.
    sides = SideDifferences(evidence.ledger, evidence.options.accept, evidence.margin)
    own = replace(evidence, pairs=[Pair(a.b, b.b, "", "") for a, b in possible], sides=sides)
    chosen = []
    for ranked in groups.values():
        ranked.sort(key=lambda one: badness(one[1]))
        for (better, first), (worse, second) in pairwise(ranked):
            if is_better(first) == is_better(second):
                # The slower one is the baseline, so that the word is of the better one.
                chosen.append(Pair(worse.b, better.b, better.name, worse.group))
    found_of = [_judge_pair(pair, own, checks) for pair in chosen]
    return [report for report, grade in found_of if grade.grade != "C"]


_MOST_PAIRS: Final = 45
"""Pairs of treatments (of 10 in a group) beyond which an interval of each one says nothing any more."""


def _refusals(pair: Pair, evidence: Evidence, design: Design, checks: RunChecks) -> list[Reason]:
    """Return why no word can be said of a pair; empty if one can."""
    trials = evidence.trials
    first, second = (trials.measures[index] for index in (pair.a, pair.b))
    reasons = [*(() if design.allows_words else design.reasons), evidence.sides.refusal(pair)]
    if (first.name, first.unit) != (second.name, second.unit):
        reasons.append(
            because(Code.UNLIKE_MEASURES, a=first.name, a_unit=first.unit, b=second.name, b_unit=second.unit)
        )
    lacking = [evidence.ledger.populations.missing(index) for index in (pair.a, pair.b)]
    if lacking[0] != lacking[1]:
        titles = {"treatment": evidence.title(pair.b), "other": evidence.title(pair.a)}
        reasons.append(because(Code.POPULATIONS_DIFFER, missing=lacking[1], other_missing=lacking[0], **titles))
    if first.q is not None:
        fewest = min(trials.fewest_jobs(pair.a), trials.fewest_jobs(pair.b))
        if fewest and not enough_jobs(fewest, first.q):
            needed = jobs_needed(first.q)
            reasons.append(because(Code.TOO_FEW_JOBS, measure=first.name, needed=needed, fewest=fewest))
    if not evidence.header.noop:
        limits = (limits_of(evidence.ledger, one, trials.values(one).median, first) for one in (pair.a, pair.b))
        reasons.append(ceiling_refusal(limits))
    reasons.append(checks.refusal(pair, cancels=design.grade == "A"))
    return [one for one in reasons if one is not None]


# -- one comparison --------------------------------------------------------------------------------------------------


def _compare_pair(
    pair: Pair, evidence: Evidence, refused: Sequence[Reason], *, is_of_hosts: bool
) -> ComparisonReport:
    labels = evidence.ledger.treatments[pair.b].labels
    trials, sides, rules = _judged(pair, evidence)
    measure, a, b, differences = trials.measures[pair.b], sides.a, sides.b, rules.differences
    found = compare(a, b, rules)
    by_hosts = between_hosts(trials, pair.a, pair.b, rules) if is_of_hosts and not differences else None
    if is_of_hosts and by_hosts is None:
        refused = refused or [because(Code.DIFFERENT_HOSTS, kind="unmeasured", fewest=0, needed=MIN_HOSTS)]
    if by_hosts is not None:
        found = replace(by_hosts, band=found.band, exact=found.exact)
    per_host = host_effects(trials, pair.a, pair.b, rules)
    titles = (evidence.title(pair.a), evidence.title(pair.b))
    flags = [
        *_failure_flags(pair, evidence),
        *failure_flags(trials, pair.a, pair.b, titles, rules),
        *hosts_disagree(per_host, titles[1]),
        *cluster_note(trials, pair.a, pair.b, titles),
    ]
    is_open = found.word in ("same", "inconclusive") and found.rounds > 0
    if evidence.margin < sides.least_margin and is_open and not differences:
        is_refused = found.word == "same"
        flags.append(_margin_flag(pair, evidence, sides.least_margin, "refusal" if is_refused else "warning"))
        refused = refused or ([flags[-1].reason] if is_refused else [])
    if not refused and found.word != "inconclusive" and not differences:
        limits = [limits_of(evidence.ledger, index, None, measure) for index in (pair.a, pair.b)]
        taken = cpu_refusal(limits, finite_or_none(found.ratio), evidence.margin)
        refused = [taken] if taken is not None else []
    report = ComparisonReport(
        a=titles[0],
        b=titles[1],
        name=pair.name,
        group=pair.group,
        labels=dict(labels),
        measure=measure.name,
        unit=measure.unit,
        direction=measure.direction,
        rounds=found.rounds,
        lost=0 if by_hosts else len(a.values) - found.rounds,
        tipping=finite_or_none(found.tipping_point) if found.rounds >= MIN_ROUNDS else None,
        a_value=a.median,
        b_value=b.median,
        jobs_per_trial=(jobs := _jobs_per_trial(pair, trials)),
        effective_jobs=None if jobs == 1.0 else effective_jobs(trials, pair.a, pair.b),
        per_round=_per_round(a, b, rules),
        per_host=per_host,
        quantiles=[] if differences else shift_function(trials, pair.a, pair.b, rules),
        flags=flags,
        a_failure=failure_text(evidence.ledger, evidence.trials, pair.a),
        b_failure=failure_text(evidence.ledger, evidence.trials, pair.b),
    )
    return with_verdict(report, found, refused)


def _judged(pair: Pair, evidence: Evidence) -> tuple[TrialTable, Sides, Rules]:
    """Return the trials by which a pair is judged, their values on both sides, and by which rules."""
    looks = evidence.looks
    trials = evidence.trials if looks is None else evidence.trials.before(looks.first_uncounted_block(pair.a, pair.b))
    trials = trials.first_rounds(pair.a, pair.b, pair.rounds)
    measure, sides = trials.measures[pair.b], trials.sides(pair.a, pair.b)
    rules = Rules(
        comparisons=evidence.claimed or len(evidence.pairs),
        margin=evidence.margin,
        alpha=evidence.alpha,
        look=None if looks is None else looks.levels(pair.a, pair.b),
        last_look=looks.last if looks is not None and looks.rounds(pair.a, pair.b) == looks.last else None,
        lower_is_better=measure.direction == "lower",
        words=words_of(measure),
        differences=bool((sides.a.values <= 0.0).any() or (sides.b.values <= 0.0).any()),
    )
    return trials, sides, rules


def _parts(pair: Pair, evidence: Evidence) -> list[PartReport]:
    """Return the ratio in each half of a run whose effect changed."""
    _, sides, rules = _judged(pair, evidence)
    return [
        PartReport(each.first, each.last, *map(finite_or_none, (each.ratio, each.low, each.high)))
        for each in by_parts(sides.a, sides.b, rules)
    ]


def _per_round(a: TrialValues, b: TrialValues, rules: Rules) -> list[float | None]:
    with np.errstate(divide="ignore", invalid="ignore"):
        each = b.values - a.values if rules.differences else b.values / a.values
    return [finite_or_none(one) for one in each.tolist()]


def _jobs_per_trial(pair: Pair, trials: TrialTable) -> float | None:
    """Return how many jobs a typical trial has, on the side that has fewer: quantiles of both are of so many."""
    sides = ([each.jobs for each in trials.rounds[index].values() if each.jobs] for index in (pair.a, pair.b))
    return min((float(median(jobs)) for jobs in sides if jobs), default=None)


def _margin_flag(pair: Pair, evidence: Evidence, least: float, level: FlagLevel) -> FlagReport:
    """Return what is to be said of a margin that is smaller than the measure can tell: it shows no sameness."""
    # Rounded up: what is printed must pass.
    sensible = math.ceil(1000.0 * least) / 1000.0
    measure = evidence.trials.measures[pair.b].name
    reason = because(Code.MARGIN_TOO_NARROW, margin=evidence.margin, measure=measure, least=sensible)
    return FlagReport(kind="margin", where=evidence.title(pair.b), level=level, p=None, size=least, reason=reason)


def _failure_flags(pair: Pair, evidence: Evidence) -> Iterator[FlagReport]:
    """Yield a warning for each side of which jobs failed."""
    left_out = evidence.options.failures == "at-random"
    for index in (pair.a, pair.b):
        failed, ran = failed_jobs(evidence.trials, index)
        if failed:
            title = evidence.title(index)
            reason = because(Code.JOBS_FAILED, treatment=title, failed=failed, of=ran, left_out=left_out)
            yield FlagReport("failures", title, "warning", p=None, size=failed / ran, reason=reason)
