"""Would readings of the host's speed make intervals narrower? The exact adjustment, on made-up and on real runs.

Before each trial a worker times a fixed piece of work. A round has a difference d of two trials and one p of their
readings. The adjustment takes b p from d, with the slope through the origin b = sum(d p) / sum(p p): which of the
two ran first was drawn, and the other order turns the signs of d and p together and leaves b as it is. So the
signed rank of the rest is exact. The interval of the effect f, for which ``d - f`` is adjusted, has ends that are
order statistics of ``(r_i + r_j) / (c_i + c_j)`` with ``r = d - b p`` and ``c = 1 - p sum(p) / sum(p p)``; where a
sum of c is not above 0, the ratio counts for no limit.

Made-up runs: the probe reads the share r2 of the variance of trials. Words are false where there is no difference;
one of 5 % is found where the interval lies above 0; the width is that of the adjusted interval by that of today's,
in the median. Intervals at 95 %, of one comparison.

Real runs (``--runs``): equal treatments, short programs that compute, as ``bench-master certify`` runs them, with
plain processes on this machine as it is. ``before`` is what stats files have; ``before, after`` the mean of the
readings on either side of a trial; ``beside`` the median of what a process that does such work 20 times a second
took during the trial, which only this script has. It takes some CPU time from the jobs. An adjustment pays where
the interval of the widths lies below 1. ``--files`` judges runs of a treatment against itself (``aa``) that are
there.

    python benchmarks/probe_adjustment.py [--simulated N] [--runs N] [--rounds N] [--jobs N] [--files FILE ...]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from common import master_command, parser_of

from bench_common.stats.reader import StatsFile
from bench_features.certify.evidence import tell_apart
from bench_features.certify.runs import own_plan
from bench_master.run_data.measured import MeasuredRun, Part
from bench_master.verdicts.decision import ALPHA
from bench_master.verdicts.signed_rank import critical_value, estimate, exact_interval, exact_intervals

Values = np.ndarray[Any, Any]
EFFECT: Final = math.log(1.05)
SPREAD: Final = 0.03
"""Standard deviation of trials, as a share."""
DRIFT: Final = 0.2
SHARES: Final = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8)
ROUNDS: Final = (6, 10, 20)
LOOK_S: Final = 0.05
"""How long the process beside the run sleeps between two readings."""
WORK: Final = 20_000
"""Steps of a reading of that process: about a millisecond."""


def adjusted_intervals(d: Values, p: Values, alpha: float = ALPHA) -> tuple[Values, Values]:
    """Return the ends of the adjusted interval of each row of differences `d`, with readings `p`."""
    n = d.shape[1]
    squares = np.maximum((p**2).sum(axis=1), 1e-300)
    slope, own = (d * p).sum(axis=1) / squares, p.sum(axis=1) / squares
    rest, weights = d - slope[:, None] * p, 1.0 - own[:, None] * p
    rows, columns = np.triu_indices(n)
    above, below = rest[:, rows] + rest[:, columns], weights[:, rows] + weights[:, columns]
    known = below > 1e-9
    ratios = above / np.where(known, below, 1.0)
    c = critical_value(n, alpha)
    low = np.sort(np.where(known, ratios, -math.inf), axis=1)[:, c]
    high = np.sort(np.where(known, ratios, math.inf), axis=1)[:, len(rows) - 1 - c]
    return low, high


# -- made-up runs ---------------------------------------------------------------------------------------------------


def alike(generator: np.random.Generator, runs: int, trials: int, correlation: float) -> Values:
    """Return noise of spread 1 whose neighbours are alike."""
    found = generator.normal(size=(runs, trials))
    for place in range(1, trials):
        found[:, place] = correlation * found[:, place - 1] + math.sqrt(1 - correlation**2) * found[:, place]
    return found


def outlying(generator: np.random.Generator, runs: int, trials: int) -> Values:
    """Return noise in which one trial of ten is ten times as far away."""
    return generator.normal(size=(runs, trials)) * np.where(generator.random((runs, trials)) < 0.1, 10.0, 1.0)


NOISES: Final[Mapping[str, tuple[Callable[[np.random.Generator, int, int], Values], float]]] = {
    "white": (lambda generator, runs, trials: alike(generator, runs, trials, 0.0), 0.0),
    "AR .6": (lambda generator, runs, trials: alike(generator, runs, trials, 0.6), 0.0),
    "AR .9": (lambda generator, runs, trials: alike(generator, runs, trials, 0.9), 0.0),
    "drift 20 %": (lambda generator, runs, trials: alike(generator, runs, trials, 0.0), DRIFT),
    "outliers": (outlying, 0.0),
}
"""The noise of trials, and how much both trials and probe grow over the run."""


def simulate(noise: str, share: float, rounds: int, runs: int) -> tuple[Values, Values]:
    """Return the differences of the rounds of equal treatments, and those of the readings; a row for each run."""
    generator = np.random.default_rng((rounds, len(noise), int(100 * share)))
    draw, drift = NOISES[noise]
    read, own = draw(generator, runs, 2 * rounds), draw(generator, runs, 2 * rounds)
    grown = np.linspace(0.0, math.log1p(drift), 2 * rounds)
    trials = SPREAD * (math.sqrt(share) * read + math.sqrt(1.0 - share) * own) + grown
    probe = SPREAD * read + grown
    signs = np.where(generator.random((runs, rounds)) < 0.5, -1.0, 1.0)
    return tuple(signs * (one[:, 1::2] - one[:, ::2]) for one in (trials, probe))  # type: ignore[return-value]


def made_up(runs: int) -> None:
    """Print the table of made-up runs."""
    print(f"made-up runs, {runs:,} a row, intervals at 95 %: now / adjusted")
    print(f"{'noise':<12} {'n':>2}   r2   false words, %   5 % found, %    width, adjusted by now")
    for noise in NOISES:
        for rounds in ROUNDS:
            for share in SHARES:
                d, p = simulate(noise, share, rounds, runs)
                today = exact_intervals(d, ALPHA)
                assert today is not None
                found = (today, adjusted_intervals(d, p))
                false = [100 * np.mean((low > 0) | (high < 0)) for low, high in found]
                power = [100 * np.mean(low + EFFECT > 0) for low, _ in found]
                widths = [high - low for low, high in found]
                print(
                    f"{noise:<12} {rounds:>2} {share:4.1f}       {false[0]:4.1f} / {false[1]:4.1f}"
                    f"     {power[0]:5.1f} / {power[1]:5.1f}       {np.median(widths[1] / widths[0]):6.2f}",
                    flush=True,
                )


# -- real runs ------------------------------------------------------------------------------------------------------

Rounds = dict[str, tuple[Values, Values]]
"""The differences of the rounds of a run by the kind of reading, and those of the readings."""
Beside = Sequence[tuple[int, int]]
"""When each reading of the process beside a run began, on the monotonic clock, and how long it took, in ns."""


def read_speed(out: Any, stop: Any) -> None:
    """Read the host's speed until `stop` is set, and send what was read."""
    found = []
    while not stop.wait(LOOK_S):
        began = time.monotonic_ns()
        sum(range(WORK))
        found.append((began, time.monotonic_ns() - began))
    out.send(found)


