"""The three environments for real: one scenario on bare metal, a hypervisor's virtual machine and a control one.

The machines are emulated where KVM does not work, and their figures mean nothing then: the tests check that the
comparison is made, of the right hosts, and that nothing is left. Every test here is slow. On two idle cores, making
the machines took two and a half minutes, restoring them and starting the workers one and a half, the scenario one
and a half, and a run that imports everything again two. None of that is waiting: two emulated processors each keep
both cores busy, so other tests beside it would only take longer.
"""

import json
import subprocess

import pytest
from blades import Testbed
from deadlines import END_S, SLOW_BUILD_S, SLOW_TEST_S, wait_until
from workspace import Workspace, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.alone, pytest.mark.timeout(SLOW_TEST_S)]

KINDS = {"blade-1": "bare-metal", "hypervisor": "hypervisor", "control": "control"}
OPERATIONS = ("job", "run", "stop", "remove")
ENGINE_GROUP = "/engine"
"""The control group of the engine in a virtual machine."""
PATIENCE = "120s"
"""How long one operation on a container may take there."""


@pytest.fixture(scope="module")
def testbed():
    made = Testbed("--vms", "--blades", "1", limit_s=SLOW_BUILD_S)
    yield made
    folder = made.folder
    made.close()
    left = subprocess.run(["pgrep", "-f", f"qemu-system.*{folder}"], capture_output=True, text=True, check=False)
    assert left.stdout == "", "a virtual machine outlived the testbed"
    assert not folder.exists()


class Estate(Workspace):
    """Runs commands on a testbed with virtual machines, whose workers are started once: `begin` has them work."""

    def __init__(self, folder, testbed):
        super().__init__(folder)
        self.testbed = testbed
        self.environ["XDG_CACHE_HOME"] = str(testbed.cache)
        control, results, work = free_ports(3)
        self.reach = ("-i", testbed.folder / "bed/hosts.yaml", "--known-hosts", testbed.known_hosts)
        self.control = ("--zmq-control-port", control)
        self.ports = (*self.control, "--zmq-results-port", results, "--zmq-work-port", work)

    def sockets(self):
        """Start all workers and wait until each has its engine.

        Beside other work an emulated machine may be too slow to agree on keys, or its engine to tell its version, in
        the time that a worker and a master have for it; the second time what they need is compiled.
        """
        start = ("fleet", "start", *self.reach, *self.control)
        wait_until(
            lambda: self.master(*start, seconds=SLOW_BUILD_S).status == 0, SLOW_BUILD_S, "not all workers start"
        )
        wait_until(self.all_usable, SLOW_BUILD_S, "not all workers have their engine")

    def all_usable(self):
        """Return whether each worker is heard and has Docker; each that is heard looks at its engines again."""
        listen = ("fleet", "list", "-i", self.reach[1], *self.ports[:4], "--wait", 15, "--format", "json")
        rows = json.loads(self.master(*listen).out)
        return all("docker" in row["engine_versions"] for row in rows)

    def dismiss(self):
        """End all workers; nothing of them is left on any host."""
        logs = self.folder / "logs"
        self.master("fleet", "logs", *self.reach, "-d", logs, seconds=SLOW_BUILD_S)
        message = "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(logs.glob("*.log")))
        ended = self.master("fleet", "stop", *self.reach, seconds=SLOW_BUILD_S)
        assert ended.status == 0, ended.out + ended.err
        assert [row.split("\t")[2] for row in ended.out.splitlines()[1:]] == ["ended"] * 3, f"{ended.out}{message}"
        assert self.testbed.processes() == []
        for host in ("hypervisor", "control"):
            assert self.on(host, "docker ps --all --quiet; pgrep -f bench_worke[r] || true") == ""

    def begin(self, scenario, *flags):
        """Begin a run on the workers that are there; emulated, they need a while to import what they use."""
        return self.start_run(scenario, *self.reach, *self.ports, "--worker-timeout", "300s", *flags, workers=0)

    def on(self, host, command):
        """Run a command on a virtual machine and return what it says."""
        where = self.testbed.ssh(host)
        return subprocess.check_output([*where, command], text=True, timeout=END_S, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def estate(testbed, tmp_path_factory):
    with Estate(tmp_path_factory.mktemp("estate"), testbed) as made:
        made.sockets()
        yield made
        made.dismiss()


def test_one_scenario_in_three_environments(estate):
    """Workers start over SSH, containers run, stop and go in turn in all three, and the report compares them.

    In the machines the engine is in a group of its own of cgroup version 2, whose memory and CPU time are told; this
    one's engine is in no such group, of which the report warns.
    """
    scenario = estate.scenario(
        engines=["docker"],
        environments=list(KINDS.values()),
        repeats=3,
        iterations=1,
        timeout=PATIENCE,
        overhead={"cgroups": {"docker": ENGINE_GROUP}},
        job={
            "operations": ["run", {"stop": "5s"}, "remove"],
            "container": {
                "image": "weighbridge/base",
                "command": ["sleep", "600"],
                "network": "none",
                "init": True,
            },
        },
    )
    run = estate.finish(*estate.begin(scenario), seconds=SLOW_BUILD_S)
    assert run.outcomes() == {"done": 9}
    assert {(job["worker"], job["treatment"]["environment"]) for job in run.jobs} == set(KINDS.items())
    trials = sorted({(job["trial"], job["treatment"]["environment"]) for job in run.jobs})
    blocks = [{kind for _, kind in trials[at : at + 3]} for at in (0, 3, 6)]
    assert blocks == [set(KINDS.values())] * 3, "not interleaved"
    assert {row["host"] for row in run.document["hosts"]} == set(KINDS)
    beside = {row["treatment"]["environment"]: row for row in run.document["treatments"]}
    assert set(beside) == set(KINDS.values())
    assert beside["bare-metal"]["overhead"] is None
    assert any(f"no control group {ENGINE_GROUP}" in warning for warning in run.document["warnings"])
    for kind in ("hypervisor", "control"):
        overhead = beside[kind]["overhead"]
        assert overhead["cpu_s"] > 0
        memory = overhead["cgroup_bytes"]
        # No engine takes less; and it is neither the machine's memory nor that of the containers alone.
        assert 30 << 20 < memory["min"] <= memory["mean"] <= memory["max"] < 600 << 20
        shown = int(estate.on(kind, f"cat /sys/fs/cgroup{ENGINE_GROUP}/memory.current"))
        assert 0.3 * shown < memory["max"] < 1.5 * shown
    for kind, row in beside.items():
        assert {name: cell["n"] for name, cell in row["operations"].items()} == dict.fromkeys(OPERATIONS, 3)
        assert kind in run.details
