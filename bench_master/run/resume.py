"""A run that goes on in the stats file that it has, after a crash or an interruption.

The file is locked first, then read to its last whole block, and only cut and written to once the workers are there.

How far a run has come, by its stats file alone: the journal, replayed.

`replay` is a pure function of the file's blocks. It says which trials are whole, so that they need not be run again,
and everything else that a resumed run must not lose: which job ids and roster numbers are taken, how long the parts
before lasted, what they warned of.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench_common.errors import InfrastructureError, StatsFileError, UsageError
from bench_common.records import JOB_ID, job_id_of
from bench_common.stats.frame import block_follows
from bench_common.stats.reader import RESUMED, Block, StatsFile, StatsWriter, SupersededTrials
from bench_master.formatting import plural
from bench_master.plan import Plan
from bench_master.run.dispatcher import DEFAULT_LEASE_S
from bench_master.run.journal import operation_names, read_clock, versions
from bench_master.run.live_stats import LiveStats
from bench_master.run.recorder import describe_loss

REPLAYED_KINDS: Final = frozenset({"host", "jobs", "metrics", "errors", "outputs", "event", "footer"})
"""The blocks that `replay` needs."""


@dataclass(slots=True)
class ResumeState:
    """What is known of a run. Trials go by their index in the plan; instants are ns of the file's own clock."""

    whole: set[int] = field(default_factory=set)
    """Trials that were run, every job of them."""
    again: list[int] = field(default_factory=list)
    """Trials that were begun, and must be run again, in the order in which they were begun."""
    first_job: int = 0
    """The first job id that is in no row of the file, and above all that are."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The roster number of each worker that ever joined, by its id."""
    environments: dict[int, str] = field(default_factory=dict)
    """The environment of each of these numbers."""
    roster: list[int] = field(default_factory=list)
    """The numbers of those who began the run."""
    parts: int = 1
    """How many times the run was begun or resumed."""
    footer: Mapping[str, Any] | None = None
    """How the last part ended; None where it was killed."""
    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    last_ns: int = 0
    previous_parts_ns: int = 0
    """How long the parts lasted, summed, without the gaps between them."""
    began_ns: int = 0
    resumed: list[Mapping[str, Any]] = field(default_factory=list)
    """The events of the resumes before."""
    losses: list[Mapping[str, Any]] = field(default_factory=list)
    """The losses of workers since the last footer, which would have warned of them."""

    @property
    def status(self) -> str:
        """How the last part ended: as its footer says, or ``killed``."""
        return "killed" if self.footer is None else str(self.footer.get("status"))

    @property
    def crew(self) -> Counter[str]:
        """How many workers the run began with in each environment."""
        return Counter(self.environments.get(number, "?") for number in self.roster)


def replay(header: Mapping[str, Any], blocks: Iterable[Block]) -> ResumeState:
    """Return where the run of these blocks stands; they are of `KINDS`, and everything of them.

    What a trial was before it was begun anew does not count, nor does a footer with something behind it. Events that
    name no trial of the plan are passed over.
    """
    began_ns = int(header["clock"]["monotonic_ns"])
    found = ResumeState(began_ns=began_ns, last_ns=began_ns)
    planned = len(header["trials"])
    begun: dict[int, None] = {}
    for block in blocks:
        match block.kind:
            case "jobs":
                if len(block.body):
                    _note_job_ids(found, int((block.body["ticket"] & np.uint64(JOB_ID)).max()))
                    found.last_ns = max(found.last_ns, int(block.body["end_ns"].max()))
                    _note_trials(begun, np.unique(block.body["trial"]).tolist(), planned)
            case "metrics" | "errors" | "outputs":
                _note_job_ids(found, max((job_id_of(record.ticket) for record in block.body), default=-1))
                _note_trials(begun, (record.trial for record in block.body), planned)
            case "host":
                _note_host(found, block.body)
            case "footer":
                found.footer = block.body
                found.warnings = [str(text) for text in block.body.get("warnings", ())]
                found.remarks = [str(text) for text in block.body.get("remarks", ())]
                found.losses = []
            case "event":
                _note_event(found, block.body, begun, planned)
    found.previous_parts_ns += found.last_ns - found.began_ns
    found.again = [trial for trial in begun if trial not in found.whole]
    return found


def _note_job_ids(found: ResumeState, highest: int) -> None:
    found.first_job = max(found.first_job, highest + 1)


def _note_trials(begun: dict[int, None], trials: Iterable[int], planned: int) -> None:
    # A flush puts rows before events: a cut between them leaves jobs of a trial whose begin is not in the file.
    begun.update(dict.fromkeys(trial for trial in trials if trial < planned))


