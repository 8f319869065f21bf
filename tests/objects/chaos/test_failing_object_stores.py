"""A run on a store that fails: each fault is one failed job of its kind, all jobs are done, and nothing is left."""

from collections import Counter

import psutil
import pytest
from deadlines import END_S, START_S, wait_until
from live_run import children, cmdline
from relay import ADDRESS, FIRST_READ, Relay
from stub_stores import start_stub
from workspace import UNHURRIED

PATIENTLY = (*UNHURRIED, "--reconnect-timeout", f"{START_S:g}s")
"""However long it takes here to start a load process, the run waits for it."""
MIX = {"create": 2, "read": 5, "update": 2, "delete": 1}


@pytest.fixture
def stub(workspace):
    """A store, to which the variables of the workspace lead."""
    with start_stub() as made:
        workspace.environ |= {"ST_AUTH": made.auth_url, "ST_USER": "u", "ST_KEY": "k"}
        yield made


@pytest.fixture
def relay(stub):
    """The store's other endpoint; it does what is asked of it when the population is made and the first job reads."""
    with Relay([stub.port]) as made:
        yield made


def job(**changes):
    return {"objects": {"sizes": 20_000, "population": 50, "mix": MIX, "verify": "full", **changes}}


def by_way_of_relay(stub, *others):
    """Return a job whose store is reached through the relay, or at one of `others`."""
    endpoints = [stub.storage_url.replace("127.0.0.1", host) for host in (ADDRESS, *others)]
    return job(store={"endpoints": endpoints})


def start(workspace, **keys):
    """Start a run in which jobs may fail."""
    given = {"engines": ["swift"], "concurrency": 8, "timeout": "4s", "allow_failures": True, "job": job(), **keys}
    return workspace.start_run(workspace.scenario(**given), *UNHURRIED)


def errors_of(run):
    """Return how many jobs failed, by kind, whatever their operation."""
    found = Counter()
    for one in run.document["errors"]:
        found[one["kind"]] += one["count"]
    return dict(found)


def kill_load_process(program):
    """Kill what runs the jobs of a run's only worker."""
    for process in children(psutil.Process(program.process.pid)):
        if any("--load-process" in word for word in cmdline(process)):
            process.kill()


def left_in(stub):
    return [name for name in stub.names() if name.startswith("weighbridge-")]


def test_each_fault_fails_one_job_of_its_kind(workspace, stub):
    """Those of the first reads; the population, whose first requests fail, is made all the same."""
    stub.fault("503", count=3, method="PUT", match="/weighbridge-")
    for kind in ("503", "reset", "close", "reset-body", "half", "stall", "stall-body", "wrong"):
        stub.fault(kind, count=4, method="GET", match="/all_")
    run = workspace.finish(*start(workspace, operation_count=600))
    errors = errors_of(run)
    expected = {"http-503": 4, "reset": 8, "truncated": 4, "closed": 4, "timeout": 8, "wrong-content": 4}
    assert errors == expected, run.document["errors"]
    assert run.outcomes() == {"done": 568, "failed": 32}
    (treatment,) = run.document["treatments"]
    filled, cleared = treatment["population"]
    assert (filled["objects"], filled["failed"], cleared["failed"]) == (50, 0, 0)
    assert left_in(stub) == []


def test_a_token_that_expires_fails_nothing(workspace, stub, relay):
    """Each job that is refused logs in again."""
    relay.at_first(FIRST_READ, stub.expire)
    run = workspace.finish(*start(workspace, operation_count=300, job=by_way_of_relay(stub)))
    assert stub.counts()["401"] > 0
    assert run.outcomes() == {"done": 300}
    assert left_in(stub) == []


def test_a_run_whose_population_cannot_be_made_ends_before_its_first_job(workspace, stub):
    """A store that takes containers and half of the objects: exit code 3 with the reason, and nothing is left."""
    stub.fault("503", method="PUT", match="all_00001")
    scenario = workspace.scenario(engines=["swift"], concurrency=8, operation_count=300, job=job())
    run = workspace.finish(*workspace.start_run(scenario), 3)
    assert "the population of 50 objects was not made" in run.err
    assert "http-503" in run.err
    assert run.jobs == []
    assert left_in(stub) == []


def test_a_run_may_go_on_with_a_part_of_its_population(workspace, stub):
    """Where the scenario allows it, the report tells how much is missing."""
    stub.fault("503", method="PUT", match="all_00001")
    scenario = workspace.scenario(
        engines=["swift"],
        concurrency=8,
        operation_count=300,
        job=job(allow_population_failures=True, mix={"read": 1}),
    )
    run = workspace.finish(*workspace.start_run(scenario))
    assert run.outcomes() == {"done": 300}
    assert "10 objects were not made before the first trial" in " ".join(run.document["warnings"])
    assert left_in(stub) == []


def test_a_trial_that_loses_its_load_process_is_in_no_figure(workspace, stub):
    """Its restart, and a second population, are in the time of that trial; the other one is what was measured."""
    stub.fault("stall", count=1, method="PUT", match="all_000051-p")
    scenario = workspace.scenario(
        engines=["swift"],
        repeats=2,
        concurrency=8,
        operation_count=300,
        timeout=f"{END_S:g}s",
        job=job(mix={"create": 9, "read": 1}),
    )
    program, stats = workspace.start_run(scenario, *PATIENTLY)
    # More than two containers and the population: jobs run, and one of them waits for the store.
    wait_until(
        lambda: stub.counts().get("PUT", 0) > 60 or program.process.poll() is not None, START_S, "the first jobs"
    )
    kill_load_process(program)
    run = workspace.finish(program, stats)
    assert run.outcomes() == {"done": 600}
    (treatment,) = run.document["treatments"]
    assert treatment["trials"] == {"planned": 1, "run": 1, "left_out": 1}
    assert treatment["jobs"]["done"] == 300
    told = "left out of all figures and verdicts: 1 trial (round 1), in which a worker was lost: worker local-0"
    assert any(told in warning for warning in run.document["warnings"])
    made = [phase["objects"] for phase in treatment["population"] if phase["phase"] == "populate"]
    assert made == [50, 50]
    assert left_in(stub) == []


