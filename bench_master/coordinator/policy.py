"""The policy of a run: its deadlines, how often a job is tried, how long a silence is tolerated, when it ends."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

HEARTBEAT_INTERVAL_S: Final = 0.5
"""How often a worker sends a heartbeat, and gets one back."""
DEFAULT_LEASE_S: Final = 15.0
"""How long a worker goes on without a message from its master."""


class StoppingRule(Struct, frozen=True):
    """How a run goes on until its verdicts are settled."""

    at_most: int
    """Measured rounds at most."""
    budget_s: float | None = None
    """How long the run may take in all; it ends after the round in which this is over."""
    spent_s: float = 0.0
    """How much of the budget earlier parts of the run took."""
    last: int | None = None
    """The last look, where an earlier part of the run has fixed it."""
    warmup: int = 0
    """Warm-up rounds, which are numbered with the others."""
    treatments: int = 0
    """How many treatments are compared; those that follow are host ceilings."""
    settled: frozenset[int] = frozenset()
    """Treatments that earlier parts of the run have settled."""


class Policy(Struct, frozen=True):
    """The deadlines (seconds) and limits of a run."""

    expected: int = 1
    """How many workers must join."""
    join_timeout_s: float = 30.0
    """How long the run waits for them."""
    heartbeat_timeout_s: float = 5.0
    """How long a worker may be silent before it is missing."""
    starved_timeout_s: float = 60.0
    """How long it may be silent where it is known to be alive and to get no CPU."""
    reconnect_timeout_s: float = 10.0
    """How long a missing worker may take to reconnect before its jobs are lost."""
    max_attempts: int = 3
    """How many times a job is tried."""
    abort_timeout_s: float = 15.0
    """How long aborted jobs may take to end, after the second Ctrl-C."""
    cleanup_timeout_s: float = 60.0
    """How long the workers may take to clean up, since they last reported progress."""
    cleanup_advice: str = "`bench-master cleanup-containers`"
    """What removes what a clean-up that was cut off has left."""
    population_timeout_s: float = 120.0
    """How long a worker that fills a store may report no progress."""
    user_count: int | None = None
    """How many jobs are in flight over all workers; None: each treatment's own concurrency."""
    look_ahead: bool = True
    """Whether independent jobs may wait at a worker for a free slot."""
    batch_size: int | None = None
    """How many jobs and results travel together; None: tuned to the pace."""
    speed_probe: bool = False
    """Whether each host measures its speed before each trial."""
    speed_probe_timeout_s: float = 2.0
    """How long a trial waits for that."""
    disk_wait_s: float = 0.0
    """How long the run may be paused for want of room on the disk of its stats file."""
    settle_s: float = 0.0
    """The pause after each trial, before the next begins."""
    stopping: StoppingRule | None = None
    """None for a run with a fixed number of rounds."""
