"""The life of one job: what follows what, and that a container is removed whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.errors import ProtocolError
from bench_common.records import MAX_BOUND_NS, Outcome
from bench_common.spec import Operation
from bench_worker.engines.base import Done
from bench_worker.job import OVER, TIDY, JobMachine, Script, Trouble


def machine(*kinds):
    return JobMachine(Script([Operation(kind, kind) for kind in kinds]), now_ns=5)


def test_a_job_that_removes_its_container_is_done_without_tidying():
    """create, start, remove: three operations, one outcome, nothing left to tidy."""
    job = machine("create", "start", "remove")
    assert job.begin() == 0
    assert job.succeeded(Done(10, 20)) == 1
    assert job.succeeded(Done(20, 25)) == 2
    assert job.succeeded(Done(30, 41)) == OVER
    report = job.report
    assert (report.outcome, report.start_ns, report.end_ns) == (Outcome.DONE, 10, 41)
    assert report.operations == [(0, True, 10, 10), (1, True, 20, 5), (2, True, 30, 11)]


def test_a_jobs_bound_is_the_largest_of_its_operations():
    """An end that may be stamped late counts for its job: rounded up, and beyond 4 s cut to what a row holds."""
    job = machine("create", "start", "remove")
    for bound_ns, known_ns in ((5000, 5119), (7000, 7167), (3000, 7167)):
        job.succeeded(Done(10, 20, end_bound_ns=bound_ns))
        assert job.report.bound_ns == known_ns
    job = machine("create", "remove")
    job.succeeded(Done(10, 20, end_bound_ns=1 << 40))
    assert job.report.bound_ns == MAX_BOUND_NS


def test_a_container_that_the_script_leaves_is_tidied_and_not_timed():
    """Clean-up that is not part of the script is no operation."""
    job = machine("run")
    job.begin()
    assert job.succeeded(Done(10, 20)) == TIDY
    assert job.tidied() == OVER
    assert (job.report.outcome, job.report.end_ns, len(job.report.operations)) == (Outcome.DONE, 20, 1)


def test_after_a_failure_nothing_more_is_tried():
    """The failed operation keeps its time apart, its container is removed, the job has failed."""
    job = machine("create", "start", "remove")
    job.begin()
    job.succeeded(Done(10, 20))
    assert job.failed(Trouble("engine", "no such thing", 20, 30)) == TIDY
    assert job.tidied() == OVER
    assert job.report.outcome is Outcome.FAILED
    assert job.report.operations == [(0, True, 10, 10), (1, False, 20, 10)]
    assert job.report.error == ("start", "engine", "no such thing")


def test_an_operation_can_be_done_and_its_job_failed():
    """A guest that ran, but whose output is no result, has a good operation and a failed job."""
    job = machine("create")
    job.begin()
    output = ("run", b"out", b"", 0, False)
    job.failed(Trouble("parse-error", "line 3", 10, 20, operation_ok=True, outputs=(output,)))
    job.tidied()
    assert (job.report.outcome, job.report.operations) == (Outcome.FAILED, [(0, True, 10, 10)])
    assert job.report.outputs == [output]


def test_an_aborted_job_is_tidied():
    """Whatever was under way may have made a container."""
    job = machine("create", "start")
    job.begin()
    assert job.aborted(50) == TIDY
    assert job.tidied() == OVER
    assert (job.report.outcome, job.report.end_ns) == (Outcome.ABORTED, 50)


def test_a_container_that_cannot_be_removed_fails_its_job():
    """A job that leaves something behind is no clean measurement."""
    job = machine("run")
    job.begin()
    job.succeeded(Done(10, 20))
    job.tidied("device busy")
    assert (job.report.outcome, job.report.error) == (Outcome.FAILED, ("clean-up", "engine", "device busy"))


def test_the_first_failure_is_the_one_that_is_told():
    """A failing clean-up does not hide why the job failed."""
    job = machine("run")
    job.begin()
    job.failed(Trouble("image-missing", "no image", 10, 20))
    job.tidied("device busy")
    assert job.report.error == ("run", "image-missing", "no image")


def test_a_job_without_operations_is_over_at_once():
    """Nothing to do is done."""
    job = machine()
    assert job.begin() == OVER
    assert job.report.outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("before", "event", "state"),
    [
        ([], lambda job: job.tidied(), "at step 0"),
        ([lambda job: job.aborted(9)], lambda job: job.succeeded(Done(1, 2)), "being tidied"),
        ([lambda job: job.aborted(9)], lambda job: job.aborted(10), "being tidied"),
        ([lambda job: job.aborted(9), lambda job: job.tidied()], lambda job: job.tidied(), "over"),
        (
            [lambda job: job.succeeded(Done(1, 2)), lambda job: job.tidied()],
            lambda job: job.failed(Trouble("engine", "x", 1, 2)),
            "over",
        ),
    ],
)
def test_events_out_of_order_raise_with_the_story(before, event, state):
    """A shell that gets the order wrong is told so, and what state the job was in."""
    job = machine("run")
    job.begin()
    for earlier in before:
        earlier(job)
    with pytest.raises(ProtocolError, match=state):
        event(job)


@given(st.lists(st.sampled_from(["create", "start", "exec", "stop", "remove", "sleep"]), min_size=1), st.data())
def test_every_history_ends_once_and_leaves_nothing(kinds, data):
    """Whatever each step gives, the job ends, with one outcome, and a made container was removed or tidied."""
    job = machine(*kinds)
    step, container, steps = job.begin(), False, 0
    while step != OVER:
        steps += 1
        assert steps <= len(kinds) + 1
        if step == TIDY:
            container = False
            step = job.tidied()
            continue
        kind = kinds[step]
        choice = data.draw(st.sampled_from(["ok", "ok", "ok", "fail", "abort"]))
        if choice == "ok":
            container = (container or kind == "create") and kind != "remove"
            step = job.succeeded(Done(1, 2))
        elif choice == "fail":
            step = job.failed(Trouble("engine", "x", 1, 2))
        else:
            step = job.aborted(3)
    assert not container
    assert job.report.outcome in (Outcome.DONE, Outcome.FAILED, Outcome.ABORTED)
    with pytest.raises(ProtocolError):
        job.succeeded(Done(1, 2))
