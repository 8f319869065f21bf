"""Batches of results: checked, settled on the master's clock, and thinned of what is refused."""

import struct
from time import monotonic

import msgspec
import pytest

from bench_common.errors import ProtocolError
from bench_common.fields import VERSION
from bench_common.messages import RESULTS, Results
from bench_common.records import OPERATION_DONE, OPERATION_EXCLUDED, OPERATION_FAILED, ErrorRecord, JobReport, Outcome
from bench_common.treatment import Operation
from bench_master.run.incoming import ResultsAssembly
from bench_master.run.results import loop_columns, to_rows, unpack_results
from bench_worker.job import Script
from bench_worker.outbox import JOB_BYTES, Outbox

COUNTS = [2, 1]
TRIALS = [0, 1]


SCRIPT = Script([Operation("run", "run"), Operation("remove", "remove")])


def report(start_ns, **rest):
    """What a job gave that is done."""
    made = JobReport()
    made.stamps += [start_ns, 40, start_ns + 40, 60]
    for name, value in rest.items():
        setattr(made, name, value)
    return made


def sent(*jobs, treatment=0, trial=0):
    """What an outbox sends for (ticket, report) pairs of one trial."""
    frames = []
    outbox = Outbox(7, lambda frame: frames.append(frame) or True)
    outbox.start_trial(treatment, trial, SCRIPT)
    for job in jobs:
        outbox.add(*job)
    outbox.flush()
    # A large batch leaves once those before it are acknowledged.
    for sequence in range(outbox.unacknowledged):
        outbox.acknowledge([sequence])
    return received(frames), outbox


def received(frames):
    """What the master makes of frames."""
    assembly = ResultsAssembly()
    messages = [RESULTS.decode(frame) for frame in frames]
    wholes = [one if isinstance(one, Results) else assembly.add(one) for one in messages]
    return [one for one in wholes if one is not None]


def settled(batch, number=0, offset_ns=0):
    """The rows of one batch, as they are stored."""
    return to_rows([batch], [number], [offset_ns])


def test_what_the_worker_packs_is_what_the_master_reads():
    """Rows, metrics, errors and outputs arrive as they were; what was not tried leaves no operation."""
    failed = JobReport.ended(Outcome.FAILED, (5, 9), error=("start", "engine", "no"))
    failed.stamps += [5, 4]
    failed.failed_at = 0
    failed.uncertainty_ns = 77
    failed.outputs = [("run", b"a", b"b", 3, False)]
    messages, _ = sent((1, report(1000, metrics={"speed": 2.5})), (2, failed))
    batch = unpack_results(messages[0], COUNTS, TRIALS)
    jobs, operations = settled(batch)
    assert batch.tickets == jobs["ticket"].tolist() == [1, 2]
    assert jobs["outcome"].tolist() == [Outcome.DONE, Outcome.FAILED]
    assert jobs["end_ns"].tolist() == [1100, 9]
    assert jobs["uncertainty_ns"].tolist() == [0, 77]
    assert operations["ticket"].tolist() == [1, 1, 2]
    assert operations["operation"].tolist() == [0, 1, 0]
    assert operations["duration_ns"].tolist() == [40, 60, 4]
    assert [(record.ticket, record.name, record.value) for record in batch.metrics] == [(1, "speed", 2.5)]
    assert [(record.ticket, record.operation, record.message) for record in batch.errors] == [(2, "start", "no")]
    assert [(record.step, record.stdout, record.exit_code) for record in batch.outputs] == [("run", b"a", 3)]


def test_stamps_move_to_the_masters_clock():
    """A worker whose clock is 300 ns ahead has its stamps moved back by that; durations stay."""
    messages, _ = sent((1, report(1000)))
    jobs, operations = settled(unpack_results(messages[0], COUNTS, TRIALS), 5, 300)
    assert (jobs["start_ns"][0], jobs["end_ns"][0], operations["start_ns"].tolist()) == (700, 800, [700, 740])
    assert (jobs["worker"][0], operations["duration_ns"].tolist()) == (5, [40, 60])


