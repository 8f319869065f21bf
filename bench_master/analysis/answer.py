"""The answer: what verdicts say in a sentence or two, the same in every format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bench_common.safe_text import one_line
from bench_master.analysis.verdict_types import DIRECTED_WORDS, ArchiveReport, ComparisonReport, change_text
from bench_master.formatting import format_change, format_share, plural
from bench_master.verdicts.decision import Word

MAX_NAMES: Final = 4
"""Names after one word of the answer; the tables have all."""
_WORDS: Final[tuple[Word, ...]] = ("faster", "slower", "better", "worse", "same", "inconclusive", "refused")


def make_answer(
    comparisons: Sequence[ComparisonReport],
    margin: float,
    labels: Mapping[str, Mapping[str, Any]],
    archive: ArchiveReport | None = None,
) -> str:
    """Return all verdicts as a sentence for each word: ``Faster than docker: native (79.6 times). Same: crun.``.

    `labels` are those of the run's treatments by title. Without comparisons it is what the history of earlier runs
    says, or that nothing can be compared.
    """
    if comparisons:
        return one_line(_verdicts(comparisons, margin, labels))
    if archive is None or archive.new:
        return "Refused: no treatment of the new run is in an earlier one, so there is nothing to compare."
    return one_line(_history(archive))


def _verdicts(comparisons: Sequence[ComparisonReport], margin: float, labels: Mapping[str, Mapping[str, Any]]) -> str:
    against = {baseline_name(each, labels) for each in comparisons}
    baseline = against.pop() if len(against) == 1 else ""
    groups = len({each.group for each in comparisons}) > 1
    of = Counter(each.name for each in comparisons)
    sentences: list[str] = []
    for word in _WORDS:
        found: dict[str, list[ComparisonReport]] = {}
        for each in best_first([each for each in comparisons if each.verdict == word]):
            found.setdefault(each.name, []).append(each)
        if not found:
            continue
        shown = [_named(name, each, of[name], groups=groups) for name, each in list(found.items())[:MAX_NAMES]]
        rest = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
        title = f"Same within {share_text(margin)}" if word == "same" else word.capitalize()
        if baseline and not sentences:
            join = "as" if word == "same" else "than" if word in DIRECTED_WORDS else "against"
            title = f"{title} {join} {baseline}"
        sentences.append(f"{title}: {', '.join(shown)}{rest}.")
    return " ".join(sentences)


def _named(name: str, found: Sequence[ComparisonReport], of: int, *, groups: bool) -> str:
    """Return a name with where one word holds for it, and by how much it differs."""
    facts = []
    if len(found) > 1:
        facts.append("in all" if len(found) == of else f"in {len(found)} of {of}")
    elif groups and found[0].group:
        facts.append(found[0].group)
    if found[0].verdict in DIRECTED_WORDS:
        facts.append(span([change_text(found[0]), change_text(found[-1])]))
    if any(each.unconfirmed for each in found):
        facts.append("unconfirmed: run it again")
    return f"{name} ({', '.join(facts)})" if facts else name


def _history(archive: ArchiveReport) -> str:
    """Return the last change of a series of runs, or that there was none."""
    if not archive.changes:
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


def baseline_name(comparison: ComparisonReport, labels: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what tells a baseline from the treatment that is compared with it; its title if no label does."""
    base = labels.get(comparison.a, {})
    own = [str(value) for key, value in base.items() if comparison.labels.get(key) != value]
    return one_line(" ".join(own) or comparison.a)


def span(ends: Sequence[str]) -> str:
    """Return two figures as a range with their unit once: ``6.27 to 7.43 times``."""
    first, last = ends
    if first == last:
        return first
    number, _, unit = first.rpartition(" ")
    return f"{number if unit == last.rpartition(' ')[2] else first} to {last}"


def share_text(value: float | None) -> str:
    """Return a share in percent, whole ones without a decimal: ``3 %``, ``1.4 %``."""
    text = format_share(value)
    return f"{text.removesuffix('.0 %')} %" if text.endswith(".0 %") else text
