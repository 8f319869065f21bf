"""Runs of jobs on objects, whole: against the store that does nothing, and against a real Swift and its own log."""

import json
import signal

import pytest
from attention import undisturbed
from deadlines import END_S, START_S, wait_until
from stub_stores import start_stub
from workspace import free_ports

TINY = {"sizes": "4KiB", "weight": 3, "population": 40, "mix": {"create": 2, "read": 6, "update": 1, "delete": 1}}
SMALL = {"sizes": {"min": "8KiB", "max": "64KiB", "distribution": "log"}, "population": 20}
JOB = {
    "objects": {
        "classes": {"tiny": TINY, "small": SMALL},
        "mix": {"read": 4, "head": 1, "list": 1},
        "containers": {"count": 3},
        "verify": "full",
    }
}
DONE = ("create[tiny]", "read[tiny]", "read[small]", "update[tiny]", "delete[tiny]", "head[small]", "list[small]")


def operations_of(treatment):
    """Return how many operations of each alternative were done."""
    return {name: one["n"] for name, one in treatment["operations"].items() if name in DONE}


@pytest.mark.parametrize(("engine", "flag"), [("swift", "--noop"), ("noop", "--quiet")])
def test_a_run_without_a_store_does_each_job_once_and_reports_it_in_every_format(workspace, engine, flag):
    """Two workers share it; its thresholds are on operations, first bytes and throughput."""
    thresholds = [
        "operations.read[tiny].p99 < 1s",
        "operations.read[tiny].first.mean_s < 1s",
        "operations.create[tiny].per_s > 0",
        "mb_per_s > 0.001",
        "objects.retries == 0",
        "jobs.failed == 0",
    ]
    scenario = workspace.scenario(
        engines=[engine], job=JOB, concurrency=4, operation_count=500, warmup=1, repeats=2, thresholds=thresholds
    )
    run = workspace.run(scenario, flag, workers=2)
    document = json.loads(workspace.master("report-scenario", "-s", run.stats, "--format", "json").out)
    (treatment,) = document["treatments"]
    assert treatment["jobs"]["done"] == 1000
    done = operations_of(treatment)
    assert sum(done.values()) == 1000
    assert all(done.values())
    assert treatment["operations"]["read[tiny].first"]["n"] == done["read[tiny]"]
    assert [one["passed"] for one in document["thresholds"]] == [True] * len(thresholds)
    moved = treatment["objects"]
    assert moved["content_bytes"] >= 4096 * (done["create[tiny]"] + done["update[tiny]"])
    assert moved["operations"]["create[tiny]"]["content_bytes"] == 4096 * done["create[tiny]"]
    assert [one["n"] for one in moved["endpoints"]] == [1000]
    text = workspace.master("report-scenario", "-s", run.stats, "-v").out
    assert "read[tiny].first" in text
    assert " MB/s, " in text
    table = workspace.master("report-scenario", "-s", run.stats, "--format", "csv").out
    assert "transfer,create[tiny].mb_per_s,MB/s,higher" in table
    lines = [
        json.loads(line)
        for line in workspace.master("report-scenario", "-s", run.stats, "--format", "jsonl").out.splitlines()
    ]
    jobs = [line for line in lines if "transfer" in line]
    assert len(jobs) == 1500
    assert all(len([name for name in job["operations"] if not name.endswith(".first")]) == 1 for job in jobs)


def test_a_run_against_swift_agrees_with_the_servers_own_log(workspace, store):
    """Request by request; what the report calls the slowest requests are of their kind; nothing is left there."""
    workspace.environ.update(store.swift_variables)
    before = len(store.requests())
    scenario = workspace.scenario(
        engines=["swift"], job=JOB, concurrency=4, operation_count=150, repeats=2, overhead={"interval": "100ms"}
    )
    run = workspace.run(scenario, workers=2)
    document = json.loads(workspace.master("report-scenario", "-s", run.stats, "--format", "json").out)
    (treatment,) = document["treatments"]
    assert (treatment["jobs"]["done"], treatment["jobs"]["failed"]) == (300, 0)
    server = treatment["overhead"]
    assert server["processes"]["min"] >= 5, "a proxy, three servers and memcached"
    assert server["cpu_per_job_s"] > 0
    assert server["rss_bytes"]["mean"] > 5 * 2**20
    done = operations_of(treatment)
    run_id = document["run"]["run_id"]
    logged = [one for one in store.requests()[before:] if run_id in one.path]
    on_objects = [one for one in logged if one.path.split("?")[0].count("/") == 4]
    # Both workers clear up what is listed: what one deletes the other no longer finds, or deletes at the same moment.
    deleted = {one.path for one in on_objects if one.method == "DELETE" and one.status == 204}
    on_objects = [one for one in on_objects if (one.method, one.status) != ("DELETE", 404)]
    assert all(one.status < 300 for one in on_objects), [one for one in on_objects if one.status >= 300]
    count = {method: sum(one.method == method for one in on_objects) for method in ("PUT", "GET", "HEAD")}
    count["DELETE"] = len(deleted)
    population = TINY["population"] + SMALL["population"]
    assert count == {
        "PUT": population + done["create[tiny]"] + done["update[tiny]"],
        "GET": done["read[tiny]"] + done["read[small]"],
        "HEAD": done["head[small]"],
        "DELETE": population + done["create[tiny]"],
    }
    moved = treatment["objects"]["operations"]
    read = sum(one.sent_bytes for one in on_objects if one.method == "GET")
    assert read == moved["read[tiny]"]["content_bytes"] + moved["read[small]"]["content_bytes"]
    methods = {one.transaction_id: one.method for one in logged}
    for name, method in (("create[tiny]", "PUT"), ("read[small]", "GET"), ("delete[tiny]", "DELETE")):
        assert methods[moved[name]["slowest_transaction"]] == method
    assert methods[moved["read[tiny].first"]["slowest_transaction"]] == "GET"
    assert not [name for name in store.containers() if run_id in name]


