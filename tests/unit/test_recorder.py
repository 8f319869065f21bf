"""The recorder of a run: results of one worker that cannot be recorded cost no results of another."""

from types import SimpleNamespace
from unittest.mock import MagicMock

from bench_common.messages import HostFinding
from bench_common.records import LOOP_BYTES, Outcome, result_word_count
from bench_master.coordinator.messages import LogEvent, RecordResults
from bench_master.run.recorder import MAX_WARNINGS, Recorder
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
    assert recorder.warnings[0].startswith("1 result of worker w1 cannot be recorded: ")
    assert journal.acknowledge_when_written.call_count == 3


def test_what_must_come_first_does_so_after_any_number_of_warnings():
    """A report shows the first few at once: what a flood did to the run is not below what the flood has sent."""
    recorder = Recorder(MagicMock(), MagicMock(), {}, lambda *_: None)
    for number in range(MAX_WARNINGS + 2):
        recorder.warn(f"warning {number}")
    recorder.warn("cut off", first=True)
    assert recorder.warnings[:2] == ["cut off", "warning 0"]
    assert len(recorder.warnings) == MAX_WARNINGS + 1
    assert recorder.unlisted_warnings == 2


def test_lost_workers_come_before_other_warnings_and_after_what_peers_did():
    """In the order in which they were lost; a worker that is lost again and again does not fill the file."""
    recorder = Recorder(MagicMock(), MagicMock(), {}, lambda *_: None)
    recorder.warn("host vm was busy")
    recorder.warn_of_loss("worker w0 was lost")
    recorder.warn_of_loss("worker w1 was lost")
    recorder.warn("cut off", first=True)
    assert recorder.warnings == ["cut off", "worker w0 was lost", "worker w1 was lost", "host vm was busy"]
    for number in range(MAX_WARNINGS):
        recorder.warn_of_loss(f"worker w0 was lost again, time {number}")
    assert len(recorder.warnings) == MAX_WARNINGS + 2
    assert recorder.unlisted_warnings == 2


def found(recorder, *checks):
    """Have a recorder take findings: pairs of a worker and what a check is called."""
    for worker, check in checks:
        recorder.host_finding(worker, HostFinding(epoch=0, check=check, finding=f"{check} is high", advice="wait"))


def begin_trial(recorder):
    recorder.note(LogEvent("trial-begin", {"trial": 0}))


def test_what_the_doctor_found_is_one_line_above_the_report_which_has_the_rest():
    """One warning names the hosts and the checks when the trial begins, once; the file has each with its figures."""
    hosts = MagicMock()
    hosts.__getitem__.side_effect = lambda number: SimpleNamespace(name=f"blade-{number}")
    view = MagicMock()
    recorder = Recorder(MagicMock(), view, hosts, lambda *_: None)
    recorder.journal = journal = MagicMock()
    found(recorder, (0, "load"), (0, "processes"), (0, "steal"))
    view.notify.assert_not_called()
    begin_trial(recorder)
    begin_trial(recorder)
    view.notify.assert_called_once_with(
        "warning: host is not quiet: blade-0 (load, processes, steal); the report says more"
    )
    written = [call.args[2] for call in journal.note.call_args_list if call.args[0] == "host-finding"]
    assert [one["finding"] for one in written] == ["load is high", "processes is high", "steal is high"]
    view.notify.reset_mock()
    found(recorder, *((number, "load") for number in range(5)))
    hosts.__iter__.return_value = iter(())
    recorder.end(frozenset())
    view.notify.assert_called_once_with(
        "warning: hosts are not quiet: blade-0 (load), blade-1 (load), blade-2 (load) and 2 more; "
        "the report says more"
    )
