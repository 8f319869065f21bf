"""The crew: orders in, reports out, whatever an engine does. On a fake engine, without sockets."""

from time import monotonic_ns
from types import SimpleNamespace

import gevent
import pytest
from deadlines import ANSWER_S, wait_until
from gevent.event import Event
from msgspec.structs import replace

from bench_common.errors import EngineUnavailable
from bench_common.messages import RESULTS
from bench_common.records import Outcome
from bench_common.treatment import ContainerSettings, Lifecycle, OpenLoad, Operation, Treatment
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_master.run.results import to_rows, unpack_results
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.noop import NoopEngine
from bench_worker.job_executor import JobExecutor, RunContext
from bench_worker.outbox import Outbox


class FakeEngine(NoopEngine):
    """Counts what is there, and does what the test says at an operation."""

    def __init__(self, options, behave=None):
        super().__init__(options)
        self.behave = behave or {}
        self.there = set()
        self.most_at_once = 0
        self.commands = []
        self.begun = []

    def create(self, container, *, timeout_s):
        self.there.add(container.name)
        self.commands.append(container.settings.command)
        self.most_at_once = max(self.most_at_once, len(self.there))
        return self.acted("create", container)

    def run(self, container, *, timeout_s):
        return self.create(container, timeout_s=timeout_s)

    def exec(self, container, argv, *, timeout_s):
        return self.acted("exec", container)

    def wait(self, container, *, timeout_s):
        return self.acted("wait", container)

    def logs(self, container, *, limit_bytes, timeout_s):
        return self.acted("logs", container)

    def remove(self, container, *, timeout_s):
        done = self.acted("remove", container)
        self.there.discard(container.name)
        return done

    def acted(self, what, container):
        self.begun.append(what)
        act = self.behave.get(what)
        return (act and act(container)) or OperationResult(1, 2, exit_code=0)


class Scene:
    """A crew on a fake engine, and what came out of it."""

    def __init__(self, *kinds, slots=4, behave=None, keep=False, away=None):
        self.frames = []
        self.outbox = Outbox(1, lambda frame: self.frames.append(frame) or True)
        self.engine = None
        self.slots = slots

        def open_engine(_name, options):
            if away is not None and away.is_set():
                raise EngineUnavailable("the engine does not answer")
            self.engine = FakeEngine(options, behave)
            return self.engine

        assignment = RunContext("run", "w", slots, noop=False, keep=keep, allow_host_mounts=False)
        self.crew = JobExecutor(assignment, self.outbox, open_engine)
        operations = tuple(Operation(kind, kind, argv=("x",) if kind == "exec" else ()) for kind in kinds)
        self.define(operations, ContainerSettings(image="i"))

    def define(self, operations, settings):
        self.operations = len(operations)
        self.crew.define(Treatment(0, {}, None, "fake", Lifecycle(operations), settings))

    def open(self, queue_timeout_s):
        self.crew.define(replace(self.crew._treatments[0], open_load=OpenLoad(100.0, "constant", queue_timeout_s)))

    def arrive(self, *after_ms):
        now = monotonic_ns()
        orders = [[ticket, 0, now + round(ms * 1e6)] for ticket, ms in enumerate(after_ms)]
        self.crew.take(0, 0, orders, concurrency=self.slots, batch=1)
        return [order[2] for order in orders]

    def order(self, count):
        self.take(range(count))

    def take(self, tickets, concurrency=None, batch=1):
        orders = [(ticket, 0, 0) for ticket in tickets]
        self.crew.take(0, 0, orders, concurrency=concurrency or self.slots, batch=batch)

    def wait_until(self, true, seconds=ANSWER_S):
        wait_until(true, seconds, sleep=gevent.sleep)

    def begun(self, what):
        return self.engine.begun.count(what) if self.engine else 0

    def settle(self, seconds=ANSWER_S):
        self.wait_until(lambda: self.crew.idle, seconds)
        gevent.sleep(0)

    def batches(self):
        messages = [RESULTS.decode(frame) for frame in self.frames]
        return [unpack_results(message, [self.operations], [0]) for message in messages]

    def rows(self):
        return [to_rows([batch], [0], [0]) for batch in self.batches()]

    def outcomes(self):
        rows = [row for jobs, _ in self.rows() for row in jobs[["ticket", "outcome"]].tolist()]
        return {ticket: Outcome(outcome) for ticket, outcome in rows}

    def errors(self):
        return [(error.operation, error.kind, error.message) for batch in self.batches() for error in batch.errors]


