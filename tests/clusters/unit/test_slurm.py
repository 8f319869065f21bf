"""The launcher `slurm`: what it submits, and how it reads and words what Slurm prints."""

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench_common.errors import InfrastructureError
from bench_common.keys import KeyProvisioner
from bench_features.clusters import slurm
from bench_features.clusters.slurm_job import WorkerFiles, batch_script, comment, find_user, submit_options
from bench_features.clusters.slurm_queue import Job, explain_end, explain_wait, parse_jobs, parse_node
from bench_features.fleet.inventory import launcher_names, parse_inventory
from bench_features.fleet.known_hosts import KnownHosts
from bench_features.fleet.launchers.base import LaunchSpec
from bench_features.fleet.wheels import Wheelhouse

HOSTS = """
hosts:
  n1:
    launcher: slurm
    address: rack1n1
    directory: /shared/50%
    python: /opt/wb/bin/python
    labels: {rack: "a b"}
    env: {TMPDIR: "/scratch/my dir"}
    settings: {partition: lab, time: "2:00:00"}
  n2: {launcher: slurm, directory: /shared, settings: {shared: "yes"}}
"""
QUEUE = """\
7|PENDING|ReqNodeNotAvail, UnavailableNodes:n1|me|UNLIMITED|N/A||{"owner": "a|b"}
8|TIMEOUT|TimeLimit|me|1:00|2026-11-23T02:18:52||(null)
9|CANCELLED|None|me|UNLIMITED|2026-11-23T02:10:38|n1|by hand
slurm_load_jobs warning: something
"""


@pytest.fixture
def spec(tmp_path):
    return LaunchSpec(
        KeyProvisioner(tmp_path / "keys"), Wheelhouse(tmp_path / "wheels"), KnownHosts(tmp_path / "known_hosts")
    )


def hosts():
    return {host.name: host for host in parse_inventory(HOSTS, "hosts.yaml", launcher_names()).hosts}


def files(name):
    return WorkerFiles.of(hosts()[name], name)


def test_the_options_of_a_job():
    """It has its node for itself with all of its memory, is not started again, and a % in a name stays one."""
    options = submit_options(hosts()["n1"], "n1", files("n1"))
    assert {"--nodelist=rack1n1", "--partition=lab", "--time=2:00:00", "--exclusive", "--mem=0"} <= set(options)
    assert {"--no-requeue", "--job-name=weighbridge-n1", "--output=/shared/50%%/logs/n1.log"} <= set(options)
    assert not {"--exclusive", "--mem=0"} & set(submit_options(hosts()["n2"], "n2", files("n2")))


def test_the_script_of_a_job():
    """Everything is quoted; the key is removed when the worker has ended, whatever ended it."""
    command = ["/opt/wb/bin/python", "-m", "bench_worker", "--label", "rack=a b", "n1"]
    lines = batch_script(hosts()["n1"], command, files("n1")).splitlines()
    assert lines[:3] == ["#!/bin/sh", "export TMPDIR='/scratch/my dir'", "trap : INT TERM"]
    run_file = "/shared/50%/workers/n1.run"
    assert lines[3] == f"/opt/wb/bin/python -m bench_worker --label 'rack=a b' n1 --run-file {run_file}"
    assert lines[4:] == ["status=$?", f"rm -f /shared/50%/keys/n1.key {run_file}", "exit $status"]


def test_whose_a_job_is(spec):
    """Its comment says so, on one line of plain letters; what a killed master of this machine left is nobody's."""
    of_run = json.loads(comment(replace(spec, once=True), "mark"))
    assert f"process {os.getpid()}" in find_user(files("n1"), "n1", of_run)
    assert find_user(files("n1"), "n1", json.loads(comment(spec, "mark"))) is None
    assert find_user(files("n1"), "n1", {**of_run, "process": {**of_run["process"], "born": 1}}) is None
    elsewhere = {**of_run["process"], "born": 1, "boot": "another"}
    assert "n1 was started for a run of" in find_user(files("n1"), "n1", {**of_run, "process": elsewhere})
    assert find_user(files("n1"), "n1", {}) is None


