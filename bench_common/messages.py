"""The messages between master and workers: each type with its fields, their bounds, its sender, lane and size limit.

A frame is one MessagePack array ``[VERSION, message]``; a message is a map of its ``type``, its ``epoch`` and its
fields. A frame that is not exactly one message of its direction raises `ProtocolError`, is counted and dropped;
`encode` checks as strictly, but for messages of every few jobs. Nothing is ever unpickled or evaluated. High-rate
content (jobs and results) travels as packed rows in one bin.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgpack
import msgspec
from msgspec import Meta, Struct, field

from bench_common.argument_types import MAX_SLOTS
from bench_common.errors import ProtocolError
from bench_common.fields import (
    KIB,
    MAX_FRAME,
    MAX_PART_BYTES,
    MAX_PARTS,
    MAX_REASON_CHARS,
    MAX_REASONS,
    MAX_RETURNED,
    MAX_SAMPLE_COLUMNS,
    MIB,
    PART_CONTENT_BYTES,
    VERSION,
    Direction,
    Endpoint,
    Failure,
    Instant,
    Message,
    Name,
    Numbered,
    Positive,
    Readings,
    Reason,
    RunId,
    Seconds,
    Token,
    Uncertainty,
    pack,
    too_large,
    type_name,
)
from bench_common.host_info import Engines, HostInfo
from bench_common.records import (
    LOOP_BYTES,
    Count,
    ErrorRecord,
    MetricRecord,
    OutputRecord,
    TransactionRecord,
)
from bench_common.requirements import (
    AbsentProgram,
    KindNeed,
    RequestedAction,
    Requirement,
    ServiceAction,
    ServiceOutcome,
    SettingNeed,
    SettingProblem,
)
from bench_common.safe_text import shorten
from bench_common.treatment import EngineSampling, Treatment

MAX_ENDPOINTS: Final = 32
MAX_URL_CHARS: Final = 500

# -- control: a worker to the master ------------------------------------------------------------------------------


class _WorkerControl(Message):
    sender = "worker"
    lane = "control"


class Hello(_WorkerControl):
    """A worker asks to join; epoch 0."""

    max_bytes = 256 * KIB

    worker_id: Name
    environment: Name
    """The kind of place that it runs in."""
    slots: Annotated[int, Meta(ge=1, le=MAX_SLOTS)]
    """How many jobs it can run at once."""
    sent_ns: Instant
    info: HostInfo
    """Its host, versions, engines and fingerprint."""


class PreflightResult(_WorkerControl):
    """What the host of a worker lacks, in answer to `Preflight`."""

    max_bytes = 256 * KIB

    reasons: Annotated[list[Reason], Meta(max_length=MAX_REASONS)]
    """What is missing, one reason each; empty where nothing is."""
    forbidden: Annotated[list[Reason], Meta(max_length=MAX_REASONS)]
    """What of others the plan would use, and this worker does not allow, one reason each."""
    engines: Engines
    """The present status of the engines that were named, as in the ``info`` of a hello."""
    settings: Annotated[list[SettingProblem], Meta(max_length=MAX_REASONS)] = msgspec.field(default_factory=list)
    """The host settings that cannot have what the plan gives them."""
    absent: Annotated[list[AbsentProgram], Meta(max_length=MAX_REASONS)] = msgspec.field(default_factory=list)
    """The programs that images do not have."""


class _Reported(Numbered):
    """What must not be lost with a connection: it is sent again until a `HeartbeatAck` confirms its number."""

    sender = "worker"
    lane = "control"


class Heartbeat(_WorkerControl):
    """A sign of life, every ``heartbeat_s`` of the welcome."""

    sent_ns: Instant
    running: Count
    """How many jobs are under way."""
    offset_ns: Instant
    """How far the master's clock is ahead of the worker's."""
    uncertainty_ns: Uncertainty
    """By how much the offset may be wrong; -1 before the first comparison."""
    taken: Count = 0
    """The number of the last message of the lane that the load process took."""
    token: Token = ""
    """The token of the welcome: it proves the sender on a connection that was opened again."""


class WorkerDied(_Reported):
    """The load process of the worker ended: what it held will never be reported."""

    worker_id: Name
    reason: Reason


class Samples(_WorkerControl):
    """Readings of the host, of an engine's processes or of the load process's event loop."""

    max_bytes = 1 * MIB

    source: Annotated[str, Meta(max_length=64)]
    columns: Annotated[dict[str, Readings], Meta(min_length=1, max_length=MAX_SAMPLE_COLUMNS)]
    """Columns of one length by name, ``time_ns`` among them."""
    units: Annotated[dict[str, str], Meta(max_length=MAX_SAMPLE_COLUMNS)]
    """The unit of each column but ``time_ns``."""


class PackingReport(_Reported):
    """A trial's containers are up, or the host is full of them: jobs that found no room go back."""

    max_bytes = 1 * MIB

    trial: Count
    containers: Count
    """How many containers are held."""
    reason: Reason
    full: bool
    """Whether the host is full; False where as many run as were asked for."""
    returned: Annotated[list[Count], Meta(max_length=MAX_RETURNED)]
    """The tickets of the jobs that go back."""
    hold_s: Seconds
    """How long the containers are held, in seconds."""
    memory_before: Count
    """Bytes of the host's memory that were in use before the first container."""
    unread: Reason = ""
    """Why containers' own control groups are not read; empty if they are."""


