"""The engine of a no-op run: every verb is free, so what remains is the harness's own ceiling.

It is not registered: no scenario can name it. ``--noop`` puts it in the place of whatever engine a treatment has, and
the rest of the path (orders, slots, stamps, results, journal) is the one that a real run takes.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, cast

from bench_worker.engines.base import Container, Engine, EngineStatus, Leftover, OperationResult


class NoopEngine(Engine):
    """Does nothing, at once, and stamps it."""

    name = "noop"
    operations = frozenset()
    settings = frozenset()

    @classmethod
    def probe(cls) -> EngineStatus:
        """Return that it is always usable."""
        return EngineStatus(cls.name, usable=True)

    def open(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    def _free(  # one signature for all verbs, by name: collecting whatever comes would be half of the cost
        self,
        _container: Container,
        _what: Any = None,
        *,
        timeout_s: float = 0.0,  # noqa: ARG002
        grace_s: float = 0.0,  # noqa: ARG002
        limit_bytes: int = 0,  # noqa: ARG002
        fresh: bool = False,  # noqa: ARG002
    ) -> OperationResult:
        start = monotonic_ns()
        return OperationResult(start, monotonic_ns(), 0)

    pull = create = start = run = exec = wait = pause = unpause = cast("Any", _free)
    stop = kill = commit = remove = logs = stats = cast("Any", _free)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return none."""
        del run_id, worker_id
        return []

    def discard(self, leftover: Leftover) -> None:
        """Remove nothing."""
