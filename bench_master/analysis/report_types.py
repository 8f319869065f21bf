"""The report document as declared types: what `build_document` returns and every report format reads.

`as_json` turns it into the object that ``--format json`` prints; the name of an attribute is its key there. Times are
seconds (``_s``), sizes bytes, shares 0 to 1; None is a measure without a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.run_data.run_types import (
    ClockReport,
    HostFindingReport,
    LoopReport,
    ResumeReport,
    TrialOrderReport,
)
from bench_master.run_data.traced_types import TracedReport
from bench_master.run_data.treatment_types import SampleReport, TreatmentReport
from bench_master.verdicts.reasons import Reason


class ImportedFileReport(Struct, frozen=True):
    """One file that results were imported from."""

    name: str
    """Its path, or ``<stdin>``."""
    bytes: int
    """Its size."""
    sha256: str
    """Its checksum."""
    runs: int
    """Runs of the tool that it holds."""
    readings: int
    """Readings of a monitor that it holds."""


class ImportReport(Struct, frozen=True):
    """Where results that were measured elsewhere come from."""

    at: str | None
    """When they were imported (ISO 8601)."""
    workload: str | None
    """The workload that the files are outputs of."""
    files: Sequence[ImportedFileReport]
    """The files, in the order of the command line."""


class CertificateReport(Struct, frozen=True):
    """What runs of equal treatments had shown of a host before the run began."""

    host: str
    """The host's name."""
    id: str
    """The certificate's id."""
    created: str
    """When it was made (ISO 8601)."""
    says: str
    """What it says, in one clause."""
    void: Sequence[str]
    """Why it does not hold for the host any more; empty if it holds."""

    @property
    def sentence(self) -> str:
        """What it says of its host, or why it does not hold any more."""
        name = f"{self.id} of {self.host}, {self.created[:10]}"
        return f"{name}, is void: {'; '.join(self.void)}" if self.void else f"{name}: {self.says}"


class RunReport(Struct, frozen=True):
    """The run itself."""

    run_id: str | None
    """The run's id: date, time and a random suffix."""
    created: str | None
    """When it began (ISO 8601); None for imported results."""
    ended: str | None
    """When it ended; None without a footer."""
    status: str | None
    """``complete``, ``interrupted``, ``failed`` ...; None without a footer."""
    noop: bool
    """Whether nothing was executed."""
    measures: str
    """``scenario``, ``harness-ceiling`` for a no-op run, ``elsewhere`` for imported results."""
    imported: ImportReport | None
    """Where imported results come from; None for a run."""
    order: str | None
    """``interleaved`` or ``sequential``."""
    seed: int | None
    """The seed of the order."""
    argv: Sequence[str]
    """The command line."""
    versions: Mapping[str, str]
    """Versions of Weighbridge and Python."""
    sampling_interval_s: float | None
    """Seconds between samples of hosts; None if off."""
    resumes: Sequence[ResumeReport]
    """Each time that the run was resumed, the first first."""
    actual_order: TrialOrderReport
    """The order in which the trials ran."""
    certificates: Sequence[CertificateReport] = ()
    """The certificates of its hosts; empty without any."""


class ScenarioReport(Struct, frozen=True):
    """The scenario that was run."""

    name: str | None
    """Its name."""
    description: str | None
    """What it says of itself."""
    path: str | None
    """The file it was read from."""
    document: Mapping[str, Any] | None
    """The resolved scenario."""
    subject: str
    """What was run, on which hosts, in a line; empty where the file does not say."""


class MasterReport(Struct, frozen=True):
    """What the master and its host did during the run."""

    samples: Mapping[str, SampleReport]
    """Each column of the host's samples, by name; amounts are per second."""
    loop: LoopReport | None
    """Its event loop; None if it was not measured."""


