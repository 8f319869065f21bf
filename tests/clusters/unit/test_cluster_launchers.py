"""Launchers of clusters: names, what the tasks of a service mean, and what a janitor has left to do."""

import json
import subprocess
import sys

import pytest
from deadlines import END_S

from bench_common.errors import InfrastructureError
from bench_features.clusters import janitor, pods
from bench_features.clusters.cluster import StartState, object_name
from bench_features.clusters.docker_swarm import check_node, start_state


@pytest.mark.parametrize("worker", ["n1", "Node.1", "a-", "x" * 64, "rack-1.lab_2", "A", "a"])
def test_every_worker_has_a_name_that_clusters_allow(worker):
    """Lower-case letters, digits and dashes, no dash at the end, 63 characters at most."""
    for name in (object_name(worker), object_name(worker, "0123456789abcdef")):
        assert len(name) <= 63
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert not name.endswith("-")


def test_names_differ_where_workers_or_owners_do():
    """Names that only differ in what is replaced stay apart; a name for a run is of that run alone."""
    assert len({object_name(worker) for worker in ("Node.1", "node-1", "node.1", "NODE-1")}) == 4
    assert object_name("n", "12345678ab") == "weighbridge-n-12345678"


def task(state, error=""):
    return {"ID": "t", "CurrentState": f"{state} 3 seconds ago", "Error": error}


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([], StartState("unplaced", "no node fits the service")),
        ([task("Running"), task("Failed")], StartState("running")),
        ([task("Preparing")], StartState("waiting", "its task is preparing")),
        ([task("Pending", '"no suitable node"')], StartState("unplaced", "no suitable node")),
        ([task("Pending")], StartState("waiting", "its task is pending")),
        (
            [task("Rejected", '"No such image: x"')],
            StartState("failed", "its task is rejected: No such image: x; last words"),
        ),
    ],
)
def test_the_tasks_of_a_service_say_how_far_it_is(tasks, expected):
    """The newest task counts; the end of the log is added where it is over."""
    assert start_state(tasks, lambda: "last words") == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("blade-3", "the swarm has no node 'blade-3' (did you mean 'blade-"),
        ("blade-2", "node blade-2 of the swarm takes no tasks: it is down and its availability is active"),
    ],
)
def test_a_node_that_takes_no_tasks_is_named(name, reason):
    """A swarm would wait for it without end and without a word."""
    listing = "blade-1\tReady\tActive\nblade-2\tDown\tActive\n"
    check_node("blade-1", listing)
    with pytest.raises(InfrastructureError) as error:
        check_node(name, listing)
    assert reason in str(error.value)


def order(worker, *removal):
    return json.dumps({"worker": worker, "removal": removal}) + "\n"


def test_a_janitor_removes_what_nobody_else_has_removed():
    """The last order for a worker counts; a line that was cut short by the master's end is none."""
    lines = [order("a", ["rm", "a"]), order("b", ["rm", "b"]), order("a"), order("c", ["rm", "c"])[:-5]]
    assert janitor.left_over(lines) == {"b": [["rm", "b"]]}


def test_a_janitor_repeats_what_failed_and_nothing_else(tmp_path):
    """What the cluster does not have is removed; what failed is done again until the deadline."""
    note = [sys.executable, "-c", f"open({str(tmp_path / 'calls')!r}, 'a').write('x')"]
    gone = [
        [sys.executable, "-c", f"import sys; sys.exit({words!r})"]
        for words in ("Error: service x not found", "Kill job error on job id 7: Invalid job id specified")
    ]
    assert janitor.remove({"a": [note, *gone, ["false"]], "b": [note]}, retry_s=-1) == {"a": [["false"]]}
    assert (tmp_path / "calls").read_text() == "xx"


def test_a_janitor_outlives_its_master(tmp_path):
    """It does what it was told when its input ends, however that ends."""
    made = tmp_path / "made"
    made.touch()
    with subprocess.Popen([sys.executable, "-I", janitor.__file__], stdin=subprocess.PIPE, text=True) as process:
        process.communicate(order("a", ["rm", str(made)]) + order("b", ["false"]) + order("b"), timeout=END_S)
    assert process.returncode == 0
    assert not made.exists()


def pod(phase, **status):
    return {"metadata": {"name": "p"}, "status": {"phase": phase, **status}}


def container(kind, **state):
    return {"containerStatuses": [{"state": {kind: state}}]}


UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], StartState("waiting", "no pod was created for it")),
        ([pod("Running")], StartState("running")),
        ([pod("Pending")], StartState("waiting", "its pod is pending")),
        (
            [pod("Pending", **container("waiting", reason="ErrImagePull"))],
            StartState("waiting", "its pod is pending"),
        ),
        (
            [pod("Pending", **container("waiting", reason="ImagePullBackOff", message="no x"))],
            StartState("failed", "ImagePullBackOff: no x"),
        ),
        ([pod("Pending", **UNSCHEDULABLE)], StartState("unplaced", "0/1 nodes are available")),
        (
            [pod("Failed", **container("terminated", reason="Error", exitCode=1))],
            StartState("failed", "its pod has ended: Error, exit code 1; last words"),
        ),
        ([pod("Failed", reason="NodeAffinity")], StartState("failed", "its pod has ended: NodeAffinity; last words")),
    ],
)
def test_a_pod_says_how_far_it_is(found, expected):
    """A pull that failed once is repeated; what no time cures ends the wait."""
    assert pods.start_state(found, lambda: "last words") == expected


PULL = (("Failed to pull image nowhere/x:1: no such host", "1"), ("Error: ImagePullBackOff", "2"))


def test_the_newest_warning_explains_a_pod_that_waits():
    """Without one the state stays, and so it does if the warning is of something that no start depends on."""
    waiting = StartState("waiting", "its pod is pending")
    old, new = ({"reason": "FailedMount", "message": text, "lastTimestamp": text} for text in ("1", "2"))
    other = {"reason": "MissingClusterDNS", "message": "3", "lastTimestamp": "3"}
    assert pods.explained(waiting, [other]) == waiting
    assert pods.explained(waiting, [new, old, other]) == StartState("unplaced", "FailedMount: 2")
    pull, code = ({"reason": "Failed", "message": text, "lastTimestamp": at} for text, at in PULL)
    assert pods.explained(waiting, [pull, code]) == StartState("unplaced", f"Failed: {PULL[0][0]}")


def test_a_warning_of_what_is_over_prevents_no_start():
    """A pod whose volume was mounted at last pulls its image; one that has a node is no longer without one."""
    waiting = StartState("waiting", "its pod is pending")
    events = [
        {"reason": reason, "message": "", "lastTimestamp": f"2026-01-02T03:04:{second:02}Z"}
        for reason, second in (("FailedScheduling", 1), ("Scheduled", 2), ("FailedMount", 3), ("Pulling", 4))
    ]
    assert pods.explained(waiting, events[:2]) == waiting
    assert pods.explained(waiting, events[:3]).state == "unplaced"
    assert pods.explained(waiting, events) == waiting
    again = {"reason": "Failed", "message": "Failed to pull", "lastTimestamp": "2026-01-02T03:04:05Z"}
    assert pods.explained(waiting, [*events, again]) == StartState("unplaced", "Failed: Failed to pull")
    retried = {**events[-1], "lastTimestamp": "2026-01-02T03:04:06Z"}
    assert pods.explained(waiting, [again, retried]).state == "unplaced"
    pulled = {**retried, "reason": "Pulled", "lastTimestamp": "2026-01-02T03:04:06.5Z"}
    assert pods.explained(waiting, [again, retried, pulled]) == waiting


@pytest.mark.parametrize(
    ("workload", "alive"),
    [
        ({"metadata": {}}, True),
        ({"metadata": {"deletionTimestamp": "now"}}, False),
        ({"metadata": {}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}, False),
        ({"metadata": {}, "status": {"conditions": [{"type": "Failed", "status": "False"}]}}, True),
    ],
)
def test_a_job_that_has_ended_is_no_worker(workload, alive):
    """It passed for one that runs already."""
    assert pods.placed_worker(workload).alive is alive


def on_node(*conditions, ready):
    """Return a running pod with these conditions, and a container that was ready when it was last heard of."""
    status = {"conditions": conditions, "containerStatuses": [{"ready": ready, "state": {"running": {}}}]}
    return {**pod("Running", **status), "spec": {"nodeName": "node-1"}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([on_node({"type": "Ready", "status": "True"}, ready=True)], None),
        (
            [on_node({"type": "Ready", "status": "False"}, ready=True)],
            "node node-1 is not ready: the cluster has not heard from it",
        ),
        # So a kubelet says it of a pod that it ends.
        ([on_node({"type": "Ready", "status": "False", "reason": "ContainersNotReady"}, ready=False)], None),
        ([], "its pod is gone: somebody deleted it, or Kubernetes did"),
        (
            [pod("Failed", **container("terminated", reason="OOMKilled", exitCode=137))],
            "its pod has ended: OOMKilled, exit code 137; last words",
        ),
    ],
)
def test_a_pod_says_how_a_worker_was_lost(found, expected):
    """That its node is gone, too, which takes no right to look at nodes."""
    assert pods.ending(found, lambda: "last words") == expected
