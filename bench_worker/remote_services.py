"""Services on a different worker than their jobs: requests of jobs here, and services that run here for others.

The master forwards requests and replies. Every request ends with a reply or at its deadline. When the host of a
service is lost, the job ends at once: its tool would only wait for an answer. Requests for one service run one after
the other, each with its own deadline; a removal does not wait for a running start.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Final, TypeAlias, TypeVar

import gevent
from gevent.event import AsyncResult
from gevent.lock import RLock
from greenlet import greenlet

from bench_common.argument_types import authority
from bench_common.errors import ProtocolError, WeighbridgeError
from bench_common.job_rules import CLEANUP_S
from bench_common.messages import ServiceCommand, clip
from bench_common.records import ATTEMPT_SHIFT, JOB_ID, JobReport
from bench_common.requirements import (
    INSPECT,
    MAX_SERVICE_ERROR_CHARS,
    REMOVE,
    SERVICE_FAILURE,
    SERVICE_LOST,
    START,
    STOP,
    STREAM_LIMIT,
    RequestedAction,
    ServiceAction,
    ServiceOutcome,
)
from bench_common.safe_text import shorten
from bench_common.treatment import Treatment
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
from bench_workloads.base import Service
from bench_workloads.guest import guest_rules, remote_service_limit_s

log = logging.getLogger(__name__)


CONNECT_TIMEOUT_S: Final = 10.0
"""How long to try to connect to a service that is ready, in seconds."""

_DISCONNECTED: Final = "its worker cannot be asked any more: this one has left the run"

RequestKey: TypeAlias = tuple[int, str, ServiceAction]
"""The ticket of the job that a service was started for, the service's name, the action."""
SendRequest: TypeAlias = Callable[[int, str, int, RequestedAction], None]
"""Sends a request: the treatment, the service, the job's ticket, the action."""
SendOutcome: TypeAlias = Callable[[ServiceCommand, ServiceOutcome], None]
"""Sends the outcome of a command."""


class NoReply(Exception):
    """An action has no outcome; the text says why."""


class RemoteServiceRequests:
    """Requests to services on other workers, and their outcomes.

    `interrupt(slot, still)` schedules an interrupt of a slot that only waits; it needs `still()` to be true by then.
    """

    def __init__(
        self,
        send: SendRequest,
        interrupt: Callable[[greenlet, Callable[[], bool]], None],
    ) -> None:
        self._send = send
        self._interrupt = interrupt
        self._open: dict[RequestKey, AsyncResult[ServiceOutcome]] = {}
        self._clients: dict[tuple[int, str], RemoteServiceClient] = {}
        self._disconnected = False

    def run(self, client: RemoteServiceClient, action: RequestedAction, limit_s: float) -> ServiceOutcome:
        """Request an action on a service; return its outcome. Raises `NoReply` if none arrives in time."""
        if self._disconnected:
            raise NoReply(_DISCONNECTED)
        key: RequestKey = (client.ticket, client.service.name, action)
        answer = self._open[key] = AsyncResult()
        self._send(client.treatment, client.service.name, client.ticket, action)
        try:
            outcome = answer.get(timeout=limit_s)
        except gevent.Timeout as late:
            raise NoReply(f"no answer from {client.place!r} within {limit_s:g} s") from late
        finally:
            self._open.pop(key, None)
        assert outcome is not None
        return outcome

    def hold(self, client: RemoteServiceClient) -> None:
        """Register the client of a service, so that it is notified of a loss."""
        self._clients[client.ticket, client.service.name] = client

    def unregister(self, client: RemoteServiceClient) -> None:
        """Remove the client of a service."""
        self._clients.pop((client.ticket, client.service.name), None)

    def on_reply(self, ticket: int, service: str, action: ServiceAction, outcome: ServiceOutcome) -> None:
        """Handle the outcome of an action or the loss of a service; drop it if nobody waits for it."""
        if action == SERVICE_LOST:
            client = self._clients.get((ticket, service))
            if client is not None:
                self._mark_lost(client, outcome.error)
            return
        answer = self._open.get((ticket, service, action))
        if answer is not None:
            answer.set(outcome)

    def disconnect(self) -> None:
        """Fail all open and later requests: no more replies can arrive."""
        self._disconnected = True
        for answer in self._open.values():
            answer.set_exception(NoReply(_DISCONNECTED))

    def _mark_lost(self, client: RemoteServiceClient, reason: str) -> None:
        client.lost = reason
        slot = client.slot
        if slot is not None:
            # By the time of the interrupt, the slot may run another job.
            self._interrupt(slot, lambda: client.slot is slot)
        actions: tuple[ServiceAction, ...] = (INSPECT, STOP, REMOVE)
        for action in actions:
            answer = self._open.get((client.ticket, client.service.name, action))
            if answer is not None:
                answer.set_exception(NoReply(reason))


