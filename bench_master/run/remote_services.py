"""Brokers services that jobs of one worker use on another worker's host: started, stopped, and lost with either.

Pure: the broker sees no socket and no clock. It takes requests, replies and changes of the roster, and returns the
messages to send. The waiting worker keeps the deadlines: without a reply in time it fails its job and asks for the
removal of the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench_common.errors import ProtocolError
from bench_common.requirements import (
    REMOVE,
    SERVICE_ACTIONS,
    SERVICE_FAILURE,
    SERVICE_LOST,
    START,
    ServiceReply,
    choose_host,
)
from bench_common.treatment import Treatment
from bench_master.coordinator.roster import Member, Presence, Roster


@dataclass(frozen=True, slots=True)
class LaneMessage:
    """A message to send on a member's lane."""

    number: int
    name: str
    fields: Mapping[str, Any]


@dataclass(slots=True)
class _RemoteService:
    """A service that a client's job uses on a host; `waiting` while that host is missing."""

    client: int
    host: int
    treatment: int
    waiting: bool = False


class ServiceBroker:
    """Which job uses which service on which host. `remark` gets a remark for the report on each start."""

    def __init__(self, treatments: Sequence[Treatment], roster: Roster, remark: Callable[[str], None]) -> None:
        self._treatments = treatments
        self._roster = roster
        self._add_note = remark
        self._services: dict[tuple[int, str], _RemoteService] = {}

    def on_request(self, client: Member, fields: Mapping[str, Any]) -> list[LaneMessage]:
        """Handle a request of a client's job; raise `ProtocolError` on one that it may not make."""
        treatment, service, key, act = self._checked(fields)
        hosted = self._services.get(key)
        if hosted is not None and hosted.client != client.number:
            raise ProtocolError(f"ticket {key[0]} is another worker's")
        if act == START and hosted is None:
            place = treatment.placement[service]
            found = choose_host(place, client, self._roster)
            if found is None:
                return [_failure_reply(client.number, fields, f"no worker {place!r} has joined for {service}")]
            if sum(one.client == client.number for one in self._services.values()) >= 2 * client.slots * len(
                SERVICE_ACTIONS
            ):
                return [_failure_reply(client.number, fields, f"this worker uses {service} in too many jobs already")]
            hosted = self._services[key] = _RemoteService(client.number, found.number, treatment.index)
        if hosted is None:
            return [_failure_reply(client.number, fields, "" if act == REMOVE else "was never started")]
        return self._forward(key, hosted, act)

    def on_reply(self, member: Member, fields: Mapping[str, Any]) -> list[LaneMessage]:
        """Handle a host's reply; raise `ProtocolError` on one to a request that it did not get."""
        treatment, service, key, act = self._checked(fields)
        hosted = self._services.get(key)
        if hosted is None:
            return []  # its client is lost, or has given up
        if hosted.host != member.number:
            raise ProtocolError(f"{service} of ticket {key[0]} belongs to another worker's host")
        client = self._roster[hosted.client]
        if act == REMOVE:
            del self._services[key]
        elif act == START and not fields["problem"]:
            self._add_note(
                f"{treatment.engine}: {service} of jobs on worker {client.worker_id} ran on worker "
                f"{member.worker_id} ({member.environment}), reached at {fields['address']}"
            )
        problem = fields["problem"]
        if problem and act == START:
            # The problem begins with the service's name; where it ran matters as much.
            problem = f"{problem} (on worker {member.worker_id})"[:4096]
        return [LaneMessage(hosted.client, "supplied", {**fields, "problem": problem})]

    def on_worker_lost(self, number: int, reason: str) -> list[LaneMessage]:
        """Handle the loss of a member: services on its host are lost, services for its jobs are removed."""
        sent: list[LaneMessage] = []
        for key, hosted in list(self._services.items()):
            if hosted.client == number:
                del self._services[key]
                if not hosted.waiting:
                    sent += self._send_to_host(key, hosted, REMOVE)
            elif hosted.host == number and not hosted.waiting:
                del self._services[key]
                if self._roster[hosted.client].present:
                    name = self._roster[number].worker_id
                    text = f"{key[1]} was lost with worker {name}: {reason}"
                    sent.append(_failure_reply(hosted.client, _service_request(key, hosted, SERVICE_LOST), text))
        return sent

    def on_worker_back(self, number: int) -> list[LaneMessage]:
        """Handle a reconnect: send the requests that waited for this member."""
        sent: list[LaneMessage] = []
        for key, hosted in self._services.items():
            if hosted.host == number and hosted.waiting:
                hosted.waiting = False
                sent += self._send_to_host(key, hosted, START)
        return sent

    def on_worker_given_up(self, number: int) -> list[LaneMessage]:
        """Handle a member that did not reconnect: requests that waited for it fail."""
        waiting = [
            (key, hosted) for key, hosted in self._services.items() if hosted.host == number and hosted.waiting
        ]
        for key, _ in waiting:
            del self._services[key]
        name = self._roster[number].worker_id
        text = f"worker {name} is lost: it did not reconnect"
        return [_failure_reply(hosted.client, _service_request(key, hosted, START), text) for key, hosted in waiting]

    def _forward(self, key: tuple[int, str], hosted: _RemoteService, act: str) -> list[LaneMessage]:
        presence = self._roster[hosted.host].presence
        if presence is Presence.PRESENT:
            return self._send_to_host(key, hosted, act)
        if act == START and presence is Presence.MISSING:
            hosted.waiting = True
            return []
        del self._services[key]
        if act == REMOVE:
            return [_failure_reply(hosted.client, _service_request(key, hosted, act), "")]
        name = self._roster[hosted.host].worker_id
        return [_failure_reply(hosted.client, _service_request(key, hosted, act), f"worker {name} is lost")]

    def _send_to_host(self, key: tuple[int, str], hosted: _RemoteService, act: str) -> list[LaneMessage]:
        member = self._roster[hosted.host]
        if not member.present:
            return []
        sent = []
        if hosted.treatment not in member.known_treatments:
            member.known_treatments.add(hosted.treatment)
            sent.append(
                LaneMessage(member.number, "define", {"treatment": self._treatments[hosted.treatment].to_wire()})
            )
        return [*sent, LaneMessage(member.number, "serve", _service_request(key, hosted, act))]

    def _checked(self, fields: Mapping[str, Any]) -> tuple[Treatment, str, tuple[int, str], str]:
        index, service, ticket, act = (fields[name] for name in ("treatment", "service", "ticket", "act"))
        if (
            index >= len(self._treatments)
            or service not in self._treatments[index].placement
            or act not in SERVICE_ACTIONS
        ):
            raise ProtocolError(f"{act!r} for the service {service!r} of treatment {index}, which is not placed")
        return self._treatments[index], service, (ticket, service), act


def _service_request(key: tuple[int, str], hosted: _RemoteService, act: str) -> dict[str, Any]:
    return {"treatment": hosted.treatment, "service": key[1], "ticket": key[0], "act": act}


def _failure_reply(number: int, errand: Mapping[str, Any], problem: str) -> LaneMessage:
    """Return the reply to a client's request that no host carried out."""
    supplied = ServiceReply(kind=SERVICE_FAILURE if problem else "", problem=problem)
    named = {name: errand[name] for name in ("treatment", "service", "ticket", "act")}
    return LaneMessage(number, "supplied", {**named, **asdict(supplied)})
