"""What workers say comes in: each message is held against who said it, and becomes an event or a record.

Whether a worker can do what the plan asks of it: looked at when it joins, before anything runs.

What a worker says of itself is not trusted to have the right shape; what it does not say, it cannot do.

What a worker is asked before it is admitted: whether its host has what the plan's containers need.

Hellos wait here for the answer. It takes a worker a few milliseconds, or as long as copying an image does. What a
hello says of engines may be as old as its worker: with the answer comes what those of the plan are like now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, monotonic_ns
from typing import Any, Final

from bench_common.errors import ProtocolError
from bench_common.messages import Message
from bench_common.requirements import (
    engines_for_worker,
    ignored_settings,
    local_services,
    requirements_for_worker,
    services_hosted_by,
    unsupported_features,
)
from bench_common.treatment import ContainerSettings, Treatment
from bench_master.coordinator import messages as ev
from bench_master.coordinator.roster import Member, Roster
from bench_master.formatting import one_line, plural
from bench_master.plan import Plan
from bench_master.run.dispatcher import Dispatcher
from bench_master.run.hosts import WorkerHost, WorkerHosts
from bench_master.run.journal import operation_names
from bench_master.run.recorder import Recorder
from bench_master.run.remote_services import ServiceBroker
from bench_master.run.results import unpack_results


@dataclass(frozen=True, slots=True)
class Compatibility:
    """What stands against a worker: `reasons` (empty: fit), and whether an engine is not usable on its host.

    `remarks` are settings that have no meaning for an engine of the plan, and are left out there.
    """

    reasons: tuple[str, ...] = ()
    unusable: bool = False
    remarks: tuple[str, ...] = ()


def check(
    treatments: Sequence[Treatment],
    *,
    environment: str,
    slots: int,
    info: Mapping[str, Any],
    noop: bool,
    worker_id: str = "",
) -> Compatibility:
    """Hold the treatments of an environment against a worker's slots and engines (`info` is from its hello).

    So are the services that it has to lend to the jobs of others.
    """
    reasons: dict[str, None] = {}
    remarks: dict[str, None] = {}
    unusable = False
    told = info.get("engines")
    engines: Mapping[str, Any] = told if isinstance(told, dict) else {}
    for treatment in treatments:
        lent = {} if noop else services_hosted_by(treatment, worker_id, environment)
        takes = treatment.environment in (None, environment)
        if not takes and not lent:
            continue
        if takes and treatment.concurrency > slots:
            asked, there = plural(treatment.concurrency, "job"), plural(slots, "slot")
            reasons[f"{asked} in flight asked for, and it has {there} (-c)"] = None
        if noop:
            continue
        status = engines.get(treatment.engine)
        if not isinstance(status, dict):
            reasons[f"it does not know the engine {treatment.engine!r}"] = None
        elif not status.get("usable"):
            unusable = True
            advice = f"; {status['advice']}" if status.get("advice") else ""
            reasons[f"engine {treatment.engine} cannot be used: {status.get('reason')}{advice}"] = None
        else:
            here = _local_part(treatment, lent, takes=takes)
            reasons |= dict.fromkeys(unsupported_features(status, here))
            reasons |= dict.fromkeys(_check_mounts(here, info, status))
            reasons |= dict.fromkeys(_check_swap(here, info))
            remarks |= dict.fromkeys(ignored_settings(status, here))
    return Compatibility(tuple(reasons), unusable, tuple(remarks))


def _local_part(treatment: Treatment, lent: Mapping[str, ContainerSettings], *, takes: bool) -> Treatment:
    """Return what of a treatment is done on a worker's host: its jobs with what is beside them, what it lends."""
    if not treatment.placement:
        return treatment
    if takes:
        return replace(treatment, services={**local_services(treatment), **lent})
    return replace(treatment, container=ContainerSettings(), services=dict(lent), swap="as-is")


def _check_mounts(treatment: Treatment, info: Mapping[str, Any], status: Mapping[str, Any]) -> list[str]:
    if info.get("allow_host_mounts"):
        return []
    containers = (treatment.container, *treatment.services.values())
    sources = [mount.source for one in containers for mount in one.storage if mount.kind == "host" and mount.source]
    if treatment.container.rootfs and "rootfs" not in status.get("inapplicable", ()):
        sources.append(treatment.container.rootfs)
    return [f"host directory {source} may not be mounted: start it with --allow-host-mounts" for source in sources]


def _check_swap(treatment: Treatment, info: Mapping[str, Any]) -> list[str]:
    fingerprint = info.get("fingerprint")
    none = isinstance(fingerprint, dict) and fingerprint.get("swap") == 0
    if treatment.swap == "as-is" or none or info.get("allow_swapoff"):
        return []
    return ["swap may not be switched off: start it with --allow-swapoff, or let it be with `swap: as-is`"]


PREFLIGHT_TIMEOUT_S: Final = 300.0
"""How long a worker may take to answer, in seconds."""
HELLO_TIMEOUT_S: Final = 5.0
"""A worker that waits repeats its hello twice a second; one that has been silent for so long is no more."""


