"""Turns the workers' messages into events for the coordinator, and into records.

Each message is checked against its sender. A worker that asks to join is admitted once its preflight check has found
what the plan needs on its host.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns
from typing import Protocol, TypeAlias, assert_never

from msgspec import Struct

from bench_common.errors import ProtocolError
from bench_common.messages import (
    CleanupDone,
    CpuContention,
    Dismiss,
    Heartbeat,
    HeartbeatAck,
    Hello,
    HostFinding,
    PackingReport,
    PopulationReport,
    PreflightResult,
    ProfileReport,
    Progress,
    ReportedMessage,
    Results,
    RunWarning,
    Samples,
    ServiceRequest,
    ServiceResult,
    SpeedMeasured,
    Stop,
    WorkerControlMessage,
    WorkerDied,
    clip,
)
from bench_common.requirements import AbsentProgram, SettingProblem
from bench_common.safe_text import one_line
from bench_master.coordinator import Coordinator
from bench_master.coordinator import messages as ev
from bench_master.coordinator.roster import Member
from bench_master.plan import Plan
from bench_master.run.dispatcher import Dispatcher
from bench_master.run.hosts import WorkerHost, WorkerHosts
from bench_master.run.incoming import EpochState
from bench_master.run.journal import operation_names
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.preflight import PreflightCheck, check_compatibility, setting_place
from bench_master.run.profiles import Profiles
from bench_master.run.recorder import Recorder
from bench_master.run.remote_services import ServiceBroker
from bench_master.run.results import first_positions, unpack_results
from bench_master.run.sockets import Sockets


class RunParts(Struct, frozen=True):
    """The parts of one run, which its session and message handler share; `run_plan` puts them together."""

    plan: Plan
    noop: bool
    coordinator: Coordinator
    sockets: Sockets
    """Receive messages from admitted keys."""
    hosts: WorkerHosts
    """The workers' names, clocks and load."""
    preflight: PreflightCheck
    """Asks workers whether their hosts have what the plan needs."""
    dispatcher: Dispatcher
    services: ServiceBroker
    """Services of jobs that run on another worker's host; pure."""
    recorder: Recorder
    """Records and shows what happens."""
    local_workers: LocalWorkers
    """The workers of this machine, none or more."""
    profiles: Profiles | None
    """Collects profiles; None without ``--profile``."""


class RunControl(Protocol):
    """What the message handler needs of the session."""

    @property
    def over(self) -> bool:
        """Whether the run is over."""

    def handle(self, event: ev.Event) -> None:
        """Pass an event to the coordinator, and carry out its actions."""

    def refuse(self, reasons: Sequence[str], *, unusable: bool) -> None:
        """End a run that has not begun; `unusable`: for want of an engine, an image or the like, not by its plan."""


MemberMessage: TypeAlias = (
    Heartbeat
    | WorkerDied
    | Samples
    | PackingReport
    | RunWarning
    | HostFinding
    | PopulationReport
    | CpuContention
    | SpeedMeasured
    | Progress
    | ServiceRequest
    | ServiceResult
    | ProfileReport
    | CleanupDone
)
"""What only an admitted worker sends."""


