"""The verdicts of a report as declared types: what ``verdicts`` holds in the JSON report, ``weighbridge-verdicts``.

Ratios are of `b` to `a`, the baseline: 1.05 is 5 % more. Shares are 0 to 1. None is a measure without a value; an end
of an interval that is open is None, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from bench_common.cost import CHANGE_WORDS
from bench_master.formatting import format_change, format_change_interval, format_value
from bench_master.verdicts.decision import ALPHA, Word
from bench_master.verdicts.reasons import Code, Reason, joined

VERDICTS_FORMAT: Final = "weighbridge-verdicts"
VERDICTS_VERSION: Final = 1
EACH_CONFIRMED: Final = "second-run"
"""How the level of verdicts on a trend is kept (`FamilyReport.control`)."""

WORDS_BY_IMPORTANCE: Final[tuple[Word, ...]] = (
    "slower", "worse", "faster", "better", "inconclusive", "refused", "same"
)  # fmt: skip
"""How much a reader must know a word: what got worse comes first."""
DIRECTED_WORDS: Final = frozenset({"faster", "slower", "better", "worse"})
"""Words that say in which direction a measure changed."""

FlagLevel: TypeAlias = Literal["note", "warning", "refusal"]
FlagKind: TypeAlias = Literal[
    "drift", "step", "neighbours", "regimes", "spread", "speed", "carry-over", "warm-up", "outliers", "hosts",
    "clusters", "margin", "failures", "failure-share", "failed", "noise-floor", "early-stop", "extended",
    "no measurement", "no counterpart", "one after the other", "start-cost",
]  # fmt: skip
"""What the diagnosis finds; the first four are in a series (`bench_master.verdicts.diagnosis`)."""
Grade: TypeAlias = Literal["A", "B", "C", "D"]
Unit: TypeAlias = Literal["round", "host", "run", "occasion"]
DifferenceClass: TypeAlias = Literal["refusal", "warning", "treatment", "accepted"]


class FlagReport(Struct, frozen=True):
    """Something that the diagnosis found."""

    kind: FlagKind
    """What it is, as ``--accept`` and other programs name it: ``drift``, ``step``, ``regimes`` ..."""
    where: str
    """The host, treatment or comparison that it was found in."""
    level: FlagLevel
    """``note``, ``warning``, or ``refusal`` of the words that depend on it."""
    p: float | None
    """How likely it is by chance; None for what is no test."""
    size: float | None
    """How large it is, mostly as a share; None for what has no size."""
    reason: Reason
    """The same as a code with its data."""
    also: Sequence[FlagKind] = ()
    """The kinds of what else was found there, of which the words tell, too."""
    text: str = ""
    """All of it in words."""

    def __post_init__(self) -> None:
        """Set the words."""
        force_setattr(self, "text", self.reason.sentence())


class BandReport(Struct, frozen=True):
    """The interval with what is not known exactly left out of it."""

    low: float | None
    """Its lower end as a ratio, as if all were known exactly."""
    high: float | None
    """Its upper end likewise."""
    why: str
    """What is not known exactly: ``clock``, ``quantised``, ``failed``."""


class QuantileReport(Struct, frozen=True):
    """The ratio at one quantile of the jobs of a trial (a point of the shift function)."""

    q: float
    """The quantile, 0 to 1."""
    ratio: float | None
    """The estimate; None if the trials have too few jobs for the quantile."""
    low: float | None
    """Lower end of its interval, which holds for all quantiles together."""
    high: float | None
    """Upper end."""


class HostEffectReport(Struct, frozen=True):
    """The ratio on one of several hosts."""

    host: str
    """The host's name."""
    ratio: float | None
    """The estimate."""
    low: float | None
    """Lower end of its interval, which holds for all hosts together."""
    high: float | None
    """Upper end."""
    rounds: int
    """Rounds of this host."""


class PartReport(Struct, frozen=True):
    """The ratio in a part of a run whose effect changed."""

    first: int
    """Its first round, of those with a value on both sides, from 1."""
    last: int
    """Its last round."""
    ratio: float | None
    """The estimate."""
    low: float | None
    """Lower end of its interval; those of all parts hold together."""
    high: float | None
    """Upper end."""


