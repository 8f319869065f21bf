"""Processes whose parent has gone: adopted, with their exit codes and true ends, and no other child touched."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from busybox_image import run_patched
from deadlines import ANSWER_S, wait_until

from bench_worker.engines.command_line import CommandLine
from bench_worker.timing import subreaper


@pytest.fixture(autouse=True)
def heir():
    subreaper.become_subreaper()
    yield
    subreaper.release_subreaper()


def orphan(script):
    """Start a shell that leaves a process behind; return the number of that."""
    return int(CommandLine("sh").sequence(ANSWER_S).run("-c", f"({script}) >/dev/null 2>&1 & echo $!").text)


def test_an_orphan_that_lives_is_waited_for():
    """Its exit code and the instant of its end are known, within the bound."""
    begun_ns = time.monotonic_ns()
    process = subreaper.adopt_orphan(orphan("sleep 0.3; exit 7"), start_ns=begun_ns)
    ended = process.wait(ANSWER_S)
    assert ended.code == 7
    assert begun_ns + 0.3e9 <= ended.end_ns <= time.monotonic_ns()
    assert 0 <= ended.end_uncertainty_ns <= ended.end_ns - begun_ns


def test_an_orphan_that_has_ended_is_remembered():
    """A command may be over before anybody asks for it; its end is that of then."""
    begun_ns = time.monotonic_ns()
    pid = orphan("sleep 0.05; exit 3")
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    ended = subreaper.adopt_orphan(pid, start_ns=begun_ns).wait(ANSWER_S)
    assert ended.code == 3
    assert begun_ns <= ended.end_ns <= time.monotonic_ns()
    with pytest.raises(ProcessLookupError):
        subreaper.adopt_orphan(pid, start_ns=begun_ns)


def test_what_ended_before_it_can_have_been_made_is_another_process():
    """Numbers are used again."""
    pid = orphan("sleep 0.05; exit 3")
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    with pytest.raises(ProcessLookupError):
        subreaper.adopt_orphan(pid, start_ns=time.monotonic_ns())


def test_an_orphan_that_nobody_adopts_is_no_zombie(tmp_path):
    """An engine that waits until its helper is gone would wait for ever."""
    over = tmp_path / "over"
    pid = orphan(f"until [ -e {over} ]; do sleep 0.01; done")
    assert Path(f"/proc/{pid}").exists()
    over.touch()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.unpatched
def test_children_that_others_started_are_left_to_them():
    """One that its owner has not looked at yet does not hold up the reaping of orphans either."""
    late = subprocess.Popen(["sh", "-c", "exit 9"])
    wait_until(lambda: ") Z" in Path(f"/proc/{late.pid}/stat").read_text())
    pid = orphan("sleep 0.05")
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert subprocess.run(["sh", "-c", "exit 8"], check=False).returncode == 8
    assert late.wait(ANSWER_S) == 9


@pytest.mark.unpatched
def test_an_orphan_that_comes_and_goes_while_the_dead_are_listed_has_its_own_end(monkeypatch):
    """Where a child that somebody else looks after stands before it, and listing all processes takes a while."""
    made = []
    list_dead = subreaper._dead_children

    def slow_list():
        if not made:
            begun_ns = time.monotonic_ns()
            command = ["sh", "-c", "(while kill -0 $$; do sleep 0.01; done; exit 3) >/dev/null 2>&1 & echo $!"]
            done = subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=True)
            wait_until(lambda: ") Z" in Path(f"/proc/{int(done.stdout)}/stat").read_text())
            made.append((int(done.stdout), begun_ns))
        return list_dead()

    monkeypatch.setattr(subreaper, "_dead_children", slow_list)
    with subprocess.Popen(["sh", "-c", "exit 9"]) as late:
        wait_until(lambda: made)
        [(pid, begun_ns)] = made
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
        ended = subreaper.adopt_orphan(pid, start_ns=begun_ns).wait(ANSWER_S)
    assert (ended.code, late.returncode) == (3, 9)
    assert begun_ns <= ended.end_ns <= time.monotonic_ns()


def test_orphans_go_to_their_usual_parent_after_release():
    """After the last `release_subreaper` an orphan has another parent."""
    subreaper.release_subreaper()
    pid = orphan("sleep 60")
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"PPid:\t{os.getpid()}\n" not in status
    finally:
        os.kill(pid, signal.SIGKILL)
        subreaper.become_subreaper()


@pytest.mark.slow
@pytest.mark.unpatched
def test_all_of_this_holds_in_a_patched_process(tmp_path):
    """The worker patches the standard library: the same tests pass there."""
    done = run_patched(__file__, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
