"""The chart of effects: the forest of comparisons (F1), turned so that more is worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench_common.safe_text import one_line
from bench_features.charts.layout import Chart, ChartSource, NoChartError, count_text, left_out
from bench_features.charts.picture import Frame, text_width
from bench_features.charts.scales import Scale
from bench_master.analysis.verdict_types import ComparisonReport, VerdictsReport, change_text, interval_text
from bench_master.formatting import plural
from bench_master.reports.palette import engine_hue
from bench_master.reports.verdict_text import FEWEST_ROUNDS, FULL_INTERVAL
from bench_master.run_data.treatment_types import TreatmentReport

MOST_ROWS: Final = 80
_TIMING_SHARE: Final = 0.1


class Effect(NamedTuple):
    """A comparison turned so that more is worse; None is an open end."""

    comparison: ComparisonReport
    ratio: float
    low: float | None
    high: float | None
    weak: bool
    """Whether the timing error is more than a tenth of the baseline's median."""

    @property
    def is_interval(self) -> bool:
        """Whether the ends are those of an interval, and not the range of few rounds."""
        return self.comparison.confidence >= FULL_INTERVAL

    @property
    def holds_one(self) -> bool:
        """Whether a ratio of 1 is within the ends."""
        return (self.low is None or self.low <= 1) and (self.high is None or self.high >= 1)

    @property
    def text(self) -> str:
        """The difference and its ends, as every report says them; a single round has no ends."""
        interval = interval_text(self.comparison, FEWEST_ROUNDS)
        ends = "" if interval == "-" else f" {interval}"
        return f"{change_text(self.comparison)}{ends}" + (" \u2020" if self.weak else "")


def turn(comparison: ComparisonReport, treatments: Sequence[TreatmentReport]) -> Effect | None:
    """Return a comparison with right as worse; None if it has no ratio."""
    ratio = comparison.ratio
    if comparison.scale != "ratio" or ratio is None or not 0 < ratio < math.inf or comparison.verdict == "refused":
        return None
    low, high = (end if end and 0 < end < math.inf else None for end in (comparison.low, comparison.high))
    if comparison.direction == "higher":
        ratio, low, high = 1 / ratio, None if high is None else 1 / high, None if low is None else 1 / low
    return Effect(comparison, ratio, low, high, _timing_is_weak(comparison, treatments))


def _timing_is_weak(comparison: ComparisonReport, treatments: Sequence[TreatmentReport]) -> bool:
    if comparison.unit != "s":
        return False
    for base in treatments:
        if base.title == comparison.a and base.timing_error_p99_s is not None:
            job = base.operations.get("job")
            median = comparison.a_value if comparison.a_value is not None else job and job.percentiles_s.get("p50")
            return bool(median) and base.timing_error_p99_s > _TIMING_SHARE * (median or 0.0)
    return False


def draw_forest(source: ChartSource, picture: Chart) -> None:
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
    picture.title = f"Ratio to {_baseline(verdicts.comparisons)}"
    narrow, width = picture.is_narrow, picture.width
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
    picture.x_axis(frame, scale, "", room=0.0)
    one = scale(1.0)
    picture.line([(one, frame.top - 6), (one, frame.bottom)], "ink", dash="2 2")
    picture.text(one, frame.top - 10, "same", anchor="middle", ink="muted", size=11)
    below = frame.bottom + 31
    picture.text(frame.left, below, "\u2190 better", ink="muted", size=11)
    picture.text(frame.right, below, "worse \u2192", anchor="end", ink="muted", size=11)
    picture.text((frame.left + frame.right) / 2, below, "ratio (log)", anchor="middle", ink="muted", size=11)
    for place, (label, (comparison, effect)) in enumerate(zip(labels, rows, strict=True)):
        y = frame.top + (place + (0.75 if narrow else 0.5)) * step
        picture.row_words(frame, y, label, effect.text if effect else f"{comparison.word.lower()}: no ratio")
        if effect:
            _draw_effect(picture, scale, y, effect, label)
    failed = plural(source.document.totals.failed, "job")
    picture.caption = _forest_caption(verdicts, scale, effects, failed) + left_out(
        len(rows), len(every), "comparisons"
    )
    picture.description = "; ".join(
        f"{each.comparison.name} {each.comparison.group} {each.comparison.measure} {each.text}"
        for each in effects[:MOST_ROWS]
    )


def _row_label(comparison: ComparisonReport, *, several: bool) -> str:
    # A number alone does not say what it is the number of.
    keys = [key for key, value in comparison.labels.items() if str(value) == comparison.name]
    name = f"{keys[0]} {comparison.name}" if len(keys) == 1 and comparison.name[:1].isdigit() else comparison.name
    group = [part.removeprefix("job=").replace("=", " ") for part in comparison.group.split()]
    label = ", ".join((name, *group))
    return f"{label}: {comparison.measure}" if several else label


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
    if len(engines) == 1 and not engines & other:
        return engines.pop()
    return names[0] if len(names) == 1 else "the baseline"


def _forest_caption(verdicts: VerdictsReport, scale: Scale, effects: Sequence[Effect], failed: str) -> str:
    parts = [
        f"{verdicts.question}. Each row is turned so that right is worse; {scale.words('ratio').lower()}",
        f"{count_text(each.comparison.rounds for each in effects)} rounds a row, {failed} failed.",
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
    return " ".join(parts)
