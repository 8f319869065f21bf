"""What the scenario varies, as the axis of a chart: numbers on a line, or treatments in rows.

A factor whose values are numbers (threads, a limit) is an axis, and its values are joined by a line. Other factors
have no order, so that treatments stand in rows, each below the baseline that it is compared with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from bench_common.cli import check_choice
from bench_common.safe_text import one_line
from bench_features.charts.layout import ChartSource
from bench_features.charts.scaling import COUNT_LABELS

NAMES: Final = ("engine", "environment")
"""Labels that are colour and shape, and part no panels where there is an axis of numbers."""
_TWO: Final = 2


class FactorPanel(NamedTuple):
    """Treatments of one panel: `levels` of an axis of numbers, or else `rows` with their labels."""

    title: str
    rows: Mapping[int, str] = {}
    levels: Mapping[int, float] = {}


def find_factor(source: ChartSource, keep: Collection[int]) -> str:
    """Return the label to take as the axis: what was asked for, else the first of numbers that varies; may be empty.

    Raises `UsageError` if no treatment has the label that was asked for.
    """
    labels = {place: source.document.treatments[place].treatment for place in sorted(keep)}
    names = list(dict.fromkeys(name for each in labels.values() for name in each))
    if source.by is not None:
        check_choice(source.by, names, what="label")
        return source.by
    for name in dict.fromkeys([*(each for each in COUNT_LABELS if each in names), *names]):
        if len(set(_numbers(labels, name).values())) >= _TWO and name not in NAMES:
            return name
    return ""


def _numbers(labels: Mapping[int, Mapping[str, Any]], name: str) -> dict[int, float]:
    """Return a label's values if they all are numbers above 0, else nothing; treatments without it are left out."""
    values = {place: each[name] for place, each in labels.items() if name in each}
    if all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values.values()):
        return {place: float(value) for place, value in values.items()}
    return {}


def factor_panels(source: ChartSource, keep: Collection[int], factor: str) -> list[FactorPanel]:
    """Return the treatments in panels, in the order of the plan."""
    labels = {place: source.document.treatments[place].treatment for place in sorted(keep)}
    if not factor:
        return [FactorPanel(_shared(labels, own), _rows(labels, own)) for own in _by_baseline(source, keep)]
    numbers = _numbers(labels, factor) if factor not in NAMES else {}
    values = list(dict.fromkeys(str(each.get(factor)) for each in labels.values()))
    found = []
    for panel in source.panels(keep, (factor,)):
        places = panel.treatments
        if numbers:
            levels = {place: numbers[place] for place in places if place in numbers}
            if len(set(levels.values())) >= _TWO:
                found.append(FactorPanel(panel.title, levels=levels))
                places = [place for place in places if place not in numbers]
            rows = _rows(labels, places)
        else:
            ordered = sorted(places, key=lambda place: values.index(str(labels[place].get(factor))))
            rows = _rows(labels, ordered, factor)
        if rows:
            found.append(FactorPanel(panel.title, rows))
    return found


def _by_baseline(source: ChartSource, keep: Collection[int]) -> list[list[int]]:
    """Return each baseline with the treatments that are compared with it, if that parts all of them, else all."""
    verdicts = source.document.verdicts
    titles = {source.document.treatments[place].title: place for place in keep}
    groups: dict[str, list[str]] = {}
    for each in verdicts.comparisons if verdicts is not None else ():
        groups.setdefault(each.a, [each.a]).append(each.b)
    found = [[titles[title] for title in dict.fromkeys(group) if title in titles] for group in groups.values()]
    members = [place for group in found for place in group]
    if len(members) == len(set(members)) == len(keep):
        return [group for group in found if group]
    jobs: dict[str, list[int]] = {}
    for place in sorted(keep):
        jobs.setdefault(str(source.document.treatments[place].treatment.get("job", "")), []).append(place)
    return list(jobs.values())


def _rows(labels: Mapping[int, Mapping[str, Any]], places: Collection[int], first: str = "engine") -> dict[int, str]:
    """Return rows that are called by the labels in which they differ, `first` first, and by their engine."""
    names = dict.fromkeys([first, "engine", *_varying(labels, places)])
    return {
        place: one_line(", ".join(_word(name, labels[place][name]) for name in names if name in labels[place]))
        for place in places
    }


def _varying(labels: Mapping[int, Mapping[str, Any]], places: Collection[int]) -> list[str]:
    names = dict.fromkeys(name for place in places for name in labels[place])
    return [name for name in names if len({str(labels[place].get(name)) for place in places}) > 1]


def _shared(labels: Mapping[int, Mapping[str, Any]], places: Collection[int]) -> str:
    """Return what the treatments of a panel have in common and other panels may not."""
    varying = _varying(labels, places)
    parting = [name for name in _varying(labels, labels) if name not in (*varying, *NAMES)]
    first = labels[next(iter(places))]
    return one_line(", ".join(_word(name, first[name]) for name in parting if name in first))


def _word(name: str, value: Any) -> str:
    return str(value) if name in (*NAMES, "job") else f"{name} {value}"
