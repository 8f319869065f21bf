"""Kinds of jobs: what they are on the wire, how they are found, and what is said of one that cannot be used."""

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import msgspec
import pytest

from bench_common import job_kind as kinds
from bench_common.errors import UsageError
from bench_common.job_kind import GROUP, JobKind, job_kind, kind_of, read_job
from bench_common.job_rules import rules_of
from bench_common.stats.block_types import as_stored
from bench_common.treatment import Guest, Lifecycle, Operation, Treatment
from bench_features.objects.common.job import Objects
from bench_master.analysis.parameters import parameter_differences, parameters
from bench_master.scenario.master_part import master_parts
from bench_worker.job_runner import JobRunners
from bench_workloads.registry import workload


@pytest.fixture
def entries(monkeypatch):
    """Return a function that registers kinds for one test."""
    found = []
    monkeypatch.setattr(kinds, "registered", lambda _group: found)
    job_kind.cache_clear()
    yield lambda name, value: found.append(EntryPoint(name, value, GROUP))
    job_kind.cache_clear()


@pytest.mark.parametrize(
    ("job", "name", "operation"),
    [
        (Lifecycle((Operation("create", "create"),)), "lifecycle", "create"),
        (Guest("sysbench-cpu", workload("sysbench-cpu").defaults()), "guest", "create"),
    ],
)
def test_a_job_has_the_tag_of_its_kind(job, name, operation):
    """So it is read again as what it was, and its kind has the rules for it."""
    plain = msgspec.to_builtins(job)
    assert plain["kind"] == name == kind_of(job).name
    assert read_job(kinds.Job, plain) == job
    rules = rules_of(Treatment(0, {}, None, "native", job))
    assert rules.operations()[0].name == operation


def test_a_kind_from_a_package_is_found_by_its_entry():
    """Jobs on object stores are such a kind: nothing but the entry point leads to them."""
    kind = job_kind("objects")
    assert kind.job_type is Objects
    assert kind not in kinds.KERNEL


@pytest.mark.parametrize(
    ("plain", "complaint"),
    [
        (7, "a job is a map with the key 'kind'"),
        ({}, "a job is a map with the key 'kind'"),
        ({"kind": "lifecycel"}, "unknown kind of job 'lifecycel' .did you mean 'lifecycle'"),
        ({"kind": "lifecycle"}, "missing required field `operations`"),
        ({"kind": "lifecycle", "operations": [], "more": 1}, "unknown field `more`"),
    ],
)
def test_what_is_no_job_is_refused(plain, complaint):
    """A treatment on the wire is checked by what its kind declares."""
    wire = {"index": 0, "labels": {}, "environment": None, "engine": "noop", "job": plain}
    with pytest.raises(msgspec.ValidationError, match=complaint):
        msgspec.convert(wire, Treatment, dec_hook=read_job)


def test_a_kind_that_cannot_be_used_is_named(entries):
    """With where it is registered, and why it is none."""
    entries("gone", "no_such_module:KIND")
    entries("wrong", "bench_common.job_kind:KERNEL")
    entries("other", "bench_features.objects:KIND")
    with pytest.raises(UsageError, match="the kind of job 'gone' cannot be loaded: ModuleNotFoundError"):
        job_kind("gone")
    for name in ("wrong", "other"):
        with pytest.raises(UsageError, match=f"is not a JobKind of the name '{name}'"):
            job_kind(name)
    broken = JobKind("broken", job="no_such_module:Job", rules="")
    with pytest.raises(UsageError, match="no_such_module:Job cannot be loaded"):
        _ = broken.job_type


def test_a_kind_that_cannot_be_used_takes_no_other_away(entries, caplog):
    """A scenario has the keys of those that can; what is wrong with the rest is logged, once."""
    entries("gone", "no_such_module:KIND")
    entries("objects", "bench_features.objects:KIND")
    master_parts.cache_clear()
    assert list(master_parts()) == ["objects"]
    assert "the kind of job 'gone' cannot be loaded" in caplog.text
    master_parts.cache_clear()


def test_what_runs_the_jobs_of_a_kind_is_opened_with_its_first_treatment():
    """Containers have none; the treatments of one kind share one, and the end of the run reaches it."""
    opened, defined = [], []
    runner = SimpleNamespace(define=lambda treatment, part, parts: defined.append((treatment.index, part, parts)))
    runners = JobRunners(lambda kind, _wait: opened.append(kind.name) or runner, lambda call: call())
    life = Treatment(0, {}, None, "native", Lifecycle((Operation("run", "run"),)))
    stored = [Treatment(index, {}, None, "swift", Objects(())) for index in (1, 2)]
    for treatment in (life, *stored):
        runners.define(treatment, 1, 3)
    assert (opened, defined) == (["objects"], [(1, 1, 3), (2, 1, 3)])
    assert [runners.of(treatment) for treatment in (life, *stored)] == [None, runner, runner]
    assert list(runners) == [runner]


class Dice(kinds.Job, msgspec.Struct, frozen=True, tag_field=kinds.TAG, tag="dice"):
    """A job of a kind that this process does not have."""

    uses_engine = False
    count: int = 2
    colours: tuple[dict[str, object], ...] = ()


def test_what_a_job_of_any_kind_has_are_parameters_of_its_treatment():
    """Runs that differ in them are not compared, and a report of them needs no package."""
    colours = ({"name": "red", "sides": 6}, {"name": "blue", "sides": 8})
    one, other = (as_stored(Treatment(0, {}, None, "cup", Dice(count, colours))) for count in (2, 3))
    assert parameters(one) == {
        "concurrency": 1,
        "iterations": 1,
        "swap": "as-is",
        "dice.count": 2,
        "dice.red.sides": 6,
        "dice.blue.sides": 8,
    }
    assert [difference.name for difference in parameter_differences(one, other)] == ["dice.count"]
