"""The state of a run to resume, from the blocks of its stats file alone.

`replay` is pure. It finds the complete trials, which need not run again, and everything else that a resumed run must
not lose: the job ids and roster numbers in use, how long the earlier parts lasted, what they warned of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from bench_common.records import JOB_ID, job_id_of
from bench_common.stats.block_types import Header, StoredFooter, StoredHost, StoredTrial
from bench_common.stats.reader import RESUMED, Block

REPLAYED_KINDS: Final = frozenset({"host", "jobs", "metrics", "errors", "outputs", "event", "footer"})
"""The blocks that `replay` needs."""


class ResumeState(Struct):
    """The state of a run. Trials go by their index in the plan; instants are ns of the file's own clock."""

    complete_trials: set[int] = field(default_factory=set)
    """Trials of which every job ran to its end."""
    unneeded_trials: set[int] = field(default_factory=set)
    """Trials that were left out because the comparisons needed them no more."""
    settled: set[int] = field(default_factory=set)
    """Treatments of which every comparison was settled."""
    last_look: int | None = None
    """The last look, once it was fixed, of a run that goes on until its verdicts are settled."""
    rerun_trials: list[int] = field(default_factory=list)
    """Trials that began and are incomplete, in the order in which they began: they run again."""
    first_job: int = 0
    """The first unused job id: above all job ids in the file."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The roster number of each worker that ever joined, by its id."""
    environments: dict[int, str] = field(default_factory=dict)
    """The environment of each worker, by its roster number."""
    roster: list[int] = field(default_factory=list)
    """The numbers of the workers that the run began with."""
    parts: int = 1
    """How many times the run was begun or resumed."""
    footer: StoredFooter | None = None
    """How the last part ended; None where it was killed."""
    warnings: list[str] = field(default_factory=list)
    """The warnings of the last footer."""
    remarks: list[str] = field(default_factory=list)
    """The remarks of the last footer."""
    last_ns: int = 0
    """The last instant in the file."""
    previous_parts_ns: int = 0
    """How long the parts lasted, summed, without the gaps between them."""
    began_ns: int = 0
    """When the last part began."""
    resumed: list[Mapping[str, Any]] = field(default_factory=list)
    """The ``resumed`` events so far, in order."""
    losses: list[Mapping[str, Any]] = field(default_factory=list)
    """The losses of workers since the last footer: no footer has warned of them."""

    @property
    def status(self) -> str:
        """How the last part ended: as its footer says, or ``killed``."""
        return "killed" if self.footer is None else str(self.footer.status)

    @property
    def finished_trials(self) -> set[int]:
        """Trials that need not run again."""
        return self.complete_trials | self.unneeded_trials

    @property
    def worker_counts(self) -> Counter[str]:
        """How many workers the run began with in each environment."""
        return Counter(self.environments.get(number, "?") for number in self.roster)


def replay(header: Header, blocks: Iterable[Block]) -> ResumeState:
    """Return the state of the run in these blocks, which are all those of `REPLAYED_KINDS`.

    Only the last begin of a trial counts, and a footer only if no later part follows it. Events with a trial that is
    not in the plan are ignored.
    """
    began_ns = header.clock.monotonic_ns
    found = ResumeState(began_ns=began_ns, last_ns=began_ns)
    planned = len(header.trials)
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
                found.warnings = block.body.warnings
                found.remarks = block.body.remarks
                found.losses = []
            case "event":
                _note_event(found, block.body, begun, header.trials)
    _end_part(found)
    found.rerun_trials = [trial for trial in begun if trial not in found.complete_trials]
    return found


def _end_part(found: ResumeState) -> None:
    """Note how long the run lasted with the part that ends here: as its footer says, else up to its last instant."""
    stated = None if found.footer is None else found.footer.duration_s
    found.previous_parts_ns += found.last_ns - found.began_ns
    if stated is not None:
        found.previous_parts_ns = round(stated * 1e9)


def _note_job_ids(found: ResumeState, highest: int) -> None:
    found.first_job = max(found.first_job, highest + 1)


def _note_trials(begun: dict[int, None], trials: Iterable[int], planned: int) -> None:
    # A flush writes rows before events: a cut between them leaves jobs of a trial without its `trial-begin`.
    begun.update(dict.fromkeys(trial for trial in trials if trial < planned))


def _note_host(found: ResumeState, body: StoredHost) -> None:
    if body.worker_id is not None:
        found.numbers[body.worker_id] = body.worker
        found.environments[body.worker] = str(body.environment)


def _note_event(
    found: ResumeState, event: Mapping[str, Any], begun: dict[int, None], trials: Sequence[StoredTrial]
) -> None:
    kind, at_ns = event.get("kind"), event.get("at_ns")
    if kind == "worker-lost":
        found.losses.append(event)
    elif kind == RESUMED:
        found.resumed.append(event)
        found.parts += 1
        _end_part(found)
        found.footer = None
        found.first_job = max(found.first_job, int(event.get("first_job", 0)))
        found.began_ns = int(event.get("at_ns", found.last_ns))
        found.last_ns = max(found.last_ns, found.began_ns)
    if isinstance(at_ns, int):
        found.last_ns = max(found.last_ns, at_ns)
    if kind == "run-begin" and not found.roster:
        roster: Sequence[Any] = event.get("roster", ())
        found.roster = [member["worker"] for member in roster]
    trial = event.get("trial")
    if kind == "last-look":
        found.last_look = event["last"]
    if not isinstance(trial, int) or not 0 <= trial < len(trials):
        return
    _note_trial(found, trial, event, begun, trials)


def _note_trial(
    found: ResumeState,
    trial: int,
    event: Mapping[str, Any],
    begun: dict[int, None],
    trials: Sequence[StoredTrial],
) -> None:
    kind = event.get("kind")
    if kind == "trial-skipped" and "reason" in event:
        found.unneeded_trials.add(trial)
        if event["reason"] == "settled":
            found.settled.add(int(trials[trial][0]))
    if kind == "trial-begin":
        begun[trial] = None
        found.complete_trials.discard(trial)
    elif kind == "trial-end":
        if event.get("complete") is True:
            found.complete_trials.add(trial)
        else:
            found.complete_trials.discard(trial)
