"""The journal of a run: what it promises is in the file, and what cannot be written is told of, never passed over."""

import threading
from pathlib import Path

import gevent
import pytest
from deadlines import ANSWER_S, wait_until

from bench_common.errors import DiskFullError, StatsFileError
from bench_master.run import journal as journal_module
from bench_master.run.journal import Journal


class Writer:
    """A stats writer that keeps what it is given, and fails as it is told."""

    path = Path("run.stats.gz")
    pending_bytes = 0

    def __init__(self, flush=None, close=None):
        self.fails = {"flush": flush, "close": close}
        self.footer = self.given = None
        self.samples_taken, self.events = [], []

    def put(self, kind, body):
        """Take a block."""
        assert kind == "event"
        self.events.append(body)

    def samples(self, *reading):
        """Take a reading."""
        self.samples_taken.append(reading)

    def end(self, footer):
        """Take the footer."""
        self.given = footer

    def flush(self):
        """Write, or fail."""
        self._fail("flush")

    def close(self):
        """Write the footer, or fail."""
        self._fail("close")
        self.footer = self.given

    def _fail(self, verb):
        if self.fails[verb] is not None:
            raise self.fails[verb]


class Scene:
    """A journal with a batch that waits for its acknowledgement."""

    def __init__(self, gather=lambda: None, patience_s=0.0, **fails):
        self.writer = Writer(**fails)
        self.acknowledged, self.failures, self.pauses = [], [], []
        self.journal = Journal(
            self.writer,
            gather=gather,
            acknowledge=lambda *batch: self.acknowledged.append(batch),
            failed=self.failures.append,
            patience_s=patience_s,
            pause=self,
        )
        self.journal.acknowledge_when_written(0, 7, 1)

    def began(self, error):
        """Take note that there is no room."""
        self.pauses.append(str(error))

    def ended(self, dropped_samples):
        """Take note that there is room again."""
        self.pauses.append(dropped_samples)


def no_room():
    return DiskFullError("no room", "No space left on device", 0)


@pytest.fixture
def quick_retries(monkeypatch):
    monkeypatch.setattr(journal_module, "RETRY_INTERVAL_S", 0.002)


def awaits_room(scene):
    wait_until(lambda: scene.journal.waits_for_room, sleep=gevent.sleep)


def test_a_batch_is_acknowledged_when_it_is_in_the_file():
    """And the footer comes last."""
    scene = Scene()
    scene.journal.close({"status": "complete"})
    assert scene.acknowledged == [(0, 7, [1])]
    assert scene.writer.footer == {"status": "complete"}
    assert scene.failures == []


def test_a_batch_that_comes_again_while_it_is_written_is_acknowledged_once():
    """The round that writes it answers for it; a batch of the meantime waits for the next round."""
    begun, go_on = threading.Event(), threading.Event()
    scene = Scene()

    def write():
        begun.set()
        assert go_on.wait(ANSWER_S)

    scene.writer.flush = write
    waiting = gevent.spawn(scene.journal.flush)
    wait_until(begun.is_set, sleep=gevent.sleep)
    for sequence in (1, 2):
        scene.journal.acknowledge_when_written(0, 7, sequence)
    go_on.set()
    waiting.join()
    scene.journal.close({"status": "complete"})
    assert scene.acknowledged == [(0, 7, [1]), (0, 7, [2])]


def test_what_the_disk_refuses_is_told_and_not_acknowledged():
    """The run hears of it once, and no footer vouches for what is not there."""
    scene = Scene(flush=StatsFileError("disk full"))
    scene.journal.close({})
    assert [str(error) for error in scene.failures] == ["disk full"]
    assert scene.acknowledged == []
    assert scene.writer.footer is None


def test_a_fault_of_our_own_ends_the_run_like_a_full_disk():
    """What gathers results may break: then they are gone, and a run that went on would look complete."""

    def broken():
        raise ValueError("rows of two shapes")

    scene = Scene(broken)
    scene.journal.close({})
    (error,) = scene.failures
    assert str(error) == "run.stats.gz: results could not be gathered: ValueError: rows of two shapes"
    assert scene.acknowledged == []
    assert scene.writer.footer is None


