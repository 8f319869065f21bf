"""One master, more and more workers: jobs a second, what a job costs the master, what a worker costs, who is missed.

Real workers (two processes each) up to `--real`; beyond that light ones (`light_workers.py`), of which one process
holds many, since hundreds of real ones would need as many machines. To the master they are the same. Every run has as
many jobs; each worker has `--concurrency` slots. The first size is the baseline of the ratios.

With `--recorded` one C program (`recorded_workers.py`) plays all of them and leaves the CPUs to the master, as
workers on other hosts do. It also prints how many jobs a message has.

    python benchmarks/fan_in.py [--workers 1,10,50,200] [--jobs N] [--concurrency N] [--real N] [--per-process N]
    python benchmarks/fan_in.py --recorded [--workers 1,10,50,200] [--jobs N] [--concurrency N] [--no-look-ahead]
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from common import FOLDER, ONE_OPERATION, master_command, noop_scenario, numbers, parser_of, print_ratio
from recorded_workers import CANNOT_BUILD

from bench_common.stats.reader import StatsFile

MIB = 1 << 20
POLL_S = 0.05
END_S = 30


@dataclass
class Run:
    """What one run gave."""

    jobs_per_s: float
    master_cpu_s: float
    """Processor time of the master's process, from its start to its end."""
    memory_bytes: float
    """Proportional memory of all workers' processes at their largest, for each worker."""
    missed: int
    """How many times a worker was missed for its silence."""
    played: dict[str, float] = field(default_factory=dict)
    """What the player of recorded workers counted; empty without it."""


