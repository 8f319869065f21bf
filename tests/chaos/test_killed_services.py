"""A containerd or a Podman that is killed and started again in mid-run: jobs fail meanwhile, and the run goes on."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest
from busybox_image import require_docker, require_podman, skip_or_fail
from deadlines import ANSWER_S, END_S, LONG_END_S, START_S, wait_until
from live_run import children, cmdline
from private_engine import PrivateEngine
from test_dead_engines import assert_the_end_was_done, await_jobs, lives, start

from bench_worker.engines.docker.podman import is_listening
from bench_worker.engines.docker.podman_monitors import running_monitors


class PrivateContainerd:
    """A containerd with its own data and socket below a short path; its shims outlive it, as those of any."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.address = f"{folder}/c.sock"
        lines = [
            "version = 2",
            f'root = "{folder}/root"',
            f'state = "{folder}/state"',
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]',
            f'[grpc]\naddress = "{self.address}"',
        ]
        (self.folder / "config.toml").write_text("\n".join(lines))
        self._process = None

    def start(self):
        """Start it; somebody listens at its socket when this returns."""
        command = ["containerd", "--config", f"{self.folder}/config.toml"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: is_listening(f"unix://{self.address}"), START_S, "containerd's socket")

    def kill(self):
        """Kill it, with its socket left behind."""
        self._process.kill()
        self._process.wait(ANSWER_S)

    def close(self):
        """End it with all that it has started, and unmount what it has mounted."""
        self.kill()
        PrivateEngine.close(self)

    def _script(self, *_words):
        """Nothing has to be stopped by a script."""


class PrivatePodman:
    """A service of Podman's API with its own storage below a short path; its monitors outlive it, as those of any."""

    def __init__(self, folder, runtime="runc"):
        self.folder = Path(folder)
        self.address = f"unix://{folder}/p.sock"
        self._runtime = runtime
        self._process = None

    def start(self):
        """Start it; it answers when this returns."""
        places = ("root", "runroot", "tmpdir")
        options = [word for place in places for word in (f"--{place}", f"{self.folder}/{place}")]
        command = ["podman", *options, "--runtime", self._runtime, "system", "service", "--time", "0", self.address]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: is_listening(self.address), START_S, "Podman's socket")

    def kill(self):
        """Kill it, with its socket left behind."""
        self._process.kill()
        self._process.wait(ANSWER_S)

    def close(self):
        """End it with all that it has started, and unmount what it has mounted."""
        self.kill()
        PrivateEngine.close(self)

    def _script(self, *_words):
        """Nothing has to be stopped by a script."""


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True) as made:
        yield made


def assert_nothing_is_left(workspace, run):
    """Assert that each job was done or failed by the engine, the last ones were done, and nothing is left."""
    assert_the_end_was_done(run, 100)
    left = workspace.master("cleanup-containers", "--run", run.run_id, "--dry-run")
    assert "nothing was left behind" in left.out


def test_a_containerd_that_is_killed_fails_jobs_until_it_is_back(workspace, image, folder):
    """What its shims went on with meanwhile is removed once it is back."""
    require_docker()
    daemon = PrivateContainerd(folder)
    workspace.environ["CONTAINERD_ADDRESS"] = daemon.address
    daemon.start()
    try:
        scenario = lives(image, "containerd", iterations=50, seconds="0.1")
        scenario["job"]["container"].pop("network")
        program, stats = start(workspace, scenario)
        await_jobs(program, 4)
        daemon.kill()
        await_jobs(program, 1, "X")
        daemon.start()
        assert_nothing_is_left(workspace, workspace.finish(program, stats, 0, LONG_END_S))
    finally:
        daemon.close()


@pytest.mark.slow
def test_a_service_of_podman_that_is_killed_fails_jobs_until_it_is_back(workspace, image, folder):
    """Somebody's own, by CONTAINER_HOST: its containers are removed when it is back."""
    require_podman()
    daemon = PrivatePodman(folder)
    workspace.environ["CONTAINER_HOST"] = daemon.address
    try:
        daemon.start()
        program, stats = start(workspace, lives(image, "podman", iterations=50, seconds="0.1"))
        await_jobs(program, 4)
        daemon.kill()
        await_jobs(program, 1, "X")
        daemon.start()
        assert_nothing_is_left(workspace, workspace.finish(program, stats, 0, LONG_END_S))
    finally:
        daemon.close()


