"""Any history of workers, losses, repeats and interrupts: each job has exactly one outcome, and the run ends."""

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from test_coordinator import packing_report, speed_report

from bench_common.records import job_id_of
from bench_common.treatment import Lifecycle, Operation, Treatment
from bench_master.coordinator import Coordinator, Policy
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.machine import Phase
from bench_master.coordinator.policy import StoppingRule
from bench_master.plan import Trial

WORKERS = ("a", "b", "c")
JOB = Lifecycle((Operation("run", "run"), Operation("remove", "remove")))


class FakeWorker:
    """What a worker knows: its epoch, the jobs it was given, the batches it has sent."""

    def __init__(self, name):
        self.name = name
        self.epoch = None
        self.number = None
        self.held = []
        self.sent = []
        self.sequence = 0
        self.cancelled = False
        self.asked = None

    def forget(self):
        self.epoch = None
        self.held = []
        self.sequence = 0


class Histories(RuleBasedStateMachine):
    """Workers, network and user in any order; the coordinator must keep its promises throughout."""

    @initialize(
        shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.booleans()), min_size=1, max_size=3),
        expected=st.integers(1, 3),
        look_ahead=st.booleans(),
        batch=st.sampled_from([None, 1, 2]),
        speed_probe=st.booleans(),
        settle_s=st.sampled_from([0.0, 0.0, 0.5, 7.0]),
        rounds=st.sampled_from([1, 1, 2, 7]),
    )
    def begin(self, shapes, expected, look_ahead, batch, speed_probe, settle_s, rounds):
        """A plan of one to three treatments, some by time, for one to three workers; some go on until settled."""
        treatments = [
            Treatment(
                place,
                {"n": place},
                None,
                "docker",
                JOB,
                concurrency=concurrency,
                iterations=None if timed else iterations,
                run_seconds=3.0 if timed else None,
            )
            for place, (concurrency, iterations, timed) in enumerate(shapes)
        ]
        places = [(one, block) for block in range(rounds) for one in range(len(treatments))]
        trials = [Trial(place, one, block, warmup=False) for place, (one, block) in enumerate(places)]
        stopping = StoppingRule(rounds, treatments=len(treatments), budget_s=60.0) if rounds > 2 else None
        self.look = None
        self.settled = set()
        self.now = 0.0
        self.outcomes = Counter()
        self.issued_jobs = set()
        self.defined = {}
        self.over = None
        self.workers = {name: FakeWorker(name) for name in WORKERS}
        policy = Policy(
            expected=expected,
            look_ahead=look_ahead,
            batch_size=batch,
            speed_probe=speed_probe,
            settle_s=settle_s,
            stopping=stopping,
        )
        self.coordinator = Coordinator(treatments, trials, policy, job_limit_s=lambda _: 50.0, first_epoch=7)

    def feed(self, event):
        """Feed an event and obey the actions as shell and workers would."""
        for action in self.coordinator.handle(event, self.now):
            assert self.over is None or isinstance(action, act.DismissWorker), "something is done after the end"
            self.obey(action)
        self.coordinator.validate()

    def by_number(self, number):
        """The fake worker that holds a roster number."""
        return next(worker for worker in self.workers.values() if worker.number == number)

    def obey(self, action):  # noqa: C901  a table of actions
        """Carry one action out."""
        match action:
            case act.WelcomeWorker():
                worker = self.workers[action.worker_id]
                if worker.epoch != action.epoch:
                    worker.forget()
                worker.epoch, worker.number, worker.cancelled = action.epoch, action.number, False
                self.defined.setdefault(action.epoch, set())
            case act.DefineTreatment():
                self.defined[self.coordinator.roster[action.number].epoch].add(action.treatment)
            case act.TakeLook():
                self.look = action.rounds
            case act.AssignJobs():
                worker = self.by_number(action.number)
                assert action.treatment not in self.settled, "a settled treatment goes on"
                assert action.treatment in self.defined[self.coordinator.roster[action.number].epoch]
                assert len(action.tickets) > 0
                for ticket in action.tickets:
                    self.issued_jobs.add(job_id_of(ticket))
                    assert not self.outcomes[job_id_of(ticket)], "a job that has ended is handed out again"
                if worker.epoch == self.coordinator.roster[action.number].epoch:
                    worker.held += action.tickets
            case act.RecordResults():
                rows = action.batch if action.keep is None else [action.batch[row] for row in action.keep]
                self.outcomes.update(job_id_of(ticket) for ticket in rows)
            case act.FailJobs():
                self.outcomes.update(job_id_of(ticket) for ticket in action.tickets)
            case act.CancelJobs():
                self.by_number(action.number).cancelled = True
            case act.MeasureSpeed():
                worker = self.by_number(action.number)
                worker.asked = (worker.epoch, action.trial)
            case act.RunFinished():
                self.over = action.status

    def attached(self):
        """Workers that believe to be in the run."""
        return [worker for worker in self.workers.values() if worker.epoch is not None]

    @rule(name=st.sampled_from(WORKERS))
    def hello(self, name):
        """A worker without a run asks to join."""
        if self.workers[name].epoch is None:
            self.feed(ev.Hello(name.encode(), name, "local", 64))

    @precondition(lambda self: any(worker.held for worker in self.attached()))
    @rule(data=st.data())
    def results(self, data):
        """A worker reports some of its jobs."""
        worker = data.draw(st.sampled_from([worker for worker in self.attached() if worker.held]))
        count = data.draw(st.integers(1, len(worker.held)))
        batch, worker.held = worker.held[:count], worker.held[count:]
        message = (worker.epoch, worker.sequence, batch)
        worker.sequence += 1
        worker.sent.append(message)
        if data.draw(st.integers(0, 9)):
            self.feed(ev.ResultsReceived(*message, batch))

    @precondition(
        lambda self: any(worker.held for worker in self.attached()) and self.coordinator.scheduler.trial is not None
    )
    @rule(data=st.data())
    def give_back(self, data):
        """A worker whose host is full gives some of its jobs back, for the trial under way or another."""
        worker = data.draw(st.sampled_from([worker for worker in self.attached() if worker.held]))
        count = data.draw(st.integers(1, len(worker.held)))
        back = worker.held[-count:]
        trial = self.coordinator.scheduler.trial.index + data.draw(st.sampled_from([0, 0, 0, 1]))
        before = self.coordinator.scheduler.returned
        self.feed(packing_report(worker.epoch, trial, back))
        if self.coordinator.scheduler.returned > before:
            worker.held = [ticket for ticket in worker.held if ticket not in back]
            self.issued_jobs -= {job_id_of(ticket) for ticket in back}

    @precondition(lambda self: any(worker.sent for worker in self.workers.values()))
    @rule(data=st.data())
    def repeat(self, data):
        """A batch that was sent before comes again, from whatever epoch."""
        worker = data.draw(st.sampled_from([worker for worker in self.workers.values() if worker.sent]))
        message = data.draw(st.sampled_from(worker.sent))
        self.feed(ev.ResultsReceived(*message, message[2]))

    @rule(data=st.data(), tickets=st.lists(st.integers(0, 40), max_size=4))
    def invent(self, data, tickets):
        """A worker reports tickets that it was never given."""
        epoch = data.draw(st.sampled_from([worker.epoch or 3 for worker in self.workers.values()]))
        owned = {ticket for worker in self.attached() for ticket in worker.held}
        made_up = [ticket for ticket in tickets if ticket not in owned]
        resent = {ticket for worker in self.workers.values() for _, _, batch in worker.sent for ticket in batch}
        made_up = [ticket for ticket in made_up if ticket not in resent]
        held_by_coordinator = {t for share in self.coordinator.scheduler.shares.values() for t in share.outstanding}
        made_up = [ticket for ticket in made_up if ticket not in held_by_coordinator]
        self.feed(ev.ResultsReceived(epoch, data.draw(st.integers(1000, 2000)), made_up, made_up))

    @rule(name=st.sampled_from(WORKERS))
    def die(self, name):
        """A worker's process ends, and its parent notices."""
        self.workers[name].forget()
        self.feed(ev.WorkerDied(name, "killed"))

    @rule(name=st.sampled_from(WORKERS))
    def beat(self, name):
        """A heartbeat."""
        worker = self.workers[name]
        if worker.epoch is not None:
            self.feed(ev.Heartbeat(name.encode(), worker.epoch))

    @precondition(lambda self: any(worker.asked for worker in self.attached()))
    @rule(data=st.data())
    def measure_speed(self, data):
        """A worker has measured its host's speed; now and then it says so twice, or too late."""
        worker = data.draw(st.sampled_from([worker for worker in self.attached() if worker.asked]))
        self.feed(speed_report(*worker.asked))
        if data.draw(st.booleans()):
            worker.asked = None

    @rule(name=st.sampled_from(WORKERS))
    def sweep(self, name):
        """A worker has cleaned up."""
        worker = self.workers[name]
        if worker.epoch is not None:
            self.feed(ev.CleanupDone(name.encode(), worker.epoch))

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 6.0, 12.0]))
    def time_passes(self, seconds):
        """Time passes, in which the workers may or may not have been heard."""
        self.now += seconds
        self.feed(ev.Tick())

    @rule(seconds=st.sampled_from([2.5, 7.0, 100.0]))
    def the_machine_stands_still(self, seconds):
        """Time passes, in which the master did not run."""
        self.now += seconds
        self.feed(ev.MasterStalled(seconds))

    @precondition(lambda self: self.look is not None)
    @rule(data=st.data(), late=st.booleans())
    def take_look(self, data, late):
        """The comparisons are judged; some may be settled. The answer may be late."""
        rounds, self.look = self.look, None
        settled = data.draw(st.frozensets(st.integers(0, 2)))
        if late:
            self.now += 100.0
            self.feed(ev.Tick())
        elif self.coordinator.phase is Phase.RUNNING and not self.coordinator.interrupts:
            self.settled |= settled
        self.feed(ev.LookTaken(rounds, settled))

    @rule(choice=st.integers(0, 9))
    def interrupt(self, choice):
        """Ctrl-C, now and then."""
        if choice == 0:
            self.feed(ev.Interrupt())

    @invariant()
    def no_job_has_two_outcomes(self):
        """A job ends once."""
        if hasattr(self, "outcomes"):
            assert max(self.outcomes.values(), default=0) <= 1

    def teardown(self):
        """Left alone, every run ends within its deadlines, and each job that was handed out has one outcome."""
        if not hasattr(self, "coordinator"):
            return
        for _ in range(2000):
            if self.over is not None:
                break
            self.now += 1.0
            self.feed(ev.Tick())
        assert self.over is not None, "the run hangs"
        assert self.coordinator.phase is Phase.FINISHED
        if self.over != "refused":
            assert set(self.outcomes) == self.issued_jobs
            assert all(count == 1 for count in self.outcomes.values())


Histories.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestHistories = Histories.TestCase
