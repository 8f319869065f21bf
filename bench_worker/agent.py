"""The agent represents a host to the master; it never runs the load itself.

It asks a master for admission, sends heartbeats and samples, compares clocks, and owns the load process: it starts
it, passes it the run, detects and reports its death at once, and cleans up after it. A master that is silent for
longer than the lease is lost: the agent then removes the leftovers of its run from this host.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic, monotonic_ns
from typing import Final

import gevent
import msgspec
from gevent.event import Event

from bench_common.errors import ExitCode, ProtocolError
from bench_common.eventloop import LoopMeter, stall_s
from bench_common.fields import MAX_FAILURE_CHARS, MAX_REASONS
from bench_common.host_info import HostInfo
from bench_common.messages import (
    Cleanup,
    CleanupDone,
    CpuContention,
    Credentials,
    Dismiss,
    Heartbeat,
    HeartbeatAck,
    HostFinding,
    MasterControlMessage,
    MeasureSpeed,
    Preflight,
    PreflightResult,
    ProfileReport,
    Progress,
    ReportedMessage,
    RunWarning,
    Samples,
    SpeedMeasured,
    Stop,
    Welcome,
    WorkerDied,
    clip,
)
from bench_common.requirements import AbsentProgram
from bench_common.startup import STAGE_JOINING, STAGE_LEFTOVERS, STAGE_LOAD_PROCESS
from bench_common.streams import tell
from bench_common.treatment import SOURCE, EngineSampling
from bench_worker.admission import hello_message, start_message
from bench_worker.cleanup import clean_up_dead_runs
from bench_worker.cli import PROGRAM, AgentOptions
from bench_worker.control_channel import ControlChannel
from bench_worker.doctor.before_run import NeighbourSample, neighbour_findings
from bench_worker.engines.registry import daemon_names, daemon_processes, open_engine
from bench_worker.host.contention import BusyPeriod
from bench_worker.host.daemons import engine_samplers
from bench_worker.host.listeners import listening_processes
from bench_worker.host.procfs import LiveHostFiles, ProcessStat
from bench_worker.host.sampler import SpeedReading, measure_speed
from bench_worker.host_part import KindsOfRun
from bench_worker.master_clock import MasterClock
from bench_worker.pipe_channel import (
    LaneTaken,
    LoadStatus,
    ProfileTaken,
    Ready,
    ServicesReleased,
    ToAgent,
)
from bench_worker.preflight import EngineCatalog, PreflightChecker, find_setting_problems
from bench_worker.supervisor import RELEASE_TIMEOUT_S, LoadProcessHandle, LoadProcessSupervisor
from bench_worker.worker_run import WorkerRun

log = logging.getLogger(__name__)


HELLO_INTERVAL_S: Final = 0.5
ANSWER_S: Final = 1.0
"""How long a master has to answer at least, in seconds."""
"""Interval between the hellos of a worker without a master, in seconds."""
LOOP_SAMPLE_UNITS: Final = {**LoopMeter.UNITS, "running_mean": "jobs", "waiting_mean": "jobs"}
"""The units of a `LoopSample`."""


def gives_up(timeout_s: float, alone_s: float, asked_for_s: float) -> bool:
    """Return whether a worker without a master for `alone_s` ends, after it has asked for one for `asked_for_s`.

    Its timeout includes its own start, but a master has a moment to answer in any case.
    """
    return alone_s > timeout_s and asked_for_s >= min(timeout_s, ANSWER_S)


class Agent:
    """One worker's agent. `describe()` returns the description of this host for the master; `serve` calls it once.

    `child` is the first load process, if one is running already; `offer` has the engines of that description;
    `stage` gets what the worker does before it takes part in a run.
    """

    def __init__(
        self,
        options: AgentOptions,
        describe: Callable[[], HostInfo],
        child: LoadProcessHandle | None = None,
        offer: EngineCatalog | None = None,
        stage: Callable[[str], None] = lambda _stage: None,
    ) -> None:
        self._stage = stage
        self._options = options
        self._describe = describe
        self._engine_catalog = offer or EngineCatalog(options.engines)
        self._info: HostInfo = {}
        self._line = ControlChannel(
            options.control, options.key, on_heartbeat_ack=self._on_heartbeat_ack, on_message=self._on_message
        )
        self._clock = MasterClock()
        self._preflight = PreflightChecker(options.worker_id, open_engine, allow_foreign=options.allow_foreign)
        self._load = LoadProcessSupervisor(options.engines, self._on_load_process_message, child)
        # A worker that its master started is one of the master's family, as are the other local workers.
        self._family = os.getppid() if options.local else os.getpid()
        self._neighbours = NeighbourSample(self._family)
        self._run: WorkerRun | None = None
        self._kinds = KindsOfRun()
        self._running = 0
        self._asked_s: float | None = None
        """When the first hello left since there was a run, in seconds of `monotonic`."""
        self._over = Event()
        self._wake_up = Event()
        """Set when the main loop must act at once."""
        self._status = ExitCode.OK

    # -- life ---------------------------------------------------------------------------------------------------

    def serve(self) -> int:
        """Serve masters until `stop`; return the exit code."""
        began = monotonic()
        self._neighbours.begin()
        self._info = self._describe()
        self._stage(STAGE_LEFTOVERS)
        cleaned = clean_up_dead_runs()
        for leftover in cleaned.removed:
            log.warning("removed %s %s, left by run %s", leftover.what, leftover.name, leftover.run_id)
        for run_id, reason in cleaned.unproved.items():
            log.warning("kept what run %s left, or uses: %s", run_id, reason)
        # To look at a host takes seconds. A master that starts its workers waits for them; any other one is absent.
        alone_since = monotonic() if self._options.local else began
        try:
            while not self._over.is_set():
                self._check_load_process()
                if self._run is not None:
                    alone_since, self._asked_s = monotonic(), None
                    self._send_heartbeat(self._run)
                else:
                    self._seek_admission(monotonic() - alone_since)
                self._rest(HELLO_INTERVAL_S if self._run is None else self._run.spec.heartbeat_s)
        finally:
            self._shut_down()
        return int(self._status)

    def stop(self, status: ExitCode = ExitCode.OK) -> None:
        """Abort running jobs, clean up and end `serve`. Safe to call from a signal handler."""
        self._status = status
        self._over.set()
        self._wake_up.set()

    def _seek_admission(self, alone_s: float) -> None:
        self._stage(STAGE_JOINING if self._load.ready else STAGE_LOAD_PROCESS)
        self._neighbours.begin()
        if self._load.ready:
            if self._asked_s is None:
                self._say(f"waits for a master at {self._options.control}; Ctrl-C ends it")
            self._asked_s = self._asked_s or monotonic()
            self._send_hello()
            self._line.check_reachability()
        master_timeout_s = self._options.master_timeout_s
        asked_for_s = 0.0 if self._asked_s is None else monotonic() - self._asked_s
        if master_timeout_s is not None and gives_up(master_timeout_s, alone_s, asked_for_s):
            log.warning("no master answered at %s for %g s", self._options.control, master_timeout_s)
            self.stop(ExitCode.INFRASTRUCTURE)

    def _say(self, text: str) -> None:
        """Tell who started this worker by hand how it gets on; a full disk does not end it."""
        if not self._options.local and self._options.run_file is None:
            with suppress(OSError):
                tell(f"{PROGRAM} {self._options.worker_id}: {text}")

    def _rest(self, most_s: float) -> None:
        # Measure the wait alone: before it, other greenlets may run and receive from the master.
        since = monotonic()
        self._wake_up.wait(most_s)
        self._wake_up.clear()
        absent = stall_s(since, most_s)
        if absent and self._run is not None:
            log.warning("this process did not run for %.1f s: the machine was suspended or starved of CPU", absent)

    def _shut_down(self) -> None:
        self._line.stop_handling()
        run, self._run = self._run, None
        self._load.end()
        if run is not None:
            if self._status is not ExitCode.OK:
                self._report_worker_died(run, "it was stopped")
            run.discard()
            run.end()
        self._preflight.close()
        self._line.close()

    # -- messages to the master ---------------------------------------------------------------------------------

    def _send_hello(self) -> None:
        """Ask for admission. A hello that cannot be encoded now never can: do not retry."""
        now_ns = monotonic_ns()
        try:
            self._line.send(hello_message(self._options, self._info, self._clock.last_offset(now_ns), now_ns))
        except ProtocolError as error:
            log.error("this worker cannot send its hello to a master: %s", error)  # noqa: TRY400  no traceback helps
            self.stop(ExitCode.INFRASTRUCTURE)

    def _send_heartbeat(self, run: WorkerRun) -> None:
        if run.is_master_lost():
            log.warning("the master has been silent for %g s: leaving its run", run.spec.lease_s)
            self._leave_run(discard=True)
            if self._options.once:
                self.stop(ExitCode.INFRASTRUCTURE)
            return
        now_ns = monotonic_ns()
        offset = self._clock.offset_at(now_ns)
        self._line.send_or_log(
            Heartbeat(
                epoch=run.epoch,
                token=run.token,
                taken=run.taken,
                sent_ns=now_ns,
                running=self._running,
                offset_ns=offset.offset_ns if offset is not None else 0,
                uncertainty_ns=offset.uncertainty_ns if offset is not None else -1,
            )
        )
        for frame in run.reports.overdue(monotonic()):
            self._line.send_again(frame)

    def _report(self, run: WorkerRun, message: ReportedMessage) -> None:
        """Send a message that must not be lost; log and drop it if the master would not accept it."""
        message.number = run.reports.last + 1
        try:
            frame = self._line.send(message)
        except ProtocolError:
            log.exception("a message was not sent")
            return
        run.reports.keep(frame, monotonic())

    def _report_worker_died(self, run: WorkerRun, reason: str) -> None:
        """Tell the master that the jobs of this worker will never be reported."""
        worker_id = self._options.worker_id
        self._report(run, WorkerDied(epoch=run.epoch, worker_id=worker_id, reason=clip(reason)))

    # -- messages of the master ---------------------------------------------------------------------------------

    def _on_heartbeat_ack(self, message: HeartbeatAck, now_ns: int) -> None:
        run = self._run
        if message.epoch != (run.epoch if run is not None else 0):
            return
        if run is not None:
            run.on_heartbeat_ack()
            run.reports.confirm(message.taken)
        self._clock.add(message, now_ns, admitted=run is not None)

    def _on_message(self, message: MasterControlMessage) -> None:
        run = self._run
        match message:
            case Welcome():
                self._welcome(message)
            case Dismiss() if run is None or message.epoch in (0, run.epoch):
                self._on_dismiss(message)
            case Credentials() if run is None and message.epoch == 0:
                self._kinds.credentials = message
            case Preflight() if run is None and message.epoch == 0:
                gevent.spawn(self._run_preflight, message)
            case Stop() if run is None and message.epoch == 0:
                # From a master without a run, to every worker that waits for one.
                self.stop()
            case MeasureSpeed() if run is not None and message.epoch == run.epoch:
                self._measure_speed(run, message)
            case Cleanup() if run is not None and message.epoch == run.epoch:
                self._on_cleanup(run)
            case Stop() if run is not None and message.epoch == run.epoch:
                self._leave_run(last=message.exit or self._options.once)
            case _:
                log.info("ignored a message %s of another epoch", type(message).__name__)

    def _run_preflight(self, message: Preflight) -> None:
        """Report which requirements this host does not meet; this may take as long as pulling an image."""
        engines = self._engine_catalog.refresh(message.engines)
        # Close the engines opened for an earlier master: their daemons may have changed since.
        self._preflight.close()
        # Skip unusable engines: their status says why.
        needs = [need for need in message.requirements if engines.get(need.engine, {}).get("usable")]
        reasons = self._preflight.find_missing(needs)
        reasons += self._kinds.find_problems(message.kinds)
        clipped = [clip(reason) for reason in reasons[:MAX_REASONS]]
        forbidden = [clip(reason) for reason in [*self._preflight.forbidden][:MAX_REASONS]]
        settings = find_setting_problems(message.settings, self._options.allow_host_settings)[:MAX_REASONS]
        told = self._preflight.with_digests(engines)
        absent = [
            AbsentProgram(clip(program), clip(reason))
            for reason, program in [*self._preflight.absent.items()][:MAX_REASONS]
        ]
        self._line.send_or_log(
            PreflightResult(
                epoch=0, reasons=clipped, forbidden=forbidden, engines=told, settings=settings, absent=absent
            )
        )

    def _welcome(self, message: Welcome) -> None:
        if self._run is not None or not self._load.ready:
            return
        self._clock.forget()
        self._run = run = WorkerRun(
            message, self._options.worker_id, partial(self._send_samples, message.epoch), self._options.run_file
        )
        try:
            run.begin()
        except Exception as error:
            log.exception("this worker cannot join a run")
            self._report_worker_died(run, f"it cannot join the run: {error}")
            self._leave_run()
            self.stop(ExitCode.INFRASTRUCTURE)
            return
        self._say(f"takes part in run {message.spec.run_id} of {message.spec.master}")
        # Who serves what jobs use is known by where it listens, whatever it is called.
        servers = listening_processes(LiveHostFiles(), self._kinds.server_ports)
        self._watch_contention(run, servers, self._check_neighbours(run, servers))
        run.watch_pressure(lambda: self._load.pid)
        if message.spec.overhead is not None:
            self._watch_engines(run, message.spec.overhead, self._kinds.variables(message.spec.run_id))
        if self._run is run:  # the clean-up in `begin` takes time: the run may be over by now
            self._load.start(start_message(self._options, message, self._kinds.variables(message.spec.run_id)))

    def _measure_speed(self, run: WorkerRun, message: MeasureSpeed) -> None:
        """Do the fixed work, as one worker of this host only; it blocks this process while nothing else happens."""
        run.read_pressure()
        reading = measure_speed() if run.leads_host() else SpeedReading(0, 0, 0)
        run.read_pressure()
        self._line.send_or_log(
            SpeedMeasured(
                epoch=run.epoch,
                trial=message.trial,
                time_ns=reading.time_ns,
                wall_ns=reading.wall_ns,
                cpu_ns=reading.cpu_ns,
            )
        )

    def _on_dismiss(self, message: Dismiss) -> None:
        if self._run is not None:
            log.warning("dismissed by the master: %s", message.reason)
            self._leave_run()
        else:
            log.info("not admitted: %s", message.reason)
        if message.final:
            log.error("refused by the master: %s", message.reason)
            self.stop(ExitCode.INFRASTRUCTURE)

    def _on_cleanup(self, run: WorkerRun) -> None:
        """Remove the run's leftovers from this host; results in transit are not affected."""
        if run.cleanup_begun:
            return  # asked again on a connection that was opened again
        run.cleanup_begun = True
        if run.spec.profile:
            content = self._load.profile()
            if content and self._run is run:
                self._report(run, ProfileReport(epoch=run.epoch, content=content))
        released = run.spec.keep or self._load.release()
        if not released and self._load.has_ended:
            # Its death is told instead, and another one goes on with the clean-up.
            self._wake_up.set()
            return
        if self._run is not run:
            return
        if run.contention is not None:
            run.contention.flush()
        run.read_pressure()
        run.sampling.flush()
        removed, problems = run.clean_up()
        if not released and self._kinds.in_use:  # containers are removed all the same
            problems.append(f"the load process did not remove what its jobs had left within {RELEASE_TIMEOUT_S:g} s")
        failed = [clip(problem, MAX_FAILURE_CHARS) for problem in problems[:MAX_REASONS]]
        # The last message of a run: the master may end the run when it receives it.
        self._report(run, CleanupDone(epoch=run.epoch, removed=removed, failed=failed))

    def _leave_run(self, *, discard: bool = False, last: bool = False) -> None:
        """Leave the run and end its load process; a fresh one starts for the next run, unless it was the `last`."""
        run, self._run = self._run, None
        if run is not None:
            self._say("the run is over")
        if last:
            self._load.retire()
        self._kinds.credentials = None
        self._clock.forget()
        self._load.end()
        self._wake_up.set()
        try:
            if run is not None and discard:
                run.discard()
        finally:
            if run is not None:
                run.end()
                self._preflight.close()
            if last:
                self.stop()

    # -- the load process ---------------------------------------------------------------------------------------

    def _check_load_process(self) -> None:
        reason = self._load.check()
        if reason is None:
            return
        run, self._run = self._run, None
        self._load.end()
        if run is not None:
            self._report_worker_died(run, f"its load process {reason}")
            run.discard()
            run.end()
            self._wake_up.set()
        elif self._load.cannot_start:
            log.error("the load process does not start; see the messages above")
            self.stop(ExitCode.INFRASTRUCTURE)

    def _on_load_process_message(self, message: ToAgent) -> None:
        match message:
            case Ready():
                self._wake_up.set()
            case LoadStatus():
                self._running = message.running
                if self._run is not None and message.loop is not None:
                    self._run.sampling.add("loop", msgspec.structs.asdict(message.loop), LOOP_SAMPLE_UNITS)
            case ProfileTaken() | ServicesReleased():
                pass  # the supervisor waits for these
            case LaneTaken():
                if self._run is not None:
                    self._run.taken = message.number
            case Progress():
                self._line.send_or_log(message)
            case _ if self._run is not None:
                self._report(self._run, message)

    # -- samples ------------------------------------------------------------------------------------------------

    def _send_samples(
        self, epoch: int, source: str, columns: dict[str, list[int | float]], units: dict[str, str]
    ) -> None:
        self._line.send_or_log(Samples(epoch=epoch, source=source, columns=columns, units=units))

    def _watch_contention(
        self, run: WorkerRun, servers: frozenset[int], processes: Mapping[int, ProcessStat]
    ) -> None:
        """Report who takes the CPU of this host while it has no idle CPU; `processes` are those of now."""

        def report(period: BusyPeriod) -> None:
            self._line.send_or_log(
                CpuContention(
                    epoch=run.epoch,
                    begin_ns=period.begin_ns,
                    end_ns=period.end_ns,
                    consumer=period.consumer,
                    pid=period.pid,
                    processes=period.processes,
                    consumer_ns=period.consumer_ns,
                    others_ns=period.others_ns,
                    cpus=os.cpu_count() or 1,
                )
            )

        run.watch_contention(self._family, self._measured_daemons(), servers, report, processes)

    def _measured_daemons(self) -> frozenset[str]:
        """Return the names of the processes that are measured here: engines', and those of servers that jobs use."""
        return daemon_names(self._engine_catalog.statuses) | self._kinds.server_processes

    def _check_neighbours(self, run: WorkerRun, servers: frozenset[int]) -> Mapping[int, ProcessStat]:
        """Report what else runs on this host, before anything of the run does; return all of its processes."""
        # A worker on a quick machine has joined before the kernel has counted anybody's CPU time.
        gevent.sleep(self._neighbours.missing_s())
        host = self._neighbours.end(self._measured_daemons(), servers)
        for one in neighbour_findings(host) if run.leads_host() else ():
            self._report(
                run,
                HostFinding(epoch=run.epoch, check=one.check, finding=clip(one.finding), advice=clip(one.advice)),
            )
        return host.processes_after

    def _watch_engines(self, run: WorkerRun, sampling: EngineSampling, variables: Mapping[str, str]) -> None:
        """Start sampling the engines that the master names, before the run creates any container."""

        def warn(text: str) -> None:
            self._report(run, RunWarning(epoch=run.epoch, text=clip(text)))

        if sampling.engines:
            processes = [name for name, group in sampling.engines.items() if not group]
            servers = self._kinds.cost_samplers(processes, variables, warn)
            engines = {name: group for name, group in sampling.engines.items() if name not in servers}
            samplers = engine_samplers(engines, daemon_processes, warn)
            samplers |= {f"{SOURCE}{name}": one for name, one in servers.items() if one is not None}
            run.sampling.start_sampling(samplers, sampling.interval_s)
