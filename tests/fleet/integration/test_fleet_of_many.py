"""Sixteen hosts on one machine: installed over SSH in parallel, one run in three environments, and a second master.

Every host is a blade of `script/testbed`, with an address, an SSH server and a process tree of its own; the
environments hypervisor and control are labels of blades here, since nothing that is tested differs in a virtual
machine. (`test_environments.py` has real ones.) The blades' own pip has what is installed here as its index, on disk:
so what a host receives through its network is what the master sends.
"""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from blades import Testbed
from deadlines import BUILD_S, END_S, SLOW_TEST_S, wait_until
from workspace import Workspace, free_ports

from bench_features.fleet.wheels import PythonPlatform, Wheelhouse

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(SLOW_TEST_S)]

HOSTS = 16
KINDS = ("bare-metal", "hypervisor", "control")
ENVIRONMENTS = {f"blade-{number}": KINDS[number % 3] for number in range(1, HOSTS + 1)}
MAX_SENT_BYTES = 5_000_000
"""What a host that has Python and pip receives, everything counted: frames, handshakes, the worker's messages."""
PIP_CONFIG = Path(".config/pip/pip.conf")
REPEATS = 4


class Estate(Testbed):
    """Sixteen blades, each with a pip that finds everything but Weighbridge."""

    def __init__(self):
        super().__init__("--blades", str(HOSTS))
        pages = self.folder / "wheels"
        pages.mkdir()
        for wheel in Wheelhouse(self.cache / "weighbridge" / "wheels").bundle_for(PythonPlatform.current()).wheels:
            if not wheel.name.startswith("weighbridge"):
                (pages / wheel.name).symlink_to(wheel.path)
        for number in range(1, HOSTS + 1):
            path = self.home(number) / PIP_CONFIG
            path.parent.mkdir(parents=True)
            path.write_text(f"[global]\nno-index = true\nfind-links = {pages}\n")

    def hosts(self, path):
        """Write the inventory of all blades."""
        rows = {
            name: {"address": self.address(number), "environment": kind}
            for number, (name, kind) in enumerate(ENVIRONMENTS.items(), start=1)
        }
        wanted = {name.replace("-", "_"): row for name, row in rows.items()}
        self.index = True
        return self.inventory(path, **wanted)

    def received_bytes(self):
        """Return how many bytes each blade has received through its network card."""
        found = {}
        for number, name in enumerate(ENVIRONMENTS, start=1):
            command = ["ip", "netns", "exec", f"{self.tag}-b{number}", "cat", "/proc/net/dev"]
            table = subprocess.run(command, capture_output=True, text=True, check=True, timeout=END_S).stdout
            found[name] = int(re.search(r"eth0: *(\d+)", table)[1])
        return found

    def serving(self):
        """Return how many workers take part in a run."""
        records = ".local/share/weighbridge/workers/*.run"
        return sum(1 for number in range(1, HOSTS + 1) for _ in self.home(number).glob(records))

    def files(self):
        """Return the files in the home directories of all blades."""
        return [path for number in range(1, HOSTS + 1) for path in self.home(number).rglob("*") if path.is_file()]


class Master(Workspace):
    """A master with ports, keys and a cache of its own."""

    def __init__(self, folder, testbed):
        super().__init__(folder)
        self.environ["XDG_CACHE_HOME"] = str(testbed.cache)
        names = ("--zmq-control-port", "--zmq-results-port", "--zmq-work-port")
        # Each worker has a port for its work, and those that return another: they follow the first of them.
        own = free_ports(len(names) + 2 * HOSTS)[: len(names)]
        ports = [word for pair in zip(names, own, strict=True) for word in pair]
        self.reach = ("-i", testbed.hosts(folder / "hosts.yaml"), "--known-hosts", testbed.known_hosts)
        self.control, self.ports = ports[:2], ports


@pytest.fixture(scope="module")
def testbed():
    made = Estate()
    try:
        yield made
    finally:
        # Where a test has failed there are sixteen installations to delete.
        made.close(BUILD_S)
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True, timeout=END_S).stdout
    assert made.tag not in left
    assert made.processes() == []
    assert not made.folder.exists()


