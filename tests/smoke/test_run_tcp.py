"""Workers started by hand: of the same user without keys, over TCP with keys, and what they consent to."""

import json

import pytest
from deadlines import END_S, START_S, wait_until
from workspace import free_ports

TRUE = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"]}}


class Wire:
    """The ports of a master, and the flags that name them: `worker` meets it here, `far` reaches it over TCP."""

    def __init__(self):
        self.control, results, work = free_ports(3)
        self.sockets = ("--zmq-control-port", self.control, "--zmq-results-port", results)
        self.run = (*self.sockets, "--zmq-work-port", work)
        self.worker = ("--zmq-control-port", self.control)
        self.far = ("--zmq-host", "127.0.0.1", *self.worker, "--allow-native")


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def keys(workspace):
    """A key directory with the keys of two workers."""
    folder = workspace.folder / "keys"
    made = workspace.master("keygen", "--key-dir", folder, "--worker", "blade-1", "--worker", "blade-2")
    assert made.status == 0, made.err
    return folder


def joined(run):
    """Return the ids of the workers that joined a run."""
    return sorted(host["worker_id"] for host in run.document["hosts"])


def test_one_worker_by_hand_serves_run_after_run(workspace, wire):
    """It joins, runs, waits for the next master, joins that one too; it is seen while it waits, and sent home."""
    here = (*wire.worker, "--allow-native")
    worker = workspace.start("bench-worker", *here, "-c", 3, "--environment", "control", "by-hand")
    scenario = workspace.scenario(job=TRUE, operation_count=6, concurrency=2)
    for _ in range(2):
        run = workspace.run(scenario, *wire.run, workers=0)
        assert run.outcomes() == {"done": 6}
        assert joined(run) == ["by-hand"]
        assert {job["worker"] for job in run.jobs} == {"by-hand"}
        assert run.document["treatments"][0]["treatment"]["environment"] == "control"
        how = f"bench-worker --zmq-control-port {wire.control} --allow-native on this machine"
        assert f"waiting for 1 worker: {how}" in run.err

    def listed():
        # Its next load process has to be ready first.
        return json.loads(workspace.master("fleet", "list", *wire.sockets, "--wait", 1.5, "--format", "json").out)

    (row,) = wait_until(listed, START_S, "the worker waits for another run")
    assert (row["worker"], row["environment"], row["slots"]) == ("by-hand", "control", "3")
    assert "native" in row["engines"].split(",")
    assert worker.process.poll() is None
    end = ("fleet", "stop", *wire.sockets, "--wait", 1.5)
    killed = wait_until(lambda: workspace.master(*end).out, START_S, "a word of the worker")
    assert killed.startswith("by-hand\t")
    assert killed.endswith("\tasked to exit\n")
    assert worker.wait_for_exit(END_S).status == 0
    assert worker.err.count("by-hand: takes part in run ") == worker.err.count("by-hand: the run is over") == 2
    assert "by-hand: waits for a master at " in worker.err
    nobody = workspace.master("fleet", "list", *wire.sockets, "--wait", 0.5)
    # On a slow machine the command says before that it is still listening.
    assert nobody.status == 0
    assert nobody.err.endswith("no worker connected within 0.5 s\n")


def test_an_environment_decides_who_runs_what(workspace, wire):
    """A treatment of an environment runs on the workers that call themselves so, and on no other."""
    for name in ("bare-metal", "control"):
        workspace.start("bench-worker", *wire.worker, "--allow-native", "--environment", name, f"on-{name}")
    scenario = workspace.scenario(job=TRUE, environments=["bare-metal", "control"], iterations=2)
    run = workspace.run(scenario, *wire.run, "--expect", 2, workers=0)
    assert {(job["treatment"]["environment"], job["worker"]) for job in run.jobs} == {
        ("bare-metal", "on-bare-metal"),
        ("control", "on-control"),
    }
    assert run.outcomes() == {"done": 4}


def test_only_listed_keys_are_admitted(workspace, wire, keys):
    """Over TCP a listed key works; no key, an unknown, a revoked and one in another's name do not."""
    stranger = workspace.folder / "stranger"
    assert workspace.master("keygen", "--key-dir", stranger, "--worker", "blade-2").status == 0
    forged = (keys / "worker-blade-1.key").read_text().splitlines()
    theirs = {line.split(":")[0]: line for line in (stranger / "worker-blade-2.key").read_text().splitlines()}
    lines = [theirs[name] if (name := line.split(":")[0]) in {"public", "secret"} else line for line in forged]
    unknown = workspace.folder / "unknown.key"
    unknown.write_text("\n".join(lines) + "\n")
    unknown.chmod(0o600)
    flags = (*wire.run, "--zmq-bind-ip", "0.0.0.0", "--key-dir", keys)
    bare = workspace.start("bench-worker", *wire.far, "--insecure", "no-key")
    bad = workspace.start("bench-worker", *wire.far, "--key", unknown)
    assert workspace.master("keygen", "--key-dir", keys, "--revoke", "blade-2").status == 0
    revoked = workspace.start("bench-worker", *wire.far, "--key", keys / "worker-blade-2.key")
    scenario = workspace.scenario(job=TRUE, iterations=2)
    alone = workspace.run(scenario, *flags, "--worker-timeout", "3s", workers=0, status=3)
    assert "not enough workers: 0 of 1 joined" in alone.err
    good = workspace.start("bench-worker", *wire.far, "--key", keys / "worker-blade-1.key")
    run = workspace.run(scenario, *flags, workers=0)
    assert joined(run) == ["blade-1"]
    assert run.outcomes() == {"done": 2}
    assert f"bench-worker --zmq-host THIS-HOST --zmq-control-port {wire.control} --key FILE" in run.err
    for program in (bare, bad, revoked, good):
        assert program.process.poll() is None


