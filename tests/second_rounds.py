"""A test outside of the unit tests that fails while the machine stood still has one more round, and that is told.

`attention.undisturbed` is for tests that judge time. Others wait for real engines, which have time-outs of their own
and races that only a machine shows which stands still between two instructions. One witness for all lanes notes every
stall: a thread on each CPU that should be woken 50 times a second, with real-time priority where it is allowed, which
sees the machine stand still; a process of ordinary priority, as a test is one, which sees that others had the CPUs;
how many processes want a CPU; and what the hypervisor took.

A failure without a stall in its time is final, and so are the one of the second round, that of a test that hangs, and
all after the first `MOST`: a fault of the product fails on quiet machines, and in more tests than these.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest
from deadlines import ANSWER_S

VARIABLE = "WEIGHBRIDGE_TEST_STALLS"
"""Names the file of the witness for the lanes."""
LIMIT_S = 0.05
"""More is a stall: how late a process is woken, or how much the hypervisor took within a second."""
MOST = 8
WINDOW_S = 0.5
"""The time over which the processes that want a CPU are counted."""

_WITNESS = """
import json, os, sys, threading, time
limit_s, path, looks = float(sys.argv[1]), sys.argv[2], round(float(sys.argv[3]) / 0.02)
def stolen_s():
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
def note(began, kind, seconds):
    with open(path, "a") as file:
        file.write(json.dumps([began, time.monotonic(), kind, seconds]) + "\\n")
def watch(kind):
    while True:
        began = time.monotonic()
        time.sleep(0.02)
        late_s = time.monotonic() - began - 0.02
        if late_s > limit_s:
            note(began, kind, late_s)
def are_crowded():
    with open("/proc/loadavg") as file:
        # One of those that run is the witness.
        return int(file.read().split()[3].partition("/")[0]) - 1 > os.cpu_count()
def watch_queue():
    while True:
        began, crowded = time.monotonic(), 0
        for _ in range(looks):
            time.sleep(0.02)
            crowded += are_crowded()
        if 2 * crowded > looks:
            note(began, "more processes than CPUs wanted to run for", 0.02 * crowded)
def watch_cpu(cpu):
    os.sched_setaffinity(0, {cpu})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pass
    watch("a process was woken late by")
ordinary = os.fork()
if not ordinary:
    threading.Thread(target=watch, args=("a process of ordinary priority was woken late by",), daemon=True).start()
    sys.stdin.read()
    os._exit(0)
for cpu in os.sched_getaffinity(0):
    threading.Thread(target=watch_cpu, args=(cpu,), daemon=True).start()
threading.Thread(target=watch_queue, daemon=True).start()
print("watching", flush=True)
before_s, began = stolen_s(), time.monotonic()
def look():
    global before_s, began
    while True:
        time.sleep(1)
        now_s = stolen_s()
        if now_s - before_s > limit_s:
            note(began, "the hypervisor took", now_s - before_s)
        before_s, began = now_s, time.monotonic()
threading.Thread(target=look, daemon=True).start()
sys.stdin.read()
os.waitpid(ordinary, 0)
"""


class StallWitness:
    """Notes the stalls of the machine in a file, from `start` until `stop`."""

    def __init__(self, limit_s=LIMIT_S):
        self._folder = tempfile.TemporaryDirectory(prefix="weighbridge-stalls-")
        self.path = Path(self._folder.name, "stalls")
        self.path.touch()
        words = [sys.executable, "-I", "-S", "-c", _WITNESS, str(limit_s), str(self.path), str(WINDOW_S)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"watching\n"

    def stop(self):
        """End the process; its file is gone afterwards."""
        self.process.communicate(timeout=ANSWER_S)
        self._folder.cleanup()


def stalls_between(path, began, ended):
    """Return what the witness noted of a time, the longest of each kind, as text; "" where there was no stall."""
    longest = {}
    for line in path.read_text("ascii").splitlines():
        first, last, kind, seconds = json.loads(line)
        if first < ended and last > began:
            longest[kind] = max(longest.get(kind, 0.0), seconds)
    return " and ".join(f"{kind} {1000 * seconds:.0f} ms" for kind, seconds in sorted(longest.items()))


class SecondRounds:
    """Lets `pytest-rerunfailures` take the round of a test again that failed during a stall."""

    def __init__(self, path):
        self._path = path
        self._began = {}

    def pytest_collection_modifyitems(self, items):
        """Mark each test outside of the unit tests."""
        for item in items:
            if item.path.parent.name != "unit":
                item.add_marker(pytest.mark.flaky(reruns=1, condition=partial(self.was_disturbed, item)))

    def pytest_runtest_logstart(self, nodeid):
        """Note when the round of a test began."""
        self._began[nodeid] = time.monotonic()

    def was_disturbed(self, item, error):
        """Return whether the machine stood still in the round that ended with this error; tell it with the test."""
        if error is None or "pytest-timeout" in str(error):
            return False
        ended = time.monotonic()
        time.sleep(WINDOW_S + LIMIT_S)  # what the witness is counting now is of this round, too
        told = stalls_between(self._path, self._began[item.nodeid], ended)
        if told:
            first, *_ = str(error).splitlines() or [""]
            item.user_properties.append(("taken again", f"{told}; it had failed: {type(error).__name__}: {first}"))
        return bool(told)


def register(config):
    """Have second rounds in this process; the first one, which starts the lanes, starts the witness."""
    if VARIABLE not in os.environ:
        witness = StallWitness()
        os.environ[VARIABLE] = str(witness.path)
        config.add_cleanup(witness.stop)
        config.add_cleanup(partial(os.environ.pop, VARIABLE))
    config.option.max_suite_reruns = MOST
    config.pluginmanager.register(SecondRounds(Path(os.environ[VARIABLE])))
