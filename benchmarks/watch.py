"""Watching series of runs for ever: the product's rules, an e-detector with a stated run length, and Otava.

Each method looks at a series run after run, and stops at its first alarm. The methods:

    confirmed   what ``--baseline trend`` fails a gate for: a change that a second run, or the history, confirms
    alarm       the same with changes that no second run has confirmed yet, which pass the gate
    ranks       an e-detector on sequential ranks: where runs are exchangeable its mean run length to a false alarm is
                at least what was stated, whatever their distribution
    Student     an e-detector on studentised recursive residuals: the same promise for normal runs only
    Otava       ``apache-otava`` with its defaults, on all runs up to the newest, where it is installed

An e-detector (Shin, Ramdas and Rinaldo, 2024) sums e-processes that start at each run, as Shiryaev and Roberts do:
with a factor e of mean 1 or less for the newest run, M becomes e (M + 1), and there is an alarm where M reaches the
stated run length. Here M is the mean over shifts of 1, 2 and 4 standard deviations, up and down. As for the
product's rules, an alarm needs a size above the margin, which only makes alarms rarer.

Two tables: unchanged series, with the mean run length to a false alarm (all runs looked at by all alarms, with an
exact interval at 95 %; the promise is broken where the interval lies below it), and changed ones, with the runs of
the new level up to the alarm, and the share that is not found in 30 of them. Series in which an e-detector stopped
before the change are left out; the other methods are asked from the change on. As the product's rules and Otava
take milliseconds a run, they get shorter and fewer series than the e-detectors. ``--values`` follows one real
series instead, such as that of ``tests/tigerbeetle_test.py`` in the source package of ``apache-otava``, which says
where it changes; an e-detector begins anew at each change.

    python benchmarks/watch.py [--series N] [--fast-series N] [--promise N ...] [--values FILE]
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from common import parser_of
from trends import MARGIN, NEAR, SPREAD, Levels, autoregressive, otava, with_outliers

from bench_master.verdicts.between_runs import MIN_ARCHIVE, RunLevels
from bench_master.verdicts.change_points import judge_newest
from bench_master.verdicts.student import chi_squared_quantile

SHORT: Final = 120
LONG: Final = 1000
"""Runs of an unchanged series: of methods that take long, and of the e-detectors."""
AFTER: Final = 40
WITHIN: Final = 30
"""A change that no alarm has told after so many runs is missed."""
SHIFTS: Final = np.array([-4.0, -2.0, -1.0, 1.0, 2.0, 4.0])
"""What the e-detectors bet on, in standard deviations."""
WEEK: Final = 7
_NORMAL: Final = NormalDist()

Draw = Callable[[np.random.Generator, int], Levels]


def weekly(generator: np.random.Generator, runs: int) -> Levels:
    """Return noise of which half of the variance is a wave of a week, of nightly runs."""
    wave = np.sin(2 * math.pi * (np.arange(runs) / WEEK + generator.random()))
    return SPREAD * (wave + math.sqrt(0.5) * generator.normal(size=runs))


NOISES: Final[dict[str, Draw]] = {
    "white": lambda generator, runs: SPREAD * generator.normal(size=runs),
    "lognormal": lambda generator, runs: SPREAD / 2.2 * np.exp(generator.normal(size=runs)),
    "Student's t, 2 degrees": lambda generator, runs: SPREAD / 1.5 * generator.standard_t(2, size=runs),
    "5 % outliers": with_outliers,
    "a week's wave": weekly,
    "AR .3": lambda generator, runs: autoregressive(generator, runs, 0.3),
    "AR .6": lambda generator, runs: autoregressive(generator, runs, 0.6),
}


def step(size: float) -> Callable[[int], Levels]:
    """Return what a step adds to the runs from the change on."""
    return lambda runs: np.full(runs, math.log1p(size))


def ramp(size: float, over: int) -> Callable[[int], Levels]:
    """Return what a change adds that takes so many runs."""
    return lambda runs: math.log1p(size) * np.minimum(1.0, np.arange(1, runs + 1) / over)


CHANGES: Final[tuple[tuple[str, str, int, Callable[[int], Levels]], ...]] = (
    ("+4 %", "white", AFTER, step(0.04)),
    ("+6 %", "white", AFTER, step(0.06)),
    ("+10 %", "white", AFTER, step(0.10)),
    ("+6 % after 10 runs", "white", 10, step(0.06)),
    ("+10 % over 20 runs", "white", AFTER, ramp(0.10, 20)),
    ("+6 %", "lognormal", AFTER, step(0.06)),
    ("+6 %", "Student's t, 2 degrees", AFTER, step(0.06)),
    ("+6 %", "5 % outliers", AFTER, step(0.06)),
    ("+6 %", "a week's wave", AFTER, step(0.06)),
    ("+6 %", "AR .3", AFTER, step(0.06)),
)


# -- the e-detectors ------------------------------------------------------------------------------------------------


def rank_factors(levels: Levels) -> Levels:
    """Return the factor of each run (series, runs, shifts), by its rank among the runs up to it.

    Under exchangeability all ranks are as likely, and the bets are scaled so that their mean over the ranks is 1.
    Equal runs share the mean of their bets.
    """
    series, runs = levels.shape
    found = np.ones((series, runs, len(SHIFTS)))
    for place in range(MIN_ARCHIVE, runs):
        before, new = levels[:, :place], levels[:, place, None]
        lower, upper = (before < new).sum(axis=1), (before <= new).sum(axis=1)
        scores = np.array([_NORMAL.inv_cdf((rank + 0.5) / (place + 1)) for rank in range(place + 1)])
        bets = np.exp(np.outer(scores, SHIFTS))
        totals = np.concatenate([np.zeros((1, len(SHIFTS))), (bets / bets.mean(axis=0)).cumsum(axis=0)])
        found[:, place] = (totals[upper + 1] - totals[lower]) / (upper + 1 - lower)[:, None]
    return found


def student_factors(levels: Levels) -> Levels:
    """Return the factor of each run, by its residual from the mean of the runs before it, as a normal score.

    Of normal runs with one mean these residuals, each by the spread of the runs before it, are independent and have
    Student's distribution.
    """
    series, runs = levels.shape
    found = np.ones((series, runs, len(SHIFTS)))
    sums, squares = levels.cumsum(axis=1), (levels**2).cumsum(axis=1)
    for place in range(MIN_ARCHIVE, runs):
        mean = sums[:, place - 1] / place
        variance = np.maximum(squares[:, place - 1] - place * mean**2, 1e-18) / (place - 1)
        t = (levels[:, place] - mean) / np.sqrt(variance * (1 + 1 / place))
        score = normal_scores(t, place - 1)
        found[:, place] = np.exp(np.outer(score, SHIFTS) - SHIFTS**2 / 2)
    return found


def normal_scores(t: Levels, degrees: int) -> Levels:
    """Return the normal quantiles of the same tails as Student's `t` (Wallace 1959, to 0.02 from five degrees on)."""
    size = np.sqrt(degrees * np.log1p(t**2 / degrees))
    return np.copysign(size * (8 * degrees + 1) / (8 * degrees + 3), t)


