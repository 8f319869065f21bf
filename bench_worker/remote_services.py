"""Services of jobs here that run on another worker: wanted of the master, which has them started there.

Each act has an answer or a deadline. A service whose host is lost ends the job that uses it at once: its tool would
only wait for an answer, and tell less.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias

import gevent
from gevent.event import AsyncResult
from greenlet import greenlet

from bench_common.addresses import authority
from bench_common.placement import KIND, LOOK, LOST, REMOVE, START, STOP, Supplied
from bench_common.records import JobReport
from bench_common.treatment import Treatment
from bench_worker.performer import MESSAGE_LIMIT
from bench_worker.services import POLL_S, Output, ServiceFailed, Wait, words_of
from workloads.base import Service
from workloads.script import CLEAN_UP_S, errand_limit_s

REACH_S: Final = 10.0
"""How long it is tried to reach a service that is ready, in seconds."""

_CUT_OFF: Final = "its worker cannot be asked any more: this one has left the run"

Key: TypeAlias = tuple[int, str, str]
"""The ticket of the job that a service was made for, the service's name, the act."""


class NoAnswer(Exception):
    """Nobody said what came of an act: why not."""


class Errands:
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
        self._open: dict[Key, AsyncResult[Supplied]] = {}
        self._borrowed: dict[tuple[int, str], Borrowed] = {}
        self._cut_off = False

    def run(self, borrowed: Borrowed, act: str, limit_s: float) -> Supplied:
        """Have an act done on a service; return what came of it. Raises `NoAnswer` where nothing does in time."""
        if self._cut_off:
            raise NoAnswer(_CUT_OFF)
        key = (borrowed.ticket, borrowed.service.name, act)
        answer = self._open[key] = AsyncResult()
        self._send(borrowed.errand(act))
        try:
            supplied = answer.get(timeout=limit_s)
        except gevent.Timeout as late:
            raise NoAnswer(f"there is no answer from {borrowed.place!r} within {limit_s:g} s") from late
        finally:
            self._open.pop(key, None)
        assert supplied is not None
        return supplied

    def hold(self, borrowed: Borrowed) -> None:
        """Remember who uses a service, so that it learns of its loss."""
        self._borrowed[borrowed.ticket, borrowed.service.name] = borrowed

    def let_go(self, borrowed: Borrowed) -> None:
        """Forget it."""
        self._borrowed.pop((borrowed.ticket, borrowed.service.name), None)

    def came(self, ticket: int, service: str, act: str, supplied: Supplied) -> None:
        """Take in what came of an act, or that a service is lost. What nobody waits for any more is dropped."""
        if act == LOST:
            borrowed = self._borrowed.get((ticket, service))
            if borrowed is not None:
                self._lose(borrowed, supplied.problem)
            return
        answer = self._open.get((ticket, service, act))
        if answer is not None:
            answer.set(supplied)

    def cut_off(self) -> None:
        """Take in that no answer comes any more: those who wait for one, and whoever asks from here on, are told."""
        self._cut_off = True
        for answer in self._open.values():
            answer.set_exception(NoAnswer(_CUT_OFF))

    def _lose(self, borrowed: Borrowed, reason: str) -> None:
        borrowed.lost = reason
        slot = borrowed.slot
        if slot is not None:
            # When it comes to it, the slot may be at another job already.
            self._interrupt(slot, lambda: borrowed.slot is slot)
        for act in (LOOK, STOP, REMOVE):
            answer = self._open.get((borrowed.ticket, borrowed.service.name, act))
            if answer is not None:
                answer.set_exception(NoAnswer(reason))


