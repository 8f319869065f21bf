"""Services on another worker: had through the master's desk, on a fake engine; lost, called off, never left there."""

import gevent
import pytest
from deadlines import ANSWER_S, wait_until
from test_service_pool import ServingEngine

from bench_common.errors import ProtocolError
from bench_common.messages import (
    FROM_WORKER,
    RESULTS,
    WORK,
    DefineTreatment,
    ServiceCommand,
    ServiceReply,
    ServiceRequest,
    ServiceResult,
    encode,
)
from bench_common.records import Outcome
from bench_common.requirements import ServiceOutcome
from bench_common.treatment import ContainerSettings, Guest, Treatment
from bench_master.coordinator.roster import Roster
from bench_master.run.remote_services import ServiceBroker
from bench_master.run.results import to_rows, unpack_results
from bench_worker import remote_services, services
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.job_executor import JobExecutor, RunContext
from bench_worker.outbox import Outbox
from bench_workloads.registry import workload
from bench_workloads.script import job_script

HERE, THERE = 0, 1


class Engine(ServingEngine):
    """One that publishes ports, and prints what the tool of the workload does."""

    def published_port(self, container, *, timeout_s):
        return 40_000 + container.publish[1]

    def logs(self, container, *, limit_bytes, timeout_s):
        if container.name.endswith(("webbench", "mariadb")):
            return OperationResult(1, 2, stderr=b"[error] the server says why\n")
        return super().logs(container, limit_bytes=limit_bytes, timeout_s=timeout_s)


def request(treatment, service, ticket, action):
    return ServiceRequest(epoch=1, treatment=treatment, service=service, ticket=ticket, action=action)


def result(command, outcome):
    fields = {name: getattr(command, name) for name in ("treatment", "service", "ticket", "action")}
    message = ServiceResult(epoch=1, **fields, outcome=outcome)
    return FROM_WORKER.decode(encode(message))


class Pair:
    """Two workers and the desk between them: the first takes the jobs, the second runs their services."""

    def __init__(self, name="sysbench-oltp", service="mariadb", behave=None, here=None, **params):
        self.remarks, self.frames, self.engines, self.deaf = [], [], {}, set()
        job = Guest(name, workload(name).defaults() | params)
        own = ContainerSettings(image="s")
        self.treatment = Treatment(
            0, {}, None, "fake", job, own, services={service: own}, placement={service: "b"}, timeout_s=ANSWER_S
        )
        self.roster = Roster(0, {})
        self.members = [
            self.roster.add(worker_id, "lab", 4, None, worker_id.encode(), 0.0) for worker_id in ("a", "b")
        ]
        self.desk = ServiceBroker([self.treatment], self.roster, self.remarks.append)
        self.crews = [self._crew(number, acts or {}) for number, acts in ((HERE, here), (THERE, behave))]
        self.crews[HERE].define(self.treatment)

    def _crew(self, number, behave):
        def open_engine(_name, options):
            self.engines[number] = Engine(options, behave)
            return self.engines[number]

        frames = self.frames if number == HERE else []
        return JobExecutor(
            RunContext(
                "run", "ab"[number], 4, noop=False, keep=False, allow_host_mounts=False, address=f"10.0.0.{number}"
            ),
            Outbox(1, lambda frame: frames.append(frame) or True),
            open_engine,
            request=lambda *fields: self.send(self.desk.on_request(self.members[number], request(*fields))),
            reply=lambda *fields: self.send(self.desk.on_result(self.members[number], result(*fields))),
        )

    def send(self, messages):
        for one in messages:
            frame = encode(one.message)
            gevent.spawn(self._deliver, one.number, WORK.decode(frame))

    def _deliver(self, number, message):
        if (number, type(message)) in self.deaf:
            return
        match message:
            case DefineTreatment():
                self.crews[number].define(message.treatment)
            case ServiceCommand():
                self.crews[number].service_host.run(message)
            case ServiceReply():
                place = (message.ticket, message.service, message.action)
                self.crews[number].service_requests.on_reply(*place, message.outcome)

    def lose(self, number, reason="silent for 5.1 s"):
        self.roster.mark_missing(self.members[number], 0.0)
        self.send(self.desk.on_worker_lost(number, reason))

    def take(self, count=1):
        self.crews[HERE].take(0, 0, [(ticket, 0, 0) for ticket in range(count)], concurrency=1, batch=1)

    def settle(self):
        with gevent.Timeout(ANSWER_S):
            while not self.crews[HERE].idle:
                gevent.sleep(0.001)
            gevent.sleep(0.005)

    def run(self, count=1):
        self.take(count)
        self.settle()
        return self.outcomes()

    def batches(self):
        messages = [RESULTS.decode(frame) for frame in self.frames]
        return [unpack_results(message, [len(job_script(self.treatment))], [0]) for message in messages]

    def outcomes(self):
        return [Outcome(row) for one in self.batches() for row in to_rows([one], [0], [0])[0]["outcome"].tolist()]

    def errors(self):
        return [(one.operation, one.kind, one.message) for batch in self.batches() for one in batch.errors]

    def there(self):
        return set().union(*(engine.there for engine in self.engines.values()))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(services, "READY_POLL_S", 0.0)
    monkeypatch.setattr(remote_services, "READY_POLL_S", 0.0)
    monkeypatch.setattr(remote_services, "_connect", lambda host, port, timeout_s: None)


