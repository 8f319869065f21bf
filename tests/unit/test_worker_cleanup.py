"""Clean-up over all engines, with engines that only remember."""

import pytest
from msgspec.structs import replace
from owners import dead_label

from bench_common import directories
from bench_common.errors import InfrastructureError
from bench_worker import cleanup, leases
from bench_worker.cleanup import clean_up_all, clean_up_dead_runs, clean_up_run, forget_run
from bench_worker.engines import cost_group
from bench_worker.engines.base import EngineOptions, Leftover
from bench_worker.engines.noop import NoopEngine
from bench_worker.leases import record_engine_use, recorded_uses
from bench_worker.owner import Owner, own_label


class Remembering(NoopEngine):
    """Has leftovers, and notes in which order they go."""

    def __init__(self, *items, name="memory", broken=(), deaf=False):
        super().__init__(EngineOptions("", "", 1))
        self.name = name
        self.items = [
            Leftover(name, what, identity, identity, run, owner="".join(owner))
            for what, identity, run, *owner in items
        ]
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


def hidden_label():
    """Return the label of a process that nobody here can say anything about: its boot id is its container's own."""
    return str(replace(Owner.parse(own_label()), boot="private-0"))


def test_what_a_live_process_works_for_is_kept_whatever_leases_are_seen():
    """A private /tmp hides the lease of a run, and not its containers, whose labels name the process."""
    engine = Remembering(("container", "c1", "r1", own_label()), ("container", "c2", "r1", dead_label()))
    cleaned = clean_up_all([engine])
    assert (identities(cleaned.kept), identities(cleaned.removed)) == ({"c1"}, {"c2"})
    assert cleaned.unproved == {}
    assert identities(clean_up_all([engine], run_id="r1").removed) == {"c1"}


def test_what_may_be_alive_is_kept_and_named():
    """Nobody sees that process from here, nor that it has ended: why, and what to do, is told."""
    engine = Remembering(("container", "c1", "r1", hidden_label()), ("container", "c2", "r2", dead_label()))
    told = {}
    cleaned = clean_up_all([engine], on_result=lambda item, status, why: told.update({item.identity: (status, why)}))
    assert (identities(cleaned.kept), identities(cleaned.removed)) == ({"c1"}, {"c2"})
    assert list(cleaned.unproved) == ["r1"]
    status, why = told["c1"]
    assert status == "kept"
    assert "a boot id of its own; clean up there, or remove it in any case with --run r1" in why
    assert identities(clean_up_all([engine], run_id="r1").removed) == {"c1"}


def test_what_names_no_process_shares_the_fate_of_its_run():
    """An engine of somebody else may label less: its containers live with those of the run, or die alone."""
    engine = Remembering(("container", "c1", "r1"), ("container", "c2", "r1", own_label()), ("container", "c3", "r2"))
    assert identities(clean_up_all([engine]).removed) == {"c3"}


def test_what_names_no_process_is_not_removed_while_it_is_being_made():
    """A minute later nothing speaks for it any more."""
    engine = Remembering()
    engine.items = [
        Leftover("memory", "container", name, name, name, age) for name, age in (("new", 1.0), ("old", 61))
    ]
    cleaned = clean_up_all([engine])
    assert (identities(cleaned.kept), identities(cleaned.removed)) == ({"new"}, {"old"})


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

    monkeypatch.setattr(cleanup, "engine_classes", lambda only, labels: {"faulty": Faulty, "noop": NoopEngine})
    assert [type(engine) for engine in cleanup.usable_engines()] == [NoopEngine]


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Make engines the ones that can be opened; return the names of those that were."""
    monkeypatch.setattr(directories, "STATE", (tmp_path, tmp_path))
    monkeypatch.setattr(leases, "own_label", dead_label)
    opened = []

    def install(*engines):
        def usable(only, labels):
            assert not labels
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


def test_a_run_is_forgotten_but_for_what_may_be_alive(recorded, monkeypatch):
    """No engine is asked; another run keeps its records, and so does a process of this one that has not ended."""
    opened = recorded(Remembering(name="used"))
    record_engine_use("r1", "used")
    record_engine_use("r2", "used")
    monkeypatch.setattr(leases, "own_label", own_label)
    record_engine_use("r1", "other")
    forget_run("r1")
    assert noted_uses() == {("r2", "used"), ("r1", "other")}
    assert opened == []


@pytest.fixture
def groups(monkeypatch, tmp_path):
    """The control groups around containers of three runs; in one of them a process runs."""
    monkeypatch.setattr(cost_group, "_hierarchies", lambda: (str(tmp_path / "cpu"), str(tmp_path / "memory")))
    for hierarchy in ("cpu", "memory"):
        for name in ("wb-r1-1-0", "wb-r1-2-0", "wb-r11-1-0", "wb-r2-1-0"):
            (tmp_path / hierarchy / "weighbridge" / name).mkdir(parents=True)
    # A directory with a file in it cannot be removed, and neither can a group with a process.
    (tmp_path / "cpu/weighbridge/wb-r1-2-0/a process").touch()

    def left():
        return {f"{path.parent.parent.name} {path.name}" for path in tmp_path.glob("*/weighbridge/*")}

    return left


OTHERS = {"cpu wb-r11-1-0", "memory wb-r11-1-0", "cpu wb-r2-1-0", "memory wb-r2-1-0"}


@pytest.mark.parametrize("ended", [True, False])
def test_groups_around_containers_of_a_dead_run_go_with_its_record(recorded, alive, groups, ended):
    """Their worker was killed when the container was gone already; what runs in one keeps it, and a live run all."""
    recorded(Remembering(name="used"))
    record_engine_use("r1", "used")
    alive.update({"r2"} if ended else {"r1", "r2"})
    before = groups()
    clean_up_dead_runs()
    assert groups() == (OTHERS | {"cpu wb-r1-2-0"} if ended else before)


def test_groups_around_containers_of_a_named_run_go(groups):
    """A dry run, or a clean-up of one worker of it, leaves them."""
    before = groups()
    clean_up_all([Remembering()], run_id="r1", dry_run=True)
    clean_up_all([Remembering()], run_id="r1", worker_id="w")
    assert groups() == before
    clean_up_all([Remembering()], run_id="r1")
    assert groups() == OTHERS | {"cpu wb-r1-2-0"}


@pytest.mark.parametrize(("label", "opens"), [(own_label, False), (hidden_label, True)])
def test_the_record_of_a_process_that_may_be_alive_stays(recorded, monkeypatch, label, opens):
    """Its run may have nothing in the engine at this moment; an engine that only live ones use is not opened."""
    opened = recorded(Remembering(name="used"))
    monkeypatch.setattr(leases, "own_label", label)
    record_engine_use("r1", "used")
    clean_up_dead_runs()
    assert noted_uses() == {("r1", "used")}
    assert bool(opened) is opens


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
