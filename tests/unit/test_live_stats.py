"""Live statistics: counts, latencies, rates and estimates of a run, fed by batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from bench_common.job_rows import JOB_ROW, OPERATION_ROW, TRANSFER_ROW
from bench_common.records import ErrorRecord, Outcome
from bench_master.progress.live import _counts
from bench_master.progress.view import HostRow, Snapshot, final_line
from bench_master.run import live_stats as live_stats_module
from bench_master.run.live_stats import JOB, LiveStats

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Trial:
    """A trial as a plan has it."""

    treatment: int
    warmup: bool = False
    block: int = 0


def live_stats_of(*, trials=(Trial(0), Trial(1)), planned=10, optional=(), alternatives=()):
    return LiveStats(
        ["engine=docker", "engine=native"],
        [["create", "start"], ["start"]],
        trials,
        scenario="quickstart",
        planned=planned,
        started_ns=0,
        optional=optional,
        alternatives=alternatives,
    )


def jobs(*durations_ns, trial=0, treatment=0, outcome=Outcome.DONE):
    rows = np.zeros(len(durations_ns), dtype=JOB_ROW)
    rows["trial"], rows["treatment"], rows["outcome"] = trial, treatment, outcome
    rows["start_ns"] = 7 * SECOND
    rows["end_ns"] = rows["start_ns"] + np.array(durations_ns, dtype=np.int64)
    return rows


def operations(*durations_ns, trial=0, treatment=0, operation=0, ok=1):
    rows = np.zeros(len(durations_ns), dtype=OPERATION_ROW)
    rows["trial"], rows["treatment"], rows["operation"], rows["ok"] = trial, treatment, operation, ok
    rows["duration_ns"] = durations_ns
    return rows


def error(operation="start", kind="timeout", message="no answer"):
    return ErrorRecord(0, 0, 0, operation, kind, message)


def row_of(snapshot, treatment, operation):
    (row,) = [row for row in snapshot.latencies if (row.treatment, row.operation) == (treatment, operation)]
    return row


def test_each_outcome_is_counted_at_once():
    """A snapshot holds every batch taken before it, whatever is still buffered."""
    stats = live_stats_of()
    stats.jobs(jobs(1, 2, 3))
    stats.jobs(jobs(1, outcome=Outcome.FAILED))
    stats.jobs(jobs(1, 1, outcome=Outcome.LOST))
    stats.jobs(jobs(1, outcome=Outcome.ABORTED))
    now = stats.snapshot(SECOND)
    assert (now.done, now.failed, now.lost, now.aborted, now.finished) == (3, 1, 2, 1, 7)


def test_jobs_that_do_one_operation_have_rates_of_what_was_done_and_moved():
    """Over their measured trials so far; a failure moves nothing, and other jobs have no such rates."""
    stats = live_stats_of(trials=(Trial(0, warmup=True), Trial(0), Trial(1)), alternatives=[0])
    stats.trial_began(0, 0)
    stats.trial_ended(0, 5 * SECOND)
    stats.trial_began(1, 5 * SECOND)
    moved = np.zeros(4, TRANSFER_ROW)
    moved["trial"], moved["bytes"], moved["operation"] = [0, 1, 1, 1], 4_000_000, [0, 0, 0, 1]
    moved["ok"] = [1, 1, 0, 1]
    stats.transfers(moved)
    stats.operations(operations(1, 1, 1, 1, trial=1))
    now = stats.snapshot(7 * SECOND)
    created = row_of(now, 0, "create")
    assert (created.per_s, created.mb_per_s, created.p99_s) == (2.0, 2.0, 1e-9)
    assert row_of(now, 0, JOB).mb_per_s == 4.0
    assert (row_of(now, 1, "start").per_s, row_of(now, 1, "start").mb_per_s) == (None, None)


def test_aborted_jobs_are_none_of_those_that_took_the_time():
    """After an interruption most of them never began."""
    line = final_line(Snapshot("s", done=24, aborted=579, elapsed_s=4.0))
    assert line.startswith("24 jobs in 0:04 (")
    assert line.endswith("24 done, 0 failed, 579 aborted")


def test_left_out_jobs_of_optional_treatments_did_not_fail():
    """As in the report: while every failure is for want of an image or a tool, and none of the jobs is done."""
    stats = live_stats_of(optional=[1])
    stats.errors([ErrorRecord(0, 1, 1, "create", "image-missing", "no image")] * 2)
    stats.errors([ErrorRecord(0, 0, 0, "create", "image-missing", "no image")])
    stats.jobs(jobs(1, 1, treatment=1, trial=1, outcome=Outcome.FAILED))
    stats.jobs(jobs(1, outcome=Outcome.FAILED))
    now = stats.snapshot(SECOND)
    assert (now.failed, now.left_out, now.finished) == (1, 2, 3)
    assert [(row.count, row.left_out) for row in now.errors] == [(1, False), (2, True)]
    assert final_line(now).endswith("0 done, 1 failed, 2 left out (optional)")
    assert "1 failed   2 left out (optional)" in _counts(now).plain
    stats.jobs(jobs(1, treatment=1, trial=1))
    now = stats.snapshot(SECOND)
    assert (now.failed, now.left_out, now.finished) == (3, 0, 4)
    assert [(row.count, row.left_out) for row in now.errors] == [(3, False)]
    stats = live_stats_of(optional=[1])
    stats.errors([ErrorRecord(0, 1, 1, "start", "exit-code", "exit code 1")])
    stats.jobs(jobs(1, treatment=1, trial=1, outcome=Outcome.FAILED))
    assert stats.snapshot(SECOND).left_out == 0


def test_rows_go_to_their_own_treatment_and_operation():
    """A batch that mixes treatments and operations is grouped without crossing them."""
    stats = live_stats_of()
    mixed = np.concatenate(
        [
            operations(10, 30, treatment=0, operation=1),
            operations(500, treatment=1, operation=0),
            operations(7, treatment=0, operation=0),
            operations(20, treatment=0, operation=1),
        ]
    )
    stats.operations(mixed)
    stats.jobs(jobs(40, treatment=1, trial=1))
    now = stats.snapshot(SECOND)
    start = row_of(now, 0, "start")
    assert (start.n, start.p50_s, start.max_s) == (3, 20e-9, 30e-9)
    assert row_of(now, 0, "create").n == 1
    assert row_of(now, 1, "start").max_s == 500e-9
    assert (row_of(now, 0, JOB).n, row_of(now, 1, JOB).n) == (0, 1)
    assert [row.operation for row in now.latencies] == [JOB, "create", "start", JOB, "start"]


def test_failures_never_enter_a_latency():
    """A failed job or operation adds to the errors of its row and to nothing else."""
    stats = live_stats_of()
    stats.operations(np.concatenate([operations(5), operations(9_000_000, ok=0)]))
    stats.jobs(np.concatenate([jobs(5), jobs(9_000_000, outcome=Outcome.FAILED), jobs(0, outcome=Outcome.LOST)]))
    now = stats.snapshot(SECOND)
    for operation in ("create", JOB):
        row = row_of(now, 0, operation)
        assert (row.n, row.errors, row.max_s) == (1, 1, 5e-9)


def test_warmup_counts_as_jobs_but_not_as_latency():
    """Jobs of a warm-up trial are in the totals and in no row of latencies."""
    stats = live_stats_of(trials=(Trial(0, warmup=True), Trial(0)))
    stats.jobs(np.concatenate([jobs(5, trial=0), jobs(6, trial=1), jobs(7, trial=0, outcome=Outcome.FAILED)]))
    stats.operations(np.concatenate([operations(5, trial=0), operations(6, trial=1), operations(7, ok=0)]))
    now = stats.snapshot(SECOND)
    assert (now.done, now.failed) == (2, 1)
    for operation in ("create", JOB):
        row = row_of(now, 0, operation)
        assert (row.n, row.errors, row.max_s) == (1, 0, 6e-9)


def test_quantiles_are_those_of_the_values():
    """The median and the 95th percentile are within the histogram's error of the true ones."""
    stats = live_stats_of()
    values = np.random.default_rng(1).permutation(np.arange(1, 100_001)) * 1000
    for batch in np.split(values, 100):
        stats.operations(operations(*batch))
    row = row_of(stats.snapshot(SECOND), 0, "create")
    assert row.n == 100_000
    assert row.p50_s == pytest.approx(0.050, rel=0.002)
    assert row.p95_s == pytest.approx(0.095, rel=0.002)
    assert row.max_s == 0.1


