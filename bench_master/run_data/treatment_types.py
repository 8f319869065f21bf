"""The report on one treatment as declared types: a part of the report document, see `report_types`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct

from bench_master.run_data.transfer_types import TransfersReport


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
    left_out: int = 0
    """How many more ran in which a worker was lost: they are in no figure."""


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


class MetricReport(Struct, frozen=True):
    """A metric of a workload over the trials of a treatment."""

    INLINE: ClassVar = {"percentiles": "{}"}

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
        ("rss_bytes", "pss_bytes", "cgroup_bytes", "processes", "cpu_percent", "cpu_s", "cpu_per_job_s", "covered_s")
    )

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
    cpu_per_job_s: float | None = None
    """The CPU time by the jobs that ended in these trials, done or failed; None where none did."""

    @property
    def memory(self) -> SampleReport | None:
        """The reading of memory to show: the control group's if there is one, else resident memory."""
        return self.cgroup_bytes or self.rss_bytes

    @property
    def readings(self) -> dict[str, SampleReport]:
        """The readings that there are, by name."""
        names = ("rss_bytes", "pss_bytes", "cgroup_bytes", "processes", "cpu_percent")
        return {name: found for name in names if (found := getattr(self, name)) is not None}


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


class PressureReport(Struct, frozen=True):
    """How much the work of hosts was held up in a treatment's measured trials, as shares from 0 to 1."""

    n: int
    """Trials with a reading, of each host, or of each worker for ``run-queue``."""
    median: float
    """The middle one."""
    max: float
    """The largest one."""
    max_trial: int
    """The index of its trial."""


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
    start_s: float | None
    """The median time that a container took until it was up: its operations before the hold."""
    steady: Mapping[str, SampleReport]
    """Readings of the host and the engine during the hold, by name, and of the containers' own control groups:
    ``container_memory_bytes`` and ``container_cpu_percent`` (of one CPU), of which each container has one."""

    @property
    def memory_limit_per_container_bytes(self) -> float | None:
        """What each container takes at most, where the host's own changes are as large; else None."""
        each, change = self.memory_per_container_bytes, self.memory_change_per_container_bytes
        return change if each is not None and change is not None and each <= change else None


class EachContainerReport(Struct, frozen=True):
    """What one container of a packing takes: the middle of the packings and between which ends it lies."""

    unit: str
    """The unit of the figures."""
    n: int
    """Packings."""
    containers: int
    """Containers in all of them."""
    middle: float
    """The middle of the packings, each of which counts as the mean of its containers."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""
    is_interval: bool
    """Whether the ends are those of a 95 % interval over packings. Of fewer than six packings they are the range of
    the containers."""


class HostSlopeReport(Struct, frozen=True):
    """What one more container costs by the totals of its host, over packings that differ in their number at most."""

    unit: str
    """The unit of the figures."""
    n: int
    """Packings."""
    middle: float | None = None
    """What a container costs; None without a figure."""
    low: float | None = None
    """Lower end."""
    high: float | None = None
    """Upper end."""
    is_interval: bool = False
    """Whether the ends are those of a 95 % interval: of memory by signed ranks, of CPU by Student's t. Else they are
    the range of the packings."""
    limit: float | None = None
    """What it costs at most, where the host's total changed as much by itself; None where it did not."""
    reason: str = ""
    """Why there is no figure; empty if there is."""


class KneeReport(Struct, frozen=True):
    """From how many containers on each further one takes longer to start."""

    containers: float
    """Where two lines meet that fit the start-up times better than one."""
    low: float
    """The fewest containers where they may meet (95 %)."""
    high: float
    """The most."""
    before_s: float
    """How much longer each further container takes before the knee, in seconds."""
    after_s: float
    """The same after it."""


class StartCurveReport(Struct, frozen=True):
    """How long containers take until they are up, by how many are up with them."""

    most: int
    """The most containers of a packing."""
    points: Sequence[tuple[float, float]]
    """Groups of neighbouring containers: the mean of their numbers from 1 on, and their median time in seconds."""
    line: Sequence[tuple[float, float]]
    """The ends of the fitted line, with the knee between them if there is one; empty without a fit."""
    knee: KneeReport | None
    """None if no knee was found up to `most`, or looked for."""
    reason: str
    """Why none was looked for; empty if one was."""


class HostKneeReport(Struct, frozen=True):
    """From how many containers on each further one takes more of the host's memory."""

    containers: float
    """Where two lines meet that fit the memory in use better than one."""
    low: float
    """The fewest containers where they may meet (95 %)."""
    high: float
    """The most."""
    before_bytes: float
    """How much more is in use with each further container before the knee."""
    after_bytes: float
    """The same after it."""


