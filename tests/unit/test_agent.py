"""The agent's parts: its word to masters, its comparison of clocks, its load process."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from bench_common.clock import ClockOffset
from bench_common.messages import FROM_MASTER, Credentials, HeartbeatAck, MeasureSpeed, RunSpec, Welcome, encode
from bench_worker import agent as agent_module
from bench_worker import supervisor, worker_run
from bench_worker.admission import hello_message, start_message
from bench_worker.agent import Agent, gives_up
from bench_worker.cleanup import CleanupResult
from bench_worker.cli import AgentOptions
from bench_worker.host.sampler import SpeedReading
from bench_worker.master_clock import OFFSET_MAX_AGE_S, MasterClock
from bench_worker.pipe_channel import Ready
from bench_worker.supervisor import MAX_FAILED_STARTS, LoadProcessSupervisor
from bench_worker.worker_run import WorkerRun

S = 10**9


def pulse(sent, received, answered, *, epoch=0):
    """Return a master's answer to what was sent at `sent`."""
    return HeartbeatAck(epoch=epoch, echo_ns=sent, received_ns=received, sent_ns=answered)


def options(control="tcp://master:13577", **more):
    return AgentOptions(control, "w", "control", 1, **more)


# -- the agent ----------------------------------------------------------------------------------------------------


class Starting:
    """A load process that was started before the agent, and is still being loaded."""

    on_message = None


@pytest.fixture
def agent(tmp_path):
    """An agent that no master answers."""
    made = Agent(options(f"ipc://{tmp_path}/control"), dict, Starting())
    yield made
    made._line.close()


def test_a_load_process_may_have_been_started_before_its_agent(agent):
    """What it says reaches the agent; that it is ready is acted on at once, not when the next hello is due."""
    agent._load._handle.on_message(Ready())
    agent._rest(1e6)  # ends only if it is woken


def test_a_pulse_of_a_run_that_is_not_ours_is_ignored(agent):
    """It says nothing about the master that we wait for."""
    agent._on_heartbeat_ack(pulse(1_000, 6_000, 6_100, epoch=7), 1_300)
    assert agent._clock.last_offset(1_300) is None
    agent._on_heartbeat_ack(pulse(1_000, 6_000, 6_100), 1_300)
    assert agent._clock.last_offset(1_300) is not None


@pytest.mark.parametrize(
    ("alone_s", "asked_for_s", "ends"),
    [(2.9, 2.9, False), (3.1, 3.1, True), (9.0, 0.4, False), (9.0, 1.0, True), (9.0, 0.0, False)],
)
def test_the_timeout_of_a_worker_includes_its_own_start(alone_s, asked_for_s, ends):
    """It took seconds to look at the host: what is left is for the master, a second at least."""
    assert gives_up(3.0, alone_s, asked_for_s) is ends


def test_a_worker_that_looked_at_its_host_for_long_ends_soon_after(tmp_path, monkeypatch):
    """With the clock of the agent: the host took 6 of 3 seconds, so it asks for one second and not for three."""
    now = [100.0]
    monkeypatch.setattr(agent_module, "monotonic", lambda: now[0])
    monkeypatch.setattr(agent_module, "clean_up_dead_runs", lambda: SimpleNamespace(removed=[], unproved={}))

    def describe():
        now[0] += 6.0
        return {}

    load = Starting()
    load.ready = True
    made = Agent(options(f"ipc://{tmp_path}/control", master_timeout_s=3.0), describe, load)
    monkeypatch.setattr(made, "_send_hello", lambda: None)
    monkeypatch.setattr(made, "_check_load_process", lambda: None)
    monkeypatch.setattr(made, "_shut_down", lambda: None)
    monkeypatch.setattr(made._line, "check_reachability", lambda: None)

    def rest(most_s):
        now[0] += most_s

    monkeypatch.setattr(made, "_rest", rest)
    assert made.serve() == 3
    made._line.close()
    assert now[0] - 100.0 < 7.6


