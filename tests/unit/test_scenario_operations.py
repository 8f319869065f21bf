"""A life-cycle job's operations: how they are written, and that only orders that can work are let through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.errors import ScenarioError
from bench_common.treatment import OPERATIONS, Operation
from bench_master.scenario.diagnostics import Located
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.operations import OperationsShape, invalid_operations, leaves_container, with_unique_names
from bench_master.scenario.yaml_tree import Source, SourceLocation


def load(operations):
    """Return the operations that a scenario reads from this YAML."""
    text = f"name: a\njob:\n  container: {{image: i}}\n  operations: {operations}\n"
    return parse_scenario(Source("s.yaml", text)).treatments[0].job.operations


def problems(operations):
    """Return what is wrong with operations."""
    with pytest.raises(ScenarioError) as caught:
        load(operations)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "operation"),
    [
        ("exec: [date, -u]", Operation("exec", "exec", argv=("date", "-u"))),
        ("exec: date -u 'a b'", Operation("exec", "exec", argv=("date", "-u", "a b"))),
        ("exec: {command: [date]}", Operation("exec", "exec", argv=("date",))),
        ("exec: [echo, no, 010]", Operation("exec", "exec", argv=("echo", "no", "010"))),
        ("sleep: 500ms", Operation("sleep", "sleep", seconds=0.5)),
        ("sleep: {duration: 2}", Operation("sleep", "sleep", seconds=2.0)),
        ("stop", Operation("stop", "stop", seconds=10.0)),
        ("stop: 5s", Operation("stop", "stop", seconds=5.0)),
        ("stop: {grace: 0}", Operation("stop", "stop", seconds=0.0)),
        ("stop: ", Operation("stop", "stop", seconds=10.0)),
        ("kill", Operation("kill", "kill", signal="SIGKILL")),
        ("kill: SIGTERM", Operation("kill", "kill", signal="SIGTERM")),
        ("kill: {signal: SIGHUP}", Operation("kill", "kill", signal="SIGHUP")),
        ("commit", Operation("commit", "commit")),
        ("stats", Operation("stats", "stats")),
        ("stats: 1s", Operation("stats", "stats", seconds=1.0)),
        ("stats: {interval: 500ms}", Operation("stats", "stats", seconds=0.5)),
        ("logs", Operation("logs", "logs")),
        ("wait: ", Operation("wait", "wait")),
    ],
)
def test_each_way_of_writing_an_operation(written, operation):
    """An operation is a word, or a word with its one option in a short or a long form."""
    assert load(f"[run, {{{written}}}]" if ":" in written else f"[run, {written}]")[1] == operation


@pytest.mark.parametrize(
    ("written", "fresh"),
    [("pull", False), ("pull: true", True), ("pull: {fresh: true}", True), ("pull: false", False)],
)
def test_a_pull_may_take_away_what_is_there(written, fresh):
    """Without a word it does as `docker pull` does, which asks the registry whether the image is the present one."""
    assert load(f"[{written}, run]")[0] == Operation("pull", "pull", fresh=fresh)


def test_a_fresh_pull_excludes_other_users_of_the_image():
    """It would take the image away from under other jobs; and a root file system is no image."""

    def refused(keys, container="image: i"):
        text = f"name: a\n{keys}job:\n  container: {{{container}}}\n  operations: [pull: true, run]\n"
        with pytest.raises(ScenarioError) as caught:
            parse_scenario(Source("s.yaml", text))
        return [str(problem) for problem in caught.value.problems]

    [problem] = refused("matrix: {concurrency: [1, 2]}\n")
    assert problem.startswith("s.yaml:2:")
    assert "set 'concurrency: 1'" in problem
    [problem] = refused("rate: 3/s\noperation_count: 5\n")
    assert "remove 'rate'" in problem
    [problem] = refused("", "rootfs: /r")
    assert "remove one of the two" in problem
    assert load("[pull, run]")


def test_create_and_run_may_have_a_command_of_their_own():
    """The command of `run` or `create` stands in for the container's."""
    assert load("[run: [date]]")[0].argv == ("date",)
    assert load("[create: {command: date}]")[0].argv == ("date",)


def test_the_second_of_a_kind_has_a_name_of_its_own():
    """Reports can tell operations of one kind apart."""
    names = [operation.name for operation in load("[run, exec: [a], exec: [b], sleep: 1, exec: [c], remove]")]
    assert names == ["run", "exec", "exec-2", "sleep", "exec-3", "remove"]


@pytest.mark.parametrize(
    ("operations", "said"),
    [
        ("[strat]", "4:16: unknown operation 'strat' (did you mean 'start'?)"),
        ("[run, exec]", "4:21: 'exec' requires its command: {exec: ...}"),
        ("[run, exec: ]", "'exec' requires its command"),
        ("[run, exec: {cmd: [a]}]", "unknown key 'cmd' in the operation 'exec' (did you mean 'command'?)"),
        ("[sleep]", "'sleep' requires its duration"),
        ("[sleep: 0]", "more than 0s"),
        ("[run, kill: SIGTEMR]", "unknown signal 'SIGTEMR' (did you mean 'SIGTERM'?)"),
        ("[run, wait: 5s]", "'wait' takes no option: write 'wait' alone"),
        ("[{run: [a], remove: }]", "a mapping: expected an operation such as 'start', {exec: [date]}"),
        ("[[run]]", "a list: expected an operation"),
        ("[]", "an empty list; expected a list of operations"),
        ("run", "'run': expected a list of operations"),
    ],
)
def test_what_is_no_operation_is_refused(operations, said):
    """Wrong operations and options are refused with the right ones."""
    assert any(said in problem for problem in problems(operations))


