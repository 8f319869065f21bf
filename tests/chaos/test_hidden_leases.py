"""Live runs whose lease is out of sight: nobody's clean-up touches them, and once dead they are found and removed.

For each place and engine there is one run, with jobs that sleep for ever. It is visited by another run that starts
outside of it, and by a clean-up of the whole host; then all its processes are killed, and the next clean-up finds
what they left. A job is untouched if its very process is still there.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import uuid
from pathlib import Path

import psutil
import pytest
from busybox_image import require_podman, skip_or_fail
from deadlines import ANSWER_S, LONG_TEST_S, START_S, wait_until
from hidden_places import Place, as_user, forget_users, give, remove_container, require_namespaces
from live_run import IMAGE
from workspace import Run, Workspace, has_started, require_images

from bench_worker.engines.base import EngineOptions
from bench_worker.engines.docker.podman import PodmanEngine
from bench_worker.engines.registry import engine_classes

pytestmark = [pytest.mark.docker, pytest.mark.alone, pytest.mark.timeout(LONG_TEST_S)]

PLACES = ("private /tmp", "private /run", "both", "pid namespace", "container", "two users")
ENGINES = ("docker", "containerd", "podman", "runc", "native")
NO_CELL = {
    ("pid namespace", "containerd"): "the engine waits for a process by the number that containerd knows it by",
    ("pid namespace", "podman"): "the engine reads the limits of Podman's service, which is a process outside",
    ("container", "containerd"): "as in a PID namespace",
    ("container", "podman"): "as in a PID namespace",
    ("container", "runc"): "a runtime has no socket that a container could be given",
    ("two users", "containerd"): "its socket is root's alone: a second user sees nothing there",
    ("two users", "podman"): "each user has a store of their own: a second user sees nothing of the first",
    ("two users", "runc"): "bundles are root's, in a directory that nobody else can enter",
}
"""Cells that make no sense, and why."""
USUAL = {
    ("private /tmp", "native"),
    ("private /run", "docker"),
    ("private /run", "podman"),
    ("both", "containerd"),
    ("pid namespace", "runc"),
    ("container", "docker"),
    ("two users", "docker"),
}
"""Cells of the usual tests: each place and each engine at least once."""
FROM_WITHIN = {("private /tmp", "native"), ("container", "docker")}
"""The same, of the visits from within a place."""
BLIND = {"pid namespace", "container"}
"""Places from which nothing is known of processes outside."""
JOBS = 2


def cells(usual):
    """Return the cells of the matrix as parameters; those that are not `usual` are slow."""
    return [
        pytest.param(*cell, id="-".join(cell), marks=() if cell in usual else pytest.mark.slow)
        for cell in itertools.product(PLACES, ENGINES)
        if cell not in NO_CELL
    ]


@pytest.fixture(scope="module")
def podman_service():
    """The address of a service of Podman that runs outside: its state is in /run, so each other /run has its own."""
    require_podman()
    service = PodmanEngine(EngineOptions("", "", 1))
    service.open()
    yield service._address()
    service.close()


@pytest.fixture
def engine(request, monkeypatch, tmp_path):
    """The class of an engine that is usable here."""
    require_namespaces()
    require_images(IMAGE).close()
    name = request.node.callspec.params["engine_name"]
    if name == "podman":
        monkeypatch.setenv("CONTAINER_HOST", request.getfixturevalue("podman_service"))
    found = engine_classes({name})[name]
    status = found.probe()
    if not status.usable:
        skip_or_fail(f"engine {name}: {status.reason}; {status.advice}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return found


class Victim:
    """A run in a place, with jobs that sleep until somebody ends them."""

    def __init__(self, folder, engine, prefix=lambda _workspace: (), user=0):
        folder.mkdir()
        self.engine = engine
        self.workspace = Workspace(folder)
        # What its processes are found by, from everywhere.
        self.mark = f"8{uuid.uuid4().int % 10**9}"
        container = {"command": ["sleep", self.mark]}
        if engine.name != "native":
            container |= {"image": IMAGE, "network": "none"}
        scenario = self.workspace.scenario(
            engines=[engine.name],
            concurrency=JOBS,
            iterations=JOBS,
            timeout="1h",
            job={"operations": ["run", "wait", "remove"], "container": container},
        )
        self.stats = folder / "out" / "run.stats.gz"
        self.stats.parent.mkdir()
        words = ["run-scenario", "-f", scenario, "-s", self.stats, "--workers", 1]
        give(folder, user)
        self.program = self.workspace.start("bench-master", *words, prefix=prefix(self.workspace))

    def await_jobs(self):
        """Wait until its jobs run; return their processes."""
        program = self.program.process
        wait_until(lambda: len(self.jobs()) == JOBS or program.poll() is not None, START_S, "jobs")
        assert program.poll() is None, self.program.err
        assert has_started(self.stats)
        self.run_id = Run(None, "", "", self.stats).run_id
        return self.jobs()

    def jobs(self):
        """Return the processes of the jobs that run, by number and start."""
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cmdline() == ["sleep", self.mark] and process.status() != psutil.STATUS_ZOMBIE:
                    found.add((process.pid, process.create_time()))
        return found

    def left(self):
        """Return what the engine has of the run, and the directories of jobs."""
        opened = self.engine(EngineOptions("", "look", 1))
        opened.open()
        try:
            found = [f"{item.what} {item.name}" for item in opened.leftovers(self.run_id)]
        finally:
            opened.close()
        return found + [path.name for path in (self.workspace.folder / "tmp").rglob("wb-*")]

    def kill(self):
        """Kill master, agent and load process at once, and nothing else: what they had started stays."""
        if self.program.process.poll() is not None:
            return
        family = [self.program.process.pid]
        found = [process.pid for process in psutil.Process(family[0]).children(recursive=True)]
        for pid in (*family, *found):
            with contextlib.suppress(psutil.Error):
                if psutil.Process(pid).cmdline() != ["sleep", self.mark]:
                    psutil.Process(pid).kill()
        self.program.process.wait(ANSWER_S)

    def close(self):
        """End it all."""
        with contextlib.suppress(psutil.Error):
            self.kill()
        for pid, _ in self.jobs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.workspace.close()


def record_use(engine, user):
    """Record, as a run would that is over, that a user's run has used an engine: so its leftovers are looked for."""
    home = Path(f"/var/tmp/weighbridge-{user}" if user else "/var/lib/weighbridge")
    record = home / "used-engines" / f"{uuid.uuid4().hex[:12]}:{engine}:"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.touch()
    if user:
        for path in (home, record.parent, record):
            os.chown(path, user, user)
            path.chmod(0o755)
    return record


