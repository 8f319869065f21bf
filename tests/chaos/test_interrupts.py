"""Ctrl-C on a real terminal, once and twice, and SIGTERM: what runs is finished or aborted, and all is put back."""

import os
import pty
import re
import select
import signal
import struct
import termios
import threading
import time
from fcntl import ioctl
from pathlib import Path

import pytest
from deadlines import ANSWER_S, END_S, START_S, wait_until
from live_run import DOCKER, JOBS, NATIVE, LiveRun
from workspace import PROGRAMS, Workspace, containers_of, free_ports, has_started

HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
CTRL_C = b"\x03"


class Console:
    """A child process that a terminal is the controlling one of, with a thread that reads its screen."""

    def __init__(self, argv, environ):
        self.pid, self._primary = pty.fork()
        if self.pid == 0:
            try:
                os.execve(argv[0], argv, environ)
            finally:
                os._exit(127)
        ioctl(self._primary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.args, self.returncode = argv, None
        self.screen = b""
        self._closed = False
        self.before = termios.tcgetattr(self._primary)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while not self._closed:
            try:
                if select.select([self._primary], [], [], 0.2)[0]:
                    piece = os.read(self._primary, 65_536)
                    if not piece:
                        return
                    self.screen += piece
            except OSError:
                return  # the last who had the terminal open is gone

    def type(self, keys):
        """Type on the keyboard."""
        os.write(self._primary, keys)

    def poll(self):
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def settings(self):
        """Return the terminal's settings."""
        return termios.tcgetattr(self._primary)

    def send_signal(self, number):
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, seconds):
        """Wait for the end."""
        return wait_until(lambda: self.poll() is not None, seconds, "the end of the program")

    def close(self):
        """Close the window, which hangs up on whoever has the terminal."""
        self._closed = True
        self._reader.join(ANSWER_S)
        if self._primary is not None:
            os.close(self._primary)
            self._primary = None


class OnTerminal(LiveRun):
    """A run that a person looks at: its master has a terminal, and shows the live view."""

    def launch(self, source, workers, flags):
        given = ["-f", source, "-s", self.stats, "--workers", workers, *flags]
        argv = [*PROGRAMS["bench-master"], "run-scenario", *given]
        environ = {**self.workspace.environ, "TERM": "xterm-256color", "LINES": "24"}
        self.process = Console([str(word) for word in argv], environ)
        return self

    @property
    def err(self):
        """What is on the screen, report and all."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.process.screen.decode("utf-8", "replace")).replace("\r", "")

    @property
    def out(self):
        """The same: the terminal does not tell the two apart."""
        return self.err

    def jobs_shown(self):
        """Return how many jobs the live view counts."""
        return max((int(done) for done in re.findall(r"(\d+)/\d+ jobs", self.err)), default=0)

    def assert_terminal_restored(self):
        """Assert that the terminal is as it was found."""
        assert self.process.settings() == self.process.before
        screen = self.process.screen
        assert screen.rfind(SHOW) >= screen.rfind(HIDE), "the cursor is shown again"
        assert b"\x1b[?1049h" not in screen or screen.rfind(b"\x1b[?1049l") > screen.rfind(b"\x1b[?1049h")

    def close(self):
        """End it all."""
        super().close()
        wait_until(lambda: self.process.poll() is not None, ANSWER_S, "the end of the master")
        self.process.close()


@pytest.fixture
def console(tmp_path):
    with OnTerminal(tmp_path / "live", DOCKER) as console:
        yield console


@pytest.mark.docker
def test_ctrl_c_once_finishes_what_runs(console):
    """After one Ctrl-C no job is begun, those under way end as done, and the report says that it was interrupted."""
    console.wait_for_jobs(2)
    console.process.type(CTRL_C)
    assert console.end() == 130
    assert set(console.run.outcomes()) == {"done"}
    assert len(console.run.jobs) < 24
    assert "; Ctrl-C again aborts" in console.err
    assert "INCOMPLETE" in console.err
    # Its path may be too long for the terminal; the command can be copied all the same.
    assert re.search(r"^continue:\s+bench-master run-scenario --resume ", console.err, re.MULTILINE)
    console.assert_terminal_restored()
    console.assert_clean()


@pytest.mark.docker
def test_ctrl_c_twice_aborts_at_once(tmp_path):
    """After two, what runs is aborted, though it would outlast the test, and removed; the stats file is good."""
    job = {**DOCKER["job"], "container": {**DOCKER["job"]["container"], "command": ["sleep", "1000"]}}
    with OnTerminal(tmp_path / "live", {**DOCKER, "job": job}) as console:
        wait_until(lambda: has_started(console.stats), START_S, "the first job")
        wait_until(lambda: len(containers_of(console.docker, console.run.run_id)) == 2, START_S, "two containers")
        console.process.type(CTRL_C)
        wait_until(lambda: "; Ctrl-C again aborts" in console.err, ANSWER_S, "the first Ctrl-C is acted on")
        assert console.process.poll() is None, "one Ctrl-C waits for the jobs"
        console.process.type(CTRL_C)
        assert console.end() == 130
        assert console.run.outcomes() == {"aborted": 2}
        assert "aborting and cleaning up running jobs" in console.err
        console.assert_terminal_restored()
        console.assert_clean()


def test_a_terminal_that_is_closed_ends_the_run(tmp_path):
    """When the window goes, the run is aborted and saved; nobody is there to read the report."""
    with OnTerminal(tmp_path / "live", NATIVE) as console:
        console.wait_for_jobs(4)
        console.process.close()
        console.end()
        assert console.run.outcomes()["done"] >= 4
        console.assert_clean()


def test_a_run_under_nohup_outlives_its_terminal(tmp_path):
    """Who has hang-ups ignored means it: the run goes on to its end."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        live = LiveRun(tmp_path / "live", NATIVE)
    finally:
        signal.signal(signal.SIGHUP, before)
    with live:
        live.wait_for_jobs(4)
        live.signal([live.master], signal.SIGHUP)
        assert live.end() == 0
        assert live.run.outcomes() == {"done": JOBS}


