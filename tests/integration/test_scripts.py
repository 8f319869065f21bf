"""The scripts: sound shell, help that helps, and an engine that is got going from a messy state."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from busybox_image import skip_or_fail
from deadlines import END_S
from places import ROOT

SCRIPTS = sorted(path for path in [*(ROOT / "script").iterdir(), ROOT / ".ci" / "run"] if path.is_file())
OF_MACHINES = sorted(
    path for path in (ROOT / "script" / "vm").iterdir() if "init" in path.name or path.suffix == ".sh"
)
OF_IMAGES = sorted((ROOT / "dockerfiles").rglob("*.sh"))
PYTHON = "#!/usr/bin/env python3"
RUNNABLE = [path for path in SCRIPTS if path.suffix != ".sh"]


def run(*argv, **environment):
    return subprocess.run(
        [str(part) for part in argv],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )


def require(tool):
    if shutil.which(tool) is None:
        skip_or_fail(f"{tool} is missing")


SHELL = [path for path in (*SCRIPTS, *OF_MACHINES, *OF_IMAGES) if not path.read_text("utf-8").startswith(PYTHON)]


def test_every_script_is_sound():
    """Shellcheck finds nothing."""
    require("shellcheck")
    checked = run("shellcheck", "-x", "-P", ROOT, *SHELL)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("script", RUNNABLE, ids=lambda path: path.name)
def test_every_script_can_be_run_and_explains_itself(script):
    """It is executable, and --help prints how to use it without doing anything."""
    assert os.access(script, os.X_OK)
    result = run(script, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith("Usage: script/")
    assert "set -euo" not in result.stdout


def test_an_unknown_argument_is_a_usage_error():
    """The exit code is 2, and the message names the argument."""
    result = run(ROOT / "script" / "bench", "--nonsense")
    assert result.returncode == 2
    assert "unknown argument '--nonsense'" in result.stderr


@pytest.fixture
def short_path():
    """A folder whose sockets fit into the 107 bytes that a socket's path may have."""
    with tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
        # A daemon that failed to start leaves its data folder mounted on itself.
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[4].startswith(f"{folder}/"):
                run("umount", line.split()[4])


@pytest.mark.docker
def test_an_engine_starts_over_what_a_crash_left_behind_and_stops(short_path):
    """Pid files of dead daemons, whose pids are others' by now, do not keep an engine from starting."""
    require("dockerd")
    if os.geteuid() != 0:
        skip_or_fail("starting a Docker Engine takes root")
    home = short_path
    containerd = home / "exec" / "containerd"
    containerd.mkdir(parents=True)
    (home / "docker.pid").write_text(str(os.getpid()))
    (containerd / "containerd.pid").write_text(str(os.getpid()))
    engine = ROOT / "script/docker-engine"
    place = {"WEIGHBRIDGE_ENGINE_HOME": str(home)}
    try:
        started = run(engine, "start", "--yes", **place)
        assert started.returncode == 0, started.stderr
        assert "answers at" in run(engine, "status", **place).stderr
        again = run(engine, "start", **place)
        assert again.returncode == 0
        assert "starting" not in again.stderr
    finally:
        stopped = run(engine, "stop", **place)
    assert stopped.returncode == 0
    assert "dockerd stopped" in stopped.stderr
    assert run(engine, "status", **place).returncode == 3


@pytest.mark.parametrize("born", ["", " 1 4ae5ddbb-e01c-4b8f-9ae2-18a4d5d7c5d7"], ids=["pid", "another-boot"])
def test_a_dockerd_that_got_the_pid_of_ours_is_not_stopped(short_path, born):
    """The mark of an engine survives a reboot; then its pid may be that of the machine's own daemon."""
    program = short_path / "dockerd"
    shutil.copy(shutil.which("sleep"), program)
    with subprocess.Popen([program, "600"]) as stranger:
        try:
            (short_path / "dockerd.started-here").write_text(f"{stranger.pid}{born}\n")
            result = run(ROOT / "script/docker-engine", "stop", WEIGHBRIDGE_ENGINE_HOME=str(short_path))
            assert result.returncode == 0
            assert "no engine to stop" in result.stderr
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("action", ["up", "down", "status"])
def test_a_testbed_is_not_made_where_somebody_waits_with_a_link(short_path, action):
    """In /tmp anybody may take the usual name first: keys would lie in, and root remove, what the link leads to."""
    victim, link = short_path / "victim", short_path / "testbed"
    victim.mkdir()
    (victim / "subnet").write_text("10.1.2")
    link.symlink_to(victim)
    result = run(ROOT / "script/testbed", action, WEIGHBRIDGE_TESTBED=str(link))
    assert result.returncode == 2
    assert f"{link} is a symbolic link" in result.stderr
    assert (victim / "subnet").exists()
