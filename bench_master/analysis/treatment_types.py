"""The report on one treatment as declared types: a part of the report document, see `report_types`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct


class SampleReport(Struct, frozen=True):
    """Mean and extremes of readings."""

    unit: str
    """The unit of the readings."""
    n: int
    """How many readings."""
    mean: float
    """Their mean."""
    min: float | None
    """The smallest; None if no reading covers a whole interval."""
    max: float | None
    """The largest; None if no reading covers a whole interval."""


class TrialCounts(Struct, frozen=True):
    """Measured trials of a treatment."""

    planned: int
    """How many were planned."""
    run: int
    """How many ran."""


class JobCounts(Struct, frozen=True):
    """Measured jobs of a treatment by outcome."""

    total: int
    """All of them."""
    done: int
    """Jobs that were done."""
    failed: int
    """Jobs that failed."""
    left_out: int
    """Jobs of an optional treatment that was skipped; they are in no other count."""
    lost: int
    """Jobs that were lost with their worker."""
    aborted: int
    """Jobs that were cancelled."""
    not_started: int | None
    """Jobs of begun trials that were never handed out, among the lost or aborted; None if the file is not whole."""
    warmup: int
    """Warm-up jobs; they are in no other count."""
    planned: int | None
    """Jobs that the plan has for its measured trials; None if trials last a time."""
    missing: int | None
    """Planned jobs that are neither done nor failed."""


class LittlesLawReport(Struct, frozen=True):
    """Both sides of Little's law, L = lambda W."""

    in_system: float
    """Mean jobs in the system, as the workers counted them."""
    expected: float
    """Arrivals per second times mean response time."""
    readings: int
    """Readings of half a second that were used."""
    difference: float
    """Their relative difference."""


class OpenLoadReport(Struct, frozen=True):
    """The load of an open system: what was offered and what was achieved."""

    rate_per_s: float | None
    """Jobs per second that the scenario asks for."""
    process: str | None
    """How arrivals are spaced: ``constant`` or ``poisson``."""
    queue_timeout_s: float | None
    """How long a job waits for a slot before it is dropped."""
    offered: int
    """Jobs that arrived."""
    offered_per_s: float | None
    """Arrivals per second."""
    achieved_per_s: float | None
    """Jobs done per second, until the last one ended."""
    dropped: int
    """Jobs that found no slot in time."""
    littles_law: LittlesLawReport | None
    """The check by Little's law; None with too few readings or jobs, or if jobs were lost."""


class OperationReport(Struct, frozen=True):
    """The durations of one operation, or of the whole job."""

    INLINE: ClassVar = {"percentiles_s": "{}_s"}
    """The field whose entries are keys of their own in JSON, and the form of these keys."""

    n: int
    """Successful operations of successful jobs."""
    errors: int
    """Failed operations."""
    mean_s: float | None
    """Mean duration."""
    stddev_s: float | None
    """Sample standard deviation; None below two values."""
    min_s: float | None
    """Shortest duration."""
    percentiles_s: Mapping[str, float | None]
    """Percentiles by name (``p95``); in JSON each is a key of its own, such as ``p95_s``."""
    max_s: float | None
    """Longest duration."""
    slowest_job: int | None
    """Id of the job with the longest duration."""
    percentiles_exact: bool
    """Whether every percentile is a recorded value; otherwise within 0.2 % of it."""
    p99_marked: bool
    """Whether p99 comes from fewer than 1,000 values."""


class TransferReport(Struct, frozen=True):
    """What one operation on objects moved."""

    per_s: float | None
    """Successful operations per second of the measured trials."""
    content_bytes: int
    """Bytes of content that successful ones sent or received."""
    mb_per_s: float | None
    """These per second of the measured trials, in 1,000,000 bytes."""
    retries: int
    """Tries that failed before the last one, also of operations that failed."""
    redrawn: int
    """How many of them took the place of another operation, for want of an object."""
    first_byte_error_s: float
    """The most by which a first byte may be stamped late."""
    slowest_transaction: str | None
    """What the store called the request of the slowest job; None if it did not name it."""


class EndpointReport(Struct, frozen=True):
    """The operations of one endpoint of an object store."""

    INLINE: ClassVar = {"percentiles_s": "{}_s"}
    """The field whose entries are keys of their own in JSON, and the form of these keys."""

    endpoint: int
    """Its place among the endpoints, from 0."""
    url: str | None
    """Its URL; None where the store named it and not the scenario."""
    n: int
    """Successful operations."""
    errors: int
    """Failed operations."""
    retries: int
    """Tries that failed before the last one."""
    per_s: float | None
    """Successful operations per second of the measured trials."""
    mb_per_s: float | None
    """Bytes of content per second of the measured trials, in 1,000,000 bytes."""
    mean_s: float | None
    """Mean duration."""
    percentiles_s: Mapping[str, float | None]
    """Percentiles by name, within 0.2 %."""
    max_s: float | None
    """Longest duration."""


