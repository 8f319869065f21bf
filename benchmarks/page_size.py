"""How large the HTML report is, and what it takes to make, by the number of treatments and of jobs.

The files are written with the project's own writer: interleaved trials of several engines and levels of concurrency,
jobs of three operations with log-normal latencies, and a reading of the host in each second. Each page is made by a
fresh process. Its size should depend on the treatments and not on the jobs.

    python benchmarks/page_size.py [--treatments 4,40] [--jobs 10k,1M] [--most BYTES]
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

from common import numbers, parser_of, print_ratio
from report_time import MIB, header, timed

ROUNDS = 6
OPERATIONS = 3
BATCH = 10_000
ENGINES = ("native", "runc", "crun", "containerd", "docker")
SECOND = 1_000_000_000


def plan(treatments: int) -> list[dict[str, object]]:
    """Return treatments of up to five engines, at as many levels of concurrency as it takes."""
    engines = ENGINES[: min(len(ENGINES), max(2, treatments // 2))]
    names = [f"step-{index + 1}" for index in range(OPERATIONS)]
    found: list[dict[str, object]] = []
    for index in range(treatments):
        concurrency = 2 ** (index // len(engines))
        labels = {"environment": "lab", "engine": engines[index % len(engines)], "concurrency": concurrency}
        title = " ".join(f"{key}={value}" for key, value in labels.items())
        entry = {"index": index, **labels, "labels": labels, "title": title, "operation_names": names, "metrics": {}}
        found.append(entry)
    return found


def write(path: str, treatments: int, jobs: int) -> None:
    """Write a stats file of so many jobs in all, batch by batch."""
    import numpy as np

    from bench_common.job_rows import JOB_ROW, OPERATION_ROW
    from bench_common.stats.reader import StatsWriter

    random = np.random.default_rng(7)
    trials = [[index, block, False] for block in range(ROUNDS) for index in range(treatments)]
    writer = StatsWriter(path)
    writer.put("header", header(OPERATIONS) | {"treatments": plan(treatments), "trials": trials})
    writer.put("host", {"worker": 0, "worker_id": "w", "host": "host", "environment": "lab", "slots": 1})
    first_ns = clock = 1001 * SECOND
    ticket, each = 0, max(1, jobs // len(trials))
    for trial, (treatment, _, _) in enumerate(trials):
        writer.put("event", {"at_ns": clock, "kind": "trial-begin", "trial": trial})
        for begin in range(0, each, BATCH):
            count = min(BATCH, each - begin)
            took = (random.lognormal(np.log(0.002 * (1 + treatment % 5)), 0.5, (count, OPERATIONS)) * 1e9).astype(
                "i8"
            )
            lasted = took.sum(axis=1)
            starts = clock + np.cumsum(lasted) - lasted
            rows = np.zeros(count, JOB_ROW)
            rows["ticket"], rows["treatment"], rows["trial"] = np.arange(ticket, ticket + count), treatment, trial
            rows["start_ns"], rows["end_ns"] = starts, starts + lasted
            parts = np.zeros((count, OPERATIONS), OPERATION_ROW)
            for name in ("ticket", "treatment", "trial"):
                parts[name] = rows[name][:, None]
            parts["ok"], parts["duration_ns"], parts["operation"] = 1, took, np.arange(OPERATIONS)
            parts["start_ns"] = starts[:, None] + np.cumsum(took, axis=1) - took
            writer.operations(parts.reshape(-1))
            writer.jobs(rows)
            writer.flush()
            clock, ticket = int(clock + lasted.sum()), ticket + count
        writer.put("event", {"at_ns": clock, "kind": "trial-end", "trial": trial})
    times = np.arange(first_ns, clock, SECOND)
    columns = {"time_ns": times, "interval_ns": np.full(len(times), SECOND)}
    columns |= {f"cpu_{state}_percent": random.uniform(0, 25, len(times)) for state in ("user", "system", "iowait")}
    columns |= {"memory_used_bytes": random.uniform(1e9, 2e9, len(times))}
    writer.samples(0, "host", columns, {name: "ns" if name.endswith("_ns") else "%" for name in columns})
    counts = {"planned": ticket, "done": ticket, "failed": 0, "lost": 0, "aborted": 0}
    end = {"ended": "2026-01-02T04:04:05+00:00", "status": "complete", "duration_s": (clock - first_ns) / SECOND}
    writer.close({**end, "counts": counts, "not_started": 0, "warnings": []})


def measure(folder: Path, treatments: int, jobs: int) -> int:
    """Make a page, print what it took, and return its size in bytes."""
    path, page = folder / f"{treatments}-{jobs}.stats.gz", folder / f"{treatments}-{jobs}.html"
    sizes = ["--treatments", str(treatments), "--jobs", str(jobs)]
    subprocess.run([sys.executable, __file__, *sizes, "--write", str(path)], check=True)
    words = ["report-scenario", "-s", str(path), "--format", "html", "-f", str(page)]
    spent = timed([sys.executable, "-m", "bench_master", *words])
    text = page.read_bytes()
    charts = text.count(b'<svg class="wide"')
    took = f"{spent.seconds:.2f} s, CPU {spent.cpu_s:.2f} s, peak {spent.peak / MIB:.0f} MiB"
    size = f"{len(text):,} bytes, {len(gzip.compress(text)):,} compressed, {charts} charts"
    print(f"{treatments} treatments, {jobs:,} jobs: {size}; {took}", flush=True)
    return len(text)


def main() -> None:
    """Measure each combination; fail where a page is larger than it may be."""
    parser = parser_of(__doc__)
    parser.add_argument("--treatments", type=numbers, default="4,40", help="such as 4,40")
    parser.add_argument("--jobs", type=numbers, default="10k,1M", help="jobs in all, such as 10k,1M")
    parser.add_argument("--most", type=int, default=2_000_000, help="bytes that no page may exceed")
    parser.add_argument("--write", metavar="FILE", help="only write a stats file")
    options = parser.parse_args()
    if options.write:
        write(options.write, options.treatments[0], options.jobs[0])
        return
    with tempfile.TemporaryDirectory() as directory:
        sizes = {
            (treatments, jobs): measure(Path(directory), treatments, jobs)
            for treatments in options.treatments
            for jobs in options.jobs
        }
    for treatments in options.treatments:
        own = [sizes[treatments, jobs] for jobs in options.jobs]
        print_ratio(f"of the page's size with the most jobs, {treatments} treatments", own[-1], own[0])
    if max(sizes.values()) > options.most:
        raise SystemExit(f"a page has {max(sizes.values()):,} bytes; the most is {options.most:,}")


if __name__ == "__main__":
    main()
