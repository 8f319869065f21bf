"""Services on another worker than their jobs: requested through the master, and run here for the jobs of others.

Every request has a reply or a deadline. A job whose service's host is lost ends at once: its tool would only wait
for an answer. Requests for one service run one after the other, each with its own deadline; a removal does not wait
for a start that is under way.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

import gevent
from gevent.event import AsyncResult
from gevent.lock import RLock
from greenlet import greenlet

from bench_common.cli import authority
from bench_common.errors import ProtocolError, WeighbridgeError
from bench_common.records import ATTEMPT_SHIFT, JOB_ID, JobReport
from bench_common.requirements import (
    INSPECT,
    REMOVE,
    SERVICE_ACTIONS,
    SERVICE_FAILURE,
    SERVICE_LOST,
    START,
    STOP,
    STREAM_LIMIT,
    ServiceReply,
)
from bench_common.treatment import Guest, Treatment
from bench_worker.engines.base import Engine
from bench_worker.operation_runner import MAX_MESSAGE_CHARS
from bench_worker.services import (
    READY_POLL_S,
    CommandOutput,
    InterruptibleWait,
    ServiceFailed,
    ServiceSet,
    endpoint_placeholders,
)
from bench_worker.slots import JobAborted
from workloads.base import Service
from workloads.registry import workload
from workloads.script import CLEANUP_S, remote_service_limit_s

log = logging.getLogger(__name__)


CONNECT_TIMEOUT_S: Final = 10.0
"""How long it is tried to reach a service that is ready, in seconds."""

_DISCONNECTED: Final = "its worker cannot be asked any more: this one has left the run"

RequestKey: TypeAlias = tuple[int, str, str]
"""The ticket of the job that a service was made for, the service's name, the act."""


class NoReply(Exception):
    """Nobody said what came of an act: why not."""


