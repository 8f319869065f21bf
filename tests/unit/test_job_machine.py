"""The life of one job: what follows what, and that a container is removed whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.errors import ProtocolError
from bench_common.records import Outcome
from bench_common.spec import Operation
from bench_worker.job import Aborted, Failed, Finish, JobMachine, Perform, Succeeded, Tidied, Tidy


def machine(*kinds):
    return JobMachine([Operation(kind, kind) for kind in kinds], now_ns=5)


def test_a_job_that_removes_its_container_is_done_without_tidying():
    """create, start, remove: three operations, one outcome, nothing left to tidy."""
    job = machine("create", "start", "remove")
    assert job.begin() == Perform(0)
    assert job.handle(Succeeded(10, 20)) == Perform(1)
    assert job.handle(Succeeded(20, 25)) == Perform(2)
    report = job.handle(Succeeded(30, 41)).report
    assert (report.outcome, report.start_ns, report.end_ns) == (Outcome.DONE, 10, 41)
    assert report.operations == [(0, True, 10, 10), (1, True, 20, 5), (2, True, 30, 11)]


def test_a_container_that_the_script_leaves_is_tidied_and_not_timed():
    """Clean-up that is not part of the script is no operation."""
    job = machine("run")
    job.begin()
    assert job.handle(Succeeded(10, 20)) == Tidy()
    report = job.handle(Tidied(99)).report
    assert (report.outcome, report.end_ns, len(report.operations)) == (Outcome.DONE, 20, 1)


def test_after_a_failure_nothing_more_is_tried():
    """The failed operation keeps its time apart, its container is removed, the job has failed."""
    job = machine("create", "start", "remove")
    job.begin()
    job.handle(Succeeded(10, 20))
    assert job.handle(Failed("engine", "no such thing", 20, 30)) == Tidy()
    report = job.handle(Tidied(40)).report
    assert report.outcome is Outcome.FAILED
    assert report.operations == [(0, True, 10, 10), (1, False, 20, 10)]
    assert report.error == ("start", "engine", "no such thing")


def test_an_operation_can_be_done_and_its_job_failed():
    """A guest that ran, but whose output is no result, has a good operation and a failed job."""
    job = machine("create")
    job.begin()
    job.handle(Failed("parse-error", "line 3", 10, 20, operation_ok=True))
    report = job.handle(Tidied(30)).report
    assert (report.outcome, report.operations) == (Outcome.FAILED, [(0, True, 10, 10)])


def test_an_aborted_job_is_tidied():
    """Whatever was under way may have made a container."""
    job = machine("create", "start")
    job.begin()
    assert job.handle(Aborted(50)) == Tidy()
    assert job.handle(Tidied(60)).report.outcome is Outcome.ABORTED


def test_a_container_that_cannot_be_removed_fails_its_job():
    """A job that leaves something behind is no clean measurement."""
    job = machine("run")
    job.begin()
    job.handle(Succeeded(10, 20))
    report = job.handle(Tidied(30, "device busy")).report
    assert (report.outcome, report.error) == (Outcome.FAILED, ("clean-up", "engine", "device busy"))


def test_the_first_failure_is_the_one_that_is_told():
    """A failing clean-up does not hide why the job failed."""
    job = machine("run")
    job.begin()
    job.handle(Failed("image-missing", "no image", 10, 20))
    assert job.handle(Tidied(30, "device busy")).report.error == ("run", "image-missing", "no image")


def test_metrics_and_outputs_come_with_the_report():
    """What a step gave is in the report of its job."""
    job = machine("create")
    job.begin()
    output = ("run", b"out", b"", 0, False)
    job.handle(Succeeded(1, 2, metrics={"events_per_second": 9.5}, outputs=(output,)))
    report = job.handle(Tidied(3)).report
    assert (report.metrics, report.outputs) == ({"events_per_second": 9.5}, [output])


def test_events_out_of_order_raise_with_the_story():
    """A shell that gets the order wrong is told so."""
    job = machine("run")
    job.begin()
    with pytest.raises(ProtocolError, match="at operation 0"):
        job.handle(Tidied(3))


@given(st.lists(st.sampled_from(["create", "start", "exec", "stop", "remove", "sleep"]), min_size=1), st.data())
def test_every_history_ends_once_and_leaves_nothing(kinds, data):
    """Whatever each step gives, the job ends, with one outcome, and a made container was removed or tidied."""
    job = machine(*kinds)
    action, container, steps = job.begin(), False, 0
    while not isinstance(action, Finish):
        steps += 1
        assert steps < 2 * len(kinds) + 4
        if isinstance(action, Tidy):
            container = False
            action = job.handle(Tidied(100))
            continue
        kind = kinds[action.position]
        choice = data.draw(st.sampled_from(["ok", "ok", "ok", "fail", "abort"]))
        if choice == "ok":
            container = (container or kind == "create") and kind != "remove"
            action = job.handle(Succeeded(1, 2))
        elif choice == "fail":
            action = job.handle(Failed("engine", "x", 1, 2))
        else:
            action = job.handle(Aborted(3))
    assert not container
    assert action.report.outcome in (Outcome.DONE, Outcome.FAILED, Outcome.ABORTED)
    with pytest.raises(ProtocolError):
        job.handle(Succeeded(1, 2))
