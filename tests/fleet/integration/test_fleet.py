"""Workers on two blades, started over SSH: what a user of a real fleet does, and what may go wrong there."""

import contextlib
import functools
import gzip
import itertools
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import yaml
from attention import undisturbed
from blades import Testbed
from deadlines import ANSWER_S, LONG_END_S, START_S, wait_until
from documents import ROOT, blocks
from workspace import Workspace, free_ports, require_images

from bench_features.fleet.progress import LOG_SILENCE_S
from bench_features.fleet.wheels import PythonPlatform, Wheelhouse

COOKBOOK = ROOT / "docs" / "cookbook.rst"
NAP = {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", "0.02"]}}


class QuietPages(SimpleHTTPRequestHandler):
    """Serves a folder without a log."""

    def log_message(self, *_):
        """Log nothing."""


@contextlib.contextmanager
def package_index(testbed):
    """Give the first blade's pip an index, which has what is installed here; that of the second is out of reach."""
    bundle = Wheelhouse(testbed.cache / "weighbridge" / "wheels").bundle_for(PythonPlatform.current())
    pages = testbed.folder / "index"
    for wheel in bundle.wheels:
        page = pages / wheel.name.split("-")[0].replace("_", "-").lower()
        page.mkdir(parents=True)
        (page / wheel.name).symlink_to(wheel.path)
    host = f"{testbed.subnet}.1"
    with ThreadingHTTPServer((host, 0), functools.partial(QuietPages, directory=str(pages))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for number, port in ((1, server.server_port), (2, *free_ports(1))):
            path = testbed.home(number) / PIP_CONFIG
            path.parent.mkdir(parents=True)
            path.write_text(f"[global]\nindex-url = http://{host}:{port}/\ntrusted-host = {host}\n")
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


PIP_CONFIG = Path(".config/pip/pip.conf")
HOME = ".local/share/weighbridge"
"""Where a host has what we install, below a user's home."""


@pytest.fixture(scope="module")
def testbed():
    made = Testbed()
    try:
        made.index = True
        with package_index(made):
            yield made
    finally:
        made.close()


class FleetMaster(Workspace):
    """Runs commands on the fleet of a testbed, on ports of its own."""

    def __init__(self, folder, testbed):
        super().__init__(folder)
        self.testbed = testbed
        self.environ["XDG_CACHE_HOME"] = str(testbed.cache)
        control, results, work = free_ports(3)
        self.control = ("--zmq-control-port", control)
        self.ports = (*self.control, "--zmq-results-port", results, "--zmq-work-port", work)
        self.inventory = testbed.inventory(folder / "hosts.yaml")
        self.known_hosts = testbed.known_hosts

    def fleet(self, command, *words, status=0, seconds=LONG_END_S):
        """Run a command on the inventory; it must end with `status`."""
        ended = self.master(
            "fleet", command, "-i", self.inventory, "--known-hosts", self.known_hosts, *words, seconds=seconds
        )
        assert ended.status == status, ended.err
        assert "Traceback" not in ended.err
        return ended

    def run_fleet(self, scenario, *flags, status=0):
        """Run a scenario on the fleet to its end."""
        reach = ("-i", self.inventory, "--known-hosts", self.known_hosts)
        return self.run(scenario, *reach, *self.ports, *flags, workers=0, status=status, seconds=LONG_END_S)

    def rows(self, ended):
        """Return the table of a command: the cells of each worker by its name."""
        return {row.split("\t")[1]: row.split("\t") for row in ended.out.splitlines()[1:]}

    def secrets(self):
        """Return the secret keys of the master and of every worker."""
        keys = self.folder / "home/.config/weighbridge/keys"
        lines = [line for path in keys.glob("*.key") for line in path.read_text().splitlines()]
        return [line.partition(": ")[2] for line in lines if line.startswith("secret: ")]


@pytest.fixture
def master(testbed, tmp_path):
    with FleetMaster(tmp_path, testbed) as made:
        yield made
        if testbed.processes():
            made.inventory = testbed.inventory(tmp_path / "all.yaml")
            made.master("fleet", "stop", "-i", made.inventory, "--known-hosts", made.known_hosts, seconds=LONG_END_S)
    wait_until(lambda: testbed.processes() == [], START_S, "the end of the workers")


def agents(testbed):
    """Return the command lines of the agents; a load process may just be making way for the next."""
    return [words for words in testbed.processes() if "--zmq-host" in words]


def test_hosts_are_installed_side_by_side_and_with_what_they_lack(master, testbed):
    """Where a host's own pip gets the rest little is sent; where it cannot, all, and the reason is said."""
    if (testbed.home(1) / ".local/share/weighbridge").exists():
        master.fleet("stop", "--purge")
    ended = master.fleet("start", *master.control)
    assert {row[2] for row in master.rows(ended).values()} == {"started"}
    lines = [line.split(None, 2)[2].split(None, 1) for line in ended.err.splitlines() if " s  blade-" in line]
    told = {name: [text for host, text in lines if host == name] for name in ("blade-1", "blade-2")}
    sent = {name: [line for line in told[name] if line.startswith("installing with ")] for name in told}
    assert [float(line.split("(")[1].split()[0]) < 5 for line in sent["blade-1"]] == [True]
    assert [float(line.split("(")[1].split()[0]) < 5 for line in sent["blade-2"]] == [True, False]
    assert any("its own pip cannot install the rest, so everything is sent: " in line for line in told["blade-2"])
    order = [text.split()[0] for _, text in lines if text.startswith(("installing with", "starting"))]
    assert order[:2] == ["installing", "installing"], "one host after the other"
    times = [float(line.split()[0]) for line in ended.err.splitlines() if " s  blade-" in line]
    assert max(after - before for before, after in itertools.pairwise(times)) < LOG_SILENCE_S + ANSWER_S, ended.err
    again = master.fleet("start", *master.control)
    assert {row[2] for row in master.rows(again).values()} == {"already running"}
    assert "installing" not in again.err


def test_one_scenario_on_two_blades(master, testbed):
    """One command starts workers on both, runs the treatments of both environments interleaved, and ends them."""
    scenario = master.scenario(
        job=NAP, environments=["bare-metal", "hypervisor"], matrix={"concurrency": [1, 2]}, repeats=4, iterations=2
    )
    run = master.run_fleet(scenario)
    assert run.outcomes() == {"done": 48}
    assert {(job["treatment"]["environment"], job["worker"]) for job in run.jobs} == {
        ("bare-metal", "blade-1"),
        ("hypervisor", "blade-2"),
    }
    assert [row["host"] for row in sorted(run.document["hosts"], key=lambda row: row["host"])] == [
        "blade-1",
        "blade-2",
    ]
    assert "bare-metal" in run.details
    assert "hypervisor" in run.details
    trials = sorted({(job["trial"], job["treatment"]["environment"]) for job in run.jobs})
    changes = sum(one[1] != other[1] for one, other in itertools.pairwise(trials))
    assert changes > 2, f"one environment after the other: {trials}"
    assert testbed.processes() == []
    again = master.run_fleet(scenario, "-v", "--set", "repeats=1")
    assert "installing" not in again.err
    assert not [secret for secret in master.secrets() if secret in again.err + again.out]
    stats = gzip.decompress(again.stats.read_bytes())
    assert len(master.secrets()) == 3
    assert not [secret for secret in master.secrets() if secret.encode() in stats]


def test_workers_outlive_the_connection_and_wait(master, testbed):
    """They are started once, serve any run that expects them, and end on request."""
    first = master.rows(master.fleet("start", *master.control))
    assert {name: row[2] for name, row in first.items()} == {"blade-1": "started", "blade-2": "started"}
    assert len(agents(testbed)) == 2
    words = [word for command in testbed.processes() for word in command]
    assert not [secret for secret in master.secrets() if secret in words]
    key = testbed.home(1) / ".local/share/weighbridge/keys/blade-1.key"
    assert key.stat().st_mode & 0o777 == 0o600
    listen = ("fleet", "list", "-i", master.inventory, *master.ports[:4], "--format", "json", "--wait", 3)
    received = wait_until(
        lambda: (message := master.master(*listen)).status == 0 and message, START_S, "a word of both workers"
    )
    for row in json.loads(received.out):
        assert (row["host"], row["clock"]) == (row["worker"], {"offset_ns": 0, "uncertainty_ns": 0})
        assert row["heard"] < 2
        assert row["load"] >= 0
    here = ("--zmq-bind-ip", f"{testbed.subnet}.1")
    run = master.run(master.scenario(job=NAP, iterations=4), *master.ports, *here, "--expect", 2, workers=0)
    assert {job["worker"] for job in run.jobs} == {"blade-1", "blade-2"}
    # A run that finds workers there leaves them there.
    master.run_fleet(master.scenario(job=NAP, iterations=4))
    assert len(agents(testbed)) == 2
    logs = master.fleet("logs", "-d", master.folder / "logs")
    assert logs.out.split() == [str(master.folder / "logs" / f"blade-{number}.log") for number in (1, 2)]
    ended = master.rows(master.fleet("stop"))
    assert {row[2] for row in ended.values()} == {"ended"}
    assert testbed.processes() == []
    received = master.master("fleet", "list", "-i", master.inventory, *master.ports[:4], "--wait", 1)
    assert received.status == 3
    assert received.out.count("not connected") == 2


def greet(server):
    """Answer one connection as a mail server does."""
    line, _ = server.accept()
    with line:
        line.sendall(b"220 mail is here\r\n")


def test_one_bad_host_does_not_stop_the_others(master, testbed):
    """It is in the table with the reason; with --require-all what was started on the others is ended again."""
    master.inventory = testbed.inventory(master.folder / "bad.yaml", blade_2={"port": 2})
    ended = master.fleet("start", *master.control, status=3)
    rows = master.rows(ended)
    assert rows["blade-1"][2] == "started"
    assert rows["blade-2"][2] == "failed"
    assert "nothing listens there for SSH" in rows["blade-2"][3]
    assert "1 host failed" in ended.err
    with socket.create_server(("127.0.0.1", 0)) as other:
        mail = threading.Thread(target=greet, args=(other,))
        mail.start()
        master.inventory = testbed.inventory(
            master.folder / "odd.yaml", blade_2={"address": "127.0.0.1", "port": other.getsockname()[1]}
        )
        ended = master.fleet("logs", "--only", "blade-2", status=3)
        assert "does not speak SSH" in ended.err
        mail.join()
    master.inventory = testbed.inventory(master.folder / "bad.yaml", blade_2={"port": 2})
    assert {word for command in testbed.processes() for word in command} >= {"blade-1"}
    ended = master.fleet("start", *master.control, "--require-all", status=3)
    assert master.rows(ended)["blade-1"][2] == "already running", "it was not started now"
    master.fleet("stop", "--only", "blade-1")
    ended = master.fleet("start", *master.control, "--require-all", status=3)
    assert master.rows(ended)["blade-1"][2] == "ended"
    assert testbed.processes() == []


@pytest.mark.slow
def test_a_run_goes_on_without_a_bad_host_unless_all_are_required(master, testbed):
    """What the scenario asks of environments decides; with --require-all nothing is run."""
    master.inventory = testbed.inventory(master.folder / "bad.yaml", blade_2={"python": "/no/python3"})
    run = master.run_fleet(master.scenario(job=NAP, iterations=2))
    assert {job["worker"] for job in run.jobs} == {"blade-1"}
    assert "blade-2: '/no/python3'" not in run.err
    assert any(line.startswith("blade-2: 'python: /no/python3' not found") for line in run.errors)
    reach = ("-i", master.inventory, "--known-hosts", master.known_hosts, *master.ports, "--require-all")
    program, stats = master.start_run(master.scenario(job=NAP), *reach, workers=0)
    assert program.wait_for_exit(LONG_END_S).status == 3
    assert not stats.exists()
    assert testbed.processes() == []


def test_a_host_key_must_match_known_hosts(master, testbed):
    """An unknown one is refused, learned on request, and refused for good when its key has changed."""
    master.inventory = testbed.inventory(master.folder / "one.yaml", blade_2=None)
    master.known_hosts = master.folder / "known_hosts"
    ended = master.fleet("start", *master.control, status=3)
    assert "its host key is not in" in ended.out
    assert not master.known_hosts.exists()
    ended = master.fleet("start", *master.control, "--accept-new")
    assert "added its host key ssh-ed25519 SHA256:" in ended.err
    assert master.known_hosts.read_text().startswith(f"{testbed.address(1)} ssh-ed25519 ")
    other = testbed.known_hosts.read_text().splitlines()[1].split()[1:]
    master.known_hosts.write_text(f"{testbed.address(1)} {' '.join(other)}\n")
    before = master.known_hosts.read_text()
    ended = master.fleet("stop", "--accept-new", status=3)
    assert "its host key has CHANGED" in ended.out
    assert master.known_hosts.read_text() == before
    own = (testbed.folder / "bed/blade-1/host_key.pub").read_text().split()[:2]
    master.known_hosts.write_text(f"@revoked * {' '.join(own)}\n{testbed.address(1)} {' '.join(own)}\n")
    assert "@revoked" in master.fleet("stop", "--accept-new", status=3).out
    master.known_hosts = testbed.known_hosts


@pytest.fixture
def ssh_agent(tmp_path):
    """An agent without keys: where it is reached."""
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    wait_until(path.exists, ANSWER_S, "there is no agent")
    yield path
    process.terminate()
    process.wait(ANSWER_S)


def test_keys_come_from_a_file_or_the_agent(master, testbed, ssh_agent):
    """No passphrase is asked for: such a key works from the agent, and otherwise the error says so."""
    locked = master.folder / "locked"
    locked.write_bytes(testbed.key.read_bytes())
    locked.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "a secret word", "-f", locked], check=True)
    master.inventory = testbed.inventory(master.folder / "locked.yaml", key=locked, blade_2=None)
    ended = master.fleet("stop", status=3)
    assert "it has a passphrase: load it into the agent" in ended.out
    master.inventory = testbed.inventory(master.folder / "agent.yaml", key=None, blade_2=None)
    master.environ["SSH_AUTH_SOCK"] = str(ssh_agent)
    ended = master.fleet("stop", status=3)
    assert "load one into the agent (ssh-add), or name it with 'key:'" in ended.out
    other = master.folder / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    subprocess.run(["ssh-add", "-q", other], env=master.environ, check=True, stdin=subprocess.DEVNULL)
    ended = master.fleet("stop", status=3)
    assert "refused the login of root with the agent's keys and those in ~/.ssh" in ended.out
    subprocess.run(["ssh-add", "-q", testbed.key], env=master.environ, check=True, stdin=subprocess.DEVNULL)
    assert master.rows(master.fleet("stop"))["blade-1"][2] == "was not running"
    master.inventory = testbed.inventory(master.folder / "locked.yaml", key=locked, blade_2=None)
    assert master.rows(master.fleet("stop"))["blade-1"][2] == "was not running"


