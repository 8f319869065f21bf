"""Writes a stats file: buffers cheaply, encodes and writes in `flush`, which may run in a native thread.

`BlockBuilder` gathers what was buffered into blocks worth writing: rows of a kind together, events after their rows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import DiskFullError, StatsFileError
from bench_common.job_rows import join_rows
from bench_common.records import (
    MAX_TEXT_CHARS,
    ErrorRecord,
    MetricRecord,
    OutputRecord,
    TransactionRecord,
)
from bench_common.safe_text import shorten
from bench_common.stats.block_types import MAX_RECORDS, MAX_ROWS
from bench_common.stats.blocks import decode, split
from bench_common.stats.frame import Chain, encode_frame, pack_payload
from bench_common.stats.rows import (
    Rows,
    SampleColumns,
    are_paired,
    pack_jobs,
    pack_operations,
    pack_records,
    pack_samples,
    pack_transfers,
)

_MAX_BLOCK_BYTES: Final = 4 << 20
_WORD_BYTES: Final = 8
_FIRST_BYTES: Final = "first bytes"
"""Operations that never come in the jobs' own order."""
_DIVIDING_EVENTS: Final = frozenset({"worker-lost"})
"""Events that no later row may precede: a retry without the loss that called for it would pass for a fault."""
_ROW_KINDS: Final = ("jobs", "operations", _FIRST_BYTES, "transfers")


class BlockBuilder:
    """Turns buffered items into block payloads, one flush long.

    Rows of a kind are gathered over everything but a block put for itself (header, host, footer ...), which keeps
    its place. Jobs of one operation each take their operations along in their block, which halves their bytes.
    Events wait until the rows before them are out: an event in the file vouches for them.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[Rows]] = {kind: [] for kind in _ROW_KINDS}
        self._held = dict.fromkeys(_ROW_KINDS, 0)
        self._records: dict[str, list[Any]] = {}
        self._bulk: dict[str, int] = {}
        self._events: list[bytes] = []

    def add(self, kind: str, item: Any) -> Iterator[bytes]:
        """Take one buffered item; yield the payloads that are due."""
        if kind in _ROW_KINDS:
            # Not before there is more: the operations of the last jobs come behind them.
            if self._held[kind] >= MAX_ROWS:
                yield from self._row_blocks(kind, whole=True)
            self._rows[kind].append(item)
            self._held[kind] += len(item)
        elif kind == "samples":
            yield from _sample_blocks(item)
        elif kind == "event":
            self._events.append(item)
        elif kind == "put":
            yield from self.drain()
            yield item
        else:
            yield from self._add_records(kind, item)

    def drain(self) -> Iterator[bytes]:
        """Yield the payloads of all that is held."""
        for kind in self._rows:
            yield from self._row_blocks(kind, whole=False)
        for kind in list(self._records):
            yield from self._record_block(kind)
        yield from self._events
        self._events.clear()

    def _row_blocks(self, kind: str, *, whole: bool) -> Iterator[bytes]:
        """Yield blocks of `MAX_ROWS` rows; hold back what does not fill one when only `whole` ones are wanted."""
        while self._held[kind] >= (MAX_ROWS if whole else 1):
            rows = self._first(kind, MAX_ROWS)
            if kind == "jobs":
                body = pack_jobs(rows, self._take_paired_operations(rows))
            else:
                body = pack_transfers(rows) if kind == "transfers" else pack_operations(rows)
            self._drop(kind, len(rows))
            yield pack_payload("operations" if kind == _FIRST_BYTES else kind, body)

    def _take_paired_operations(self, jobs: Rows) -> Rows | None:
        """Take the operations of these jobs, if there is one for each and they come next; else none."""
        if self._held["operations"] < len(jobs):
            return None
        rows = self._first("operations", len(jobs))
        if not are_paired(rows, jobs):
            return None
        self._drop("operations", len(rows))
        return rows

    def _first(self, kind: str, count: int) -> Rows:
        """Return up to `count` of the rows that are held, of which there must be some."""
        held = self._rows[kind]
        if len(held) > 1:
            held[:] = [join_rows(held)]
        return held[0][:count]

    def _drop(self, kind: str, count: int) -> None:
        (rows,) = self._rows[kind]
        self._held[kind] -= count
        self._rows[kind] = [rows[count:]] if self._held[kind] else []

    def _add_records(self, kind: str, records: list[Any]) -> Iterator[bytes]:
        for record in records:
            bulk = estimated_bytes(record)
            held = self._records.get(kind, ())
            if held and (len(held) >= MAX_RECORDS or self._bulk[kind] + bulk > _MAX_BLOCK_BYTES):
                yield from self._record_block(kind)
            self._records.setdefault(kind, []).append(record)
            self._bulk[kind] = self._bulk.get(kind, 0) + bulk

    def _record_block(self, kind: str) -> Iterator[bytes]:
        records = self._records.pop(kind, [])
        self._bulk[kind] = 0
        if records:
            yield pack_payload(kind, pack_records(records))


def estimated_bytes(record: MetricRecord | ErrorRecord | OutputRecord | TransactionRecord) -> int:
    """Return about how many bytes of text and output a record brings along."""
    if isinstance(record, OutputRecord):
        return len(record.stdout) + len(record.stderr)
    return len(record.message) if isinstance(record, ErrorRecord) else 0


def _sample_blocks(samples: SampleColumns) -> Iterator[bytes]:
    rows = len(next(iter(samples.columns.values()), ()))
    most = max(1, min(MAX_ROWS, _MAX_BLOCK_BYTES // (_WORD_BYTES * max(1, len(samples.columns)))))
    for first in range(0, rows, most):
        part = {name: column[first : first + most] for name, column in samples.columns.items()}
        yield pack_payload(
            "samples", pack_samples(SampleColumns(samples.worker, samples.source, part, samples.units))
        )


MAX_OUTPUT: Final = 8 << 20
"""Bytes of one output stream that are kept; a stream that is cut is `truncated`."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that somebody can end by making room."""

