"""How often the decision itself is right: made-up rounds and runs go through its intervals and its words, in tables.

``verdict_rates.py`` takes the long way, through what a report goes through; here it is the functions of
``bench_master/verdicts`` alone, so that thousands of runs take seconds. Trials of a run follow one another in time,
in drawn order, and have 3 % of noise unless a row says otherwise. Families are k treatments against a baseline.
Under ``claims`` a run goes the long way. `--runs` is the number of runs of each row: a share of 5 % of 2,000 runs
is known to 1 point (95 %). Words are false where they name a difference that is none, or the wrong direction;
*same* is where the true difference is the margin or more.

    python benchmarks/verdict_tables.py [--runs N] [TABLE ...]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from common import parser_of
from verdict_rates import DIRECTED, Row, judged, shares

from bench_features.certify.certificate import CertifiedRun, RunComparison, RunSeries
from bench_features.certify.findings import PROMISED, bounded, false_words, probe_finding
from bench_master.scenario.claims import registered
from bench_master.scenario.model import Claim
from bench_master.verdicts import between_runs, decision, planning, signed_rank
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.decision import Rules
from bench_master.verdicts.quantiles import quantile
from bench_master.verdicts.stopping import FEWEST_ROUNDS, GAP_ROUNDS, nominal_levels

Values = np.ndarray[Any, Any]
Noise = Callable[[np.random.Generator, int], Values]


def autoregressive(generator: np.random.Generator, count: int, correlation: float) -> Values:
    """Return noise of 3 % whose neighbours are alike."""
    found = generator.normal(size=count)
    for place in range(1, count):
        found[place] = correlation * found[place - 1] + math.sqrt(1 - correlation**2) * found[place]
    return 0.03 * found


def phases(generator: np.random.Generator, count: int) -> Values:
    """Return noise of a machine that is 1.6 times slower now and then."""
    return math.log(1.6) * (np.cumsum(generator.random(count) < 1 / 8) % 2) + 0.03 * generator.normal(size=count)


def outliers(generator: np.random.Generator, count: int) -> Values:
    """Return noise in which one trial of twenty takes 1.3 to 3 times as long."""
    slow = generator.random(count) < 0.05
    return 0.03 * generator.normal(size=count) + slow * np.log(generator.uniform(1.3, 3.0, count))


NOISES: Final[Mapping[str, Noise]] = {
    "white": lambda generator, count: 0.03 * generator.normal(size=count),
    "lognormal": lambda generator, count: 0.1 * np.exp(generator.normal(size=count)),
    "AR .6": lambda generator, count: autoregressive(generator, count, 0.6),
    "AR .9": lambda generator, count: autoregressive(generator, count, 0.9),
    "drift 20 %": lambda generator, count: (
        np.linspace(0.0, math.log(1.2), count) + 0.03 * generator.normal(size=count)
    ),
    "phases": phases,
    "outliers": outliers,
    "two points": lambda generator, count: math.log(1.6) * (generator.random(count) < 1 / 2),
}


def in_rounds(series: Values, treatments: int, generator: np.random.Generator) -> Values:
    """Return the values of each treatment by round, of trials that followed one another in drawn order."""
    blocks = series.reshape(-1, treatments)
    order = generator.random(blocks.shape).argsort(axis=1)
    return np.take_along_axis(blocks, order, axis=1).T


def decided(differences: Values, rules: Rules) -> tuple[str, signed_rank.Interval]:
    """Return the word for the differences of rounds, and its interval."""
    interval = signed_rank.family_interval(differences, differences, rules.alpha, rules.comparisons)
    narrow = signed_rank.family_interval(differences, differences, 2 * rules.alpha, rules.comparisons)
    return decision.word_of(interval, narrow, rules), interval


# -- 1: one run -----------------------------------------------------------------------------------------------------

EQUAL: Final = (
    ("white", 6, 1, 0.03), ("white", 10, 1, 0.03), ("lognormal", 10, 1, 0.01), ("AR .6", 10, 1, 0.03),
    ("AR .9", 20, 1, 0.03), ("drift 20 %", 10, 1, 0.03), ("phases", 10, 1, 0.1), ("outliers", 10, 1, 0.03),
    ("white", 10, 2, 0.03), ("phases", 6, 2, 0.03), ("AR .9", 10, 4, 0.01), ("lognormal", 6, 4, 0.03),
    ("outliers", 10, 12, 0.03), ("lognormal", 8, 12, 0.1), ("white", 6, 12, 0.03), ("white", 7, 12, 0.03),
    ("white", 20, 12, 0.01),
)  # fmt: skip


def family(noise: str, rounds: int, comparisons: int, margin: float, generator: np.random.Generator) -> str:
    """Return whether a family of equal treatments has a false word, and whether an interval misses 1."""
    values = in_rounds(NOISES[noise](generator, rounds * (comparisons + 1)), comparisons + 1, generator)
    rules = Rules(comparisons=comparisons, margin=margin)
    found = [decided(row - values[0], rules) for row in values[1:]]
    if any(word in DIRECTED for word, _ in found):
        return "false word"
    return "an interval misses 1, no word" if any(one.excludes_zero() for _, one in found) else "none"


def equal() -> Iterator[Row]:
    """Equal treatments: any false word of a family."""
    for shape in EQUAL:
        noise, rounds, comparisons, margin = shape
        yield (
            f"{noise}, n = {rounds}, k = {comparisons}, margin {100 * margin:.0f} %",
            partial(family, *shape),
        )


def by_gap(noise: str, rounds: int, comparisons: int, generator: np.random.Generator) -> str:
    """Return whether a family of equal treatments has a false word after a few rounds."""
    values = in_rounds(NOISES[noise](generator, rounds * (comparisons + 1)), comparisons + 1, generator)
    sides = [RunLevels.exact(own).trials() for own in values]
    rules = Rules(comparisons=comparisons)
    words = [decision.compare(sides[0], side, rules).word for side in sides[1:]]
    return "false word" if any(word in DIRECTED for word in words) else "none"


def few() -> Iterator[Row]:
    """Equal treatments after three to five rounds: any false word of a family, by a clear gap."""
    for noise in ("white", "two points", "phases"):
        for rounds in (3, 4, 5):
            for comparisons in (1, 2, 4, 12):
                yield f"{noise}, n = {rounds}, k = {comparisons}", partial(by_gap, noise, rounds, comparisons)


def word_at(effect: float, sd: float, rounds: int, rules: Rules, generator: np.random.Generator) -> str:
    """Return the word for a known effect; `sd` is that of the rounds' differences."""
    word, _ = decided(effect + sd * generator.normal(size=rounds), rules)
    return "right word" if word == "slower" and effect > 0 else "false word" if word in DIRECTED else word