class ObjectsReport(Struct, frozen=True):
    """What the jobs of a treatment moved between worker and object store."""

    content_bytes: int
    """Bytes of content that successful operations sent or received."""
    mb_per_s: float | None
    """These per second of the measured trials, in 1,000,000 bytes."""
    retries: int
    """Tries that failed before the last one, also of operations that failed."""
    redrawn: int
    """How many jobs did another operation than the one drawn, for want of an object."""
    operations: Mapping[str, TransferReport]
    """Each operation by name, also those of first bytes, which move nothing themselves."""
    endpoints: Sequence[EndpointReport]
    """The endpoints that were used."""


class MetricReport(Struct, frozen=True):
    """A metric of a workload over the trials of a treatment."""

    INLINE: ClassVar = {"percentiles": "{}"}
    """The field whose entries are keys of their own in JSON, and the form of these keys."""

    unit: str
    """Its unit."""
    direction: str | None
    """``higher`` or ``lower`` is better; None if undeclared."""
    primary: bool
    """Whether the workload marks it as primary, or treatments are compared by it."""
    n: int
    """Trials that gave it."""
    median: float | None
    """The middle value, or the mean of the two middle ones."""
    mean: float | None
    """Mean of the trials."""
    stddev: float | None
    """Sample standard deviation; None below two trials."""
    min: float | None
    """The smallest value."""
    percentiles: Mapping[str, float | None]
    """Percentiles by name (``p95``); in JSON each is a key of its own."""
    max: float | None
    """The largest value."""
    worst_job: int | None
    """First job of the worst trial."""


class RelativeOverheadReport(Struct, frozen=True):
    """An engine's overhead compared to the baseline's."""

    baseline: str
    """The baseline's title."""
    memory: str | None
    """Which reading of memory is compared."""
    memory_percent: float | None
    """How much more memory on average, in percent."""
    cpu_factor: float | None
    """Its CPU time per time, divided by the baseline's."""


class OverheadReport(Struct, frozen=True):
    """What an engine's own processes used during a treatment's measured trials."""

    OMIT_NONE: ClassVar = frozenset(
        ("rss_bytes", "pss_bytes", "cgroup_bytes", "processes", "cpu_percent", "cpu_s", "covered_s")
    )
    """Fields that JSON leaves out if they are None."""

    rss_bytes: SampleReport | None
    """Resident memory of its processes; pages that they share count for each."""
    pss_bytes: SampleReport | None
    """Proportional memory of its processes; shared pages count once."""
    cgroup_bytes: SampleReport | None
    """Memory of its control group, without inactive file pages."""
    processes: SampleReport | None
    """Number of its processes."""
    cpu_percent: SampleReport | None
    """CPU in percent of one CPU: mean over all time, extremes of whole intervals."""
    cpu_s: float | None
    """CPU time."""
    covered_s: float | None
    """Time that the readings of CPU time cover."""
    relative: RelativeOverheadReport | None = None
    """Compared to the baseline; None without one."""

    @property
    def memory(self) -> SampleReport | None:
        """The reading of memory to show: the control group's if there is one, else resident memory."""
        return self.cgroup_bytes or self.rss_bytes

    @property
    def readings(self) -> dict[str, SampleReport]:
        """The readings that there are, by name."""
        names = ("rss_bytes", "pss_bytes", "cgroup_bytes", "processes", "cpu_percent")
        found = (self.rss_bytes, self.pss_bytes, self.cgroup_bytes, self.processes, self.cpu_percent)
        return {name: reading for name, reading in zip(names, found, strict=True) if reading is not None}


class HostCpuReport(Struct, frozen=True):
    """CPU time of hosts during a treatment's measured trials, in USER_HZ per second over all CPUs."""

    unit: str
    """``USER_HZ/s``."""
    direction: str
    """``lower`` is better."""
    n: int
    """Readings that lie completely within a measured trial."""
    median: float
    """Within 0.2 % of the true median."""
    mean: float
    """Mean of the readings."""
    stddev: float | None
    """Sample standard deviation; None below two readings."""
    min: float
    """The smallest reading; iowait can be negative."""
    max: float
    """The largest reading."""


class PackedCountReport(Struct, frozen=True):
    """Containers per packing, over the measured trials."""

    n: int
    """Packings."""
    min: int
    """The fewest containers."""
    median: float
    """The median."""
    max: int
    """The most containers."""


