"""A run on a store that fails: each fault is one failed job of its kind, all jobs are done, and nothing is left."""

from collections import Counter

import pytest
from deadlines import START_S, wait_until
from relay import ADDRESS, Relay
from stub_stores import start_stub
from workspace import Workspace

MIX = {"create": 2, "read": 5, "update": 2, "delete": 1}


@pytest.fixture
def workspace(tmp_path):
    with Workspace(tmp_path) as made:
        yield made


@pytest.fixture
def stub(workspace):
    with start_stub() as started:
        workspace.environ |= {"ST_AUTH": started.auth_url, "ST_USER": "u", "ST_KEY": "k"}
        yield started


def job(**changes):
    return {"objects": {"sizes": 20_000, "population": 50, "mix": MIX, "verify": "full", **changes}}


def start(workspace, stub, **keys):
    """Start a run, and wait until its jobs are running."""
    given = {"engines": ["swift"], "concurrency": 8, "timeout": "2s", "allow_failures": True, "job": job(), **keys}
    program, stats = workspace.start_run(workspace.scenario(**given))
    wait_until(
        lambda: stub.counts().get("GET", 0) > 100 or program.process.poll() is not None, START_S, "the first jobs"
    )
    return program, stats


def errors_of(run):
    """Return how many jobs failed, by kind, whatever their operation."""
    found = Counter()
    for one in run.document["errors"]:
        found[one["kind"]] += one["count"]
    return dict(found)


def left_in(stub):
    return [name for name in stub.names() if name.startswith("weighbridge-")]


def test_each_fault_fails_one_job_of_its_kind(workspace, stub):
    """Made before the first trial all the same; a token that expires in the middle fails nothing."""
    stub.fault("503", count=3, method="PUT", match="/weighbridge-")
    program, stats = start(workspace, stub, run_seconds="7s")
    stub.expire()
    # A fault in the refusal of an old token fails no job: first everybody has a new one.
    renewed = stub.counts()["GET"] + 200
    wait_until(lambda: stub.counts()["GET"] > renewed, START_S, "jobs with a new token")
    for kind in ("503", "reset", "close", "reset-body", "half", "stall", "stall-body", "wrong"):
        stub.fault(kind, count=4, method="GET", match="/weighbridge-")
    run = workspace.finish(program, stats)
    errors = errors_of(run)
    expected = {"http-503": 4, "reset": 8, "truncated": 4, "closed": 4, "timeout": 8, "wrong-content": 4}
    assert errors == expected, run.document["errors"]
    (treatment,) = run.document["treatments"]
    assert treatment["jobs"]["failed"] == 32
    assert treatment["jobs"]["done"] > 300
    filled, cleared = treatment["population"]
    assert (filled["objects"], filled["failed"], cleared["failed"]) == (50, 0, 0)
    assert left_in(stub) == []


def test_writes_whose_end_is_unknown_are_deleted_in_the_end(workspace, stub):
    """The store did what it did not confirm, or did not; neither leaves an object, or a 404."""
    program, stats = start(workspace, stub, run_seconds="6s")
    for method in ("PUT", "DELETE"):
        for kind in ("503", "reset", "half", "stall"):
            stub.fault(kind, count=5, method=method, match="/weighbridge-")
    run = workspace.finish(program, stats)
    errors = errors_of(run)
    assert "http-404" not in errors
    assert errors["http-503"] == 10
    assert errors["timeout"] == 10
    assert left_in(stub) == []


def test_a_store_that_answers_503_to_every_read_gets_as_many_as_were_asked(workspace, stub):
    """No job is lost or repeated, and no other operation suffers."""
    program, stats = start(workspace, stub, operation_count=2500)
    stub.fault("503", method="GET", match="/weighbridge-")
    wait_until(
        lambda: stub.counts().get("503", 0) > 50 or program.process.poll() is not None, START_S, "the failures"
    )
    stub.heal()
    run = workspace.finish(program, stats)
    outcomes = run.outcomes()
    assert sum(outcomes.values()) == 2500
    assert errors_of(run) == {"http-503": outcomes["failed"]}
    assert left_in(stub) == []


def test_an_endpoint_of_three_that_dies_fails_its_jobs_alone(workspace, stub):
    """The other two serve theirs, and the clean-up goes through them."""
    with Relay([stub.port]) as relay:
        hosts = (ADDRESS, "127.0.0.1", "localhost")
        endpoints = [stub.storage_url.replace("127.0.0.1", host) for host in hosts]
        program, stats = start(workspace, stub, run_seconds="3s", job=job(store={"endpoints": endpoints}))
        relay.__exit__()
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


def test_a_login_that_is_refused_for_ever_ends_the_run_and_what_is_left_is_told(workspace, stub):
    """Each job fails with the reason; the clean-up gives up, says so, and is made up for by the command."""
    program, stats = start(workspace, stub, run_seconds="3s")
    stub.fault("401", match="/v1/")
    run = workspace.finish(program, stats)
    errors = errors_of(run)
    assert set(errors) <= {"http-401", "login-refused"}, errors
    assert sum(errors.values()) == run.outcomes()["failed"] > 10
    warnings = " ".join(run.document["warnings"])
    assert "objects were not deleted after the last trial" in warnings
    assert "`bench-master cleanup-containers --store` deletes them" in warnings
    stub.heal()
    assert left_in(stub)
    ended = workspace.master("cleanup-containers", "--store", "swift", "--run", run.run_id, "--yes")
    assert ended.status == 0, ended.err
    assert left_in(stub) == []