def _note_host(found: ResumeState, body: Mapping[str, Any]) -> None:
    number, worker_id = body.get("worker"), body.get("worker_id")
    if isinstance(number, int) and isinstance(worker_id, str):
        found.numbers[worker_id] = number
        found.environments[number] = str(body.get("environment"))


def _note_event(found: ResumeState, event: Mapping[str, Any], begun: dict[int, None], planned: int) -> None:
    kind, at_ns = event.get("kind"), event.get("at_ns")
    if kind == "worker-lost":
        found.losses.append(event)
    elif kind == RESUMED:
        found.resumed.append(event)
        found.parts += 1
        found.footer = None
        found.first_job = max(found.first_job, int(event.get("first_job", 0)))
        found.previous_parts_ns += found.last_ns - found.began_ns
        found.began_ns = int(event.get("at_ns", found.last_ns))
        found.last_ns = max(found.last_ns, found.began_ns)
    if isinstance(at_ns, int):
        found.last_ns = max(found.last_ns, at_ns)
    if kind == "run-begin" and not found.roster:
        roster: Sequence[Any] = event.get("roster", ())
        found.roster = [member["worker"] for member in roster]
    trial = event.get("trial")
    if not isinstance(trial, int) or not 0 <= trial < planned:
        return
    if kind == "trial-begin":
        begun[trial] = None
        found.whole.discard(trial)
    elif kind == "trial-end":
        if event.get("whole") is True:
            found.whole.add(trial)
        else:
            found.whole.discard(trial)


CLEANUP_GRACE_S: Final = 5.0
"""How long workers whose lease has ended are given to remove what they left."""


