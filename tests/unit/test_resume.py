"""A run that is resumed: the journal replayed, what no longer counts, what must be the same."""

import json
import time

import pytest
from builders import MS, S, StatsBuilder, footer, header, host, job_rows, treatment_wire
from test_coordinator import Run, issued, treatment

from bench_common.clock import clock_id
from bench_common.errors import InfrastructureError, NotAStatsFileError, StatsFileError, UsageError
from bench_common.records import ErrorRecord, MetricRecord, Outcome, OutputRecord, ticket_of
from bench_common.stats.reader import StatsFile, StatsWriter, SupersededTrials
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_master.coordinator import Coordinator
from bench_master.coordinator import messages as ev
from bench_master.plan import Trial, make_plan
from bench_master.run.journal import build_header
from bench_master.run.live_stats import LiveStats
from bench_master.run.resume import ResumableRun
from bench_master.run.resume_state import REPLAYED_KINDS, replay
from bench_master.scenario import load_scenario

TRIALS = [(0, block, False) for block in range(4)]
HEAD = header([treatment_wire(0, {"engine": "native"}, ("run",))], TRIALS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


class Story(StatsBuilder):
    """A run told trial by trial; instants are seconds after the header's."""

    def __init__(self, path, head=HEAD):
        super().__init__(path, head)
        self.clock = 1000 * S
        self.jobs = 0
        self.add("host", host())
        self.event("run-begin", roster=[{"worker": 0, "worker_id": "w0"}], planned=8)

    def event(self, kind, **fields):
        self.clock += S
        return self.add("event", {"at_ns": self.clock, "kind": kind, **fields})

    def ran(self, trial, jobs=2, outcome=Outcome.DONE):
        for _ in range(jobs):
            self.clock += S
            place = {"ticket": ticket_of(self.jobs), "trial": trial}
            self.add_jobs({**place, "start_ns": self.clock - 100 * MS, "end_ns": self.clock, "outcome": outcome})
            self.add_operations({**place, "start_ns": self.clock - 100 * MS, "duration_ns": 100 * MS})
            self.jobs += 1
        return self

    def begin(self, trial):
        return self.event("trial-begin", trial=trial)

    def end(self, trial, *, complete=True):
        return self.event("trial-end", trial=trial, not_started=0, not_started_outcome="lost", complete=complete)

    def whole(self, *trials):
        for trial in trials:
            self.begin(trial).ran(trial).end(trial)
        return self

    def resumed(self, *rerun, ended="killed"):
        self.flush()
        fields = {
            "rerun_trials": list(rerun),
            "first_job": self.jobs,
            "complete_trials": 0,
            "ended": ended,
            "gap_ns": S,
        }
        return self.event("resumed", at="2026-01-02T04:00:00+00:00", **fields).flush()

    def state(self):
        path = self.close()
        return replay(StatsFile(path).header, StatsFile(path).blocks(REPLAYED_KINDS, everything=True))


# -- the journal replayed ---------------------------------------------------------------------------------------


def test_a_trial_that_was_begun_and_not_ended_is_run_again(path):
    """What the journal vouches for is whole; the trial under way is run again, with job ids that nobody had."""
    state = Story(path).whole(0, 1).begin(2).ran(2, jobs=1).state()
    assert (state.complete_trials, state.rerun_trials, state.first_job) == ({0, 1}, [2], 5)
    assert (state.status, state.numbers, state.worker_counts) == ("killed", {"w0": 0}, {"bare-metal": 1})


def test_a_trial_that_nobody_needs_is_not_run(path):
    """What the looks have settled stays so, and so does the last look; what an interrupt skipped runs later."""
    story = Story(path).event("last-look", last=9, at_most=30, budget_s=60.0, round_s=6.0, treatments=2).whole(0)
    skipped = {"not_started_outcome": "aborted", "not_started": 0}
    story.event("trial-skipped", trial=2, reason="settled", not_needed=2, **skipped)
    state = story.event("trial-skipped", trial=3, **{**skipped, "not_started": 2}).state()
    assert (state.unneeded_trials, state.finished_trials, state.last_look) == ({2}, {0, 2}, 9)
    assert state.settled == {0}


def test_a_trial_that_lost_something_is_run_again(path):
    """A trial that ended without some of its jobs is not whole, though the run itself came to its end."""
    story = Story(path).begin(0).ran(0).end(0, complete=False).whole(1)
    story.add("footer", footer(status="incomplete", warnings=["worker w0 was lost"]))
    state = story.state()
    assert (state.complete_trials, state.rerun_trials, state.status) == ({1}, [0], "incomplete")
    assert state.warnings == ["worker w0 was lost"]


def test_a_run_that_was_resumed_can_be_resumed_again(path):
    """The second crash finds what both parts made whole, and voids the footer of the first."""
    story = Story(path).whole(0).begin(1).ran(1, jobs=1).add("footer", footer(status="interrupted"))
    state = story.resumed(1, ended="interrupted").whole(1).begin(2).ran(2, jobs=1).state()
    assert (state.complete_trials, state.rerun_trials, state.parts) == ({0, 1}, [2], 2)
    assert state.status == "killed"


def test_a_crash_before_a_resumed_trial_began_changes_nothing(path):
    """A resume that came to nothing leaves the trial to be run again."""
    state = Story(path).whole(0).begin(1).ran(1, jobs=1).resumed(1).state()
    assert (state.complete_trials, state.rerun_trials, state.first_job) == ({0}, [1], 3)


def test_the_time_between_the_parts_is_none_of_the_run(path):
    """How long a run lasted is the sum of its parts."""
    story = Story(path).whole(0)
    first = story.clock - 1000 * S
    story.clock += 500 * S
    story.resumed()
    again = story.clock
    story.whole(1)
    assert story.state().previous_parts_ns == first + story.clock - again


def test_what_a_footer_says_of_the_time_is_kept(path):
    """A run that is extended must not become shorter by what its earlier parts took beside their trials."""
    story = Story(path).whole(0)
    story.add("footer", footer(duration_s=50.0))
    story.resumed(ended="complete")
    again = story.clock
    story.whole(1)
    assert story.state().previous_parts_ns == 50 * S + story.clock - again


def test_a_record_without_its_job_takes_the_jobs_id(path):
    """A cut between the blocks of a flush may leave a metric of a job that is in no row: its id is not reused."""
    story = Story(path).begin(0).ran(0)
    story.writer.metrics([MetricRecord(ticket_of(77, 1), 0, 0, "m", 1.0)])
    assert story.state().first_job == 78


def test_the_losses_of_a_part_that_was_killed_are_warned_of(path):
    """Where no footer tells of a lost worker, its event does."""
    Story(path).begin(0).event("worker-lost", worker=0, worker_id="w0", reason="SIGKILL", held=2).close()
    past = ResumableRun(path)
    assert past.state.warnings == ["worker w0 was lost (SIGKILL) with 2 jobs"]
    past.close()


def test_events_of_no_trial_are_passed_over(path):
    """A trial that the plan does not know is nobody's."""
    state = Story(path).begin(99).end(99).event("trial-begin", trial="x").state()
    assert (state.complete_trials, state.rerun_trials) == (set(), [])


# -- the coordinator from there ---------------------------------------------------------------------------------


def test_a_coordinator_goes_on_with_what_is_left():
    """It runs the trials that it is given, numbers jobs after those that were, and knows its workers' numbers."""
    run = Run(treatment(concurrency=2, iterations=1))
    trials = [Trial(3, 0, 1, warmup=False)]
    run.coordinator = Coordinator(
        (treatment(concurrency=2, iterations=1),),
        trials,
        run.policy,
        job_limit_s=lambda _: 100.0,
        first_job=40,
        numbers={"b": 0, "a": 1},
    )
    assert issued(run.join("a")) == [40, 41]
    assert run.notes("trial-begin") == [{"trial": 3, "treatment": 0, "workers": [1]}]
    run.finish(40, 41, number=1)
    assert run.notes("trial-end")[0]["complete"] is True
    assert run.swept(number=1)[-1].status == "complete"


def test_a_run_with_nothing_left_but_its_end_cleans_up_and_ends():
    """After a crash between the last trial and the footer the hosts are swept, and the run is complete."""
    run = Run()
    run.coordinator = Coordinator((treatment(),), [], run.policy, job_limit_s=lambda _: 100.0, first_job=6)
    assert not issued(run.join())
    assert run.swept()[-1].status == "complete"


@pytest.mark.parametrize("iterations", [2, None])
def test_a_trial_that_was_interrupted_is_not_whole(iterations):
    """Ctrl-C in a trial by number and in one by time: both are run again."""
    sizes = {} if iterations else {"run_seconds": 60.0}
    run = Run(treatment(concurrency=1, iterations=iterations, **sizes))
    run.join()
    run.feed(ev.Interrupt())
    run.finish(0)
    assert run.notes("trial-end")[0]["complete"] is False


def test_a_trial_whose_jobs_were_retried_is_whole():
    """A loss that cost attempts and no job leaves nothing to be run again."""
    run = Run(treatment(concurrency=1, iterations=1))
    run.join()
    run.feed(ev.WorkerDied("a", "killed"))
    (ticket,) = issued(run.join())
    run.finish(ticket)
    assert run.notes("trial-end")[0]["complete"] is True


# -- what no longer counts --------------------------------------------------------------------------------------


def test_what_was_begun_anew_counts_once(path):
    """Every reader sees the trial as it was run again; what it was before is still in the file."""
    story = Story(path).whole(0).begin(1).ran(1, jobs=1)
    story.writer.errors([ErrorRecord(ticket_of(2), 0, 1, "run", "exit-code", "of before")])
    story.writer.outputs([OutputRecord(ticket_of(2), 0, 1, "run", b"of before")])
    story.flush().resumed(1).whole(1, 2, 3)
    counts = {"planned": 8, "done": 8, "failed": 0, "lost": 0, "aborted": 0}
    stats = StatsFile(story.close(footer(counts=counts, resumes=1)))
    tickets = [ticket for rows in stats.iter_jobs() for ticket in rows["ticket"].tolist()]
    assert tickets == [0, 1, 3, 4, 5, 6, 7, 8]
    assert sum(len(block.body) for block in stats.blocks({"operations"})) == 8
    assert [*stats.blocks({"errors", "outputs"})] == []
    begins = [block.body["trial"] for block in stats.blocks({"event"}) if block.body["kind"] == "trial-begin"]
    assert begins == [0, 1, 2, 3]
    everything = [block.body for block in stats.blocks({"jobs"}, everything=True)]
    assert sum(map(len, everything)) == 9
    report = as_json(build_document(stats))
    assert (report["totals"]["done"], report["incomplete"], report["warnings"]) == (8, [], [])
    assert report["errors"] == []


def test_a_resumed_run_that_was_killed_has_no_end(path):
    """The footer of a part is not the end of the run; what is set aside is found without a footer too."""
    story = Story(path).whole(0).begin(1).ran(1, jobs=1).add("footer", footer(status="interrupted"))
    report = as_json(build_document(StatsFile(story.resumed(1, ended="interrupted").begin(1).ran(1, jobs=1).close())))
    assert report["run"]["status"] is None
    assert any("the stats file has no footer: the run was killed" in reason for reason in report["incomplete"])
    assert report["totals"]["done"] == 3


def test_set_aside_leaves_others_alone():
    """Trials that did not run again, trials beyond them, other events and malformed ones stay as they are."""
    aside = SupersededTrials()
    aside.note({"kind": "resumed", "rerun_trials": "all", "first_job": 1, "at_ns": 1})
    assert not aside
    aside.note({"kind": "resumed", "rerun_trials": [1], "first_job": 10, "at_ns": 50})
    rows = job_rows(
        *({"ticket": ticket_of(job, 1), "trial": trial} for job, trial in [(9, 1), (10, 1), (3, 0), (3, 7)])
    )
    assert aside.counting("jobs", rows)["trial"].tolist() == [1, 0, 7]
    assert aside.counting("jobs", rows[:1]) is None
    assert aside.counting("event", {"kind": "trial-end", "trial": 1, "at_ns": 49}) is None
    for event in ({"kind": "trial-end", "trial": 1, "at_ns": 51}, {"kind": "worker-lost", "trial": 1, "at_ns": 1}):
        assert aside.counting("event", event) == event


# -- the report -------------------------------------------------------------------------------------------------


def test_a_report_tells_when_a_run_was_resumed_and_what_that_split(path):
    """The report has the resume, its gap, and the block of which some trials ran before and some after."""
    two = header(
        [treatment_wire(index, {"n": index}, ("run",)) for index in range(2)],
        [(0, 0, False), (1, 0, False), (1, 1, False), (0, 1, False)],
    )
    story = Story(path, two).whole(0).begin(1).ran(1, jobs=1).resumed(1).whole(1, 2, 3)
    report = as_json(build_document(StatsFile(story.close(footer(resumes=1)))))
    assert report["run"]["resumes"] == [
        {
            "at": "2026-01-02T04:00:00+00:00",
            "ended": "killed",
            "gap_s": 1.0,
            "complete_trials": 0,
            "rerun_trials": [1],
        }
    ]
    assert report["run"]["actual_order"] == {"as_planned": True, "late": [], "split_blocks": [0]}
    assert any("1 block ran partly before and partly after that: 0" in text for text in report["warnings"])


def test_a_trial_out_of_its_turn_is_told(path):
    """A trial that was lost early and run again at the end did not run as planned."""
    story = Story(path).begin(0).ran(0, jobs=1).end(0, complete=False).whole(1, 2, 3).resumed(0).whole(0)
    report = as_json(build_document(StatsFile(story.close(footer(resumes=1)))))
    assert report["run"]["actual_order"]["late"] == [0]
    assert any("1 trial did not run in the planned order" in text for text in report["warnings"])


# -- the file ---------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_when_the_run_goes_on(path):
    """Half a block, or the zeros that a power cut leaves, go when the first new block comes, and not before."""
    whole = Story(path).whole(0).begin(1).close().read_bytes()
    path.write_bytes(whole + whole[:40] + bytes(500))
    past = ResumableRun(path)
    assert path.read_bytes() != whole
    writer, shift_ns = past.writer(["bench-master"])
    writer.close(footer(resumes=1))
    stats = StatsFile(path)
    (event,) = (block.body for block in stats.blocks({"event"}) if block.body["kind"] == "resumed")
    assert (event["cut_bytes"], event["rerun_trials"], event["ended"], event["shift_ns"]) == (
        540,
        [1],
        "killed",
        shift_ns,
    )
    assert stats.damage is None
    assert path.read_bytes().startswith(whole)


def test_damage_in_the_middle_is_refused(path):
    """What no crash leaves behind is not cut off: the file is left as it is."""
    data = bytearray(Story(path).whole(0).flush().whole(1).close().read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StatsFileError, match="is damaged in the middle") as raised:
        ResumableRun(path)
    assert raised.value.exit_code == 3
    assert path.read_bytes() == data


def test_a_foreign_file_is_refused(path):
    """What is no stats file is a usage error, as everywhere."""
    path.write_text("precious")
    with pytest.raises(NotAStatsFileError) as raised:
        ResumableRun(path)
    assert raised.value.exit_code == 2


def test_a_file_whose_run_is_under_way_is_refused(path):
    """A file has one writer: neither a live run nor a second resume can be joined."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.flush()
    with pytest.raises(StatsFileError, match="its run is still running"):
        ResumableRun(path)
    writer.close()
    past = ResumableRun(path)
    with pytest.raises(StatsFileError, match="its run is still running"):
        ResumableRun(path)
    past.close()
    ResumableRun(path).close()


def test_a_complete_run_leaves_nothing_to_do(path):
    """The footer says it."""
    Story(path).whole(0, 1, 2, 3).close(footer())
    past = ResumableRun(path)
    assert past.complete
    past.close()


def test_after_another_boot_the_files_clock_goes_on(path):
    """The instants of a part that ran after a reboot come after those before it, as far as the calendar says."""
    now = time.time_ns()
    clock = {"unix_ns": now - 3600 * S, "monotonic_ns": 10**15, "boot_id": "another"}
    Story(path, {**HEAD, "clock": clock}).whole(0).close()
    past = ResumableRun(path)
    writer, shift_ns = past.writer([])
    at_ns = time.monotonic_ns() + shift_ns
    assert 10**15 + 3600 * S <= at_ns <= 10**15 + 3700 * S
    writer.close()


def test_within_one_boot_the_clock_is_the_same(path):
    """Nothing is shifted where nothing changed."""
    clock = {"unix_ns": time.time_ns(), "monotonic_ns": 0, "boot_id": clock_id()}
    StatsBuilder(path, {**HEAD, "clock": clock}).close()
    past = ResumableRun(path)
    writer, shift_ns = past.writer([])
    writer.close()
    assert (shift_ns == 0) == bool(clock_id())


# -- what must be the same --------------------------------------------------------------------------------------


def planned(folder, **keys):
    path = folder / "s.yaml"
    job = {"operations": ["run"], "container": {"command": "date"}}
    path.write_text(json.dumps({"name": "s", "engines": ["native"], "repeats": 3, "job": job, **keys}))
    scenario = load_scenario(str(path))
    return scenario, make_plan(scenario, keys.get("seed", 7))


def begun(path, **keys):
    scenario, plan = planned(path.parent, **keys)
    head = build_header(
        scenario,
        plan,
        run_id="r",
        argv=[],
        noop=False,
        environments=["here"],
        options={"workers": 1},
        trial_jobs=[1] * len(plan.treatments),
    )
    Story(path, head).close()
    return ResumableRun(path)


def test_the_same_scenario_and_seed_are_the_same_plan(path):
    """The plan that is made again is the stored one, though its header knows the workers' environment."""
    past = begun(path)
    past.check_plan(planned(path.parent)[1])
    past.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 8}, "order and seed are interleaved 8, not interleaved 7"),
        ({"repeats": 4}, "its trials are in another order"),
        ({"concurrency": 2}, "treatment 'engine=native' differs in concurrency"),
        ({"matrix": {"concurrency": [1, 2]}}, "2 treatments, not 1"),
    ],
)
def test_another_plan_is_refused_plainly(path, change, said):
    """What differs is told; it is the user's to put right."""
    past = begun(path)
    with pytest.raises(UsageError, match="not the plan that it was begun with") as raised:
        past.check_plan(planned(path.parent, **change)[1])
    assert said in str(raised.value)
    past.close()


def test_another_number_of_workers_is_refused(path):
    """Trials with another load would be another measurement."""
    Story(path).whole(0).close()
    past = ResumableRun(path)
    past.check_workers(["bare-metal"])
    with pytest.raises(InfrastructureError, match="1 worker in bare-metal, now there are 2 workers in bare-metal"):
        past.check_workers(["bare-metal", "bare-metal"])
    past.close()


def test_the_screen_goes_on_where_it_was(path):
    """A tally that is carried on knows the whole trials, their time, and how many jobs there will be in all."""
    Story(path).whole(0, 1).begin(2).ran(2, jobs=1).close()
    past = ResumableRun(path)
    trials = [Trial(place, *trial[:2], warmup=trial[2]) for place, trial in enumerate(TRIALS)]
    make = past.with_completed_trials(
        lambda planned: LiveStats(["native"], [("run",)], trials, scenario="s", planned=planned, started_ns=0)
    )
    tally = make(4)
    snapshot = tally.snapshot(time.monotonic_ns())
    assert (snapshot.planned, snapshot.done, snapshot.rate_now) == (8, 4, 0.0)
    assert snapshot.rate_mean == pytest.approx(4 / 6)
    assert make(None) is tally
    past.close()
