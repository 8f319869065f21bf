"""Launchers of clusters against stand-ins for kubectl, sbatch and docker: what they are told, and what they are not.

That real clusters do what they are told is tested in `test_swarm_cluster` and its like.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from places import ROOT

from bench_common.errors import InfrastructureError, ScenarioError
from bench_common.keys import KeyProvisioner, read_worker_key
from bench_features.clusters.slurm_queue import LIST_FORMAT
from bench_features.fleet.fleet import Fleet, launcher_class
from bench_features.fleet.inventory import launcher_names, parse_inventory
from bench_features.fleet.known_hosts import KnownHosts
from bench_features.fleet.launchers.base import HostProgress, LaunchSpec
from bench_features.fleet.launchers.local import LocalLauncher
from bench_features.fleet.wheels import Wheelhouse

ON_NODES = {
    "kubectl get pods": '{"items": [{"metadata": {"name": "p"}, "status": {"phase": "Running"}}]}',
    "kubectl --context=lab --namespace=bench get pods": '{"items": [{"status": {"phase": "Running"}}]}',
    "docker node ls": "".join(f"{name}\tReady\tActive\n" for name in ("n", "node-1", "n.lab")),
    "docker service ps": '{"ID": "t1", "CurrentState": "Running 1 second ago", "Error": ""}\n',
}
GONE = {"kubectl get pods --selector weighbridge.worker=n --output": '{"items": []}'}
"""No pod of worker n is there: who stops it does not wait for its end."""
CLUSTERS = ("docker-swarm", "kubernetes", "slurm")
RUNNING_JOBS = f"squeue --noheader --format={LIST_FORMAT} --jobs"
FAKE = """\
#!{python} -IS
import json, os, sys
from pathlib import Path
folder = Path({folder!r})
calls = folder / "calls.jsonl"
said = json.dumps({{"argv": sys.argv[1:], "tool": Path(sys.argv[0]).name, "stdin": sys.stdin.read()}})
with calls.open("a") as file:
    file.write(said + "\\n")
answers = json.loads((folder / "answers.json").read_text())
for start, answer in answers.items():
    if " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]).startswith(start):
        sys.stdout.write(answer if isinstance(answer, str) else answer.pop(0) if answer else "")
        if not isinstance(answer, str):
            (folder / "answers.json").write_text(json.dumps(answers))
        break
if (folder / "fail").exists() and " ".join(sys.argv[1:]).startswith((folder / "fail").read_text()):
    sys.exit("the cluster says no")
"""


class Cluster:
    """Stand-ins for the tools of a cluster, which note what they are told and answer what a test says."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        (folder / "bin").mkdir()
        for tool in ("kubectl", "sbatch", "squeue", "scancel", "docker"):
            path = folder / "bin" / tool
            path.write_text(FAKE.format(python=sys.executable, folder=str(folder)))
            path.chmod(0o755)
        self.answer({})
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("HOME", str(folder))

    def answer(self, answers):
        """Let tools answer: by how a command line begins, a text for each call or a list of them in turn."""
        (self.folder / "answers.json").write_text(json.dumps({**answers, **ON_NODES}))

    def fail(self, start):
        """Let the command lines that begin so fail."""
        (self.folder / "fail").write_text(start)

    @property
    def calls(self):
        """What the tools were told."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def lines(self):
        """Return the command lines."""
        return [" ".join([call["tool"], *call["argv"]]) for call in self.calls]

    def fleet(self, text, **settings):
        """Return the fleet of an inventory."""
        spec = LaunchSpec(
            KeyProvisioner(self.folder / "keys"),
            Wheelhouse(self.folder / "wheels"),
            KnownHosts(self.folder / "known_hosts"),
            **{"master": "10.0.0.1", **settings},
        )
        return Fleet(parse_inventory(text, "hosts.yaml", launcher_names()), spec, HostProgress())

    def secret(self, worker):
        """Return a worker's secret key."""
        return read_worker_key(self.folder / "keys" / f"worker-{worker}.key").keys.secret.decode()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    return Cluster(tmp_path, monkeypatch)


