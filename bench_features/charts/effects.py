"""The chart of effects: the forest of comparisons (F1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench_common.safe_text import one_line
from bench_features.charts.layout import Chart, ChartSource, NoChartError, count_text, left_out
from bench_features.charts.picture import Frame, text_width
from bench_features.charts.scales import Scale
from bench_master.analysis.verdict_types import ComparisonReport
from bench_master.formatting import plural
from bench_master.reports.effects import Effect, turn
from bench_master.reports.palette import Theme, engine_hue
from bench_master.reports.verdict_text import FEWEST_ROUNDS

MOST_ROWS: Final = 80


def draw_forest(source: ChartSource, width: int, theme: Theme) -> Chart:
    """Draw each comparison's ratio to the baseline with its interval, right is worse."""
    verdicts = source.document.verdicts
    if verdicts is None or not verdicts.comparisons:
        raise NoChartError(source.document.no_verdict or "nothing is compared")
    every = [(each, turn(each, source.document.treatments)) for each in verdicts.comparisons]
    effects = [effect for _, effect in every if effect is not None]
    if not effects:
        raise NoChartError(
            "no comparison has a ratio: " + (verdicts.refused[0] if verdicts.refused else "see the text report")
        )
    rows = every[:MOST_ROWS]
    picture = Chart("forest", width, theme)
    picture.title = f"Ratio to {_baseline(verdicts.comparisons)}"
    narrow = picture.is_narrow
    several = len({each.measure for each in verdicts.comparisons}) > 1
    labels = [_row_label(comparison, several=several) for comparison, _ in rows]
    longest = max(text_width(one_line(label)) for label in labels)
    step = 42.0 if narrow else 26.0 if longest + 22.0 <= width * 0.42 else 38.0
    left, right = (14.0, 14.0) if narrow else (min(width * 0.42, longest + 22.0), width * 0.27)
    top = picture.extend(26.0 + step * len(rows) + 44.0) + 26.0
    frame = Frame(left, width - right, top, top + step * len(rows))
    ends = [end for each in effects for end in (each.low, each.ratio, each.high) if end is not None]
    low, high = min(0.9, *ends), max(1.1, *ends)
    room = (high / low) ** 0.05
    scale = Scale(low / room, high * room, frame.left, frame.right, log=True)
    picture.x_axis(frame, scale, "")
    one = scale(1.0)
    picture.line([(one, frame.top - 6), (one, frame.bottom)], "ink", dash="2 2")
    picture.text(one, frame.top - 10, "same", anchor="middle", ink="muted", size=11)
    below = frame.bottom + 31
    picture.text(frame.left, below, "\u2190 better", ink="muted", size=11)
    picture.text(frame.right, below, "worse \u2192", anchor="end", ink="muted", size=11)
    picture.text((frame.left + frame.right) / 2, below, "ratio (log)", anchor="middle", ink="muted", size=11)
    for place, (label, (comparison, effect)) in enumerate(zip(labels, rows, strict=True)):
        y = frame.top + (place + (0.75 if narrow else 0.5)) * step
        numbers = effect.text if effect else f"{comparison.word.lower()}: no ratio"
        picture.row_words(frame, y, label, numbers)
        if effect:
            _draw_effect(picture, scale, y, effect, label)
    picture.caption = _forest_caption(source, scale, rows, effects)
    picture.description = "; ".join(
        f"{each.comparison.name} {each.comparison.group} {each.comparison.measure} {each.text}"
        for each in effects[:MOST_ROWS]
    )
    return picture


def _row_label(comparison: ComparisonReport, *, several: bool) -> str:
    # A number alone does not say what it is the number of.
    keys = [key for key, value in comparison.labels.items() if str(value) == comparison.name]
    name = f"{keys[0]} {comparison.name}" if len(keys) == 1 and comparison.name[:1].isdigit() else comparison.name
    label = ", ".join(filter(None, (name, _group_words(comparison.group))))
    return f"{label}: {comparison.measure}" if several else label


def _group_words(group: str) -> str:
    return ", ".join(part.removeprefix("job=").replace("=", " ") for part in group.split())


def _draw_effect(picture: Chart, scale: Scale, y: float, effect: Effect, label: str) -> None:
    hue = "muted" if effect.holds_one else engine_hue(str(effect.comparison.labels.get("engine", "")))
    low = scale.low if effect.low is None else effect.low
    high = scale.high if effect.high is None else effect.high
    picture.line([(scale(low), y), (scale(high), y)], hue, width=2.5, dash="" if effect.is_interval else "4 3")
    for end in (effect.low, effect.high):
        if end is not None:
            picture.line([(scale(end), y - 4), (scale(end), y + 4)], hue, width=1.5)
    tip = f"{label}: {effect.text}, {plural(effect.comparison.rounds, 'round')}"
    picture.mark(scale(effect.ratio), y, 0, hue, size=4.5, hollow=effect.weak, tip=tip)


def _baseline(comparisons: Sequence[ComparisonReport]) -> str:
    names = list(dict.fromkeys(each.a for each in comparisons))
    engines = {part.removeprefix("engine=") for name in names for part in name.split() if part.startswith("engine=")}
    other = {str(each.labels.get("engine")) for each in comparisons}
    return (
        engines.pop()
        if len(engines) == 1 and not engines & other
        else names[0]
        if len(names) == 1
        else "the baseline"
    )


def _forest_caption(
    source: ChartSource,
    scale: Scale,
    rows: Sequence[tuple[ComparisonReport, Effect | None]],
    effects: Sequence[Effect],
) -> str:
    verdicts = source.document.verdicts
    assert verdicts is not None
    rounds = [each.comparison.rounds for each in effects]
    parts = [
        f"{verdicts.question}. Each row is turned so that right is worse; {scale.words('ratio').lower()}",
        f"{count_text(rounds)} rounds a row, {plural(source.document.totals.failed, 'job')} failed.",
    ]
    if any(each.is_interval for each in effects):
        level = max(each.comparison.confidence for each in effects)
        parts.append(f"Solid bar: {100 * level:.3g} % interval of all rows together.")
    if any(not each.is_interval and each.comparison.rounds >= FEWEST_ROUNDS for each in effects):
        parts.append("Dashed bar: range of the rounds, too few for an interval.")
    if any(each.holds_one for each in effects):
        parts.append("Grey: the bar contains no difference.")
    if any(each.weak for each in effects):
        parts.append(
            "Hollow, \u2020: the timing error (p99) is more than a tenth of the baseline's median; "
            "the interval allows for it."
        )
    if verdicts.refused:
        parts.append("Refused: " + "; ".join(verdicts.refused[:2]) + ".")
    return " ".join(parts) + left_out(len(rows), len(verdicts.comparisons), "comparisons")
