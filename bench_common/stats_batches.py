"""Gathers what was buffered into blocks worth writing: rows of a kind together, events after their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bench_common.columns import MAX_ROWS
from bench_common.records import ErrorRecord, MetricRecord, OutputRecord, join_rows
from bench_common.stats.frame import pack_payload
from bench_common.stats.rows import Rows, Samples, belong, pack_jobs, pack_operations, pack_records, pack_samples

MAX_RECORDS: Final = 4096
_BULK_BYTES: Final = 4 << 20
_ROW_KINDS: Final = ("jobs", "operations")


class Batches:
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
            body = pack_jobs(rows, self._only_operations(rows)) if kind == "jobs" else pack_operations(rows)
            self._drop(kind, len(rows))
            yield pack_payload(kind, body)

    def _only_operations(self, jobs: Rows) -> Rows | None:
        """Take the operations of these jobs, if there is one for each and they come next; else none."""
        if self._held["operations"] < len(jobs):
            return None
        rows = self._first("operations", len(jobs))
        if not belong(rows, jobs):
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
            bulk = bulk_of(record)
            held = self._records.get(kind, ())
            if held and (len(held) >= MAX_RECORDS or self._bulk[kind] + bulk > _BULK_BYTES):
                yield from self._record_block(kind)
            self._records.setdefault(kind, []).append(record)
            self._bulk[kind] = self._bulk.get(kind, 0) + bulk

    def _record_block(self, kind: str) -> Iterator[bytes]:
        records = self._records.pop(kind, [])
        self._bulk[kind] = 0
        if records:
            yield pack_payload(kind, pack_records(records))


def bulk_of(record: MetricRecord | ErrorRecord | OutputRecord) -> int:
    """Return about how many bytes of text and output a record brings along."""
    if isinstance(record, OutputRecord):
        return len(record.stdout) + len(record.stderr)
    return len(record.message) if isinstance(record, ErrorRecord) else 0


def _sample_blocks(samples: Samples) -> Iterator[bytes]:
    rows = len(next(iter(samples.columns.values()), ()))
    for first in range(0, rows, MAX_ROWS):
        part = {name: column[first : first + MAX_ROWS] for name, column in samples.columns.items()}
        yield pack_payload("samples", pack_samples(Samples(samples.worker, samples.source, part, samples.units)))
