"""Attributes each instant of an operation to one cause, by what the threads of the engine's processes did then.

The rule, for each look of the sampler: the thread whose cause has the highest rank stands for the time until the next
look.

5. a thread runs, or is ready to: on CPU, and of that time the part in which it waited for a CPU (``schedstat``);
4. a thread is blocked in a place of the kernel that has a name (`causes.KERNEL_CAUSES`);
3. a timer: a sleep, or a call with a timeout of at most a second that it waits for until that is over;
2. a process that began with the trial waits for something: another process, a pipe, a lock;
1. a container's own program is alive, and nothing of the engine runs;
0. nothing is to be seen.

Idle waits of the daemons (futex, epoll) count for nothing. Of several with the same rank the youngest process counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from msgspec import Struct

from bench_worker.explain.causes import (
    NO_RANK,
    ON_CPU,
    PROGRAM,
    READY,
    UNSEEN,
    Cause,
    cause_of,
)

MOST_CAUSES: Final = 20
"""Causes of an operation that are kept, the largest first."""
_IDLE: Final = frozenset({"futex_do_wait", "futex_wait_queue", "futex_wait_queue_me"})
MOST_SEGMENTS: Final = 60
"""Segments of an operation that is drawn: one that is shorter than this part of it belongs to the one before."""


class Recording(Struct, frozen=True):
    """What a sampler saw."""

    waits: list[tuple[str, str, list[str], int]]
    """What threads were in: the state, the process's name, functions of the kernel, a timeout in ms or -1."""
    owners: list[tuple[int, int]]
    """The process of each thread."""
    first: list[int]
    """The processes that were there when the sampling began."""
    looks: list[tuple[int, list[tuple[int, int, int, int]], int]]
    """When each look was (ns), which threads changed, and how many programs of containers were alive.

    A change has the thread, its wait from now on (-1: it ended), and how long it has run, and waited for a CPU (ns).
    """
    stacks: bool
    """Whether the kernel's stacks were readable."""
    cpu_s: float
    """CPU time of the sampler."""
    cut: bool
    """Whether there was more than it keeps."""


class Span(NamedTuple):
    """One operation of a job."""

    job: int
    name: str
    start_ns: int
    end_ns: int


class Segment(NamedTuple):
    """A stretch of time with one cause."""

    start_ns: int
    end_ns: int
    cause: str
    process: str
    where: str


class _Stretch(NamedTuple):
    """How long a thread is in one wait, or runs."""

    wait: int
    start_ns: int
    end_ns: int
    ready_share: float
    """Of a thread that runs: how much of that it only waited for a CPU."""


def _stretches(recording: Recording) -> dict[tuple[int, int], _Stretch]:
    """Return what each thread does from each of its changes on, by look and thread."""
    found: dict[tuple[int, int], _Stretch] = {}
    open_ones: dict[int, tuple[int, int, int, int, int]] = {}
    last_ns = recording.looks[-1][0] if recording.looks else 0
    for place, (at, changes, _) in enumerate(recording.looks):
        for tid, wait, ran_ns, ready_ns in changes:
            before = open_ones.pop(tid, None)
            if before is not None:
                began, was, start_ns, ran_before, ready_before = before
                ready, ran = ready_ns - ready_before, ran_ns - ran_before
                share = ready / (ready + ran) if ready + ran > 0 else 0.0
                found[began, tid] = _Stretch(was, start_ns, at, share)
            open_ones[tid] = (place, wait, at, ran_ns, ready_ns)
    for tid, (began, wait, start_ns, _, _) in open_ones.items():
        found[began, tid] = _Stretch(wait, start_ns, last_ns, 0.0)
    return found


def _timeline(recording: Recording) -> list[Segment]:
    """Return the cause of each look."""
    owners, old, stretches = dict(recording.owners), frozenset(recording.first), _stretches(recording)
    now: dict[int, _Stretch] = {}
    sizes: Counter[int] = Counter()
    """How many threads each process has."""
    found: list[Segment] = []
    ends = [look[0] for look in recording.looks[1:]]
    for place, ((at, changes, programs), end) in enumerate(zip(recording.looks, ends, strict=False)):
        for tid, wait, _, _ in changes:
            owner = owners[tid]
            if now.pop(tid, None) is not None:
                sizes[owner] -= 1
            if wait >= 0:
                sizes[owner] += 1
                now[tid] = stretches[place, tid]
        chosen = _chosen(recording, ((owners[tid], stretch) for tid, stretch in now.items()), old, sizes)
        if chosen is None:
            found.append(Segment(at, end, PROGRAM if programs else UNSEEN, "", ""))
            continue
        cause, stands = chosen
        one = Segment(at, end, cause.name, recording.waits[stands.wait][1], cause.where)
        middle = at + round((end - at) * stands.ready_share) if cause.name == ON_CPU else at
        if middle > at:
            found.append(one._replace(end_ns=middle, cause=READY))
        if middle < end:
            found.append(one._replace(start_ns=middle))
    return found


