"""Runs on a real Slurm cluster: what its users and its administrators do, and what may go wrong on its nodes."""

import contextlib
import signal

import pytest
from deadlines import ANSWER_S, END_S, LONG_END_S, LONG_TEST_S, START_S, wait_until
from slurm_cluster import SlurmCluster, SlurmMaster

pytestmark = pytest.mark.timeout(LONG_TEST_S)

CUT_OFF = {"cancelled": "node3", "timed-out": "node4", "gone": "node5", "half-gone": "node6"}
"""What ends workers from outside, each on a node of its own, while the other tests run on the first two."""
SOME_JOBS = 300
"""More than are done until the node is killed."""


@pytest.fixture(scope="module")
def cluster():
    with SlurmCluster(nodes=6) as started:
        yield started


@pytest.fixture
def master(cluster, tmp_path):
    with SlurmMaster(tmp_path, cluster) as made:
        yield made
    cluster.tool("scancel", "--name=weighbridge-n1,weighbridge-n2")


@pytest.fixture(scope="module", autouse=True)
def cut_off(cluster, tmp_path_factory):
    """Start a run on each of four nodes, and end its worker from outside; their ends are looked at later."""
    with contextlib.ExitStack() as masters:
        runs = {}
        for name, node in CUT_OFF.items():
            made = masters.enter_context(SlurmMaster(tmp_path_factory.mktemp(name), cluster))
            hosts = {name: {"address": node, "settings": {"time": "1"}}}
            jobs = 5000
            if name == "half-gone":
                hosts["here"], jobs = {"launcher": "local"}, SOME_JOBS
            inventory = made.inventory(**hosts)
            runs[name] = (made, *made.start_on(inventory, made.napping(jobs), "--reconnect-timeout", "1s"))
        for made, program, stats in runs.values():
            made.await_begin(program, stats)
        number = cluster.number_of("timed-out")
        assert cluster.field(number, "%l") == "1:00", "the time limit of the inventory"
        # Slurm counts in minutes, and looks twice in each. No job can end in the second in which it began.
        ends_now = ("scontrol", "update", f"JobId={number}", "EndTime=now")
        wait_until(lambda: cluster.tool(*ends_now).returncode == 0, ANSWER_S, "the time limit is over")
        assert cluster.tool("scancel", "--name=weighbridge-cancelled").returncode == 0
        for name in ("gone", "half-gone"):
            assert cluster.script("stop", "--node", CUT_OFF[name]).returncode == 0
        yield runs


def test_two_environments_at_once(master):
    """Each node has its own environment, and its jobs, also one with two workers; nothing but logs is left."""
    shared = {"workers": 2, "settings": {"shared": "yes"}}
    nodes = {"n1": {"address": "node1", "environment": "bare-metal"}}
    nodes["n2"] = {"address": "node2", "environment": "hypervisor", **shared}
    scenario = master.napping(5, environments=["bare-metal", "hypervisor"])
    run = master.run_on(master.inventory(**nodes), scenario)
    assert run.outcomes() == {"done": 15}
    assert {(job["worker"], job["treatment"]["environment"]) for job in run.jobs} == {
        ("n1", "bare-metal"),
        ("n2-1", "hypervisor"),
        ("n2-2", "hypervisor"),
    }
    assert master.left("n1", "n2-1", "n2-2") == []


def test_workers_that_were_started_before_serve_one_run_after_the_other(master, cluster):
    """They are found again, used by a run that leaves them alone, refused to a second one, and ended once."""
    inventory = master.inventory(n1={"address": "node1"}, n2={"address": "node2"})
    started = master.fleet("start", inventory, *master.ports)
    assert {name: row[2] for name, row in started.items()} == {"n1": "started", "n2": "started"}
    assert started["n1"][3].startswith(f"job {cluster.number_of('n1')}, master 127.0.0.1")
    again = master.fleet("start", inventory, *master.ports)
    assert {row[2] for row in again.values()} == {"already running"}
    # All of the node is theirs, its memory included.
    assert "mem=1G" in cluster.tool("scontrol", "show", "job", cluster.number_of("n1")).stdout
    program, stats = master.start_under_way(inventory, master.napping(5000))
    (master.folder / "second").mkdir()
    with SlurmMaster(master.folder / "second", cluster) as second:
        second.environ["HOME"] = master.environ["HOME"]
        refused, _ = second.start_on(inventory, second.napping(1))
        err = refused.wait_for_exit().err
    assert "bench-master: n1: worker n1 serves run " in err
    assert "they were left running" in err
    program.process.send_signal(signal.SIGINT)
    assert set(master.finish(program, stats, status=130, seconds=END_S).outcomes()) == {"done"}
    assert set(cluster.queued("n1", "n2").values()) == {"RUNNING"}
    ended = master.fleet("stop", inventory)
    assert {row[2] for row in ended.values()} == {"ended"}
    assert master.left("n1", "n2") == []