class RunWarning(_Reported):
    """Something that the report must mention, and that stops nothing."""

    text: Reason


class PopulationReport(_Reported):
    """A worker makes what jobs use before the first trial of a treatment, or deletes it after the last trial."""

    treatment: Count
    phase: Literal["populate", "clear"]
    over: bool
    """Whether this is the last message of the phase."""
    objects: Count
    """How many objects it has made or deleted."""
    found: Count
    """How many were there already, and stay after the run."""
    replaced: Count
    """How many of those that it has made took the place of others, which had their names."""
    content_bytes: Count
    """Bytes of the objects that it has made."""
    failed: Count
    """How many it could not make or delete."""
    seconds: Seconds
    """How long that took so far."""
    reason: Reason
    """Why the first of them failed; empty where none did."""
    endpoints: Annotated[list[Reason], Meta(max_length=MAX_ENDPOINTS)] = field(default_factory=list)
    """The URLs of the store's endpoints in the last message of a filling; those beyond so many are not told."""


class CpuContention(_WorkerControl):
    """The host had no idle CPU for a time; who took it, beside the harness, the engines and the measured jobs."""

    begin_ns: Instant
    end_ns: Instant
    consumer: Name
    """The name of the largest other consumer; empty where there was none."""
    pid: Count
    """Its process; 0 where there was none."""
    processes: Count
    """How many processes have that name."""
    consumer_ns: Count
    """CPU time that they took."""
    others_ns: Count
    """CPU time of all processes that are none of ours."""
    cpus: Annotated[int, Meta(ge=1, le=1 << 16)]
    """How many CPUs the host has."""


class HostFinding(_Reported):
    """What the doctor finds on the worker's host before the run: other work that will disturb it."""

    check: Name
    """The name of the check."""
    finding: Reason
    advice: Reason
    """What to do about it."""


class SpeedMeasured(_WorkerControl):
    """How long a fixed amount of work took on the host; all 0 where another worker of the host measures it."""

    trial: Count
    """The trial of the question."""
    time_ns: Instant
    wall_ns: Count
    cpu_ns: Count
    """How much CPU time it took."""


class Progress(_WorkerControl):
    """How far a step is that reports while it runs, for the screen; empty when the step is over."""

    text: Reason


class _ServiceMessage(Numbered, kw_only=True):
    treatment: Count
    """The treatment that declares the service, by its index."""
    service: Name
    ticket: Count
    """The job that the service was started for."""


class ServiceRequest(_Reported, _ServiceMessage):
    """A job here needs something done with a service that runs on another worker."""

    action: RequestedAction


class ServiceResult(_Reported, _ServiceMessage):
    """What came of a `ServiceCommand`."""

    max_bytes = 256 * KIB

    action: RequestedAction
    outcome: ServiceOutcome


class ProfileReport(_Reported):
    """Where the load process spent its time, if the welcome asked for it."""

    max_bytes = 1 * MIB

    content: bytes
    """A packed `profiling.Profile`."""


class CleanupDone(_Reported):
    """What came of `Cleanup`."""

    max_bytes = 256 * KIB

    removed: Count
    """How many things were removed."""
    failed: Annotated[list[Failure], Meta(max_length=MAX_REASONS)]
    """What could not be removed, and why."""


# -- control: the master to a worker's agent -----------------------------------------------------------------------


class _MasterControl(Message):
    sender = "master"
    lane = "control"


class Preflight(_MasterControl):
    """Before a worker is admitted: the question whether its host has what the plan's containers need."""

    max_bytes = 1 * MIB

    requirements: list[Requirement]
    engines: list[str]
    """Engines to probe again, as they may have changed since the worker was started."""
    kinds: list[KindNeed] = msgspec.field(default_factory=list)
    """What kinds of jobs from packages need, such as a server to log in to."""
    settings: list[SettingNeed] = msgspec.field(default_factory=list)
    """Settings of the host's kernel that trials change; the worker tries each value."""


