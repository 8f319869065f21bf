"""Where each millisecond of a life cycle goes: one container after the other, through one slot of one worker.

It runs containers that sleep, kills and removes them, and reads the stamps of the run: how long each operation took,
and how long the gap before it was, in which Weighbridge prepares, records, and fetches the next job. All of them
together are the time from the end of one job to the end of the next. The figures are medians over the jobs, half of
which lie between those in parentheses. The leanest client of the same engine (see ``life_cycles.py``) has a turn
before and after, and its time for a life cycle is printed beside.

    python benchmarks/life_cycle_trace.py [--engine docker,podman,...] [--jobs N] [--image NAME]

An engine that is not usable here, or has no bare client, is told as left out; exit code 3 if that is all of them.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from common import master_command, parser_of, print_ratio
from life_cycles import UNAVAILABLE, bare_module, engines, in_threads, scenario_of

PREPARATION = "before"
"""How the gap before an operation is called."""
FEWEST = 3
"""How many jobs there must be for quartiles of the gaps."""


def spans(jobs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the milliseconds of each operation and of each gap, in their order; of a first job there is no gap."""
    found: dict[str, list[float]] = {}
    ended: float | None = None
    for job in sorted(jobs, key=lambda job: float(job["start_s"])):
        for name, operation in job["operations"].items():
            gap = found.setdefault(f"{PREPARATION} {name}", [])
            if ended is not None:
                gap.append(1000 * (operation["start_s"] - ended))
            found.setdefault(name, []).append(1000 * operation["duration_s"])
            ended = operation["start_s"] + operation["duration_s"]
    return found


def jobs_through_weighbridge(engine: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the life cycles and return the jobs as the stats file has them."""
    with tempfile.TemporaryDirectory() as directory:
        words = ("--workers", "1", "-u", "1", "-o", str(options.jobs), "-R")
        command = master_command(directory, scenario_of(engine, options), *words)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        stats = str(Path(directory, "run.stats.gz"))
        report = [sys.executable, "-m", "bench_master", "report-scenario", "-s", stats, "--format", "jsonl"]
        lines = subprocess.run(report, stdout=subprocess.PIPE, check=True).stdout.splitlines()
    return [row for row in map(json.loads, lines) if "operations" in row]


def print_table(found: dict[str, list[float]]) -> tuple[float, float]:
    """Print the operations and the gaps; return what all of them, and the operations alone, take together."""
    total = operations = 0.0
    for name, each in found.items():
        low, _, high = quantiles(each, n=4, method="inclusive")
        print(f"    {name:<16} {median(each):8.2f} ms ({low:.2f} to {high:.2f})")
        total += median(each)
        operations += 0.0 if name.startswith(PREPARATION) else median(each)
    print(f"    {'together':<16} {total:8.2f} ms")
    return total, operations


def trace(engine: str, options: argparse.Namespace) -> str:
    """Trace the life cycles of an engine; return why it was left out, if it was."""
    module = bare_module(engine)
    if isinstance(module, str):
        return module
    try:
        clients = module.clients(engine, options)
        if isinstance(clients, str):
            return clients
        name, loop = next(iter(clients.items()))
        half = max(1, options.jobs // 2)
        bare = [1000 / in_threads(loop, half, 1)]
        try:
            jobs = jobs_through_weighbridge(engine, options)
        except subprocess.CalledProcessError as error:
            return f"a run ended with exit code {error.returncode}, for the reason above"
        bare.append(1000 / in_threads(loop, half, 1))
    finally:
        module.clean_up(engine, options)
    print(f"{engine}, one in flight, {len(jobs)} life cycles:")
    total, operations = print_table(spans(jobs))
    print(f"    {name:<16} {mean(bare):8.2f} ms for a life cycle")
    print_ratio(f"{engine}, a life cycle to its operations alone", total, operations)
    print_ratio(f"{engine}, a life cycle to that of {name}", total, mean(bare))
    return ""


def main() -> None:
    """Trace the life cycles of each engine."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", type=engines, default="docker,podman,containerd,cri,runc,crun,native")
    parser.add_argument("--jobs", type=int, default=100, help="life cycles")
    parser.add_argument("--image", default="weighbridge/base")
    parser.add_argument("--mark", default=secrets.token_hex(6), help="label of the bare client's containers")
    options = parser.parse_args()
    if options.jobs < FEWEST:
        parser.error(f"--jobs {options.jobs}: at least {FEWEST} are needed")
    left_out = 0
    for engine in options.engine:
        if reason := trace(engine, options):
            left_out += 1
            print(f"{engine} is left out: {reason}", file=sys.stderr, flush=True)
    if left_out == len(options.engine):
        raise SystemExit(UNAVAILABLE)


if __name__ == "__main__":
    main()
