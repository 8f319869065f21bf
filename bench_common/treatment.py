"""What a job is: the resolved treatment that a plan is made of and that travels to the workers.

A scenario is the user's text; a `Treatment` is one cell of its matrix with every default filled in and every
value checked. Master and worker share nothing else about what is to be run. Where a treatment is received it is
checked by the declarations here; see `messages.DefineTreatment`.

What ends the packing of a host: a condition such as ``memory < 10%``, looked at after each container.

::

    memory < 10%      memory that is available, of all of it (or a size: memory < 512MiB)
    swap > 64MiB      swap that is in use (or a share of all of it)
    cpu < 5%          CPU time that was idle since the container before, of all CPUs'

How the cost of engines themselves is to be watched in a run: what a scenario's key ``overhead`` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from bench_common.defaults import QUEUE_TIMEOUT_S, TIMEOUT_S
from bench_common.errors import did_you_mean
from bench_common.job_kind import TAG, Job
from bench_common.layout import Layout
from bench_common.records import MAX_COUNT, Count, Finite, Integer
from bench_common.units import format_size, parse_size

SYNTAX: Final = "a condition such as 'memory < 10%', 'memory < 512MiB', 'swap > 64MiB' or 'cpu < 5%'"

_SIGNS: Final = {"memory": "<", "swap": ">", "cpu": "<"}
_SPLIT: Final = re.compile(r"\s*(?P<what>[a-z_]+)\s*(?P<sign>[<>=]+)\s*(?P<value>\S.*?)\s*")
_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")


class HostState(Struct, frozen=True):
    """What conditions are about: bytes, and the share (0..100) of CPU time that was idle since the last look."""

    memory_total: int
    memory_available: int
    swap_total: int
    swap_used: int
    cpu_idle_percent: float


class StopCondition(Struct, frozen=True):
    """A condition taken apart: `what` is beyond `limit`, in percent or (not `percent`) bytes."""

    what: str
    limit: float
    percent: bool

    def __str__(self) -> str:
        limit = f"{self.limit:g}%" if self.percent else format_size(int(self.limit))
        return f"{self.what} {_SIGNS[self.what]} {limit}"

    def reason_if_met(self, state: HostState) -> str | None:
        """Return why it holds, such as ``9.84% of memory available``; None where it does not."""
        if self.what == "cpu":
            share = state.cpu_idle_percent
            return f"{share:.2f}% of CPU time idle" if share < self.limit else None
        memory = self.what == "memory"
        amount = state.memory_available if memory else state.swap_used
        total = state.memory_total if memory else state.swap_total
        measured = 100.0 * amount / total if self.percent and total else 0.0 if self.percent else float(amount)
        shown = f"{measured:.2f}% of {self.what}" if self.percent else f"{format_size(amount)} of {self.what}"
        if memory:
            return f"{shown} available" if measured < self.limit else None
        return f"{shown} used" if measured > self.limit else None


def parse_stop_condition(text: str) -> StopCondition:
    """Take a condition apart; raise `ValueError` saying what is wrong and what was expected."""
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: expected {SYNTAX}")
    what, sign, value = match["what"], match["sign"], match["value"]
    if what not in _SIGNS:
        raise ValueError(f"{text!r}: {what!r} cannot be watched{did_you_mean(what, _SIGNS)}; expected {SYNTAX}")
    if sign != _SIGNS[what]:
        raise ValueError(f"{text!r}: a host is full when {what} {_SIGNS[what]} something; expected {SYNTAX}")
    percent = _PERCENT.fullmatch(value)
    if percent is not None:
        limit = float(percent[1])
        if not 0 < limit < 100:  # noqa: PLR2004
            raise ValueError(f"{text!r}: {value} is no share between 0% and 100%")
        return StopCondition(what, limit, percent=True)
    if what == "cpu":
        raise ValueError(f"{text!r}: {value!r}: expected a percentage of CPU time, such as 5%")
    try:
        return StopCondition(what, float(parse_size(value)), percent=False)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from error


MAX_SECONDS: Final = 1e9
"""No time limit, and no rate, is larger."""

Scalar: TypeAlias = str | Integer | Finite | bool | None

OPERATIONS: Final = (
    "pull",
    "create",
    "start",
    "run",
    "exec",
    "wait",
    "pause",
    "unpause",
    "stop",
    "kill",
    "commit",
    "stats",
    "logs",
    "remove",
    "sleep",
    "hold",
)
"""The operations of a life-cycle job. `pull` fetches the container's image; `run` is create and start in one; `sleep`
and `hold` touch no container."""

SECURITY_OPTIONS: Final = ("no-new-privileges", "seccomp=unconfined", "apparmor=unconfined")
"""What may be said about a container's confinement: what needs a file, or opens the host, may not."""

