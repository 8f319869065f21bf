"""The launcher `kubernetes` on a real cluster of one node: etcd, the control plane, a kubelet, containerd."""

import contextlib
import json
import re
import signal

import pytest
import yaml
from attention import undisturbed
from cluster_master import ClusterMaster
from deadlines import ANSWER_S, END_S, LONG_TEST_S, START_S, wait_until
from documents import ROOT, blocks
from private_kubernetes import IMAGE, private_kubernetes
from workspace import NAP, has_started

pytestmark = [pytest.mark.docker, pytest.mark.timeout(LONG_TEST_S)]

LONG = {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", "1000"]}}
"""A job that somebody has to end."""


@pytest.fixture(scope="module")
def cluster():
    with private_kubernetes() as made:
        yield made


@pytest.fixture
def master(cluster, tmp_path):
    with ClusterMaster(tmp_path, cluster, "kubernetes", image=IMAGE) as made:
        yield made
    wait_until_empty(cluster)


def wait_until_empty(cluster):
    """Wait until nothing of workers is left: some objects are collected by the cluster a moment later."""
    wait_until(lambda: not cluster.left(), START_S, "an empty cluster")


def namespace(cluster, name, *objects):
    """Make a namespace with some objects, each of which is put into it."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_until(lambda: "default" in cluster.kubectl("get", "serviceaccount", "-n", name), ANSWER_S, "its account")
    cluster.apply(*({**each, "metadata": {**each["metadata"], "namespace": name}} for each in objects))


def test_a_run_on_kubernetes(master, cluster):
    """The worker is a Job, its key a Secret; the run is whole, and nothing of it is left in the cluster."""
    run = master.run_fleet(master.scenario(job=NAP, repeats=2, iterations=3))
    assert run.outcomes() == {"done": 6}
    assert {(job["worker"], job["treatment"]["environment"]) for job in run.jobs} == {("n1", "bare-metal")}
    wait_until_empty(cluster)
    assert not [secret for secret in master.secrets() if secret in run.err + run.out]


@pytest.mark.parametrize("kind", ["Job", "DaemonSet"])
def test_workers_of_kubernetes_outlive_the_command_that_started_them(master, cluster, kind):
    """They are started once, are refused with other settings, serve a run, and end with fleet stop."""
    settings = {"kind": kind.lower()}
    master.inventory = master.write_inventory(settings=settings)
    first = master.fleet("start", *master.control)
    assert f"\tstarted\t{kind} weighbridge-n1, master 127.0.0.1" in first.out
    assert "\talready running\t" in master.fleet("start", *master.control).out
    other = master.write_inventory("other.yaml", settings=settings, labels={"a": "b"})
    refused = master.fleet("start", *master.control, inventory=other, status=3)
    assert "runs already, with other settings: stop it with fleet stop" in refused.out
    assert master.run_fleet(master.scenario(job=NAP)).outcomes() == {"done": 1}
    assert {"secret/weighbridge-n1", f"{'job.batch' if kind == 'Job' else 'daemonset.apps'}/weighbridge-n1"} <= {
        *cluster.left()
    }
    master.fleet("logs")
    if kind == "Job":
        assert "\tended\t" in master.fleet("stop").out
    else:
        # Whoever deletes it: the cluster collects the Secret.
        cluster.kubectl("delete", "daemonset", "weighbridge-n1")
    wait_until_empty(cluster)
    assert "\twas not running\t" in master.fleet("stop").out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_an_interrupted_run_leaves_nothing_in_kubernetes(master, cluster, how):
    """Ctrl-C waits for the clean-up; after kill -9 it is done for the master. Meanwhile the worker is in use."""
    program, stats = master.start_fleet_run(master.scenario(job=LONG))
    wait_until(lambda: has_started(stats), START_S, "the run's begin")
    assert "pod/weighbridge-n1-" in " ".join(cluster.left())
    job = json.loads(cluster.kubectl("get", "job", "--output", "json"))["items"][0]
    assert job["spec"]["ttlSecondsAfterFinished"] == 60
    if how == signal.SIGINT:
        refused = master.fleet("start", *master.control, status=3)
        assert "\tin use\twas started for a run of " in refused.out
    program.process.send_signal(how)
    ended = program.wait_for_exit(END_S)
    assert ended.status == (-9 if how == signal.SIGKILL else 130), ended.err
    wait_until_empty(cluster)


def test_a_cluster_that_cannot_run_the_worker_says_why(master, cluster):
    """Each worker fails with the cluster's own reason, all side by side, and what was created is removed again."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full"},
        "spec": {"hard": {"pods": "0"}},
    }
    namespace(cluster, "full", quota)
    usual = {"launcher": "kubernetes", "address": cluster.node, "master": "127.0.0.1"}
    expected = {
        "nowhere": ({"address": "node-2"}, {}, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity"),
        "image": ({}, {"image": "127.0.0.1:9/none:1"}, "127.0.0.1:9/none:1"),
        "socket": (
            {},
            {"engine_socket": "/nowhere.sock"},
            "hostPath type check failed: /nowhere.sock is not a socket",
        ),
        "exits": ({"python": "false"}, {}, "its pod has ended: Error, exit code 1"),
        "space": ({}, {"namespace": "none"}, 'namespaces "none" not found'),
        "guest": ({}, {"context": "guest"}, 'User "guest" cannot list resource'),
        "quota": ({}, {"namespace": "full"}, "exceeded quota: full, requested: pods=1"),
    }
    hosts = {
        name: {**usual, **host, "settings": {"image": IMAGE, **settings}}
        for name, (host, settings, _) in expected.items()
    }
    inventory = master.folder / "broken.yaml"
    inventory.write_text(json.dumps({"hosts": hosts}))

    def start_in_vain():
        ended = master.fleet("start", *master.control, inventory=inventory, status=3)
        rows = {row.split("\t")[0]: row.split("\t") for row in ended.out.splitlines()[1:]}
        assert {row[2] for row in rows.values()} == {"failed"}
        assert not {name: rows[name][3] for name, (_, _, reason) in expected.items() if reason not in rows[name][3]}
        wait_until_empty(cluster)

    # A node that tells of itself too late is not ready for a moment, and that is the reason of every pod then.
    undisturbed(start_in_vain)


def test_the_documented_role_is_enough(master, cluster):
    """A user with the rights that docs/fleet.rst lists, in one namespace, can do a run; nothing more is needed."""
    texts = [block.astext() for block in blocks(ROOT / "docs" / "fleet.rst")]
    role = yaml.safe_load(next(text for text in texts if "kind: Role" in text))
    subject = {"kind": "User", "name": "guest", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": role["metadata"]["name"], "apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "guest"},
        "subjects": [subject],
        "roleRef": reference,
    }
    namespace(cluster, "bench", role, binding)
    inventory = master.write_inventory(settings={"context": "guest", "namespace": "bench"})
    assert master.run_fleet(master.scenario(job=NAP), inventory=inventory).outcomes() == {"done": 1}
    wait_until_empty(cluster)


