"""Real processes: none lost, true stamps, true exit codes, with and without gevent's patches."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from busybox_image import run_concurrently, run_patched
from deadlines import ANSWER_S, START_S, wait_until
from gevent import monkey

from bench_worker.timing import posix_spawn
from bench_worker.timing.processes import CommandNotFound, NotExecutable, SpawnFailed, WaitTimeout, spawn

ENV = {"PATH": os.environ["PATH"]}
CLOCKED = """
import time
begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
print(begun, time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
"""


def start(*argv, **options):
    return spawn(argv, **{"env": ENV, "cwd": "/", **options})


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_sixty_four_at_once_lose_nothing():
    """Each of many processes that end in an instant has its own exit code, and an end after its start."""
    processes = run_concurrently(lambda index: start("sh", "-c", f"exit {index}"), 64)
    exits = run_concurrently(lambda index: processes[index].wait(START_S), 64)
    assert [ended.code for ended in exits] == list(range(64))
    for process, ended in zip(processes, exits, strict=True):
        assert process.start_ns <= process.running_ns <= time.monotonic_ns()
        assert process.start_ns <= ended.end_ns <= time.monotonic_ns()


def test_the_recorded_interval_encloses_the_programs_own(tmp_path):
    """A program that writes down when it began and ended did so between our two stamps, however many run at once."""

    def one(index):
        out = tmp_path / str(index)
        process = start(sys.executable, "-I", "-S", "-c", CLOCKED, stdout_path=str(out))
        return process, process.wait(START_S), [int(word) for word in out.read_text().split()]

    for process, ended, (begun_ns, over_ns) in run_concurrently(one, 8):
        assert process.start_ns <= begun_ns <= over_ns <= ended.end_ns


def test_the_end_is_stamped_while_nobody_listens(tmp_path):
    """The stamp is the reaper's: a caller that comes late, or is held up, reads the same end."""
    out = tmp_path / "out"
    process = start(sys.executable, "-I", "-S", "-c", CLOCKED, stdout_path=str(out))
    deadline = time.monotonic() + ANSWER_S
    while process.exit is None and time.monotonic() < deadline:
        # Held up on purpose, without giving way to anybody but native threads.
        _ = monkey.get_original("time", "sleep")(0.01)
    held_ns = time.monotonic_ns()
    monkey.get_original("time", "sleep")(0.2)
    assert process.wait(ANSWER_S).end_ns <= held_ns


def test_a_process_has_a_session_a_directory_and_an_environment_of_its_own(tmp_path):
    """Nothing of the caller's leaks in: no variable, directory, group, open file or ignored SIGPIPE."""
    out = tmp_path / "out"
    script = (
        "pwd; echo $$; cut -d' ' -f5,6 /proc/$$/stat; env | sort; grep SigIgn /proc/self/status; ls -l /proc/self/fd"
    )
    with (tmp_path / "of-the-caller").open("w"):
        process = spawn(["sh", "-c", script], env={**ENV, "ONLY": "this"}, cwd=str(tmp_path), stdout_path=str(out))
        assert process.wait(ANSWER_S).code == 0
    lines = out.read_text().splitlines()
    assert lines[0] == str(tmp_path)
    assert lines[1] == str(process.pid)
    assert lines[2].split() == [str(process.pid), str(process.pid)]
    assert "ONLY=this" in lines
    assert not any(line.startswith("HOME=") for line in lines)
    ignored = int(next(line for line in lines if line.startswith("SigIgn")).split()[1], 16)
    assert not ignored & 1 << signal.SIGPIPE - 1
    assert any(line.endswith(f"0 -> {os.devnull}") for line in lines)
    assert not any("of-the-caller" in line for line in lines)


def test_a_process_runs_on_the_cpus_that_it_was_given(tmp_path):
    """The affinity is the child's; the caller has its own back."""
    before = os.sched_getaffinity(0)
    cpu = max(before)
    out = tmp_path / "out"
    process = start("grep", "Cpus_allowed_list", "/proc/self/status", stdout_path=str(out), cpus=[cpu])
    assert process.wait(ANSWER_S).code == 0
    assert out.read_text().split()[1] == str(cpu)
    assert os.sched_getaffinity(0) == before


def test_a_signal_ends_the_whole_group():
    """The result has the number of the signal that ended the leader; afterwards nothing is signalled."""
    process = start("sh", "-c", "sleep 1000 & sleep 1000 & wait")
    with pytest.raises(WaitTimeout):
        process.wait(0.05)
    assert process.signal_group(signal.SIGKILL)
    assert process.wait(ANSWER_S).code == -signal.SIGKILL
    assert process.wait(ANSWER_S).code == -signal.SIGKILL
    assert not process.signal_group(signal.SIGKILL)


def test_many_may_wait_for_one_process():
    """Every waiter is woken."""
    process = start("sleep", "0.1")
    exits = run_concurrently(lambda _: process.wait(ANSWER_S), 5)
    assert len(set(exits)) == 1


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("no-such-program-anywhere", CommandNotFound),
        ("/no/such/file", CommandNotFound),
        ("./missing", CommandNotFound),
        ("/etc/hostname", NotExecutable),
        ("/etc", NotExecutable),
    ],
)
def test_what_cannot_be_started_says_why(program, error):
    """Missing and not executable are different errors, raised at once and with the name."""
    with pytest.raises(error, match=program) as caught:
        start(program)
    assert caught.value.start_ns <= caught.value.end_ns


def test_a_file_on_the_path_that_is_not_executable_is_reported(tmp_path):
    """As a shell does: found but not executable is not the same as not found."""
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    with pytest.raises(NotExecutable):
        spawn(["tool"], env={"PATH": str(tmp_path)}, cwd="/")
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    with pytest.raises(CommandNotFound, match="interpreter"):
        spawn(["script"], env={"PATH": str(tmp_path)}, cwd="/")


def test_a_missing_directory_or_output_is_not_blamed_on_the_program(tmp_path):
    """The message names what is really missing."""
    with pytest.raises(SpawnFailed, match=r"working directory .*gone") as caught:
        start("true", cwd=str(tmp_path / "gone"))
    assert type(caught.value) is SpawnFailed
    with pytest.raises(SpawnFailed, match="gone/out") as caught:
        start("true", stdout_path=str(tmp_path / "gone" / "out"))
    assert type(caught.value) is SpawnFailed


def test_no_descriptor_and_no_zombie_stays():
    """A hundred processes later there are no more children than before, and hardly more open files.

    A loop that another thread makes for itself meanwhile has some of its own, and threads that wait for the ends of
    processes have a turn to close theirs.
    """
    start("true").wait(ANSWER_S)
    before, children_before = open_files(), set(psutil.Process().children())
    for _ in range(100):
        start("true").wait(ANSWER_S)
    wait_until(lambda: open_files() < before + 50, what="the descriptors of a hundred processes to be closed")
    assert set(psutil.Process().children()) <= children_before  # an earlier test may have left it a server


def test_this_machine_can_run_these_tests():
    """The probe of the native engine stands on this."""
    assert posix_spawn.missing_feature() is None


@pytest.mark.unpatched
def test_all_of_this_holds_in_a_patched_process(tmp_path):
    """The programs patch the standard library: the same tests pass there."""
    done = run_patched(__file__, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