def same() -> Iterator[Row]:
    """*Same* at a true difference of the margin, and of a tenth more (sd of the rounds: half of the margin)."""
    for margin in (0.01, 0.03, 0.1):
        for rounds in (6, 10, 20):
            for times in (1.0, 1.1):
                size, sd, rules = times * math.log1p(margin), margin / 2, Rules(margin=margin)
                yield (
                    f"margin {100 * margin:.0f} %, n = {rounds}, difference {times:.1f} margins",
                    partial(word_at, size, sd, rounds, rules),
                )


def power() -> Iterator[Row]:
    """How often a difference is found, by the noise of trials and the rounds."""
    for noise in (0.01, 0.05, 0.1):
        for rounds in (6, 10, 20):
            for effect in (0.05, 0.1, 0.2):
                size, sd = math.log1p(effect), math.sqrt(2) * noise
                yield (
                    f"trials vary by {100 * noise:.0f} %, n = {rounds}, +{100 * effect:.0f} %",
                    partial(word_at, size, sd, rounds, Rules()),
                )


def printed() -> Iterator[Row]:
    """How often the difference is found that a report calls missed in one run of five (known spread)."""
    for comparisons in (1, 2, 4, 12):
        for rounds in (6, 7, 8, 10, 20):
            size, rules = planning.smallest_effect(1.0, rounds, comparisons), Rules(comparisons=comparisons)
            yield (
                f"n = {rounds}, k = {comparisons}, {size:.2f} standard deviations",
                partial(word_at, size, 1.0, rounds, rules),
            )