def test_a_load_process_that_is_killed_in_the_clean_up_is_followed_by_one_that_finishes_it(workspace, stub):
    """The new one lists the containers of the run, whose objects it never saw."""
    mix = {"read": 1}
    scenario = workspace.scenario(engines=["swift"], concurrency=8, operation_count=300, job=job(mix=mix))
    stub.fault("stall", method="DELETE", match="all_0000")
    program, stats = workspace.start_run(scenario, *PATIENTLY)
    # The first container that is deleted is the preflight's.
    wait_until(
        lambda: stub.counts().get("DELETE", 0) > 1 or program.process.poll() is not None, START_S, "the clean-up"
    )
    stub.heal()
    kill_load_process(program)
    run = workspace.finish(program, stats)
    assert run.outcomes() == {"done": 300}
    cleared = [phase for phase in run.document["treatments"][0]["population"] if phase["phase"] == "clear"]
    assert [phase["failed"] for phase in cleared] == [0]
    assert left_in(stub) == []


def test_writes_whose_end_is_unknown_are_deleted_in_the_end(workspace, stub):
    """The store did what it did not confirm, or did not; neither leaves an object, or a 404."""
    # The faults of objects that jobs have created, not of the population.
    for method in ("PUT", "DELETE"):
        for kind in ("503", "reset", "half", "stall"):
            stub.fault(kind, count=5, method=method, match="-p")
    mix = {"create": 4, "read": 2, "update": 2, "delete": 2}
    run = workspace.finish(*start(workspace, operation_count=800, job=job(mix=mix)))
    errors = errors_of(run)
    assert "http-404" not in errors
    assert errors["http-503"] == 10
    assert errors["timeout"] == 10
    assert left_in(stub) == []


def test_a_store_that_answers_503_to_every_read_gets_as_many_as_were_asked(workspace, stub):
    """No job is lost or repeated, and no other operation suffers."""
    stub.fault("503", method="GET", match="/all_")
    program, stats = start(workspace, operation_count=2500)
    wait_until(
        lambda: stub.counts().get("503", 0) > 50 or program.process.poll() is not None, START_S, "the failures"
    )
    stub.heal()
    run = workspace.finish(program, stats)
    outcomes = run.outcomes()
    assert sum(outcomes.values()) == 2500
    assert errors_of(run) == {"http-503": outcomes["failed"]}
    assert left_in(stub) == []


def test_an_endpoint_of_three_that_dies_fails_its_jobs_alone(workspace, stub, relay):
    """The other two serve theirs, and the clean-up goes through them."""
    relay.at_first(FIRST_READ, relay.cut)
    three = by_way_of_relay(stub, "127.0.0.1", "localhost")
    program, stats = start(workspace, operation_count=1000, timeout=f"{END_S:g}s", job=three)
    wait_until(lambda: relay.is_cut or program.process.poll() is not None, START_S, "the first read")
    relay.close()
    run = workspace.finish(program, stats)
    outcomes = run.outcomes()
    errors = errors_of(run)
    assert set(errors) <= {"refused", "reset", "closed", "truncated"}
    assert errors["refused"] > 5
    assert sum(errors.values()) == outcomes["failed"]
    assert outcomes["done"] > 100
    (treatment,) = run.document["treatments"]
    assert [(phase["phase"], phase["failed"]) for phase in treatment["population"]] == [("populate", 0), ("clear", 0)]
    assert left_in(stub) == []


def test_an_endpoint_of_three_that_becomes_slow_fails_its_jobs_alone(workspace, stub, relay):
    """Two seconds each way are longer than a job may take: those jobs time out, and what they wrote is deleted."""
    relay.at_first(FIRST_READ, lambda: relay.delay([stub.port], 2))
    three = by_way_of_relay(stub, "127.0.0.1", "localhost")
    run = workspace.finish(*start(workspace, operation_count=120, timeout="2s", job=three))
    outcomes, errors = run.outcomes(), errors_of(run)
    assert set(errors) == {"timeout"}
    assert errors["timeout"] == outcomes["failed"]
    assert set(outcomes) == {"done", "failed"}
    assert outcomes["done"] > 40
    assert not any(row["attempt"] for row in run.jobs)
    assert left_in(stub) == []


def test_a_login_that_is_refused_for_ever_ends_the_run_and_what_is_left_is_told(workspace, stub, relay):
    """Each job fails with the reason; the clean-up gives up, says so, and is made up for by the command."""
    relay.at_first(FIRST_READ, lambda: stub.fault("401", match="/v1/"))
    run = workspace.finish(*start(workspace, operation_count=300, job=by_way_of_relay(stub)), 3)
    errors = errors_of(run)
    assert set(errors) <= {"http-401", "login-refused"}, errors
    assert sum(errors.values()) == run.outcomes()["failed"] > 10
    warnings = " ".join(run.document["warnings"])
    assert "objects were not deleted after the last trial" in warnings
    assert f"`bench-master cleanup-containers --store swift --run {run.run_id} --yes`" in warnings
    stub.heal()
    assert left_in(stub)
    ended = workspace.master("cleanup-containers", "--store", "swift", "--run", run.run_id, "--yes")
    assert ended.status == 0, ended.err
    assert left_in(stub) == []
