"""A native thread's wait for descriptors: the stamp and its bound hold whatever keeps the thread from stamping."""

import os
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from gevent.monkey import get_original

from bench_worker.timing import ready_waiter
from bench_worker.timing.ready_waiter import EDGE, IN, ReadyWaiter, prioritize_thread

native_sleep = get_original("time", "sleep")
native_thread = get_original("_thread", "start_new_thread")


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("timed", [True, False])
def test_what_is_ready_was_so_after_the_earliest_instant(pair, monkeypatch, timed):
    """Be it ready before the wait or only later, and with or without a kernel that measures the wait."""
    if not timed:
        monkeypatch.setattr(ready_waiter, "_PPOLL", 0)
    ours, theirs = pair
    waiter = ReadyWaiter()
    waiter.register(ours.fileno(), IN | EDGE)
    for delay_s in (0, 0.02, 0, 0.002) * 5:
        written = []

        def send(after_s=delay_s, written=written):
            native_sleep(after_s)
            theirs.send(b"x")
            written.append(time.monotonic_ns())

        before_ns = time.monotonic_ns()
        if delay_s:
            native_thread(send, ())
        else:
            send()
        assert waiter.wait() == [ours.fileno()]
        latest_ns = time.monotonic_ns()
        assert ours.recv(10) == b"x"
        while not written:
            native_sleep(0.001)
        assert waiter.earliest_ns <= written[0]
        assert before_ns + delay_s * 1e9 <= latest_ns


def test_a_priority_is_for_the_calling_thread_alone():
    """It is given or refused; what the thread starts is scheduled as usual."""
    program = """
    import os, threading
    from bench_worker.timing.ready_waiter import prioritize_thread
    command = ["sh", "-c", "exit $(cut -d' ' -f41 /proc/self/stat)"]
    def ask():
        given = prioritize_thread()
        policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
        assert policy == (os.SCHED_FIFO if given else os.SCHED_OTHER), policy
        child = os.posix_spawn("/bin/sh", command, {"PATH": "/usr/bin:/bin"})
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == os.SCHED_OTHER
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")


def test_a_refused_priority_is_said(monkeypatch):
    """Without the capability the thread goes on as it is."""

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert not prioritize_thread()
