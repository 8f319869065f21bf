"""Filling a store and clearing it, against one that is kept in memory."""

from __future__ import annotations

from math import inf
from time import monotonic
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from deadlines import ANSWER_S
from gevent.event import Event
from memory_store import MemoryStore, error_of
from msgspec.structs import replace

from bench_common.treatment import Treatment
from bench_features.objects.common.job import Objects, SizeClass, Sizes, VerifyLevel
from bench_features.objects.worker import population
from bench_features.objects.worker.base import Store, StoreAnswer, StoreUnavailable
from bench_features.objects.worker.catalogue import EXPIRY_MARGIN_S, StoredObject
from bench_features.objects.worker.content import content_of
from bench_features.objects.worker.names import Names
from bench_features.objects.worker.population import Phase, RunObjects, Sweep, TreatmentObjects

RUN = "3f2a9c1b04de"
OTHER_RUN = "000000000000"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(population, "OTHERS_S", 0.05)
    monkeypatch.setattr(population, "OTHERS_POLL_S", 0.005)


def _job(base: str = "", verify: VerifyLevel = "full", count: int = 20) -> Objects:
    mix = (("create", 1.0), ("read", 1.0))
    classes = (
        SizeClass("tiny", Sizes("uniform", 100, 200), mix, population=count),
        SizeClass("small", Sizes("fixed", 3000, 3000), mix, population=count // 2),
    )
    return Objects(classes, container_base=base, containers=3, verify=verify)


class _Process:
    """One process with its objects, and the progress that it reported."""

    def __init__(self, store: MemoryStore, job: Objects, *, part: int = 0, parts: int = 1, run: str = RUN) -> None:
        self.phases: list[tuple[str, int, int, int, str]] = []
        names = Names.of(job, run, 0, 5 + part)
        self.objects = TreatmentObjects(
            job, names, lambda: store, slots=4, part=part, parts=parts, report=self._report
        )

    def _report(self, phase: Phase) -> None:
        if phase.over:
            self.phases.append((phase.name, phase.objects, phase.found, phase.failed, phase.reason))

    def fill(self) -> _Process:
        self.objects.prepare()
        return self


def _count(store: MemoryStore) -> int:
    return sum(map(len, store.content.values()))


def test_processes_fill_a_store_together_and_each_deletes_its_part() -> None:
    store = MemoryStore()
    processes = [_Process(store, _job(), part=part, parts=3).fill() for part in range(3)]
    assert _count(store) == 30
    assert sum(len(process.objects.wait()[1]) for process in processes) == 30
    for container, objects in store.content.items():
        for name, body in objects.items():
            assert body == b"".join(content_of(f"{container}/{name}", 0, len(body)))
    made = [process.phases[0][:4] for process in processes]
    assert made == [("populate", objects, 0, 0) for objects in (10, 11, 9)]
    assert not store.requests["HEAD"], "the containers of a run are its own: nothing can be there"
    processes[0].objects.clear(keep=False)
    assert not store.content, "whoever clears a run's own containers clears them wholly"
    for process in processes[1:]:
        process.objects.clear(keep=False)
    assert store.closed == 3


@pytest.mark.parametrize("base", ["", "base"])
def test_a_process_that_leaves_deletes_its_own_and_the_last_one_the_containers(base: str) -> None:
    store = MemoryStore()
    leaver, other = (_Process(store, _job(base), part=part, parts=2).fill() for part in range(2))
    names = other.objects.wait()[1].names
    created = names.created("tiny", 21)
    store.content[names.containers[1]][created] = b"of the other process"
    others = {one.path for one in other.objects.wait()[1]} | {f"{names.containers[1]}/{created}"}
    leaver.objects.leave(keep=False)
    left = {f"{container}/{name}" for container, objects in store.content.items() for name in objects}
    assert left == others
    assert len(store.content) == 3, "a container that is empty is used again"
    assert leaver.phases[1] == ("clear", 15, 0, 0, "")
    del store.content[names.containers[1]][created]
    other.objects.leave(keep=False)
    assert not any(store.content.values())
    assert other.phases[1] == ("clear", 15, 0, 0, "")
    assert bool(store.content) == bool(base), "those of a base belong to who made them"
    assert store.closed == 2


def test_with_keep_everything_stays_when_a_process_leaves() -> None:
    store = MemoryStore()
    process = _Process(store, _job()).fill()
    process.objects.leave(keep=True)
    assert _count(store) == 30


def test_an_object_of_the_population_is_left_alone_before_it_expires() -> None:
    store = MemoryStore()
    began_s = monotonic()
    catalogue = _Process(store, replace(_job(), delete_after_s=60)).fill().objects.wait()[1]
    assert all(began_s + 60 > one.expires_s >= began_s + 60 - EXPIRY_MARGIN_S for one in catalogue)
    assert all(one.expires_s == inf for one in _Process(MemoryStore(), _job()).fill().objects.wait()[1])


def test_a_foreign_object_with_a_name_of_the_population_is_overwritten_and_that_is_counted() -> None:
    """It is deleted in the end; what is as it would be made is used, and stays."""
    store = MemoryStore()
    first = _Process(store, _job("base")).fill()
    (foreign, *same) = [(one.container, one.name) for one in first.objects.wait()[1]]
    first.objects.clear(keep=True)
    store.content[foreign[0]][foreign[1]] = b"hello"
    process = _Process(store, _job("base"))
    replaced: list[int] = []
    process.objects._report = lambda phase: replaced.append(phase.replaced)
    process.fill()
    assert replaced == [1]
    assert store.content[foreign[0]][foreign[1]] != b"hello"
    process.objects.clear(keep=False)
    assert foreign[1] not in store.content[foreign[0]]
    assert all(name in store.content[container] for container, name in same)


def test_what_failed_uploads_left_in_a_base_is_deleted_with_their_objects() -> None:
    """The container that holds it stays."""
    store = MemoryStore()
    store.answer = lambda verb, path: error_of(503) if verb == "PUT" and "small_000003" in path else None
    process = _Process(store, replace(_job("base"), multipart_above_bytes=2000)).fill()
    process.objects.clear(keep=False)
    assert store.requests["REST"] == 1


def test_a_treatment_that_cannot_be_cleared_keeps_no_other_from_it() -> None:
    stores = [MemoryStore(), MemoryStore()]
    reported = []

    def fail(verb: str, _path: str) -> StoreAnswer | None:
        if verb == "DELETE":
            raise ValueError("a size of x")
        return None

    run: Any = SimpleNamespace(run_id=RUN, slots=2, keep=False)
    objects = RunObjects(
        run,
        1,
        lambda treatment: stores[treatment.index],
        lambda index, phase: reported.append((index, phase.name, phase.reason)),
    )
    for index in range(2):
        objects.define(Treatment(index, {}, None, "memory", _job()), 0, 1)
        objects[index].wait()
    stores[0].answer = fail
    objects.clear()
    assert _count(stores[0])
    assert not stores[1].content
    assert (0, "clear", "ValueError: a size of x") in reported
    assert [store.closed for store in stores] == [1, 1]


def test_with_keep_everything_stays_and_and_the_next_run_uses_it_and_leaves_it() -> None:
    store = MemoryStore()
    first = _Process(store, _job("base")).fill()
    first.objects.clear(keep=True)
    assert _count(store) == 30
    second = _Process(store, _job("base"), run=OTHER_RUN).fill()
    assert second.phases == [("populate", 0, 30, 0, "")]
    second.objects.clear(keep=False)
    assert _count(store) == 30
    assert len(store.content) == 3


def test_an_object_of_another_size_or_content_is_made_anew_and_one_that_is_not_compared_is_used() -> None:
    store = MemoryStore()
    _Process(store, _job("base")).fill().objects.clear(keep=True)
    container, others = next(iter(store.content)), list(store.content.values())
    names = [name for name in others[0] if name.startswith("tiny")]
    others[0][names[0]] = b"A" * 150
    others[0][names[1]] += b"x"
    others[0][names[2]] = b"A" * 5000
    for verify, made in (("length", 1), ("full", 2)):
        process = _Process(store, _job("base", verify), run=OTHER_RUN).fill()  # type: ignore[arg-type]
        assert process.phases == [("populate", made, 30 - made, 0, "")], verify
        catalogue = process.objects.wait()[1]
        sizes = {one.path: one.size for one in catalogue}
        assert all(sizes[f"{container}/{name}"] == len(store.content[container][name]) for name in names)


def test_only_what_this_run_made_is_deleted_from_a_shared_base() -> None:
    store = MemoryStore()
    names = Names.of(_job("base"), RUN, 0, 9)
    store.content = {names.containers[0]: {"thesis.pdf": b"", f"tiny_000099-p1-{OTHER_RUN}": b""}}
    process = _Process(store, _job("base")).fill()
    store.content[names.containers[1]][f"tiny_000050-p1-{RUN}"] = b"of a process that was killed"
    process.objects.clear(keep=False)
    assert store.content == {names.containers[0]: {"thesis.pdf": b"", f"tiny_000099-p1-{OTHER_RUN}": b""}}


def test_what_a_killed_process_left_in_a_runs_own_containers_is_deleted_page_by_page() -> None:
    store = MemoryStore()
    store.page = 7
    process = _Process(store, _job()).fill()
    container = next(iter(store.content))
    store.content[container] |= {f"tiny_{number:06d}-p1": b"" for number in range(100, 150)}
    process.objects.clear(keep=False)
    assert not store.content


def test_a_failure_that_passes_is_none_and_one_that_lasts_is_told_with_its_reason() -> None:
    store = MemoryStore()
    failures = iter([error_of(503), error_of(503)])
    store.answer = lambda verb, _path: next(failures, None) if verb == "PUT" else None
    process = _Process(store, _job()).fill()
    assert process.phases == [("populate", 30, 0, 0, "")]
    store.answer = lambda verb, path: error_of(503) if verb == "DELETE" and "tiny_000003" in path else None
    process.objects.clear(keep=False)
    (_, (phase, objects, _, failed, reason)) = process.phases
    assert (phase, objects) == ("clear", 29)
    assert failed == 1, "the object, and not the container that holds it"
    assert reason.endswith("tiny_000003: http-503: status 503")
    assert _count(store) == 1


def test_after_an_object_that_cannot_be_made_no_more_are_unless_the_run_goes_on() -> None:
    """The run ends for want of it: what is made meanwhile is made in vain."""

    def refuse(verb: str, path: str) -> StoreAnswer | None:
        gevent.sleep(0)  # as a request does, so that the slots take turns
        return error_of(507) if verb == "PUT" and "tiny_000002" in path else None

    for allowed in (False, True):
        store = MemoryStore()
        store.answer = refuse
        process = _Process(store, replace(_job(), allow_population_failures=allowed)).fill()
        ((_, made, _, failed, reason),) = process.phases
        assert failed == 1
        assert "tiny_000002: http-507" in reason
        assert (made == 29) == allowed, made


@pytest.mark.parametrize("base", ["", "base"])
def test_an_object_that_cannot_be_deleted_counts_once(base: str) -> None:
    """Whether by the catalogue, by a listing, or by one more listing while its container is waited for."""
    store = MemoryStore()
    process = _Process(store, _job(base)).fill()
    stays = {f"{name}/{one}" for name, objects in store.content.items() for one in list(objects)[:2]}
    store.answer = lambda verb, path: error_of(503) if verb == "DELETE" and path in stays else None
    process.objects.clear(keep=False)
    assert _count(store) == len(stays) == 6
    assert process.phases[1][3] == 6


@pytest.mark.parametrize("base", ["", "base"])
def test_only_what_is_there_counts_as_not_deleted(base: str) -> None:
    """An object that a job created is known by catalogue and listing; one whose creation failed is not there."""
    store = MemoryStore()
    process = _Process(store, _job(base)).fill()
    catalogue = process.objects.wait()[1]
    container = catalogue.names.containers[1]
    there, never = (StoredObject(container, catalogue.names.created("tiny", number), 0, 9) for number in (21, 22))
    store.content[container][there.name] = b"created"
    for one in (there, never):
        catalogue.remember(one)
    store.answer = lambda verb, path: error_of(503) if verb == "DELETE" and path in (there.path, never.path) else None
    process.objects.clear(keep=False)
    assert process.phases[1][3:] == (1, f"{there.path}: http-503: status 503")
    assert _count(store) == 1


def test_a_store_where_nothing_succeeds_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "STUCK_S", 0.05)
    store = MemoryStore()

    def refuse(verb: str, _path: str) -> StoreAnswer | None:
        return error_of(503) if verb == "PUT" else None

    store.answer = refuse
    monkeypatch.setattr(population, "PAUSES_S", (0.02, 0.02))
    process = _Process(store, _job(count=2000)).fill()
    assert process.phases[0][3] < 100
    assert store.requests["PUT"] < 300


