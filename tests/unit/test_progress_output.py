"""The outlet: writes what the screen takes, never waits for it, survives its loss."""

from __future__ import annotations

import io
import os

import pytest

from bench_master.progress import output as outlet_module
from bench_master.progress.output import BACKLOG_BYTES, NonblockingWriter


@pytest.fixture
def pipe():
    """A pipe's two ends: a file that is read without waiting, and a text stream to write to."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    with os.fdopen(ends[0], "rb", buffering=0) as reader, os.fdopen(ends[1], "w", encoding="utf-8") as stream:
        yield reader, stream


def everything(reader):
    pieces = []
    while piece := reader.read(1 << 20):
        pieces.append(piece)
    return b"".join(pieces).decode()


def test_text_is_written_at_once(pipe):
    """What the screen takes is there without a flush, in order."""
    reader, stream = pipe
    outlet = NonblockingWriter(stream)
    outlet.write("grüße ")
    outlet.write("x" * 5000)
    assert everything(reader) == "grüße " + "x" * 5000
    assert not outlet.blocked


def test_a_stream_without_a_descriptor_is_written_to_directly():
    """A stream in memory gets the text as it is."""
    stream = io.StringIO()
    outlet = NonblockingWriter(stream)
    outlet.write("a")
    outlet.close()
    assert stream.getvalue() == "a"


def test_a_screen_that_takes_nothing_blocks_nobody(pipe, monkeypatch):
    """With the reader asleep every write returns; what was kept comes in order, what was left out is counted."""
    monkeypatch.setattr(outlet_module, "CLOSE_TIMEOUT_S", 0.0)
    reader, stream = pipe
    outlet = NonblockingWriter(stream)
    for _ in range(500):
        outlet.write("y" * 999 + "\n")
    assert outlet.blocked
    assert len(outlet._backlog) <= BACKLOG_BYTES + 1000
    outlet.close()

    taken = everything(reader)
    while outlet.blocked:
        taken += everything(reader)
    taken += everything(reader)
    outlet.write("awake\n")
    taken += everything(reader)
    lines = taken.splitlines()
    kept = lines.count("y" * 999)
    assert 0 < kept < 500
    assert lines[-2] == f"[{(500 - kept) * 1000:,} characters were dropped: the screen did not take them]"
    assert lines[-1] == "awake"


def test_a_screen_that_has_gone_away_ends_the_output_only(pipe):
    """Writing to a closed pipe raises nothing, then or later."""
    reader, stream = pipe
    outlet = NonblockingWriter(stream)
    reader.close()
    for _ in range(3):
        assert outlet.write("gone") == 4
    assert not outlet.blocked
    outlet.close()


def test_what_was_left_out_is_said_at_the_end(pipe, monkeypatch):
    """When the screen wakes up only for the last words, these are that something is missing."""
    monkeypatch.setattr(outlet_module, "BACKLOG_BYTES", 10)
    reader, stream = pipe
    os.set_blocking(stream.fileno(), False)
    while True:  # fill the pipe, so that the outlet finds it full
        try:
            os.write(stream.fileno(), b"z" * 4096)
        except BlockingIOError:
            break
    outlet = NonblockingWriter(stream)
    outlet.write("kept by the backlog")
    outlet.write("left out")
    everything(reader)
    outlet.close()
    assert everything(reader).splitlines()[-1] == "[8 characters were dropped: the screen did not take them]"
