"""Many workers in one process: to a master each is a worker of its own, and none costs what a real one does.

Each has its own sockets, heartbeats, clock comparison, slots and spool, made of the very parts of a real worker; what
it lacks is a process of its own for the jobs, samples of its host, and engines: it can do no-op runs only. It joins,
serves one run, and ends with it.

    python benchmarks/light_workers.py --control-port PORT [--host HOST] [--count N] [--slots N] [--name PREFIX]
"""

from __future__ import annotations

import argparse
import socket
import sys
from time import monotonic, monotonic_ns
from typing import Any

import gevent
import numpy as np
import zmq
from common import parser_of
from gevent.event import Event

from bench_common.channel import Frames, ZmqChannel, configure_socket
from bench_common.clock import ClockOffsetEstimator, clock_id
from bench_common.curve import plain_client
from bench_common.host_info import HostInfo
from bench_common.messages import (
    FROM_MASTER,
    WORK,
    Acknowledge,
    CancelJobs,
    Cleanup,
    CleanupDone,
    DefineTreatment,
    Dismiss,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Jobs,
    Stop,
    Welcome,
    WorkerControlMessage,
    encode,
)
from bench_common.ordered import OrderedReceiver
from bench_common.records import ASSIGNMENT_FIELDS
from bench_worker.engines.registry import open_engine
from bench_worker.job_executor import JobExecutor
from bench_worker.outbox import Outbox
from bench_worker.pipe_channel import RunContext

HELLO_S = 0.5
STAGGER_S = 0.005
"""Time between the first words of two workers: a fleet does not start in the same instant either."""
MAX_SOCKETS = 16_384