Factors = Callable[[Levels], Levels]
DETECTORS: Final[dict[str, Factors]] = {"ranks": rank_factors, "Student": student_factors}


def first_alarms(levels: Levels, factors: Levels, promise: float) -> Levels:
    """Return the run of the first alarm of each series; the number of runs where there is none."""
    series, runs = levels.shape
    sums = np.zeros((series, len(SHIFTS)))
    found = np.full(series, runs)
    for place in range(runs):
        sums = factors[:, place] * (sums + 1.0)
        for row in np.flatnonzero((sums.mean(axis=1) >= promise) & (found == runs)):
            if abs(size_of(levels[row, : place + 1], factors[row, : place + 1], sums[row])) > math.log1p(MARGIN):
                found[row] = place
    return found


def size_of(levels: Levels, factors: Levels, sums: Levels) -> float:
    """Return the size of the change that the largest of the sums bets on, from the start that made most of it."""
    own = np.log(factors[:, int(sums.argmax())])[::-1].cumsum()
    new = int(own.argmax()) + 1
    return float(np.median(levels[-new:]) - np.median(levels[:-new])) if new < len(levels) else 0.0


# -- methods that look at one series --------------------------------------------------------------------------------

Stops = Callable[[Levels, int], dict[str, int | None]]
"""The number of runs at which methods have their first alarm; only runs from `first` on are looked at."""


