"""Checks whether the figures of a run can be trusted: timing error, clocks, order of the trials, disturbed trials.

The timing error is how late an end may be stamped. A host's clock is read at the begin and end of each trial: if it
gained or lost more against the master's than both uncertainties and any drift allow, it was set, or it stopped as
that of a suspended virtual machine does, and what the host measured meanwhile is invalid.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from bench_common.clock import max_drift_ns
from bench_common.histogram import Histogram, bucket_bounds, nearest_rank
from bench_common.stats.block_types import StoredHost, StoredTreatment, StoredTrial
from bench_common.stats.reader import RESUMED
from bench_common.stats.rows import SampleColumns
from bench_master.formatting import format_number, format_seconds, plural
from bench_master.run_data.host_samples import TrialSpan, TrialSpans
from bench_master.run_data.percentiles import in_seconds
from bench_master.run_data.pressure import KINDS, Excess, TrialPressure, warning_of
from bench_master.run_data.run_types import (
    ClockDisagreementReport,
    ClockReport,
    HostFindingReport,
    ResumeReport,
    TrialOrderReport,
)
from bench_master.run_data.treatment_types import DisturbanceReport, OperationReport, TreatmentReport

MAX_ERROR_SHARE: Final = 0.1
"""A timing error above this share of the shortest operation's median gets a warning."""
MAX_SPANS: Final = 1000
"""So many of the last trials are known when a clock's change is dated."""
MAX_NAMED: Final = 3
MAX_IN_PERCENT: Final = 10
"""Up to so many times the median the warning has the share in percent, above it as a factor."""
ADVICE: Final = "the workers are overloaded; keep fewer jobs in flight on each (concurrency), or use more workers"
ADVICE_ONE_JOB: Final = "the workers are overloaded with one job in flight each; check what else runs on their hosts"
WAKE_UP_SHARE: Final = 0.5
"""Late wake-ups are the reason of a timing error of which they are a larger share than this."""
MAX_IDLE_BUSY_SHARE: Final = 0.5
"""A loop that is busy for a smaller share of the time is not overloaded."""
SWITCH_INTERVAL_S: Final = 500e-6
"""The interpreter's switch interval in a load process: an idle run may be late by that much."""


def timing_error(uncertainties: Histogram) -> tuple[float | None, float | None]:
    """Return the 99th percentile and the maximum, in seconds, of how late job ends may be stamped (recorded in ns).

    The percentile is the upper end of its bucket, so it is never less than the true one.
    """
    if uncertainties.max is None:
        return None, None
    bucket, _, _ = uncertainties.locate(nearest_rank(uncertainties.n, 0.99))
    return min(bucket_bounds(bucket)[1], uncertainties.max) / 1e9, uncertainties.max / 1e9


def _shortest_median_s(operations: Mapping[str, OperationReport]) -> float | None:
    """Return the smallest median of a treatment's operations that is not 0."""
    medians = (operation.percentiles_s["p50"] for operation in operations.values())
    return min((median for median in medians if median), default=None)


class LoopStats(Struct):
    """How busy and late the workers' event loops were, and how late their hosts woke threads, while a treatment ran.

    From batches of results, in ns.
    """

    span_ns: int = 0
    busy_ns: int = 0
    lag_max_ns: int = 0
    wake_up_max_ns: int = 0

    def add(self, span_ns: int, busy_ns: int, lag_max_ns: int, wake_up_ns: int = 0) -> None:
        """Add a reading of a worker; `wake_up_ns` is how late its host may have woken a thread (0: nobody knows)."""
        self.span_ns += span_ns
        self.busy_ns += busy_ns
        self.lag_max_ns = max(self.lag_max_ns, lag_max_ns)
        self.wake_up_max_ns = max(self.wake_up_max_ns, wake_up_ns)

    @property
    def busy_share(self) -> float | None:
        """Share of time that the loops were busy, over all workers; None without readings."""
        return self.busy_ns / self.span_ns if self.span_ns > 0 else None

    @property
    def lag_max_s(self) -> float | None:
        """Longest lag of any loop, in seconds; None without readings."""
        return self.lag_max_ns / 1e9 if self.span_ns > 0 else None

    @property
    def wake_up_max_s(self) -> float | None:
        """How late a host may have woken a thread, in seconds; None where nobody measured it."""
        return self.wake_up_max_ns / 1e9 if self.wake_up_max_ns else None


