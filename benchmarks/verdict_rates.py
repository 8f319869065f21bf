"""How often verdicts and gates are right: made-up trials with a known truth go through the product's own code.

Each run's trials go through what a report's verdicts go through: the table of trials, the checks, the decision and
the gates. Noise is normal unless a row says otherwise. `--runs` is the number of runs of each row: a share of 5 % of
1,000 runs is known to 1.4 points (95 %).

    python benchmarks/verdict_rates.py [--runs N] [QUESTION ...]
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from common import parser_of

from bench_common.stats.block_types import Header, StoredHost, StoredTreatment
from bench_common.stats.reader import Block
from bench_master.analysis.claims import find_claims
from bench_master.analysis.compare_runs import choose_runs, compare_runs
from bench_master.analysis.comparisons import build_verdicts
from bench_master.analysis.gates import requested_gates, with_gates
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.run_data.aggregate import Aggregator
from bench_master.run_data.summary import HostSummary, RunSummary, TreatmentSummary
from bench_master.run_data.trial_values import TrialTable, TrialValue, primary_of
from bench_master.scenario.model import AGAIN
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.stopping import FEWEST_ROUNDS, is_settled

Values = np.ndarray[Any, Any]
S: Final = 1_000_000_000
DIRECTED: Final = frozenset({"slower", "faster", "better", "worse"})


def judged(
    sides: Values | Sequence[Values],
    order: Sequence[Sequence[int]] | None = None,
    *,
    head: dict[str, Any] | None = None,
    events: Sequence[dict[str, Any]] = (),
    lateness: Values | float = 0.0,
    again: bool = False,
    **options: Any,
) -> VerdictsReport:
    """Return the verdicts of a run: `sides` are the values of each treatment by round, the first one the baseline.

    `order` is the order of the treatments in each round, `lateness` by how much each may be too long, as a share.
    Claims of the `head` are about the primary measure. `again` says that the last one is the first one, which ran a
    second time in each round.
    """
    rounds = len(sides[0])
    order = order if order is not None else [range(len(sides))] * rounds
    labels = [{"engine": f"engine-{index}"} for index in range(len(sides))]
    if again:
        labels[-1] = labels[0] | {AGAIN: "again"}
    treatments = [
        {
            "index": index,
            "title": f"engine={one['engine']}",
            "labels": one,
            "engine": one["engine"],
            "operation_names": [],
        }
        for index, one in enumerate(labels)
    ]
    trials = [[treatment, block, False] for block, own in enumerate(order) for treatment in own]
    plain = {"order": "interleaved", "seed": 7, "treatments": treatments, "trials": trials, **(head or {})}
    header = msgspec.convert(plain, Header)
    ledger = Aggregator(header)
    ledger.add(Block("host", StoredHost(worker=0, host="blade-1", environment="local", fingerprint={}, engines={})))
    late = np.broadcast_to(np.asarray(lateness, float), (len(sides), rounds))
    values: dict[int, dict[int, TrialValue]] = {index: {} for index in range(len(sides))}
    for number, (treatment, block, _) in enumerate(trials):
        for kind, after in (("trial-begin", 0), ("trial-end", 1)):
            event = {"at_ns": (1000 + 2 * number + after) * S, "kind": kind, "trial": number, "workers": [0]}
            ledger.add(Block("event", event | ({"not_started": 0} if after else {})))
        value, band = float(sides[treatment][block]), float(late[treatment][block])
        low = value * (1.0 - band)
        values[treatment][block] = TrialValue(number, value, low, value, "clock" if band else None, jobs=1)
    for event in events:
        ledger.add(Block("event", event))
    table = TrialTable({index: primary_of(one) for index, one in enumerate(header.treatments)}, values)
    known = VerdictOptions(**options)
    found = build_verdicts(header, ledger, table, known, find_claims(header))
    assert found is not None
    return with_gates(found, requested_gates(known, ()))


Row = tuple[str, Callable[[np.random.Generator], str]]
"""What is simulated, and one run of it: the answer."""


# -- gates ----------------------------------------------------------------------------------------------------------


def _gate(verdicts: VerdictsReport) -> str:
    return {"passed": "green", "failed": "red", "undecided": "undecided"}[verdicts.gates[0].state]


def grown(first: float, last: float, rounds: int, generator: np.random.Generator, sd: float = 0.01) -> str:
    """Return the gate on a regression whose size steps in mid-run."""
    a, b = np.exp(sd * generator.normal(size=(2, rounds)))
    b *= np.where(np.arange(rounds) < rounds // 2, first, last)
    return _gate(judged((a, b), fail_on=("slower by 5%",)))


def with_zero(ratio: float, generator: np.random.Generator, rounds: int = 20, sd: float = 0.01) -> str:
    """Return the gate where the baseline's measure is 0 in one round."""
    a, b = np.exp(sd * generator.normal(size=(2, rounds))) * np.array([[1.0], [ratio]])
    a[generator.integers(rounds)] = 0.0
    return _gate(judged((a, b), fail_on=("slower by 5%",)))