def product(levels: Levels, first: int) -> dict[str, int | None]:
    """Return when the newest run stands out, and when the gate fails."""
    found: dict[str, int | None] = {"alarm": None, "confirmed": None}
    for runs in range(first, len(levels) + 1):
        state = judge_newest(RunLevels.exact(levels[:runs]), MARGIN).state
        if state in ("unconfirmed", "confirmed"):
            found["alarm"] = found["alarm"] or runs
        if state == "confirmed":
            found["confirmed"] = runs
            break
    return found


def slow_methods(wanted: int) -> list[Stops]:
    """Return the methods that look at one series, if any series are wanted of them."""
    if not wanted:
        return []
    other = otava()
    if other is None:
        return [product]

    def ask(levels: Levels, first: int) -> dict[str, int | None]:
        after = first - 1 - NEAR
        looks = ((runs, other(levels[:runs])) for runs in range(first, len(levels) + 1))
        return {"Otava": next((runs for runs, places in looks if any(place >= after for place in places)), None)}

    return [product, ask]


# -- tables ---------------------------------------------------------------------------------------------------------


def run_length(runs: int, alarms: int) -> str:
    """Return the mean run length to an alarm with its exact interval (of a Poisson count)."""
    low = 2 * runs / chi_squared_quantile(0.975, 2 * alarms + 2)
    if not alarms:
        return f"{'none':>9} [{low:,.0f}, -]"
    return f"{runs / alarms:9,.0f} [{low:,.0f}, {2 * runs / chi_squared_quantile(0.025, 2 * alarms):,.0f}]"


def unchanged(options: argparse.Namespace) -> None:
    """Print the run lengths to a false alarm."""
    print(f"unchanged: {options.series} series of {SHORT} runs, e-detectors {options.fast_series} of {LONG};")
    print("mean runs to a false alarm [interval]; behind an e-detector's name the run length that it promises")
    for noise, draw in NOISES.items():
        for stops_of in slow_methods(options.series):
            generator = np.random.default_rng((120, len(noise)))
            rows = [stops_of(draw(generator, SHORT), MIN_ARCHIVE + 1) for _ in range(options.series)]
            for name in rows[0]:
                ends = [row[name] for row in rows]
                length = run_length(sum(end or SHORT for end in ends), sum(end is not None for end in ends))
                print(f"  {noise:<24} {name:<14} {length}", flush=True)
        for name, factors in DETECTORS.items():
            generator = np.random.default_rng((1000, len(noise)))
            levels = np.array([draw(generator, LONG) for _ in range(options.fast_series)])
            made = factors(levels)
            for promise in options.promise:
                stops = first_alarms(levels, made, promise)
                counted = int(np.minimum(stops + 1, LONG).sum()), int((stops < LONG).sum())
                print(f"  {noise:<24} {f'{name} {promise:,}':<14} {run_length(*counted)}", flush=True)