class HostCurveReport(Struct, frozen=True):
    """How much more of the host's memory is in use by how many containers are up, while packings are filled."""

    most: int
    """The most containers of a packing."""
    points: Sequence[tuple[float, float]]
    """Groups of neighbouring readings: the mean number of containers, and the median memory in bytes."""
    line: Sequence[tuple[float, float]]
    """The ends of the fitted line, with the knee between them if there is one; empty without a fit."""
    knee: HostKneeReport | None
    """None if no knee was found up to `most`, or looked for."""
    reason: str
    """Why none was looked for; empty if one was."""


class PackingSummary(Struct, frozen=True):
    """How many containers fit on the hosts, and what each of them takes."""

    containers: PackedCountReport | None
    """Containers per packing; None if there was only warm-up."""
    trials: Sequence[PackingTrialReport]
    """Each packing, warm-up included."""
    each: Mapping[str, EachContainerReport] = {}
    """``memory_bytes`` and ``cpu_percent`` (of one CPU) by the containers' own control groups, and ``start_s``, the
    time until one is up; of what was measured. Without warm-up."""
    starts: StartCurveReport | None = None
    """Start-up times by the number of containers; None without them."""
    host: Mapping[str, HostSlopeReport] = {}
    """``memory_bytes`` and ``cpu_percent`` (of one CPU): what a container costs by the host's totals, over all
    treatments that differ in the number of containers alone; of what was sampled. Without warm-up."""
    fill: HostCurveReport | None = None
    """The host's memory by the number of containers; None where it was not sampled. Without warm-up."""
    unread: str = ""
    """Why no control groups of containers were read; empty if they were, or if nobody tried to."""


class PopulationPhaseReport(Struct, frozen=True):
    """What a worker made for its jobs before the first trial, or deleted after the last one."""

    phase: str
    """``populate`` or ``clear``."""
    worker: int
    """The worker's roster number."""
    objects: int
    """Objects made or deleted."""
    found: int
    """Objects that were there before the run and were used as they were."""
    replaced: int
    """Objects that were there before the run with another content, and were overwritten."""
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
    """The roster number of a worker that reported it; None for a full disk."""
    kind: str
    """``no-idle-cpu``, ``disk-full``, or a kind of `TreatmentReport.pressure`."""
    from_s: float
    """When it began, in seconds after the trial's begin."""
    to_s: float
    """When it ended, in seconds after the trial's begin."""
    what: str
    """The program that took most of the CPU (empty if none took much), the stats file, or the host."""
    share: float | None
    """Share of the host's CPU time that this program took; of pressure the reading; None for all else."""
    text: str
    """All of it in words."""


HARNESS_CEILING: Final = "harness-ceiling"
"""The kind of the events that have a treatment's ceiling."""


class HarnessReport(Struct, frozen=True):
    """What the harness itself can do on its host, and what it took of the host while a treatment ran."""

    ceiling: str | None
    """What the jobs did by which its ceiling was measured: ``no-op``; None where the ceiling is not known."""
    ceiling_per_s: float | None
    """The jobs per second that it can do."""
    measured: str | None
    """When that was measured."""
    setup: str | None
    """With which workers, jobs in flight and operations, in words."""
    others_share: float | None
    """Share of the host's CPU time that others took while it was measured, if that may have made it too low."""
    rate_per_s: float | None
    """The treatment's own rate: of jobs that were done, or in an open system of jobs that were to arrive."""
    share: float | None
    """That rate as a share of the ceiling."""
    cpu_share: float | None
    """Share of the host's CPU time that master and workers took in its trials; None where it is not known."""
    idle_share: float | None
    """Share of the host's CPU time in which it was idle or waited for disks."""


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
    objects: TransfersReport | None
    """What its jobs transferred, where each does one of its operations; None of other jobs."""
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
    pressure: Mapping[str, PressureReport] | None
    """How much the hosts' work was held up, by kind: ``cpu-pressure``, ``io-pressure``, ``memory-pressure``,
    ``run-queue``, ``steal`` and ``softirq``; None without readings."""
    packing: PackingSummary | None
    """Its packings; None if it packs nothing."""
    population: Sequence[PopulationPhaseReport]
    """What its workers made in a store beforehand, and deleted in the end; empty for jobs without objects."""
    harness: HarnessReport | None = None
    """What the harness can do and took; None where nothing is known of it."""