def gates() -> Iterator[Row]:
    """What ``--fail-on "slower by 5%"`` makes of regressions whose ratio is withheld or is none."""
    for first, last, rounds in ((2.0, 10.0, 20), (1.2, 1.6, 20), (1.0, 1.6, 20), (1.2, 1.6, 10), (1.0, 1.0, 20)):
        yield (
            f"{100 * (first - 1):+.0f} % in the first half of {rounds} rounds, then {100 * (last - 1):+.0f} %",
            partial(grown, first, last, rounds),
        )
    for ratio in (2.0, 1.0):
        yield f"{100 * (ratio - 1):+.0f} %, one 0 among 20 rounds", partial(with_zero, ratio)


# -- carry-over -----------------------------------------------------------------------------------------------------


def left_over(treatments: int, rounds: int, size: float, generator: np.random.Generator, sd: float = 0.01) -> str:
    """Return the word for equal treatments where trials take longer after the baseline."""
    order = [generator.permutation(treatments).tolist() for _ in range(rounds)]
    values = np.exp(sd * generator.normal(size=(treatments, rounds)))
    last = -1
    for block, own in enumerate(order):
        for treatment in own:
            values[treatment][block] *= 1.0 + size * (last == 0)
            last = treatment
    words = {each.verdict for each in judged(values, order).comparisons}
    return "false word" if words & DIRECTED else "inconclusive" if "inconclusive" in words else "same"


def carry_over() -> Iterator[Row]:
    """What is said of equal treatments where trials after the baseline take longer (trials vary by 1 %)."""
    for treatments, rounds, size in ((2, 10, 0.05), (2, 20, 0.05), (4, 10, 0.05), (4, 20, 0.05), (2, 20, 0.0)):
        yield (
            f"{treatments} treatments, {rounds} rounds, {100 * size:+.0f} %",
            partial(left_over, treatments, rounds, size),
        )


# -- position -------------------------------------------------------------------------------------------------------


def placed(size: float, ratio: float, generator: np.random.Generator, *, again: bool, rounds: int = 20) -> str:
    """Return the word where the first trial of each round takes longer, and the order is the written one."""
    values = np.exp(0.01 * generator.normal(size=(2 + again, rounds)))
    values[0] *= 1.0 + size
    values[1] *= ratio
    (only,) = judged(values, head={"order": "as-written"}, again=again).comparisons
    if only.verdict not in DIRECTED:
        return only.verdict
    return "right word" if (only.verdict == "slower") == (ratio > 1.0) and ratio != 1.0 else "false word"


def position() -> Iterator[Row]:
    """What is said in the written order where the first trial of each round takes longer (trials vary by 1 %)."""
    for size, ratio, again in ((0.05, 1.0, False), (0.05, 1.0, True), (0.0, 1.0, True), (0.05, 1.2, True)):
        truth = f"first trial {100 * size:+.0f} %, true difference {100 * (ratio - 1):+.0f} %"
        yield (
            f"{truth}, {'aa' if again else 'no aa'}",
            partial(placed, size, ratio, again=again),
        )


# -- a host that changes within rounds ------------------------------------------------------------------------------

FASTEST_S: Final = 0.1
"""How long a job takes on a host that nothing slows down."""


def slowed(shape: str, rounds: int, jobs: int, factor: float, generator: np.random.Generator) -> str:
    """Return the word for equal treatments on a host that becomes `factor` times slower, job by job, in mid-run.

    Each trial is the median of its few jobs, which run one after the other; the change may be within a trial.
    """
    count = 2 * rounds * jobs
    place = np.linspace(0.0, 1.0, count)
    begin = generator.uniform(0.25, 0.75)
    if shape == "step":
        level = np.where(place < begin, 1.0, factor)
    elif shape == "ramp":
        level = factor ** np.clip((place - 0.25) / 0.5, 0.0, 1.0)
    else:
        level = np.where(np.abs(place - begin) < 0.125, factor, 1.0)  # a quarter of the run
    times = FASTEST_S * level * np.exp(0.1 * generator.normal(size=count))
    trials = np.median(times.reshape(2 * rounds, jobs), axis=1)
    order = [generator.permutation(2).tolist() for _ in range(rounds)]
    values = np.empty((2, rounds))
    for block, own in enumerate(order):
        for turn, treatment in enumerate(own):
            values[treatment][block] = trials[2 * block + turn]
    (found,) = judged(values, order).comparisons
    return "false word" if found.verdict in DIRECTED else "none or same"


