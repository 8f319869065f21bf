"""The matrix: every combination, less what is excluded, plus what is included; and what the cells are called."""

import pytest

from bench_common.errors import ScenarioError
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.matrix import label_names
from bench_master.scenario.yaml_tree import Source


def load(text):
    """Return a scenario of one sleeping job with this text beside it."""
    return parse_scenario(Source("s.yaml", "name: a\n" + text))


def titles(text):
    """Return the titles of the treatments that a text has."""
    if "job" not in text:
        text += "\njob: {operations: [sleep: 1s]}\n"
    if "engines" not in text:
        text += "\nengines: [native]\n"
    return [treatment.title for treatment in load(text).treatments]


def problems(text):
    """Return everything that is wrong with a text."""
    with pytest.raises(ScenarioError) as caught:
        titles(text)
    return [str(problem) for problem in caught.value.problems]


def test_every_combination_in_the_order_written():
    """Environments, engines and keys vary in the order written, the last fastest; labels come in that order."""
    assert titles("environments: [x, y]\nengines: [docker, native]\nmatrix: {concurrency: [1, 2]}") == [
        "environment=x engine=docker concurrency=1",
        "environment=x engine=docker concurrency=2",
        "environment=x engine=native concurrency=1",
        "environment=x engine=native concurrency=2",
        "environment=y engine=docker concurrency=1",
        "environment=y engine=docker concurrency=2",
        "environment=y engine=native concurrency=1",
        "environment=y engine=native concurrency=2",
    ]


def test_cells_get_their_values():
    """A cell's settings reach its treatment, in base units, above what the job and the top level say."""
    scenario = load(
        "engines: [native]\nmatrix: {container.memory: [256MiB, 1GiB], params.time: [2s, 1m]}\n"
        "job: {workload: sysbench-cpu, params: {time: 9s}, container: {memory: 2GiB}}\n"
    )
    cells = [(one.container.memory_bytes, one.job.params["time"]) for one in scenario.treatments]
    assert cells == [(2**28, 2.0), (2**28, 60.0), (2**30, 2.0), (2**30, 60.0)]
    assert dict(scenario.treatments[1].labels) == {"engine": "native", "memory": "256MiB", "time": "1m"}


def test_values_have_names():
    """In a mapping each value has a name, which is its label, also with a unit and among parameters."""
    text = "matrix: {container.memory: {small one: 256MiB, large: 1GiB}, concurrency: [1]}"
    assert titles(text + "\nengines: [docker]") == [
        "engine=docker memory=small one concurrency=1",
        "engine=docker memory=large concurrency=1",
    ]
    scenario = load("job: {workload: sysbench-cpu, matrix: {params.time: {short: 2s, long: 1m}}}")
    assert [(one.labels["time"], one.job.params["time"]) for one in scenario.treatments] == [
        ("short", 2.0),
        ("long", 60.0),
    ]
    assert any("' x' cannot name a value" in one for one in problems("matrix: {concurrency: {' x': 1}}"))


def test_exclude_drops_what_agrees_with_all_its_keys():
    """An exclude drops each cell that has every one of its values, engines included."""
    text = "engines: [docker, native]\nmatrix: {concurrency: [1, 2], exclude: [{engine: native, concurrency: 2}]}"
    assert titles(text) == [
        "engine=docker concurrency=1",
        "engine=docker concurrency=2",
        "engine=native concurrency=1",
    ]


def test_values_are_compared_by_meaning():
    """1024MiB excludes 1GiB: both are the same number of bytes."""
    assert titles("matrix: {container.memory: [1GiB, 2GiB], exclude: [{container.memory: 1024MiB}]}") == [
        "engine=native memory=2GiB"
    ]


def test_params_are_compared_by_meaning():
    """5s excludes 5000ms of a parameter, although only the workload knows that it is a duration."""
    text = (
        "matrix: {params.time: [5s, 9s], exclude: [{params.time: 5000ms}]}\nengines: [native]\n"
        "job: {workload: sysbench-cpu}"
    )
    assert titles(text) == ["engine=native time=9s"]


def test_include_extends_the_cells_that_it_does_not_contradict():
    """An include adds its other keys to each original cell that has its values."""
    text = "engines: [docker, native]\nmatrix: {concurrency: [1, 2], include: [{engine: docker, warmup: 3}]}"
    scenario = load(text + "\njob: {operations: [sleep: 1s]}\n")
    assert scenario.warmup == (3, 3, 0, 0)
    assert scenario.treatments[0].title == "engine=docker concurrency=1 warmup=3"