def test_hosts_of_ssh_config(master, testbed):
    """An inventory of names is enough; its settings go first, and an error says what comes from ssh_config."""
    folder = master.folder / "home" / ".ssh"
    folder.mkdir(mode=0o700)
    (folder / "config").write_text(
        f"Host blade-1\n  HostName {testbed.address(1)}\n"
        f"Host blade-2\n  HostName {testbed.address(2)}\n  Port 2\n  ProxyJump blade-1\n"
        f"Host *\n  User root\n  IdentityFile {testbed.key}\n"
    )
    master.inventory = master.folder / "names.yaml"
    master.inventory.write_text("hosts:\n  blade-1:\n  blade-2:\n")
    rows = master.rows(master.fleet("stop", status=3))
    assert rows["blade-1"][2] == "was not running"
    assert f"cannot reach {testbed.address(2)}:2" in rows["blade-2"][3]
    assert f"Port, User, IdentityFile and ProxyJump from {folder}/config, as for 'ssh blade-2'" in rows["blade-2"][3]
    master.inventory.write_text("hosts:\n  blade-1:\n  blade-2: {port: 22}\n")
    rows = master.rows(master.fleet("stop"))
    assert {row[2] for row in rows.values()} == {"was not running"}
    log = (testbed.folder / "bed/blade-2/sshd.log").read_text()
    assert f"Accepted publickey for root from {testbed.address(1)} " in log
    assert "blade-1: no such host" in master.fleet("stop", "--ssh-config", "none", status=3).out


