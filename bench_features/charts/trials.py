"""Each trial in run order (F2): what drifts is seen here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from bench_common.cli import check_choice
from bench_features.charts.chart_sums import TrialMark
from bench_features.charts.layout import (
    GREY,
    MOST_PANELS,
    Chart,
    ChartSource,
    NoChartError,
    Panel,
    axis_title,
    caption_end,
    count_text,
)
from bench_features.charts.picture import text_width
from bench_features.charts.scales import COUNT, Scale, log_if_wide
from bench_master.formatting import format_value, plural

MOST_TRIALS: Final = 600
"""Of more trials in a panel only the lines are drawn, not each job."""
_HEIGHT: Final = 150.0


def draw_trials(source: ChartSource, picture: Chart) -> None:
    """Draw each trial's value in the order in which they ran: drift is seen here."""
    trials = _measured_by(source)
    if not any(mark.value is not None for mark in trials):
        raise NoChartError("the stats file does not say when its trials ran" if not trials else "no job was done")
    ran = {mark.treatment for mark in trials}
    every = source.panels(ran)
    panels = every[:MOST_PANELS]
    picture.title = "Each trial, in the order in which it ran"
    room = picture.room_for_labels(panels, _HEIGHT)
    said: dict[str, list[str]] = {}
    for panel in panels:
        marks = [mark for mark in trials if mark.treatment in panel.treatments]
        if any(mark.value is not None for mark in marks):
            said.setdefault(_draw_trials(picture, source, panel, marks, room), []).append(panel.title)
    measured = [mark for mark in trials if not mark.warmup]
    counts = [sum(mark.treatment == place for mark in measured) for place in sorted(ran)]
    # What is the same in all panels is said once.
    axes = [
        words.replace("job time", "Job time", 1) if len(said) == 1 else f"{', '.join(filter(None, titles))}: {words}"
        for words, titles in said.items()
    ]
    large = "Large: a trial, the mean of its primary metric or else the median time of its jobs"
    large = large if source.choice.metric is None else f"A mark: a trial, the mean of {source.choice.metric}"
    small = " (small: some of its jobs)" if any(len(mark.jobs) > 1 for mark in trials) else ""
    lost = " (\u00d7 on the axis: a trial without a job done)" if any(mark.value is None for mark in trials) else ""
    parts = [
        f"{large}{small}.",
        "Hollow: warm-up, not counted." if any(mark.warmup for mark in trials) else "",
        f"{count_text(counts)} trials each; {plural(sum(mark.failed for mark in measured), 'job')} failed{lost}.",
        "A line that slopes means drift.",
        *axes,
    ]
    picture.caption = " ".join(filter(None, parts)) + caption_end(panels, every)


def _measured_by(source: ChartSource) -> Sequence[TrialMark]:
    """Return the trials with the values of the metric that was asked for, without those that cannot have it."""
    metric, values = source.choice.metric, source.values
    if metric is None:
        return source.trials
    check_choice(metric, dict.fromkeys(name for _, name in values), what="metric")
    return [
        replace(mark, value=values[mark.treatment, metric].get(mark.trial), jobs=())
        for mark in source.trials
        if (mark.treatment, metric) in values
    ]


def _draw_trials(picture: Chart, source: ChartSource, panel: Panel, marks: Sequence[TrialMark], room: float) -> str:
    """Draw a panel, and return what captions say of its axis."""
    data, document = source.data, source.document
    metric = source.choice.metric or source.metrics.get(panel.treatments[0])
    found = None if metric is None else document.treatments[panel.treatments[0]].metrics.get(metric)
    unit, direction = ("s", "lower") if found is None else (found.unit, found.direction or "")
    what = axis_title(metric or "job time", unit)
    title = ": ".join(filter(None, (panel.title, what)))
    better = f"{direction} is better" if direction else ""
    heading = ", ".join(filter(None, (title, better)))
    heading = heading if text_width(heading, bold=True) < picture.width - 16 else title
    frame = picture.panel(_HEIGHT, right=room, title=heading)
    values = [mark.value for mark in marks if mark.value is not None]
    jobs = [job for mark in marks for job in mark.jobs] if len(marks) <= MOST_TRIALS else []
    scale = log_if_wide([*values, *jobs], frame.bottom, frame.top, unit)
    end = max([data.duration_s, *(mark.begin_s for mark in marks)])
    if data.timed:
        times, along = Scale(0.0, end * 1.02 or 1.0, frame.left, frame.right, "s"), "since the run began"
    else:
        times, along = Scale(0.0, end + 1.0, frame.left, frame.right, COUNT), "trial, in the order of the files"
    picture.axes(frame, times, scale, along)
    ends = []
    for place in panel.grey_first:
        style = panel.styles[place]
        own = [mark for mark in marks if mark.treatment == place]
        known = [(mark, scale(mark.value)) for mark in own if mark.value is not None]
        line = [(times(mark.begin_s), y) for mark, y in known if not mark.warmup]
        picture.line(line, style.hue, width=0.8, tip=style.label)
        many = [mark for mark in own if jobs and len(mark.jobs) > 1]
        picture.specks([(times(mark.begin_s), scale(job)) for mark in many for job in mark.jobs], style.hue)
        for mark in own:
            x = times(mark.begin_s)
            tip = f"{style.label}, trial {mark.trial}{' (warm-up)' if mark.warmup else ''}: "
            tip += f"{format_value(mark.value, unit)}, {mark.done} jobs done, {mark.failed} failed"
            if mark.value is None:
                picture.cross(x, frame.bottom, style.hue, tip=tip)
                continue
            picture.mark(x, scale(mark.value), style.shape, style.hue, size=3.6, hollow=mark.warmup, tip=tip)
        if known and style.hue != GREY:
            ends.append((known[-1][1], style))
    if room:
        picture.end_labels(frame, ends)
    return scale.words(what) + (f" {better[:1].upper()}{better[1:]}." if better else "")
