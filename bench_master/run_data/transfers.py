"""What jobs transferred that do one of their operations each: bytes, retries and redrawn jobs, and the endpoints.

What workers made in a store before the first trial of a treatment, and deleted after the last one, is in the time of
no trial: it has rows of its own.

Sums and histograms only, whose memory does not grow with jobs. A measure per second is over the measured trials as
`jobs_per_s` is; a MB has 1,000,000 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from bench_common.histogram import Histogram
from bench_common.records import FIRST_BYTE, OPERATION_DONE, OPERATION_FAILED, TransactionRecord, job_id_of
from bench_common.stats.block_types import StoredTreatment, does_one_operation
from bench_common.stats.rows import Columns
from bench_master.cleanup_command import cleanup_commands
from bench_master.formatting import plural
from bench_master.run_data.percentiles import Key, LatencySeries, group_rows, in_seconds, select_rows
from bench_master.run_data.store_course import MB, StoreCourse, over_all_sizes
from bench_master.run_data.transfer_types import (
    EndpointOperationReport,
    EndpointReport,
    FirstByteReport,
    StoreOperationReport,
    TransferReport,
    TransfersReport,
)
from bench_master.run_data.treatment_types import OperationReport, PopulationPhaseReport

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
    durations: Histogram = field(default_factory=Histogram)
    """At an endpoint; those over all endpoints are in the series of the run."""

    def add(self, rows: Columns, *, timed: bool) -> None:
        """Add measured operations, `timed` with their durations."""
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
        if timed:
            self.durations.record(done["duration_ns"])

    def join(self, other: _Moved) -> None:
        """Add what another one moved."""
        for name in ("done", "failed", "content_bytes", "unknown", "retries", "redrawn"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.late_ns = max(self.late_ns, other.late_ns)
        self.durations.add(other.durations)

    def mb_per_s(self, busy_s: float) -> float | None:
        """Return the content per second; None where a size, or the time, is unknown."""
        return None if self.unknown or not busy_s else self.content_bytes / MB / busy_s


class StoreContext(Struct, frozen=True):
    """What is known of a treatment's jobs from elsewhere, for its report."""

    busy_s: float
    """Summed duration of its measured trials."""
    operations: Mapping[str, OperationReport]
    """The durations of each operation over objects of all classes, first bytes among them."""
    error_kinds: Mapping[str, Mapping[str, int]]
    """Failures by kind, of each operation over objects of all classes."""
    course: StoreCourse
    """What happened when, and at which endpoint."""
    urls: Sequence[str]
    """The endpoints, where they are known."""


class Transfers(Struct):
    """The transfers of every treatment of a stats file."""

    operations: dict[tuple[int, int], _Moved] = field(default_factory=dict)
    """By treatment and position of the operation."""
    endpoints: dict[tuple[int, int], dict[int, _Moved]] = field(default_factory=dict)
    """By treatment and endpoint, then by the position of the operation."""
    transactions: dict[tuple[int, str, int], str] = field(default_factory=dict)
    """What the store called the slowest requests so far, by treatment, operation and job."""

    def add(self, rows: Columns) -> None:
        """Add operations of measured trials."""
        for treatment, operation, group in group_rows(rows, "operation"):
            self.operations.setdefault((treatment, operation), _Moved()).add(group, timed=False)
            for _, endpoint, part in group_rows(group, "endpoint"):
                own = self.endpoints.setdefault((treatment, endpoint), {})
                own.setdefault(operation, _Moved()).add(part, timed=True)

    def add_transactions(self, records: Sequence[TransactionRecord]) -> None:
        """Add the names of requests."""
        for record in records:
            place = (record.treatment, record.operation, job_id_of(record.ticket))
            self.transactions[place] = record.transaction_id

    def report(
        self, index: int, treatment: StoredTreatment, series: Mapping[Key, LatencySeries], known: StoreContext
    ) -> TransfersReport | None:
        """Return what the jobs of a treatment moved; None if they do all operations."""
        if not (does_one_operation(treatment) or any(owner == index for owner, _ in self.operations)):
            return None
        names = treatment.operation_names
        own = [self.operations.get((index, place), _Moved()) for place in range(len(names))]
        by_name = dict(zip(names, own, strict=True))
        total = _Moved()
        for moved in own:
            total.join(moved)
        interval_s, course = known.course.series(index)
        return TransfersReport(
            content_bytes=total.content_bytes,
            mb_per_s=total.mb_per_s(known.busy_s),
            retries=total.retries,
            redrawn=total.redrawn,
            operations={
                name: _operation(
                    moved,
                    # The row of a first byte is that of its read.
                    by_name.get(name.removesuffix(FIRST_BYTE)) if name.endswith(FIRST_BYTE) else None,
                    known.busy_s,
                    self._slowest(index, name, series),
                )
                for name, moved in by_name.items()
            },
            endpoints=self._endpoints(index, names, known),
            by_operation={
                verb: _over_all_sizes(index, verb, moved, known)
                for verb, moved in _by_verb(by_name).items()
                if verb in known.operations
            },
            seconds=known.course.seconds(index, None, unknown=bool(total.unknown)),
            interval_s=interval_s,
            series=course,
        )

    def _endpoints(self, index: int, names: Sequence[str], known: StoreContext) -> list[EndpointReport]:
        found = {number: parts for (owner, number), parts in sorted(self.endpoints.items()) if owner == index}
        return [
            _endpoint(
                index, number, _by_verb({names[place]: moved for place, moved in sorted(parts.items())}), known,
                only=len(found) == 1,
            )
            for number, parts in found.items()
        ]  # fmt: skip

    def _slowest(self, index: int, name: str, series: Mapping[Key, LatencySeries]) -> str | None:
        known = series.get((index, name))
        if known is None or known.slowest_job is None:
            return None
        return self.transactions.get((index, name, known.slowest_job))