def timing_warning(
    error_s: float | None, operations: Mapping[str, OperationReport], loops: LoopStats, concurrency: int | None
) -> str | None:
    """Return why the durations of a treatment's shortest operation are unreliable, with advice; None if they are not.

    `error_s` is its timing error (p99), `loops` how busy and late its workers were, `concurrency` how many jobs were
    in flight.
    """
    shortest_s = _shortest_median_s(operations)
    if error_s is None or shortest_s is None or error_s <= max(MAX_ERROR_SHARE * shortest_s, SWITCH_INTERVAL_S):
        return None
    return (
        f"the timing error (p99), {format_seconds(error_s, 3)}, is more than {MAX_ERROR_SHARE:.0%} of the shortest "
        f"operation's median, {format_seconds(shortest_s, 3)}: "
        f"{_advice(error_s, loops.wake_up_max_s, loops.busy_share, concurrency)}"
    )


def _advice(error_s: float, wake_up_s: float | None, busy: float | None, concurrency: int | None) -> str:
    """Return what to do about stamps that are uncertain by `error_s`.

    `wake_up_s` is how late a host may have woken a thread, `busy` the busy share of the workers' loops.
    """
    if wake_up_s is not None and wake_up_s > max(WAKE_UP_SHARE * error_s, SWITCH_INTERVAL_S):
        return (
            f"the host woke a thread up to {format_seconds(wake_up_s, 3)} late, as a busy hypervisor does; use a "
            "machine whose CPUs are not shared, or longer operations"
        )
    if busy is None or busy >= MAX_IDLE_BUSY_SHARE:
        return ADVICE_ONE_JOB if concurrency == 1 else ADVICE
    return (
        f"the workers' event loops were busy only {busy:.0%} of the time, so something else used their CPUs; "
        "check what else runs on their hosts, the engine included"
    )


def timing_warnings(treatments: Iterable[TreatmentReport]) -> list[str]:
    """Return a warning with advice if stamps are too uncertain for a treatment's shortest operation."""
    doubtful = []
    for entry in treatments:
        error_s, shortest_s = entry.timing_error_p99_s, _shortest_median_s(entry.operations)
        if entry.timing_warning is not None and error_s is not None and shortest_s is not None:
            advice = _advice(error_s, entry.host_wake_up_max_s, entry.worker_busy_share, entry.concurrency)
            doubtful.append((error_s / shortest_s, error_s, shortest_s, entry.title, advice))
    if not doubtful:
        return []
    worst, error_s, shortest_s, title, advice = max(doubtful)
    share = f"{worst:.0%}" if worst <= MAX_IN_PERCENT else f"{format_number(worst)}x"
    where = plural(len(doubtful), "treatment")
    text = (
        f"the timing error (p99) is more than {MAX_ERROR_SHARE:.0%} of the shortest operation's median in {where}, "
        f"at worst {format_seconds(error_s, 3)} of {format_seconds(shortest_s, 3)} ({share}) in {title}: {advice}"
    )
    return [text]


class ClockReading(Struct, frozen=True):
    """How far a host's clock was ahead of the master's at an instant of the master's (ns)."""

    at_ns: int
    """When the clocks were compared."""
    offset_ns: int
    uncertainty_ns: int


