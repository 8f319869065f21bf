"""The key ``claims``: what a scenario claims of its results before its first job, and the digest that fixes it.

A claim names two treatments, a measure, what is claimed of them, and after how many rounds. All claims of a scenario
are one family: the fewer there are, the narrower are their intervals.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from bench_common.stats.block_types import StoredMetric, as_stored_metrics
from bench_common.thresholds import Primary, VerdictCondition, parse_primary, parse_verdict_condition
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.keys_run import LABELS, MAX_REPEATS, label_text, unmatched_labels
from bench_master.scenario.model import Claim, UntilVerdict
from bench_master.scenario.types import INVALID, WHOLE, Field, ListOf, Quantity, Record, Text
from bench_master.verdicts.signed_rank import MIN_ROUNDS
from bench_workloads.script import fixed_reason, job_metrics, job_script

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench_common.treatment import Treatment
    from bench_master.scenario.resolve import ResolvedScenario
    from bench_master.scenario.yaml_tree import SourceLocation

CLAIMS: Final = "claims"
_CLAIM: Final = Record(
    "claim",
    (
        Field("treatment", LABELS, "labels of the treatment that the claim is about", required=True),
        Field("against", LABELS, "labels of the treatment that it is compared with", required=True),
        Field(
            "is",
            Text("a condition such as 'faster by 10%', 'not slower by 5%' or 'same'", unquoted_types=()),
            "what is claimed of the treatment",
            required=True,
        ),
        Field(
            "measure",
            Text("a measure such as job.p95, start.p50, events_per_second or jobs_per_s", unquoted_types=()),
            "the measure that the claim is about; without it, the primary one",
        ),
        Field(
            "rounds",
            Quantity(WHOLE, minimum=MIN_ROUNDS, maximum=MAX_REPEATS),
            "the claim is judged by so many rounds; without it, by `repeats`",
        ),
    ),
)
CLAIM_LIST: Final = ListOf(_CLAIM)
"""An empty list claims nothing: a profile of few rounds needs that."""


def parse_claim(text: str) -> VerdictCondition:
    """Parse what a claim says; raise `ValueError` with what is wrong and the nearest spelling."""
    condition = parse_verdict_condition(text)
    if condition.where:
        labels = ", ".join(f"{key}={value}" for key, value in condition.where)
        raise ValueError(f"{text!r}: leave {labels} out: 'treatment' says which one it is about")
    return condition


def digest_of(rows: Sequence[Mapping[str, Any]], margin: float | None) -> str:
    """Return the SHA-256 of claims as a stats file has them: of their JSON with sorted keys and no spaces."""
    text = json.dumps({"claims": list(rows), "margin": margin}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def registered(claims: Iterable[Claim], margin: float | None) -> dict[str, Any] | None:
    """Return claims as the header of a stats file has them, with their digest; None without claims."""
    rows = [
        {
            "treatment": {key: label_text(value) for key, value in one.treatment.items()},
            "against": {key: label_text(value) for key, value in one.against.items()},
            "measure": one.measure,
            "says": one.says,
            "rounds": one.rounds,
        }
        for one in claims
    ]
    return {"sha256": digest_of(rows, margin), "margin": margin, "registered": rows} if rows else None


def claim_text(claim: Claim) -> str:
    """Return a claim on one line: ``engine=crun against engine=runc: faster by 10% (job.p50, 10 rounds)``."""
    return f"{claim_name(claim.treatment, claim.against)}: {claim.says} ({claim.measure}, {claim.rounds} rounds)"


def claim_name(treatment: Mapping[str, Any], against: Mapping[str, Any]) -> str:
    """Return two treatments by the labels in which they differ: ``engine=crun against engine=runc``."""
    keys = [
        key
        for key in dict.fromkeys((*treatment, *against))
        if (key in treatment, label_text(treatment.get(key))) != (key in against, label_text(against.get(key)))
    ]
    sides = [{key: label_text(own[key]) for key in keys if key in own} for own in (treatment, against)]
    first, second = (_shown(own) or "the treatment without " + ", ".join(keys) for own in sides)
    return f"{first} against {second}"


def registration_text(claims: Sequence[Claim], margin: float | None) -> str:
    """Return how many claims are registered, and their digest; empty without claims."""
    found = registered(claims, margin)
    if found is None:
        return ""
    return f"{len(claims)} claim{'s' if len(claims) > 1 else ''} registered, sha256 {found['sha256']}"


def find_claims(
    read: Mapping[str, Located[Any]], resolved: ResolvedScenario, findings: Diagnostics
) -> tuple[Claim, ...]:
    """Return the claims of a scenario; report those that no treatment, measure or number of rounds can decide."""
    given = read.get(CLAIMS)
    if given is None or given.value is INVALID or not given.value or not resolved.treatments:
        return ()
    if "order" in read and read["order"].value == "blocked":
        text = "claims: 'order: blocked' carries no verdict, so no claim can be kept: use 'order: interleaved'"
        findings.add(given.place, text, deep=True)
    known = len(findings.problems)
    made = [(one.place, _claim(one, resolved, findings)) for one in given.value]
    if len(findings.problems) > known:
        return ()
    found = [(place, claim) for place, claim in made if claim is not None]
    _check_alike(found, findings)
    return tuple(claim for _, claim in found)


def _claim(given: Located[Any], resolved: ResolvedScenario, findings: Diagnostics) -> Claim | None:
    keys: Mapping[str, Located[Any]] = given.value
    labels = [_labels(keys.get(name)) for name in ("treatment", "against")]
    values = [keys[name].value for name in ("is", "measure", "rounds") if name in keys]
    if labels[0] is None or labels[1] is None or "is" not in keys or INVALID in values:
        return None
    try:
        says = parse_claim(keys["is"].value).text
    except ValueError as error:
        findings.add(keys["is"].place, f"'is': {error}", deep=True)
        return None
    treatment = _only(labels[0], resolved.treatments, "treatment", keys["treatment"].place, findings)
    if treatment is None:
        return None
    own = resolved.treatments[treatment].labels
    against = _only(labels[1], resolved.treatments, "against", keys["against"].place, findings, own)
    if against is None:
        return None
    if against == treatment:
        text = f"'against' is {resolved.treatments[against].title}, as 'treatment' is: give the labels of another one"
        findings.add(keys["against"].place, text, deep=True)
        return None
    sides = (treatment, against)
    measure = _measure(keys.get("measure"), sides, resolved, given.place, findings)
    rounds = _rounds(keys.get("rounds"), sides, resolved, given.place, findings)
    if measure is None or rounds is None:
        return None
    return Claim(own, resolved.treatments[against].labels, measure, says, rounds)


def _labels(given: Located[Any] | None) -> dict[str, str] | None:
    if given is None or given.value is INVALID or INVALID in [one.value for one in given.value.values()]:
        return None
    return {key: one.value for key, one in given.value.items()}


def _only(
    wanted: Mapping[str, str],
    treatments: Sequence[Treatment],
    key: str,
    place: SourceLocation,
    findings: Diagnostics,
    like: Mapping[str, Any] | None = None,
) -> int | None:
    """Return the treatment with these labels, of several the one otherwise `like` another. Report any else."""
    problem = unmatched_labels(wanted, [one.labels for one in treatments], f"'{key}'")
    if problem:
        findings.add(place, problem, deep=True)
        return None
    found = [one for one in treatments if not unmatched_labels(wanted, [one.labels])]
    if len(found) > 1 and like is not None:
        found = [one for one in found if _rest(one.labels, wanted) == _rest(like, wanted)] or found
    if len(found) == 1:
        return found[0].index
    names = dict.fromkeys(name for one in found for name in one.labels)
    varying = [name for name in names if len({label_text(one.labels.get(name)) for one in found}) > 1]
    text = f"'{key}' {_shown(wanted)} means {len(found)} treatments: add the label {' or '.join(varying)}"
    findings.add(place, text, deep=True)
    return None


def _rest(labels: Mapping[str, Any], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: label_text(value) for key, value in labels.items() if key not in wanted}


def _shown(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())


def _measure(
    given: Located[Any] | None,
    sides: tuple[int, int],
    resolved: ResolvedScenario,
    place: SourceLocation,
    findings: Diagnostics,
) -> str | None:
    """Return the measure of a claim; report one that a side does not have, or that tells nothing apart."""
    if given is None:
        first, second = (resolved.primary[index] for index in sides)
        if first != second:
            text = f"the primary measures are {first} and {second}: give the 'measure' that the claim is about"
            findings.add(place, text, deep=True)
            return None
        return first
    measure = None
    for treatment in (resolved.treatments[index] for index in sides):
        metrics = as_stored_metrics(job_metrics(treatment))
        try:
            measure = parse_primary(given.value, [one.name for one in job_script(treatment)], metrics)
            problem = fixed_reason(treatment, measure) or _undirected(measure, metrics)
        except ValueError as error:
            problem = str(error)
        if problem:
            findings.add(given.place, f"'measure' of {treatment.title}: {problem}", deep=True)
            return None
    return None if measure is None else measure.name


def _undirected(measure: Primary, metrics: Mapping[str, StoredMetric]) -> str:
    if measure.kind == "metric" and not metrics[measure.name].direction:
        return f"{measure.name} has no direction: add 'better: higher' or 'better: lower' to the metric"
    return ""


def _rounds(
    given: Located[Any] | None,
    sides: tuple[int, int],
    resolved: ResolvedScenario,
    place: SourceLocation,
    findings: Diagnostics,
) -> int | None:
    """Return by how many rounds a claim is judged; report a number that the run does not have."""
    repeats = [resolved.repeats[index] for index in sides]
    fixed = [one for one in repeats if not isinstance(one, UntilVerdict)]
    if len(fixed) < len(repeats):
        text = "a claim is judged by a fixed number of rounds: give 'repeats: N' in place of 'until: verdict'"
        findings.add(place, text, deep=True)
        return None
    most = min(fixed)
    if given is None and most < MIN_ROUNDS:
        text = f"a claim needs at least {MIN_ROUNDS} rounds, and 'repeats' is {most}: fewer give no 95 % interval"
        findings.add(place, text, deep=True)
        return None
    if given is not None and given.value > most:
        findings.add(
            given.place, f"'rounds' is {given.value}, and 'repeats' is {most}: give at most so many", deep=True
        )
        return None
    return most if given is None else int(given.value)


def _check_alike(claims: Sequence[tuple[SourceLocation, Claim]], findings: Diagnostics) -> None:
    """Report claims that say the same twice, or judge one comparison by two numbers of rounds."""
    for position, (place, claim) in enumerate(claims):
        for number, (_, other) in enumerate(claims[:position], 1):
            if claim == other:
                findings.add(place, f"claim {position + 1} is claim {number} once more: remove one", deep=True)
            elif claim.compared == other.compared and claim.rounds != other.rounds:
                text = (
                    f"claim {number} judges the same comparison by {other.rounds} rounds: give one number of 'rounds'"
                )
                findings.add(place, text, deep=True)