class RemoteServiceRequests:
    """What is wanted of other workers, and what has come of it.

    `send` gets the fields of a `want`; `interrupt(slot, still)` ends what a slot only waits for, if it is `still` so.
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any]], None],
        interrupt: Callable[[greenlet, Callable[[], bool]], None],
    ) -> None:
        self._send = send
        self._interrupt = interrupt
        self._open: dict[RequestKey, AsyncResult[ServiceReply]] = {}
        self._clients: dict[tuple[int, str], RemoteServiceClient] = {}
        self._disconnected = False

    def run(self, borrowed: RemoteServiceClient, act: str, limit_s: float) -> ServiceReply:
        """Have an act done on a service; return what came of it. Raises `NoReply` where nothing does in time."""
        if self._disconnected:
            raise NoReply(_DISCONNECTED)
        key = (borrowed.ticket, borrowed.service.name, act)
        answer = self._open[key] = AsyncResult()
        self._send(borrowed.errand(act))
        try:
            supplied = answer.get(timeout=limit_s)
        except gevent.Timeout as late:
            raise NoReply(f"there is no answer from {borrowed.place!r} within {limit_s:g} s") from late
        finally:
            self._open.pop(key, None)
        assert supplied is not None
        return supplied

    def hold(self, borrowed: RemoteServiceClient) -> None:
        """Remember who uses a service, so that it learns of its loss."""
        self._clients[borrowed.ticket, borrowed.service.name] = borrowed

    def unregister(self, borrowed: RemoteServiceClient) -> None:
        """Forget it."""
        self._clients.pop((borrowed.ticket, borrowed.service.name), None)

    def came(self, ticket: int, service: str, act: str, supplied: ServiceReply) -> None:
        """Take in what came of an act, or that a service is lost. What nobody waits for any more is dropped."""
        if act == SERVICE_LOST:
            borrowed = self._clients.get((ticket, service))
            if borrowed is not None:
                self._mark_lost(borrowed, supplied.problem)
            return
        answer = self._open.get((ticket, service, act))
        if answer is not None:
            answer.set(supplied)

    def disconnect(self) -> None:
        """Take in that no answer comes any more: those who wait for one, and whoever asks from here on, are told."""
        self._disconnected = True
        for answer in self._open.values():
            answer.set_exception(NoReply(_DISCONNECTED))

    def _mark_lost(self, borrowed: RemoteServiceClient, reason: str) -> None:
        borrowed.lost = reason
        slot = borrowed.slot
        if slot is not None:
            # When it comes to it, the slot may be at another job already.
            self._interrupt(slot, lambda: borrowed.slot is slot)
        for act in (INSPECT, STOP, REMOVE):
            answer = self._open.get((borrowed.ticket, borrowed.service.name, act))
            if answer is not None:
                answer.set_exception(NoReply(reason))


class RemoteServiceClient:
    """One service of one job, that runs on another worker. `lost` says why it is no more, once that is so."""

    def __init__(
        self,
        errands: RemoteServiceRequests,
        treatment: Treatment,
        service: Service,
        ticket: int,
    ) -> None:
        self._requests = errands
        self._treatment = treatment
        self.service = service
        self.ticket = ticket
        self.place = treatment.placement[service.name]
        self.words: dict[str, str] = {}
        self.lost: str | None = None
        self.slot: greenlet | None = None
        self._start_requested = False

    def errand(self, act: str) -> dict[str, Any]:
        """Return the fields of the message that wants an act done."""
        return {
            "treatment": self._treatment.index,
            "service": self.service.name,
            "ticket": self.ticket,
            "act": act,
        }

    def start(self, wait: InterruptibleWait) -> CommandOutput:
        """Have it started, wait until it is ready there and reached from here; return what its check printed.

        Raises `ServiceFailed`, or `JobAborted` where the job is called off meanwhile.
        """
        name = self.service.name
        self.lost, self.slot, self._start_requested = None, gevent.getcurrent(), True
        self._requests.hold(self)
        limit_s = remote_service_limit_s(self._treatment, self.service)
        try:
            supplied = wait(partial(self._requests.run, self, START, limit_s))
        except NoReply as silence:
            raise ServiceFailed(name, f"{name} could not be started: {silence}") from silence
        if supplied.problem:
            log = ((name, supplied.stdout, supplied.stderr, 0, supplied.truncated),)
            raise ServiceFailed(name, supplied.problem[:MAX_MESSAGE_CHARS], log, supplied.kind or SERVICE_FAILURE)
        self._await_reachable(supplied.address, supplied.port, wait)
        self.words = endpoint_placeholders(name, supplied.address, supplied.port)
        return (f"{name}-ready", supplied.stdout, supplied.stderr, 0, supplied.truncated)

    def stop(self) -> str | None:
        """Have it stopped, so that it keeps what it holds; return what went wrong."""
        self.slot = None
        return self._done(STOP, self.service.stop_s + self._treatment.timeout_s + CLEANUP_S)

    def remove(self) -> str | None:
        """Have it removed; return what went wrong. Where its host is lost, that is for its own worker to see to."""
        self.slot = None
        if not self._start_requested or self.lost is not None:
            self._requests.unregister(self)
            return None
        self._start_requested = False
        problem = self._done(REMOVE, self.service.stop_s + self._treatment.timeout_s + CLEANUP_S)
        self._requests.unregister(self)
        return problem

    def explain_failure(self, report: JobReport) -> None:
        """Say in the report of a job that failed whether the service had ended by then, and keep its log."""
        if self.lost is not None:
            return
        name = self.service.name
        try:
            seen = self._requests.run(self, INSPECT, 2 * self._treatment.timeout_s)
        except NoReply:
            return
        report.outputs = [*(report.outputs or ()), (name, seen.stdout, seen.stderr, 0, seen.truncated)]
        if seen.problem and report.error is not None:
            _, _, said = report.error
            report.error = (
                name,
                seen.kind or SERVICE_FAILURE,
                f"{name} {seen.problem} during the job; {said}"[:MAX_MESSAGE_CHARS],
            )

    def _done(self, act: str, limit_s: float) -> str | None:
        if self.lost is not None:
            return self.lost
        try:
            problem = self._requests.run(self, act, limit_s).problem
        except NoReply as silence:
            # Where it was lost meanwhile, that is told already.
            return None if self._is_lost() else f"{self.service.name}: {silence}"
        return problem or None

    def _is_lost(self) -> bool:
        return self.lost is not None

    def _await_reachable(self, host: str, port: int, wait: InterruptibleWait) -> None:
        """Wait until a connection stands: a firewall, or a wrong address, is not the benchmark's to find."""
        deadline = monotonic() + CONNECT_TIMEOUT_S
        while True:
            try:
                return wait(partial(_connect, host, port, max(READY_POLL_S, deadline - monotonic())))
            except OSError as error:
                if monotonic() >= deadline:
                    text = (
                        f"{self.service.name} is ready at {self.place!r}, but is not reached from here at "
                        f"{authority(host, port)}: {error}"
                    )
                    raise ServiceFailed(self.service.name, text[:MAX_MESSAGE_CHARS]) from error
            wait(partial(gevent.sleep, READY_POLL_S))


