"""The recorder of a run: results of one worker that cannot be recorded cost no results of another."""

from types import SimpleNamespace
from unittest.mock import MagicMock

from bench_common.records import LOOP_BYTES, Outcome, result_word_count
from bench_master.coordinator.messages import RecordResults
from bench_master.run.recorder import Recorder
from bench_master.run.results import ResultBatch

OFFSETS = {0: 5, 1: 1 << 70, 2: -7}
"""By number of the worker; a clock offset that no message can carry stands for any mistake."""


def batch(ticket):
    """Return the results of one job."""
    words = (ticket, Outcome.DONE, -1, 0, 10, 20, 10, 10)
    rows = b"".join(word.to_bytes(8, "little", signed=True) for word in words)
    return ResultBatch(0, 0, result_word_count(1), rows, bytes(LOOP_BYTES), [ticket], [], [], [])


def test_a_worker_whose_results_cannot_be_recorded_loses_only_its_own():
    """Those of the others of the same round are written; its jobs are lost, with a warning that names it."""
    hosts = {number: SimpleNamespace(offset_ns=offset, worker_id=f"w{number}") for number, offset in OFFSETS.items()}
    recorder = Recorder(MagicMock(), MagicMock(), hosts, lambda *_: None)
    recorder.journal = journal = MagicMock()
    for number in OFFSETS:
        recorder.take(RecordResults(number, 0, batch(number)), 7)
    recorder.settle()
    written = [row for call in journal.rows.call_args_list for row in call.args[0].tolist()]
    assert {(row[0], Outcome(row[4])) for row in written} == {
        (0, Outcome.DONE), (1, Outcome.LOST), (2, Outcome.DONE)
    }  # fmt: skip
    (record,) = next(call.args[1] for call in journal.records.call_args_list if call.args[1])
    assert (record.ticket, record.kind) == (1, "lost")
    assert recorder.lost == 1
    assert next(iter(recorder.warnings)).startswith("1 result of worker w1 cannot be recorded: ")
    assert journal.acknowledge_when_written.call_count == 3
