"""The kinds of blocks in a stats file as declared types, and how a block is decoded within limits.

`decode` returns plain maps, with records in those of ``metrics``, ``errors`` and ``outputs``. A body that is nested
too deeply, has too many items, or is not what its kind declares raises `ValueError` before it takes much memory: an
item of one byte can become an object of 64. Keys that are not declared are kept. docs/stats-file.rst explains the
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NotRequired, TypeAlias, TypedDict

import msgpack  # type: ignore[import-untyped]
import msgspec
import numpy as np
from msgspec import Meta

from bench_common.host_info import Fingerprint, Number, Texts
from bench_common.records import Count, ErrorRecord, MetricRecord, OutputRecord, TransactionRecord

MAX_ROWS: Final = 65_536
"""The most rows that one column, and so one block, may have."""
MAX_RECORDS: Final = 4096
"""The most metrics, errors or outputs in one block."""
MAX_COLUMNS: Final = 300
"""The most columns in one block; samples have up to 256."""
MAX_PLAIN_BYTES: Final = 16 << 20
"""The most bytes of a block without rows; the text of an item takes up to 20 times its bytes in memory."""
MAX_CONTAINERS: Final = 2 << 20
"""The most lists and maps in such a block, at some 90 bytes of memory each: a header of a million trials fits."""
MAX_DEPTH: Final = 64
"""How deeply maps and lists may be nested in a block."""
MAX_TEXTS: Final = 100_000
"""The most texts in one list."""

Body: TypeAlias = dict[str, Any]

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


class _Jobs(TypedDict):
    rows: RowCount
    columns: EncodedColumns
    operations: NotRequired[EncodedColumns]


class _Operations(TypedDict):
    rows: RowCount
    columns: EncodedColumns


class _Samples(TypedDict):
    worker: WorkerNumber
    source: Text
    units: Annotated[dict[Text, Text], Meta(max_length=MAX_COLUMNS)]
    rows: RowCount
    columns: EncodedColumns


class _Metrics(TypedDict):
    rows: Annotated[list[MetricRecord], Meta(max_length=MAX_RECORDS)]


class _Errors(TypedDict):
    rows: Annotated[list[ErrorRecord], Meta(max_length=MAX_RECORDS)]


class _Outputs(TypedDict):
    rows: Annotated[list[OutputRecord], Meta(max_length=MAX_RECORDS)]


class _Transactions(TypedDict):
    rows: Annotated[list[TransactionRecord], Meta(max_length=MAX_RECORDS)]


# -- the header ----------------------------------------------------------------------------------------------------


class _ClockStart(TypedDict, total=False):
    unix_ns: Instant
    monotonic_ns: Instant
    boot_id: Text


class _Scenario(TypedDict, total=False):
    name: Text | None
    description: Text | None
    path: Text | None
    text: Text | None
    document: dict[str, Any] | None
    notes: TextList
    scale: Text | None


class _Metric(TypedDict, total=False):
    unit: Text
    direction: Text | None


class _OpenLoad(TypedDict, total=False):
    rate_per_s: Rate
    process: Text
    queue_timeout_s: Seconds


class _Treatment(TypedDict, total=False):
    title: Text | None
    labels: Labels
    environment: Text | None
    engine: Text | None
    operation_names: TextList
    metrics: Annotated[dict[Text, _Metric], Meta(max_length=MAX_TEXTS)]
    concurrency: Count | None
    iterations: Count | None
    jobs_per_trial: Count | None
    primary: Text | None
    optional: bool
    open_load: _OpenLoad | None


class _PublishedFigure(TypedDict):
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


class _Published(TypedDict):
    title: Text
    source: Text
    file: Text
    rows: Annotated[list[_PublishedFigure], Meta(max_length=MAX_TEXTS)]


class _ImportedFile(TypedDict):
    name: Text
    bytes: Count
    sha256: Text
    runs: Count
    readings: Count


class _Imported(TypedDict):
    at: NotRequired[Text | None]
    workload: NotRequired[Text | None]
    timed: NotRequired[bool]
    files: Annotated[list[_ImportedFile], Meta(max_length=MAX_TEXTS)]


class _Baseline(TypedDict, total=False):
    baseline: Labels


class _Verdicts(TypedDict, total=False):
    baseline: Labels
    margin: Annotated[float, Meta(gt=0, le=1)] | None


class _UntilVerdict(TypedDict, total=False):
    at_most: Count
    budget_s: Seconds | None


class _Header(TypedDict, total=False):
    run_id: Text | None
    created: Text | None
    clock: _ClockStart | None
    imported: _Imported | None
    scenario: _Scenario
    published: _Published | None
    thresholds: TextList
    allow_failures: bool | None
    verdicts: _Verdicts | None
    order: Text | None
    seed: Number | None
    argv: TextList
    versions: Texts
    options: dict[str, Any]
    noop: bool
    settle_s: Seconds | None
    until_verdict: _UntilVerdict | None
    sampling_interval_s: Seconds | None
    overhead: _Baseline | None
    treatments: Annotated[list[_Treatment], Meta(max_length=MAX_TEXTS)]
    trials: Annotated[list[tuple[Count, Count, bool]], Meta(max_length=1 << 20)]


# -- host, events, footer --------------------------------------------------------------------------------------------


class _Clock(TypedDict, total=False):
    offset_ns: Number
    uncertainty_ns: Number


class _Host(TypedDict, total=False):
    worker: WorkerNumber
    worker_id: Text | None
    host: Text | None
    environment: Text | None
    slots: Count | None
    engines: Texts | None
    fingerprint: Fingerprint | None
    labels: Texts
    clock: _Clock | None


class _Event(TypedDict):
    at_ns: Instant
    kind: Text


class _WorkerEvent(_Event, total=False):
    worker: WorkerNumber
    worker_id: Text
    reason: Text
    held: Count


class _TrialEvent(_Event):
    trial: TrialIndex
    workers: NotRequired[Annotated[list[WorkerNumber], Meta(max_length=MAX_ROWS)]]
    clocks: NotRequired[Annotated[list[tuple[WorkerNumber, Number, Number]], Meta(max_length=MAX_ROWS)]]
    not_started: NotRequired[Count]
    not_started_outcome: NotRequired[Text | Count]
    complete: NotRequired[bool]
    reason: NotRequired[Text]
    not_needed: NotRequired[Count]


class _HostFinding(_Event, total=False):
    worker: WorkerNumber
    check: Text
    finding: Text
    advice: Text


class _LastLook(_Event):
    last: Count
    at_most: Count
    budget_s: Seconds | None
    round_s: Seconds | None
    treatments: Count


class _LookedAt(TypedDict):
    a: Count
    b: Count
    verdict: Text
    ratio: float | None
    low: float | None
    high: float | None


class _Look(_Event):
    rounds: Count
    last: Count
    nominal: float
    settled: Annotated[list[Count], Meta(max_length=MAX_TEXTS)]
    comparisons: Annotated[list[_LookedAt], Meta(max_length=MAX_TEXTS)]


class _RoundsOver(_Event):
    rounds: Count
    last: Count | None
    why: Text


class _Packed(_Event):
    trial: TrialIndex
    worker: WorkerNumber
    containers: Count
    full: bool
    reason: Text
    returned: NotRequired[Count]
    hold_s: Seconds
    memory_before: Count


class _Member(TypedDict):
    worker: WorkerNumber
    worker_id: NotRequired[Text]


class _RunBegin(_Event, total=False):
    roster: Annotated[list[_Member], Meta(max_length=MAX_ROWS)]
    planned: Count | None


class _Resumed(_Event, total=False):
    at: Text | None
    ended: Text | None
    gap_ns: Instant | None
    complete_trials: Count
    rerun_trials: Annotated[list[TrialIndex], Meta(max_length=1 << 20)]
    first_job: Count
    cut_bytes: Count
    shift_ns: Instant
    run_label: Text
    more_trials: Annotated[list[tuple[Count, Count, bool]], Meta(max_length=1 << 20)]


class _Counts(TypedDict, total=False):
    planned: Count | None
    done: Count
    failed: Count
    lost: Count
    aborted: Count


class _Footer(TypedDict, total=False):
    ended: Text | None
    status: Text | None
    duration_s: Seconds | None
    counts: _Counts
    not_started: Count
    warnings: TextList
    remarks: TextList
    resumes: Count


def _checker(declared: Any) -> Callable[[bytes | memoryview], Any]:
    return msgspec.msgpack.Decoder(declared).decode


_ROWS: Final[Mapping[str, Callable[[bytes | memoryview], Any]]] = {
    "jobs": _checker(_Jobs),
    "operations": _checker(_Operations),
    "transfers": _checker(_Operations),
    "samples": _checker(_Samples),
    "metrics": _checker(_Metrics),
    "errors": _checker(_Errors),
    "outputs": _checker(_Outputs),
    "transactions": _checker(_Transactions),
}
_PLAIN: Final[Mapping[str, Callable[[bytes | memoryview], Any]]] = {
    "header": _checker(_Header),
    "host": _checker(_Host),
    "event": _checker(_Event),
    "footer": _checker(_Footer),
}
_EVENTS: Final[Mapping[str, Callable[[bytes | memoryview], Any]]] = {
    **dict.fromkeys(("worker-joined", "worker-reconnected", "worker-lost"), _checker(_WorkerEvent)),
    **dict.fromkeys(("trial-begin", "trial-end", "trial-skipped"), _checker(_TrialEvent)),
    "packed": _checker(_Packed),
    "host-finding": _checker(_HostFinding),
    "last-look": _checker(_LastLook),
    "look": _checker(_Look),
    "rounds-over": _checker(_RoundsOver),
    "run-begin": _checker(_RunBegin),
    "resumed": _checker(_Resumed),
}
_split: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode


def split(payload: bytes | memoryview) -> tuple[str, bytes | memoryview]:
    """Return kind and encoded body of a payload; raise `ValueError` where it is no such pair."""
    try:
        kind, body = _split(payload)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no pair of kind and body: {error}") from error
    return kind, memoryview(body)


def decode(kind: str, data: bytes | memoryview) -> Body:
    """Return the body of a block of a kind; raise `ValueError` where it is not what the kind declares."""
    try:
        if kind in _ROWS:
            body: Body = _ROWS[kind](data)
            return body
        body = _unpack_plain(data)
        if kind in _PLAIN:
            _PLAIN[kind](data)
        if kind == "event" and body["kind"] in _EVENTS:
            _EVENTS[body["kind"]](data)
        elif kind == "header":
            _check_trials(body)
    except (RecursionError, msgpack.UnpackException) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    return body


def _check_trials(header: Body) -> None:
    """Raise `ValueError` where a trial is of a treatment that the header does not list."""
    treatments = len(header.get("treatments", ()))
    for trial, entry in enumerate(header.get("trials", ())):
        if entry[0] >= treatments:
            raise ValueError(f"trial {trial} is of treatment {entry[0]}, and there are {treatments}")


# -- limits ----------------------------------------------------------------------------------------------------------

_CONTAINER_CODES: Final = np.zeros(256, np.bool_)
"""The bytes that begin an array or a map in msgpack."""
_CONTAINER_CODES[0x80:0xA0] = _CONTAINER_CODES[0xDC:0xE0] = True
_SMALL_BYTES: Final = 64 << 10
"""So few bytes cannot hold too many containers."""
_PLAIN_TYPES: Final = frozenset({dict, list, str, bytes, int, float, bool, type(None)})


def _unpack_plain(data: bytes | memoryview) -> Body:
    """Return a map of names; raise `ValueError` beyond the limits, where possible before objects are made of it."""
    if len(data) > MAX_PLAIN_BYTES:
        raise ValueError(f"{len(data)} bytes: at most {MAX_PLAIN_BYTES} expected")
    # Bytes within numbers and texts count, too: what passes has no more containers than that.
    if len(data) > _SMALL_BYTES and int(_CONTAINER_CODES[np.frombuffer(data, np.uint8)].sum()) > MAX_CONTAINERS:
        raise ValueError(f"more than {MAX_CONTAINERS} lists and maps")
    body = msgpack.unpackb(data, raw=False, strict_map_key=True)
    if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
        raise ValueError("the body is no map of names")
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
        if not _PLAIN_TYPES.issuperset(map(type, level)):
            raise ValueError("a value of a type that no block has")
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return body
    raise ValueError(f"nested more than {MAX_DEPTH} deep")
