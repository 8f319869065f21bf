"""The load process: the part of a worker that runs jobs, apart from the agent that speaks for the host.

It holds the ends of the worker's lane and of the results; the agent holds the control socket, so a host that is
saturated by its own jobs does not look dead. When the agent dies the line to it ends, and this process aborts its
jobs, removes what each of them made, and ends too; by then a new life of the worker may be at work in the same run.
"""

from __future__ import annotations

import gc
import logging
import random
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any, Final

import gevent
import zmq
from gevent.event import Event

from bench_common.channel import Frames, ZmqChannel, configure_socket, split_message
from bench_common.curve import secure_client
from bench_common.errors import ProtocolError
from bench_common.eventloop import LoopMeter
from bench_common.keys import KeyPair
from bench_common.messages import Message, decode
from bench_common.profiling import MAX_PACKED_BYTES, Profiler
from bench_common.records import ASSIGNMENT_FIELDS
from bench_common.treatment import Treatment
from bench_worker.engines.registry import engine_classes, open_engine
from bench_worker.job_executor import JobExecutor, RunContext
from bench_worker.outbox import Outbox
from bench_worker.packing import PackingResult
from bench_worker.pipe_channel import PipeChannel
from bench_worker.remote_services import reply_from_fields
from workloads.registry import workload_classes

log = logging.getLogger(__name__)

STATUS_INTERVAL_S: Final = 0.5
"""How often the agent is told how we are."""
JOB_COUNT_INTERVAL_S: Final = 0.01
"""How often jobs in the system are counted, on average."""
RESEND_S: Final = 5.0
"""Batches that are not acknowledged for so long are sent again."""
ABORT_TIMEOUT_S: Final = 20.0
"""How long aborted jobs get to be tidied up before the process ends."""
LINGER_MS: Final = 3000
"""How long the last results may take to leave."""

_ASSIGNMENT_ROW: Final = struct.Struct(f"<{len(ASSIGNMENT_FIELDS)}q")
"""A row of orders. What takes rows apart needs no array for it, and is quicker without for a dozen of them."""


