"""Clean-up on a real engine: what is ours and over goes, what is anybody else's stays.

The sweeps of all runs here see this test's runs alone: a test has no business with what others left on this machine.
"""

import json
import signal
import subprocess
import sys
import uuid

import pytest
from busybox_image import DockerBench, run_concurrently
from deadlines import ANSWER_S, END_S
from owners import dead_label

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.cleanup import clean_up_all
from bench_worker.engines import base
from bench_worker.engines.base import RUN_LABEL, Container, EngineOptions
from bench_worker.engines.native.engine import NativeEngine
from bench_worker.leases import live_runs

pytestmark = [pytest.mark.docker, pytest.mark.alone]

FOREVER = ("sleep", "1000")
HOLD = """
import sys
from bench_worker.leases import RunLease
with RunLease(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


class Ours:
    """An engine whose leftovers are those of this test's runs."""

    def __init__(self, engine, prefix):
        self._engine = engine
        self._prefix = prefix
        self.name, self.store = engine.name, engine.store
        self.discard = engine.discard

    def leftovers(self, run_id=None, worker_id=None):
        return [item for item in self._engine.leftovers(run_id, worker_id) if item.run_id.startswith(self._prefix)]


@pytest.fixture
def prefix():
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def engines(image, prefix, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # This process goes on; what it makes for the run that is over has a worker that has ended.
    monkeypatch.setattr(base, "own_label", dead_label)
    bench = DockerBench(image, run_id=f"{prefix}-over")
    bench.lease.release()
    native = NativeEngine(EngineOptions(bench.run_id, "w1", 4))
    native.open()
    yield bench, native
    clean_up_all([Ours(bench.engine, prefix), Ours(native, prefix)])
    bench.close()


def litter(bench, native):
    """Leave behind one of everything; return what."""
    container = bench.running(*FOREVER, storage=(Mount("volume", "/v", source=f"{bench.run_id}-volume"),))
    bench.engine.commit(container, timeout_s=ANSWER_S)
    bench.client.create_network(f"{bench.run_id}-network", labels={RUN_LABEL: bench.run_id})
    process = Container(f"wb-{uuid.uuid4().hex[:12]}", 1, ContainerSettings(command=FOREVER))
    native.create(process, timeout_s=ANSWER_S)
    native.start(process, timeout_s=ANSWER_S)
    return {"container", "image", "network", "volume", "process", "directory"}


def hold(run_id):
    """Start a process that holds a lease for a run."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, run_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    return holder


def worker(*flags):
    done = subprocess.run(
        [sys.executable, "-m", "bench_worker", *flags], capture_output=True, text=True, timeout=END_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_run_that_is_over_is_swept_whole_and_nothing_else_is(engines, prefix, image):
    """Everything with the label of a dead run goes; foreign containers, and a live run's, survive."""
    bench, native = engines
    kinds = litter(bench, native)
    alive = DockerBench(image, run_id=f"{prefix}-alive")
    ours = [Ours(bench.engine, prefix), Ours(native, prefix)]
    foreign = bench.client.create_container(
        image,
        list(FOREVER),
        name=f"wb-foreign-{prefix}",
        labels={"mine": "1"},
        host_config=bench.client.create_host_config(network_mode="none"),
    )["Id"]
    volume = bench.client.create_volume(f"{bench.run_id}-foreign")["Name"]
    try:
        bench.client.start(foreign)
        kept = alive.running(*FOREVER)
        listed = clean_up_all(ours, dry_run=True)
        assert {item.what for item in listed.listed} == kinds
        assert [item.identity for item in listed.kept] == [kept.handle]
        sweep = clean_up_all(ours)
        assert sweep.failed == []
        assert {item.what for item in sweep.removed} == kinds
        assert [item.identity for item in sweep.kept] == [kept.handle]
        for survivor in (foreign, kept.handle):
            assert bench.client.inspect_container(survivor)["State"]["Running"]
        assert bench.client.inspect_volume(volume)
        again = clean_up_all(ours)
        assert (again.removed, again.failed) == ([], [])
    finally:
        bench.client.remove_container(foreign, force=True)
        bench.client.remove_volume(volume)
        alive.close()


def test_a_run_is_alive_exactly_as_long_as_its_worker(engines, prefix):
    """A worker that is killed without a word leaves its run to the next clean-up."""
    bench, _ = engines
    container = bench.running(*FOREVER)
    ours = [Ours(bench.engine, prefix)]
    holder = hold(bench.run_id)
    try:
        assert bench.run_id in live_runs()
        assert clean_up_all(ours).removed == []
        holder.send_signal(signal.SIGKILL)
        holder.wait(ANSWER_S)
        assert bench.run_id not in live_runs()
        assert [item.identity for item in clean_up_all(ours).removed] == [container.handle]
    finally:
        holder.kill()
        holder.communicate()


def test_two_clean_ups_at_once_do_not_hinder_each_other(engines, prefix):
    """What another one is removing counts as removed for both."""
    bench, native = engines
    for _ in range(3):
        bench.running(*FOREVER)
    litter(bench, native)
    sweeps = run_concurrently(lambda _: clean_up_all([Ours(bench.engine, prefix), Ours(native, prefix)]), 3)
    assert [sweep.failed for sweep in sweeps] == [[], [], []]
    assert bench.engine.leftovers(bench.run_id) == []
    assert native.leftovers(bench.run_id) == []


def test_one_workers_part_of_a_run_can_be_swept_alone(engines, image):
    """The label of the worker is respected."""
    bench, _ = engines
    container = bench.running(*FOREVER)
    assert clean_up_all([bench.engine], run_id=bench.run_id, worker_id="another").removed == []
    swept = clean_up_all([bench.engine], run_id=bench.run_id, worker_id="w1")
    assert [item.identity for item in swept.removed] == [container.handle]


def test_the_worker_answers_about_leftovers(engines):
    """A dry run lists each with its run and removes nothing; naming the run removes them; then there are none."""
    bench, native = engines
    kinds = litter(bench, native)
    asked = ("--cleanup-containers", "--run", bench.run_id)
    listed = worker(*asked, "--dry-run")
    assert {row["what"] for row in listed} == kinds
    assert {(row["run_id"], row["removed"], row["verdict"]) for row in listed} == {(bench.run_id, False, "listed")}
    removed = worker(*asked)
    assert {row["what"] for row in removed} == kinds
    assert {(row["removed"], row["why"]) for row in removed} == {(True, "")}
    assert worker(*asked) == []


def test_the_worker_lists_its_engines():
    """Both of the project's own engines are usable where these tests run, and say what they can do."""
    rows = {row["name"]: row for row in worker("--list-engines")}
    assert rows["docker"]["usable"]
    assert rows["native"]["usable"]
    assert "exec" in rows["docker"]["operations"]
    assert rows["docker"]["version"]
