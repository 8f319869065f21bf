"""A run whose file is cut anywhere, again and again: resumed, each trial is whole, each of its jobs counts once."""

import random
from collections import Counter

import pytest
from builders import S, header, host, job_rows, treatment_wire
from test_coordinator import treatment

from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile, StatsWriter
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_master.coordinator import Coordinator, Policy
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.plan import Trial
from bench_master.run.resume import ResumableRun
from bench_master.run.resume_state import ResumeState

JOBS = 6
"""In each trial: two in flight, three each."""
TREATMENTS = [treatment(index, concurrency=2, iterations=3) for index in range(2)]
TRIALS = [Trial(place, place % 2, place // 2, warmup=False) for place in range(6)]
HEAD = header(
    [treatment_wire(index, {"n": index}, ("run", "remove")) for index in range(2)],
    [(trial.treatment, trial.block, trial.warmup) for trial in TRIALS],
)


class Shell:
    """A master without sockets: obeys the coordinator, and writes what it says into the file as the real one does.

    Its only worker does each job at once, and loses what it holds now and then.
    """

    def __init__(self, writer, state, draw, began_ns):
        self.writer = writer
        self.draw = draw
        self.now_ns = began_ns
        self.held = []
        self.sequence = 0
        self.status = None
        left = [trial for trial in TRIALS if trial.index not in state.complete_trials]
        self.coordinator = Coordinator(
            TREATMENTS,
            left,
            Policy(max_attempts=1000),
            job_limit_s=lambda _: 1000.0,
            first_job=state.first_job,
            numbers=state.numbers,
        )

    def run(self):
        """Run to the end."""
        hello = ev.Hello(b"w", "w0", "bare-metal", 4)
        self.feed(hello)
        while self.status is None:
            trial = self.coordinator.scheduler.trial
            # The last round loses nobody: each treatment has a trial that counts.
            if self.held and trial.block < TRIALS[-1].block and not self.draw.randrange(8):
                self.held.clear()
                self.feed(ev.WorkerDied("w0", "killed"))
                self.feed(hello)
            elif self.held:
                tickets = [self.held.pop(self.draw.randrange(len(self.held)))]
                self.feed(ev.ResultsReceived(self.coordinator.roster[0].epoch, self.sequence, tickets, tickets))
                self.sequence += 1
            else:
                self.feed(ev.CleanupDone(b"w", self.coordinator.roster[0].epoch))
            if not self.draw.randrange(3):
                self.writer.flush()
        assert self.status == "complete"

    def feed(self, event):
        """Give the coordinator an event, and do what it wants done."""
        self.now_ns += S // 100
        for action in self.coordinator.handle(event, self.now_ns / S):
            match action:
                case act.WelcomeWorker():
                    self.sequence = 0
                case act.AssignJobs():
                    self.held += action.tickets
                    self.place = (action.treatment, action.trial)
                case act.RecordResults():
                    self.record(action)
                case act.LogEvent():
                    self.note(action)
                case act.RunFinished():
                    self.status = action.status
        self.coordinator.validate()

    def record(self, action):
        """Write the jobs that count."""
        batch = action.batch if action.keep is None else [action.batch[row] for row in action.keep]
        treatment, trial = self.place
        place = {"treatment": treatment, "trial": trial, "start_ns": self.now_ns - 1000, "end_ns": self.now_ns}
        self.writer.jobs(job_rows(*({"ticket": ticket, **place, "outcome": Outcome.DONE} for ticket in batch)))

    def note(self, note):
        """Write an event, and what is known of the worker."""
        if note.kind == "worker-joined":
            self.writer.put("host", host())
        fields = {name: value for name, value in note.fields.items() if name != "info"}
        self.writer.put("event", {"at_ns": self.now_ns, "kind": note.kind, **fields})


def first_life(path, draw):
    """Write a whole run; return its bytes."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.flush()
    Shell(writer, ResumeState(), draw, 1000 * S).run()
    writer.close({"status": "complete", "counts": {}, "not_started": 0})
    return path.read_bytes()


def next_life(path, draw):
    """Resume the run and end it, unless nothing is left to do; return how many trials were whole before."""
    past = ResumableRun(path)
    whole = len(past.state.complete_trials)
    if past.complete:
        past.close()
        return whole
    writer, shift_ns = past.writer(["bench-master"])
    assert shift_ns or path.exists()
    Shell(writer, past.state, draw, past.state.last_ns + S).run()
    writer.close({"status": "complete", "counts": {}, "not_started": 0, "resumes": past.state.parts})
    return whole


def assert_each_trial_counts_once(path):
    """Every trial has all of its jobs, no ticket comes twice, and the report has nothing to complain of."""
    stats = StatsFile(path)
    rows = list(stats.iter_jobs())
    assert stats.damage is None
    counted = Counter(trial for part in rows for trial in part["trial"].tolist())
    assert counted == dict.fromkeys(range(len(TRIALS)), JOBS)
    every = [block.body for block in stats.blocks({"jobs"}, everything=True)]
    tickets = [ticket for part in every for ticket in part["ticket"].tolist()]
    assert len(set(tickets)) == len(tickets), "a ticket of one life came again in another"
    report = as_json(build_document(stats))
    assert report["incomplete"] == []
    assert report["run"]["actual_order"]["late"] == []
    # A trial in which a worker was lost is in no figure.
    assert report["totals"]["done"] + report["totals"]["warmup"] == JOBS * len(TRIALS)
    assert sum(one["trials"]["run"] + one["trials"]["left_out"] for one in report["treatments"]) == len(TRIALS)


@pytest.mark.parametrize("seed", range(12))
def test_a_run_that_is_cut_anywhere_can_be_ended(tmp_path, seed):
    """Cut at a byte anywhere behind the header, resumed, cut again further on, resumed again."""
    draw = random.Random(seed)
    path = tmp_path / "run.stats.gz"
    first_life(path, draw)
    for _ in range(3):
        data = path.read_bytes()
        stats = StatsFile(path)
        next(stats.blocks(everything=True))
        path.write_bytes(data[: draw.randrange(stats.intact_bytes, len(data))])
        next_life(path, draw)
        assert_each_trial_counts_once(path)


def test_what_is_whole_is_not_run_again(tmp_path):
    """However late the cut, no complete trial of the file runs again, and all others do."""
    draw = random.Random(5)
    path = tmp_path / "run.stats.gz"
    data = first_life(path, draw)
    for length in range(len(data) - 1, len(data) // 3, -len(data) // 20):
        path.write_bytes(data[:length])
        vouched = {
            block.body["trial"] for block in StatsFile(path).blocks({"event"}) if block.body["kind"] == "trial-end"
        }
        assert next_life(path, draw) == len(vouched)
        begun = Counter(
            block.body["trial"]
            for block in StatsFile(path).blocks({"event"}, everything=True)
            if block.body["kind"] == "trial-begin"
        )
        assert all(begun[trial] == 1 for trial in vouched)
        assert_each_trial_counts_once(path)
