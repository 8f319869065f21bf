"""What workers say comes in: each message is held against who said it, and becomes an event or a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, monotonic_ns

from bench_common.errors import ProtocolError
from bench_common.messages import Message
from bench_master.coordinator import messages as ev
from bench_master.coordinator.roster import Member, Roster
from bench_master.plan import Plan
from bench_master.progress.quantities import one_line
from bench_master.run.fitness import assess
from bench_master.run.header import operation_names
from bench_master.run.hosts import Host, Hosts
from bench_master.run.inquiry import Inquiry
from bench_master.run.outbound import Courier
from bench_master.run.recorder import Recorder
from bench_master.run.remote_services import ServiceDesk
from bench_master.run.results import unpack


class Reception:
    """Takes in what the workers of a run say; what breaks the protocol raises `ProtocolError`.

    `handle(event)` is the coordinator's way in, `call_off(reasons, unusable)` ends a run that has not begun, `over()`
    says whether it is over.
    """

    def __init__(
        self,
        plan: Plan,
        roster: Roster,
        hosts: Hosts,
        recorder: Recorder,
        courier: Courier,
        services: ServiceDesk,
        *,
        noop: bool,
        handle: Callable[[ev.Event], None],
        call_off: Callable[[list[str], bool], None],
        over: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._roster = roster
        self._hosts = hosts
        self._recorder = recorder
        self._courier = courier
        self._services = services
        self._noop = noop
        self._handle = handle
        self._call_off = call_off
        self._over = over
        self._operation_counts = [len(operation_names(treatment)) for treatment in plan.treatments]
        self._treatment_of = [trial.treatment for trial in plan.trials]
        self._inquiry = Inquiry(
            () if noop else plan.treatments,
            lambda peer, needs, engines: courier.say(peer, "ask", 0, needs=needs, engines=engines),
            monotonic,
        )

    @property
    def awaits_answers(self) -> bool:
        """Whether a worker still sees to it that its host has what is needed."""
        return self._inquiry.open

    def control_came(self, peer: bytes, identity: str | None, message: Message, received_ns: int) -> None:
        """Take a control message in."""
        if message.type == "hello":
            self._hello(peer, identity, message, received_ns)
            return
        if message.type == "lacks":
            self._lacks(peer, identity, message)
            return
        member = self._roster.at_epoch(message.epoch)
        if member is None:
            if message.type == "beat":
                self._handle(ev.Heard(peer, message.epoch))
            return
        if member.peer != peer or member.identity != identity:
            raise ProtocolError(f"a message {message.type!r} in the epoch of another worker")
        if not self._admitted(identity):
            self._handle(ev.Gone(member.worker_id, "its key was revoked", message.epoch))
            self._dismiss(peer, "this key was revoked")
            return
        if message.type in ("want", "served"):
            take = self._services.wanted if message.type == "want" else self._services.served
            self._courier.send(take(member, message.fields))
            return
        self._member_said(member, message, received_ns)

    def result_came(self, identity: str | None, message: Message) -> None:
        """Take a batch of results in."""
        member = self._roster.at_epoch(message.epoch)
        if member is not None and member.identity != identity:
            raise ProtocolError("results in the epoch of another worker")
        batch = unpack(message, self._operation_counts, self._treatment_of)
        self._handle(ev.Finished(message.epoch, message["sequence"], batch.tickets, batch, batch.aborted))

    # -- members ------------------------------------------------------------------------------------------------

    def _member_said(self, member: Member, message: Message, received_ns: int) -> None:
        peer, host = member.peer, self._hosts[member.number]
        if message.type == "beat":
            self._beat(peer, member.epoch, host, message, received_ns)
        elif message.type == "gone":
            self._handle(ev.Gone(member.worker_id, message["reason"], message.epoch))
        elif message.type == "samples":
            columns = host.take_samples(message)
            units = {str(name): str(unit) for name, unit in message["units"].items()}
            self._recorder.samples(member.number, message["source"], columns, units)
        elif message.type == "packed":
            self._packed(member, message)
        elif message.type == "remark":
            self._recorder.warn(f"worker {member.worker_id}: {one_line(message['text'])}")
        elif message.type == "progress":
            host.said = message["text"]
        elif message.type == "profile":
            if self._courier.profiles is None:
                raise ProtocolError("a profile that was not asked for")
            self._courier.profiles.came(member.worker_id, message["content"])
        elif message.type == "swept":
            failed = [str(item)[:500] for item in message["failed"][:100]]
            self._handle(ev.Swept(peer, message.epoch, message["removed"], failed))

    def _beat(self, peer: bytes, epoch: int, host: Host, message: Message, received_ns: int) -> None:
        host.hear_clock(message["sent_ns"], received_ns)
        host.compare_clock(message, received_ns)
        self._handle(ev.Heard(peer, epoch, clock_known=host.clock_known))
        stamps = {"echo_ns": message["sent_ns"], "received_ns": received_ns, "sent_ns": monotonic_ns()}
        self._courier.say(peer, "pulse", epoch, **stamps)

    def _packed(self, member: Member, message: Message) -> None:
        returned = message["returned"]
        if not all(type(ticket) is int for ticket in returned):
            raise ProtocolError("tickets that are no whole numbers")
        fields = {name: message[name] for name in ("containers", "reason", "full", "hold_s", "memory_before")}
        self._handle(ev.Packed(member.epoch, message["trial"], returned, fields))

    # -- who asks to join ---------------------------------------------------------------------------------------

    def _hello(
        self,
        peer: bytes,
        identity: str | None,
        message: Message,
        received_ns: int,
        *,
        lacking: Sequence[str] = (),
        unusable: bool = False,
    ) -> None:
        """Take in who asks to join; `lacking` is what it has answered, `unusable` that an engine was at fault."""
        if not self._admitted(identity):
            self._dismiss(peer, "this key is not admitted")
            return
        info = message["info"]
        # Who a worker is follows from its key where there is one, never from what it says.
        worker_id = identity or message["worker_id"]
        if self._over() and self._courier.local(worker_id):
            # Never admitted, so nothing releases it; and the master waits for the end of its own workers.
            self._courier.say(peer, "stop", 0, exit=True)
            return
        fitness = assess(
            self._plan.treatments,
            environment=message["environment"],
            slots=message["slots"],
            info=info,
            noop=self._noop,
            worker_id=worker_id,
        )
        reasons = (*fitness.reasons, *lacking)
        if reasons and self._recorder.journal is not None:
            self._refuse(peer, worker_id, reasons, unusable=False)
            return
        # An engine may have been started, stopped or set up otherwise since the worker looked.
        if not self._inquiry.admits(peer, identity, message, received_ns, doubtful=bool(fitness.reasons)):
            return
        if reasons:
            self._refuse(peer, worker_id, reasons, unusable=fitness.unusable or unusable)
            return
        self._recorder.remarks |= dict.fromkeys(fitness.remarks)
        place = (peer, worker_id, message["environment"], message["slots"], identity, info)
        self._handle(ev.Hello(*place, clock_known=self._hosts.shares_our_clock(info)))
        member = self._roster.named(worker_id)
        if not self._over() and member is not None and member.peer == peer:
            self._hosts[member.number].hear_clock(message["sent_ns"], received_ns)

    def _lacks(self, peer: bytes, identity: str | None, message: Message) -> None:
        """Take in what a worker's host lacks, and go on with the hello that waited."""
        waited = self._inquiry.answered(peer, identity, message["engines"])
        if waited is None:
            raise ProtocolError("an answer to a question that was not asked")
        hello, received_ns = waited
        reasons = [str(reason)[:1000] for reason in message["reasons"][:100]]
        self._hello(peer, identity, hello, received_ns, lacking=reasons, unusable=message["unusable"])

    def _refuse(self, peer: bytes, worker_id: str, reasons: Sequence[str], *, unusable: bool) -> None:
        """Call the run off for a worker that cannot do what the plan asks, unless it has begun without it."""
        if self._recorder.journal is not None:
            # A run that has begun is not called off by whoever comes by and does not fit.
            self._dismiss(peer, "; ".join(reasons)[:1000])
            return
        self._call_off([f"worker {worker_id}: {reason}" for reason in reasons], unusable)

    def _admitted(self, identity: str | None) -> bool:
        return self._courier.board is None or self._courier.board.admits(identity)

    def _dismiss(self, peer: bytes, reason: str) -> None:
        self._courier.say(peer, "dismiss", 0, reason=reason, final=True)
