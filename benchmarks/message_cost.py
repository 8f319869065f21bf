"""What a message costs each side, without sockets: CPU of the master and the load process, by jobs in a message.

Each side runs alone in a process, with its real parts; the frames of the other side are made outside of what is
timed. The master takes results, counts and keeps them, and answers with the next jobs; the load process takes jobs,
runs them (a sleep, which is free in a no-op run) and packs their results. The slope is the cost of a job, the
intercept that of a message. What sockets, the kernel and waking each other add shows in `noop_ceiling.py`.

    python benchmarks/message_cost.py [--jobs N] [--batches 1,12,128,700] [--profile]

`--profile` prints the functions that take most of each side's time, at the second size.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sys
import tempfile
from collections import deque
from contextlib import suppress
from time import monotonic_ns, thread_time
from typing import Any

import gevent
from common import ONE_OPERATION, master_command, noop_scenario, numbers, parser_of, print_ratio, script_results

from bench_common.messages import Results, encode
from bench_common.records import ASSIGNMENT_FIELDS, LOOP_BYTES, RESULT_FIELDS, WORD_BYTES, result_word_count

HEARTBEAT_NS = 500_000_000
SHOWN = 20
"""How many functions a profile lists."""


class Timed:
    """The CPU time of this thread inside of its contexts."""

    def __init__(self, *, profiled: bool) -> None:
        self.spent_s = 0.0
        self._profile = cProfile.Profile() if profiled else None
        self._began_s = 0.0

    def __enter__(self) -> None:
        self._began_s = thread_time()
        if self._profile is not None:
            self._profile.enable()

    def __exit__(self, *_: object) -> None:
        if self._profile is not None:
            self._profile.disable()
        self.spent_s += thread_time() - self._began_s

    def print_profile(self) -> None:
        """Print where the time went, if that was asked for."""
        if self._profile is not None:
            pstats.Stats(self._profile, stream=sys.stderr).sort_stats("tottime").print_stats(SHOWN)


class ReceivedFrame(bytes):
    """A frame as a socket receives it."""

    more = False

    @property
    def bytes(self) -> bytes:
        """Its content."""
        return self

    def get(self, option: object) -> int | str:
        """Return its connection, or its sender."""
        return 7 if isinstance(option, int) else "peer"


def load_process(jobs: int, batch: int, *, profiled: bool) -> float:
    """Return CPU microseconds of a job in the load process, with so many jobs in a message."""
    from bench_common.messages import WORK, Jobs
    from bench_common.treatment import ContainerSettings, Lifecycle, Operation, Treatment
    from bench_worker.engines.registry import open_engine
    from bench_worker.job_executor import JobExecutor
    from bench_worker.load_process import unpack_jobs
    from bench_worker.outbox import Outbox
    from bench_worker.pipe_channel import RunContext

    def send(_frame: bytes) -> bool:
        return True

    context = RunContext(run_id="cost", worker_id="one", slots=batch, noop=True, keep=False, allow_host_mounts=False)
    outbox = Outbox(1, send)
    executor = JobExecutor(context, outbox, open_engine)
    work = Lifecycle((Operation("sleep", "sleep", seconds=1e-9),))
    executor.define(Treatment(0, {}, None, "docker", work, ContainerSettings()))
    rows = bytes(WORD_BYTES * len(ASSIGNMENT_FIELDS) * batch)
    order = encode(Jobs(epoch=1, treatment=0, trial=0, concurrency=batch, batch=batch, rows=rows))
    timed = Timed(profiled=profiled)
    for number in range(jobs // batch):
        with timed:
            message: Any = WORK.decode(order)
            executor.take(0, 0, unpack_jobs(message.rows), concurrency=batch, batch=batch)
            gevent.sleep(0)
            outbox.acknowledge([number])
    timed.print_profile()
    return timed.spent_s * 1e6 / (jobs // batch * batch)


class PlayedWorker:
    """Plays one worker to the master of this process, by calls in place of its sockets."""

    def __init__(self, timed: Timed, slots: int) -> None:
        self._timed = timed
        self._slots = slots
        self._epoch = self._sequence = self._taken = 0
        self.incoming: Any = None
        """Takes frames to the master."""
        self.orders: deque[bytes] = deque()
        """What the master sent on the lane."""
        self.received: list[Any] = []
        """What it sent on the control socket."""

    def serve(self) -> None:
        """Join, answer each order at once, and clean up."""
        from bench_common.clock import clock_id
        from bench_common.messages import WORK, Cleanup, CleanupDone, Heartbeat, Hello, Jobs, Welcome

        info = {"host": "here", "boot_id": clock_id(), "engines": {}}
        self._say(
            Hello(
                epoch=0,
                worker_id="one",
                environment="local",
                slots=self._slots,
                sent_ns=monotonic_ns(),
                info=info,
            )
        )
        self._epoch = next(message.epoch for message in self.received if isinstance(message, Welcome))
        said_ns = 0
        while not any(isinstance(message, Cleanup) for message in self.received):
            if monotonic_ns() - said_ns > HEARTBEAT_NS:
                said_ns = monotonic_ns()
                beat = {"running": 0, "offset_ns": 0, "uncertainty_ns": 1, "taken": self._taken}
                self._say(Heartbeat(epoch=self._epoch, sent_ns=said_ns, **beat))
            gevent.sleep(0)
            while self.orders:
                message: Any = WORK.decode(self.orders.popleft())
                self._taken = message.number
                if isinstance(message, Jobs):
                    self._answer(message)
        self._say(CleanupDone(epoch=self._epoch, removed=0, failed=[], number=1))

    def _say(self, message: Any) -> None:
        self.incoming.on_control_frames([[ReceivedFrame(b"peer"), ReceivedFrame(encode(message))]])

    def _answer(self, order: Any) -> None:
        import numpy as np

        given = np.frombuffer(order.rows, "<i8").reshape(-1, len(ASSIGNMENT_FIELDS))
        rows = np.zeros((len(given), result_word_count(1)), "<i8")
        rows[:, RESULT_FIELDS.index("ticket")] = given[:, ASSIGNMENT_FIELDS.index("ticket")]
        rows[:, RESULT_FIELDS.index("failed_at")] = -1
        results = Results(
            epoch=self._epoch,
            sequence=self._sequence,
            treatment=order.treatment,
            trial=order.trial,
            rows=rows.tobytes(),
            loop=bytes(LOOP_BYTES),
            metrics=[],
            errors=[],
            outputs=[],
            taken=self._taken,
        )
        self._sequence += 1
        frame = ReceivedFrame(encode(results))
        with self._timed:
            self.incoming.on_result_frames([[frame]])


def master(jobs: int, batch: int, *, profiled: bool) -> float:
    """Return CPU microseconds of a job in the master's loop, with so many jobs in a message."""
    from bench_master import __main__ as program  # before what it patches is loaded
    from bench_master.run import sockets

    timed = Timed(profiled=profiled)
    worker = PlayedWorker(timed, batch)

    class KeptIncoming(sockets.Incoming):
        def __init__(self, *parts: Any, **options: Any) -> None:
            super().__init__(*parts, **options)
            worker.incoming = self
            gevent.spawn(worker.serve)

    def send_on_lane(_self: object, _number: int, message: Any) -> bytes:
        worker.orders.append(encode(message))
        return worker.orders[-1]

    changed: Any = sockets
    changed.Incoming = KeptIncoming
    changed.Sockets.send = lambda _self, _peer, message: worker.received.append(message)
    changed.Sockets.send_on_lane = send_on_lane
    with tempfile.TemporaryDirectory() as directory:
        sizes = ("-o", str(jobs), "-u", str(batch), "--no-look-ahead", "--expect", "1")
        command = master_command(directory, noop_scenario(ONE_OPERATION), "--noop", "--workers", "0", *sizes)
        sys.argv = ["bench-master", *command[command.index("-q") :]]
        stdout = os.dup(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # the report
        with suppress(SystemExit):
            program.main()
        sys.stdout.flush()
        os.dup2(stdout, 1)
    timed.print_profile()
    return timed.spent_s * 1e6 / jobs


SIDES = {"master": master, "load process": load_process}


def main() -> None:
    """Measure each side with each number of jobs in a message, each in a process of its own."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="with more than one in a message; else a tenth")
    parser.add_argument("--batches", type=numbers, default="1,12,128,700", help="jobs in a message, in rising order")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, at the second size")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        (batch,) = options.batches
        print(json.dumps(SIDES[options.side](options.jobs, batch, profiled=options.profile)), file=sys.stdout)
        return
    for side in SIDES:
        found = []
        for batch in options.batches:
            jobs = options.jobs if batch > 1 else options.jobs // 10
            words = ["--side", side, "--jobs", str(max(jobs, 10 * batch)), "--batches", str(batch)]
            found.append(float(script_results("message_cost.py", *words)))
            print(
                f"{side:<12} {batch:>5} jobs in a message: {found[-1]:7.2f} us a job  "
                f"{found[-1] * batch:8.1f} us a message",
                flush=True,
            )
        if options.profile:
            words[-1] = str(options.batches[1])
            script_results("message_cost.py", *words, "--profile")
        print_ratio(f"of the CPU of a job alone in its message to that of one of many, {side}", found[0], found[-1])


if __name__ == "__main__":
    main()