def test_many_batches_are_settled_as_one():
    """What came in three messages makes the rows that one message would have made."""
    messages = [sent((ticket, report(100 * ticket)))[0][0] for ticket in range(3)]
    together, _ = sent(*((ticket, report(100 * ticket)) for ticket in range(3)))
    batches = [unpack_results(message, COUNTS, TRIALS) for message in messages]
    apart = to_rows(batches, [2] * 3, [7] * 3)
    for one, other in zip(apart, settled(unpack_results(together[0], COUNTS, TRIALS), 2, 7), strict=True):
        assert one.tolist() == other.tolist()


def test_batches_of_several_members_are_settled_as_one():
    """Each row has the number and the clock of its own member, however many rows the others sent."""
    messages = [sent((1, report(1000)), (2, report(2000)))[0][0], sent((3, report(1000)))[0][0]]
    batches = [unpack_results(message, COUNTS, TRIALS) for message in messages]
    jobs, operations = to_rows(batches, [4, 9], [300, -50])
    assert list(zip(jobs["worker"].tolist(), jobs["start_ns"].tolist(), strict=True)) == [
        (4, 700),
        (4, 1700),
        (9, 1050),
    ]
    assert operations["start_ns"].tolist() == [700, 740, 1700, 1740, 1050, 1090]


def test_refused_jobs_take_everything_of_theirs_along():
    """Rows of jobs that do not count leave no operation, metric, error or output behind."""
    messages, _ = sent((1, report(1, metrics={"m": 1.0})), (2, report(2, metrics={"m": 2.0})))
    batch = unpack_results(messages[0], COUNTS, TRIALS).only((1,))
    jobs, operations = settled(batch)
    assert jobs["ticket"].tolist() == batch.tickets == [2]
    assert operations["ticket"].tolist() == [2, 2]
    assert [record.value for record in batch.metrics] == [2.0]


@pytest.mark.parametrize(("treatment", "trial"), [(2, 0), (1, 0), (0, 9)])
def test_rows_of_another_plan_are_refused(treatment, trial):
    """Treatments and trials that the plan does not have, or not together, never reach the journal."""
    messages, _ = sent((1, report(1)), treatment=treatment, trial=trial)
    with pytest.raises(ProtocolError, match="not in the plan"):
        unpack_results(messages[0], COUNTS, TRIALS)


def test_rows_of_another_width_are_refused():
    """A treatment of one operation has no rows for two; no rows at all are no results."""
    messages, _ = sent((1, report(1)), treatment=1, trial=1)
    for rows in (messages[0].rows, b"odd", b""):
        messages[0].rows = rows
        with pytest.raises(ProtocolError, match="whole number"):
            unpack_results(messages[0], COUNTS, TRIALS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metrics", [[1, 0, 0, "m", "x"]]),
        ("errors", [[1]]),
        ("errors", [[-1, 0, 0, "start", "engine", "no"]]),
        ("outputs", [[1, 0, 0, "s", 1, 2]]),
        ("loop", b""),
        ("loop", bytes(23)),
        ("loop", bytes(48)),
    ],
)
def test_malformed_records_are_refused(name, value):
    """A metric that is not a number, an error without text, loop words of another length: a protocol error each."""
    messages, _ = sent((1, report(1)))
    fields = msgspec.to_builtins(messages[0], builtin_types=(bytes,))
    RESULTS.decode(msgspec.msgpack.encode([VERSION, fields]))
    with pytest.raises(ProtocolError, match=f"message 'results': .*{name}"):
        RESULTS.decode(msgspec.msgpack.encode([VERSION, {**fields, name: value}]))


