"""The reasons of verdicts, refusals and flags as data, and the one table that turns them into sentences.

A `Reason` is a code with its data, so programs and tests compare what it is, never how it reads. `SENTENCES` has the
sentence of each code for every format, and docs/reference/reasons.rst lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field

from bench_common.safe_text import shorten
from bench_master.formatting import format_change, format_change_interval, format_number, format_value, listed, plural


class Code(StrEnum):
    """What a reason says; the value is its name in JSON."""

    # -- what decides or limits a verdict within a run
    BELOW_MARGIN = "below-margin"
    CLEAR_GAP = "clear-gap"
    DEPENDS_ON_CARRY_OVER = "depends-on-carry-over"
    DEPENDS_ON_CLOCK = "depends-on-clock"
    DEPENDS_ON_FAILURES = "depends-on-failures"
    DEPENDS_ON_POSITION = "depends-on-position"
    DEPENDS_ON_ROUNDING = "depends-on-rounding"
    EFFECT_CHANGED = "effect-changed"
    MAYBE_BELOW_MARGIN = "maybe-below-margin"
    NOT_ENOUGH_EVIDENCE = "not-enough-evidence"
    NOT_ENOUGH_TOGETHER = "not-enough-together"
    NO_COMMON_ROUND = "no-common-round"
    TOO_FEW_ROUNDS = "too-few-rounds"
    # -- why nothing is compared
    BASELINE_SKIPPED = "baseline-skipped"
    NO_SHARED_JOB = "no-shared-job"
    ONE_TREATMENT = "one-treatment"
    TREATMENTS_SKIPPED = "treatments-skipped"
    # -- the design of a run
    DIFFERENT_HOSTS = "different-hosts"
    NOOP = "noop"
    NOT_INTERLEAVED = "not-interleaved"
    ORDER_NOT_DRAWN = "order-not-drawn"
    SPLIT_ROUNDS = "split-rounds"
    # -- the two sides of a comparison
    HOST_SERIES = "host-series"
    HARNESS_CPU = "harness-cpu"
    LIMITED_BY_HARNESS = "limited-by-harness"
    MARGIN_TOO_NARROW = "margin-too-narrow"
    POPULATIONS_DIFFER = "populations-differ"
    PROPERTIES_DIFFER = "properties-differ"
    RATIOS_SERIES = "ratios-series"
    TOO_FEW_JOBS = "too-few-jobs"
    UNLIKE_MEASURES = "unlike-measures"
    # -- the designs of comparisons between runs
    UNIT = "unit"
    ONE_RUN_EACH = "one-run-each"
    RUNS_IN_BLOCKS = "runs-in-blocks"
    # -- comparisons between runs
    EARLIER_RUNS_ALIKE = "earlier-runs-alike"
    LEVEL_CHANGED = "level-changed"
    NO_VALUE = "no-value"
    OCCASIONS = "occasions"
    ONE_SIDE_STATES = "one-side-states"
    OTHER_PARAMETERS = "other-parameters"
    PAIR_WITHOUT_VALUE = "pair-without-value"
    RELATIVE_TO = "relative-to"
    RUNS_DIFFER = "runs-differ"
    TOO_FEW_EARLIER_RUNS = "too-few-earlier-runs"
    TOO_FEW_OCCASIONS = "too-few-occasions"
    TOO_FEW_RUNS = "too-few-runs"
    UNSTABLE_RUNS = "unstable-runs"
    # -- why a run is left out of a comparison
    UNUSABLE_RUN = "unusable-run"
    # -- the trend of an archive
    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"
    # -- parts of these: which earlier runs there are
    WHICH_RUNS = "which-runs"
    # -- what the diagnosis flags
    CARRY_OVER = "carry-over"
    DIFFERS_FROM_ITSELF = "differs-from-itself"
    EXTENDED = "extended"
    FAILS_MORE_OFTEN = "fails-more-often"
    HOSTS_DISAGREE = "hosts-disagree"
    JOBS_ALIKE = "jobs-alike"
    JOBS_FAILED = "jobs-failed"
    NO_COUNTERPART = "no-counterpart"
    NO_SINGLE_NUMBER = "no-single-number"
    ONE_AFTER_THE_OTHER = "one-after-the-other"
    OUTLIERS = "outliers"
    RUNS_RESEMBLE = "runs-resemble"
    SPEED_CHANGED = "speed-changed"
    START_COST = "start-cost"
    STOPPED_EARLY = "stopped-early"
    SURVIVORS = "survivors"
    WARM_UP_TOO_SHORT = "warm-up-too-short"


class Reason(Struct, frozen=True):
    """A reason: what it says, and with which data."""

    code: Code
    """What it says, by name."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What it says it of: numbers, names, and further reasons; the same keys for each code."""

    def __hash__(self) -> int:
        """Return the same number for equal reasons; their data may be lists."""
        return hash(self.code)

    def sentence(self, names: Mapping[str, str] | None = None) -> str:
        """Return it in words; `names` are shorter names of treatments by title."""
        data = self.data
        if names:
            data = {key: _renamed(one, names) if key in _TREATMENTS else one for key, one in data.items()}
        text = SENTENCES[self.code].text
        if isinstance(text, Mapping):
            text = text[data["kind"]]
        return text.format(**data) if isinstance(text, str) else text(**data)

    def names_place(self) -> bool:
        """Return whether its sentence says where it was found."""
        return SENTENCES[self.code].names_place


