"""Masters, workers and services that are reached over IPv6: on the loopback, and between two hosts of a fleet."""

import socket
import subprocess

import pytest
from busybox_image import skip_or_fail
from deadlines import END_S, LONG_END_S, wait_until
from service_runs import left_behind, outputs_of, require_tools
from test_fleet import testbed  # noqa: F401  a fixture
from test_fleet_services import master  # noqa: F401  a fixture
from test_run_tcp import Wire
from workspace import require_images

TRUE = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"]}}
AB = {"workload": "ab", "params": {"requests": 300, "concurrency": 2}}
HERE = ("--zmq-bind-ip", "[::1]", "--insecure")


@pytest.fixture(scope="module", autouse=True)
def ipv6():
    """A machine without IPv6 has nothing to show here."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        skip_or_fail(f"this machine has no IPv6 ({error})")


@pytest.fixture
def wire():
    return Wire()


def test_a_worker_reaches_its_master_over_ipv6(workspace, wire):
    """However the address is written; what is shown to be typed has no brackets either."""
    workspace.start("bench-worker", *wire.worker, "--zmq-host", "[::1]", "--insecure", "--allow-native", "by-hand")
    run = workspace.run(workspace.scenario(job=TRUE, operation_count=4), *wire.run, *HERE, workers=0)
    assert run.outcomes() == {"done": 4}
    assert {job["worker"] for job in run.jobs} == {"by-hand"}
    assert f"bench-worker --zmq-host ::1 --zmq-control-port {wire.control} --insecure" in run.err


@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("--zmq-host", "[::1]:13577", "'[::1]:13577': expected a host name or IP address"),
        ("--address", "blade-1", "'blade-1': expected the IP address of a host, such as 10.0.0.5 or fd00::5"),
        ("--address", "fe80::1", "'fe80::1': link-local address: other hosts cannot reach it"),
    ],
)
def test_a_bad_address_is_refused_before_anything_is_started(workspace, flag, value, why):
    """With exit code 2, the option and what was expected."""
    ended = workspace.start("bench-worker", "--zmq-host", "::1", flag, value).wait_for_exit(END_S)
    assert ended.status == 2
    assert f"argument {flag}: {why}" in ended.err


@pytest.mark.docker
def test_services_are_lent_at_an_ipv6_address(workspace, wire, open_folder):
    """Published by Docker at it, in the host's network, and as a process: a URL has it in brackets."""
    require_tools("ab", "apache2", "php", "mariadbd", "sysbench")
    client = require_images(*(f"weighbridge/{name}" for name in ("ab", "webbench", "mariadb", "sysbench")))
    workspace.environ["TMPDIR"] = str(open_folder)
    there = {"placement": "lender"}
    oltp = {"test": "read_only", "tables": 1, "table_size": 500, "time": "1s", "buffer_pool_size": "16MiB"}
    scenario = workspace.scenario(
        jobs={
            "published": {**AB, "services": {"webbench": there}, "engines": ["docker", "docker-cli", "native"]},
            "host": {**AB, "services": {"webbench": {**there, "network": "host"}}, "engines": ["docker"]},
            "oltp": {
                "workload": "sysbench-oltp",
                "params": oltp,
                "services": {"mariadb": {**there, "network": "host"}},
                "engines": ["docker", "native"],
            },
        },
        container={"network": "host"},
    )
    for name, words in {"lender": ("--environment", "remote", "--address", "[::1]"), "client": ()}.items():
        reach = (*wire.worker, "--zmq-host", "::1", "--insecure", "--allow-native")
        workspace.start("bench-worker", *reach, *words, name)
    try:
        run = workspace.run(scenario, *wire.run, *HERE, "--expect", 2, workers=0, seconds=LONG_END_S)
        assert run.outcomes() == {"done": 6}
        outputs = outputs_of(run)
        for job in run.jobs:
            assert job["worker"] == "client"
            message = outputs[job["id"], "run"].stdout
            if "requests" in job["metrics"]:
                assert b"Server Hostname:        ::1" in message
        assert "ran on worker lender (remote), reached at ::1" in run.details
        assert left_behind(client, workspace, run) == []
        assert [*next(open_folder.glob("weighbridge-native-*")).iterdir()] == []
    finally:
        client.close()


class SixthTestbed:
    """A testbed whose blades, and this machine, have IPv6 addresses beside those of IPv4."""

    def __init__(self, testbed):  # noqa: F811
        self._testbed = testbed
        bed = testbed.folder / "bed"
        self.prefix = f"fd78:{int(testbed.subnet.rpartition('.')[2]):x}"
        known = []
        for number in (1, 2):
            space = (bed / f"blade-{number}" / "pid").read_text().strip()
            add = ["ip", "-6", "addr", "add", f"{self.address(number)}/64", "dev", "eth0", "nodad"]
            subprocess.run(["nsenter", "--net", "--target", space, *add], check=True, timeout=END_S)
            known.append(f"{self.address(number)} {(bed / f'blade-{number}' / 'host_key.pub').read_text()}")
        devices = subprocess.check_output(["ip", "-br", "-4", "addr"], text=True).splitlines()
        (here,) = [line.split()[0] for line in devices if f" {testbed.subnet}.1/" in line]
        device = here.partition("@")[0]
        subprocess.run(["ip", "-6", "addr", "add", f"{self.prefix}::1/64", "dev", device, "nodad"], check=True)
        self.known_hosts = testbed.folder / "known_hosts_6"
        self.known_hosts.write_text("".join(known))

    def address(self, number):
        """Return where a blade is."""
        return f"{self.prefix}::{10 + number}"

    def inventory(self, path, **hosts):
        """Write an inventory in which every host is known by its IPv6 address."""
        for number in (1, 2):
            name = f"blade_{number}"
            hosts[name] = {"address": self.address(number), **hosts.get(name, {})}
        return self._testbed.inventory(path, **hosts)


@pytest.mark.slow
def test_a_fleet_over_ipv6_lends_services_at_the_hosts_addresses(master, testbed):  # noqa: F811
    """SSH, masters and services go over IPv6 alike; what the inventory says of services goes first."""
    sixth = SixthTestbed(testbed)
    master.inventory = sixth.inventory(master.folder / "six.yaml")
    master.known_hosts = sixth.known_hosts
    started = master.fleet("start", *master.control)
    assert f"master {sixth.prefix}::1" in started.out

    def result():
        """Return what each worker was told; a command line ends with the worker's name and an end."""
        found = [words for words in testbed.processes() if "--address" in words]
        return {words[-2]: words[words.index("--address") + 1] for words in found}

    assert result() == {"blade-1": sixth.address(1), "blade-2": sixth.address(2)}
    job = {**AB, "services": {"webbench": {"placement": "hypervisor"}}}
    scenario = master.scenario(engines=["native"], environments=["bare-metal"], job=job)
    run = master.run_fleet(scenario)
    assert run.outcomes() == {"done": 1}
    assert f"Server Hostname:        {sixth.address(2)}".encode() in outputs_of(run)[0, "run"].stdout
    assert f"reached at {sixth.address(2)}" in run.details
    master.inventory = sixth.inventory(master.folder / "four.yaml", blade_2={"services_address": testbed.address(2)})
    again = master.run_fleet(scenario)
    assert again.outcomes() == {"done": 1}
    assert f"Server Hostname:        {testbed.address(2)}".encode() in outputs_of(again)[0, "run"].stdout
    wait_until(lambda: "blade-2" not in result(), LONG_END_S, "the worker of that run has ended")
