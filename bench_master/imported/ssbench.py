"""Imports stat files of ssbench: each file is one trial of a job on objects, with the times that ssbench measured.

A stat file is a msgpack stream, plain or gzip: the scenario, then lists of results. Python 2 wrote texts as raw
strings, Python 3 as text or as bytes. A failed result holds the whole job, with the user's password or token in
``auth_kwargs``: only the keys in `_RESULT_KEYS` are decoded, and every other value is skipped in the stream.

Files of the same scenario with as many users are trials of one treatment. Unlike outputs of other tools they have
times: of each job its end, and its latencies. Failed jobs have an end only. What ssbench does not keep stays unknown:
the size of reads, how late a stamp was, the time of failed tries.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import re
import weakref
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgpack  # type: ignore[import-untyped]
import numpy as np

from bench_common.errors import ScenarioError, UsageError
from bench_common.files import STDIN, open_regular, spool_stdin
from bench_common.job_rows import JOB_ROW, OPERATION_ROW, TRANSFER_ROW
from bench_common.object_job import FIRST_BYTE, alternative_name
from bench_common.records import (
    OPERATION_DONE,
    OPERATION_FAILED,
    ErrorRecord,
    Outcome,
    TransactionRecord,
    ticket_of,
)
from bench_common.safe_text import mask_credentials, shorten
from bench_common.stats.reader import StatsWriter
from bench_master.dialects import scenario_of
from bench_master.dialects.ssbench import ClassLabels
from bench_master.formatting import plural
from bench_master.imported import import_header
from bench_master.scenario.yaml_tree import Source

if TYPE_CHECKING:
    from bench_common.treatment import Scalar

OPERATIONS: Final = {
    "upload_object": "create",
    "get_object": "read",
    "update_object": "update",
    "delete_object": "delete",
}
"""ssbench's types of jobs, and what these operations are called here."""

_SCENARIO_KEYS: Final = frozenset(
    {
        "_scenario_data", "name", "version", "user_count", "operation_count", "run_seconds", "container_base",
        "container_count", "container_concurrency", "delete_after",
    }
)  # fmt: skip
_RESULT_KEYS: Final = frozenset(
    {
        "type", "size_str", "size", "first_byte_latency", "last_byte_latency", "trans_id", "retries", "completed_at",
        "worker_id", "exception", "traceback",
    }
)  # fmt: skip
"""The keys of a result that are decoded; all others are skipped, above all ``auth_kwargs``."""

_MAX_STDIN_BYTES: Final = 4 << 30
_GZIP: Final = b"\x1f\x8b"
_MAX_LAYERS: Final = 2
"""``-s X.gz`` of ssbench writes X.gz.gz."""
_MAX_TEXT, _MAX_ITEMS, _MAX_MESSAGE = 1 << 20, 1 << 16, 400
_MAX_LATENCY_S: Final = 1e9
_MAX_TIME_S: Final = 8e9
"""In the year 2223; nanoseconds since 1970 fit 64 bits up to 2262."""

Plain: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatResult:
    """One finished job of ssbench."""

    operation: str
    """``create``, ``read``, ``update`` or ``delete``."""
    size_class: str
    """The name of its size class."""
    worker: str
    """The id of its worker."""
    completed_s: float
    """When it ended, in seconds since 1970."""
    first_s: float | None
    """The time to the header of the answer, in seconds; None for all but reads."""
    last_s: float | None
    """The time to the last byte, in seconds; None if it failed."""
    retries: int
    """How many tries failed before the one that counted; their time is in no latency."""
    size: int | None
    """How many bytes were sent; None for reads and deletes, whose size ssbench does not keep."""
    transaction: str
    """Swift's id of the transaction."""
    failure: tuple[str, str] | None = None
    """Kind and message of its failure."""


