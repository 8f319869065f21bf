"""A run at one instant: what a tally hands to the views, so that neither knows how the other works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrialRow:
    """The trial that is under way: `number` (from 1) `of` how many, of which treatment (index and title)."""

    number: int
    of: int
    treatment: int
    title: str
    warmup: bool


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """What one operation of one treatment took so far, warm-up trials left out, in seconds.

    `operation` is its name, or ``job`` for a job from start to end. `n` counts the successful ones, which alone
    enter `p50_s`, `p95_s` and `max_s`; these are None while `n` is 0. `errors` counts the failed ones.
    """

    treatment: int
    title: str
    operation: str
    n: int
    errors: int
    p50_s: float | None = None
    p95_s: float | None = None
    max_s: float | None = None


@dataclass(frozen=True, slots=True)
class HostRow:
    """A worker and its host, as last heard of.

    `state` is the coordinator's word for it. `running` of `slots` jobs are in flight. `lag_ms` is the worst delay
    of the worker's loop (ms) and `cpu_percent` the host's busy share since the report before; None where unknown.
    `said` is how a benchmark gets on there that reports while it runs.
    """

    worker_id: str
    host: str
    environment: str
    state: str
    running: int = 0
    slots: int = 0
    lag_ms: float | None = None
    cpu_percent: float | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failures of one `kind` in one `operation`, with the message of the first of them."""

    count: int
    operation: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one instant.

    `planned` is the number of jobs, None where the time is what is planned. `rate_now` (the last few seconds) and
    `rate_mean` (the time spent in trials) are jobs done per second. `eta_s` is an estimate, None while there is
    nothing to base it on. `noop` says that nothing is executed.
    """

    scenario: str
    elapsed_s: float = 0.0
    planned: int | None = None
    done: int = 0
    failed: int = 0
    lost: int = 0
    aborted: int = 0
    in_flight: int = 0
    rate_now: float = 0.0
    rate_mean: float = 0.0
    eta_s: float | None = None
    trial: TrialRow | None = None
    latencies: tuple[LatencyRow, ...] = ()
    hosts: tuple[HostRow, ...] = ()
    errors: tuple[ErrorGroup, ...] = ()
    noop: bool = False

    @property
    def finished(self) -> int:
        """How many jobs have an outcome."""
        return self.done + self.failed + self.lost + self.aborted
