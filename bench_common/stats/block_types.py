"""The blocks of a stats file as declared types: what the reader checks, and what every reader of a file gets.

Keys that older files and imports do not have are not required. A block may have more keys than its type; the reader
keeps them. docs/stats-file.rst explains what their names do not say.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, TypeAlias, TypedDict, cast

import msgspec
from msgspec import Meta

from bench_common.host_info import Fingerprint, Number, Texts
from bench_common.job_kind import installed_job_type
from bench_common.records import Count, ErrorRecord, MetricRecord, OutputRecord, TransactionRecord

MAX_ROWS: Final = 65_536
"""The most rows that one column, and so one block, may have."""
MAX_RECORDS: Final = 4096
"""The most metrics, errors or outputs in one block."""
MAX_COLUMNS: Final = 300
"""The most columns in one block; samples have up to 256."""
MAX_TEXTS: Final = 100_000
"""The most texts in one list."""

Text: TypeAlias = Annotated[str, Meta(max_length=8 << 20)]
Instant: TypeAlias = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
"""Nanoseconds; sums and differences of two of them fit 64 bits."""
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e12)]
TrialIndex: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 20)]
WorkerNumber: TypeAlias = Annotated[int, Meta(ge=-1, le=65_535)]
"""A roster number; -1 is the master."""
Rate: TypeAlias = Annotated[float, Meta(ge=0, le=1e12)]
Scalar: TypeAlias = Text | Number | float | bool | None
TextList: TypeAlias = Annotated[list[Text], Meta(max_length=MAX_TEXTS)]
Labels: TypeAlias = Annotated[dict[Text, Scalar], Meta(max_length=1000)]
EncodedColumns: TypeAlias = Annotated[dict[str, bytes], Meta(max_length=MAX_COLUMNS)]
RowCount: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_ROWS)]
StoredTrial: TypeAlias = tuple[Count, Count, bool]
"""Treatment, block and whether it is a warm-up; read as a list of these three."""


class Jobs(TypedDict):
    """Jobs, and their operations if they have any, by column."""

    rows: RowCount
    columns: EncodedColumns
    operations: NotRequired[EncodedColumns]


class Operations(TypedDict):
    """Operations, or transfers of objects, by column."""

    rows: RowCount
    columns: EncodedColumns


class Samples(TypedDict):
    """Readings of one source on one worker, by column."""

    worker: WorkerNumber
    source: Text
    units: Annotated[dict[Text, Text], Meta(max_length=MAX_COLUMNS)]
    rows: RowCount
    columns: EncodedColumns


class Metrics(TypedDict):
    """Metrics that guests reported."""

    rows: Annotated[list[MetricRecord], Meta(max_length=MAX_RECORDS)]


class Errors(TypedDict):
    """Errors of jobs."""

    rows: Annotated[list[ErrorRecord], Meta(max_length=MAX_RECORDS)]


class Outputs(TypedDict):
    """What guests printed."""

    rows: Annotated[list[OutputRecord], Meta(max_length=MAX_RECORDS)]


class Transactions(TypedDict):
    """Names that servers gave to requests of jobs."""

    rows: Annotated[list[TransactionRecord], Meta(max_length=MAX_RECORDS)]


# -- the header ----------------------------------------------------------------------------------------------------


class ClockStart(TypedDict, total=False):
    """The master's clocks when the run began."""

    unix_ns: Instant
    monotonic_ns: Instant
    boot_id: Text


class StoredScenario(TypedDict, total=False):
    """The scenario that was run."""

    name: Text | None
    description: Text | None
    path: Text | None
    text: Text | None
    document: dict[str, Any] | None
    notes: TextList
    scale: Text | None


class StoredMetric(TypedDict, total=False):
    """What is known of a metric beside its values."""

    unit: Text
    direction: Text | None


class StoredOpenLoad(TypedDict, total=False):
    """Arrivals of an open system."""

    rate_per_s: Rate
    process: Text
    queue_timeout_s: Seconds


class StoredTreatment(TypedDict, total=False):
    """A treatment as the run had it."""

    title: Text | None
    labels: Labels
    environment: Text | None
    engine: Text | None
    cost_name: Text
    operation_names: TextList
    metrics: Annotated[dict[Text, StoredMetric], Meta(max_length=MAX_TEXTS)]
    concurrency: Count | None
    iterations: Count | None
    timeout_s: float | None
    jobs_per_trial: Count | None
    primary: Text | None
    optional: bool
    open_load: StoredOpenLoad | None
    cold: Text
    host: Annotated[dict[Text, Text], Meta(max_length=MAX_TEXTS)]
    # What it runs: `definition_of` checks it for those who need it; the others can read a file without it.
    job: object
    container: object
    services: object


