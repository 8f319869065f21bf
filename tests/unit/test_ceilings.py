"""What the harness itself can do on a host: when it is measured, where it is kept, and what it took of the CPUs."""

import json
import logging
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from bench_common.errors import InfrastructureError
from bench_master.coordinator import Policy
from bench_master.plan import make_plan
from bench_master.run import ceilings, harness_watch
from bench_master.run.ceilings import (
    MAX_AGE,
    MOST_MEASURED,
    NOOP,
    PROBE,
    TRIES,
    WITHIN_REACH_PER_S,
    Ceiling,
    KeptCeilings,
    Measured,
    Setup,
    ceiling_events,
    ceilings_file,
    known_ceilings,
    measure_ceiling,
    noop_probe,
    present,
    setup_of,
)
from bench_master.run.harness_watch import QUIET_SHARE, HarnessWatch, Neighbours, NeighbourWatch
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

HERE = {"host": "blade-1", "kernel": "6.1"}
SETUP = Setup(NOOP, 1, 4, 3, look_ahead=True)
NOW = present()
QUIET = Neighbours(QUIET_SHARE, 0.0)
BUSY = Neighbours(0.4, 0.2)
BURN_S = 0.2


def kept(path, here=None):
    return KeptCeilings(path / "cache" / "ceilings.json", here or HERE)


def ceiling(rate=1000.0, *, setup=SETUP, measured=NOW, here=None, beside=QUIET):
    return Ceiling(setup, rate, measured, beside, here or HERE)


def keep(path, rate=1000.0, *, setup=SETUP, here=None, beside=QUIET):
    """Keep a ceiling that was measured now; return the kept ones."""
    found = kept(path, here)
    assert found.keep(setup, Measured(rate, beside), NOW) == ceiling(rate, setup=setup, here=here, beside=beside)
    return found


def test_a_ceiling_is_found_again_while_it_is_young(tmp_path):
    """A week; one from the future is none, as a clock was set."""
    keep(tmp_path)
    again = kept(tmp_path)
    assert again.find(SETUP, NOW) == again.find(SETUP, NOW + MAX_AGE) == ceiling()
    for now in (NOW + MAX_AGE + timedelta(minutes=1), NOW - timedelta(minutes=1)):
        assert again.find(SETUP, now) is None


@pytest.mark.parametrize("change", [{"workers": 2}, {"concurrency": 5}, {"operations": 2}, {"look_ahead": False}])
def test_a_ceiling_holds_for_its_setup_alone(tmp_path, change):
    """As many workers, jobs in flight and operations, and the same hand-out."""
    found = keep(tmp_path)
    assert found.find(msgspec.structs.replace(SETUP, **change), NOW) is None


def test_a_changed_machine_has_no_ceiling_and_others_keep_theirs(tmp_path):
    """What a host had before it changed is forgotten when it is measured again; several hosts may share a home."""
    other = {"host": "blade-2", "kernel": "6.1"}
    keep(tmp_path)
    keep(tmp_path, 7.0, here=other)
    new = HERE | {"kernel": "6.2"}
    changed = kept(tmp_path, new)
    assert changed.find(SETUP, NOW) is None
    keep(tmp_path, 3.0, here=new)
    assert kept(tmp_path, new).find(SETUP, NOW).rate_per_s == 3.0
    assert kept(tmp_path).find(SETUP, NOW) is None
    assert kept(tmp_path, other).find(SETUP, NOW).rate_per_s == 7.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ceilings": [{"rate_per_s": "x"}]}'])
def test_a_damaged_file_is_replaced(tmp_path, text, caplog):
    """It is a cache: the ceilings are measured again."""
    keep(tmp_path)
    path = tmp_path / "cache" / "ceilings.json"
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert kept(tmp_path).find(SETUP, NOW) is None
    assert str(path) in caplog.text
    keep(tmp_path, 5.0)
    assert kept(tmp_path).find(SETUP, NOW).rate_per_s == 5.0
    assert [entry.name for entry in path.parent.iterdir()] == ["ceilings.json"]


def test_a_folder_that_cannot_be_made_costs_no_run(tmp_path, caplog):
    """Nothing is kept, and the next run measures again."""
    (tmp_path / "cache").write_text("")
    with caplog.at_level(logging.WARNING):
        keep(tmp_path)
    assert "cannot keep the ceilings" in caplog.text


def test_the_file_is_in_the_cache_of_the_user(tmp_path):
    """XDG_CACHE_HOME counts when it is absolute."""
    assert str(ceilings_file({"XDG_CACHE_HOME": "/x"})) == "/x/weighbridge/ceilings.json"
    for environment in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert str(ceilings_file(environment)).endswith("/.cache/weighbridge/ceilings.json")


# -- when it is measured ---------------------------------------------------------------------------------------------