def test_a_store_that_cannot_be_opened_fails_the_jobs_with_its_reason() -> None:
    reported = []

    def no_store() -> Store:
        raise StoreUnavailable("nobody listens")

    objects = TreatmentObjects(
        _job(), Names.of(_job(), RUN, 0, 1), no_store, slots=2, report=lambda phase: reported.append(phase.reason)
    )
    objects.prepare()
    assert reported == ["nobody listens"]
    with pytest.raises(StoreUnavailable, match="nobody listens"):
        objects.wait()
    objects.clear(keep=False)


def test_a_run_that_ends_while_it_fills_a_store_stops_and_deletes_what_it_made() -> None:
    store = MemoryStore()
    process = _Process(store, _job(count=400))

    def end_soon(verb: str, _path: str) -> StoreAnswer | None:
        if store.requests["PUT"] == 50:
            process.objects.end()
        return None

    store.answer = end_soon
    process.fill()
    assert store.requests["PUT"] < 80
    process.objects.clear(keep=False)
    assert not store.content


def test_a_run_that_ends_before_its_store_is_open_makes_nothing() -> None:
    store, opening, opened = MemoryStore(), Event(), Event()

    def open_slowly() -> Store:
        opening.set()
        opened.wait()
        return store

    objects = TreatmentObjects(_job(), Names.of(_job(), RUN, 0, 1), open_slowly, slots=2)
    preparing = gevent.spawn(objects.prepare)
    opening.wait()
    clearing = gevent.spawn(objects.clear, keep=False)
    gevent.sleep(0)
    opened.set()
    gevent.joinall([preparing, clearing], raise_error=True, timeout=ANSWER_S)
    assert not store.content
    assert not store.requests["PUT"]
    assert store.closed == 1
    late = TreatmentObjects(_job(), Names.of(_job(), RUN, 0, 1), lambda: store, slots=2)
    late.clear(keep=False)
    late.prepare()
    assert not store.requests["PUT"]
    with pytest.raises(StoreUnavailable, match="the run is over"):
        late.wait()


def test_a_container_that_others_still_use_is_waited_for() -> None:
    store = MemoryStore()
    store.content = {"box": {"thesis.pdf": b""}}

    def finish_soon(verb: str, _path: str) -> StoreAnswer | None:
        if store.requests["REMOVE"] == 3:
            store.content["box"].clear()
        return None

    store.answer = finish_soon
    phase = Phase("clear")
    Sweep(store, phase, slots=1).remove(["box"])
    assert not store.content
    assert not phase.failed


def test_each_try_asks_the_next_endpoint() -> None:
    """One that is dead costs tries and no object."""
    store = MemoryStore()
    slot, asked = store.slot(0), list[int]()

    def ask() -> StoreAnswer:
        asked.append(slot.endpoint)
        return StoreAnswer("refused") if slot.endpoint == 1 else StoreAnswer(None, status=200)

    slot.endpoint = 1
    assert population.tried(slot, ask, Phase("populate", endpoints=3)).ok
    assert asked == [1, 2]