def _renamed(titles: Any, names: Mapping[str, str]) -> Any:
    """Return titles by their shorter names; how many treatments there are stays a number."""
    if isinstance(titles, str):
        return names.get(titles, titles)
    return [names.get(one, one) for one in titles] if isinstance(titles, Sequence) else titles


def because(code: Code, **data: Any) -> Reason:
    """Return a reason; raise `TypeError` unless its data have the keys that its sentence takes."""
    if data.keys() != SENTENCES[code].example.keys():
        raise TypeError(f"{code}: its data are {', '.join(SENTENCES[code].example) or 'none'}, not {', '.join(data)}")
    return Reason(code, data)


def joined(reasons: Iterable[Reason]) -> str | None:
    """Return several reasons as one text; None without any."""
    return "; ".join(one.sentence() for one in reasons) or None


class Sentence(Struct, frozen=True):
    """How a reason reads."""

    text: str | Callable[..., str] | Mapping[str, str | Callable[..., str]]
    """A template of its data, one for each ``kind`` among them, or what makes the sentence of them."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """Data of the kind that it takes."""
    names_place: bool = True
    """Whether it says where it was found: the host, treatment or comparison."""
    advice: str = ""
    """What it means and what to do, where the sentence does not say it; docs/reference/reasons.rst has it."""


_TREATMENTS: Final = frozenset({"treatment", "other", "treatments"})
"""Data that are titles of treatments, or lists of them."""
_CANCELLED: Final = "ratios within a round hold, single values do not"
MAX_NAMED: Final = 3
"""How many properties a refusal names."""
MAX_VALUE_CHARS: Final = 40


# -- parts of sentences ----------------------------------------------------------------------------------------------


def describe_findings(findings: Sequence[Mapping[str, Any]], unit: str = "trial") -> str:
    """Return what the diagnosis found in a series, in words: ``two levels, 1.21x apart, 7 changes``.

    Each finding has its ``kind`` and ``ratio``; `unit` is what the series is of.
    """
    return ", ".join(_describe_finding(one, unit) for one in findings)


def _describe_finding(one: Mapping[str, Any], unit: str) -> str:
    match one["kind"]:
        case "regimes":
            return f"two levels, {one['ratio']:.2f}x apart, {plural(one['switches'], 'change')} between them"
        case "step":
            return f"a step of {format_change(one['ratio'])} after the {_ordinal(one['at'])} {unit}"
        case "drift":
            return f"a drift of {format_change(one['ratio'])}"
        case _:
            return f"autocorrelation {one['correlation']:.2f}"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def describe_spread(findings: Sequence[Mapping[str, Any]], values: Sequence[float], unit: str) -> str:
    """Return what a series of trials shows, and two values of it that say how far it spreads; or none."""
    text = describe_findings(findings)
    if not values:
        return text
    first, second = (format_value(value, unit) for value in values)
    match findings[0]["kind"]:
        case "regimes":
            return f"{text}: {first} and {second}"
        case "neighbours":
            return f"{text}: between {first} and {second}"
        case _:
            return f"{text}; the first was {first}, the last {second}"


def _against(properties: Sequence[Mapping[str, Any]]) -> str:
    texts = [f"{one['name']} ({' against '.join(one['values'])})" for one in properties]
    return listed(texts, MAX_NAMED)


# -- sentences within a run ------------------------------------------------------------------------------------------


def _effect_changed(first: float, last: float) -> str:
    return f"the effect itself changed, from {format_change(first)} to {format_change(last)}"


def _properties_differ(properties: Sequence[Mapping[str, Any]]) -> str:
    names = {one["name"] for one in properties}
    texts = []
    for one in properties[:MAX_NAMED]:
        a, b = (shorten(value, MAX_VALUE_CHARS) for value in one["values"])
        texts.append(f"{one['name']} is {a} and {b}")
    more = f"; {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    count = "a property differs" if len(names) == 1 else f"{len(names)} properties differ"
    return f"{count} besides the treatment ({'; '.join(texts)}{more})"


def _limited_by_harness(
    treatment: str, rate_per_s: float, ceiling_per_s: float, ceiling: str, others: float | None
) -> str:
    share = f"{100 * rate_per_s / ceiling_per_s:.0f} %"
    text = (
        f"limited by the harness: {treatment} asks for {format_number(rate_per_s)} jobs/s, {share} of the "
        f"{format_number(ceiling_per_s)} that the harness itself can do here ({ceiling})"
    )
    if others is None:
        return text
    return f"{text}; others had {100 * others:.0f} % of the CPUs meanwhile, and the next run measures it again"


# -- sentences between runs ------------------------------------------------------------------------------------------


_ONE_RUN_EACH: Final = "one run each: how much runs differ cannot be known from one"


def _one_run_each(properties: Sequence[str]) -> str:
    if not properties:
        return _ONE_RUN_EACH
    more = " ..." if len(properties) > 2 else ""  # noqa: PLR2004  names
    return f"{_ONE_RUN_EACH}; they also differ in {', '.join(properties[:2])}{more}"


def _runs_differ(properties: Sequence[Mapping[str, Any]]) -> str:
    name = properties[0]["name"]
    quoted = f"'{name}'" if " " in name else name
    return f"the runs differ in {_against(properties)}; --accept {quoted} if that is what you compare"


def _too_few_earlier_runs(earlier: int, needed: int, since: Reason | None, others: Reason | None) -> str:
    count = f"only {plural(earlier, 'earlier run')}" if earlier else "no earlier run"
    which = since.sentence() if since is not None else "of this kind"
    last = f" (the others: {others.sentence()})" if others is not None else ""
    return f"{count} {which}{last}; {needed} are needed"


def _other_parameters(changes: Sequence[Mapping[str, Any]]) -> str:
    texts = [f"{one['name']} {' -> '.join(one['values'])}" for one in changes]
    return f"other parameters: {listed(texts, 2)}"


def _runs_in_blocks(earlier: int, new: int, needed: int) -> str:
    return (
        f"the runs did not take turns, and were made on {plural(earlier, 'occasion')} and {plural(new, 'occasion')}: "
        "what changed between them looks the same as a difference; take turns, or measure each side on "
        f"{needed} occasions"
    )


def _with_findings(template: str, unit: str) -> Callable[..., str]:
    """Return what makes a sentence that tells what was ``found`` in a series of units."""
    return lambda findings, **_: template.format(found=describe_findings(findings, unit))


def _occasions(earlier_runs: int, earlier: int, new_runs: int, new: int) -> str:
    texts = [
        f"{plural(runs, f'{side} run')} on {plural(count, 'occasion')}"
        for side, runs, count in (("earlier", earlier_runs, earlier), ("new", new_runs, new))
        if runs != count
    ]
    return f"runs of one occasion count once: {' and '.join(texts)}"


def _unconfirmed(ratio: float, low: float | None, high: float | None) -> str:
    size = f"{format_change(ratio)} {format_change_interval(low, high, ratio)}"
    return f"{size}, unconfirmed: run it again; a second run that agrees confirms it"


# -- sentences of flags ----------------------------------------------------------------------------------------------


def _host_series(place: str, findings: Sequence[Mapping[str, Any]], *, cancelled: bool) -> str:
    consequence = _CANCELLED if cancelled else "no word can be said over it"
    return f"{place}: the run has {describe_findings(findings)}: {consequence}"


def _speed_changed(host: str, findings: Sequence[Mapping[str, Any]], *, by_others: bool, cancelled: bool) -> str:
    cause = "others used its CPUs" if by_others else "its CPUs did"
    consequence = _CANCELLED if cancelled else "no ratio holds without drawn rounds"
    return f"{host} changed speed ({describe_findings(findings)}; {cause}): {consequence}"


def _start_cost(treatment: str, cost_s: float, time_s: float) -> str:
    cost = f"{treatment}: starting a process takes {format_value(cost_s, 's')}"
    measured = "of its time (an empty command in the same jobs)"
    if cost_s >= time_s:
        return f"{cost}, all {measured}: its own time does not show"
    return f"{cost}, {100.0 * cost_s / time_s:.0f} % {measured}, so the commands' own times differ by more"


def _outliers(treatment: str, trials: int, of: int, rounds: Sequence[int]) -> str:
    numbers = listed([str(number) for number in rounds], 5, " ...")
    return (
        f"{treatment}: {trials} of {of} trials lie far from the others (round {numbers}); they count like the others"
    )


def _hosts_disagree(hosts: Sequence[Mapping[str, Any]]) -> str:
    effect = ", ".join(f"{one['host']} {format_change(one['ratio'])}" for one in hosts)
    return f"the hosts disagree: {effect}; what holds for all of them together holds for none"


def _jobs_failed(treatment: str, failed: int, of: int, *, left_out: bool) -> str:
    text = f"{treatment}: {failed} of {of} jobs failed"
    if failed == of:
        return text
    allowed = "the interval allows for whatever they would have given"
    return f"{text}; {'left out: those that succeeded are judged' if left_out else allowed}"


_DRIFT: Final = {"findings": [{"kind": "drift", "ratio": 1.2}]}
_SPREAD: Final = {**_DRIFT, "values": [1.0, 1.2], "unit": "s"}

SENTENCES: Final[Mapping[Code, Sentence]] = {
    Code.BELOW_MARGIN: Sentence(
        "real, but below the margin",
        advice="The verdict is same: there is a difference, and it is smaller than the margin.",
    ),
    Code.CLEAR_GAP: Sentence(
        "by a clear gap; {rounds} rounds are too few for an interval",
        {"rounds": 3},
        advice="Every trial of one side lies far beyond all of the other. The range that is shown is no 95 % "
        "interval.",
    ),
    Code.DEPENDS_ON_CARRY_OVER: Sentence(
        lambda half: f"depends on what one treatment leaves to the next, which may be {format_change(half)}",
        {"half": 1.04},
        advice="Trials come out differently after one side than after the other, and the verdict changes within the "
        "half of that which the interval allows for. Let the host settle between trials (`settle`).",
    ),
    Code.DEPENDS_ON_CLOCK: Sentence(
        "depends on how exactly the clock was read",
        advice="Ends are stamped late by a known bound, and the verdict changes within it. More rounds do not help: "
        "take longer jobs, or a less busy host.",
    ),
    Code.DEPENDS_ON_FAILURES: Sentence(
        "depends on how failed jobs are counted",
        advice="Failed jobs and missing rounds could have had any value, and with some of them the verdict changes. "
        "Find out why they failed; `--failures at-random` leaves them out, and says so. Under a gate the exit"
        " code is 3 if rounds are missing.",
    ),
    Code.DEPENDS_ON_POSITION: Sentence(
        lambda effect: f"depends on the place in a round, which may make {format_change(effect)}",
        {"effect": 1.04},
        advice="The order of the trials was not drawn. A treatment that ran twice in each round (`aa`) differs from "
        "itself by up to so much, and the verdict changes within it. Take `order: interleaved`.",
    ),
    Code.DEPENDS_ON_ROUNDING: Sentence(
        "depends on how the tool rounds the measure",
        advice="More rounds do not help: take a measure with more digits, or longer jobs.",
    ),
    Code.EFFECT_CHANGED: Sentence(
        _effect_changed,
        {"first": 1.02, "last": 1.09},
        names_place=False,
        advice="The rounds' ratio drifted or had a step, so there is no one ratio. A direction is given only if both"
        " halves of the run agree; `-v` shows the interval of each, and gates are judged by these. Find what "
        "changed (a cache that fills, a leak) and measure each state by itself.",
    ),
    Code.MAYBE_BELOW_MARGIN: Sentence(
        "may be less than the margin", advice="A difference is shown; that it is larger than the margin is not."
    ),
    Code.NOT_ENOUGH_EVIDENCE: Sentence(
        "not enough evidence for a difference, nor for equality",
        advice='The interval contains "no difference" and is wider than the margin. Run more rounds (`repeats`, '
        "`--until verdict`), quieten the machine, or accept a wider margin.",
    ),
    Code.NOT_ENOUGH_TOGETHER: Sentence(
        "not enough for {comparisons} comparisons together",
        {"comparisons": 12},
        advice="Alone this comparison would have a verdict; together one in twenty would be wrong by chance. Run "
        "more rounds, or ask fewer questions.",
    ),
    Code.NO_COMMON_ROUND: Sentence(
        "no round has a value on both sides", advice="All rounds are lost: see the errors of the run."
    ),
    Code.TOO_FEW_ROUNDS: Sentence(
        lambda rounds: f"{plural(rounds, 'round')} {'is' if rounds == 1 else 'are'} too few",
        {"rounds": 2},
        advice="Fewer than three rounds never have a verdict; three to five only for a gap that leaves no doubt "
        "(three in a run of one comparison, four of up to 6, five of up to 25). Run six or more; ten is good advice.",
    ),
    Code.BASELINE_SKIPPED: Sentence(
        "the baseline {baseline} is optional and was skipped: {why}; provide what it lacks and run again, or name "
        "another one with --baseline",
        {"baseline": "storage=tmpfs", "why": "..."},
        advice="What the others are compared with did not run on this host.",
    ),
    Code.NO_SHARED_JOB: Sentence(
        "no two treatments share a job; name what to compare, such as --baseline job=NAME",
        advice="The treatments do different work, so a ratio of them needs your word that it means something.",
    ),
    Code.ONE_TREATMENT: Sentence(
        "only one treatment ran: add an engine or a value, or compare runs with 'bench-master compare'"
    ),
    Code.TREATMENTS_SKIPPED: Sentence(
        lambda ran, title, why: (
            f"{'one treatment' if ran else 'no treatment'} ran, as {title} is optional and was skipped: {why}"
        ),
        {"ran": 1, "title": "storage=tmpfs", "why": "..."},
        advice="Provide what the treatment lacks, and run again.",
    ),
    Code.DIFFERENT_HOSTS: Sentence(
        {
            "few": "the sides ran on different hosts ({fewest} on one side); {needed} on each side can be compared",
            "shared": "the sides share some of their hosts and not others",
            "unmeasured": "too few hosts have a measure of their own; {needed} on each side can be compared",
        },
        {"kind": "few", "fewest": 1, "needed": 4},
        advice="With one host on each side, a host cannot be told from a treatment. Give both treatments the same "
        "hosts (`environments`), or four on each side, of which each counts once. Hosts of which jobs failed, or "
        "were too few for the quantile, have no measure.",
    ),
    Code.NOOP: Sentence("a no-op run measures the harness", advice="`--noop` runs nothing. Run without it."),
    Code.NOT_INTERLEAVED: Sentence(
        {
            "as-written": "the order of the trials was not drawn (order: as-written), and no treatment ran twice in "
            "each round (aa): the place in a round may make any difference",
            "blocked": "not interleaved (order: blocked)",
            "imported": "the results were measured elsewhere, one treatment after the other",
            "unknown": "nobody knows the order of the trials",
        },
        {"kind": "blocked"},
        advice="Where all trials of one treatment run before the next one's, heat, a neighbour or a cache that fills "
        "looks the same as a difference; so does the place in a round of one order. Leave `order` out, and run "
        "again, or say `aa: true`: what differs from itself by its place then bounds what the place does. Read the "
        "ratio of imported results as a hint, and measure both sides in one scenario.",
    ),
    Code.ORDER_NOT_DRAWN: Sentence(
        "the order of the trials was not drawn (order: {order})",
        {"order": "as-written"},
        advice="The same treatment always came first. A treatment that ran twice in each round (`aa`) shows how much"
        " its place may make, and the intervals allow for that much. If the machine drifts, words are "
        "refused.",
    ),
    Code.SPLIT_ROUNDS: Sentence(
        lambda rounds: (
            f"{rounds} {'round was' if rounds == 1 else 'rounds were'} split by an interruption and left out"
        ),
        {"rounds": 2},
        advice="A resumed run: the halves of these rounds do not belong together.",
    ),
    Code.HOST_SERIES: Sentence(
        _host_series,
        {"place": "blade-1", **_DRIFT, "cancelled": True},
        advice="The level rises or falls over the run (drift), jumped once (step: look at what else began then), has"
        " two levels (frequency, placement, a neighbour), or trials resemble the one before (neighbours: "
        "the machine has slow noise). Drawn rounds on one host cancel that. A run without them can say no word: use "
        "`order: interleaved`, and find the cause.",
    ),
    Code.HARNESS_CPU: Sentence(
        lambda treatment, share, idle, difference: (
            f"limited by the harness: in {treatment} it took {100 * share:.1f} % of the host's CPU time, of which "
            f"{100 * idle:.1f} % were idle; the difference is {100 * difference:.1f} %"
        ),
        {"treatment": "command=old", "share": 0.24, "idle": 0.03, "difference": 0.1},
        advice="Master and workers took CPU time that the jobs lacked, and more of it than the two sides differ by "
        "(or than the margin). Keep fewer jobs in flight, use a host with more CPUs, or workers on other "
        "hosts than the master's.",
    ),
    Code.LIMITED_BY_HARNESS: Sentence(
        _limited_by_harness,
        {
            "treatment": "storage=volume",
            "rate_per_s": 95_000.0,
            "ceiling_per_s": 100_000.0,
            "ceiling": "no-op",
            "others": None,
        },
        advice="The rate is at least 80 % of what Weighbridge can do on this host with jobs that do nothing. Use "
        "jobs that do more each, fewer of them a second (`--rate`), or more workers (`--workers`). If others "
        "had CPUs meanwhile, run again without them, or `bench-master doctor --ceiling` first.",
    ),
    Code.MARGIN_TOO_NARROW: Sentence(
        lambda margin, measure, least: (
            f"a margin of {100.0 * margin:.4g} % is less than {measure} can tell here: the least sensible one is "
            f"{100.0 * least:.4g} %"
        ),
        {"margin": 0.03, "measure": "job.p50", "least": 0.125},
        names_place=False,
        advice="The measure comes in steps, or its clock is not that exact. Set a wider `margin`, or take longer "
        "jobs.",
    ),
    Code.POPULATIONS_DIFFER: Sentence(
        "the populations differ: {treatment} lacks {missing} of its objects, and {other} {other_missing}",
        {"treatment": "storage=tmpfs", "missing": 20, "other": "storage=volume", "other_missing": 0},
        advice="Fewer objects are read more often, and more of those reads find them in a cache. Find out why they "
        "could not be made, and run again.",
    ),
    Code.PROPERTIES_DIFFER: Sentence(
        _properties_differ,
        {"properties": [{"name": "cpu_model", "values": ["Xeon", "EPYC"]}]},
        advice="The difference may be due to these properties. Make them alike, or name the one that does not "
        "matter: `--accept NAME`.",
    ),
    Code.RATIOS_SERIES: Sentence(
        lambda findings: f"the rounds' ratios have {describe_findings(findings)}",
        {"findings": [{"kind": "step", "ratio": 1.06, "at": 12}]},
        advice="The series changed while the treatments ran. Use `order: interleaved`, and find the cause.",
    ),
    Code.TOO_FEW_JOBS: Sentence(
        "{measure} needs {needed} jobs in each trial; the smallest has {fewest}",
        {"measure": "p99", "needed": 100, "fewest": 60},
        advice="A quantile beyond what the trial's jobs reach is the largest of them. Run more jobs in a trial "
        "(`iterations`, `run_seconds`), or compare a lower quantile.",
    ),
    Code.UNLIKE_MEASURES: Sentence(
        lambda a, a_unit, b, b_unit: f"unlike measures: {a} in {a_unit or '1'} and {b} in {b_unit or '1'}",
        {"a": "job.p50", "a_unit": "s", "b": "events_per_second", "b_unit": "1/s"},
        advice="Set `primary` for both jobs.",
    ),
    Code.UNIT: Sentence(
        {
            "archive": "against earlier runs: the unit is the occasion",
            "groups": "two groups of runs in turns: the unit is the run",
            "history": "a series of runs: the unit is the run",
            "hosts": "the sides ran on different hosts: the words are about hosts",
            "occasions": "two groups of runs, one after the other: the unit is the occasion",
            "pairs": "runs in turns: the unit is the pair of runs",
            "trend": "against the trend of earlier runs: the unit is the run, and a second one confirms a change",
        },
        {"kind": "pairs"},
        advice="What counts once, however many rounds it has.",
    ),
    Code.ONE_RUN_EACH: Sentence(
        _one_run_each,
        {"properties": []},
        advice="The interval within a run knows nothing of what is constant in it: memory layout, boot, day, "
        "neighbours. Make both builds treatments of one scenario, or use `run-scenario --rerun-baseline`.",
    ),
    Code.RUNS_IN_BLOCKS: Sentence(
        _runs_in_blocks,
        {"earlier": 1, "new": 1, "needed": 4},
        advice="Two groups of runs, one after the other, are a blocked order.",
    ),
    Code.EARLIER_RUNS_ALIKE: Sentence(
        "the earlier runs do not differ at all, so they cannot say how much runs differ",
        advice="Runs that agree to the last digit are copies, or the measure is too coarse to vary.",
    ),
    Code.LEVEL_CHANGED: Sentence(
        lambda runs, needed: f"the level changed {plural(runs, 'run')} ago; {needed} are needed since",
        {"runs": 2, "needed": 5},
        advice="What came before a change says nothing of what comes after it. Collect more runs.",
    ),
    Code.NO_VALUE: Sentence("no value, or 0", advice="The run measured something else, or nothing, and is left out."),
    Code.OCCASIONS: Sentence(
        _occasions,
        {"earlier_runs": 10, "earlier": 5, "new_runs": 3, "new": 1},
        advice="Runs made shortly after one another do not show how much occasions differ. Make runs on other days.",
    ),
    Code.ONE_SIDE_STATES: Sentence(
        lambda names: f"only one side states {listed(names, MAX_NAMED)}",
        {"names": ["params.version"]},
        advice="One side was measured elsewhere, and the other says nothing of these parameters. Look them up before"
        " you read anything into the two figures.",
    ),
    Code.OTHER_PARAMETERS: Sentence(
        _other_parameters,
        {"changes": [{"name": "params.concurrency", "values": ["100", "4"]}]},
        advice="The earlier run measured something else, and is left out.",
    ),
    Code.PAIR_WITHOUT_VALUE: Sentence("a run of a pair has no value", advice="Collect more runs."),
    Code.RELATIVE_TO: Sentence(
        "relative to {treatment}",
        {"treatment": "storage=tmpfs"},
        advice="With `--anchor` the ratio is of figures that were divided by those of a treatment that is the same "
        "in all runs.",
    ),
    Code.RUNS_DIFFER: Sentence(
        _runs_differ,
        {"properties": [{"name": "kernel", "values": ["6.1", "6.8"]}]},
        advice="The runs are of different machines, kernels or versions.",
    ),
    Code.TOO_FEW_EARLIER_RUNS: Sentence(
        _too_few_earlier_runs,
        {"earlier": 3, "needed": 5, "since": None, "others": None},
        advice="A series is one treatment with all its parameters on hosts of the same names. Collect five runs "
        "first; with `--archive` the run itself is archived in any case.",
    ),
    Code.TOO_FEW_OCCASIONS: Sentence(
        "too few occasions: earlier runs of {needed} can carry a word; here {earlier}",
        {"earlier": 1, "needed": 5},
        advice="The earlier runs were made shortly after one another. Make runs on other days, or both builds "
        "treatments of one scenario.",
    ),
    Code.TOO_FEW_RUNS: Sentence(
        "too few runs: 5 earlier ones, 4 against 4, or 6 pairs in turns can carry a word; here {new} against "
        "{earlier}",
        {"new": 2, "earlier": 3},
        advice="Collect more runs. Those without a value do not count.",
    ),
    Code.UNSTABLE_RUNS: Sentence(
        {
            "archive": _with_findings("earlier runs are unstable ({found})", "run"),
            "pairs": _with_findings("differences of the pairs are unstable ({found})", "pair"),
            "sides": _with_findings(
                "the runs of each side have {found} over all of them, and one side came later: run them in turns",
                "run",
            ),
            "turns": _with_findings(
                "the runs have {found}, and the same side was always first: let the first one of each pair be drawn",
                "run",
            ),
        },
        {"kind": "archive", **_DRIFT},
        advice="Runs have no drawn order that would cancel a drift or a step: it goes on between the sides, and "
        "would be taken for a difference. Find what changed: `bench-master compare FOLDER` shows since when. Let "
        "the first one of each pair be drawn, as `alternate` does.",
    ),
    Code.UNUSABLE_RUN: Sentence(
        {
            "damaged": "damaged: {detail}",
            "ended": "the run was {detail}",
            "imported": "imported results: nobody knows when and how they were measured",
            "noop": "a no-op run measures the harness alone",
            "scenario": "another scenario: no treatment in common with {detail}",
            "twice": "the same run as another file, or as the new one",
            "unreadable": "{detail}",
            "whole": "incomplete: the run was killed or is still running",
        },
        {"kind": "damaged", "detail": "..."},
        names_place=False,
        advice="The file is listed as left out; of one run against one read the ratio with that in mind.",
    ),
    Code.CONFIRMED: Sentence(
        lambda runs, since, run: f"confirmed by {plural(runs, 'run')} since {since} ({run})",
        {"runs": 2, "since": "2026-01-21", "run": "1e6b67310c2f"},
        advice="The second run that stands out from the trend, and those after it: the change is real.",
    ),
    Code.UNCONFIRMED: Sentence(
        _unconfirmed,
        {"ratio": 1.097, "low": 1.061, "high": 1.134},
        advice="One run in a thousand stands out from the trend by chance, so a gate waits for the second one. Run "
        "it again with `--archive`.",
    ),
    Code.WHICH_RUNS: Sentence(
        {
            "acknowledged": "since the change that was acknowledged (run {there})",
            "hosts": "on {here} (the archive has runs of this on {there})",
            "machine": "since the machine changed ({here}, after run {there})",
            "parameters": "with these parameters (the archive has runs of this treatment with others)",
            "scenario": "of scenario {here} (the archive has the treatment in others)",
            "since": "since the machine changed ({here}, with run {there})",
            "treatment": "of this treatment in the archive",
        },
        {"kind": "machine", "here": "kernel 6.1.0 -> 6.8.0", "there": "1e6b67310c2f"},
        advice="What came before a change of the machine, or one that was acknowledged, is another level. Five runs "
        "since then are a new one.",
    ),
    Code.CARRY_OVER: Sentence(
        lambda treatment, other, ratio, half: (
            f"trials that follow {treatment} come out {format_change(ratio)} against those that follow {other}: the "
            f"ratio may be off by {format_change(half)}; let the host settle between trials"
        ),
        {"treatment": "storage=image", "other": "storage=volume", "ratio": 1.08, "half": 1.04},
        advice="The interval allows for it.",
    ),
    Code.DIFFERS_FROM_ITSELF: Sentence(
        "{name} differs from itself: what this run calls a difference may be none",
        {"name": "image"},
        names_place=False,
    ),
    Code.EXTENDED: Sentence(
        lambda trials, level, together: (
            f"the run was extended by {trials} trials after its end, so it is judged at {100.0 * level:.4g} %: a "
            f"word is wrong in at most {100.0 * together:.4g} % of such runs with the earlier ends"
        ),
        {"trials": 20, "level": 0.025, "together": 0.075},
    ),
    Code.FAILS_MORE_OFTEN: Sentence(
        lambda treatment, other, share, other_share, rounds, p: (
            f"{treatment} fails more often: {100.0 * share:.3g} % of the jobs of a trial, against "
            f"{100.0 * other_share:.3g} % of {other} ({plural(rounds, 'round')}, p {p:.2g})"
        ),
        {
            "treatment": "storage=volume",
            "other": "storage=image",
            "share": 0.1,
            "other_share": 0.0,
            "rounds": 10,
            "p": 0.002,
        },
        advice="One side fails more often than chance explains: that is a result of its own.",
    ),
    Code.HOSTS_DISAGREE: Sentence(
        _hosts_disagree,
        {"hosts": [{"host": "blade-1", "ratio": 1.02}, {"host": "blade-2", "ratio": 1.2}]},
        names_place=False,
        advice="Report the hosts apart.",
    ),
    Code.JOBS_ALIKE: Sentence(
        "{treatment}: the jobs of a trial are alike (intraclass correlation {correlation:.2f}): longer trials will "
        "not help, more rounds will",
        {"treatment": "storage=volume", "correlation": 0.42},
    ),
    Code.JOBS_FAILED: Sentence(
        _jobs_failed, {"treatment": "storage=volume", "failed": 2, "of": 600, "left_out": False}
    ),
    Code.NO_COUNTERPART: Sentence(
        lambda treatments: f"in no earlier run, so not compared: {', '.join(treatments)}",
        {"treatments": ["storage=tmpfs"]},
    ),
    Code.NO_SINGLE_NUMBER: Sentence(
        lambda treatment, findings, values, unit: (
            f"{treatment}: no single number: {describe_spread(findings, values, unit)}"
        ),
        {"treatment": "storage=volume", **_SPREAD},
        advice="Drawn rounds cancel it; the median of this treatment alone means nothing. Without them there is no "
        "word: use `order: interleaved`, and find the cause.",
    ),
    Code.ONE_AFTER_THE_OTHER: Sentence(
        "all runs of one group came before all of the other: whatever changed on the host between them looks the "
        "same as a difference; run them in turns"
    ),
    Code.OUTLIERS: Sentence(
        _outliers,
        {"treatment": "storage=volume", "trials": 1, "of": 20, "rounds": [5]},
        advice="Nothing is ever removed.",
    ),
    Code.RUNS_RESEMBLE: Sentence(
        lambda treatment, findings: (
            f"{treatment}: runs resemble the ones before them ({describe_findings(findings, 'run')}), as on a "
            "machine whose speed changes by the hour or the day: more unchanged runs than one in 200 can stand out "
            "twice"
        ),
        {"treatment": "storage=volume", "findings": [{"kind": "neighbours", "ratio": 1.1, "correlation": 0.8}]},
    ),
    Code.SPEED_CHANGED: Sentence(
        _speed_changed,
        {"host": "blade-1", **_DRIFT, "by_others": True, "cancelled": True},
        advice="A fixed piece of work, timed before each trial, took longer or shorter: the machine changed, not the"
        " engine.",
    ),
    Code.START_COST: Sentence(
        _start_cost,
        {"treatment": "command=old", "cost_s": 0.0012, "time_s": 0.012},
        advice="The cost is in the times of both sides, and is not subtracted.",
    ),
    Code.STOPPED_EARLY: Sentence(
        "the run stopped after round {round} of at most {last}: effects that stop a run early are a little too high "
        "on average",
        {"round": 12, "last": 30},
    ),
    Code.SURVIVORS: Sentence(
        "{treatment}: {lost} of {of} trials have no value: what is left are survivors",
        {"treatment": "storage=volume", "lost": 2, "of": 20},
        advice="See the errors of the run.",
    ),
    Code.WARM_UP_TOO_SHORT: Sentence(
        "the first measured round was the slowest of {slowest} of {treatments} treatments: the warm-up was too "
        "short; raise warmup",
        {"slowest": 6, "treatments": 8},
        names_place=False,
    ),
}
"""The sentence of each reason."""