def test_each_batch_says_how_the_loop_was_since_the_one_before():
    """Of its own time alone: what lay between two trials is left out. Several batches are one reading."""
    laps = iter([(9, 9, 9, 9, 9), (100, 40, 30, 5, 2), (50, 60, 20, 4, 3), (7, 7, 7, 7, 7), (1, 0, 0, 0, 0)])
    frames = []
    outbox = Outbox(7, lambda frame: frames.append(frame) or True, lambda: next(laps))
    for trial, tickets in enumerate([(1, 2), (3,)]):
        outbox.start_trial(trial, trial, SCRIPT)
        for ticket in tickets:
            outbox.add(ticket, report(ticket))
            outbox.flush()
    batches = [unpack_results(RESULTS.decode(frame), [2, 2], TRIALS) for frame in frames]
    reading = loop_columns([batch.loop for batch in batches[:2]], 0, 0, 12)
    place = {"time_ns": [12], "treatment": [0], "trial": [0], "batches": [2]}
    assert reading == {
        **place,
        "span_ns": [150],
        "busy_ns": [90],
        "lag_max_ns": [30],
        "wake_up_ns": [5],
        "wake_ups": [3],
    }
    assert loop_columns([batches[2].loop], 1, 1, 12)["span_ns"] == [1]


def test_impossible_times_of_a_loop_are_bounded():
    """Whatever a worker says: it was not busy for longer than there was time, and nothing overflows."""
    loop = struct.pack("<5q", 1 << 62, -5, 1 << 62, -1, 1 << 62)
    reading = loop_columns([loop] * 9, 0, 0, 1)
    assert (reading["span_ns"], reading["busy_ns"], reading["lag_max_ns"]) == ([9 << 50], [0], [1 << 50])


def test_a_row_begins_and_ends_with_what_is_timed():
    """Where operations are not timed, as where the report of its job says more than its stamps."""
    steps = [("prepare", False), ("run", True), ("again", True), ("cleanup", False)]
    script = Script([Operation("exec", name, argv=("x",), timed=timed) for name, timed in steps])
    frames = []
    outbox = Outbox(7, lambda frame: frames.append(frame) or True)
    outbox.start_trial(0, 0, script)
    for ticket, rest in ((1, {}), (2, {"metrics": {"speed": 1.0}})):
        made = report(0, **rest)
        made.stamps[:] = [10, 1, 20, 5, 30, 5, 40, 1]
        outbox.add(ticket, made)
    outbox.flush()
    jobs, _ = settled(unpack_results(RESULTS.decode(frames[0]), [4], [0]))
    assert (jobs["start_ns"].tolist(), jobs["end_ns"].tolist()) == ([20, 20], [35, 35])


def test_a_batch_says_what_was_taken_of_the_lane():
    """Then nobody else has to: `told` is what the batches have said so far."""
    frames = []
    outbox = Outbox(7, lambda frame: frames.append(frame) or True)
    outbox.start_trial(0, 0, SCRIPT)
    outbox.taken = 5
    assert outbox.told == 0
    outbox.add(1, report(1))
    outbox.flush()
    assert outbox.told == RESULTS.decode(frames[0]).taken == 5


def test_batches_are_kept_until_acknowledged():
    """The spool forgets what the master has, and repeats the rest: after a second, and then ever more seldom."""
    frames = []
    outbox = Outbox(7, lambda frame: frames.append(frame) or True)
    outbox.start_trial(0, 0, SCRIPT)
    for ticket in range(3):
        outbox.add(ticket, report(ticket))
        outbox.flush()
    outbox.acknowledge([0, 2, 99])
    assert (outbox.unacknowledged, outbox.spooled_bytes) == (1, len(frames[1]))
    now = monotonic()
    assert outbox.repeat(now) == 0, "it may still be on its way"
    assert outbox.repeat(now + 1) == 1
    assert frames[-1] == frames[1]
    assert [outbox.repeat(now + later) for later in (2, 3.1, 7, 7.2)] == [0, 1, 0, 1]


def test_repeats_do_not_fill_a_slow_network():
    """What is sent again at once is bounded, the oldest first; each batch has its turn."""
    sent_frames = []
    outbox = Outbox(7, lambda frame: sent_frames.append(frame) or True)
    outbox.start_trial(0, 0, SCRIPT)
    for ticket in range(5):
        outbox.add(ticket, report(ticket, outputs=[("run", bytes(2_200_000), b"", 0, False)]))
        outbox.flush()
    # The fifth one waits until the first ones are acknowledged.
    first, now = list(sent_frames), monotonic()
    assert [one.tickets for one in batches(first)] == [[0], [1], [2], [3]]
    assert [outbox.repeat(now + 1 + later) for later in (0, 0, 0)] == [2, 2, 0]
    assert sent_frames[len(first) :] == first
    outbox.acknowledge([0])
    assert [one.tickets for one in batches(sent_frames[2 * len(first) :])] == [[4]]


