"""Changes between runs of a known truth: how often one is found where there is none, and how often a real one is.

Three questions, of series of runs whose levels differ by 2 % (standard deviation) from run to run:

    history     series of 60 runs, looked at as a whole: the share with a step that is none, for five kinds of noise;
                steps of 4, 6 and 10 % after the 40th run; whether the interval of the step holds its true size.
                ``apache-otava`` with its defaults stands beside it where it is installed (pip install apache-otava,
                the extra ``otava``; in an environment of its own, as it wants its own numpy)
    gate        run after run, as ``run-scenario --baseline trend`` judges each: alarms, and confirmed changes, per
                unchanged run; how many runs a slower build of 6 or 10 % takes until it is confirmed
    --critical-values  prints the constants of ``bench_master/verdicts/change_points.py``

The exit code is 1 if, in white noise, more than one of 200 unchanged runs has a confirmed change, or less than 95 %
of the steps of 6 % are found.

    python benchmarks/trends.py [--series N] [--gate-series N] [--critical-values]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from common import parser_of

from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.change_points import MIN_SEGMENT, find_steps, judge_newest

Levels = np.ndarray[Any, Any]
RUNS: Final = 60
AFTER: Final = 40
MARGIN: Final = 0.03
SPREAD: Final = 0.02
"""Standard deviation of runs of the same build, as a share."""
NEAR: Final = 5
"""A step is found if it is named at most so many runs from where it is."""
LEAST_FOUND: Final = 0.95
MOST_FAILED: Final = 1 / 200


def autoregressive(generator: np.random.Generator, runs: int, correlation: float) -> Levels:
    """Return noise whose neighbours are alike."""
    found = generator.normal(size=runs)
    for place in range(1, runs):
        found[place] = correlation * found[place - 1] + math.sqrt(1 - correlation**2) * found[place]
    return SPREAD * found


def with_outliers(generator: np.random.Generator, runs: int) -> Levels:
    """Return noise in which one run of twenty takes 1.3 to 3 times as long."""
    slow = generator.random(runs) < 0.05
    return SPREAD * generator.normal(size=runs) + slow * np.log(generator.uniform(1.3, 3, runs))


NOISES: Final[dict[str, Callable[[np.random.Generator, int], Levels]]] = {
    "white": lambda generator, runs: SPREAD * generator.normal(size=runs),
    "lognormal": lambda generator, runs: SPREAD / 2.2 * np.exp(generator.normal(size=runs)),
    "AR .3": lambda generator, runs: autoregressive(generator, runs, 0.3),
    "AR .6": lambda generator, runs: autoregressive(generator, runs, 0.6),
    "5 % outliers": with_outliers,
}
STEPS: Final = (0.04, 0.06, 0.10)


def otava() -> Callable[[Levels], list[int]] | None:
    """Return Otava's analysis with its default options; None if it is not installed."""
    try:
        from otava.analysis import compute_change_points
        from otava.series import AnalysisOptions
    except ImportError:
        return None
    options = AnalysisOptions()

    def find(levels: Levels) -> list[int]:
        found, _ = compute_change_points(
            np.exp(levels).tolist(), options.window_len, options.max_pvalue, options.min_magnitude
        )
        return [one.index for one in found]

    return find


def percent(share: float) -> str:
    """Return a share as a cell."""
    return f"{100 * share:6.1f}"


def history(count: int, other: Callable[[Levels], list[int]] | None) -> float:
    """Print the rates of whole series; return the share of steps of 6 % that are found in white noise."""
    names = ["Weighbridge", *(["Otava"] if other else [])]
    print(f"history: {count:,} series of {RUNS} runs each, runs differ by {100 * SPREAD:.0f} %; per cent of series")
    print(f"{'noise':<14} {'method':<12} false  4 % found  6 % found  10 % found  interval holds 6 %")
    white = 0.0
    for noise, draw in NOISES.items():
        for name in names:
            generator = np.random.default_rng((60, len(noise)))
            few = count if name == "Weighbridge" else max(1, min(count, 300))
            false, covered = 0, [0, 0]
            found = dict.fromkeys(STEPS, 0)
            for _ in range(few):
                levels = draw(generator, RUNS)
                false += bool(places(levels, other if name == "Otava" else None))
                for size in STEPS:
                    changed = levels + math.log1p(size) * (np.arange(RUNS) >= AFTER)
                    here = places(changed, other if name == "Otava" else None)
                    found[size] += any(abs(place - AFTER) <= NEAR for place in here)
                    if size == STEPS[1] and name == "Weighbridge":
                        held = [one.interval for one in find_steps(changed, MARGIN) if abs(one.first - AFTER) <= NEAR]
                        covered[0] += sum(one.low <= math.log1p(size) <= one.high for one in held)
                        covered[1] += len(held)
            cells = [percent(found[size] / few) for size in STEPS]
            holds = percent(covered[0] / covered[1]) if covered[1] else "     -"
            print(f"{noise:<14} {name:<12}{percent(false / few)}    {'     '.join(cells)}      {holds}", flush=True)
            if noise == "white" and name == "Weighbridge":
                white = found[STEPS[1]] / few
    return white


