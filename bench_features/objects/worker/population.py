"""The objects of one treatment in one process: filled in before its first trial, deleted after the last one.

Each process makes its part of the population, in as many slots as its jobs have. With a base of the user's, objects
that are there already are used again if they are what would be made: of the same size and content, or, where contents
are not verified, of a size of their class. They stay when the run ends, which deletes what it made itself: by the
catalogue, then by listing its containers, so that nothing of a process is left that was killed. A process that leaves
before the end deletes by its catalogue only, for the others go on.

Nothing here waits for ever: each request has its deadline, and a store where nothing succeeds for `STUCK_S` is given
up. What was not deleted is told, and `bench-master cleanup-containers --store` deletes it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import gevent
from gevent.event import Event
from msgspec.structs import replace

from bench_features.objects.common.job import Objects
from bench_features.objects.common.rules import objects_job
from bench_features.objects.worker.base import StoreUnavailable
from bench_features.objects.worker.catalogue import EXPIRY_MARGIN_S, Catalogue, StoredObject
from bench_features.objects.worker.choice import sizes_of
from bench_features.objects.worker.content import Checker, content_md5, content_of, is_md5
from bench_features.objects.worker.names import Names, PopulationObject, is_ours, population_of

if TYPE_CHECKING:
    from bench_common.treatment import Treatment
    from bench_features.objects.worker.base import Store, StoreAnswer, StoreEntry, StoreSlot
    from bench_worker.pipe_channel import RunContext

log = logging.getLogger(__name__)

REPORT_S: Final = 2.0
"""How often progress is reported, in seconds."""
STUCK_S: Final = 30.0
"""A store where no request succeeds for so long is given up, in seconds."""
PAUSES_S: Final = (0.1, 0.4, 1.6, 5.0)
"""The pauses before further tries of a request, in seconds: this is not measured."""
PAGE: Final = 1000
"""How many names are listed at once."""
OTHERS_S: Final = 10.0
"""How long a container that is not empty yet is waited for, in seconds: other processes delete in it, too."""
OTHERS_POLL_S: Final = 0.3
EDGE: Final = (0, 1023)
_MADE: Final = (200, 201)
"""The status with which a container is made; one that was there has another."""

ItemT = TypeVar("ItemT")
PhaseName: TypeAlias = Literal["populate", "clear"]


@dataclass(slots=True)
class Phase:
    """How far the filling or clearing of a store is."""

    name: PhaseName
    objects: int = 0
    """Objects made or deleted."""
    found: int = 0
    """Objects that were there before the run, which leaves them."""
    replaced: int = 0
    """Of the objects made: those in whose place another one was, which had their name."""
    content_bytes: int = 0
    """Bytes of the objects made."""
    failed: int = 0
    """Objects that could not be made or deleted, each once."""
    unfinished: set[str] = field(default_factory=set)
    """Which they are, as far as they have a name."""
    reason: str = ""
    """Why the first of them failed."""
    over: bool = False
    endpoints: int = 1
    """How many endpoints the store has."""
    urls: tuple[str, ...] = ()
    """Of a filling: where they are."""
    began_s: float = field(default_factory=monotonic)
    success_s: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return monotonic() - self.began_s

    @property
    def is_stuck(self) -> bool:
        """Whether the store is given up."""
        return bool(self.reason) and monotonic() - self.success_s > STUCK_S

    def fail(self, what: str, answer: StoreAnswer) -> None:
        """Note what could not be done; what failed before counts once."""
        if what not in self.unfinished:
            self.unfinished.add(what)
            self.failed += 1
        self.reason = self.reason or f"{what}: {answer.kind}: {answer.message}"

    def settle(self, what: str) -> None:
        """Note that something is done after all."""
        if what in self.unfinished:
            self.unfinished.remove(what)
            self.failed -= 1
            if not self.failed:
                self.reason = ""


Report: TypeAlias = Callable[[Phase], None]


class TreatmentObjects:
    """The store and the objects of one treatment, as long as a process takes part in a run.

    `part` of `parts` of the population is this process's. `report` gets the progress of both phases, the last time
    with `over`.
    """

    def __init__(
        self,
        objects: Objects,
        names: Names,
        open_store: Callable[[], Store],
        *,
        slots: int,
        part: int = 0,
        parts: int = 1,
        report: Report = lambda _phase: None,
    ) -> None:
        self._objects = objects
        self._names = names
        self._open_store = open_store
        self._slots = slots
        self._part, self._parts = part, parts
        self._report = report
        self._store: Store | None = None
        self._made: set[str] = set()
        """The containers that this process made."""
        self._prepared = Event()
        self._failure: Exception | None = None
        self._begun = self._over = False
        self._catalogue: Catalogue | None = None

    def prepare(self) -> None:
        """Open the store and fill it; then jobs may begin. An error is raised by `wait`."""
        self._begun = True
        try:
            if self._over:
                return
            self._store = store = self._open_store()
            self._names = replace(self._names, containers=tuple(map(store.container_name, self._names.containers)))
            self._catalogue = Catalogue(self._objects, self._names)
            self._populate(store, self._catalogue)
        except Exception as error:  # noqa: BLE001  every job raises it
            self._failure = error
            phase = Phase("populate", failed=1, reason=str(error), over=True)
            self._report(phase)
        finally:
            self._prepared.set()

    def wait(self) -> tuple[Store, Catalogue]:
        """Wait until the store is filled; return it and its objects. Raises what kept it from being opened."""
        self._prepared.wait()
        if self._failure is not None:
            raise self._failure
        if self._store is None or self._catalogue is None:
            raise StoreUnavailable("the run is over, and its objects are deleted")
        return self._store, self._catalogue

    def end(self) -> None:
        """Stop filling the store: the run is over."""
        self._over = True

    def clear(self, *, keep: bool) -> None:
        """Delete what the run made, unless `keep`, and close the store; call this when no job of any process runs."""
        self._finish(self._clear, keep=keep)

    def leave(self, *, keep: bool) -> None:
        """Delete what this process made, unless `keep`, and close the store; call this when no job runs here.

        Containers go if there is no object in any of them: where there is one, other processes use them.
        """
        self._finish(self._leave, keep=keep)

    def _finish(self, delete: Callable[[Store], None], *, keep: bool) -> None:
        self.end()
        if self._begun:
            self._prepared.wait()  # what it is making must not come after what is deleted here
        store, self._store = self._store, None
        if store is None:
            return
        try:
            if not keep:
                delete(store)
        finally:
            store.close()

    # -- before the first trial ----------------------------------------------------------------------------------

    def _populate(self, store: Store, catalogue: Catalogue) -> None:
        phase = Phase("populate", endpoints=len(store.endpoints), urls=store.endpoints)
        self._each(store, self._names.containers, phase, self._make_container)
        if not phase.failed:
            self._each(store, self._own_part(), phase, partial(self._provide, catalogue))
        if self._objects.share == "population":
            self._add_others(catalogue)
        phase.over = True
        self._report(phase)

    def _own_part(self) -> Iterator[PopulationObject]:
        return population_of(self._objects, self._part, self._parts)

    def _add_others(self, catalogue: Catalogue) -> None:
        """Let the jobs here read what other processes made, too."""
        own = {one.name for one in self._own_part()}
        for one in population_of(self._objects):
            if one.name not in own:
                stored = self._stored(one)
                stored.found = True
                stored.certain = not self._adopts
                catalogue.add(stored)

    @property
    def _adopts(self) -> bool:
        """Whether an object that is there is used again whatever its content."""
        return bool(self._names.base) and self._objects.verify == "length"

    def _make_container(self, slot: StoreSlot, container: str, phase: Phase) -> None:
        answer = tried(slot, lambda: slot.make_container(container), phase)
        if not answer.ok:
            phase.fail(f"container {container}", answer)
        elif answer.status in _MADE:
            self._made.add(container)

    def _provide(self, catalogue: Catalogue, slot: StoreSlot, one: PopulationObject, phase: Phase) -> None:
        stored = self._stored(one)
        # The containers of the run itself hold nothing, or what a process of it left that is no more.
        if self._names.base and self._is_there(slot, stored, phase):
            stored.found = True
            phase.found += 1
        else:
            body = content_of(stored.path, 0, stored.size)
            sent_s = monotonic()
            answer = tried(slot, lambda: slot.put(stored.container, stored.name, body), phase)
            if not answer.ok:
                phase.fail(stored.path, answer)
                catalogue.remember(stored)
                return
            stored.etag = answer.etag
            if self._objects.delete_after_s is not None:
                stored.expires_s = sent_s + self._objects.delete_after_s - EXPIRY_MARGIN_S
            phase.objects += 1
            phase.content_bytes += stored.size
        catalogue.add(stored)

    def _stored(self, one: PopulationObject) -> StoredObject:
        """Return an object of the population, whose size follows from its name: it is the same in each run."""
        word = int.from_bytes(hashlib.blake2b(one.name.encode(), digest_size=8).digest(), "big")
        size = sizes_of(self._objects.classes[one.size_class].sizes)(word)
        return StoredObject(self._names.containers[one.container], one.name, one.size_class, size)

    def _is_there(self, slot: StoreSlot, stored: StoredObject, phase: Phase) -> bool:
        """Return whether an object is there that can be used as it is."""
        answer = tried(slot, lambda: slot.head(stored.container, stored.name), phase)
        if not answer.ok:
            return False
        fits = self._adopt(stored, answer) if self._adopts else self._is_as_made(slot, stored, answer, phase)
        phase.replaced += not fits
        return fits

    def _is_as_made(self, slot: StoreSlot, stored: StoredObject, answer: StoreAnswer, phase: Phase) -> bool:
        """Return whether an object that is there has the size and the content that would be written."""
        if answer.length != stored.size:
            return False
        stored.etag = answer.etag
        split = self._objects.multipart_above_bytes
        if is_md5(answer.etag) and (split is None or stored.size <= split):
            return answer.etag == content_md5(stored.path, 0, stored.size)
        # What was uploaded in parts has no digest that could be compared; its beginning names its content.
        checker = Checker("full", stored.path, 0, stored.size, length=EDGE[1] + 1)
        last = min(EDGE[1], stored.size - 1)
        read = tried(
            slot, lambda: slot.get(stored.container, stored.name, checker, byte_range=(EDGE[0], last)), phase
        )
        return read.ok and checker.verdict() is None

    def _adopt(self, stored: StoredObject, answer: StoreAnswer) -> bool:
        """Use an object whatever its content if it has a size of its class; return whether it has."""
        sizes = self._objects.classes[stored.size_class].sizes
        fits = (
            answer.length in {size for size, weight in sizes.buckets if weight > 0}
            if sizes.kind == "histogram"
            else sizes.minimum <= answer.length <= sizes.maximum
        )
        if fits:
            stored.certain = answer.length == stored.size
            stored.size, stored.etag = answer.length, answer.etag
        return fits

    # -- after the last trial ------------------------------------------------------------------------------------

    def _clear(self, store: Store) -> None:
        phase = self._delete_own(store)
        containers = self._names.containers
        # A base may be another run's, too: then only what carries this run's id is known to be ours.
        run_id = self._names.run_id if self._names.base else None
        sweep = Sweep(store, phase, slots=self._slots, report=self._report, run_id=run_id)
        if run_id is not None:
            sweep.empty([name for name in containers if name not in self._made])
            containers = tuple(name for name in containers if name in self._made)
        sweep.remove(containers)
        self._look_again(store, phase)
        phase.over = True
        self._report(phase)

    def _look_again(self, store: Store, phase: Phase) -> None:
        """Find out which of the objects that could not be deleted are not there: some never were."""
        assert self._catalogue is not None
        left = [one for one in self._catalogue.leftovers() if one.path in phase.unfinished]

        def look(slot: StoreSlot, one: StoredObject, phase: Phase) -> None:
            if tried(slot, lambda: slot.head(one.container, one.name), phase).kind == "http-404":
                phase.settle(one.path)

        self._each(store, left, phase, look)

    def _leave(self, store: Store) -> None:
        phase = self._delete_own(store)
        containers = [name for name in self._names.containers if name in self._made or not self._names.base]
        with closing(store.slot(0)) as slot:
            used = phase.is_stuck or any(_has_objects(slot, container, phase) for container in containers)
        if not used:
            self._each(store, containers, phase, _remove_container)
        phase.over = True
        self._report(phase)

    def _delete_own(self, store: Store) -> Phase:
        """Delete the objects that this process made, by its catalogue."""
        phase = Phase("clear", endpoints=len(store.endpoints))
        if self._catalogue is not None:
            self._each(store, self._catalogue.leftovers(), phase, self._delete)
        return phase

    def _delete(self, slot: StoreSlot, one: StoredObject, phase: Phase) -> None:
        in_parts = one.may_be_in_parts(self._objects.multipart_above_bytes)
        _delete(slot, one.container, one.name, phase, in_parts=in_parts)
        if in_parts and not one.certain and self._names.base:  # otherwise they go with their container
            answer = tried(slot, lambda: slot.delete_rest(one.container, one.name), phase)
            if not answer.ok and answer.kind != "http-404":
                phase.fail(f"parts of {one.path}", answer)

    def _is_in_vain(self, phase: Phase) -> bool:
        """Whether the run ends for want of an object, so that no more need be made."""
        return bool(phase.failed) and self._objects.needs_whole_population

    # -- both ---------------------------------------------------------------------------------------------------

    def _each(
        self,
        store: Store,
        items: Iterable[ItemT],
        phase: Phase,
        work: Callable[[StoreSlot, ItemT, Phase], None],
    ) -> None:
        """Do some work for each item, several at a time, until the store is given up or the run ends."""
        work_through(
            store,
            items,
            phase,
            work,
            slots=self._slots,
            report=self._report,
            ended=lambda: phase.name == "populate" and (self._over or self._is_in_vain(phase)),
        )


class RunObjects:
    """The objects of all treatments of one run in one process.

    `process` is a number that no other process of the run has, nor had. `open_store(treatment)` opens the store of a
    treatment; `report` gets the index of a treatment and how far its phase is.
    """

    def __init__(
        self,
        run: RunContext,
        process: int,
        open_store: Callable[[Treatment], Store],
        report: Callable[[int, Phase], None],
    ) -> None:
        self._run = run
        self._process = process
        self._open_store = open_store
        self._report = report
        self._treatments: dict[int, TreatmentObjects] = {}

    def __getitem__(self, treatment: int) -> TreatmentObjects:
        """Return the objects of a treatment that was defined."""
        return self._treatments[treatment]

    def define(self, treatment: Treatment, part: int, parts: int) -> None:
        """Begin to fill the store of a treatment."""
        if treatment.index in self._treatments:
            return
        job = objects_job(treatment)
        self._treatments[treatment.index] = objects = TreatmentObjects(
            job,
            Names.of(job, self._run.run_id, treatment.index, self._process),
            partial(self._open_store, treatment),
            slots=min(treatment.concurrency, self._run.slots),
            part=part,
            parts=parts,
            report=partial(self._report, treatment.index),
        )
        gevent.spawn(objects.prepare)

    def end(self) -> None:
        """Stop filling stores: the run is over."""
        for objects in self._treatments.values():
            objects.end()

    def clear(self) -> None:
        """Delete what the run made, unless it keeps that; call this when no job of any process runs."""
        self._finish(TreatmentObjects.clear)

    def leave(self) -> None:
        """Delete what this process made, unless the run keeps it; call this when no job runs here."""
        self._finish(TreatmentObjects.leave)

    def _finish(self, finish: Callable[..., None]) -> None:
        for index, objects in self._treatments.items():
            try:
                finish(objects, keep=self._run.keep)
            except Exception as error:
                # A store, perhaps one of a third party, must not keep the rest from being cleared.
                log.exception("the objects of treatment %d are not all deleted", index)
                reason = f"{type(error).__name__}: {error}"
                self._report(index, Phase("clear", failed=1, reason=reason, over=True))


def work_through(
    store: Store,
    items: Iterable[ItemT],
    phase: Phase,
    work: Callable[[StoreSlot, ItemT, Phase], None],
    *,
    slots: int,
    report: Report = lambda _phase: None,
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Do some work for each item in so many slots of a store, until it is given up or `ended`."""
    waiting = iter(items)
    reported_s = monotonic()

    def serve(number: int) -> None:
        nonlocal reported_s
        with closing(store.slot(number)) as slot:
            for done, item in enumerate(waiting):
                if phase.is_stuck or ended():
                    return
                work(slot, item, phase)
                now = monotonic()
                if now - reported_s >= REPORT_S:
                    reported_s = now
                    report(phase)
                if done % 64 == 0:
                    gevent.sleep(0)  # a store that never waits must not keep others from running

    gevent.joinall([gevent.spawn(serve, number) for number in range(slots)], raise_error=True)