@pytest.mark.parametrize(
    ("more", "told"), [({}, True), ({"local": True}, False), ({"run_file": Path("w.run")}, False)]
)
def test_a_worker_started_by_hand_tells_how_it_gets_on(tmp_path, monkeypatch, capsys, more, told):
    """A line for the wait, for each run, and for its end; of one that a master or a fleet started they tell."""
    load = Starting()
    load.ready = True
    for name in ("start", "end"):
        setattr(load, name, lambda *_: None)
    made = Agent(options(f"ipc://{tmp_path}/control", **more), dict, load)
    run = SimpleNamespace(begin=lambda: None, end=lambda: None, watch_pressure=lambda _: None)
    monkeypatch.setattr(made, "_load", load)
    monkeypatch.setattr(made, "_send_hello", lambda: None)
    monkeypatch.setattr(made._line, "check_reachability", lambda: None)
    monkeypatch.setattr(made, "_check_neighbours", lambda *_: None)
    monkeypatch.setattr(made, "_watch_contention", lambda *_: None)
    monkeypatch.setattr(agent_module, "WorkerRun", lambda *_: run)
    monkeypatch.setattr(agent_module, "start_message", lambda *_: None)
    for _ in range(3):
        made._seek_admission(0.0)
    made._welcome(welcome())
    made._leave_run()
    made._line.close()
    assert capsys.readouterr().err.splitlines() == told * [
        f"bench-worker w: waits for a master at ipc://{tmp_path}/control; Ctrl-C ends it",
        "bench-worker w: takes part in run r1 of alice@here (process 1)",
        "bench-worker w: the run is over",
    ]


# -- handshake     ------------------------------------------------------------------------------------------------


def test_a_hello_tells_of_the_host_as_it_is_now():
    """Its load, and how far the master's clock is ahead of its own where that is known."""
    info = hello_message(options(), {"host": "w.lab"}, None, 5).info
    assert (info["host"], "clock" in info) == ("w.lab", False)
    assert info["load"] >= 0
    hello = hello_message(options(), {}, ClockOffset(uncertainty_ns=100, offset_ns=4_900), 5)
    assert hello.info["clock"] == {"offset_ns": 4_900, "uncertainty_ns": 100}
    assert hello.sent_ns == 5


def welcome(endpoint="ipc:///run/lane"):
    """Return a welcome with heartbeats every half second and a lease of 15 s."""
    return Welcome(
        epoch=3,
        spec=RunSpec(
            run_id="r1",
            master="alice@here (process 1)",
            noop=False,
            heartbeat_s=0.5,
            lease_s=15.0,
            sampling_s=1.0,
            keep=False,
            profile=False,
            overhead=None,
        ),
        number=0,
        lane_endpoint=endpoint,
        results_endpoint=endpoint,
        token="secret",
    )


def test_a_time_in_which_a_worker_did_not_run_is_no_silence_of_its_master(monkeypatch):
    """Be it suspended or starved of CPU: only what there usually is between two heartbeats counts."""
    now = [1000.0]
    monkeypatch.setattr(worker_run, "monotonic", lambda: now[0])
    run = WorkerRun(welcome(), "w", lambda *_: None)
    for after_s in (0.5, 3600.0, 0.5, 60.0, 60.0):
        now[0] += after_s
        assert not run.is_master_lost()
    run.on_heartbeat_ack()
    waited_s = 0.0
    while not run.is_master_lost():
        now[0] += 0.5
        waited_s += 0.5
    assert waited_s == 15.5


@pytest.mark.parametrize(("failed", "forgotten"), [([], ["r1"]), (["stuck"], [])])
def test_a_run_that_left_nothing_is_forgotten_at_its_end(monkeypatch, failed, forgotten):
    """The next worker asks no engine about it; one that left something, or was not cleaned up, it looks at."""
    found = []
    monkeypatch.setattr(worker_run, "clean_up_run", lambda _run: CleanupResult(failed=failed))
    monkeypatch.setattr(worker_run, "forget_run", found.append)
    for cleans_up in (False, True):
        run = WorkerRun(welcome(), "w", lambda *_: None)
        if cleans_up:
            run.clean_up()
        run.end()
    assert found == forgotten


