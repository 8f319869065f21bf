"""The engine of a no-op run: every verb is free, so what remains is the harness's own ceiling.

It is not registered: no scenario can name it. ``--noop`` puts it in the place of whatever engine a treatment has, and
the rest of the path (orders, slots, job machine, stamps, results, journal) is the one that a real run takes.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from bench_worker.engines.base import Done, Engine, EngineStatus, Leftover


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

    def _free(self, *_args: Any, **_options: Any) -> Done:
        start = monotonic_ns()
        return Done(start, monotonic_ns(), exit_code=0)

    create = start = run = exec = wait = pause = unpause = _free
    stop = kill = commit = remove = logs = _free

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return none."""
        del run_id, worker_id
        return []

    def discard(self, leftover: Leftover) -> None:
        """Remove nothing."""