def test_local_workers_need_no_key_file_of_the_user(workspace, wire, keys):
    """With keys in use a master's own workers get theirs from the master, and work beside one with a listed key."""
    flags = (*wire.run, "--zmq-bind-ip", "0.0.0.0", "--key-dir", keys, "--expect", 1)
    workspace.start("bench-worker", *wire.far, "--key", keys / "worker-blade-2.key")
    run = workspace.run(workspace.scenario(operation_count=8), *flags)
    assert joined(run) == ["blade-2", "local-0"]
    assert {job["worker"] for job in run.jobs} == {"blade-2", "local-0"}


def test_insecure_warns_and_works(workspace, wire):
    """--insecure opens the ports without keys, and both sides say on stderr what that means."""
    worker = workspace.start("bench-worker", *wire.far, "--insecure", "by-hand")
    flags = (*wire.run, "--zmq-bind-ip", "0.0.0.0", "--insecure")
    run = workspace.run(workspace.scenario(job=TRUE), *flags, workers=0)
    assert run.err.startswith("--insecure: 0.0.0.0 accepts everybody who can reach it")
    assert worker.err.startswith(f"--insecure: this worker obeys whoever answers at tcp://127.0.0.1:{wire.control}")
    assert run.outcomes() == {"done": 1}


@pytest.mark.parametrize("host", ["203.0.113.7", "127.0.0.1"])
def test_a_worker_reaches_for_no_port_without_a_key(workspace, host):
    """Not even on the loopback, which every user of both ends of a tunnel shares; the message says how to get one."""
    ended = workspace.start("bench-worker", "--zmq-host", host).wait_for_exit(END_S)
    assert ended.status == 2
    assert ended.err.startswith(f"bench-worker: tcp://{host}:")
    assert "bench-master keygen --worker NAME" in ended.err
    assert "Traceback" not in ended.err


def test_a_master_opens_no_port_without_keys(workspace, wire):
    """Not even on the loopback: the flag that names an address needs keys, and says how to make them."""
    ended = workspace.refused("run-scenario", "-f", workspace.scenario(), *wire.run, "--zmq-bind-ip", "127.0.0.1")
    assert "listening on 127.0.0.1 needs keys" in ended.err


def test_programs_of_a_host_run_only_with_its_consent(workspace, wire):
    """A worker without --allow-native is named before anything runs, with the flag; a no-op run takes it."""
    workspace.start("bench-worker", *wire.worker, "reluctant")
    began = workspace.folder / "began"
    scenario = workspace.scenario(job={**TRUE, "container": {"command": ["touch", str(began)]}})
    stats = workspace.folder / "x.stats.gz"
    ended = workspace.master("run-scenario", "-f", scenario, "-s", stats, *wire.run, "--workers", 0)
    assert ended.status == 2
    reason = "worker reluctant: engine native may not run programs on its host: start it with --allow-native"
    assert ended.err.splitlines()[-1].endswith(reason)
    assert not began.exists()
    assert workspace.run(scenario, "--noop", *wire.run, workers=0).outcomes() == {"done": 1}


def test_a_worker_does_not_connect_to_a_strangers_socket(workspace):
    """A directory that others may enter, or of another user, is named; the worker ends with 3."""
    place = workspace.folder / "open"
    place.mkdir(mode=0o755)
    ended = workspace.start("bench-worker", "--control", f"ipc://{place}/control").wait_for_exit(END_S)
    assert ended.status == 3
    (line,) = ended.err.splitlines()
    assert line.startswith(f"bench-worker: {place}/control: not connected: the directory or the socket has mode 0755")


@pytest.mark.parametrize(
    ("flags", "expected"), [(("--key", "x.key"), "--key: name the master's host"), (("--label", "x"), "--label 'x'")]
)
def test_a_workers_usage_errors(workspace, wire, flags, expected):
    """A worker's own mistakes in usage end with 2 and one message."""
    words = (*wire.worker, *flags)
    ended = workspace.start("bench-worker", *words).wait_for_exit(END_S)
    assert ended.status == 2
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1
