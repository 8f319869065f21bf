"""hosts.yaml: ranges, groups and defaults, jump hosts, and every mistake with its location."""

import pytest
from documents import ROOT, rows

from bench_common.errors import ScenarioError, UsageError
from bench_features.fleet.fleet import launcher_class
from bench_features.fleet.hosts import expand
from bench_features.fleet.inventory import load_inventory, parse_inventory

LAUNCHERS = ("local", "ssh")


def read(text):
    """Return the hosts of an inventory by name."""
    return {host.name: host for host in parse_inventory(text, "hosts.yaml", LAUNCHERS).hosts}


def problems(text):
    """Return the problems of an inventory as a user sees them."""
    with pytest.raises(ScenarioError) as caught:
        parse_inventory(text, "hosts.yaml", LAUNCHERS)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("blade", ["blade"]),
        ("blade[01-03]", ["blade01", "blade02", "blade03"]),
        ("blade[9-11]", ["blade9", "blade10", "blade11"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
        ("10.0.0.[7]", ["10.0.0.7"]),
    ],
)
def test_a_range_stands_for_names(text, names):
    """In order, with the width of the first number where that begins with a zero."""
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [("b[3-1]", "runs backwards: write [1-3]"), ("b[]", "expected numbers"), ("b[1-9][1-999]", "8991 names")],
)
def test_a_range_that_makes_no_sense_is_refused(text, why):
    """The message says what is wrong, and what to write where that is clear."""
    with pytest.raises(ValueError, match=r".") as caught:
        expand(text)
    assert why in str(caught.value)


def test_a_host_that_is_only_named_has_the_defaults():
    """Its address is its name, port 22, one worker, started over SSH."""
    host = read("hosts:\n  blade-1:\n")["blade-1"]
    assert (host.login.address, host.login.port, host.login.user, host.login.keys) == ("blade-1", 22, None, ())
    assert (host.workers, host.concurrency, host.launcher, host.environment) == (1, 64, "ssh", None)
    assert host.worker_names == ("blade-1",)


def test_more_specific_settings_take_precedence():
    """The host's own, then its later group's, then the earlier one's, then the defaults; mappings are merged."""
    host = read(
        """
defaults: {user: bench, concurrency: 8, labels: {site: a, row: "1"}, env: {TMPDIR: /t}}
groups:
  esx: {environment: hypervisor, concurrency: 4, labels: {row: "2"}}
  big: {concurrency: 16, workers: 2}
hosts:
  blade: {groups: [esx, big], labels: {rack: "7"}, user: me}
"""
    )["blade"]
    assert (host.login.user, host.environment, host.concurrency, host.workers) == ("me", "hypervisor", 16, 2)
    assert host.labels == {"site": "a", "row": "2", "rack": "7"}
    assert host.env == {"TMPDIR": "/t"}
    assert host.worker_names == ("blade-1", "blade-2")


def test_names_and_addresses_run_in_step():
    """The first name has the first address."""
    hosts = read("hosts:\n  blade[01-03]:\n    address: 10.0.0.[11-13]\n")
    assert {name: host.login.address for name, host in hosts.items()} == {
        "blade01": "10.0.0.11",
        "blade02": "10.0.0.12",
        "blade03": "10.0.0.13",
    }


def test_where_services_are_reached_runs_in_step_too():
    """An IPv6 address may have the brackets that it has before a port; without any setting it is None."""
    hosts = read(
        "hosts:\n  b[1-2]: {address: 'fd00::[11-12]', services_address: '10.0.0.[1-2]', master: '[fd00::1]'}\n"
        "  c: {address: '[fd00::c]', services_address: '[FD00:0::c]'}\n  d:\n"
    )
    assert [(host.login.address, host.services_address) for host in hosts.values()] == [
        ("fd00::11", "10.0.0.1"),
        ("fd00::12", "10.0.0.2"),
        ("fd00::c", "fd00::c"),
        ("d", None),
    ]
    assert hosts["b1"].master == "fd00::1"


def test_a_login_goes_through_jump_hosts():
    """A jump host of the inventory has its own login and jump host; another one is written out."""
    hosts = read(
        """
defaults: {user: bench}
hosts:
  gate: {address: 192.0.2.1, port: 2222, user: door, jump: "root@outer:2200"}
  blade: {jump: gate}
"""
    )
    login = hosts["blade"].login
    assert (login.jump.address, login.jump.port, login.jump.user) == ("192.0.2.1", 2222, "door")
    assert (login.jump.jump.address, login.jump.jump.port, login.jump.jump.user) == ("outer", 2200, "root")
    assert hosts["gate"].login.jump == login.jump.jump