def _connect(host: str, port: int, timeout_s: float) -> None:
    socket.create_connection((host, port), timeout=timeout_s).close()


def reply_from_fields(fields: dict[str, Any]) -> ServiceReply:
    """Return what came of an act from the fields of a message."""
    return ServiceReply(**{name: fields[name] for name in asdict(ServiceReply())})


ResultT = TypeVar("ResultT")

CANCELLED: Final = "it was called off before it was ready"


class RemoteServiceHost:
    """The services that this worker lends. `engine_of` gives a treatment's engine, `tell` gets what came of an act.

    `address` is where other hosts reach this one (an IP address). With `keep` none is removed.
    """

    def __init__(
        self,
        treatments: Mapping[int, Treatment],
        engine_of: Callable[[Treatment], Engine],
        tell: Callable[[dict[str, Any]], None],
        *,
        prefix: str,
        address: str,
        keep: bool,
    ) -> None:
        self._treatments = treatments
        self._engine_for = engine_of
        self._tell = tell
        self._prefix = prefix
        self._address = address
        self._keep = keep
        self._hosted: dict[tuple[int, str], _HostedService] = {}

    def serve(self, treatment: int, service: str, ticket: int, act: str) -> None:
        """Begin an act on a service; `tell` gets what came of it. Raises `ProtocolError` on what was not agreed."""
        known = self._treatments.get(treatment)
        if (
            known is None
            or service not in known.placement
            or act not in SERVICE_ACTIONS
            or not isinstance(known.job, Guest)
        ):
            raise ProtocolError(f"{act!r} for the service {service!r} of treatment {treatment}, which is not placed")
        key = (ticket, service)
        if act == START and key not in self._hosted:
            self._hosted[key] = _HostedService(partial(self._make, known, service, ticket))
        errand = {"treatment": treatment, "service": service, "ticket": ticket, "act": act}
        gevent.spawn(self._serve, errand, self._hosted.get(key))

    def release(self) -> None:
        """Remove all that is lent: nobody will ask for it any more."""
        lent, self._hosted = list(self._hosted.values()), {}
        for one in lent:
            if not self._keep:
                one.cancel()
                self._done(one, REMOVE)

    def _serve(self, errand: dict[str, Any], lent: _HostedService | None) -> None:
        act = errand["act"]
        if act == REMOVE:
            self._hosted.pop((errand["ticket"], errand["service"]), None)
            if lent is not None:
                lent.cancel()
        if lent is None:
            supplied = (
                ServiceReply()
                if act == REMOVE
                else ServiceReply(kind=SERVICE_FAILURE, problem="was never started here")
            )
        elif act == REMOVE and self._keep:
            supplied = ServiceReply()
        else:
            supplied = self._done(lent, act)
        self._tell({**errand, **asdict(supplied)})

    def _done(self, lent: _HostedService, act: str) -> ServiceReply:
        try:
            return lent.do(act)
        except WeighbridgeError as error:
            return ServiceReply(kind=SERVICE_FAILURE, problem=str(error)[:MAX_MESSAGE_CHARS])
        except Exception as error:  # a worker must outlive what an engine does; what was caught is reported
            log.exception("a service that is lent broke its engine")
            return ServiceReply(kind="internal", problem=f"{type(error).__name__}: {error}"[:MAX_MESSAGE_CHARS])

    def _make(self, treatment: Treatment, name: str, ticket: int) -> ServiceSet:
        assert isinstance(treatment.job, Guest)
        guest = workload(treatment.job.workload)
        return ServiceSet(
            self._engine_for(treatment),
            treatment,
            guest,
            f"{self._prefix}{ticket & JOB_ID}-{ticket >> ATTEMPT_SHIFT}",
            ticket,
            services=[service for service in guest.services if service.name == name],
            outside=self._address,
        )