class StatFile:
    """The results of one run of ssbench. Raises `UsageError` if the file cannot be read or is no stat file."""

    def __init__(self, name: str) -> None:
        self.place = "<stdin>" if name == STDIN else name
        """What messages call the file."""
        self.skipped = 0
        """How many results lack a key that every result has."""
        self.damage = ""
        """Why it ends early; empty if it does not, and until the results have been read."""
        try:
            self._file = spool_stdin(_MAX_STDIN_BYTES) if name == STDIN else open_regular(name)
            weakref.finalize(self, self._file.close)
            self._file.seek(0)
            digest = hashlib.file_digest(self._file, "sha256")  # type: ignore[arg-type]
        except OSError as error:
            raise UsageError(f"{self.place}: {error.strerror or error} (- reads standard input)") from error
        self.size_bytes = self._file.tell()
        """The size of the file."""
        self.sha256 = digest.hexdigest()
        """Its checksum."""
        self._stream = _CountingReader(_plain_stream(cast("io.BufferedIOBase", self._file)))
        self._unpacker = msgpack.Unpacker(
            self._stream,
            raw=False,
            unicode_errors="replace",
            strict_map_key=False,
            max_str_len=_MAX_TEXT,
            max_bin_len=_MAX_TEXT,
            max_array_len=_MAX_ITEMS,
            max_map_len=_MAX_ITEMS,
        )
        self.scenario = self._read_scenario()
        """The scenario, with what the command line changed in it."""

    def _read_scenario(self) -> Plain:
        found: dict[str, Any] = {}
        with self._naming_damage() as damage:
            found = self._read_map(_SCENARIO_KEYS)
        if not isinstance(found.get("_scenario_data"), dict):
            self._file.close()
            why = damage[0] if damage else "its first record has no scenario"
            raise UsageError(f"{self.place}: not a stat file of ssbench: {why}")
        return found

    def results(self) -> Iterator[StatResult]:
        """Yield the results, once."""
        with self._naming_damage() as damage:
            while self._has_more():
                for _ in range(self._unpacker.read_array_header()):
                    result = _result(self._read_map(_RESULT_KEYS))
                    if result is None:
                        self.skipped += 1
                    else:
                        yield result
        self.damage = "; ".join(damage)

    def _has_more(self) -> bool:
        return self._unpacker.tell() < self._stream.count or self._stream.peek()

    def _read_map(self, wanted: frozenset[str]) -> dict[str, Any]:
        """Return the wanted items of the next map; the values of all others are skipped, not decoded."""
        found = {}
        for _ in range(self._unpacker.read_map_header()):
            key = _text(self._unpacker.unpack())
            if key in wanted:
                found[key] = _plain(self._unpacker.unpack())
            else:
                self._unpacker.skip()
        return found

    @contextmanager
    def _naming_damage(self) -> Iterator[list[str]]:
        """Catch what a truncated or malformed file raises; the list that is yielded then says what is wrong."""
        damage: list[str] = []
        try:
            yield damage
        except msgpack.OutOfData:
            damage.append("it ends in the middle of a record")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            damage.append(f"its compressed data are damaged or end early ({error})")
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            damage.append(f"it is malformed ({str(error) or type(error).__name__})")
        except OSError as error:
            damage.append(f"it cannot be read ({error.strerror or error})")


class _CountingReader:
    """A stream that counts what was read of it."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self.count = 0
        self._stream = stream
        self._ahead = b""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes: what comes before damage is not lost."""
        data, self._ahead = self._ahead or self._stream.read1(size), b""
        self.count += len(data)
        return data

    def peek(self) -> bool:
        """Whether there is more."""
        self._ahead = self._ahead or self._stream.read1(io.DEFAULT_BUFFER_SIZE)
        return bool(self._ahead)


