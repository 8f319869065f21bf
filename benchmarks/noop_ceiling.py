"""The no-op ceiling against raw pyzmq: jobs per second with the execution free, and the same bytes with nothing else.

Both run here in turn, and the ratio is what counts: it says how much of the wire's own speed is left when every job
has an id, a seed, stamps for each operation, an outcome, a place in a histogram and a row in the stats file.

    python benchmarks/noop_ceiling.py [--jobs N] [--concurrency N] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zmq

from bench_common.messages import encode
from bench_common.records import JOB_ROW, OPERATION_ROW, ORDER_ROW

OPERATIONS = ("run", "remove")
SCENARIO = """\
name: ceiling
engines: [docker]
container: {image: none}
job: {operations: [run, remove]}
"""


def weigh(jobs: int, concurrency: int) -> float:
    """Return jobs per second of a no-op run with one local worker."""
    with tempfile.TemporaryDirectory() as directory:
        scenario = Path(directory, "ceiling.yaml")
        scenario.write_text(SCENARIO)
        command = [sys.executable, "-m", "bench_master", "-q", "run-scenario", "-f", str(scenario), "--noop"]
        command += ["--workers", "1", "-u", str(concurrency), "-o", str(jobs), "--format", "json"]
        command += ["-s", str(Path(directory, "ceiling.stats.gz"))]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout)["treatments"][0]["jobs_per_s"])


def frames(batch: int) -> tuple[bytes, bytes]:
    """Return an order and a result message as large as those of `batch` jobs."""
    order = encode("jobs", 1, rows=bytes(ORDER_ROW.itemsize * batch))
    operations = bytes(OPERATION_ROW.itemsize * len(OPERATIONS) * batch)
    rest = {"operations": operations, "metrics": [], "errors": [], "outputs": []}
    return order, encode("results", 1, sequence=1, jobs=bytes(JOB_ROW.itemsize * batch), **rest)


def echo(directory: str, result: bytes, messages: int) -> None:
    """Answer each order message with a result message: the other process of the raw measurement."""
    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.connect(f"ipc://{directory}/lane")
    push.connect(f"ipc://{directory}/results")
    for _ in range(messages):
        pull.recv()
        push.send(result)
    push.close(linger=5000)
    context.term()


def raw(jobs: int, concurrency: int) -> float:
    """Return jobs per second of plain pyzmq: two messages of half the credit each are always under way."""
    batch = max(1, concurrency // 2)
    messages = jobs // batch
    order, result = frames(batch)
    with tempfile.TemporaryDirectory() as directory:
        context = zmq.Context()
        push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        push.bind(f"ipc://{directory}/lane")
        pull.bind(f"ipc://{directory}/results")
        other = multiprocessing.get_context("spawn").Process(target=echo, args=(directory, result, messages))
        other.start()
        push.send(order)
        pull.recv()  # it has started
        began = time.perf_counter()
        push.send(order)
        push.send(order)
        for left in range(messages - 1, 0, -1):
            pull.recv()
            if left > 2:
                push.send(order)
        seconds = time.perf_counter() - began
        other.join(10)
        context.destroy(linger=0)
    return (messages - 1) * batch / seconds


def main() -> None:
    """Measure in turn, and print each figure and the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    ours, plain = [], []
    for turn in range(1, options.repeats + 1):
        plain.append(raw(options.jobs, options.concurrency))
        ours.append(weigh(options.jobs, options.concurrency))
        print(f"turn {turn}: no-op {ours[-1]:>10,.0f} jobs/s   raw pyzmq {plain[-1]:>10,.0f} jobs/s")
    ratio = statistics.median(ours) / statistics.median(plain)
    print(f"no-op ceiling, {options.concurrency} in flight: {statistics.median(ours):,.0f} jobs/s (median)")
    print(f"ratio to raw pyzmq with the same bytes: {ratio:.2f}")


if __name__ == "__main__":
    main()
