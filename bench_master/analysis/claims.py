"""Registered claims: what the header of a stats file claimed before the first job, and what became of it.

A claim is judged by its own measure and by the first rounds of the run, as many as it says; what came later, by an
extension, does not count for it. The claims are one family, whatever else the run compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import ExitCode
from bench_common.stats.block_types import Header, StoredClaim, StoredClaims, StoredTreatment
from bench_common.thresholds import Primary, parse_primary
from bench_master.analysis.gates import Gate, judge_gates
from bench_master.analysis.verdict_types import ClaimReport, ClaimsReport, ComparisonReport
from bench_master.plan import is_host_ceiling
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.trial_values import TrialCollector, TrialTable, primary_of
from bench_master.scenario.claims import claim_name, digest_of, parse_claim
from bench_master.scenario.keys_run import label_text
from bench_master.scenario.model import is_again
from bench_master.verdicts.decision import DEFAULT_MARGIN

_STATES: Final = {"passed": "kept", "failed": "broken", "undecided": "undecided"}


ClaimedComparison: TypeAlias = tuple[int, int, str, int]
"""Baseline, treatment, measure and number of rounds."""


class Claims(Struct, frozen=True):
    """The claims of a header, and what they compare."""

    stored: StoredClaims
    compared: Sequence[ClaimedComparison | None]
    """What each claim compares; None if the run lacks one of its treatments."""
    tables: Mapping[str, TrialTable] = {}
    """The values of the trials by measure, of the measures that are not primary ones."""

    @property
    def margin(self) -> float:
        """The registered margin, as a share, whatever a command line says."""
        return self.stored["margin"] or DEFAULT_MARGIN

    def comparisons(self) -> list[ClaimedComparison]:
        """Return what the claims compare, each once."""
        return list(dict.fromkeys(each for each in self.compared if each is not None))

    def other_measures(self, header: Header) -> list[ClaimedMeasure]:
        """Return the measures that are not the primary one of both their treatments."""
        return [
            ClaimedMeasure(name)
            for name in dict.fromkeys(
                measure
                for a, b, measure, _ in self.comparisons()
                if any(primary_of(header.treatments[side]).name != measure for side in (a, b))
            )
        ]


def find_claims(header: Header) -> Claims | None:
    """Return the claims of a header; None without any, and of a no-op run, which measures the harness."""
    if not header.claims or header.noop:
        return None
    compared: list[ClaimedComparison | None] = []
    for one in header.claims["registered"]:
        a, b = (_index_of(one[side], header.treatments) for side in ("against", "treatment"))
        compared.append(None if a is None or b is None else (a, b, one["measure"], one["rounds"]))
    return Claims(header.claims, compared)


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


def judge_claims(claims: Claims, found: Mapping[ClaimedComparison, ComparisonReport]) -> ClaimsReport:
    """Return what became of each claim by the comparisons that were made for them."""
    sha256, registered = claims.stored["sha256"], claims.stored["registered"]
    intact = sha256 == digest_of(registered, claims.stored["margin"])
    judged = [
        _judge(claim, None if compared is None else found.get(compared), intact=intact)
        for claim, compared in zip(registered, claims.compared, strict=True)
    ]
    return ClaimsReport(sha256, intact, judged)


def _judge(claim: StoredClaim, comparison: ComparisonReport | None, *, intact: bool) -> ClaimReport:
    report = ClaimReport(
        name=claim_name(claim["treatment"], claim["against"]),
        treatment="" if comparison is None else comparison.b,
        against="" if comparison is None else comparison.a,
        measure=claim["measure"],
        says=claim["says"],
        rounds=claim["rounds"],
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
    if comparison.verdict != "refused" and ran < claim["rounds"]:
        text = f"{ran} of {claim['rounds']} registered rounds ran: resume the run, or add rounds with --more"
        return replace(report, text=text, exit_code=int(ExitCode.INFRASTRUCTURE))
    try:
        condition = parse_claim(claim["says"])
    except ValueError as error:
        return replace(report, text=str(error))
    (outcome,) = judge_gates([Gate(claim["says"], condition)], [comparison])
    state: Any = _STATES[outcome.state]
    return replace(report, state=state, text=outcome.text, exit_code=outcome.exit_code)