def settles(rounds: int, comparisons: int, effect: float, generator: np.random.Generator) -> str:
    """Return whether the rounds that a report promises settle a comparison that these have not."""
    rules = Rules(comparisons=comparisons)
    while True:
        first = effect + 0.03 * generator.normal(size=rounds)
        if decided(first, rules)[0] != "inconclusive":
            continue
        more = planning.more_rounds(first, math.log1p(rules.margin), comparisons)
        if more is None:
            return "none promised"
        later = effect + 0.03 * generator.normal(size=rounds + more)
        later[:rounds] = first
        return "settled" if decided(later, rules)[0] != "inconclusive" else "not settled"


def promised() -> Iterator[Row]:
    """Whether ``more rounds`` settle what was inconclusive (rounds vary by 3 %, the true difference is 4 %)."""
    for comparisons in (1, 4, 12):
        for rounds in (6, 10):
            yield f"n = {rounds}, k = {comparisons}", partial(settles, rounds, comparisons, 0.04)


# -- 2: looks -------------------------------------------------------------------------------------------------------


def looked_at(noise: str, comparisons: int, effect: float, sd: float, generator: np.random.Generator) -> str:
    """Return the first word of a family that is looked at after each round, of at most 30, and whether it misses."""
    last = 30
    series = NOISES[noise](generator, last * (comparisons + 1)) * (sd / 0.03)
    values = in_rounds(series, comparisons + 1, generator)
    values[1:] += effect
    open_ones, false, right = set(range(1, comparisons + 1)), False, False
    for rounds in range(GAP_ROUNDS, last + 1):
        for index in sorted(open_ones):
            found = values[index, :rounds] - values[0, :rounds]
            if rounds < FEWEST_ROUNDS:
                a, b = (RunLevels.exact(values[one, :rounds]).trials() for one in (0, index))
                word: str = decision.compare(a, b, Rules(comparisons=comparisons)).word
            else:
                levels = nominal_levels(rounds, last)
                ends = [signed_rank.look_interval(found, found, level, comparisons) for level in levels]
                word = decision.word_of(ends[0], ends[1], Rules(comparisons=comparisons, look=levels))
            if word != "inconclusive":
                open_ones.discard(index)
                false |= word in DIRECTED and not (word == "slower" and effect > 0)
                false |= word == "same" and effect >= math.log1p(decision.DEFAULT_MARGIN)
                right |= word == "slower" and effect > 0
    return "false word" if false else "right word" if right else "none or same"


def looks() -> Iterator[Row]:
    """A run that is looked at after each round, of at most 30."""
    for noise, comparisons, effect, sd in (
        ("white", 1, 0.0, 0.03), ("AR .9", 1, 0.0, 0.03), ("phases", 1, 0.0, 0.03), ("lognormal", 1, 0.0, 0.03),
        ("white", 4, 0.0, 0.03), ("outliers", 4, 0.0, 0.03), ("white", 1, 0.05, 0.015), ("white", 1, 0.05, 0.035),
        ("white", 1, 0.05, 0.1), ("white", 1, 0.03, 0.015),
    ):  # fmt: skip
        size = math.log1p(effect)
        yield (
            f"{noise}, trials vary by {100 * sd:.1f} %, k = {comparisons}, +{100 * effect:.0f} %",
            partial(looked_at, noise, comparisons, size, sd),
        )


# -- 3: between runs ------------------------------------------------------------------------------------------------


def of_runs(
    design: str, a: int, b: int, sd: float, effect: float, alike: float, generator: np.random.Generator
) -> str:
    """Return the word for runs of two builds; `alike` is the correlation of neighbours."""
    size = math.log1p(effect)
    levels = autoregressive(generator, a + b, alike) * (sd / 0.03) + 0.001 * generator.normal(size=a + b)
    if design == "pairs":
        first, second = in_rounds(levels, 2, generator)
        word, _ = decided(second + size - first, Rules())
    else:
        first, second = RunLevels.exact(levels[:a]), RunLevels.exact(levels[a:] + size)
        judge = between_runs.against_archive if design == "archive" else between_runs.of_groups
        word = judge(first, second, Rules()).word
    return "right word" if word == "slower" and effect > 0 else "false word" if word in DIRECTED else word