class LoadProcess:
    """One run's jobs on one worker, driven by its agent through `line` and by the master through the lane."""

    def __init__(self, line: socket.socket, engines: Sequence[str] | None = None) -> None:
        self._engines = engines
        self._over = Event()
        self._orphaned = False
        self._context: zmq.Context[Any] = zmq.Context()
        self._epoch = 0
        self._crew: JobExecutor | None = None
        self._outbox: Outbox | None = None
        self._lane: ZmqChannel | None = None
        self._results: ZmqChannel | None = None
        self._acknowledged_at = monotonic()
        self._refused = 0
        self._meter = LoopMeter()
        self._profiler: Profiler | None = None
        self._counter: gevent.Greenlet[[], None] | None = None
        """Counts the jobs in an open system, where Little's law needs it; a hundred times a second costs some."""
        self._counts = [0, 0, 0]
        """How often jobs were counted since the last report, and how many were running and waiting, summed."""
        self._pipe = PipeChannel(line, self._told, self._abandoned)

    def serve(self) -> int:
        """Work until the agent says that it is over, or is no more; return the exit code."""
        self._meter.start()
        # Loaded now, or the first trial would pay for it: a tenth of a second in which the loop stands still.
        engine_classes(self._engines)
        workload_classes()
        # It stays, and to look through it for garbage takes 20 ms, in which no job begins and no stamp is taken.
        gc.collect()
        gc.freeze()
        self._pipe.send(ready=True)
        while not self._over.wait(STATUS_INTERVAL_S):
            self._report()
        if self._counter is not None:
            self._counter.kill()
        self._shut_down()
        return 0

    # -- what the agent says ------------------------------------------------------------------------------------

    def _told(self, message: dict[str, Any]) -> None:
        if "start" in message and self._crew is None:
            self._start(message["start"])
        elif "profile" in message and self._profiler is not None:
            self._send_profile(self._profiler)
            self._profiler = None
        elif "release" in message:
            gevent.spawn(self._release)
        elif "end" in message:
            self._over.set()

    def _release(self) -> None:
        if self._crew is not None:
            self._crew.release()
        # The jobs are over: what this loop was like to the last of them belongs to the run, however short it was.
        self._report()
        self._pipe.send(released=True)

    def _send_profile(self, profiler: Profiler) -> None:
        content = profiler.stop().pack()
        if len(content) > MAX_PACKED_BYTES:
            log.warning("the profile of %d bytes is dropped: at most %d can be sent", len(content), MAX_PACKED_BYTES)
            content = b""
        self._pipe.send(profile=content)

    def _abandoned(self) -> None:
        self._orphaned = True
        self._over.set()

    def _start(self, welcome: dict[str, Any]) -> None:
        self._epoch = welcome["epoch"]
        if welcome["profile"]:
            self._profiler = Profiler(f"load process of worker {welcome['worker_id']}")
            self._profiler.start()
        results = self._connect(zmq.PUSH, welcome["results"], welcome)
        self._results = ZmqChannel(results)
        self._acknowledged_at = monotonic()
        self._outbox = Outbox(self._epoch, self._send_results, self._meter.lap)
        assignment = RunContext(
            run_id=welcome["run_id"],
            worker_id=welcome["worker_id"],
            slots=welcome["slots"],
            noop=welcome["noop"],
            keep=welcome["keep"],
            allow_host_mounts=welcome["allow_host_mounts"],
            allow_swapoff=welcome["allow_swapoff"],
            address=welcome["address"],
        )
        self._crew = JobExecutor(
            assignment,
            self._outbox,
            open_engine,
            self._report_packing,
            lambda text: self._pipe.send(progress=text),
            want=lambda errand: self._pipe.send(want=errand),
            served=lambda answer: self._pipe.send(served=answer),
        )
        self._meter.read()  # what it took to get here, engines and workloads loaded, is none of the run's
        self._lane = ZmqChannel(self._connect(zmq.PULL, welcome["lane"], welcome), self._on_lane)

    def _send_results(self, message: bytes) -> bool:
        assert self._results is not None
        return self._results.send(*split_message(message))

    def _report_packing(self, packed: PackingResult) -> None:
        self._pipe.send(packed=asdict(packed))

    def _connect(self, kind: int, endpoint: str, welcome: dict[str, Any]) -> zmq.Socket[bytes]:
        connection: zmq.Socket[bytes] = self._context.socket(kind)
        configure_socket(connection)
        if welcome["keys"] is not None:
            public, secret, master = welcome["keys"]
            secure_client(connection, KeyPair(public, secret), master)
        connection.connect(endpoint)
        return connection

    # -- what the master says -----------------------------------------------------------------------------------

    def _on_lane(self, batch: list[Frames]) -> None:
        assert self._crew is not None
        for frames in batch:
            try:
                message = decode(frames[0].bytes, sender="master", lane="work")
                if message.epoch != self._epoch:
                    raise ProtocolError(f"epoch {message.epoch}, where {self._epoch} is current")
                self._on_message(message, self._crew)
            except ProtocolError as error:
                self._refused += 1
                if self._refused & (self._refused - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                    log.warning("a message on the lane was dropped (%d so far): %s", self._refused, error)

    def _on_message(self, message: Message, crew: JobExecutor) -> None:
        if message.type == "jobs":
            rows = message["rows"]
            if len(rows) % _ASSIGNMENT_ROW.size:
                raise ProtocolError(f"{len(rows)} bytes are no whole number of orders")
            orders = list(_ASSIGNMENT_ROW.iter_unpack(rows))
            try:
                place = (message["treatment"], message["trial"])
                crew.take(*place, orders, width=message["width"], batch=message["batch"])
            except KeyError as error:
                raise ProtocolError(f"jobs of treatment {error}, which was not defined") from error
        elif message.type == "ack":
            self._acknowledged_at = monotonic()
            if self._outbox is not None:
                self._outbox.acknowledge([sequence for sequence in message["sequences"] if isinstance(sequence, int)])
        elif message.type == "define":
            self._define(Treatment.from_wire(message["treatment"]), crew)
        elif message.type == "serve":
            crew.lender.serve(*(message[name] for name in ("treatment", "service", "ticket", "act")))
        elif message.type == "supplied":
            errand = (message["ticket"], message["service"], message["act"])
            crew.errands.came(*errand, reply_from_fields(message.fields))
        elif message.type == "cancel":
            crew.abort()

    def _define(self, treatment: Treatment, crew: JobExecutor) -> None:
        crew.define(treatment)
        if treatment.open_load is not None and self._counter is None:
            self._counter = gevent.spawn(self._count_jobs)

    def _count_jobs(self) -> None:
        """Count at random instants: regular ones could keep step with the jobs, and see them in one phase alone.

        With exponential gaps what is seen is on average what there is (R. W. Wolff, Operations Research 30, 1982).
        """
        while True:
            gevent.sleep(random.expovariate(1 / JOB_COUNT_INTERVAL_S))
            crew, counts = self._crew, self._counts
            if crew is not None:
                counts[0] += 1
                counts[1] += crew.running
                counts[2] += crew.waiting

    # -- time ---------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        if self._crew is None:
            self._pipe.send(status={"running": 0})
            self._acknowledged_at = monotonic()
            return
        reading = self._meter.read()
        running = self._crew.running
        (times, in_service, in_queue), self._counts = self._counts, [0, 0, 0]
        self._pipe.send(
            status={
                "running": running,
                "running_mean": in_service / times if times else float(running),
                "waiting_mean": in_queue / times if times else 0.0,
                "time_ns": reading.time_ns,
                "busy_share": reading.busy_share,
                "lag_max_ns": reading.lag_max_ns,
            }
        )
        outbox = self._outbox
        if outbox is None or not outbox.unacknowledged:
            self._acknowledged_at = monotonic()
        elif monotonic() - self._acknowledged_at > RESEND_S:
            log.warning("%d batches are not acknowledged; they are sent again", outbox.repeat())
            self._acknowledged_at = monotonic()

    def _shut_down(self) -> None:
        """Let the last results leave, then abort what runs and wait for its clean-up."""
        # What is aborted from here on was not called off by the master: to it we are gone, and it tries those jobs
        # anew. So no order is taken any more and nothing further is reported.
        if self._outbox is not None:
            self._outbox.flush()
        for channel in (self._lane, self._results):
            if channel is not None:
                channel.close(linger_ms=LINGER_MS if not self._orphaned else 0)
        crew = self._crew
        if crew is not None:
            crew.errands.disconnect()
            crew.abort()
            deadline = monotonic() + ABORT_TIMEOUT_S
            while not crew.idle and monotonic() < deadline:
                gevent.sleep(0.02)
        if crew is not None:
            crew.close()
        self._context.term()
        self._meter.stop()
        self._pipe.close()


def run_load_process(line_fd: int, engines: Sequence[str] | None = None) -> int:
    """Serve the agent at the other end of the socket `line_fd`; return the exit code.

    `engines` are those to get ready for, None for every one.
    """
    # Ctrl-C in a terminal reaches the whole process group; the agent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A thread that has the interpreter gives it up sooner to one that must stamp an end.
    sys.setswitchinterval(0.0005)
    return LoadProcess(socket.socket(fileno=line_fd), engines).serve()