class MessageHandler:
    """Handles the messages of a run's workers; one that breaks the protocol raises `ProtocolError`."""

    def __init__(self, parts: RunParts, run: RunControl) -> None:
        self._parts = parts
        self._run = run
        self._roster = parts.coordinator.roster
        self._dispatcher = parts.dispatcher
        self._recorder = parts.recorder
        self._operation_counts = [len(operation_names(treatment)) for treatment in parts.plan.treatments]
        self._first_positions = {
            treatment.index: first_positions(operation_names(treatment))
            for treatment in parts.plan.treatments
            if treatment.job.does_one_operation
        }
        self._treatment_of = [trial.treatment for trial in parts.plan.trials]

    def epoch_state(self, epoch: int) -> EpochState:
        """Return whether an epoch is that of a member, or was."""
        if self._roster.by_epoch(epoch) is not None:
            return "current"
        return "ended" if self._roster.was_epoch(epoch) else "unknown"

    def on_broken(self, peer: bytes | None, identity: str | None, epoch: int, reason: str) -> None:
        """End the part of a worker whose message breaks the protocol: what else it sends is not to be trusted.

        Others can send messages in its epoch: those come from another address, or with another key. Outside of an
        epoch it is a hello, which a worker would repeat for ever.
        """
        if not epoch and peer is not None:
            self._dismiss(peer, reason)
            return
        member = self._roster.by_epoch(epoch)
        if member is None or member.identity != identity or peer not in (None, member.peer):
            return
        text = f"it broke the protocol: {reason}"
        self._run.handle(ev.WorkerDied(member.worker_id, text, epoch, barred=True))
        self._dismiss(member.peer, text)

    def on_control(self, peer: bytes, identity: str | None, message: WorkerControlMessage, received_ns: int) -> None:
        """Handle a control message."""
        match message:
            case Hello():
                self._on_hello(peer, identity, message, received_ns)
                return
            case PreflightResult():
                self._on_preflight_result(peer, identity, message)
                return
        member = self._roster.by_epoch(message.epoch)
        if member is None:
            if isinstance(message, Heartbeat):
                self._run.handle(ev.Heartbeat(peer, message.epoch))
            return
        if member.identity != identity:
            raise ProtocolError(f"message {type(message).__name__} in the epoch of another worker")
        if member.peer != peer and not self._is_proven(member, message):
            return
        if not self._parts.sockets.admits(identity):
            self._run.handle(ev.WorkerDied(member.worker_id, "its key was revoked", message.epoch))
            self._dismiss(peer, "this key was revoked")
            return
        if isinstance(message, ReportedMessage) and not member.reports.admit(message.number):
            return  # a repeat, or one after a gap: it is sent again
        self._on_member_message(peer, member, message, received_ns)

    def _is_proven(self, member: Member, message: MemberMessage) -> bool:
        """Return whether a member that seems to have opened its connection again did so, by its key or its token.

        Raises `ProtocolError` for a wrong token. What shows none is dropped: it is sent again after a heartbeat.
        """
        if member.identity is not None:
            return True
        if isinstance(message, Heartbeat) and not self._dispatcher.proves(member, message.token):
            raise ProtocolError("a heartbeat without the token of its epoch")
        return isinstance(message, Heartbeat)

    def on_results(self, identity: str | None, message: Results) -> None:
        """Handle a batch of results."""
        member = self._roster.by_epoch(message.epoch)
        if member is not None and member.identity != identity:
            raise ProtocolError("results in the epoch of another worker")
        if member is not None:
            self._dispatcher.confirm_orders(member, message.taken)
        batch = unpack_results(message, self._operation_counts, self._treatment_of, self._first_positions)
        self._run.handle(ev.ResultsReceived(message.epoch, message.sequence, batch.tickets, batch, batch.aborted))

    # -- members ------------------------------------------------------------------------------------------------

    def _on_member_message(  # noqa: C901, PLR0912  one case for each type of message
        self, peer: bytes, member: Member, message: MemberMessage, received_ns: int
    ) -> None:
        parts, host = self._parts, self._parts.hosts[member.number]
        match message:
            case Heartbeat():
                self._on_heartbeat(peer, member, host, message, received_ns)
            case WorkerDied():
                self._run.handle(ev.WorkerDied(member.worker_id, message.reason, message.epoch))
            case Samples():
                columns = host.convert_samples(message)
                self._recorder.samples(member.number, message.source, columns, message.units)
            case PackingReport():
                self._run.handle(message)
            case RunWarning():
                self._recorder.warn(f"worker {member.worker_id}: {one_line(message.text)}")
            case HostFinding():
                self._recorder.host_finding(member.number, message)
            case CpuContention():
                self._recorder.contention(member.number, message)
            case PopulationReport():
                self._on_population_report(host, message)
            case SpeedMeasured():
                self._recorder.speed(member.number, message)
                self._run.handle(message)
            case Progress():
                host.status_text = message.text
            case ServiceRequest():
                self._dispatcher.send_on_lanes(parts.services.on_request(member, message))
            case ServiceResult():
                self._dispatcher.send_on_lanes(parts.services.on_result(member, message))
            case ProfileReport():
                if parts.profiles is None:
                    raise ProtocolError("an unrequested profile")
                parts.profiles.add(member.worker_id, message.content)
            case CleanupDone():
                self._run.handle(ev.CleanupDone(member.peer, message.epoch, message.removed, message.failed))
            case _:
                assert_never(message)

    def _on_heartbeat(
        self, peer: bytes, member: Member, host: WorkerHost, message: Heartbeat, received_ns: int
    ) -> None:
        host.estimate_offset(message.sent_ns, received_ns)
        host.update_offset(message, received_ns)
        self._run.handle(ev.Heartbeat(peer, message.epoch, clock_known=host.clock_known, proven=True))
        self._dispatcher.confirm_orders(member, message.taken)
        self._dispatcher.repeat_orders(member)
        ack = HeartbeatAck(
            epoch=message.epoch,
            echo_ns=message.sent_ns,
            received_ns=received_ns,
            sent_ns=monotonic_ns(),
            taken=member.reports.taken,
        )
        self._dispatcher.send(peer, ack)

    def _on_population_report(self, host: WorkerHost, message: PopulationReport) -> None:
        if message.treatment >= len(self._parts.plan.treatments):
            raise ProtocolError(f"objects of treatment {message.treatment}, which the plan does not have")
        host.status_text = "" if message.over else _objects_text(message)
        self._run.handle(message)

    # -- workers that ask to join --------------------------------------------------------------------------------

    def _on_hello(
        self,
        peer: bytes,
        identity: str | None,
        message: Hello,
        received_ns: int,
        *,
        problems: Sequence[str] = (),
        forbidden: Sequence[str] = (),
        settings: Sequence[SettingProblem] = (),
        absent: Sequence[AbsentProgram] = (),
    ) -> None:
        """Admit or refuse a worker, given its preflight `problems`, and what it may not use, set or start."""
        if not self._parts.sockets.admits(identity):
            self._dismiss(peer, "this key is not admitted")
            return
        info = message.info
        # With keys, a worker is who its key says, whatever it claims.
        worker_id = identity or message.worker_id
        if self._run.over and worker_id in self._parts.local_workers.ids:
            # Never admitted, so no message would end it, and the master waits for its own workers to exit.
            self._dispatcher.send(peer, Stop(epoch=0, exit=True))
            return
        compatibility = check_compatibility(
            self._parts.plan.treatments,
            environment=message.environment,
            slots=message.slots,
            info=info,
            noop=self._parts.noop,
            worker_id=worker_id,
            places=self._parts.plan.setting_places,
            primary=self._parts.plan.primary,
        )
        faults = (*forbidden, *map(self._explain_setting, settings), *map(self._explain_program, absent))
        reasons = (*compatibility.reasons, *problems, *faults)
        if reasons and self._recorder.journal is not None:
            self._refuse(peer, worker_id, reasons, unusable=False)
            return
        # An engine may have been started, stopped or reconfigured since the worker examined it.
        if not self._parts.preflight.admits(
            peer, identity, message, received_ns, doubtful=bool(compatibility.reasons)
        ):
            return
        if reasons:
            self._refuse(peer, worker_id, reasons, unusable=compatibility.unusable or bool(problems))
            return
        for remark in compatibility.remarks:
            self._recorder.remark(remark)
        place = (peer, worker_id, message.environment, message.slots, identity, info)
        self._run.handle(ev.Hello(*place, clock_known=self._parts.hosts.shares_our_clock(info)))
        member = self._roster.find(worker_id)
        if not self._run.over and member is not None and member.peer == peer:
            self._parts.hosts[member.number].estimate_offset(message.sent_ns, received_ns)

    def _on_preflight_result(self, peer: bytes, identity: str | None, message: PreflightResult) -> None:
        """Take the result of a worker's preflight check, and go on with the hello that waited for it."""
        waited = self._parts.preflight.answered(peer, identity, message.engines)
        if waited is None:
            raise ProtocolError("an unrequested preflight answer")
        hello, received_ns = waited
        lacking, forbidden, settings = message.reasons, message.forbidden, message.settings
        self._on_hello(
            peer,
            identity,
            hello,
            received_ns,
            problems=lacking,
            forbidden=forbidden,
            settings=settings,
            absent=message.absent,
        )

    def _explain_setting(self, problem: SettingProblem) -> str:
        place = setting_place(self._parts.plan.setting_places, problem.name, problem.value)
        value = f": {problem.value!r}" if problem.value else ""
        return f"{place}host setting {problem.name}{value}: {problem.reason}"

    def _explain_program(self, problem: AbsentProgram) -> str:
        place = self._parts.plan.command_places.get(problem.program)
        # The scenario of `weigh` is no file of the user's.
        if place is None or place.startswith("<"):
            return problem.reason
        return f"{place}: {problem.reason}"

    def _refuse(self, peer: bytes, worker_id: str, reasons: Sequence[str], *, unusable: bool) -> None:
        """End the run because a worker cannot do what the plan asks; a run that has begun dismisses it."""
        if self._recorder.journal is not None:
            # A run that has begun goes on without a worker that cannot take part.
            self._dismiss(peer, "; ".join(reasons))
            return
        self._run.refuse([f"worker {worker_id}: {reason}" for reason in reasons], unusable=unusable)

    def _dismiss(self, peer: bytes, reason: str) -> None:
        self._dispatcher.send(peer, Dismiss(epoch=0, reason=clip(reason), final=True))


def _objects_text(message: PopulationReport) -> str:
    doing = "fills the store" if message.phase == "populate" else "deletes what the run stored"
    failed = f", {message.failed} failed" if message.failed else ""
    return f"{doing}: {message.objects + message.found} objects{failed}"