def test_tables_are_made_once_in_a_server_elsewhere():
    """Started and stopped for each job there, prepared once from here, and gone when the treatment is over."""
    pair = Pair()
    assert pair.run(3) == [Outcome.DONE] * 3
    server = [asked[0] for asked in pair.engines[THERE].asked]
    assert server == ["create", *["start", "exec", "stop"] * 3]
    steps = [asked[2][-1] for asked in pair.engines[HERE].asked if asked[0] == "exec"]
    assert steps == ["prepare"]
    assert pair.there() == {"wb-run-0-0-mariadb"}
    pair.crews[HERE].release()
    assert pair.there() == set()


def test_a_server_without_preparation_lives_as_long_as_its_job():
    """Made and removed for each; the report says where it ran."""
    pair = Pair(prepare="each-job")
    assert pair.run(2) == [Outcome.DONE] * 2
    assert [asked[0] for asked in pair.engines[THERE].asked] == ["create", "start", "exec", "remove"] * 2
    assert pair.there() == set()
    assert set(pair.remarks) == {"fake: mariadb of jobs on worker a ran on worker b (lab), reached at 10.0.0.1"}


def test_commands_name_the_other_host_and_the_published_port():
    """The server listens in a network of its own; what is reached is its host."""
    seen = {}
    pair = Pair(behave={"create": lambda container: seen.setdefault(container.name, container) and None})
    pair.run()
    assert seen["wb-run-0-0-mariadb"].publish == ("10.0.0.1", 3306)
    (step,) = [asked[2] for asked in pair.engines[HERE].asked if asked[0] == "exec"]
    assert {"--mysql-host=10.0.0.1", "--mysql-port=43306"} <= set(step)


def test_a_server_that_does_not_start_there_fails_the_job_here():
    """With the worker's name, and what the engine said; nothing of either host is left."""

    def refuses(container):
        container.handle = None
        raise OperationFailed("image-missing", "no such image: m", start_ns=1, end_ns=2)

    pair = Pair(behave={"create": refuses})
    assert pair.run() == [Outcome.FAILED]
    text = "mariadb could not be started: no such image: m (on worker b)"
    assert pair.errors() == [("mariadb", "service", text)]


def test_a_server_that_is_not_reached_from_here_fails_the_job(monkeypatch):
    """Ready there, but behind a firewall: said so, with the address that was tried, and removed."""

    def refused(*_):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(remote_services, "_connect", refused)
    now = iter(range(0, 1000, 5))
    monkeypatch.setattr(remote_services, "monotonic", lambda: float(next(now)))
    pair = Pair()
    assert pair.run() == [Outcome.FAILED]
    ((operation, kind, message),) = pair.errors()
    assert (operation, kind) == ("mariadb", "service")
    assert message.startswith("mariadb is ready at 'b', but is not reached from here at 10.0.0.1:43306: ")
    assert pair.there() == set()


def test_the_loss_of_the_servers_host_ends_the_job_at_once():
    """The tool would wait for an answer that never comes; the job has failed, with that reason, and is clean here."""
    stuck = gevent.event.Event()
    pair = Pair(prepare="each-job", here={"exec": lambda *_: stuck.wait() and None})
    pair.take()
    wait_until(
        lambda: HERE in pair.engines and "exec" in [asked[0] for asked in pair.engines[HERE].asked],
        sleep=gevent.sleep,
    )
    pair.lose(THERE)
    pair.settle()
    assert pair.outcomes() == [Outcome.FAILED]
    assert pair.errors() == [("mariadb", "service", "mariadb was lost with worker b: silent for 5.1 s")]
    assert pair.engines[HERE].there == set()


def test_the_loss_of_the_clients_host_removes_the_server():
    """Nobody else would ask for that."""
    pair = Pair(prepare="each-job")
    pair.deaf.add((HERE, ServiceReply))
    pair.take()
    with gevent.Timeout(ANSWER_S):
        while not pair.there():
            gevent.sleep(0.001)
        pair.lose(HERE)
        while pair.there():
            gevent.sleep(0.001)
    pair.crews[HERE].service_requests.disconnect()
    pair.settle()
    assert pair.errors()[0][2].startswith("mariadb could not be started: its worker cannot be asked any more")