class _HostedService:
    """One service, which `make` makes when it is started first."""

    def __init__(self, make: Callable[[], ServiceSet]) -> None:
        self._make = make
        self._service_set: ServiceSet | None = None
        self._turn = RLock()
        self._waiting: greenlet | None = None
        self._called_off = False

    def cancel(self) -> None:
        """End a start that is under way, if one only waits; the next act then has its turn."""
        self._called_off = True
        if self._waiting is not None:
            gevent.get_hub().loop.run_callback(self._interrupt, self._waiting)

    def do(self, act: str) -> ServiceReply:
        """Do an act, once those before it are done."""
        with self._turn:
            if act == START:
                return self._start()
            if self._service_set is None:
                return ServiceReply()
            if act == STOP:
                return _problem_reply(self._service_set.stop())
            if act == REMOVE:
                return _problem_reply(self._service_set.remove())
            assert act == INSPECT
            (log_of,) = self._service_set.logs()
            kind, end = self._service_set.describe_exit(log_of[0]) or ("", "")
            return _with_output(log_of, ServiceReply(kind=kind, problem=end))

    def _start(self) -> ServiceReply:
        try:
            if self._called_off:
                raise JobAborted
            if self._service_set is None:
                self._service_set = self._make()
            (printed,) = self._service_set.start(self._wait)
        except JobAborted:
            return ServiceReply(kind=SERVICE_FAILURE, problem=CANCELLED)
        except ServiceFailed as failure:
            failed = ServiceReply(kind=failure.kind, problem=str(failure))
            return _with_output(failure.outputs[0], failed) if failure.outputs else failed
        host, port, _ = self._service_set.words.values()
        return _with_output(printed, ServiceReply(host, int(port)))

    def _wait(self, call: Callable[[], ResultT]) -> ResultT:
        if self._called_off:
            raise JobAborted
        self._waiting = gevent.getcurrent()
        try:
            return call()
        finally:
            self._waiting = None

    def _interrupt(self, waiting: greenlet) -> None:
        # It may have got on in the meantime, to what must not be interrupted.
        if waiting is self._waiting:
            waiting.throw(JobAborted)


def _problem_reply(text: str | None) -> ServiceReply:
    return ServiceReply() if text is None else ServiceReply(kind=SERVICE_FAILURE, problem=text)


def _with_output(output: CommandOutput, supplied: ServiceReply) -> ServiceReply:
    """Return `supplied` with the beginning of what a service, or its check, printed."""
    _, stdout, stderr, _, truncated = output
    cut = len(stdout) > STREAM_LIMIT or len(stderr) > STREAM_LIMIT
    return ServiceReply(
        supplied.address,
        supplied.port,
        supplied.kind,
        supplied.problem,
        stdout[:STREAM_LIMIT],
        stderr[:STREAM_LIMIT],
        truncated or cut,
    )