_SMALL_BYTES: Final = 200
"""Estimate for a record without text or output in `pending_bytes`."""


class StatsWriter:
    """Writes a new stats file, or continues one. Every method but `flush` and `close` only buffers and is cheap.

    The file is locked while it is open, so that it has one writer.

    One thread appends and at most one other flushes; no lock is needed between them, because a deque's `append` and
    `popleft` are atomic and each counter has one writer. Arrays are kept as they are: do not change them afterwards.
    """

    def __init__(self, path: str | os.PathLike[str], *, reopen: bool = False) -> None:
        """Create the file, or (`reopen`) open the one that is there; raise `StatsFileError` where that fails."""
        self.path = Path(path)
        self._descriptor: int | None = _open_file(self.path, reopen=reopen)
        self.bytes_written = 0
        """Bytes of whole blocks in the file."""
        self._chain = Chain()
        self._pending: deque[tuple[str, Any, int]] = deque()
        self._appended_bytes = 0
        self._flushed_bytes = 0
        self._flushing = False
        self._failure: str | None = None
        self._has_ended = False
        self._payloads: Iterator[bytes] = iter(())
        """What is left of a flush that found no room on the disk."""
        self._unwritten = b""
        """The block for which there was no room."""
        self._is_half_written = False
        """Whether a part of it may be in the file."""

    @property
    def pending_bytes(self) -> int:
        """Estimate the memory of the rows, records and blocks that wait for a flush, in bytes."""
        return self._appended_bytes - self._flushed_bytes

    def truncate_to(self, offset: int, chain: Chain) -> None:
        """Truncate the reopened file to its first `offset` bytes; new blocks follow them, and continue their chain.

        Raises `StatsFileError` when the disk refuses.
        """
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, offset)
            os.lseek(self._descriptor, offset, os.SEEK_SET)
        except OSError as error:
            raise StatsFileError(f"{self.path}: cannot be cut to {offset} bytes: {error.strerror}") from error
        self.bytes_written = offset
        self._chain = chain.copy()

    def put(self, kind: str, body: Mapping[str, Any] | Struct) -> None:
        """Buffer one block without rows (header, host, event, footer ...); `TypeError` if it cannot be packed.

        Raises `StatsFileError` for a header that a reader would refuse, such as that of a plan without end.
        """
        plain = msgspec.to_builtins(body)
        payload = pack_payload(kind, plain)
        if kind == "header":
            try:
                decode(*split(payload))
            except ValueError as error:
                raise StatsFileError(f"{self.path}: this plan does not fit into a stats file: {error}") from error
        gathers = kind == "event" and plain.get("kind") not in _DIVIDING_EVENTS
        self._append("event" if gathers else "put", payload, 1, len(payload))

    def end(self, footer: Mapping[str, Any] | Struct) -> None:
        """Buffer the footer; what comes later is dropped, however long the footer waits for room on the disk."""
        self.put("footer", footer)
        self._has_ended = True

    def jobs(self, rows: Rows) -> None:
        """Buffer `JOB_ROW` rows."""
        self._append("jobs", rows, len(rows), rows.nbytes)

    def operations(self, rows: Rows) -> None:
        """Buffer `OPERATION_ROW` rows."""
        self._append("operations", rows, len(rows), rows.nbytes)

    def first_bytes(self, rows: Rows) -> None:
        """Buffer `OPERATION_ROW` rows of first bytes: kept apart, as a job has its own operation besides."""
        self._append(_FIRST_BYTES, rows, len(rows), rows.nbytes)

    def transfers(self, rows: Rows) -> None:
        """Buffer `TRANSFER_ROW` rows."""
        self._append("transfers", rows, len(rows), rows.nbytes)

    def transactions(self, records: Sequence[TransactionRecord]) -> None:
        """Buffer the names of requests."""
        self._append_records("transactions", list(records))

    def metrics(self, records: Sequence[MetricRecord]) -> None:
        """Buffer metrics."""
        self._append_records("metrics", list(records))

    def errors(self, records: Sequence[ErrorRecord]) -> None:
        """Buffer errors, each message cut at `MAX_TEXT_CHARS` characters."""
        self._append_records("errors", [_truncate_outputs(record) for record in records])

    def outputs(self, records: Sequence[OutputRecord]) -> None:
        """Buffer what tools printed, each stream cut at `MAX_OUTPUT` bytes."""
        self._append_records("outputs", [_truncate_outputs(record) for record in records])

    def samples(
        self, worker: int, source: str, columns: Mapping[str, npt.ArrayLike], units: Mapping[str, str]
    ) -> None:
        """Buffer readings as columns of numbers; `worker` is a roster number, or -1 for the master.

        Raises `ValueError` unless the columns are equally long.
        """
        arrays = {name: np.asarray(values) for name, values in columns.items()}
        lengths = {array.shape for array in arrays.values()}
        if len(lengths) > 1 or any(array.ndim != 1 or array.dtype.kind not in "iufb" for array in arrays.values()):
            raise ValueError(f"samples are columns of numbers of one length, not of {sorted(lengths)}")
        rows = len(next(iter(arrays.values()), ()))
        size = sum(array.nbytes for array in arrays.values())
        self._append("samples", SampleColumns(worker, source, arrays, units), rows, size)

    def _append_records(
        self, kind: str, records: Sequence[MetricRecord | ErrorRecord | OutputRecord | TransactionRecord]
    ) -> None:
        self._append(kind, records, len(records), sum(_SMALL_BYTES + estimated_bytes(record) for record in records))

    def _append(self, kind: str, item: Any, rows: int, size: int) -> None:
        if rows and not self._has_ended:
            self._pending.append((kind, item, size))
            self._appended_bytes += size

    def flush(self) -> None:
        """Encode, compress and write all that was buffered before the call.

        Blocks keep their order, except that rows of a kind are gathered; an event is written after all rows that were
        buffered before it, the loss of a worker also before those that were buffered later. Raises `StatsFileError`
        when the disk refuses: the file then ends with its last whole block. Where there is no room (`DiskFullError`),
        the next flush goes on with the block that did not fit; after any other error every later flush that has
        something to write raises the same, likewise when a block cannot be made of what was buffered. Raises
        `RuntimeError` on a second flush at once.
        """
        if self._flushing:
            raise RuntimeError("another flush is running: one at a time")
        self._flushing = True
        try:
            if self._unwritten:
                self._write(self._unwritten)
            self._write_all(self._payloads)
            self._payloads = self._take_pending()
            self._write_all(self._payloads)
        except StatsFileError:
            raise
        except Exception as error:
            # What was taken from the buffer is lost: continuing would leave a hole in the file.
            self._failure = f"{self.path}: a block could not be made: {type(error).__name__}: {error}"
            raise StatsFileError(self._failure) from error
        finally:
            self._flushing = False

    def _take_pending(self) -> Iterator[bytes]:
        """Take what is buffered now; yield the payloads of its blocks."""
        batches = BlockBuilder()
        for _ in range(len(self._pending)):
            kind, item, size = self._pending.popleft()
            self._flushed_bytes += size
            yield from batches.add(kind, item)
        yield from batches.drain()

    def _write_all(self, payloads: Iterator[bytes]) -> None:
        for payload in payloads:
            self._write(encode_frame(payload, self._chain))

    def _write(self, member: bytes) -> None:
        if self._failure is not None or self._descriptor is None:
            raise StatsFileError(self._failure or f"{self.path}: is closed")
        rest = memoryview(member)
        try:
            if self._is_half_written:
                self._remove_half_block(self._descriptor)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._is_half_written = True
            # A reader would see the half-written block as damage; truncating may also free the space.
            with contextlib.suppress(OSError):
                self._remove_half_block(self._descriptor)
            text = (
                f"{self.path}: writing failed at byte {self.bytes_written}: {error.strerror}; "
                "the file is good up to there. Free some space or choose another place with -s"
            )
            if error.errno in _NO_ROOM:
                # Its number and checksum are taken already: it is the next block, or there is none.
                self._unwritten = member
                raise DiskFullError(text, os.strerror(error.errno), _free_bytes(self._descriptor)) from error
            self._failure = text
            raise StatsFileError(self._failure) from error
        self._unwritten = b""
        self.bytes_written += len(member)

    def _remove_half_block(self, descriptor: int) -> None:
        """Truncate the file to its whole blocks."""
        os.ftruncate(descriptor, self.bytes_written)
        os.lseek(descriptor, self.bytes_written, os.SEEK_SET)
        self._is_half_written = False

    def sync(self) -> None:
        """Write what is buffered, and return once it and the file's name are on disk; raise `StatsFileError`."""
        self.flush()
        assert self._descriptor is not None
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise StatsFileError(f"{self.path}: cannot be synced to disk: {error.strerror}") from error
        _sync_directory(self.path.parent)

    def close(self, footer: Mapping[str, Any] | Struct | None = None) -> None:
        """Write the buffered data, then the footer; sync to disk; close. Closing twice is harmless."""
        if self._descriptor is None:
            return
        try:
            if footer is not None:
                self.put("footer", footer)
            self.sync()
        finally:
            os.close(self._descriptor)
            self._descriptor = None