def test_every_launcher_is_registered_by_the_name_that_it_calls_itself():
    """Each launcher describes its options."""
    assert set(launcher_names()) >= {"local", "ssh", *CLUSTERS}
    for name in launcher_names():
        found = launcher_class(name)
        assert found.name == name
        assert all(len(meaning) > 10 for meaning in found.settings.values())


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_tool_gets_a_key_on_its_command_line(cluster, name):
    """Keys go through stdin or a private file; argument vectors, which everybody can read, are free of them."""
    cluster.answer({"sbatch": "1\n", RUNNING_JOBS: "1|RUNNING|None|me|UNLIMITED|NONE|n1|{}\n"})
    fleet = cluster.fleet(
        f"hosts: {{node-1: {{launcher: {name}, settings: {{}}}}}}".replace(
            "settings: {}", "settings: {image: bench:1}" if name != "slurm" else "settings: {}"
        )
    )
    outcomes = fleet.start()
    assert [outcome.state for outcome in outcomes] == ["started"], outcomes
    assert cluster.secret("node-1")
    assert not [line for line in cluster.lines() if cluster.secret("node-1") in line]
    assert any("bench_worker" in json.dumps(call) for call in cluster.calls)


def test_a_job_on_a_node(cluster):
    """The manifest binds a Job to its node, with a Secret of its own, the host's network and no token."""
    cluster.answer({"kubectl --context=lab --namespace=bench create": ["", "0815"]})
    fleet = cluster.fleet("""
defaults: {launcher: kubernetes, settings: {image: bench:1, context: lab, namespace: bench}}
hosts:
  node-1: {address: n1.lab, environment: bare-metal, settings: {engine_socket: /run/docker.sock}, env: {A: b}}
""")
    (outcome,) = fleet.start()
    assert (outcome.state, outcome.detail) == ("started", "Job weighbridge-node-1, master 10.0.0.1")
    _, first, second, patched, _ = cluster.calls
    assert first["argv"] == ["--context=lab", "--namespace=bench", "create", "-f", "-"]
    secret, job = json.loads(first["stdin"]), json.loads(second["stdin"])
    (owner,) = json.loads(patched["argv"][-1])["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": "weighbridge-node-1", "uid": "0815"}
    assert (secret["kind"], list(secret["stringData"])) == ("Secret", ["worker.key"])
    assert cluster.secret("node-1") in secret["stringData"]["worker.key"]
    assert (job["kind"], job["apiVersion"], job["spec"]["backoffLimit"]) == ("Job", "batch/v1", 0)
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": "n1.lab"}
    assert (pod["hostNetwork"], pod["automountServiceAccountToken"], pod["restartPolicy"]) == (True, False, "Never")
    (container,) = pod["containers"]
    assert container["image"] == "bench:1"
    assert container["env"] == [{"name": "A", "value": "b"}]
    words = container["command"]
    assert words[:5] == ["python3", "-m", "bench_worker", "--zmq-host", "10.0.0.1"]
    assert words[-3:] == ["--key", "/etc/weighbridge/worker.key", "node-1"]
    assert words[words.index("--environment") :][:2] == ["--environment", "bare-metal"]
    assert {volume["name"]: volume for volume in pod["volumes"]} == {
        "key": {"name": "key", "secret": {"secretName": "weighbridge-node-1", "defaultMode": 0o400}},
        "engine": {"name": "engine", "hostPath": {"path": "/run/docker.sock", "type": "Socket"}},
    }
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/etc/weighbridge", "/run/docker.sock"}