CAPABILITIES: Final = (
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
)
"""The kernel's capabilities (capabilities(7)) by their numbers, without the ``CAP_`` before them."""

HOST_CAPABILITIES: Final = frozenset(
    {
        "DAC_READ_SEARCH",
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_TIME",
        "MAC_OVERRIDE",
        "MAC_ADMIN",
        "SYSLOG",
        "BPF",
    }
)
"""Those that are of the host and not of a container: who has one can read it, change it or halt it."""

GRANTABLE_CAPABILITIES: Final = tuple(name for name in CAPABILITIES if name not in HOST_CAPABILITIES)
"""What a container may be given beyond what the engine gives to each."""

DROPPABLE_CAPABILITIES: Final = ("ALL", *CAPABILITIES)
"""What may be taken from it."""


def _one_of(names: Iterable[str]) -> Meta:
    return Meta(pattern=f"^({'|'.join(map(re.escape, names))})$")


Positive: TypeAlias = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
SecurityOption: TypeAlias = Annotated[str, _one_of(SECURITY_OPTIONS)]
GrantableCapability: TypeAlias = Annotated[str, _one_of(GRANTABLE_CAPABILITIES)]
DroppableCapability: TypeAlias = Annotated[str, _one_of(DROPPABLE_CAPABILITIES)]
OperationKind: TypeAlias = Annotated[str, _one_of(OPERATIONS)]
OutputStream = Literal["stdout", "stderr"]
OUTPUT_STREAMS: Final[tuple[OutputStream, ...]] = ("stdout", "stderr")
MatchChoice = Literal["only", "first", "last"]
MATCH_CHOICES: Final[tuple[MatchChoice, ...]] = ("only", "first", "last")
MountKind = Literal["volume", "host", "data_container", "tmpfs"]
ArrivalProcess = Literal["constant", "poisson"]
SwapState = Literal["as-is", "off"]
SWAP_STATES: Final[tuple[SwapState, ...]] = ("as-is", "off")
ColdStart = Literal["none", "page-cache", "image", "both"]
COLD_STARTS: Final[tuple[ColdStart, ...]] = ("none", "page-cache", "image", "both")
PlainEnvironment = Literal["container", "inherit", ""]
PLAIN_ENVIRONMENTS: Final[tuple[PlainEnvironment, ...]] = ("container", "inherit")
"""The environment of plain processes: that of a container, or that of the worker; empty where nobody says."""
CONTAINER_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked up in a container whose image does not say it."""
ARRIVAL_PROCESSES: Final[tuple[ArrivalProcess, ...]] = ("constant", "poisson")


class _Declared(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a treatment. Its fields are checked by their types where it is received, not where it is made."""


class Mount(_Declared, frozen=True):
    """Storage that a container sees at `target`.

    `volume` is an engine volume (`source` its name, empty for one that lives as long as the container), `host` a
    host directory (`source` its absolute path, empty for one that the worker makes and removes with the container),
    `data_container` a volume of another container, which never runs and is made and removed with this one
    (``--volumes-from``), `tmpfs` memory (`size_bytes` its limit, 0 for the engine's own).
    """

    kind: MountKind
    target: str
    source: str = ""
    read_only: bool = False
    size_bytes: Integer = 0


