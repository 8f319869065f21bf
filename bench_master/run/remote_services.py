"""Brokers services that jobs of one worker use on another worker's host: started, stopped, and lost with either.

Pure: the broker sees no socket and no clock. It takes requests, replies and changes of the roster, and returns the
messages to send. The waiting worker keeps the deadlines: without a reply in time it fails its job and asks for the
removal of the service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import ProtocolError
from bench_common.messages import (
    DefineTreatment,
    MasterWorkMessage,
    ServiceCommand,
    ServiceReply,
    ServiceRequest,
    ServiceResult,
    clip,
)
from bench_common.requirements import (
    MAX_OPEN_REQUESTS,
    MAX_SERVICE_ERROR_CHARS,
    REMOVE,
    SERVICE_FAILURE,
    SERVICE_LOST,
    START,
    RequestedAction,
    ServiceAction,
    ServiceOutcome,
    choose_host,
)
from bench_common.treatment import Treatment
from bench_master.coordinator.roster import Member, Presence, Roster

ServiceKey: TypeAlias = tuple[int, str]
"""The ticket of the job that a service was started for, and the service's name."""


class LaneMessage(Struct, frozen=True):
    """A message to send on a member's lane."""

    number: int
    message: MasterWorkMessage


class _RemoteService(Struct):
    """A service that one member runs for a job of another."""

    client: int
    """The roster number of the job's worker."""
    host: int
    """The roster number of the service's worker."""
    treatment: int
    waiting: bool = False
    """Whether it is to be started once a missing host is back."""


