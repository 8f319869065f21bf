"""Commands of an engine's own program: output within bounds, deadlines that kill, and nothing left behind."""

import os
import signal
import time
from pathlib import Path

import gevent
import pytest
from attention import undisturbed
from busybox_image import run_patched
from deadlines import ANSWER_S, wait_until

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.command_line import CommandLine

SHELL = CommandLine("/bin/sh", ("-c",))


def failure_of(sequence, *words):
    with pytest.raises(OperationFailed) as caught:
        sequence.run(*words)
    assert caught.value.start_ns <= caught.value.end_ns <= time.monotonic_ns()
    return caught.value


def is_alive(marker):
    """Say whether a process has these words on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in path.read_bytes().replace(b"\0", b" "):
                return True
        except OSError:
            continue
    return False


def is_gone(marker):
    """Say whether there is soon no such process: a killed one takes a moment to die."""
    wait_until(lambda: not is_alive(marker), what=f"the end of {marker}", sleep=gevent.sleep)
    return True


def test_both_streams_and_the_exit_code():
    """What a command printed and how it ended, stamped by the thread that reaped it."""
    before_ns = time.monotonic_ns()
    sequence = SHELL.sequence(ANSWER_S)
    answer = sequence.run_unchecked("echo out; echo err >&2; exit 3")
    assert (answer.exit_code, answer.stdout, answer.stderr, answer.truncated) == (3, b"out\n", b"err\n", False)
    done = sequence.result(exit_code=answer.exit_code)
    assert before_ns <= done.start_ns < done.end_ns <= time.monotonic_ns()
    assert done.exit_code == 3
    assert 0 <= done.end_uncertainty_ns <= done.end_ns - done.start_ns
    assert sequence.cpu_s > 0


def test_an_operation_begins_with_its_first_command_and_ends_with_its_last():
    """What is only asked afterwards is not part of the time."""
    sequence = SHELL.sequence(ANSWER_S)
    first, second = sequence.run("true"), sequence.run("true")
    sequence.run_untimed("sleep 0.05")
    done = sequence.result()
    assert (done.start_ns, done.end_ns) == (first.start_ns, second.end_ns)


def test_more_output_than_is_kept_is_read_all_the_same():
    """A command that prints more than a pipe holds does not block, and the result says that it was cut."""
    answer = SHELL.sequence(ANSWER_S).run_unchecked("head -c 3000000 /dev/zero", limit_bytes=1000)
    assert 0 < answer.stdout.count(b"\0") <= 1000
    assert (answer.truncated, answer.exit_code) == (True, 0)
    whole = SHELL.sequence(ANSWER_S).run_unchecked("head -c 3000000 /dev/zero")
    assert (len(whole.stdout), whole.truncated) == (3_000_000, False)


def test_a_command_that_never_stops_printing_can_be_ended_when_enough_is_there():
    """If the end does not matter, the first bytes are enough."""
    answer = SHELL.sequence(ANSWER_S).run_unchecked(
        "while :; do echo 0123456789; done", limit_bytes=25, until_full=True
    )
    assert (answer.stdout[:11], answer.truncated, answer.exit_code) == (b"0123456789\n", True, 137)


def test_a_child_that_keeps_the_streams_open_is_not_waited_for():
    """The end of the program is the end of the command, whoever has inherited its streams."""
    answer = SHELL.sequence(ANSWER_S).run_unchecked("sleep 730 & echo $!")
    os.kill(int(answer.stdout), signal.SIGKILL)  # it was there


def test_streams_can_go_to_files(tmp_path):
    """For what a detached container goes on writing to."""
    answer = SHELL.sequence(ANSWER_S).run_unchecked("echo out; echo err >&2", stdout_path=str(tmp_path / "out"))
    assert (answer.stdout, answer.stderr) == (b"", b"err\n")
    assert (tmp_path / "out").read_bytes() == b"out\n"


def test_a_late_command_is_killed_with_its_children():
    """Its failure is a timeout with the time of the attempt, and nothing of it goes on."""
    failure = failure_of(SHELL.sequence(0.2), "sleep 731 & sleep 731")
    assert failure.kind == "timeout"
    assert 0.15e9 < failure.end_ns - failure.start_ns < ANSWER_S * 1e9
    assert is_gone(b"sleep 731")


def test_the_deadline_is_that_of_all_commands():
    """The second command has what the first one left of the time."""

    def check():
        sequence = SHELL.sequence(0.8)
        sequence.run("sleep 0.4")
        # By itself it would be in time.
        assert failure_of(sequence, "sleep 0.6").kind == "timeout"

    undisturbed(check, limit_s=0.05)


def test_a_cancelled_command_is_killed():
    """A job that is aborted leaves no command behind."""
    job = gevent.spawn(SHELL.sequence(ANSWER_S).run, "sleep 732")
    while not is_alive(b"sleep 732"):
        gevent.sleep(0.01)
    job.kill()
    assert is_gone(b"sleep 732")


def test_a_missing_program_is_an_engine_that_cannot_be_reached():
    """It is no fault of the container's command, which has kinds of its own."""
    assert failure_of(CommandLine("weighbridge-nonsense").sequence(ANSWER_S), "ps").kind == "unreachable"


def test_no_descriptor_is_left_open():
    """Nor after timeouts and missing programs."""

    def work():
        SHELL.sequence(ANSWER_S).run("true")
        failure_of(SHELL.sequence(0.05), "sleep 733")
        failure_of(CommandLine("weighbridge-nonsense").sequence(ANSWER_S), "ps")

    work()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        work()
    # A loop that another thread makes for itself meanwhile has some of its own.
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 20


@pytest.mark.slow
@pytest.mark.unpatched
def test_this_holds_in_a_patched_process(tmp_path):
    """The worker patches the standard library: the same tests pass there."""
    done = run_patched(__file__, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