class ComparisonReport(Struct, frozen=True, kw_only=True):
    """One comparison of a treatment with its baseline."""

    a: str
    """Title of the baseline."""
    b: str
    """Title of the treatment."""
    name: str
    """What tells the treatment from its baseline, such as ``podman``."""
    group: str = ""
    """What both have in common, such as ``storage=volume``; empty if nothing tells groups apart."""
    labels: Mapping[str, Any]
    """Labels of the treatment."""
    measure: str
    """The primary measure: ``job.p50``, ``response.p95``, ``jobs_per_s``, or a metric's name."""
    unit: str
    """Its unit; ``s`` for times."""
    direction: Literal["higher", "lower"]
    """Which direction is better."""
    verdict: Word = "refused"
    """``faster``, ``slower``, ``better``, ``worse``, ``same``, ``inconclusive`` or ``refused``."""
    reason: str | None = None
    """Why nothing was decided, or what limits the decision; None if there is nothing to say."""
    reasons: Sequence[Reason] = ()
    """The same as codes with their data."""
    ratio: float | None = None
    """The estimate of b / a; with `scale` ``difference`` that of b - a."""
    low: float | None = None
    """Lower end of the interval; the range of the rounds' ratios if `confidence` is below 0.94."""
    high: float | None = None
    """Upper end."""
    scale: Literal["ratio", "difference"] = "ratio"
    """``difference`` (in the measure's unit) where a trial's measure is 0, so that there is no ratio."""
    confidence: float = 1.0 - ALPHA
    """Level of the interval, of the whole family together."""
    rounds: int
    """Rounds that have a value on both sides."""
    lost: int
    """Rounds that lack one."""
    p: float | None = None
    """Exact, two-sided, of this comparison alone; None without an interval."""
    mde: float | None = None
    """The difference, as a share, that would have been missed in one run of five (80 % power)."""
    tipping: float | None = None
    """How large a shift between the two, as a share, would explain the difference; 0 where there is none."""
    more_rounds: int | None = None
    """About how many more rounds would settle it; None if it is settled or out of reach."""
    band: BandReport | None = None
    """None if everything is known exactly."""
    a_value: float | None
    """Median of the baseline's trials, in `unit`; None where it gets no single number."""
    b_value: float | None
    """Median of the treatment's trials."""
    jobs_per_trial: float | None = None
    """Median number of jobs behind a trial's value, on the side that has fewer."""
    effective_jobs: float | None = None
    """How many independent jobs those of a trial are worth."""
    per_round: Sequence[float | None] = ()
    """The ratio of each round in order; None for a lost one."""
    per_host: Sequence[HostEffectReport] = ()
    """The ratio on each host; empty for a single host."""
    quantiles: Sequence[QuantileReport] = ()
    """The shift function; empty where the measure is no quantile of jobs."""
    parts: Sequence[PartReport] = ()
    """Where the effect changed during the run: the ratio in each half of it. A single part of all rounds, where
    halves are too short, says only that what it excludes does not hold in all of them. Empty where the effect did
    not change."""
    ratio_low: float | None = None
    """With `scale` ``difference``: lower end of the interval of b / a, which gates with a size are judged by."""
    ratio_high: float | None = None
    """Upper end."""
    flags: Sequence[FlagReport] = ()
    """What the diagnosis found in this comparison."""
    next_low: float | None = None
    """Lower end of where the next run's ratio is expected (95 %), by earlier runs; None without them."""
    next_high: float | None = None
    """Upper end."""
    exploratory: bool = False
    """Whether the run has registered claims and this is none of them."""
    unconfirmed: bool = False
    """Whether this run stands out from its trend, and a second run must confirm it before a gate fails."""
    a_failure: str | None = None
    """How many of the baseline's jobs failed, and why most of them did; None where none failed."""
    b_failure: str | None = None
    """The same of the treatment's."""

    def __post_init__(self) -> None:
        """Set the reason in words."""
        force_setattr(self, "reason", joined(self.reasons))

    def has_reason(self, code: Code) -> bool:
        """Return whether this is among its reasons."""
        return any(one.code is code for one in self.reasons)

    @property
    def has_failed(self) -> bool:
        """Return whether there is nothing to compare as the treatment's jobs failed."""
        return not self.rounds and self.b_failure is not None and self.b_value is None

    @property
    def baseline_has_failed(self) -> bool:
        """Return whether there is nothing to compare with as the baseline's jobs failed."""
        return not self.rounds and self.a_failure is not None and self.a_value is None

    @property
    def word(self) -> str:
        """Return the verdict as it is printed; ``FAILED`` where the treatment's jobs did."""
        return "FAILED" if self.has_failed else self.verdict.upper()


