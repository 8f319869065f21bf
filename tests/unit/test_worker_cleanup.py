"""Clean-up over all engines, with engines that only remember."""

import pytest

from bench_common import directories
from bench_common.errors import InfrastructureError
from bench_worker import cleanup
from bench_worker.cleanup import clean_up_all, clean_up_dead_runs, clean_up_run
from bench_worker.engines.base import EngineOptions, Leftover
from bench_worker.engines.noop import NoopEngine
from bench_worker.leases import record_engine_use, recorded_uses


class Remembering(NoopEngine):
    """Has leftovers, and notes in which order they go."""

    def __init__(self, *items, name="memory", broken=(), deaf=False):
        super().__init__(EngineOptions("", "", 1))
        self.name = name
        self.items = [Leftover(name, what, identity, identity, run) for what, identity, run in items]
        self.broken = broken
        self.deaf = deaf
        self.discarded = []

    def leftovers(self, run_id=None, worker_id=None):
        if self.deaf:
            raise InfrastructureError("nobody answers")
        return [item for item in self.items if run_id in {None, item.run_id}]

    def discard(self, leftover):
        if leftover.identity in self.broken:
            raise InfrastructureError("it is stuck")
        self.discarded.append(leftover.identity)
        self.items = [item for item in self.items if item is not leftover]


@pytest.fixture(autouse=True)
def alive(monkeypatch):
    runs = set()
    monkeypatch.setattr(cleanup, "live_runs", lambda: frozenset(runs))
    return runs


def identities(leftovers):
    return {item.identity for item in leftovers}


def test_everything_of_runs_that_are_over_goes(alive):
    """Without a name every dead run is cleaned up, and a second clean-up finds nothing."""
    engine = Remembering(("container", "c1", "r1"), ("container", "c2", "r2"), ("volume", "v1", "r1"))
    assert identities(clean_up_all([engine]).removed) == {"c1", "c2", "v1"}
    again = clean_up_all([engine])
    assert (again.removed, again.kept, again.failed) == ([], [], [])


def test_a_live_run_is_kept_unless_it_is_named(alive):
    """A plain clean-up never touches a live run; naming the run does."""
    alive.add("r1")
    engine = Remembering(("container", "c1", "r1"), ("container", "c2", "r2"))
    cleaned = clean_up_all([engine])
    assert identities(cleaned.removed) == {"c2"}
    assert identities(cleaned.kept) == {"c1"}
    assert identities(clean_up_all([engine], run_id="r1").removed) == {"c1"}


def test_runs_are_asked_for_after_the_list_was_made(monkeypatch):
    """A run that begins while the list is made holds its lease before it makes anything, so it is seen alive."""
    order = []
    engine = Remembering(("container", "c1", "r1"))
    monkeypatch.setattr(engine, "leftovers", lambda *_: order.append("list") or engine.items)
    monkeypatch.setattr(cleanup, "live_runs", lambda: order.append("runs") or frozenset({"r1"}))
    assert clean_up_all([engine]).removed == []
    assert order == ["list", "runs"]


def test_a_dry_run_touches_nothing():
    """It lists what a real one would remove."""
    engine = Remembering(("container", "c1", "r1"))
    cleaned = clean_up_all([engine], dry_run=True)
    assert identities(cleaned.listed) == {"c1"}
    assert cleaned.removed == []
    assert engine.discarded == []


def test_kinds_go_in_the_engines_own_order():
    """A volume cannot go before the container that uses it."""
    engine = Remembering(
        ("container", "c1", "r"), ("container", "c2", "r"), ("image", "i1", "r"), ("volume", "v1", "r")
    )
    clean_up_all([engine])
    assert set(engine.discarded[:2]) == {"c1", "c2"}
    assert engine.discarded[2:] == ["i1", "v1"]


def test_one_failure_stops_nothing_else():
    """What could not be removed is reported with its reason; the rest goes."""
    stuck = Remembering(("container", "c1", "r"), ("container", "c2", "r"), broken={"c1"})
    deaf = Remembering(name="deaf", deaf=True)
    cleaned = clean_up_all([deaf, stuck])
    assert identities(cleaned.removed) == {"c2"}
    assert sorted(map(str, cleaned.failed)) == ["deaf: nobody answers", "memory: container c1: it is stuck"]