class Sweep:
    """Deletes our objects and containers by listing them; of one run only where `run_id` is given.

    A container that is not empty is a failure of its own, unless something else failed.
    """

    def __init__(
        self,
        store: Store,
        phase: Phase,
        *,
        slots: int,
        report: Report = lambda _phase: None,
        run_id: str | None = None,
    ) -> None:
        self._store = store
        self._phase = phase
        self._slots = slots
        self._report = report
        self._run_id = run_id

    def empty(self, containers: Iterable[str]) -> None:
        """Delete our objects in containers, page by page."""
        with closing(self._store.slot(0)) as slot:
            for container in containers:
                marker = ""
                while not self._phase.is_stuck and (entries := self._page(slot, container, marker)):
                    ours = ((container, entry) for entry in entries if is_ours(entry.name, self._run_id))
                    self._each(ours, _delete_listed)
                    marker = entries[-1].name

    def remove(self, containers: Sequence[str]) -> None:
        """Delete containers with our objects; those where others' objects stay are not deleted."""
        deadline = monotonic() + OTHERS_S
        left: Sequence[str] = containers
        while left:
            self.empty(left)
            last = monotonic() > deadline or self._phase.is_stuck
            refused: list[str] = []

            def remove(slot: StoreSlot, container: str, phase: Phase, *, last: bool = last) -> None:
                answer = tried(slot, lambda: slot.delete_container(container), phase)
                if answer.kind == "http-409" and not last:
                    refused.append(container)  # noqa: B023  its loop awaits it
                elif not answer.ok and answer.kind != "http-404" and not (answer.kind == "http-409" and phase.failed):
                    phase.fail(f"container {container}", answer)

            self._each(left, remove)
            left = refused
            if left:
                gevent.sleep(OTHERS_POLL_S)

    def _page(self, slot: StoreSlot, container: str, marker: str) -> Sequence[StoreEntry]:
        answer = tried(slot, lambda: slot.list_objects(container, marker=marker, limit=PAGE), self._phase)
        if not answer.ok and answer.kind != "http-404":
            self._phase.fail(f"listing of container {container}", answer)
        return answer.entries if answer.ok else ()

    def _each(self, items: Iterable[ItemT], work: Callable[[StoreSlot, ItemT, Phase], None]) -> None:
        work_through(self._store, items, self._phase, work, slots=self._slots, report=self._report)


