"""Holds what a stats file says of itself against its rows: a file that contradicts itself is damaged.

Blocks that were removed or repeated show in their numbers, but only where blocks have numbers; and what was recorded
wrongly shows in none. Here each job must have one row, a trial that calls itself complete as many rows as its plan
has jobs, and a complete run as many as its last block counts. Memory does not grow with the jobs: their numbers are
dense.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench_common.records import JOB_ID, Outcome
from bench_common.stats.block_types import Header, StoredFooter

ACCOUNTED_KINDS: Final = frozenset({"jobs", "event", "footer"})
"""The blocks that an `Account` is made of."""
MAX_GAPS: Final = 1 << 20
"""The most gaps between the numbers of the jobs so far; no run leaves so many."""
_MAX_NAMED: Final = 3
_JOB_ID: Final = np.uint64(JOB_ID)


class JobNumbers:
    """The numbers of the jobs that have a row, as ranges without a gap."""

    def __init__(self) -> None:
        self._firsts = np.zeros(0, np.int64)
        self._lasts = np.zeros(0, np.int64)
        self.repeated: list[int] = []
        """Some numbers that came again."""

    @property
    def gaps(self) -> int:
        """How many gaps there are between numbers."""
        return max(0, len(self._firsts) - 1)

    def add(self, numbers: npt.NDArray[np.int64]) -> None:
        """Add the numbers of a block, in any order."""
        lowest = int(numbers.min())
        span = int(numbers.max()) - lowest + 1
        if span == len(numbers) and np.count_nonzero(np.bincount(numbers - lowest, minlength=span)) == span:
            # As a rule: they are all of a range, in some order.
            self._add_ranges(np.array([lowest]), np.array([lowest + span - 1]))
            return
        numbers = np.sort(numbers)
        steps = np.diff(numbers)
        if not steps.all():
            self._note(numbers[1:][steps == 0])
            numbers = numbers[np.concatenate([[True], steps > 0])]
            steps = np.diff(numbers)
        ends = np.flatnonzero(steps != 1)
        firsts = numbers[np.concatenate([[0], ends + 1])]
        lasts = numbers[np.concatenate([ends, [len(numbers) - 1]])]
        self._add_ranges(firsts, lasts)

    def _add_ranges(self, firsts: npt.NDArray[np.int64], lasts: npt.NDArray[np.int64]) -> None:
        """Add ranges in order, with gaps between them."""
        if len(self._firsts) and firsts[0] <= self._lasts[-1]:
            self._merge(firsts, lasts)
        elif len(self._firsts) and firsts[0] == self._lasts[-1] + 1:
            # As a rule: the block goes on where the last one ended.
            self._lasts = np.concatenate([self._lasts[:-1], lasts])
            self._firsts = np.concatenate([self._firsts, firsts[1:]])
        else:
            self._firsts = np.concatenate([self._firsts, firsts])
            self._lasts = np.concatenate([self._lasts, lasts])

    def _merge(self, firsts: npt.NDArray[np.int64], lasts: npt.NDArray[np.int64]) -> None:
        firsts, lasts = np.concatenate([self._firsts, firsts]), np.concatenate([self._lasts, lasts])
        order = np.argsort(firsts, kind="stable")
        firsts, lasts = firsts[order], lasts[order]
        reached = np.maximum.accumulate(lasts)
        self._note(firsts[1:][firsts[1:] <= reached[:-1]])
        begins = np.concatenate([[True], firsts[1:] > reached[:-1] + 1])
        self._firsts = firsts[begins]
        self._lasts = reached[np.concatenate([begins[1:], [True]])]

    def _note(self, numbers: npt.NDArray[np.int64]) -> None:
        self.repeated += numbers[: _MAX_NAMED - len(self.repeated)].tolist()


class Account:
    """Takes the blocks of a file that count; `contradiction` is what they say against each other."""

    def __init__(self, header: Header) -> None:
        self._treatments = header.treatments
        self._trials = header.trials
        self._numbers = JobNumbers()
        self._rows = np.zeros(len(self._trials), np.int64)
        """Rows by trial, and those of them whose job did not run to its end."""
        self._unfinished = np.zeros_like(self._rows)
        self._outcomes: Counter[str] = Counter()
        self._returned: Counter[int] = Counter()
        self._complete: dict[int, bool] = {}
        self._footer = StoredFooter()

    def add(self, kind: str, body: Any) -> None:
        """Take a block, jobs as rows or `Columns`."""
        if kind == "jobs" and len(body):
            self._add_jobs(body)
        elif kind == "event":
            self._add_event(body)
        elif kind == "footer":
            self._footer = body

    def _add_jobs(self, rows: Any) -> None:
        if self._numbers.gaps <= MAX_GAPS:
            self._numbers.add((rows["ticket"] & _JOB_ID).view(np.int64))
        outcomes = rows["outcome"]
        counts = np.bincount(outcomes, minlength=len(Outcome)).tolist()
        for outcome in Outcome:
            self._outcomes[outcome.name.lower()] += counts[outcome]
        trials, known = rows["trial"], len(self._rows)
        if int(trials.max()) >= known:
            planned = trials < known
            trials, outcomes = trials[planned], outcomes[planned]
        if not len(trials):
            return
        self._rows += np.bincount(trials, minlength=known)
        if sum(counts[Outcome.FAILED + 1 :]):
            self._unfinished += np.bincount(trials[outcomes > Outcome.FAILED], minlength=known)

    def _add_event(self, event: Mapping[str, Any]) -> None:
        kind, trial = event["kind"], event.get("trial", -1)
        if kind == "resumed":
            self._footer = StoredFooter()
        elif kind == "trial-end":
            self._complete[trial] = event.get("complete") is True
        elif kind == "packed":
            self._returned[trial] += event.get("returned", 0)

    @property
    def contradiction(self) -> str | None:
        """What contradicts what in the whole file; None if nothing does."""
        found = []
        if self._numbers.repeated:
            found.append(f"{_some('job', self._numbers.repeated)} more than one row")
        elif self._numbers.gaps > MAX_GAPS:
            found.append(f"the numbers of the jobs have more than {MAX_GAPS} gaps")
        found += self._odd_trials()
        if self._footer.status == "complete":
            found += differing_counts(self._footer, self._outcomes)
        return f"{'; '.join(found)}: blocks are missing, or are there twice" if found else None

    def _odd_trials(self) -> Sequence[str]:
        """Say which trials call themselves complete, and are not by their rows.

        Results that a run failed to record are missing from complete trials: its footer says so.
        """
        may_lack = self._footer.status == "incomplete"
        found: list[int] = []
        for trial, complete in self._complete.items():
            if not complete or trial >= len(self._rows):
                continue
            jobs = self._treatments[self._trials[trial][0]].jobs_per_trial
            ended = int(self._rows[trial] - self._unfinished[trial])
            expected = ended if jobs is None else max(0, jobs - self._returned[trial])
            if self._unfinished[trial] or ended > expected or (ended < expected and not may_lack):
                found.append(trial)
        return [f"{_some('complete trial', found)} other jobs than planned"] if found else []


def differing_counts(footer: StoredFooter, outcomes: Mapping[str, int]) -> list[str]:
    """Return in what the footer's counts of jobs and the jobs of the file differ."""
    counts = footer.counts
    # Those left out are failed ones in the file.
    counted = {"done": counts.done, "failed": None if counts.failed is None else counts.failed + counts.left_out}
    return [
        f"the run counted {count:,} job{'' if count == 1 else 's'} {name}, the file holds {outcomes[name]:,}"
        for name, count in counted.items()
        if count is not None and count != outcomes[name]
    ]


def _some(what: str, numbers: Collection[int]) -> str:
    """Return ``job 3 has`` or ``jobs 3, 4, 5 ... have``."""
    if len(numbers) == 1:
        return f"{what} {next(iter(numbers))} has"
    named = ", ".join(map(str, list(numbers)[:_MAX_NAMED]))
    return f"{what}s {named}{' ...' * (len(numbers) > _MAX_NAMED)} have"