def test_a_daemonset_and_a_manifest_that_is_there(cluster):
    """The pod is started again when it dies; what the cluster has is not made again; names are made fit."""
    fleet = cluster.fleet("hosts: {Node.1: {launcher: kubernetes, settings: {image: i, kind: daemonset}}}")
    (outcome,) = fleet.start()
    assert outcome.state == "started"
    daemon = json.loads(cluster.calls[2]["stdin"])
    made = [call for call in cluster.lines() if " create " in call]
    cluster.answer({"kubectl get job,daemonset": json.dumps({"items": [daemon]})})
    assert [outcome.state for outcome in fleet.start()] == ["already running"]
    assert [call for call in cluster.lines() if " create " in call] == made
    assert (daemon["kind"], daemon["apiVersion"]) == ("DaemonSet", "apps/v1")
    assert daemon["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    selected = daemon["spec"]["selector"]["matchLabels"]
    assert selected.items() <= daemon["spec"]["template"]["metadata"]["labels"].items()
    assert daemon["metadata"]["name"].startswith("weighbridge-node-1-")
    assert daemon["metadata"]["labels"]["weighbridge.worker"] == "Node.1"


def test_what_kubernetes_has_of_a_worker_is_deleted_by_its_label(cluster):
    """Nothing else is; and its log is fetched by it."""
    deleted = {"kubectl delete": ["job.batch/weighbridge-n deleted\n", ""]}
    cluster.answer({**deleted, **GONE, "kubectl logs": "WARNING: hm\n"})
    fleet = cluster.fleet("hosts: {n: {launcher: kubernetes, settings: {image: i}}}")
    assert fleet.logs() == {"n": "WARNING: hm\n"}
    assert [fleet.stop()[0].state, fleet.stop()[0].state] == ["ended", "was not running"]
    assert all("--selector weighbridge.worker=n" in line for line in cluster.lines())


def test_a_batch_job_on_a_node(cluster):
    """The key is a private file on the shared disk; the options are arguments, which no variable overrides."""
    cluster.answer({"sbatch": "4711;lab\n", RUNNING_JOBS: "4711|RUNNING|None|me|UNLIMITED|NONE|n1|{}\n"})
    fleet = cluster.fleet("hosts: {n1: {launcher: slurm, directory: shared, settings: {partition: lab}}}")
    (outcome,) = fleet.start()
    assert (outcome.state, outcome.detail) == ("started", "job 4711, master 10.0.0.1")
    (submitted,) = [call for call in cluster.calls if call["tool"] == "sbatch"]
    assert {"--parsable", "--nodelist=n1", "--partition=lab", "--exclusive"} <= set(submitted["argv"])
    key = Path(cluster.folder) / "shared/keys/n1.key"
    assert f"--key {key} n1" in submitted["stdin"]
    assert key.stat().st_mode & 0o777 == 0o600
    assert cluster.secret("n1") not in submitted["stdin"]


def test_a_global_service_on_a_node(cluster):
    """One for each worker, held to its node, with a secret of its own."""
    cluster.answer({"docker service ls": ["", *2 * ["weighbridge-n\n"]], "docker secret ls": ["", "weighbridge-n\n"]})
    fleet = cluster.fleet("hosts: {n: {launcher: docker-swarm, address: n.lab, settings: {image: bench:1}}}")
    (outcome,) = fleet.start()
    assert outcome.state == "started"
    made = {tuple(call["argv"][:2]): call for call in cluster.calls}
    assert cluster.secret("n") in made["secret", "create"]["stdin"]
    words = made["service", "create"]["argv"]
    assert words[words.index("--mode") :][:4] == ["--mode", "global", "--constraint", "node.hostname==n.lab"]
    assert "source=weighbridge-n,target=worker.key,uid=0,mode=0400" in words
    assert words[words.index("bench:1") :][:4] == ["bench:1", "python3", "-m", "bench_worker"]
    assert words[-3:] == ["--key", "/run/secrets/worker.key", "n"]
    assert fleet.stop()[0].state == "ended"
    assert {"docker service rm weighbridge-n", "docker secret rm weighbridge-n"} <= set(cluster.lines())


def test_a_service_that_cannot_be_made_leaves_no_secret(cluster):
    """The table has docker's error."""
    cluster.answer({"docker secret ls": ["", "weighbridge-n\n"]})
    cluster.fail("service create")
    (outcome,) = cluster.fleet("hosts: {n: {launcher: docker-swarm, settings: {image: x}}}").start()
    assert outcome.failed
    assert outcome.detail == "docker service failed with exit code 1: the cluster says no"
    assert "docker secret rm weighbridge-n" in cluster.lines()


@pytest.mark.parametrize(
    ("row", "fields", "message"),
    [
        (
            "launcher: kubernetes",
            {},
            "launcher kubernetes needs the setting 'image' (an image that contains Weighbridge)",
        ),
        ("launcher: kubernetes, settings: {image: i, kind: pod}", {}, "'pod': expected one of job, daemonset"),
        ("launcher: slurm", {"master": None}, "launcher slurm does not know how the host reaches the master"),
        ("launcher: slurm, tunnel: true", {}, "launcher slurm has no SSH connection for a tunnel"),
        ("launcher: slurm, workers: 2", {}, "used exclusively has a single worker, and n has 2: give one a higher"),
    ],
)
def test_missing_requirements_are_reported_for_the_host(cluster, row, fields, message):
    """The host fails with the reason before anything is created."""
    cluster.answer(GONE)
    outcome, *others = cluster.fleet(f"hosts: {{n: {{{row}}}}}", **fields).start()
    assert all(each.failed for each in (outcome, *others))
    assert message in outcome.detail
    assert not [line for line in cluster.lines() if "create" in line or "sbatch" in line]


def test_one_worker_of_a_host_that_fails_hides_no_other(cluster):
    """The result lists the workers that started, so that they can be stopped."""
    fleet = cluster.fleet("hosts: {n: {launcher: docker-swarm, workers: 2, settings: {image: x}}}")
    cluster.fail("secret create --label weighbridge.worker=n-1")
    outcomes = fleet.start()
    assert [(each.worker, each.state) for each in outcomes] == [("n-1", "failed"), ("n-2", "started")]
    assert "the cluster says no" in outcomes[0].detail


def test_an_unknown_setting_is_refused_with_its_place(cluster):
    """The nearest one is named."""
    with pytest.raises(ScenarioError, match=r"hosts.yaml:1:9: launcher 'slurm' has no setting 'tme' .*'time'"):
        cluster.fleet("hosts: {n: {launcher: slurm, settings: {tme: '1'}}}")


def test_a_tool_that_is_not_installed_is_named(cluster, monkeypatch):
    """The outcome names the host."""
    monkeypatch.setenv("PATH", str(cluster.folder / "nothing"))
    (outcome,) = cluster.fleet("hosts: {n: {launcher: slurm}}").start()
    assert outcome.detail == "squeue is not installed here, or not on PATH"


def test_a_launcher_that_asks_nothing_says_so(cluster):
    """The doctor lists the host as one that it cannot check."""
    answers = cluster.fleet("hosts: {n: {launcher: slurm}}").query([("--doctor",)])
    assert isinstance(answers["n"], InfrastructureError)
    assert "cannot query hosts" in str(answers["n"])


def test_workers_of_this_machine(cluster, monkeypatch):
    """The launcher `local` starts them from this installation, once, and ends them with their keys."""
    assert issubclass(launcher_class("local"), LocalLauncher)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    fleet = cluster.fleet("hosts: {here: {launcher: local, workers: 2, concurrency: 1}}")
    assert [outcome.state for outcome in fleet.start()] == ["started", "started"]
    try:
        assert [outcome.state for outcome in fleet.start()] == ["already running", "already running"]
        assert set(fleet.logs()) == {"here-1", "here-2"}
    finally:
        assert [outcome.state for outcome in fleet.stop()] == ["ended", "ended"]
    keys = cluster.folder / ".local/share/weighbridge/keys"
    assert list(keys.iterdir()) == []
    assert [outcome.state for outcome in fleet.stop()] == ["was not running", "was not running"]