class ClockChecker:
    """Follows the events of a run."""

    def __init__(self) -> None:
        self.disagreements: dict[int, list[ClockDisagreementReport]] = {}
        """Of each worker's clock, which changed more than it can between two comparisons: in trials, or in the pause
        after them."""
        self.uncertainties: dict[int, int] = {}
        """The largest uncertainty at which each worker's clock was read, in ns."""
        self._last: dict[int, ClockReading] = {}
        self._spans: deque[list[int]] = deque(maxlen=MAX_SPANS)
        """Number, begin and end of each of the last trials; the end of one that goes on is not known yet."""

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event."""
        kind, at_ns = event["kind"], event["at_ns"]
        if kind == RESUMED:
            self._last.clear()
        elif kind in ("worker-joined", "worker-reconnected"):
            # Another boot may be another clock.
            self._last.pop(event.get("worker", -1), None)
        if kind not in ("trial-begin", "trial-end"):
            return
        trial = event["trial"]
        if kind == "trial-end" and self._spans and self._spans[-1][0] == trial:
            self._spans[-1][2] = at_ns
        for worker, offset_ns, uncertainty_ns, *age in event.get("clocks", ()):
            self._read(worker, ClockReading(at_ns - sum(age), offset_ns, uncertainty_ns))
        if kind == "trial-begin":
            self._spans.append([trial, at_ns, _MAX_INSTANT_NS])

    def _trials_between(self, from_ns: int, to_ns: int) -> list[int]:
        """Return the trials that overlap with this time; in a pause, the one before it."""
        begun = [span for span in self._spans if span[1] < to_ns]
        return [number for number, _, end_ns in begun if end_ns > from_ns] or [span[0] for span in begun[-1:]]

    def _read(self, worker: int, new: ClockReading) -> None:
        self.uncertainties[worker] = max(self.uncertainties.get(worker, 0), new.uncertainty_ns)
        old = self._last.get(worker)
        self._last[worker] = new
        if old is None:
            return
        bracket_ns, gained_ns = new.at_ns - old.at_ns, new.offset_ns - old.offset_ns
        allowed_ns = old.uncertainty_ns + new.uncertainty_ns + max_drift_ns(bracket_ns)
        if abs(gained_ns) > allowed_ns:
            found = ClockDisagreementReport(
                trials=self._trials_between(old.at_ns, new.at_ns),
                bracket_s=bracket_ns / 1e9,
                own_s=(bracket_ns + gained_ns) / 1e9,
                allowed_s=allowed_ns / 1e9,
            )
            self.disagreements.setdefault(worker, []).append(found)

    def report(self, worker: int) -> ClockReport:
        """Return the report on one host's clock."""
        return ClockReport(
            uncertainty_max_s=in_seconds(self.uncertainties.get(worker)),
            disagreements=self.disagreements.get(worker, []),
        )

    def warnings(self, names: Mapping[int, str]) -> list[str]:
        """Return a warning for each host whose clock disagreed with the master's; `names` are the workers'."""
        found = []
        for worker, theirs in sorted(self.disagreements.items()):
            worst = max(theirs, key=lambda one: abs(one.own_s - one.bracket_s))
            found.append(
                f"the clock of {names.get(worker, f'worker {worker}')} disagreed with the master's "
                f"{plural(len(theirs), 'time')}, at worst {_during(worst.trials)}: it counted "
                f"{worst.own_s:.3f} s, the master {worst.bracket_s:.3f} s (+/- {worst.allowed_s:.3f} s): a virtual "
                "machine was suspended or a clock was set; times measured then are invalid"
            )
        return found


def _during(trials: Sequence[int]) -> str:
    """Return the words for one of these trials, whichever it was."""
    if len(trials) > MAX_NAMED:
        return f"between trials {trials[0]} and {trials[-1]}"
    return f"in trial {' or '.join(map(str, trials))}" if trials else "before the first trial"


class TrialOrder:
    """Follows the events of a run whose planned trials are `trials`: [treatment, block, is warm-up] each."""

    def __init__(self, trials: Sequence[StoredTrial]) -> None:
        self._blocks = [trial[1] for trial in trials]
        self._parts: list[list[int]] = [[]]
        self.resumes: list[ResumeReport] = []

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event; those of superseded trials must be left out."""
        if event["kind"] == RESUMED:
            self.resumes.append(
                ResumeReport(
                    at=event.get("at"),
                    ended=event.get("ended"),
                    gap_s=in_seconds(event.get("gap_ns")),
                    complete_trials=event.get("complete_trials"),
                    rerun_trials=event.get("rerun_trials", []),
                )
            )
            self._parts.append([])
        elif event["kind"] == "trial-begin" and event["trial"] < len(self._blocks):
            self._parts[-1].append(event["trial"])

    def actual_order(self) -> TrialOrderReport:
        """Return how the order in which the trials ran relates to the planned order."""
        late, furthest = [], -1
        for trial in (trial for part in self._parts for trial in part):
            if trial < furthest:
                late.append(trial)
            furthest = max(furthest, trial)
        seen: set[int] = set()
        split: set[int] = set()
        for part in self._parts:
            blocks = {self._blocks[trial] for trial in part}
            split |= blocks & seen
            seen |= blocks
        return TrialOrderReport(as_planned=not late, late=late, split_blocks=sorted(split))

    def warnings(self) -> list[str]:
        """Return warnings about the order of the trials."""
        actual_order = self.actual_order()
        found = []
        if actual_order.split_blocks:
            numbers = ", ".join(map(str, actual_order.split_blocks[:10]))
            blocks = plural(len(actual_order.split_blocks), "block")
            found.append(
                f"the run was resumed {plural(len(self.resumes), 'time')}, without its warm-up; {blocks} ran partly "
                f"before and partly after that: {numbers}"
            )
        if actual_order.late:
            found.append(
                f"{plural(len(actual_order.late), 'trial')} did not run in the planned order, but after the run was "
                "resumed: drift over time may bias these trials against their block"
            )
        return found


class Neighbours:
    """Collects what the doctor found on the hosts before the run; of a resumed run, before its last part."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], HostFindingReport] = {}

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event."""
        if event["kind"] == RESUMED:
            self._found.clear()
        elif event["kind"] == "host-finding":
            one = HostFindingReport(*(event[name] for name in HostFindingReport.__struct_fields__))
            self._found[event["worker"], one.check] = one

    def found(self, worker: int) -> list[HostFindingReport]:
        """Return what was found on the host of a worker."""
        return [one for (number, _), one in self._found.items() if number == worker]

    def warnings(self, hosts: Mapping[int, StoredHost]) -> list[str]:
        """Return a warning for each host that was busy; other containers that run may well be idle."""
        texts = []
        for worker in dict.fromkeys(number for number, _ in self._found):
            own = [one for one in self.found(worker) if one.check != "containers"]
            if own:
                name = hosts.get(worker, StoredHost()).host or f"of worker {worker}"
                said = "; ".join(one.finding for one in own)
                texts.append(f"host {name} was busy when the run began: {said}")
        return texts


WATCHED: Final = "watched"
"""The kind of the events."""


class _Watch(Struct):
    began_ns: int
    ended_ns: int | None = None
    shares_host: bool = False
    """Whether the page's process ran on the host of a worker."""