def slower_hosts() -> Iterator[Row]:
    """What is said of equal treatments on a host that becomes three times slower within rounds of few short jobs."""
    for rounds, jobs in ((8, 1), (8, 5)):
        for shape in ("step", "ramp", "phase"):
            yield (
                f"{rounds} rounds, {jobs} jobs a trial, {shape} of factor 3",
                partial(slowed, shape, rounds, jobs, 3.0),
            )


# -- warnings -------------------------------------------------------------------------------------------------------


def warned(treatments: int, rounds: int, noise: str, sd: float, generator: np.random.Generator) -> str:
    """Return whether a clean run has a warning."""
    order = [generator.permutation(treatments).tolist() for _ in range(rounds)]
    drawn = getattr(generator, noise)(size=(treatments, rounds))
    found = judged(np.exp(sd * drawn), order)
    flags = [*found.runs.flags, *(flag for one in found.comparisons for flag in one.flags)]
    return "a warning" if any(flag.level == "warning" for flag in flags) else "none"


def warnings() -> Iterator[Row]:
    """What the checks find in clean runs: equal treatments in independent noise."""
    for noise, sd in (("normal", 0.05), ("exponential", 0.1)):
        for treatments, rounds in ((2, 10), (2, 20), (2, 60), (5, 20), (10, 6)):
            yield (
                f"{treatments} treatments, {rounds} rounds, {noise} noise of {100 * sd:.0f} %",
                partial(warned, treatments, rounds, noise, sd),
            )


# -- runs -----------------------------------------------------------------------------------------------------------

DAY_S: Final = 86_400.0
SOON_S: Final = 600.0


def a_run(number: int, began_s: float, level: float) -> RunSummary:
    """Return a run of one treatment whose trials all have this level, a logarithm."""
    title, labels = "engine=docker", dict[str, Any](engine="docker")
    definition = StoredTreatment(title=title, labels=labels, engine="docker")
    trials = RunLevels.exact(level).trials()
    return RunSummary(
        file=f"{number}.stats.gz", run_id=f"run-{number}", created=None, began_s=began_s, scenario="nightly",
        hosts={"blade-1": HostSummary({}, {}, {}, math.nan)}, harness="1", margin=None,
        treatments={title: TreatmentSummary(definition, primary_of(definition), trials)},
    )  # fmt: skip


def between(levels: Values, began_s: Values, new: Values) -> str:
    """Return the word for the runs that are `new`, of equal builds, against the others."""
    made = [a_run(number, *one) for number, one in enumerate(zip(began_s.tolist(), levels.tolist(), strict=True))]
    old, fresh = ([run for run, is_new in zip(made, new, strict=True) if is_new == side] for side in (False, True))
    (found,) = compare_runs(choose_runs(old, fresh, [], VerdictOptions())).comparisons
    return {"refused": "refused"}.get(found.verdict, "false word" if found.verdict in DIRECTED else "none or same")


def runs() -> Iterator[Row]:
    """What ``compare`` says of equal builds whose runs differ by time."""

    def drifting(total: float, sd: float, each: int, apart_s: float, order: str, generator: Any) -> str:
        count = 2 * each
        new = {
            "blocked": np.arange(count) >= each,
            "turns": np.arange(count) % 2 == 1,
            "drawn pairs": (np.arange(count) + np.repeat(generator.random(each) < 0.5, 2)) % 2 == 1,
            "drawn": generator.permutation(count) >= each,
        }[order]
        levels = np.linspace(0.0, math.log1p(total), count) + sd * generator.normal(size=count)
        return between(levels, apart_s * np.arange(count), new)

    def days(earlier: Sequence[int], new: Sequence[int], day_sd: float, sd: float, generator: Any) -> str:
        """Runs of so many on each day."""
        per_day = [*earlier, *new]
        day = np.repeat(np.arange(len(per_day)), per_day)
        levels = (day_sd * generator.normal(size=len(per_day)))[day] + sd * generator.normal(size=len(day))
        within = np.concatenate([np.arange(count) for count in per_day])
        return between(levels, DAY_S * day + SOON_S * within, day >= len(earlier))

    def alike(each: int, correlation: float, sd: float, generator: Any) -> str:
        levels = generator.normal(size=2 * each)
        for place in range(1, 2 * each):
            levels[place] = correlation * levels[place - 1] + math.sqrt(1 - correlation**2) * levels[place]
        return between(sd * levels, DAY_S * np.arange(2 * each), np.arange(2 * each) >= each)

    soon, later = (SOON_S, "ten minutes apart"), (DAY_S, "a day apart")
    for order, (apart_s, when) in (("blocked", soon), ("blocked", later), ("drawn", soon)):
        yield (
            f"6 and 6 runs, {order}, {when}, +10 % over them, runs differ by 0.5 %",
            partial(drifting, 0.1, 0.005, 6, apart_s, order),
        )
    yield "5 and 5, one day each, days differ by 2 %, runs by 0.5 %", partial(days, [5], [5], 0.02, 0.005)
    yield "6 and 6, blocked, a day apart, correlation .6, 2 %", partial(alike, 6, 0.6, 0.02)
    yield "6 and 6, blocked, a day apart, independent, 2 %", partial(alike, 6, 0.0, 0.02)
    yield "10 earlier ones of one day, 3 of another, likewise", partial(days, [10], [3], 0.02, 0.005)
    yield "10 earlier ones of a day each, 3 of another, likewise", partial(days, [1] * 10, [3], 0.02, 0.005)
    yield "10 earlier ones of a day each, 3 of a day each, likewise", partial(days, [1] * 10, [1] * 3, 0.02, 0.005)
    for total, sd in ((0.1, 0.001), (0.2, 0.01), (0.3, 0.01)):
        for order in ("turns", "drawn pairs"):
            yield (
                f"8 pairs, {order}, +{100 * total:.0f} % over them, runs differ by {100 * sd:.1f} %",
                partial(drifting, total, sd, 8, SOON_S, order),
            )