def free_ports(count: int) -> list[str]:
    """Return so many TCP ports of the loopback that were free a moment ago."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(one.getsockname()[1]) for one in made]


def worker_commands(options: argparse.Namespace, workers: int, port: str) -> list[list[str]]:
    """Return the commands that start so many workers."""
    if options.recorded:
        command = [sys.executable, str(FOLDER / "recorded_workers.py"), "--control-port", port]
        return [[*command, "--slots", str(options.concurrency), "--count", str(workers), "--name", "recorded"]]
    if workers <= options.real:
        words = ["--zmq-host", "127.0.0.1", "--zmq-control-port", port, "-c", str(options.concurrency), "--insecure"]
        return [[sys.executable, "-m", "bench_worker", *words, f"real-{number}"] for number in range(workers)]
    command = [sys.executable, str(FOLDER / "light_workers.py"), "--control-port", port]
    command += ["--slots", str(options.concurrency)]
    sizes = [min(options.per_process, workers - first) for first in range(0, workers, options.per_process)]
    return [[*command, "--count", str(size), "--name", f"light-{place}"] for place, size in enumerate(sizes)]


def memory_of(roots: list[psutil.Process]) -> int:
    """Return the proportional memory of processes and their children, in bytes; what they share is shared out."""
    total = 0
    for root in roots:
        with suppress(psutil.Error):
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    total += process.memory_full_info().pss
    return total


def weigh(options: argparse.Namespace, workers: int, jobs: int) -> Run:
    """Run so many jobs on so many workers, and watch."""
    ports = free_ports(3)
    words = ["--noop", "--workers", "0", "--expect", str(workers), "--worker-timeout", "120s", "-o", str(jobs)]
    words += [
        "-u",
        str(options.concurrency * workers),
        "--format",
        "json",
        "--zmq-bind-ip",
        "127.0.0.1",
        "--insecure",
    ]
    if options.look_ahead is not None:
        words.append("--look-ahead" if options.look_ahead else "--no-look-ahead")
    for name, port in zip(("control", "results", "work"), ports, strict=True):
        words += [f"--zmq-{name}-port", port]
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as directory:
        command = master_command(directory, noop_scenario(ONE_OPERATION), *words)
        with Path(directory, "report.json").open("wb") as report:
            master = subprocess.Popen(command, stdout=report)
        try:
            commands = worker_commands(options, workers, ports[0])
            started += [subprocess.Popen(argv, stdout=subprocess.PIPE) for argv in commands]
            roots = [psutil.Process(each.pid) for each in started]
            cpu_s, memory, looked = 0.0, 0, 0.0
            watched = psutil.Process(master.pid)
            while master.poll() is None:
                with suppress(psutil.Error):
                    times = watched.cpu_times()
                    cpu_s = times.user + times.system
                # To add up what is shared takes the kernel a while: once a second, so as not to be what is measured.
                if time.monotonic() - looked > 1:
                    memory = max(memory, memory_of(roots))
                    looked = time.monotonic()
                time.sleep(POLL_S)
            played = play_counts(started) if options.recorded else {}
        finally:
            end([master, *started])
        if master.returncode:
            raise SystemExit(f"the run with {workers} workers ended with exit code {master.returncode}")
        stats = StatsFile(Path(directory, "run.stats.gz"))
        events = [block.body for block in stats.blocks({"event"})]
        document = json.loads(Path(directory, "report.json").read_text("utf-8"))
    missed = sum(event["kind"] == "worker-lost" for event in events)
    return Run(float(document["totals"]["jobs_per_s"]), cpu_s, memory / workers, missed, played)


def play_counts(started: list[subprocess.Popen[bytes]]) -> dict[str, float]:
    """Return what the player prints at its end."""
    out, _ = started[0].communicate(timeout=END_S)
    return dict(json.loads(out)) if out else {}


def end(started: list[subprocess.Popen[bytes]]) -> None:
    """End what is still there: asked first, then killed."""
    for each in started:
        if each.poll() is None:
            each.terminate()
    for each in started:
        try:
            each.wait(END_S)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()


def told(played: dict[str, float]) -> str:
    """Return what a player counted, as text."""
    if not played:
        return ""
    batch, cpu_us = played["jobs"] / played["batches"], played["cpu_s"] * 1e6 / played["jobs"]
    return f"   {batch:.1f} jobs a message   the player {cpu_us:.2f} us a job"


def main() -> None:
    """Measure each number of workers in turn, and print the figures and the ratios to the first."""
    parser = parser_of(__doc__)
    parser.add_argument("--workers", type=numbers, default="1,10,50,200", help="in rising order")
    parser.add_argument("--jobs", type=int, default=400_000, help="jobs of each run, over all its workers")
    parser.add_argument("--concurrency", type=int, default=4, help="slots of each worker")
    parser.add_argument("--real", type=int, default=10, help="up to so many workers are real ones")
    parser.add_argument("--per-process", type=int, default=50, help="light workers in one process")
    parser.add_argument("--recorded", action="store_true", help="workers that answer with recorded frames")
    parser.add_argument("--look-ahead", action=argparse.BooleanOptionalAction, help="handed on to run-scenario")
    options = parser.parse_args()
    if options.recorded and shutil.which("cc") is None:
        raise SystemExit(CANNOT_BUILD)
    results: list[tuple[Run, float]] = []
    for workers in options.workers:
        # What the master does but for jobs: a run with as few of them as there can be is taken off.
        few = options.concurrency * workers
        idle, run = weigh(options, workers, few), weigh(options, workers, options.jobs + few)
        per_job_us = (run.master_cpu_s - idle.master_cpu_s) * 1e6 / options.jobs
        results.append((run, per_job_us))
        cost = f"{per_job_us:6.2f} us" if per_job_us > 0 else "too few jobs to tell"
        kind = "recorded" if options.recorded else "real" if workers <= options.real else "light"
        print(
            f"{workers:>4} {kind:<5} workers: {run.jobs_per_s:>10,.0f} jobs/s   "
            f"master {cost} of CPU a job   {run.memory_bytes / MIB:6.1f} MiB a worker   "
            f"missed {idle.missed + run.missed}{told(run.played)}",
            flush=True,
        )
    (first, first_us), (last, last_us) = results[0], results[-1]
    compared = f"with {options.workers[-1]} workers to that with {options.workers[0]}"
    print_ratio(f"of the jobs a second {compared}", last.jobs_per_s, first.jobs_per_s)
    if first_us > 0 and last_us > 0:
        print_ratio(f"of the master's CPU a job {compared}", last_us, first_us)


if __name__ == "__main__":
    main()