@pytest.mark.slow
def test_through_a_jump_host(master, testbed):
    """A host behind a jump host is started through it, and finds the master at the given address."""
    master.inventory = testbed.inventory(
        master.folder / "jump.yaml", blade_2={"jump": "blade-1", "master": f"{testbed.subnet}.1", "workers": 2}
    )
    run = master.run_fleet(master.scenario(job=NAP, environments=["hypervisor"], iterations=2), "--only", "blade-2")
    assert {job["worker"] for job in run.jobs} == {"blade-2-1", "blade-2-2"}
    assert testbed.processes() == []
    log = (testbed.folder / "bed/blade-2/sshd.log").read_text()
    assert f"Accepted publickey for root from {testbed.address(1)} " in log


def test_through_a_tunnel(master, testbed):
    """The master listens on its loopback alone, and the blades reach it inside of their SSH connections."""
    run = master.run_fleet(
        master.scenario(job=NAP, environments=["bare-metal", "hypervisor"], repeats=3, iterations=4), "--tunnel"
    )
    assert run.outcomes() == {"done": 24}
    assert {job["worker"] for job in run.jobs} == {"blade-1", "blade-2"}
    assert "--zmq-host 10." not in run.err


@pytest.mark.slow
def test_a_tunnel_that_breaks_is_reopened(master, testbed):
    """The run goes on where it was, and loses nothing."""
    slow = {**NAP, "container": {"command": ["sleep", "0.3"]}}
    reach = (
        "-i",
        master.inventory,
        "--known-hosts",
        master.known_hosts,
        *master.ports,
        "--tunnel",
        "--only",
        "blade-1",
        "--progress",
        "chars",
    )
    program, stats = master.start_run(master.scenario(job=slow, iterations=24, timeout="5s"), *reach, workers=0)
    program.wait_for_output("has joined", LONG_END_S)
    wait_until(lambda: "." in program.err.split("has joined")[1], ANSWER_S, "no job is done")
    assert testbed.cut_connections(1) >= 1
    run = master.finish(program, stats, seconds=LONG_END_S)
    assert "the tunnel to blade-1 broke" in run.err
    assert run.outcomes() == {"done": 24}