@dataclass(slots=True)
class _PendingHello:
    """A hello that waits, as it came last: with the connection's identity, and when it came (ns)."""

    sent_s: float
    last_heard_s: float
    identity: str | None
    hello: Message
    received_ns: int


class Preflight:
    """Who was asked, and who has what it takes.

    `ask(peer, needs, engines)` sends the question, `clock()` gives seconds.
    """

    def __init__(
        self,
        treatments: Sequence[Treatment],
        ask: Callable[[bytes, list[dict[str, str | None]], list[str]], None],
        clock: Callable[[], float],
    ) -> None:
        self._treatments = treatments
        self._ask = ask
        self._clock = clock
        self._waiting: dict[bytes, _PendingHello] = {}
        self._cleared: set[bytes] = set()

    def admits(
        self, peer: bytes, identity: str | None, hello: Message, received_ns: int, *, doubtful: bool = False
    ) -> bool:
        """Say whether this worker has answered, or has not to: nothing is needed, and its hello is not `doubtful`.

        If it was not asked yet, it is, and its hello is kept.
        """
        who = (self._treatments, hello["environment"], identity or hello["worker_id"])
        needs, engines = requirements_for_worker(*who), engines_for_worker(*who)
        if peer in self._cleared or not (needs or (doubtful and engines)):
            return True
        now = self._clock()
        self._forget(now)
        kept = self._waiting.get(peer)
        if kept is None:
            self._ask(peer, [need.to_wire() for need in needs], engines)
        asked_s = now if kept is None else kept.sent_s
        self._waiting[peer] = _PendingHello(asked_s, now, identity, hello, received_ns)
        return False

    def answered(self, peer: bytes, identity: str | None, engines: Mapping[str, Any]) -> tuple[Message, int] | None:
        """Note an answer; return the hello that waited for it, with these engines in it, and when that came (ns).

        None where this worker was not asked.
        """
        kept = self._waiting.get(peer)
        if kept is None or kept.identity != identity:
            return None
        del self._waiting[peer]
        self._cleared.add(peer)
        told = kept.hello["info"].get("engines")
        if isinstance(told, dict):
            told |= engines
        return kept.hello, kept.received_ns

    def _forget(self, now: float) -> None:
        """Drop hellos whose connection has been gone for longer than any answer takes."""
        gone = [peer for peer, kept in self._waiting.items() if now - kept.last_heard_s > PREFLIGHT_TIMEOUT_S]
        for peer in gone:
            del self._waiting[peer]

    @property
    def open(self) -> bool:
        """Whether an answer is awaited that may still come."""
        now = self._clock()
        return any(
            now - kept.sent_s < PREFLIGHT_TIMEOUT_S and now - kept.last_heard_s < HELLO_TIMEOUT_S
            for kept in self._waiting.values()
        )