def _by_verb(by_name: Mapping[str, _Moved]) -> dict[str, _Moved]:
    """Return what operations moved over objects of all classes."""
    found: dict[str, _Moved] = {}
    for name, moved in by_name.items():
        if not name.endswith(FIRST_BYTE):
            found.setdefault(over_all_sizes(name), _Moved()).join(moved)
    return found


def _operation(moved: _Moved, read: _Moved | None, busy_s: float, transaction: str | None) -> TransferReport:
    return TransferReport(
        per_s=moved.done / busy_s if busy_s else None,
        content_bytes=moved.content_bytes,
        mb_per_s=moved.mb_per_s(busy_s),
        retries=moved.retries,
        redrawn=moved.redrawn,
        first_byte_error_s=None if read is None else read.late_ns / 1e9,
        slowest_transaction=transaction,
    )


def _over_all_sizes(index: int, verb: str, moved: _Moved, known: StoreContext) -> StoreOperationReport:
    times, busy_s = known.operations[verb], known.busy_s
    return StoreOperationReport(
        n=moved.done,
        errors=moved.failed,
        error_kinds=known.error_kinds.get(verb, {}),
        retries=moved.retries,
        per_s=moved.done / busy_s if busy_s else None,
        content_bytes=moved.content_bytes,
        mb_per_s=moved.mb_per_s(busy_s),
        mean_s=times.mean_s,
        min_s=times.min_s,
        percentiles_s=times.percentiles_s,
        max_s=times.max_s,
        percentiles_exact=times.percentiles_exact,
        p99_marked=times.p99_marked,
        first_byte=_first_byte(verb, known, moved),
        seconds=known.course.seconds(index, verb, unknown=bool(moved.unknown)),
    )


def _first_byte(verb: str, known: StoreContext, moved: _Moved) -> FirstByteReport | None:
    times = known.operations.get(f"{verb}{FIRST_BYTE}")
    if times is None:
        return None
    return FirstByteReport(times.n, times.mean_s, times.percentiles_s, times.max_s, moved.late_ns / 1e9)


def _endpoint(
    index: int, number: int, verbs: Mapping[str, _Moved], known: StoreContext, *, only: bool
) -> EndpointReport:
    """Return the report on an endpoint; what is known of all operations is known of the `only` one."""
    busy_s, total = known.busy_s, _Moved()
    for moved in verbs.values():
        total.join(moved)
    operations = {}
    for verb, moved in verbs.items():
        at_it = known.course.at_endpoint.get((index, number, verb))
        kinds = known.error_kinds.get(verb, {}) if only else _by_count({} if at_it is None else at_it.error_kinds)
        first = _first_byte(verb, known, moved)
        if first is not None and not only:
            firsts = Histogram() if at_it is None else at_it.firsts
            first = FirstByteReport(
                firsts.n, in_seconds(firsts.mean), _percentiles(firsts), in_seconds(firsts.max), moved.late_ns / 1e9
            )
        operations[verb] = EndpointOperationReport(
            n=moved.done,
            errors=moved.failed,
            error_kinds=kinds,
            per_s=moved.done / busy_s if busy_s else None,
            mb_per_s=moved.mb_per_s(busy_s),
            percentiles_s=_percentiles(moved.durations),
            max_s=in_seconds(moved.durations.max),
            first_byte=first,
        )
    return EndpointReport(
        endpoint=number,
        url=str(known.urls[number]) if number < len(known.urls) else None,
        n=total.done,
        errors=total.failed,
        retries=total.retries,
        per_s=total.done / busy_s if busy_s else None,
        mb_per_s=total.mb_per_s(busy_s),
        mean_s=in_seconds(total.durations.mean),
        percentiles_s=_percentiles(total.durations),
        max_s=in_seconds(total.durations.max),
        operations=operations,
    )


