"""A server on one blade, its client on the other: over a network between two hosts, open and with a firewall."""

import subprocess

import pytest
from deadlines import END_S
from service_runs import outputs_of, require_tools
from test_fleet import FleetMaster, testbed  # noqa: F401  a fixture

pytestmark = pytest.mark.slow

AB = {"workload": "ab", "params": {"requests": 200}, "services": {"webbench": {"placement": "hypervisor"}}}


@pytest.fixture
def master(testbed, tmp_path):  # noqa: F811
    require_tools("ab", "apache2", "php")
    with FleetMaster(tmp_path, testbed) as made:
        yield made
        made.fleet("stop", "-q")
    assert testbed.processes() == []


def test_ab_on_one_blade_and_its_web_server_on_the_other(master, testbed):  # noqa: F811
    """Each answer came from the other blade's own address, and the report says which."""
    scenario = master.scenario(engines=["native"], environments=["bare-metal"], job=AB, repeats=2)
    run = master.run_fleet(scenario)
    assert run.outcomes() == {"done": 2}
    outputs = outputs_of(run)
    for job in run.jobs:
        assert job["worker"] == "blade-1"
        assert job["metrics"]["requests"] == 200
        assert f"Server Hostname:        {testbed.address(2)}".encode() in outputs[job["id"], "run"].stdout
    text = f"webbench of jobs on worker blade-1 ran on worker blade-2 (hypervisor), reached at {testbed.address(2)}"
    assert text in run.details
    for number in (1, 2):
        assert not [*testbed.home(number).parent.glob("**/weighbridge-native-0/wb-*")]


def test_the_database_of_the_ready_made_scenario_is_on_the_other_blade(master):
    """MariaDB beside its client and across the network, as ``remote-database`` compares them."""
    require_tools("sysbench", "mariadbd")
    sizes = ("--set", "scale=small", "--set", "engines=[native]", "--set", "environments=[bare-metal]")
    places = ("--set", "matrix.services.mariadb.placement=[bare-metal, hypervisor]")
    run = master.run_fleet("remote-database", *sizes, *places)
    assert run.outcomes() == {"done": 2}


def test_a_firewall_between_the_blades_is_a_failed_job(master, testbed):  # noqa: F811
    """The server is ready on its own host and unreachable from the client: the error says so, before ab fails."""
    rule = ("-p", "tcp", "-s", testbed.address(1), "--syn", "-j", "REJECT")
    space = (testbed.folder / "bed" / "blade-2" / "pid").read_text().strip()

    def firewall(action):
        command = ["nsenter", "--net", "--target", space, "iptables", "-w", action, "INPUT", *rule]
        subprocess.run(command, check=True, timeout=END_S)

    firewall("-I")
    try:
        run = master.run_fleet(master.scenario(engines=["native"], environments=["bare-metal"], job=AB), status=3)
    finally:
        firewall("-D")
    (job,) = run.jobs
    assert (job["outcome"], job["error"]["operation"], job["error"]["kind"]) == ("failed", "webbench", "service")
    message = job["error"]["message"]
    assert f"webbench is ready at 'hypervisor', but is not reached from here at {testbed.address(2)}:" in message
    assert "refused" in message
