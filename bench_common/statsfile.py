"""The stats file: everything that a run gave, appended block by block while it runs, readable whatever happens.

`StatsWriter` buffers cheaply and writes in `flush`, which may run in a native thread while the hub goes on appending.
`StatsFile` streams the blocks back in bounded memory and yields every whole block before a cut or damaged byte.
`docs/stats-file.rst` describes the format.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench_common.errors import StatsFileError
from bench_common.records import ErrorRecord, MetricRecord, OutputRecord
from bench_common.stats_batches import Batches
from bench_common.stats_frame import CutError, ForeignError, FrameError, FrameReader, frame, pack_payload
from bench_common.stats_rows import Rows, Samples, unpack

FORMAT: Final = "weighbridge-stats"
VERSION: Final = 1

MAX_OUTPUT: Final = 8 << 20
"""Bytes of one output stream that are kept; what is longer is cut and marked `truncated`."""

_SMALL_BYTES: Final = 200
"""What a record without bulk is taken for in `pending_bytes`."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block: `body` is a row array, `Samples`, a list of records, or a plain mapping, by `kind`."""

    kind: str
    body: Any


class StatsWriter:
    """Writes a new stats file. Every method but `flush` and `close` only buffers and is cheap.

    One thread appends and at most one other flushes; no lock is needed between them, because a deque's `append` and
    `popleft` are atomic and each counter has one writer. Arrays are kept as they are: do not change them afterwards.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Create the file; raise `StatsFileError` when it exists already or cannot be made."""
        self.path = Path(path)
        try:
            self._descriptor: int | None = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
            )
        except FileExistsError as error:
            message = f"{self.path}: exists already, and a stats file is never overwritten; name another with -s"
            raise StatsFileError(message) from error
        except OSError as error:
            raise StatsFileError(f"{self.path}: cannot be created: {error.strerror}") from error
        self.bytes_written = 0
        """Bytes of whole blocks in the file."""
        self._pending: deque[tuple[str, Any, int, int]] = deque()
        self._appended = [0, 0]
        self._taken = [0, 0]
        self._flushing = False
        self._failure: str | None = None

    @property
    def pending_rows(self) -> int:
        """About how many rows, records and blocks wait for a flush."""
        return self._appended[0] - self._taken[0]

    @property
    def pending_bytes(self) -> int:
        """About how much memory they take, in bytes."""
        return self._appended[1] - self._taken[1]

    def put(self, kind: str, body: Mapping[str, Any]) -> None:
        """Buffer one block without rows (header, host, event, footer ...); `TypeError` if it cannot be packed."""
        payload = pack_payload(kind, dict(body))
        self._append("event" if kind == "event" else "put", payload, 1, len(payload))

    def jobs(self, rows: Rows) -> None:
        """Buffer `JOB_ROW` rows."""
        self._append("jobs", rows, len(rows), rows.nbytes)

    def operations(self, rows: Rows) -> None:
        """Buffer `OPERATION_ROW` rows."""
        self._append("operations", rows, len(rows), rows.nbytes)

    def metrics(self, records: Sequence[MetricRecord]) -> None:
        """Buffer metrics."""
        self._append("metrics", list(records), len(records), _SMALL_BYTES * len(records))

    def errors(self, records: Sequence[ErrorRecord]) -> None:
        """Buffer errors."""
        self._append("errors", list(records), len(records), _SMALL_BYTES * len(records))

    def outputs(self, records: Sequence[OutputRecord]) -> None:
        """Buffer what tools printed, each stream cut at `MAX_OUTPUT` bytes."""
        kept = [_cut(record) for record in records]
        bulk = sum(len(record.stdout) + len(record.stderr) for record in kept)
        self._append("outputs", kept, len(kept), bulk + _SMALL_BYTES * len(kept))

    def samples(
        self, worker: int, source: str, columns: Mapping[str, npt.ArrayLike], units: Mapping[str, str]
    ) -> None:
        """Buffer readings as equally long columns; `worker` is a roster number, or -1 for the master."""
        arrays = {name: np.asarray(values) for name, values in columns.items()}
        rows = len(next(iter(arrays.values()), ()))
        self._append(
            "samples", Samples(worker, source, arrays, units), rows, sum(array.nbytes for array in arrays.values())
        )

    def _append(self, kind: str, item: Any, rows: int, size: int) -> None:
        if rows:
            self._pending.append((kind, item, rows, size))
            self._appended[0] += rows
            self._appended[1] += size

    def flush(self) -> None:
        """Encode, compress and write all that was buffered before the call.

        Blocks keep their order, except that rows of a kind are gathered; an event is written after all rows that
        were buffered before it. Raises `StatsFileError` when the disk refuses (full, gone): the file then ends with
        its last whole block, and every later flush raises the same. Raises `RuntimeError` on a second flush at once.
        """
        if self._flushing:
            raise RuntimeError("a flush is under way: one at a time")
        self._flushing = True
        try:
            batches = Batches()
            for _ in range(len(self._pending)):
                kind, item, rows, size = self._pending.popleft()
                self._taken[0] += rows
                self._taken[1] += size
                self._write_all(batches.add(kind, item))
            self._write_all(batches.drain())
        finally:
            self._flushing = False

    def _write_all(self, payloads: Iterator[bytes]) -> None:
        for payload in payloads:
            self._write(frame(payload))

    def _write(self, member: bytes) -> None:
        if self._failure is not None or self._descriptor is None:
            raise StatsFileError(self._failure or f"{self.path}: is closed")
        rest = memoryview(member)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            # What is half written would be damage to a reader; the space may even be what truncate gives back.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.bytes_written)
                os.lseek(self._descriptor, self.bytes_written, os.SEEK_SET)
            self._failure = (
                f"{self.path}: writing failed at byte {self.bytes_written}: {error.strerror}; "
                "the file is good up to there. Free some space or choose another place with -s"
            )
            raise StatsFileError(self._failure) from error
        self.bytes_written += len(member)

    def close(self, footer: Mapping[str, Any] | None = None) -> None:
        """Write what is buffered, then the footer; sync to disk; close. Closing twice is harmless."""
        if self._descriptor is None:
            return
        try:
            if footer is not None:
                self.put("footer", footer)
            self.flush()
            os.fsync(self._descriptor)
        except OSError as error:
            raise StatsFileError(f"{self.path}: cannot be synced to disk: {error.strerror}") from error
        finally:
            os.close(self._descriptor)
            self._descriptor = None
        _sync_directory(self.path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the new name itself durable; a file system that has no such thing is not an error."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _cut(record: OutputRecord) -> OutputRecord:
    if max(len(record.stdout), len(record.stderr)) <= MAX_OUTPUT:
        return record
    return replace(record, stdout=record.stdout[:MAX_OUTPUT], stderr=record.stderr[:MAX_OUTPUT], truncated=True)


class StatsFile:
    """Reads a stats file, as often as wanted, one block at a time.

    Raises `StatsFileError` at once when the path cannot be read, is no stats file, or is of a newer format version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.damage: str | None = None
        """Why the last pass ended early, with the byte offset; None when the file is whole."""
        self._header: dict[str, Any] | None = None
        with contextlib.closing(self.blocks()) as blocks:
            first = next(blocks, None)
        if first is not None:
            self._header = self._checked(first)

    @property
    def header(self) -> dict[str, Any]:
        """Return the header; raise `StatsFileError` when the file was cut before its end."""
        if self._header is None:
            raise StatsFileError(f"{self.path}: nothing to read: {self.damage or 'the file is empty'}")
        return self._header

    def blocks(self, kinds: Collection[str] | None = None) -> Generator[Block, None, None]:
        """Yield every whole block in file order, or those of the given kinds.

        Never raises for a cut or damaged file: the pass ends before the first bad byte, and `damage` says why.
        """
        self.damage = None
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise StatsFileError(f"{self.path}: {error.strerror}; a stats file expected") from error
        with file:
            reader = FrameReader(file)
            while True:
                start = reader.offset
                try:
                    pair = reader.read()
                    if pair is None:
                        break
                    kind, body = pair
                    if kinds is not None and kind not in kinds:
                        continue
                    block = Block(kind, unpack(kind, body))
                except (OSError, ValueError) as error:
                    self._stop(start, error)
                    return
                yield block

    def iter_jobs(self) -> Iterator[Rows]:
        """Yield `JOB_ROW` arrays of at most 65,536 rows."""
        return (block.body for block in self.blocks({"jobs"}))

    def iter_operations(self) -> Iterator[Rows]:
        """Yield `OPERATION_ROW` arrays of at most 65,536 rows."""
        return (block.body for block in self.blocks({"operations"}))

    def _stop(self, offset: int, error: Exception) -> None:
        if isinstance(error, ForeignError) and offset == 0:
            raise StatsFileError(f"{self.path}: is not a stats file: {error}") from error
        if isinstance(error, CutError):
            why = "the run was killed or is still under way, or the file was cut"
            self.damage = f"byte {offset}: {error} ({why})"
        else:
            reason = str(error) if isinstance(error, FrameError | OSError) else f"the block is malformed: {error}"
            self.damage = f"byte {offset}: {reason}; what follows is not read"

    def _checked(self, block: Block) -> dict[str, Any]:
        header = block.body
        if block.kind != "header" or header.get("format") != FORMAT:
            raise StatsFileError(f"{self.path}: is not a stats file: its first block is no {FORMAT} header")
        version = header.get("version")
        if type(version) is not int or version < 1:
            raise StatsFileError(f"{self.path}: format version {version!r}: a number from 1 expected")
        if version > VERSION:
            raise StatsFileError(
                f"{self.path}: is of format version {version}, this program reads up to {VERSION}; "
                "read it with the Weighbridge that wrote it, or a newer one"
            )
        return dict(header)
