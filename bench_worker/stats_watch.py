"""A container that is watched while its job goes on: readings come in a greenlet of their own and are counted."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic_ns
from typing import Final

import gevent
from gevent.event import AsyncResult

from bench_worker.engines.base import Done, OperationFailed

GONE: Final = frozenset({"not-found", "conflict"})
"""How a stream ends whose container was removed, or is being removed, under it."""


class StatsWatch:
    """Reads a stream of statistics until `end`. It ends by itself when its container is gone."""

    def __init__(self, readings: Iterator[Done]) -> None:
        self._readings = readings
        self._first: AsyncResult[Done] = AsyncResult()
        self._count = 0
        self._failure: OperationFailed | None = None
        self._reader = gevent.spawn(self._read)

    def first(self, timeout_s: float) -> Done:
        """Return the first reading, once it is there; raise `OperationFailed` where there is none in `timeout_s`."""
        start_ns = monotonic_ns()
        try:
            done = self._first.get(timeout=timeout_s)
        except gevent.Timeout:
            text = f"no reading came within {timeout_s:g} s"
            raise OperationFailed("timeout", text, start_ns=start_ns, end_ns=monotonic_ns()) from None
        assert done is not None
        return done

    def end(self) -> tuple[int, OperationFailed | None]:
        """End it; return how many readings there were, and why it broke off early, if it did."""
        self._reader.kill()
        return self._count, self._failure

    def _read(self) -> None:
        try:
            for done in self._readings:
                self._count += 1
                if self._count == 1:
                    self._first.set(done)
            if not self._count:
                now = monotonic_ns()
                raise OperationFailed("engine", "the stream ended at once", start_ns=now, end_ns=now)
        except OperationFailed as failure:
            if not self._count:
                self._first.set_exception(failure)
            elif failure.kind not in GONE:
                self._failure = failure
        except Exception as error:  # noqa: BLE001  an engine's own fault, of which its job must tell
            now = monotonic_ns()
            text = f"{type(error).__name__}: {error}"
            self._failure = OperationFailed("internal", text, start_ns=now, end_ns=now)
            self._first.set_exception(self._failure)
