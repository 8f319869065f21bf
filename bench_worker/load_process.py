"""The load process runs a worker's jobs; the agent, a separate process, represents the host.

It owns the worker's ends of the lane and of the results socket. The agent owns the control socket, so a host that is
saturated by its jobs does not look dead. When the agent dies, the pipe to it closes: this process then aborts its
jobs, removes everything that they created, and ends. A restarted worker may be at work in the same run by then.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

import gevent
import zmq
from gevent.event import Event
from setproctitle import setproctitle

from bench_common.channel import Frames, ZmqChannel, configure_socket
from bench_common.curve import plain_client, secure_client
from bench_common.errors import ProtocolError
from bench_common.eventloop import LoopMeter
from bench_common.keys import KeyPair
from bench_common.messages import (
    RESULTS,
    WORK,
    Acknowledge,
    CancelJobs,
    DefineTreatment,
    Jobs,
    MasterWorkMessage,
    PackingReport,
    Progress,
    RunWarning,
    ServiceCommand,
    ServiceReply,
    ServiceRequest,
    ServiceResult,
    clip,
)
from bench_common.ordered import OrderedReceiver
from bench_common.profiling import MAX_PACKED_BYTES, Profiler
from bench_common.records import ASSIGNMENT_FIELDS
from bench_worker.engines.registry import engine_classes, open_engine
from bench_worker.job_executor import JobExecutor
from bench_worker.job_runner import RunnerContext, open_runner
from bench_worker.outbox import Outbox
from bench_worker.packing import PackingResult
from bench_worker.pipe_channel import (
    EndProcess,
    LaneTaken,
    LoadStatus,
    LoopSample,
    PipeChannel,
    ProfileTaken,
    Ready,
    ReleaseServices,
    ServicesReleased,
    StartRun,
    TakeProfile,
    ToLoadProcess,
)
from bench_worker.timing.wake_up_witness import WakeUpWitness
from bench_worker.timing.wake_ups import WAKE_UPS

log = logging.getLogger(__name__)

STATUS_INTERVAL_S: Final = 0.5
"""Interval between status messages to the agent, in seconds."""
JOB_COUNT_INTERVAL_S: Final = 0.01
"""Mean interval between counts of the jobs in the system, in seconds."""
CONFIRM_S: Final = 0.2
"""How long after messages of the lane the agent is told that they were taken, unless results say so, in seconds."""
ABORT_TIMEOUT_S: Final = 20.0
"""How long the clean-up of aborted jobs may take before the process ends, in seconds."""
LINGER_MS: Final = 3000
"""How long a closing socket waits for its last messages to leave, in milliseconds."""

_ASSIGNMENT_ROW: Final = struct.Struct(f"<{len(ASSIGNMENT_FIELDS)}q")
"""The format of one job; for a dozen jobs, unpacking is faster than a numpy array."""


def unpack_jobs(rows: bytes) -> list[tuple[int, ...]]:
    """Return the values of `records.ASSIGNMENT_FIELDS` of each job; raise `ProtocolError` if these are no jobs."""
    if len(rows) % _ASSIGNMENT_ROW.size:
        raise ProtocolError(f"{len(rows)} bytes are not a whole number of jobs")
    return list(_ASSIGNMENT_ROW.iter_unpack(rows))


class LoadProcess:
    """One run's jobs on one worker, controlled by its agent through `line` and by the master through the lane."""

    def __init__(self, line: socket.socket, engines: Sequence[str] | None = None) -> None:
        self._engines = engines
        self._over = Event()
        self._orphaned = False
        self._context: zmq.Context[Any] = zmq.Context()
        self._epoch = 0
        self._executor: JobExecutor | None = None
        self._outbox: Outbox | None = None
        self._lane: ZmqChannel | None = None
        self._results: ZmqChannel | None = None
        self._refused = 0
        self._orders = OrderedReceiver()
        self._confirm_soon: gevent.Greenlet[[], None] | None = None
        self._meter = LoopMeter()
        self._wake_up_witness = WakeUpWitness()
        self._profiler: Profiler | None = None
        self._counter: gevent.Greenlet[[], None] | None = None
        """Counts the jobs of an open system, for Little's law; 100 counts a second cost CPU, so only there."""
        self._counts = [0, 0, 0]
        """Since the last report: the number of counts, the sum of running jobs, the sum of waiting jobs."""
        self._pipe = PipeChannel(line, ToLoadProcess, self._on_agent_message, self._on_agent_died)

    def serve(self) -> int:
        """Serve until the agent ends this process or dies; return the exit code."""
        self._meter.start()
        # Load them now: in the first trial this would block the loop for a tenth of a second.
        engine_classes(self._engines)
        for direction in (WORK, RESULTS):
            direction.prepare()
        # Exclude these permanent objects from garbage collection: a pass takes 20 ms, in which no job starts and no
        # stamp is taken.
        gc.collect()
        gc.freeze()
        self._pipe.send(Ready())
        while not self._over.wait(STATUS_INTERVAL_S):
            self._report()
            self._resend()
        for greenlet in (self._counter, self._confirm_soon):
            if greenlet is not None:
                greenlet.kill()
        self._shut_down()
        return 0

    # -- messages of the agent ----------------------------------------------------------------------------------

    def _on_agent_message(self, message: ToLoadProcess) -> None:
        match message:
            case StartRun() if self._executor is None:
                self._start(message)
            case TakeProfile() if self._profiler is not None:
                self._send_profile(self._profiler)
                self._profiler = None
            case ReleaseServices():
                gevent.spawn(self._release)
            case EndProcess():
                self._over.set()

    def _release(self) -> None:
        if self._executor is not None:
            self._executor.release()
        # The jobs are over: report the loop's last interval, however short, since it belongs to the run.
        self._report()
        self._pipe.send(ServicesReleased())

    def _send_profile(self, profiler: Profiler) -> None:
        content = profiler.stop().pack()
        if len(content) > MAX_PACKED_BYTES:
            log.warning("the profile of %d bytes is dropped: at most %d can be sent", len(content), MAX_PACKED_BYTES)
            content = b""
        self._pipe.send(ProfileTaken(content))

    def _on_agent_died(self) -> None:
        self._orphaned = True
        self._over.set()

    def _start(self, run: StartRun) -> None:
        self._epoch = epoch = run.epoch
        os.environ.update(run.store_variables)  # this process serves one run
        if run.profile:
            self._profiler = Profiler(f"load process of worker {run.context.worker_id}")
            self._profiler.start()
        if not run.context.noop:  # no operation waits for a thread; the witness would cost a tenth of the rate
            self._wake_up_witness.start()
        self._results = ZmqChannel(self._connect(zmq.PUSH, run.results_endpoint, run))
        self._outbox = Outbox(epoch, self._send_results, self._lap)
        self._executor = JobExecutor(
            run.context,
            self._outbox,
            open_engine,
            self._report_packing,
            lambda text: self._pipe.send(Progress(epoch=epoch, text=clip(text))),
            request=lambda treatment, service, ticket, action: self._pipe.send(
                ServiceRequest(epoch=epoch, treatment=treatment, service=service, ticket=ticket, action=action)
            ),
            reply=lambda command, outcome: self._pipe.send(
                ServiceResult(
                    epoch=epoch,
                    treatment=command.treatment,
                    service=command.service,
                    ticket=command.ticket,
                    action=command.action,
                    outcome=outcome,
                )
            ),
            warn=lambda text: self._pipe.send(RunWarning(epoch=epoch, text=clip(text))),
            opened_runner=partial(open_runner, RunnerContext(run.context, epoch, self._pipe.send)),
        )
        self._meter.read()  # discard the start-up (loading engines and workloads): not part of the run
        self._lane = ZmqChannel(self._connect(zmq.PULL, run.lane_endpoint, run), self._on_lane)

    def _lap(self) -> tuple[int, ...]:
        """Return the values of `records.LOOP_FIELDS` since the last call."""
        return *self._meter.lap(), WAKE_UPS.allowance_ns, WAKE_UPS.count

    def _send_results(self, message: bytes) -> bool:
        assert self._results is not None
        return self._results.send(message)

    def _report_packing(self, packed: PackingResult) -> None:
        self._pipe.send(
            PackingReport(
                epoch=self._epoch,
                trial=packed.trial,
                containers=packed.containers,
                reason=clip(packed.reason),
                full=packed.full,
                returned=list(packed.returned),
                hold_s=packed.hold_s,
                memory_before=packed.memory_before,
                unread=clip(packed.unread),
            )
        )

    def _connect(self, kind: int, endpoint: str, run: StartRun) -> zmq.Socket[bytes]:
        connection: zmq.Socket[bytes] = self._context.socket(kind)
        configure_socket(connection)
        if run.keys is not None:
            secure_client(connection, KeyPair(run.keys.public, run.keys.secret), run.keys.master_public)
        elif run.token and endpoint.startswith("tcp://"):
            plain_client(connection, run.epoch, run.token)
        connection.connect(endpoint)
        return connection

    # -- messages of the master ---------------------------------------------------------------------------------

    def _on_lane(self, batch: list[Frames]) -> None:
        assert self._executor is not None
        for frames in batch:
            try:
                message = WORK.decode(frames[0].bytes)
                if message.epoch != self._epoch:
                    raise ProtocolError(f"epoch {message.epoch} (the current one is {self._epoch})")
                if self._orders.admit(message.number):
                    self._on_message(message, self._executor)
            except ProtocolError as error:
                self._refused += 1
                if self._refused & (self._refused - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                    log.warning("dropped a message on the lane (%d so far): %s", self._refused, error)
        if self._outbox is not None:
            self._outbox.taken = self._orders.taken
        if self._confirm_soon is None:
            self._confirm_soon = gevent.spawn_later(CONFIRM_S, self._confirm)

    def _confirm(self) -> None:
        """Have the agent's next heartbeat say what was taken, unless results have said so by now."""
        self._confirm_soon = None
        if self._outbox is None or self._outbox.told < self._orders.taken:
            self._pipe.send(LaneTaken(self._orders.taken))

    def _on_message(self, message: MasterWorkMessage, executor: JobExecutor) -> None:
        match message:
            case Jobs():
                self._take_jobs(message, executor)
            case Acknowledge():
                if self._outbox is not None:
                    self._outbox.acknowledge(message.sequences)
            case DefineTreatment():
                self._define(message, executor)
            case ServiceCommand():
                executor.service_host.run(message)
            case ServiceReply():
                executor.service_requests.on_reply(message.ticket, message.service, message.action, message.outcome)
            case CancelJobs():
                executor.abort()

    def _take_jobs(self, message: Jobs, executor: JobExecutor) -> None:
        jobs = unpack_jobs(message.rows)
        try:
            executor.take(
                message.treatment, message.trial, jobs, concurrency=message.concurrency, batch=message.batch
            )
        except KeyError as error:
            raise ProtocolError(f"jobs of treatment {error}, which is not defined") from error

    def _define(self, message: DefineTreatment, executor: JobExecutor) -> None:
        executor.define(message.treatment, message.part, message.parts)
        if message.treatment.open_load is not None and self._counter is None:
            self._counter = gevent.spawn(self._count_jobs)

    def _count_jobs(self) -> None:
        """Count at random instants: a fixed interval could synchronize with the jobs and see only one phase of them.

        With exponential gaps, the mean of the counts is the time average (R. W. Wolff, Operations Research 30, 1982).
        """
        while True:
            gevent.sleep(random.expovariate(1 / JOB_COUNT_INTERVAL_S))
            executor, counts = self._executor, self._counts
            if executor is not None:
                counts[0] += 1
                counts[1] += executor.running
                counts[2] += executor.waiting

    # -- time ---------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        if self._executor is None:
            self._pipe.send(LoadStatus(0))
            return
        reading = self._meter.read()
        running = self._executor.running
        (times, in_service, in_queue), self._counts = self._counts, [0, 0, 0]
        sample = LoopSample(
            time_ns=reading.time_ns,
            busy_share=reading.busy_share,
            lag_max_ns=reading.lag_max_ns,
            running_mean=in_service / times if times else float(running),
            waiting_mean=in_queue / times if times else 0.0,
        )
        self._pipe.send(LoadStatus(running, sample))

    def _resend(self) -> None:
        """Send batches again that the master does not acknowledge: they may be lost with a connection."""
        repeated = self._outbox.repeat(monotonic()) if self._outbox is not None else 0
        if repeated:
            log.info("%d batches are not acknowledged; they are sent again", repeated)

    def _shut_down(self) -> None:
        """Send the last results, then abort the running jobs and wait for their clean-up."""
        # The master did not cancel these jobs: it considers this worker dead and retries them. So accept no more jobs
        # and report nothing further.
        if self._outbox is not None:
            self._outbox.flush()
        for channel in (self._lane, self._results):
            if channel is not None:
                channel.close(linger_ms=LINGER_MS if not self._orphaned else 0)
        executor = self._executor
        if executor is not None:
            executor.service_requests.disconnect()
            executor.abort()
            deadline = monotonic() + ABORT_TIMEOUT_S
            while not executor.idle and monotonic() < deadline:
                gevent.sleep(0.02)
        if executor is not None:
            executor.close()
        self._context.term()
        self._meter.stop()
        self._wake_up_witness.stop()
        self._pipe.close()


def run_load_process(line_fd: int, engines: Sequence[str] | None = None) -> int:
    """Serve the agent at the other end of the socket `line_fd`; return the exit code.

    `engines` names the engines to load (None: all).
    """
    # A copy of the agent has the agent's command line; whoever looks for what runs on a host must tell them apart.
    setproctitle("bench-worker --load-process")
    # Ctrl-C in a terminal reaches the whole process group; the agent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Shorter than the default, so that a thread that must stamp an end gets the interpreter sooner.
    sys.setswitchinterval(0.0005)
    return LoadProcess(socket.socket(fileno=line_fd), engines).serve()
