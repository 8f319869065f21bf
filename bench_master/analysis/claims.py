"""Registered claims: what the header of a stats file claimed before the first job, and what became of it.

A claim is judged by its own measure and by the first rounds of the run, as many as it says; what came later, by an
extension, does not count for it. The claims are one family, whatever else the run compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import ExitCode
from bench_common.stats.block_types import Header, StoredTreatment
from bench_common.thresholds import Primary, parse_primary
from bench_master.analysis.gates import Gate, judge_gates
from bench_master.analysis.verdict_types import ClaimReport, ClaimsReport, ComparisonReport
from bench_master.plan import is_host_ceiling
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.trial_values import Failures, TrialCollector, TrialTable, primary_of
from bench_master.scenario.claims import claim_name, digest_of, parse_claim
from bench_master.scenario.keys_run import label_text
from bench_master.scenario.model import is_again
from bench_master.verdicts.decision import DEFAULT_MARGIN

_STATES: Final = {"passed": "kept", "failed": "broken", "undecided": "undecided"}


class RegisteredClaim(Struct, frozen=True):
    """A claim of a header, with the treatments that it means."""

    name: str
    """The two treatments by the labels in which they differ."""
    treatment: int | None
    """Index of the treatment that it is about; None if the run has no such treatment."""
    against: int | None
    """Index of the one that this is compared with."""
    measure: str
    """The measure, as reports call it."""
    says: str
    rounds: int
    """It is judged by the first so many rounds."""

    @property
    def compared(self) -> tuple[int, int, str, int] | None:
        """What it compares: baseline, treatment, measure and rounds; None if the run lacks one of them."""
        if self.treatment is None or self.against is None:
            return None
        return self.against, self.treatment, self.measure, self.rounds


class Registration(Struct, frozen=True):
    """The claims of a header."""

    sha256: str
    margin: float | None
    """Smaller differences are *same*, as a share; None for the default."""
    intact: bool
    """Whether the digest is theirs."""
    claims: Sequence[RegisteredClaim]
    """In the order of the scenario."""

    def comparisons(self) -> list[tuple[int, int, str, int]]:
        """Return what the claims compare, each once: baseline, treatment, measure and rounds."""
        return list(dict.fromkeys(each.compared for each in self.claims if each.compared is not None))


def find_registration(header: Header) -> Registration | None:
    """Return the claims of a header; None without any, and of a no-op run, which measures the harness."""
    stored = header.claims
    if not stored or header.noop:
        return None
    treatments = header.treatments
    claims = [
        RegisteredClaim(
            claim_name(one["treatment"], one["against"]),
            _index_of(one["treatment"], treatments),
            _index_of(one["against"], treatments),
            one["measure"],
            one["says"],
            one["rounds"],
        )
        for one in stored["registered"]
    ]
    intact = stored["sha256"] == digest_of(stored["registered"], stored["margin"])
    return Registration(stored["sha256"], stored["margin"], intact, claims)


def _index_of(labels: Mapping[str, str], treatments: Sequence[StoredTreatment]) -> int | None:
    for index, treatment in enumerate(treatments):
        own = treatment.labels
        if is_again(own) or is_host_ceiling(own):
            continue
        # Where a scenario names no environment the header says in which one it ran.
        texts = {key: label_text(value) for key, value in own.items() if key in labels or key != "environment"}
        if texts == labels:
            return index
    return None


class ClaimedMeasure(Struct, frozen=True):
    """A measure of claims that is not the primary one: makes the look at the trials for it."""

    name: str

    def __call__(self, run: MeasuredRun) -> TrialCollector:
        """Return what takes the trials of the treatments that have the measure."""
        measures = {
            index: measure
            for index, treatment in enumerate(run.header.treatments)
            if not is_host_ceiling(treatment.labels) and (measure := _measure_of(treatment, self.name)) is not None
        }
        return TrialCollector(run.header, run.hosts, measures, run.sums.done)


def _measure_of(treatment: StoredTreatment, name: str) -> Primary | None:
    try:
        return parse_primary(name, treatment.operation_names, treatment.metrics)
    except ValueError:
        return None


def other_measures(header: Header, registration: Registration | None) -> list[ClaimedMeasure]:
    """Return the measures of claims that are not the primary one of both their treatments."""
    if registration is None:
        return []
    treatments = header.treatments
    return [
        ClaimedMeasure(name)
        for name in dict.fromkeys(
            measure
            for a, b, measure, _ in registration.comparisons()
            if any(primary_of(treatments[side]).name != measure for side in (a, b))
        )
    ]


class Claimed(Struct, frozen=True):
    """The claims of a run, with the values of their trials."""

    registration: Registration
    tables: Mapping[str, TrialTable]
    """The values by measure, of the measures that are not primary ones."""

    @property
    def margin(self) -> float:
        """The registered margin, as a share, whatever a command line says."""
        return self.registration.margin or DEFAULT_MARGIN


def claimed_of(run: MeasuredRun, registration: Registration | None, failures: Failures) -> Claimed | None:
    """Return the claims of a run with the values of their trials; None without claims."""
    if registration is None:
        return None
    makers = other_measures(run.header, registration)
    return Claimed(registration, {one.name: run.part(one).table(run.sums, failures) for one in makers})


def judge_claims(
    registration: Registration, found: Mapping[tuple[int, int, str, int], ComparisonReport]
) -> ClaimsReport:
    """Return what became of each claim by the comparisons that were made for them."""
    claims = []
    for claim in registration.claims:
        comparison = None if claim.compared is None else found.get(claim.compared)
        claims.append(_judge(claim, comparison, intact=registration.intact))
    return ClaimsReport(registration.sha256, registration.intact, claims)


def _judge(claim: RegisteredClaim, comparison: ComparisonReport | None, *, intact: bool) -> ClaimReport:
    report = ClaimReport(
        name=claim.name,
        treatment="" if comparison is None else comparison.b,
        against="" if comparison is None else comparison.a,
        measure=claim.measure,
        says=claim.says,
        rounds=claim.rounds,
        state="undecided",
        text="",
        exit_code=int(ExitCode.INCONCLUSIVE),
    )
    if not intact:
        text = "the claims of the stats file are not those that its digest was made of: the file was changed"
        return replace(report, text=text)
    if comparison is None:
        return replace(report, text="the run has no such treatment, or it lacks the measure")
    ran = comparison.rounds + comparison.lost
    if comparison.verdict != "refused" and ran < claim.rounds:
        text = f"{ran} of {claim.rounds} registered rounds ran: resume the run, or add rounds with --more"
        return replace(report, text=text, exit_code=int(ExitCode.INFRASTRUCTURE))
    try:
        condition = parse_claim(claim.says)
    except ValueError as error:
        return replace(report, text=str(error))
    (outcome,) = judge_gates([Gate(claim.says, condition)], [comparison])
    state: Any = _STATES[outcome.state]
    return replace(report, state=state, text=outcome.text, exit_code=outcome.exit_code)
