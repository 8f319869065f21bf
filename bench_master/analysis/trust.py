"""How far a run's report can be trusted, in one word with its reason, which is the same in every format.

``poor``: the answer may be wrong, or there is none. ``fair``: the answer holds, with the reason in mind. ``good``:
nothing was found. The word follows from what reports tell anyhow, the gravest first: missing data, the design, the
diagnosis, what else happened during the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from bench_common.safe_text import one_line, shorten
from bench_master.analysis.report_types import ReportDocument, TrustReport, TrustWord
from bench_master.analysis.verdict_types import ComparisonReport, FlagLevel, VerdictsReport
from bench_master.formatting import plural
from bench_master.run_data.treatment_types import TreatmentReport
from bench_master.verdicts.reasons import Code

Limit: TypeAlias = tuple[TrustWord, str]
"""What limits trust: how much, and why in words."""

_PROPERTIES: Final = 6
_VALUE_CHARS: Final = 48
_LEAST_CHARS: Final = 24
_MOST_CHARS: Final = 110
"""How long the reason beside the word is; all of it stands among the warnings."""
_CLAUSE_END: Final = re.compile(r": |; | \(|, ")


def judge_trust(document: ReportDocument) -> TrustReport:
    """Return the word, the gravest reason, and how many other reasons there are."""
    return _trust(_limits(document))


def judge_verdicts(verdicts: VerdictsReport) -> TrustReport:
    """Return what `judge_trust` does, by verdicts alone: those between runs."""
    return _trust(_limits_of_verdicts(verdicts, {}))


def _trust(found: Iterable[Limit]) -> TrustReport:
    # Sorting keeps the order among equals.
    ranked = sorted(dict.fromkeys(found), key=lambda limit: limit[0] != "poor")
    if not ranked:
        return TrustReport(word="good", reason="", others=0)
    word, reason = ranked[0]
    return TrustReport(word=word, reason=_gist(reason), others=len(ranked) - 1)


def _gist(text: str) -> str:
    """Return the first clause of a reason that says something; one in parentheses is kept with them."""
    text = one_line(text)
    for found in _CLAUSE_END.finditer(text, _LEAST_CHARS):
        clause = text[: found.start()]
        if clause.count("(") == clause.count(")"):
            break
    else:
        clause = text.rstrip(".")
    if len(clause) > _MOST_CHARS:
        # What is in parentheses explains the rest; a sentence with a hole in it explains nothing.
        clause, _, _ = clause.partition(" (")
    return shorten(clause, _MOST_CHARS)


def short_names(treatments: Sequence[TreatmentReport]) -> list[str]:
    """Return the labels that distinguish each treatment from the others; its title without any."""
    every = [entry.treatment for entry in treatments]
    common = shared_labels(every)
    found = []
    for entry in treatments:
        own = {key: value for key, value in entry.treatment.items() if key not in common}
        found.append(one_line(" ".join(f"{key}={value}" for key, value in own.items()) or entry.title))
    return found


def shared_labels(every: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return the labels that all treatments share; none for a single treatment."""
    if len(every) < 2:  # noqa: PLR2004
        return {}
    first, *others = every
    return {
        key: value for key, value in first.items() if all(key in other and other[key] == value for other in others)
    }


def _limits(document: ReportDocument) -> Iterator[Limit]:
    """Yield everything that limits trust in a report, what is missing first."""
    run, verdicts = document.run, document.verdicts
    if run.noop:
        yield "poor", "nothing was executed"
    if document.damage:
        yield "poor", "the stats file is damaged"
    ran = [entry for entry in document.treatments if not entry.skipped]
    barren = sum(not entry.jobs.done for entry in ran)
    if barren:
        yield "poor", f"no job succeeded in {barren} of {plural(len(ran), 'treatment')}"
    if run.imported:
        yield "fair", "measured elsewhere"
    if document.incomplete and not document.damage:
        yield "fair", f"the run is {document.run_state}, {document.incomplete[0]}"
    if verdicts is not None:
        names = dict(zip((one.title for one in document.treatments), short_names(document.treatments), strict=True))
        yield from _limits_of_verdicts(verdicts, names)
    else:
        failed = sum(entry.jobs.failed for entry in ran)
        if failed:
            yield "fair", f"{failed:,} of {plural(sum(entry.jobs.total for entry in ran), 'job')} failed"
    for text in document.warnings:
        yield "fair", text


def _limits_of_verdicts(verdicts: VerdictsReport, names: Mapping[str, str]) -> Iterator[Limit]:
    design, comparisons = verdicts.design, verdicts.comparisons
    for reason in design.limits if design.grade != "A" else ():
        yield "poor" if design.grade == "D" else "fair", reason.sentence()
    refused = [each for each in comparisons if each.verdict == "refused"]
    whys = [each.reasons[0].sentence() if each.reasons else "no verdict" for each in refused]
    is_all = len(refused) == len(comparisons)
    # What all share is no matter of one of them.
    named = () if is_all and len(set(whys)) == 1 else comparisons
    for each, why in zip(refused, whys, strict=True):
        yield "poor" if is_all else "fair", _about(each, why, named)
    yield from (("poor", text) for text in flag_texts(verdicts, "refusal", names))
    few = [each for each in comparisons if each.has_reason(Code.TOO_FEW_ROUNDS)]
    for each in few:
        (reason, *_) = (one for one in each.reasons if one.code is Code.TOO_FEW_ROUNDS)
        yield "fair", _about(each, reason.sentence(), comparisons if len(few) < len(comparisons) else ())
    yield from (("fair", text) for text in flag_texts(verdicts, "warning", names))
    if text := differing_text(verdicts):
        yield "fair", text


def _about(comparison: ComparisonReport, reason: str, among: Sequence[ComparisonReport]) -> str:
    return f"{comparison.name}: {reason}" if len(among) > 1 else reason


def flag_texts(verdicts: VerdictsReport, level: FlagLevel, names: Mapping[str, str]) -> Iterator[str]:
    """Yield each finding of a level once, with all that it was found in; `names` are short ones by title.

    That a treatment has no single number is a note where its host has none: its value is shown as a range anyhow.
    """
    found: dict[str, dict[str, None]] = {}
    flags = (*verdicts.runs.flags, *(flag for each in verdicts.comparisons for flag in each.flags))
    of_hosts = any(flag.level == "warning" and flag.reason.code is Code.HOST_SERIES for flag in flags)
    for flag in flags:
        own: FlagLevel = "note" if of_hosts and flag.reason.code is Code.NO_SINGLE_NUMBER else flag.level
        if own == level:
            is_placed = flag.reason.names_place() or not flag.where
            places = found.setdefault(flag.reason.sentence(names), {})
            places |= {} if is_placed else {names.get(flag.where, flag.where): None}
    for text, places in found.items():
        yield one_line(f"{', '.join(places)}: {text}" if places else text)


def differing_text(verdicts: VerdictsReport) -> str:
    """Return in what the sides differ besides the treatment, so that a word may be about that; empty for nothing."""
    differing = [each for each in verdicts.environment.differences if each.level in ("refusal", "warning")]
    if not differing:
        return ""
    names = ", ".join(
        f"{each.name} is {' and '.join(shorten(value, _VALUE_CHARS) for value in each.values.values())}"
        for each in differing[:_PROPERTIES]
    )
    rest = ", ..." if len(differing) > _PROPERTIES else ""
    noun = "1 property differs" if len(differing) == 1 else f"{len(differing)} properties differ"
    return one_line(f"{noun} besides the treatment: {names}{rest}")
