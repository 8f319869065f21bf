"""The history checker sees what is wrong with a run: without that, its silence would mean nothing."""

from itertools import count

import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire
from history import faults_of

from bench_common.records import ErrorRecord, MetricRecord, Outcome, ticket_of

TREATMENTS = [
    {**treatment_wire(index, {"environment": name}, ("run",)), "iterations": 2, "concurrency": 1}
    for index, name in enumerate(("bare-metal", "hypervisor"))
]
HEAD = header(TREATMENTS, [(0, 0, False), (1, 0, False)])
COUNTS = {"planned": 4, "done": 3, "failed": 0, "lost": 1, "aborted": 0}


def row(job, trial, *, worker=None, attempt=0, outcome=Outcome.DONE, at_s=None):
    """Return a job of a trial, which lasts ten seconds from the tenth of its number on."""
    start_s = 10 * trial + 1 + job if at_s is None else at_s
    return {
        "ticket": ticket_of(job, attempt),
        "trial": trial,
        "treatment": trial,
        "worker": trial if worker is None else worker,
        "outcome": outcome,
        "start_ns": start_s * S,
        "end_ns": (start_s + 1) * S,
    }


def error(job, trial=1, kind="lost"):
    """Return why a job is not done."""
    return ErrorRecord(ticket_of(job), trial, trial, "worker", kind, "why")


ERRORS = (error(3),)
GOOD = {0: [row(0, 0), row(1, 0)], 1: [row(2, 1), row(3, 1, outcome=Outcome.LOST)]}


@pytest.fixture
def history(tmp_path):
    """Write a run of two trials with some of it changed, and return what the checker finds."""
    names = (tmp_path / f"{number}.stats.gz" for number in count())

    def write(*, jobs=GOOD, errors=ERRORS, metrics=(), foot=None, after=(), losses=(1,), killed=False):
        made = StatsBuilder(next(names), HEAD)
        for number, name in enumerate(("bare-metal", "hypervisor")):
            made.add("host", host(number, environment=name))
        for worker in losses:
            made.add("event", {"kind": "worker-lost", "at_ns": 0, "worker": worker, "reason": "r", "held": 1})
        for trial in (0, 1):
            made.add("event", {"kind": "trial-begin", "at_ns": 10 * trial * S, "trial": trial, "workers": [trial]})
            made.add_jobs(*jobs[trial]).flush()
            if trial:
                made.writer.errors(list(errors))
                made.writer.metrics(list(metrics))
                made.flush()
            end = {"kind": "trial-end", "at_ns": (10 * trial + 10) * S, "trial": trial, "not_started": 0}
            end["not_started_outcome"] = "lost"
            made.add("event", end)
        if after:
            made.add_jobs(*after).flush()
        given = {"counts": COUNTS, "status": "incomplete", **(foot or {})}
        return faults_of(made.close(None if killed else footer(**given)), killed=killed)

    return write


def test_a_good_history_has_no_faults(history):
    """A lost job is no fault of the story, as long as it is told as lost, once, with a reason."""
    assert history() == []


def test_a_job_that_vanished_is_found(history):
    """By the hole in the ids, in its trial, and in the counts."""
    found = history(jobs={**GOOD, 0: GOOD[0][:1]})
    assert found == [
        "jobs without an outcome: [1]",
        "trial 0 has 1 jobs, 2 were planned",
        "3 done are told, 2 are there",
        "4 were planned, 3 are accounted for",
    ]


def test_a_job_that_counts_twice_is_found(history):
    """Whichever attempt it was."""
    assert "job 1 counts twice, as done" in history(jobs={**GOOD, 0: [*GOOD[0], row(1, 0)]})
    assert "job 2 counts twice, as done" in history(jobs={**GOOD, 1: [*GOOD[1], row(2, 1, attempt=1)]})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"jobs": {**GOOD, 1: [row(2, 1, worker=0), GOOD[1][1]]}},
            "job 2 of environment hypervisor was run in bare-",
        ),
        ({"jobs": {**GOOD, 1: [row(2, 1, worker=7), GOOD[1][1]]}}, "job 2 was run by worker 7, which never joined"),
        ({"jobs": {**GOOD, 0: [GOOD[0][0], row(1, 0, attempt=1)]}}, "job 1 is attempt 1, with 0 losses of worker 0"),
        (
            {"jobs": {**GOOD, 1: [row(2, 1, attempt=3), GOOD[1][1]]}, "losses": [1] * 9},
            "job 2 is attempt 3, with 9 l",
        ),
        ({"after": [row(4, 0, at_s=2)]}, "job 4 comes after the end of its trial 0"),
        (
            {"jobs": {**GOOD, 0: [GOOD[0][0], {**row(1, 0), "treatment": 1}]}},
            "job 1 is of trial 0 and treatment 1: no",
        ),
        ({"jobs": {**GOOD, 0: [GOOD[0][0], row(1, 0, at_s=30)]}}, "job 1 lies behind its trial 0"),
        ({"jobs": {**GOOD, 1: [row(2, 1, at_s=3), GOOD[1][1]]}}, "job 2 lies before its trial 1"),
        ({"jobs": {**GOOD, 0: [GOOD[0][0], {**row(1, 0), "end_ns": 1}]}}, "job 1 ended before it began"),
        ({"errors": ()}, "job 3 is lost, with 0 errors"),
        ({"errors": (error(3), error(2))}, "job 2 is done, with 1 errors"),
        ({"errors": (error(3), error(9))}, "job 9 has records of attempt 0, which is in no row"),
        ({"metrics": [MetricRecord(ticket_of(3), 1, 1, "x", 1.0)]}, "job 3 is lost, and a metric of it counts"),
        ({"metrics": [MetricRecord(ticket_of(2, 1), 1, 1, "x", 1.0)]}, "job 2 has records of attempt 1, which is in"),
        ({"foot": {"counts": {**COUNTS, "lost": 0}}}, "0 lost are told, 1 are there"),
        ({"foot": {"status": "complete"}}, "the run calls itself complete, and 1 jobs are missing"),
        ({"foot": {"not_started": 2}}, "2 were not started, the trials say 0"),
    ],
)
def test_what_cannot_have_been_is_found(history, changes, fault):
    """Each in its own words."""
    found = history(**changes)
    assert any(text.startswith(fault) for text in found), found


def test_a_killed_run_is_no_excuse_for_a_doubled_job(history):
    """The file is the journal: what is wrong in it stays wrong when the run goes on."""
    assert history(jobs={**GOOD, 0: [*GOOD[0], row(1, 0)]}, killed=True) == ["job 1 counts twice, as done"]