def test_a_drained_node_and_a_full_one(master, cluster):
    """Each is reported with Slurm's reason, and the administrator's or the job that holds it; no job stays."""
    holder = cluster.submit("node1", "sleep 300")
    words = ("scontrol", "update", "NodeName=node2")
    assert cluster.tool(*words, "State=drain", "Reason=disk | replaced").returncode == 0
    try:
        nodes = {"n1": {"address": "node1", "settings": {"wait": "1s"}}, "n2": {"address": "node2"}}
        inventory = master.inventory(**nodes)
        program, _ = master.start_on(inventory, master.napping(1))
        ended = program.wait_for_exit(END_S)
        assert ended.status == 3
        full, drained, last = ended.errors
        assert full.startswith("n1: job ")
        assert f"(Resources); node node1 is allocated, with job {holder} of " in full
        assert "setting 'wait'" in full
        assert drained.startswith("n2: job ")
        assert "; node node2 is drained (disk | replaced, set by " in drained
        assert last == "no host could start a worker"
        assert master.left("n1", "n2") == []
        # A node that is freed in time is used.
        patient = master.inventory(n1={"address": "node1"})
        program, stats = master.start_on(patient, master.napping(3))
        program.wait_for_output(f"with job {holder} of ", START_S)
        cluster.tool("scancel", holder)
        assert master.finish(program, stats, seconds=LONG_END_S).outcomes() == {"done": 3}
    finally:
        cluster.tool("scancel", holder)
        cluster.tool(*words, "State=resume")
    assert master.left("n1", "n2") == []


def test_a_job_that_waits_for_its_node_is_withdrawn(master, cluster):
    """At once, by Ctrl-C as by the death of the master."""
    holder = cluster.submit("node1", "sleep 300")
    try:
        inventory = master.inventory(n1={"address": "node1"})
        for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            program, _ = master.start_on(inventory, master.napping(1))
            program.wait_for_output(f"with job {holder} of ", START_S)
            assert cluster.queued("n1") == {"weighbridge-n1": "PENDING"}
            program.process.send_signal(number)
            assert program.wait_for_exit(END_S).status == status
            wait_until(lambda: not master.left("n1"), START_S, "the end of what waited")
    finally:
        cluster.tool("scancel", holder)


def test_a_run_that_is_ended_leaves_nothing(master, cluster):
    """Neither Ctrl-C nor the death of the master, whose workers clean up and end; the next run does not wait."""
    nodes = {"n1": {"address": "node1"}, "n2": {"address": "node2"}}
    program, _ = master.start_under_way(master.inventory(**nodes), master.napping(5000))
    program.process.send_signal(signal.SIGINT)
    assert program.wait_for_exit(END_S).status == 130
    assert master.left("n1", "n2") == []
    program, _ = master.start_under_way(master.inventory(**nodes), master.napping(5000))
    first = cluster.number_of("n1")
    program.process.kill()
    program.process.wait(ANSWER_S)
    run = master.run_on(master.inventory(n1=nodes["n1"]), master.napping(3))
    assert run.outcomes() == {"done": 3}
    assert cluster.field(first, "%T") == "CANCELLED"
    wait_until(lambda: not master.left("n1", "n2"), START_S, "the end of what the killed master left")


def test_a_worker_that_cannot_start_says_why(master):
    """The end of its log is in the message: a wrong interpreter, say. Unknown names are Slurm's to refuse."""
    nodes = {"n1": {"address": "node1", "python": "/nowhere/python"}, "n2": {"address": "nowhere"}}
    program, _ = master.start_on(master.inventory(**nodes), master.napping(1))
    ended = program.wait_for_exit(END_S)
    assert ended.status == 3
    wrong, unknown, _ = ended.errors
    assert "FAILED, its worker failed; the end of its log: " in wrong
    assert "/nowhere/python: not found" in wrong
    assert "Invalid node name specified" in unknown
    assert master.left("n1", "n2") == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cancelled", "CANCELLED, somebody cancelled it (scancel)"),
        ("timed-out", "TIMEOUT, it reached its time limit of 1:00"),
    ],
)
def test_what_ended_a_worker_is_in_the_stats_file(cut_off, name, reason):
    """A run whose only worker is cancelled or reaches its time limit says so, in Slurm's words and in plain ones."""
    made, program, stats = cut_off[name]
    run = made.finish(program, stats, status=3, seconds=LONG_END_S)
    assert set(run.outcomes()) == {"done", "lost"}
    (told,) = [line for line in run.blocks("footer")[0].warnings if "Slurm's job" in line]
    assert told.startswith(f"worker {name}: Slurm's job ")
    assert told.endswith(reason)
    assert told in run.err
    assert made.left(name) == []


def test_a_node_that_is_gone(cut_off, cluster):
    """Its jobs are lost; its worker leaves the queue when Slurm gives the node up, and does not return with it."""
    made, program, stats = cut_off["gone"]
    run = made.finish(program, stats, status=3, seconds=LONG_END_S)
    assert set(run.outcomes()) == {"done", "lost"}
    assert "worker gone was lost (silent for " in run.err
    wait_until(lambda: not made.left("gone"), LONG_END_S, "the end of the job of a node that is gone")
    assert cluster.script("start", "--node", CUT_OFF["gone"]).returncode == 0
    assert made.left("gone") == []


def test_a_node_that_is_gone_costs_the_other_hosts_nothing(cut_off, cluster):
    """The jobs of another host are all done; the run ends in time and says which worker was lost."""
    made, program, stats = cut_off["half-gone"]
    run = made.finish(program, stats, status=3, seconds=LONG_END_S)
    assert {(job["worker"], job["outcome"]) for job in run.jobs if job["outcome"] != "done"} == {
        ("half-gone", "lost")
    }
    assert sum(job["worker"] == "here" for job in run.jobs) == SOME_JOBS
    assert "lost worker half-gone" in " ".join(run.out.split())
    wait_until(lambda: not cluster.queued("half-gone"), LONG_END_S, "the end of the job of a node that is gone")
    assert not made.processes()
    assert not [path.name for path in made.folder.glob("home/.local/share/weighbridge/keys/*")]
