"""The no-op ceiling: jobs per second with the execution free, against raw pyzmq and against a plain harness.

All run here in turn, and the ratios are what counts. Raw pyzmq carries the same bytes and does nothing else: the
ratio says how much of the wire's own speed is left when every job has an id, a seed, stamps for each operation, an
outcome, a place in a histogram and a row in the stats file. The plain harness is `reference.py`.

    python benchmarks/noop_ceiling.py [--jobs N] [--concurrency N] [--workers N] [--operations 1|2] [--repeats N]
                                      [--batch-size N] [--look-ahead | --no-look-ahead] [--round-trip] [--mixed]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from statistics import median

import zmq
from common import (
    ONE_OPERATION,
    TWO_OPERATIONS,
    in_turn,
    noop_scenario,
    parser_of,
    print_ratio,
    script_results,
    treatment_of,
)

from bench_common.messages import Jobs, Results, encode
from bench_common.records import ASSIGNMENT_FIELDS, LOOP_BYTES, WORD_BYTES, result_word_count

MIXED = [
    {"create": ["sleep", "600"]},
    "start",
    {"exec": ["date", "-u"]},
    {"kill": "SIGUSR1"},
    "pause",
    "unpause",
    {"sleep": "1ns"},
    {"stop": "5s"},
    "wait",
    "remove",
]
"""Ten operations, each of another kind."""
ALIKE = [{"sleep": "1ns"}] * 10
EXECS = ["run", *[{"exec": ["true"]}] * 8, "remove"]


def weigh(options: argparse.Namespace, operations: list[object], jobs: int, concurrency: int) -> float:
    """Return jobs per second of a no-op run with local workers."""
    words = ["--noop", "--workers", str(options.workers), "-u", str(concurrency), "-o", str(jobs)]
    if options.batch_size is not None:
        words += ["--batch-size", str(options.batch_size)]
    if options.look_ahead is not None:
        words += ["--look-ahead" if options.look_ahead else "--no-look-ahead"]
    return float(treatment_of(noop_scenario(operations), *words)["jobs_per_s"])


def reference(options: argparse.Namespace, jobs: int, concurrency: int) -> float:
    """Return jobs per second of the plain harness."""
    sizes = ("--jobs", jobs, "--concurrency", concurrency, "--workers", options.workers)
    words = (*sizes, "--operations", options.operations, "--json")
    return float(script_results("reference.py", *map(str, words)))


def frames(batch: int, operations: int) -> tuple[bytes, bytes]:
    """Return an order and a result message as large as those of `batch` jobs."""
    rows = bytes(WORD_BYTES * len(ASSIGNMENT_FIELDS) * batch)
    order = encode(Jobs(epoch=1, treatment=0, trial=0, concurrency=1, batch=1, rows=rows))
    rows = bytes(WORD_BYTES * result_word_count(operations) * batch)
    loop = bytes(LOOP_BYTES)
    result = Results(
        epoch=1, sequence=1, treatment=0, trial=0, rows=rows, loop=loop, metrics=[], errors=[], outputs=[]
    )
    return order, encode(result)


def echo(directory: str, lane: int, result: bytes) -> None:
    """Answer each order message with a result message until an empty one comes: a worker of the raw measurement."""
    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.connect(f"ipc://{directory}/lane-{lane}")
    push.connect(f"ipc://{directory}/results")
    while pull.recv():
        push.send(result)
    context.destroy(linger=2000)


def raw(jobs: int, batch: int, workers: int, operations: int, under_way: int = 2) -> float:
    """Return jobs per second of plain pyzmq with so many messages of `batch` jobs under way to each worker."""
    order, result = frames(batch, operations)
    with tempfile.TemporaryDirectory() as directory:
        context = zmq.Context()
        lanes = [context.socket(zmq.PUSH) for _ in range(workers)]
        pull = context.socket(zmq.PULL)
        pull.bind(f"ipc://{directory}/results")
        others = []
        for index, lane in enumerate(lanes):
            lane.bind(f"ipc://{directory}/lane-{index}")
            spawn = multiprocessing.get_context("spawn").Process
            others.append(spawn(target=echo, args=(directory, index, result), daemon=True))
            others[-1].start()
            lane.send(order)
        for _ in lanes:
            pull.recv()  # it has started
        messages = max(jobs // batch, under_way * workers)
        began = time.perf_counter()
        for number in range(messages + under_way * workers):
            if number >= under_way * workers:
                pull.recv()
            if number < messages:
                lanes[number % workers].send(order)
        seconds = time.perf_counter() - began
        for lane in lanes:
            lane.send(b"")
        for other in others:
            other.join(10)
        context.destroy(linger=0)
    return messages * batch / seconds


def ceiling(options: argparse.Namespace, operations: list[object]) -> None:
    """Measure jobs per second at the full concurrency."""
    jobs, concurrency, workers = options.jobs, options.concurrency, options.workers
    # Half of a worker's credit is a message, as with look-ahead, unless a size is given: so both sides are busy.
    batch = options.batch_size or max(1, concurrency // workers // 2)
    measures = {
        "raw pyzmq": lambda: raw(jobs, batch, workers, len(operations)),
        "reference": lambda: reference(options, max(1, jobs // 4), concurrency),
        "no-op": lambda: weigh(options, operations, jobs, concurrency),
    }
    results = {name: median(each) for name, each in in_turn(options.repeats, measures, "jobs/s").items()}
    sizes = f"{concurrency} in flight, {workers} worker(s), {len(operations)} operation(s) a job"
    print(f"no-op ceiling, {sizes}: {results['no-op']:,.0f} jobs/s (median)")
    print_ratio("to raw pyzmq with the same bytes", results["no-op"], results["raw pyzmq"])
    print_ratio("to the plain reference", results["no-op"], results["reference"])


def round_trip(options: argparse.Namespace, operations: list[object]) -> None:
    """Measure microseconds from one job to the next with a single one in flight."""
    jobs = max(1, options.jobs // 10)
    strict = argparse.Namespace(**{**vars(options), "look_ahead": False})
    measures = {
        "raw pyzmq": lambda: 1e6 / raw(jobs, 1, 1, len(operations), under_way=1),
        "reference": lambda: 1e6 / reference(options, jobs, 1),
        # A round trip is one only where the next job follows from the result: nothing may lie waiting at the worker.
        "no-op": lambda: 1e6 / weigh(strict, operations, jobs, 1),
    }
    results = {name: median(each) for name, each in in_turn(options.repeats, measures, "us").items()}
    print(f"round trip, 1 in flight: {results['no-op']:,.0f} us a job (median)")
    print_ratio("of the round trip to a raw pyzmq ping-pong", results["no-op"], results["raw pyzmq"])
    print_ratio("of the round trip to the plain reference", results["no-op"], results["reference"])


def mixed(options: argparse.Namespace) -> None:
    """Measure whether operations of many kinds cost more than as many of one kind."""
    jobs = max(1, options.jobs // 4)
    kinds = {"10 kinds": MIXED, "10 of one kind": ALIKE, "run, 8 exec, remove": EXECS}
    measures = {
        name: lambda operations=operations: weigh(options, operations, jobs, options.concurrency)
        for name, operations in kinds.items()
    }
    results = {name: median(each) for name, each in in_turn(options.repeats, measures, "jobs/s").items()}
    print_ratio("of jobs of 10 kinds to jobs of 10 sleeps", results["10 kinds"], results["10 of one kind"])
    print_ratio("of jobs of 10 kinds to run, 8 exec, remove", results["10 kinds"], results["run, 8 exec, remove"])


def main() -> None:
    """Measure in turn, and print each figure and the ratios of the medians."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--concurrency", type=int, default=24, help="jobs in flight over all workers together")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--operations", type=int, choices=(1, 2), default=1, help="2: run, remove; 1: a sleep")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-size", type=int, help="handed on to run-scenario")
    parser.add_argument("--look-ahead", action=argparse.BooleanOptionalAction, help="handed on to run-scenario")
    parser.add_argument("--round-trip", action="store_true", help="one job in flight instead: time for a job")
    parser.add_argument(
        "--mixed", action="store_true", help="jobs of ten kinds of operations against ten of one kind"
    )
    options = parser.parse_args()
    if options.round_trip:
        options.workers = 1
    operations: list[object] = list(ONE_OPERATION if options.operations == 1 else TWO_OPERATIONS)
    if options.mixed:
        mixed(options)
    elif options.round_trip:
        round_trip(options, operations)
    else:
        ceiling(options, operations)


if __name__ == "__main__":
    main()