def _delete_listed(slot: StoreSlot, one: tuple[str, StoreEntry], phase: Phase) -> None:
    container, entry = one
    _delete(slot, container, entry.name, phase, in_parts=entry.in_parts)


def _has_objects(slot: StoreSlot, container: str, phase: Phase) -> bool:
    """Say whether objects are in a container, as far as the store tells."""
    answer = tried(slot, lambda: slot.list_objects(container, limit=1), phase)
    return bool(answer.entries) or not (answer.ok or answer.kind == "http-404")


def _remove_container(slot: StoreSlot, container: str, phase: Phase) -> None:
    """Delete a container, unless it is gone or not empty."""
    answer = tried(slot, lambda: slot.delete_container(container), phase)
    if not answer.ok and answer.kind not in ("http-404", "http-409"):
        phase.fail(f"container {container}", answer)


def _delete(slot: StoreSlot, container: str, name: str, phase: Phase, *, in_parts: bool) -> None:
    """Delete an object; one that is not there is as good."""
    answer = tried(slot, lambda: slot.delete(container, name, in_parts=in_parts), phase)
    if answer.ok:
        phase.objects += 1
    if answer.ok or answer.kind == "http-404":
        phase.settle(f"{container}/{name}")
    else:
        phase.fail(f"{container}/{name}", answer)


def tried(slot: StoreSlot, call: Callable[[], StoreAnswer], phase: Phase) -> StoreAnswer:
    """Return the answer to a request, which is repeated where it may succeed then: nothing here is measured.

    Each try asks the next endpoint: one of them may be dead.
    """
    answer = call()
    for pause_s in PAUSES_S:
        refused = (answer.kind or "").startswith("http-4") and answer.kind not in ("http-408", "http-429")
        if answer.ok or refused or phase.is_stuck:
            break
        if phase.endpoints == 1 or answer.status:
            gevent.sleep(pause_s)
        slot.endpoint = (slot.endpoint + 1) % phase.endpoints
        answer = call()
    if answer.ok or answer.kind in ("http-404", "http-409"):
        phase.success_s = monotonic()
    return answer
