"""Pauses the jobs of an engine that does not answer, so that its restart costs the jobs under way and no others.

`OutageRules` decides, and sees neither engine nor clock; `EngineOutage` asks the engine and lets the slots wait;
`Outages` are those of a worker's engines, with what jobs left behind in them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import gevent
from gevent.event import Event
from msgspec import Struct

from bench_workloads.script import job_limit_s

if TYPE_CHECKING:
    from bench_common.treatment import Treatment

log = logging.getLogger(__name__)

ASK_INTERVAL_S: Final = 0.25
"""How often an engine that is away is asked whether it answers, in seconds."""
MIN_ANSWERS: Final = 2
"""How many times in a row it has to answer: one that is being stopped may still answer once."""
LEAD_S: Final = 0.5
"""How long one job runs before the others follow, in seconds: an engine that answers may still refuse to work."""
MAX_ANSWERS: Final = 16
"""The most that is asked for, after outages that follow each other without a job that is done."""

OutageState: TypeAlias = Literal["began", "ended", "abandoned"]


class OutageNews(Struct, frozen=True):
    """What there is to report of an outage; instants are ns of CLOCK_MONOTONIC."""

    engine: str
    trial: int
    """The trial of the job that found the engine away."""
    state: OutageState
    """``abandoned``: it lasted for longer than a job may take, so jobs begin all the same."""
    began_ns: int
    ended_ns: int
    """When it ended; while it lasts, the instant of this report."""
    failed: int
    """How many jobs failed by it so far."""
    reason: str
    """What the engine's client said."""


class OutageRules(Struct):
    """When an outage ends. All times are in nanoseconds."""

    limit_ns: int = 0
    """How long jobs wait in all before one is done."""
    waited_ns: int = 0
    """How long they waited in earlier outages since a job was done."""
    outages: int = 0
    """How many outages there were since a job was done."""
    answers: int = 0
    """How many times in a row the engine has answered."""

    def begin(self, limit_ns: int) -> None:
        """Begin another outage."""
        self.limit_ns = limit_ns
        self.outages += 1
        self.answers = 0

    def after_answer(self, lasted_ns: int, *, answered: bool) -> OutageState:
        """Return the state of an outage that has lasted so long, after the engine was asked once more."""
        self.answers = self.answers + 1 if answered else 0
        if self.waited_ns + lasted_ns >= self.limit_ns:
            return "abandoned"
        return "ended" if self.answers >= min(MAX_ANSWERS, MIN_ANSWERS * self.outages) else "began"

    def resume(self) -> None:
        """Go on with an outage: the engine answered and did not work."""
        self.outages += 1
        self.answers = 0

    def end(self, lasted_ns: int) -> None:
        """End an outage that has lasted so long."""
        self.waited_ns += lasted_ns


class EngineOutage:
    """The outages of one engine on this worker, until a job is done.

    `ask` says whether the engine answers, and may block; `report` gets the news.
    """

    def __init__(self, engine: str, ask: Callable[[], bool], report: Callable[[OutageNews], None]) -> None:
        self._engine = engine
        self._ask = ask
        self._report = report
        self._rules = OutageRules()
        self._over = Event()
        self._over.set()
        self._gate = Event()
        """Set when jobs may begin, or one of them."""
        self._gate.set()
        self._leads_wanted = False
        self._is_away = False
        self._began_ns = 0
        self._trial = -1
        self._reason = ""
        self._failed = 0
        self.abandoned = False
        """Whether jobs begin although the engine does not answer, and fail by it."""

    @property
    def under_way(self) -> bool:
        """Whether jobs have to wait."""
        return not self._over.is_set()

    def begin(self, reason: str, trial: int, limit_s: float) -> None:
        """Note that the engine is away, and let jobs wait for `limit_s` at most, unless they did so long enough."""
        self._is_away = True
        if self.under_way or self.abandoned:
            return
        self._over.clear()
        self._gate.clear()
        self._began_ns, self._trial, self._reason, self._failed = monotonic_ns(), trial, reason, 0
        self._rules.begin(round(limit_s * 1e9))
        log.warning("engine %s does not answer; its jobs wait: %s", self._engine, reason)
        self._send("began")
        gevent.spawn(self._follow)

    def job_failed(self) -> None:
        """Count a job that failed by it."""
        self._failed += 1

    def wait(self) -> None:
        """Block until the outage is over, or this job is to go ahead of the others."""
        while True:
            self._gate.wait()
            if not self.under_way:
                return
            if self._leads_wanted:
                self._leads_wanted = False
                self._gate.clear()
                return

    def _follow(self) -> None:
        try:
            self._ask_until_over()
        finally:
            # Whatever happened, no slot waits for ever.
            self._over.set()
            self._gate.set()

    def _ask_until_over(self) -> None:
        state: OutageState = "began"
        while state == "began":
            gevent.sleep(ASK_INTERVAL_S)
            try:
                answered = self._ask()
            except Exception:  # a fault of the engine's code must not leave every slot waiting
                log.exception("engine %s could not be asked whether it answers", self._engine)
                answered = False
            state = self._rules.after_answer(monotonic_ns() - self._began_ns, answered=answered)
            if state == "ended" and not self._one_goes_ahead():
                self._rules.resume()
                state = "began"
        self._rules.end(monotonic_ns() - self._began_ns)
        self.abandoned = state == "abandoned"
        log.warning("the outage of engine %s has %s after %.1f s", self._engine, state, self.lasted_s)
        self._send(state)

    def _one_goes_ahead(self) -> bool:
        """Let one of the waiting jobs begin; return whether the engine works for it."""
        self._is_away = False
        self._leads_wanted = True
        self._gate.set()
        gevent.sleep(LEAD_S)
        self._leads_wanted = False
        self._gate.clear()
        return not self._is_away

    @property
    def lasted_s(self) -> float:
        """How long ago the last outage began, in seconds."""
        return (monotonic_ns() - self._began_ns) / 1e9

    def _send(self, state: OutageState) -> None:
        now_ns = monotonic_ns()
        self._report(OutageNews(self._engine, self._trial, state, self._began_ns, now_ns, self._failed, self._reason))


