"""What became of the jobs of a comparison's sides that failed, in words for the answer."""

from __future__ import annotations

from typing import Final

from bench_common.safe_text import one_line, shorten
from bench_master.formatting import plural
from bench_master.run_data.aggregate import Aggregator
from bench_master.run_data.trial_values import TrialTable

_MOST_CHARS: Final = 110
"""Of a message in the answer; the errors below have more of it."""


def failed_jobs(trials: TrialTable, treatment: int) -> tuple[int, int]:
    """Return how many of a treatment's jobs failed, and of how many that ran."""
    own = trials.rounds[treatment].values()
    return sum(each.failed for each in own), sum(each.failed + each.jobs for each in own)


def failure_text(ledger: Aggregator, trials: TrialTable, treatment: int) -> str | None:
    """Return how many jobs of a treatment failed and why most of them did; None where none failed.

    Such as ``4 of 4 jobs: run: exit code 1 of 'false'``.
    """
    failed, ran = failed_jobs(trials, treatment)
    if not failed:
        return None
    # Of several messages of as many jobs it is the first one.
    own = [group for group in ledger.errors.values() if group.treatments[treatment]]
    most = min(own, key=lambda group: (-group.treatments[treatment], group.job), default=None)
    return failure_words(failed, ran, "" if most is None else reason_of(most.messages[treatment]))


def failure_words(failed: int, ran: int, reason: str) -> str:
    """Return counts of jobs and a reason, which may be empty, as a clause."""
    return f"{failed:,} of {plural(ran, 'job')}{f': {reason}' if reason else ''}"


def reason_of(message: str) -> str:
    """Return the first line of an error's message that says something, as short as the answer wants it."""
    said = (line for line in map(one_line, message.splitlines()) if line)
    return shorten(next(said, ""), _MOST_CHARS).rstrip(".")
