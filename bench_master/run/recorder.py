"""Records what happens in a run in the journal, and shows it through the live statistics and the view."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic_ns
from typing import Any, Final, TypeAlias

import numpy as np

from bench_common.activity import describe_load
from bench_common.job_rows import JOB_ROW, OPERATION_ROW, TRANSFER_ROW
from bench_common.messages import CpuContention, HostFinding, SpeedMeasured, clip
from bench_common.records import (
    BATCH_SAMPLES_SOURCE,
    LOOP_FIELDS,
    SPEED_SOURCE,
    ErrorRecord,
    Outcome,
)
from bench_common.safe_text import one_line
from bench_master.coordinator import messages as act
from bench_master.formatting import format_span, plural
from bench_master.progress.view import View
from bench_master.run.harness_watch import HarnessWatch
from bench_master.run.hosts import WorkerHosts
from bench_master.run.journal import Journal
from bench_master.run.live_stats import LiveStats
from bench_master.run.results import ResultBatch, SingleRows, loop_columns, single_rows, to_rows

log = logging.getLogger(__name__)

LOOP_UNITS: Final = {**dict.fromkeys(("time_ns", *LOOP_FIELDS), "ns"), "wake_ups": "1"}
SPEED_UNITS: Final = {"time_ns": "ns", "trial": "1", "wall_ns": "ns", "cpu_ns": "ns"}
LOOP_SAMPLE_INTERVAL_NS: Final = 1_000_000_000
"""How often readings of the workers' loops are written during a trial."""
MAX_WARNINGS: Final = 1000
"""How many different warnings a report has."""
MAX_BUFFERED_JOBS: Final = 8_192
"""How many jobs are buffered before their rows are computed."""
MAX_HOSTS_NAMED: Final = 3
"""How many hosts a warning names."""

_NO_OPERATIONS: Final = np.zeros(0, OPERATION_ROW)
_NO_TRANSFERS: Final = np.zeros(0, TRANSFER_ROW)


MemberBatch: TypeAlias = tuple[int, int, ResultBatch]
"""The number of a member, how far its clock is ahead of ours, and a batch of its results."""


def _rows_of(batches: Sequence[MemberBatch]) -> SingleRows:
    """Return the rows of batches of one trial."""
    numbers, offsets, contents = zip(*batches, strict=True)
    if contents[0].first_positions is None:
        return SingleRows(*to_rows(contents, numbers, offsets), _NO_OPERATIONS, _NO_TRANSFERS)
    return single_rows(contents, numbers, offsets)


def describe_loss(worker_id: str, fields: Mapping[str, Any]) -> str:
    """Return the message about the loss of a worker, from the fields of its event."""
    return f"worker {worker_id} was lost ({fields['reason']}) with {plural(fields['held'], 'job')}"


def describe_findings(found: Mapping[str, Sequence[str]]) -> str:
    """Return the warning about hosts that the doctor found something on before the run: by host, which checks."""
    shown = [f"{host} ({', '.join(checks)})" for host, checks in list(found.items())[:MAX_HOSTS_NAMED]]
    more = len(found) - len(shown)
    verb = "host is" if len(found) == 1 else "hosts are"
    rest = f" and {more} more" if more else ""
    return f"warning: {verb} not quiet: {', '.join(shown)}{rest}; the report says more"


