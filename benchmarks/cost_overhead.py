"""What ``cost: true`` adds to a short job of plain processes, and to one of a container, by each of its counters.

A job is create, start, wait and remove of a program that computes for as long as makes the job take ``--job-ms``
under the engine. It runs within this process, with the operations that a worker runs. Its time is that from the first
operation to the last with all that is between them; the sum of the operations' own times is printed as well. In each
turn every way to count has one job, in drawn order. A ratio is the middle of the turns' ratios to the job without
counters; its interval of 95 % or more is that of a median, by ranks.

    python benchmarks/cost_overhead.py [--engine native,runc,...] [--turns N] [--job-ms MS] [--image IMAGE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from common import parser_of, print_ratio

from bench_common.cost import CYCLES, INSTRUCTIONS, PROCESSES, TASK_CLOCK
from bench_common.engine_traits import engine_traits
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_worker.engines.base import Container, Engine, EngineOptions
from bench_worker.engines.registry import open_engine
from bench_worker.operation_runner import OperationRunner
from bench_worker.timing import perf_counters

OFF: Final = "no counters"
ALL: Final = "all counters"
READ: Final = "what wait4 or the control group says"
LABELS: Final = {"whole": "whole job", "told": "its operations"}
COUNTERS: Final = (TASK_CLOCK, CYCLES, INSTRUCTIONS)
WARM_UP: Final = 3
MS: Final = 1e6
BUSY_LOAD: Final = 1.0


class Times(NamedTuple):
    """What a job took, in ms."""

    whole: float
    """From its first operation to its last, with what lies between them."""
    told: float
    """The sum of its operations' times, which a report shows."""


class Jobs:
    """The jobs of one engine, whose program counts to `loops`."""

    def __init__(self, engine: Engine, image: str, loops: int) -> None:
        self._engine = engine
        self._number = 0
        self.plain, self.counted = (self._runner(image, loops, cost=cost) for cost in (False, True))

    def _runner(self, image: str, loops: int, *, cost: bool) -> OperationRunner:
        container: dict[str, Any] = {"command": ["sh", "-c", f"i=0; while [ $i -lt {loops} ]; do i=$((i+1)); done"]}
        if engine_traits(self._engine.name).has_images:
            container |= {"image": image, "network": "none"}
        scenario = {
            "name": "cost",
            "engines": [self._engine.name],
            "cost": cost,
            "job": {"operations": ["create", "start", "wait", "remove"], "container": container},
        }
        (treatment,) = parse_scenario(Source("cost_overhead", json.dumps(scenario))).treatments
        runner = OperationRunner(self._engine, treatment, None)
        for reason in self._engine.missing(runner.settings):
            raise SystemExit(reason)
        self._engine.prepare(runner.settings)
        return runner

    def run(self, runner: OperationRunner, *, from_first: bool = True) -> Times:
        """Run a job; return its times. Without `from_first` it counts nothing before its last operation."""
        self._number += 1
        container = Container(f"wb-cost-{os.getpid()}-{self._number}", self._number, runner.settings)
        steps = runner.steps if from_first else [*self.plain.steps[:-1], runner.steps[-1]]
        begun_ns = monotonic_ns()
        done = [step.call(container) for step in steps]
        return Times((monotonic_ns() - begun_ns) / MS, sum(one.end_ns - one.start_ns for one in done) / MS)


@contextmanager
def only(names: Sequence[str]) -> Iterator[None]:
    """Count these events, and no others, meanwhile."""
    every = dict(perf_counters.EVENTS)
    for name in every.keys() - set(names):
        del perf_counters.EVENTS[name]
    try:
        yield
    finally:
        perf_counters.EVENTS.clear()
        perf_counters.EVENTS.update(every)


def with_events(jobs: Jobs, *names: str) -> Times:
    """Run a job of plain processes with these events."""
    with only(names):
        return jobs.run(jobs.counted)


def ways_of(engine: str, jobs: Jobs) -> dict[str, Callable[[], Times]]:
    """Return the ways in which a job of an engine can be counted on this host."""
    ways: dict[str, Callable[[], Times]] = {
        OFF: partial(jobs.run, jobs.plain),
        ALL: partial(jobs.run, jobs.counted),
    }
    if engine_traits(engine).cost == PROCESSES:
        missing = perf_counters.unavailable()
        for name in COUNTERS:
            if name in missing:
                print(f"{engine}, {name}: not measured, {missing[name]}")
            else:
                ways[name] = partial(with_events, jobs, name)
        ways[READ] = partial(jobs.run, jobs.counted, from_first=False)
    return ways


def middle_of(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the median of values, its interval by ranks, and how much that covers, at least 95 % if it can."""
    ordered, count = sorted(values), len(values)
    below, tail = 0, 0.5**count
    while below + 1 < count / 2 and tail + math.comb(count, below + 1) * 0.5**count <= 0.025:
        below += 1
        tail += math.comb(count, below) * 0.5**count
    return median(ordered), ordered[below], ordered[-1 - below], 1 - 2 * tail


def loops_for(engine: Engine, image: str, job_ms: float) -> int:
    """Return how far a program has to count for a job of this length."""
    loops = 1000
    while (found := median(measured(engine, image, loops))) < job_ms and loops < 10_000_000:
        loops = int(loops * min(4.0, max(1.2, job_ms / found)))
    return loops


def measured(engine: Engine, image: str, loops: int) -> list[float]:
    """Return the times of some jobs without counters."""
    jobs = Jobs(engine, image, loops)
    return [jobs.run(jobs.plain).whole for _ in range(WARM_UP)]


def weigh(name: str, options: argparse.Namespace, drawn: random.Random) -> None:
    """Measure one engine."""
    engine = open_engine(name, EngineOptions(f"cost-{secrets.token_hex(4)}", "benchmark", 1))
    try:
        loops = loops_for(engine, options.image, options.job_ms)
        ways = ways_of(name, Jobs(engine, options.image, loops))
        found: dict[str, list[Times]] = {way: [] for way in ways}
        for turn in range(-WARM_UP, options.turns):
            for way in drawn.sample(list(ways), len(ways)):
                took = ways[way]()
                if turn >= 0:
                    found[way].append(took)
    finally:
        engine.release()
        engine.close()
    plain = found.pop(OFF)
    usual = median(one.whole for one in plain)
    print(f"{name}: a job without counters takes {usual:.3f} ms ({loops:,} loops, {options.turns} turns)")
    for way, values in found.items():
        for kind in Times._fields:
            pairs = zip(values, plain, strict=True)
            ratio, low, high, sure = middle_of([getattr(one, kind) / getattr(other, kind) for one, other in pairs])
            share, *limits = (f"{100 * (one - 1):+.2f}" for one in (ratio, low, high))
            label = f"{name}, {way}, {LABELS[kind]}"
            print(f"{label}: {share} % [{', '.join(limits)}] ({sure:.1%})")
            print_ratio(label, ratio, 1.0)


def main() -> None:
    """Measure each engine that is asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", default="native,runc")
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--job-ms", type=float, default=5.0)
    parser.add_argument("--image", default="weighbridge/base")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    if load >= BUSY_LOAD:
        print(f"the host is busy (load {load:.1f}): its figures say little of 1 %", file=sys.stderr)
    drawn = random.Random(options.seed)
    for name in options.engine.split(","):
        weigh(name, options, drawn)


if __name__ == "__main__":
    main()
