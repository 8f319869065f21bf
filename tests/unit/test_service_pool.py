"""Services of a job on a fake engine: started, checked, prepared once, stopped, and never left behind."""

import gevent
import pytest
from deadlines import ANSWER_S, wait_until
from places import DATA

from bench_common.messages import RESULTS
from bench_common.records import Outcome
from bench_common.treatment import ContainerSettings, Guest, Treatment
from bench_master.run.results import to_rows, unpack_results
from bench_worker import operation_runner, services
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.noop import NoopEngine
from bench_worker.job_executor import JobExecutor, RunContext
from bench_worker.outbox import Outbox
from bench_workloads.registry import workload
from bench_workloads.script import job_limit_s, job_script, preparation_script

PRINTED = (DATA / "sysbench" / "oltp_read_write.txt").read_bytes()


class ServingEngine(NoopEngine):
    """Keeps a list of what was asked of it, and does what the test says where it says something."""

    inapplicable = frozenset()

    def __init__(self, options, behave):
        super().__init__(options)
        self.behave = behave
        self.there, self.running, self.asked = set(), set(), []

    def _do(self, what, container, *words):
        self.asked.append((what, container.name.removeprefix("wb-run-"), *words))
        act = self.behave.get(what)
        return (act and act(container, *words)) or OperationResult(1, 2, exit_code=0, stdout=PRINTED)

    def create(self, container, *, timeout_s):
        container.handle = container.name
        self.there.add(container.name)
        return self._do("create", container)

    def start(self, container, *, timeout_s):
        self.running.add(container.name)
        return self._do("start", container)

    def stop(self, container, *, grace_s, timeout_s):
        self.running.discard(container.name)
        return self._do("stop", container)

    def exec(self, container, argv, *, timeout_s):
        return self._do("exec", container, argv)

    def wait(self, container, *, timeout_s):
        if container.name.endswith("mariadb") and container.name in self.running:
            raise OperationFailed("timeout", "it runs", start_ns=1, end_ns=2)
        return self._do("wait", container)

    def remove(self, container, *, timeout_s):
        self.there.discard(container.name)
        self.running.discard(container.name)
        container.handle = None
        return self._do("remove", container)

    def logs(self, container, *, limit_bytes, timeout_s):
        return OperationResult(1, 2, stdout=PRINTED)

    def address(self, container, *, timeout_s):
        return "10.0.0.7"


class Scene:
    """A crew whose one treatment is sysbench-oltp."""

    def __init__(self, behave=None, *, slots=1, keep=False, **params):
        self.frames, self.engine = [], None
        outbox = Outbox(1, lambda frame: self.frames.append(frame) or True)

        def open_engine(_name, options):
            self.engine = ServingEngine(options, behave or {})
            return self.engine

        assignment = RunContext("run", "w", slots, noop=False, keep=keep, allow_host_mounts=False)
        self.told = []
        self.crew = JobExecutor(assignment, outbox, open_engine, report_progress=self.told.append)
        job = Guest("sysbench-oltp", workload("sysbench-oltp").defaults() | params)
        services = {"mariadb": ContainerSettings(image="m", env={"LANG": "C"})}
        self.treatment = Treatment(0, {}, None, "fake", job, ContainerSettings(image="s"), services=services)
        self.crew.define(self.treatment)
        self.slots = slots

    def run(self, count):
        self.crew.take(0, 0, [(ticket, 0, 0) for ticket in range(count)], concurrency=self.slots, batch=1)
        self.settle()

    def settle(self):
        with gevent.Timeout(ANSWER_S):
            while not self.crew.idle:
                gevent.sleep(0.001)
            gevent.sleep(0)

    def batches(self):
        messages = [RESULTS.decode(frame) for frame in self.frames]
        return [unpack_results(message, [len(job_script(self.treatment))], [0]) for message in messages]

    def outcomes(self):
        rows = [row for batch in self.batches() for row in to_rows([batch], [0], [0])[0]["outcome"].tolist()]
        return [Outcome(row) for row in rows]

    def errors(self):
        return [(one.operation, one.kind, one.message) for batch in self.batches() for one in batch.errors]

    def steps(self):
        return [asked[2][-1] for asked in self.engine.asked if asked[0] == "exec"]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(services, "READY_POLL_S", 0.0)


def test_tables_are_made_once_and_the_server_is_started_for_each_job():
    """Three jobs of a treatment: one server, three starts, one preparation, and nothing left at the end."""
    scene = Scene()
    scene.run(3)
    assert scene.outcomes() == [Outcome.DONE] * 3
    assert scene.steps().count("prepare") == 1
    assert scene.steps().count("run") == 0  # the only step of a job is its container's own command
    server = [asked[0] for asked in scene.engine.asked if asked[1] == "0-0-mariadb"]
    assert server == ["create", *["start", "exec", "stop"] * 3]
    assert scene.engine.there == {"wb-run-0-0-mariadb"}
    scene.crew.release()
    assert not scene.engine.there


