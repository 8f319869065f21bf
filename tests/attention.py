"""A witness of the machine's attention: whether tests that judge time had the CPUs when they wanted them.

Such a test fails, too, where a hypervisor or another program keeps the CPU for a moment. Nobody widens its limits for
that: a witness beside it says whether the machine disturbed the round, and such a round is taken again::

    undisturbed(lambda: check_the_gaps(workspace.run(scenario)), limit_s=0.01)

What can be compared with a bound that the record itself carries, or be made certain by an event, needs no witness.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deadlines import ANSWER_S

LIMIT_S, ATTEMPTS = 0.01, 5
"""How late a process may be woken in an undisturbed round, and how many rounds there are at most."""

INTERVAL_S = 0.002

_WITNESS = """
import json, os, sys, threading, time
interval_s, beside_load = float(sys.argv[1]), sys.argv[2] == "beside-load"
latest_s, over, ready = {}, threading.Event(), threading.Semaphore(0)
def watch(cpu):
    os.sched_setaffinity(0, {cpu})
    if beside_load:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except PermissionError:
            pass
    latest_s[cpu] = 0.0
    ready.release()
    while not over.is_set():
        began = time.monotonic()
        time.sleep(interval_s)
        latest_s[cpu] = max(latest_s[cpu], time.monotonic() - began - interval_s)
threads = [threading.Thread(target=watch, args=(cpu,)) for cpu in os.sched_getaffinity(0)]
for thread in threads:
    thread.start()
for thread in threads:
    ready.acquire()
print("watching", flush=True)
sys.stdin.read()
over.set()
for thread in threads:
    thread.join()
print(json.dumps(max(latest_s.values())), flush=True)
"""
"""A thread on each CPU sleeps for a moment, again and again; in another process, so no test keeps its interpreter."""


def stolen_s():
    """Return how long the hypervisor has kept the CPUs from this machine, the sum of all CPUs, in seconds."""
    words = Path("/proc/stat").read_text("ascii").split(maxsplit=9)
    return int(words[8]) / os.sysconf("SC_CLK_TCK")


class Attention:
    """Watches the machine while its body runs; afterwards `disturbance` says what was wrong, if anything was.

    The witness has the priority of any process: it is late where they are. With `beside_load` it has real-time
    priority, if it is allowed to: the load that the test itself makes is no disturbance, what even the highest
    priority does not get past is one.
    """

    def __init__(self, limit_s=LIMIT_S, *, beside_load=False):
        self.limit_s = limit_s
        self.latest_s = self.stolen_s = 0.0
        words = [str(INTERVAL_S), "beside-load" if beside_load else "as-all"]
        self._command = [sys.executable, "-I", "-S", "-c", _WITNESS, *words]
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"watching\n"
        self.stolen_s = -stolen_s()
        return self

    def __exit__(self, *_):
        self.stolen_s += stolen_s()
        try:
            said, _ = self.process.communicate(timeout=ANSWER_S)
        finally:
            self.process.kill()
            self.process.wait()
        self.latest_s = json.loads(said)

    @property
    def disturbance(self):
        """What the machine did, or None for a round without a disturbance."""
        told = []
        if self.latest_s > self.limit_s:
            told.append(f"a process was woken {1000 * self.latest_s:.0f} ms late")
        if self.stolen_s > self.limit_s:
            told.append(f"the hypervisor took {1000 * self.stolen_s:.0f} ms")
        return " and ".join(told) or None


def undisturbed(body, limit_s=LIMIT_S, *, attempts=ATTEMPTS, beside_load=False):
    """Return what `body()` returns; a round that fails is taken again if the machine disturbed it.

    A round that fails without a disturbance fails the test at once. If the machine disturbed all of them the test
    shows nothing, and is skipped.
    """
    told = []
    for _ in range(attempts):
        attention, failure = Attention(limit_s, beside_load=beside_load), None
        with attention:
            try:
                result = body()
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # the witness says whose fault it is
                failure = error
        if failure is None:
            return result
        if attention.disturbance is None:
            raise failure
        told.append(attention.disturbance)
    pytest.skip(f"the machine disturbed all of {attempts} rounds: {'; '.join(told)}")
