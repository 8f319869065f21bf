"""The coordinator: who gets which job, what a loss means, how a run ends. No socket, no sleep."""

import pytest
from msgspec.structs import replace

from bench_common.messages import PackingReport, SpeedMeasured
from bench_common.records import Outcome, attempt_of, job_id_of
from bench_common.treatment import Guest, Lifecycle, OpenLoad, Operation, Treatment
from bench_master.coordinator import Coordinator, Policy
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.machine import Phase
from bench_master.coordinator.policy import StoppingRule
from bench_master.plan import Trial


def treatment(index=0, *, environment=None, concurrency=2, iterations=3, **sizes):
    if sizes:
        iterations = None
    job = Lifecycle((Operation("run", "run"), Operation("remove", "remove")))
    labels = {"index": index}
    return Treatment(
        index, labels, environment, "docker", job, concurrency=concurrency, iterations=iterations, **sizes
    )


class Run:
    """A coordinator with workers that do as they are told, driven by the test's own clock."""

    def __init__(self, *treatments, trials=None, expected=1, **policy):
        treatments = treatments or (treatment(),)
        trials = trials or [Trial(place, t.index, 0, warmup=False) for place, t in enumerate(treatments)]
        self.policy = Policy(expected=expected, **policy)
        self.now = 0.0
        self.coordinator = Coordinator(treatments, trials, self.policy, job_limit_s=lambda _: 100.0)
        self.log = []
        self.sequences = {}

    def feed(self, event, after=0.0):
        self.now += after
        actions = self.coordinator.handle(event, self.now)
        self.coordinator.validate()
        self.log += actions
        return actions

    def join(self, worker_id="a", environment="local", slots=64, peer=None, identity=None):
        return self.feed(ev.Hello(peer or worker_id.encode(), worker_id, environment, slots, identity))

    def member(self, number=0):
        return self.coordinator.roster[number]

    def finish(self, *tickets, number=0, epoch=None, sequence=None):
        epoch = self.member(number).epoch if epoch is None else epoch
        if sequence is None:
            sequence = self.sequences.get(epoch, 0)
            self.sequences[epoch] = sequence + 1
        return self.feed(ev.ResultsReceived(epoch, sequence, list(tickets), "batch"))

    def beat(self, number=0, after=0.0):
        member = self.member(number)
        self.now += after
        return self.feed(ev.Heartbeat(member.peer, member.epoch))

    def swept(self, number=0):
        member = self.member(number)
        return self.feed(ev.CleanupDone(member.peer, member.epoch))

    def notes(self, kind):
        return [action.fields for action in self.log if isinstance(action, act.LogEvent) and action.kind == kind]


