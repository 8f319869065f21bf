"""What a run meets on a host: others' containers, other masters, an engine that does not answer."""

import contextlib
import signal
import uuid

import pytest
from deadlines import START_S, wait_until
from live_run import DOCKER, IMAGE, NATIVE, Gate, LiveRun, OverTcp
from workspace import require_images

from bench_worker.engines.base import RUN_LABEL
from bench_worker.leases import RunLease


@pytest.fixture
def strangers():
    """A container that carries no label of ours, and one of another run that is alive on this host."""
    other, made = f"test-{uuid.uuid4().hex[:12]}", []
    with contextlib.closing(require_images(IMAGE)) as client, RunLease(other), contextlib.ExitStack() as stack:
        for labels in ({"mine": "1"}, {RUN_LABEL: other}):
            container = client.create_container(
                IMAGE,
                ["sleep", "600"],
                name=f"wb-stranger-{uuid.uuid4().hex[:12]}",
                labels=labels,
                host_config=client.create_host_config(network_mode="none", init=True),
            )["Id"]
            made.append(container)
            stack.callback(client.remove_container, container, force=True)
            client.start(container)
        yield lambda: [client.inspect_container(container)["State"]["Running"] for container in made]


@pytest.mark.docker
def test_foreign_containers_survive_a_run_its_abort_and_clean_up(tmp_path, strangers):
    """Neither a run that is aborted nor cleanup-containers touches a container that is not of a run that is over."""
    gate = Gate(tmp_path / "gate")
    gate.admit(2)
    with LiveRun(tmp_path / "live", gate.holds(DOCKER)) as live:
        live.wait_for_jobs(2)
        live.signal([live.master], signal.SIGTERM)
        assert live.end() == 130
        assert live.run.outcomes()["aborted"] >= 1
        found = [one for host in live.run.document["hosts"] for one in host["findings"]]
        assert "containers" in {one["check"] for one in found}, "they were told of before the first trial"
        live.assert_clean()
        assert strangers() == [True, True]
        ended = live.workspace.master("cleanup-containers")
        assert ended.status == 0, ended.err
        assert strangers() == [True, True]


@pytest.mark.docker
def test_two_masters_at_once_leave_each_other_alone(tmp_path):
    """Two runs on one host are both complete, though each sweeps, and one is aborted next to them."""
    gate, thirds = Gate(tmp_path / "gate"), Gate(tmp_path / "thirds")
    scenario = gate.holds({**DOCKER, "repeats": 1, "iterations": 4})
    thirds.admit(1)
    with (
        LiveRun(tmp_path / "a", scenario) as first,
        LiveRun(tmp_path / "b", scenario) as second,
        LiveRun(tmp_path / "c", thirds.holds({**DOCKER, "concurrency": 1})) as third,
    ):
        third.wait_for_jobs(1)
        third.signal([third.master], signal.SIGTERM)
        assert third.end() == 130
        gate.open()
        for live in (first, second):
            assert live.end() == 0
            assert live.run.outcomes() == {"done": 8}
        for live in (first, second, third):
            live.assert_clean()


def test_an_engine_that_does_not_answer_refuses_the_run(tmp_path):
    """A plan for an engine that is not there is refused before anything runs, with the reason and what to do."""
    require_images(IMAGE).close()
    socket = f"unix://{tmp_path}/nobody.sock"
    with LiveRun(tmp_path / "live", DOCKER, DOCKER_HOST=socket) as live:
        assert live.end() == 3
        assert "this plan cannot run here" in live.err
        assert "nobody.sock" in live.err
        assert live.out == ""
        assert not live.stats.exists()
        wait_until(lambda: not live.alive(), START_S, "the end of the worker")


def test_a_stats_file_that_cannot_be_made_is_refused(tmp_path):
    """A path that cannot be written is refused at once, and nothing is started."""
    (tmp_path / "file").write_text("")
    with LiveRun(tmp_path / "live", NATIVE, stats=tmp_path / "file" / "run.stats.gz") as live:
        assert live.end() == 2
        assert "run.stats.gz: cannot create this file" in live.err
        assert "name another one with -s" in live.err
        assert "has joined" not in live.err


def test_a_stats_file_that_is_made_by_another_meanwhile_calls_the_run_off(tmp_path):
    """A name that is taken between the start and the first job ends the run; the other's file stays what it was."""
    with OverTcp(tmp_path / "live", NATIVE) as live:
        # Its own look at the path is over by then, and it makes the file when the worker has joined.
        live.program.wait_for_output("waiting for 1 worker")
        live.stats.write_text("somebody else's")
        live.join("--once")
        assert live.end() == 3
        assert "never overwritten" in live.err
        assert live.stats.read_text() == "somebody else's"
        wait_until(lambda: not live.alive(), START_S, "the end of the worker")