class ContainerSettings(_Declared, frozen=True):
    """How a container is made. None and empty mean: the engine's own default.

    `memory_bytes` is a hard limit in bytes, `cpus` a number of CPUs' worth of time, `cpuset` a list such as
    ``0-1,4``. `command` is an argument vector; no shell is ever put in between. `init` asks for a PID 1 that
    forwards signals and reaps children. `files` are texts by absolute path, in place before it first starts.
    `rootfs` is an unpacked root file system, or an OCI bundle, on the worker's host (an absolute path) that takes
    the place of an image. `runtime` is an OCI runtime that the engine knows by this name, `snapshotter` what keeps
    its file system in containerd, by its name there, `gvisor_platform` how gVisor intercepts system calls. `pids`
    limits its processes and threads, `ulimits` are texts such as ``1024`` or ``512:1024`` (soft:hard; ``-1`` is no
    limit) by the names of limits.conf(5). `blkio_weight` is its share of disk time (10 to 1000); the four
    ``device_`` limits are bytes and operations a second by the path of a block device. `read_only` is its root file
    system. `security_options` are of `SECURITY_OPTIONS`. `cap_add` and `cap_drop` are capabilities that its root
    has beyond the engine's own choice, of `GRANTABLE_CAPABILITIES`, and that it lacks, of `DROPPABLE_CAPABILITIES`
    (``ALL_PACKED`` but those that it is given). `directory` is the working directory of its commands, an absolute
    path.
    """

    image: str | None = None
    command: tuple[str, ...] | None = None
    memory_bytes: Integer | None = None
    cpus: Finite | None = None
    cpuset: str | None = None
    network: str | None = None
    storage: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    log_driver: str | None = None
    log_options: Mapping[str, str] = field(default_factory=dict)
    init: bool | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    rootfs: str | None = None
    runtime: str | None = None
    snapshotter: str | None = None
    gvisor_platform: str | None = None
    pids: Integer | None = None
    ulimits: Mapping[str, str] = field(default_factory=dict)
    blkio_weight: Integer | None = None
    device_read_bps: Mapping[str, Integer] = field(default_factory=dict)
    device_write_bps: Mapping[str, Integer] = field(default_factory=dict)
    device_read_iops: Mapping[str, Integer] = field(default_factory=dict)
    device_write_iops: Mapping[str, Integer] = field(default_factory=dict)
    read_only: bool | None = None
    security_options: tuple[SecurityOption, ...] = ()
    cap_add: tuple[GrantableCapability, ...] = ()
    cap_drop: tuple[DroppableCapability, ...] = ()
    directory: str | None = None

    def non_default(self) -> frozenset[str]:
        """Return the names of the settings that differ from the engine's default."""
        blank = ContainerSettings()
        return frozenset(name for name in CONTAINER_SETTINGS if getattr(self, name) != getattr(blank, name))


CONTAINER_SETTINGS: Final = ContainerSettings.__struct_fields__
"""The names of all settings of a container."""

_OWN_LOG_DRIVERS: Final = frozenset({"none", "json-file", "local", "k8s-file"})
"""Log drivers that write to a file of the engine's own, which goes with the container, or nowhere."""
_OWN_LOG_OPTIONS: Final = frozenset(
    {
        "max-size",
        "max-file",
        "max-buffer-size",
        "compress",
        "mode",
        "tag",
        "labels",
        "labels-regex",
        "env",
        "env-regex",
    }
)
"""Options of those that name no place to write to."""


def named_volumes(settings: ContainerSettings) -> tuple[str, ...]:
    """Return the names of the engine's volumes that a container mounts, each once."""
    return tuple(dict.fromkeys(one.source for one in settings.storage if one.kind == "volume" and one.source))


FOREIGN_ADVICE: Final = "--allow-host-mounts allows it (of bench-worker, or of run-scenario for workers of this host)"
"""How what belongs to others may be used."""


def outside_logging(settings: ContainerSettings) -> str:
    """Return what about a container's log may write outside of the engine's own log files, or nothing.

    Drivers open sockets (``syslog``, ``gelf``, plugins ...), write to the journal of the host, or write a file of the
    host (Podman's option ``path``); an option decides where a driver that is the engine's own choice writes to.
    """
    if settings.log_driver is not None and settings.log_driver not in _OWN_LOG_DRIVERS:
        return f"log driver {settings.log_driver!r} writes outside of the engine's own log files"
    for name, value in settings.log_options.items():
        if name not in _OWN_LOG_OPTIONS:
            what = "names a file of the host" if name == "path" else "may have a log written elsewhere"
            return f"log option {name}={value} {what}"
    return ""


USAGES: Final = ("user", "system", "cpu")
"""What the kernel counts of an ended process and of the children that it waited for: CPU time in seconds, in user
mode, in the kernel, and in both."""


class MetricSource(_Declared, frozen=True):
    """A metric of the user's own, and where it is: what `regex` captures of a command's output, or what is at `json`.

    With `usage` it is in no output: the kernel counts it.
    """

    name: str
    """Its name in reports and thresholds."""
    regex: str = ""
    """A regular expression whose one group captures the number; empty: see `json` and `usage`."""
    json: str = ""
    """A path into a JSON document, such as ``$.latency.p95``; empty: see `regex` and `usage`."""
    unit: str = "1"
    """Its unit, such as ``1/s``; ``1`` is a plain number."""
    better: Literal["higher", "lower", ""] = ""
    """Which direction is better; empty: neither."""
    stream: OutputStream = "stdout"
    """Where the command prints it."""
    take: MatchChoice = "only"
    """Which match counts where `regex` matches several times; `only`: several are an error."""
    usage: Literal["user", "system", "cpu", ""] = ""
    """What of the command's use of the host it is; empty: it is in the output."""