def test_a_node_that_is_killed_costs_its_jobs_and_no_other(cluster, tmp_path):
    """A run with another host does that one's; each ends in time, with the reason, and the node ends what it had."""
    here = {"here": {"launcher": "local", "environment": "bare-metal"}}
    with contextlib.ExitStack() as masters:
        runs = {}
        for name, others in (("alone", {}), ("beside", here)):
            (tmp_path / name).mkdir()
            made = masters.enter_context(ClusterMaster(tmp_path / name, cluster, "kubernetes", image=IMAGE))
            (node,) = json.loads(made.inventory.read_text())["hosts"].values()
            made.inventory.write_text(json.dumps({"hosts": {name: node, **others}}))
            scenario = made.scenario(job=NAP, repeats=1, iterations=100, speed_probe=False)
            runs[name] = (made, *made.start_fleet_run(scenario))
        for _, program, stats in runs.values():
            wait_until(
                lambda program=program, stats=stats: has_started(stats) or program.process.poll() is not None,
                START_S,
                "the run's begin",
            )
        cluster.cut_node()
        try:
            for name, (made, program, stats) in runs.items():
                run = made.finish(program, stats, status=3, seconds=END_S)
                lost = [job for job in run.jobs if job["outcome"] != "done"]
                assert {(job["worker"], job["outcome"]) for job in lost} == {(name, "lost")}
                assert sum(job["worker"] == "here" for job in run.jobs) == (100 if name == "beside" else 0)
                assert f"worker {name} did not come back; its jobs are lost" in run.err
                assert f"worker {name} may still run: pod weighbridge-{name}-" in run.err
                # The cluster misses the node before the pod is to be stopped, or after it.
                assert re.search(r"node node-1 is not ready: the cluster has not heard from it|still listed", run.err)
                assert f"lost worker {name}" in " ".join(run.out.split())
            assert {line.partition("/")[0] for line in cluster.left()} == {"pod"}, "neither keys nor jobs"
        finally:
            cluster.revive_node()
        wait_until_empty(cluster)
        made, *_ = runs["alone"]
        assert made.run_fleet(made.scenario(job=NAP)).outcomes() == {"done": 1}
    wait_until_empty(cluster)
