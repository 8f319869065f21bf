"""The objects that one load process may use: a state machine that keeps its jobs out of each other's way.

Nobody else uses these objects, so what it knows of them is true: a delete takes an object that nobody reads, an
update excludes every other user, and an object is deleted once. So no operation fails by our own doing. Where no
object of a class is free the job does another operation of its class, or of another class, which is counted
(`redraws`); no job is lost.

An object whose creation or deletion ended with no certain result is in no pool any more, but it is remembered for the
clean-up. One whose update did is used further on; its content is not compared until an update succeeds.

Pure: no socket; the time is an argument.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from bench_features.objects.worker.choice import (
    FOR_CONTAINER,
    FOR_REDRAW,
    Cell,
    Chooser,
    Zipf,
    choose_among,
    draw,
    pick_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_features.objects.common.job import Objects
    from bench_features.objects.worker.names import Names

EXPIRY_MARGIN_S: Final = 5.0
"""How long before a store deletes an object by itself it is used for the last time, in seconds."""

_WITHOUT_EFFECT: Final = frozenset({"refused"})
"""Failures before a request was sent. TLS may fail then, too, but also within an answer."""
_MISSING: Final = "http-404"
_REFUSED_STATUS: Final = "http-4"
_UNCERTAIN_STATUS: Final = frozenset({"http-408", "http-499"})
"""Refusals that a server may send when it had taken the request."""


class NoObject(Exception):
    """There is no object left for a job, and none will come back."""


@dataclass(slots=True, eq=False)
class StoredObject:
    """An object as this process knows it."""

    container: str
    name: str
    size_class: int
    """The place of its class in `Objects.classes`."""
    size: int
    """Bytes."""
    generation: int = 0
    """Which of its contents it has."""
    written: int = 0
    """The generation of the last attempt to write it: none is used twice."""
    users: int = 0
    """How many jobs read it."""
    etag: str = ""
    """What the store called its content; empty if unknown."""
    certain: bool = True
    """Whether its content is known."""
    gone: bool = False
    """Whether it was found missing: nobody is to take it any more."""
    found: bool = False
    """Whether it was there before the run, which leaves it there."""
    expires_s: float = inf
    """When the store deletes it by itself; seconds of the caller's clock."""

    @property
    def path(self) -> str:
        """Its container and name, from which its content follows."""
        return f"{self.container}/{self.name}"

    def may_be_in_parts(self, above_bytes: int | None) -> bool:
        """Return whether it may have been uploaded in parts, as objects of more than `above_bytes` are (None: none).

        Where an update had no certain end, it has either size.
        """
        return above_bytes is not None and (self.size > above_bytes or not self.certain)


@dataclass(slots=True)
class Task:
    """What a job does: an operation on an object, which must be given back with `Catalogue.done`."""

    cell: Cell
    object: StoredObject | None
    """The object; None for `list`."""
    container: str
    size: int = 0
    """Of `create` and `update`: how many bytes are written."""
    generation: int = 0
    """Of `create` and `update`: which content."""


