"""What --explain finds by itself with real engines: a wait for a network namespace, the poll of Podman's kill."""

import re

import pytest
from attention import undisturbed
from busybox_image import skip_or_fail
from workspace import Workspace, require_images

from bench_worker.engines.docker.podman import PodmanEngine
from bench_worker.explain.causes import ON_CPU, SLEEP

pytestmark = pytest.mark.docker


@pytest.fixture
def workspace(tmp_path):
    require_images("weighbridge/base").close()
    with Workspace(tmp_path) as made:
        yield made


def sleeper(network, *operations):
    container = {"image": "weighbridge/base", "command": ["sleep", "600"], "network": network}
    return {"operations": [*operations], "container": container}


def causes(run, operation):
    """Return the causes of an operation of the only treatment, each with its process and its place in the kernel."""
    (traced,) = run.document["traced"]
    assert traced["problem"] == ""
    (found,) = (one for one in traced["phases"] if one["operation"] == operation)
    assert found["total_s"] == pytest.approx(found["cpu_s"] + found["waiting_s"])
    return [(one["cause"], one["process"], one["where"]) for one in found["causes"]]


def test_the_wait_of_docker_for_rcu_and_a_network_namespace_is_found(workspace):
    """Docker moves one end of a pair of devices into the namespace of the container, and the kernel waits for RCU."""
    scenario = workspace.scenario(engines=["docker"], iterations=1, job=sleeper("bridge", "run", "kill", "remove"))
    runs = []

    def traced():
        run = workspace.run(scenario, "--explain")
        runs.append(run)
        found = [*causes(run, "run"), *causes(run, "kill")]
        assert any(re.match(r"RCU \(network (namespace|device)\)", cause) for cause, _, _ in found), found
        assert any(cause == ON_CPU for cause, _, _ in found), found

    undisturbed(traced)
    run = runs[-1]
    # The traced jobs are in no figure of the run.
    assert run.document["totals"]["jobs"] == run.document["totals"]["done"] == 1
    assert run.document["treatments"][0]["operations"]["run"]["n"] == 1
    told = " ".join(run.details.split())
    assert re.search(r"Why -+ .*run, [\d.]+ ms: [\d.]+ on CPU, [\d.]+ waiting: ", told), run.details


def test_the_poll_of_podmans_kill_is_found(workspace):
    """Podman 4 looks at its database, sleeps, and looks again: a timer of its service, by the timeout of epoll."""
    status = PodmanEngine.probe()
    if not status.usable:
        skip_or_fail(f"{status.reason}; {status.advice}")
    if not status.version.startswith("4."):
        skip_or_fail(f"Podman {status.version} ends its sleep with the monitor")
    scenario = workspace.scenario(
        engines=["podman"], iterations=1, job=sleeper("none", "run", "kill", "remove"), explain=True
    )

    def traced():
        found = causes(workspace.run(scenario), "kill")
        assert (SLEEP, "podman") in [(cause, process) for cause, process, _ in found], found
        assert any(cause == SLEEP and where.startswith("epoll_pwait: ") for cause, _, where in found), found

    undisturbed(traced)


def test_a_run_whose_jobs_need_no_engine_of_this_machine_says_why_nothing_is_traced(workspace):
    """Packings are not traced; the run and its figures are whole all the same."""
    job = {
        "operations": ["run", {"hold": "100ms"}, "kill", "remove"],
        "container": {"image": "weighbridge/base", "command": ["sleep", "600"], "network": "none"},
    }
    scenario = workspace.scenario(engines=["docker"], concurrency=2, job=job, explain=True)
    run = workspace.run(scenario)
    (traced,) = run.document["traced"]
    assert "fill a host" in traced["problem"]
    assert run.document["totals"]["done"] == 2