class Credentials(_MasterControl):
    """How what the run's jobs use is reached, as variables: before a preflight and before a welcome.

    It goes only where nobody can listen: over CURVE, or to a process of the same user. It is in no log and no file.
    """

    run_id: RunId
    """The run that they are for; a worker uses them for no other one."""
    variables: Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)]
    """Names that the kinds of its jobs allow (`HostPart.environment`), and values."""

    def __repr__(self) -> str:
        """Return its names alone."""
        return f"Credentials(variables={sorted(self.variables)})"


class RunSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What is the same for all workers of a run."""

    run_id: RunId
    master: Endpoint
    """Who the master is: user, host and process."""
    noop: bool
    heartbeat_s: Seconds
    lease_s: Seconds
    """How long the worker keeps the run while the master is silent."""
    sampling_s: Seconds
    """The interval of host samples."""
    keep: bool
    """Whether containers are left when the run is over."""
    profile: bool
    """Whether the load process is to profile itself."""
    overhead: EngineSampling | None
    """How the engines' own cost is sampled; None where it is not."""


class Welcome(_MasterControl):
    """The master admits a worker: where its lane and the results are, and what its run is."""

    spec: RunSpec
    number: Annotated[int, Meta(ge=0, le=65535)]
    """Its place in the roster."""
    lane_endpoint: Endpoint
    """The endpoint of its work lane."""
    results_endpoint: Endpoint
    """The endpoint of the results socket."""
    token: Token
    """A secret of this admission: it opens lane and results without keys, and proves later heartbeats."""


class Dismiss(_MasterControl):
    """What the worker is doing no longer counts: drop the run."""

    reason: Reason
    final: bool
    """Whether it must not ask again."""


class HeartbeatAck(_MasterControl):
    """The answer to a heartbeat, with three stamps of a clock exchange; the fourth is that of its arrival."""

    echo_ns: Instant
    """When the worker sent its message, on its clock."""
    received_ns: Instant
    """When the master received it, on the master's clock."""
    sent_ns: Instant
    """When the master sent this one."""
    taken: Count = 0
    """The number of the last message of the worker that the master took."""


class MeasureSpeed(_MasterControl):
    """A trial is about to begin and nothing runs: measure how fast the host is now."""

    trial: Count
    """The trial, which the answer names."""


class Cleanup(_MasterControl):
    """Remove what the run left on the host."""

    run_id: RunId


class Stop(_MasterControl):
    """The run is over for this worker."""

    exit: bool
    """Whether the worker's program ends, too."""


# -- work: the master to a worker's load process, in order ---------------------------------------------------------


class _MasterWork(Numbered):
    sender = "master"
    lane = "work"


class DefineTreatment(_MasterWork):
    """A treatment, before its first job."""

    max_bytes = 1 * MIB

    treatment: Treatment
    part: Count = 0
    """Which part of the population of objects is this worker's, from 0; others have none from `parts` on."""
    parts: Positive = 1
    """How many workers share the population."""


class Jobs(_MasterWork):
    """Jobs of one trial."""

    max_bytes = 4 * MIB

    treatment: Count
    trial: Count
    concurrency: Positive
    """How many of the trial's jobs may run at once."""
    batch: Positive
    """Results leave when so many of them are there, or nothing else is to do."""
    rows: bytes
    """Rows of `records.ASSIGNMENT_FIELDS`."""

    @property
    def needs_check(self) -> bool:
        """See `Message`."""
        return False


class ServiceCommand(_MasterWork, _ServiceMessage):
    """A job of another worker needs something done with a service that is placed here."""

    action: RequestedAction


class ServiceReply(_MasterWork, _ServiceMessage):
    """What came of a `ServiceRequest`; unasked for where a service is ``lost``."""

    max_bytes = 256 * KIB

    action: ServiceAction
    outcome: ServiceOutcome


class Acknowledge(_MasterWork):
    """Batches of results are in the stats file."""

    sequences: list[Count]

    @property
    def needs_check(self) -> bool:
        """See `Message`."""
        return False


class CancelJobs(_MasterWork):
    """Abort every job."""


# -- results: a worker's load process to the master ----------------------------------------------------------------


