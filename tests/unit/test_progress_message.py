"""What takes longer than two seconds says so: a line that is redrawn on a terminal, and dots elsewhere."""

import contextlib
import os
import re
import sys
import threading
import time

import pytest
from deadlines import ANSWER_S

from bench_common.errors import InfrastructureError
from bench_master import progress_message as module
from bench_master import worker_query
from bench_master.progress_message import WaitLine, progress_message, show_progress_messages

CLEAR = "\r\x1b[K"


def test_a_short_wait_says_nothing():
    """The first two seconds are silent, and the end of a silent wait is, too."""
    line = WaitLine("reading a", 10.0, redraws=False)
    assert line.tick(11.7) == ""
    assert line.end() == ""


def test_no_two_seconds_are_silent_without_a_terminal():
    """A line, then a dot; what others print has a line of its own, and begins the two seconds again."""
    line = WaitLine("reading a\n", 10.0, redraws=False)
    ticks = [line.tick(10 + tenth / 10) for tenth in range(60)]
    assert [text for text in ticks if text] == ["reading a: 2 s .", ".", "."]
    gaps = [place for place, text in enumerate(ticks) if text]
    assert max(after - before for before, after in zip([0, *gaps], gaps, strict=False)) <= 20
    assert line.interrupt(16.0) == "\n"
    assert line.tick(17.0) == ""
    assert line.tick(17.8) == "reading a: 8 s ."
    assert line.end() == "\n"


def test_a_terminal_has_one_line_that_is_redrawn_and_removed():
    """Each second, no wider than the screen."""
    line = WaitLine("reading a very long name", 0.0, redraws=True, width=20)
    assert line.tick(1.8) == f"{CLEAR}reading a very long"
    assert line.tick(2.5) == ""
    assert line.tick(2.9) == f"{CLEAR}reading a very long"
    assert line.end() == CLEAR
    assert WaitLine("a", 0.0, redraws=True).tick(12.0) == f"{CLEAR}a: 12 s"


@contextlib.contextmanager
def impatient(monkeypatch):
    """Let nothing be silent for longer than 20 ms; yield what reads stderr until a text comes.

    How many seconds something has taken depends on the machine: they are read as ``N s``.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def read(text):
        raw, deadline = "", time.monotonic() + ANSWER_S
        while text not in (found := re.sub(r": \d+ s ", ": N s ", raw)):
            assert time.monotonic() < deadline, found
            try:
                raw += os.read(reading, 4096).decode()
            except BlockingIOError:
                time.sleep(0.002)
        return found

    with os.fdopen(writing, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(module, "SILENCE_S", 0.02)
        patch.setattr(module, "POLL_S", 0.002)
        patch.setattr(sys, "stderr", stream)
        yield read
    os.close(reading)


def test_work_that_holds_the_interpreter_is_told_by_a_thread(monkeypatch, capsys):
    """The innermost wait speaks; nothing is said outside of a command, or by a quiet one."""
    with impatient(monkeypatch) as read:
        with progress_message("nobody hears this"), show_progress_messages(quiet=True), progress_message("nor this"):
            pass
        with show_progress_messages(quiet=False), progress_message("making a report"):
            told = read("making a report: N s ..")
            with progress_message("reading a"):
                told += read("reading a: N s .")
                module.note("half of it")
                told += read("half of it\n") + read("reading a: N s .")
                module.put("a result")
                told += read("\n")
            told += read("making a report: N s .")
    assert "this" not in told
    assert "\nreading a" in told
    assert ".\nhalf of it\n" in told
    assert capsys.readouterr().out == "a result\n"


def test_what_the_worker_prints_is_passed_on(monkeypatch, tmp_path):
    """At once and whole, also where it fails; what it takes is said meanwhile."""
    heard = tmp_path / "heard"
    program = (
        "import os, sys, time; print('one', file=sys.stderr, flush=True)\n"
        f"while not os.path.exists({str(heard)!r}): time.sleep(0.005)\n"
        "sys.exit(1)"
    )
    monkeypatch.setattr(worker_query, "worker_command", lambda: [sys.executable, "-c", program])
    early = []

    def hear(read):
        try:
            early.append(read("building images: N s ."))
        finally:
            heard.touch()

    with impatient(monkeypatch) as read:
        listener = threading.Thread(target=hear, args=(read,))
        listener.start()
        with show_progress_messages(quiet=False), pytest.raises(InfrastructureError, match="exit code 1"):
            worker_query.query_worker("--x", doing="building images")
        listener.join()
        module.relay(b"the end\n")
        told = "".join(early) + read("the end\n")
    assert "building images: N s ." in told
    assert "one\n" in told