def test_what_is_prepared_for_long_is_told(monkeypatch):
    """The engine with its image, the server that starts, the tables; then nothing more."""
    monkeypatch.setattr(operation_runner, "PREPARATION_NOTICE_S", 0.0)

    def act(*_):
        """Take as long as the notice does."""
        gevent.sleep(0.005)

    monkeypatch.setattr(ServingEngine, "prepare", act)
    scene = Scene({"start": act, "exec": act})
    scene.run(1)
    assert scene.outcomes() == [Outcome.DONE]
    assert list(filter(None, scene.told)) == [
        "preparing engine fake and its image",
        "starting mariadb, and waiting until it is ready",
        "preparing what the jobs of sysbench-oltp use",
    ]
    assert scene.told[-1] == ""


def test_a_server_whose_tables_are_made_for_each_job_lives_as_long_as_one():
    """Nothing is prepared once, so nothing is kept."""
    scene = Scene(prepare="each-job", warmup=1.0)
    scene.run(2)
    assert scene.outcomes() == [Outcome.DONE] * 2
    assert scene.steps() == ["ready-mariadb", "prepare", "run", "run", "cleanup"] * 2
    assert not scene.engine.there


def test_jobs_at_the_same_time_have_servers_of_their_own():
    """Two in flight of six: two servers, each prepared once."""
    scene = Scene({"wait": lambda *_: gevent.sleep(0.001)}, slots=2)
    scene.run(6)
    assert scene.outcomes() == [Outcome.DONE] * 6
    made = [asked[1] for asked in scene.engine.asked if asked[0] == "create" and asked[1].endswith("mariadb")]
    assert len(made) == 2
    assert scene.steps().count("prepare") == 2


def test_commands_name_where_the_server_is():
    """What stands for host and port is filled in; the server is told its port."""
    seen = {}

    def note(container, *words):
        seen.setdefault(container.name, container.settings)

    scene = Scene({"create": note})
    scene.run(1)
    (command,) = [one.command for name, one in seen.items() if name == "wb-run-0-0"]
    assert {"--mysql-host=10.0.0.7", "--mysql-port=3306"} <= set(command)
    assert not any("{" in word for word in command)
    server = seen["wb-run-0-0-mariadb"]
    assert server.command == ("serve-mariadb",)
    assert server.env == {"LANG": "C", "LISTEN_HOST": "0.0.0.0", "LISTEN_PORT": "3306"}


def test_a_socket_is_in_a_volume_that_the_job_shares():
    """The server has a volume for it, the job's container the server's volumes; commands name its path."""
    seen = {}

    def note(container, *words):
        seen.setdefault(container.name, container)

    scene = Scene({"create": note}, connection="socket")
    scene.run(1)
    server, job = seen["wb-run-0-0-mariadb"], seen["wb-run-0-0"]
    assert server.settings.env["LISTEN_SOCKET"] == "/run/mariadb/mysqld.sock"
    assert [(mount.kind, mount.target) for mount in server.settings.storage] == [("volume", "/run/mariadb")]
    assert job.shares == seen["wb-run-0-0-once"].shares == ("wb-run-0-0-mariadb",)
    assert "--mysql-socket=/run/mariadb/mysqld.sock" in job.settings.command
    assert not any(word.startswith(("--mysql-host", "--mysql-port")) for word in job.settings.command)


def ending(exit_code):
    """Return a scene whose server ends with this code before it is ready."""

    def dies(container, argv):
        raise OperationFailed("conflict", "not running", start_ns=1, end_ns=2)

    def start(container):
        scene.engine.running.discard(container.name)

    ended = OperationResult(1, 2, exit_code=exit_code)
    scene = Scene({"exec": dies, "start": start, "wait": lambda _: ended})
    return scene


def test_a_server_that_ends_before_it_is_ready_fails_its_job_and_goes():
    """The job has failed for the service, with the end of its log; none of its own operations was tried."""
    scene = ending(1)
    scene.run(1)
    ((operation, kind, message),) = scene.errors()
    assert (operation, kind) == ("mariadb", "service")
    assert "mariadb ended with exit code 1 before it was ready" in message
    assert not scene.engine.there


def test_a_server_whose_program_the_host_lacks_is_a_missing_requirement(monkeypatch):
    """An optional treatment is then skipped, whatever the script that starts the server says."""
    monkeypatch.setattr(ServingEngine, "inapplicable", frozenset({"image"}))
    monkeypatch.setattr(services.shutil, "which", lambda *_, **__: None)
    scene = ending(65)
    scene.run(1)
    assert scene.errors() == [("mariadb", "command-not-found", "there is no program mariadbd on PATH")]