class RemoteServiceClient:
    """One service of one job, on another worker. `lost` is the reason of its loss, None until then."""

    def __init__(
        self,
        requests: RemoteServiceRequests,
        treatment: Treatment,
        service: Service,
        ticket: int,
    ) -> None:
        self._requests = requests
        self._treatment = treatment
        self.service = service
        self.ticket = ticket
        self.place = treatment.placement[service.name]
        self.words: dict[str, str] = {}
        self.lost: str | None = None
        self.slot: greenlet | None = None
        self._start_requested = False

    @property
    def treatment(self) -> int:
        """The index of its treatment."""
        return self._treatment.index

    def start(self, wait: InterruptibleWait) -> CommandOutput:
        """Request its start, wait until it is ready and reachable; return the output of its readiness check.

        Raises `ServiceFailed`, or `JobAborted` if the job is aborted meanwhile.
        """
        name = self.service.name
        self.lost, self.slot, self._start_requested = None, gevent.getcurrent(), True
        self._requests.hold(self)
        limit_s = remote_service_limit_s(self._treatment, self.service)
        try:
            outcome = wait(partial(self._requests.run, self, START, limit_s))
        except NoReply as silence:
            raise ServiceFailed(name, f"{name} could not be started: {silence}") from silence
        if outcome.error:
            log = ((name, outcome.stdout, outcome.stderr, 0, outcome.truncated),)
            raise ServiceFailed(name, shorten(outcome.error, MAX_MESSAGE_CHARS), log, outcome.kind or SERVICE_FAILURE)
        self._await_reachable(outcome.address, outcome.port, wait)
        self.words = endpoint_placeholders(name, outcome.address, outcome.port)
        return (f"{name}-ready", outcome.stdout, outcome.stderr, 0, outcome.truncated)

    def stop(self) -> str | None:
        """Request its stop, which keeps its data; return the failure, if any."""
        self.slot = None
        return self._run(STOP, self.service.stop_s + self._treatment.timeout_s + CLEANUP_S)

    def remove(self) -> str | None:
        """Request its removal; return the failure, if any. If its host is lost, its own worker removes it."""
        self.slot = None
        if not self._start_requested or self.lost is not None:
            self._requests.unregister(self)
            return None
        self._start_requested = False
        problem = self._run(REMOVE, self.service.stop_s + self._treatment.timeout_s + CLEANUP_S)
        self._requests.unregister(self)
        return problem

    def explain_failure(self, report: JobReport) -> None:
        """Add to the report of a failed job whether the service had ended, and the service's log."""
        if self.lost is not None:
            return
        name = self.service.name
        try:
            seen = self._requests.run(self, INSPECT, 2 * self._treatment.timeout_s)
        except NoReply:
            return
        report.outputs = [*(report.outputs or ()), (name, seen.stdout, seen.stderr, 0, seen.truncated)]
        if seen.error and report.error is not None:
            _, _, message = report.error
            report.error = (
                name,
                seen.kind or SERVICE_FAILURE,
                shorten(f"{name} {seen.error} during the job; {message}", MAX_MESSAGE_CHARS),
            )

    def _run(self, action: RequestedAction, limit_s: float) -> str | None:
        if self.lost is not None:
            return self.lost
        try:
            problem = self._requests.run(self, action, limit_s).error
        except NoReply as silence:
            # A loss in the meantime is already reported.
            return None if self._is_lost() else f"{self.service.name}: {silence}"
        return problem or None

    def _is_lost(self) -> bool:
        return self.lost is not None

    def _await_reachable(self, host: str, port: int, wait: InterruptibleWait) -> None:
        """Wait until a connection succeeds: detect a firewall or a wrong address before the benchmark starts."""
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
                    raise ServiceFailed(self.service.name, shorten(text, MAX_MESSAGE_CHARS)) from error
            wait(partial(gevent.sleep, READY_POLL_S))


def _connect(host: str, port: int, timeout_s: float) -> None:
    socket.create_connection((host, port), timeout=timeout_s).close()


ResultT = TypeVar("ResultT")

CANCELLED: Final = "cancelled before it was ready"