@pytest.mark.parametrize(
    ("control", "named", "reached"),
    [
        ("tcp://master:13577", "tcp://0.0.0.0:4000", "tcp://master:4000"),
        ("tcp://[fd00::1]:13577", "tcp://*:4000", "tcp://[fd00::1]:4000"),
        ("ipc:///run/control", "ipc:///run/lane", "ipc:///run/lane"),
    ],
)
def test_the_load_process_reaches_the_master_as_its_agent_does(control, named, reached):
    """A master names ports of its own; under which name it is reached is the worker's to know."""
    run = start_message(options(control, address="10.0.0.7"), welcome(named))
    assert (run.lane_endpoint, run.results_endpoint) == (reached, reached)
    assert run.token == "secret"
    assert (run.context.run_id, run.epoch, run.context.address, run.keys) == ("r1", 3, "10.0.0.7", None)


# -- clocks -------------------------------------------------------------------------------------------------------


def test_a_worker_compares_its_clock_outside_of_a_run():
    """With the master that answers its hello, so that it can tell so with the next."""
    clock = MasterClock()
    assert clock.last_offset(1_000) is None
    clock.add(pulse(1_000, 6_000, 6_100), 1_300, admitted=False)
    assert clock.last_offset(2_000) == ClockOffset(uncertainty_ns=100, offset_ns=4_900)


def test_a_comparison_is_forgotten_before_another_master_answers():
    """What the last one's clock said is of no meaning to the next."""
    clock = MasterClock()
    clock.add(pulse(1_000, 6_000, 6_100), 1_300, admitted=False)
    later = round((OFFSET_MAX_AGE_S + 1) * S)
    assert clock.last_offset(later) is None
    clock.add(pulse(later, later + 8_000, later + 8_100), later + 900, admitted=False)
    assert clock.last_offset(later + 900) == ClockOffset(uncertainty_ns=400, offset_ns=7_600)


def test_a_comparison_with_the_master_of_our_run_outlives_its_silence():
    """It is the same master: the shortest round trip of the last few is still the one to believe."""
    clock = MasterClock()
    clock.add(pulse(1_000, 6_000, 6_100), 1_300, admitted=True)
    later = round((OFFSET_MAX_AGE_S + 1) * S)
    clock.add(pulse(later, later + 5_000_000, later + 5_000_000), later + 10_000_000, admitted=True)
    assert clock.offset_at(later + 10_000_000).uncertainty_ns < 5_000_000
    clock.forget()
    assert clock.offset_at(later + 10_000_000) is None


# -- the load process ---------------------------------------------------------------------------------------------


class Child:
    """A load process that dies when a test says so."""

    on_message = None
    ready = False
    reason = None
    ended = False

    def death_reason(self, *, frozen_s, ready_s):
        return self.reason

    def end(self):
        self.ended = True


@pytest.fixture
def children(monkeypatch):
    """Return the load processes that were started, in their order."""
    started = []

    def start(_engines):
        started.append(Child())
        return started[-1]

    monkeypatch.setattr(supervisor, "LoadProcessHandle", start)
    return started


def test_there_is_always_a_load_process(children):
    """One that died is told of; once it is ended the next look starts another, which reports to the same place."""
    said = []
    keeper = LoadProcessSupervisor(None, said.append)
    assert not keeper.ready
    assert keeper.check() is None
    children[0].ready = True
    assert keeper.ready
    children[0].reason = "was killed by SIGKILL"
    assert keeper.check() == "was killed by SIGKILL"
    keeper.end()
    assert children[0].ended
    assert keeper.check() is None
    children[1].on_message("hello")
    assert (len(children), said) == (2, ["hello"])


def test_a_worker_whose_last_run_it_was_starts_no_other_load_process(children):
    """It would load for a second of CPU time, and be ended at once."""
    keeper = LoadProcessSupervisor(None, lambda _message: None)
    keeper.check()
    keeper.retire()
    keeper.end()
    assert keeper.check() is None
    assert len(children) == 1
    assert not keeper.ready