def test_a_footer_that_cannot_be_written_is_an_error_without_a_traceback(capfd):
    """It is raised for whoever closes; the pool of threads must not print it on its own account."""
    scene = Scene(close=StatsFileError("disk full"))
    with pytest.raises(StatsFileError, match="disk full"):
        scene.journal.close({})
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("quick_retries")
def test_a_full_disk_is_waited_for_and_then_everything_is_acknowledged_once():
    """The pause is told at its begin and its end; a batch that is sent again meanwhile counts once."""
    scene = Scene(patience_s=3600, flush=no_room())
    awaits_room(scene)
    for _ in range(3):
        scene.journal.acknowledge_when_written(0, 7, 1)
    assert scene.acknowledged == []
    scene.writer.fails["flush"] = None
    scene.journal.flush()
    scene.journal.close({"status": "complete"})
    assert scene.acknowledged == [(0, 7, [1])]
    assert scene.pauses == ["no room", 0]
    assert scene.failures == []
    assert scene.writer.footer == {"status": "complete"}


@pytest.mark.usefixtures("quick_retries")
def test_patience_with_a_full_disk_ends():
    """Then it is as with any disk that refuses, and the error says how long the run waited."""
    scene = Scene(patience_s=0.05, flush=no_room())  # subject: how long it waits
    wait_until(lambda: scene.failures, sleep=gevent.sleep)
    assert str(scene.failures[0]).startswith("no room. The run waited ")
    scene.journal.close({})
    assert (scene.pauses, scene.acknowledged, scene.writer.footer) == (["no room"], [], None)


def test_no_patience_is_no_pause():
    """With 0 a full disk fails at once."""
    scene = Scene(flush=no_room())
    scene.journal.close({})
    assert [str(error) for error in scene.failures] == ["no room"]
    assert scene.pauses == []


@pytest.mark.parametrize("frees", [True, False])
def test_a_wait_for_room_is_ended_at_once(frees):
    """As by Ctrl-C: it tries a last time, and does not wait for the time of the next retry."""
    scene = Scene(patience_s=3600, flush=no_room())
    awaits_room(scene)
    if frees:
        scene.writer.fails["flush"] = None
    scene.journal.stop_waiting()
    scene.journal.close({"status": "interrupted"})
    assert [str(error) for error in scene.failures] == ([] if frees else ["no room"])
    assert scene.writer.footer == ({"status": "interrupted"} if frees else None)


@pytest.mark.usefixtures("quick_retries")
def test_the_footer_waits_for_room_too():
    """The last bytes of a run are worth as much as the first."""
    scene = Scene(patience_s=3600, flush=no_room())
    closed = gevent.spawn(scene.journal.close, {"status": "complete"})
    awaits_room(scene)
    scene.writer.fails["flush"] = None
    closed.get()
    assert scene.writer.footer == {"status": "complete"}


@pytest.mark.usefixtures("quick_retries")
def test_readings_that_come_in_during_a_wait_are_bounded(monkeypatch):
    """Hosts are read every second, for as long as the wait lasts: the first are kept, and the others counted."""
    monkeypatch.setattr(journal_module, "MAX_HELD_SAMPLES", 3)
    scene = Scene(patience_s=3600, flush=no_room())
    awaits_room(scene)
    for second in range(10):
        scene.journal.samples(0, "host", {"time_ns": [second]}, {})
    assert len(scene.writer.samples_taken) == 3
    scene.writer.fails["flush"] = None
    scene.journal.close({})
    assert scene.pauses == ["no room", 7]


def test_after_another_boot_all_instants_of_an_event_are_on_the_files_clock():
    """When it began and ended, not only when it was noted: trials are on that clock, too."""
    writer = Writer()
    journal = Journal(writer, shift_ns=10**15, gather=lambda: None, acknowledge=print, failed=print)
    journal.note("cpu-contention", 30, {"begin_ns": 10, "end_ns": 20, "worker": 3})
    journal.close({})
    shifted = {"at_ns": 10**15 + 30, "begin_ns": 10**15 + 10, "end_ns": 10**15 + 20}
    assert writer.events == [{"kind": "cpu-contention", "worker": 3, **shifted}]
