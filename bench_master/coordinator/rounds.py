"""The rounds of a run that goes on until its verdicts are settled: when to look, and when it is over.

The coordinator asks for a look after each complete measured round that may conclude something, and begins no trial
before the answer. The last look is fixed before the first one, by the length of a round where there is a budget.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.policy import StoppingRule
from bench_master.plan import Trial
from bench_master.verdicts.stopping import GAP_ROUNDS, last_look

StoppingReason: TypeAlias = Literal["settled", "at-most", "budget"]

LOOK_TIMEOUT_S: Final = 60.0
"""How long a look may take before the run goes on without it."""


class Rounds:
    """Follows the rounds of one run; `settled` are the treatments that need no more trials."""

    def __init__(self, rule: StoppingRule) -> None:
        self._rule = rule
        self._run_began = self._round_began = 0.0
        self._rounds = 0
        self._look_deadline: float | None = None
        self._over: StoppingReason | None = None
        self.last = rule.last
        self.settled = rule.settled
        if self.last is None and rule.budget_s is None:
            self.last = rule.at_most

    def begin(self, now: float) -> list[act.Action]:
        """Note that the run begins."""
        self._run_began = self._round_began = now
        return [] if self.last is None else [self._last_look_event(None)]

    def trial_ended(self, trial: Trial, following: Trial | None, now: float) -> list[act.Action]:
        """Note the end of a trial; ask for a look if a round of the comparison has ended with it."""
        if trial.treatment >= self._rule.treatments:
            # The host ceilings come first, and are no rounds.
            self._round_began = now
            return []
        if following is not None and following.block == trial.block and following.treatment < self._rule.treatments:
            return []
        lasted_s, self._round_began = now - self._round_began, now
        actions: list[act.Action] = []
        if self.last is None:
            self.last = last_look(self._rule.at_most, self._rule.budget_s, lasted_s)
            actions.append(self._last_look_event(lasted_s))
        if trial.warmup:
            return actions
        self._rounds = trial.block - self._rule.warmup + 1
        if self._rounds >= GAP_ROUNDS or self._is_budget_over(now):
            self._look_deadline = now + LOOK_TIMEOUT_S
            actions.append(act.TakeLook(self._rounds, self.last))
        return actions

    def awaits_look(self, now: float) -> bool:
        """Whether a look was asked for and may still come."""
        return self._look_deadline is not None and now < self._look_deadline

    def postpone(self, seconds: float) -> None:
        """Leave out a time in which nothing ran: a look may come later, and the round took no longer for it."""
        self._round_began += seconds
        if self._look_deadline is not None:
            self._look_deadline += seconds

    def take(self, event: ev.LookTaken) -> bool:
        """Take the outcome of a look; return False if it was not asked for."""
        if self._look_deadline is None or event.rounds != self._rounds:
            return False
        self._look_deadline = None
        self.settled |= event.settled
        return True

    def why_over(self, now: float) -> StoppingReason | None:
        """Return why the run needs no more rounds; None if it goes on."""
        if self.settled.issuperset(range(self._rule.treatments)):
            return "settled"
        if self.last is not None and self._rounds >= self.last:
            return "at-most" if self.last == self._rule.at_most else "budget"
        return "budget" if self._is_budget_over(now) else None

    def end(self, why: StoppingReason) -> list[act.Action]:
        """Return the note of the end."""
        return [act.LogEvent("rounds-over", {"rounds": self._rounds, "last": self.last, "why": why})]

    def _is_budget_over(self, now: float) -> bool:
        budget_s = self._rule.budget_s
        return budget_s is not None and now - self._run_began + self._rule.spent_s >= budget_s

    def _last_look_event(self, round_s: float | None) -> act.Action:
        fields = {"last": self.last, "at_most": self._rule.at_most, "budget_s": self._rule.budget_s}
        return act.LogEvent("last-look", {**fields, "round_s": round_s, "treatments": self._rule.treatments})