def fails(kind="engine", message="no"):
    def act(_container):
        raise OperationFailed(kind, message, start_ns=1, end_ns=5)

    return act


def test_every_order_gives_one_report_and_never_more_than_the_slots_run():
    """Twenty orders on four slots: twenty reports, at most four containers at once, none left."""
    scene = Scene("create", "exec", "remove", behave={"exec": lambda _: gevent.sleep(0.001)})
    scene.order(20)
    scene.settle()
    assert scene.outcomes() == dict.fromkeys(range(20), Outcome.DONE)
    assert scene.engine.most_at_once == 4
    assert not scene.engine.there


def test_a_failed_operation_fails_its_job_and_not_the_next():
    """The container is removed, the reason is told, the slot goes on."""
    scene = Scene("create", "exec", "remove", behave={"exec": fails("timeout", "took too long")}, slots=1)
    scene.order(2)
    scene.settle()
    assert set(scene.outcomes().values()) == {Outcome.FAILED}
    assert scene.errors() == [("exec", "timeout", "took too long")] * 2
    assert not scene.engine.there


@pytest.mark.parametrize(("what", "code"), [("exec", 1), ("wait", 3)])
def test_an_exit_code_is_a_failure(what, code):
    """A command that ends with another code than 0 has failed, and says so."""
    scene = Scene(
        "create", what, "remove", behave={what: lambda _: OperationResult(1, 2, exit_code=code, stderr=b"bad thing")}
    )
    scene.order(1)
    scene.settle()
    operation, kind, message = scene.errors()[0]
    assert (operation, kind) == (what, "exit-code")
    assert f"exit code {code}" in message


def test_the_error_of_a_command_has_the_line_that_says_why():
    """The first line that looks like an error, and the last; of a long line both ends."""
    why = "mysqld: Can't create directory '/srv/" + "x" * 600 + "/' (OS errno 13 - Permission denied)"
    stderr = f"[Note] starting\n{why}\n[ERROR] Aborting\nexit status 65\n".encode()
    behave = {"exec": lambda _: OperationResult(1, 2, exit_code=65, stderr=stderr)}
    scene = Scene("create", "exec", "remove", behave=behave)
    scene.order(1)
    scene.settle()
    ((_, _, message),) = scene.errors()
    assert message.startswith("exec: exit code 65")
    assert ": mysqld: Can't create directory '/srv/x" in message
    assert message.endswith("/' (OS errno 13 - Permission denied) / exit status 65")


def test_what_a_failed_command_printed_is_kept():
    """Of an exec its own output, of a container what its log has; both ends of a long one."""
    long = b"first\n" + b"x\n" * 100_000 + b"last\n"
    for kind in ("exec", "wait"):
        behave = {kind: lambda _: OperationResult(1, 2, exit_code=3, stdout=long)}
        scene = Scene(
            "create", kind, "remove", behave={**behave, "logs": lambda _: OperationResult(1, 2, stdout=long)}
        )
        scene.order(1)
        scene.settle()
        [output] = [one for batch in scene.batches() for one in batch.outputs]
        assert (output.step, output.exit_code, output.truncated) == (kind, 3, True)
        assert (output.stdout[:6], output.stdout[-5:]) == (b"first\n", b"last\n")
        assert len(output.stdout) < 1 << 17


def test_a_command_that_was_told_to_end_has_not_failed():
    """After stop or kill an exit by that signal is what was asked for."""
    scene = Scene("create", "kill", "wait", "remove", behave={"wait": lambda _: OperationResult(1, 2, exit_code=137)})
    scene.order(1)
    scene.settle()
    assert scene.outcomes() == {0: Outcome.DONE}


@pytest.mark.parametrize("kinds", [("create", "exec", "kill", "remove"), ("create", "wait", "stop", "remove")])
def test_a_command_that_ended_by_a_signal_of_somebody_else_has_failed(kinds):
    """What the script stops or kills later was not told to end by it: its short time is no measurement."""
    what = kinds[1]
    scene = Scene(*kinds, behave={what: lambda _: OperationResult(1, 2, exit_code=137)})
    scene.order(1)
    scene.settle()
    assert scene.outcomes() == {0: Outcome.FAILED}
    assert scene.errors()[0][:2] == (what, "exit-code")