class MessageHandler:
    """Takes in what the workers of a run say; what breaks the protocol raises `ProtocolError`.

    `handle(event)` is the coordinator's way in, `call_off(reasons, unusable)` ends a run that has not begun, `over()`
    says whether it is over.
    """

    def __init__(
        self,
        plan: Plan,
        roster: Roster,
        hosts: WorkerHosts,
        recorder: Recorder,
        courier: Dispatcher,
        services: ServiceBroker,
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
        self._dispatcher = courier
        self._services = services
        self._noop = noop
        self._handle = handle
        self._cancel_run = call_off
        self._over = over
        self._operation_counts = [len(operation_names(treatment)) for treatment in plan.treatments]
        self._treatment_of = [trial.treatment for trial in plan.trials]
        self._preflight = Preflight(
            () if noop else plan.treatments,
            lambda peer, needs, engines: courier.say(peer, "ask", 0, needs=needs, engines=engines),
            monotonic,
        )

    @property
    def preflight_pending(self) -> bool:
        """Whether a worker still sees to it that its host has what is needed."""
        return self._preflight.open

    def on_control(self, peer: bytes, identity: str | None, message: Message, received_ns: int) -> None:
        """Take a control message in."""
        if message.type == "hello":
            self._on_hello(peer, identity, message, received_ns)
            return
        if message.type == "lacks":
            self._on_preflight_result(peer, identity, message)
            return
        member = self._roster.by_epoch(message.epoch)
        if member is None:
            if message.type == "beat":
                self._handle(ev.Heartbeat(peer, message.epoch))
            return
        if member.peer != peer or member.identity != identity:
            raise ProtocolError(f"a message {message.type!r} in the epoch of another worker")
        if not self._is_admitted(identity):
            self._handle(ev.WorkerDied(member.worker_id, "its key was revoked", message.epoch))
            self._dismiss(peer, "this key was revoked")
            return
        if message.type in ("want", "served"):
            take = self._services.on_request if message.type == "want" else self._services.served
            self._dispatcher.send(take(member, message.fields))
            return
        self._on_member_message(member, message, received_ns)

    def on_results(self, identity: str | None, message: Message) -> None:
        """Take a batch of results in."""
        member = self._roster.by_epoch(message.epoch)
        if member is not None and member.identity != identity:
            raise ProtocolError("results in the epoch of another worker")
        batch = unpack_results(message, self._operation_counts, self._treatment_of)
        self._handle(ev.ResultsReceived(message.epoch, message["sequence"], batch.tickets, batch, batch.aborted))

    # -- members ------------------------------------------------------------------------------------------------

    def _on_member_message(self, member: Member, message: Message, received_ns: int) -> None:
        peer, host = member.peer, self._hosts[member.number]
        if message.type == "beat":
            self._beat(peer, member.epoch, host, message, received_ns)
        elif message.type == "gone":
            self._handle(ev.WorkerDied(member.worker_id, message["reason"], message.epoch))
        elif message.type == "samples":
            columns = host.convert_samples(message)
            units = {str(name): str(unit) for name, unit in message["units"].items()}
            self._recorder.samples(member.number, message["source"], columns, units)
        elif message.type == "packed":
            self._packed(member, message)
        elif message.type == "remark":
            self._recorder.warn(f"worker {member.worker_id}: {one_line(message['text'])}")
        elif message.type == "progress":
            host.said = message["text"]
        elif message.type == "profile":
            if self._dispatcher.profiles is None:
                raise ProtocolError("a profile that was not asked for")
            self._dispatcher.profiles.came(member.worker_id, message["content"])
        elif message.type == "swept":
            failed = [str(item)[:500] for item in message["failed"][:100]]
            self._handle(ev.CleanupDone(peer, message.epoch, message["removed"], failed))

    def _beat(self, peer: bytes, epoch: int, host: WorkerHost, message: Message, received_ns: int) -> None:
        host.estimate_offset(message["sent_ns"], received_ns)
        host.update_offset(message, received_ns)
        self._handle(ev.Heartbeat(peer, epoch, clock_known=host.clock_known))
        stamps = {"echo_ns": message["sent_ns"], "received_ns": received_ns, "sent_ns": monotonic_ns()}
        self._dispatcher.say(peer, "pulse", epoch, **stamps)

    def _packed(self, member: Member, message: Message) -> None:
        returned = message["returned"]
        if not all(type(ticket) is int for ticket in returned):
            raise ProtocolError("tickets that are no whole numbers")
        fields = {name: message[name] for name in ("containers", "reason", "full", "hold_s", "memory_before")}
        self._handle(ev.PackingReported(member.epoch, message["trial"], returned, fields))

    # -- who asks to join ---------------------------------------------------------------------------------------

    def _on_hello(
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
        if not self._is_admitted(identity):
            self._dismiss(peer, "this key is not admitted")
            return
        info = message["info"]
        # Who a worker is follows from its key where there is one, never from what it says.
        worker_id = identity or message["worker_id"]
        if self._over() and self._dispatcher.local(worker_id):
            # Never admitted, so nothing releases it; and the master waits for the end of its own workers.
            self._dispatcher.say(peer, "stop", 0, exit=True)
            return
        fitness = check(
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
        if not self._preflight.admits(peer, identity, message, received_ns, doubtful=bool(fitness.reasons)):
            return
        if reasons:
            self._refuse(peer, worker_id, reasons, unusable=fitness.unusable or unusable)
            return
        self._recorder.remarks |= dict.fromkeys(fitness.remarks)
        place = (peer, worker_id, message["environment"], message["slots"], identity, info)
        self._handle(ev.Hello(*place, clock_known=self._hosts.shares_our_clock(info)))
        member = self._roster.named(worker_id)
        if not self._over() and member is not None and member.peer == peer:
            self._hosts[member.number].estimate_offset(message["sent_ns"], received_ns)

    def _on_preflight_result(self, peer: bytes, identity: str | None, message: Message) -> None:
        """Take in what a worker's host lacks, and go on with the hello that waited."""
        waited = self._preflight.answered(peer, identity, message["engines"])
        if waited is None:
            raise ProtocolError("an answer to a question that was not asked")
        hello, received_ns = waited
        reasons = [str(reason)[:1000] for reason in message["reasons"][:100]]
        self._on_hello(peer, identity, hello, received_ns, lacking=reasons, unusable=message["unusable"])

    def _refuse(self, peer: bytes, worker_id: str, reasons: Sequence[str], *, unusable: bool) -> None:
        """Call the run off for a worker that cannot do what the plan asks, unless it has begun without it."""
        if self._recorder.journal is not None:
            # A run that has begun is not called off by whoever comes by and does not fit.
            self._dismiss(peer, "; ".join(reasons)[:1000])
            return
        self._cancel_run([f"worker {worker_id}: {reason}" for reason in reasons], unusable)

    def _is_admitted(self, identity: str | None) -> bool:
        return self._dispatcher.board is None or self._dispatcher.board.admits(identity)

    def _dismiss(self, peer: bytes, reason: str) -> None:
        self._dispatcher.say(peer, "dismiss", 0, reason=reason, final=True)