def places(levels: Levels, other: Callable[[Levels], list[int]] | None) -> list[int]:
    """Return where a method finds steps."""
    return other(levels) if other is not None else [step.first for step in find_steps(levels, MARGIN)]


def gate(count: int) -> float:
    """Print the rates of runs that are judged one by one; return the share of unchanged runs that fail a gate."""
    judged = count * (RUNS - 10)
    print(f"\ngate: {judged:,} unchanged runs, the 11th to the {RUNS}th of {count:,} series; per cent of runs")
    print(f"{'noise':<14} alarms  confirmed")
    white = 0.0
    for noise, draw in NOISES.items():
        generator = np.random.default_rng((200, len(noise)))
        alarms = confirmed = 0
        for _ in range(count):
            levels = RunLevels.exact(draw(generator, RUNS))
            states = [judge_newest(levels.part(0, last), MARGIN).state for last in range(11, RUNS + 1)]
            alarms += states.count("unconfirmed")
            confirmed += states.count("confirmed")
        print(f"{noise:<14} {percent(alarms / judged)}     {100 * confirmed / judged:6.3f}", flush=True)
        if noise == "white":
            white = confirmed / judged
    few = max(10, count // 4)
    print(f"\ngate: a slower build after {AFTER} runs ({few:,} series): per cent confirmed by so many of its runs")
    print(f"{'spread, size':<14} " + " ".join(f"{runs:>6}" for runs in range(1, 9)))
    for spread, size in ((0.02, 0.06), (0.02, 0.10), (0.01, 0.06), (0.01, 0.10)):
        generator = np.random.default_rng(300)
        by = np.zeros(8)
        for _ in range(few):
            series = spread * generator.normal(size=AFTER + 8) + math.log1p(size) * (np.arange(AFTER + 8) >= AFTER)
            found = (judge_newest(RunLevels.exact(series[: AFTER + runs]), MARGIN).state for runs in range(1, 9))
            first = next((place for place, state in enumerate(found) if state == "confirmed"), 8)
            by[first:] += 1
        title = f"{100 * spread:.0f} %, {100 * size:.0f} %"
        print(f"{title:<14} " + " ".join(percent(share) for share in by / few), flush=True)
    return white


LENGTHS: Final = (
    *range(8, 21), 22, 24, 27, 30, 34, 38, 43, 48, 54, 60, 70, 80, 95, 110, 130, 160, 200, 260, 340, 450, 600, 800,
    1100, 1500, 2000,
)  # fmt: skip


def critical_values() -> None:
    """Print what the largest sum of ranks exceeds once in a thousand, for series of several lengths."""
    largest = 0.0
    for n in LENGTHS:
        generator = np.random.default_rng((20_140_101, n))
        wanted, chunk = 400_000 if n <= 130 else max(40_000, 60_000_000 // n), max(1000, 4_000_000 // n)
        before = np.arange(MIN_SEGMENT, n - MIN_SEGMENT + 1)
        scale = np.sqrt(before * (n - before) / (n - 1.0)) * math.sqrt((n * n - 1) / 12)
        centred = np.arange(1, n + 1, dtype=np.float32) - np.float32((n + 1) / 2)
        sums = []
        for _ in range(math.ceil(wanted / chunk)):
            shuffled = generator.permuted(np.broadcast_to(centred, (chunk, n)), axis=1).cumsum(axis=1)
            part = np.abs(shuffled[:, MIN_SEGMENT - 1 : n - MIN_SEGMENT])
            sums.append((part / scale.astype(np.float32)).max(axis=1))
        ordered = np.sort(np.concatenate(sums))
        largest = max(largest, float(ordered[len(ordered) - 1 - int(0.001 * len(ordered))]) + 1e-4)
        print(f"{n:5d}  {math.ceil(largest * 1000) / 1000:.3f}", flush=True)


def main() -> int:
    """Simulate and print; return the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--series", type=int, default=2000, help="series for each row of the history (default: 2000)")
    parser.add_argument("--gate-series", type=int, default=200, help="series of the gate (default: 200)")
    parser.add_argument("--critical-values", action="store_true", help="print the stored constants, and nothing else")
    options = parser.parse_args()
    if options.critical_values:
        critical_values()
        return 0
    began = time.monotonic()
    other = otava()
    found = history(options.series, other)
    if other is None:
        print("apache-otava is not installed: no comparison with it")
    failed = gate(options.gate_series)
    print(f"\n{time.monotonic() - began:.0f} s")
    print(f"ratio of unchanged runs that pass the gate to all: {1 - failed:.5f}")
    print(f"ratio of steps of 6 % that are found to all: {found:.4f}")
    return int(failed > MOST_FAILED or found < LEAST_FOUND)


if __name__ == "__main__":
    sys.exit(main())
