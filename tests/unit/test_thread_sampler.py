"""The sampler of threads on this machine's own /proc: whom it watches, and what it says that they wait for."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import msgspec
import pytest
from deadlines import ANSWER_S

from bench_worker.explain import thread_sampler
from bench_worker.explain.attribution import Recording
from bench_worker.explain.thread_sampler import ThreadSampler, Watch

NOBODY = -1
"""A worker that no process descends from."""


def watch(worker, daemons=(), **changed):
    given = {"shims": [], "runtimes": ["runc"], "interval_s": 0.001} | changed
    return Watch(worker=worker, daemons=list(daemons), **given)


@contextmanager
def program(text):
    """Yield a process that runs Python and has printed a line."""
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def recording(sampler):
    return msgspec.convert(sampler.recording(), Recording)


def last_waits(found):
    """Return what each thread was in at the end, by process."""
    now = {}
    for _, changes, _ in found.looks:
        now |= {tid: wait for tid, wait, _, _ in changes}
    owners = dict(found.owners)
    return {owners[tid]: found.waits[wait] for tid, wait in now.items() if wait >= 0}


def look_until(sampler, true):
    """Look until `true(recording)`; a process takes a moment to reach its wait."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        sampler.look()
        found = recording(sampler)
        if true(found):
            return found
        assert time.monotonic() < deadline, found


WAITS = "print(flush=True); input()"


def test_a_daemon_and_its_wait_are_seen():
    """The state is S, and the innermost function of the kernel is known: of one's own process even without root."""
    with program(WAITS) as process:
        sampler = ThreadSampler(watch(NOBODY, [process.pid]))
        found = look_until(sampler, lambda found: last_waits(found).get(process.pid, ("",))[0] == "S")
        state, name, functions, _ = last_waits(found)[process.pid]
        assert (state, found.first) == ("S", [process.pid])
        assert name
        if found.stacks:
            assert any("pipe" in one for one in functions)


def test_descendants_of_the_worker_are_watched_and_the_worker_is_not():
    """Also those that begin later; what is nobody's of these is not seen."""
    child = "import subprocess, sys; print(flush=True); input();"
    child += "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print(flush=True); input()"
    with program(child) as worker, program(WAITS) as stranger:
        sampler = ThreadSampler(watch(worker.pid))
        sampler.look()
        assert recording(sampler).owners == []
        worker.stdin.write("\n")
        worker.stdin.flush()
        found = look_until(sampler, lambda found: found.owners)
        owners = set(dict(found.owners).values())
        assert owners.isdisjoint({worker.pid, stranger.pid})
        subprocess.run(["kill", *map(str, owners)], check=True)


def test_a_process_that_ends_is_dropped():
    """Its threads have a last change to -1."""
    with program(WAITS) as process:
        sampler = ThreadSampler(watch(NOBODY, [process.pid]))
        sampler.look()
        process.kill()
        process.wait()
        found = look_until(sampler, lambda found: not last_waits(found))
        assert [wait for _, changes, _ in found.looks for _, wait, _, _ in changes][-1] == -1


def test_a_thread_that_waits_costs_no_further_entry():
    """Looks keep what changed alone."""
    with program(WAITS) as process:
        sampler = ThreadSampler(watch(NOBODY, [process.pid]))
        look_until(sampler, lambda found: last_waits(found).get(process.pid, ("",))[0] == "S")
        before = len(sampler.recording()["looks"])
        sampler.look()
        assert sampler.recording()["looks"][before][1] == []


def test_the_program_says_ready_and_what_it_saw():
    """SIGTERM ends it; the answer is a whole recording."""
    with program(WAITS) as process:
        given = {"worker": NOBODY, "daemons": [process.pid], "shims": [], "runtimes": [], "interval_s": 0.001}
        command = [sys.executable, "-I", "-S", thread_sampler.__file__, json.dumps(given)]
        sampler = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert sampler.stdout.readline() == b"ready\n"
            sampler.terminate()
            printed, _ = sampler.communicate(timeout=ANSWER_S)
        finally:
            sampler.kill()
            sampler.communicate()
    found = msgspec.json.decode(printed, type=Recording)
    assert found.first == [process.pid]
    assert found.looks
    assert not found.cut


@pytest.mark.parametrize(
    ("name", "depth", "foreign"), [("sleep", 1, True), ("runc:[2:INIT]", 1, False), ("sleep", 0, False)]
)
def test_a_program_in_a_container_is_told_from_its_runtime(name, depth, foreign):
    """It is in a deeper PID namespace, and no longer called as the runtime that made it."""
    sampler = ThreadSampler(watch(NOBODY))
    status = thread_sampler._Status(name, 5, 1, sampler._depth + depth)
    assert sampler._is_foreign(status) is foreign
