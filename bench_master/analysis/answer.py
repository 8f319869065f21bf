"""The answer: what verdicts say in a sentence or two, the same in every format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from bench_common.safe_text import one_line
from bench_master.analysis.verdict_types import (
    DIRECTED_WORDS,
    ArchiveReport,
    ClaimsReport,
    ComparisonReport,
    VerdictsReport,
    change_text,
    change_words,
    interval_text,
    spread_text,
)
from bench_master.formatting import format_change, format_share, format_value, listed, plural
from bench_master.verdicts.between_runs import MIN_ARCHIVE
from bench_master.verdicts.decision import Word
from bench_master.verdicts.reasons import Code

MAX_NAMES: Final = 4
"""Names after one word of the answer; the tables have all."""
_TOO_FEW: Final = (
    Code.ONE_RUN_EACH, Code.RUNS_IN_BLOCKS, Code.TOO_FEW_EARLIER_RUNS, Code.TOO_FEW_RUNS, Code.TOO_FEW_OCCASIONS
)  # fmt: skip
"""Why runs carry no word that more of them would."""
_WORDS: Final[tuple[Word, ...]] = ("faster", "slower", "better", "worse", "same", "inconclusive", "refused")


def make_answer(verdicts: VerdictsReport, labels: Mapping[str, Mapping[str, Any]]) -> str:
    """Return all verdicts as a sentence for each word, with one value a treatment.

    Such as ``Faster than docker (307 ms): native (3.86 ms, 79.6x as fast). Same within 3 %: crun (309 ms).``.

    `labels` are those of the run's treatments by title. Where claims are registered it begins with what became of
    them, and the other comparisons come last, as exploratory ones. Without comparisons it is what the history of
    earlier runs says, or that nothing can be compared.
    """
    archive, margin = verdicts.archive, verdicts.family.margin
    if verdicts.claims is not None:
        return one_line(" ".join(_claims(verdicts.claims, verdicts.comparisons, margin, labels)))
    if verdicts.comparisons:
        return one_line(_verdicts(verdicts.comparisons, margin, labels))
    if archive is None or archive.new:
        return "Refused: no treatment of the new run is in an earlier one, so there is nothing to compare."
    return one_line(_history(archive))


def _claims(
    claims: ClaimsReport,
    comparisons: Sequence[ComparisonReport],
    margin: float,
    labels: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    """Yield how many claims were kept, then the verdicts on them, then the exploratory ones."""
    states = Counter(each.state for each in claims.claims)
    counts = ", ".join(f"{states[state]} {state}" for state in ("kept", "broken", "undecided") if states[state])
    yield f"{'Claims' if len(claims.claims) > 1 else 'Claim'}: {counts}."
    for found, before in (
        ([each for each in comparisons if not each.exploratory], ""),
        ([each for each in comparisons if each.exploratory], "Exploratory: "),
    ):
        if found:
            yield before + _verdicts(found, margin, labels)


def _verdicts(comparisons: Sequence[ComparisonReport], margin: float, labels: Mapping[str, Mapping[str, Any]]) -> str:
    against = {baseline_name(each, labels) for each in comparisons}
    baseline = against.pop() if len(against) == 1 else ""
    values = {text for each in comparisons if (text := value_text(each, each.a, each.a_value))}
    # What all are compared with is said once; where it differs beside each treatment.
    common = values.pop() if baseline and len(values) == 1 else ""
    groups = len({each.group for each in comparisons}) > 1
    of = Counter(map(spoken_name, comparisons))
    failed = [each for each in comparisons if each.has_failed]
    sentences = [_failures(comparisons, baseline, common, groups=groups)]
    weak = best_first([each for each in comparisons if is_weak_evidence(each)])
    if weak:
        shown = listed([_weak(each, groups=groups) for each in weak], MAX_NAMES)
        sentences.append(f"Weak evidence against {baseline or 'the earlier run'}, no verdict: {shown}.")
    is_said = any(sentences)
    for word in _WORDS:
        found: dict[str, list[ComparisonReport]] = {}
        rest_of = [each for each in comparisons if each.verdict == word and each not in weak and each not in failed]
        for each in best_first(rest_of):
            found.setdefault(spoken_name(each), []).append(each)
        if not found:
            continue
        names = [_named(name, each, of[name], groups=groups, common=common) for name, each in found.items()]
        title = f"Same within {share_text(margin)}" if word == "same" else _title(word, found.values())
        if baseline and not is_said:
            is_said = True
            join = "as" if word == "same" else "than" if word in DIRECTED_WORDS else "against"
            title = f"{title} {join} {baseline}{f' ({common})' if common else ''}"
        sentences.append(f"{title}: {listed(names, MAX_NAMES)}.")
    sentences.append(_failed_jobs(comparisons, baseline, groups=groups))
    return " ".join(filter(None, sentences))


def _failures(comparisons: Sequence[ComparisonReport], baseline: str, common: str, *, groups: bool) -> str:
    """Return which treatments have no value as their jobs failed, with the first reason; empty if none.

    Such as ``Failed against docker (307 ms): runc (4 of 4 jobs: ...).``; `common` is the baseline's value.
    """
    failed: dict[str, str] = {}
    for each in comparisons:
        if each.baseline_has_failed and each.a_failure:
            failed[f"the baseline {baseline or each.a}{_where(each, groups=groups)}"] = each.a_failure
        if each.has_failed and each.b_failure:
            failed[spoken_name(each) + _where(each, groups=groups)] = each.b_failure
    return _counted(f"Failed against {baseline} ({common})" if baseline and common else "Failed", failed)


def _failed_jobs(comparisons: Sequence[ComparisonReport], baseline: str, *, groups: bool) -> str:
    """Return what failed where a verdict is open although both sides have values; empty for nothing."""
    partly: dict[str, str] = {}
    for each in comparisons:
        if each.verdict == "inconclusive" and each.rounds:
            own = {baseline or each.a: each.a_failure, spoken_name(each): each.b_failure}
            partly |= {f"{name}{_where(each, groups=groups)}": text for name, text in own.items() if text}
    return _counted("Jobs failed", partly)


def _where(comparison: ComparisonReport, *, groups: bool) -> str:
    return f", {comparison.group}" if groups and comparison.group else ""


def _counted(title: str, found: Mapping[str, str]) -> str:
    """Return a sentence of names, each with what became of its jobs."""
    shown = listed([f"{name} ({text})" for name, text in found.items()], MAX_NAMES)
    return f"{title}: {shown}." if found else ""


def _title(word: Word, found: Iterable[Sequence[ComparisonReport]]) -> str:
    """Return a word as the beginning of a sentence: ``Faster``; for what jobs cost ``Uses less CPU time``."""
    said = {change_words(each) for own in found for each in own}
    words = said.pop() if len(said) == 1 else word
    return f"{words[:1].upper()}{words[1:]}"


def _named(name: str, found: Sequence[ComparisonReport], of: int, *, groups: bool, common: str) -> str:
    """Return a name with where one word holds for it, its value, and by how much it differs."""
    facts = []
    if len(found) > 1:
        every = "in both" if of == 2 else f"in all {of}"  # noqa: PLR2004
        facts.append(every if len(found) == of else f"in {len(found)} of {of}")
    elif groups and found[0].group:
        facts.append(found[0].group)
    if len(found) == 1:
        facts += _values(found[0], common)
    if found[0].verdict in DIRECTED_WORDS:
        facts.append(span([change_text(found[0]), change_text(found[-1])]))
    if any(each.unconfirmed for each in found):
        facts.append("unconfirmed: run it again")
    return f"{name} ({', '.join(facts)})" if facts else name


def _values(comparison: ComparisonReport, common: str) -> list[str]:
    """Return a treatment's value, with the baseline's where that is not said once for all; nothing without."""
    value = value_text(comparison, comparison.b, comparison.b_value)
    base = value_text(comparison, comparison.a, comparison.a_value)
    if not value or common or not base:
        return [value] if value else []
    # Of a range with its reason the reason ends with a comma, too.
    return [f"{value}{',' if ', ' in value else ''} against {base}"]


def value_text(comparison: ComparisonReport, title: str, value: float | None) -> str:
    """Return the value of a side; the range of one that drifted, with that word; empty where there is neither."""
    return spread_text(comparison, title) if value is None else format_value(value, comparison.unit)


def is_weak_evidence(comparison: ComparisonReport) -> bool:
    """Return whether a word is refused for nothing but that runs are too few, or not on enough occasions."""
    if comparison.verdict != "refused" or comparison.ratio is None:
        return False
    *notes, reason = comparison.reasons
    # Of runs that differ in a property as well no number of runs would decide.
    is_alone = all(note.code is Code.OCCASIONS for note in notes) and not reason.data.get("properties")
    return is_alone and reason.code in _TOO_FEW


def _weak(comparison: ComparisonReport, *, groups: bool) -> str:
    """Return what one run against one shows: both values, the difference, and its interval within the runs."""
    facts = [comparison.group] if groups and comparison.group else []
    facts += _values(comparison, "")
    change = change_text(comparison)
    interval = interval_text(comparison)
    facts.append(change if interval == "-" else f"{change} {interval}")
    return f"{spoken_name(comparison)} ({', '.join(facts)})"


def _history(archive: ArchiveReport) -> str:
    """Return the last change of a series of runs, or that there was none."""
    if not archive.changes:
        if archive.runs <= MIN_ARCHIVE:
            runs = plural(archive.runs, "run")
            return f"No change can be found in {runs}: the newest is held against {MIN_ARCHIVE} before it."
        return f"No change in {plural(archive.runs, 'run')}."
    last = archive.changes[-1]
    size = format_change(last.ratio, sided=True)
    return f"{last.word.capitalize()}: {last.name} ({size}) since {last.created or last.since}."


# -- parts that tables have, too -------------------------------------------------------------------------------------


def best_first(comparisons: Iterable[ComparisonReport]) -> list[ComparisonReport]:
    """Return comparisons in the order of how good the treatment is."""
    return sorted(comparisons, key=badness)


def badness(comparison: ComparisonReport) -> float:
    """Return a number that is smaller the better a treatment is; what has no value comes last."""
    if comparison.ratio is None or not math.isfinite(comparison.ratio):
        return math.inf
    return comparison.ratio if comparison.direction == "lower" else -comparison.ratio


def is_better(comparison: ComparisonReport) -> bool:
    """Return whether a treatment's value is better than its baseline's, whatever the verdict."""
    if comparison.ratio is None:
        return False
    return comparison.ratio < 1.0 if comparison.direction == "lower" else comparison.ratio > 1.0


def baseline_name(comparison: ComparisonReport, labels: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what tells a baseline from the treatment that is compared with it; its title if no label does."""
    base = labels.get(comparison.a, {})
    own = {key: str(value) for key, value in base.items() if comparison.labels.get(key) != value}
    if len(own) == 1:
        ((key, value),) = own.items()
        return one_line(_with_label(key, value))
    return one_line(" ".join(own.values()) or comparison.a)


def spoken_name(comparison: ComparisonReport) -> str:
    """Return what tells a treatment from its baseline as a sentence says it: ``concurrency 2`` for the number 2."""
    keys = [key for key, value in comparison.labels.items() if str(value) == comparison.name]
    return _with_label(keys[0], comparison.name) if len(keys) == 1 else comparison.name


def _with_label(key: str, value: str) -> str:
    """Return a value, and before a mere number what it is the number of."""
    return f"{key} {value}" if value.replace(".", "").isdigit() else value


def span(ends: Sequence[str]) -> str:
    """Return two figures as a range with their unit once: ``6.27x to 7.43x as fast``."""
    first, last = ends
    if first == last:
        return first
    number, _, unit = first.partition(" ")
    return f"{number if unit == last.partition(' ')[2] else first} to {last}"


def share_text(value: float | None) -> str:
    """Return a share in percent, whole ones without a decimal: ``3 %``, ``1.4 %``."""
    text = format_share(value)
    return f"{text.removesuffix('.0 %')} %" if text.endswith(".0 %") else text