@pytest.fixture
def masters(tmp_path, testbed):
    """Two masters of this machine; whatever happens, their workers end."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with Master(tmp_path / "first", testbed) as first, Master(tmp_path / "second", testbed) as second:
        yield first, second
        if testbed.processes():
            first.master("fleet", "stop", "-q", *first.reach, seconds=BUILD_S)


def most_at_once(text):
    """Return on how many hosts at most an installation went on at the same time, by the lines of progress."""
    installing, most = set(), 0
    for line in text.splitlines():
        match = re.match(r" *[\d.]+ s  (blade-\d+) +(installing with|starting)", line)
        if match and match[2] == "starting":
            installing.discard(match[1])
        elif match:
            installing.add(match[1])
        most = max(most, len(installing))
    return most


def test_sixteen_hosts_in_three_environments(testbed, masters):
    """One command installs on all at once, sends little, runs everything interleaved, and leaves nothing behind.

    A second master that wants the same hosts meanwhile is told whose they are, and the first run loses nothing: its
    jobs wait until the second master has given up.
    """
    first, second = masters
    before, home, gate = testbed.received_bytes(), testbed.files(), testbed.folder / "gate"
    command = ["sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done"]
    job = {"operations": ["run", "wait", "remove"], "container": {"command": command}}
    scenario = first.scenario(job=job, environments=list(KINDS), repeats=REPEATS, iterations=4, timeout="10m")
    program, stats = first.start_run(scenario, *first.reach, *first.ports, workers=0)
    wait_until(lambda: testbed.serving() == HOSTS or program.process.poll() is not None, BUILD_S, "no run")
    assert program.process.poll() is None, program.err
    sent = {name: bytes_now - before[name] for name, bytes_now in testbed.received_bytes().items()}
    late = second.master("run-scenario", "-f", scenario, *second.reach, *second.ports, seconds=BUILD_S)
    started = second.master("fleet", "start", *second.reach, *second.control, seconds=BUILD_S)
    gate.touch()
    run = first.finish(program, stats)

    assert most_at_once(program.err) > HOSTS / 2, program.err
    assert {name: count for name, count in sent.items() if not 100_000 < count < MAX_SENT_BYTES} == {}, sent
    assert "so everything is sent" not in program.err

    assert set(run.outcomes()) == {"done"}
    assert {(job["worker"], job["treatment"]["environment"]) for job in run.jobs} == set(ENVIRONMENTS.items())
    assert not any(job["attempt"] for job in run.jobs)
    assert "worker-lost" not in {event["kind"] for event in run.blocks("event")}
    trials = sorted({(job["trial"], job["treatment"]["environment"]) for job in run.jobs})
    blocks = [{kind for _, kind in trials[at : at + 3]} for at in range(0, len(trials), 3)]
    assert blocks == [set(KINDS)] * REPEATS, "not interleaved"
    assert {row["host"] for row in run.document["hosts"]} == set(ENVIRONMENTS)
    beside = {row["treatment"]["environment"]: row["jobs"]["done"] for row in run.document["treatments"]}
    assert sorted(beside) == sorted(KINDS)
    assert sum(beside.values()) == len(run.jobs)
    assert all(kind in run.details for kind in KINDS)

    assert {late.status, started.status} == {3}, (late.err, started.err)
    whose = rf"serves run \w+ of \S+@\S+ \(process {program.process.pid}\) since \S+: wait for its end"
    for said in (late.err, started.out):
        assert set(re.findall(rf"worker (blade-\d+) {whose}", said)) == set(ENVIRONMENTS), said
    assert "they were left running" in late.err
    assert "Traceback" not in late.err + started.err + program.err

    assert testbed.processes() == []
    purged = first.master("fleet", "stop", "--purge", *first.reach, seconds=BUILD_S)
    assert purged.status == 0, purged.err
    assert Counter(row.split("\t")[2] for row in purged.out.splitlines()[1:]) == {"was not running": HOSTS}
    assert testbed.files() == home