OWN_COMMAND: Final = "command"
"""The workload that runs a command of the user's own."""
START_COST_STEP: Final = "start-cost"
"""Its step that does nothing: what it takes is the cost of starting a process."""


class OwnService(_Declared, frozen=True):
    """A server that the user's own command is a client of; its container is among the treatment's `services`."""

    name: str
    """What placeholders call it, as in ``{NAME.host}``."""
    command: tuple[str, ...] = ()
    """The command that serves; empty: a service of that name that an installed workload declares."""
    port: Integer = 0
    """The TCP port where it listens in a network of its own."""
    ready: tuple[str, ...] = ()
    """A command in its container that ends with exit code 0 once it can be used."""


class OwnCommand(_Declared, frozen=True):
    """What the workload ``command`` runs: the user's own commands, and the metrics that they print."""

    command: tuple[str, ...]
    setup: tuple[str, ...] = ()
    """Runs before the first job."""
    prepare: tuple[str, ...] = ()
    """Runs before `command` in each job, untimed."""
    cleanup: tuple[str, ...] = ()
    """Runs after `command` in each job, untimed."""
    metrics: tuple[MetricSource, ...] = ()
    services: tuple[OwnService, ...] = ()
    """The servers that `command` needs."""
    start_cost: tuple[str, ...] = ()
    """A command that does nothing: runs just before `command` in each job, untimed; how long it takes is the cost of
    starting a process."""


class Operation(_Declared, frozen=True):
    """One step of a life-cycle job.

    `kind` is one of `OPERATIONS`; `name` is what reports call it (the kind, or ``exec-2`` for the second of its
    kind). `argv` is the command of `exec` (and of `run`/`create` when it differs from the container's);
    `seconds` the length of `sleep` and `hold`, the grace period of `stop`, how often `stats` asks (None: once), and
    about how long a guest's step takes where it says so; `signal` that of `kill`; `fresh` says that `pull` takes away
    beforehand what is there of the image. One that is not `timed` prepares or tidies up: it has a row of its own, and
    its time is none of the job's. `metrics` are the numbers in the output of `exec`.
    """

    kind: OperationKind
    name: str
    argv: tuple[str, ...] = ()
    seconds: Finite | None = None
    signal: str | None = None
    timed: bool = True
    fresh: bool = False
    metrics: tuple[MetricSource, ...] = ()


class Lifecycle(Job, _Declared, frozen=True, tag_field=TAG, tag="lifecycle"):
    """A life-cycle job: operations in order, on one container."""

    operations: tuple[Operation, ...]

    @property
    def engine_operations(self) -> tuple[Operation, ...]:
        """See `Job`."""
        return self.operations


class Guest(Job, _Declared, frozen=True, tag_field=TAG, tag="guest"):
    """A guest job: a registered workload with parameters within its schema (base units, see the workload).

    `own` is what the workload ``command`` runs.
    """

    workload: str
    params: Mapping[str, Scalar] = field(default_factory=dict)
    own: OwnCommand | None = None


class OpenLoad(_Declared, frozen=True):
    """Jobs that arrive by the clock, whether those before them have ended or not (an open system).

    `rate_per_s` jobs a second over all workers, evenly spaced (``constant``) or with exponential gaps (``poisson``).
    A job for which no slot is free within `queue_timeout_s` of its arrival is dropped.
    """

    rate_per_s: Positive
    process: ArrivalProcess = "constant"
    queue_timeout_s: Positive = QUEUE_TIMEOUT_S