def test_a_server_that_is_never_ready_fails_its_job_with_what_it_said(monkeypatch):
    """After the deadline: what the check said, and what the server printed last."""
    monkeypatch.setattr(
        ServingEngine, "logs", lambda *_, **__: OperationResult(1, 2, stderr=b"one\ntwo\nthe disk is odd\n")
    )
    now = iter(range(0, 100000, 50))
    monkeypatch.setattr(services, "monotonic", lambda: float(next(now)))
    scene = Scene({"exec": lambda *_: OperationResult(1, 2, exit_code=1, stderr=b"no such user\n")})
    scene.run(1)
    ((operation, kind, message),) = scene.errors()
    assert (operation, kind) == ("mariadb", "service")
    assert "was not ready within 120 s (no such user); its log: one / two / the disk is odd" in message
    (output,) = [output for batch in scene.batches() for output in batch.outputs]
    assert (output.step, output.stderr) == ("mariadb", b"one\ntwo\nthe disk is odd\n")
    assert not scene.engine.there


def test_of_a_long_log_the_errors_are_told(monkeypatch):
    """A server that goes on talking after it has failed does not bury why."""
    log = b"[Note] starting, log_error off\n[ERROR] no space left\n[Error] giving up\n" + b"see the manual\n" * 20
    monkeypatch.setattr(ServingEngine, "logs", lambda *_, **__: OperationResult(1, 2, stderr=log))
    now = iter(range(0, 100000, 50))
    monkeypatch.setattr(services, "monotonic", lambda: float(next(now)))
    scene = Scene({"exec": lambda *_: OperationResult(1, 2, exit_code=1)})
    scene.run(1)
    ((_, _, message),) = scene.errors()
    assert message.endswith("its log: [ERROR] no space left / [Error] giving up")


def test_a_server_that_cannot_be_made_fails_its_job():
    """The engine's reason is told."""

    def refuses(container):
        container.handle = None
        raise OperationFailed("image-missing", "no such image: m", start_ns=1, end_ns=2)

    scene = Scene({"create": refuses})
    scene.run(1)
    assert scene.errors() == [("mariadb", "service", "mariadb could not be started: no such image: m")]


def test_a_fault_inside_an_engine_costs_its_job_and_leaves_nothing(caplog):
    """The server goes even where nobody foresaw what happened."""
    scene = Scene({"exec": lambda *_: {}["missing"]})
    scene.run(1)
    assert scene.errors()[0][:2] == ("worker", "internal")
    assert not scene.engine.there
    assert "failed inside the worker" in caplog.text


def test_a_preparation_that_fails_fails_the_job_and_is_tried_again_for_the_next():
    """A set of services whose state nobody knows is not used again."""
    failing = iter([True, False])

    def once(container, argv):
        return (
            OperationResult(1, 2, exit_code=1, stdout=b"FATAL: no\n")
            if argv[-1] == "prepare" and next(failing)
            else None
        )

    scene = Scene({"exec": once})
    scene.run(2)
    assert scene.outcomes() == [Outcome.FAILED, Outcome.DONE]
    assert scene.errors()[0][:2] == ("prepare", "exit-code")
    assert scene.engine.there == {"wb-run-1-0-mariadb"}


def test_a_server_that_dies_under_its_job_is_named_as_the_reason():
    """What the tool says of a lost connection is not the story; that the server was killed is."""

    def lost(container):
        if not container.name.endswith("mariadb"):
            scene.engine.running.discard("wb-run-0-0-mariadb")
            return OperationResult(1, 2, exit_code=1, stdout=b"FATAL: lost connection\n")
        return OperationResult(1, 2, exit_code=137, oom_killed=True)

    scene = Scene({"wait": lost})
    scene.run(1)
    ((operation, kind, message),) = scene.errors()
    assert (operation, kind) == ("mariadb", "oom-killed")
    assert "killed by the OOM killer" in message
    assert not scene.engine.there


def test_an_abort_while_a_server_comes_up_leaves_nothing():
    """The wait for it is interrupted, the job is aborted, the server removed."""
    scene = Scene({"exec": lambda *_: gevent.sleep(60)})
    scene.crew.take(0, 0, [(0, 0, 0)], concurrency=1, batch=1)
    wait_until(lambda: scene.engine and scene.engine.there, sleep=gevent.sleep)
    scene.crew.abort()
    scene.settle()
    assert scene.outcomes() == [Outcome.ABORTED]
    assert not scene.engine.there


def test_keep_leaves_the_services_too():
    """With --keep nothing is removed."""
    scene = Scene(keep=True)
    scene.run(1)
    scene.crew.release()
    assert scene.engine.there == {"wb-run-0-0-mariadb"}


def test_a_jobs_limit_has_room_for_its_services():
    """Nobody takes a job for hung whose server takes its time."""
    scene = Scene()
    doing_s = sum(60.0 for _ in job_script(scene.treatment))
    assert [one.name for one in preparation_script(scene.treatment)] == ["create", "start", "prepare", "remove"]
    assert job_limit_s(scene.treatment) > doing_s + 120 + 120