def test_include_that_contradicts_every_cell_is_a_cell_of_its_own():
    """A value that no cell has makes new cells, for each engine that it does not name."""
    assert titles(
        "engines: [docker, native]\nmatrix: {concurrency: [1], include: [{concurrency: 8, repeats: 2}]}"
    ) == [
        "engine=docker concurrency=1",
        "engine=native concurrency=1",
        "engine=docker concurrency=8 repeats=2",
        "engine=native concurrency=8 repeats=2",
    ]


def test_a_later_include_does_not_extend_an_added_cell():
    """Only original cells are extended; an added one stays as it was written."""
    text = "matrix: {concurrency: [1], include: [{concurrency: 8}, {concurrency: 8, repeats: 2}]}"
    assert titles(text)[1:] == ["engine=native concurrency=8", "engine=native concurrency=8 repeats=2"]


def test_a_later_include_may_overwrite_what_an_earlier_one_added():
    """What an include added is no dimension, so it contradicts nothing."""
    assert titles("matrix: {concurrency: [1], include: [{repeats: 2}, {repeats: 3}]}") == [
        "engine=native concurrency=1 repeats=3"
    ]


def test_include_may_name_another_engine():
    """An include can weigh one cell under an engine that the others are not weighed under."""
    assert titles("matrix: {concurrency: [1], include: [{engine: docker, concurrency: 1}]}") == [
        "engine=native concurrency=1",
        "engine=docker concurrency=1",
    ]


def test_a_matrix_of_nothing_but_include_lists_its_cells():
    """Without a dimension there is no original cell: each entry is one."""
    assert titles("matrix: {include: [{concurrency: 1, repeats: 2}, {concurrency: 2}]}") == [
        "engine=native concurrency=1 repeats=2",
        "engine=native concurrency=2",
    ]


def test_a_job_may_have_engines_and_a_matrix_of_its_own():
    """A job's own matrix and engines stand in for those of the top level; its label is in the title."""
    text = (
        "engines: [docker, native]\nmatrix: {concurrency: [1, 2]}\n"
        "jobs:\n  a: {operations: [sleep: 1s], engines: [native], matrix: {}}\n  b: {operations: [sleep: 1s]}\n"
    )
    assert titles(text) == [
        "engine=native job=a",
        "engine=docker job=b concurrency=1",
        "engine=docker job=b concurrency=2",
        "engine=native job=b concurrency=1",
        "engine=native job=b concurrency=2",
    ]


def test_containers_merge_key_by_key():
    """Top level, job and cell each add to the container and its variables; the innermost value wins."""
    scenario = load(
        "engines: [native]\ncontainer: {image: top, network: none, env: {A: top, B: top}}\n"
        "matrix: {container.env.C: [cell]}\n"
        "job: {operations: [sleep: 1s], container: {image: job, env: {B: job}}}\n"
    )
    container = scenario.treatments[0].container
    assert (container.image, container.network) == ("job", "none")
    assert container.env == {"A": "top", "B": "job", "C": "cell"}


def test_the_innermost_quantity_replaces_the_others():
    """A job's run_seconds stands in for the iterations of the top level, and a cell's for both."""
    scenario = load(
        "engines: [native]\niterations: 5\njobs:\n"
        "  a: {operations: [sleep: 1s]}\n"
        "  b: {operations: [sleep: 1s], run_seconds: 2}\n"
        "  c: {operations: [sleep: 1s], run_seconds: 2, matrix: {operation_count: [9]}}\n"
    )
    amounts = [(one.iterations, one.run_seconds, one.operation_count) for one in scenario.treatments]
    assert amounts == [(5, None, None), (None, 2.0, None), (None, None, 9)]


def test_labels_of_composite_values_are_short_and_different():
    """Lists and mappings get a short label each, and different values different ones."""
    scenario = load(
        "engines: [native]\njob: {operations: [sleep: 1s]}\nmatrix:\n"
        "  container.storage: [[], [{volume: , target: /a}], [{volume: , target: /b}], [{tmpfs: 1MiB, target: /a}]]\n"
    )
    assert [one.labels["storage"] for one in scenario.treatments] == ["none", "volume", "volume#2", "tmpfs:1MiB"]
    same = "--one=1 --two=2 --three=3 --four=4"
    scenario = load(
        f"engines: [native]\njob: {{workload: command}}\nmatrix:\n  command: [true {same} a, true {same} b]\n"
    )
    assert [one.labels["command"][-8:] for one in scenario.treatments] == ["four=4 a", "four=4 b"]


