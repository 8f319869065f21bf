"""The blocks of a stats file as declared types: what the reader checks, and what every reader of a file gets.

Keys that imports do not have are not required. A block may have more keys than its type: of a header, a host and a
footer the reader drops them, of others it keeps them. docs/stats-file.rst explains what their names do not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypeAlias, TypedDict

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from bench_common.host_info import Fingerprint, Number, Texts
from bench_common.job_kind import installed_job_type
from bench_common.records import Count, ErrorRecord, MetricRecord, OutputRecord, TransactionRecord
from bench_common.treatment import Treatment

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


class ClockStart(Struct, frozen=True):
    """The master's clocks when the run began."""

    unix_ns: Instant = 0
    monotonic_ns: Instant = 0
    boot_id: Text = ""


class StoredScenario(Struct, frozen=True):
    """The scenario that was run."""

    name: Text | None = None
    description: Text | None = None
    path: Text | None = None
    text: Text = ""
    document: dict[str, Any] | None = None
    notes: TextList = []
    scale: Text | None = None


class StoredMetric(Struct, frozen=True):
    """What is known of a metric beside its values."""

    unit: Text = ""
    direction: Text | None = None
    primary: bool = False


class StoredOpenLoad(Struct, frozen=True):
    """Arrivals of an open system."""

    rate_per_s: Rate | None = None
    process: Text | None = None
    queue_timeout_s: Seconds | None = None


class StoredTreatment(Struct, frozen=True):
    """A treatment as the run had it."""

    title: Text = ""
    labels: Labels = {}
    environment: Text | None = None
    engine: Text = ""
    cost_name: Text | None = None
    operation_names: TextList = []
    metrics: Annotated[dict[Text, StoredMetric], Meta(max_length=MAX_TEXTS)] = {}
    concurrency: Count | None = None
    iterations: Count | None = None
    timeout_s: float | None = None
    jobs_per_trial: Count | None = None
    primary: Text | None = None
    optional: bool = False
    open_load: StoredOpenLoad | None = None
    cold: Text | None = None
    operation_count: Count | None = None
    run_seconds: float | None = None
    until: Text | None = None
    swap: Text | None = None
    plain_environment: Text | None = None
    layout: Text | None = None
    layout_seed: Count | None = None
    cost: bool = False
    placement: Texts = {}
    host: Annotated[dict[Text, Text], Meta(max_length=MAX_TEXTS)] = {}
    # What it runs: `definition_of` checks it for those who need it; the others can read a file without it.
    job: Any = None
    container: Any = None
    services: Any = None


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


class Definition(Struct, frozen=True):
    """What a treatment runs."""

    job: StoredJob = {}
    container: dict[str, Any] = {}
    services: dict[Text, dict[str, Any]] = {}


def definition_of(treatment: StoredTreatment) -> Definition:
    """Return what a treatment runs, with keys that are not declared, too; raise `ValueError` if it is malformed."""
    job: Any = treatment.job or {}
    found = Definition(job, treatment.container or {}, treatment.services or {})
    msgspec.convert(asdict(found), Definition)
    return found


def as_stored(treatment: Treatment) -> StoredTreatment:
    """Return a treatment of a plan as the header of a stats file has it, with its own labels and no title."""
    return msgspec.convert(treatment.to_dict(), StoredTreatment)


def as_stored_metrics(metrics: Mapping[str, Mapping[str, str | bool]]) -> dict[str, StoredMetric]:
    """Return the metrics of a job as the header of a stats file has them."""
    return msgspec.convert(metrics, dict[str, StoredMetric])


def job_kind(treatment: StoredTreatment) -> str | None:
    """Return the kind of a treatment's job; None if it does not say."""
    kind = treatment.job.get("kind") if isinstance(treatment.job, dict) else None
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


class StoredBaseline(Struct, frozen=True):
    """The labels of a baseline."""

    baseline: Labels = {}


class StoredVerdicts(Struct, frozen=True):
    """How treatments are compared."""

    baseline: Labels = {}
    margin: Annotated[float, Meta(gt=0, le=1)] | None = None


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


class StoredUntilVerdict(Struct, frozen=True):
    """When a run that goes on until its verdicts ends."""

    at_most: Count
    budget_s: Seconds | None = None


class Header(Struct):
    """The first block: what was going to be run, and how. That of imported results has no value for most of it."""

    format: Text = ""
    version: object = None
    run_id: Text | None = None
    created: Text | None = None
    clock: ClockStart = ClockStart()
    imported: StoredImport | None = None
    scenario: StoredScenario = StoredScenario()
    published: StoredPublication | None = None
    thresholds: TextList = []
    allow_failures: bool | None = None
    verdicts: StoredVerdicts = StoredVerdicts()
    claims: StoredClaims | None = None
    certificates: Annotated[list[StoredCertificate], Meta(max_length=MAX_TEXTS)] = []
    order: Text | None = None
    seed: Number | None = None
    argv: TextList = []
    versions: Texts = {}
    options: dict[str, Any] = {}
    noop: bool = False
    settle_s: Seconds | None = None
    until_verdict: StoredUntilVerdict | None = None
    sampling_interval_s: Seconds | None = None
    overhead: StoredBaseline | None = None
    treatments: Annotated[list[StoredTreatment], Meta(max_length=MAX_TEXTS)] = []
    trials: Annotated[list[StoredTrial], Meta(max_length=1 << 20)] = []


# -- host, events, footer --------------------------------------------------------------------------------------------


class HostClock(Struct, frozen=True):
    """A host's clock against the master's."""

    offset_ns: Number | None = None
    uncertainty_ns: Number | None = None


Programs: TypeAlias = Annotated[dict[Text, Texts], Meta(max_length=1000)]
"""Of each engine, as far as they are known: the path of its ``program`` and the digest of that file (``sha256``), its
``storage_driver``, and the digest of each image (``image NAME``)."""


class StoredHost(Struct, frozen=True):
    """A worker and its machine."""

    worker: WorkerNumber = -1
    worker_id: Text | None = None
    host: Text | None = None
    environment: Text | None = None
    slots: Count | None = None
    engines: Texts | None = None
    programs: Programs = {}
    fingerprint: Fingerprint | None = None
    labels: Texts = {}
    clock: HostClock | None = None


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


class HostFinding(StoredEvent):
    """What a check of a host found."""

    worker: WorkerNumber
    check: Text
    finding: Text
    advice: Text


class CpuContention(StoredEvent):
    """A host had no idle CPU for a time, and who took it."""

    worker: WorkerNumber
    begin_ns: Instant
    end_ns: Instant
    consumer: Text
    pid: Count
    processes: Count
    consumer_share: Rate
    others_share: Rate


class DiskFull(StoredEvent):
    """The run waited for room on the disk of its file."""

    trial: TrialIndex | None
    seconds: Seconds


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
    unread: NotRequired[Text]


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


class StoredCounts(Struct, frozen=True):
    """Jobs by outcome."""

    planned: Count | None = None
    done: Count | None = None
    failed: Count | None = None
    lost: Count | None = None
    aborted: Count | None = None
    left_out: Count = 0


class StoredFooter(Struct, frozen=True):
    """The last block: how the run ended."""

    ended: Text | None = None
    status: Text | None = None
    duration_s: Seconds | None = None
    counts: StoredCounts = StoredCounts()
    not_started: Count = 0
    warnings: TextList = []
    remarks: TextList = []
    reasons: TextList = []
    dropped_messages: Count = 0
    refused_results: Count = 0
    resumes: Count = 0
