"""How long a report takes and what memory it needs, against merely unpacking the same stats file with zcat.

The file is written with the project's own writer: one treatment, jobs with the given number of operations, latencies
log-normal around 100 ms. Every report is made by a fresh process; beside the time that went by is the processor time
that it took, which other work on the machine changes less.

    python benchmarks/report_time.py [--jobs 1M,10M] [--operations N] [--formats text,csv,json,jsonl] [--repeats N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from common import numbers, parser_of, print_ratio

MIB = 1 << 20
BATCH = 10_000
IN_FLIGHT = 24


def header(operations: int) -> dict[str, object]:
    """Return the header of a run of one treatment and one trial."""
    from bench_common import __version__
    from bench_common.stats.reader import FORMAT, VERSION

    names = [f"step-{index + 1}" for index in range(operations)]
    labels = {"environment": "synthetic", "engine": "native"}
    treatment = {"index": 0, **labels, "labels": labels, "title": "engine=native", "operation_names": names}
    return {
        "format": FORMAT,
        "version": VERSION,
        "run_id": "synthetic",
        "created": "2026-01-02T03:04:05+00:00",
        "clock": {"unix_ns": 1_767_323_045_000_000_000, "monotonic_ns": 1_000_000_000_000},
        "scenario": {"name": "synthetic", "description": "", "path": "", "text": "", "document": {}, "notes": []},
        "thresholds": [],
        "order": "interleaved",
        "seed": 7,
        "argv": [],
        "versions": {"weighbridge": __version__, "python": sys.version.split()[0]},
        "noop": False,
        "sampling_interval_s": 1.0,
        "treatments": [{**treatment, "metrics": {}, "concurrency": IN_FLIGHT}],
        "trials": [[0, 0, False]],
    }


def write(path: str, jobs: int, operations: int) -> None:
    """Write a stats file of so many jobs, each `IN_FLIGHT` of which run side by side."""
    import numpy as np

    from bench_common.job_rows import JOB_ROW, OPERATION_ROW
    from bench_common.stats.reader import StatsWriter

    random = np.random.default_rng(7)
    writer = StatsWriter(path)
    writer.put("header", header(operations))
    first_ns = 1_001_000_000_000
    writer.put("event", {"at_ns": first_ns, "kind": "trial-begin", "trial": 0})
    free_ns = np.full(IN_FLIGHT, first_ns)
    for begin in range(0, jobs, BATCH):
        count = min(BATCH, jobs - begin)
        took = (random.lognormal(np.log(0.1 / operations), 0.5, (count, operations)) * 1e9).astype("i8")
        lasted = took.sum(axis=1)
        starts = np.empty(count, "i8")
        for lane in range(min(IN_FLIGHT, count)):
            own = lasted[lane::IN_FLIGHT]
            starts[lane::IN_FLIGHT] = free_ns[lane] + np.cumsum(own) - own
            free_ns[lane] += own.sum()
        rows = np.zeros(count, JOB_ROW)
        rows["ticket"], rows["start_ns"], rows["end_ns"] = np.arange(begin, begin + count), starts, starts + lasted
        order = np.argsort(rows["end_ns"])
        parts = np.zeros((count, operations), OPERATION_ROW)
        parts["ticket"], parts["ok"], parts["duration_ns"] = rows["ticket"][:, None], 1, took
        parts["operation"] = np.arange(operations)
        parts["start_ns"] = starts[:, None] + np.cumsum(took, axis=1) - took
        writer.operations(parts[order].reshape(-1))
        writer.jobs(rows[order])
        writer.flush()
    last_ns = int(free_ns.max())
    writer.put("event", {"at_ns": last_ns, "kind": "trial-end", "trial": 0})
    counts = {"planned": jobs, "done": jobs, "failed": 0, "lost": 0, "aborted": 0}
    end = {"ended": "2026-01-02T04:04:05+00:00", "status": "complete", "duration_s": (last_ns - first_ns) / 1e9}
    writer.close({**end, "counts": counts, "not_started": 0, "warnings": []})


class Spent(NamedTuple):
    """What a command took: seconds that went by, of processor time, and bytes of resident memory at its peak."""

    seconds: float
    cpu_s: float
    peak: int


def timed(command: list[str]) -> Spent:
    """Run a command to its end, whatever it prints."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:5]} ended with exit code {process.returncode}")
    return Spent(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def measure(path: Path, jobs: int, options: argparse.Namespace) -> None:
    """Time zcat and each report in turn, and print them."""
    commands = {"zcat": ["sh", "-c", 'zcat "$0" | wc -c', str(path)]}
    for name in options.formats:
        words = ["-m", "bench_master", "report-scenario", "-s", str(path), "--format", name]
        commands[name] = [sys.executable, *words]
    results: dict[str, list[Spent]] = {name: [] for name in commands}
    for _ in range(options.repeats):
        for name, command in commands.items():
            results[name].append(timed(command))
    seconds = {name: median(each.seconds for each in values) for name, values in results.items()}
    cpu_s = {name: median(each.cpu_s for each in values) for name, values in results.items()}
    print(f"zcat | wc -c: {seconds['zcat']:.2f} s, CPU {cpu_s['zcat']:.2f} s")
    for name in options.formats:
        took = f"{seconds[name]:.2f} s, CPU {cpu_s[name]:.2f} s ({cpu_s[name] / jobs * 1e6:.2f} us a job)"
        print(f"report as {name}: {took}, peak {max(each.peak for each in results[name]) / MIB:.0f} MiB")
    for name in options.formats:
        print_ratio(f"of the {name} report's time to zcat", seconds[name], seconds["zcat"])


def main() -> None:
    """Write each file in a process of its own, so that its memory is not taken for a report's, and measure."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=numbers, default="1M", help="such as 1M,10M")
    parser.add_argument("--operations", type=int, default=3, help="operations of each job")
    parser.add_argument("--formats", type=lambda text: text.split(","), default="text,csv,json", help="jsonl as well")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", metavar="FILE", type=Path, help="write the stats file, of one size, here to stay")
    parser.add_argument("--write", metavar="FILE", help="only write the stats file")
    options = parser.parse_args()
    if (options.write or options.keep) and len(options.jobs) > 1:
        parser.error("one file has one number of --jobs")
    if options.write:
        write(options.write, options.jobs[0], options.operations)
        return
    for jobs in options.jobs:
        with tempfile.TemporaryDirectory() as directory:
            path = options.keep or Path(directory, "synthetic.stats.gz")
            sizes = ["--jobs", str(jobs), "--operations", str(options.operations)]
            subprocess.run([sys.executable, __file__, *sizes, "--write", str(path)], check=True)
            size, each = path.stat().st_size, f"{jobs:,} jobs of {options.operations} operations"
            print(f"{each}: {size / MIB:.1f} MiB, {size / jobs:.1f} bytes a job", flush=True)
            measure(path, jobs, options)


if __name__ == "__main__":
    main()