def test_a_group_whose_jump_host_is_one_of_it():
    """The jump host itself is reached directly."""
    hosts = read("groups: {in: {jump: gate}}\nhosts:\n  gate: {groups: [in]}\n  blade: {groups: [in]}\n")
    assert hosts["gate"].login.jump is None
    assert hosts["blade"].login.jump.address == "gate"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts:\n  b:\n    prot: 22\n", "hosts.yaml:3:5: unknown key 'prot' in the host (did you mean 'port'?)"),
        ("hosts:\n  b:\n    port: 99999\n", "hosts.yaml:3:11: '99999': expected a whole number, at least 1 and at"),
        ("hosts:\n  b:\n    launcher: shh\n", "hosts.yaml:3:15: unknown launcher 'shh' (did you mean 'ssh'?)"),
        ("hosts:\n  b: {groups: [esk]}\ngroups: {esx: }\n", "hosts.yaml:2:16: no group 'esk' (did you mean 'esx'?)"),
        ("hosts:\n  b[1-3]: {address: 10.0.0.1}\n", "hosts.yaml:2:21: 1 addresses for the 3 hosts of 'b[1-3]': each"),
        (
            "hosts:\n  b: {services_address: b.net}\n",
            "hosts.yaml:2:25: 'b.net': expected the IP address of a host, such",
        ),
        ("hosts:\n  b[1-3]: {services_address: '10.0.0.[1-2]'}\n", "hosts.yaml:2:30: 2 addresses for the 3 hosts of"),
        ("hosts:\n  b: {master: '10.0.0.1:80'}\n", "hosts.yaml:2:15: '10.0.0.1:80': expected a host name or IP"),
        ("hosts:\n  b[3-1]:\n", "hosts.yaml:2:3: range [3-1] runs backwards: write [1-3]"),
        ("hosts:\n  b1:\n  b[1-2]:\n", "hosts.yaml:3:3: host 'b1' is already defined on line 2: remove one"),
        (
            "hosts:\n  b: {workers: 2}\n  b-1:\n",
            "hosts.yaml:3:3: worker 'b-1' of host 'b-1' already belongs to host 'b'",
        ),
        ("hosts:\n  a: {jump: b}\n  b: {jump: a}\n", "hosts.yaml:3:13: jump hosts form a loop: a -> b -> a"),
        ("hosts:\n  a: {jump: 'x:y'}\n", "hosts.yaml:2:13: 'x:y': expected a host of this inventory, or [user@]add"),
        ("hosts: {}\n", "hosts.yaml:1:8: empty; expected hosts by name"),
        ("defaults: {}\n", "hosts.yaml:1:1: key 'hosts' is missing in the inventory: the hosts"),
        ("", "hosts.yaml:1:1: the file is empty; an inventory has at least 'hosts'"),
        ("- a\n", "hosts.yaml:1:1: an inventory is a mapping of keys to values, not a list"),
        (
            "hosts: {a: }\n---\n",
            "hosts.yaml:2:1: a second document starts here; an inventory is",
        ),
        ("hosts:\n  a:\n  a:\n", "hosts.yaml:3:3: key 'a' appears twice (first on line 2): remove one"),
    ],
)
def test_a_mistake_is_reported_with_its_location(text, message):
    """File, line and column, the value, and what was expected or meant."""
    assert any(line.startswith(message) for line in problems(text)), problems(text)


def test_all_mistakes_are_reported_at_once():
    """One round of corrections is enough."""
    assert len(problems("hosts:\n  a: {port: x}\n  b: {user: 'a b'}\n  c: {tunnel: yes}\n")) == 3


def test_some_hosts_are_chosen_by_name_range_and_group():
    """In the order of the file; a name that selects no host is refused, with the nearest name."""
    inventory = parse_inventory("groups: {esx: }\nhosts:\n  b[1-4]:\n  c: {groups: [esx]}\n", "hosts.yaml", LAUNCHERS)
    assert [host.name for host in inventory.select(["esx", "b[2-3]"]).hosts] == ["b2", "b3", "c"]
    assert inventory.select([]) == inventory
    with pytest.raises(UsageError, match=r"--only exx: .* 'exx' .*did you mean 'esx'"):
        inventory.select(["exx"])


def test_a_file_that_is_not_there(tmp_path):
    """The message names it and where to read on."""
    with pytest.raises(UsageError, match=r"hosts\.yaml: No such file.*docs/fleet\.rst"):
        load_inventory(tmp_path / "hosts.yaml")


FLEET = ROOT / "docs" / "fleet.rst"


def test_the_table_of_launchers_is_what_is_there():
    """Each launcher with its settings."""
    for name, _, settings in rows(FLEET, "launcher", "starts a worker as"):
        listed = [] if settings == "none" else settings.split(", ")
        assert listed == list(launcher_class(name).settings)


def test_the_example_of_the_documentation_is_an_inventory():
    """Its hosts are those that the text around it speaks of."""
    text = FLEET.read_text("utf-8").split("``hosts.yaml``::\n")[1].split("One command")[0]
    hosts = read("\n".join(line[3:] for line in text.splitlines()))
    assert len(hosts) == 8
    assert (hosts["guest2"].login.jump.address, hosts["guest2"].login.jump.user) == ("gate.example.org", "bench")
    assert hosts["blade03"].login.address == "10.0.0.13"