def _chosen(
    recording: Recording, each: Iterable[tuple[int, _Stretch]], old: frozenset[int], sizes: Counter[int]
) -> tuple[Cause, _Stretch] | None:
    """Return the cause that explains most of what the threads of processes do at one look, and whose it is."""
    best, chosen = (NO_RANK, False, -1), None
    for owner, stretch in each:
        state, _, functions, timeout = recording.waits[stretch.wait]
        helper = owner not in old
        if not helper and state == "S" and functions and functions[0] in _IDLE:
            continue  # most threads of a daemon, most of the time
        lasted_ms = (stretch.end_ns - stretch.start_ns) / 1e6
        cause = cause_of(state, functions, timeout, lasted_ms=lasted_ms, threads=sizes[owner], helper=helper)
        if cause.rank > NO_RANK and (cause.rank, helper, owner) > best:
            best, chosen = (cause.rank, helper, owner), (cause, stretch)
    return chosen


def _within(timeline: Sequence[Segment], starts: Sequence[int], start_ns: int, end_ns: int) -> Iterator[Segment]:
    """Yield the parts of the timeline between two instants."""
    for index in range(max(0, bisect_right(starts, start_ns) - 1), len(timeline)):
        one = timeline[index]
        if one.start_ns >= end_ns:
            return
        begin, end = max(one.start_ns, start_ns), min(one.end_ns, end_ns)
        if end > begin:
            yield one._replace(start_ns=begin, end_ns=end)


def _merged(segments: Sequence[Segment], shortest_ns: int) -> list[Segment]:
    """Return the segments with neighbours of one cause and process as one, and shorter ones with those before."""
    found: list[Segment] = []
    for one in segments:
        same = bool(found) and (found[-1].cause, found[-1].process) == (one.cause, one.process)
        if same or (found and one.end_ns - one.start_ns < shortest_ns):
            found[-1] = found[-1]._replace(end_ns=one.end_ns)
        else:
            found.append(one)
    return found


def explain(recording: Recording, spans: Sequence[Span]) -> dict[str, Any]:
    """Return where the time of operations went, in seconds a job, and the segments of the median job.

    The result is plain data, as the stats file keeps it.
    """
    timeline = _timeline(recording)
    starts = [one.start_ns for one in timeline]
    by_operation: dict[str, list[tuple[Span, list[Segment]]]] = defaultdict(list)
    for span in spans:
        by_operation[span.name].append((span, list(_within(timeline, starts, span.start_ns, span.end_ns))))
    gaps = [one.end_ns - one.start_ns for one in timeline]
    return {
        "phases": [_operation(name, found) for name, found in by_operation.items()],
        "job": _median_job(by_operation),
        "sampling": {
            "interval_s": median(gaps) / 1e9 if gaps else 0.0,
            "longest_gap_s": max(gaps, default=0) / 1e9,
            "cpu_share": recording.cpu_s / (sum(gaps) / 1e9) if gaps else 0.0,
            "stacks": recording.stacks,
            "cut": recording.cut,
        },
    }


def _operation(name: str, found: Sequence[tuple[Span, Sequence[Segment]]]) -> dict[str, Any]:
    jobs = len(found)
    seconds: Counter[tuple[str, str]] = Counter()
    places: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for _, segments in found:
        for one in segments:
            key = (one.cause, one.process)
            seconds[key] += one.end_ns - one.start_ns
            places[key][one.where] += one.end_ns - one.start_ns
    total = sum(span.end_ns - span.start_ns for span, _ in found)
    on_cpu = sum(time for (cause, _), time in seconds.items() if cause == ON_CPU)
    return {
        "operation": name,
        "jobs": jobs,
        "total_s": total / jobs / 1e9,
        "cpu_s": on_cpu / jobs / 1e9,
        "waiting_s": (total - on_cpu) / jobs / 1e9,
        "causes": [
            {
                "cause": cause,
                "process": process,
                "seconds": time / jobs / 1e9,
                "where": places[cause, process].most_common(1)[0][0],
            }
            for (cause, process), time in seconds.most_common(MOST_CAUSES)
        ],
    }


def _median_job(by_operation: dict[str, list[tuple[Span, list[Segment]]]]) -> list[dict[str, Any]]:
    """Return the operations of the job whose duration is the median, with their segments, from its beginning."""
    jobs: dict[int, list[tuple[Span, list[Segment]]]] = defaultdict(list)
    for found in by_operation.values():
        for span, segments in found:
            jobs[span.job].append((span, segments))
    if not jobs:
        return []
    whole = {job: sum(span.end_ns - span.start_ns for span, _ in found) for job, found in jobs.items()}
    middle = sorted(whole, key=lambda job: whole[job])[(len(whole) - 1) // 2]
    chosen = sorted(jobs[middle], key=lambda one: one[0].start_ns)
    zero = min(span.start_ns for span, _ in chosen)
    return [
        {
            "operation": span.name,
            "start_s": (span.start_ns - zero) / 1e9,
            "end_s": (span.end_ns - zero) / 1e9,
            "segments": [
                {
                    "start_s": (one.start_ns - zero) / 1e9,
                    "end_s": (one.end_ns - zero) / 1e9,
                    "cause": one.cause,
                    "process": one.process,
                }
                for one in _merged(segments, (span.end_ns - span.start_ns) // MOST_SEGMENTS)
            ],
        }
        for span, segments in chosen
    ]