def setups(count):
    return {index: Setup(NOOP, 1, index + 1, 3, look_ahead=True) for index in range(count)}


def test_only_what_is_within_reach_is_measured(tmp_path):
    """Once for each setup; what is kept is told of all."""
    measured = []

    plan = {**setups(3), 3: setups(3)[0]}

    def measure(index):
        measured.append(plan[index])
        return Measured(2000.0, QUIET)

    keep(tmp_path, setup=plan[2])
    rates = {0: WITHIN_REACH_PER_S + 1, 1: WITHIN_REACH_PER_S, 2: 1.0, 3: WITHIN_REACH_PER_S + 1}
    for _ in range(2):
        found = known_ceilings(plan, rates, kept(tmp_path), measure, lambda: NOW)
        assert {index: one.rate_per_s for index, one in found.items()} == {0: 2000.0, 2: 1000.0, 3: 2000.0}
        assert measured == [plan[0]]


def test_a_ceiling_that_real_jobs_exceeded_is_measured_again(tmp_path):
    """Whatever it was measured beside; one that they came near to stays."""
    keep(tmp_path, 900.0)
    for rate, expected in ((900.0, 900.0), (901.0, 3000.0), (2999.0, 3000.0)):
        found = known_ceilings({0: SETUP}, {0: rate}, kept(tmp_path), lambda _: Measured(3000.0, QUIET), lambda: NOW)
        assert found[0].rate_per_s == kept(tmp_path).find(SETUP, NOW).rate_per_s == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((1000.0, BUSY), (5000.0, QUIET), 5000.0),
        ((1000.0, BUSY), (900.0, QUIET), 900.0),
        ((1000.0, BUSY), (1100.0, BUSY), 1100.0),
        ((1000.0, BUSY), (900.0, BUSY), 1000.0),
        ((1000.0, QUIET), (5000.0, QUIET), 1000.0),
    ],
)
def test_a_ceiling_of_a_busy_machine_is_measured_again_where_it_would_refuse(tmp_path, old, new, expected):
    """Of two such the higher one stays, as neighbours make it too low; one of a quiet machine holds for its week."""
    keep(tmp_path, old[0], beside=old[1])
    for rate, rates in ((800.0, old[0]), (801.0, expected)):
        found = known_ceilings({0: SETUP}, {0: rate}, kept(tmp_path), lambda _: Measured(*new), lambda: NOW)
        assert found[0].rate_per_s == kept(tmp_path).find(SETUP, NOW).rate_per_s == rates


def test_a_busy_measurement_does_not_replace_a_higher_one_of_a_quiet_machine(tmp_path):
    """As when it is asked for beside other work."""
    keep(tmp_path, 1000.0)
    assert kept(tmp_path).keep(SETUP, Measured(700.0, BUSY), NOW) == ceiling()
    assert kept(tmp_path).find(SETUP, NOW) == ceiling()


@pytest.mark.parametrize(
    ("neighbours", "quiet"),
    [(QUIET, True), (BUSY, False), (Neighbours(0.4, 1.0), True), (Neighbours(QUIET_SHARE + 0.001, 0.99), False)],
)
def test_neighbours_are_quiet_that_take_little_or_leave_a_cpu(neighbours, quiet):
    """A host of many CPUs has room for others; on a small one they are in the way."""
    assert neighbours.are_quiet == quiet


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(100.0, QUIET)], (100.0, QUIET)),
        ([(100.0, BUSY), (90.0, QUIET)], (90.0, QUIET)),
        ([(100.0, BUSY), (90.0, BUSY)], (100.0, BUSY)),
    ],
)
def test_beside_busy_neighbours_a_ceiling_is_measured_once_more(monkeypatch, found, expected):
    """The quiet one counts, else the higher one."""
    assert len(found) <= TRIES
    left = [Measured(*one) for one in found]
    monkeypatch.setattr(ceilings, "_measure_once", lambda *_: left.pop(0))
    assert measure_ceiling(SETUP, noop_probe(3)) == Measured(*expected)
    assert left == []


def test_a_run_measures_few_ceilings_the_fastest_first(tmp_path):
    """The next run measures others."""
    measured = []
    here = kept(tmp_path)
    rates = {index: 1000.0 + index for index in range(MOST_MEASURED + 1)}
    for expected in (range(MOST_MEASURED, 0, -1), range(1)):
        measured.clear()
        known_ceilings(
            setups(MOST_MEASURED + 1),
            rates,
            here,
            lambda one: measured.append(one) or Measured(2000.0, QUIET),
            present,
        )
        assert measured == list(expected)