@pytest.mark.parametrize("sign", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_aborted_run_ends_its_workers(master, testbed, sign):
    """Whether they are being started or at work."""
    reach = ("-i", master.inventory, "--known-hosts", master.known_hosts, *master.ports)
    slow = {**NAP, "container": {"command": ["sleep", "1"]}}
    for when in ("starting blade-2", "has joined"):
        program, _ = master.start_run(master.scenario(job=slow, iterations=50), *reach, workers=0)
        program.wait_for_output(when, LONG_END_S)
        program.process.send_signal(sign)
        ended = program.wait_for_exit()
        assert ended.status == 130, ended.err
        assert testbed.processes() == []


@pytest.mark.slow
def test_workers_of_a_run_end_when_its_master_is_killed(master, testbed):
    """Within their lease, and without a word from anybody."""
    reach = ("-i", master.inventory, "--known-hosts", master.known_hosts, *master.ports)
    chars = ("--progress", "chars")
    program, _ = master.start_run(master.scenario(job=NAP, iterations=10**6), *reach, *chars, workers=0)
    program.wait_for_output("has joined", LONG_END_S)
    # Only a worker that was welcomed has a lease; one that waits is patient.
    wait_until(lambda: "....." in program.err, LONG_END_S, "the run has not begun")
    program.process.kill()
    wait_until(lambda: testbed.processes() == [], START_S, "the workers are still there")


@pytest.mark.slow
def test_the_doctor_checks_all_hosts(master, testbed):
    """The findings of each host and their differences; a host that cannot be checked makes the exit code 3."""
    ended = master.fleet("doctor", "--format", "json")
    result = json.loads(ended.out)
    assert {name: row["environment"] for name, row in result["hosts"].items()} == {
        "blade-1": "bare-metal",
        "blade-2": "hypervisor",
    }
    assert result["failed"] == {}
    assert "native" in result["hosts"]["blade-1"]["engines"]
    assert result["hosts"]["blade-2"]["facts"]["hostname"] == "blade-2"
    assert "hostname" not in {row["name"] for row in result["differences"]}, (
        "that tells hosts apart, and nothing else"
    )
    label = {"engines": {"mine": f"crun:{master.folder}/none"}}
    master.inventory = testbed.inventory(master.folder / "labels.yaml", blade_1=label)
    scenario = master.scenario(engines=["mine"], job={**NAP, "container": {"rootfs": "/", "command": ["true"]}})
    hosts = json.loads(master.fleet("doctor", "-f", scenario, "--format", "json", status=3).out)["hosts"]
    told = {
        name: [one["finding"] for one in row["findings"] if one["check"] == "engine"] for name, row in hosts.items()
    }
    assert [f"{master.folder}/none" in text for text in told["blade-1"]] == [True]
    assert told["blade-2"] == ["mine: this host has no engine under this label"]
    master.inventory = testbed.inventory(master.folder / "bad.yaml", blade_2={"port": 2})
    ended = master.fleet("doctor", status=3)
    assert "blade-2: check failed: " in ended.out
    assert "blade-1 (bare-metal): " in ended.out


def test_impossible_plans_are_refused_before_anything_is_started(master, testbed):
    """An environment that no host is of, a loopback that none reaches, --insecure."""
    for flags, why, environments in (
        ((), "no host has the environment 'control'", ["control"]),
        (("--zmq-bind-ip", "127.0.0.1"), "blade-1 cannot reach this machine's loopback", ["bare-metal"]),
        (("--insecure",), "the workers of an inventory always have keys", ["bare-metal"]),
    ):
        scenario = master.scenario(job=NAP, environments=environments)
        reach = ("-i", master.inventory, "--known-hosts", master.known_hosts, *master.ports)
        ended = master.refused("run-scenario", "-f", scenario, *reach, *flags, "--workers", 0)
        assert why in ended.err
        assert "connecting" not in ended.err


def test_a_key_that_was_revoked_is_not_delivered_again(master):
    """The host that it belongs to fails, with what to do."""
    for name in ("blade-1", "blade-2"):
        assert master.master("keygen", "--worker", name).status == 0
    assert master.master("keygen", "--revoke", "blade-2").status == 0
    rows = master.rows(master.fleet("start", *master.control, status=3))
    assert rows["blade-1"][2] == "started"
    assert "not on the allow-list" in rows["blade-2"][3]


def test_a_worker_that_cannot_run_is_reported_with_its_last_output(master, testbed):
    """Wrong arguments, for example: the table has the worker's own error."""
    master.inventory = testbed.inventory(
        master.folder / "x.yaml", blade_1={"env": {"PYTHONPATH": "/no"}}, blade_2=None
    )
    assert master.rows(master.fleet("start", *master.control))["blade-1"][2] == "started"
    broken = testbed.home(1) / "broken"
    master.inventory = testbed.inventory(
        master.folder / "y.yaml", blade_1={"env": {"PYTHONPATH": "/root/broken"}}, blade_2=None
    )
    try:
        (broken / "zmq").mkdir(parents=True)
        (broken / "zmq" / "__init__.py").write_text("raise SystemExit('this zmq is broken')\n")
        # A worker whose interpreter is not there within ten seconds is taken for one that has started.
        rows = undisturbed(lambda: master.rows(master.fleet("start", *master.control, status=3)))
    finally:
        shutil.rmtree(broken)
    assert "the worker exited at once" in rows["blade-1"][3]
    assert "this zmq is broken" in rows["blade-1"][3]


@contextlib.contextmanager
def small_disk(testbed, number, place, size):
    """Mount a file system of its own at a place below a blade's home; give the place as it is seen from here."""
    outer = psutil.Process(int((testbed.folder / "bed" / f"blade-{number}" / "pid").read_text()))
    (first, *_) = wait_until(outer.children, ANSWER_S, "the blade's first process")
    inside = ["nsenter", "-t", str(first.pid), "-m", "-p", "--"]
    options = ["-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs"]
    for command in (["mkdir", "-p", f"/root/{place}"], ["mount", *options, f"/root/{place}"]):
        subprocess.run([*inside, *command], capture_output=True, timeout=ANSWER_S, check=True)
    try:
        yield Path(f"/proc/{first.pid}/root/root/{place}")
    finally:
        command = [*inside, "umount", "-l", f"/root/{place}"]
        subprocess.run(command, capture_output=True, timeout=ANSWER_S, check=False)


@pytest.mark.slow
def test_a_host_without_room_is_named_and_keeps_no_half_of_an_installation(master, testbed):
    """The other host has its worker; there is none on the full one, and no part of a wheel or an environment."""
    with small_disk(testbed, 2, HOME, "2m") as seen:
        ended = master.fleet("start", *master.control, status=3)
        rows = master.rows(ended)
        assert rows["blade-1"][2] in {"started", "running"}
        assert rows["blade-2"][2] == "failed"
        assert "No space left on device" in " ".join(rows["blade-2"])
        kept = [path.relative_to(seen) for path in seen.rglob("*") if path.is_file()]
        assert [path for path in kept if path.suffix == ".part" or path.parts[0] == "venvs"] == []
    ended = master.fleet("start", *master.control)
    assert master.rows(ended)["blade-2"][2] == "started"


def test_a_worker_whose_log_has_no_room_runs_its_jobs_to_the_end(master, testbed):
    """What it would say is lost, and nothing else: each job is done once, and the worker ends when it is told to."""
    with small_disk(testbed, 2, f"{HOME}/logs", "64k") as seen:
        master.fleet("start", *master.control, "-v")
        with contextlib.suppress(OSError), (seen / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 10))
        run = master.run_fleet(master.scenario(environments=["bare-metal", "hypervisor"], iterations=20, job=NAP))
        assert run.outcomes() == {"done": 40}
        assert {job["attempt"] for job in run.jobs} == {0}
        master.fleet("stop")
    assert testbed.processes() == []


