"""The line between the two halves of a worker, and the end of one that the other half waits for."""

import json
import os
import subprocess
import sys

import gevent
import gevent.socket
import pytest
from deadlines import ANSWER_S, END_S
from gevent.event import Event

from bench_worker import supervisor
from bench_worker.pipe_channel import EndProcess, PipeChannel, Ready, ToAgent, ToLoadProcess


@pytest.fixture
def line():
    """The two ends of a line."""
    ours, theirs = gevent.socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    "end", ["end of file", "a message that breaks its reader", "a message of the other direction"]
)
def test_a_line_that_is_not_read_any_more_says_so(line, end):
    """Whatever ended the reading, the other half is given up: it would wait for answers that never come."""
    ours, theirs = line
    closed = Event()

    def received(message):
        raise ValueError(message)

    reader = PipeChannel(ours, ToAgent, received, closed.set)
    writer = PipeChannel(theirs, ToLoadProcess, lambda _: None, lambda: None)
    if end == "end of file":
        theirs.shutdown(gevent.socket.SHUT_RDWR)
    else:
        writer.send(Ready() if end == "a message that breaks its reader" else EndProcess())
    assert closed.wait(timeout=ANSWER_S)
    reader.close()
    writer.close()


def test_a_killed_load_process_is_not_waited_for_for_ever(monkeypatch, caplog):
    """A process that the kernel does not let go, as on a disk that hangs, must not hang its agent too."""
    killed = []
    monkeypatch.setattr(supervisor, "_posix_spawn", lambda *_: 4_000_000)
    monkeypatch.setattr(supervisor, "_waitpid", lambda *_: (0, 0))
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    monkeypatch.setattr(supervisor, "END_TIMEOUT_S", 0.0)
    monkeypatch.setattr(supervisor, "KILL_TIMEOUT_S", 0.0)
    one = supervisor.LoadProcessHandle()
    with gevent.Timeout(ANSWER_S):
        one.end()
    assert killed == [4_000_000]
    assert "load process 4000000 did not exit after SIGKILL" in caplog.text


def test_what_a_worker_loads_can_be_copied():
    """It has neither files nor threads, which a copy would share or miss; the loop's are made anew in a copy."""
    program = (
        "import json, os, threading\n"
        "import gevent\n"
        "from gevent import monkey\n"
        "monkey.patch_all()\n"
        "from bench_worker import agent, load_process\n"
        "from bench_worker.engines.registry import engine_classes\n"
        "engine_classes()\n"
        "gevent.get_hub().destroy(destroy_loop=True)\n"
        "names = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if int(fd) > 2 "
        "and os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "print(json.dumps([names, len(os.listdir('/proc/self/task'))]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=END_S, check=True)
    names, threads = json.loads(done.stdout)
    assert [name for name in names if not name.startswith("/proc/")] == []
    assert threads == 1
