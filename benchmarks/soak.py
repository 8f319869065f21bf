"""Whether live runs are left alone and dead ones found, for as long as you like: runs, kills and clean-ups at random.

Several runs go on at any time, some with a ``/run`` or ``/tmp`` of their own, some in a PID namespace, some of
another user. Meanwhile somebody cleans up again and again, and now and then a run is killed whole. Prints how many
jobs of runs that were not killed did not end well at the first attempt, and what is left after a last clean-up; both
must be 0. Needs root and util-linux; the engines that are named must be usable.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

USER = 61_003
"""Has no name on any host; its group is that of the Docker Engine's socket."""
DOCKER = Path("/run/docker.sock")
SOCKETS = (DOCKER, Path("/run/docker/containerd/containerd.sock"), Path("/run/containerd/containerd.sock"))
"""What engines are asked through: a private ``/run`` still has those that there are."""
IMAGE = "weighbridge/base"
MASTER = (sys.executable, "-m", "bench_master")
KEEP = 'mkdir -p {stage}{rest} && mount --rbind {folder} {stage}{rest} && mount --rbind {stage} {hidden} && exec "$@"'
PLACES = ("host", "private /run", "private /tmp", "pid namespace", "another user")
JOBS = 6
KILL_SHARE = 0.2
"""How often a clean-up comes just after the death of a run."""
CLEAN_UP_S = 300
"""The longest that a clean-up or a report may take, in seconds."""
RUN_S = 600
"""The longest that runs may go on after the last one was started, in seconds: they take about ten."""


def words_of(place: str, folder: Path) -> tuple[str, ...]:
    """Return the command that starts another one in a place."""
    if place == "another user":
        rights = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
        return ("setpriv", f"--reuid={USER}", f"--regid={USER}", f"--groups={DOCKER.stat().st_gid}", *rights, "--")
    if place == "pid namespace":
        return ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
    if place == "host":
        return ()
    stage = folder / "stage"
    stage.mkdir()
    if place == "private /run":
        sockets = [(path, stage / path.relative_to("/run")) for path in SOCKETS if path.is_socket()]
        steps = [
            f"mount -t tmpfs tmpfs {stage}",
            *(f"mkdir -p {kept.parent} && : > {kept} && mount --bind {path} {kept}" for path, kept in sockets),
            f'mount --rbind {stage} /run && exec "$@"',
        ]
        script = " && ".join(steps)
    else:
        script = f"mount -t tmpfs -o mode=1777 tmpfs {stage} && " + KEEP.format(
            stage=stage, folder=folder, rest=str(folder).removeprefix("/tmp"), hidden="/tmp"
        )
    return ("unshare", "--mount", "sh", "-c", script, "sh")


@dataclass
class SoakRun:
    """A run that goes on."""

    place: str
    engine: str
    folder: Path
    master: subprocess.Popen[bytes]
    killed: bool = False

    @property
    def stats(self) -> Path:
        """Its stats file."""
        return self.folder / "run.stats.gz"

    def last_words(self) -> str:
        """Return the last line of its log."""
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "nothing"

    def kill(self) -> None:
        """Kill all its programs, and none of its jobs."""
        self.killed = True
        family = [psutil.Process(self.master.pid), *psutil.Process(self.master.pid).children(recursive=True)]
        for process in family:
            try:
                if process.cmdline()[:1] != ["sleep"]:
                    process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue

    def touched(self) -> list[str]:
        """Return the jobs that did not end well at the first attempt."""
        report = [*MASTER, "report-scenario", "-s", str(self.stats), "--format", "jsonl"]
        done = subprocess.run(report, capture_output=True, text=True, check=False, timeout=CLEAN_UP_S)
        rows = [row for row in map(json.loads, done.stdout.splitlines()) if "outcome" in row]
        bad = [
            f"job {row['id']}: {row['outcome']}: {(row.get('error') or {}).get('message', 'no reason')}"
            for row in rows
            if row["outcome"] != "done" or row["attempt"]
        ]
        return bad + [f"{JOBS - len(rows)} jobs without a result"] * (len(rows) != JOBS)


