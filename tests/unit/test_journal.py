"""The journal of a run: what it promises is in the file, and what cannot be written is told of, never passed over."""

from pathlib import Path

import pytest

from bench_common.errors import StatsFileError
from bench_master.run.journal import Journal


class Writer:
    """A stats writer that keeps what it is given, and fails as it is told."""

    path = Path("run.stats.gz")
    pending_bytes = 0

    def __init__(self, flush=None, close=None):
        self.fails = {"flush": flush, "close": close}
        self.footer = None

    def flush(self):
        """Write, or fail."""
        self._fail("flush")

    def close(self, footer):
        """Write the footer, or fail."""
        self._fail("close")
        self.footer = footer

    def _fail(self, verb):
        if self.fails[verb] is not None:
            raise self.fails[verb]


class Scene:
    """A journal with a batch that waits for its acknowledgement."""

    def __init__(self, gather=lambda: None, **fails):
        self.writer = Writer(**fails)
        self.acknowledged, self.failures = [], []
        self.journal = Journal(
            self.writer,
            gather=gather,
            acknowledge=lambda *batch: self.acknowledged.append(batch),
            failed=self.failures.append,
        )
        self.journal.acknowledge_when_written(0, 7, 1)


def test_a_batch_is_acknowledged_when_it_is_in_the_file():
    """And the footer comes last."""
    scene = Scene()
    scene.journal.close({"status": "complete"})
    assert scene.acknowledged == [(0, 7, [1])]
    assert scene.writer.footer == {"status": "complete"}
    assert scene.failures == []


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
