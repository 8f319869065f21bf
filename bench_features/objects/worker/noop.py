"""The store of no-op runs: every operation succeeds at once, so what remains is the harness's own ceiling.

``--noop`` puts it in the place of whatever store a treatment has; a scenario may also name it, to see what the path
of a job on objects costs without any store.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, ClassVar

from bench_features.objects.worker.base import Store, StoreAnswer, StoreSlot


def _done(length: int = 0) -> StoreAnswer:
    start = monotonic_ns()
    return StoreAnswer(
        None, start_ns=start, try_start_ns=start, first_ns=start, last_ns=monotonic_ns(), length=length
    )


class NoopSlot(StoreSlot):
    """Does nothing, at once, and stamps it."""

    def close(self) -> None:
        """Nothing to close."""

    def connect(self) -> StoreAnswer:
        """Connect to nothing."""
        return _done()

    def put(self, container: str, name: str, body: Any, *, update: bool = False) -> StoreAnswer:
        """Store nothing; the body counts as sent."""
        del container, name, update
        return _done(sum(map(len, body)))

    def get(
        self,
        container: str,
        name: str,
        sink: Any = None,
        *,
        byte_range: tuple[int, int] | None = None,
        restart: Any = None,
    ) -> StoreAnswer:
        """Read nothing; `sink` gets nothing."""
        del container, name, sink, byte_range, restart
        return _done()

    def head(self, container: str, name: str) -> StoreAnswer:
        """Ask nobody."""
        del container, name
        return _done()

    def delete(self, container: str, name: str, *, in_parts: bool = False) -> StoreAnswer:
        """Delete nothing."""
        del container, name, in_parts
        return _done()

    def list_objects(self, container: str, *, prefix: str = "", marker: str = "", limit: int = 0) -> StoreAnswer:
        """List nothing."""
        del container, prefix, marker, limit
        return _done()

    def list_containers(self, *, prefix: str = "", marker: str = "", limit: int = 0) -> StoreAnswer:
        """List nothing."""
        del prefix, marker, limit
        return _done()

    def make_container(self, container: str) -> StoreAnswer:
        """Make nothing."""
        del container
        return _done()

    def delete_container(self, container: str) -> StoreAnswer:
        """Delete nothing."""
        del container
        return _done()


class NoopStore(Store):
    """Holds nothing."""

    name: ClassVar[str] = "noop"

    def open(self) -> None:
        """Nothing to open."""

    def slot(self, number: int) -> NoopSlot:
        """Return a slot."""
        del number
        return NoopSlot()

    def close(self) -> None:
        """Nothing to close."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Those of the scenario, or one that does not exist."""
        return self.access.endpoints or ("noop:",)
