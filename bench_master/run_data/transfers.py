"""What jobs on objects moved: bytes, retries and redrawn jobs by operation, and the endpoints beside each other.

What workers made in a store before the first trial of a treatment, and deleted after the last one, is in the time of
no trial: it has rows of its own.

Sums and histograms only, whose memory does not grow with jobs. A figure per second is over the measured trials as
`jobs_per_s` is; a MB has 1,000,000 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from bench_common.histogram import Histogram
from bench_common.records import OPERATION_DONE, OPERATION_FAILED, TransactionRecord, job_id_of
from bench_common.stats.block_types import StoredTreatment, definition_of, job_kind
from bench_common.stats.rows import Columns
from bench_master.analysis.treatment_types import EndpointReport, ObjectsReport, StorePhaseReport, TransferReport
from bench_master.run_data.percentiles import Key, LatencySeries, group_rows, select_rows

MB: Final = 1_000_000
_ENDPOINT_PERCENTILES: Final = (50.0, 95.0, 99.0)


class _Moved(Struct):
    """What one operation, or one endpoint, moved."""

    done: int = 0
    failed: int = 0
    content_bytes: int = 0
    """Of successful operations whose size is known."""
    unknown: int = 0
    """Successful operations of unknown size, in imported results."""
    retries: int = 0
    """Of all operations, failed ones too."""
    redrawn: int = 0
    late_ns: int = 0
    """The most by which a first byte may be stamped late."""
    durations: Histogram | None = None

    def add(self, rows: Columns) -> None:
        """Add measured operations."""
        done = select_rows(rows, rows["ok"] == OPERATION_DONE)
        self.done += len(done)
        self.failed += int((rows["ok"] == OPERATION_FAILED).sum())
        sizes = done["bytes"]
        self.content_bytes += int(sizes.clip(0).sum())
        self.unknown += int((sizes < 0).sum())
        self.retries += int(rows["retries"].sum())
        self.redrawn += int(rows["redrawn"].sum())
        if len(done):
            self.late_ns = max(self.late_ns, int(done["first_uncertainty_ns"].max()))
        if self.durations is not None:
            self.durations.record(done["duration_ns"])


class Transfers(Struct):
    """The transfers of every treatment of a stats file."""

    operations: dict[tuple[int, int], _Moved] = field(default_factory=dict)
    """By treatment and position of the operation."""
    endpoints: dict[tuple[int, int], _Moved] = field(default_factory=dict)
    """By treatment and endpoint."""
    transactions: dict[tuple[int, str, int], str] = field(default_factory=dict)
    """What the store called the slowest requests so far, by treatment, operation and job."""

    def add(self, rows: Columns) -> None:
        """Add operations of measured trials."""
        for treatment, operation, group in group_rows(rows, "operation"):
            self.operations.setdefault((treatment, operation), _Moved()).add(group)
        for treatment, endpoint, group in group_rows(rows, "endpoint"):
            self.endpoints.setdefault((treatment, endpoint), _Moved(durations=Histogram())).add(group)

    def add_transactions(self, records: Sequence[TransactionRecord]) -> None:
        """Add the names of requests."""
        for record in records:
            place = (record.treatment, record.operation, job_id_of(record.ticket))
            self.transactions[place] = record.transaction_id

    def report(
        self, index: int, treatment: StoredTreatment, series: Mapping[Key, LatencySeries], busy_s: float
    ) -> ObjectsReport | None:
        """Return what the jobs of a treatment moved in `busy_s` seconds; None if it has no jobs on objects."""
        if job_kind(treatment) != "objects":
            return None
        names = treatment.get("operation_names", ())
        own = [self.operations.get((index, place), _Moved()) for place in range(len(names))]
        reports = {
            name: _operation(moved, busy_s, self._slowest(index, name, series))
            for name, moved in zip(names, own, strict=True)
        }
        total = sum(moved.content_bytes for moved in own)
        urls = (definition_of(treatment).get("job") or {}).get("endpoints") or ()
        return ObjectsReport(
            content_bytes=total,
            mb_per_s=None if any(moved.unknown for moved in own) else _mb_per_s(total, busy_s),
            retries=sum(moved.retries for moved in own),
            redrawn=sum(moved.redrawn for moved in own),
            operations=reports,
            endpoints=[
                _endpoint(number, str(urls[number]) if number < len(urls) else None, moved, busy_s)
                for (owner, number), moved in sorted(self.endpoints.items())
                if owner == index
            ],
        )

    def _slowest(self, index: int, name: str, series: Mapping[Key, LatencySeries]) -> str | None:
        known = series.get((index, name))
        if known is None or known.slowest_job is None:
            return None
        return self.transactions.get((index, name, known.slowest_job))


def _operation(moved: _Moved, busy_s: float, transaction: str | None) -> TransferReport:
    return TransferReport(
        per_s=moved.done / busy_s if busy_s else None,
        content_bytes=moved.content_bytes,
        mb_per_s=None if moved.unknown else _mb_per_s(moved.content_bytes, busy_s),
        retries=moved.retries,
        redrawn=moved.redrawn,
        first_byte_error_s=moved.late_ns / 1e9,
        slowest_transaction=transaction,
    )


def _endpoint(number: int, url: str | None, moved: _Moved, busy_s: float) -> EndpointReport:
    durations = moved.durations or Histogram()
    return EndpointReport(
        endpoint=number,
        url=url,
        n=moved.done,
        errors=moved.failed,
        retries=moved.retries,
        per_s=moved.done / busy_s if busy_s else None,
        mb_per_s=None if moved.unknown else _mb_per_s(moved.content_bytes, busy_s),
        mean_s=_seconds(durations.mean),
        percentiles_s={f"p{each:g}": _seconds(durations.quantile(each / 100)) for each in _ENDPOINT_PERCENTILES},
        max_s=_seconds(durations.max),
    )


def _mb_per_s(content_bytes: int, busy_s: float) -> float | None:
    return content_bytes / MB / busy_s if busy_s else None


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


# -- before the first trial and after the last ------------------------------------------------------------------

OBJECTS: Final = "objects"
"""The kind of the events."""
_COUNTS: Final = ("worker", "objects", "found", "content_bytes", "failed")


class PopulationStats:
    """Takes a run's ``objects`` events; gives each treatment its rows."""

    def __init__(self) -> None:
        self._rows: dict[int, list[StorePhaseReport]] = {}

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event of this kind; one that is damaged is left out."""
        if event.get("kind") != OBJECTS:
            return
        counts: dict[str, Any] = {name: event.get(name) for name in _COUNTS}
        phase, seconds, treatment = event.get("phase"), event.get("seconds"), event.get("treatment")
        if type(treatment) is not int or any(type(value) is not int for value in counts.values()):
            return
        if phase in ("populate", "clear") and isinstance(seconds, int | float):
            reason = str(event.get("reason", ""))
            row = StorePhaseReport(phase=phase, **counts, seconds=float(seconds), reason=reason)
            self._rows.setdefault(treatment, []).append(row)

    def report(self, treatment: int) -> Sequence[StorePhaseReport]:
        """Return the rows of a treatment."""
        return self._rows.get(treatment, [])

    def warnings(self, titles: Mapping[int, str]) -> Iterator[str]:
        """Yield what could not be made or deleted."""
        for treatment, rows in self._rows.items():
            for phase, done in (
                ("populate", "made before the first trial"),
                ("clear", "deleted after the last trial"),
            ):
                failed = sum(row.failed for row in rows if row.phase == phase)
                if failed:
                    reason = next(row.reason for row in rows if row.phase == phase and row.failed)
                    what = "object was" if failed == 1 else "objects were"
                    later = "" if phase == "populate" else "; `bench-master cleanup-containers --store` deletes them"
                    yield f"{titles.get(treatment, treatment)}: {failed} {what} not {done}: {reason}{later}"
