"""Forks of a process that has loaded `bench-master` are programs like any other."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from deadlines import ANSWER_S, START_S, wait_until
from loaded_program import can_fork, fork_program
from workspace import MASTER, LoadedProgram, Program, has_started, held_until


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["run-scenario", "--help"], 0),
        (["run-scenario", "-f", "missing.yaml"], 2),
        (["run-scenario", "-f", "{scenario}", "--dry-run"], 0),
        (["run-scenario", "-f", "{scenario}", "--workers", "1", "-q"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_fork_ends_and_writes_as_the_program_does(workspace, words, status):
    """Exit code, standard output, and errors; where they differ by times alone these are left out."""
    fails = {"operations": ["run", "wait", "remove"], "container": {"command": ["false"]}}
    scenario = str(workspace.scenario(iterations=1, seed=1, job=fails))
    words = [word.format(scenario=scenario) for word in words]
    ends = []
    for number, kind in enumerate((LoadedProgram, Program)):
        argv = words if kind is LoadedProgram else (*MASTER, *words)
        ends.append(kind(argv, workspace.folder / f"end-{number}", workspace.environ).wait_for_exit())
    assert [end.status for end in ends] == [status, status]
    assert len(ends[0].err.splitlines()) == len(ends[1].err.splitlines())
    if status != 3:  # nothing ran, so nothing has a time
        assert ends[0].out == ends[1].out
        assert ends[0].err == ends[1].err


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL], ids=["under-nohup", "plain"])
def test_a_fork_has_the_folder_environment_session_and_signals_of_a_program(workspace, handler):
    """Whatever the process that forks was started with."""
    going_on = workspace.folder / "going-on"
    job = {"operations": ["run", "wait", "remove"], "container": {"command": held_until(going_on)}}
    scenario = workspace.scenario(iterations=1, job=job)
    before = signal.signal(signal.SIGHUP, handler)
    try:
        program, stats = workspace.start_run(scenario)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert isinstance(program, LoadedProgram)
    wait_until(lambda: has_started(stats), START_S, "the run's begin")
    pid = program.process.pid
    assert os.getsid(pid) == pid
    process = Path(f"/proc/{pid}")
    assert (process / "cwd").readlink() == workspace.folder
    assert [(process / "fd" / fd).readlink().name for fd in ("1", "2")] == ["out", "err"]
    assert ignores_hang_ups(pid) == (handler == signal.SIG_IGN)
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(0)
    going_on.touch()
    assert program.wait_for_exit().status == 0


def test_the_end_of_a_fork_by_a_signal_is_told_as_such(tmp_path):
    with (tmp_path / "out").open("wb") as out:
        # Nobody sends the file's bytes: it waits for them.
        os.mkfifo(tmp_path / "pipe")
        words = ["run-scenario", "-f", str(tmp_path / "pipe"), "--dry-run"]
        forked = fork_program(words, tmp_path, dict(os.environ), out, out)
    forked.send_signal(signal.SIGKILL)
    assert forked.wait(ANSWER_S) == -signal.SIGKILL
    forked.terminate()  # nothing is there any more


def ignores_hang_ups(pid):
    """Return whether a process ignores SIGHUP, as proc(5) has it."""
    masks = re.search(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(masks[1], 16) >> signal.SIGHUP - 1 & 1)


def test_what_needs_a_command_line_or_other_modules_is_no_fork():
    environ = dict(os.environ)
    assert can_fork(["run-scenario"], {**environ, "HOME": "/nowhere"})
    assert not can_fork(["run-scenario", "-Ksecret"], environ)
    assert not can_fork(["run-scenario"], {**environ, "PYTHONPATH": "/elsewhere"})
    assert not can_fork(["run-scenario"], {**environ, "LANG": "tlh_QO"})
