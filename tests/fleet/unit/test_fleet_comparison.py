"""Differences between hosts: which there are, how severe they are, and which values count as equal."""

from bench_features.fleet.fleet import FleetHostReport, differences


def look(host, environment="bare-metal", **facts):
    """Return what a host told."""
    return FleetHostReport(
        host, environment, facts, identity=frozenset({"boot_id"}), engines=facts.pop("engines", {})
    )


def test_hosts_that_are_alike_differ_in_nothing():
    """What tells hosts apart by nature is no difference, nor is a bit of memory."""
    assert differences([look("a", boot_id="1", memory=10**9), look("b", boot_id="2", memory=10**9 + 10**7)]) == []


def test_a_difference_within_an_environment_comes_first():
    """Its trials are not of one kind: graver than a difference that goes with the environment."""
    found = differences(
        [
            look("a", kernel="6.1", cpu_governor="performance"),
            look("b", kernel="6.1", cpu_governor="powersave"),
            look("c", "control", kernel="6.8", cpu_governor="performance"),
        ]
    )
    assert [(each.name, each.within, each.level) for each in found] == [
        ("cpu_governor", ("bare-metal",), "warning"),
        ("kernel", (), "warning"),
    ]
    assert found[0].values == {"performance": ("a", "c"), "powersave": ("b",)}
    assert "the hosts of bare-metal differ, and so" in found[0].meaning
    assert "differs between environments" in found[1].meaning


def test_what_makes_an_environment_is_a_note():
    """Unless it divides one environment."""
    (found,) = differences([look("a", hypervisor="none"), look("b", "control", hypervisor="kvm")])
    assert found.level == "note"
    (found,) = differences([look("a", hypervisor="none"), look("b", hypervisor="kvm")])
    assert found.level == "warning"


def test_a_fact_that_one_does_not_tell_differs():
    """It is named as such, and so is an engine that is missing or of another version."""
    found = differences(
        [look("a", cpu_boost="on", engines={"docker": "20.10"}), look("b", engines={"docker": "27.0"})]
    )
    assert {each.name: dict(each.values) for each in found} == {
        "cpu_boost": {"on": ("a",), "unknown": ("b",)},
        "engine docker": {"20.10": ("a",), "27.0": ("b",)},
    }


def test_an_engine_that_some_cannot_use_is_told_with_the_reason():
    """Nobody would look for it behind a version that is "unknown"; one that nobody can use divides nobody."""
    one = FleetHostReport("a", "control", {}, engines={"docker": "20.10"}, unusable={"cri": "no socket here"})
    other = FleetHostReport("b", "control", {}, unusable={"docker": "no socket", "cri": "no such socket"})
    (found,) = differences([one, other])
    assert found.values == {"20.10": ("a",), "cannot be used: no socket": ("b",)}
    assert (found.level, found.within) == ("warning", ("control",))
    assert found.meaning.startswith("not every host can use it: ")
    (found,) = differences([one, FleetHostReport("c", "control", {})])
    assert found.values == {"20.10": ("a",), "cannot be used": ("c",)}


def test_small_numbers_are_the_same_only_when_equal():
    """A setting of 60 is not one of 61."""
    assert len(differences([look("a", swappiness=60), look("b", swappiness=61)])) == 1