class Visitor:
    """Somebody outside who starts a run, and cleans up."""

    def __init__(self, folder, user):
        folder.mkdir()
        self.user = user
        self.workspace = Workspace(folder)
        self.scenario = self.workspace.scenario(iterations=1)
        give(folder, user)

    def call(self, *words, prefix=None, status=0):
        """Run `bench-master` to its end; return what it wrote to stdout."""
        if prefix is None:
            prefix = as_user(self.user) if self.user else ()
        ended = self.workspace.start("bench-master", *words, prefix=prefix).wait_for_exit()
        assert ended.status == status, ended.err
        return ended

    def start_run(self, engine):
        """Start a run of one nap, whose worker cleans up that engine first."""
        record = record_use(engine, self.user)
        name = f"{uuid.uuid4().hex}.stats.gz"
        self.call("run-scenario", "-f", self.scenario, "-s", self.workspace.folder / "tmp" / name, "--workers", 1)
        assert not record.exists(), "the engine was asked for what dead runs left"

    def clean_up(self, run_id, **how):
        """Clean up the whole host; return the rows of one run."""
        rows = json.loads(self.call("cleanup-containers", "--format", "json", **how).out)
        return [row for row in rows if row["run_id"] == run_id]

    def close(self):
        """End what is still running."""
        self.workspace.close()


@pytest.fixture
def place(engine_name, place_name):
    yield Place(place_name, engine_name)
    forget_users()