def _percentiles(durations: Histogram) -> dict[str, float | None]:
    return {f"p{each:g}": in_seconds(durations.quantile(each / 100)) for each in _ENDPOINT_PERCENTILES}


def _by_count(kinds: Mapping[str, int]) -> dict[str, int]:
    """Return kinds of failures, the most frequent first."""
    return dict(sorted(kinds.items(), key=lambda one: (-one[1], one[0])))


def error_kinds_of(groups: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    """Return failures (operation, kind, how many) by kind, of each operation over objects of all classes."""
    found: dict[str, dict[str, int]] = {}
    for operation, kind, count in groups:
        if count:
            own = found.setdefault(over_all_sizes(operation), {})
            own[kind] = own.get(kind, 0) + count
    return {verb: _by_count(kinds) for verb, kinds in found.items()}


# -- before the first trial and after the last ------------------------------------------------------------------

OBJECTS: Final = "objects"
"""The kind of the events."""
_COUNTS: Final = ("worker", "objects", "found", "content_bytes", "failed")


class PopulationStats:
    """Takes a run's ``objects`` events; gives each treatment its rows."""

    def __init__(self) -> None:
        self._rows: dict[int, list[PopulationPhaseReport]] = {}
        self._endpoints: dict[int, list[str]] = {}

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event of this kind; one that is damaged is left out."""
        if event["kind"] != OBJECTS:
            return
        counts: dict[str, Any] = {name: event.get(name) for name in _COUNTS}
        phase, seconds, treatment = event.get("phase"), event.get("seconds"), event.get("treatment")
        if type(treatment) is not int or any(type(value) is not int for value in counts.values()):
            return
        if phase in ("populate", "clear") and isinstance(seconds, int | float):
            reason = str(event.get("reason", ""))
            replaced = event.get("replaced")  # files of before do not say
            counts["replaced"] = replaced if type(replaced) is int else 0
            row = PopulationPhaseReport(phase=phase, **counts, seconds=float(seconds), reason=reason)
            self._rows.setdefault(treatment, []).append(row)
            endpoints = event.get("endpoints")
            if isinstance(endpoints, list) and endpoints:
                self._endpoints[treatment] = [str(url) for url in endpoints]

    def endpoints(self, treatment: int) -> Sequence[str]:
        """Return the URLs that a worker found; none where the file does not say."""
        return self._endpoints.get(treatment, ())

    def report(self, treatment: int) -> Sequence[PopulationPhaseReport]:
        """Return the rows of a treatment."""
        return self._rows.get(treatment, [])

    def missing(self, treatment: int) -> int:
        """Return how many objects of a treatment could not be made: a worker that came back made its part anew."""
        last = {row.worker: row.failed for row in self.report(treatment) if row.phase == "populate"}
        return sum(last.values())

    def warnings(self, treatments: Sequence[StoredTreatment], run_id: str | None) -> Iterator[str]:
        """Yield what could not be made or deleted, and what deletes it."""
        for treatment, rows in self._rows.items():
            known = treatments[treatment : treatment + 1]
            title = known[0].title if known else treatment
            if replaced := sum(row.replaced for row in rows):
                yield (
                    f"{title}: {plural(replaced, 'object')} with names of its population had another content: "
                    "overwritten before the first trial, deleted after the last one unless kept"
                )
            for phase, done in (
                ("populate", "made before the first trial"),
                ("clear", "deleted after the last trial"),
            ):
                failed = sum(row.failed for row in rows if row.phase == phase)
                if failed:
                    reason = next(row.reason for row in rows if row.phase == phase and row.failed)
                    what = "object was" if failed == 1 else "objects were"
                    commands = cleanup_commands(run_id, known) if phase == "clear" else []
                    later = "".join(f"; delete what is left with `{one}`" for one in commands)
                    yield f"{title}: {failed} {what} not {done}: {reason}{later}"
