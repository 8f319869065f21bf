"""The section Why of text reports: where the time of operations went in the traced trials, and one job of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bench_common.safe_text import one_line
from bench_master.analysis.report_types import ReportDocument
from bench_master.formatting import (
    format_seconds,
    format_value,
    page_width,
    paragraph,
)
from bench_master.run_data.traced_types import (
    ON_CPU,
    TracedPhaseReport,
    TracedReport,
    cause_sentence,
)

MOST_CAUSES: Final = 5
"""Causes of an operation that a table has."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_CPU: Final = "#"
_NOTHING: Final = "."
_BAR: Final = 64


def why_lines(document: ReportDocument, names: Sequence[str], *, most: int) -> Iterator[str]:
    """Yield a sentence for each operation of each traced treatment, of so many treatments at most."""
    for traced in document.traced[:most]:
        name = names[traced.treatment]
        if len(names) > 1:
            yield from paragraph(one_line(name), indent=2, hanging=4)
        if traced.problem:
            yield from paragraph(f"not traced: {one_line(traced.problem)}", indent=4, hanging=6)
            continue
        for operation in traced.phases:
            yield from paragraph(cause_sentence(operation), indent=4, hanging=6)
    if len(document.traced) > most:
        yield f"    ... and {len(document.traced) - most} more with -v"


def job_lines(document: ReportDocument) -> Iterator[str]:
    """Yield a Gantt chart of one traced job of each treatment."""
    for traced in document.traced:
        if not traced.problem:
            yield from paragraph(one_line(document.treatments[traced.treatment].title), indent=2, hanging=4)
            yield from gantt_lines(traced.job)


def gantt_lines(job: Sequence[TracedPhaseReport]) -> Iterator[str]:
    """Yield a line for each operation of one job on one axis of time: a letter for the cause of each stretch."""
    length_s = max((phase.end_s for phase in job), default=0.0)
    if not length_s:
        return
    letters = _letters(job)
    label = max(len(one_line(phase.operation)) for phase in job)
    width = max(16, min(_BAR, page_width() - label - 8))
    yield ""
    yield f"    {'':{label}}  0{format_value(length_s, 's'):>{width - 1}}"
    for phase in job:
        cells = [_cell(phase, (place + 0.5) * length_s / width, letters) for place in range(width)]
        yield f"    {one_line(phase.operation):{label}}  {''.join(cells)}".rstrip()
    key = [f"{_CPU} {ON_CPU}", *(f"{letter} {cause}" for cause, letter in letters.items() if letter != _CPU)]
    yield from paragraph(", ".join(key), indent=4, hanging=6)


def _letters(job: Sequence[TracedPhaseReport]) -> dict[str, str]:
    """Return a letter for each cause, those that take longest first; too many share a dot."""
    seconds: dict[str, float] = {}
    for phase in job:
        for one in phase.segments:
            seconds[one_line(one.cause)] = seconds.get(one_line(one.cause), 0.0) + one.end_s - one.start_s
    others = sorted((cause for cause in seconds if cause != ON_CPU), key=lambda cause: -seconds[cause])
    return {ON_CPU: _CPU} | {
        cause: _LETTERS[place] if place < len(_LETTERS) else _NOTHING for place, cause in enumerate(others)
    }


def _cell(phase: TracedPhaseReport, at_s: float, letters: Mapping[str, str]) -> str:
    if not phase.start_s <= at_s < phase.end_s:
        return " "
    for one in phase.segments:
        if one.start_s <= at_s < one.end_s:
            return letters[one_line(one.cause)]
    return _NOTHING


def sampling_text(document: ReportDocument, traced: TracedReport) -> str:
    """Return how the threads were looked at, and how much longer the traced jobs took than the measured ones."""
    sampling = traced.sampling
    if sampling is None:
        return ""
    text = (
        f"{traced.jobs} jobs after the measured ones, one at a time, in no other figure. Threads were looked at "
        f"every {format_seconds(sampling.interval_s, 2)} (at most {format_seconds(sampling.longest_gap_s, 2)} "
        f"apart), which took {sampling.cpu_share:.2f} CPUs; a process that lives for less is missed."
    )
    if not sampling.stacks:
        text += (
            " The kernel's stacks were not readable (that takes root): causes are by the innermost function alone."
        )
    if sampling.cut:
        text += " The trial was longer than the sampler keeps: its end is missing."
    slower = slow_downs(document, traced)
    return f"{text} {slower}" if slower else text


def slow_downs(document: ReportDocument, traced: TracedReport) -> str:
    """Return the traced durations beside the medians of the measured jobs."""
    measured = document.treatments[traced.treatment].operations
    found = [
        f"{one_line(one.operation)} {format_value(one.total_s, 's')} ({format_value(median, 's')})"
        for one in traced.phases
        if (own := measured.get(one.operation)) and (median := own.percentiles_s.get("p50")) is not None
    ]
    return f"Traced, and in parentheses the measured median: {', '.join(found)}." if found else ""
