"""The launcher `docker-swarm` on a real swarm: a private engine in swarm mode, and the image of build-images."""

import signal

import pytest
from cluster_master import ClusterMaster
from deadlines import ANSWER_S, END_S, LONG_TEST_S, START_S, wait_until
from private_swarm import private_swarm
from workspace import NAP, has_started

from bench_common.stats.reader import StatsFile

pytestmark = [pytest.mark.docker, pytest.mark.timeout(LONG_TEST_S)]

LONG = {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", "1000"]}}
"""A job that somebody has to end."""


def wait_until_empty(swarm):
    """Wait until nothing of workers is left: a node removes the container of a task that has ended a moment later."""
    wait_until(lambda: not swarm.left(), START_S, "an empty swarm")


@pytest.fixture(scope="module")
def swarm():
    with private_swarm() as made:
        yield made


@pytest.fixture
def master(swarm, tmp_path):
    with ClusterMaster(tmp_path, swarm, "docker-swarm", image="weighbridge/worker") as made:
        yield made
    wait_until_empty(swarm)


def test_a_run_on_a_swarm(master, swarm):
    """The worker is a service, its key a secret; the run is whole, and nothing of it is left in the swarm."""
    run = master.run_fleet(master.scenario(job=NAP, repeats=2, iterations=3))
    assert run.outcomes() == {"done": 6}
    assert {(job["worker"], job["treatment"]["environment"]) for job in run.jobs} == {("n1", "bare-metal")}
    wait_until_empty(swarm)
    assert not [secret for secret in master.secrets() if secret in run.err + run.out]


def test_a_worker_of_a_swarm_uses_its_nodes_engine(master, swarm):
    """With the engine's socket the worker creates its containers beside itself, and removes them."""
    socket = swarm.engine.address.removeprefix("unix://")
    inventory = master.write_inventory(env={"DOCKER_HOST": swarm.engine.address}, settings={"engine_socket": socket})
    container = {"image": "weighbridge/worker", "command": ["sleep", "0.1"], "network": "none"}
    job = {"operations": ["run", "wait", "remove"], "container": container}
    run = master.run_fleet(master.scenario(engines=["docker"], job=job, iterations=2), inventory=inventory)
    assert run.outcomes() == {"done": 2}
    wait_until_empty(swarm)


def test_workers_of_a_swarm_outlive_the_command_that_started_them(master, swarm):
    """They are started once, are refused with other settings, serve a run, and end with fleet stop."""
    first = master.fleet("start", *master.control)
    assert "\tstarted\tservice weighbridge-n1, master 127.0.0.1" in first.out
    again = master.fleet("start", *master.control)
    assert "\talready running\t" in again.out
    other = master.fleet("start", *master.control, inventory=master.write_inventory(labels={"a": "b"}), status=3)
    assert "runs already, with other settings: stop it with fleet stop" in other.out
    master.inventory = master.write_inventory()
    assert master.run_fleet(master.scenario(job=NAP)).outcomes() == {"done": 1}
    assert "service weighbridge-n1" in swarm.left()
    assert "n1" in master.fleet("logs").out + "n1"
    assert "\tended\t" in master.fleet("stop").out
    wait_until_empty(swarm)
    assert "\twas not running\t" in master.fleet("stop").out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_an_interrupted_run_leaves_nothing_in_a_swarm(master, swarm, how):
    """Ctrl-C waits for the clean-up; after kill -9 it is done for the master, and within a minute."""
    program, stats = master.start_fleet_run(master.scenario(job=LONG))
    wait_until(lambda: has_started(stats), START_S, "the run's begin")
    wait_until(lambda: any(line.startswith("container") for line in swarm.left()), ANSWER_S, "its container")
    run = StatsFile(stats).header.run_id
    program.process.send_signal(how)
    ended = program.wait_for_exit(END_S)
    assert ended.status == (-9 if how == signal.SIGKILL else 130), ended.err
    wait_until_empty(swarm)
    assert run


def test_a_swarm_that_cannot_run_the_worker_says_why(master, swarm):
    """Each error has the swarm's own reason, and what was created is removed again."""
    scenario = master.scenario(job=NAP)

    def refusal(**host):
        inventory = master.write_inventory("broken.yaml", **host)
        ended = master.run_fleet(scenario, inventory=inventory, status=3)
        wait_until_empty(swarm)
        return ended.err

    assert f"the swarm has no node 'nowhere'; it has {swarm.node}" in refusal(address="nowhere")
    assert "its task is rejected: No such image: weighbridge/none:1" in refusal(
        settings={"image": "weighbridge/none:1"}
    )
    assert "bind source path does not exist: /nowhere" in refusal(settings={"engine_socket": "/nowhere"})
    assert "its task is failed" in refusal(python="false")
    swarm.docker("node", "update", "--availability", "drain", swarm.node)
    try:
        assert (
            f"node {swarm.node} of the swarm takes no tasks: it is ready and its availability is drain" in refusal()
        )
    finally:
        swarm.docker("node", "update", "--availability", "active", swarm.node)