# -- alternate ------------------------------------------------------------------------------------------------------


def paired(pairs: int, drift: float, sd: float, ratio: float, generator: np.random.Generator, *, looks: bool) -> str:
    """Return what `alternate` says of builds that differ by `ratio`, and whether its interval misses that.

    The first of each pair is drawn; the machine drifts over all pairs that there may be. With `looks` it ends at the
    first look that settles it, after at most so many pairs.
    """
    new = (np.arange(2 * pairs) + np.repeat(generator.random(pairs) < 0.5, 2)) % 2 == 1
    levels = np.linspace(0.0, math.log1p(drift), 2 * pairs) + sd * generator.normal(size=2 * pairs)
    levels += np.where(new, math.log(ratio), 0.0)
    made = [a_run(number, SOON_S * number, level) for number, level in enumerate(levels.tolist())]
    for count in range(FEWEST_ROUNDS if looks else pairs, pairs + 1):
        ran = list(zip(made[: 2 * count], new, strict=False))
        earlier, later = ([run for run, is_new in ran if is_new == side] for side in (False, True))
        chosen = choose_runs(earlier, later, [], VerdictOptions())
        (found,) = compare_runs(chosen, last_look=pairs if looks else None).comparisons
        if looks and is_settled(found.verdict, count):
            break
    word: str = found.verdict
    if word in DIRECTED:
        word = "right word" if ratio != 1.0 and (word == "slower") == (ratio > 1.0) else "false word"
    low, high = found.low or 0.0, found.high if found.high is not None else math.inf
    return f"{word}{'' if low <= ratio <= high else ', interval misses'}"


def alternate() -> Iterator[Row]:
    """What ``alternate`` says of two builds in drawn pairs, at a fixed number of pairs and by looks."""
    for ratio, drift, sd in (
        (1.0, 0.0, 0.01),
        (1.0, 0.1, 0.001),
        (1.0, 0.3, 0.01),
        (1.05, 0.0, 0.01),
        (1.05, 0.3, 0.01),
    ):
        truth = f"{100 * (ratio - 1):+.0f} %, runs differ by {100 * sd:.1f} %, {100 * drift:+.0f} % over them"
        for pairs, looks in ((8, False), (20, True)):
            yield (
                f"{truth}; {'at most ' if looks else ''}{pairs} pairs{', looks' if looks else ''}",
                partial(paired, pairs, drift, sd, ratio, looks=looks),
            )


QUESTIONS: Final[dict[str, Callable[[], Iterator[Row]]]] = {
    "gates": gates,
    "carry-over": carry_over,
    "position": position,
    "slower-hosts": slower_hosts,
    "warnings": warnings,
    "runs": runs,
    "alternate": alternate,
}


def shares(run: Callable[[np.random.Generator], str], runs: int, seed: int = 20140901) -> dict[str, float]:
    """Return the share of runs with each answer."""
    generator = np.random.default_rng(seed)
    found = Counter(run(generator) for _ in range(runs))
    return {answer: count / runs for answer, count in found.most_common()}


def main() -> None:
    """Print a line for each row of the questions that are asked."""
    parser = parser_of(__doc__)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}; all by default")
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    unknown = set(options.questions) - QUESTIONS.keys()
    if unknown:
        parser.error(f"unknown question {', '.join(unknown)}; one of: {', '.join(QUESTIONS)}")
    for name, question in QUESTIONS.items():
        if options.questions and name not in options.questions:
            continue
        print(f"{name}, {options.runs:,} runs each: {(question.__doc__ or '').split(chr(10), 1)[0]}")
        for title, run in question():
            found = shares(run, options.runs)
            print(f"  {title}: {', '.join(f'{answer} {100 * share:.1f} %' for answer, share in found.items())}")


if __name__ == "__main__":
    main()