class Watches:
    """Collects the times in which somebody looked."""

    def __init__(self) -> None:
        self._watches: list[_Watch] = []

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event."""
        kind, at_ns = event["kind"], event["at_ns"]
        if kind not in (WATCHED, RESUMED):
            return
        last = self._watches[-1] if self._watches else None
        is_open = last is not None and last.ended_ns is None
        if kind == WATCHED and event.get("state") == "began" and not is_open:
            self._watches.append(_Watch(at_ns, shares_host=event.get("shares_host") is True))
        elif last is not None and is_open and event.get("state") != "began":
            # A killed master notes no end: at the latest it was when the run was resumed.
            last.ended_ns = at_ns
            last.shares_host |= event.get("shares_host") is True

    def remarks(self, spans: Iterable[TrialSpan]) -> list[str]:
        """Return what a report says, given the measured trials; nothing unless it may have cost a worker's host."""
        own = [one for one in self._watches if one.shares_host]
        trials = sorted(
            span.trial + 1
            for span in spans
            if any(
                one.began_ns < span.end_ns and (one.ended_ns is None or one.ended_ns > span.begin_ns) for one in own
            )
        )
        if not trials:
            return []
        noun = "trial" if len(trials) == 1 else "trials"
        where = "somebody had the live page open, whose process ran on the host of a worker"
        return [f"watched during {noun} {ranges(trials)}: {where}"]


def ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers in words: ``4-9, 12``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


NO_IDLE_CPU: Final = "no-idle-cpu"
DISK_FULL: Final = "disk-full"

MAX_IDLE_SHARE: Final = 0.02
"""A host with a smaller share of idle CPU time during a trial had none."""
MIN_OTHERS_SHARE: Final = 0.05
"""Others that took a smaller share of a host's CPU time are not what it lacked."""
MIN_NAMED_SHARE: Final = 0.1
"""A warning names a program that took at least this share of a host's CPU time."""
_SHOWN_TRIALS: Final = 10
_MAX_INSTANT_NS: Final = 1 << 62
MIN_COVERED_SHARE: Final = 0.5
"""How much of a trial samples of its host must cover."""


class _TrialCpu(Struct):
    """What samples of a host say of a trial, by the part of each sample that lies in it."""

    covered_ns: float = 0.0
    idle_ticks: float = 0.0
    ticks: float = 0.0

    def has_idle(self, lasted_ns: int) -> bool:
        """Return whether the host had idle CPU, as far as is known."""
        known = self.ticks > 0 and self.covered_ns >= MIN_COVERED_SHARE * lasted_ns
        return not known or self.idle_ticks > MAX_IDLE_SHARE * self.ticks


_TICKS: Final = ("cpu_user_ticks", "cpu_system_ticks", "cpu_iowait_ticks", "cpu_steal_ticks", "cpu_idle_ticks")
_IDLE_TICKS: Final = ("cpu_iowait_ticks", "cpu_idle_ticks")