def only(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def issued(actions):
    return [ticket for action in only(actions, act.AssignJobs) for ticket in action.tickets]


def test_a_run_begins_when_all_expected_workers_are_there():
    """Nothing is handed out before the last of the expected workers has joined."""
    run = Run(expected=2)
    assert not issued(run.join("a"))
    actions = run.join("b")
    assert [(issue.number, list(issue.tickets)) for issue in only(actions, act.AssignJobs)] == [
        (0, [0, 1]),
        (1, [2, 3]),
    ]


def test_a_run_waits_for_every_environment_that_it_names():
    """A treatment's environment must have a worker before anything begins."""
    run = Run(treatment(environment="control"))
    assert not issued(run.join("a", "bare-metal"))
    assert issued(run.join("b", "control")) == [0, 1]


def test_what_goes_on_between_trials_is_told():
    """From the first worker that is waited for to the clean-up; nothing while a trial runs."""
    run = Run(treatment(iterations=1), treatment(1, iterations=1), settle_s=2.0, speed_probe=True)
    told = [run.coordinator.activity(0.0)]
    run.join()
    for trial in range(2):
        told.append(run.coordinator.activity(run.now))
        actions = run.feed(speed_report(run.member().epoch, trial))
        told.append(run.coordinator.activity(run.now))
        for ticket in issued(actions):
            run.finish(ticket)
        told.append(run.coordinator.activity(run.now))
        run.feed(ev.Tick(), after=2.5)
    run.swept()
    assert [*told, run.coordinator.activity(run.now)] == [
        "waiting for workers: 0 of 1 joined",
        "measuring the speed of the hosts",
        "",
        "pausing for 2 s after a trial (settle)",
        "measuring the speed of the hosts",
        "",
        "removing what the run made on a",
        "the run is over",
    ]


def test_workers_that_never_come_end_the_run():
    """Gathering has a deadline, and says who was missing."""
    run = Run(treatment(environment="control"), join_timeout_s=30.0)
    over = only(run.feed(ev.Tick(), after=31), act.RunFinished)[0]
    assert over.status == "incomplete"
    assert over.reasons == ("not enough workers: 0 of 1 joined", "no worker of environment 'control'")


def test_a_worker_never_holds_more_than_the_concurrency():
    """Each result makes room for one job, until the quota is used up."""
    run = Run(treatment(concurrency=2, iterations=2))
    assert issued(run.join()) == [0, 1]
    assert issued(run.finish(0)) == [2]
    assert issued(run.finish(1)) == [3]
    assert issued(run.finish(2)) == []


def test_a_treatment_is_defined_once_and_before_its_first_job():
    """A worker learns what a treatment is before it gets a job of it, and only once."""
    run = Run(treatment(0, concurrency=1, iterations=2), treatment(1, concurrency=1, iterations=1))
    log = [action for action in run.join() if isinstance(action, act.DefineTreatment | act.AssignJobs)]
    assert [type(action) for action in log] == [act.DefineTreatment, act.AssignJobs]
    assert not only(run.finish(0), act.DefineTreatment)
    later = [action for action in run.finish(1) if isinstance(action, act.DefineTreatment | act.AssignJobs)]
    assert [(type(action), action.treatment) for action in later] == [(act.DefineTreatment, 1), (act.AssignJobs, 1)]


def test_a_complete_run_sweeps_and_ends():
    """After the last result every worker cleans up, is released, and the run is complete."""
    run = Run(treatment(concurrency=1, iterations=1))
    run.join()
    assert [type(action) for action in run.finish(0)][-1] is act.StartCleanup
    actions = run.swept()
    assert [type(action) for action in actions] == [act.LogEvent, act.EndRun, act.RunFinished]
    assert actions[-1].status == "complete"


def test_operation_count_is_shared_out_over_the_workers():
    """Jobs in all means in all, the larger shares first."""
    run = Run(treatment(concurrency=64, operation_count=7), expected=2)
    run.join("a")
    actions = run.join("b")
    assert [len(issue.tickets) for issue in only(actions, act.AssignJobs)] == [4, 3]


def test_user_count_is_in_flight_over_all_workers():
    """-u 5 over two workers puts 3 and 2 jobs in flight, whatever the treatment says."""
    run = Run(treatment(concurrency=1, operation_count=100), expected=2, user_count=5)
    run.join("a")
    assert [len(issue.tickets) for issue in only(run.join("b"), act.AssignJobs)] == [3, 2]


def test_fewer_users_than_workers_do_all_jobs():
    """-u 2 -o 5 over three workers: two of them do the five jobs, and the run is complete."""
    run = Run(treatment(concurrency=1, operation_count=5), expected=3, user_count=2)
    run.join("a")
    run.join("b")
    actions = run.join("c")
    assert [(issue.number, len(issue.tickets)) for issue in only(actions, act.AssignJobs)] == [(0, 1), (1, 1)]
    assert run.coordinator.scheduler.planned_jobs() == 5
    done = 0
    while orders := only(actions, act.AssignJobs):
        actions = [each for one in orders for each in run.finish(*one.tickets, number=one.number)]
        done += sum(len(one.tickets) for one in orders)
    assert done == 5


def test_a_trial_by_time_hands_out_until_the_time_is_up():
    """A trial of 10 s takes jobs at 9 s and none at 11 s, and ends with the last result."""
    run = Run(treatment(concurrency=1, run_seconds=10.0))
    assert issued(run.join()) == [0]
    run.now = 9.0
    assert issued(run.finish(0)) == [1]
    run.now = 11.0
    assert only(run.finish(1), act.StartCleanup)


def test_a_trial_by_time_ends_without_a_result_at_the_edge():
    """When the time is up while nothing is out, the next tick ends the trial."""
    run = Run(treatment(concurrency=1, run_seconds=10.0))
    run.join()
    run.feed(ev.WorkerDied("a", "killed"))
    run.join()
    run.beat(after=4.0)
    run.beat(after=4.0)
    run.now = 10.5
    run.beat()
    retried = next(issue for issue in reversed(run.log) if isinstance(issue, act.AssignJobs))
    assert only(run.finish(*retried.tickets), act.StartCleanup)


def test_every_result_is_journalled_after_the_next_jobs_went_out():
    """The worker does not wait for the master's disk."""
    run = Run(treatment(concurrency=1, iterations=2))
    run.join()
    kinds = [type(action) for action in run.finish(0)]
    assert kinds == [act.AssignJobs, act.RecordResults]


def test_a_repeated_batch_is_acknowledged_and_not_journalled_again():
    """A batch that comes twice counts once."""
    run = Run(treatment(concurrency=1, iterations=3))
    run.join()
    run.finish(0, sequence=0)
    actions = run.finish(0, sequence=0)
    assert actions == [act.AcknowledgeResults(0, 0)]
    assert run.coordinator.scheduler.accepted == 1


def test_batches_may_overtake_each_other():
    """Batch 1 before batch 0: both count, each once."""
    run = Run(treatment(concurrency=2, iterations=2))
    run.join()
    assert only(run.finish(1, sequence=1), act.RecordResults)
    assert only(run.finish(0, sequence=0), act.RecordResults)
    assert run.finish(0, sequence=0) == [act.AcknowledgeResults(0, 0)]


@pytest.mark.parametrize("tickets", [(0, 0), (0, 99), (99, 0, 98)])
def test_rows_that_do_not_count_are_left_out(tickets):
    """A ticket that is not out, or comes twice in one batch, is refused; the rest counts."""
    run = Run(treatment(concurrency=2, iterations=2))
    run.join()
    actions = run.finish(*tickets)
    journal = only(actions, act.RecordResults)[0]
    assert [tickets[row] for row in journal.keep] == [0]
    assert run.notes("results-refused")[0]["jobs"] == len(tickets) - 1


def test_results_of_an_older_epoch_do_not_count():
    """What a worker sends under an epoch that is over is noted and dropped."""
    run = Run(treatment(concurrency=1, iterations=1))
    run.join()
    old = run.member().epoch
    run.feed(ev.WorkerDied("a", "killed"))
    actions = run.finish(0, epoch=old, sequence=0)
    assert [action.kind for action in actions] == ["late-results"]
    assert run.coordinator.scheduler.accepted == 0


def test_a_worker_that_comes_back_retries_its_jobs():
    """What a lost worker held becomes a new attempt of the same jobs, on that worker."""
    run = Run(treatment(concurrency=2, iterations=2))
    run.join()
    run.feed(ev.WorkerDied("a", "killed by SIGKILL"))
    tickets = issued(run.join())
    assert [(job_id_of(ticket), attempt_of(ticket)) for ticket in tickets] == [(0, 1), (1, 1)]
    assert issued(run.finish(*tickets)) == [2, 3]


def test_nobody_else_gets_the_part_of_a_lost_worker():
    """The other worker's load stays what it was; the lost worker's part waits for it."""
    run = Run(treatment(concurrency=1, iterations=2), expected=2)
    run.join("a")
    run.join("b")
    run.feed(ev.WorkerDied("a", "killed"))
    assert issued(run.finish(1, number=1)) == [2]
    assert issued(run.finish(2, number=1)) == []
    assert run.coordinator.phase is Phase.RUNNING


def test_a_worker_that_does_not_come_back_has_lost_its_jobs():
    """After the time to rejoin its jobs are lost, those never handed out too, and the run is incomplete."""
    run = Run(treatment(concurrency=2, iterations=3), reconnect_timeout_s=10.0)
    run.join()
    run.feed(ev.WorkerDied("a", "killed"))
    assert not only(run.feed(ev.Tick(), after=9), act.FailJobs)
    actions = run.feed(ev.Tick(), after=2)
    concluded = only(actions, act.FailJobs)[0]
    assert (concluded.outcome, len(concluded.tickets)) == (Outcome.LOST, 2)
    assert run.notes("trial-end")[0] == {
        "trial": 0,
        "not_started": 4,
        "not_started_outcome": "lost",
        "complete": False,
    }
    assert only(actions, act.RunFinished)[0].status == "incomplete"


def test_jobs_that_a_worker_called_off_by_itself_make_a_run_incomplete():
    """A job that ended as aborted, where nobody interrupted the run, leaves a hole in it."""
    run = Run(treatment(concurrency=1, iterations=1))
    run.join()
    run.feed(ev.ResultsReceived(run.member().epoch, 0, [0], "batch", aborted=1))
    actions = run.feed(ev.CleanupDone(run.member().peer, run.member().epoch))
    assert only(actions, act.RunFinished)[0].status == "incomplete"


def test_silence_is_a_loss():
    """A worker that says nothing is missed after the time of silence, and not before."""
    run = Run(heartbeat_timeout_s=5.0)
    run.join()
    assert not run.feed(ev.Tick(), after=4.9)
    run.feed(ev.Tick(), after=0.2)
    assert run.notes("worker-lost")[0]["reason"].startswith("silent for 5.1 s")


def test_a_worker_that_is_alive_and_gets_no_cpu_is_not_missing():
    """Its silence is logged once, and counts as a loss only after a much longer time."""
    run = Run()
    run.join()
    run.beat()
    for _ in range(29):
        run.feed(ev.WorkerStarved("a"), after=2.0)
        run.feed(ev.Tick())
    assert not run.notes("worker-lost")
    assert [note["seconds"] for note in run.notes("worker-starved")] == [6.0]
    run.feed(ev.WorkerStarved("a"), after=3.0)
    run.feed(ev.Tick())
    assert [note["reason"] for note in run.notes("worker-lost")] == ["silent for 61.0 s"]


def test_results_are_a_sign_of_life():
    """A worker whose results come in is not missed, even when its heartbeats are late."""
    run = Run(treatment(concurrency=1, iterations=10), heartbeat_timeout_s=5.0)
    run.join()
    for ticket in range(5):
        run.now += 4.0
        run.finish(ticket)
        run.feed(ev.Tick())
    assert not run.notes("worker-lost")


def test_a_job_that_kills_its_worker_every_time_is_lost_in_the_end():
    """A job is tried max_attempts times; then it is lost, and the others go on."""
    run = Run(treatment(concurrency=1, iterations=2), max_attempts=3)
    run.join()
    for _ in range(3):
        run.feed(ev.WorkerDied("a", "killed"))
        run.join()
    lost = [action for action in run.log if isinstance(action, act.FailJobs)]
    assert [(job_id_of(action.tickets[0]), action.outcome) for action in lost] == [(0, Outcome.LOST)]
    assert run.coordinator.scheduler.in_flight == 1


def test_jobs_that_never_end_are_taken_away():
    """A worker that heartbeats but holds jobs beyond any job's bound is dismissed; its jobs are retried."""
    run = Run()
    run.join()
    for _ in range(51):
        run.beat(after=2.0)
    actions = run.feed(ev.Tick())
    assert only(actions, act.DismissWorker)[0].reason == "its jobs are overdue"
    assert len(issued(run.join())) == 2


def test_first_interrupt_finishes_what_runs_and_hands_out_nothing():
    """After Ctrl-C running jobs end in their own way, the rest of the plan counts as aborted."""
    run = Run(treatment(0, concurrency=1, iterations=3), treatment(1, concurrency=1, iterations=5))
    run.join()
    assert not issued(run.feed(ev.Interrupt()))
    actions = run.finish(0)
    assert not issued(actions)
    assert run.notes("trial-end")[0] == {
        "trial": 0,
        "not_started": 2,
        "not_started_outcome": "aborted",
        "complete": False,
    }
    assert run.notes("trial-skipped")[0] == {"trial": 1, "not_started": 5, "not_started_outcome": "aborted"}
    assert run.coordinator.scheduler.not_started == 7
    assert only(run.swept(), act.RunFinished)[0].status == "interrupted"


def test_second_interrupt_cancels_and_has_a_deadline():
    """After the second Ctrl-C workers abort; a job that does not end in time is aborted all the same."""
    run = Run(treatment(concurrency=1, iterations=3), abort_timeout_s=15.0, heartbeat_timeout_s=1000)
    run.join()
    run.feed(ev.Interrupt())
    assert only(run.feed(ev.Interrupt()), act.CancelJobs) == [act.CancelJobs(0)]
    actions = run.feed(ev.Tick(), after=16)
    assert only(actions, act.FailJobs)[0].outcome is Outcome.ABORTED
    assert only(actions, act.StartCleanup)


def test_interrupt_while_gathering_ends_at_once():
    """Nothing has begun, so nothing has to be finished."""
    assert only(Run().feed(ev.Interrupt()), act.RunFinished)[0].status == "interrupted"


def test_a_job_lost_during_an_interrupt_is_not_retried():
    """Who ends the run does not want new attempts."""
    run = Run(treatment(concurrency=1, iterations=1))
    run.join()
    run.feed(ev.Interrupt())
    actions = run.feed(ev.WorkerDied("a", "killed"))
    assert only(actions, act.FailJobs)[0].outcome is Outcome.LOST
    assert only(actions, act.RunFinished)


def test_two_workers_cannot_have_one_name():
    """While the first is alive the second is told so; it may take over once the first is missed."""
    run = Run(expected=2, heartbeat_timeout_s=5.0)
    run.join("a", peer=b"first")
    assert only(run.join("a", peer=b"second"), act.DismissWorker)
    run.feed(ev.Tick(), after=6)
    assert only(run.join("a", peer=b"second"), act.WelcomeWorker)


def test_a_name_belongs_to_its_key():
    """Another key does not get in under a name that is taken, not even after a loss."""
    run = Run(expected=2)
    run.join("a", identity="a")
    run.feed(ev.WorkerDied("a", "killed"))
    assert only(run.join("a", identity="b", peer=b"x"), act.DismissWorker)[0].final


def test_a_worker_that_broke_the_protocol_does_not_join_again():
    """Its jobs are lost once it is given up; it is told why, and that it must not ask again."""
    run = Run(treatment(concurrency=1, iterations=1))
    run.join()
    run.feed(ev.WorkerDied("a", "it broke the protocol: heartbeat", run.member().epoch, barred=True))
    (told,) = only(run.join(), act.DismissWorker)
    assert told.final
    assert "broke the protocol" in told.reason
    run.feed(ev.Tick(), after=11)
    assert [action.outcome for action in run.log if isinstance(action, act.FailJobs)] == [Outcome.LOST]


def test_a_worker_does_not_change_its_environment():
    """A trial is never run by another environment in silence."""
    run = Run()
    run.join("a", "bare-metal")
    run.feed(ev.WorkerDied("a", "killed"))
    assert only(run.join("a", "control"), act.DismissWorker)[0].final


def test_a_trial_by_time_that_lacks_a_worker_is_incomplete():
    """Half of the load was missing: that is no complete run, though no job was lost."""
    run = Run(treatment(concurrency=1, run_seconds=5.0), treatment(1, concurrency=1, run_seconds=5.0), expected=2)
    run.join("a")
    run.join("b")
    run.now = 4.0
    run.beat(0)
    run.beat(1)
    run.now = 6.0
    run.finish(1, number=1)
    run.feed(ev.WorkerDied("b", "its process ended"))
    for _ in range(6):
        run.beat(0, after=2.0)
        run.feed(ev.Tick())
    run.finish(0)
    (ticket,) = run.coordinator.scheduler.shares[0].outstanding
    run.now += 6.0
    run.finish(ticket)
    run.swept()
    assert run.coordinator.scheduler.lost == 0
    assert run.log[-1].status == "incomplete"
    assert run.log[-1].reasons == ("worker b was missing from a trial that runs by time",)


def test_a_worker_that_reconnects_after_giving_up_this_master_is_admitted():
    """One that knew its welcome and asks again has dropped its jobs: they are retried, under a new epoch."""
    run = Run(treatment(concurrency=2, iterations=1))
    run.join()
    run.beat()
    before = run.member().epoch
    actions = run.join()
    assert [welcome.epoch for welcome in only(actions, act.WelcomeWorker)] == [run.member().epoch]
    assert run.member().epoch != before
    assert [(job_id_of(ticket), attempt_of(ticket)) for ticket in issued(actions)] == [(0, 1), (1, 1)]
    assert run.notes("worker-lost")[0]["held"] == 2
    run.finish(*issued(actions))
    run.swept()
    assert run.log[-1].reasons == ("index=0: its only trial lost a worker, so nothing was measured",)


def test_a_repeated_hello_gets_the_same_welcome():
    """A worker whose welcome was late asks again, and is still the same member."""
    run = Run(expected=2)
    first = only(run.join("a"), act.WelcomeWorker)[0]
    assert run.join("a") == [first]


def test_a_stranger_cannot_join_once_the_run_has_begun():
    """The roster is fixed when the run begins: load per host must not change in between."""
    run = Run()
    run.join("a")
    dismissal = only(run.join("b"), act.DismissWorker)[0]
    assert not dismissal.final


def test_a_heartbeat_of_an_older_epoch_is_answered_with_a_dismissal():
    """A worker that was given up learns that what it does no longer counts."""
    run = Run()
    run.join()
    old = run.member().epoch
    run.feed(ev.WorkerDied("a", "killed"))
    assert only(run.feed(ev.Heartbeat(b"a", old)), act.DismissWorker)


def test_a_worker_that_opened_its_connection_again_goes_on_in_its_epoch():
    """If it proves the epoch its new address counts, and nothing is retried; if not, it is dismissed."""
    run = Run()
    run.join()
    member, epoch = run.member(), run.member().epoch
    assert only(run.feed(ev.Heartbeat(b"new", epoch)), act.DismissWorker)
    assert member.peer == b"a"
    assert run.feed(ev.Heartbeat(b"new", epoch, proven=True)) == []
    assert (member.peer, member.epoch, member.present) == (b"new", epoch, True)
    assert only(run.feed(ev.Heartbeat(b"a", epoch)), act.DismissWorker), "the old connection is gone"


def test_the_clean_up_is_asked_for_again_on_a_new_connection():
    """The first request may be lost with the old connection."""
    run = Run(treatment(concurrency=1, iterations=1))
    run.finish(*issued(run.join()))
    assert run.coordinator.phase is Phase.CLEANUP
    asked = only(run.feed(ev.Heartbeat(b"new", run.member().epoch, proven=True)), act.StartCleanup)
    assert asked == [act.StartCleanup(run.member().number)]
    assert run.feed(ev.Heartbeat(b"new", run.member().epoch, proven=True)) == []


def test_refusal_ends_the_run_before_anything_ran():
    """What a worker cannot do calls the run off with its reasons."""
    run = Run()
    over = run.feed(ev.RunRefused(["engine native cannot limit memory"]))[-1]
    assert (over.status, over.reasons) == ("refused", ("engine native cannot limit memory",))


def test_clean_up_that_never_ends_does_not_hang_the_run():
    """Sweeping has a deadline, and the run says where it was missed."""
    run = Run(treatment(concurrency=1, iterations=1), cleanup_timeout_s=60.0, heartbeat_timeout_s=1000)
    run.join()
    run.finish(0)
    over = only(run.feed(ev.Tick(), after=61), act.RunFinished)[0]
    assert over.status == "incomplete"
    left = "what is left is removed by `bench-master cleanup-containers`"
    assert over.reasons == (f"clean-up took too long on a; {left}",)


def test_after_the_end_everybody_is_sent_away():
    """Late hellos are answered, late results and beats are ignored."""
    run = Run(treatment(concurrency=1, iterations=1))
    run.join()
    run.finish(0)
    run.swept()
    assert only(run.join("late"), act.DismissWorker)
    assert run.feed(ev.Tick()) == []


def test_trials_without_any_worker_left_are_lost_and_end_the_run():
    """When the last worker is given up, what remains of the plan is lost, at once."""
    run = Run(*(treatment(place, concurrency=1, iterations=2) for place in range(3)), reconnect_timeout_s=1.0)
    run.join()
    run.feed(ev.WorkerDied("a", "killed"))
    run.feed(ev.Tick(), after=2)
    assert [note["not_started"] for note in run.notes("trial-end")] == [1, 2, 2]
    assert run.coordinator.phase is Phase.FINISHED


def test_planned_jobs_follow_from_the_roster():
    """Iterations are per slot and worker; an open-ended trial has no number."""
    run = Run(treatment(concurrency=2, iterations=3), expected=2)
    run.join("a")
    run.join("b")
    assert run.coordinator.scheduler.planned_jobs() == 12
    timed = Run(treatment(run_seconds=1.0))
    timed.join()
    assert timed.coordinator.scheduler.planned_jobs() is None


def outstanding(run):
    return len(run.coordinator.scheduler.shares[0].outstanding)


def test_fast_jobs_are_looked_ahead_of():
    """At a hundred thousand jobs a second some hundreds wait at the worker; it still runs no more than it may."""
    run = Run(treatment(iterations=None, operation_count=100_000, concurrency=24))
    actions = run.join()
    assert [(issue.concurrency, issue.batch) for issue in only(actions, act.AssignJobs)] == [(24, 12)]
    for _ in range(400):
        actions = run.finish(*list(run.coordinator.scheduler.shares[0].outstanding)[:12], number=0)
        run.now += 12 / 100_000
    assert 300 < outstanding(run) < 500
    issue = only(actions, act.AssignJobs)[-1]
    assert (issue.concurrency, issue.batch) == (24, (24 + run.coordinator.scheduler.shares[0].look_ahead_jobs) // 2)


def test_many_members_look_further_ahead_so_that_each_sends_more_seldom():
    """At a thousand jobs a second each of 40 members holds some 40 ms' worth; a single one would hold 4 ms' worth."""
    run = Run(treatment(iterations=None, operation_count=400_000, concurrency=2), expected=40)
    for number in range(40):
        run.join(f"w{number}")
    share = run.coordinator.scheduler.shares[7]
    for _ in range(400):
        done = list(share.outstanding)[: share.batch]
        run.now += len(done) / 1000
        run.finish(*done, number=7)
    assert 35 < share.look_ahead_jobs < 45


def test_slow_jobs_are_handed_out_one_for_one():
    """At ten jobs a second nothing waits at the worker."""
    run = Run(treatment(iterations=None, operation_count=100, concurrency=4))
    run.join()
    for _ in range(30):
        run.now += 0.1
        run.finish(min(run.coordinator.scheduler.shares[0].outstanding))
        assert outstanding(run) == 4


@pytest.mark.parametrize(("job_s", "waiting"), [(0.02, 1), (0.09, 1), (0.11, 0)])
def test_of_jobs_that_take_some_time_one_waits(job_s, waiting):
    """It need not be fetched when a slot is free; where jobs last longer, a round trip is next to nothing."""
    run = Run(treatment(iterations=None, operation_count=400, concurrency=4))
    run.join()
    for _ in range(60):
        run.now += job_s / 4
        run.finish(min(run.coordinator.scheduler.shares[0].outstanding))
    assert outstanding(run) == 4 + waiting


def test_slow_jobs_that_end_together_are_no_fast_ones():
    """Two of 0.3 s, 11 ms apart, again and again: none waits at the worker, where a loss would cost it, too."""
    run = Run(treatment(iterations=None, operation_count=100, concurrency=2))
    run.join()
    for number in range(40):
        run.now += 0.011 if number % 2 else 0.289
        run.finish(min(run.coordinator.scheduler.shares[0].outstanding))
        assert outstanding(run) == 2


@pytest.mark.parametrize("why", ["asked", "guest", "timed"])
def test_without_look_ahead_a_worker_holds_what_it_runs(why):
    """Where it was asked for, for guest benchmarks and for trials by time, however fast the jobs are."""
    sizes = {"run_seconds": 100.0} if why == "timed" else {"operation_count": 10_000}
    one = treatment(concurrency=24, **sizes)
    if why == "guest":
        one = replace(one, job=Guest("sysbench-cpu"))
    run = Run(one, look_ahead=why != "asked")
    run.join()
    for _ in range(400):
        run.finish(*list(run.coordinator.scheduler.shares[0].outstanding)[:12])
        run.now += 12 / 100_000
        assert outstanding(run) == 24


def test_a_batch_size_that_is_given_is_kept_to():
    """So many results travel together, and so many jobs wait beyond those that run, whatever the pace."""
    run = Run(treatment(iterations=None, operation_count=1000, concurrency=4), batch_size=10)
    assert [(len(issue.tickets), issue.batch) for issue in only(run.join(), act.AssignJobs)] == [(14, 10)]
    strict = Run(treatment(iterations=None, operation_count=1000, concurrency=4), batch_size=2, look_ahead=False)
    assert [(len(issue.tickets), issue.batch) for issue in only(strict.join(), act.AssignJobs)] == [(4, 2)]


def opened(rate=10.0, *, concurrency=2, queue_timeout=1.0, **sizes):
    return replace(treatment(concurrency=concurrency, **sizes), open_load=OpenLoad(rate, "constant", queue_timeout))


def arrivals_of(actions):
    return [round(at / 1e9, 3) for action in only(actions, act.AssignJobs) for at in action.intended_ns]


def test_jobs_that_arrive_are_handed_out_ahead_of_their_instants():
    """Whatever has ended or not: what arrives within the horizon is out, and no more."""
    run = Run(opened(operation_count=12), heartbeat_timeout_s=100.0)
    assert arrivals_of(run.join()) == [0.1, 0.2, 0.3, 0.4]
    assert arrivals_of(run.feed(ev.Tick(), after=0.3)) == [0.5, 0.6, 0.7]
    assert arrivals_of(run.finish(0)) == []
    assert arrivals_of(run.feed(ev.Tick(), after=0.7)) == [0.8, 0.9, 1.0, 1.1, 1.2]
    assert run.coordinator.scheduler.in_flight == 11
    assert arrivals_of(run.feed(ev.Tick(), after=5)) == []
    run.finish(*range(1, 12))
    assert run.coordinator.phase is Phase.CLEANUP


def test_an_open_trial_by_time_ends_when_what_arrived_has_ended():
    """The time bounds the arrivals; the queue that is left is worked off."""
    run = Run(opened(4.0, run_seconds=1.0), heartbeat_timeout_s=100.0)
    first = arrivals_of(run.join())
    assert first + arrivals_of(run.feed(ev.Tick(), after=2.0)) == [0.1, 0.35, 0.6, 0.85]
    run.feed(ev.Tick(), after=1.0)
    assert run.coordinator.phase is Phase.RUNNING
    run.finish(0, 1, 2, 3)
    assert run.coordinator.phase is Phase.CLEANUP


def test_arrivals_are_divided_over_the_workers():
    """Each gets its part; together they are the rate."""
    run = Run(opened(operation_count=4), expected=2, heartbeat_timeout_s=100.0)
    run.join("a")
    actions = run.join("b")
    by_worker = {
        issue.number: [round(at / 1e9, 3) for at in issue.intended_ns] for issue in only(actions, act.AssignJobs)
    }
    assert by_worker == {0: [0.1, 0.3], 1: [0.2, 0.4]}


def test_a_worker_that_comes_back_finds_what_arrived_meanwhile():
    """Jobs that were out are retried, those that arrived while it was away come late: none is left out."""
    run = Run(opened(operation_count=8), heartbeat_timeout_s=1.0)
    held = issued(run.join())
    run.beat()
    lost = run.feed(ev.Tick(), after=1.5)
    assert only(lost, act.LogEvent)[0].kind == "worker-lost"
    back = run.join()
    retried, fresh = only(back, act.AssignJobs)
    assert [job_id_of(ticket) for ticket in retried.tickets] == held
    assert [round(at / 1e9, 3) for at in fresh.intended_ns] == [0.5, 0.6, 0.7, 0.8]
    run.finish(*retried.tickets, *fresh.tickets)
    assert run.coordinator.phase is Phase.CLEANUP


def test_nothing_is_overdue_before_it_has_arrived():
    """One job in ten minutes is no worker that gives no results."""
    run = Run(opened(1 / 600, run_seconds=1300.0), heartbeat_timeout_s=10_000.0)
    run.join()
    run.feed(ev.Tick(), after=0.2)
    run.finish(0)
    run.feed(ev.Tick(), after=599.8)
    assert run.coordinator.scheduler.in_flight == 1
    assert not run.notes("worker-lost")


def test_ctrl_c_offers_nothing_more():
    """What is out is finished; no further job arrives."""
    run = Run(opened(run_seconds=100.0), heartbeat_timeout_s=100.0)
    run.join()
    run.feed(ev.Interrupt())
    assert not issued(run.feed(ev.Tick(), after=2.0))
    run.finish(0, 1, 2, 3)
    assert run.coordinator.phase is Phase.CLEANUP


def speed_report(epoch, trial):
    """Return the answer of a worker that measured the speed of its host."""
    return SpeedMeasured(epoch=epoch, trial=trial, time_ns=1, wall_ns=1, cpu_ns=1)


def packing_report(epoch, trial, returned):
    """Return the report of a worker whose host is full."""
    figures = {"containers": 3, "reason": "no room", "full": True, "hold_s": 0.0, "memory_before": 0}
    return PackingReport(epoch=epoch, trial=trial, returned=returned, **figures)


def test_jobs_that_a_full_host_gives_back_are_not_missing():
    """The trial ends with those that fit; the run is complete, and says how many went back."""
    run = Run(treatment(concurrency=5, iterations=1))
    tickets = issued(run.join())
    assert len(tickets) == 5
    actions = run.feed(packing_report(run.member().epoch, 0, tickets[3:]))
    assert only(actions, act.AssignJobs) == []
    assert run.notes("packed") == [
        {"worker": 0, "trial": 0, "returned": 2, "containers": 3, "reason": "no room", "full": True, "unread": ""}
        | {"hold_s": 0.0, "memory_before": 0}
    ]
    run.finish(*tickets[:3])
    assert run.notes("trial-end")[0]["not_started"] == 0
    assert only(run.swept(), act.RunFinished) == [act.RunFinished("complete", ())]


def test_a_host_that_has_room_for_none_ends_the_trial():
    """Where all jobs go back after the only one failed, nobody is waited for."""
    run = Run(treatment(concurrency=3, iterations=1))
    tickets = issued(run.join())
    run.finish(tickets[0])
    actions = run.feed(packing_report(run.member().epoch, 0, tickets[1:]))
    assert only(actions, act.StartCleanup) == [act.StartCleanup(0)]


def test_only_what_is_out_can_be_given_back():
    """Tickets of others, of another trial or of an epoch that is over change nothing."""
    run = Run(treatment(concurrency=2, iterations=1))
    tickets = issued(run.join())
    assert run.feed(packing_report(run.member().epoch, 7, tickets)) == []
    assert run.feed(packing_report(12345, 0, tickets)) == []
    run.feed(packing_report(run.member().epoch, 0, [999]))
    assert run.notes("packed")[0]["returned"] == 0
    run.finish(*tickets)
    assert only(run.swept(), act.RunFinished) == [act.RunFinished("complete", ())]


def test_what_an_old_epoch_sends_again_is_refused_once():
    """A batch of an epoch that is over is counted when it first comes, however often it is sent."""
    run = Run(treatment(concurrency=2, iterations=1))
    run.join()
    old = run.member().epoch
    run.feed(ev.WorkerDied("a", "cut off"))
    for sequence in (0, 0, 1, 0):
        run.finish(sequence, epoch=old, sequence=sequence)
    assert [fields["jobs"] for fields in run.notes("late-results")] == [1, 1]


def test_nobody_is_missed_for_the_time_in_which_the_master_did_not_run():
    """Whoever spoke was not heard. What was silent before goes on counting, and so does what follows."""
    run = Run(treatment(iterations=3), heartbeat_timeout_s=5.0)
    run.join()
    run.now += 4.0
    run.now += 60.0
    run.feed(ev.MasterStalled(60.0))
    run.feed(ev.Tick())
    assert run.notes("worker-lost") == []
    assert run.notes("master-stalled")[0]["seconds"] == 60.0
    run.feed(ev.Tick(), after=1.1)
    assert run.notes("worker-lost")[0]["reason"].startswith("silent for 5.1 s")
    run.now += 60.0
    run.feed(ev.MasterStalled(60.0))
    run.feed(ev.Tick(), after=9.0)
    assert run.notes("worker-given-up") == []
    run.feed(ev.Tick(), after=1.1)
    assert len(run.notes("worker-given-up")) == 1


def test_no_job_is_handed_out_while_the_stats_file_has_no_room():
    """Those that run end and are kept; then the run goes on where it was, and says how long it was held up."""
    run = Run(treatment(iterations=3), heartbeat_timeout_s=1e6)
    assert issued(run.join()) == [0, 1]
    run.feed(ev.DiskFull())
    assert only(run.finish(0), act.RecordResults)
    run.finish(1)
    assert issued(run.feed(ev.Tick(), after=30.0)) == []
    assert issued(run.feed(ev.DiskFree(dropped_samples=2))) == [2, 3]
    assert run.notes("disk-full") == [{"trial": 0, "seconds": 30.0, "dropped_samples": 2}]
    assert run.notes("worker-lost") == []


def test_no_trial_begins_while_the_stats_file_has_no_room():
    """Between two trials nothing is disturbed."""
    run = Run(treatment(iterations=1), treatment(1, iterations=1), heartbeat_timeout_s=1e6)
    for ticket in issued(run.join()):
        run.feed(ev.DiskFull())
        run.finish(ticket)
    assert issued(run.feed(ev.Tick(), after=30.0)) == []
    assert issued(run.feed(ev.DiskFree())) == [2, 3]
    assert [fields["trial"] for fields in run.notes("disk-full")] == [None]


def test_a_run_without_further_trials_cleans_up_without_room():
    """Only its last bytes wait for it, and they are not the workers'."""
    run = Run(treatment(iterations=1))
    held = issued(run.join())
    run.feed(ev.DiskFull())
    run.finish(*held)
    assert run.coordinator.phase is Phase.CLEANUP


def test_no_job_is_overdue_while_the_stats_file_has_no_room():
    """Its result waits at the worker, which sends no more than the master can acknowledge."""
    run = Run(treatment(iterations=3), heartbeat_timeout_s=1e6)
    run.join()
    run.feed(ev.DiskFull())
    run.feed(ev.Tick(), after=101.0)
    run.feed(ev.DiskFree())
    run.feed(ev.Tick(), after=99.0)
    assert run.notes("worker-lost") == []
    run.feed(ev.Tick(), after=2.0)
    assert len(run.notes("worker-lost")) == 1


def test_the_time_of_a_trial_stands_still_without_room():
    """A trial of ten seconds has its ten seconds all the same."""
    run = Run(treatment(concurrency=1, run_seconds=10.0), heartbeat_timeout_s=1e6)
    (ticket,) = issued(run.join())
    run.now += 4.0
    run.feed(ev.DiskFull())
    run.finish(ticket)
    run.feed(ev.Tick(), after=60.0)
    assert run.notes("trial-end") == []
    (ticket,) = issued(run.feed(ev.DiskFree()))
    (ticket,) = issued(run.finish(ticket))
    run.now += 6.1
    assert issued(run.finish(ticket)) == []
    assert len(run.notes("trial-end")) == 1


def test_arrivals_stand_still_without_room():
    """Those of an open system come later by as much, and not all at once."""
    run = Run(opened(1.0, run_seconds=10.0), heartbeat_timeout_s=1e6)
    assert len(issued(run.join())) == 1
    run.feed(ev.DiskFull())
    assert issued(run.feed(ev.Tick(), after=100.0)) == []
    run.feed(ev.DiskFree())
    assert [len(issued(run.feed(ev.Tick(), after=1.0))) for _ in range(3)] == [1, 1, 1]


def test_an_interruption_ends_a_pause_without_room():
    """Nothing has to be written for that: the run cleans up at once."""
    run = Run(treatment(iterations=3))
    run.join()
    run.feed(ev.DiskFull())
    run.finish(0)
    run.finish(1)
    assert only(run.feed(ev.Interrupt()), act.StartCleanup)
    assert run.coordinator.phase is Phase.CLEANUP


def test_a_result_that_was_heard_after_an_absence_counts_from_then():
    """It may be taken in before the absence is noticed."""
    run = Run(treatment(iterations=3), heartbeat_timeout_s=5.0)
    run.join()
    run.now += 60.0
    run.beat()
    run.feed(ev.MasterStalled(60.0))
    assert run.member().last_heard_at == run.now


# -- the speed of the hosts -----------------------------------------------------------------------------------------


def two_trials(**policy):
    return Run(*(treatment(index, concurrency=1, iterations=1) for index in (0, 1)), speed_probe=True, **policy)


def measured(run, number, trial):
    return run.feed(speed_report(run.member(number).epoch, trial))


def test_each_trial_waits_for_the_speed_of_every_host():
    """No job runs while a host measures its speed, and none is measured while a job runs."""
    run = two_trials(expected=2)
    run.join("a")
    assert only(run.join("b"), act.MeasureSpeed) == [act.MeasureSpeed(0, 0), act.MeasureSpeed(1, 0)]
    assert not issued(measured(run, 0, 0))
    assert not issued(measured(run, 0, 0))
    assert issued(measured(run, 1, 0)) == [0, 1]
    assert not only(run.finish(0, number=0), act.MeasureSpeed)
    actions = run.finish(1, number=1)
    assert (only(actions, act.MeasureSpeed)[0].trial, issued(actions)) == (1, [])
    measured(run, 1, 0)  # an answer to the trial before counts for nothing
    measured(run, 0, 1)
    assert issued(measured(run, 1, 1)) == [2, 3]


def test_a_trial_waits_for_no_host_for_long():
    """A host that does not answer, or is lost meanwhile, holds nothing up."""
    run = two_trials(speed_probe_timeout_s=2.0)
    run.join()
    assert not issued(run.feed(ev.Tick(), after=1.9))
    assert issued(run.feed(ev.Tick(), after=0.2)) == [0]
    lost = two_trials(expected=2)
    lost.join("a")
    lost.join("b")
    measured(lost, 0, 0)
    assert not issued(lost.feed(ev.WorkerDied("b", "killed"))), (
        "it may come back, and is in no trial's time until then"
    )
    for _ in range(2):
        lost.beat(after=5.0)
    assert issued(lost.feed(ev.Tick(), after=0.1)) == [0]


def test_a_stalled_master_gives_the_hosts_their_time():
    """It could not receive their answers."""
    run = two_trials()
    run.join()
    run.feed(ev.MasterStalled(10.0), after=10.0)
    assert not issued(run.feed(ev.Tick(), after=0.1))


def test_an_interrupt_ends_a_run_that_measures_speed():
    """There is no trial to end; the run cleans up at once."""
    run = two_trials()
    run.join()
    assert only(run.feed(ev.Interrupt()), act.StartCleanup)
    assert run.swept()[-1].status == "interrupted"
    assert run.coordinator.scheduler.not_started == 2


# -- between trials -----------------------------------------------------------------------------------------------


def test_the_host_settles_between_trials():
    """The next trial begins after the pause and no earlier; none follows the last one."""
    one = treatment(concurrency=1, iterations=1)
    run = Run(one, trials=[Trial(n, 0, n, warmup=False) for n in range(2)], settle_s=2.0)
    assert issued(run.join()) == [0]
    assert not issued(run.finish(0))
    assert not issued(run.feed(ev.Tick(), after=1.9))
    assert issued(run.feed(ev.Tick(), after=0.1)) == [1]
    assert only(run.finish(1), act.StartCleanup)


def test_a_pause_ends_with_the_run():
    """Ctrl-C during the pause begins no further trial, and does not wait for its end."""
    one = treatment(concurrency=1, iterations=1)
    run = Run(one, trials=[Trial(n, 0, n, warmup=False) for n in range(2)], settle_s=3600.0)
    run.join()
    run.finish(0)
    actions = run.feed(ev.Interrupt())
    assert only(actions, act.StartCleanup)
    assert not issued(actions)
    assert only(run.swept(), act.RunFinished)[0].status == "interrupted"


def test_a_trial_that_loses_a_worker_is_named_by_the_loss():
    """Until its own part is done: what it then loses is missing from no trial."""
    one = treatment(concurrency=1, iterations=1)
    trials = [Trial(n, 0, n, warmup=False) for n in range(2)]
    run = Run(one, trials=trials, expected=2)
    run.join("a")
    run.join("b")
    run.finish(0)
    run.feed(ev.WorkerDied("a", "killed"))
    run.join("a")
    run.feed(ev.WorkerDied("b", "killed"))
    back = run.join("b")
    assert [note.get("trial") for note in run.notes("worker-lost")] == [None, 0]
    assert run.coordinator.scheduler.unmeasured() == [
        "index=0: its only trial lost a worker, so nothing was measured"
    ]
    run.finish(*issued(back), number=1)
    run.finish(2)
    run.finish(3, number=1)
    for number in range(2):
        run.swept(number)
    assert run.log[-1] == act.RunFinished("complete"), "another trial counts"


def test_a_worker_that_is_lost_in_a_pause_may_come_back():
    """It gets the jobs of the next trial; one that stays away is missing from it."""
    one = treatment(concurrency=1, iterations=1)
    trials = [Trial(n, 0, n, warmup=False) for n in range(3)]
    run = Run(one, trials=trials, settle_s=2.0, reconnect_timeout_s=10.0)
    run.join()
    run.finish(0)
    run.feed(ev.WorkerDied("a", "killed"))
    assert not issued(run.feed(ev.Tick(), after=2.0))
    assert issued(run.join()) == [1]
    run.finish(1)
    run.feed(ev.WorkerDied("a", "killed"))
    run.feed(ev.Tick(), after=2.0)
    assert only(run.feed(ev.Tick(), after=10.0), act.RunFinished)[0].status == "incomplete"


# -- runs that go on until their verdicts are settled -------------------------------------------------------------


class Looks(Run):
    """A run of two treatments for at most so many rounds; a job takes a second."""

    def __init__(self, at_most, *, warmup=0, **rule):
        compared = [treatment(place, concurrency=1, iterations=1) for place in range(2)]
        ceiling = treatment(2, concurrency=1, iterations=1)
        places = [(2, 0, False)]
        places += [(one, block, block < warmup) for block in range(at_most + warmup) for one in (0, 1)]
        trials = [Trial(n, one, block, warmup=warm) for n, (one, block, warm) in enumerate(places)]
        rule = StoppingRule(at_most, warmup=warmup, treatments=2, **rule)
        super().__init__(*compared, ceiling, trials=trials, stopping=rule)
        self.waiting = issued(self.join())

    def work(self):
        """Finish jobs until a look is asked for, or the run ends; return the look."""
        while self.waiting:
            self.now += 1.0
            actions = self.finish(self.waiting.pop())
            self.waiting += issued(actions)
            for look in only(actions, act.TakeLook):
                assert not self.waiting, "a trial begins before the look is taken"
                return look
        return None

    def look(self, rounds, *settled):
        actions = self.feed(ev.LookTaken(rounds, frozenset(settled)))
        self.waiting += issued(actions)
        return actions


def test_the_first_look_is_after_five_rounds():
    """Then there is one after each; the last ends the run, which is complete."""
    run = Looks(7, warmup=1)
    for rounds in (5, 6, 7):
        assert run.work() == act.TakeLook(rounds, 7)
        actions = run.look(rounds)
    assert only(actions, act.StartCleanup)
    assert only(run.swept(), act.RunFinished)[0].status == "complete"
    assert run.notes("last-look") == [{"last": 7, "at_most": 7, "budget_s": None, "round_s": None, "treatments": 2}]
    assert run.notes("rounds-over") == [{"rounds": 7, "last": 7, "why": "at-most"}]


def test_a_settled_treatment_leaves_the_rounds():
    """Its remaining trials are no missing jobs; when all are settled the run is over, and complete."""
    run = Looks(8)
    run.work()
    begun = len(run.notes("trial-begin"))
    run.look(5, 1)
    assert [note["trial"] for note in run.notes("trial-skipped")] == [12, 14, 16]
    assert {note["reason"] for note in run.notes("trial-skipped")} == {"settled"}
    assert run.work().rounds == 6
    assert [note["treatment"] for note in run.notes("trial-begin")[begun:]] == [0]
    run.look(6, 0, 1)
    assert run.notes("rounds-over") == [{"rounds": 6, "last": 8, "why": "settled"}]
    assert only(run.swept(), act.RunFinished)[0].status == "complete"
    assert run.coordinator.scheduler.not_started == 0
    assert len(run.notes("trial-skipped")) + len(run.notes("trial-begin")) == 17


def test_a_budget_fixes_the_last_look_by_the_first_round():
    """By the warm-up round where there is one; what earlier parts of the run took is gone."""
    run = Looks(20, warmup=1, budget_s=16.0)
    assert run.work() == act.TakeLook(5, 8)
    assert run.notes("last-look") == [{"last": 8, "at_most": 20, "budget_s": 16.0, "round_s": 2.0, "treatments": 2}]
    for rounds in (5, 6, 7):
        run.look(rounds)
        look = run.work()
    # The warm-up round and the ceiling were not counted on: the budget is over before the last look.
    assert look is None
    assert run.notes("rounds-over") == [{"rounds": 7, "last": 8, "why": "budget"}]
    late = Looks(20, budget_s=100.0, spent_s=99.0, last=9)
    assert late.work() == act.TakeLook(1, 9)
    late.look(1)
    assert late.notes("rounds-over") == [{"rounds": 1, "last": 9, "why": "budget"}]


def test_a_look_that_never_comes_does_not_hold_up_the_run():
    """After its time the next round begins; a late answer is ignored, and so is one that was not asked for."""
    run = Looks(7)
    run.look(3, 0, 1)
    run.work()
    assert not issued(run.feed(ev.Tick(), after=1.0))
    for _ in range(70):
        run.beat(after=1.0)
        run.waiting += issued(run.feed(ev.Tick()))
    assert run.work().rounds == 6
    run.look(5, 0, 1)
    assert not run.notes("rounds-over")


def test_ctrl_c_during_a_look_ends_the_run():
    """It does not wait for the answer."""
    run = Looks(7)
    run.work()
    assert only(run.feed(ev.Interrupt()), act.StartCleanup)
    assert not issued(run.look(5))