class HostReport(Struct, frozen=True):
    """A worker and its host."""

    worker: int | None
    """Roster number."""
    worker_id: str | None
    """The worker's name."""
    host: str | None
    """The host's name."""
    environment: str | None
    """The environment that the worker belongs to."""
    slots: int | None
    """Jobs that it can run at once."""
    engines: Mapping[str, str] | None
    """Its engines and their versions."""
    programs: Mapping[str, Mapping[str, str]]
    """Of each engine whose program is known, its path (`program`) and the digest of its file (`sha256`)."""
    fingerprint: Mapping[str, Any] | None
    """Facts about the host."""
    clock: Mapping[str, Any] | None
    """Offset of its clock against the master's when it connected."""
    samples: Mapping[str, SampleReport]
    """Each column of the host's samples, by name; amounts are per second."""
    loop: LoopReport | None
    """The worker's event loop; None if it was not measured."""
    clock_checks: ClockReport
    """Its clock during the trials."""
    findings: Sequence[HostFindingReport]
    """What the doctor found on it before the run; empty for an idle host."""


class TotalsReport(Struct, frozen=True):
    """Jobs and time of the whole run."""

    jobs: int
    """Measured jobs, whatever became of them."""
    done: int
    """Measured jobs that were done."""
    failed: int
    """Measured jobs that failed."""
    left_out: int
    """Measured jobs of optional treatments that were skipped; they are in no other count."""
    lost: int
    """Measured jobs that were lost with their worker."""
    aborted: int
    """Measured jobs that were cancelled."""
    not_started: int | None
    """Jobs that were never handed out, those of trials that never began included; None if the file is not whole."""
    warmup: int
    """Warm-up jobs."""
    planned: int | None
    """All planned jobs, warm-up included; None if trials last a time."""
    missing: int | None
    """Planned jobs that were neither done nor failed."""
    duration_s: float | None
    """Duration of the run."""
    busy_s: float
    """Summed duration of the measured trials."""
    jobs_per_s: float | None
    """Jobs done per second of the measured trials."""


class ErrorReport(Struct, frozen=True):
    """Errors of one operation and kind."""

    operation: str
    """The operation that failed."""
    kind: str
    """The kind of failure."""
    count: int
    """How many."""
    warmup: int
    """How many of them in warm-up."""
    treatments: Sequence[str]
    """Titles of the treatments in which they occurred."""
    job: int
    """Id of the job that the message comes from."""
    message: str
    """One real message."""


class StatisticsReport(Struct, frozen=True):
    """The figures that stand beside published ones."""

    n: int | None
    """Trials, or readings of a host's CPU."""
    mean: float | None
    """Mean."""
    stddev: float | None
    """Sample standard deviation."""
    min: float | None
    """The smallest value."""
    median: float | None
    """The median."""
    max: float | None
    """The largest value."""


class PublishedStatisticsReport(Struct, frozen=True):
    """What others measured in one place."""

    where: str
    """The machine or environment."""
    n: int | None
    """Runs, if published."""
    mean: float | None
    """Mean."""
    stddev: float | None
    """Standard deviation, if published."""
    min: float | None
    """The smallest value, if published."""
    median: float | None
    """The median, if published."""
    max: float | None
    """The largest value, if published."""
    source: str
    """Where it is published."""
    note: str
    """What to know about it."""


class PublishedTableReport(Struct, frozen=True):
    """One metric of one treatment: this run's figures and the published ones."""

    treatment: str
    """The treatment's title."""
    labels: Mapping[str, Any]
    """The treatment's labels."""
    metric: str
    """The metric's name."""
    unit: str
    """Its unit."""
    direction: str | None
    """``higher`` or ``lower`` is better."""
    ours: StatisticsReport | None
    """This run's figures; None if it did not measure the metric."""
    published: Sequence[PublishedStatisticsReport]
    """The published figures."""


class PublishedReport(Struct, frozen=True):
    """Published figures beside this run's."""

    title: str
    """The study's title."""
    source: str
    """Where it is published."""
    file: str
    """The table beside the scenario."""
    caution: str
    """How far the figures can be compared."""
    tables: Sequence[PublishedTableReport]
    """A table for each treatment and metric; none if no measure matches a treatment."""


class ThresholdReport(Struct, frozen=True):
    """The verdict on a threshold for one treatment."""

    threshold: str
    """The threshold as the scenario has it."""
    treatment: str
    """The treatment's title; empty if none was found."""
    value: float | None
    """The measure."""
    passed: bool
    """Whether it holds."""
    message: str
    """Measure, value, limit and treatment."""


ThresholdState: TypeAlias = Literal["passed", "failed", "undecided"]
"""``undecided``: the figures cannot tell, which alone makes no exit code."""
RunState: TypeAlias = Literal["complete", "incomplete", "damaged"]
"""``incomplete``: jobs or the end of the run are missing; ``damaged``: bytes of the stats file are, too."""