def make_run(rounds: int, jobs: int) -> Rounds:
    """Make a run of equal treatments with a process beside it, and return its rounds."""
    document = own_plan("native", rounds).document
    assert document is not None
    document["iterations"] = jobs
    here, there = multiprocessing.Pipe()
    stop = multiprocessing.Event()
    reader = multiprocessing.Process(target=read_speed, args=(there, stop))
    with tempfile.TemporaryDirectory() as directory:
        command = master_command(directory, document, "--workers", "1")
        reader.start()
        try:
            subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        finally:
            stop.set()
            found = here.recv()
            reader.join()
        return rounds_of(StatsFile(Path(directory, "run.stats.gz")), found)


def rounds_of(stats: StatsFile, beside: Beside) -> Rounds:
    """Return the differences of the rounds of a run, by the kind of reading, and those of the readings."""
    twins = tell_apart(stats.header)
    run = MeasuredRun(stats)
    run.prepare({Part.TRIALS})
    table = run.trials("worst")
    (speeds, *_) = run.sums.speeds.values()
    before = {one.trial: math.log(one.wall_ns) for one in speeds}
    around = {trial: (read + before.get(trial + 1, read)) / 2 for trial, read in before.items()}
    during = {}
    if beside:
        at, took = np.array(beside).T
        for one in run.spans:
            own = took[(at >= one.begin_ns) & (at < one.end_ns)]
            if len(own):
                during[one.trial] = math.log(float(np.median(own)))
    found = {}
    for name, read in (("before", before), ("before, after", around), ("beside", during)):
        pairs = []
        for one in twins:
            a, b = table.rounds[one.a], table.rounds[one.b]
            for block in sorted(a.keys() & b.keys()):
                first, second = a[block], b[block]
                if first.trial in read and second.trial in read:
                    pairs.append((math.log(second.value / first.value), read[second.trial] - read[first.trial]))
        if len(pairs) >= ROUNDS[0]:
            d, p = np.array(pairs).T
            found[name] = d, p
    return found