class ServiceBroker:
    """Which job uses which service on which host. `remark` gets a remark for the report on each start."""

    def __init__(self, treatments: Sequence[Treatment], roster: Roster, remark: Callable[[str], None]) -> None:
        self._treatments = treatments
        self._roster = roster
        self._add_remark = remark
        self._services: dict[ServiceKey, _RemoteService] = {}

    def on_request(self, client: Member, request: ServiceRequest) -> list[LaneMessage]:
        """Handle a request of a client's job; raise `ProtocolError` on one that it may not make."""
        treatment, key, action = self._check(request), (request.ticket, request.service), request.action
        found = self._services.get(key)
        if found is not None and found.client != client.number:
            raise ProtocolError(f"ticket {key[0]} is another worker's")
        if action == START and found is None:
            place = treatment.placement[request.service]
            host = choose_host(place, client, self._roster)
            if host is None:
                text = f"no worker {place!r} has joined for {request.service}"
                return [self._fail(client.number, key, treatment.index, action, text)]
            limit = 2 * client.slots * MAX_OPEN_REQUESTS
            if sum(one.client == client.number for one in self._services.values()) >= limit:
                text = f"this worker uses {request.service} in too many jobs already"
                return [self._fail(client.number, key, treatment.index, action, text)]
            found = self._services[key] = _RemoteService(client.number, host.number, treatment.index)
        if found is None:
            text = "" if action == REMOVE else "was never started"
            return [self._fail(client.number, key, treatment.index, action, text)]
        return self._command(key, found, action)

    def on_result(self, member: Member, result: ServiceResult) -> list[LaneMessage]:
        """Handle a host's result; raise `ProtocolError` on one to a command that it did not get."""
        treatment, key, action = self._check(result), (result.ticket, result.service), result.action
        found = self._services.get(key)
        if found is None:
            return []  # its client is lost, or has given up
        if found.host != member.number:
            raise ProtocolError(f"{result.service} of ticket {key[0]} belongs to another worker's host")
        client, outcome = self._roster[found.client], result.outcome
        if action == REMOVE:
            del self._services[key]
        elif action == START and not outcome.error:
            self._add_remark(
                f"{treatment.engine}: {result.service} of jobs on worker {client.worker_id} ran on worker "
                f"{member.worker_id} ({member.environment}), reached at {outcome.address}"
            )
        if outcome.error and action == START:
            # The text begins with the service's name; where it ran matters as much.
            text = clip(f"{outcome.error} (on worker {member.worker_id})", MAX_SERVICE_ERROR_CHARS)
            outcome = replace(outcome, error=text)
        return [self._reply(found.client, key, found.treatment, action, outcome)]

    def on_worker_lost(self, number: int, reason: str) -> list[LaneMessage]:
        """Handle the loss of a member: services on its host are lost, services for its jobs are removed."""
        sent: list[LaneMessage] = []
        for key, one in list(self._services.items()):
            if one.client == number:
                del self._services[key]
                if not one.waiting:
                    sent += self._send_to_host(key, one, REMOVE)
            elif one.host == number and not one.waiting:
                del self._services[key]
                if self._roster[one.client].present:
                    text = f"{key[1]} was lost with worker {self._roster[number].worker_id}: {reason}"
                    sent.append(self._fail(one.client, key, one.treatment, SERVICE_LOST, text))
        return sent

    def on_worker_back(self, number: int) -> list[LaneMessage]:
        """Handle a reconnect: send the requests that waited for this member."""
        sent: list[LaneMessage] = []
        for key, one in self._services.items():
            if one.host == number and one.waiting:
                one.waiting = False
                sent += self._send_to_host(key, one, START)
        return sent

    def on_worker_given_up(self, number: int) -> list[LaneMessage]:
        """Handle a member that did not reconnect: requests that waited for it fail."""
        waiting = [(key, one) for key, one in self._services.items() if one.host == number and one.waiting]
        for key, _ in waiting:
            del self._services[key]
        text = f"worker {self._roster[number].worker_id} is lost: it did not reconnect"
        return [self._fail(one.client, key, one.treatment, START, text) for key, one in waiting]

    def _command(self, key: ServiceKey, one: _RemoteService, action: RequestedAction) -> list[LaneMessage]:
        presence = self._roster[one.host].presence
        if presence is Presence.PRESENT:
            return self._send_to_host(key, one, action)
        if action == START and presence is Presence.MISSING:
            one.waiting = True
            return []
        del self._services[key]
        text = "" if action == REMOVE else f"worker {self._roster[one.host].worker_id} is lost"
        return [self._fail(one.client, key, one.treatment, action, text)]

    def _send_to_host(self, key: ServiceKey, one: _RemoteService, action: RequestedAction) -> list[LaneMessage]:
        member = self._roster[one.host]
        if not member.present:
            return []
        sent = []
        if one.treatment not in member.known_treatments:
            member.known_treatments.add(one.treatment)
            treatment = self._treatments[one.treatment]
            sent.append(LaneMessage(member.number, DefineTreatment(epoch=member.epoch, treatment=treatment)))
        ticket, service = key
        command = ServiceCommand(
            epoch=member.epoch, treatment=one.treatment, service=service, ticket=ticket, action=action
        )
        return [*sent, LaneMessage(member.number, command)]

    def _check(self, message: ServiceRequest | ServiceResult) -> Treatment:
        index, service = message.treatment, message.service
        if index >= len(self._treatments) or service not in self._treatments[index].placement:
            raise ProtocolError(
                f"{message.action!r} for the service {service!r} of treatment {index}, which is not placed"
            )
        return self._treatments[index]

    def _fail(self, number: int, key: ServiceKey, treatment: int, action: ServiceAction, error: str) -> LaneMessage:
        """Return the reply to a request that no worker can carry out; an empty `error` is a success."""
        outcome = ServiceOutcome(kind=SERVICE_FAILURE if error else "", error=clip(error, MAX_SERVICE_ERROR_CHARS))
        return self._reply(number, key, treatment, action, outcome)

    def _reply(
        self, number: int, key: ServiceKey, treatment: int, action: ServiceAction, outcome: ServiceOutcome
    ) -> LaneMessage:
        ticket, service = key
        epoch = self._roster[number].epoch
        reply = ServiceReply(
            epoch=epoch, treatment=treatment, service=service, ticket=ticket, action=action, outcome=outcome
        )
        return LaneMessage(number, reply)