DESIGNS: Final = (
    ("archive", 5, 1), ("archive", 8, 1), ("archive", 20, 1), ("archive", 8, 3), ("pairs", 6, 6), ("pairs", 10, 10),
    ("groups", 4, 4), ("groups", 8, 8),
)  # fmt: skip


def between() -> Iterator[Row]:
    """Runs of two builds, as independent occasions."""
    for design, a, b in DESIGNS:
        for sd, effect, alike in (
            (0.0, 0.0, 0.0), (0.01, 0.0, 0.0), (0.03, 0.0, 0.0), (0.05, 0.0, 0.0), (0.01, 0.03, 0.0),
        ):  # fmt: skip
            yield (
                f"{design} {a} and {b}, runs differ by {100 * sd:.0f} %, +{100 * effect:.0f} %",
                partial(of_runs, design, a, b, sd, effect, alike),
            )


# -- 4: gates, claims, jobs, certificates ---------------------------------------------------------------------------


def gated(effect: float, rounds: int, option: str, generator: np.random.Generator) -> str:
    """Return what a gate at 5 % says of a true effect; the rounds' differences vary by 4 %."""
    logs = 0.04 / math.sqrt(2) * generator.normal(size=(2, rounds))
    logs[1] += math.log1p(effect)
    asked: dict[str, Any] = (
        {"fail_on": ("slower by 5%",)} if option == "--fail-on" else {"require": ("not slower by 5%",)}
    )
    (gate,) = judged(np.exp(logs), in_order(generator, 2, rounds), **asked).gates
    return {"passed": "green", "failed": "red", "undecided": "undecided"}[gate.state]


def in_order(generator: np.random.Generator, treatments: int, rounds: int) -> list[list[int]]:
    """Return a drawn order of each round."""
    return [generator.permutation(treatments).tolist() for _ in range(rounds)]


def limits() -> Iterator[Row]:
    """Gates at 5 % (the rounds' differences vary by 4 %), a tenth of the runs."""
    for option in ("--fail-on", "--require"):
        for effect in (0.0, 0.05, 0.08, 0.1):
            for rounds in (6, 10, 20):
                yield f"{option}, n = {rounds}, +{100 * effect:.0f} %", partial(gated, effect, rounds, option)


def claimed(effect: float, says: str, comparisons: int, rounds: int, generator: np.random.Generator) -> str:
    """Return what becomes of a claim about the last of the treatments, of which the others equal the baseline."""
    logs = 0.03 * generator.normal(size=(comparisons + 1, rounds))
    logs[-1] += math.log1p(effect)
    labels = [{"engine": f"engine-{index}"} for index in (comparisons, 0)]
    claim = registered([Claim(labels[0], labels[1], "job.p50", says, rounds)], None)
    found = judged(np.exp(logs), in_order(generator, comparisons + 1, rounds), head={"claims": claim})
    assert found.claims is not None
    return found.claims.claims[0].state


def claims() -> Iterator[Row]:
    """What becomes of a registered claim after ten rounds that vary by 3 %, a tenth of the runs."""
    for says, effects in (("slower", (0.0, 0.05)), ("slower by 5%", (0.05, 0.1)), ("not slower by 5%", (0.0, 0.05))):
        for effect in effects:
            for comparisons in (1, 6):
                yield (
                    f'"{says}", true difference +{100 * effect:.0f} %, one of {comparisons} comparisons',
                    partial(claimed, effect, says, comparisons, 10),
                )


def slow_mode(generator: np.random.Generator, count: int) -> Values:
    """Return times of which 2 % are 4.5 times as long."""
    return np.exp(0.1 * generator.normal(size=count)) * np.where(generator.random(count) < 0.02, 4.5, 1.0)


TIMES: Final[Mapping[str, Noise]] = {
    "lognormal": lambda generator, count: np.exp(0.5 * generator.normal(size=count)),
    "Pareto 1.5": lambda generator, count: 1.0 + generator.pareto(1.5, count),
    "slow mode": slow_mode,
}