def real(runs: Sequence[Rounds]) -> None:
    """Print what each kind of reading does to the intervals of real runs."""
    print(f"\n{'reading':<14} runs  r2, by chance   false words now, adjusted   width [interval]")
    for name in dict.fromkeys(name for one in runs for name in one):
        own = [one[name] for one in runs if name in one]
        squares, chance, ratios, false = [], [], [], np.zeros(2, int)
        for d, p in own:
            today, adjusted = (
                exact_interval(d, d, ALPHA),
                [float(end[0]) for end in adjusted_intervals(d[None], p[None])],
            )
            squares.append((d * p).sum() ** 2 / max((d * d).sum() * (p * p).sum(), 1e-300))
            chance.append(1 / len(d))
            ratios.append(math.log((adjusted[1] - adjusted[0]) / (today.high - today.low)))
            false += (today.excludes_zero(), adjusted[0] > 0 or adjusted[1] < 0)
        interval = exact_interval(np.array(ratios), np.array(ratios), ALPHA)
        ends = f"[{math.exp(interval.low):.2f}, {math.exp(interval.high):.2f}]" if len(own) >= ROUNDS[0] else ""
        print(
            f"{name:<14} {len(own):>4}  {np.mean(squares):.3f}, {np.mean(chance):.3f}     "
            f"{false[0]:>3}, {false[1]:<3}                     {math.exp(estimate(np.array(ratios))):.2f} {ends}"
        )


def main() -> None:
    """Simulate, run and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--simulated", type=int, default=4000, help="made-up runs of each row (default: 4000)")
    parser.add_argument("--runs", type=int, default=0, help="real runs to make (default: none)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each of them (default: 10)")
    parser.add_argument("--jobs", type=int, default=10, help="jobs of each trial (default: 10)")
    parser.add_argument("--files", nargs="*", type=Path, default=[], help="stats files of runs with aa to judge")
    options: argparse.Namespace = parser.parse_args()
    if options.simulated:
        made_up(options.simulated)
    found = [rounds_of(StatsFile(path), []) for path in options.files]
    for number in range(1, options.runs + 1):
        found.append(make_run(options.rounds, options.jobs))
        read = ", ".join(f"{name} {len(d)}" for name, (d, _) in found[-1].items())
        print(f"run {number}: rounds with a reading: {read}", flush=True)
    if found:
        real(found)


if __name__ == "__main__":
    main()