def test_label_names_are_short_unless_they_clash():
    """A key's label is its last word; where two end alike, or it is taken, the whole key."""
    assert label_names(["container.memory", "params.time", "concurrency"]) == {
        "container.memory": "memory",
        "params.time": "time",
        "concurrency": "concurrency",
    }
    assert label_names(["container.memory", "params.memory"]) == {
        "container.memory": "container.memory",
        "params.memory": "params.memory",
    }
    assert label_names(["params.engine"]) == {"params.engine": "params.engine"}


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ("{memory: [1GiB]}", "s.yaml:2:10: unknown key 'memory' in the matrix (did you mean 'container.memory'?)"),
        ("{concurency: [1]}", "unknown key 'concurency' in the matrix (did you mean 'concurrency'?)"),
        ("{engine: [docker]}", "'engine' is already a dimension: list its values under 'engines'"),
        ("{environments: [x]}", "'environments' is already a dimension"),
        ("{workload: [a]}", "'workload' cannot vary in a matrix; write one entry for each under 'jobs'"),
        ("{container: {memory: [1GiB]}}", "'container' is a mapping; write its keys with dots"),
        ("{concurrency: 4}", "s.yaml:2:23: '4' given for 'concurrency'; expected a list"),
        ("{concurrency: []}", "expected a list of at least one value"),
        ("{concurrency: [1, x]}", "s.yaml:2:27: 'x': expected a whole number"),
        ("{concurrency: [1, 1]}", "'1' is among the values of 'concurrency' twice"),
        ("{container.memory: [1GiB, 1024MiB]}", "'1024MiB' is among the values of 'container.memory' twice"),
        ("{params.threads: [1]}", "'params.threads' varies here, but a life-cycle job has no parameters"),
        ("{iterations: [1], operation_count: [1]}", "'iterations' and 'operation_count' are mutually exclusive"),
        ("{concurrency: [1], exclude: [{concurrency: 1}]}", "nothing left to run"),
        ("{concurrency: [1], exclude: [{repeats: 1}]}", "'repeats' is not a dimension of this matrix"),
        ("{concurrency: [1], exclude: [{environment: x}]}", "the scenario lists no 'environments'"),
        ("{concurrency: [1], include: [{environment: x}]}", "the scenario lists no 'environments'"),
        ("{concurrency: [1], include: [{engines: [x]}]}", "unknown key 'engines' here (did you mean 'engine'?)"),
        (
            "{concurrency: [1], include: [{enigne: native}]}",
            "'enigne' in the matrix (did you mean 'engine'?)",
        ),
        ("{concurrency: []}", "an empty list given for 'concurrency'; expected a list of at least one value"),
        ("{concurrency: [1], include: [{engine: dokcer}]}", "unknown engine 'dokcer' (did you mean 'docker'?)"),
        ("{concurrency: [1], include: {engine: docker}}", "a mapping given for 'include'; expected a list"),
        ("{concurrency: [1], include: [{}]}", "expected a mapping such as {engine: docker}"),
        ("{include: [{concurrency: 2}, {concurrency: 2}]}", "duplicate treatment 'engine=native concurrency=2'"),
        ("[1]", "a list: expected a matrix"),
    ],
)
def test_what_cannot_vary_is_refused(matrix, said):
    """Each mistake in a matrix is named at its place, with what to write instead."""
    assert any(said in problem for problem in problems(f"matrix: {matrix}"))


def test_operations_cannot_vary_for_a_guest_job():
    """A matrix at the top level must fit every job that it holds for."""
    text = "matrix: {operations: [[sleep: 1s]]}\njob: {workload: sysbench-cpu}"
    assert any("this job runs the workload sysbench-cpu" in problem for problem in problems(text))


def test_an_exclude_that_drops_nothing_is_noted():
    """A value that no cell has is likely a slip; it is said and stops nothing."""
    scenario = load(
        "engines: [native]\njob: {operations: [sleep: 1s]}\nmatrix: {concurrency: [1], exclude: [{concurrency: 9}]}"
    )
    assert any("s.yaml:4: this exclude matches no cell" in note for note in scenario.notes)


def test_a_matrix_out_of_hand_is_refused():
    """A product beyond any run is refused before it is built."""
    values = ", ".join(map(str, range(1, 102)))
    (problem,) = problems(f"matrix: {{concurrency: [{values}], iterations: [{values}]}}")
    assert "10201 cells; the maximum is 10000" in problem


def test_plain_processes_beside_containers_have_their_environment():
    """Unless the scenario says otherwise; alone they keep the worker's, and so do stores of objects."""
    jobs = "job: {operations: [sleep: 1s], container: {command: [x], image: i}}\n"
    found = {
        text: {one.plain_environment for one in load(text + jobs).treatments}
        for text in (
            "engines: [docker, native]\n",
            "engines: [native]\n",
            "engines: [docker]\n",
            "engines: [docker, native]\nenvironment: inherit\n",
            "engines: [native]\nenvironment: container\n",
        )
    }
    assert list(found.values()) == [{"container"}, {""}, {""}, {"inherit"}, {"container"}]
    assert any("one of: container, inherit" in one for one in problems("environment: clean"))
