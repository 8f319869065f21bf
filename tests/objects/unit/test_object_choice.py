"""What jobs on an object store do, by their seeds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_features.objects.worker.choice import FOR_SIZE, Chooser, Zipf, draw, pick_of, share_of, sizes_of
from bench_features.objects.worker.names import (
    Names,
    base_pattern,
    is_ours,
    population_of,
    run_of_container,
)

RUN = "3f2a9c1b04de"


def _size_class(name: str, *mix: tuple[str, float], weight: float = 1.0, population: int = 0) -> SizeClass:
    return SizeClass(name, Sizes("uniform", 10, 20), mix, weight, population)


def _seeds(count: int, seed: int = 1) -> list[int]:
    drawn = random.Random(seed)
    return [drawn.getrandbits(63) for _ in range(count)]


def test_operations_and_classes_are_drawn_by_their_weights() -> None:
    objects = Objects(
        (
            _size_class("tiny", ("create", 3), ("read", 1), weight=10),
            _size_class("small", ("read", 1), ("delete", 1), weight=30),
        )
    )
    chooser = Chooser(objects)
    done = Counter(
        (cell.operation, objects.classes[cell.size_class].name) for cell in map(chooser.cell, _seeds(40_000))
    )
    expected = {("create", "tiny"): 3, ("read", "tiny"): 1, ("read", "small"): 6, ("delete", "small"): 6}
    assert done.keys() == expected.keys()
    for alternative, sixteenths in expected.items():
        assert done[alternative] == pytest.approx(40_000 * sixteenths / 16, rel=0.06)
    for cell in chooser.cells:
        assert objects.alternatives()[cell.alternative] == (cell.operation, objects.classes[cell.size_class].name)


def test_the_extreme_seeds_and_what_has_no_weight() -> None:
    objects = Objects((_size_class("a", ("create", 0), ("read", 1)), _size_class("b", ("read", 1), weight=0)))
    chooser = Chooser(objects)
    assert {chooser.cell(seed).operation for seed in (0, (1 << 63) - 1)} == {"read"}
    assert {chooser.cell(seed).size_class for seed in (0, (1 << 63) - 1)} == {0}


def test_the_same_seed_draws_the_same_and_purposes_are_independent() -> None:
    seeds = _seeds(2000)
    assert [draw(seed, FOR_SIZE) for seed in seeds] == [draw(seed, FOR_SIZE) for seed in seeds]
    pairs = [(share_of(draw(seed, 1)), share_of(draw(seed, 2))) for seed in seeds]
    product = sum((one - 0.5) * (other - 0.5) for one, other in pairs) / len(pairs)
    assert abs(product) < 0.01
    assert draw(0, 1) == 0xE220A8397B1DCDAF, "the reference value of SplitMix64"


@pytest.mark.parametrize("kind", ["fixed", "uniform", "log"])
def test_sizes_stay_within_their_ends_which_they_reach(kind: str) -> None:
    low, high = (7, 7) if kind == "fixed" else (3, 9)
    size = sizes_of(Sizes(kind, low, high))  # type: ignore[arg-type]
    drawn = Counter(size(draw(seed, FOR_SIZE)) for seed in _seeds(5000))
    assert set(drawn) == set(range(low, high + 1))
    assert size(0) == low
    assert size((1 << 64) - 1) == high
    if kind == "uniform":
        assert max(drawn.values()) < 1.25 * min(drawn.values())
    if kind == "log":
        assert [drawn[each] for each in range(low, high + 1)] == sorted(drawn.values(), reverse=True)


def test_logarithmic_sizes_have_as_many_in_each_decade() -> None:
    size = sizes_of(Sizes("log", 1000, 10_000_000))
    decades = Counter(len(str(size(draw(seed, FOR_SIZE)))) for seed in _seeds(20_000))
    assert all(decades[digits] == pytest.approx(5000, rel=0.1) for digits in (4, 5, 6, 7))


def test_a_histogram_has_its_sizes_by_their_weights() -> None:
    size = sizes_of(Sizes("histogram", buckets=((4096, 70), (1 << 20, 30), (5, 0))))
    drawn = Counter(size(draw(seed, FOR_SIZE)) for seed in _seeds(10_000))
    assert drawn.keys() == {4096, 1 << 20}
    assert drawn[4096] == pytest.approx(7000, rel=0.05)
    assert {size(0), size((1 << 64) - 1)} <= {4096, 1 << 20, 5}


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.3])
def test_zipf_ranks_fall_with_the_power_of_the_rank(exponent: float) -> None:
    zipf, count = Zipf(exponent), 50
    drawn = Counter(zipf.rank(pick_of(seed), count) for seed in _seeds(60_000))
    total = sum(rank**-exponent for rank in range(1, count + 1))
    for rank in (0, 1, 5, 20):
        assert drawn[rank] == pytest.approx(60_000 * (rank + 1) ** -exponent / total, rel=0.15)
    assert zipf.rank(0, 1) == zipf.rank((1 << 32) - 1, 1) == 0
    assert zipf.rank((1 << 32) - 1, 3) == 2


def test_a_population_is_named_and_placed_as_ssbench_does() -> None:
    objects = Objects(
        (_size_class("tiny", ("read", 1), population=3), _size_class("small", ("read", 1), population=1)),
        container_base="ssbench",
        containers=2,
    )
    names = Names.of(objects, RUN, 0, 1)
    assert names.containers == ("ssbench_000000_default_policy", "ssbench_000001_default_policy")
    assert [(one.name, one.container) for one in population_of(objects)] == [
        ("tiny_000001", 0),
        ("small_000001", 1),
        ("tiny_000002", 0),
        ("tiny_000003", 1),
    ]


def test_processes_share_the_population_evenly_and_without_overlap() -> None:
    objects = Objects(
        tuple(_size_class(name, ("read", 1), population=count) for name, count in (("a", 10), ("b", 7), ("c", 1)))
    )
    whole = list(population_of(objects))
    for parts in (1, 2, 3, 8):
        shares = [list(population_of(objects, part, parts)) for part in range(parts)]
        assert sorted((one for share in shares for one in share), key=whole.index) == whole
        for size_class in range(3):
            counts = [sum(one.size_class == size_class for one in share) for share in shares]
            assert max(counts) - min(counts) <= 1


def test_no_two_processes_runs_or_treatments_create_the_same_object() -> None:
    seen = set()
    for base in ("", "ssbench"):
        objects = Objects((_size_class("tiny", ("create", 1), population=5),), container_base=base)
        for run in (RUN, "kept-000000000000"):
            for treatment in (0, 1):
                for process in (1, 12):
                    names = Names.of(objects, run, treatment, process + 100 * treatment)
                    seen |= {(names.containers[0], names.created("tiny", number)) for number in (6, 7)}
    assert len(seen) == 2 * 2 * 2 * 2 * 2


def test_only_names_of_the_exact_form_are_ours() -> None:
    for run in (RUN, f"kept-{RUN}"):
        names = Names.of(Objects((), container_base=""), run, 3, 1)
        assert run_of_container(names.containers[0]) == run
    for foreign in (
        "weighbridge-backups",
        "weighbridge-3f2a9c1b04de",
        "weighbridge-3f2a9c1b04dz-1-000001",
        "my-weighbridge-3f2a9c1b04de-1-000001",
        "weighbridge-3f2a9c1b04de-1-000001-copy",
    ):
        assert run_of_container(foreign) is None
    pattern = base_pattern("a.b")
    assert pattern.fullmatch("a.b_000001_gold")
    assert pattern.fullmatch("a.b-000001-default-policy")
    for foreign in ("aXb_000001_gold", "a.b_1_gold", "a.b_000001", "xa.b_000001_gold"):
        assert not pattern.fullmatch(foreign)
    created = Names.of(Objects((), container_base="b"), RUN, 0, 2).created("tiny", 8)
    assert created == f"tiny_000008-p2-{RUN}"
    assert is_ours(created)
    assert is_ours(created, RUN)
    assert not is_ours(created, "000000000000")
    assert is_ours("tiny_000001")
    assert not is_ours("tiny_000001", RUN)
    assert not is_ours("thesis.pdf")
