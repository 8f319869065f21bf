"""Objects of a run on a real store: filled in, used again, deleted, and what a run left found and deleted later."""

import os
from contextlib import closing

import gevent
import pytest
from command_line import run_in_process
from stub_stores import start_stub
from test_stores import access_to
from workspace import Completed

from bench_common.secret import Secret
from bench_features.objects.common.access import Access
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_features.objects.worker import leftovers, population
from bench_features.objects.worker.base import StoreOptions
from bench_features.objects.worker.names import Names
from bench_features.objects.worker.population import TreatmentObjects
from bench_features.objects.worker.registry import open_store

RUN, OTHER_RUN = "0b1ec7000001", "0b1ec7000002"


def job(base="", **changes):
    mix = (("create", 1.0), ("read", 1.0))
    classes = (
        SizeClass("tiny", Sizes("uniform", 10, 500), mix, population=40),
        SizeClass("large", Sizes("fixed", 200_000, 200_000), mix, population=3),
    )
    return Objects(classes, container_base=base, containers=3, **{"verify": "full", **changes})


class Process:
    """What one process does with the objects of a run."""

    def __init__(self, store, protocol, objects, *, run=RUN, part=0, parts=1):
        self.phases = []
        options = StoreOptions(slots=8, multipart_above_bytes=objects.multipart_above_bytes, part_bytes=5 << 20)
        self.objects = TreatmentObjects(
            objects,
            Names.of(objects, run, 0, part + 1),
            lambda: open_store(access_to(store, protocol), options),
            slots=8,
            part=part,
            parts=parts,
            report=self.phases.append,
        )

    def fill(self):
        self.objects.prepare()
        return self.phases[-1]

    def clear(self, *, keep=False):
        self.objects.clear(keep=keep)
        return self.phases[-1]


def containers(store, word):
    return [name for name in store.containers() if word in name]


@pytest.mark.parametrize("protocol", ["swift", "s3"])
def test_two_processes_fill_a_store_and_leave_nothing(store, protocol):
    """Each makes its part, at once; a third one that was killed left objects, which the others delete, too."""
    killed, *others = (Process(store, protocol, job(), part=part, parts=3) for part in range(3))
    for process in [gevent.spawn(one.fill) for one in (killed, *others)]:
        assert (process.get().failed, process.get().reason) == (0, "")
    objects, catalogue = others[0].objects.wait()
    assert sum(len(store.objects(name)) for name in containers(store, RUN)) == 43
    with closing(objects.slot(0)) as slot:
        for number in range(5):
            assert slot.put(catalogue.names.containers[0], f"tiny_{number + 100:06d}-p1", [b"x"]).ok
    for process in [gevent.spawn(one.clear) for one in others]:
        assert (process.get().failed, process.get().reason) == (0, "")
    assert containers(store, RUN) == []


def test_a_population_is_used_again_by_the_next_run(store):
    """Its objects are compared by their ETags; one that differs is made anew."""
    objects = job("again")
    first = Process(store, "swift", objects)
    assert (first.fill().objects, first.phases[-1].found) == (43, 0)
    first.clear(keep=True)
    container = containers(store, "again")[0]
    name = next(name for name in store.objects(container) if name.startswith("tiny"))
    store.open("PUT", f"AUTH_test/{container}/{name}", b"A" * 10).close()
    before = len(store.requests())
    second = Process(store, "swift", objects, run=OTHER_RUN)
    filled = second.fill()
    assert (filled.objects, filled.found, filled.failed) == (1, 42, 0)
    methods = [one.method for one in store.requests()[before:] if "/again_" in one.path and one.path.count("/") > 3]
    assert (methods.count("HEAD"), methods.count("PUT")) == (43, 1)
    second.clear()
    left = [each for one in containers(store, "again") for each in store.objects(one)]
    assert len(left) == 42, "what was there before the run stays, and what the run made goes"
    assert cleanup_of(store, "swift", "--base", "again", "--yes").status == 0
    assert containers(store, "again") == []


def cleanup(*words, **variables):
    """Run `cleanup-containers` with these variables in its environment."""
    return Completed(*run_in_process(["cleanup-containers", *words], ".", {**os.environ, **variables}))


def cleanup_of(store, protocol, *words):
    """Run `cleanup-containers --store` with the login of the environment."""
    variables = store.swift_variables if protocol == "swift" else store.s3_variables
    return cleanup("--store", protocol, *words, **variables)


@pytest.mark.parametrize("protocol", [pytest.param("swift", marks=pytest.mark.slow), "s3"])
def test_what_a_killed_run_left_is_listed_and_then_deleted(store, protocol, monkeypatch):
    """Nothing is deleted without --yes, of another run, or that is not ours; large objects go with their parts."""
    monkeypatch.setattr(population, "PAGE", 10)
    monkeypatch.setattr(leftovers, "PAGE", 10)
    objects = job(multipart_above_bytes=150_000) if protocol == "swift" else job()
    for run in (RUN, OTHER_RUN):
        assert Process(store, protocol, objects, run=run).fill().failed == 0
    store.open("PUT", "AUTH_test/weighbridge-mine", b"").close()
    listed = cleanup_of(store, protocol, "--run", RUN)
    assert listed.status == 0, listed.err
    assert len([line for line in listed.out.splitlines() if RUN in line and "listed" in line]) == 3
    assert "3 listed" in listed.out
    assert "repeat it with --yes" in listed.err
    assert containers(store, RUN)
    deleted = cleanup_of(store, protocol, "--run", RUN, "--yes")
    assert (deleted.status, "3 removed" in deleted.out) == (0, True), deleted
    assert containers(store, RUN) == []
    assert containers(store, OTHER_RUN)
    with closing(open_store(access_to(store, protocol), StoreOptions(multipart_above_bytes=0))) as opened:
        found = leftovers.find_containers(opened, OTHER_RUN)
        assert sum(one.objects for one in found) == 43
        assert leftovers.remove_containers(opened, found) == {}
    assert containers(store, OTHER_RUN) == []
    assert "nothing was left behind" in cleanup_of(store, protocol, "--yes").out
    assert containers(store, "weighbridge-mine")
    store.open("DELETE", "AUTH_test/weighbridge-mine").close()


def test_more_objects_than_any_listing_has_at_once_are_all_found_and_deleted():
    """A page has 1,000 names and a whole listing of Swift 10,000: what is beyond is not forgotten."""
    count = 10_500
    many = Objects((SizeClass("tiny", Sizes("fixed", 10, 10), (("read", 1.0),), population=count),))
    with start_stub() as stub:
        access = Access("swift", "the test", auth_version="1", auth_url=stub.auth_url, user="u", key=Secret("k"))
        names = Names.of(many, RUN, 0, 1)
        objects = TreatmentObjects(many, names, lambda: open_store(access, StoreOptions(slots=16)), slots=16)
        objects.prepare()
        assert len(objects.wait()[1]) == count
        objects.clear(keep=True)
        with closing(open_store(access, StoreOptions(slots=16))) as opened:
            found = leftovers.find_containers(opened)
            assert [(one.run_id, one.objects) for one in found] == [(RUN, count)]
            assert leftovers.remove_containers(opened, found) == {}
        assert stub.names() == []


def test_a_store_that_refuses_the_login_is_named_with_what_to_do(store):
    """The error says who refused whom; it is no traceback."""
    done = cleanup("--store", "swift", **{**store.swift_variables, "ST_KEY": "wrong"})
    assert done.status == 3
    assert "Traceback" not in done.err
    assert "wrong" not in done.err
    nothing = cleanup("--base", "x")
    assert nothing.status == 2
    assert "--base is for --store" in nothing.err