def test_what_squeue_prints():
    """Comments may contain bars, and lines that are no jobs are skipped."""
    waiting, late, cancelled = parse_jobs(QUEUE)
    assert (waiting.is_waiting, waiting.is_active, waiting.owner) == (True, True, {"owner": "a|b"})
    assert (late.is_active, late.owner, cancelled.owner) == (False, {}, {})
    assert explain_end(late) == (
        "Slurm's job 8 ended at 2026-11-23T02:18:52: TIMEOUT, it reached its time limit of 1:00"
    )
    assert explain_end(cancelled).endswith("02:10:38: CANCELLED, somebody cancelled it (scancel)")
    assert explain_end(replace(late, state="REVOKED", end="N/A")) == "Slurm's job 8 ended: REVOKED"
    assert [replace(waiting, reason=reason).is_hopeless for reason in ("PartitionTimeLimit", "Resources")] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("row", "is_gone", "words"),
    [
        ("idle|Unknown|none", False, "node n1 is idle"),
        ("drained|root|disk | replaced", True, "node n1 is drained (disk | replaced, set by root)"),
        ("down*|slurm|Not responding", True, "node n1 is down and does not respond (Not responding, set by slurm)"),
        ("completing*|Unknown|none", True, "node n1 is completing and does not respond"),
        ("down|root|a\x1b[31mb\nc", True, "node n1 is down (a\\u001b[31mb, set by root)"),
        ("", True, "node n1 is unknown"),
    ],
)
def test_what_sinfo_prints(row, is_gone, words):
    """A node that takes no jobs is told from a busy one; what an administrator wrote cannot hurt a terminal."""
    node = parse_node("n1", row)
    assert (node.is_gone, node.describe()) == (is_gone, words)


def test_why_a_job_waits():
    """Slurm's reason, then what holds the node."""
    waiting, _, other = parse_jobs(QUEUE)
    node = parse_node("n1", "allocated|Unknown|none", [other])
    assert explain_wait(replace(waiting, reason="Resources"), node) == (
        "job 7 is PENDING (Resources); node n1 is allocated, with job 9 of me"
    )
    assert explain_wait(replace(waiting, reason="None"), node).startswith("job 7 is PENDING; node n1")


def test_the_files_of_a_worker(tmp_path):
    """The key is for its user alone; all but the log is removed."""
    made = WorkerFiles.of(replace(hosts()["n2"], directory=str(tmp_path / "shared")), "n2")
    made.create("secret")
    assert made.key.stat().st_mode & 0o777 == 0o600
    assert made.key.parent.stat().st_mode & 0o777 == 0o700
    made.log.write_text("log")
    made.remove()
    made.remove()
    assert [path for path in Path(made.directory).glob("**/*") if path.is_file()] == [made.log]


class Janitor:
    """Keeps in order what it and Slurm were told."""

    def __init__(self):
        self.told = []

    def expect(self, worker, removal):
        self.told.append(("expect", worker, *(argv[:2] for argv in removal)))

    def done(self, worker):
        self.told.append(("done", worker))


@pytest.fixture
def launcher(spec, tmp_path, monkeypatch):
    """A launcher of a run, its janitor, and a host whose files are in `tmp_path`; Slurm takes every job as 7."""
    made, janitor = slurm.SlurmLauncher(replace(spec, once=True)), Janitor()
    made._janitor = janitor

    def run_tool(argv, text=None):
        janitor.told.append((argv[0], text is not None))
        return "7\n"

    monkeypatch.setattr(slurm, "run_tool", run_tool)
    monkeypatch.setattr(made, "_await_start", lambda host, worker, job: Job(job.id, "RUNNING"))
    return made, janitor, replace(hosts()["n2"], directory=str(tmp_path / "shared"))


def test_the_janitor_knows_of_a_job_before_slurm_does(launcher):
    """By its name, and as soon as it has a number by that: it is this one, whatever else has the name."""
    made, janitor, host = launcher
    made.start_worker(host, "n2", "10.0.0.1")
    before, submitted, after = janitor.told
    assert before[2:] == (["scancel", "--name=weighbridge-n2"], ["rm", "-f"])
    assert (submitted, after[2:]) == (("sbatch", True), (["scancel", "7"], ["rm", "-f"]))


def test_a_job_that_could_not_be_cancelled_is_left_to_the_janitor(launcher, monkeypatch):
    """Its key is removed at once; the janitor is not told that nothing is left."""
    made, janitor, host = launcher
    files = WorkerFiles.of(host, "n2")
    files.create("secret")
    monkeypatch.setattr(slurm.slurm_queue, "jobs_named", lambda *_: [Job("7", "RUNNING")])

    def cancel(numbers):
        raise InfrastructureError(f"scancel: cannot reach the controller about {numbers}")

    monkeypatch.setattr(slurm.slurm_queue, "cancel", cancel)
    with pytest.raises(InfrastructureError, match="cannot reach the controller"):
        made.stop_worker(host, "n2")
    assert (janitor.told, files.key.exists()) == ([], False)
    monkeypatch.setattr(slurm.slurm_queue, "cancel", lambda numbers: None)
    monkeypatch.setattr(slurm.slurm_queue, "job_numbered", lambda number: None)
    assert made.stop_worker(host, "n2") == "ended"
    assert janitor.told == [("done", "n2")]
