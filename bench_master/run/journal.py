"""Writes everything that happens to a run into its stats file, and acknowledges results once they are there.

Batches are only buffered on the hub. A native thread encodes, compresses and writes; batches that arrive meanwhile go
with the next round. So a worker's spool shrinks at the pace of the disk, and the hub never waits. Where the disk has
no room the journal says so, keeps what it has, and tries again until there is room or its patience ends.
`build_header` makes the header: everything that makes a run repeatable, known before its first job.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Final, Protocol

import gevent
import numpy as np
from gevent.event import Event
from msgspec.structs import asdict

from bench_common import __version__
from bench_common.clock import clock_id
from bench_common.errors import DiskFullError, StatsFileError
from bench_common.records import ErrorRecord, MetricRecord, OutputRecord, TransactionRecord
from bench_common.stats.block_types import StoredCertificate, StoredFooter
from bench_common.stats.reader import FORMAT, VERSION, StatsWriter
from bench_common.treatment import Treatment
from bench_master.formatting import format_span
from bench_master.plan import Plan
from bench_master.scenario import Scenario
from bench_master.scenario.claims import registered
from bench_workloads.script import job_metrics, job_script

log = logging.getLogger(__name__)


FLUSH_INTERVAL_S: Final = 0.5
"""How long a record may wait in memory."""
FLUSH_TIMEOUT_S: Final = 30.0
"""How long `Journal.flush` waits: less than the coordinator waits for a look."""
FLUSH_BYTES: Final = 2 << 20
"""How much may wait in memory before a round begins early."""
RETRY_INTERVAL_S: Final = 1.0
"""How often a journal without room tries again."""
MAX_HELD_SAMPLES: Final = 4096
"""How many readings of hosts and loops it keeps meanwhile, of a few kB each; later ones are dropped. What else it
keeps is bounded by what workers send before it is acknowledged."""

INSTANTS: Final = ("begin_ns", "end_ns")
"""Fields of events that are instants: when a host had no idle CPU."""


class DiskPause(Protocol):
    """What happens while the disk of the stats file has no room."""

    def began(self, error: DiskFullError) -> None:
        """There is no room: the journal tries again from now on."""

    def ended(self, dropped_samples: int) -> None:
        """Everything that waited is in the file, but for so many readings that were dropped."""


class Journal:
    """Writes a run's stats file.

    `writer` has the header, or the event of a resume, already. `gather()` is called before each round of writing and
    hands over what should go with it, `acknowledge(number, epoch, sequences)` after it, for batches that are in the
    file; `failed(error)` once, when the file cannot be written. Where the disk has no room that is after `patience_s`
    seconds, of which `pause` hears; None: at once. `shift_ns` is how far the file's clock is ahead of
    ours: a run that is resumed after a reboot continues the clock that it began with.
    """

    def __init__(
        self,
        writer: StatsWriter,
        *,
        shift_ns: int = 0,
        gather: Callable[[], None],
        acknowledge: Callable[[int, int, list[int]], None],
        failed: Callable[[StatsFileError], None],
        patience_s: float = 0.0,
        pause: DiskPause | None = None,
    ) -> None:
        self.path = writer.path
        self._gather = gather
        self._writer = writer
        self._shift_ns = shift_ns
        self._acknowledge = acknowledge
        self._failed = failed
        self._broken = False
        self._patience_s = patience_s
        self._pause = pause
        self._full_since: float | None = None
        self._held_samples = 0
        self._arrived: dict[tuple[int, int, int], None] = {}
        """A batch that is not acknowledged comes again and again: once is enough."""
        self._in_writing: dict[tuple[int, int, int], None] = {}
        """The batches that the round in progress will acknowledge."""
        self._flush_requested = Event()
        self._retry_requested = Event()
        self._waiting: list[Event] = []
        self._closing = False
        self._greenlet = gevent.spawn(self._write_loop)

    @property
    def waits_for_room(self) -> bool:
        """Whether the disk has no room, and the journal waits for it."""
        return self._full_since is not None and not self._broken

    def note(self, kind: str, at_ns: int, fields: Mapping[str, Any]) -> None:
        """Write an event. Its own instants (`INSTANTS`) are on the clock of `at_ns`."""
        instants = {name: fields[name] + self._shift_ns for name in INSTANTS if name in fields}
        self._writer.put("event", {"at_ns": at_ns + self._shift_ns, "kind": kind, **fields, **instants})

    def host(self, fields: Mapping[str, Any]) -> None:
        """Write what is known of a worker and its host."""
        self._writer.put("host", dict(fields))

    def rows(self, jobs: Any, operations: Any, firsts: Any, transfers: Any) -> None:
        """Write finished jobs (`JOB_ROW`) and operations (`OPERATION_ROW`).

        Of jobs that do one operation, also their first bytes (`OPERATION_ROW`) and transfers (`TRANSFER_ROW`).
        """
        self._writer.jobs(self._shift_times(jobs, "start_ns", "end_ns"))
        if len(operations):
            self._writer.operations(self._shift_times(operations, "start_ns"))
        if len(firsts):
            self._writer.first_bytes(self._shift_times(firsts, "start_ns"))
        if len(transfers):
            self._writer.transfers(transfers)
        if self._writer.pending_bytes > FLUSH_BYTES:
            self._flush_requested.set()

    def records(
        self,
        metrics: list[MetricRecord],
        errors: list[ErrorRecord],
        outputs: list[OutputRecord],
        transactions: list[TransactionRecord],
    ) -> None:
        """Write what a batch brought beside its rows."""
        if metrics:
            self._writer.metrics(metrics)
        if errors:
            self._writer.errors(errors)
        if outputs:
            self._writer.outputs(outputs)
        if transactions:
            self._writer.transactions(transactions)

    def samples(self, worker: int, source: str, columns: Mapping[str, Any], units: Mapping[str, str]) -> None:
        """Write samples of a host or a loop; `worker` -1 is the master."""
        if self.waits_for_room:
            self._held_samples += 1
            if self._held_samples > MAX_HELD_SAMPLES:
                return
        if self._shift_ns and "time_ns" in columns:
            columns = {**columns, "time_ns": np.asarray(columns["time_ns"]) + self._shift_ns}
        self._writer.samples(worker, source, columns, units)

    def acknowledge_when_written(self, number: int, epoch: int, sequence: int) -> None:
        """Acknowledge a batch once all that was written until now is in the file; once, also if it is sent again."""
        batch = number, epoch, sequence
        if batch not in self._in_writing:
            self._arrived[batch] = None

    def flush(self) -> None:
        """Return once all that was written until now is in the file, or cannot be, or takes too long.

        A wait for room on the disk does not count.
        """
        awaited = Event()
        self._waiting.append(awaited)
        self._flush_requested.set()
        while not awaited.wait(FLUSH_TIMEOUT_S) and self.waits_for_room:
            pass

    def stop_waiting(self) -> None:
        """Wait no longer for room on the disk: try once more, and fail if there is none."""
        self._patience_s = 0.0
        self._retry_requested.set()

    def close(self, footer: StoredFooter) -> None:
        """Write what is left and the footer, and close the file. Raises `StatsFileError`."""
        self._closing = True
        self._flush_requested.set()
        self._retry_requested.set()
        self._greenlet.join()
        if not self._broken:
            self._writer.end(footer)
            self._write_until_settled()
        if self._broken:
            return
        error = self._run_in_thread(self._writer.close)
        if error is not None:
            raise error

    def _shift_times(self, rows: Any, *names: str) -> Any:
        if not self._shift_ns:
            return rows
        rows = rows.copy()
        for name in names:
            rows[name] += self._shift_ns
        return rows

    def _write_loop(self) -> None:
        while not self._closing:
            self._await_round()
            self._write()
        self._write_until_settled()

    def _write_until_settled(self) -> None:
        """Write until everything is in the file, or cannot be."""
        self._write()
        while self.waits_for_room:
            self._await_round()
            self._write()

    def _await_round(self) -> None:
        """Wait until it is time for the next round."""
        requested, interval_s = self._flush_requested, FLUSH_INTERVAL_S
        if self.waits_for_room:
            requested, interval_s = self._retry_requested, RETRY_INTERVAL_S
        requested.wait(interval_s)
        requested.clear()

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._write_round()
        finally:
            if self.waits_for_room:
                self._waiting = waiting + self._waiting
            else:
                for awaited in waiting:
                    awaited.set()

    def _write_round(self) -> None:
        arrived: dict[tuple[int, int, int], None] = {}
        error: StatsFileError | None = None
        try:
            self._gather()
            arrived, self._arrived = self._arrived, {}
            self._in_writing = arrived
            if not self._broken and (arrived or self._writer.pending_bytes or self._closing or self.waits_for_room):
                error = self._run_in_thread(self._writer.flush)
        except Exception as fault:
            # What was gathered is gone. A journal that ended here would leave a run that goes on without it.
            log.exception("results could not be gathered")
            error = StatsFileError(f"{self.path}: results could not be gathered: {type(fault).__name__}: {fault}")
        finally:
            self._in_writing = {}
        if self._broken:
            return
        if isinstance(error, DiskFullError) and self._has_patience(error):
            self._arrived = {**arrived, **self._arrived}
            return
        if error is not None:
            self._broken = True
            self._failed(self._with_wait(error))
            return
        batches: dict[tuple[int, int], list[int]] = {}
        for number, epoch, sequence in arrived:
            batches.setdefault((number, epoch), []).append(sequence)
        for (number, epoch), sequences in batches.items():
            self._acknowledge(number, epoch, sequences)
        if self._full_since is not None:
            self._end_pause()

    def _end_pause(self) -> None:
        self._full_since = None
        dropped, self._held_samples = max(0, self._held_samples - MAX_HELD_SAMPLES), 0
        if self._pause is not None:
            self._pause.ended(dropped)

    def _with_wait(self, error: StatsFileError) -> StatsFileError:
        """Return an error that also says for how long there was no room."""
        waited_s = 0.0 if self._full_since is None else time.monotonic() - self._full_since
        if waited_s < RETRY_INTERVAL_S:
            return error
        return StatsFileError(f"{error}. The run waited {format_span(waited_s)} for room")

    def _has_patience(self, error: DiskFullError) -> bool:
        """Return whether to wait for room; the first time, say so."""
        now = time.monotonic()
        begins = self._full_since is None
        if begins:
            self._full_since = now
        if self._full_since is None or now - self._full_since >= self._patience_s:
            return False
        if begins and self._pause is not None:
            self._pause.began(error)
        return True

    @staticmethod
    def _run_in_thread(work: Callable[[], None]) -> StatsFileError | None:
        """Do what takes the disk; return and do not raise its error, or the pool prints it with its traceback."""

        def kept() -> StatsFileError | None:
            try:
                work()
            except StatsFileError as error:
                return error
            return None

        return gevent.get_hub().threadpool.apply(kept)


def operation_names(treatment: Treatment) -> tuple[str, ...]:
    """Return what a treatment's operations are called, by position."""
    return tuple(operation.name for operation in job_script(treatment))


