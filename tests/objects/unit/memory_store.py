"""A store that is kept in memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from bench_features.objects.common.access import Access
from bench_features.objects.worker.base import Store, StoreAnswer, StoreEntry, StoreOptions, StoreSlot

if TYPE_CHECKING:
    from collections.abc import Callable


class MemoryStore(Store):
    """A store in memory; `answer` may fail a request before it is carried out."""

    name: ClassVar[str] = "memory"

    def __init__(self) -> None:
        super().__init__(Access("memory"), StoreOptions())
        self.content: dict[str, dict[str, bytes]] = {}
        self.requests: Counter[str] = Counter()
        self.answer: Callable[[str, str], StoreAnswer | None] = lambda _verb, _path: None
        self.page = 1000
        self.closed = 0

    def open(self) -> None: ...

    def close(self) -> None:
        self.closed += 1

    @property
    def endpoints(self) -> tuple[str, ...]:
        return ("memory:",)

    def slot(self, number: int) -> MemorySlot:
        return MemorySlot(self, number)


class MemorySlot(StoreSlot):
    def __init__(self, store: MemoryStore, number: int) -> None:
        self._store = store
        self.number = number

    def _ask(self, verb: str, path: str) -> StoreAnswer | None:
        self._store.requests[verb] += 1
        return self._store.answer(verb, path)

    def connect(self) -> StoreAnswer:
        return StoreAnswer(None)

    def close(self) -> None: ...

    def put(self, container: str, name: str, body: Any, *, update: bool = False) -> StoreAnswer:
        failed = self._ask("PUT", f"{container}/{name}")
        if failed is None:
            self._store.content[container][name] = b"".join(body)
        return failed or StoreAnswer(None, status=201, etag="e")

    def get(
        self,
        container: str,
        name: str,
        sink: Any = None,
        *,
        byte_range: tuple[int, int] | None = None,
        restart: Any = None,
    ) -> StoreAnswer:
        failed = self._ask("GET", f"{container}/{name}")
        if failed is None and sink is not None:
            first, last = byte_range or (0, 1 << 60)
            sink(memoryview(self._store.content[container][name][first : last + 1]))
        return failed or StoreAnswer(None, status=200)

    def head(self, container: str, name: str) -> StoreAnswer:
        failed = self._ask("HEAD", f"{container}/{name}")
        found = self._store.content[container].get(name)
        if found is None:
            return failed or error_of(404)
        return failed or StoreAnswer(None, status=200, length=len(found), etag="in-parts-3")

    def delete(self, container: str, name: str, *, in_parts: bool = False) -> StoreAnswer:
        failed = self._ask("DELETE", f"{container}/{name}")
        if failed is None and self._store.content.get(container, {}).pop(name, None) is None:
            return error_of(404)
        return failed or StoreAnswer(None, status=204)

    def delete_rest(self, container: str, name: str) -> StoreAnswer:
        return self._ask("REST", f"{container}/{name}") or StoreAnswer(None, status=204)

    def list_objects(self, container: str, *, prefix: str = "", marker: str = "", limit: int = 1000) -> StoreAnswer:
        failed = self._ask("LIST", container)
        names = [
            name
            for name in sorted(self._store.content.get(container, {}))
            if name > marker and name.startswith(prefix)
        ]
        entries = tuple(map(StoreEntry, names[: min(limit, self._store.page)]))
        return failed or StoreAnswer(None, status=200, entries=entries)

    def list_containers(self, *, prefix: str = "", marker: str = "", limit: int = 1000) -> StoreAnswer:
        names = [name for name in sorted(self._store.content) if name > marker and name.startswith(prefix)]
        return StoreAnswer(None, status=200, entries=tuple(map(StoreEntry, names[:limit])))

    def make_container(self, container: str) -> StoreAnswer:
        failed = self._ask("MAKE", container)
        there = container in self._store.content
        self._store.content.setdefault(container, {})
        return failed or StoreAnswer(None, status=202 if there else 201)

    def delete_container(self, container: str) -> StoreAnswer:
        failed = self._ask("REMOVE", container)
        if self._store.content.get(container):
            return failed or error_of(409)
        self._store.content.pop(container, None)
        return failed or StoreAnswer(None, status=204)


def error_of(status: int) -> StoreAnswer:
    return StoreAnswer(f"http-{status}", f"status {status}", status=status)