class Results(Message):
    """Results of jobs of one trial."""

    sender = "worker"
    lane = "results"
    max_bytes = MAX_FRAME

    sequence: Count
    """The number of the batch."""
    treatment: Count
    trial: Count
    rows: bytes
    """Rows of `records.RESULT_FIELDS` with two words for each operation; of jobs that do one with `SINGLE_FIELDS`."""
    loop: Annotated[bytes, Meta(min_length=LOOP_BYTES, max_length=LOOP_BYTES)]
    """How the load process's event loop was since the batch before: the words of `records.LOOP_FIELDS`."""
    metrics: list[MetricRecord]
    errors: list[ErrorRecord]
    outputs: list[OutputRecord]
    transactions: list[TransactionRecord] = field(default_factory=list)
    taken: Count = 0
    """The number of the last message of the lane that the load process took."""

    @property
    def needs_check(self) -> bool:
        """See `Message`; metrics, errors, outputs and transactions are the jobs'."""
        return bool(self.metrics or self.errors or self.outputs or self.transactions)


class ResultsPart(Message):
    """A part of results that are larger than a frame; the content of all parts together is one frame of `Results`.

    A zmq message of several frames would do the same, but libzmq keeps such a message until its last frame, which
    need never arrive.
    """

    sender = "worker"
    lane = "results"
    max_bytes = MAX_PART_BYTES

    sequence: Count
    """The number of the batch."""
    part: Annotated[int, Meta(ge=0, lt=MAX_PARTS)]
    """The number of this part; parts arrive in order."""
    parts: Annotated[int, Meta(ge=1, le=MAX_PARTS)]
    content: Annotated[bytes, Meta(min_length=1, max_length=PART_CONTENT_BYTES)]

    @property
    def needs_check(self) -> bool:
        """See `Message`."""
        return False


ReportedMessage: TypeAlias = (
    WorkerDied
    | PackingReport
    | PopulationReport
    | RunWarning
    | HostFinding
    | ServiceRequest
    | ServiceResult
    | ProfileReport
    | CleanupDone
)
"""What is sent again until it is confirmed."""
WorkerControlMessage: TypeAlias = (
    Hello | PreflightResult | Heartbeat | Samples | CpuContention | SpeedMeasured | Progress | ReportedMessage
)
MasterControlMessage: TypeAlias = (
    Preflight | Credentials | Welcome | Dismiss | HeartbeatAck | MeasureSpeed | Cleanup | Stop
)
ResultsMessage: TypeAlias = Results | ResultsPart
MasterWorkMessage: TypeAlias = DefineTreatment | Jobs | ServiceCommand | ServiceReply | Acknowledge | CancelJobs

FROM_WORKER: Final[Direction[WorkerControlMessage]] = Direction(WorkerControlMessage)
"""A worker's agent to the master."""
FROM_MASTER: Final[Direction[MasterControlMessage]] = Direction(MasterControlMessage)
"""The master to a worker's agent."""
WORK: Final[Direction[MasterWorkMessage]] = Direction(MasterWorkMessage)
"""The master to a worker's load process."""
RESULTS: Final[Direction[ResultsMessage]] = Direction(ResultsMessage)
"""A worker's load process to the master."""

DIRECTIONS: Final[tuple[Direction[Message], ...]] = (FROM_WORKER, FROM_MASTER, WORK, RESULTS)
TYPES: Final = {str(one.__struct_config__.tag): one for direction in DIRECTIONS for one in direction.types}
"""Every message type by its name on the wire."""

_DIRECTION_OF: Final = {one: direction for direction in DIRECTIONS for one in direction.types}


def encode(message: Message) -> bytes:
    """Return the frame of a message. Raises `ProtocolError` where the other side would not accept it.

    Text that is not Unicode (a file name in an error, decoded with surrogates) goes out with its escapes.
    """
    try:
        frame = pack((VERSION, message))
    except UnicodeEncodeError:
        plain = [VERSION, msgspec.to_builtins(message, builtin_types=(bytes,))]
        frame = msgpack.packb(plain, use_bin_type=True, unicode_errors="backslashreplace")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"message {type_name(type(message))!r}: {error}") from error
    if len(frame) > message.max_bytes:
        raise ProtocolError(too_large(type(message), len(frame)))
    if message.needs_check:
        # A struct does not check what it is made of; decoding does.
        _DIRECTION_OF[type(message)].decode(frame)
    return frame


def clip(text: str, limit: int = MAX_REASON_CHARS) -> str:
    """Return a text as it travels: at most `limit` characters of its beginning and end; not Unicode as escapes."""
    return shorten(text.encode("utf-8", "backslashreplace").decode(), limit)