def changed(options: argparse.Namespace) -> None:
    """Print how soon changes are told, and how many are not."""
    print(f"\nchanged: runs of the new level until it is told, and the share of series without within {WITHIN} runs")
    print(f"{'':<46} {'':<14} median   mean  90 %  missed")
    for change, noise, after, adds in CHANGES:
        generator = np.random.default_rng((300, len(noise), after))
        rows = [NOISES[noise](generator, after + WITHIN) for _ in range(max(options.series, options.fast_series))]
        levels = np.array(rows)
        levels[:, after:] += adds(WITHIN)
        for stops_of in slow_methods(options.series):
            ends = [stops_of(row, after + 1) for row in levels[: options.series]]
            for name in ends[0]:
                delays = [(row[name] or after + WITHIN + 1) - after for row in ends]
                print_delays(change, noise, name, np.array(delays))
        for name, factors in DETECTORS.items():
            made = factors(levels)
            for promise in options.promise:
                stops = first_alarms(levels, made, promise)
                print_delays(change, noise, f"{name} {promise:,}", stops[stops >= after] - after + 1)


def print_delays(change: str, noise: str, name: str, delays: Levels) -> None:
    """Print a row of delays; one above `WITHIN` is a miss."""
    found = delays[delays <= WITHIN]
    ordered = np.sort(delays)

    def quantile(share: float) -> str:
        value = ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
        return f"{value:>5}" if value <= WITHIN else "    -"

    mean = f"{found.mean():6.1f}" if len(found) else "     -"
    told = f"{quantile(0.5)}  {mean} {quantile(0.9)}  {100 * (1 - len(found) / len(delays)):5.1f} %"
    print(f"  {change + ', ' + noise:<44} {name:<14} {told}", flush=True)


def told(levels: Levels, options: argparse.Namespace) -> None:
    """Print the changes that each method tells of one series, with the run at which it does; runs count from 0."""
    named: dict[str, dict[int, int]] = {"confirmed": {}}
    other = otava()
    for last in range(MIN_ARCHIVE, len(levels)):
        outlook = judge_newest(RunLevels.exact(levels[: last + 1]), MARGIN)
        if outlook.state == "confirmed":
            named["confirmed"].setdefault(outlook.first, last)
        for place in other(levels[: last + 1]) if other is not None else ():
            named.setdefault("Otava", {}).setdefault(place, last)
    for name, factors in DETECTORS.items():
        for promise in options.promise:
            named[f"{name} {promise:,}"] = dict(followed(levels, factors, promise))
    print(f"{len(levels)} runs of a file: the first run of each change, and (behind) the run at which it was told")
    for name, changes in named.items():
        print(f"  {name:<14} {', '.join(f'{first} ({last})' for first, last in changes.items()) or 'none'}")


def followed(levels: Levels, factors: Factors, promise: float) -> Iterator[tuple[int, int]]:
    """Yield the first run of each change that an e-detector tells, which begins anew there, and when it does."""
    start = 0
    while True:
        rest = levels[None, start:]
        made = factors(rest)
        (stop,) = first_alarms(rest, made, promise)
        if stop == rest.shape[1]:
            return
        sums = np.log(made[0, : stop + 1])[::-1].cumsum(axis=0)
        first = int(stop) - int(sums[:, int(sums.max(axis=0).argmax())].argmax())
        yield start + first, start + int(stop)
        start += first


def read_values(path: Path) -> Levels:
    """Return the logarithms of the first long list of numbers in a file."""
    lists = re.findall(r"\[([\d., \n]{100,})\]", path.read_text("utf-8"))
    return np.log(np.array([float(word) for word in re.split(r"[, \n]+", lists[0].strip(", \n"))]))


def main() -> None:
    """Simulate and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--series", type=int, default=60, help="series of the slow methods, 0: none (60)")
    parser.add_argument("--fast-series", type=int, default=500, help="series of the e-detectors (default: 500)")
    parser.add_argument(
        "--promise", type=int, nargs="+", default=[500, 5000], help="run lengths that e-detectors promise (500 5000)"
    )
    parser.add_argument(
        "--values", type=Path, metavar="FILE", help="follow the list of numbers in FILE, and no other"
    )
    options: Any = parser.parse_args()
    began = time.monotonic()
    if options.values is not None:
        told(read_values(options.values), options)
        return
    unchanged(options)
    changed(options)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
