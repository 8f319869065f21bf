"""The life of one job: what its report says after each event, and when a container is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.errors import ProtocolError
from bench_common.records import MAX_UNCERTAINTY_NS, JobReport, Outcome
from bench_common.treatment import Operation
from bench_worker import job
from bench_worker.job import Failure, Script


def script(*kinds):
    return Script([Operation(kind, kind) for kind in kinds])


def stamped(*stamps):
    """The report of a job that has come so far."""
    report = JobReport()
    report.stamps += stamps
    return report


@pytest.mark.parametrize(
    ("kinds", "leaves"),
    [
        (["create", "start", "remove"], False),
        (["run"], True),
        (["run", "remove", "create"], True),
        (["sleep"], False),
        ([], False),
    ],
)
def test_a_script_knows_whether_it_leaves_a_container(kinds, leaves):
    """A container that the script leaves is tidied away; one that it removes is not looked for again."""
    assert script(*kinds).leaves_container is leaves


def test_a_job_of_which_nothing_else_is_said_is_done():
    """What few reports have costs no other, and of all others it says that there is none."""
    report = stamped(10, 10)
    assert (report.outcome, report.failed_at, report.span, report.error) == (Outcome.DONE, -1, None, None)
    assert report.extras is None
    report.metrics = {"speed": 2.5}
    assert (report.outcome, report.metrics, report.outputs) == (Outcome.DONE, {"speed": 2.5}, None)


def test_a_job_lasts_from_its_first_operation_to_its_last():
    """What lies between operations is part of the job."""
    assert script("create", "start", "remove").span([10, 10, 20, 5, 30, 11]) == (10, 41)


def test_what_prepares_and_tidies_up_is_none_of_a_jobs_time():
    """Where operations are not timed, a job lasts from its first timed command to its last."""
    commands = [("prepare", False), ("warmup", False), ("run", True), ("again", True), ("cleanup", False)]
    operations = [
        Operation("create", "create"),
        *(Operation("exec", name, argv=("x",), timed=timed) for name, timed in commands),
        Operation("remove", "remove"),
    ]
    stamps = [10, 1, 20, 1000, 2000, 500, 3000, 70, 3100, 80, 4000, 900, 5000, 1]
    assert Script(operations).span(stamps) == (3000, 3180)


def test_a_jobs_bound_is_the_largest_of_its_operations():
    """An end that may be stamped late counts for its job: rounded up, and beyond 4 s cut to what a row holds."""
    report = JobReport()
    for uncertainty_ns, known_ns in ((5000, 5119), (7000, 7167), (3000, 7167), (1 << 40, MAX_UNCERTAINTY_NS)):
        job.record_uncertainty(report, uncertainty_ns)
        assert report.uncertainty_ns == known_ns


def test_a_failed_operation_keeps_its_time_apart():
    """It is marked, and the job has failed for its reason."""
    report = stamped(10, 10)
    job.record_failure(report, script("create", "start", "remove"), Failure("engine", "no such thing", 20, 30))
    assert (report.outcome, report.stamps, report.failed_at) == (Outcome.FAILED, [10, 10, 20, 10], 1)
    assert report.span == (10, 30)
    assert report.error == ("start", "engine", "no such thing")


def test_an_operation_can_be_done_and_its_job_failed():
    """A guest that ran, but whose output is no result, has a good operation and a failed job."""
    report, output = JobReport(), ("run", b"out", b"", 0, False)
    failure = Failure("parse-error", "line 3", 10, 20, operation_ok=True, outputs=(output,))
    job.record_failure(report, script("create"), failure)
    assert (report.outcome, report.stamps, report.failed_at) == (Outcome.FAILED, [10, 10], -1)
    assert report.outputs == [output]


def test_a_job_that_is_called_off_ends_then():
    """With its operations so far; and where there are none, it lasts no time."""
    report, early = stamped(10, 10), JobReport()
    job.record_abort(report, 50)
    job.record_abort(early, 50)
    assert (report.outcome, report.span) == (Outcome.ABORTED, (10, 50))
    assert (early.outcome, early.span) == (Outcome.ABORTED, (50, 50))


def test_a_container_that_cannot_be_removed_fails_its_job():
    """A job that leaves something behind is no clean measurement."""
    report = stamped(10, 10)
    job.record_cleanup(report, "device busy")
    assert (report.outcome, report.error) == (Outcome.FAILED, ("clean-up", "engine", "device busy"))


def test_the_first_failure_is_the_one_that_is_told():
    """A failing clean-up does not hide why the job failed."""
    report = JobReport()
    job.record_failure(report, script("run"), Failure("image-missing", "no image", 10, 20))
    job.record_cleanup(report, "device busy")
    assert report.error == ("run", "image-missing", "no image")


def test_no_operation_fails_that_the_script_does_not_have():
    """A shell that gets the order wrong is told so."""
    with pytest.raises(ProtocolError, match="failure of operation 1 of 1"):
        job.record_failure(stamped(1, 2), script("run"), Failure("engine", "x", 1, 2))


@given(st.integers(0, 5), st.sampled_from(["done", "failed", "aborted"]), st.booleans())
def test_every_history_has_one_outcome_and_a_span_that_holds_its_operations(position, ending, leftover):
    """However far a job came and however it ended, its stamps lie within it."""
    plan = script("create", *["exec"] * 6)
    report = stamped(*(word for step in range(position) for word in (100 + 10 * step, 7)))
    if ending == "failed":
        job.record_failure(report, plan, Failure("engine", "x", 100 + 10 * position, 109 + 10 * position))
    elif ending == "aborted":
        job.record_abort(report, 100 + 10 * position)
    job.record_cleanup(report, "left" if leftover else None)
    assert report.outcome in (Outcome.DONE, Outcome.FAILED, Outcome.ABORTED)
    assert (report.outcome == Outcome.DONE) == (ending == "done" and not leftover)
    ends = [start + duration for start, duration in zip(report.stamps[::2], report.stamps[1::2], strict=True)]
    if report.stamps:
        begins_ns, ends_ns = report.span or plan.span(report.stamps)
        assert all(begins_ns <= start for start in report.stamps[::2])
        assert all(end <= ends_ns for end in ends)