def test_each_leftover_is_reported_at_once(alive):
    """`on_result` gets the status and the reason of each."""
    alive.add("r2")
    engine = Remembering(
        ("container", "c1", "r1"), ("container", "c2", "r2"), ("container", "c3", "r3"), broken={"c3"}
    )
    reported = {}
    clean_up_all(
        [engine], on_result=lambda leftover, status, reason: reported.update({leftover.identity: (status, reason)})
    )
    assert reported["c1"] == ("removed", "")
    assert reported["c2"] == ("kept", "run r2 is alive on this host")
    assert reported["c3"] == ("failed", "it is stuck")


@pytest.mark.parametrize("verb", ["leftovers", "discard"])
def test_an_engine_with_a_fault_of_its_own_does_not_keep_the_others_from_being_cleaned_up(alive, monkeypatch, verb):
    """What a third-party engine raises is reported as a failure, and the clean-up goes on."""
    faulty = Remembering(("container", "c1", "r1"), name="faulty")
    sound = Remembering(("container", "c2", "r1"))

    def broken(*_arguments):
        raise KeyError("a bug of its own")

    monkeypatch.setattr(faulty, verb, broken)
    cleaned = clean_up_all([faulty, sound])
    assert identities(cleaned.removed) == {"c2"}
    assert [failure.engine for failure in cleaned.failed] == ["faulty"]
    assert "a bug of its own" in str(cleaned.failed[0])


def test_an_engine_that_cannot_even_be_made_is_left_out(monkeypatch):
    """A faulty engine does not end a worker that cleans up before it begins."""

    class Faulty(NoopEngine):
        def open(self):
            raise RuntimeError("a bug of its own")

    monkeypatch.setattr(cleanup, "engine_classes", lambda only: {"faulty": Faulty, "noop": NoopEngine})
    assert [type(engine) for engine in cleanup.usable_engines()] == [NoopEngine]


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Make engines the ones that can be opened; return the names of those that were."""
    monkeypatch.setattr(directories, "STATE", (tmp_path, tmp_path))
    opened = []

    def install(*engines):
        def usable(only):
            found = [engine for engine in engines if engine.name in only]
            opened.extend(engine.name for engine in found)
            return found

        monkeypatch.setattr(cleanup, "usable_engines", usable)
        return opened

    return install


def noted_uses():
    return {(use.run_id, use.engine) for use in recorded_uses()}


def test_only_engines_that_a_run_used_list_their_leftovers(recorded):
    """The others are not even opened; without a note nothing is."""
    used = Remembering(("container", "c1", "r1"), name="used")
    opened = recorded(used, Remembering(("container", "c2", "r1"), name="unused"))
    assert clean_up_run("r1").removed == []
    record_engine_use("r1", "used")
    assert identities(clean_up_run("r1").removed) == {"c1"}
    assert opened == ["used"]


def test_a_used_engine_that_is_unavailable_is_a_failure(recorded):
    """What is left there is not known, and is not said to be nothing; without a run's name nobody asked for it."""
    recorded(Remembering(("container", "c1", "r1"), name="used"))
    record_engine_use("r1", "used")
    record_engine_use("r1", "away")
    cleaned = clean_up_run("r1")
    assert identities(cleaned.removed) == {"c1"}
    (failure,) = cleaned.failed
    assert str(failure).startswith(
        "away: the engine does not answer, so its leftovers are not known; clean up later with: "
    )
    assert str(failure).endswith(" --run r1")
    assert clean_up_dead_runs().failed == []


def test_the_record_of_a_cleaned_up_run_is_deleted(recorded):
    """The next worker need not look again. A clean-up of one run leaves notes: the run may go on."""
    recorded(Remembering(("container", "c1", "r1"), name="used"))
    record_engine_use("r1", "used")
    clean_up_run("r1")
    assert noted_uses() == {("r1", "used")}
    clean_up_dead_runs()
    assert noted_uses() == set()


def test_records_stay_of_what_may_still_exist(recorded, alive):
    """The records of a live run, of one with --keep, of a stuck leftover, of an unavailable engine."""
    alive.add("r1")
    recorded(
        Remembering(("container", "c2", "kept-2"), ("container", "c3", "r3"), name="used", broken={"c3"}),
        Remembering(name="deaf", deaf=True),
    )
    uses_left = {("r1", "used"), ("kept-2", "used"), ("r3", "used"), ("r4", "deaf"), ("r5", "not-installed")}
    for run, engine in (*uses_left, ("r6", "used")):
        record_engine_use(run, engine)
    clean_up_dead_runs()
    assert noted_uses() == uses_left
