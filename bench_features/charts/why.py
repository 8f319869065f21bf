"""Why operations take their time (``explain``): one traced job of each treatment, as a Gantt chart of causes."""

from __future__ import annotations

from typing import Final

from bench_features.charts.layout import MOST_PANELS, Chart, ChartSource, KeyEntry, NoChartError, left_out
from bench_features.charts.scales import linear
from bench_master.formatting import format_value
from bench_master.run_data.traced_types import ON_CPU, TracedReport, cause_sentence

HUES_OF_CAUSES: Final = ("vermilion", "blue", "purple", "ochre", "teal", "rose", "indigo", "brown")
"""The hues of the causes that take longest; others are muted."""
_CPU_HUE: Final = "green"
_OTHER_HUE: Final = "muted"
_ROW: Final = 26.0
_BAR: Final = 16.0


def draw_why(source: ChartSource, picture: Chart) -> None:
    """Draw the operations of one job of each traced treatment, with the cause of each stretch of time."""
    traced = [one for one in source.document.traced if one.job]
    if not traced:
        raise NoChartError("no treatment was traced (--explain)")
    hues = _hues(traced)
    picture.title = "Why: one traced job"
    _draw_key(picture, hues)
    for one in traced[:MOST_PANELS]:
        _draw_job(picture, source.document.treatments[one.treatment].title, one, hues)
    jobs = ", ".join(dict.fromkeys(str(one.jobs) for one in traced))
    picture.caption = (
        f"The job whose duration is the median of {jobs} jobs that were traced one at a time after the measured "
        "ones; they are in no other figure. Each stretch has the cause of the thread that explains most: what runs, "
        "then what is blocked in the kernel, then timers."
        + left_out(min(len(traced), MOST_PANELS), len(traced), "jobs")
    )
    picture.description = "; ".join(
        f"{source.document.treatments[one.treatment].title}: {cause_sentence(operation)}"
        for one in traced
        for operation in one.phases
    )


def _hues(traced: list[TracedReport]) -> dict[str, str]:
    """Return the hue of each cause: those that take longest have one of their own."""
    seconds: dict[str, float] = {}
    for one in traced:
        for phase in one.job:
            for segment in phase.segments:
                seconds[segment.cause] = seconds.get(segment.cause, 0.0) + segment.end_s - segment.start_s
    others = sorted((cause for cause in seconds if cause != ON_CPU), key=lambda cause: -seconds[cause])
    hues = {ON_CPU: _CPU_HUE} if ON_CPU in seconds else {}
    return hues | {
        cause: HUES_OF_CAUSES[place] if place < len(HUES_OF_CAUSES) else _OTHER_HUE
        for place, cause in enumerate(others)
    }


def _draw_key(picture: Chart, hues: dict[str, str]) -> None:
    """Write each cause beside its hue; those without a hue of their own share one."""
    shown = [(cause, hue) for cause, hue in hues.items() if hue != _OTHER_HUE]
    if len(shown) < len(hues):
        shown.append(("other causes", _OTHER_HUE))

    def entry(cause: str, hue: str) -> KeyEntry:
        return KeyEntry(cause, "muted", 15.0, lambda x, y: picture.rect(x, y - 9, 10, 10, hue))

    picture.entries([entry(*pair) for pair in shown])


def _draw_job(picture: Chart, title: str, traced: TracedReport, hues: dict[str, str]) -> None:
    left = 84.0 if picture.is_narrow else 120.0
    frame = picture.panel(_ROW * len(traced.job), left=left, right=24.0, title=title)
    scale = linear([phase.end_s for phase in traced.job], frame.left, frame.right, "s")
    picture.x_axis(frame, scale, "time from the begin of the job")
    for place, phase in enumerate(traced.job):
        y = frame.top + place * _ROW + (_ROW - _BAR) / 2
        picture.text(frame.left - 8, y + 12, phase.operation, anchor="end", room=left - 12)
        for one in phase.segments:
            tip = f"{phase.operation}: {one.cause}, {one.process or 'no process'}, "
            tip += format_value(one.end_s - one.start_s, "s")
            x0, x1 = scale(one.start_s), scale(one.end_s)
            picture.rect(x0, y, x1 - x0, _BAR, hues[one.cause], opacity=0.9, tip=tip)