class StoredSizes(TypedDict, total=False):
    """How large the objects of a class are, in bytes."""

    minimum: float
    maximum: float


class StoredClass(TypedDict, total=False):
    """A class of sizes of objects."""

    name: Text
    weight: float
    sizes: StoredSizes
    mix: list[tuple[Text, float]]


class StoredJob(TypedDict, total=False):
    """What a treatment runs; each kind of job has more keys."""

    kind: Text
    workload: Text | None
    params: dict[str, Any] | None
    operations: list[dict[str, Any]] | None
    own: dict[str, Any] | None
    classes: list[StoredClass]
    endpoints: TextList | None
    delete_after_s: float | None


class Definition(TypedDict, total=False):
    """What a treatment runs."""

    job: StoredJob | None
    container: dict[str, Any] | None
    services: dict[Text, dict[str, Any]] | None


def definition_of(treatment: StoredTreatment) -> Definition:
    """Return what a treatment runs, with keys that are not declared, too; raise `ValueError` if it is malformed."""
    msgspec.convert(treatment, Definition)
    return cast("Definition", treatment)


def job_kind(treatment: StoredTreatment) -> str | None:
    """Return the kind of a treatment's job; None if it does not say."""
    job = treatment.get("job")
    kind = job.get("kind") if isinstance(job, dict) else None
    return kind if isinstance(kind, str) else None


def does_one_operation(treatment: StoredTreatment) -> bool:
    """Return whether each of a treatment's jobs does one of its operations, as far as its kind is installed here."""
    found = installed_job_type(job_kind(treatment) or "")
    return found is not None and found.does_one_operation


class StoredPublishedMeasure(TypedDict):
    """A measure that a study published."""

    labels: Labels
    where: Text
    metric: Text
    unit: Text
    n: Count | None
    mean: float | None
    stddev: float | None
    min: float | None
    median: float | None
    max: float | None
    source: Text
    note: Text


class StoredPublication(TypedDict):
    """The figures of a study that the run is compared with."""

    title: Text
    source: Text
    file: Text
    rows: Annotated[list[StoredPublishedMeasure], Meta(max_length=MAX_TEXTS)]


class StoredImportFile(TypedDict):
    """A file that results were imported from."""

    name: Text
    bytes: Count
    sha256: Text
    runs: Count
    readings: Count


class StoredImport(TypedDict):
    """Where imported results come from."""

    at: NotRequired[Text | None]
    workload: NotRequired[Text | None]
    timed: NotRequired[bool]
    files: Annotated[list[StoredImportFile], Meta(max_length=MAX_TEXTS)]


class StoredBaseline(TypedDict, total=False):
    """The labels of a baseline."""

    baseline: Labels


class StoredVerdicts(TypedDict, total=False):
    """How treatments are compared."""

    baseline: Labels
    margin: Annotated[float, Meta(gt=0, le=1)] | None


class StoredClaim(TypedDict):
    """What is claimed of two treatments before the first job."""

    treatment: Annotated[dict[Text, Text], Meta(max_length=1000)]
    against: Annotated[dict[Text, Text], Meta(max_length=1000)]
    measure: Text
    says: Text
    rounds: Annotated[int, Meta(ge=1, le=1 << 20)]


class StoredClaims(TypedDict):
    """The claims of a run, and the digest that fixes them."""

    sha256: Text
    margin: Annotated[float, Meta(gt=0, le=1)] | None
    registered: Annotated[list[StoredClaim], Meta(max_length=MAX_TEXTS)]


class StoredCertificate(TypedDict):
    """What runs of equal treatments had shown of a host before the run began."""

    host: Text
    id: Text
    created: Text
    """When it was made, ISO 8601."""
    says: Text
    """What it says, in one clause."""
    void: TextList
    """Why it does not hold for the host any more; empty if it holds."""


class StoredUntilVerdict(TypedDict, total=False):
    """When a run that goes on until its verdicts ends."""

    at_most: Count
    budget_s: Seconds | None


class Header(TypedDict, total=False):
    """The first block: what was going to be run, and how."""

    run_id: Text | None
    created: Text | None
    clock: ClockStart | None
    imported: StoredImport | None
    scenario: StoredScenario
    published: StoredPublication | None
    thresholds: TextList
    allow_failures: bool | None
    verdicts: StoredVerdicts | None
    claims: StoredClaims | None
    certificates: Annotated[list[StoredCertificate], Meta(max_length=MAX_TEXTS)]
    order: Text | None
    seed: Number | None
    argv: TextList
    versions: Texts
    options: dict[str, Any]
    noop: bool
    settle_s: Seconds | None
    until_verdict: StoredUntilVerdict | None
    sampling_interval_s: Seconds | None
    overhead: StoredBaseline | None
    treatments: Annotated[list[StoredTreatment], Meta(max_length=MAX_TEXTS)]
    trials: Annotated[list[StoredTrial], Meta(max_length=1 << 20)]


