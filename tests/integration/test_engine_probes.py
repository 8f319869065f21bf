"""An engine that is started after its worker is used by the next run; one that has gone is told before it begins."""

import json
from pathlib import Path

import pytest
from busybox_image import import_image, remove_image
from deadlines import START_S, wait_until
from workspace import free_ports, require_images

from bench_worker.engines.docker.http import endpoint

pytestmark = pytest.mark.docker


@pytest.fixture
def image():
    require_images().close()
    name = import_image()
    yield name
    remove_image(name)


def test_engines_are_probed_again_before_each_run(workspace, image):
    """The worker stays the same: its engine is there, and gone again, as a socket comes and goes."""
    there, socket = Path(endpoint().removeprefix("unix://")), workspace.folder / "docker.sock"
    workspace.environ["DOCKER_HOST"] = f"unix://{socket}"
    control, results, work = free_ports(3)
    sockets = ("--zmq-control-port", control, "--zmq-results-port", results)
    workspace.start("bench-worker", "--zmq-control-port", control, "by-hand")
    scenario = workspace.scenario(
        engines=["docker"],
        iterations=1,
        job={"operations": ["run", "wait", "remove"], "container": {"image": image, "command": ["true"]}},
    )

    def listed():
        asked = ("fleet", "list", *sockets, "--wait", 3, "--format", "json")
        (row,) = wait_until(lambda: json.loads(workspace.master(*asked).out), START_S, "no worker was heard of")
        return row["engine_versions"]

    def refused():
        words = ("run-scenario", "-f", scenario, *sockets, "--zmq-work-port", work, "--workers", 0)
        ended = workspace.master(*words)
        assert ended.status == 3, ended.err
        # By its last probe or, if the daemon went after that, by the preflight: both say what to do.
        assert "worker by-hand: " in ended.err
        assert "point DOCKER_HOST at one that runs" in ended.err

    refused()
    assert "docker" not in listed()
    socket.symlink_to(there)
    # A probe may take longer than its limit on a busy machine; the next one counts.
    wait_until(lambda: "docker" in listed(), START_S, "docker among the engines")
    assert workspace.run(scenario, *sockets, "--zmq-work-port", work, workers=0).outcomes() == {"done": 1}
    socket.unlink()
    refused()