class FamilyReport(Struct, frozen=True):
    """What is the same for all comparisons."""

    alpha: float
    """How often any of them may err."""
    comparisons: int
    """How many hold together; where claims are registered, those of the claims."""
    margin: float
    """Smaller differences are *same*, as a share."""
    control: str
    """How the level is kept: ``bonferroni-interval``; ``second-run`` of a trend: another run confirms each."""
    exploratory: int = 0
    """Where claims are registered: how many other comparisons hold together, apart from those of the claims."""
    together: float | None = None
    """Of a run that was extended: in how many at most a word is wrong at this end or at an earlier one; else None."""


class StoppingReport(Struct, frozen=True):
    """How a run that went on until its verdicts were settled was stopped."""

    last: int
    """The last look, fixed before the first round."""
    look: int
    """The round after which it stopped."""
    nominal: float
    """Nominal level of that look."""
    why: str
    """``settled``, ``at-most``, ``budget`` or ``interrupted``."""


class DesignReport(Struct, frozen=True, kw_only=True):
    """What the run's design allows."""

    grade: Grade
    """``A`` all words, ``B`` with a remark, ``C`` words about hosts or runs, ``D`` no words."""
    reasons: Sequence[str] = ()
    """Why it is not A; empty if it is."""
    limits: Sequence[Reason]
    """The same as codes with their data."""
    order: str | None = None
    """Order of the trials: ``interleaved``, ``as-written``, ``blocked``; None of runs."""
    seed: int | None = None
    """The order's seed."""
    rounds: int = 0
    """Measured rounds."""
    scope: str
    """What the words are about, such as ``on host blade-1, in this run``."""
    unit: Unit
    """What counts as one independent measurement."""
    stopping: StoppingReport | None = None
    """None if the number of rounds was fixed."""

    def __post_init__(self) -> None:
        """Set the reasons in words."""
        force_setattr(self, "reasons", [one.sentence() for one in self.limits])


class PropertyReport(Struct, frozen=True):
    """A property in which two sides of a comparison, or two runs, differ."""

    name: str
    """Its name, as ``--accept`` takes it."""
    values: Mapping[str, str]
    """Its value on each side."""
    level: DifferenceClass
    """What follows from it."""


class RunChecksReport(Struct, frozen=True):
    """What the diagnosis looked for in the whole run."""

    flags: Sequence[FlagReport]
    """What it found, the gravest first."""
    looked_for: Sequence[str] = ()
    """What it looked for and did not find."""
    noise_floor: ComparisonReport | None = None
    """A treatment against itself (``aa``); None without one."""


class EnvironmentReport(Struct, frozen=True):
    """In what the two sides' environments differ."""

    differences: Sequence[PropertyReport]
    """Each property that differs."""


class RunFileReport(Struct, frozen=True):
    """A mention of a run: one that was compared, or that was left out."""

    file: str
    """The stats file; of an earlier run of an archive its id there."""
    run_id: str | None
    """The run's id; None if it cannot be read."""
    created: str | None
    """When it began (ISO 8601); None if unknown."""
    reason: Reason | None = None
    """The same as a code with its data; None if it was not."""
    why: str = ""
    """Why it was left out; empty if it was not."""

    def __post_init__(self) -> None:
        """Set the reason in words."""
        force_setattr(self, "why", "" if self.reason is None else self.reason.sentence())


class NoiseFloorReport(Struct, frozen=True):
    """By how much runs of one treatment differ."""

    name: str
    """The treatment."""
    measure: str
    """Its measure."""
    unit: str
    """Its unit."""
    runs: int
    """Runs of the current regime, which have a value."""
    sd: float | None
    """Standard deviation of their levels, as a share."""
    low: float | None
    """Lower end of where the next run is expected (95 %), as a ratio to their mean."""
    high: float | None
    """Upper end."""
    new_runs: int | None
    """How many runs of a new build show a difference of the margin, four times in five; None if no number does."""


class ChangeReport(Struct, frozen=True):
    """A step in the history of a treatment, or its newest runs if they stand out."""

    name: str
    """The treatment."""
    measure: str
    """Its measure."""
    kind: Literal["step", "newest"]
    """``newest``: too new for a step."""
    since: str
    """The stats file of the first run after it."""
    created: str | None
    """When that run began."""
    runs: int
    """Runs after it, up to the next step."""
    ratio: float
    """The level after it to that before."""
    low: float
    """Lower end of the interval of that: at 95 % for a step, at 99.9 % for the newest runs."""
    high: float
    """Upper end."""
    p: float
    """How likely it is by chance, at most."""
    word: Word
    """``slower``, ``faster``, ``worse`` or ``better``."""