def batches(frames):
    """The batches in frames."""
    return [unpack_results(message, COUNTS, TRIALS) for message in received(frames)]


def test_nothing_is_sent_when_there_is_nothing_to_say():
    """An empty flush makes no message."""
    messages, outbox = sent()
    assert messages == []
    assert outbox.unacknowledged == 0


def test_large_outputs_go_in_frames_of_their_own():
    """Raw output does not pile up to a frame that would be refused."""
    big = [("run", b"x" * (3 << 20), b"", 0, False)]
    messages, _ = sent(*((ticket, report(ticket, outputs=list(big))) for ticket in range(3)))
    assert len(messages) == 3


def test_operations_of_a_job_that_failed_are_spoiled():
    """What was done for a job that was not enters no latency, and is told from what failed."""
    error = ("start", "engine", "no")
    failed = JobReport.ended(Outcome.FAILED, (1, 16), error=error)
    failed.stamps += [1, 10, 11, 5]
    failed.failed_at = 1
    messages, _ = sent((1, failed), (2, report(100)))
    _, operations = settled(unpack_results(messages[0], COUNTS, TRIALS))
    assert operations["ok"].tolist() == [OPERATION_EXCLUDED, OPERATION_FAILED, OPERATION_DONE, OPERATION_DONE]


@pytest.mark.parametrize("outcome", [Outcome.LOST, 9, -1])
def test_an_outcome_that_no_worker_can_know_is_refused(outcome):
    """Only the master knows that a job was lost; other numbers are no outcome at all."""
    messages, _ = sent((1, JobReport.ended(outcome, (1, 2))))
    with pytest.raises(ProtocolError, match="only the master can set"):
        unpack_results(messages[0], COUNTS, TRIALS)


def test_records_of_other_jobs_are_refused():
    """A batch tells of its own jobs only."""
    messages, _ = sent((1, report(1)))
    messages[0].errors = [ErrorRecord(2, 0, 0, "start", "engine", "no")]
    with pytest.raises(ProtocolError, match="not in the batch"):
        unpack_results(messages[0], COUNTS, TRIALS)


def test_aborted_jobs_are_counted():
    """The coordinator learns how many jobs of a batch were called off."""
    messages, _ = sent((1, report(1)), (2, JobReport.ended(Outcome.ABORTED, (1, 2))))
    assert unpack_results(messages[0], COUNTS, TRIALS).aborted == 1


def test_what_many_steps_print_is_cut_and_never_too_large_to_be_sent():
    """Over all steps of a job: the beginning is kept, it is marked where there was more, and its row is with it."""
    steps = [(f"step{number}", bytes(1 << 20), bytes(1 << 20), 0, False) for number in range(20)]
    small = report(1, outputs=[("run", b"out", b"err", 3, False)])
    messages, _ = sent((1, small), (2, report(1, outputs=steps)), (3, small))
    batches = [unpack_results(message, COUNTS, TRIALS) for message in messages]
    assert [batch.tickets for batch in batches] == [[1], [2], [3]]
    outputs = batches[1].outputs
    assert [record.step for record in outputs] == [step for step, *_ in steps]
    assert sum(len(record.stdout) + len(record.stderr) for record in outputs) >= JOB_BYTES
    assert [record.truncated for record in outputs] == [False] * 4 + [True] * 16


def test_errors_make_a_batch_full_as_outputs_do():
    """However many jobs fail, and whatever their engine says: no message becomes too large to be sent."""
    failed = [
        (ticket, JobReport.ended(Outcome.FAILED, (1, 2), error=("run", "engine", "\U0001f4a9" * 4000)))
        for ticket in range(2000)
    ]
    messages, _ = sent(*failed)
    batches = [unpack_results(message, COUNTS, TRIALS) for message in messages]
    assert [ticket for batch in batches for ticket in batch.tickets] == list(range(2000))
    assert sum(len(batch.errors) for batch in batches) == 2000
    assert len(batches) > 1