# -- host, events, footer --------------------------------------------------------------------------------------------


class HostClock(TypedDict, total=False):
    """A host's clock against the master's."""

    offset_ns: Number
    uncertainty_ns: Number


Programs: TypeAlias = Annotated[dict[Text, Texts], Meta(max_length=1000)]
"""Of each engine, as far as they are known: the path of its ``program`` and the digest of that file (``sha256``), its
``storage_driver``, and the digest of each image (``image NAME``)."""


class StoredHost(TypedDict, total=False):
    """A worker and its machine."""

    worker: WorkerNumber
    worker_id: Text | None
    host: Text | None
    environment: Text | None
    slots: Count | None
    engines: Texts | None
    programs: Programs
    fingerprint: Fingerprint | None
    labels: Texts
    clock: HostClock | None


class StoredEvent(TypedDict):
    """Something that happened; most kinds have more keys."""

    at_ns: Instant
    kind: Text


class WorkerEvent(StoredEvent, total=False):
    """A worker joined, came back or was lost."""

    worker: WorkerNumber
    worker_id: Text
    reason: Text
    held: Count
    trial: TrialIndex


class TrialEvent(StoredEvent):
    """A trial began, ended or was skipped."""

    trial: TrialIndex
    workers: NotRequired[Annotated[list[WorkerNumber], Meta(max_length=MAX_ROWS)]]
    # Worker, offset, uncertainty and, but for old files, the age of the comparison.
    clocks: NotRequired[
        Annotated[list[Annotated[list[Number], Meta(min_length=3, max_length=4)]], Meta(max_length=MAX_ROWS)]
    ]
    # CPU time of the harness on its host, and of that host the idle and all of it, in ns.
    harness: NotRequired[Annotated[list[Count], Meta(min_length=3, max_length=3)]]
    not_started: NotRequired[Count]
    not_started_outcome: NotRequired[Text | Count]
    complete: NotRequired[bool]
    reason: NotRequired[Text]
    not_needed: NotRequired[Count]


class HostFinding(StoredEvent, total=False):
    """What a check of a host found."""

    worker: WorkerNumber
    check: Text
    finding: Text
    advice: Text


class LastLook(StoredEvent):
    """How long a run until verdicts may go on."""

    last: Count
    at_most: Count
    budget_s: Seconds | None
    round_s: Seconds | None
    treatments: Count


class LookedAt(TypedDict):
    """A comparison in a look."""

    a: Count
    b: Count
    verdict: Text
    ratio: float | None
    low: float | None
    high: float | None


class Look(StoredEvent):
    """Verdicts so far, in a run until verdicts."""

    rounds: Count
    last: Count
    nominal: float
    settled: Annotated[list[Count], Meta(max_length=MAX_TEXTS)]
    comparisons: Annotated[list[LookedAt], Meta(max_length=MAX_TEXTS)]


class RoundsOver(StoredEvent):
    """Why a run until verdicts took no more rounds."""

    rounds: Count
    last: Count | None
    why: Text


class Packed(StoredEvent):
    """How many containers fitted on a host."""

    trial: TrialIndex
    worker: WorkerNumber
    containers: Count
    full: bool
    reason: Text
    returned: NotRequired[Count]
    hold_s: Seconds
    memory_before: Count


class Member(TypedDict):
    """A worker in the roster."""

    worker: WorkerNumber
    worker_id: NotRequired[Text]


class RunBegin(StoredEvent, total=False):
    """The run began, with these workers."""

    roster: Annotated[list[Member], Meta(max_length=MAX_ROWS)]
    planned: Count | None


class Resumed(StoredEvent, total=False):
    """The run was resumed."""

    at: Text | None
    ended: Text | None
    gap_ns: Instant | None
    complete_trials: Count
    rerun_trials: Annotated[list[TrialIndex], Meta(max_length=1 << 20)]
    first_job: Count
    cut_bytes: Count
    shift_ns: Instant
    run_label: Text
    more_trials: Annotated[list[StoredTrial], Meta(max_length=1 << 20)]


class StoredCounts(TypedDict, total=False):
    """Jobs by outcome."""

    planned: Count | None
    done: Count
    failed: Count
    lost: Count
    aborted: Count
    left_out: Count


class StoredFooter(TypedDict, total=False):
    """The last block: how the run ended."""

    ended: Text | None
    status: Text | None
    duration_s: Seconds | None
    counts: StoredCounts
    not_started: Count
    warnings: TextList
    remarks: TextList
    resumes: Count
