"""The scripts: sound shell, help that helps, and an engine that is got going from a messy state."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from busybox_image import skip_or_fail
from deadlines import END_S
from places import ROOT
from real_store import consecutive_ports

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


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_every_script_is_sound(script):
    """Bash can parse it and shellcheck finds nothing."""
    assert run("bash", "-n", script).returncode == 0
    require("shellcheck")
    checked = run("shellcheck", "-x", "-P", ROOT, script)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("script", RUNNABLE, ids=lambda path: path.name)
def test_every_script_can_be_run_and_explains_itself(script):
    """It is executable, and --help prints how to use it without doing anything."""
    assert os.access(script, os.X_OK)
    result = run(script, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith("Usage: script/")
    assert "set -euo" not in result.stdout


def test_an_unknown_group_is_a_usage_error():
    """It is found before anything is installed, and no test runs."""
    result = run(ROOT / "script" / "test", "--all", "archve", VIRTUAL_ENV="")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("test: there is no group 'archve'; one of: runs engines")


@pytest.mark.parametrize("name", ["bench", "demo", "docker-engine", "engines", "slurm", "testbed"])
def test_an_unknown_argument_is_a_usage_error(name):
    """The exit code is 2, and the message names the argument."""
    result = run(ROOT / "script" / name, "--nonsense")
    assert result.returncode == 2
    assert "unknown argument '--nonsense'" in result.stderr


def test_a_missing_engine_is_reported_with_the_way_to_start_one(short_path):
    """The status of a socket without a server is exit code 3, with a reason."""
    result = run(ROOT / "script/docker-engine", "status", WEIGHBRIDGE_ENGINE_HOME=str(short_path))
    assert result.returncode == 3
    assert "No such file or directory" in result.stderr
    assert "script/docker-engine start" in result.stderr


def test_a_remote_engine_is_not_started_here():
    """A DOCKER_HOST on another machine is refused with exit code 3."""
    require("docker")
    result = run(ROOT / "script/docker-engine", "start", DOCKER_HOST="tcp://127.0.0.1:9", WEIGHBRIDGE_ENGINE_HOME="")
    assert result.returncode == 3
    assert "start it there" in result.stderr


@pytest.fixture
def short_path():
    """A folder whose sockets fit into the 107 bytes that a socket's path may have."""
    with tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
        # A daemon that failed to start leaves its data folder mounted on itself.
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[4].startswith(f"{folder}/"):
                run("umount", line.split()[4])


def test_a_home_too_long_for_sockets_is_refused(tmp_path):
    """A path that is too long for a socket is refused before the daemon fails on it."""
    result = run(ROOT / "script/docker-engine", "start", WEIGHBRIDGE_ENGINE_HOME=str(tmp_path / ("x" * 80)))
    assert result.returncode == 2
    assert "too long" in result.stderr


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


def test_an_engine_that_was_not_started_here_is_not_stopped(short_path):
    """Stop never touches another's engine, and says that there is none to stop."""
    result = run(ROOT / "script/docker-engine", "stop", WEIGHBRIDGE_ENGINE_HOME=str(short_path))
    assert result.returncode == 0
    assert "no engine to stop" in result.stderr


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


def test_a_python_that_is_too_old_is_reported(tmp_path):
    """Without a Python that is new enough the message says what is needed and how to name one."""
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14", "apt-get", "sudo"):
        fake = tmp_path / name
        fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n')
        fake.chmod(0o755)
    script = f'. "{ROOT}/script/lib.sh"; require_python; echo found "$python"'
    result = run("bash", "-c", script, PATH=f"{tmp_path}:/usr/bin:/bin", PYTHON="")
    assert result.returncode == 3
    assert "Python 3.11 or newer is needed" in result.stderr
    assert "Python 3.9.2" in result.stderr
    assert "PYTHON=" in result.stderr


def test_a_store_starts_once_says_where_it_is_and_stops(tmp_path):
    """What is not running, or cannot have its port, is told with what to do; stopping is done when nothing runs."""
    home, port = tmp_path / "store", consecutive_ports(5)
    environment = {"WEIGHBRIDGE_STORE": str(home)}
    home.mkdir()
    (home / "mine").touch()
    name, *rows = run("script/store", "list").stdout.splitlines()
    assert name.split("\t") == ["store", "version", "licence", "from", "port", "program"]
    assert {row.split("\t")[0] for row in rows} == {"swift", "versitygw", "minio"}
    for words, reason in (
        (("start", "minoi"), "'minoi' is no action"),
        (("start", "minio", "--under", "docker"), "--under: only swift runs under an engine, not minio"),
    ):
        refused = run("script/store", *words)
        assert (refused.returncode, reason in refused.stderr) == (2, True)
    absent = run("script/store", "env", "minio", **environment)
    assert (absent.returncode, "start it: script/store start minio" in absent.stderr) == (3, True)
    absent = run("script/store", "status", **environment)
    assert (absent.returncode, "start it: script/store start" in absent.stderr) == (3, True)
    assert run("script/store", "start", "--port", "80", **environment).returncode == 2
    with socket.create_server(("127.0.0.1", port + 1)):
        taken = run("script/store", "start", "--port", port, **environment)
    assert (taken.returncode, "take others with --port N" in taken.stderr) == (3, True)
    try:
        for how in ("is ready after", "runs already"):
            started = run("script/store", "start", "--port", port, **environment)
            assert started.returncode == 0, started.stderr
            assert how in started.stdout
        assert f"answers at http://127.0.0.1:{port}" in run("script/store", "status", **environment).stdout
        assert f"export ST_AUTH=http://127.0.0.1:{port}/auth/v1.0" in run("script/store", "env", **environment).stdout
    finally:
        stopped = [run("script/store", "wipe", **environment).returncode for _ in range(2)]
    assert (stopped, [path.name for path in home.iterdir()]) == ([0, 0], ["mine"])