def test_death_for_want_of_memory_is_a_failure_even_then():
    """A container that the kernel killed is no success, whatever the script was going to do to it."""
    behave = {"wait": lambda _: OperationResult(1, 2, exit_code=137, oom_killed=True)}
    scene = Scene("create", "wait", "kill", "remove", behave=behave)
    scene.order(1)
    scene.settle()
    assert scene.errors()[0][1] == "oom-killed"


def test_a_fault_inside_an_engine_is_a_failed_operation(caplog):
    """A bug in an engine costs its job, not the slot."""
    scene = Scene("create", "exec", "remove", behave={"exec": lambda _: {}["missing"]}, slots=1)
    scene.order(3)
    scene.settle()
    assert list(scene.outcomes().values()) == [Outcome.FAILED] * 3
    assert scene.errors()[0][:2] == ("exec", "internal")
    assert not scene.engine.there
    assert "engine raised an unexpected error in operation" in caplog.text


def test_an_engine_that_is_away_fails_each_job_with_the_reason_until_it_is_back():
    """It costs little CPU time: a slot pauses after each of them."""
    away = Event()
    away.set()
    scene = Scene("create", "remove", slots=1, away=away)
    scene.order(9)
    scene.wait_until(scene.outcomes)
    assert len(scene.outcomes()) == 1
    away.clear()
    scene.settle()
    assert set(scene.errors()) == {("worker", "unreachable", "the engine does not answer")}
    assert list(scene.outcomes().values()).count(Outcome.DONE) == 9 - len(scene.errors()) > 0


def test_a_container_that_cannot_be_removed_is_told():
    """A job that leaves something behind has failed, with what the engine said."""
    scene = Scene("create", behave={"remove": fails("engine", "device busy")})
    scene.order(1)
    scene.settle()
    assert scene.errors() == [("clean-up", "engine", "device busy")]


def test_keep_leaves_what_the_job_left():
    """With --keep the worker does not tidy up."""
    scene = Scene("create", keep=True)
    scene.order(1)
    scene.settle()
    assert scene.outcomes() == {0: Outcome.DONE}
    assert len(scene.engine.there) == 1


def test_abort_ends_what_runs_and_what_waits():
    """Running jobs are interrupted and tidied up, waiting ones end at once, all as aborted."""
    scene = Scene("create", "exec", "remove", slots=2, behave={"exec": lambda _: gevent.sleep(60)})
    scene.order(5)
    scene.wait_until(lambda: scene.begun("exec") == 2)
    assert scene.crew.running == 2
    scene.crew.abort()
    scene.settle()
    assert scene.outcomes() == dict.fromkeys(range(5), Outcome.ABORTED)
    assert not scene.engine.there


def test_the_slots_go_on_after_an_abort():
    """Jobs that come after an abort run as ever."""
    scene = Scene("create", "exec", "remove", slots=2, behave={"exec": lambda _: gevent.sleep(60)})
    scene.order(2)
    scene.wait_until(lambda: scene.begun("exec") == 2)
    scene.crew.abort()
    scene.settle()
    scene.engine.behave = {}
    scene.take([7])
    scene.settle()
    assert scene.outcomes()[7] is Outcome.DONE


def test_abort_does_not_interrupt_what_changes_something():
    """A container that is being made is made, and then removed: hanging up would leave it to nobody."""

    created = Event()
    scene = Scene(
        "create", "exec", "remove", slots=2, behave={"create": lambda _container: created.wait(ANSWER_S) and None}
    )
    scene.order(2)
    scene.wait_until(lambda: scene.begun("create") == 2)
    began = len(scene.engine.there)
    scene.crew.abort()
    gevent.sleep(0)
    created.set()
    scene.settle()
    assert began == 2
    assert scene.outcomes() == dict.fromkeys(range(2), Outcome.ABORTED)
    assert sum(len(operations) for _, operations in scene.rows()) == 2
    assert not scene.engine.there


