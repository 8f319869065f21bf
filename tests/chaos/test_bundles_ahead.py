"""Bundles that are made ahead of their containers: none is left after a run, Ctrl-C or kill -9, and each is right."""

import signal

import pytest
from deadlines import ANSWER_S, START_S, wait_until
from live_run import IMAGE, LiveRun
from runtime_bench import require
from workspace import require_images

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, EngineOptions
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.runtimes import CrunEngine, RuncEngine

AHEAD = "ahead-"
SCENARIO = {
    "engines": ["crun"],
    "repeats": 2,
    "concurrency": 2,
    "iterations": 16,
    "job": {
        "operations": ["run", "wait", "remove"],
        "container": {"image": IMAGE, "command": ["sleep", "0.1"]},
    },
    "matrix": {"container.env.WHICH": ["a", "b"]},
}


def bundles_of(engine, run_id):
    """Return the names of a run's directories."""
    found = oci_images.labelled_containers(engine)
    return [one.path.name for one in found if one.labels["weighbridge.run"] == run_id]


@pytest.fixture(scope="module", autouse=True)
def runtime():
    """A runtime and an image."""
    require(CrunEngine)
    require_images(IMAGE).close()


@pytest.mark.parametrize("engine", [CrunEngine, RuncEngine])
def test_containers_of_two_treatments_in_turn_are_what_they_should_be(engine):
    """Each has its own environment and an empty layer, from a bundle that was made ahead of it."""
    require(engine)
    opened = engine(EngineOptions(f"test-ahead-{engine.name}", "w1", 2))
    opened.open()
    try:
        script = ("sh", "-c", "ls /mine; echo $WHICH; touch /mine")
        treatments = {
            which: ContainerSettings(image=IMAGE, command=script, env={"WHICH": which}) for which in ("a", "b")
        }
        for settings in treatments.values():
            opened.prepare(settings)
        ahead = 0
        for number in range(6):
            which = "ab"[number % 2]
            made = Container(f"wb-ahead-{engine.name}-{number}", number, treatments[which])
            opened.run(made, timeout_s=START_S)
            assert opened.wait(made, timeout_s=START_S).exit_code == 0
            assert opened.logs(made, limit_bytes=99, timeout_s=ANSWER_S).stdout.decode() == f"{which}\n"
            opened.remove(made, timeout_s=START_S)
            ahead = max(ahead, sum(item.name.startswith(AHEAD) for item in opened.leftovers(opened.options.run_id)))
        assert ahead
        opened.release()
        assert bundles_of(engine.name, opened.options.run_id) == []
    finally:
        opened.close()


def test_nothing_is_left_after_success(tmp_path):
    """While it runs, there are bundles ahead."""
    with LiveRun(tmp_path / "run", SCENARIO) as live:
        live.wait_for_jobs()
        wait_until(
            lambda: any(AHEAD in name for name in bundles_of("crun", live.run.run_id)), START_S, "a bundle ahead"
        )
        assert live.end() == 0
        live.assert_clean()
        assert bundles_of("crun", live.run.run_id) == []


def test_nothing_is_left_after_ctrl_c(tmp_path):
    """Twice: what runs is aborted."""
    with LiveRun(tmp_path / "run", {**SCENARIO, "iterations": 400}) as live:
        live.wait_for_jobs()
        for _ in range(2):
            live.signal([live.master], signal.SIGINT)
        live.end()
        live.assert_clean(cut_off=True)
        assert bundles_of("crun", live.run.run_id) == []


def test_what_kill_9_leaves_is_found_and_removed(tmp_path):
    """All processes of the run at once: nobody is there who could remove what was made ahead."""
    with LiveRun(tmp_path / "run", {**SCENARIO, "iterations": 400}) as live:
        live.wait_for_jobs()
        run_id = live.run.run_id
        wait_until(lambda: any(AHEAD in name for name in bundles_of("crun", run_id)), START_S, "a bundle ahead")
        live.signal([live.master, *live.agents(), *live.load_processes()], signal.SIGKILL)
        wait_until(lambda: not live.load_processes(), START_S, "the end of the load process")
        left = bundles_of("crun", run_id)
        assert any(AHEAD in name for name in left), left
        removed = live.workspace.start("bench-worker", "--cleanup-containers", "--run", run_id)
        assert removed.wait_for_exit().status == 0, removed.err
        assert bundles_of("crun", run_id) == []