class PackingTrialReport(Struct, frozen=True):
    """One packing: a trial on a worker."""

    trial: int
    """The trial."""
    worker: str | int
    """The worker's name, or its roster number."""
    warmup: bool
    """Whether it is warm-up."""
    containers: int
    """Containers that ran at once."""
    full: bool
    """Whether the host, not the scenario, set the limit."""
    reason: str
    """Why no more containers were started."""
    hold_s: float
    """How long all of them were held."""
    memory_before_bytes: int
    """Memory in use before the first container."""
    memory_per_container_bytes: float | None
    """Additional memory in use during the hold, per container; see `memory_change_per_container_bytes`."""
    memory_change_per_container_bytes: float | None
    """How far the host's memory in use changed by itself, per container: less than this is not the containers'."""
    steady: Mapping[str, SampleReport]
    """Readings of the host and the engine during the hold, by name."""


class PackingSummary(Struct, frozen=True):
    """How many containers fit on the hosts."""

    containers: PackedCountReport | None
    """Containers per packing; None if there was only warm-up."""
    trials: Sequence[PackingTrialReport]
    """Each packing, warm-up included."""


class StorePhaseReport(Struct, frozen=True):
    """What a worker made in a store before the first trial, or deleted after the last one."""

    phase: str
    """``populate`` or ``clear``."""
    worker: int
    """The worker's roster number."""
    objects: int
    """Objects made or deleted."""
    found: int
    """Objects that were there before the run and were used as they were."""
    content_bytes: int
    """Bytes of the objects made."""
    failed: int
    """Objects that could not be made or deleted."""
    seconds: float
    """How long it took."""
    reason: str
    """Why the first of them failed; empty if none did."""


class DisturbanceReport(Struct, frozen=True):
    """What disturbed one of a treatment's trials."""

    trial: int
    """The trial's index."""
    worker: int | None
    """The roster number of a worker that reported it."""
    kind: str
    """``engine-unreachable`` or ``no-idle-cpu``."""
    from_s: float
    """When it began, in seconds after the trial's begin."""
    to_s: float
    """When it ended, in seconds after the trial's begin."""
    what: str
    """The engine, or the program that took most of the CPU; empty if no other program took much."""
    share: float | None
    """Share of the host's CPU time that this program took; None for an engine or no program."""
    failed_jobs: int | None
    """How many jobs failed by it; None for a busy host."""
    text: str
    """All of it in words."""


class TreatmentReport(Struct, frozen=True):
    """One treatment: a cell of the matrix."""

    title: str
    """Its labels as text."""
    treatment: Mapping[str, Any]
    """Its labels: environment, engine, job, then the keys of the matrix."""
    concurrency: int | None
    """Jobs in flight on each worker."""
    skipped: str | None
    """Why an optional treatment was skipped; None if it was not."""
    trials: TrialCounts
    """Its measured trials."""
    jobs: JobCounts
    """Its measured jobs by outcome."""
    busy_s: float
    """Summed duration of its measured trials."""
    jobs_per_s: float | None
    """Jobs done per second of its measured trials."""
    timing_error_p99_s: float | None
    """99th percentile of how late an end may be stamped."""
    timing_error_max_s: float | None
    """The most that an end may be stamped late."""
    open_load: OpenLoadReport | None
    """Its load; None in the closed model."""
    operations: Mapping[str, OperationReport]
    """Its operations by name, ``job`` and ``response`` last."""
    metrics: Mapping[str, MetricReport]
    """Its metrics by name."""
    objects: ObjectsReport | None
    """What its jobs on objects moved; None of other jobs."""
    worker_busy_share: float | None
    """Share of time that the workers' event loops were busy while its jobs ran."""
    worker_lag_max_s: float | None
    """Longest lag of a worker's event loop while its jobs ran."""
    host_wake_up_max_s: float | None
    """How late a host may have woken a thread while its jobs ran, by its last readings; None without readings."""
    timing_warning: str | None
    """Why the durations of its shortest operation are unreliable, with advice; None if they are reliable."""
    disturbances: Sequence[DisturbanceReport]
    """What disturbed single trials of it; empty if nothing did."""
    overhead: OverheadReport | None
    """What its engine's own processes used; None if not sampled."""
    host_cpu: Mapping[str, HostCpuReport] | None
    """CPU time of the hosts by name; None without readings."""
    packing: PackingSummary | None
    """Its packings; None if it packs nothing."""
    population: Sequence[StorePhaseReport]
    """What its workers made in a store beforehand, and deleted in the end; empty for jobs without objects."""