class Recorder:
    """Records one run. Until `begin` there is no journal; events are buffered for it.

    `take_arrival_times(treatment, tickets)` returns when jobs arrived (ns), once for each; None in the closed model.
    `warnings` and `remarks` are those known before the run. `watch` reads what the harness takes of its host's CPUs;
    None where parts of it are on other hosts.
    """

    def __init__(
        self,
        live_stats: LiveStats,
        view: View,
        hosts: WorkerHosts,
        take_arrival_times: Callable[[int, Sequence[int]], list[int] | None],
        *,
        warnings: Iterable[str] = (),
        remarks: Iterable[str] = (),
        watch: HarnessWatch | None = None,
    ) -> None:
        self.live_stats = live_stats
        self.view = view
        self._warnings: dict[str, None] = dict.fromkeys(warnings)
        self._first: dict[str, None] = {}
        self._losses: dict[str, None] = {}
        self.unlisted_warnings = 0
        """Further warnings, which the report only counts."""
        self.remarks: dict[str, None] = dict.fromkeys(remarks)
        self.discarded = 0
        """How many results were discarded because their attempt no longer counted."""
        self.lost = 0
        """How many results were accepted and could not be recorded."""
        self.journal: Journal | None = None
        self._hosts = hosts
        self._watch = watch or HarnessWatch(None)
        self._take_arrival_times = take_arrival_times
        self._events_before_journal: list[tuple[str, int, Mapping[str, Any]]] = []
        self._buffered_batches: dict[tuple[int, int], list[MemberBatch]] = {}
        self._buffered_jobs = 0
        self._loops: dict[tuple[int, int, int], list[bytes]] = {}
        self._loops_written_ns = 0
        self._unshown_findings: dict[str, list[str]] = {}
        """The checks that found something before the run, by host, until they are shown."""
        self._pending_acks: list[tuple[int, int, int]] = []

    def begin(self, journal: Journal, live_stats: LiveStats, engines: frozenset[str]) -> None:
        """Record into a journal from now on, with live statistics that know the number of jobs."""
        self.journal, self.live_stats = journal, live_stats
        for number, host in self._hosts:
            journal.host(host.block(number, engines))
        for kind, at_ns, fields in self._events_before_journal:
            journal.note(kind, at_ns, fields)
        self._events_before_journal = []

    def end(self, engines: frozenset[str]) -> None:
        """Write the last rows, and the clock offsets, which are known best at the end."""
        self.settle()
        self._show_findings()
        self._write_loops()
        if self.journal is not None:
            for number, host in self._hosts:
                if not host.same_clock:
                    self.journal.host(host.block(number, engines))

    def warn(self, text: str, *, first: bool = False) -> None:
        """Add a warning to the report, once; `MAX_WARNINGS` at most, as workers may send any number of them.

        With `first` it comes before all others and counts to no limit: a report shows only the first few at once.
        """
        if first:
            self._first = {text: None, **self._first}
        else:
            self._add(self._warnings, text)

    def warn_of_loss(self, text: str) -> None:
        """Add a warning about a lost worker, which comes before others but those that must be `first`.

        A worker may be lost any number of times: of these, too, there are `MAX_WARNINGS` at most.
        """
        self._add(self._losses, text)

    def _add(self, texts: dict[str, None], text: str) -> None:
        if len(texts) < MAX_WARNINGS:
            texts[text] = None
        else:
            self.unlisted_warnings += 1

    @property
    def warnings(self) -> list[str]:
        """The warnings in the order in which a report shows them."""
        return list({**self._first, **self._losses, **self._warnings})

    def remark(self, text: str) -> None:
        """Add a remark to the report, once."""
        self.remarks[text] = None

    def samples(self, worker: int, source: str, columns: Mapping[str, Any], units: Mapping[str, str]) -> None:
        """Write samples; `worker` -1 is the master."""
        if self.journal is not None:
            self.journal.samples(worker, source, columns, units)

    def speed(self, worker: int, message: SpeedMeasured) -> None:
        """Write how fast a worker's host was before a trial, unless another worker measured it."""
        if message.wall_ns:
            columns = {
                "time_ns": np.array([message.time_ns - self._hosts[worker].offset_ns]),
                "trial": np.array([message.trial]),
                "wall_ns": np.array([message.wall_ns]),
                "cpu_ns": np.array([message.cpu_ns]),
            }
            self.samples(worker, SPEED_SOURCE, columns, SPEED_UNITS)

    def host_finding(self, worker: int, message: HostFinding) -> None:
        """Write what the doctor found on a worker's host before the run; its name is shown with the next trial."""
        check, finding, advice = (one_line(text) for text in (message.check, message.finding, message.advice))
        self._unshown_findings.setdefault(self._hosts[worker].name, []).append(check)
        fields = {"worker": worker, "check": check, "finding": finding, "advice": advice}
        if self.journal is None:
            self._events_before_journal.append(("host-finding", monotonic_ns(), fields))
        else:
            self.journal.note("host-finding", monotonic_ns(), fields)

    def _show_findings(self) -> None:
        """Say in one line what was found on hosts since the last time: the report has the details."""
        found, self._unshown_findings = self._unshown_findings, {}
        if found:
            self.view.notify(describe_findings(found))

    def contention(self, worker: int, message: CpuContention) -> None:
        """Write that a worker's host had no idle CPU for a time, and who took it."""
        lasted_ns = message.end_ns - message.begin_ns
        if self.journal is None or lasted_ns <= 0:
            return
        offset_ns = self._hosts[worker].offset_ns
        fields = {
            "worker": worker,
            "begin_ns": message.begin_ns - offset_ns,
            "end_ns": message.end_ns - offset_ns,
            "consumer": message.consumer,
            "pid": message.pid,
            "processes": message.processes,
            "consumer_share": message.consumer_ns / (lasted_ns * message.cpus),
            "others_share": message.others_ns / (lasted_ns * message.cpus),
        }
        self.journal.note("cpu-contention", monotonic_ns(), fields)

    def take(self, action: act.RecordResults, epoch: int) -> None:
        """Write a batch of results, and acknowledge it once it is in the file."""
        assert isinstance(action.batch, ResultBatch)
        assert self.journal is not None
        batch = action.batch if action.keep is None else action.batch.only(action.keep)
        if batch.tickets:
            batch.intended_ns = self._take_arrival_times(batch.treatment, batch.tickets)
            # Only buffered: computing rows costs the same for one job as for ten thousand, of one worker or of all.
            one = (action.number, self._hosts[action.number].offset_ns, batch)
            self._buffered_batches.setdefault((batch.treatment, batch.trial), []).append(one)
            self._buffered_jobs += len(batch.tickets)
        if batch.metrics or batch.errors or batch.outputs or batch.transactions:
            self.journal.records(batch.metrics, batch.errors, batch.outputs, batch.transactions)
            self.live_stats.errors(batch.errors)
        self.acknowledge_when_written(action.number, epoch, action.sequence)
        if self._buffered_jobs >= MAX_BUFFERED_JOBS:
            self.settle()

    def acknowledge_when_written(self, number: int, epoch: int, sequence: int) -> None:
        """Acknowledge a batch once everything received until now is in the file."""
        self._pending_acks.append((number, epoch, sequence))

    def settle(self) -> None:
        """Pass the buffered batches to the journal, the statistics and the view."""
        if self.journal is None:
            return
        batches_by_trial, self._buffered_batches, self._buffered_jobs = self._buffered_batches, {}, 0
        for (treatment, trial), batches in batches_by_trial.items():
            for number, _, batch in batches:
                self._loops.setdefault((number, treatment, trial), []).append(batch.loop)
            try:
                rows = _rows_of(batches)
            except Exception:  # noqa: BLE001  the next tells whose it is, and reports it
                self._record_by_member(treatment, trial, batches)
            else:
                self._record(rows)
        if monotonic_ns() - self._loops_written_ns > LOOP_SAMPLE_INTERVAL_NS:
            self._write_loops()
        for promise in self._pending_acks:
            self.journal.acknowledge_when_written(*promise)
        self._pending_acks.clear()

    def _record_by_member(self, treatment: int, trial: int, batches: Sequence[MemberBatch]) -> None:
        """Record batches of a trial worker by worker: the results of one must not cost those of the others."""
        for number in dict.fromkeys(member for member, _, _ in batches):
            own = [one for one in batches if one[0] == number]
            try:
                rows = _rows_of(own)
            except Exception as error:
                log.exception("results of worker %s cannot be recorded", self._hosts[number].worker_id)
                self._lose(number, treatment, trial, own, f"{type(error).__name__}: {error}")
            else:
                self._record(rows)

    def _record(self, rows: SingleRows) -> None:
        assert self.journal is not None
        self.journal.rows(rows.jobs, rows.operations, rows.firsts, rows.transfers)
        self.live_stats.jobs(rows.jobs)
        self.live_stats.operations(rows.operations)
        self.live_stats.operations(rows.firsts)
        self.live_stats.transfers(rows.transfers)
        self.view.jobs(rows.jobs, rows.firsts)

    def _lose(self, number: int, treatment: int, trial: int, batches: Sequence[MemberBatch], reason: str) -> None:
        """Record jobs as lost whose results were accepted and cannot be recorded."""
        assert self.journal is not None
        tickets = [ticket for _, _, batch in batches for ticket in batch.tickets]
        self.lost += len(tickets)
        worker = self._hosts[number].worker_id
        self.warn(f"{plural(len(tickets), 'result')} of worker {worker} cannot be recorded: {reason}")
        self._fail(number, treatment, trial, tickets, Outcome.LOST, reason)

    def _write_loops(self) -> None:
        """Write the readings of the workers' loops since the last time, by trial."""
        self._loops_written_ns = now = monotonic_ns()
        loops, self._loops = self._loops, {}
        if self.journal is not None:
            for (number, treatment, trial), parts in loops.items():
                self.journal.samples(
                    number, BATCH_SAMPLES_SOURCE, loop_columns(parts, treatment, trial, now), LOOP_UNITS
                )

    def conclude(self, action: act.FailJobs) -> None:
        """Write the outcome of jobs that no worker will report."""
        assert self.journal is not None
        self.settle()
        self._take_arrival_times(action.treatment, action.tickets)
        place = (action.number, action.treatment, action.trial)
        self._fail(*place, action.tickets, action.outcome, action.reason)

    def _fail(
        self, number: int, treatment: int, trial: int, tickets: Sequence[int], outcome: Outcome, reason: str
    ) -> None:
        assert self.journal is not None
        now = monotonic_ns()
        rows = np.zeros(len(tickets), JOB_ROW)
        rows["ticket"], rows["treatment"], rows["trial"] = tickets, treatment, trial
        rows["worker"], rows["outcome"], rows["start_ns"], rows["end_ns"] = number, outcome, now, now
        kind = outcome.name.lower()
        errors = [ErrorRecord(ticket, treatment, trial, "worker", kind, clip(reason)) for ticket in tickets]
        self.journal.records([], errors, [], [])
        self.live_stats.errors(errors)
        self._record(SingleRows(rows, _NO_OPERATIONS, _NO_OPERATIONS, _NO_TRANSFERS))

    def note(self, note: act.LogEvent) -> None:  # noqa: C901, PLR0912  one case for each kind
        """Write an event, and notify the user if it matters."""
        self.settle()  # an event in the file implies that everything before it is there
        self._write_loops()
        now, fields = monotonic_ns(), note.fields
        match note.kind:
            case "worker-joined" | "worker-reconnected":
                verb = "has joined" if note.kind == "worker-joined" else "is back"
                self.view.notify(f"{self._hosts[fields['worker']].title} {verb}", passing=True)
                fields = {name: value for name, value in fields.items() if name != "info"}
            case "trial-begin":
                self._show_findings()
                fields = {**fields, "clocks": self._hosts.readings(now)}
                self.live_stats.trial_began(fields["trial"], now)
                self._watch.begin()
            case "trial-end" | "trial-skipped":
                fields = {**fields, "clocks": self._hosts.readings(now), **self._watch.end()}
                outcome = Outcome[fields["not_started_outcome"].upper()]
                self.live_stats.trial_ended(fields["trial"], now, not_started=fields["not_started"], outcome=outcome)
                self.live_stats.reduce_planned(fields.get("not_needed", 0))
            case "last-look":
                self.live_stats.looks.note_last(fields["last"], fields["treatments"])
            case "look":
                self.live_stats.looks.note(fields["comparisons"], fields["rounds"])
            case "worker-lost":
                worker = self._hosts[fields["worker"]].worker_id
                text = describe_loss(worker, fields)
                self.warn_of_loss(text)
                self.view.notify(text)
            case "worker-starved":
                self._on_worker_starved(fields)
            case "packed":
                self.live_stats.reduce_planned(fields["returned"])
                worker = self._hosts[fields["worker"]].worker_id
                held = plural(fields["containers"], "container")
                self.view.notify(f"worker {worker} holds {held}: {fields['reason']}", passing=True)
            case "master-stalled":
                self.warn(
                    f"the master did not run for {fields['seconds']:.1f} s (suspended or starved of CPU); "
                    "times measured meanwhile are inflated"
                )
            case "disk-full" if fields["trial"] is None:
                lasted = format_span(fields["seconds"])
                self.remark(f"the run was paused for {lasted} between trials: no room on the disk of the stats file")
            case "worker-given-up":
                worker = self._hosts[fields["worker"]].worker_id
                self.view.notify(f"worker {worker} did not come back; its jobs are lost")
            case "results-refused" | "late-results":
                self.discarded += fields["jobs"]
        if self.journal is None:
            self._events_before_journal.append((note.kind, now, fields))
        else:
            self.journal.note(note.kind, now, fields)

    def _on_worker_starved(self, fields: Mapping[str, Any]) -> None:
        worker = self._hosts[fields["worker"]].worker_id
        text = (
            f"worker {worker} was silent for {fields['seconds']:.0f} s: its process waits for a CPU "
            f"({describe_load()}), so it is not lost; times measured meanwhile are inflated"
        )
        self.warn(text)
        self.view.notify(text)
