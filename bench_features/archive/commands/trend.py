"""`bench-master archive trend` and `acknowledge`: since when a treatment is slower, and that somebody knows of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Struct

from bench_common.argument_types import InvalidValue, file_name
from bench_common.errors import ExitCode, UsageError, did_you_mean
from bench_common.options import Option
from bench_common.safe_text import one_line
from bench_common.streams import tell
from bench_features.archive.archive import EVERYTHING, MIN_PREFIX, Archive
from bench_features.archive.options import ArchivePlace, SubCommand
from bench_features.archive.trend_report import lines, list_lines, write_csv, write_json
from bench_features.archive.trend_types import TrendReport
from bench_features.archive.trends import build_trend, measure_of
from bench_features.archive.types import RunFilter, Series
from bench_master.analysis.verdict_options import margin
from bench_master.formatting import plural
from bench_master.terminal import text_output
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions
from bench_master.verdicts.decision import DEFAULT_MARGIN


class TrendOptions(Struct, frozen=True):
    """The command line of `archive trend`."""

    series: Annotated[
        str | None,
        Option(
            "SERIES",
            "a series: its key, the beginning of it, or the title of its treatment (default: a line for each)",
            nargs="?",
        ),
    ]
    wanted: RunFilter = EVERYTHING
    of: Annotated[
        str | None,
        Option("--of MEASURE", "another measure than the primary one, such as start.p95 or a metric's name"),
    ] = None
    margin: Annotated[float, Option("--margin P%", "smaller changes are none (default: 3%%)", type=margin)] = (
        DEFAULT_MARGIN
    )
    chart: Annotated[Path | None, Option("--chart FILE.svg", "draw the series to this file", type=_svg_name)] = None
    across: Annotated[Literal["date", "version"], Option("--across", "the chart's x axis (default: date)")] = "date"
    format: Annotated[Literal["text", "json", "csv"], Option("--format", "format of the output (default: text)")] = (
        "text"
    )
    archive: ArchivePlace = None
    terminal: TerminalOptions = DEFAULT_TERMINAL
    """How to show it on a terminal."""


def _svg_name(text: str) -> Path:
    path = file_name(text)
    if path.suffix.lower() != ".svg":
        raise InvalidValue(f"{text!r}: the chart is an SVG file; name it so: {path.with_suffix('.svg').name}")
    return path


def _run_trend(options: TrendOptions) -> int:
    with Archive.open(options.archive) as archive:
        known = archive.series(options.wanted)
        chosen = known if options.series is None else [find_series(options.series, known)]
        trends = [trend_of(archive, one, options.wanted, margin=options.margin, of=options.of) for one in chosen]
    if options.chart is not None:
        _draw(trends, options)
    if options.format == "json":
        write_json(trends, sys.stdout, alone=options.series is not None)
    elif options.format == "csv":
        write_csv(trends, sys.stdout)
    else:
        with text_output(options.terminal, paged=True) as out:
            shown = lines(trends[0]) if options.series is not None else list_lines(trends)
            out.writelines(f"{line}\n" for line in shown)
    if not trends:
        tell("no series: no whole run meets the filter")
    return int(ExitCode.INFRASTRUCTURE if archive.unreadable else ExitCode.OK)


def trend_of(
    archive: Archive, series: Series, wanted: RunFilter, *, margin: float = DEFAULT_MARGIN, of: str | None = None
) -> TrendReport:
    """Return the trend of a series, by its primary measure or another one."""
    points = archive.points(series.key, of, wanted)
    newest = archive.find(points[-1].run_id).treatments if points and of is not None else ()
    values = [value for one in newest if one.series == series.key for value in one.values]
    measure, known = measure_of(series, values, of), archive.acknowledged(series.key)
    return build_trend(series, points, margin=margin, acknowledged=known, measure=measure)


def find_series(word: str, known: Sequence[Series]) -> Series:
    """Return the series that a word names; raise `UsageError` where it is none or several."""
    found = [one for one in known if word in (one.key, one.title)]
    if not found and len(word) >= MIN_PREFIX:
        found = [one for one in known if one.key.startswith(word)]
    if len(found) == 1:
        return found[0]
    shown = one_line(word)
    if found:
        which = ", ".join(one_line(f"{one.key} ({one.scenario} on {one.hosts})") for one in found[:4])
        raise UsageError(f"{shown}: names {len(found)} series; give the key of one: {which}")
    names = [name for one in known for name in (one.title, one.key)]
    scenario = any(one.scenario == word for one in known)
    hint = f"; it is a scenario: archive trend --scenario {shown}" if scenario else did_you_mean(word, names)
    raise UsageError(f"{shown}: no series of the archive{hint}; bench-master archive trend lists them")


def _draw(trends: Sequence[TrendReport], options: TrendOptions) -> None:
    from bench_features.archive.trend_chart import draw_trend
    from bench_features.charts import WIDE
    from bench_features.charts.layout import NoChartError

    assert options.chart is not None
    if len(trends) != 1:
        raise UsageError(f"--chart draws one series, and {plural(len(trends), 'series')} were found; name SERIES")
    try:
        picture = draw_trend(trends[0], WIDE, "paper", options.across)
    except NoChartError as error:
        raise UsageError(f"--chart: {error}") from error
    try:
        options.chart.write_text(picture.svg(standalone=True), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{options.chart}: cannot write: {error.strerror}; name another file") from error


class AcknowledgeOptions(Struct, frozen=True):
    """The command line of `archive acknowledge`."""

    series: Annotated[str, Option("SERIES", "the series: its key, or the title of its treatment")]
    run: Annotated[str, Option("RUN", "the first run of the new level, as archive trend names it")]
    archive: ArchivePlace = None
    quiet: bool = False


def _run_acknowledge(options: AcknowledgeOptions) -> int:
    with Archive.open(options.archive) as archive:
        series = find_series(options.series, archive.series())
        run = archive.find(options.run)
        if not any(point.run_id == run.id for point in archive.points(series.key)):
            raise UsageError(f"run {run.id}: is not in series {series.key} ({one_line(series.title)})")
        archive.folder.acknowledge(series.key, run.sha256)
    if not options.quiet:
        tell(f"{one_line(series.title)}: runs from {run.id} on are judged by the level since then")
    return int(ExitCode.OK)


COMMANDS: Final = (
    SubCommand("trend", "since when? the changes of each series of runs", TrendOptions, _run_trend),
    SubCommand(
        "acknowledge",
        "note that a change is known: gates judge by the new level from there on",
        AcknowledgeOptions,
        _run_acknowledge,
    ),
)