@pytest.mark.parametrize(("place_name", "engine_name"), cells(USUAL))
def test_a_live_run_is_left_alone_and_a_dead_one_is_found(engine, place, tmp_path):
    """Whoever starts a run or cleans up outside of its place leaves its jobs alone; dead, nothing of it is left."""
    with contextlib.ExitStack() as stack:
        victim = Victim(tmp_path / "victim", engine, place.prefix, place.user)
        stack.callback(victim.close)
        if place.name == "container":
            stack.callback(remove_container, place.container_of(victim.workspace))
        visitor = Visitor(tmp_path / "visitor", place.visitor)
        stack.callback(visitor.close)
        jobs = victim.await_jobs()
        visitor.start_run(engine.name)
        assert victim.jobs() == jobs, "after the start of a run"
        rows = visitor.clean_up(victim.run_id)
        assert victim.jobs() == jobs, f"after a clean-up: {rows}, {victim.program.err}"
        # Another user's processes are not even seen.
        assert bool(rows) is (place.name != "two users" or engine.name != "native")
        assert {row["verdict"] for row in rows} <= {"kept"}
        assert all("alive" in row["why"] for row in rows), rows
        assert victim.program.process.poll() is None, victim.program.err

        if place.name == "container":
            subprocess.run(["docker", "kill", place.container_of(victim.workspace)], check=True, capture_output=True)
            victim.program.process.wait(ANSWER_S)
        else:
            victim.kill()
        owner = Visitor(tmp_path / "owner", place.user) if engine.name == "native" else visitor
        stack.callback(owner.close)
        # Where the run had its files.
        owner.workspace.environ["TMPDIR"] = str(victim.workspace.folder / "tmp")
        rows = owner.clean_up(victim.run_id)
        assert {row["verdict"] for row in rows} <= {"removed"}, rows
        assert victim.left() == []
        wait_until(lambda: not victim.jobs(), ANSWER_S, "the end of the jobs")


@pytest.mark.parametrize(
    ("place_name", "engine_name"), [cell for cell in cells(FROM_WITHIN) if cell.values[0] != "two users"]
)
def test_a_clean_up_from_within_leaves_the_hosts_runs_alone(engine, place, tmp_path):
    """What it finds of a run outside stays, alive or dead, if it cannot tell which; the host's clean-up can."""
    with contextlib.ExitStack() as stack:
        prefix = as_user(place.user) if place.user else ()
        victim = Victim(tmp_path / "victim", engine, lambda _workspace: prefix, place.user)
        stack.callback(victim.close)
        visitor = Visitor(tmp_path / "visitor", place.visitor)
        stack.callback(visitor.close)
        stack.callback(remove_container, place.container_of(visitor.workspace))
        jobs = victim.await_jobs()
        # Processes of the host are not even seen there, nor are its files.
        hidden = place.name in BLIND and engine.name in {"native", "runc"}
        rows = visitor.clean_up(victim.run_id, prefix=place.prefix(visitor.workspace))
        assert victim.jobs() == jobs, f"after a clean-up: {rows}, {victim.program.err}"
        assert rows or hidden
        assert {row["verdict"] for row in rows} <= {"kept"}
        words = f"not seen from here; clean up there, or remove it in any case with --run {victim.run_id}"
        # Its lease is seen from there where /run is the host's: then that is told.
        alive = ("its worker is alive", f"run {victim.run_id} is alive on this host")
        known = (words,) if place.name in BLIND else alive
        assert all(any(one in row["why"] for one in known) for row in rows), rows

        victim.kill()
        if place.name in BLIND:
            rows = visitor.clean_up(victim.run_id, prefix=place.prefix(visitor.workspace))
            assert {row["verdict"] for row in rows} <= {"kept"}
            assert all(words in row["why"] for row in rows), rows
        # Where the run had its files.
        visitor.workspace.environ["TMPDIR"] = victim.workspace.environ["TMPDIR"]
        assert {row["verdict"] for row in visitor.clean_up(victim.run_id)} <= {"removed"}
        assert victim.left() == []
        wait_until(lambda: not victim.jobs(), ANSWER_S, "the end of the jobs")