class Treatment(_Declared, frozen=True):
    """One cell of the matrix, complete.

    `labels` are what tells this treatment from the others, in the order of the report (environment, engine, job, then
    the matrix keys). `environment` is None where any worker will do. Exactly one of `iterations` (jobs per slot),
    `operation_count` (jobs in all) and `run_seconds` (s) is set; they are per trial. `concurrency` is the number of
    jobs in flight per worker. `timeout_s` bounds every single operation. With `open_load` jobs arrive at a rate of
    their own; without, each slot begins the next one when it has ended one (a closed system). `services` are the
    containers of the servers that a guest's workload declares, by their names; what runs in them is the workload's to
    say. `placement` gives for those of them that run elsewhere the environment, or the worker's id, where they do.
    One that is `optional` is left out of what a run must do where its image or tool is not there.
    `until` is the condition that ends a packing early. `swap` may ask for swap to be
    off on the host while a job runs. `host` are settings of the host's kernel and their values, by the names of
    `bench_common.host_settings`, for the time of its trials. `cold` is what is taken
    away before each job, outside of its time: the host's page cache, the engine's image, or both.
    `plain_environment` is what plain processes have in their environment beside what `container` gives: what a
    container has, or (also where it is empty) the worker's search path and a locale. `layout` says whether their
    memory layout is drawn for each trial, `layout_seed` by which seed; None where it is not. `cost` says whether each
    job tells what it cost beside its time, where its engine knows (`bench_common.cost`).
    """

    index: Count
    labels: Mapping[str, Scalar]
    environment: str | None
    engine: str
    job: Job
    container: ContainerSettings = ContainerSettings()
    concurrency: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 1
    iterations: Integer | None = 1
    operation_count: Integer | None = None
    run_seconds: Finite | None = None
    timeout_s: Positive = TIMEOUT_S
    open_load: OpenLoad | None = None
    services: Mapping[str, ContainerSettings] = field(default_factory=dict)
    placement: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False
    until: str | None = None
    swap: SwapState = "as-is"
    host: Mapping[str, str] = field(default_factory=dict)
    cold: ColdStart = "none"
    plain_environment: PlainEnvironment = ""
    layout: Layout = "fixed"
    layout_seed: Count | None = None
    cost: bool = False

    @property
    def is_packing(self) -> bool:
        """Whether its jobs are packed: made one after another, and held together."""
        return self._has_operation("hold")

    @property
    def pulls_image(self) -> bool:
        """Whether its jobs fetch their image themselves, so that it need not be there before."""
        return self._has_operation("pull")

    @property
    def fetches_image(self) -> bool:
        """Whether the image is fetched for its jobs while the run goes on, be it as an operation or before one."""
        return self.pulls_image or self.drops_image

    @property
    def drops_page_cache(self) -> bool:
        """Whether the host's page cache is dropped before each job."""
        return self.cold in ("page-cache", "both")

    @property
    def drops_image(self) -> bool:
        """Whether the engine's image is removed and fetched again before each job."""
        return self.cold in ("image", "both")

    def _has_operation(self, kind: str) -> bool:
        return any(one.kind == kind for one in self.job.engine_operations)

    def __post_init__(self) -> None:
        """Raise `ValueError` where fields contradict each other."""
        unknown = self.placement.keys() - self.services.keys()
        if unknown:
            raise ValueError(f"unknown services in 'placement': {', '.join(sorted(unknown))}")
        if self.until is not None:
            parse_stop_condition(self.until)

    @property
    def title(self) -> str:
        """The labels as one line, such as ``engine=docker network=host``."""
        return " ".join(f"{key}={value}" for key, value in self.labels.items()) or "(the only treatment)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as the stats file keeps them."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


INTERVAL_S: Final = 0.5
"""How often an engine's processes are read unless the scenario says otherwise."""

SOURCE: Final = "engine:"
"""What the source of an engine's samples begins with; its name follows."""


class EngineSampling(_Declared, frozen=True):
    """How a worker samples the cost of engines."""

    interval_s: Positive
    engines: Mapping[str, str]
    """What to watch by `Job.cost_name`, each with a control group to read in place of its processes; empty: these."""


class OverheadSampling(Struct, frozen=True):
    """`baseline` are the labels of the treatment that others are compared with; empty: the first that has figures.

    `cgroups` are control groups by engine, to be read in the place of the engine's processes.
    """

    interval_s: float = INTERVAL_S
    baseline: Mapping[str, str] = field(default_factory=dict)
    cgroups: Mapping[str, str] = field(default_factory=dict)

    def worker_settings(self, engines: Iterable[str]) -> EngineSampling:
        """Return what a worker needs to know to watch these engines, each a `Job.cost_name`."""
        groups = {name: self.cgroups.get(name.partition("@")[0], "") for name in engines}
        return EngineSampling(self.interval_s, groups)

    def header_fields(self) -> dict[str, Any]:
        """Return what the stats file keeps."""
        return {"interval_s": self.interval_s, "baseline": dict(self.baseline), "cgroups": dict(self.cgroups)}
