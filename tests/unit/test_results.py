"""Batches of results: checked, settled on the master's clock, and thinned of what is refused."""

import numpy as np
import pytest

from bench_common.errors import ProtocolError
from bench_common.messages import decode
from bench_common.records import MAX_BOUND_NS, OPERATION_DONE, OPERATION_FAILED, OPERATION_SPOILED, JobReport, Outcome
from bench_master.run.results import unpack
from bench_worker.outbox import Outbox

COUNTS = np.array([2, 1], np.int64)


def report(start_ns, **fields):
    return JobReport(Outcome.DONE, start_ns, start_ns + 100, operations=[(0, True, start_ns, 40)], **fields)


def sent(*jobs):
    """What an outbox sends for (ticket, treatment, trial, report) rows."""
    frames = []
    outbox = Outbox(7, lambda frame: frames.append(frame) or True)
    for job in jobs:
        outbox.add(*job)
    outbox.flush()
    return [decode(frame, sender="worker", lane="results") for frame in frames], outbox


def test_what_the_worker_packs_is_what_the_master_reads():
    """Rows, metrics, errors and outputs arrive as they were."""
    failed = JobReport(Outcome.FAILED, 5, 9, error=("start", "engine", "no"), outputs=[("run", b"a", b"b", 3, False)])
    messages, _ = sent((1, 0, 0, report(1000, metrics={"speed": 2.5}, bound_ns=MAX_BOUND_NS)), (2, 1, 3, failed))
    batch = unpack(messages[0], COUNTS, trials=4)
    assert batch.jobs["ticket"].tolist() == [1, 2]
    assert batch.jobs["outcome"].tolist() == [Outcome.DONE, Outcome.FAILED]
    assert batch.jobs["bound_ns"].tolist() == [MAX_BOUND_NS, 0]
    assert batch.operations["duration_ns"].tolist() == [40]
    assert [(record.ticket, record.name, record.value) for record in batch.metrics] == [(1, "speed", 2.5)]
    assert [(record.ticket, record.operation, record.message) for record in batch.errors] == [(2, "start", "no")]
    assert [(record.step, record.stdout, record.exit_code) for record in batch.outputs] == [("run", b"a", 3)]


def test_stamps_move_to_the_masters_clock():
    """A worker whose clock is 300 ns ahead has its stamps moved back by that; durations stay."""
    messages, _ = sent((1, 0, 0, report(1000)))
    batch = unpack(messages[0], COUNTS, trials=1).settle(5, 300, None)
    assert (batch.jobs["start_ns"][0], batch.jobs["end_ns"][0], batch.operations["start_ns"][0]) == (700, 800, 700)
    assert (batch.jobs["worker"][0], batch.operations["duration_ns"][0]) == (5, 40)


def test_refused_jobs_take_everything_of_theirs_along():
    """Rows of jobs that do not count leave no operation, metric, error or output behind."""
    messages, _ = sent((1, 0, 0, report(1, metrics={"m": 1.0})), (2, 0, 0, report(2, metrics={"m": 2.0})))
    batch = unpack(messages[0], COUNTS, trials=1).settle(0, 0, (1,))
    assert batch.jobs["ticket"].tolist() == [2]
    assert batch.operations["ticket"].tolist() == [2]
    assert [record.value for record in batch.metrics] == [2.0]


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ((1, 2, 0, report(1)), "not in the plan"),
        ((1, 0, 9, report(1)), "not in the plan"),
        ((1, 1, 0, JobReport(Outcome.DONE, 1, 2, operations=[(1, True, 1, 1)])), "does not have"),
    ],
)
def test_rows_of_another_plan_are_refused(job, why):
    """Treatments, trials and operations that the plan does not have never reach the journal."""
    messages, _ = sent(job)
    with pytest.raises(ProtocolError, match=why):
        unpack(messages[0], COUNTS, trials=4)


def test_malformed_records_are_refused():
    """A metric that is no number, an error that is no text, bytes that are no rows: a protocol error each."""
    messages, _ = sent((1, 0, 0, report(1)))
    for name, value in (("metrics", [[1, 0, 0, "m", "x"]]), ("errors", [[1]]), ("outputs", [[1, 0, 0, "s", 1, 2]])):
        messages[0].fields[name] = value
        with pytest.raises(ProtocolError, match="malformed"):
            unpack(messages[0], COUNTS, trials=1)
        messages[0].fields[name] = []
    messages[0].fields["jobs"] = b"odd"
    with pytest.raises(ProtocolError, match="whole number"):
        unpack(messages[0], COUNTS, trials=1)


def test_batches_are_kept_until_acknowledged():
    """The spool forgets what the master has, and repeats the rest."""
    frames = []
    outbox = Outbox(7, lambda frame: frames.append(frame) or True)
    for ticket in range(3):
        outbox.add(ticket, 0, 0, report(ticket))
        outbox.flush()
    outbox.acknowledge([0, 2, 99])
    assert (outbox.unacknowledged, outbox.spooled_bytes) == (1, len(frames[1]))
    assert outbox.repeat() == 1
    assert frames[-1] == frames[1]


def test_nothing_is_sent_when_there_is_nothing_to_say():
    """An empty flush makes no message."""
    messages, outbox = sent()
    assert messages == []
    assert outbox.unacknowledged == 0


def test_large_outputs_go_in_frames_of_their_own():
    """Raw output does not pile up to a frame that would be refused."""
    big = [("run", b"x" * (3 << 20), b"", 0, False)]
    messages, _ = sent(*((ticket, 0, 0, report(ticket, outputs=list(big))) for ticket in range(3)))
    assert len(messages) == 3


def test_operations_of_a_job_that_failed_are_spoiled():
    """What was done for a job that was not enters no latency, and is told from what failed."""
    operations = [(0, True, 1, 10), (1, False, 11, 5)]
    failed = JobReport(Outcome.FAILED, 1, 16, operations=operations, error=("start", "engine", "no"))
    messages, _ = sent((1, 0, 0, failed), (2, 0, 0, report(100)))
    batch = unpack(messages[0], COUNTS, trials=1).settle(0, 0, None)
    assert batch.operations["ok"].tolist() == [OPERATION_SPOILED, OPERATION_FAILED, OPERATION_DONE]


@pytest.mark.parametrize("outcome", [Outcome.LOST, 9])
def test_an_outcome_that_no_worker_can_know_is_refused(outcome):
    """Only the master knows that a job was lost; other numbers are no outcome at all."""
    messages, _ = sent((1, 0, 0, JobReport(outcome, 1, 2)))
    with pytest.raises(ProtocolError, match="no worker can know"):
        unpack(messages[0], COUNTS, trials=1)


def test_records_of_other_jobs_are_refused():
    """A batch tells of its own jobs only."""
    messages, _ = sent((1, 0, 0, report(1)))
    messages[0].fields["errors"] = [[2, 0, 0, "start", "engine", "no"]]
    with pytest.raises(ProtocolError, match="not in the batch"):
        unpack(messages[0], COUNTS, trials=1)


def test_aborted_jobs_are_counted():
    """The coordinator learns how many jobs of a batch were called off."""
    messages, _ = sent((1, 0, 0, report(1)), (2, 0, 0, JobReport(Outcome.ABORTED, 1, 2)))
    batch = unpack(messages[0], COUNTS, trials=1)
    assert (batch.aborted, batch.all_done) == (1, False)