@pytest.mark.parametrize(
    ("operations", "said"),
    [
        ("[start]", "'start' cannot work here: the container is not created; put 'create' or 'run' before it"),
        ("[create, create]", "'create' cannot work here: the container is not started; a job has one container"),
        ("[create, run]", "'run' cannot work here"),
        ("[run, pull]", "'pull' cannot work here: the container is running; put it before 'create' or 'run'"),
        ("[run, remove, pull]", "only 'sleep' can follow 'remove'"),
        ("[run, start]", "'start' cannot work here: the container is running; remove one of the two"),
        ("[create, exec: [a]]", "'exec' cannot work here: the container is not started; put 'start' before it"),
        ("[create, stop]", "'stop' cannot work here"),
        ("[create, pause]", "'pause' cannot work here"),
        ("[create, wait]", "'wait' cannot work here"),
        ("[run, unpause]", "'unpause' cannot work here: the container is running; put 'pause' before it"),
        ("[run, pause, exec: [a]]", "the container is paused; put 'unpause' before it"),
        ("[run, pause, stop]", "the container is paused; put 'unpause' before it"),
        ("[run, stop, exec: [a]]", "the container has ended; put 'start' before it"),
        ("[run, kill, kill]", "the container has ended"),
        (
            "[run, remove, stop]",
            "'stop' cannot work here: the container is removed; only 'sleep' can follow 'remove'",
        ),
        ("[run, remove, create]", "only 'sleep' can follow 'remove'"),
    ],
)
def test_an_order_that_cannot_work_is_refused_where_it_stops_working(operations, said):
    """The first operation that cannot work is named with the state of the container and what to do."""
    (problem,) = problems(operations)
    assert said in problem
    assert problem.startswith("s.yaml:4:")


@pytest.mark.parametrize(
    "operations",
    [
        "[create, start, stop, remove]",
        "[create, remove]",
        "[run, wait, remove]",
        "[run, pause, unpause, stop, start, stop, remove]",
        "[run, stop, stop, remove]",
        "[run, pause, commit, remove]",
        "[create, commit, start]",
        "[run, kill: SIGHUP, exec: [a], kill, remove]",
        "[sleep: 1s]",
        "[sleep: 1s, run, remove]",
        "[pull]",
        "[pull, sleep: 1s, create, remove]",
        "[run, hold: 1s, remove, sleep: 1s]",
        "[run, stats: 1s, pause, stats, unpause, logs, stop, logs, remove]",
    ],
)
def test_an_order_that_can_work_is_accepted(operations):
    """Restarts, early commits, signals that do not end it, and jobs without a container are all fine."""
    assert load(operations)


def test_a_mistake_is_reported_once_and_not_after_each_operation():
    """After a refused operation the rest is judged as if it had worked."""
    assert len(problems("[start, exec: [a], stop, remove]")) == 1


def test_a_container_that_is_left_is_noted():
    """The worker removes it; the user is told that this is not timed."""
    text = "name: a\njob: {container: {image: i}, operations: [run]}\n"
    assert any("no 'remove' among the operations" in note for note in parse_scenario(Source("s.yaml", text)).notes)
    assert leaves_container([Operation("run", "run")])
    assert not leaves_container([Operation("run", "run"), Operation("remove", "remove")])
    assert not leaves_container([Operation("sleep", "sleep", seconds=1.0)])


PLACE = SourceLocation("s.yaml", 1, 1)
KINDS = st.lists(st.sampled_from(OPERATIONS), max_size=8)


@given(KINDS)
def test_orders_that_are_let_through_obey_the_container(kinds):
    """Whatever is let through, replayed on a toy container, never asks it for what it cannot do."""
    operations = [Operation(kind, kind, signal="SIGKILL" if kind == "kill" else None) for kind in kinds]
    if list(invalid_operations([Located(operation, PLACE) for operation in operations])):
        return
    there = running = paused = gone = False
    for kind in kinds:
        assert not gone or kind == "sleep"
        if kind == "pull":
            assert not there
        elif kind in {"create", "run"}:
            assert not there
            there, running = True, kind == "run"
        elif kind == "start":
            assert there
            assert not running
            running = True
        elif kind in {"exec", "pause", "kill"}:
            assert running
            assert not paused
        elif kind == "unpause":
            assert paused
        elif kind != "sleep":
            assert there
        paused = (paused or kind == "pause") and kind != "unpause"
        running = running and kind not in {"wait", "stop", "kill"}
        gone = gone or kind == "remove"


@given(KINDS)
def test_names_are_unique(kinds):
    """No two operations of a job share a name."""
    names = [operation.name for operation in with_unique_names([Operation(kind, kind) for kind in kinds])]
    assert len(set(names)) == len(names)


def test_labels_of_operations_are_short():
    """A list of operations as a value of the matrix gets a short label that still tells what it is."""
    shape = OperationsShape()
    assert shape.label((Operation("run", "run"), Operation("remove", "remove"))) == "run+remove"
    assert len(str(shape.label(tuple(Operation("exec", f"exec-{n}") for n in range(30))))) <= 32