class ResumableRun:
    """Locks the file at `path` and reads how far its run has come.

    Raises `NotAStatsFileError` for a file that is none, `StatsFileError` for one that is damaged, that cannot be
    written, or whose run is still under way. `close` it, unless `writer` is handed on.
    """

    def __init__(self, path: Path) -> None:
        self.stats = StatsFile(path)
        self.header = self.stats.header
        self._writer = StatsWriter(path, reopen=True)
        try:
            self.standing = self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> ResumeState:
        path = self.stats.path
        self._modified_s = path.stat().st_mtime
        try:
            standing = replay(self.header, self.stats.blocks(REPLAYED_KINDS, everything=True))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StatsFileError(f"{path}: its run cannot be followed: {type(error).__name__}: {error}") from error
        self._whole_bytes = self.stats.intact_bytes
        self._torn_bytes = path.stat().st_size - self._whole_bytes
        if self.stats.damage is not None and block_follows(path, self._whole_bytes):
            # No crash leaves this behind; to cut there would throw away what can perhaps be mended.
            raise StatsFileError(f"{path}: is damaged in the middle ({self.stats.damage}); it cannot be resumed")
        names = {number: worker_id for worker_id, number in standing.numbers.items()}
        standing.warnings += [
            describe_loss(names.get(loss.get("worker", -1), "?"), {"reason": "?", "held": 0, **loss})
            for loss in standing.losses
        ]
        return standing

    def close(self) -> None:
        """Let the file go as it is."""
        self._writer.close()

    # -- what it says ------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether there is nothing to resume."""
        return self.standing.status == "complete"

    @property
    def run_label(self) -> str:
        """The id under which the next part labels what it makes: whoever cleans up after another leaves it alone."""
        return f"{self.header['run_id']}-{self.standing.parts + 1}"

    def patience_s(self, lease_s: float = DEFAULT_LEASE_S) -> float:
        """Return how long workers of a master that was killed may still be at work, whose lease was so long."""
        if self.standing.footer is not None:
            return 0.0
        silent_s = max(0.0, time.time() - self._modified_s)
        return max(0.0, lease_s + CLEANUP_GRACE_S - silent_s)

    def summary(self) -> str:
        """Return one line on what is there and what is left to do."""
        planned, whole, again = len(self.header["trials"]), len(self.standing.whole), len(self.standing.again)
        text = f"{whole} of {plural(planned, 'trial')} whole, {again} begun and to be run again"
        return (
            f"{text}, {planned - whole - again} not begun; the last part of the run ended as {self.standing.status}"
        )

    # -- what must be the same ---------------------------------------------------------------------------------

    def check_plan(self, plan: Plan) -> None:
        """Raise `UsageError` unless this is the plan that the run was begun with."""
        header = self.header
        trials = [[trial.treatment, trial.block, trial.warmup] for trial in plan.trials]
        stored = [_comparable(treatment) for treatment in header["treatments"]]
        ours = [
            _comparable({**treatment.to_wire(), "operation_names": operation_names(treatment)})
            for treatment in plan.treatments
        ]
        told = None
        if (plan.order, plan.seed) != (header["order"], header["seed"]):
            told = f"order and seed are {plan.order} {plan.seed}, not {header['order']} {header['seed']}"
        elif len(ours) != len(stored):
            told = f"{plural(len(ours), 'treatment')}, not {len(stored)}"
        elif ours != stored:
            place = next(place for place, pair in enumerate(zip(ours, stored, strict=True)) if pair[0] != pair[1])
            keys = ", ".join(key for key in ours[place] if ours[place][key] != stored[place].get(key))
            told = f"treatment {header['treatments'][place].get('title')!r} differs in {keys}"
        elif trials != header["trials"]:
            told = "its trials come in another order"
        if told is not None:
            version = header["versions"].get("weighbridge")
            raise UsageError(
                f"{self.stats.path}: this is not the plan that it was begun with: {told}. Resume it with the "
                f"scenario and the Weighbridge that it was begun with ({version}), or begin a new run"
            )

    def check_workers(self, environments: Sequence[str]) -> None:
        """Raise `InfrastructureError` unless as many workers are there as began the run, in each environment."""
        before, now = self.standing.crew, Counter(environments)
        if before and before != now:
            raise InfrastructureError(
                f"{self.stats.path}: the run was begun with {_format_worker_counts(before)}, "
                f"now there are {_format_worker_counts(now)}: "
                "trials with another load are another measurement"
            )

    # -- going on ----------------------------------------------------------------------------------------------

    def counting(self, make: Callable[[int | None], LiveStats]) -> Callable[[int | None], LiveStats]:
        """Return a maker of tallies like `make`, which gives one that knows all whole trials: the same each time.

        What it is told is how many jobs are still planned.
        """
        tally = make(None)
        before = self._fill(tally)

        def counted_on(planned: int | None) -> LiveStats:
            tally.planned = None if planned is None else planned + before
            return tally

        return counted_on

    def _fill(self, tally: LiveStats) -> int:
        aside = SupersededTrials()
        for event in self.standing.resumed:
            aside.note(event)
        aside.note({"kind": RESUMED, "at_ns": 1 << 63, **self._again()})
        jobs = 0
        for block in self.stats.blocks({"jobs", "operations", "errors", "event"}, everything=True):
            body = aside.counting(block.kind, block.body)
            if body is None:
                continue
            if block.kind == "jobs":
                jobs += len(body)
                tally.jobs(body)
            elif block.kind == "operations":
                tally.operations(body)
            elif block.kind == "errors":
                tally.errors(body)
            elif body.get("trial") in self.standing.whole and body["kind"] == "trial-begin":
                tally.trial_began(body["trial"], body["at_ns"])
            elif body.get("trial") in self.standing.whole and body["kind"] == "trial-end":
                tally.trial_ended(body["trial"], body["at_ns"])
        tally.mark_resumed(time.monotonic_ns())
        return jobs

    def _again(self) -> dict[str, Any]:
        return {"again": self.standing.again, "first_job": self.standing.first_job}

    def writer(self, argv: Sequence[str]) -> tuple[StatsWriter, int]:
        """Cut the torn tail and note that the run is resumed; return who goes on writing, and its clock's shift (ns).

        Within one boot the clock of the file is ours. After another boot it goes on from where the calendar says that
        it would be by now, and never back.
        """
        standing, began, now = self.standing, self.header["clock"], read_clock()
        shift_ns = 0
        known = bool(now["boot_id"]) and began.get("boot_id") == now["boot_id"]
        if not known or now["monotonic_ns"] < standing.last_ns:
            due_ns = began["monotonic_ns"] + now["unix_ns"] - began["unix_ns"]
            shift_ns = max(due_ns, standing.last_ns + 1) - now["monotonic_ns"]
        at_ns = now["monotonic_ns"] + shift_ns
        self._writer.truncate_to(self._whole_bytes)
        self._writer.put(
            "event",
            {
                "kind": RESUMED,
                "at_ns": at_ns,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                **self._again(),
                "whole": len(standing.whole),
                "ended": standing.status,
                "gap_ns": at_ns - standing.last_ns,
                "cut_bytes": self._torn_bytes,
                "shift_ns": shift_ns,
                "run_label": self.run_label,
                "argv": list(argv),
                "versions": versions(),
            },
        )
        # No row of the next part comes before this, whatever a flush puts first.
        self._writer.flush()
        return self._writer, shift_ns


def _comparable(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return a treatment as plain data; the environment where it was left open is none of the plan's."""
    plain = json.loads(json.dumps(wire))
    kept = {key: value for key, value in plain.items() if key not in ("title", "metrics")}
    kept["labels"] = {key: value for key, value in kept["labels"].items() if key != "environment"}
    return kept


def _format_worker_counts(crew: Counter[str]) -> str:
    return ", ".join(f"{plural(count, 'worker')} in {name}" for name, count in sorted(crew.items())) or "none"
