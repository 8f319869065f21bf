"""A plain harness to be measured against: a dict per job over shared sockets, and a greenlet for each.

This is how a benchmark with gevent and ZeroMQ is written at first: the master keeps `concurrency` jobs in flight,
each a msgpack dict on a PUSH socket that all workers share; a worker spawns a greenlet per job, which does nothing,
and pushes a dict back; the master appends the durations to a list. Nothing is stamped per operation, kept on disk,
checked or done again after a loss.

    python benchmarks/reference.py [--jobs N] [--concurrency N] [--workers N] [--operations N]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from typing import Any

import gevent
import msgpack
import zmq.green as zmq
from common import parser_of


def perform(job: dict[str, object], results: Any) -> None:
    """Do nothing so often, and report it."""
    began = time.time()
    operations = [{"kind": kind, "duration": 0.0} for kind in job["operations"]]  # type: ignore[attr-defined]
    done = {"id": job["id"], "operations": operations, "began": began, "ended": time.time(), "error": None}
    results.send(msgpack.packb(done))


def work(directory: str) -> None:
    """Be a worker until an empty message comes."""
    context = zmq.Context()
    orders, results = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    orders.connect(f"ipc://{directory}/orders")
    results.connect(f"ipc://{directory}/results")
    results.send(b"")
    under_way = []
    while message := orders.recv():
        under_way.append(gevent.spawn(perform, msgpack.unpackb(message), results))
        if len(under_way) >= 1000:
            under_way = [each for each in under_way if not each.dead]
    gevent.joinall(under_way)
    context.destroy(linger=2000)


def master(jobs: int, concurrency: int, workers: int, operations: int) -> float:
    """Return jobs per second, from the first order to the last result."""
    kinds = [f"operation-{index}" for index in range(operations)]
    with tempfile.TemporaryDirectory() as directory:
        context = zmq.Context()
        orders, results = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        orders.bind(f"ipc://{directory}/orders")
        results.bind(f"ipc://{directory}/results")
        others = [subprocess.Popen([sys.executable, __file__, "--work", directory]) for _ in range(workers)]
        for _ in others:
            results.recv()  # it has started
        durations: list[float] = []
        began = time.perf_counter()
        sent = 0
        while len(durations) < jobs:
            while sent < jobs and sent - len(durations) < concurrency:
                orders.send(msgpack.packb({"id": sent, "operations": kinds, "sent": time.time()}))
                sent += 1
            result = msgpack.unpackb(results.recv())
            durations.append(result["ended"] - result["began"])
        seconds = time.perf_counter() - began
        for _ in others:
            orders.send(b"")
        for other in others:
            other.wait(10)
        context.destroy(linger=0)
    return jobs / seconds


def main() -> None:
    """Measure once, and print jobs per second."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--operations", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the figure alone, for another script")
    parser.add_argument("--work", metavar="DIRECTORY", help="be a worker (this script starts them itself)")
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return
    rate = master(options.jobs, options.concurrency, options.workers, options.operations)
    print(json.dumps(rate) if options.json else f"plain reference: {rate:,.0f} jobs/s")


if __name__ == "__main__":
    main()
