"""Whole runs from the outside: the commands as processes, in a folder of their own, each wait with a deadline."""

import contextlib
import functools
import io
import itertools
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import docker
from busybox_image import require_docker, skip_or_fail
from command_line import run_in_process, runs_in_process
from deadlines import ANSWER_S, END_S, START_S, wait_until

from bench_common.errors import StatsFileError
from bench_common.stats.reader import StatsFile
from bench_master.reports import ReportSource, report_named
from bench_master.run.ceilings import PROBE
from bench_worker.engines.base import RUN_LABEL
from bench_worker.leases import RunLease

PROGRAMS = {name: (sys.executable, "-m", name.replace("-", "_")) for name in ("bench-master", "bench-worker")}
PORTS, SHARES = range(10_000, 30_000), 8
"""Ports for servers of tests: the kernel hands out others to whoever asks for any."""

NAP = {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", "0.1"]}}
"""A life-cycle job of a bit more than 100 ms, for the engine `native`."""
UNHURRIED = ("--heartbeat-timeout", f"{ANSWER_S:g}s")
"""Flags of a run in which no worker may be missed: its master bears what a busy machine makes of a heartbeat."""


def held_until(over):
    """Return the command of jobs of which none ends before there is a file `over`."""
    return ["sh", "-c", f"until [ -e {shlex.quote(str(over))} ]; do sleep 0.05; done"]


def naps_until(over):
    """Return the command of jobs of which one does not end before there is a file `over`; the others nap until then.

    So jobs go on, and the trial is not over before the test is.
    """
    quoted = shlex.quote(str(over))
    hold = f"if mkdir {quoted}.held 2>/dev/null; then {held_until(over)[-1]}; fi"
    return ["sh", "-c", f"{hold}; [ -e {quoted} ] || sleep 0.3"]


def _own_ports():
    """Go round in the share of `PORTS` that this process has, from a place of its own: each lane of tests has one."""
    lane = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % SHARES
    share = PORTS[lane * len(PORTS) // SHARES : (lane + 1) * len(PORTS) // SHARES]
    start = os.getpid() * 11 % len(share)
    return itertools.cycle([*share[start:], *share[:start]])


_candidates = _own_ports()


def free_ports(count):
    """Return so many TCP ports at which nobody listens, and that nobody else is given."""
    found = []
    while len(found) < count:
        port = next(_candidates)
        with contextlib.suppress(OSError), socket.create_server(("0.0.0.0", port)):
            found.append(port)
    return found


@functools.lru_cache(maxsize=32)
def _written(stats, name, _identity):
    """Return a report of a stats file that has been written at such a time, with such a size."""
    text = io.StringIO()
    report_named(name).write(ReportSource(StatsFile(stats), 95.0, detail="full"), text)
    return text.getvalue()


def has_started(stats):
    """Return whether a run has begun: its stats file has its header."""
    try:
        return bool(StatsFile(stats).header)
    except StatsFileError:
        return False


def require_images(*images):
    """Return a Docker client once an engine with the images answers; skip, or fail in CI, where it does not."""
    require_docker()
    client = docker.APIClient(timeout=ANSWER_S)
    for image in images:
        try:
            client.inspect_image(image)
        except docker.errors.ImageNotFound:
            client.close()
            skip_or_fail(f"image {image} is not there; run `bench-master build-images`")
    return client


def containers_of(client, run_id):
    """Return the containers that carry a run's label, as the engine itself tells them."""
    return client.containers(all=True, filters={"label": f"{RUN_LABEL}={run_id}"})


@dataclass(frozen=True)
class Completed:
    """How a program ended, and all that it wrote."""

    status: int
    out: str
    err: str

    @property
    def errors(self):
        """What it complained of, line by line."""
        prefix = "bench-master: "
        return [line.removeprefix(prefix) for line in self.err.splitlines() if line.startswith(prefix)]


class Program:
    """A program that was started; what it says is collected in files, so that it never has to wait for a reader."""

    def __init__(self, argv, folder, environ):
        folder.mkdir(parents=True)
        self._out, self._err = folder / "out", folder / "err"
        words = [str(word) for word in argv]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder.parent,
                env=environ,
                start_new_session=True,
            )

    @property
    def out(self):
        """What it wrote to stdout so far."""
        return self._out.read_text("utf-8", "replace")

    @property
    def err(self):
        """What it wrote to stderr so far."""
        return self._err.read_text("utf-8", "replace")

    def wait_for_output(self, text, seconds=START_S):
        """Wait until it has wrote `text` on stderr."""
        wait_until(lambda: text in self.err or self.process.poll() is not None, seconds, f"{text!r} in {self.err!r}")
        assert text in self.err, f"it ended instead, with {self.process.returncode}: {self.err}"

    def wait_for_exit(self, seconds=END_S):
        """Wait for its end; a program that takes longer hangs, and fails the test."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            message = f"{self.process.args} hangs; it wrote: {self.err[-2000:]}"
            raise AssertionError(message) from None
        return Completed(status, self.out, self.err)

    def close(self):
        """End it: asked first, so that it cleans up, and killed with all that it started if it does not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(ANSWER_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(ANSWER_S)


@dataclass(frozen=True)
class Run(Completed):
    """A run that is over: how `run-scenario` ended, and its stats file."""

    stats: Path

    @property
    def header(self):
        """The header of the stats file."""
        return StatsFile(self.stats).header

    @property
    def run_id(self):
        """The run's id, as its containers are labelled."""
        return self.header.run_id

    def blocks(self, kind):
        """Return the bodies of all blocks of a kind."""
        return [block.body for block in StatsFile(self.stats).blocks({kind})]

    @property
    def document(self):
        """The JSON report."""
        return json.loads(self.report("json"))

    @property
    def jobs(self):
        """The jobs, each a mapping, in the order in which they ended; each id once."""
        rows = [row for row in map(json.loads, self.report("jsonl").splitlines()) if "id" in row]
        ids = sorted(row["id"] for row in rows)
        assert len(set(ids)) == len(ids), "jobs doubled"
        # A master that was killed leaves out what was under way, wherever that was in the order; so does who resumes.
        killed = self.status is None or self.status < 0
        resumed = any(event["kind"] == "resumed" for event in self.blocks("event"))
        assert killed or resumed or ids == list(range(len(ids))), "jobs missing"
        return rows

    def outcomes(self):
        """Return how many jobs ended how."""
        names = [row["outcome"] for row in self.jobs]
        return {name: names.count(name) for name in sorted(set(names))}

    @property
    def details(self):
        """The text report with all details, its lines joined."""
        return " ".join(self.report("text").split())

    def report(self, name):
        """Return a report of the stats file, with all details; made again only if the file is another one."""
        state = self.stats.stat()
        return _written(self.stats, name, (state.st_ino, state.st_size, state.st_mtime_ns))


class Workspace:
    """Runs `bench-master` and `bench-worker` in a folder; `close` ends what is still there of them.

    Home and temporary files are in that folder too, so that neither keys nor leftovers of others play a part. No
    run looks afterwards what the harness itself can do here: in a new home nothing is known of that, and to measure
    it takes a run of its own.
    """

    def __init__(self, folder):
        self.folder = folder
        self._programs = []
        self._runs = 0
        for name in ("home", "tmp"):
            (folder / name).mkdir()
        own = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), PROBE: "1"}
        self.environ = {**os.environ, **own}
        for name in ("XDG_CONFIG_HOME", "COLUMNS"):
            self.environ.pop(name, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def scenario(self, **keys):
        """Write a scenario (JSON is YAML); what is not given is that of a single short nap under `native`.

        No trial measures the host's speed, which takes up to a tenth of a second of a CPU each time: the tests that
        are about it ask for it, and so do the ready scenarios.
        """
        given = {"name": "workspace", "engines": ["native"], "speed_probe": False, **keys}
        if not {"job", "jobs"} & set(given):
            given["job"] = NAP
        self._runs += 1
        path = self.folder / f"scenario-{self._runs}.yaml"
        path.write_text(json.dumps(given))
        return path

    def start(self, program, *words, prefix=()):
        """Start a program, by way of the command `prefix`; what is still alive at the end is ended."""
        folder = self.folder / f"program-{len(self._programs)}"
        started = Program((*prefix, *PROGRAMS[program], *words), folder, self.environ)
        self._programs.append(started)
        return started

    def master(self, *words, seconds=END_S):
        """Run `bench-master` to its end; within this process where that makes no difference."""
        if runs_in_process(words, self.environ):
            return Completed(*run_in_process(words, self.folder, self.environ))
        return self.start("bench-master", *words).wait_for_exit(seconds)

    def refused(self, *words):
        """Run `bench-master` with what it refuses before anything starts, within this process."""
        ended = Completed(*run_in_process(words, self.folder, self.environ))
        assert ended.status == 2, ended
        return ended

    def start_run(self, scenario, *flags, workers=1):
        """Start a run; return the program and where its stats file will be. Its test starts workers if 0."""
        stats = self.folder / f"run-{len(self._programs)}.stats.gz"
        words = ["run-scenario", "-f", scenario, "-s", stats, *flags]
        return self.start("bench-master", *words, "--workers", workers), stats

    def run(self, scenario, *flags, workers=1, status=0, seconds=END_S):
        """Run a scenario to its end, which must have the exit code `status`."""
        program, stats = self.start_run(scenario, *flags, workers=workers)
        return self.finish(program, stats, status, seconds)

    @contextlib.contextmanager
    def kept_run(self, scenario, flag="--keep", *others):
        """Run a scenario that keeps its containers, and hold its lease: nobody's clean-up takes them meanwhile."""
        program, stats = self.start_run(scenario, flag, *others)
        wait_until(lambda: has_started(stats) or program.process.poll() is not None, START_S, "the run's begin")
        # From before its worker lets go of its own.
        with RunLease(StatsFile(stats).header.run_id) if has_started(stats) else contextlib.nullcontext():
            yield self.finish(program, stats)

    def finish(self, program, stats, status=0, seconds=END_S):
        """Wait for the end of a run that `start_run` began."""
        ended = program.wait_for_exit(seconds)
        assert ended.status == status, ended.err
        assert "Traceback" not in ended.err
        return Run(ended.status, ended.out, ended.err, stats)

    def close(self):
        """End what is still running."""
        for program in reversed(self._programs):
            program.close()
