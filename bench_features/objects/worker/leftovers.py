"""What runs left in an object store: found by the names of containers, and deleted by listing them.

Only what has the exact form of our names is listed or deleted: the containers of a run without a base of its own, or
those of a base that is named, and in them the objects of our form. Anybody's other containers and objects stay.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench_common.errors import InfrastructureError
from bench_features.objects.worker.names import OWN_PREFIX, base_pattern, is_ours, run_of_container
from bench_features.objects.worker.population import PAGE, Phase, Report, Sweep, tried
from bench_features.objects.worker.swift import SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench_features.objects.worker.base import Store, StoreAnswer, StoreEntry, StoreSlot

SLOTS: Final = 16
"""How many requests delete at the same time."""


@dataclass(frozen=True, slots=True)
class LeftContainer:
    """A container of ours, or of a base that was named."""

    name: str
    run_id: str
    """The run that it belongs to; empty where it belongs to a base."""
    objects: int
    """How many objects in it are ours."""
    others: int
    """How many are not: they stay, and it with them."""


def find_containers(store: Store, run_id: str | None = None, base: str | None = None) -> list[LeftContainer]:
    """Return the containers that runs, or one run, left in a store, and those of a base.

    Raises `InfrastructureError` if the store does not list them.
    """
    with closing(store.slot(0)) as slot:
        names = dict.fromkeys(name.removesuffix(SEGMENTS) for name in _containers(slot, OWN_PREFIX))
        found = [
            _count(slot, name, run) for name in names if (run := run_of_container(name)) and run_id in (None, run)
        ]
        if base:
            pattern = base_pattern(store.container_name(base))
            names = dict.fromkeys(_containers(slot, store.container_name(base)))
            found += [_count(slot, name, "", run_id) for name in names if pattern.fullmatch(name)]
    return found


def remove_containers(
    store: Store, containers: Sequence[LeftContainer], *, run_id: str | None = None, report: Report = lambda _: None
) -> dict[str, str]:
    """Delete our objects in these containers, and what is empty then; return why others are still there, by name."""
    phase = Phase("clear", endpoints=len(store.endpoints))
    for of_run in (True, False):
        sweep = Sweep(store, phase, slots=SLOTS, report=report, run_id=None if of_run else run_id)
        group = [one for one in containers if bool(one.run_id) == of_run]
        sweep.remove([one.name for one in group if not one.others])
        sweep.empty([one.name for one in group if one.others])
    why = {}
    with closing(store.slot(0)) as slot:
        for one in containers:
            left = _count(slot, one.name, one.run_id, None if one.run_id else run_id)
            if left.objects:
                why[one.name] = phase.reason or f"{left.objects} objects are still there"
            elif left.others:
                why[one.name] = f"{left.others} objects in it are not ours"
    return why


def _containers(slot: StoreSlot, prefix: str) -> Iterator[str]:
    yield from _all(slot, lambda marker: slot.list_containers(prefix=prefix, marker=marker, limit=PAGE), "containers")


def _count(slot: StoreSlot, container: str, run: str, only_run: str | None = None) -> LeftContainer:
    """Return a container with its numbers of objects; one that is not there has none."""
    ours = others = 0
    for name in _all(slot, lambda marker: slot.list_objects(container, marker=marker, limit=PAGE), container):
        if is_ours(name, only_run):
            ours += 1
        else:
            others += 1
    return LeftContainer(container, run, ours, others)


def _all(slot: StoreSlot, page: Callable[[str], StoreAnswer], what: str) -> Iterator[str]:
    """Yield the names of a listing, page by page; nothing where there is no such container."""
    marker, phase = "", Phase("clear")
    while True:
        after = marker
        answer = tried(slot, lambda after=after: page(after), phase)  # type: ignore[misc]
        if not answer.ok and answer.kind != "http-404":
            raise InfrastructureError(f"the store does not list {what}: {answer.message} ({answer.kind})")
        entries: Sequence[StoreEntry] = answer.entries if answer.ok else ()
        if not entries:
            return
        for entry in entries:
            yield entry.name
        marker = entries[-1].name
