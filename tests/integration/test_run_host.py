"""The scenarios of the host studies, run small for real, and packing until a host is full."""

import re
import shlex
from itertools import pairwise

import pytest
from deadlines import END_S
from places import ROOT
from workspace import Workspace, containers_of, require_images

SCENARIOS = ROOT / "scenarios" / "host"
OWN = {"image": "weighbridge/base", "command": ["sleep", "infinity"], "network": "none"}

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def client():
    opened = require_images("weighbridge/base", "weighbridge/webbench")
    yield opened
    opened.close()


@pytest.fixture
def workspace(tmp_path, client):
    with Workspace(tmp_path) as made:
        yield made


def small(name):
    """Return the flags of the small variant that a scenario's file tells."""
    text = (SCENARIOS / f"{name}.yaml").read_text("utf-8")
    (flags,) = re.findall(
        rf"^#   bench-master run-scenario -f host/{name} --workers 1 (--set .+)$", text, re.MULTILINE
    )
    return shlex.split(flags)


def test_there_is_a_small_variant_of_every_host_scenario():
    """Each file says how to try it in a short time."""
    names = sorted(path.stem for path in SCENARIOS.glob("*.yaml"))
    assert names == ["boot", "commit", "density", "packing", "reboot"]
    assert all(small(name) for name in names)


def run_small(workspace, client, name, *flags):
    # Not every machine that tests run on has Docker's bridge; none of what is looked at here hangs on it.
    run = workspace.run(f"host/{name}", *small(name), "--set", "container.network=none", *flags, seconds=END_S)
    assert set(run.outcomes()) == {"done"}
    assert containers_of(client, run.run_id) == []
    return run, run.document["treatments"]


def test_serial_boot(workspace, client):
    """One container after another: no start begins before the one in front has ended."""
    # A hundred are for the published figures beside them, and take minutes on a busy machine.
    run, treatments = run_small(workspace, client, "boot", "--only", "concurrency=4")
    assert [entry["packing"]["containers"]["max"] for entry in treatments] == [4]
    for trial in {row["trial"] for row in run.jobs}:
        jobs = [row["operations"] for row in run.jobs if row["trial"] == trial]
        spans = sorted(
            (job["create"]["start_s"], job["start"]["start_s"] + job["start"]["duration_s"]) for job in jobs
        )
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        up = max(end for _, end in spans)
        assert all(job["stop"]["start_s"] >= up for job in jobs)


@pytest.mark.slow
def test_packing(workspace, client):
    """The steady state has readings of host and engine, and the memory that a container took."""
    run, (entry,) = run_small(workspace, client, "packing")
    (packed,) = entry["packing"]["trials"]
    assert (packed["containers"], packed["full"], packed["reason"]) == (15, False, "as many as asked for")
    assert packed["steady"]["memory_used_bytes"]["n"] >= 2
    assert packed["steady"]["engine_rss_bytes"]["n"] >= 2
    assert packed["memory_per_container_bytes"] is not None
    assert "stopped because: as many as asked for" in run.details
    # As many as in the study, so that what it published of its hosts' CPUs stands beside what was sampled of ours.
    tables = {table["metric"]: table for table in run.document["published"]["tables"]}
    assert list(tables) == ["host_cpu_user", "host_cpu_system", "host_cpu_iowait"]
    for name, table in tables.items():
        assert table["ours"]["n"] == entry["host_cpu"][name]["n"] >= 4
        assert [row["where"] for row in table["published"]] == ["bare-metal", "hypervisor", "control"]
    assert tables["host_cpu_user"]["ours"]["max"] > 0
    assert "This run was at scale small" in run.details


@pytest.mark.slow
def test_reboot_cycles(workspace, client):
    """Rounds of the same containers; after each the host rests for all of them at the same time."""
    _, (entry,) = run_small(workspace, client, "reboot")
    assert entry["packing"]["containers"] == {"n": 2, "min": 3, "median": 3, "max": 3}
    rest = entry["operations"]["sleep"]
    assert (rest["n"], rest["min_s"] >= 2) == (6, True)
    # Three rests of two seconds one after another would be six for each round, of which there are two.
    assert entry["busy_s"] < 2 * (3 * 4 + 4)


def test_commit(workspace, client):
    """The image grows by what was changed, and nothing of it is left."""
    run, treatments = run_small(workspace, client, "commit")
    sizes = {entry["treatment"]["BYTES"]: entry["metrics"]["commit_bytes"]["median"] for entry in treatments}
    assert sizes["0"] < 10_000
    assert 1_000_000 <= sizes["1000000"] < 1_100_000
    assert client.images(filters={"label": f"weighbridge.run={run.run_id}"}) == []


def test_density_ends_where_all_are_up(workspace, client):
    """A host that is not full holds as many as asked for."""
    _, (entry,) = run_small(workspace, client, "density")
    (packed,) = entry["packing"]["trials"]
    assert (packed["containers"], packed["full"]) == (3, False)


def test_density_ends_where_the_host_is_full(workspace, client):
    """Beyond the limit from the first container on: one is up, the others go back, and the run is complete."""
    job = {"operations": ["run", {"hold": "1s"}, "kill", "remove"], "container": OWN}
    scenario = workspace.scenario(engines=["docker"], concurrency=40, until="memory < 99.9%", job=job)
    run = workspace.run(scenario)
    (entry,) = run.document["treatments"]
    (packed,) = entry["packing"]["trials"]
    assert (packed["containers"], packed["full"]) == (1, True)
    assert "of memory available" in packed["reason"]
    assert entry["jobs"] == {
        "total": 1,
        "done": 1,
        "failed": 0,
        "lost": 0,
        "aborted": 0,
        "left_out": 0,
        "not_started": 0,
        "warmup": 0,
        "planned": 1,
        "missing": 0,
    }
    assert run.document["incomplete"] == []
    assert "holds 1 container:" in run.err


def test_a_container_that_cannot_be_made_ends_a_density_run(workspace, client):
    """Its job has failed with the engine's words, which are the reason why there are no more."""
    job = {
        "operations": ["create", "start", {"hold": "1s"}, "remove"],
        "container": {**OWN, "command": ["/etc/passwd"]},
    }
    scenario = workspace.scenario(engines=["docker"], concurrency=9, until="memory < 1%", job=job)
    run = workspace.run(scenario, status=3)
    (entry,) = run.document["treatments"]
    (packed,) = entry["packing"]["trials"]
    assert packed["containers"] == 0
    assert "/etc/passwd" in packed["reason"]
    assert (entry["jobs"]["failed"], entry["jobs"]["total"]) == (1, 1)


def test_a_packing_that_is_interrupted_twice_leaves_nothing(workspace, client):
    """While it holds for an hour, two Ctrl-C end it within seconds, and every container is gone."""
    job = {"operations": ["run", {"hold": "1h"}, "kill", "remove"], "container": OWN}
    program, stats = workspace.start_run(workspace.scenario(engines=["docker"], concurrency=3, job=job))
    program.wait_for_output("holds 3 containers")
    program.process.send_signal(2)
    program.wait_for_output("Ctrl-C again aborts")
    program.process.send_signal(2)
    run = workspace.finish(program, stats, status=130)
    assert run.outcomes() == {"aborted": 3}
    assert containers_of(client, run.run_id) == []