class Outages:
    """The outages of a worker's engines, and what jobs left behind in them.

    `answers` says whether a treatment's engine answers, and may block; `report` gets the news; `interruptibly` calls
    a function that waits so that the end of the run interrupts it.
    """

    def __init__(
        self,
        answers: Callable[[Treatment], bool],
        report: Callable[[OutageNews], None],
        interruptibly: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self._answers = answers
        self._report = report
        self._interruptibly = interruptibly
        self._by_engine: dict[str, EngineOutage] = {}
        self._unremoved: list[Callable[[], object]] = []
        """Removes what jobs left behind when their engine did not answer."""
        self._refused: set[int] = set()
        """The tickets of jobs whose first operation their engine did not begin, as it was away."""
        self._treatment: Treatment | None = None
        self.trial = -1
        self.present: EngineOutage | None = None
        """The outage of the present treatment's engine, until one of its jobs is done."""

    def switch_treatment(self, treatment: Treatment) -> None:
        """Let the engine of a treatment be the present one."""
        self._treatment = treatment
        self.present = self._by_engine.get(treatment.engine)

    def begin(self, reason: str) -> EngineOutage:
        """Let further jobs of the present treatment wait until its engine answers."""
        treatment = self._treatment
        assert treatment is not None
        engine = treatment.engine
        if engine not in self._by_engine:
            self._by_engine[engine] = EngineOutage(engine, partial(self._answers, treatment), self._report)
        self.present = outage = self._by_engine[engine]
        outage.begin(reason, self.trial, job_limit_s(treatment))
        return outage

    def refuse(self, ticket: int, reason: str) -> None:
        """Note that the engine did not begin a job's first operation: nothing was made for it."""
        self._refused.add(ticket)
        self.begin(reason)

    def may_wait(self, ticket: int) -> bool:
        """Return whether a job that failed can wait for the end of the outage instead, and forget that it failed."""
        if ticket not in self._refused:
            return False
        self._refused.discard(ticket)
        return self.present is not None and not self.present.abandoned

    def await_end(self, outage: EngineOutage) -> None:
        """Wait for the end of an outage; before that, the first job removes what those left that failed by it.

        Raises `JobAborted`.
        """
        while outage.under_way:
            self._interruptibly(outage.wait)
            if self._remove_leftovers():
                return
        if self._unremoved and not outage.abandoned:
            self._remove_leftovers()

    def remove_later(self, remove: Callable[[], object]) -> None:
        """Keep a call that removes what a job left behind; it keeps itself again where that fails."""
        self._unremoved.append(remove)

    def job_done(self) -> None:
        """Note that a job of the present engine is done: what follows is another outage."""
        self._by_engine.clear()
        self.present = None

    def _remove_leftovers(self) -> bool:
        """Remove what jobs left when their engine was away; return whether it answered."""
        waiting, self._unremoved = self._unremoved, []
        for remove in waiting:
            remove()
        return not self._unremoved
