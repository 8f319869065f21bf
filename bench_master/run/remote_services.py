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
from bench_common.requirements import ACTS, KIND, LOST, REMOVE, START, Supplied, lender
from bench_common.treatment import Treatment
from bench_master.coordinator.roster import Member, Presence, Roster


@dataclass(frozen=True, slots=True)
class Send:
    """A message to be sent on a member's lane."""

    number: int
    name: str
    fields: Mapping[str, Any]


@dataclass(slots=True)
class _Loan:
    """A service that a client's job has of a lender; `waiting` for a lender that is missed."""

    client: int
    lender: int
    treatment: int
    waiting: bool = False


class ServiceDesk:
    """Who has which service of whom. `remark` gets what the report should say of it, once for each pair."""

    def __init__(self, treatments: Sequence[Treatment], roster: Roster, remark: Callable[[str], None]) -> None:
        self._treatments = treatments
        self._roster = roster
        self._remark = remark
        self._loans: dict[tuple[int, str], _Loan] = {}

    def wanted(self, client: Member, fields: Mapping[str, Any]) -> list[Send]:
        """Take in what a client's job wants done; raise `ProtocolError` where that is not its to want."""
        treatment, service, key, act = self._checked(fields)
        loan = self._loans.get(key)
        if loan is not None and loan.client != client.number:
            raise ProtocolError(f"ticket {key[0]} is another worker's")
        if act == START and loan is None:
            place = treatment.places[service]
            found = lender(place, client, self._roster)
            if found is None:
                return [_answer(client.number, fields, f"no worker {place!r} is there for {service}")]
            if sum(one.client == client.number for one in self._loans.values()) >= 2 * client.slots * len(ACTS):
                return [_answer(client.number, fields, f"this worker has {service} for too many jobs already")]
            loan = self._loans[key] = _Loan(client.number, found.number, treatment.index)
        if loan is None:
            return [_answer(client.number, fields, "" if act == REMOVE else "was never started")]
        return self._order(key, loan, act)

    def served(self, member: Member, fields: Mapping[str, Any]) -> list[Send]:
        """Take in what came of an act; raise `ProtocolError` where the member was not told to do it."""
        treatment, service, key, act = self._checked(fields)
        loan = self._loans.get(key)
        if loan is None:
            return []  # its client is lost, or gave up
        if loan.lender != member.number:
            raise ProtocolError(f"{service} of ticket {key[0]} is another worker's to lend")
        client = self._roster[loan.client]
        if act == REMOVE:
            del self._loans[key]
        elif act == START and not fields["problem"]:
            self._remark(
                f"{treatment.engine}: {service} of jobs on worker {client.worker_id} ran on worker "
                f"{member.worker_id} ({member.environment}), reached at {fields['address']}"
            )
        said = fields["problem"]
        # What a service said of itself begins with its name; where it ran is as much to the point.
        problem = f"{said} (on worker {member.worker_id})"[:4096] if said and act == START else said
        return [Send(loan.client, "supplied", {**fields, "problem": problem})]

    def lost(self, number: int, reason: str) -> list[Send]:
        """Take in that a member is missed: with it go what it lent, and what was lent to it."""
        sent: list[Send] = []
        for key, loan in list(self._loans.items()):
            if loan.client == number:
                del self._loans[key]
                if not loan.waiting:
                    sent += self._to_lender(key, loan, REMOVE)
            elif loan.lender == number and not loan.waiting:
                del self._loans[key]
                if self._roster[loan.client].present:
                    name = self._roster[number].worker_id
                    text = f"{key[1]} was lost with its worker {name}: {reason}"
                    sent.append(_answer(loan.client, _errand(key, loan, LOST), text))
        return sent

    def back(self, number: int) -> list[Send]:
        """Take in that a member is back: what was wanted of it meanwhile is ordered now."""
        sent: list[Send] = []
        for key, loan in self._loans.items():
            if loan.lender == number and loan.waiting:
                loan.waiting = False
                sent += self._to_lender(key, loan, START)
        return sent

    def given_up(self, number: int) -> list[Send]:
        """Take in that a member will not come back: what was wanted of it cannot be had."""
        waiting = [(key, loan) for key, loan in self._loans.items() if loan.lender == number and loan.waiting]
        for key, _ in waiting:
            del self._loans[key]
        name = self._roster[number].worker_id
        text = f"worker {name} is lost, and did not come back"
        return [_answer(loan.client, _errand(key, loan, START), text) for key, loan in waiting]

    def _order(self, key: tuple[int, str], loan: _Loan, act: str) -> list[Send]:
        presence = self._roster[loan.lender].presence
        if presence is Presence.PRESENT:
            return self._to_lender(key, loan, act)
        if act == START and presence is Presence.AWAITED:
            loan.waiting = True
            return []
        del self._loans[key]
        if act == REMOVE:
            return [_answer(loan.client, _errand(key, loan, act), "")]
        name = self._roster[loan.lender].worker_id
        return [_answer(loan.client, _errand(key, loan, act), f"worker {name} is lost")]

    def _to_lender(self, key: tuple[int, str], loan: _Loan, act: str) -> list[Send]:
        member = self._roster[loan.lender]
        if not member.present:
            return []
        sent = []
        if loan.treatment not in member.defined:
            member.defined.add(loan.treatment)
            sent.append(Send(member.number, "define", {"treatment": self._treatments[loan.treatment].to_wire()}))
        return [*sent, Send(member.number, "serve", _errand(key, loan, act))]

    def _checked(self, fields: Mapping[str, Any]) -> tuple[Treatment, str, tuple[int, str], str]:
        index, service, ticket, act = (fields[name] for name in ("treatment", "service", "ticket", "act"))
        if index >= len(self._treatments) or service not in self._treatments[index].places or act not in ACTS:
            raise ProtocolError(f"{act!r} for the service {service!r} of treatment {index}, which is not placed")
        return self._treatments[index], service, (ticket, service), act


def _errand(key: tuple[int, str], loan: _Loan, act: str) -> dict[str, Any]:
    return {"treatment": loan.treatment, "service": key[1], "ticket": key[0], "act": act}


def _answer(number: int, errand: Mapping[str, Any], problem: str) -> Send:
    """Return what a client is told of an act that nobody did."""
    supplied = Supplied(kind=KIND if problem else "", problem=problem)
    named = {name: errand[name] for name in ("treatment", "service", "ticket", "act")}
    return Send(number, "supplied", {**named, **asdict(supplied)})
