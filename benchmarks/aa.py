"""A treatment against itself: how often verdicts, and other methods, find a difference where there is none.

Each run measures the same jobs under two names, in several pairs (``--pairs``), interleaved in a drawn order, on this
machine as it is: nothing else tells the two sides apart, so each difference that is found is false. Weighbridge's own
verdicts are counted from the report of each run. The same figures are then given to the methods in common use:

    Welch, pooled jobs        Welch's t test on all jobs of each side
    Mann-Whitney, jobs        the rank-sum test on all jobs of each side
    Mann-Whitney, trials      the rank-sum test on the medians of the trials, as benchstat does with runs
    mean +- sd, trials        the bars do not overlap, as one reads hyperfine's +-

All test at 5 %. Each share comes with its exact binomial interval (Clopper and Pearson). The exit code is 1 if
Weighbridge's verdicts err more often than their level says, beyond that interval.

    python benchmarks/aa.py [--engine native|docker|...] [--runs N] [--rounds N] [--jobs N] [--pairs N]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from common import master_command, parser_of

from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile
from bench_master.verdicts.decision import ALPHA
from bench_master.verdicts.rank_sum import rank_sum_p
from bench_master.verdicts.signed_rank import MIN_ROUNDS, exact_interval
from bench_master.verdicts.student import binomial_interval, t_two_sided

IMAGE: Final = "weighbridge/base"
UNDECIDED: Final = frozenset({"same", "inconclusive", "refused"})
Sides = tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]
"""The jobs of each trial of both sides, in seconds."""


def scenario(options: argparse.Namespace) -> dict[str, Any]:
    """Return the same job under two names, in so many pairs."""
    container: dict[str, Any] = {"command": options.command.split()}
    if options.engine != "native":
        container |= {"image": options.image, "network": "none"}
    job = {"operations": ["run", "wait", "remove"]}
    return {
        "name": "against itself",
        "engines": [options.engine],
        "container": container,
        "matrix": {"container.env.PAIR": [str(pair) for pair in range(options.pairs)]},
        "jobs": {"one": job, "other": job},
        "repeats": options.rounds,
        "warmup": 1,
        "iterations": options.jobs,
    }


def measure(options: argparse.Namespace) -> tuple[dict[str, Any], list[Sides]]:
    """Run the scenario; return its report and the jobs of each pair."""
    with tempfile.TemporaryDirectory() as directory:
        words = ["--workers", "1", "--baseline", "job=one", "--format", "json"]
        done = subprocess.run(
            master_command(directory, scenario(options), *words), stdout=subprocess.PIPE, check=False
        )
        if not done.stdout:
            raise SystemExit(f"the run ended with exit code {done.returncode}")
        return json.loads(done.stdout), pairs_of(StatsFile(Path(directory, "run.stats.gz")))


def pairs_of(stats: StatsFile) -> list[Sides]:
    """Return the jobs of the measured trials, pair by pair."""
    header = stats.header
    trials: dict[int, list[np.ndarray[Any, Any]]] = {}
    for rows in stats.iter_jobs():
        done = rows[rows["outcome"] == Outcome.DONE]
        for trial in np.unique(done["trial"]):
            own = done[done["trial"] == trial]
            trials.setdefault(int(trial), []).append((own["end_ns"] - own["start_ns"]) / 1e9)
    sides: dict[tuple[str, str], list[np.ndarray[Any, Any]]] = {}
    for trial, (treatment, _, warmup) in enumerate(header.trials):
        if trial in trials and not warmup:
            labels = header.treatments[treatment].labels
            pair = next(str(value) for key, value in labels.items() if key.endswith("PAIR"))
            sides.setdefault((pair, str(labels["job"])), []).append(np.concatenate(trials[trial]))
    names = dict.fromkeys(pair for pair, _ in sides)
    return [(sides[pair, "one"], sides[pair, "other"]) for pair in names]


def welch(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """Return the two-sided p of Welch's t test."""
    a, b = first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)
    if not a + b:
        return 1.0
    degrees = (a + b) ** 2 / (a * a / (len(first) - 1) + b * b / (len(second) - 1))
    return t_two_sided(float((first.mean() - second.mean()) / math.sqrt(a + b)), float(degrees))