class Borrowed:
    """One service of one job, that runs on another worker. `lost` says why it is no more, once that is so."""

    def __init__(
        self,
        errands: Errands,
        treatment: Treatment,
        service: Service,
        ticket: int,
    ) -> None:
        self._errands = errands
        self._treatment = treatment
        self.service = service
        self.ticket = ticket
        self.place = treatment.places[service.name]
        self.words: dict[str, str] = {}
        self.lost: str | None = None
        self.slot: greenlet | None = None
        self._made = False

    def errand(self, act: str) -> dict[str, Any]:
        """Return the fields of the message that wants an act done."""
        return {
            "treatment": self._treatment.index,
            "service": self.service.name,
            "ticket": self.ticket,
            "act": act,
        }

    def start(self, wait: Wait) -> Output:
        """Have it started, wait until it is ready there and reached from here; return what its check printed.

        Raises `ServiceFailed`, or `JobAborted` where the job is called off meanwhile.
        """
        name = self.service.name
        self.lost, self.slot, self._made = None, gevent.getcurrent(), True
        self._errands.hold(self)
        limit_s = errand_limit_s(self._treatment, self.service)
        try:
            supplied = wait(partial(self._errands.run, self, START, limit_s))
        except NoAnswer as silence:
            raise ServiceFailed(name, f"{name} could not be had: {silence}") from silence
        if supplied.problem:
            log = ((name, supplied.stdout, supplied.stderr, 0, supplied.truncated),)
            raise ServiceFailed(name, supplied.problem[:MESSAGE_LIMIT], log, supplied.kind or KIND)
        self._await_reachable(supplied.address, supplied.port, wait)
        self.words = words_of(name, supplied.address, supplied.port)
        return (f"{name}-ready", supplied.stdout, supplied.stderr, 0, supplied.truncated)

    def stop(self) -> str | None:
        """Have it stopped, so that it keeps what it holds; return what went wrong."""
        self.slot = None
        return self._done(STOP, self.service.stop_s + self._treatment.timeout_s + CLEAN_UP_S)

    def remove(self) -> str | None:
        """Have it removed; return what went wrong. Where its host is lost, that is for its own worker to see to."""
        self.slot = None
        if not self._made or self.lost is not None:
            self._errands.let_go(self)
            return None
        self._made = False
        problem = self._done(REMOVE, self.service.stop_s + self._treatment.timeout_s + CLEAN_UP_S)
        self._errands.let_go(self)
        return problem

    def blame(self, report: JobReport) -> None:
        """Say in the report of a job that failed whether the service had ended by then, and keep its log."""
        if self.lost is not None:
            return
        name = self.service.name
        try:
            seen = self._errands.run(self, LOOK, 2 * self._treatment.timeout_s)
        except NoAnswer:
            return
        report.outputs = [*(report.outputs or ()), (name, seen.stdout, seen.stderr, 0, seen.truncated)]
        if seen.problem and report.error is not None:
            _, _, said = report.error
            report.error = (name, seen.kind or KIND, f"{name} {seen.problem} during the job; {said}"[:MESSAGE_LIMIT])

    def _done(self, act: str, limit_s: float) -> str | None:
        if self.lost is not None:
            return self.lost
        try:
            problem = self._errands.run(self, act, limit_s).problem
        except NoAnswer as silence:
            # Where it was lost meanwhile, that is told already.
            return None if self._is_lost() else f"{self.service.name}: {silence}"
        return problem or None

    def _is_lost(self) -> bool:
        return self.lost is not None

    def _await_reachable(self, host: str, port: int, wait: Wait) -> None:
        """Wait until a connection stands: a firewall, or a wrong address, is not the benchmark's to find."""
        deadline = monotonic() + REACH_S
        while True:
            try:
                return wait(partial(_connect, host, port, max(POLL_S, deadline - monotonic())))
            except OSError as error:
                if monotonic() >= deadline:
                    text = (
                        f"{self.service.name} is ready at {self.place!r}, but is not reached from here at "
                        f"{authority(host, port)}: {error}"
                    )
                    raise ServiceFailed(self.service.name, text[:MESSAGE_LIMIT]) from error
            wait(partial(gevent.sleep, POLL_S))


def _connect(host: str, port: int, timeout_s: float) -> None:
    socket.create_connection((host, port), timeout=timeout_s).close()


def supplied_from(fields: dict[str, Any]) -> Supplied:
    """Return what came of an act from the fields of a message."""
    return Supplied(**{name: fields[name] for name in asdict(Supplied())})
