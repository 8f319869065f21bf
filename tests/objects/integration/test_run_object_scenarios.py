"""The ready scenarios on object stores, in their small size, against real stores."""

import pytest
from busybox_image import skip_or_fail
from deadlines import LONG_END_S
from real_store import consecutive_ports
from workspace import require_images

BASE = "weighbridge/base"


def runs_left(store):
    return [name for name in store.containers() if name.startswith(("weighbridge-", "ssbench"))]


def run_small(workspace, name, *flags):
    """Run a ready scenario in its small size, with one worker; return the finished run."""
    return workspace.run(f"objects/{name}", "--set", "scale=small", *flags, seconds=LONG_END_S)


@pytest.mark.parametrize(
    ("name", "jobs"), [("quick", 240), pytest.param("ssbench-small", 120, marks=pytest.mark.slow)]
)
def test_a_scenario_runs_over_both_protocols_and_leaves_nothing(workspace, store, name, jobs):
    """What the scenarios say of themselves is so: a few seconds, two protocols, verified, and cleared."""
    workspace.environ |= store.swift_variables | store.s3_variables
    run = run_small(workspace, name)
    assert run.outcomes() == {"done": jobs}
    document = run.document
    assert [one["treatment"]["engine"] for one in document["treatments"]] == ["swift", "s3"]
    assert all(phase["failed"] == 0 for one in document["treatments"] for phase in one["population"])
    assert runs_left(store) == []


@pytest.mark.slow
@pytest.mark.docker
def test_the_store_in_a_container_is_compared_with_the_one_outside(workspace, store):
    """`script/store --under docker` starts the same store, and the scenario gives the difference a verdict."""
    require_images(BASE)
    port = consecutive_ports(5)
    try:
        started = store.script("start", "--under", "docker", "--port", port)
        if started.returncode:
            skip_or_fail(f"script/store start --under docker: {started.stderr.strip()}")
        workspace.environ |= store.s3_variables
        run = run_small(
            workspace,
            "engines",
            *("--only", "job=native", "--only", "job=docker"),
            *("--set", f"jobs.native.objects.store.endpoints=[{store.url}]"),
            *("--set", f"jobs.docker.objects.store.endpoints=[http://127.0.0.1:{port}]"),
        )
        assert set(run.outcomes()) == {"done"}
        (comparison,) = run.document["verdicts"]["comparisons"]
        assert (comparison["a"], comparison["b"]) == ("engine=s3 job=native", "engine=s3 job=docker")
    finally:
        ended = store.script("wipe", "--under", "docker")
    assert ended.returncode == 0
    assert "does not run" in store.script("status", "--under", "docker").stderr