def _plain_stream(file: io.BufferedIOBase) -> io.BufferedIOBase:
    """Return a file's content, decompressed as often as it was compressed."""
    file.seek(0)
    stream = file
    for _ in range(_MAX_LAYERS):
        try:
            magic = stream.read(len(_GZIP))
            stream.seek(0)
        except (OSError, EOFError, zlib.error):
            break
        if magic != _GZIP:
            break
        stream = gzip.GzipFile(filename="", mode="rb", fileobj=stream)
    return stream


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> Any:
    """Return a value with texts in the place of bytes, also within lists and maps."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {_text(key): _plain(one) for key, one in value.items()}
    return value


def _result(found: Plain) -> StatResult | None:
    """Return the result that a map is; None if it has not what every result has."""
    operation, completed = OPERATIONS.get(str(found.get("type"))), _number(found.get("completed_at"), _MAX_TIME_S)
    size_class, worker = found.get("size_str"), found.get("worker_id")
    if operation is None or completed is None or size_class is None or worker is None:
        return None
    last = _number(found.get("last_byte_latency"), _MAX_LATENCY_S)
    failed = "exception" in found
    if last is None and not failed:
        return None
    retries, size = found.get("retries"), found.get("size")
    return StatResult(
        operation=operation,
        size_class=str(size_class),
        worker=str(worker),
        completed_s=completed,
        first_s=None if failed else _number(found.get("first_byte_latency"), _MAX_LATENCY_S),
        last_s=None if failed else last,
        retries=retries if type(retries) is int and 0 <= retries <= _MAX_TEXT else 0,
        size=size if type(size) is int and 0 <= size < 1 << 62 else None,
        transaction=str(found.get("trans_id") or "")[:_MAX_MESSAGE],
        failure=describe_failure(str(found["exception"]), str(found.get("traceback") or "")) if failed else None,
    )


def _number(value: Any, most: float) -> float | None:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= most:
        return None
    return float(value)


_STATUS: Final = re.compile(r"\b([1-5]\d\d) [A-Z]")
_KINDS: Final[tuple[tuple[str, str], ...]] = (
    (r"timed? ?out", "timeout"),
    (r"refused", "refused"),
    (r"reset by peer|ECONNRESET|Errno 104", "reset"),
    (r"ConnectionClosed|CannotSendRequest|broken pipe|BadStatusLine|Errno 32", "closed"),
    (r"No fn_results", "gave-up"),
    (r"certificate|SSL", "tls"),
)


def describe_failure(exception: str, traceback: str = "") -> tuple[str, str]:
    """Return kind and message of a failure: the last line of its traceback has the status, the exception has not."""
    last = next((line for line in reversed(traceback.splitlines()) if line.strip()), "")
    message = mask_credentials(last.strip() or exception)
    match = _STATUS.search(message)
    if match:
        return f"http-{match[1]}", shorten(message, _MAX_MESSAGE)
    found = (kind for pattern, kind in _KINDS if re.search(pattern, message, re.IGNORECASE))
    return next(found, "failed"), shorten(message, _MAX_MESSAGE)


# -- stats file ---------------------------------------------------------------------------------------------------

_SETTINGS: Final = ("user_count", "container_base", "container_count", "container_concurrency", "delete_after")
"""What the first record of a stat file has beside the scenario: the values that the run had."""
_MAX_USERS: Final = 65_536
_BATCH: Final = 50_000
_NAMES: Final = tuple(OPERATIONS.values())


@dataclass(slots=True)
class StatRun:
    """The results of one stat file, some forty bytes each."""

    file: StatFile
    workers: dict[str, int] = field(default_factory=dict)
    """Each worker's number by its id."""
    classes: dict[str, int] = field(default_factory=dict)
    """Each size class's number by its name."""
    operation: array[int] = field(default_factory=lambda: array("B"))
    size_class: array[int] = field(default_factory=lambda: array("H"))
    worker: array[int] = field(default_factory=lambda: array("H"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    """Since 1970."""
    first_ns: array[int] = field(default_factory=lambda: array("q"))
    """The latency to the first byte; -1 if there is none."""
    last_ns: array[int] = field(default_factory=lambda: array("q"))
    """The latency to the last byte; -1 if it failed."""
    retries: array[int] = field(default_factory=lambda: array("I"))
    size: array[int] = field(default_factory=lambda: array("q"))
    """-1 if unknown."""
    failures: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Kind and message of each failed job, by its position."""
    slowest: dict[tuple[str, str, bool], tuple[int, int, str]] = field(default_factory=dict)
    """Latency (ns), position and transaction of the slowest job, by operation, class, and whether of a first byte."""

    @property
    def done(self) -> int:
        """How many jobs succeeded."""
        return len(self.end_ns) - len(self.failures)

    @property
    def begin_ns(self) -> int:
        """When the first job began, since 1970."""
        ends, last = np.array(self.end_ns), np.array(self.last_ns)
        return int((ends - np.maximum(last, 0)).min())


def read_run(name: str) -> StatRun:
    """Read a stat file; raise `UsageError` if it is none, or has no results."""
    file = StatFile(name)
    run = StatRun(file)
    sizes = file.scenario["_scenario_data"].get("sizes")
    listed = sizes if isinstance(sizes, list) else []
    labels = ClassLabels(str(one.get("name")) for one in listed if isinstance(one, dict))
    for at, result in enumerate(file.results()):
        size_class = labels[result.size_class]
        run.operation.append(_NAMES.index(result.operation))
        run.size_class.append(_position(run.classes, size_class, file, "size classes"))
        run.worker.append(_position(run.workers, result.worker, file, "workers"))
        run.end_ns.append(round(result.completed_s * 1e9))
        for latencies, seconds, is_first in (
            (run.first_ns, result.first_s, True),
            (run.last_ns, result.last_s, False),
        ):
            latencies.append(-1 if seconds is None else round(seconds * 1e9))
            key = result.operation, size_class, is_first
            if latencies[-1] > run.slowest.get(key, (-1, 0, ""))[0]:
                run.slowest[key] = latencies[-1], at, result.transaction
        run.retries.append(result.retries)
        run.size.append(-1 if result.size is None else result.size)
        if result.failure is not None:
            run.failures[at] = result.failure
    if not run.end_ns:
        raise UsageError(
            f"{file.place}: no results in this stat file of ssbench{f': {file.damage}' * bool(file.damage)}"
        )
    return run


def _position(known: dict[str, int], name: str, file: StatFile, what: str) -> int:
    number = known.setdefault(name, len(known))
    if number >= _MAX_USERS:
        raise UsageError(f"{file.place}: more than {_MAX_USERS} {what}: not a stat file of ssbench")
    return number


@dataclass(slots=True)
class _Group:
    """Runs of the same scenario with as many users: one treatment."""

    definition: dict[str, Any]
    """The treatment, as the header has it."""
    members: list[StatRun] = field(default_factory=list)


def write_stat_import(
    path: Path,
    runs: Sequence[StatRun],
    *,
    labels: Mapping[str, Scalar],
    run_id: str,
    argv: Sequence[str],
) -> list[str]:
    """Write the stats file of some runs; return what to tell of them. `labels` have ``environment`` and ``engine``.

    Raises `StatsFileError` if it exists or cannot be written, `UsageError` where a file's scenario cannot be read.
    """
    groups: dict[str, _Group] = {}
    told: list[str] = []
    for run in runs:
        definition = _definition(run, labels)
        key = json.dumps(definition, sort_keys=True, default=str)
        groups.setdefault(key, _Group(definition)).members.append(run)
        told += _doubts(run)
    base_ns = min(run.begin_ns for run in runs)
    ordered = list(groups.values())
    for index, group in enumerate(ordered):
        group.definition["index"] = index
        sizes = {len(run.end_ns) for run in group.members}
        group.definition["jobs_per_trial"] = sizes.pop() if len(sizes) == 1 else None
    treatment_of = {id(run): index for index, group in enumerate(ordered) for run in group.members}
    writer = StatsWriter(path)
    writer.put("header", _header(runs, ordered, base_ns, run_id, argv))
    numbers: dict[str, int] = {}
    for run in runs:
        for worker in run.workers:
            if worker not in numbers:
                numbers[worker] = len(numbers)
                host = {"worker": numbers[worker], "worker_id": f"ssbench-{worker}", "host": None, "slots": None}
                host |= {"engines": {str(labels["engine"]): ""}, "fingerprint": None, "clock": None}
                host |= {"environment": labels["environment"]}
                writer.put("host", host)
    first_job = 0
    for trial, run in enumerate(runs):
        _write_trial(writer, run, ordered[treatment_of[id(run)]], trial, first_job, base_ns, numbers)
        first_job += len(run.end_ns)
    done, failed = sum(run.done for run in runs), sum(len(run.failures) for run in runs)
    ends_ns = [max(run.end_ns) for run in runs]
    counts = {"planned": first_job, "done": done, "failed": failed, "lost": 0, "aborted": 0}
    duration_s = sum(end - run.begin_ns for end, run in zip(ends_ns, runs, strict=True)) / 1e9
    footer = {"ended": _iso(max(ends_ns)), "status": "complete", "duration_s": duration_s, "counts": counts}
    writer.close({**footer, "not_started": 0, "warnings": told})
    return told


def _doubts(run: StatRun) -> list[str]:
    place, file = run.file.place, run.file
    found = [f"{place}: {file.damage}: the results before it are imported"] if file.damage else []
    if file.skipped:
        found.append(f"{place}: {plural(file.skipped, 'result')} without type, class, worker or time skipped")
    return found


def _definition(run: StatRun, labels: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return the treatment that a run was, as ssbench's scenario in its file says."""
    stated = run.file.scenario
    document = dict(stated["_scenario_data"])
    document |= {key: stated[key] for key in _SETTINGS if stated.get(key) is not None}
    for key in ("operation_count", "run_seconds"):
        document.pop(key, None)
        if stated.get(key):
            document[key] = stated[key]
    if not document.keys() & {"operation_count", "run_seconds"}:
        document["operation_count"] = len(run.end_ns)
    try:
        scenario = scenario_of(Source(run.file.place, json.dumps(document)))
    except ScenarioError as error:
        raise UsageError(f"{run.file.place}: its scenario cannot be read: {error.problems[0]}") from error
    treatment = scenario.treatments[0]
    users = document.get("user_count")
    shown = {**labels, "scenario": scenario.name, "users": users}
    return {
        **treatment.to_dict(),
        "engine": labels["engine"],
        "environment": labels["environment"],
        "labels": shown,
        "title": " ".join(f"{key}={value}" for key, value in shown.items()),
        "concurrency": -(-int(users or 1) // len(run.workers)),
        "users": users,
        "operation_names": _operation_names(run, treatment),
        "metrics": {},
        "primary": None,
    }


def _operation_names(run: StatRun, treatment: Any) -> list[str]:
    """Return the names of the operations: those of the scenario, and any others that the results have."""
    sizes = list(run.classes)
    tried = sorted(set(zip(run.operation, run.size_class, strict=True)))
    names = [alternative_name(_NAMES[operation], sizes[size]) for operation, size in tried]
    firsts = [f"{name}{FIRST_BYTE}" for name in names if name.startswith("read[")]
    return list(dict.fromkeys([*treatment.job.operation_names(), *names, *firsts]))


def _header(
    runs: Sequence[StatRun], groups: Sequence[_Group], base_ns: int, run_id: str, argv: Sequence[str]
) -> dict[str, Any]:
    files = [
        {"name": file.place, "bytes": file.size_bytes, "sha256": file.sha256, "runs": 1, "readings": 0}
        for file in (run.file for run in runs)
    ]
    header = import_header("ssbench", files, run_id, argv, [group.definition for group in groups])
    header["imported"]["timed"] = True
    stated = [run.file.scenario for run in runs]
    header["scenario"]["name"] = ", ".join(dict.fromkeys(str(one.get("name")) for one in stated))
    header["versions"]["ssbench"] = ", ".join(dict.fromkeys(str(one.get("version")) for one in stated))
    places = {
        id(run): (index, place) for index, group in enumerate(groups) for place, run in enumerate(group.members)
    }
    return header | {
        "created": _iso(base_ns),
        "clock": {"unix_ns": base_ns, "monotonic_ns": 0, "boot_id": ""},
        "trials": [[*places[id(run)], False] for run in runs],
    }


def _iso(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat(timespec="seconds")


def _write_trial(
    writer: StatsWriter,
    run: StatRun,
    group: _Group,
    trial: int,
    first_job: int,
    base_ns: int,
    numbers: Mapping[str, int],
) -> None:
    treatment, count = group.definition["index"], len(run.end_ns)
    names = {name: place for place, name in enumerate(group.definition["operation_names"])}
    end = np.array(run.end_ns, np.int64) - base_ns
    last, first = np.array(run.last_ns, np.int64), np.array(run.first_ns, np.int64)
    start = end - np.maximum(last, 0)
    failed = last < 0
    workers = [numbers[worker] for worker in run.workers]
    writer.put("event", {"at_ns": int(start.min()), "kind": "trial-begin", "trial": trial, "workers": workers})
    jobs = np.zeros(count, JOB_ROW)
    jobs["ticket"] = np.arange(first_job, first_job + count)
    jobs["treatment"], jobs["trial"] = treatment, trial
    jobs["worker"] = np.array(workers)[np.array(run.worker, np.int64)]
    jobs["outcome"] = np.where(failed, int(Outcome.FAILED), int(Outcome.DONE))
    jobs["start_ns"], jobs["end_ns"] = start, end
    operations = np.zeros(count, OPERATION_ROW)
    for name in ("ticket", "treatment", "trial", "start_ns"):
        operations[name] = jobs[name]
    operations["ok"] = np.where(failed, OPERATION_FAILED, OPERATION_DONE)
    operations["duration_ns"] = np.maximum(last, 0)
    sizes = list(run.classes)
    table = np.array(
        [[names.get(alternative_name(operation, size), 0) for size in sizes] for operation in _NAMES], np.int64
    )
    firsts = np.array([names.get(f"{alternative_name('read', size)}{FIRST_BYTE}", 0) for size in sizes], np.int64)
    of_class = np.array(run.size_class, np.int64)
    operations["operation"] = table[np.array(run.operation, np.int64), of_class]
    read = first >= 0
    first_rows = operations[read]
    first_rows["operation"], first_rows["duration_ns"] = firsts[of_class[read]], first[read]
    transfers = np.zeros(count, TRANSFER_ROW)
    for name in ("ticket", "treatment", "trial", "operation", "ok", "duration_ns"):
        transfers[name] = operations[name]
    transfers["retries"] = np.array(run.retries, np.int64)
    bodyless = np.array(run.operation, np.int64) == _NAMES.index("delete")
    transfers["bytes"] = np.where(bodyless, 0, np.array(run.size, np.int64))
    for begin in range(0, count, _BATCH):
        writer.jobs(jobs[begin : begin + _BATCH])
        writer.operations(operations[begin : begin + _BATCH])
        writer.transfers(transfers[begin : begin + _BATCH])
        writer.flush()
    writer.first_bytes(first_rows)
    writer.errors(
        [
            ErrorRecord(ticket_of(first_job + at), treatment, trial, _operation_of(run, at, sizes), kind, message)
            for at, (kind, message) in run.failures.items()
        ]
    )
    writer.transactions(
        [
            TransactionRecord(
                ticket_of(first_job + at),
                treatment,
                trial,
                f"{alternative_name(operation, size)}{FIRST_BYTE if is_first else ''}",
                transaction,
            )
            for (operation, size, is_first), (_, at, transaction) in run.slowest.items()
        ]
    )
    at_ns = int(end.max())
    writer.put("event", {"at_ns": at_ns, "kind": "trial-end", "trial": trial})


def _operation_of(run: StatRun, at: int, sizes: Sequence[str]) -> str:
    return alternative_name(_NAMES[run.operation[at]], sizes[run.size_class[at]])