class RemoteServiceHost:
    """Runs services for jobs of other workers. `engine_of` returns a treatment's engine, `reply` gets each outcome.

    `address` is the IP address at which other hosts reach this one. With `keep`, no service is removed.
    """

    def __init__(
        self,
        treatments: Mapping[int, Treatment],
        engine_of: Callable[[Treatment], Engine],
        reply: SendOutcome,
        *,
        prefix: str,
        address: str,
        keep: bool,
    ) -> None:
        self._treatments = treatments
        self._engine_for = engine_of
        self._reply = reply
        self._prefix = prefix
        self._address = address
        self._keep = keep
        self._hosted: dict[tuple[int, str], _HostedService] = {}

    def run(self, command: ServiceCommand) -> None:
        """Start an action; `reply` gets its outcome. Raises `ProtocolError` for a service that is not placed here."""
        known = self._treatments.get(command.treatment)
        service, ticket = command.service, command.ticket
        if known is None or service not in known.placement or guest_rules(known) is None:
            raise ProtocolError(
                f"{command.action!r} of the service {service!r} of treatment {command.treatment}, which is not placed"
            )
        key = (ticket, service)
        if command.action == START and key not in self._hosted:
            self._hosted[key] = _HostedService(partial(self._make, known, service, ticket))
        gevent.spawn(self._run, command, self._hosted.get(key))

    def release(self) -> None:
        """Remove all services: there are no further requests."""
        services, self._hosted = list(self._hosted.values()), {}
        for one in services:
            if not self._keep:
                one.cancel()
                self._run_checked(one, REMOVE)

    def _run(self, command: ServiceCommand, hosted: _HostedService | None) -> None:
        action = command.action
        if action == REMOVE:
            self._hosted.pop((command.ticket, command.service), None)
            if hosted is not None:
                hosted.cancel()
        if hosted is None:
            outcome = (
                ServiceOutcome()
                if action == REMOVE
                else ServiceOutcome(kind=SERVICE_FAILURE, error="was never started here")
            )
        elif action == REMOVE and self._keep:
            outcome = ServiceOutcome()
        else:
            outcome = self._run_checked(hosted, action)
        self._reply(command, outcome)

    def _run_checked(self, hosted: _HostedService, action: RequestedAction) -> ServiceOutcome:
        try:
            return hosted.run(action)
        except WeighbridgeError as error:
            return ServiceOutcome(kind=SERVICE_FAILURE, error=clip(str(error), MAX_MESSAGE_CHARS))
        except Exception as error:  # an error in an engine must not end the worker; it is reported
            log.exception("the engine of a service for another worker raised an unexpected error")
            return ServiceOutcome(kind="internal", error=clip(f"{type(error).__name__}: {error}", MAX_MESSAGE_CHARS))

    def _make(self, treatment: Treatment, name: str, ticket: int) -> ServiceSet:
        rules = guest_rules(treatment)
        assert rules is not None
        guest = rules.workload
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
    """One service; `make` creates it at its first start."""

    def __init__(self, make: Callable[[], ServiceSet]) -> None:
        self._make = make
        self._service_set: ServiceSet | None = None
        self._turn = RLock()
        self._waiting: greenlet | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Interrupt a running start if it only waits, so that the next action can run."""
        self._cancelled = True
        if self._waiting is not None:
            gevent.get_hub().loop.run_callback(self._interrupt, self._waiting)

    def run(self, action: RequestedAction) -> ServiceOutcome:
        """Run an action after the earlier ones are done."""
        with self._turn:
            if action == START:
                return self._start()
            if self._service_set is None:
                return ServiceOutcome()
            if action == STOP:
                return _problem_reply(self._service_set.stop())
            if action == REMOVE:
                return _problem_reply(self._service_set.remove())
            assert action == INSPECT
            (log_of,) = self._service_set.logs()
            kind, end = self._service_set.describe_exit(log_of[0]) or ("", "")
            return _with_output(log_of, ServiceOutcome(kind=kind, error=clip(end, MAX_SERVICE_ERROR_CHARS)))

    def _start(self) -> ServiceOutcome:
        try:
            if self._cancelled:
                raise JobAborted
            if self._service_set is None:
                self._service_set = self._make()
            (printed,) = self._service_set.start(self._wait)
        except JobAborted:
            return ServiceOutcome(kind=SERVICE_FAILURE, error=CANCELLED)
        except ServiceFailed as failure:
            failed = ServiceOutcome(kind=failure.kind, error=clip(str(failure), MAX_SERVICE_ERROR_CHARS))
            return _with_output(failure.outputs[0], failed) if failure.outputs else failed
        host, port, _ = self._service_set.words.values()
        return _with_output(printed, ServiceOutcome(host, int(port)))

    def _wait(self, call: Callable[[], ResultT]) -> ResultT:
        if self._cancelled:
            raise JobAborted
        self._waiting = gevent.getcurrent()
        try:
            return call()
        finally:
            self._waiting = None

    def _interrupt(self, waiting: greenlet) -> None:
        # It may have reached a step that must not be interrupted.
        if waiting is self._waiting:
            waiting.throw(JobAborted)


def _problem_reply(text: str | None) -> ServiceOutcome:
    return (
        ServiceOutcome()
        if text is None
        else ServiceOutcome(kind=SERVICE_FAILURE, error=clip(text, MAX_SERVICE_ERROR_CHARS))
    )


def _with_output(output: CommandOutput, outcome: ServiceOutcome) -> ServiceOutcome:
    """Return `outcome` with the beginning of the output of a service or of its readiness check."""
    _, stdout, stderr, _, truncated = output
    cut = len(stdout) > STREAM_LIMIT or len(stderr) > STREAM_LIMIT
    return ServiceOutcome(
        outcome.address,
        outcome.port,
        outcome.kind,
        outcome.error,
        stdout[:STREAM_LIMIT],
        stderr[:STREAM_LIMIT],
        truncated or cut,
    )