class ArchiveReport(Struct, frozen=True):
    """Earlier runs that a run is judged by. With several treatments the figures are those of the noisiest."""

    runs: int
    """How many there are."""
    sd: float | None
    """Standard deviation of their levels, as a share."""
    low: float | None
    """Lower end of where the next run is expected (95 %), as a ratio to their mean."""
    high: float | None
    """Upper end."""
    earlier: Sequence[RunFileReport] = ()
    """The earlier runs, in the order of time."""
    new: Sequence[RunFileReport] = ()
    """The runs that are held against them."""
    left_out: Sequence[RunFileReport] = ()
    """Files that were named, or are in a folder that was, and do not count, with the reason."""
    noise: Sequence[NoiseFloorReport] = ()
    """By how much runs of each treatment differ."""
    changes: Sequence[ChangeReport] = ()
    """When the level of a treatment changed."""


class GateReport(Struct, frozen=True):
    """One condition that the exit code depends on."""

    gate: str
    """As it was given: ``--fail-on "slower by 5%"``."""
    state: Literal["passed", "failed", "undecided"]
    """``undecided`` where the data cannot tell; such a gate is not green."""
    comparison: str
    """The comparison it is about; empty for all."""
    text: str
    """The outcome in words."""
    exit_code: int
    """What it alone makes of the exit code: 0; 1 failed; 3 it depends on rounds that are missing; 4 undecided."""


class ClaimReport(Struct, frozen=True):
    """What became of a claim that the scenario made before the first job."""

    name: str
    """The two treatments: ``engine=crun against engine=runc``."""
    treatment: str
    """Title of the treatment that it is about; empty if the run has no such treatment."""
    against: str
    """Title of the one that this is compared with."""
    measure: str
    """The measure, such as ``job.p50``."""
    says: str
    """What is claimed: ``faster by 10%``."""
    rounds: int
    """It is judged by the first so many rounds."""
    state: Literal["kept", "broken", "undecided"]
    """``undecided`` where the data cannot tell; such a claim is not green."""
    text: str
    """The outcome in words."""
    exit_code: int
    """What it alone makes of the exit code: 0; 1 broken; 3 it depends on rounds that are missing; 4 undecided."""


class ClaimsReport(Struct, frozen=True):
    """The claims that were registered before the first job; they are the family, and all else is exploratory."""

    sha256: str
    """Their digest in the header of the stats file."""
    intact: bool
    """Whether the digest is that of the claims in the header; otherwise none is decided."""
    claims: Sequence[ClaimReport]
    """Each claim, in the order of the scenario."""


class VerdictsReport(Struct, frozen=True, kw_only=True):
    """All verdicts of a run."""

    format: str = VERDICTS_FORMAT
    """``weighbridge-verdicts``."""
    version: int = VERDICTS_VERSION
    """Version of the format."""
    answer: str = ""
    """All verdicts as a sentence for each word: ``Faster than docker (307 ms): native (3.86 ms, 79.6x as fast).``"""
    question: str
    """What was compared: ``Engines against docker: job time (p50 of a trial), margin 3 %``."""
    family: FamilyReport
    """What is the same for all comparisons."""
    design: DesignReport
    """What the design allows."""
    comparisons: Sequence[ComparisonReport]
    """Each comparison, in the order of the plan."""
    runs: RunChecksReport = RunChecksReport(())
    """What the diagnosis found in the whole run."""
    environment: EnvironmentReport = EnvironmentReport(())
    """In what the sides' environments differ."""
    archive: ArchiveReport | None = None
    """Earlier runs; None if there are none."""
    refused: Sequence[str] = ()
    """Why words were refused; empty if none was."""
    gates: Sequence[GateReport] = ()
    """Each gate's outcome; empty without gates."""
    exit_code: int = 0
    """What the gates alone make of it: 0, 1, 3 or 4."""
    between: VerdictsReport | None = None
    """The run's treatments against themselves in earlier runs; None without them."""
    claims: ClaimsReport | None = None
    """What became of the claims of the scenario; None without claims."""
    neighbours: Sequence[ComparisonReport] = ()
    """Each treatment against the next one in the order of their values, where the baseline is not between them. Their
    intervals hold together, apart from those of `comparisons`. No gate asks them."""


