"""What a real engine's own processes cost, as a run with ``--overhead`` tells it."""

import statistics

import pytest
from busybox_image import skip_or_fail
from workspace import Workspace, require_images

from bench_worker.engines.oci.runtimes import RunscEngine

pytestmark = pytest.mark.docker

SLEEPER = {
    "operations": ["run", "kill", "remove"],
    "container": {"image": "weighbridge/base", "command": ["sleep", "600"], "network": "none"},
}


@pytest.fixture
def workspace(tmp_path):
    require_images("weighbridge/base").close()
    with Workspace(tmp_path) as made:
        yield made


def by_engine(run):
    return {entry["treatment"]["engine"]: entry["overhead"] for entry in run.document["treatments"]}


def test_dockers_own_processes_are_weighed_and_plain_processes_have_none(workspace):
    """Daemon, containerd and shims at the least, with memory and CPU time; for `native` there is nothing to weigh."""
    scenario = workspace.scenario(engines=["docker", "native"], run_seconds="3s", job=SLEEPER, concurrency=2)
    run = workspace.run(scenario, "--overhead")
    found = by_engine(run)
    assert found["native"] is None
    docker = found["docker"]
    assert docker["processes"]["max"] >= 3, "dockerd, containerd and a shim"
    # No dockerd is smaller than this, and the sum of all is not that of the machine.
    assert 20 << 20 < docker["rss_bytes"]["min"] <= docker["rss_bytes"]["mean"] <= docker["rss_bytes"]["max"]
    assert docker["rss_bytes"]["max"] < 4 << 30
    assert docker["cpu_s"] > 0
    assert 0 < docker["cpu_percent"]["mean"] < 100 * 64
    assert docker["relative"]["cpu_factor"] == 1.0
    assert "Engine overhead" in run.details
    samples = [block for block in run.blocks("samples") if block.source == "engine:docker"]
    assert {"time_ns", "rss_bytes", "pss_bytes", "cpu_ns"} <= samples[0].columns.keys()


def test_gvisors_processes_are_weighed_and_what_runs_in_them_is_not(workspace):
    """A kernel and a file server for each container; a program that keeps a CPU busy is not on their account."""
    status = RunscEngine.probe()
    if not status.usable:
        skip_or_fail(f"{status.reason}; {status.advice}")
    busy = {
        "operations": ["run", {"sleep": "3s"}, "kill", "remove"],
        "container": {"image": "weighbridge/base", "command": ["sh", "-c", "while :; do :; done"]},
    }
    overhead = {"interval": "200ms"}
    run = workspace.run(workspace.scenario(engines=["runsc"], iterations=1, job=busy, overhead=overhead))
    runsc = by_engine(run)["runsc"]
    # runsc-sandbox and runsc-gofer; for a moment of the start there are more, and before it none.
    counts = [
        count
        for block in run.blocks("samples")
        if block.source == "engine:runsc"
        for count in block.columns["processes"].tolist()
    ]
    assert statistics.median(count for count in counts if count) == 2
    assert 10 << 20 < runsc["rss_bytes"]["max"] < 1 << 30
    assert 0 < runsc["cpu_s"] < 1.5, "the program itself uses some 3 s"


def test_a_control_group_stands_in_for_the_processes(workspace):
    """Where one is named its CPU time is read; the root's own covers all that the machine does."""
    overhead = {"cgroups": {"docker": "/"}, "interval": "200ms"}
    run = workspace.run(workspace.scenario(engines=["docker"], run_seconds="2s", job=SLEEPER, overhead=overhead))
    docker = by_engine(run)["docker"]
    assert "rss_bytes" not in docker
    assert docker["cpu_s"] > 0


def test_a_missing_cgroup_is_reported(workspace):
    """The run goes on without, and its report warns."""
    overhead = {"cgroups": {"docker": "/no/such/group"}}
    run = workspace.run(workspace.scenario(engines=["docker"], iterations=1, job=SLEEPER, overhead=overhead))
    assert any("there is no control group /no/such/group" in warning for warning in run.document["warnings"])
    assert by_engine(run)["docker"] is None
