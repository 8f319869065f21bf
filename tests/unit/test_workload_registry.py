"""Workloads are found through entry points, and a broken one does no harm."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint

import pytest

from bench_common.errors import UsageError
from bench_workloads.base import Workload
from bench_workloads.registry import GROUP, load_entries, workload, workload_classes


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=GROUP)


class Useful(Workload):
    name = "useful"
    summary = "a workload of a third party"
    image = "third/party"
    binary = "true"
    parameters = ()
    metrics = ()

    def steps(self, params):
        return ()

    def parse(self, text):
        return {}


class Unfinished(Workload):
    name = "unfinished"


@pytest.fixture
def third_party(monkeypatch):
    module = types.ModuleType("third_party_workloads")
    module.Useful, module.Unfinished, module.number = Useful, Unfinished, 7
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_the_projects_own_workloads_are_registered():
    """An installed Weighbridge knows its workloads under their names."""
    assert {"mbw", "sysbench-cpu", "sysbench-fileio", "sysbench-memory"} <= set(workload_classes())
    assert workload_classes()["sysbench-cpu"].name == "sysbench-cpu"
    assert workload("sysbench-cpu").image == "weighbridge/sysbench"


@pytest.mark.parametrize("cls", workload_classes().values(), ids=lambda cls: cls.name)
def test_each_workload_marks_its_primary_metrics(cls):
    """They are some of its metrics, each once; a job of it is compared by one that has a direction."""
    names = [metric.name for metric in cls.metrics if metric.direction]
    assert len(set(cls.primary_metrics)) == len(cls.primary_metrics)
    assert set(cls.primary_metrics) <= set(names)
    declared = cls().declared_metrics()
    assert [name for name, one in declared.items() if one.get("primary")] or not names
    assert bool(cls.primary_metrics) == bool(names)


def test_the_tools_own_names_lead_to_parameters():
    """What a refusal tells instead of the tool's own name is a parameter of that workload."""
    for cls in workload_classes().values():
        assert set(cls.tool_option_names.values()) <= {parameter.name for parameter in cls.parameters}


def test_a_misspelt_name_gets_the_nearest_right_one():
    """A name with a slip is answered with what was meant and what there is."""
    with pytest.raises(
        UsageError, match=r"unknown workload 'sysbench_cpo' \(did you mean 'sysbench-cpu'\?\); one of: "
    ):
        workload("sysbench_cpo")


def test_a_third_partys_workload_is_found(third_party):
    """An entry that points to a whole workload is usable, with no complaint."""
    usable, broken = load_entries([entry("useful", f"{third_party}:Useful")])
    assert usable == {"useful": Useful}
    assert broken == ()


@pytest.mark.parametrize(
    ("name", "target", "complaint"),
    [
        ("gone", "no_such_module:Thing", "cannot be loaded: ModuleNotFoundError"),
        ("gone", "{module}:Missing", "cannot be loaded: AttributeError"),
        ("number", "{module}:number", "not a subclass"),
        ("unfinished", "{module}:Unfinished", "lacks parse, steps"),
        ("alias", "{module}:Useful", "calls itself 'useful'"),
    ],
)
def test_a_broken_entry_is_named_and_left_out(third_party, name, target, complaint):
    """A broken entry yields one complaint that names it, and the others stay usable."""
    usable, broken = load_entries(
        [entry(name, target.format(module=third_party)), entry("useful", f"{third_party}:Useful")]
    )
    assert list(usable) == ["useful"]
    assert len(broken) == 1
    assert repr(name) in broken[0]
    assert complaint in broken[0]


def test_two_packages_with_one_name_are_told_apart_in_any_order(third_party):
    """Of two entries with one name the same one wins whatever their order, and the other is reported."""
    sys.modules[third_party].Other = type("Other", (Useful,), {})
    entries = [entry("useful", f"{third_party}:Useful"), entry("useful", f"{third_party}:Other")]
    for order in (entries, entries[::-1]):
        usable, broken = load_entries(order)
        assert usable["useful"].__name__ == "Other"
        assert "the name is taken" in broken[0]