def change_text(comparison: ComparisonReport) -> str:
    """Return by how much a treatment differs from its baseline: ``+21.0 %``, ``79.6x as fast``, ``+1.20 ms``."""
    if comparison.scale == "difference":
        return signed_value(comparison.ratio, comparison.unit)
    # The word says in which direction.
    text = format_change(comparison.ratio, sided=comparison.verdict in DIRECTED_WORDS)
    known = _AMOUNT_WORDS if comparison.measure in CHANGE_WORDS else _FACTOR_WORDS
    words = known.get(comparison.verdict) if text.endswith("x") else None
    return f"{text} {words}" if words else text


_FACTOR_WORDS: Final[Mapping[str, str]] = {"faster": "as fast", "slower": "as slow"}
_AMOUNT_WORDS: Final[Mapping[str, str]] = {"better": "less", "worse": "as much"}


def spread_text(comparison: ComparisonReport, title: str) -> str:
    """Return the range of a side's values where no single number holds, and why: ``188 to 440 ms, drifted``.

    Empty where the side has a single number, or nothing is known of its values.
    """
    for flag in comparison.flags:
        data = flag.reason.data
        if flag.reason.code is Code.NO_SINGLE_NUMBER and data["treatment"] == title and len(data["values"]) > 1:
            how = "drifted" if {one["kind"] for one in data["findings"]} & {"drift", "step"} else "varied"
            return f"{range_text(data['values'][0], data['values'][-1], comparison.unit)}, {how}"
    return ""


def of_side(title: str, side: str) -> str:
    """Return what a treatment of one of two runs is called that are compared: `side` is ``earlier`` or ``new``."""
    return f"{title} in the {side} run"


def range_text(first: float, last: float, unit: str) -> str:
    """Return two values with their unit once, if they have one: ``188 to 440 ms``, ``1,052 to 3,466/s``."""
    texts = [format_value(value, unit) for value in (first, last)]
    number, own = _split_unit(texts[0])
    return f"{number if own == _split_unit(texts[1])[1] else texts[0]} to {texts[1]}"


def _split_unit(text: str) -> tuple[str, str]:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/% ")
    return number, text[len(number) :]


def change_words(comparison: ComparisonReport) -> str:
    """Return the words of a verdict with a direction, to be followed by ``than``: ``faster``, ``uses less memory``.

    Those of what a job costs say what there is less of.
    """
    known = CHANGE_WORDS.get(comparison.measure)
    if known is None or comparison.verdict not in ("worse", "better"):
        return comparison.verdict
    return known[comparison.verdict == "better"]


def interval_text(comparison: ComparisonReport, fewest_rounds: int = 0) -> str:
    """Return the interval of the difference; a dash without one, or where it is the range of fewer rounds."""
    ends = (comparison.low, comparison.high)
    if comparison.ratio is None or ends == (None, None) or comparison.rounds < fewest_rounds:
        return "-"
    if comparison.scale == "difference":
        return "[" + ", ".join(signed_value(end, comparison.unit) for end in ends) + "]"
    return format_change_interval(comparison.low, comparison.high, comparison.ratio)


def signed_value(value: float | None, unit: str) -> str:
    """Return a difference in a measure's unit, with its sign."""
    text = format_value(value, unit)
    return f"+{text}" if value and value > 0 and math.isfinite(value) else text


def verdict_line(comparison: ComparisonReport, *, groups: bool = False) -> str:
    """Return a verdict on one line, with what the treatments have in common if there are several groups."""
    group = f" ({comparison.group})" if groups and comparison.group else ""
    again = " (unconfirmed: run it again)" if comparison.unconfirmed else ""
    return f"{comparison.word} {comparison.name}{group} {change_text(comparison)}{again}"


def verdict_lines(comparisons: Sequence[ComparisonReport]) -> list[str]:
    """Return a line for each comparison, the most important first."""
    groups = len({each.group for each in comparisons}) > 1
    return [verdict_line(each, groups=groups) for each in sorted(comparisons, key=_importance)]


def _importance(comparison: ComparisonReport) -> tuple[int, float]:
    size = comparison.ratio if comparison.ratio is not None else 0.0
    effect = abs(math.log(size)) if comparison.scale == "ratio" and size > 0.0 else abs(size)
    return WORDS_BY_IMPORTANCE.index(comparison.verdict), -effect
