"""Resumes a run in its stats file after a crash or an interruption.

The file is locked first, then read to its last whole block, and only cut and written to once the workers are there.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bench_common.errors import InfrastructureError, StatsFileError, UsageError
from bench_common.files import STDIN
from bench_common.stats.block_types import StoredTreatment, as_stored
from bench_common.stats.frame import block_follows
from bench_common.stats.reader import RESUMED, StatsFile, StatsWriter, SupersededTrials
from bench_master.formatting import plural
from bench_master.plan import Plan, Trial, more_rounds
from bench_master.run.journal import operation_names, read_clock, versions
from bench_master.run.live_stats import LiveStats
from bench_master.run.recorder import describe_loss
from bench_master.run.resume_state import REPLAYED_KINDS, ResumeState, replay
from bench_master.scenario import Scenario

CLEANUP_GRACE_S: Final = 5.0
"""How long workers whose lease has ended are given to remove what they left."""


class ResumableRun:
    """Locks the file at `path` and reads how far its run has come.

    Raises `NotAStatsFileError` for another kind of file, `StatsFileError` if it is damaged, cannot be written, or its
    run is still going on. Call `close` unless `writer` was called.
    """

    def __init__(self, path: Path) -> None:
        if str(path) == STDIN:
            raise UsageError("-: a run is resumed in its own file, not from standard input: name the file")
        self.stats = StatsFile(path)
        self.header = self.stats.header
        self._writer = StatsWriter(path, reopen=True)
        self._part_id = secrets.token_hex(4)
        self._more_trials: list[Trial] = []
        try:
            self.state = self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> ResumeState:
        path = self.stats.path
        if self.header.imported:
            raise UsageError(f"{path}: holds imported results, not a run of ours: there is nothing to resume")
        self._modified_s = path.stat().st_mtime
        try:
            state = replay(self.header, self.stats.blocks(REPLAYED_KINDS, everything=True))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StatsFileError(f"{path}: its run cannot be read: {type(error).__name__}: {error}") from error
        self._whole_bytes, self._chain = self.stats.intact_bytes, self.stats.intact_chain
        self._torn_bytes = path.stat().st_size - self._whole_bytes
        if self.stats.odd_blocks or (self.stats.damage is not None and block_follows(path, self._whole_bytes)):
            # No crash leaves this behind; to cut there would discard data that can perhaps be recovered.
            raise StatsFileError(f"{path}: is damaged in the middle ({self.stats.damage}); it cannot be resumed")
        if self.stats.contradiction is not None:
            raise StatsFileError(f"{path}: is damaged ({self.stats.contradiction}); it cannot be resumed")
        names = {number: worker_id for worker_id, number in state.numbers.items()}
        state.warnings += [
            describe_loss(names.get(loss.get("worker", -1), "?"), {"reason": "?", "held": 0, **loss})
            for loss in state.losses
        ]
        return state

    def close(self) -> None:
        """Close the file as it is."""
        self._writer.close()

    # -- the state ---------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether there is nothing to resume."""
        return self.state.status == "complete"

    @property
    def run_label(self) -> str:
        """The label of what the next part creates: the clean-up of any other part leaves it alone.

        It is random: there may be parts of the same number, of copies of the file.
        """
        return f"{self.header.run_id}-{self.state.parts + 1}-{self._part_id}"

    def remaining_lease_s(self, lease_s: float) -> float:
        """Return how long workers of a killed master may go on and clean up (s), given their lease."""
        if self.state.footer is not None:
            return 0.0
        silent_s = max(0.0, time.time() - self._modified_s)
        now = read_clock()
        if self._is_same_boot(now) and now["monotonic_ns"] >= self.state.last_ns:
            # The calendar may have been set since; this clock was not.
            silent_s = min(silent_s, (now["monotonic_ns"] - self.state.last_ns) / 1e9)
        return max(0.0, lease_s + CLEANUP_GRACE_S - silent_s)

    def _is_same_boot(self, now: Mapping[str, Any]) -> bool:
        """Return whether the machine, whose clock is `now`, is the one on which the run began, and still runs."""
        return bool(now["boot_id"]) and self.header.clock.boot_id == now["boot_id"]

    def summary(self) -> str:
        """Return one line on what is complete and what is left to do."""
        unneeded = len(self.state.unneeded_trials)
        planned, complete, rerun = (
            len(self.header.trials) - unneeded,
            len(self.state.complete_trials),
            len(self.state.rerun_trials),
        )
        text = f"{complete} of {plural(planned, 'trial')} complete, {rerun} incomplete and to be run again"
        needless = f", {unneeded} more not needed" if unneeded else ""
        text += f", {planned - complete - rerun} not begun{needless}"
        return f"{text}; the last part of the run ended as {self.state.status}"

    # -- more rounds -------------------------------------------------------------------------------------------

    def with_added_trials(self, plan: Plan) -> Plan:
        """Return the plan with the trials by which earlier parts extended the run."""
        added = enumerate(self.header.trials[len(plan.trials) :], len(plan.trials))
        return replace(plan, trials=(*plan.trials, *(Trial(index, *trial) for index, trial in added)))

    def extended(self, plan: Plan, scenario: Scenario, rounds: int) -> Plan:
        """Return the plan with more rounds, which the next part will add; raise `UsageError` where it cannot be."""
        path, advice = self.stats.path, "begin a new run"
        if not self.complete:
            raise UsageError(f"--more {rounds}: {path} is not complete: first resume it without --more")
        if scenario.until_verdict is not None:
            raise UsageError(f"--more {rounds}: {path} went on until it was settled, or its last look: {advice}")
        if plan.order == "blocked" or len(set(scenario.repeats)) > 1:
            raise UsageError(
                f"--more {rounds}: {path} has no whole rounds, by its order or its unequal repeats: {advice}"
            )
        self._more_trials = more_rounds(scenario, plan, rounds)
        return replace(plan, trials=(*plan.trials, *self._more_trials))

    # -- checks ------------------------------------------------------------------------------------------------

    def check_plan(self, plan: Plan) -> None:
        """Raise `UsageError` unless this is the plan of the run."""
        header = self.header
        trials = [(trial.treatment, trial.block, trial.warmup) for trial in plan.trials]
        stored = [_comparable(treatment) for treatment in header.treatments]
        ours = [
            _comparable(replace(as_stored(treatment), operation_names=list(operation_names(treatment))))
            for treatment in plan.treatments
        ]
        difference = None
        if (plan.order, plan.seed) != (header.order, header.seed):
            difference = f"order and seed are {plan.order} {plan.seed}, not {header.order} {header.seed}"
        elif len(ours) != len(stored):
            difference = f"{plural(len(ours), 'treatment')}, not {len(stored)}"
        elif ours != stored:
            place = next(place for place, pair in enumerate(zip(ours, stored, strict=True)) if pair[0] != pair[1])
            keys = ", ".join(key for key in ours[place] if ours[place][key] != stored[place].get(key))
            difference = f"treatment {header.treatments[place].title!r} differs in {keys}"
        elif trials != header.trials:
            difference = "its trials are in another order"
        if difference is not None:
            version = header.versions.get("weighbridge")
            raise UsageError(
                f"{self.stats.path}: this is not the plan that it was begun with: {difference}. Resume it with the "
                f"scenario and the Weighbridge that it was begun with ({version}), or begin a new run"
            )

    def check_workers(self, environments: Sequence[str]) -> None:
        """Raise `InfrastructureError` unless each environment has as many workers as the run began with."""
        before, now = self.state.worker_counts, Counter(environments)
        if before and before != now:
            raise InfrastructureError(
                f"{self.stats.path}: the run was begun with {_format_worker_counts(before)}, "
                f"now there are {_format_worker_counts(now)}: "
                "trials with another load are another measurement"
            )

    # -- the next part -----------------------------------------------------------------------------------------

    def with_completed_trials(self, make: Callable[[int | None], LiveStats]) -> Callable[[int | None], LiveStats]:
        """Return a function like `make` whose live statistics include the complete trials of earlier parts.

        It returns the same object at each call; its argument is how many jobs are left.
        """
        live_stats = make(None)
        before = self._add_completed_trials(live_stats)

        def make_continued(planned: int | None) -> LiveStats:
            live_stats.planned = None if planned is None else planned + before
            return live_stats

        return make_continued

    def _add_completed_trials(self, live_stats: LiveStats) -> int:
        aside = SupersededTrials()
        for event in self.state.resumed:
            aside.note(event)
        aside.note({"kind": RESUMED, "at_ns": 1 << 63, **self._rerun_fields()})
        jobs = 0
        kinds = {"jobs", "operations", "transfers", "errors", "event"}
        for block in self.stats.blocks(kinds, everything=True):
            body = aside.counting(block.kind, block.body)
            if body is None:
                continue
            if block.kind == "jobs":
                jobs += len(body)
                live_stats.jobs(body)
            elif block.kind == "operations":
                live_stats.operations(body)
            elif block.kind == "transfers":
                live_stats.transfers(body)
            elif block.kind == "errors":
                live_stats.errors(body)
            elif body.get("trial") in self.state.complete_trials and body["kind"] == "trial-begin":
                live_stats.trial_began(body["trial"], body["at_ns"])
            elif body.get("trial") in self.state.complete_trials and body["kind"] == "trial-end":
                live_stats.trial_ended(body["trial"], body["at_ns"])
        live_stats.mark_resumed(time.monotonic_ns())
        return jobs

    def _rerun_fields(self) -> dict[str, Any]:
        return {"rerun_trials": self.state.rerun_trials, "first_job": self.state.first_job}

    def writer(self, argv: Sequence[str]) -> tuple[StatsWriter, int]:
        """Cut the torn tail and write the ``resumed`` event; return the writer and the shift of its clock (ns).

        Within one boot of the machine the clock of the file is ours. After another boot the calendar says how far it
        would be by now; it never goes back.
        """
        state, began, now = self.state, self.header.clock, read_clock()
        shift_ns = 0
        if not self._is_same_boot(now) or now["monotonic_ns"] < state.last_ns:
            due_ns = began.monotonic_ns + now["unix_ns"] - began.unix_ns
            shift_ns = max(due_ns, state.last_ns + 1) - now["monotonic_ns"]
        at_ns = now["monotonic_ns"] + shift_ns
        self._writer.truncate_to(self._whole_bytes, self._chain)
        self._writer.put(
            "event",
            {
                "kind": RESUMED,
                "at_ns": at_ns,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                **self._rerun_fields(),
                "complete_trials": len(state.complete_trials),
                "ended": state.status,
                "gap_ns": at_ns - state.last_ns,
                "cut_bytes": self._torn_bytes,
                "shift_ns": shift_ns,
                "run_label": self.run_label,
                "more_trials": [[trial.treatment, trial.block, trial.warmup] for trial in self._more_trials],
                "argv": list(argv),
                "versions": versions(),
            },
        )
        # A flush may order blocks: no row of the next part may precede this event.
        self._writer.sync()
        return self._writer, shift_ns


def _comparable(treatment: StoredTreatment) -> dict[str, Any]:
    """Return a treatment as plain data, without what does not belong to the plan, such as the title and metrics."""
    plain = json.loads(msgspec.json.encode(treatment))
    derived = ("title", "cost_name", "metrics", "jobs_per_trial", "primary")
    kept = {key: value for key, value in plain.items() if key not in derived}
    kept["labels"] = {key: value for key, value in kept["labels"].items() if key != "environment"}
    return kept


def _format_worker_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{plural(count, 'worker')} in {name}" for name, count in sorted(counts.items())) or "none"
