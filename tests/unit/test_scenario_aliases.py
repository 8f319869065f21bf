"""A tool's own names for a test and its options are accepted, with a note, and keep their locations."""

import pytest

from bench_common.errors import ScenarioError
from bench_common.treatment import Guest
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source


def load(text, *overrides):
    """Return the scenario in a text."""
    return parse_scenario(Source("s.yaml", "name: a\n" + text), overrides)


def problems(text, *overrides):
    """Return what is wrong with a text."""
    with pytest.raises(ScenarioError) as caught:
        load(text, *overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "job",
    [
        "{test: cpu, params: {num-threads: 4, max-time: 60, max-requests: 7, cpu-max-prime: 20000}}",
        "{workload: sysbench, params: {--test: cpu, --num-threads: 4, max_time: 60, events: 7, cpu-max-prime: 2e4}}",
        "{workload: sysbench-cpu, params: {num_threads: 4, time: 60s, events: 7, cpu_max_prime: 20000, test: cpu}}",
    ],
)
def test_what_sysbench_calls_a_test_and_its_options(job):
    """Dashes in front and between, and `test` in the job or its parameters, are all the same thing."""
    scenario = load(f"job: {job}\n")
    expected = {"threads": 4, "time": 60.0, "events": 7, "cpu_max_prime": 20000}
    job = scenario.treatments[0].job
    assert isinstance(job, Guest)
    assert job.workload == "sysbench-cpu"
    assert expected.items() <= job.params.items()
    assert any("is read as 'threads', its name here" in note for note in scenario.notes)
    assert any("is read as 'workload: sysbench-cpu', its name here" in note for note in scenario.notes)


@pytest.mark.parametrize(("test", "workload"), [("cpu", "cpu"), ("memory", "memory"), ("fileio", "fileio")])
def test_every_test_has_its_workload(test, workload):
    """What `--test` chose in sysbench 0.4 chooses the workload."""
    assert load(f"job: {{test: {test}}}\n").treatments[0].job.workload == f"sysbench-{workload}"


def test_in_a_matrix_the_values_vary_in_their_place():
    """A dimension under its old name stays where it was in the order of labels, in every list of the matrix."""
    scenario = load(
        "job: {test: memory}\n"
        "matrix:\n  params.memory-oper: [read, write]\n  params.num-threads: [1, 2]\n"
        "  exclude: [{params.memory-oper: read, params.num-threads: 2}]\n"
        "  include: [{params.num-threads: 8}]\n"
    )
    rows = [
        (one.labels["operation"], one.labels["threads"]) for one in scenario.treatments if "operation" in one.labels
    ]
    assert rows == [("read", 1), ("write", 1), ("write", 2)]
    assert [one.labels["threads"] for one in scenario.treatments][-1] == 8


def test_jobs_that_do_not_share_a_name_keep_it():
    """A matrix that two workloads inherit is translated only if the name means the same to both."""
    jobs = "jobs: {a: {test: cpu}, b: {workload: mbw}}\nmatrix: {params.num-threads: [1, 2]}\n"
    expected = "unknown parameter 'num-threads' of sysbench-cpu: sysbench's name for it; write 'threads'"
    assert any(expected in one for one in problems(jobs))


def test_the_document_has_todays_names():
    """What is saved with a run loads to the same treatments, without a note."""
    scenario = load("job: {test: cpu, params: {num-threads: 2}}\n")
    assert scenario.document["job"] == {"params": {"threads": 2}, "workload": "sysbench-cpu"}


def test_a_value_keeps_its_place():
    """What is wrong with a value is told at the line and column where it stands."""
    (found,) = problems("job:\n  test: cpu\n  params:\n    num-threads: many\n")
    assert found.startswith("s.yaml:5:18: 'many': expected a whole number")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "job: {test: cpu, params: {threads: 1, num-threads: 2}}\n",
            "s.yaml:2:39: 'num-threads' is another name for 'threads' (on line 2): remove one",
        ),
        ("job: {test: cpux}\n", "s.yaml:2:13: unknown test 'cpux' (did you mean 'cpu'?)"),
        (
            "job: {workload: mbw, test: cpu}\n",
            "s.yaml:2:22: 'test: cpu' means the workload sysbench-cpu, not mbw: remove one",
        ),
    ],
)
def test_what_cannot_be_understood_is_refused_once(text, message):
    """The same thing twice, an unknown test and a test of another tool are told where they stand."""
    assert problems(text) == [message]


def test_the_command_line_has_the_last_word_in_either_spelling():
    """An override replaces what the file says under the other name."""
    old, new = "job: {test: cpu, params: {num-threads: 2}}\n", "job: {test: cpu, params: {threads: 2}}\n"
    assert load(old, "job.params.threads=5").treatments[0].job.params["threads"] == 5
    assert load(new, "job.params.num-threads=5").treatments[0].job.params["threads"] == 5


def test_the_study_s_own_command_is_understood():
    """Every option of vm-docker-bench's file test has a meaning here, or is left out with the reason."""
    scenario = load(
        "job:\n  test: fileio\n  params: {file-total-size: 5G, file-test-mode: rndrw, init-rng: on, "
        "max-time: 300, max-requests: 0}\n"
    )
    params = scenario.treatments[0].job.params
    assert (params["total_size"], params["mode"], params["time"], params["events"]) == (5 << 30, "rndrw", 300.0, 0)
    assert any(note.startswith("'init-rng' is ignored: sysbench since 1.0") for note in scenario.notes)
    assert "unknown parameter 'init-rng'" in problems("job: {test: fileio, params: {init-rng: off}}\n")[0]


def test_a_job_of_operations_has_no_test():
    """Outside of guest jobs `test` is the unknown key that it is."""
    assert any(
        "unknown key 'test' in the job" in one for one in problems("job: {operations: [sleep: 1], test: cpu}\n")
    )


@pytest.mark.parametrize(
    ("params", "test"),
    [
        ("{--test: oltp}", "read_write"),
        ("{--test: oltp, --oltp-read-only: on}", "read_only"),
        ("{--test: oltp, oltp-read-only: off, oltp_test_mode: complex}", "read_write"),
        ("{--oltp-test-mode: complex, --oltp-read-only: on, --test: oltp}", "read_only"),
        ("{--test: tests/db/oltp.lua, --oltp-test-mode: simple}", "point_select"),
        ("{--test: oltp, test: insert}", "insert"),
        ("{table_size: 5}", "read_only"),
    ],
)
def test_what_0_4_called_oltp_is_the_test_that_it_was(params, test):
    """It read and wrote unless it was told otherwise, which is not what is usual here."""
    job = load(f"job: {{workload: sysbench-oltp, params: {params}}}\n").treatments[0].job
    assert (job.workload, job.params["test"]) == ("sysbench-oltp", test)


def test_the_test_of_a_job_says_so_too():
    """Beside the parameters or without any."""
    assert load("job: {test: oltp}\n").treatments[0].job.params["test"] == "read_write"
    scenario = load("job: {test: oltp, params: {oltp-read-only: on}}\n")
    assert scenario.treatments[0].job.params["test"] == "read_only"
    assert any("oltp-read-only: on' is read as 'test: read_only'" in note for note in scenario.notes)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("{--test: oltp, --oltp-test-mode: nontrx}", "unknown parameter '--oltp-test-mode'"),
        ("{test: insert, --test: oltp, --oltp-read-only: on}", "repeats 'test': remove one"),
    ],
)
def test_what_has_no_test_here_is_refused(params, said):
    """An option that cannot be translated is not dropped."""
    assert said in problems(f"job: {{workload: sysbench-oltp, params: {params}}}\n")[0]
