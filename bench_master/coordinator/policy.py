"""The deadlines and limits that a run keeps to, apart from the decisions that use them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The deadlines (seconds) and limits of a run.

    `expected` workers are gathered for at most `gather_s`; one that is silent for `silence_s` is missed and awaited
    for `rejoin_s`; a job is tried `max_attempts` times; a second Ctrl-C waits `abort_s`, the clean-up `sweep_s`.
    `user_count` is how many jobs are in flight over all workers, in place of each treatment's own concurrency.
    `look_ahead` lets jobs wait at a worker beyond those that run there, where jobs are independent; `batch_size`
    fixes how many jobs and results travel together.
    """

    expected: int = 1
    gather_s: float = 30.0
    silence_s: float = 5.0
    rejoin_s: float = 10.0
    max_attempts: int = 3
    abort_s: float = 15.0
    sweep_s: float = 60.0
    user_count: int | None = None
    look_ahead: bool = True
    batch_size: int | None = None