def test_a_ceiling_that_cannot_be_measured_stays_unknown(tmp_path, caplog):
    """The run has its results; it is not tried twice."""
    tried = []

    def fail(index):
        tried.append(index)
        raise InfrastructureError("no room")

    here = kept(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert known_ceilings({0: SETUP, 1: SETUP}, {0: 900.0, 1: 900.0}, here, fail, present) == {}
    assert tried == [0]
    assert "no room" in caplog.text


def test_a_run_that_measures_a_ceiling_measures_none_itself(monkeypatch):
    """Or it would measure the one of the run that measures it, and so on."""
    given = {"name": "a", "engines": ["native"], "job": {"operations": [{"sleep": "1ns"}]}}
    treatments = make_plan(parse_scenario(Source("s.yaml", json.dumps(given)), ()), 1).treatments
    policy, told = Policy(expected=1), []
    monkeypatch.setattr(ceilings, "measure_ceiling", lambda *_: Measured(1000.0, BUSY))
    monkeypatch.setattr(ceilings, "kept_here", lambda: KeptCeilings(Path("/dev/null/none"), HERE))
    (event,) = ceiling_events(treatments, policy, {0: 900.0}, told.append)
    assert (event.kind, event.fields["others"], event.fields["quiet"]) == ("harness-ceiling", 0.4, False)
    assert len(told) == 1
    monkeypatch.setenv(PROBE, "1")
    assert ceiling_events(treatments, policy, {0: 900.0}, told.append) == []


def test_a_program_that_fails_says_why(monkeypatch):
    """In one line, as its last words are."""
    monkeypatch.setattr(ceilings, "_scenario", lambda *_: {"name": "nonsense"})
    with pytest.raises(InfrastructureError, match="the harness's own ceiling cannot be measured: bench-master: "):
        measure_ceiling(SETUP, noop_probe(3))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, Setup(NOOP, 2, 3, 3, look_ahead=True)),
        ({"run_seconds": 1}, Setup(NOOP, 2, 3, 3, look_ahead=False)),
        ({"rate": "10/s", "run_seconds": 1}, Setup(NOOP, 2, 3, 3, look_ahead=True)),
        ({"job": {"workload": "command", "command": ["true"], "params": {}}}, None),
    ],
)
def test_the_setup_is_that_of_the_jobs(keys, expected):
    """Guests measure themselves, and have none."""
    given = {"name": "a", "engines": ["native"], "concurrency": 3}
    given["job"] = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"]}}
    given |= keys
    if "workload" in given["job"]:
        given["job"] = {"workload": "sysbench-cpu"}
    plan = make_plan(parse_scenario(Source("s.yaml", json.dumps(given)), ()), 1)
    assert setup_of(plan.treatments[0], 2) == expected


# -- what it takes ---------------------------------------------------------------------------------------------------


def test_the_watch_reads_the_cpu_time_of_the_harness_and_of_its_host():
    """Work of this process is in it, and no more than there was."""
    watch = HarnessWatch(lambda: [os.getpid()])
    before = time.process_time_ns()
    watch.begin()
    while time.process_time_ns() < before + 20_000_000:
        pass
    (used_ns, idle_ns, total_ns) = watch.end()["harness"]
    # It counts twice here: as the master, and as a worker.
    assert used_ns >= 2 * 20_000_000 - 10_000_000
    assert 0 <= idle_ns <= total_ns


def test_the_watch_says_nothing_where_it_does_not_know():
    """Without workers here, without a begin, after a process has gone."""
    assert HarnessWatch(None).end() == {}
    watch = HarnessWatch(list)
    assert watch.end() == {}
    pids = [os.getpid()]
    watch = HarnessWatch(lambda: pids)
    watch.begin()
    pids.append(os.getppid())
    assert watch.end() == {}
    watch = HarnessWatch(lambda: [2**22 + 1])
    watch.begin()
    assert watch.end() == {}


def test_neighbours_are_what_this_process_and_its_children_did_not_do(monkeypatch):
    """Of the host's CPU time, idle, interrupts and what awaited children used left out."""
    per_s = os.sysconf("SC_CLK_TCK")
    #        user nice system idle iowait irq softirq steal
    first = [5, 0, 0, 0, 0, 0, 0, 0]
    last = [5 + per_s, 0, per_s, 3 * per_s, per_s, per_s, per_s, 2 * per_s]
    monkeypatch.setattr(harness_watch, "_cpu_ticks", lambda: first)
    watch = NeighbourWatch()
    monkeypatch.setattr(harness_watch, "_cpu_ticks", lambda: last)
    before, ours = watch.end(), os.times()
    assert before.others == pytest.approx(0.4, abs=0.01)
    assert before.idle_cpus == pytest.approx(0.4 * os.cpu_count())
    subprocess.run([sys.executable, "-c", f"import time\nwhile time.process_time() < {BURN_S}: pass"], check=True)
    used = sum(os.times()[:4]) - sum(ours[:4])
    # The kernel's times end with whole ticks.
    assert used >= 0.5 * BURN_S
    assert before.others - watch.end().others >= 0.5 * BURN_S / 10
