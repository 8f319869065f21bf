"""``--set`` and the load of the command line: applied before any check, so every check holds for them."""

from functools import partial

import pytest

from bench_common.errors import ScenarioError
from bench_master.options.load import LoadOptions, change_load
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

TEXT = """\
name: a
engines: [native]
iterations: 3
jobs:
  cpu: {workload: sysbench-cpu, params: {time: 2s}}
  life: {operations: [sleep: 1s], run_seconds: 5}
container: {env: {A: top}}
matrix: {container.memory: [1GiB], include: [{container.memory: 2GiB}]}
"""


def load(*overrides, **options):
    """Return the scenario with overrides applied."""
    return parse_scenario(
        Source("s.yaml", TEXT), overrides, change=partial(change_load, LoadOptions(**options), None)
    )


def problems(*overrides, **options):
    """Return what is wrong with overrides."""
    with pytest.raises(ScenarioError) as caught:
        load(*overrides, **options)
    return [str(problem) for problem in caught.value.problems]


def test_a_key_deep_down():
    """A dotted path leads through jobs to a parameter."""
    assert load("jobs.cpu.params.time=5s").treatments[0].job.params["time"] == 5.0


def test_a_key_that_was_not_there():
    """What lies between is made where it is missing."""
    assert load("jobs.cpu.container.network=none").treatments[0].container.network == "none"


def test_keys_that_hold_dots():
    """Below matrix, env, params and log_options the rest of the path is one key."""
    scenario = load("matrix.container.memory=[3GiB, 4GiB]", "container.env.a.b=x", "matrix.include=[]")
    assert [one.container.memory_bytes for one in scenario.treatments[:2]] == [3 * 2**30, 4 * 2**30]
    assert scenario.treatments[0].container.env == {"A": "top", "a.b": "x"}


def test_positions_in_lists():
    """A number is a position in a list; the one after the last adds an item."""
    scenario = load("jobs.life.operations.0=sleep", "jobs.life.operations.0={sleep: 3s}", "engines.1=docker")
    assert {one.engine for one in scenario.treatments} == {"native", "docker"}
    assert scenario.treatments[-1].job.operations[0].seconds == 3.0
    assert load("matrix.include.0.container.memory=9GiB").treatments[1].container.memory_bytes == 9 * 2**30


def test_values_are_yaml():
    """The value is read like the value in a file: lists, mappings, numbers, text."""
    scenario = load("engines=[native, docker]", "container.env={A: no}", "repeats=1e1", "name=x = y")
    assert scenario.name == "x = y"
    assert scenario.repeats[0] == 10
    assert scenario.treatments[0].container.env == {"A": "no"}


def test_a_quantity_takes_the_place_of_another():
    """Setting run_seconds takes iterations away at that level."""
    assert load("run_seconds=7").treatments[0].run_seconds == 7.0
    assert load("run_seconds=7").treatments[0].iterations is None


def test_the_last_one_wins():
    """Overrides are applied in the order given."""
    assert load("repeats=2", "repeats=4").repeats[0] == 4


def test_the_file_is_kept_and_the_document_is_what_was_run():
    """The text stays what was in the file; the document has the override."""
    scenario = load("repeats=4")
    assert scenario.text == TEXT
    assert scenario.document["repeats"] == 4


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("repeats", "--set repeats: expected key=value, such as --set repeats=9"),
        ("=5", "--set =5: expected key=value"),
        ("repeats=x", "--set repeats=x: 'x': expected a whole number"),
        ("repaets=9", "--set repaets=9: unknown key 'repaets' in the scenario (did you mean 'repeats'?)"),
        ("jbos.cpu.params.time=1", "unknown key 'jbos' in the scenario (did you mean 'jobs'?)"),
        ("jobs.cpu.params.tiem=5s", "unknown parameter 'tiem' of sysbench-cpu (did you mean 'time'?)"),
        ("jobs.cpu.params.time=12:30", "a duration has units, not colons (did you mean '12m30s'?)"),
        ("jobs.cup.params.time=5s", "no job 'cup' (did you mean 'cpu'?)"),
        ("name.x=1", "--set name.x=1: 'name' is 'a' and has no key 'x'"),
        ("engines.5=docker", "'5' is not a position in 'engines'; expected 0 to 0, or 1 to add one"),
        ("engines.x=docker", "'x' is not a position in 'engines'"),
        ("engines=[", "--set engines=[: YAML syntax"),
        ("engines=docker", "write [docker]"),
        ("matrix.memory=[1]", "did you mean 'container.memory'"),
        ("name=", "--set name=: empty; expected a name"),
        ("container={image: a, image: b}", "key 'image' appears twice"),
    ],
)
def test_a_wrong_override_is_named_as_it_was_given(override, said):
    """A problem in an override has the argument itself as its place."""
    found = problems(override)
    assert any(said in problem for problem in found)
    assert all(problem.startswith(f"--set {override}: ") for problem in found)


def test_problems_of_file_and_overrides_come_together():
    """An override's problem does not hide those of the file."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(Source("s.yaml", TEXT.replace("iterations: 3", "iterations: 0")), ["repeats=0"])
    assert len(caught.value.problems) == 2


def test_switches_hold_for_every_job():
    """A switch of the command line replaces the key, and what excludes it, in every job."""
    scenario = load(operation_count=9, rate="4/s")
    sizes = {(one.operation_count, one.run_seconds, one.open_load.rate_per_s) for one in scenario.treatments}
    assert sizes == {(9, None, 4.0)}


def test_a_switch_for_what_the_matrix_varies_is_refused():
    """A switch cannot silently take a dimension away."""
    (problem,) = problems("matrix.rate=[1/s, 2/s]", rate="4/s", operation_count=9)
    assert problem.startswith("--rate 4/s: the matrix varies 'rate'")
    (problem,) = problems("matrix.iterations=[1, 2]", operation_count=9)
    assert problem == "-o 9: the matrix varies 'iterations'; use --set 'matrix.operation_count=[9]' instead"
    (problem,) = problems("matrix.concurrency=[1, 2]", user_count=9)
    assert problem == "-u 9: the matrix varies 'concurrency'; use --set 'matrix.concurrency=[9]' instead"
    assert problems("scale=") == ["--set scale=: empty; expected the name of a profile"]
    (problem,) = problems("matrix.include=[{engine: docker, rate: 1/s}]", rate="4/s", operation_count=9)
    assert problem.startswith("--rate 4/s: the matrix's 'include' varies 'rate'")


def test_a_wrong_switch_is_refused():
    """A switch is checked like any value."""
    assert problems(rate="0/s", operation_count=9)[0].startswith("--rate 0/s: ")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("jobs.cup.params.time=5s", "no job 'cup' (did you mean 'cpu'?)"),
        ("jobs.zzz.repeats=2", "no job 'zzz'; the jobs are: cpu, life"),
    ],
)
def test_a_job_that_is_not_there_is_said_to_be_none(override, said):
    """A key of a job that the scenario lacks is refused with the jobs that it has, not taken for a new job."""
    assert problems(override) == [f"--set {override}: {said}"]


def test_a_whole_new_job_can_be_set():
    """A job that is given whole is added."""
    scenario = load("jobs.more={workload: sysbench-cpu}")
    assert {treatment.labels["job"] for treatment in scenario.treatments} == {"cpu", "life", "more"}