TrustWord: TypeAlias = Literal["good", "fair", "poor"]


class TrustReport(Struct, frozen=True):
    """How far a report can be trusted, in one word with its reason."""

    word: TrustWord
    """``good``: nothing was found; ``fair``: the answer holds with the reason in mind; ``poor``: it may be wrong."""
    reason: str
    """The gravest reason in short; empty for ``good``. The warnings have all of it."""
    others: int
    """How many other reasons there are."""

    @property
    def sentence(self) -> str:
        """The word, with its reason, as reports for people have it."""
        others = f" ({self.others} more below)" if self.others else ""
        return f"Trust: {self.word}{f', {self.reason}{others}' if self.reason else ''}."


class ReportDocument(Struct, frozen=True):
    """A whole report."""

    format: str
    """``weighbridge-report``."""
    version: int
    """Version of the format."""
    stats_file: str
    """Path of the stats file."""
    run: RunReport
    """The run."""
    scenario: ScenarioReport
    """Its scenario."""
    hosts: Sequence[HostReport]
    """Its workers and their hosts, by roster number."""
    master: MasterReport
    """The master and its host."""
    pctile: float
    """The percentile that was asked for (0 to 100)."""
    run_state: RunState
    """Whether the figures cover the whole run."""
    incomplete: Sequence[str]
    """Why the run is incomplete; empty if it is complete."""
    damage: str | None
    """What cannot be read in the stats file, where and why."""
    can_continue: bool
    """Whether ``run-scenario --resume`` can run what is missing."""
    warnings: Sequence[str]
    """What makes figures doubtful."""
    remarks: Sequence[str]
    """What else to know about the run."""
    totals: TotalsReport
    """Jobs and time of the whole run."""
    treatments: Sequence[TreatmentReport]
    """The treatments in the order of the plan."""
    errors: Sequence[ErrorReport]
    """Groups of errors, the largest first."""
    published: PublishedReport | None
    """Published figures; None if the scenario names none."""
    thresholds: Sequence[ThresholdReport]
    """Verdicts on the scenario's thresholds."""
    verdicts: VerdictsReport | None = None
    """Verdicts on the differences between treatments; None where nothing can be compared."""
    no_verdict: str | None = None
    """Why nothing can be compared; None where there are verdicts."""
    no_verdict_reason: Reason | None = None
    """The same as a code with its data."""
    trust: TrustReport = TrustReport(word="good", reason="", others=0)
    """How far all of it can be trusted."""
    traced: Sequence[TracedReport] = ()
    """Where the time of operations went in the traced trials; none without `explain`."""

    def __post_init__(self) -> None:
        """Set in words why nothing can be compared."""
        reason = self.no_verdict_reason
        force_setattr(self, "no_verdict", None if reason is None else reason.sentence())

    def threshold_state(self, threshold: ThresholdReport) -> ThresholdState:
        """Return the state of a threshold as the exit code takes it.

        One that does not hold has not failed where an incomplete run lacks its measure, nor in a no-op run, which has
        no figures to judge.
        """
        if threshold.passed:
            return "passed"
        lacks_measure = threshold.value is None and bool(self.incomplete)
        return "undecided" if lacks_measure or self.run.noop else "failed"


def as_json(value: Any) -> Any:
    """Return a part of the document as plain dicts, lists and scalars, with the keys of the JSON report."""
    if isinstance(value, Struct):
        found: dict[str, Any] = {}
        for name, inline, omit_none in _keys(type(value)):
            item = getattr(value, name)
            if inline is not None:
                found.update({inline.format(key): as_json(each) for key, each in item.items()})
            elif item is not None or not omit_none:
                found[name] = as_json(item)
        return found
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value


@cache
def _keys(kind: type[Struct]) -> tuple[tuple[str, str | None, bool], ...]:
    """Return for each field its name, the form of its keys in `INLINE`, and whether `OMIT_NONE` has it."""
    inline, omitted = getattr(kind, "INLINE", {}), getattr(kind, "OMIT_NONE", ())
    return tuple((name, inline.get(name), name in omitted) for name in kind.__struct_fields__)