SLOW_RUNTIME = """#!/bin/sh
case " $* " in
*" create "*)
    runc "$@"
    status=$?
    touch {folder}/made
    while [ ! -e {folder}/go ]; do sleep 0.05; done
    exit $status
esac
exec runc "$@"
"""
"""A runtime that has made a container, and does not say so before it may."""


def test_a_service_of_podman_that_is_killed_while_a_container_is_made_leaves_no_monitor(workspace, image, folder):
    """The container is never started, so its monitor would stay for ever with a process: the clean-up ends both."""
    require_podman()
    runtime = Path(folder, "runtime")
    runtime.write_text(SLOW_RUNTIME.format(folder=folder))
    runtime.chmod(0o755)
    daemon = PrivatePodman(folder, str(runtime))
    workspace.environ["CONTAINER_HOST"] = daemon.address
    try:
        daemon.start()
        program, stats = start(workspace, lives(image, "podman", iterations=20, seconds="0.1", concurrency=1))
        wait_until(
            lambda: Path(folder, "made").exists() or program.process.poll() is not None, START_S, "a container"
        )
        daemon.kill()
        Path(folder, "go").touch()
        await_jobs(program, 1, "X")
        (forgotten,) = monitors_in(folder)
        daemon.start()
        run = workspace.finish(program, stats, 0, LONG_END_S)
        assert_the_end_was_done(run, 20)
        assert forgotten.run_id == run.run_id
        assert monitors_in(folder) == []
    finally:
        daemon.close()


def monitors_in(folder):
    """Return the monitors of containers in a store."""
    return [one for one in running_monitors() if one.bundle.startswith(f"{folder}/")]


def test_a_monitor_in_another_mount_namespace_is_that_of_another_store(tmp_path):
    """A Podman in a container has the same paths, and containers that the host's service does not know."""
    if os.geteuid() != 0:
        skip_or_fail("a mount namespace takes root")
    program = tmp_path / "conmon"
    program.symlink_to(shutil.which("bash"))
    # What a monitor has for an id is a command to this one, which waits for its input to end.
    words = [
        program,
        "-c",
        "read; true",
        "-n",
        "wb-af5bf78756cf-0-0",
        "-r",
        "runc",
        "-b",
        f"{tmp_path}/storage",
    ]
    own = subprocess.Popen(words, stdin=subprocess.PIPE)
    elsewhere = subprocess.Popen(["unshare", "--mount", *words], stdin=subprocess.PIPE)
    try:
        wait_until(
            lambda: {own.pid, elsewhere.pid} <= {one.pid for one in running_monitors()}, START_S, "both monitors"
        )
        found = {one.pid for one in running_monitors(os.getpid())}
        assert own.pid in found
        assert elsewhere.pid not in found
        assert elsewhere.pid in {one.pid for one in running_monitors(elsewhere.pid)}
    finally:
        for process in (own, elsewhere):
            process.communicate(timeout=END_S)


def test_a_workers_own_service_of_podman_that_is_killed_is_replaced(workspace, image):
    """Nobody else would start it again: the worker does."""
    require_podman()
    program, stats = start(workspace, lives(image, "podman", iterations=50, seconds="0.1"))
    await_jobs(program, 4)
    found = children(psutil.Process(program.process.pid))
    services = [one for one in found if cmdline(one)[:1] == ["podman"] and "service" in cmdline(one)]
    if not services:
        skip_or_fail("a service of Podman's API runs on this machine, so the worker has none of its own")
    for service in services:
        service.kill()
    run = workspace.finish(program, stats, 0, LONG_END_S)
    # The worker has copied the image from Docker's store.
    removed = subprocess.run(["podman", "rmi", "--force", image], capture_output=True, timeout=END_S, check=False)
    assert removed.returncode == 0, removed.stderr
    assert_nothing_is_left(workspace, run)