def test_a_run_that_is_interrupted_leaves_nothing_in_the_store_and_ends_when_resumed(workspace, store):
    """Ctrl-C in the middle of a trial; what it had done counts once."""
    workspace.environ.update(store.swift_variables)
    before = len(store.requests())
    scenario = workspace.scenario(engines=["swift"], job=JOB, concurrency=4, operation_count=150, repeats=2)
    program, stats = workspace.start_run(scenario)
    wait_until(
        lambda: any(one.method == "DELETE" for one in store.requests()[before:]),
        START_S,
        "the first object that is deleted",
    )
    program.process.send_signal(signal.SIGINT)
    program.wait_for_exit(END_S)
    document = json.loads(workspace.master("report-scenario", "-s", stats, "--format", "json").out)
    run_id = document["run"]["run_id"]
    assert document["run_state"] == "incomplete"
    assert not [name for name in store.containers() if run_id in name]
    resumed = workspace.start("bench-master", "run-scenario", "--resume", stats, "--workers", 1)
    assert resumed.wait_for_exit(END_S).status == 0
    document = json.loads(workspace.master("report-scenario", "-s", stats, "--format", "json").out)
    assert document["treatments"][0]["jobs"]["done"] == 300
    assert not [name for name in store.containers() if run_id in name]


def test_endpoints_stand_beside_each_other_and_all_failures_are_those_of_the_dead_one(workspace, store):
    """Of three, the middle one does not listen. Jobs arrive at a rate, and read in small blocks."""
    workspace.environ.update(store.swift_variables)
    (nobody,) = free_ports(1)
    urls = [store.url, f"http://127.0.0.1:{nobody}", store.url.replace("127.0.0.1", "localhost")]
    objects = {
        "sizes": "20KB",
        "population": 12,
        "mix": {"read": 3, "create": 1},
        "store": {"endpoints": urls},
        "block": "4KiB",
        "verify": "full",
    }
    scenario = workspace.scenario(
        engines=["swift"],
        job={"objects": objects},
        concurrency=8,
        rate="60/s",
        operation_count=120,
        allow_failures=True,
        thresholds=["operations.response.p50 < 30s", "objects.retries == 0"],
    )
    document = workspace.run(scenario).document
    (treatment,) = document["treatments"]
    first, dead, last = treatment["objects"]["endpoints"]
    assert [one["url"] for one in (first, dead, last)] == urls
    assert (first["errors"], dead["n"], last["errors"]) == (0, 0, 0)
    assert first["n"] + dead["errors"] + last["n"] == 120
    assert min(first["n"], dead["errors"], last["n"]) > 20, "the seeds spread them"
    assert {one["kind"] for one in document["errors"]} == {"refused"}
    assert treatment["open_load"]["offered"] == 120
    assert all(one["passed"] for one in document["thresholds"])


FAULTS = {
    "down": ("503", "http-503"),
    "reset": ("reset", "reset"),
    "broken": ("reset-body", "reset"),
    "half": ("half", "truncated"),
    "silent": ("stall", "timeout"),
    "stalled": ("stall-body", "timeout"),
    "wrong": ("wrong", "wrong-content"),
}
"""By size class: what the server does to each read of its objects, and what the report calls that."""


def test_each_fault_of_a_server_is_told_by_its_kind_and_costs_nobody_else(workspace):
    """Tokens end in the middle; classes whose server is well do not fail, and nothing is left in the store."""
    # A job has a second: what the machine takes of that is no fault of the server.
    undisturbed(lambda: check_each_fault(workspace), limit_s=0.1)


def check_each_fault(workspace):
    """Run jobs on classes of objects each of which has its fault, and look at what is told of it."""
    with start_stub() as stub:
        for name, (fault, _) in FAULTS.items():
            stub.fault(fault, method="GET", match=f"/{name}_")
        classes = {name: {"population": 3, "weight": 0.5} for name in FAULTS}
        objects = {
            "sizes": "64KiB",
            "mix": {"read": 1},
            "classes": {**classes, "well": {"population": 5, "weight": 10}},
            "verify": "full",
        }
        workspace.environ.update({"ST_AUTH": stub.auth_url, "ST_USER": "u", "ST_KEY": "k"})
        scenario = workspace.scenario(
            engines=["swift"],
            job={"objects": objects},
            concurrency=6,
            operation_count=400,
            timeout="1s",
            allow_failures=True,
        )
        program, stats = workspace.start_run(scenario)
        wait_until(lambda: stub.counts().get("GET", 0) > 20, START_S, "the first reads")
        stub.expire()
        document = workspace.finish(program, stats).document
        left = [name for name in stub.names() if stub.names(name)]
    (treatment,) = document["treatments"]
    operations = treatment["operations"]
    assert operations["read[well]"]["errors"] == 0
    assert operations["read[well]"]["n"] > 100
    kinds = {(one["operation"], one["kind"]) for one in document["errors"]}
    assert kinds == {(f"read[{name}]", kind) for name, (_, kind) in FAULTS.items()}
    assert all(operations[f"read[{name}]"]["n"] == 0 for name in FAULTS)
    counted = sum(one["n"] + one["errors"] for name, one in operations.items() if name.endswith("]"))
    assert counted == 400
    assert left == []