def bars_apart(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    """Return whether mean +- standard deviation of the two do not overlap."""
    return bool(abs(first.mean() - second.mean()) > first.std(ddof=1) + second.std(ddof=1))


def jobs(trials: Iterable[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return all jobs of one side."""
    return np.concatenate(list(trials))


def medians(trials: Iterable[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the median of each trial."""
    return np.array([np.median(trial) for trial in trials])


NAIVE: Final[Mapping[str, Callable[[Sides], bool]]] = {
    "Welch, pooled jobs": lambda sides: welch(jobs(sides[0]), jobs(sides[1])) < ALPHA,
    "Mann-Whitney, jobs": lambda sides: rank_sum_p(jobs(sides[0]), jobs(sides[1])) < ALPHA,
    "Mann-Whitney, trials": lambda sides: rank_sum_p(medians(sides[0]), medians(sides[1])) < ALPHA,
    "mean +- sd, trials": lambda sides: bars_apart(medians(sides[0]), medians(sides[1])),
}


def alone(comparison: Mapping[str, Any]) -> bool:
    """Return whether the interval of a comparison, taken for itself at 5 %, excludes "no difference"."""
    ratios = np.log([ratio for ratio in comparison["per_round"] if ratio])
    return len(ratios) >= MIN_ROUNDS and exact_interval(ratios, ratios, ALPHA).excludes_zero()


def line(what: str, found: int, of: int) -> str:
    """Return one row of the table."""
    low, high = binomial_interval(found, of)
    return f"{what:<44} {found:>4} of {of:<5} {100 * found / of:>5.1f} %   [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> int:
    """Measure and print; return the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", default="native", help="engine to hold against itself (default: native)")
    parser.add_argument("--runs", type=int, default=10, help="runs (default: 10)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each run (default: 10)")
    parser.add_argument("--jobs", type=int, default=10, help="jobs of each trial (default: 10)")
    parser.add_argument("--pairs", type=int, default=4, help="pairs of equal treatments in each run (default: 4)")
    parser.add_argument("--command", default="true", help="what each job runs (default: true)")
    parser.add_argument("--image", default=IMAGE, help=f"image of engines with images (default: {IMAGE})")
    options = parser.parse_args()
    began = time.monotonic()
    words: list[str] = []
    runs_that_err = singles = 0
    pairs: list[Sides] = []
    for run in range(1, options.runs + 1):
        report, sides = measure(options)
        found = report["verdicts"]["comparisons"]
        words += [each["verdict"] for each in found]
        runs_that_err += any(each["verdict"] not in UNDECIDED for each in found)
        singles += sum(map(alone, found))
        pairs += sides
        print(f"run {run}: {', '.join(each['verdict'] for each in found)}", flush=True)
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    size = f"{options.runs} runs of {options.pairs} pairs, {options.rounds} rounds, {options.jobs} jobs a trial"
    print(f"\n{options.engine} against itself: {size}, {time.monotonic() - began:.0f} s; verdicts: {counts}\n")
    print(f"{'a difference where there is none':<44} {'found':<13} share     95 % interval")
    print(line("Weighbridge, any verdict of a run", runs_that_err, options.runs))
    print(line("Weighbridge, each comparison alone at 5 %", singles, len(words)))
    for name, differs in NAIVE.items():
        print(line(name, sum(map(differs, pairs)), len(pairs)))
    beyond = max(binomial_interval(runs_that_err, options.runs)[0], binomial_interval(singles, len(words))[0])
    if beyond > ALPHA:
        print("more often than the level says")
    return int(beyond > ALPHA)


if __name__ == "__main__":
    sys.exit(main())