def unequal(times: str, q: float, few: int, many: int, generator: np.random.Generator) -> str:
    """Return the word for a percentile of equal treatments whose trials have unlike numbers of jobs (n = 20).

    The larger trials are cut to the jobs of the smaller ones.
    """

    def trial(count: int) -> float:
        return quantile(generator.choice(TIMES[times](generator, count), few, replace=False), q)

    sides = [np.log([trial(count) for _ in range(20)]) for count in (few, many)]
    return "false word" if decided(sides[1] - sides[0], Rules())[0] in DIRECTED else "none or same"


def jobs() -> Iterator[Row]:
    """Percentiles of unlike numbers of jobs."""
    for q, few, many in (
        (0.95, 20, 20), (0.95, 20, 60), (0.95, 20, 200), (0.95, 40, 120), (0.95, 100, 300), (0.99, 100, 300),
        (0.99, 100, 1000), (0.99, 200, 600), (0.99, 500, 1500),
    ):  # fmt: skip
        for times in TIMES:
            yield f"p{100 * q:.0f}, {few} and {many} jobs, {times}", partial(unequal, times, q, few, many)


def certified(runs: int, rounds: int, share: float, generator: np.random.Generator) -> str:
    """Return what a certificate says that is not so, of runs whose probe reads the share of the variance."""
    made = []
    for number in range(runs):
        read, rest = generator.normal(size=(2, rounds))
        d = math.sqrt(share) * read + math.sqrt(1 - share) * rest
        correlation = float((d * read).sum() / math.sqrt((d**2).sum() * (read**2).sum()))
        word: Any = "slower" if generator.random() < PROMISED else "same"
        comparison = RunComparison("twin", "job.p50", word, 1.0, 0.9, 1.1, carry_over=False)
        series = RunSeries("twin", 0.03 * float(generator.normal()), None, correlation, rounds)
        made.append(CertifiedRun(str(number), "", "", 1.0, (comparison,), (), (series,)))
    probe, words, place = probe_finding(made), false_words(made), bounded(one.series[0].place for one in made)
    assert probe is not None
    assert place is not None
    wrong = [
        *(["the probe explains"] if probe.explains else []),
        *(["false words are too many"] if words.runs_low > PROMISED else []),
        *(["a place matters"] if place.low is not None and not place.low <= 0.0 <= (place.high or 0.0) else []),
    ]
    return " and ".join(wrong) or "none"


def certificates() -> Iterator[Row]:
    """What a certificate of runs that err in 5 % says: all is wrong but the probe of the rows where it reads some."""
    for runs in (8, 30):
        for share in (0.0, 0.2, 0.5):
            yield (
                f"{runs} runs of 10 rounds, the probe reads {100 * share:.0f} %",
                partial(certified, runs, 10, share),
            )


TABLES: Final[Mapping[str, tuple[Callable[[], Iterator[Row]], int]]] = {
    "equal": (equal, 1),
    "few": (few, 1),
    "same": (same, 1),
    "power": (power, 1),
    "printed": (printed, 1),
    "promised": (promised, 10),
    "looks": (looks, 4),
    "between": (between, 2),
    "limits": (limits, 10),
    "claims": (claims, 10),
    "jobs": (jobs, 4),
    "certificates": (certificates, 4),
}
"""Each table, and of how many of the runs it has one: those that take long have fewer."""


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables that are asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--runs", type=int, default=2000)
    options = parser.parse_args(words)
    unknown = set(options.tables) - TABLES.keys()
    if unknown:
        parser.error(f"unknown table {', '.join(sorted(unknown))}; one of: {', '.join(TABLES)}")
    for name, (table, divisor) in TABLES.items():
        if options.tables and name not in options.tables:
            continue
        runs = max(1, options.runs // divisor)
        print(f"{name}, {runs:,} runs a row: {(table.__doc__ or '').split(chr(10), 1)[0]}")
        for title, run in table():
            found = shares(run, runs)
            told = ", ".join(f"{answer} {100 * share:.1f} %" for answer, share in found.items())
            print(f"  {title}: {told}", flush=True)


if __name__ == "__main__":
    main()