def versions() -> dict[str, str]:
    """Return the versions of this program and of what it runs on."""
    return {"weighbridge": __version__, "python": platform.python_version()}


def read_clock() -> dict[str, Any]:
    """Return what ties instants of this boot to the calendar."""
    return {"unix_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(), "boot_id": clock_id()}


def build_header(
    scenario: Scenario,
    plan: Plan,
    *,
    run_id: str,
    argv: Sequence[str],
    noop: bool,
    environments: Sequence[str],
    options: Mapping[str, Any],
    trial_jobs: Sequence[int | None],
    certificates: Sequence[StoredCertificate] = (),
) -> dict[str, Any]:
    """Return the header block of a run that begins now, with workers in `environments`.

    `options` are those of the command line that a resumed run must have again; `trial_jobs` are the jobs of a trial
    of each treatment, None where a trial lasts a time. `certificates` are those of the hosts.
    """
    # Where the scenario leaves the environment open, the workers that came are what a treatment ran in.
    anywhere = "+".join(sorted(set(environments)))
    return {
        "format": FORMAT,
        "version": VERSION,
        "run_id": run_id,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "clock": read_clock(),
        "scenario": {
            "name": scenario.name,
            "description": scenario.description,
            "path": str(scenario.path),
            "text": scenario.text,
            "document": scenario.document,
            "notes": list(scenario.notes),
            "scale": scenario.scale,
        },
        "published": scenario.published,
        "thresholds": list(scenario.thresholds),
        "allow_failures": scenario.allow_failures,
        "verdicts": {"baseline": dict(scenario.baseline), "margin": scenario.margin},
        "claims": registered(scenario.claims, scenario.margin),
        "certificates": list(certificates),
        "order": plan.order,
        "seed": plan.seed,
        "argv": list(argv),
        "versions": versions(),
        "options": dict(options),
        "noop": noop,
        "settle_s": scenario.settle_s,
        "until_verdict": None if scenario.until_verdict is None else asdict(scenario.until_verdict),
        "sampling_interval_s": scenario.sampling_interval_s,
        "overhead": None if scenario.overhead is None or noop else scenario.overhead.header_fields(),
        "treatments": [
            _treatment(treatment, anywhere) | {"jobs_per_trial": jobs, "primary": primary}
            for treatment, jobs, primary in zip_longest(plan.treatments, trial_jobs, scenario.primary)
        ],
        "trials": [[trial.treatment, trial.block, trial.warmup] for trial in plan.trials],
    }


def _treatment(treatment: Treatment, anywhere: str) -> dict[str, Any]:
    return {
        **treatment.to_dict(),
        "labels": {"environment": treatment.environment or anywhere, **treatment.labels},
        "title": treatment.title,
        "cost_name": treatment.job.cost_name(treatment.engine),
        "operation_names": list(operation_names(treatment)),
        "metrics": job_metrics(treatment),
    }