class Disturbances:
    """Collects what disturbed single trials: a full disk, a host without idle CPU, or held up.

    `treatments` are those of the header. The jobs of some are benchmarks, which may well take all of a host's CPU.
    """

    def __init__(self, treatments: Sequence[StoredTreatment], *, noop: bool) -> None:
        jobs = [treatment.job for treatment in treatments]
        self._saturating = [noop or (isinstance(job, Mapping) and "workload" in job) for job in jobs]
        self._pauses: dict[int | None, list[Mapping[str, Any]]] = {}
        self._contention: list[Mapping[str, Any]] = []
        self._contention_times = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._cpu: dict[tuple[int, int], _TrialCpu] = {}
        self._hosts: Mapping[int, str] = {}
        """The name of each worker's host."""
        self._trials = 0
        self.pressure = TrialPressure()
        self._excesses: dict[tuple[str, str], list[Excess]] = {}
        self.found: dict[int, list[DisturbanceReport]] = {}
        """What disturbed the trials of each treatment, in order."""

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event."""
        match event["kind"]:
            case "trial-begin":
                # A resumed run does it again.
                self._pauses.pop(event["trial"], None)
            case "disk-full":
                self._pauses.setdefault(event["trial"], []).append(event)
            case "cpu-contention":
                self._contention.append(event)

    def add_samples(self, spans: TrialSpans, samples: SampleColumns) -> None:
        """Add samples of a host to the trials that they overlap; call it when all events are known."""
        self.pressure.add(spans, samples)
        columns = samples.columns
        if samples.source != "host" or not columns.keys() >= set(_TICKS):
            return
        ticks = np.sum([np.maximum(columns[name], 0) for name in _TICKS], axis=0)
        idle = np.sum([np.maximum(columns[name], 0) for name in _IDLE_TICKS], axis=0)
        for row, span, overlap_ns, length_ns in spans.overlaps(samples):
            cpu = self._cpu.setdefault((span.trial, samples.worker), _TrialCpu())
            cpu.covered_ns += overlap_ns
            cpu.ticks += ticks[row] * overlap_ns / length_ns
            cpu.idle_ticks += idle[row] * overlap_ns / length_ns

    def settle(self, hosts: Mapping[int, str], spans: TrialSpans) -> None:
        """Sum up, when all samples were added; `hosts` are the names of each worker's host."""
        self._hosts = hosts
        self._trials = len(spans)
        names = ("begin_ns", "end_ns")
        times = [np.array([event[name] for event in self._contention], np.int64) for name in names]
        self._contention_times = (times[0], times[1])
        for span in spans:
            found = [_pause(event, span) for event in self._pauses.get(span.trial, ())]
            told: set[str] = set()
            for (trial, worker), cpu in sorted(self._cpu.items()):
                host = str(hosts.get(worker))
                if trial == span.trial and host not in told and not cpu.has_idle(span.end_ns - span.begin_ns):
                    told.add(host)
                    found += self._busy_host(span, worker, host)
            if found:
                self.found.setdefault(span.treatment, []).extend(found)
        self.pressure.settle(hosts, spans)
        self._add_excesses()

    def _add_excesses(self) -> None:
        """Mark the trials in which the work of a host was held up, unless it is told already that it had no CPU."""
        full = {
            (one.trial, self._hosts.get(one.worker or 0))
            for own in self.found.values()
            for one in own
            if one.kind == NO_IDLE_CPU
        }
        for one in self.pressure.excesses():
            if one.measure.is_wait_for_cpu and (one.span.trial, one.host) in full:
                continue
            self._excesses.setdefault((one.measure.name, one.host), []).append(one)
            self.found.setdefault(one.span.treatment, []).append(
                DisturbanceReport(
                    trial=one.span.trial,
                    worker=one.worker,
                    kind=one.measure.name,
                    from_s=0.0,
                    to_s=(one.span.end_ns - one.span.begin_ns) / 1e9,
                    what=one.host,
                    share=one.share,
                    text=one.text,
                )
            )
        for own in self.found.values():
            own.sort(key=lambda one: one.trial)

    def _busy_host(self, span: TrialSpan, worker: int, host: str) -> Iterator[DisturbanceReport]:
        """Yield that a host had no idle CPU in a trial, unless that is what its benchmark is for."""
        consumers: dict[tuple[str, int, int], float] = {}
        others = 0.0
        begins, ends = self._contention_times
        for place in np.flatnonzero((begins < span.end_ns) & (ends > span.begin_ns)).tolist():
            event = self._contention[place]
            if str(self._hosts.get(event["worker"])) != host:
                continue
            overlap_ns = min(event["end_ns"], span.end_ns) - max(event["begin_ns"], span.begin_ns)
            part = overlap_ns / (span.end_ns - span.begin_ns)
            others += event["others_share"] * part
            who = (event["consumer"], event["pid"], event["processes"])
            consumers[who] = consumers.get(who, 0.0) + event["consumer_share"] * part
        (name, pid, processes), share = max(consumers.items(), key=lambda item: item[1], default=(("", 0, 0), 0.0))
        others, share = min(1.0, others), min(1.0, share)
        if others < MIN_OTHERS_SHARE and self._saturating[span.treatment]:
            return
        text = f"host {host} had no idle CPU"
        if name and others >= MIN_OTHERS_SHARE and share >= MIN_NAMED_SHARE:
            which = f"process {pid}" if processes == 1 else plural(processes, "process")
            text += f"; {name} ({which}), which is no part of this run, took {share:.0%} of it"
        elif name and others >= MIN_OTHERS_SHARE:
            text += f"; programs that are no part of this run took {others:.0%} of it"
        else:
            name, text = "", f"{text}, and no other program took much of it: the load itself fills the host"
        yield DisturbanceReport(
            trial=span.trial,
            worker=worker,
            kind=NO_IDLE_CPU,
            from_s=0.0,
            to_s=(span.end_ns - span.begin_ns) / 1e9,
            what=name,
            share=share if name else None,
            text=text,
        )

    def warnings(self) -> list[str]:
        """Return a warning for a full disk, and for each host that was fully busy or held up."""
        groups: dict[tuple[str, str], list[DisturbanceReport]] = {}
        for disturbances in self.found.values():
            for one in disturbances:
                if one.kind in KINDS:
                    continue
                place = one.what if one.kind == DISK_FULL else self._hosts.get(one.worker or 0, "")
                groups.setdefault((one.kind, place), []).append(one)
        texts = []
        for (kind, place), found in groups.items():
            trials = sorted({one.trial for one in found})
            if kind == DISK_FULL:
                worst = max(found, key=lambda one: one.to_s - one.from_s)
                waited = "jobs that had not begun waited for room; save the next run where there is more"
                texts.append(f"disturbed in {plural(len(trials), 'trial')}{_numbers(trials)}: {worst.text}; {waited}")
                continue
            texts.append(f"host {place} was fully busy in {self._which(trials)}{self._largest_consumer(found)}")
        return texts + [
            warning_of(own, self._which(sorted({one.span.trial for one in own}))) for own in self._excesses.values()
        ]

    def _which(self, trials: Sequence[int]) -> str:
        # Of all trials the numbers say nothing.
        if len(trials) == self._trials:
            return "its only trial" if self._trials == 1 else f"all {self._trials} trials"
        return f"{len(trials)} of {plural(self._trials, 'trial')}{_numbers(trials)}"

    @staticmethod
    def _largest_consumer(found: Sequence[DisturbanceReport]) -> str:
        """Return the words for who took most of a host's CPU time in these trials, if anybody took much."""
        shares: dict[str, list[float]] = {}
        for one in found:
            shares.setdefault(one.what, []).append(one.share or 0.0)
        name, taken = max(shares.items(), key=lambda item: sum(item[1]))
        share = sum(taken) / len(taken)
        if not name:
            return ": the load itself fills it; use a larger host, or a smaller load"
        return f": mostly {name}, {share:.0%} of its CPUs" if share >= MIN_NAMED_SHARE else ""


def _numbers(trials: Sequence[int]) -> str:
    """Return the numbers of trials in parentheses, the first ones of many."""
    shown = ", ".join(map(str, trials[:_SHOWN_TRIALS]))
    return f" ({shown}{', ...' if len(trials) > _SHOWN_TRIALS else ''})"


def _pause(event: Mapping[str, Any], span: TrialSpan) -> DisturbanceReport:
    """Return that a trial waited for room on the disk of the stats file."""
    to_s = (event["at_ns"] - span.begin_ns) / 1e9
    return DisturbanceReport(
        trial=span.trial,
        worker=None,
        kind=DISK_FULL,
        from_s=to_s - event["seconds"],
        to_s=to_s,
        what="stats file",
        share=None,
        text=f"the run was paused for {event['seconds']:.1f} s, for want of room on the disk of the stats file",
    )
