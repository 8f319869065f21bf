"""A process that wants to run is told from one that sleeps, is stopped or has ended: by the kernel's own counts."""

import os
import signal
import subprocess
import sys

import pytest
from deadlines import wait_until

from bench_common.activity import ActivityWatch, activity_ns, child_pids, cpu_time_ns, describe_load

BUSY = "while True: pass"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


@pytest.fixture
def start():
    started = []

    def begin(*words):
        started.append(subprocess.Popen(words, start_new_session=True))
        return started[-1]

    yield begin
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_busy_process_is_active_and_a_stopped_one_is_not(start):
    """One that sleeps is not either, once it has begun."""
    busy, asleep = start(sys.executable, "-c", BUSY), start("sleep", "100")
    watches = ActivityWatch(busy.pid), ActivityWatch(asleep.pid)
    wait_until(watches[0].is_active)
    wait_until(lambda: not watches[1].is_active())
    wait_until(lambda: (cpu_time_ns(busy.pid) or 0) > 0)
    busy.send_signal(signal.SIGSTOP)
    wait_until(lambda: not watches[0].is_active())


def test_what_a_process_has_started_counts_if_it_is_asked_for(start):
    """A worker's agent waits for its load process."""
    parent = start(sys.executable, "-c", PARENT)
    wait_until(lambda: child_pids(parent.pid))
    alone, together = ActivityWatch(parent.pid), ActivityWatch(parent.pid, children=True)
    wait_until(lambda: not alone.is_active())
    assert together.is_active() or together.is_active()


def test_a_process_that_is_gone_is_not_active():
    """Neither is one that nobody has collected yet."""
    process = subprocess.Popen(["true"])
    wait_until(lambda: cpu_time_ns(process.pid) is None)
    assert not ActivityWatch(process.pid).is_active()
    process.wait()
    assert activity_ns(process.pid) is None
    assert child_pids(process.pid) == []
    assert " CPUs" in describe_load()