def start(number: int, folder: Path, engines: list[str]) -> SoakRun:
    """Start a run of an engine in a place, both at random."""
    place, engine = random.choice(PLACES), random.choice(engines)
    if engine not in {"docker", "native"} and place == "another user":
        place = "private /run"
    if engine == "podman" and place == "private /run":
        # Podman is refused there: it would forget the others' containers.
        place = "private /tmp"
    home = folder / f"run-{number}"
    (home / "tmp").mkdir(parents=True)
    container: dict[str, object] = {"command": ["sleep", f"{random.uniform(0.5, 3):.3f}"]}
    if engine != "native":
        container |= {"image": IMAGE, "network": "none"}
    job = {"operations": ["run", "wait", "remove"], "container": container}
    scenario = {
        "name": "soak",
        "engines": [engine],
        "concurrency": 2,
        "iterations": JOBS // 2,
        "repeats": 1,
        "job": job,
    }
    (home / "scenario.yaml").write_text(json.dumps(scenario))
    words = words_of(place, home)
    if place == "another user":
        for path in (home, *home.rglob("*")):
            os.chown(path, USER, USER)
    command = [*words, *MASTER, "run-scenario", "-f", str(home / "scenario.yaml"), "-s", str(home / "run.stats.gz")]
    environ = {**os.environ, "HOME": str(home), "TMPDIR": str(home / "tmp")}
    with (home / "log").open("wb") as log:
        master = subprocess.Popen([*command, "--workers", "1"], stdout=log, stderr=log, cwd=home, env=environ)
    return SoakRun(place, engine, home, master)


def clean_up(*flags: str) -> list[dict[str, str]]:
    """Clean up this host; return what was found."""
    command = [*MASTER, "cleanup-containers", "--format", "json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CLEAN_UP_S)
    rows: list[dict[str, str]] = json.loads(done.stdout)
    return rows


def run_id_of(stats: Path) -> str:
    """Return the id of a run; empty where it had not begun."""
    report = [*MASTER, "report-scenario", "-s", str(stats), "--format", "json"]
    done = subprocess.run(report, capture_output=True, text=True, check=False, timeout=CLEAN_UP_S)
    return str(json.loads(done.stdout)["run"]["run_id"]) if done.stdout.startswith("{") else ""


def soak(folder: Path, minutes: float, engines: list[str], runs: int) -> int:
    """Run, kill and clean up for so long; print what was touched and what is left; return how many."""
    going: list[SoakRun] = []
    try:
        return _soak(folder, minutes, engines, runs, going)
    finally:
        # Ctrl-C, or a clean-up that failed: what still runs has nobody who waits for it.
        for run in going:
            run.kill()


def _soak(folder: Path, minutes: float, engines: list[str], runs: int, going: list[SoakRun]) -> int:
    ended: list[SoakRun] = []
    cleanings = 0
    deadline = time.monotonic() + minutes * 60
    while time.monotonic() < deadline or going:
        while len(going) < runs and time.monotonic() < deadline:
            going.append(start(len(going) + len(ended), folder, engines))
        if random.random() < KILL_SHARE:
            random.choice(going).kill()
        clean_up()
        cleanings += 1
        print(f"runs: {len(ended)} ended, {len(going)} going on; clean-ups: {cleanings}", end="\r", file=sys.stderr)
        for run in [run for run in going if run.master.poll() is not None]:
            going.remove(run)
            ended.append(run)
        if time.monotonic() > deadline + RUN_S:
            sys.exit(f"{len(going)} runs have not ended {RUN_S} s after the last one was started")
    clean_up()
    touched = [(run, text) for run in ended if not run.killed for text in run.touched()]
    ids = {run_id_of(run.stats) for run in ended} - {""}
    left = [row for row in clean_up("--dry-run") if row["run_id"] in ids]
    killed = sum(run.killed for run in ended)
    print(f"runs: {len(ended)}, killed: {killed}, clean-ups: {cleanings}")
    for run, text in touched:
        print(f"touched: {run.engine}, {run.place}: {text}; its log ends with: {run.last_words()}")
    for row in left:
        print(f"left: {row['engine']} {row['what']} {row['name']} of run {row['run_id']}: {row['why']}")
    print(f"jobs touched: {len(touched)}, leftovers: {len(left)}")
    return len(touched) + len(left)


def main() -> int:
    """Parse the command line; return 1 unless nothing was touched and nothing is left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0, help="how long (default: %(default)g)")
    parser.add_argument("--engines", default="native,docker,runc", help="which ones (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="how many at the same time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what is chosen at random (default: %(default)s)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("it needs root, for namespaces and another user")
    random.seed(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="wb-soak-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        return int(soak(folder, options.minutes, options.engines.split(","), options.runs) > 0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