@pytest.mark.slow
def test_a_wheel_that_was_altered_on_a_host_is_refused_and_replaced(master, testbed):
    """It is never installed: the host removes it and gets it again."""
    folder = testbed.home(2) / HOME
    master.fleet("start", *master.control)
    master.fleet("stop")
    shutil.rmtree(folder / "venvs")
    (altered,) = (folder / "wheels").glob("*/weighbridge-*.whl")
    before = altered.read_bytes()
    altered.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    ended = master.fleet("start", *master.control)
    assert master.rows(ended)["blade-2"][2] == "started"
    assert altered.read_bytes() == before


def test_nothing_stays_on_hosts_that_are_purged(master, testbed):
    """Workers end, and keys, logs and all that was installed go with them. (The last to use what is installed.)"""
    master.fleet("start", *master.control)
    assert (testbed.home(1) / ".local/share/weighbridge/keys/blade-1.key").exists()
    ended = master.rows(master.fleet("stop", "--purge"))
    assert {row[2] for row in ended.values()} == {"ended"}
    assert testbed.processes() == []
    for number in (1, 2):
        home = testbed.home(number)
        assert [path for path in home.rglob("*") if path.is_file()] == [home / PIP_CONFIG]


@pytest.mark.slow
@pytest.mark.docker
def test_the_recipe_of_the_cookbook(master, testbed):
    """Its command runs as it is written, with the testbed's addresses and, beside other tests, ports of its own."""
    require_images("weighbridge/base", "weighbridge/sysbench").close()
    (given,) = blocks(COOKBOOK, "inventory")
    written = yaml.safe_load(given.astext())
    ours = yaml.safe_load(master.inventory.read_text())
    environments = {name: host["environment"] for name, host in ours["hosts"].items()}
    assert {name: host["environment"] for name, host in written["hosts"].items()} == environments
    assert written["defaults"] == {"user": "root"}
    (command,) = [block.astext() for block in blocks(COOKBOOK, "fleet") if "full" not in block["classes"]]
    words = shlex.split(command)
    assert words[:2] == ["bench-master", "run-scenario"]
    keys = master.folder / "home" / ".ssh"
    keys.mkdir()
    shutil.copy(testbed.known_hosts, keys / "known_hosts")
    words[words.index("hosts.yaml")] = master.inventory
    ended = master.master(*words[1:], *master.ports, seconds=LONG_END_S)
    assert ended.status == 0, ended.err
    # One table of both environments, or where it is too wide for a page one of each.
    assert ended.out.count("the baseline") % 2 == 0
    assert {"bare-metal", "hypervisor"} <= set(re.findall(r"bare-metal|hypervisor", ended.out))