def test_a_job_that_is_called_off_has_its_server_removed_while_that_one_starts():
    """Its readiness is not waited for to the end."""
    never = gevent.event.Event()
    pair = Pair(behave={"exec": lambda *_: never.wait() and None})
    pair.take()
    with gevent.Timeout(ANSWER_S):
        while THERE not in pair.engines or pair.engines[THERE].asked[-1][0] != "exec":
            gevent.sleep(0.001)
        pair.crews[HERE].abort()
        pair.settle()
    assert pair.outcomes() == [Outcome.ABORTED]
    assert pair.there() == set()


def test_no_answer_is_a_failed_job(monkeypatch):
    """After the deadline, naming who did not answer; what may have been made is asked to go."""
    monkeypatch.setattr(remote_services, "remote_service_limit_s", lambda *_: 0.01)
    pair = Pair(prepare="each-job")
    pair.deaf.add((THERE, ServiceCommand))
    monkeypatch.setattr(remote_services.RemoteServiceClient, "_run", lambda *_: None)
    assert pair.run() == [Outcome.FAILED]
    assert pair.errors() == [("mariadb", "service", "mariadb could not be started: no answer from 'b' within 0.01 s")]


def test_what_is_wanted_of_a_missed_worker_waits_until_it_is_back():
    """A restart must not cost the jobs that come meanwhile."""
    pair = Pair(prepare="each-job")
    pair.roster.mark_missing(pair.members[THERE], 0.0)
    pair.take()
    gevent.sleep(0.005)
    assert not pair.outcomes()
    pair.roster.readmit(pair.members[THERE], b"b2", 4, 0.0)
    pair.send(pair.desk.on_worker_back(THERE))
    pair.settle()
    assert pair.outcomes() == [Outcome.DONE]


def test_what_is_wanted_of_a_worker_that_is_given_up_is_not_had():
    """Said so at once."""
    pair = Pair(prepare="each-job")
    pair.roster.mark_missing(pair.members[THERE], 0.0)
    pair.take()
    gevent.sleep(0.005)
    pair.send(pair.desk.on_worker_given_up(THERE))
    pair.settle()
    assert pair.errors() == [("mariadb", "service", "worker b is lost: it did not reconnect")]


def test_a_server_that_ended_under_its_job_is_named_with_its_log():
    """As for one on the same host."""

    def fails(_container, _argv):
        pair.engines[THERE].running.clear()
        pair.engines[THERE].behave["wait"] = lambda _: OperationResult(1, 2, exit_code=137, oom_killed=True)
        return OperationResult(1, 2, exit_code=1, stdout=b"FATAL: lost connection\n")

    pair = Pair(prepare="each-job", here={"exec": fails})
    assert pair.run() == [Outcome.FAILED]
    ((operation, kind, message),) = pair.errors()
    assert (operation, kind) == ("mariadb", "oom-killed")
    assert "mariadb was killed by the OOM killer (memory limit) during the job" in message
    outputs = {one.step: one for batch in pair.batches() for one in batch.outputs}
    assert outputs["mariadb"].stderr == b"[error] the server says why\n"
    assert pair.there() == set()


@pytest.mark.parametrize(("treatment", "service"), [(1, "mariadb"), (0, "webbench")])
def test_a_service_that_is_not_placed_is_refused(treatment, service):
    """By the broker, and by a worker that is told so all the same."""
    pair = Pair()
    with pytest.raises(ProtocolError, match="which is not placed"):
        pair.desk.on_request(pair.members[HERE], request(treatment, service, 1, "start"))
    command = ServiceCommand(epoch=1, treatment=treatment, service=service, ticket=1, action="start")
    with pytest.raises(ProtocolError, match="which is not placed"):
        pair.crews[THERE].service_host.run(command)


@pytest.mark.parametrize("action", ["format", "lost"])
def test_an_unknown_action_is_refused(action):
    """A worker requests one of four actions; that a service is lost only the master says."""
    with pytest.raises(ProtocolError, match="action"):
        encode(request(0, "mariadb", 1, action))


def test_a_worker_has_no_say_in_the_services_of_another():
    """It neither requests actions on them, nor reports their outcome."""
    pair = Pair()
    started = pair.desk.on_request(pair.members[HERE], request(0, "mariadb", 7, "start"))
    assert [type(one.message) for one in started] == [DefineTreatment, ServiceCommand]
    with pytest.raises(ProtocolError, match="another worker's"):
        pair.desk.on_request(pair.members[THERE], request(0, "mariadb", 7, "remove"))
    with pytest.raises(ProtocolError, match="belongs to another worker's host"):
        pair.desk.on_result(pair.members[HERE], result(started[1].message, ServiceOutcome()))


def test_a_client_has_no_end_of_services():
    """A worker gone wrong cannot fill another host with them."""
    pair = Pair()
    errors = [
        one.message.outcome.error
        for ticket in range(1000)
        for one in pair.desk.on_request(pair.members[HERE], request(0, "mariadb", ticket, "start"))
        if isinstance(one.message, ServiceReply)
    ]
    assert 0 < len(errors) < 1000
    assert set(errors) == {"this worker uses mariadb in too many jobs already"}
