"""A host without idle CPU: a worker that starves is not lost, and the report names who took the CPU."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deadlines import ANSWER_S, END_S, START_S, wait_until
from live_run import NATIVE, LiveRun
from workspace import skip_or_fail

from bench_common.stats.reader import StatsFile

BUSY = "while True: pass"


def set_autogroup(pid, nice):
    """Set the priority of a process's session, which counts before that of a process (sched(7))."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


@contextlib.contextmanager
def busy_loops(count, *, cpu, nice):
    """Keep a CPU busy for a while."""
    command = [sys.executable, "-c", BUSY]
    loops = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        for loop in loops:
            os.sched_setaffinity(loop.pid, {cpu})
            os.setpriority(os.PRIO_PROCESS, loop.pid, nice)
            set_autogroup(loop.pid, nice)
        yield loops
    finally:
        end_all(loops)


def end_all(programs):
    """Kill programs, and wait for their ends."""
    for program in programs:
        program.kill()
        program.wait()


LIMITS = ("--worker-timeout", "2s", "--heartbeat-timeout", "2s")
LONG_JOBS = NATIVE | {
    "repeats": 1,
    "iterations": 1,
    "job": {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", "8"]}},
}
"""Four jobs at once; their results would be signs of life."""

STARVE = """
import os, sys
if "--stage-file" in sys.orig_argv:
    os.sched_setaffinity(0, {CPU})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.path.exists("/proc/self/autogroup"):
        with open("/proc/self/autogroup", "w") as file:
            file.write("19")
"""
"""Lets each worker begin with next to no CPU: with the lowest priority, on the CPU of a busy loop."""


STOP = """
import os, signal, sys
if "--stage-file" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGSTOP)
"""
"""Stops each worker as soon as its interpreter has started."""


def set_scheduling(process, policy, cpus):
    """Set how all threads of a process are scheduled, and on which CPUs."""
    set_autogroup(process.pid, 19 if policy == os.SCHED_IDLE else 0)
    for thread in process.threads():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(thread.id, policy, os.sched_param(0))
            os.sched_setaffinity(thread.id, cpus)


def first_agent(live):
    """Return the agent of the only worker as soon as its process is there."""
    wait_until(live.agents, ANSWER_S, "the worker's process")
    return live.agents()[0]


@pytest.mark.alone
def test_a_worker_that_starves_is_waited_for_and_not_lost(tmp_path):
    """Beyond the time for joining and beyond the time for silence, while its process lives and wants to run."""
    if os.geteuid() != 0:
        skip_or_fail("raising a priority is for root only")
    everywhere = os.sched_getaffinity(0)
    cpu = min(everywhere)
    (tmp_path / "sitecustomize.py").write_text(STARVE.replace("CPU", str(cpu)))
    with contextlib.ExitStack() as stack:
        loops = stack.enter_context(busy_loops(4, cpu=cpu, nice=-20))
        live = stack.enter_context(LiveRun(tmp_path / "run", LONG_JOBS, *LIMITS, PYTHONPATH=str(tmp_path)))
        agent = first_agent(live)
        wait_until(lambda: "has not joined after" in live.err, START_S, "the notice about the start")
        assert live.program.process.poll() is None, live.err
        for loop in loops:
            loop.send_signal(signal.SIGSTOP)
        for process in (agent, *agent.children()):
            set_scheduling(process, os.SCHED_OTHER, everywhere)
        wait_until(lambda: live.job_processes() or live.program.process.poll() is not None, START_S, "the first jobs")
        for process in agent.children():
            set_scheduling(process, os.SCHED_OTHER, everywhere)
        for loop in loops:
            loop.send_signal(signal.SIGCONT)
        set_scheduling(agent, os.SCHED_IDLE, {cpu})
        wait_until(
            lambda: "waits for a CPU" in live.err or live.program.process.poll() is not None, START_S, "the silence"
        )
        assert "waits for a CPU" in live.err, live.err
        set_scheduling(agent, os.SCHED_OTHER, everywhere)
        for loop in loops:
            loop.send_signal(signal.SIGSTOP)
        assert live.end() == 0, live.err
        assert "was lost" not in live.err
        run = live.run
        warnings = next(StatsFile(live.stats).blocks({"footer"})).body["warnings"]
        assert run.outcomes() == {"done": 4}
    assert "of CPU time: it is " in run.err
    assert "load average " in run.err
    assert any("waits for a CPU" in warning for warning in warnings)


def test_a_worker_that_hangs_at_its_start_is_missing_and_told_with_its_stage(tmp_path):
    """One that is stopped makes no progress: the run ends, and says how far the worker was and what it got."""
    (tmp_path / "sitecustomize.py").write_text(STOP)
    with LiveRun(tmp_path / "run", NATIVE, "--worker-timeout", "1s", PYTHONPATH=str(tmp_path)) as live:
        agent = first_agent(live)
        wait_until(lambda: "waiting for local-0 to end" in live.err, START_S, "the decision")
        agent.send_signal(signal.SIGCONT)
        wait_until(lambda: live.program.process.poll() is not None, END_S, "the end of the run")
        told = live.err
    assert "not enough workers: 0 of 1 joined" in told
    assert f"worker local-0 (process {agent.pid}, alive, but stopped) has not joined after " in told
    assert f"; to do: let the process go on (kill -CONT {agent.pid})" in told
    assert "its log is empty" in told
    assert "of CPU time: it is " in told
    assert "load average " in told
