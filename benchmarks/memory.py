"""Peak memory of master and worker, and bytes of the stats file, over the number of jobs of a no-op run.

A harness that keeps its results in memory ends somewhere; this one must not grow with the number of jobs. The
largest run is compared with the smallest of the same series.

    python benchmarks/memory.py [--jobs 10k,100k,1M] [--concurrency N] [--workers N] [--operations 1|2]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from common import ONE_OPERATION, TWO_OPERATIONS, master_command, noop_scenario, numbers, parser_of, print_ratio

MIB = 1 << 20
POLL_S = 0.05


@dataclass
class Weight:
    """What a run weighed, in bytes."""

    master: int
    load: int
    """The load process: where jobs, credits and results of a worker are. The heaviest one, of several workers."""
    workers: int
    stats: int


def high_water(pid: int) -> int:
    """Return the most resident memory that a process ever had, in bytes; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def is_load_process(process: psutil.Process) -> bool:
    """Say whether a process is the one of its worker that runs the jobs."""
    with suppress(psutil.Error):
        return any("--load-process" in word for word in process.cmdline())
    return False


def weigh(jobs: int, options: argparse.Namespace) -> Weight:
    """Run so many jobs and watch the processes: each load process, and all of the workers' added up."""
    operations = ONE_OPERATION if options.operations == 1 else TWO_OPERATIONS
    words = ("--noop", "--workers", options.workers, "-u", options.concurrency, "-o", jobs, "-R")
    peaks: dict[int, int] = {}
    load: set[int] = set()
    workers = 0
    with tempfile.TemporaryDirectory() as directory:
        started = subprocess.Popen(master_command(directory, noop_scenario(operations), *map(str, words)))
        root = psutil.Process(started.pid)
        while started.poll() is None:
            with suppress(psutil.NoSuchProcess):
                children = root.children(recursive=True)
                for process in [root, *children]:
                    peaks[process.pid] = max(peaks.get(process.pid, 0), high_water(process.pid))
                    # A process has its parent's command line until it has become another program.
                    if process.pid not in load and is_load_process(process):
                        load.add(process.pid)
                # Those that run side by side: tools that are asked something come and go.
                workers = max(workers, sum(peaks[process.pid] for process in children))
            time.sleep(POLL_S)
        if started.returncode:
            raise SystemExit(f"the run of {jobs:,} jobs ended with exit code {started.returncode}")
        stats = Path(directory, "run.stats.gz").stat().st_size
    return Weight(peaks[started.pid], max(peaks[pid] for pid in load), workers, stats)


def main() -> None:
    """Weigh each size in turn, and print the ratios of the last to the first."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=numbers, default="10k,100k,1M", help="in rising order, such as 10k,1M,10M")
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--operations", type=int, choices=(1, 2), default=1)
    options = parser.parse_args()
    weights = []
    for jobs in options.jobs:
        weights.append(each := weigh(jobs, options))
        told = (
            f"master {each.master / MIB:6.1f} MiB   load process {each.load / MIB:6.1f} MiB   "
            f"worker(s) in all {each.workers / MIB:6.1f} MiB"
        )
        print(f"{jobs:>12,} jobs: {told}   stats file {each.stats / jobs:6.1f} bytes a job", flush=True)
    first, last = weights[0], weights[-1]
    compared = f"at {options.jobs[-1]:,} jobs to that at {options.jobs[0]:,}"
    print_ratio(f"of the master's peak {compared}", last.master, first.master)
    print_ratio(f"of the load process's peak {compared}", last.load, first.load)
    print_ratio(f"of the workers' peak {compared}", last.workers, first.workers)


if __name__ == "__main__":
    main()