def test_the_command_of_create_and_run_goes_before_the_containers_own():
    """What a scenario says to run is what is run; a making that names no command has the container's."""
    operations = (
        Operation("create", "create", argv=("first",)),
        Operation("remove", "remove"),
        Operation("run", "run", argv=("second",)),
        Operation("remove", "remove-2"),
        Operation("create", "create-2"),
        Operation("remove", "remove-3"),
    )
    scene = Scene("create", slots=1)
    settings = ContainerSettings(image="i", command=("own",))
    scene.define(operations, settings)
    scene.order(1)
    scene.settle()
    assert scene.outcomes() == {0: Outcome.DONE}
    assert scene.engine.commands == [("first",), ("second",), ("own",)]


def test_no_more_jobs_run_at_once_than_the_trial_is_wide():
    """Jobs that wait here beyond those that run keep waiting, however many slots there are."""
    scene = Scene("create", "exec", "remove", slots=8, behave={"exec": lambda _: gevent.sleep(0.001)})
    scene.take(range(30), concurrency=3, batch=4)
    scene.settle()
    assert scene.outcomes() == dict.fromkeys(range(30), Outcome.DONE)
    assert scene.engine.most_at_once == 3
    scene.take(range(30, 60), concurrency=8, batch=4)
    scene.settle()
    assert scene.engine.most_at_once == 8


def test_results_leave_in_batches_and_never_wait_for_a_batch_to_fill():
    """Ten free jobs in batches of four: two whole ones, and the rest once there is nothing else to do."""
    scene = Scene("create", "remove", slots=1)
    scene.take(range(10), batch=4)
    scene.settle()
    assert [len(batch.tickets) for batch in scene.batches()] == [4, 4, 2]


def test_a_job_that_arrives_begins_at_its_instant_and_not_before():
    """Orders wait behind the gate, in the order of their instants; a late one goes at once."""
    began = []
    scene = Scene(
        "create", "remove", behave={"create": lambda container: began.append((container.ticket, monotonic_ns()))}
    )
    scene.open(1.0)
    intended = scene.arrive(4, 2, -1)
    scene.settle()
    assert [ticket for ticket, _ in began] == [2, 1, 0]
    assert all(at >= intended[ticket] for ticket, at in began)
    assert set(scene.outcomes().values()) == {Outcome.DONE}


def test_a_job_for_which_no_slot_is_free_in_time_is_dropped():
    """It has failed, says so, and nothing was made for it."""
    scene = Scene("create", "exec", "remove", slots=1, behave={"exec": lambda _: gevent.sleep(0.3)})
    scene.open(0.15)
    scene.arrive(-0.1, 0, 0)
    scene.settle()
    assert scene.outcomes() == {0: Outcome.DONE, 1: Outcome.FAILED, 2: Outcome.FAILED}
    assert scene.errors() == [("arrival", "dropped", "no slot was free within 150ms of its arrival")] * 2
    assert len(scene.engine.commands) == 1


def test_jobs_that_have_not_arrived_can_be_called_off():
    """They end aborted, and the crew is idle."""
    scene = Scene("create", "remove")
    scene.open(1.0)
    scene.arrive(60_000, 70_000)
    assert not scene.crew.idle
    scene.crew.abort()
    assert scene.crew.idle
    assert scene.outcomes() == {0: Outcome.ABORTED, 1: Outcome.ABORTED}


@pytest.mark.parametrize(("end", "asked"), [("release", ["clear"]), ("close", ["leave"])])
def test_only_the_end_of_the_run_deletes_the_objects_of_other_workers(end, asked):
    """Who leaves a run that goes on leaves those alone."""
    told = []
    objects = SimpleNamespace(
        define=lambda *_: None, clear=lambda: told.append("clear"), leave=lambda: told.append("leave")
    )
    assignment = RunContext("run", "w", 1, noop=False, keep=False, allow_host_mounts=False)
    outbox = Outbox(1, lambda _frame: True)
    crew = JobExecutor(
        assignment, outbox, lambda _name, options: FakeEngine(options), opened_runner=lambda *_: objects
    )
    mix = (("create", 1.0),)
    job = Objects((SizeClass("tiny", Sizes("fixed", 1, 1), mix),))
    crew.define(Treatment(0, {}, None, "swift", job))
    getattr(crew, end)()
    assert told == asked