def test_a_row_outside_the_plan_is_refused():
    """An operation that its treatment does not have is an error, not a latency of the next treatment."""
    stats = live_stats_of()
    stats.operations(operations(1, treatment=1, operation=1))
    with pytest.raises(ValueError, match="does not have"):
        stats.snapshot(SECOND)


def test_rates_look_at_the_last_seconds_and_at_the_time_in_trials():
    """The mean rate leaves out the time between trials; the present rate forgets what is long ago."""
    stats = live_stats_of(planned=None)
    stats.trial_began(0, 10 * SECOND)
    stats.jobs(jobs(*[1] * 100))
    stats.trial_ended(0, 20 * SECOND)
    assert stats.snapshot(20 * SECOND).rate_mean == 10.0
    stats.trial_began(1, 100 * SECOND)
    for second in range(100, 111):
        now = stats.snapshot(second * SECOND)
        stats.jobs(jobs(1, 1, trial=1, treatment=1))
    assert now.rate_now == pytest.approx(2.0)
    assert now.rate_mean == pytest.approx(120 / 20)


def test_a_run_that_has_done_nothing_has_no_estimate():
    """Before the first job or trial is over there is no rate and no guess."""
    for planned in (10, None):
        stats = live_stats_of(planned=planned)
        stats.trial_began(0, 0)
        now = stats.snapshot(0)
        assert (now.rate_now, now.rate_mean, now.eta_s) == (0.0, 0.0, None)


