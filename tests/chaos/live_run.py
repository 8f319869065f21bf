"""A real run to do harm to: which processes it consists of, how far it is, and what it leaves behind."""

import contextlib
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import psutil
from deadlines import END_S, START_S, wait_until
from history import faults_of
from workspace import PROGRAMS, Run, Workspace, containers_of, free_ports, require_images

LIFE = ["run", "wait", "remove"]
JOBS = 48
NATIVE = {
    "engines": ["native"],
    "repeats": 2,
    "concurrency": 4,
    "iterations": 6,
    "job": {"operations": LIFE, "container": {"command": ["sleep", "0.3"]}},
}
"""`JOBS` jobs in about four seconds."""

IMAGE = "weighbridge/base"
DOCKER = {
    "engines": ["docker"],
    "repeats": 2,
    "concurrency": 2,
    "iterations": 6,
    "job": {
        "operations": LIFE,
        "container": {"image": IMAGE, "command": ["sleep", "1"], "network": "none", "init": True},
    },
}
"""24 jobs of a second and more."""


class Gate:
    """Holds the jobs of a run, in containers too: each waits until it is admitted, or until the gate is open.

    It is a folder, which jobs know as `place`.
    """

    def __init__(self, folder, place=None):
        folder.mkdir()
        self.folder, self._place = folder, str(place or folder)
        self._admitted = 0

    def holds(self, scenario):
        """Return a scenario whose jobs are held before they do what they do."""
        folder, container = shlex.quote(self._place), scenario["job"]["container"]
        enter = f'for one in {folder}/pass-*; do [ -e "$one" ] && rm "$one" 2>/dev/null && break 2; done'
        wait = f"until [ -e {folder}/open ]; do {enter}; sleep 0.05; done"
        held = {**container, "command": ["sh", "-c", f"{wait}; exec {shlex.join(container['command'])}"]}
        if "image" in container:
            held["storage"] = [{"host": str(self.folder), "target": self._place}]
        return {**scenario, "job": {**scenario["job"], "container": held}}

    def admit(self, jobs):
        """Let so many jobs go on."""
        for _ in range(jobs):
            self._admitted += 1
            (self.folder / f"pass-{self._admitted}").touch()

    def open(self):
        """Let all go on."""
        (self.folder / "open").touch()


LOOK_S = 0.3
"""How often the end of a run looks which processes the run has: those that come and go in between leave nothing."""

LEASE_S = 5
SHORT_LEASE = ("--lease", f"{LEASE_S}s")
"""Flags of a run of which workers, and who resumes it, do not wait for long."""