class _Pool(Protocol):
    """The objects of a class that no job has for itself."""

    def add(self, one: StoredObject) -> None:
        """Add an object."""

    def take(self, pick: int, *, remove: bool) -> StoredObject | None:
        """Return an object by 32 bits; with `remove` one without users, which is then no longer in the pool."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[StoredObject]: ...


class _RoundRobin:
    """The one used longest ago is the next, as in ssbench."""

    def __init__(self) -> None:
        self._queue: deque[StoredObject] = deque()

    def add(self, one: StoredObject) -> None:
        self._queue.append(one)

    def take(self, _pick: int, *, remove: bool) -> StoredObject | None:
        queue = self._queue
        for _ in range(len(queue)):
            one = queue[0]
            if one.gone:
                queue.popleft()
            elif not remove:
                queue.rotate(-1)
                return one
            elif not one.users:
                return queue.popleft()
            else:
                queue.rotate(-1)
        return None

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[StoredObject]:
        return iter(self._queue)


class _Drawn:
    """One at random: each as likely as the others, or by its rank."""

    def __init__(self, zipf: Zipf | None) -> None:
        self._objects: list[StoredObject] = []
        self._zipf = zipf

    def add(self, one: StoredObject) -> None:
        self._objects.append(one)

    def take(self, pick: int, *, remove: bool) -> StoredObject | None:
        objects = self._objects
        while objects:
            count = len(objects)
            first = pick * count >> 32 if self._zipf is None else self._zipf.rank(pick, count)
            for step in range(count):
                place = (first + step) % count
                one = objects[place]
                if one.gone:
                    self._remove(place)
                    break
                if not remove:
                    return one
                if not one.users:
                    self._remove(place)
                    return one
            else:
                return None
        return None

    def _remove(self, place: int) -> None:
        last = self._objects.pop()
        if place < len(self._objects):
            self._objects[place] = last

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[StoredObject]:
        return iter(self._objects)


class Catalogue:
    """The objects of a treatment that one process may use, and what its jobs do with them."""

    def __init__(self, objects: Objects, names: Names) -> None:
        self._objects = objects
        self._names = names
        self._chooser = Chooser(objects)
        zipf = Zipf(objects.zipf_exponent)
        self._pools: tuple[_Pool, ...] = tuple(
            _RoundRobin() if objects.pick == "round-robin" else _Drawn(zipf if objects.pick == "zipf" else None)
            for _ in objects.classes
        )
        self._held = [0] * len(objects.classes)
        """How many objects of each class jobs have for themselves: they may come back."""
        self._using: dict[StoredObject, None] = {}
        self._doubtful: list[StoredObject] = []
        self._numbers = [one.population for one in objects.classes]
        # Where a class is used further and nothing creates, its last object is not deleted.
        self._keeps_last = tuple(
            "create" not in done and bool({"read", "update", "head"} & done)
            for one in objects.classes
            for done in [{operation for operation, weight in one.mix if weight > 0}]
        )
        self._delete_after_s = objects.delete_after_s
        self.redraws = 0
        """How often a job did another operation than the one drawn."""

    @property
    def names(self) -> Names:
        """The names of its containers and objects."""
        return self._names

    def __len__(self) -> int:
        """Return how many objects may be used, those that jobs have for themselves included."""
        return sum(len(pool) for pool in self._pools) + sum(self._held)

    def __iter__(self) -> Iterator[StoredObject]:
        """Yield the objects in the pools."""
        return chain(*self._pools)

    def add(self, one: StoredObject) -> None:
        """Add an object of the population that is there."""
        self._pools[one.size_class].add(one)

    def remember(self, one: StoredObject) -> None:
        """Remember an object that may be there, for the clean-up."""
        one.certain = False
        self._doubtful.append(one)

    # -- what a job does ----------------------------------------------------------------------------------------

    def draw(self, seed: int, now_s: float = 0.0) -> Task | None:
        """Return what the job of that seed does; None while other jobs have every object that it could use.

        Raises `NoObject` where none will come back.
        """
        drawn = self._chooser.cell(seed)
        task = self._take(drawn, seed, now_s)
        return task or self._redraw(drawn, seed, now_s)

    def _redraw(self, drawn: Cell, seed: int, now_s: float) -> Task | None:
        """Return another task than the one that was drawn: of the same class if possible."""
        left = [cell for cell in self._chooser.cells if cell is not drawn]
        for same_class in (True, False):
            some = [cell for cell in left if (cell.size_class == drawn.size_class) == same_class]
            attempt = 0
            while some:
                word = draw(seed, FOR_REDRAW + attempt)
                chosen = choose_among(some, word)
                task = self._take(chosen, word >> 1, now_s)
                if task is not None:
                    self.redraws += 1
                    return task
                some.remove(chosen)
                attempt += 1
        classes = {cell.size_class for cell in self._chooser.cells}
        if any(self._held[one] or len(self._pools[one]) for one in classes):
            return None
        name = self._objects.classes[drawn.size_class].name
        raise NoObject(f"no object of the class {name!r} is left, and no operation of the mix creates one")

    def _take(self, cell: Cell, seed: int, now_s: float) -> Task | None:
        operation, size_class = cell.operation, cell.size_class
        if operation in ("create", "list"):
            containers = self._names.containers
            container = containers[draw(seed, FOR_CONTAINER) % len(containers)]
            return Task(cell, None, container) if operation == "list" else self._create(cell, container, seed)
        pool = self._pools[size_class]
        alone = operation in ("update", "delete")
        if operation == "delete" and self._keeps_last[size_class] and len(pool) + self._held[size_class] <= 1:
            return None
        while (one := pool.take(pick_of(seed), remove=alone)) is not None and one.expires_s <= now_s:
            self._lose(one)
        if one is None:
            return None
        self._using[one] = None
        if not alone:
            one.users += 1
            return Task(cell, one, one.container)
        self._held[size_class] += 1
        if operation == "delete":
            return Task(cell, one, one.container)
        one.written += 1
        return Task(cell, one, one.container, self._chooser.size(size_class, seed), one.written)

    def _create(self, cell: Cell, container: str, seed: int) -> Task:
        size_class = cell.size_class
        self._numbers[size_class] += 1
        name = self._names.created(self._objects.classes[size_class].name, self._numbers[size_class])
        size = self._chooser.size(size_class, seed)
        one = StoredObject(container, name, size_class, size)
        self._held[size_class] += 1
        self._using[one] = None
        return Task(cell, one, container, size)

    # -- how it ended -------------------------------------------------------------------------------------------

    def done(self, task: Task, kind: str | None, *, etag: str = "", tries: int = 1, now_s: float = 0.0) -> None:
        """Note how a task ended: `kind` is why it failed, None if it did not.

        `tries` is how often it was tried: a request before the last one may have had an effect. `now_s` is when it
        was sent.
        """
        one = task.object
        if one is None:
            return
        match task.cell.operation:
            case "read" | "head":
                self._done_reading(one, kind)
            case "delete":
                self._release(one)
                self._done_deleting(one, kind, _effect(kind, tries))
            case operation:
                self._release(one)
                expires_s = inf if self._delete_after_s is None else now_s + self._delete_after_s - EXPIRY_MARGIN_S
                self._done_writing(task, one, _effect(kind, tries), create=operation == "create")
                if kind is None:
                    one.etag, one.expires_s = etag, expires_s

    def _release(self, one: StoredObject) -> None:
        self._using.pop(one, None)
        self._held[one.size_class] -= 1

    def _done_reading(self, one: StoredObject, kind: str | None) -> None:
        one.users -= 1
        if not one.users:
            self._using.pop(one, None)
        if kind == _MISSING and not one.gone:
            self._lose(one)

    def _done_deleting(self, one: StoredObject, kind: str | None, effect: str) -> None:
        if effect == "unknown":
            self._doubtful.append(one)
        elif effect == "none" and kind != _MISSING:
            self._pools[one.size_class].add(one)

    def _done_writing(self, task: Task, one: StoredObject, effect: str, *, create: bool) -> None:
        if effect == "done":
            one.size, one.generation, one.certain = task.size, task.generation, True
        elif create:
            if effect == "unknown":
                self.remember(one)
            return
        elif effect == "unknown":
            one.certain = False
        self._pools[one.size_class].add(one)

    def _lose(self, one: StoredObject) -> None:
        """Have nobody take an object any more that is missing, or about to be."""
        one.gone = True
        self._doubtful.append(one)

    # -- what is left -------------------------------------------------------------------------------------------

    def leftovers(self) -> Iterator[StoredObject]:
        """Yield each object that is or may be in the store and was not there before the run."""
        seen: set[StoredObject] = set()
        for one in chain(*self._pools, self._using, self._doubtful):
            if not one.found and one not in seen:
                seen.add(one)
                yield one

    def validate(self) -> None:
        """Assert what must hold between any two calls."""
        pooled = [one for pool in self._pools for one in pool]
        assert len(set(pooled)) == len(pooled), "an object is in a pool twice"
        alone = {one for one in self._using if not one.users}
        assert not alone & set(pooled), "an object that a job has for itself is in a pool"
        assert len(alone) == sum(self._held), "an object that jobs have for themselves is not counted"
        assert all(one.users >= 0 for one in pooled), "an object has fewer than no users"
        paths = [one.path for one in {*pooled, *self._using, *self._doubtful}]
        assert len(set(paths)) == len(paths), "two objects have one name"


def _effect(kind: str | None, tries: int) -> str:
    """Return what a request did to an object: ``done``, ``none`` or ``unknown``."""
    if kind is None:
        return "done"
    refused = kind.startswith(_REFUSED_STATUS) and kind not in _UNCERTAIN_STATUS
    return "none" if tries == 1 and (kind in _WITHOUT_EFFECT or refused) else "unknown"
