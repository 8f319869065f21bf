"""A container that is watched while its job goes on: the first reading is timed, all are counted, breaks are told."""

import gevent
import pytest
from deadlines import ANSWER_S, wait_until

from bench_common.lifecycle import COMMIT_BYTES, STATS_READINGS
from bench_common.records import Outcome
from bench_common.treatment import ContainerSettings, Lifecycle, Operation, Treatment
from bench_worker.engines.base import Container, EngineOptions, OperationFailed, OperationResult
from bench_worker.engines.noop import NoopEngine
from bench_worker.job_executor import JobExecutor, RunContext
from bench_worker.operation_runner import StatsStream
from bench_worker.outbox import Outbox
from bench_workloads.script import job_metrics


def failure(kind="engine"):
    return OperationFailed(kind, "broken pipe", start_ns=1, end_ns=2)


def readings(count, then=None):
    """Yield so many readings, then fail, wait for ever, or (None) end."""
    for number in range(count):
        yield OperationResult(10 * number, 10 * number + 5)
    if isinstance(then, Exception):
        raise then
    if then == "wait":
        gevent.sleep(60)


def test_the_operation_is_done_with_the_first_reading():
    """What is timed is the way to the first answer; the others are counted until the end."""
    watch = StatsStream(readings(3, "wait"))
    assert watch.first(5) == OperationResult(0, 5)
    gevent.sleep(0)
    assert watch.end() == (3, None)


def test_without_a_first_reading_the_operation_has_failed():
    """The engine's own failure is the operation's, and so is a stream without anything in it, ended or silent."""
    with pytest.raises(OperationFailed, match="broken pipe"):
        StatsStream(readings(0, failure())).first(5)
    with pytest.raises(OperationFailed, match="ended at once"):
        StatsStream(readings(0)).first(5)
    with pytest.raises(OperationFailed, match="KeyError"):
        StatsStream(readings(0, KeyError("cpu"))).first(5)
    watch = StatsStream(readings(0, "wait"))
    with pytest.raises(OperationFailed, match=r"no reading within 0\.001 s") as failed:
        watch.first(0.001)
    assert failed.value.kind == "timeout"
    watch.end()


@pytest.mark.parametrize(("kind", "told"), [("engine", True), ("not-found", False), ("conflict", False)])
def test_a_stream_may_end_with_its_container_and_not_before(kind, told):
    """That the container is gone is how a stream ends; anything else broke it."""
    watch = StatsStream(readings(2, failure(kind)))
    watch.first(5)
    gevent.sleep(0)
    count, broken = watch.end()
    assert (count, broken is not None) == (2, told)


class Watched(NoopEngine):
    """An engine whose streams a test writes; counts what is removed."""

    made = None
    removed = 0

    def watch(self, container, *, interval_s, timeout_s):
        return type(self).made()

    def remove(self, container, *, timeout_s):
        type(self).removed += 1
        return OperationResult(1, 2)

    def committed_bytes(self, container, *, timeout_s):
        return 4096


def job_of(kinds, made):
    """Run one job on an engine with such a stream; return its outcome, metrics and error."""
    Watched.made, Watched.removed = made, 0
    reports = []
    outbox = Outbox(1, lambda frame: True)
    outbox.add = lambda ticket, report: reports.append(report) or 0
    assignment = RunContext("run", "w", 1, noop=False, keep=False, allow_host_mounts=False)
    crew = JobExecutor(assignment, outbox, lambda name, options: Watched(options))
    operations = tuple(Operation(kind, kind, seconds=1.0 if kind == "stats" else None) for kind in kinds)
    crew.define(Treatment(0, {}, None, "watched", Lifecycle(operations), ContainerSettings(image="i")))
    crew.take(0, 0, [(0, 0, 0)], concurrency=1, batch=1)
    wait_until(lambda: reports, sleep=gevent.sleep)
    (report,) = reports
    return report.outcome, report.metrics, report.error


def test_a_job_tells_how_many_readings_came():
    """The stream ends with the job, whose container is removed once."""
    outcome, metrics, error = job_of(("run", "stats", "commit", "remove"), lambda: readings(3, "wait"))
    assert (outcome, error) == (Outcome.DONE, None)
    assert metrics == {STATS_READINGS: 3, COMMIT_BYTES: 4096.0}
    assert Watched.removed == 1


def test_a_stream_that_breaks_fails_its_job():
    """A job that was to be watched and was not is no measurement of being watched; nothing is left."""
    outcome, _, error = job_of(("run", "stats"), lambda: readings(2, failure()))
    assert (outcome, error[0]) == (Outcome.FAILED, "stats")
    assert "broke off: broken pipe" in error[2]
    assert Watched.removed == 1


def test_the_metrics_of_a_life_cycle_follow_from_its_operations():
    """Only a stream counts readings, only a commit has a size."""

    def of(*operations):
        return job_metrics(Treatment(0, {}, None, "docker", Lifecycle(operations)))

    assert of(Operation("run", "run"), Operation("stats", "stats")) == {}
    assert of(Operation("stats", "stats", seconds=1.0)) == {STATS_READINGS: {"unit": "1", "direction": ""}}
    assert of(Operation("commit", "commit"))[COMMIT_BYTES]["unit"] == "B"


def test_an_engine_that_can_be_asked_can_be_watched():
    """Without a stream of its own an engine is asked again and again, at the interval."""

    class Asked(NoopEngine):
        def stats(self, container, *, timeout_s):
            return OperationResult(1, 2)

    engine = Asked(EngineOptions("run", "w", 1))
    watch = engine.watch(Container("c", 1, ContainerSettings()), interval_s=0.0001, timeout_s=ANSWER_S)
    assert [next(watch) for _ in range(3)] == [OperationResult(1, 2)] * 3