class LiveRun:
    """One run in a folder of its own, started at once; `close` leaves nothing of it behind, however it went."""

    def __init__(self, folder, scenario, *flags, workers=1, stats=None, **environ):
        folder.mkdir()
        self.folder = folder
        self.workspace = Workspace(folder)
        self.workspace.environ |= {"PYTHONUNBUFFERED": "1", **environ}
        self.docker = require_images(IMAGE) if "docker" in scenario["engines"] else None
        self._seen = {}
        self.directories = set()
        self.stats = stats or folder / "run.stats.gz"
        self.program = self.launch(self.workspace.scenario(**scenario), workers, flags)
        self.master = psutil.Process(self.program.process.pid)
        self._roots = [self.master]

    def launch(self, source, workers, flags):
        """Start the master."""
        words = ["run-scenario", "-f", source, "-s", self.stats, "--workers", workers, "--progress", "chars", *flags]
        return self.workspace.start("bench-master", *words)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    # -- who is there ------------------------------------------------------------------------------------------

    def join(self, *words):
        """Start a worker by hand, over TCP; return its program."""
        ports = ("--zmq-host", "127.0.0.1", "--zmq-control-port", self.ports[0], "--insecure")
        return self.started("bench-worker", *ports, "--allow-native", *words)

    def started(self, program, *words):
        """Start a program that is one of the run's own."""
        made = self.workspace.start(program, *words)
        self._roots.append(psutil.Process(made.process.pid))
        return made

    def refresh(self):
        """Remember every process of the run that is there now; return them."""
        found = [process for root in self._roots for process in children(root)]
        for process in found:
            self._seen.setdefault(process.pid, process)
            for word in cmdline(process):
                if match := re.fullmatch(r"ipc://(/.+/master-[^/]+)/control", word):
                    self.directories.add(Path(match[1]))
        return found

    def agents(self):
        """Return the local workers' agents that are there."""
        return [process for process in self.refresh() if "--control" in cmdline(process)]

    def load_processes(self):
        """Return the local workers' load processes that are there."""
        return [process for process in self.refresh() if any("--load-process" in word for word in cmdline(process))]

    def job_processes(self):
        """Return the processes of the jobs that run under `native`."""
        return [process for process in self.refresh() if cmdline(process)[:1] == ["sleep"]]

    def alive(self):
        """Return what was ever seen of the run and is still there."""
        return [process for process in self._seen.values() if is_running(process)]

    def signal(self, processes, number):
        """Send a signal to processes of the run; those that are gone already are no error."""
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    # -- how far it is -----------------------------------------------------------------------------------------

    @property
    def err(self):
        """What the master wrote to stderr so far."""
        return self.program.err

    @property
    def out(self):
        """What the master wrote to stdout so far: the report."""
        return self.program.out

    def jobs_shown(self):
        """Return how many jobs the master has shown a character for."""
        lines = [line for line in self.err.splitlines() if re.fullmatch(r"  [.oO*_|^@XLA-]+", line)]
        return sum(len(line.strip().replace("-", "")) for line in lines)

    def wait_for_jobs(self, jobs=4):
        """Wait until some jobs are done and others are running."""
        wait_until(
            lambda: self.jobs_shown() >= jobs or self.program.process.poll() is not None, START_S, "the first jobs"
        )
        assert self.program.process.poll() is None, self.err
        self.refresh()

    def end(self, *, seconds=END_S):
        """Wait for the master's end; return its exit code. A run that takes longer hangs, and fails the test."""
        looked, deadline = 0.0, time.monotonic() + seconds
        while self.program.process.poll() is None:
            if time.monotonic() - looked > LOOK_S:
                self.refresh()
                looked = time.monotonic()
            assert time.monotonic() < deadline, f"the run hangs; stderr: {self.err[-2000:]}"
            time.sleep(0.03)
        assert "Traceback" not in self.err
        return self.program.process.returncode

    # -- the results ----------------------------------------------------------------------------------------

    @property
    def run(self):
        """The run as its stats file tells it."""
        return Run(self.program.process.returncode, self.out, self.err, self.stats)

    def faults(self, *, cut_off=False):
        """Return what is wrong with the run's history, as its stats file tells it: up to where it was `cut_off`."""
        return faults_of(self.stats, killed=cut_off or self.program.process.returncode < 0)

    def report(self):
        """Return the report that the command makes of the stats file."""
        ended = self.workspace.master("report-scenario", "-s", self.stats)
        incomplete = re.search(r"^\*\*\* (INCOMPLETE|DAMAGED)", ended.out, re.MULTILINE) is not None
        assert ended.status == (3 if incomplete else 0), ended.err
        return ended.out

    def assert_clean(self, *, cut_off=False):
        """Assert that the run's history has no faults, and that no process, container or file of it is there."""
        wait_until(lambda: not self.alive(), START_S, f"the end of {self.alive()}")
        faults = self.faults(cut_off=cut_off)
        assert not faults, faults
        run_id = self.run.run_id
        assert self.docker is None or containers_of(self.docker, run_id) == []
        assert processes_of(run_id) == []
        assert [path.name for path in (self.folder / "tmp").rglob("wb-*")] == []

    def close(self):
        """End what is still there of the run, and remove what it left."""
        self.refresh()
        for process in (*self._roots, *self._seen.values()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.workspace.close()
        with contextlib.suppress(Exception):  # a run that was not begun has no id, and nothing to remove
            flags = ("--cleanup-containers", "--run", self.run.run_id)
            command = [*PROGRAMS["bench-worker"], *flags]
            subprocess.run(command, env=self.workspace.environ, capture_output=True, timeout=END_S, check=False)
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)
        if self.docker is not None:
            self.docker.close()


class OverTcp(LiveRun):
    """A run whose workers are started by hand with `join`, over TCP on the loopback, without keys."""

    place = ("--zmq-bind-ip", "127.0.0.1", "--insecure")
    """Where its master listens."""

    def launch(self, source, workers, flags):
        """Start the master with ports of its own; `workers` are expected."""
        self.ports = free_ports(3)
        names = ("--zmq-control-port", "--zmq-results-port", "--zmq-work-port")
        given = [word for pair in zip(names, self.ports, strict=True) for word in pair]
        return super().launch(source, 0, ["--expect", workers, *given, *self.place, *flags])


def children(root):
    """Return all that a process has started, directly or not, and that is still there.

    The kernel names the children of each thread (proc(5)); psutil would read the state of every process of the
    machine, of which there are hundreds beside other tests.
    """
    found, parents = [], [root.pid] if is_running(root) else []
    while parents:
        parent = parents.pop()
        pids = child_pids(parent)
        parents += pids
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
    return found


def child_pids(pid):
    """Return the numbers of the processes that a process has started; none once it has ended."""
    threads, pids = [], []
    with contextlib.suppress(OSError):
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    for thread in threads:
        with contextlib.suppress(OSError):
            pids += [int(word) for word in (thread / "children").read_text("ascii").split()]
    return pids


def cmdline(process):
    """Return a process's command line; none when it has ended."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def is_running(process):
    """Return whether a process runs: one that only waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes_of(run_id):
    """Return the processes that carry a run's id in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if run_id in " ".join(process.environ().values()) and is_running(process):
                found.append(process)
    return found
