"""Engines under labels in an inventory: which the doctor checks on which host, and which a host lacks."""

from types import SimpleNamespace

import pytest

from bench_common.engine_traits import EngineLabel, use_engine_labels
from bench_common.errors import UsageError
from bench_features.fleet.host_checks import lacking_labels, with_labels
from bench_features.fleet.inventory import parse_inventory
from bench_features.fleet.launchers import local
from bench_features.fleet.launchers.base import HostProgress
from bench_features.fleet.launchers.local import LocalLauncher
from bench_master.commands.doctor import ScenarioNeeds
from bench_master.options.engines import use_labels_of

NEW = EngineLabel("new", "crun", "/opt/new")


@pytest.fixture(autouse=True)
def no_labels():
    yield
    use_engine_labels(())


def inventory(text):
    return parse_inventory(text, "hosts.yaml", ("local", "ssh"))


def test_a_label_of_the_command_line_is_checked_where_there_is_none():
    """A host's own place counts; without a place the label is only a name."""
    hosts = inventory("hosts: {a: {engines: {new: 'crun:/own'}}, b: {}}")
    made = with_labels(hosts, [NEW, EngineLabel("named", "runc")])
    assert [host.engine_flags for host in made.hosts] == [
        ("--engine", "new=crun:/own"),
        ("--engine", "new=crun:/opt/new"),
    ]
    assert with_labels(hosts, []) is hosts


def test_each_host_is_asked_with_its_own_labels(monkeypatch):
    """Whatever the query is."""
    asked = []
    monkeypatch.setattr(local, "query_worker", lambda *flags: asked.append(flags) or [])
    hosts = inventory("hosts: {a: {engines: {new: 'crun:/own'}}, b: {}}").hosts
    launcher = LocalLauncher(SimpleNamespace())
    launcher.query(hosts, HostProgress(), [("--doctor",), ("--list-engines",)])
    own = ("--engine", "new=crun:/own")
    assert sorted(asked) == sorted([("--doctor", *own), ("--list-engines", *own), ("--doctor",), ("--list-engines",)])


def test_a_host_without_a_label_of_the_scenario_is_unfit():
    """What to add to the inventory is told; engines that are no labels are the worker's own findings."""
    use_engine_labels([NEW])
    needs = ScenarioNeeds("s", frozenset({"new", "docker"}), frozenset())
    with_it, without = inventory("hosts: {a: {engines: {new: 'crun:/own'}}, b: {}}").hosts
    assert lacking_labels(with_it, needs) == []
    [problem] = lacking_labels(without, needs)
    assert (problem["level"], problem["value"]) == ("problem", "new")
    assert problem["advice"] == "add 'engines: {new: crun:PLACE}' to the host in the inventory"
    assert lacking_labels(without, None) == []


def test_a_label_cannot_be_two_engines():
    """The hosts of an inventory and the command line agree on what a label is."""
    with pytest.raises(UsageError, match="engine 'new' is a runc for host b, and a crun otherwise"):
        use_labels_of([NEW], [("host b", EngineLabel("new", "runc", "/x"))])
