"""The views on a real pseudo-terminal, in a process that is patched by gevent as `bench-master` is."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager

import pytest
from attention import undisturbed
from deadlines import START_S
from workspace import free_ports

HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"

RUN = """
from gevent import monkey

monkey.patch_all()

import contextlib, logging, sys, time
import numpy as np
from bench_common.job_rows import JOB_ROW
from bench_master.progress.view import Snapshot, TrialRow
from bench_master.progress import choose_view

logging.basicConfig()
end = sys.argv[1]
ticks = 20
view = choose_view("auto", sys.stderr)
with contextlib.nullcontext() if end == "exit" else view:
    view.begin(Snapshot("pty-run", planned=ticks))
    for tick in range(1, ticks + 1):
        view.jobs(np.zeros(1, dtype=JOB_ROW))
        trial = TrialRow(1, 1, 0, f"engine=docker tick={tick}", False)
        view.refresh(Snapshot("pty-run", planned=ticks, done=tick, elapsed_s=tick / 20, trial=trial))
        if tick == 3:
            logging.warning("a record from the log")
            view.notify("a worker was lost")
        if tick == 10 and end == "raise":
            raise RuntimeError("the run broke")
        if tick == 10 and end == "exit":
            sys.exit(7)
        if tick == 10 and end == "interrupt":
            sys.stdout.write("ready\\n")
            sys.stdout.flush()
            time.sleep(30)
        time.sleep(0.05)
    view.end(Snapshot("pty-run", planned=ticks, done=ticks, elapsed_s=1.0, rate_mean=20.0))
sys.stdout.write("the report\\n")
"""


class Run:
    """The script above with stderr (and stdin) on a terminal and stdout in a pipe, as with `bench-master | less`."""

    def __init__(self, end, term, terminal, command=None):
        self.primary, self.secondary = terminal
        fcntl.ioctl(self.secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.attributes = termios.tcgetattr(self.secondary)
        self.screen = b""
        environ = {**os.environ, "TERM": term, "PYTHONIOENCODING": "utf-8"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environ.pop(name, None)
        self.process = subprocess.Popen(
            command or [sys.executable, "-c", RUN, end],
            stdin=self.secondary,
            stderr=self.secondary,
            stdout=subprocess.PIPE,
            env=environ,
        )

    def watch(self, until=lambda: False):
        """Read the screen until `until` or the end of the process; return its exit code."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and not until():
            ended = self.process.poll() is not None
            while select.select([self.primary], [], [], 0.05)[0]:
                self.screen += os.read(self.primary, 65_536)
            if ended:
                return self.process.returncode
        assert time.monotonic() < deadline, f"the run hangs; on the screen: {self.screen[-500:]!r}"
        return None


@contextmanager
def running(end, term="xterm-256color", command=None):
    terminal = pty.openpty()
    run = None
    try:
        run = Run(end, term, terminal, command)
        yield run
    finally:
        if run is not None:
            run.process.kill()
            run.process.wait()
            run.process.stdout.close()
        for descriptor in terminal:
            os.close(descriptor)


def test_the_live_view_gives_the_terminal_back():
    """A run that ends well leaves a visible cursor, the modes as they were, one line, and stdout to the report."""
    with running("well") as run:
        assert run.watch() == 0
        assert run.process.stdout.read() == b"the report\n"
        assert HIDE in run.screen
        assert run.screen.rindex(SHOW) > run.screen.rindex(HIDE)
        assert b"20/20 jobs 100%" in run.screen
        assert b"20 jobs in 0:01" in run.screen[run.screen.rindex(SHOW) :]
        assert termios.tcgetattr(run.secondary) == run.attributes
        for line in (b"WARNING:root:a record from the log", b"a worker was lost"):
            assert run.screen.count(line) == 1


@pytest.mark.parametrize(("end", "status"), [("raise", 1), ("exit", 7)])
def test_the_terminal_comes_back_whatever_ends_the_run(end, status):
    """An exception and an exit that closes nothing leave a visible cursor too, and the traceback below it."""
    with running(end) as run:
        assert run.watch() == status
        assert run.screen.rindex(SHOW) > run.screen.rindex(HIDE)
        assert (b"the run broke" in run.screen[run.screen.rindex(SHOW) :]) == (end == "raise")


def test_ctrl_c_gives_the_terminal_back():
    """An interrupt that nobody catches leaves a visible cursor."""
    with running("interrupt") as run:
        assert run.process.stdout.readline() == b"ready\n"
        run.process.send_signal(signal.SIGINT)
        assert run.watch() not in {0, None}
        assert run.screen.rindex(SHOW) > run.screen.rindex(HIDE)


def test_a_stopped_terminal_does_not_stop_the_run():
    """After Ctrl-S the run goes on to its end and reports; the screen misses pictures, nothing else does."""
    with running("well") as run:
        assert run.watch(until=lambda: b"/20 jobs" in run.screen) is None
        termios.tcflow(run.secondary, termios.TCOOFF)
        assert run.process.wait(timeout=START_S) == 0
        assert run.process.stdout.read() == b"the report\n"
        termios.tcflow(run.secondary, termios.TCOON)


def test_a_dumb_terminal_gets_characters():
    """Where the cursor cannot be moved there are characters and no escape sequences."""
    with running("well", term="dumb") as run:
        assert run.watch() == 0
        assert b"\x1b" not in run.screen
        assert b"one character per job" in run.screen
        assert sum(line.count(b".") for line in run.screen.splitlines() if set(line) <= set(b" .")) == 20


def test_a_command_that_waits_says_so():
    """On a terminal in a line that is redrawn and removed; in a pipe, which gets no escape sequence, with dots."""
    words = ["fleet", "list", "--wait", "3.5", "--zmq-control-port", str(*free_ports(1))]
    command = [sys.executable, "-m", "bench_master", *words]

    def shown():
        # Each second has its turn if the machine lets the program have one.
        with running("", command=command) as run:
            assert run.watch() is not None
            assert b"\r\x1b[Klistening for 3.5 s: 2 s\r\x1b[Klistening for 3.5 s: 3 s\r\x1b[K" in run.screen

    undisturbed(shown)
    told = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False).stderr
    assert "listening for 3.5 s: 2 s ." in told
    assert "\x1b" not in told
