"""How long a report takes and what memory it needs, against merely unpacking the same stats file with zcat.

The file is written with the project's own writer: one treatment, jobs with the given number of operations, latencies
log-normal around 100 ms. Every report is made by a fresh process.

    python benchmarks/report_time.py [--jobs N] [--operations N] [--repeats N] [--keep FILE]
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

from common import numbers, parser_of, print_ratio

MIB = 1 << 20
BATCH = 10_000
IN_FLIGHT = 24
FORMATS = ("text", "csv", "json")


def header(operations: int) -> dict[str, object]:
    """Return the header of a run of one treatment and one trial."""
    from bench_common import __version__
    from bench_common.statsfile import FORMAT, VERSION

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

    from bench_common.records import JOB_ROW, OPERATION_ROW
    from bench_common.statsfile import StatsWriter

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


def timed(command: list[str]) -> tuple[float, int]:
    """Return the seconds that a command took, and its peak resident memory in bytes."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:5]} ended with exit code {process.returncode}")
    return seconds, usage.ru_maxrss * 1024


def measure(path: Path, options: argparse.Namespace) -> None:
    """Time zcat and each report in turn, and print them."""
    commands = {"zcat": ["sh", "-c", 'zcat "$0" | wc -c', str(path)]}
    for name in FORMATS:
        words = ["-m", "bench_master", "report-scenario", "-s", str(path), "--format", name]
        commands[name] = [sys.executable, *words]
    results: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
    for _ in range(options.repeats):
        for name, command in commands.items():
            results[name].append(timed(command))
    seconds = {name: median(each for each, _ in values) for name, values in results.items()}
    print(f"zcat | wc -c: {seconds['zcat']:.2f} s")
    for name in FORMATS:
        peak = max(each for _, each in results[name])
        print(f"report as {name}: {seconds[name]:.2f} s, peak {peak / MIB:.0f} MiB")
    for name in FORMATS:
        print_ratio(f"of the {name} report's time to zcat", seconds[name], seconds["zcat"])


def main() -> None:
    """Write the file in a process of its own, so that its memory is not taken for a report's, and measure."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=numbers, default="1M")
    parser.add_argument("--operations", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", metavar="FILE", type=Path, help="write the stats file here and leave it there")
    parser.add_argument("--write", metavar="FILE", help="only write the stats file")
    options = parser.parse_args()
    jobs = options.jobs[0]
    if options.write:
        write(options.write, jobs, options.operations)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = options.keep or Path(directory, "synthetic.stats.gz")
        sizes = ["--jobs", str(jobs), "--operations", str(options.operations)]
        subprocess.run([sys.executable, __file__, *sizes, "--write", str(path)], check=True)
        size = path.stat().st_size
        print(
            f"{jobs:,} jobs of {options.operations} operations: {size / MIB:.1f} MiB, {size / jobs:.1f} bytes a job"
        )
        measure(path, options)


if __name__ == "__main__":
    main()