class LightWorker:
    """One worker, from its first hello to the end of its run."""

    def __init__(self, context: zmq.Context[Any], options: argparse.Namespace, number: int) -> None:
        self._context = context
        self._host = options.host
        self._options = options
        self._name = f"{options.name}-{number}"
        self._clock = ClockOffsetEstimator()
        self._epoch = 0
        self._heartbeat_s = HELLO_S
        self._last_heard_at = monotonic()
        self._over = Event()
        self.served = False
        self._crew: JobExecutor | None = None
        self._outbox: Outbox | None = None
        self._orders = OrderedReceiver()
        self._channels: list[ZmqChannel] = []
        control = self._connected(zmq.DEALER, f"tcp://{options.host}:{options.control_port}")
        self._control = ZmqChannel(control, self._control_came)

    def serve(self) -> None:
        """Join a master, serve its run, and end; or give up after `master_timeout` seconds without a word of one."""
        while not self._over.is_set() and monotonic() - self._last_heard_at < self._options.master_timeout:
            if self._epoch:
                now_ns = monotonic_ns()
                best = self._clock.best_offset(now_ns)
                offset = (best.offset_ns, best.uncertainty_ns) if best is not None else (0, -1)
                running = self._crew.running if self._crew is not None else 0
                self._send(
                    Heartbeat(
                        epoch=self._epoch,
                        sent_ns=now_ns,
                        running=running,
                        offset_ns=offset[0],
                        uncertainty_ns=offset[1],
                        taken=self._orders.taken,
                    )
                )
            else:
                about: HostInfo = {"host": socket.gethostname(), "boot_id": clock_id(), "engines": {}}
                self._send(
                    Hello(
                        epoch=0,
                        worker_id=self._name,
                        environment=self._options.environment,
                        slots=self._options.slots,
                        sent_ns=monotonic_ns(),
                        info=about,
                    )
                )
            self._over.wait(self._heartbeat_s)
        for channel in (*self._channels, self._control):
            channel.close(linger_ms=500)

    def _connected(self, kind: int, endpoint: str, welcome: Welcome | None = None) -> zmq.Socket[bytes]:
        made: zmq.Socket[bytes] = self._context.socket(kind)
        configure_socket(made)
        if welcome is not None:
            plain_client(made, welcome.epoch, welcome.token)
        made.connect(endpoint)
        return made

    def _send(self, message: WorkerControlMessage) -> None:
        self._control.send(encode(message))

    def _control_came(self, batch: list[Frames]) -> None:
        now_ns = monotonic_ns()
        self._last_heard_at = monotonic()
        for frames in batch:
            message = FROM_MASTER.decode(frames[-1].bytes)
            match message:
                case HeartbeatAck():
                    self._clock.exchange(message.echo_ns, message.received_ns, message.sent_ns, now_ns)
                case Welcome() if not self._epoch:
                    self._join(message)
                case Cleanup():
                    self._send(CleanupDone(epoch=self._epoch, removed=0, failed=[], number=1))
                case Stop():
                    self.served = True
                    self._over.set()
                case Dismiss() if message.final:
                    sys.stderr.write(f"{self._name}: {message.reason}\n")
                    self._over.set()

    def _join(self, welcome: Welcome) -> None:
        self._epoch, self._heartbeat_s = welcome.epoch, welcome.spec.heartbeat_s
        results = ZmqChannel(self._connected(zmq.PUSH, self._reachable(welcome.results_endpoint), welcome))
        self._outbox = Outbox(self._epoch, results.send)
        assignment = RunContext(
            run_id=welcome.spec.run_id,
            worker_id=self._name,
            slots=self._options.slots,
            noop=True,
            keep=False,
            allow_host_mounts=False,
        )
        self._crew = JobExecutor(assignment, self._outbox, open_engine)
        lane = ZmqChannel(self._connected(zmq.PULL, self._reachable(welcome.lane_endpoint), welcome), self._lane_came)
        self._channels = [results, lane]

    def _reachable(self, endpoint: str) -> str:
        return f"tcp://{self._host}:{endpoint.rpartition(':')[2]}"

    def _lane_came(self, batch: list[Frames]) -> None:
        assert self._crew is not None
        assert self._outbox is not None
        for frames in batch:
            message = WORK.decode(frames[0].bytes)
            if not self._orders.admit(message.number):
                continue
            self._outbox.taken = self._orders.taken
            match message:
                case Jobs():
                    jobs = np.frombuffer(message.rows, "<i8").reshape(-1, len(ASSIGNMENT_FIELDS)).tolist()
                    sizes = {"concurrency": message.concurrency, "batch": message.batch}
                    self._crew.take(message.treatment, message.trial, jobs, **sizes)
                case Acknowledge():
                    self._outbox.acknowledge(message.sequences)
                case DefineTreatment():
                    self._crew.define(message.treatment)
                case CancelJobs():
                    self._crew.abort()


def parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser of what all kinds of light workers are told."""
    made = parser_of(text)
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--control-port", type=int, required=True)
    made.add_argument("--count", type=int, default=1)
    made.add_argument("--slots", type=int, default=1)
    made.add_argument("--name", default="light", help="what their ids begin with")
    made.add_argument("--environment", default="light")
    made.add_argument("--master-timeout", type=float, default=60.0, help="seconds without a word of a master")
    return made


def run_workers(options: argparse.Namespace, kind: type[LightWorker]) -> int:
    """Start so many workers one after the other, and wait for the end of all; return how many served a run."""
    context: zmq.Context[Any] = zmq.Context()
    context.max_sockets = MAX_SOCKETS
    workers, greenlets = [], []
    for number in range(options.count):
        workers.append(kind(context, options, number))
        greenlets.append(gevent.spawn(workers[-1].serve))
        gevent.sleep(STAGGER_S)
    gevent.joinall(greenlets)
    context.term()
    return sum(worker.served for worker in workers)


def main() -> int:
    """Run light workers; return 0 if each served a run."""
    options = parser(__doc__).parse_args()
    served = run_workers(options, LightWorker)
    print(f"{served} of {options.count} served a run", flush=True)
    return 0 if served == options.count else 3


if __name__ == "__main__":
    sys.exit(main())
