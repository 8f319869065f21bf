"""The catalogue of objects: what jobs may do at the same time, and what is left at the end."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from bench_features.objects.common.job import Objects, PickOrder, SizeClass, Sizes
from bench_features.objects.worker.catalogue import EXPIRY_MARGIN_S, Catalogue, NoObject, StoredObject, Task
from bench_features.objects.worker.names import Names, population_of

KINDS = (None, None, None, None, "http-503", "timeout", "reset", "http-403", "refused", "http-404")


def _catalogue(
    *mix: tuple[str, float],
    population: int = 10,
    classes: int = 1,
    pick: PickOrder = "round-robin",
    delete_after_s: int | None = None,
) -> Catalogue:
    objects = Objects(
        tuple(SizeClass(f"class{one}", Sizes("uniform", 0, 100), mix, 1.0, population) for one in range(classes)),
        container_base="",
        containers=3,
        pick=pick,
        delete_after_s=delete_after_s,
    )
    names = Names.of(objects, "3f2a9c1b04de", 0, 1)
    catalogue = Catalogue(objects, names)
    for one in population_of(objects):
        catalogue.add(StoredObject(names.containers[one.container], one.name, one.size_class, 10))
    return catalogue


def _take(catalogue: Catalogue, seed: int) -> Task:
    task = catalogue.draw(seed)
    assert task is not None
    return task


class _Server:
    """A store that applies what it is asked, or fails; it may apply what it fails, as real ones do."""

    def __init__(self, catalogue: Catalogue, draw: random.Random) -> None:
        self.objects = {one.path for one in catalogue.leftovers()}
        self._draw = draw
        self._deleted_by_others = set[str]()

    def does(self, task: Task, kind: str | None) -> str | None:
        """Carry out a task that ends with `kind`; return how it ended."""
        one = task.object
        if one is None:
            return kind
        applied = kind is None or (kind in {"http-503", "timeout", "reset"} and self._draw.random() < 0.5)
        operation = task.cell.operation
        if operation in ("create", "update"):
            self.objects |= {one.path} if applied else set()
            return "http-403" if kind == "http-404" else kind
        if one.path in self._deleted_by_others:
            return "http-404"
        assert one.path in self.objects, f"{operation} of {one.path}, which is not there"
        if kind == "http-404":
            self._deleted_by_others.add(one.path)
        if kind == "http-404" or (applied and operation == "delete"):
            self.objects.discard(one.path)
        return kind


@pytest.mark.parametrize("pick", ["round-robin", "random", "zipf"])
@pytest.mark.parametrize("failures", [False, True])
def test_no_operation_meets_an_object_that_is_missing_or_used_by_another(pick: PickOrder, failures: bool) -> None:
    for seed in range(4):
        draw = random.Random(seed)
        mix = [(name, draw.choice((1, 2, 5))) for name in ("create", "read", "update", "delete", "head", "list")]
        catalogue = _catalogue(*mix, population=draw.choice((0, 1, 10)), classes=draw.choice((1, 3)), pick=pick)
        server, running = _Server(catalogue, draw), list[Task]()
        done = 0
        while done < 2000:
            if len(running) < 64 and (task := catalogue.draw(draw.getrandbits(63))) is not None:
                running.append(task)
                _check_exclusion(running)
                continue
            task = running.pop(draw.randrange(len(running)))
            kind = draw.choice(KINDS) if failures else None
            tries = draw.choice((1, 1, 1, 3)) if failures else 1
            catalogue.done(task, server.does(task, kind), tries=tries)
            done += 1
            if done % 200 == 0:
                catalogue.validate()
        left = {one.path for one in catalogue.leftovers()}
        assert server.objects <= left, "every object that is there is known to the clean-up"
        if not failures:
            for task in running:
                catalogue.done(task, server.does(task, None))
            assert server.objects == {one.path for one in catalogue.leftovers()}


def _check_exclusion(running: list[Task]) -> None:
    uses = Counter(task.object.path for task in running if task.object is not None)
    for task in running:
        if task.object is not None and task.cell.operation in ("create", "update", "delete"):
            assert uses[task.object.path] == 1, f"{task.cell.operation} of an object that another job uses"


def test_sixty_four_users_delete_and_update_ten_objects() -> None:
    catalogue = _catalogue(("update", 1), ("delete", 1), population=10)
    draw, running, waited = random.Random(1), list[Task](), 0
    for _ in range(9):
        deleted = False
        while not deleted:
            while len(running) < 64:
                task = catalogue.draw(draw.getrandbits(63))
                if task is None:
                    waited += 1
                    break
                running.append(task)
            assert 0 < len(running) <= 10
            _check_exclusion(running)
            task = running.pop(0)
            deleted = task.cell.operation == "delete"
            catalogue.done(task, None)
    assert waited
    while running:
        catalogue.done(running.pop(), None)
    assert len(catalogue) == 0
    with pytest.raises(NoObject, match="no object of the class 'class0' is left"):
        catalogue.draw(1)


def test_where_nothing_is_free_another_operation_is_done_and_counted() -> None:
    catalogue = _catalogue(("create", 1), ("read", 9), population=0)
    tasks = [_take(catalogue, seed << 32) for seed in range(0, 1 << 31, 1 << 25)]
    assert {task.cell.operation for task in tasks} == {"create"}
    assert catalogue.redraws == len(tasks) - 7
    assert len({task.object.path for task in tasks if task.object}) == len(tasks)


def test_the_last_object_of_a_class_that_is_read_and_never_created_stays() -> None:
    catalogue = _catalogue(("read", 1), ("delete", 9), population=4)
    draw = random.Random(2)
    for _ in range(100):
        catalogue.done(_take(catalogue, draw.getrandbits(63)), None)
    assert len(catalogue) == 1
    assert catalogue.redraws > 50


def test_round_robin_takes_what_was_used_longest_ago() -> None:
    catalogue = _catalogue(("read", 1), population=3)
    taken = []
    for seed in range(7):
        task = _take(catalogue, seed)
        assert task.object is not None
        taken.append(task.object.name)
        catalogue.done(task, None)
    assert taken == [f"class0_{1 + place % 3:06d}" for place in range(7)]


def test_zipf_reads_some_objects_much_more_often_and_random_all_alike() -> None:
    counts = {}
    for pick in ("random", "zipf"):
        catalogue, draw = _catalogue(("read", 1), population=20, pick=pick), random.Random(4)  # type: ignore[arg-type]
        tasks = [_take(catalogue, draw.getrandbits(63)) for _ in range(4000)]
        counts[pick] = sorted(Counter(task.object.name for task in tasks if task.object).values())
    assert counts["random"][0] > 120
    assert counts["zipf"][-1] > 8 * counts["zipf"][0]


def test_each_write_of_an_object_has_another_content_and_its_content_is_known_again_after_a_success() -> None:
    catalogue = _catalogue(("update", 1), population=1)
    generations, one = [], None
    for kind, certain in ((None, True), ("timeout", False), ("http-503", False), ("http-403", False), (None, True)):
        task = _take(catalogue, 5)
        one = task.object
        assert one is not None
        generations.append(task.generation)
        catalogue.done(task, kind, etag="e" if kind is None else "")
        assert one.certain == certain
    assert generations == [1, 2, 3, 4, 5]
    assert one is not None
    assert (one.generation, one.etag) == (5, "e")


def test_objects_of_an_unknown_state_are_remembered_and_those_refused_are_not() -> None:
    for kind, tries, remembered in (
        ("timeout", 1, True),
        ("http-503", 1, True),
        ("http-408", 1, True),
        ("http-403", 1, False),
        ("refused", 1, False),
        ("refused", 2, True),
        ("tls", 1, True),
    ):
        catalogue = _catalogue(("create", 1), population=0)
        catalogue.done(_take(catalogue, 1), kind, tries=tries)
        assert len(catalogue) == 0
        assert bool(list(catalogue.leftovers())) == remembered, (kind, tries)
        catalogue = _catalogue(("delete", 1), population=1)
        catalogue.done(_take(catalogue, 1), kind, tries=tries)
        assert len(catalogue) == (0 if remembered else 1)
        assert len(list(catalogue.leftovers())) == 1


def test_what_was_there_before_the_run_is_not_left_by_it() -> None:
    catalogue = _catalogue(("read", 1), population=0)
    catalogue.add(StoredObject("box", "class0_000001", 0, 5, found=True))
    catalogue.remember(StoredObject("box", "class0_000002", 0, 5))
    assert [one.name for one in catalogue.leftovers()] == ["class0_000002"]


def test_an_object_that_expires_is_not_used_any_more() -> None:
    catalogue = _catalogue(("create", 1), ("read", 1), population=0, delete_after_s=60)
    create, read = 0, (1 << 63) - 1
    created = catalogue.draw(create, 100.0)
    assert created is not None
    catalogue.done(created, None, now_s=100.0)
    task = catalogue.draw(read, 159.0 - EXPIRY_MARGIN_S)
    assert task is not None
    assert task.cell.operation == "read"
    catalogue.done(task, None, now_s=150.0)
    late = catalogue.draw(read, 160.0 - EXPIRY_MARGIN_S)
    assert late is not None
    assert late.cell.operation == "create"
    assert len(list(catalogue.leftovers())) == 2, "a clean-up deletes it where the store has not yet"


def test_an_object_that_is_missing_fails_once() -> None:
    catalogue = _catalogue(("read", 1), ("create", 1), population=1)
    first, second = _take(catalogue, 1 << 10), _take(catalogue, 1 << 10)
    assert first.object is second.object
    catalogue.done(first, "http-404")
    catalogue.done(second, "http-404")
    assert _take(catalogue, 1 << 10).cell.operation == "create"
    catalogue.validate()