def test_a_machine_on_which_no_load_process_gets_ready_is_given_up(children):
    """After some in a row; one that got ready first says that it can be done."""
    keeper = LoadProcessSupervisor(None, lambda _message: None)

    def die(*, ready):
        keeper.check()
        children[-1].ready = ready
        children[-1].reason = "ended with exit code 1"
        keeper.check()
        keeper.end()

    for ready in (False, False, True, False, False):
        die(ready=ready)
        assert not keeper.cannot_start
    die(ready=False)
    assert keeper.cannot_start
    assert MAX_FAILED_STARTS == 3


# -- the speed of the host -----------------------------------------------------------------------------------------


def test_one_worker_of_a_host_measures_its_speed(agent, monkeypatch):
    """The others answer at once that they do not, so that the master waits for nobody; old questions are ignored."""
    sent = []
    monkeypatch.setattr(agent._line, "send_or_log", sent.append)
    first, second = (WorkerRun(welcome(), name, lambda *_: None) for name in "ab")
    try:
        for run in (first, second):
            agent._run = run
            agent._on_message(MeasureSpeed(epoch=run.epoch, trial=4))
            agent._on_message(MeasureSpeed(epoch=run.epoch + 1, trial=4))
        assert [(one.epoch, one.trial, one.wall_ns > 0, one.cpu_ns > 0) for one in sent] == [
            (3, 4, True, True),
            (3, 4, False, False),
        ]
    finally:
        agent._run = None
        first._leader.close()
        second._leader.close()


def test_a_trial_is_read_from_the_end_of_the_measurement_on(agent, monkeypatch):
    """The readings before and after the measurement of the speed keep its own work out of both trials."""
    rows, sent = [], []
    monkeypatch.setattr(agent_module, "measure_speed", lambda: rows.append("speed") or SpeedReading(1, 1, 1))
    monkeypatch.setattr(agent._line, "send_or_log", sent.append)
    run = agent._run = WorkerRun(welcome(), "a", lambda *_: None)
    run._pressure = SimpleNamespace(sample=lambda: {"time_ns": 1}, units={})
    monkeypatch.setattr(run.sampling, "add", lambda source, *_: rows.append(source))
    try:
        agent._on_message(MeasureSpeed(epoch=run.epoch, trial=4))
        assert rows == ["pressure", "speed", "pressure"]
    finally:
        agent._run = None
        run._leader.close()


def test_credentials_of_stores_are_for_one_run_and_shown_to_nobody(agent):
    """Variables that say how a store is reached go to that run's load process: no others, and to no other run."""
    given = {"ST_KEY": "hunter2", "LD_PRELOAD": "/tmp/x.so"}
    message = Credentials(epoch=0, run_id="0123456789ab", variables=given)
    assert "hunter2" not in f"{message} {message!r}"
    assert FROM_MASTER.decode(encode(message)) == message
    agent._on_message(message)
    for run_id in (None, "0123456789ab"):
        assert agent._kinds.variables(run_id) == {"ST_KEY": "hunter2"}
    assert agent._kinds.variables("ba9876543210") == {}
    start = start_message(options(), welcome(), agent._kinds.variables("0123456789ab"))
    assert start.store_variables == {"ST_KEY": "hunter2"}
    assert "hunter2" not in repr(start)
    agent._load = Child()
    agent._leave_run()
    assert agent._kinds.variables("0123456789ab") == {}


@pytest.mark.parametrize(("has_ended", "kinds", "told"), [(True, True, None), (False, True, 1), (False, False, 0)])
def test_a_clean_up_whose_load_process_did_not_answer_is_not_reported_as_done(
    agent, monkeypatch, has_ended, kinds, told
):
    """The death of one goes to the master; one that hangs is a failure where it alone knows what is left."""
    reports = []
    agent._run = run = WorkerRun(welcome(), "w", lambda *_: None)
    monkeypatch.setattr(run, "clean_up", lambda: (0, []))
    monkeypatch.setattr(agent, "_report", lambda _run, message: reports.append(message))
    agent._load = SimpleNamespace(release=lambda: False, has_ended=has_ended)
    agent._kinds._needs = ("a need",) if kinds else ()
    agent._on_cleanup(run)
    assert [len(one.failed) for one in reports] == ([] if told is None else [told])
    agent._run = None