def test_the_estimate_follows_the_planned_jobs():
    """With a planned number of jobs, what is left takes as long as what was done."""
    stats = live_stats_of(planned=10)
    stats.trial_began(0, 0)
    stats.jobs(jobs(1, 1, 1, 1))
    assert stats.snapshot(8 * SECOND).eta_s == pytest.approx(12.0)
    stats.planned = 4
    assert stats.snapshot(8 * SECOND).eta_s == 0.0


def test_the_estimate_follows_the_trials_where_time_is_planned():
    """Without a number of jobs, each trial to come takes as long as those that are over."""
    stats = live_stats_of(trials=(Trial(0), Trial(1), Trial(0)), planned=None)
    stats.trial_began(0, 0)
    stats.trial_ended(0, 30 * SECOND)
    stats.trial_began(1, 31 * SECOND)
    assert stats.snapshot(41 * SECOND).eta_s == pytest.approx(50.0)


def test_jobs_that_were_never_handed_out_have_an_outcome_too():
    """What a trial's end reports as not started is counted with the outcome that it gives."""
    stats = live_stats_of()
    stats.trial_began(0, 0)
    stats.trial_ended(0, SECOND, not_started=3, outcome=Outcome.LOST)
    stats.trial_ended(1, SECOND, not_started=2)
    now = stats.snapshot(SECOND)
    assert (now.lost, now.aborted) == (3, 2)


def test_the_trial_under_way_is_named():
    """A snapshot tells the trial's number from 1, its treatment and whether it is a warm-up; none between trials."""
    stats = live_stats_of(trials=(Trial(0), Trial(1, warmup=True)))
    assert stats.snapshot(0).trial is None
    stats.trial_began(1, 0)
    trial = stats.snapshot(0).trial
    assert (trial.number, trial.total, trial.treatment, trial.title, trial.warmup) == (2, 2, 1, "engine=native", True)
    stats.trial_ended(1, SECOND)
    assert stats.snapshot(SECOND).trial is None


def test_errors_are_grouped_with_one_real_message():
    """Failures of one kind are one group with the first message; the largest group comes first."""
    stats = live_stats_of()
    stats.errors([error(message="first"), error(kind="conflict", message="other")])
    stats.errors([error(message="second")])
    groups = stats.snapshot(0).errors
    assert [(g.count, g.operation, g.kind, g.message) for g in groups] == [
        (2, "start", "timeout", "first"),
        (1, "start", "conflict", "other"),
    ]


def test_errors_take_bounded_memory():
    """However many kinds a worker makes up, the number and the size of the groups stay small."""
    stats = live_stats_of()
    stats.errors(error(kind=f"kind-{n}", message="x" * 100_000) for n in range(1000))
    groups = stats.snapshot(0).errors
    assert len(groups) == live_stats_module.ERROR_GROUPS + 1
    assert sum(group.count for group in groups) == 1000
    assert max(len(group.message) for group in groups) == live_stats_module.MESSAGE_CHARS


def test_hosts_are_as_last_heard_of():
    """A newer row replaces the older one of its worker, and the jobs in flight are the sum over the hosts."""
    stats = live_stats_of()
    stats.host(HostRow("w-2", "b", "control", "ready", 2, 4))
    stats.host(HostRow("w-1", "a", "control", "joining", 0, 4))
    stats.host(HostRow("w-1", "a", "control", "ready", 3, 4))
    now = stats.snapshot(0)
    assert [(host.worker_id, host.state) for host in now.hosts] == [("w-1", "ready"), ("w-2", "ready")]
    assert now.in_flight == 5


def test_rounds_until_the_verdicts_are_settled_are_named():
    """From the first measured round on, with what the last look settled and not how; no host ceiling has a round."""
    trials = (Trial(1), Trial(0, warmup=True), Trial(0, block=1), Trial(0, block=2))
    stats = live_stats_of(trials=trials, planned=None)
    stats.trial_began(2, 0)
    assert stats.snapshot(SECOND).round is None
    stats.looks.note_last(30, 1)
    assert stats.snapshot(SECOND).round.text == "round 1 of at most 30"
    stats.looks.note(
        [{"verdict": "slower"}, {"verdict": "same"}, {"verdict": "refused"}, {"verdict": "inconclusive"}], 5
    )
    stats.trial_began(3, 0)
    assert stats.snapshot(SECOND).round.text == "round 2 of at most 30: 3 of 4 settled"
    for trial in (0, 1):
        stats.trial_began(trial, 0)
        assert stats.snapshot(SECOND).round is None