def test_a_worker_under_nohup_outlives_its_terminal(tmp_path):
    """A worker that was started by hand and left alone goes on; SIGTERM ends it as ever."""
    with Workspace(tmp_path) as workspace:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            (port,) = free_ports(1)
            worker = workspace.start("bench-worker", "--zmq-control-port", port)
        finally:
            signal.signal(signal.SIGHUP, before)
        wait_until(lambda: _catches(worker.process.pid, signal.SIGTERM), START_S, "a worker that serves")
        worker.process.send_signal(signal.SIGHUP)  # of two signals the kernel delivers this one first
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait_for_exit(END_S).status == 130


def _catches(pid, number):
    """Whether a process has a handler of its own for a signal."""
    (caught,) = re.findall(r"SigCgt:\s+([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("when", ["at the start", "while gathering"])
def test_ctrl_c_before_any_worker_has_joined(tmp_path, when):
    """Interrupted before the first job, the master ends at once with nothing begun and no file."""
    (port,) = free_ports(1)
    flags = ("--expect", "1", "--zmq-control-port", str(port))
    with OnTerminal(tmp_path / "live", NATIVE, *flags, workers=0) as console:
        if when == "while gathering":
            wait_until(lambda: "waiting for 1 worker" in console.err, START_S, "the invitation")
            time.sleep(0.5)
        else:
            maps = Path(f"/proc/{console.process.pid}/maps")
            wait_until(lambda: "zmq" in maps.read_text(), START_S, "the loading of the program")
        console.process.type(CTRL_C)
        # The interpreter drops a KeyboardInterrupt that it raises in a callback of an import: a user types it again.
        began = time.monotonic()
        while console.process.poll() is None and time.monotonic() - began < 10:
            time.sleep(0.1)
        if console.process.poll() is None:
            console.process.type(CTRL_C)
        # A shell calls both 130; an interpreter that is interrupted while it imports may pass the signal on.
        assert console.end() in (130, -signal.SIGINT)
        assert "Traceback" not in console.err
        assert not console.stats.exists()
        console.assert_terminal_restored()