def exists_with_content(path: Path) -> bool:
    """Whether there is anything but an empty file, such as a master leaves that is killed before it begins."""
    try:
        state = path.lstat()
    except OSError:
        return False
    return not stat.S_ISREG(state.st_mode) or state.st_size > 0


def _open_file(path: Path, *, reopen: bool) -> int:
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | (0 if reopen else os.O_CREAT | os.O_NOFOLLOW)
    try:
        if not reopen and exists_with_content(path):
            raise FileExistsError
        descriptor = os.open(path, flags, 0o644)
    except FileExistsError as error:
        raise _never_overwritten(path) from error
    except OSError as error:
        what = "opened for writing" if reopen else "created"
        raise StatsFileError(f"{path}: cannot be {what}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StatsFileError(f"{path}: is being written by another process: its run is still running") from error
    except OSError:
        pass  # a file system without locks
    if not reopen and os.fstat(descriptor).st_size:
        # Another process made it, and wrote to it, since we looked.
        os.close(descriptor)
        raise _never_overwritten(path)
    return descriptor


def _free_bytes(descriptor: int) -> int | None:
    """Return how much room a file's disk has for this user; None where it does not say."""
    try:
        room = os.fstatvfs(descriptor)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize if room.f_blocks else None


def _never_overwritten(path: Path) -> StatsFileError:
    return StatsFileError(f"{path}: already exists, and stats files are never overwritten; name another file with -s")


def _sync_directory(directory: Path) -> None:
    """Make the new name itself durable; a file system that has no such thing is not an error."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_Bulky = TypeVar("_Bulky", ErrorRecord, OutputRecord)


def _truncate_outputs(record: _Bulky) -> _Bulky:
    if isinstance(record, ErrorRecord):
        if len(record.message) <= MAX_TEXT_CHARS:
            return record
        return replace(record, message=shorten(record.message, MAX_TEXT_CHARS))
    if estimated_bytes(record) <= MAX_OUTPUT:
        return record
    stdout, stderr = record.stdout[:MAX_OUTPUT], record.stderr[:MAX_OUTPUT]
    cut = len(stdout) < len(record.stdout) or len(stderr) < len(record.stderr)
    return replace(record, stdout=stdout, stderr=stderr, truncated=record.truncated or cut)
