"""Services that jobs of one worker need of another: wanted by the one, had from the other, and lost with either.

The desk sees no socket and no clock: it is told what members say and what becomes of them, and returns what is to be
said to whom. Deadlines are those of who waits: a worker that is told nothing in time gives its job up, and has what
it wanted removed.
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
    """A message to be sent on a member's lane."""

    number: int
    name: str
    fields: Mapping[str, Any]


@dataclass(slots=True)
class _RemoteService:
    """A service that a client's job has of a lender; `waiting` for a lender that is missed."""

    client: int
    lender: int
    treatment: int
    waiting: bool = False


class ServiceBroker:
    """Who has which service of whom. `remark` gets what the report should say of it, once for each pair."""

    def __init__(self, treatments: Sequence[Treatment], roster: Roster, remark: Callable[[str], None]) -> None:
        self._treatments = treatments
        self._roster = roster
        self._add_note = remark
        self._services: dict[tuple[int, str], _RemoteService] = {}

    def on_request(self, client: Member, fields: Mapping[str, Any]) -> list[LaneMessage]:
        """Take in what a client's job wants done; raise `ProtocolError` where that is not its to want."""
        treatment, service, key, act = self._checked(fields)
        loan = self._services.get(key)
        if loan is not None and loan.client != client.number:
            raise ProtocolError(f"ticket {key[0]} is another worker's")
        if act == START and loan is None:
            place = treatment.placement[service]
            found = choose_host(place, client, self._roster)
            if found is None:
                return [_failure_reply(client.number, fields, f"no worker {place!r} is there for {service}")]
            if sum(one.client == client.number for one in self._services.values()) >= 2 * client.slots * len(
                SERVICE_ACTIONS
            ):
                return [_failure_reply(client.number, fields, f"this worker has {service} for too many jobs already")]
            loan = self._services[key] = _RemoteService(client.number, found.number, treatment.index)
        if loan is None:
            return [_failure_reply(client.number, fields, "" if act == REMOVE else "was never started")]
        return self._order(key, loan, act)

    def served(self, member: Member, fields: Mapping[str, Any]) -> list[LaneMessage]:
        """Take in what came of an act; raise `ProtocolError` where the member was not told to do it."""
        treatment, service, key, act = self._checked(fields)
        loan = self._services.get(key)
        if loan is None:
            return []  # its client is lost, or gave up
        if loan.lender != member.number:
            raise ProtocolError(f"{service} of ticket {key[0]} is another worker's to lend")
        client = self._roster[loan.client]
        if act == REMOVE:
            del self._services[key]
        elif act == START and not fields["problem"]:
            self._add_note(
                f"{treatment.engine}: {service} of jobs on worker {client.worker_id} ran on worker "
                f"{member.worker_id} ({member.environment}), reached at {fields['address']}"
            )
        said = fields["problem"]
        # What a service said of itself begins with its name; where it ran is as much to the point.
        problem = f"{said} (on worker {member.worker_id})"[:4096] if said and act == START else said
        return [LaneMessage(loan.client, "supplied", {**fields, "problem": problem})]

    def lost(self, number: int, reason: str) -> list[LaneMessage]:
        """Take in that a member is missed: with it go what it lent, and what was lent to it."""
        sent: list[LaneMessage] = []
        for key, loan in list(self._services.items()):
            if loan.client == number:
                del self._services[key]
                if not loan.waiting:
                    sent += self._send_to_host(key, loan, REMOVE)
            elif loan.lender == number and not loan.waiting:
                del self._services[key]
                if self._roster[loan.client].present:
                    name = self._roster[number].worker_id
                    text = f"{key[1]} was lost with its worker {name}: {reason}"
                    sent.append(_failure_reply(loan.client, _service_request(key, loan, SERVICE_LOST), text))
        return sent

    def back(self, number: int) -> list[LaneMessage]:
        """Take in that a member is back: what was wanted of it meanwhile is ordered now."""
        sent: list[LaneMessage] = []
        for key, loan in self._services.items():
            if loan.lender == number and loan.waiting:
                loan.waiting = False
                sent += self._send_to_host(key, loan, START)
        return sent

    def given_up(self, number: int) -> list[LaneMessage]:
        """Take in that a member will not come back: what was wanted of it cannot be had."""
        waiting = [(key, loan) for key, loan in self._services.items() if loan.lender == number and loan.waiting]
        for key, _ in waiting:
            del self._services[key]
        name = self._roster[number].worker_id
        text = f"worker {name} is lost, and did not come back"
        return [_failure_reply(loan.client, _service_request(key, loan, START), text) for key, loan in waiting]

    def _order(self, key: tuple[int, str], loan: _RemoteService, act: str) -> list[LaneMessage]:
        presence = self._roster[loan.lender].presence
        if presence is Presence.PRESENT:
            return self._send_to_host(key, loan, act)
        if act == START and presence is Presence.MISSING:
            loan.waiting = True
            return []
        del self._services[key]
        if act == REMOVE:
            return [_failure_reply(loan.client, _service_request(key, loan, act), "")]
        name = self._roster[loan.lender].worker_id
        return [_failure_reply(loan.client, _service_request(key, loan, act), f"worker {name} is lost")]

    def _send_to_host(self, key: tuple[int, str], loan: _RemoteService, act: str) -> list[LaneMessage]:
        member = self._roster[loan.lender]
        if not member.present:
            return []
        sent = []
        if loan.treatment not in member.defined:
            member.defined.add(loan.treatment)
            sent.append(
                LaneMessage(member.number, "define", {"treatment": self._treatments[loan.treatment].to_wire()})
            )
        return [*sent, LaneMessage(member.number, "serve", _service_request(key, loan, act))]

    def _checked(self, fields: Mapping[str, Any]) -> tuple[Treatment, str, tuple[int, str], str]:
        index, service, ticket, act = (fields[name] for name in ("treatment", "service", "ticket", "act"))
        if (
            index >= len(self._treatments)
            or service not in self._treatments[index].placement
            or act not in SERVICE_ACTIONS
        ):
            raise ProtocolError(f"{act!r} for the service {service!r} of treatment {index}, which is not placed")
        return self._treatments[index], service, (ticket, service), act


def _service_request(key: tuple[int, str], loan: _RemoteService, act: str) -> dict[str, Any]:
    return {"treatment": loan.treatment, "service": key[1], "ticket": key[0], "act": act}


def _failure_reply(number: int, errand: Mapping[str, Any], problem: str) -> LaneMessage:
    """Return what a client is told of an act that nobody did."""
    supplied = ServiceReply(kind=SERVICE_FAILURE if problem else "", problem=problem)
    named = {name: errand[name] for name in ("treatment", "service", "ticket", "act")}
    return LaneMessage(number, "supplied", {**named, **asdict(supplied)})
