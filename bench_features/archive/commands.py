"""`bench-master archive`: keeps runs, finds them again, and says what they show together."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bench_common import __version__
from bench_common.argument_types import InvalidValue, file_name, int_range
from bench_common.errors import ExitCode, NotAStatsFileError, UsageError, did_you_mean
from bench_common.options import Option, add_options
from bench_common.safe_text import one_line
from bench_common.stats.reader import StatsFile
from bench_common.streams import as_called, program_name, tell
from bench_features.archive.archive import EVERYTHING, MIN_PREFIX, Archive
from bench_features.archive.facts import fact_texts
from bench_features.archive.folder import VARIABLE
from bench_features.archive.trend_chart import draw_trend
from bench_features.archive.trend_report import lines, list_lines, trend_tables, write_json
from bench_features.archive.trend_types import TrendReport
from bench_features.archive.trends import build_trend, points_of
from bench_features.archive.types import ArchivedRun, ArchivedTreatment, RunFilter, Series
from bench_features.charts import WIDE
from bench_master.analysis.verdict_options import margin
from bench_master.commands import compare
from bench_master.formatting import (
    DEFAULT_WIDTH,
    Column,
    choose_format,
    field,
    format_bytes,
    format_span,
    format_value,
    page_of,
    plural,
    tab_separated,
    wrap_last_column,
)
from bench_master.options.list_format import LIST_FORMAT_HELP
from bench_master.progress_message import Steps, note, progress_message, put
from bench_master.reports import ReportSource
from bench_master.reports.html import HtmlReport, render_page
from bench_master.reports.table import Cell, Field, Table, count, measured, numbers, table_of, table_text, words
from bench_master.terminal import text_output
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions
from bench_master.verdicts.decision import DEFAULT_MARGIN

EPILOG: Final = """\
Stats files are kept as they are, in a folder; nothing leaves this machine.

  bench-master archive add results/*.stats.gz            # keep runs (run-scenario --archive does so by itself)
  bench-master archive list --scenario quickstart --since 30d
  bench-master archive show 1e6b6731                     # one run, by the beginning of its id
  bench-master archive compare 1e6b6731 8575409c         # any two runs
  bench-master archive trend                             # since when is it slower?
  bench-master archive html pages                        # all of it as pages
"""
DASH: Final = "-"
_LEAST_CHARS: Final = 8
ArchivePlace: TypeAlias = Annotated[
    str | None,
    Option(
        "--archive FOLDER",
        f"the folder of the archive (default: {VARIABLE} of the environment, else weighbridge in the XDG data "
        "directory)",
    ),
]


class SubCommand(Struct, frozen=True):
    """One sub-command of ``archive``, in the form that modules of `bench_master.commands` have."""

    help: str
    Options: type[Any]
    run: Callable[[Any], int]
    """Runs with these options; returns the exit code."""
    configure: Callable[[Any], None] | None = None
    """Adds the options to a parser where that takes more than `Options` says."""


def members() -> dict[str, SubCommand]:
    """Return the sub-commands by name, in order."""
    return {
        "acknowledge": SubCommand(
            "accept a change: from it on, gates judge by the new level",
            AcknowledgeOptions,
            _run_acknowledge,
        ),
        "add": SubCommand("add stats files; those that are in the archive stay as they are", AddOptions, _run_add),
        "compare": SubCommand(
            "compare runs of the archive, as the command compare does",
            CompareOptions,
            _run_compare,
            _configure_compare,
        ),
        "html": SubCommand("write pages: trends, runs, and the report of each run", HtmlOptions, _run_html),
        "list": SubCommand("list the runs of the archive, the newest first", ListOptions, _run_list),
        "show": SubCommand("show what the archive has of one run", ShowOptions, _run_show),
        "trend": SubCommand("say since when each series of runs has been slower or faster", TrendOptions, _run_trend),
    }


def _exit_code(archive: Archive) -> int:
    return int(ExitCode.INFRASTRUCTURE if archive.unreadable else ExitCode.OK)


# -- add ------------------------------------------------------------------------------------------------------------


class AddOptions(Struct, frozen=True):
    """The command line of `archive add`."""

    files: Annotated[tuple[Path, ...], Option("FILE", "stats file", nargs="+")]
    quiet: bool
    archive: ArchivePlace = None


def _run_add(options: AddOptions) -> int:
    for path in options.files:
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; expected stats files, such as {path}/*.stats.gz")
        if not path.exists():
            raise UsageError(f"{path}: No such file or directory; nothing was added")
    steps, new, damaged, refused = Steps("added", quiet=options.quiet), 0, 0, 0
    with (
        Archive.open(options.archive, create=True) as archive,
        progress_message("adding runs to the archive"),
    ):
        for number, path in enumerate(options.files, 1):
            try:
                run, is_new = archive.add(path)
            except (NotAStatsFileError, UsageError) as error:
                tell(f"{program_name()}: {error}; not added")
                refused += 1
                continue
            new += is_new
            damaged += run.state == "damaged"
            if run.state != "complete":
                note(f"{program_name()}: {path}: {run.state}, enters no trend: {run.problem}")
            if not options.quiet:
                put(f"{run.id}\t{'added' if is_new else 'known'}\t{run.state}\t{path}")
            steps(number, len(options.files))
    if not options.quiet and len(options.files) > 1:
        again = len(options.files) - new - refused
        known = f", {again} {'was' if again == 1 else 'were'} there already" if again else ""
        tell(f"{plural(new, 'run')} added{known}: {archive.folder.shown}")
    codes = (ExitCode.USAGE if refused else ExitCode.OK, ExitCode.INFRASTRUCTURE if damaged else ExitCode.OK)
    return int(ExitCode.gravest(codes))


# -- compare --------------------------------------------------------------------------------------------------------


class CompareOptions(Struct, frozen=True):
    """The command line of `archive compare`."""

    compare: compare.Options
    """As the command `compare` has it; its files are ids of runs."""
    archive: ArchivePlace = None


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.epilog = as_called(
        "The last RUN is the new one, those before it are the earlier ones. All else is as in bench-master compare.\n"
    )
    add_options(parser, CompareOptions, runs=Option("RUN", "beginning of a run's id", nargs="+"))


def _run_compare(options: CompareOptions) -> int:
    given = options.compare
    with Archive.open(options.archive) as archive:
        names: dict[str, str] = {}
        runs, new = (
            tuple(_file_of(archive, str(word), names) for word in words) for words in (given.runs, given.new)
        )
    if len(runs) + len(new) < 2:  # noqa: PLR2004  of one run there is no ratio
        raise UsageError("archive compare: name two runs or more, such as: archive compare 1e6b6731 8575409c")
    return compare.run(replace(given, runs=runs, new=new), names)


def _file_of(archive: Archive, word: str, names: dict[str, str]) -> Path:
    """Return the file of a run, and note how the report calls it."""
    run = archive.find(word)
    file = archive.file(run)
    names[str(file)] = run.id
    return file


# -- list and show --------------------------------------------------------------------------------------------------


class ListOptions(Struct, frozen=True):
    """The command line of `archive list`."""

    wanted: RunFilter = EVERYTHING
    limit: Annotated[int | None, Option("--limit N", "at most N runs, the newest", type=int_range(1))] = None
    format: Annotated[Literal["table", "tsv"] | None, Option("--format", LIST_FORMAT_HELP)] = None
    archive: ArchivePlace = None
    quiet: bool = False


def _run_list(options: ListOptions) -> int:
    with Archive.open(options.archive) as archive:
        runs = archive.runs(options.wanted)[: options.limit]
    table = _run_table(runs)
    if choose_format(options.format) == "tsv":
        shown = tab_separated([[column.title for column in table.columns], *table.texts])
    else:
        whole = {_state(run) for run in runs} <= {"complete"}
        table = table.without(["state"] if whole else []).shown()
        shown = wrap_last_column([column.title for column in table.columns], table.texts, _LEAST_CHARS)
    sys.stdout.write("".join(f"{line}\n" for line in shown))
    if not options.quiet and not runs:
        what = "no run meets the filter" if options.wanted != EVERYTHING else "no runs"
        tell(f"{what}: {archive.folder.shown}")
    return _exit_code(archive)


def _time(seconds: float | None) -> str:
    """Return a time as people read it, in the local time zone."""
    return DASH if seconds is None else f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def _state(run: ArchivedRun) -> str:
    report = run.report
    more = {"superseded": run.superseded}
    if report is not None:
        more |= {"noop": report.noop, "imported": report.imported is not None}
    return ",".join([run.state, *(word for word, is_so in more.items() if is_so)])


def _value(run: ArchivedRun) -> Cell:
    """Return the value of a run's only treatment, by its primary measure; of several the verdicts or the number."""
    if len(run.treatments) > 1:
        return Cell(run.verdict or plural(len(run.treatments), "treatment"))
    measure, value = next(((one.measure, one.value) for one in run.treatments), (None, None))
    return Cell(DASH if measure is None else format_value(value, measure.unit), value)


_RUN_FIELDS: Final[Sequence[Field[ArchivedRun]]] = (
    Field(
        Column("id", left=True),
        lambda run: Cell(run.id, left=True, link=_page_of(run) if run.state != "damaged" else ""),
    ),
    words("created", lambda run: _time(run.created)),
    words("state", _state),
    numbers("done", lambda run: run.done, lambda value: f"{value:.0f}"),
    numbers("failed", lambda run: run.failed, lambda value: f"{value:.0f}", optional=True),
    Field(Column("value", optional=True), _value),
    words("trust", lambda run: run.trust),
    words("hosts", lambda run: run.place),
    words("scenario", lambda run: run.scenario),
)


def _run_table(runs: Sequence[ArchivedRun]) -> Table:
    return table_of("Runs", "", _RUN_FIELDS, runs)


class ShowOptions(Struct, frozen=True):
    """The command line of `archive show`."""

    run: Annotated[str, Option("RUN", "a unique beginning of the run's id (4 characters or more)")]
    archive: ArchivePlace = None
    verbose: bool = False
    """Show every property of the hosts."""
    terminal: TerminalOptions = DEFAULT_TERMINAL


def _run_show(options: ShowOptions) -> int:
    with Archive.open(options.archive) as archive:
        run = archive.find(options.run)
        file = archive.file(run)
    with text_output(options.terminal, paged=True) as out:
        out.write("".join(f"{line}\n" for line in _shown_run(run, file, verbose=options.verbose)))
    return int(ExitCode.OK)


def _shown_run(run: ArchivedRun, file: Path, *, verbose: bool) -> Iterator[str]:
    """Yield what is known of a run as lines; texts of runs steer no terminal."""
    report, totals = run.report, run.totals
    versions = {} if report is None else report.versions
    took = format_span(None if totals is None else totals.duration_s)
    yield one_line(f"{run.scenario or 'unknown scenario'}  {run.id}")
    for name, text in (
        ("begun", f"{_time(run.created)}, took {took}"),
        ("state", f"{_state(run)}{f': {run.problem}' if run.problem else ''}"),
        ("verdict", f"{run.verdict or DASH}; trust: {run.trust or DASH}"),
        ("jobs", f"{run.done:,} done, {run.failed:,} failed or lost"),
        ("command", " ".join(() if report is None else report.argv) or DASH),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items()) or DASH),
        ("file", str(file)),
        ("sha256", f"{run.sha256} ({format_bytes(run.bytes)})"),
    ):
        yield from field(name, one_line(text))
    for label, host in sorted(run.hosts.items()):
        engines = ", ".join(f"{name} {version}" for name, version in host.engines.items() if version)
        yield from field("host", one_line(f"{label}: {engines or 'no engines'}"))
        facts = fact_texts(host.fingerprint) | (fact_texts(host.fingerprint, noise=True) if verbose else {})
        yield from field("", one_line("; ".join(f"{name} {value}" for name, value in facts.items())))
    yield ""
    with page_of(max(DEFAULT_WIDTH, 120)):
        yield from table_text(table_of("Treatments", "", _TREATMENT_FIELDS, run.treatments))
    yield ""
    what = "a series is a treatment in all its runs: bench-master archive trend SERIES"
    yield f"{plural(len(run.treatments), 'treatment')}; {what}"


def _unit(treatment: ArchivedTreatment) -> str:
    return "" if treatment.measure is None else treatment.measure.unit


_TREATMENT_FIELDS: Final[Sequence[Field[ArchivedTreatment]]] = (
    words("series", lambda one: one.series),
    words("measure", lambda one: one.measure and one.measure.name),
    measured("median", lambda one: one.value, _unit),
    measured("min", lambda one: min(one.trials, default=None), _unit),
    measured("max", lambda one: max(one.trials, default=None), _unit),
    count("n", lambda one: len(one.trials)),
    count("failed", lambda one: one.failed),
    words("treatment", lambda one: one.title),
)


# -- trend and acknowledge ------------------------------------------------------------------------------------------


def _svg_name(text: str) -> Path:
    path = file_name(text)
    if path.suffix.lower() != ".svg":
        raise InvalidValue(f"{text!r}: the chart is an SVG file; name it so: {path.with_suffix('.svg').name}")
    return path


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
    format: Annotated[Literal["text", "json"], Option("--format", "format of the output (default: text)")] = "text"
    archive: ArchivePlace = None
    terminal: TerminalOptions = DEFAULT_TERMINAL


def _run_trend(options: TrendOptions) -> int:
    with Archive.open(options.archive) as archive:
        known = archive.series(options.wanted)
        chosen = known if options.series is None else [_find_series(options.series, known)]
        trends = [_trend(archive, one, options.margin, options.of) for one in chosen]
    if options.chart is not None:
        _draw(trends, options.chart)
    if options.format == "json":
        write_json(trends, sys.stdout, alone=options.series is not None)
    else:
        with text_output(options.terminal, paged=True) as out:
            shown = lines(trends[0]) if options.series is not None else list_lines(trends)
            out.writelines(f"{line}\n" for line in shown)
    if not trends:
        tell("no series: no whole run meets the filter")
    return _exit_code(archive)


def _trend(archive: Archive, series: Series, margin: float = DEFAULT_MARGIN, of: str | None = None) -> TrendReport:
    measure, points = points_of(series, of)
    return build_trend(series, points, margin=margin, acknowledged=archive.acknowledged(series.key), measure=measure)


def _find_series(word: str, known: Sequence[Series]) -> Series:
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


def _draw(trends: Sequence[TrendReport], path: Path) -> None:
    if len(trends) != 1:
        raise UsageError(f"--chart draws one series, and {plural(len(trends), 'series')} were found; name SERIES")
    if not trends[0].runs:
        raise UsageError("--chart: no run of the series has a value")
    try:
        path.write_text(draw_trend(trends[0], WIDE, "paper").svg(standalone=True), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}; name another file") from error


class AcknowledgeOptions(Struct, frozen=True):
    """The command line of `archive acknowledge`."""

    series: Annotated[str, Option("SERIES", "the series: its key, or the title of its treatment")]
    run: Annotated[str, Option("RUN", "the first run of the new level, as archive trend names it")]
    archive: ArchivePlace = None
    quiet: bool = False


def _run_acknowledge(options: AcknowledgeOptions) -> int:
    with Archive.open(options.archive) as archive:
        series = _find_series(options.series, archive.series())
        run = archive.find(options.run)
        if all(member is not run for member, _ in series.members):
            raise UsageError(f"run {run.id}: is not in series {series.key} ({one_line(series.title)})")
        archive.folder.acknowledge(series.key, run.sha256)
    if not options.quiet:
        tell(f"{one_line(series.title)}: runs from {run.id} on are judged by the level since then")
    return int(ExitCode.OK)


# -- html -----------------------------------------------------------------------------------------------------------


class HtmlOptions(Struct, frozen=True):
    """The command line of `archive html`."""

    folder: Annotated[Path, Option("DIR", "folder for index.html and a page of each run; it is made")]
    archive: ArchivePlace = None
    quiet: bool = False


def _run_html(options: HtmlOptions) -> int:
    folder, steps = options.folder, Steps("written", quiet=options.quiet)
    with Archive.open(options.archive) as archive, progress_message("writing pages"):
        runs = archive.runs()
        trends = [_trend(archive, series) for series in archive.series()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for number, run in enumerate(runs, 1):
                if run.state != "damaged":
                    with (folder / _page_of(run)).open("w", encoding="utf-8") as out:
                        HtmlReport().write(ReportSource(StatsFile(archive.file(run))), out)
                steps(number, len(runs))
            (folder / "index.html").write_text(_index(archive, runs, trends), encoding="utf-8")
        except OSError as error:
            where = one_line(str(error.filename or folder))
            raise UsageError(f"{where}: cannot write: {error.strerror}; name another folder") from error
    if not options.quiet:
        tell(f"{plural(len(runs), 'run')}, {plural(len(trends), 'series')}: {folder / 'index.html'}")
    return _exit_code(archive)


def _page_of(run: ArchivedRun) -> str:
    return f"run-{run.id}.html"


def _index(archive: Archive, runs: Sequence[ArchivedRun], trends: Sequence[TrendReport]) -> str:
    """Return the page of trends, their charts, and runs; each run leads to its report."""
    return render_page(
        "archive.html.j2",
        "bench_features.archive:pages",
        archive=archive.folder.shown,
        unreadable=[f"{path}: {reason}" for path, reason in archive.unreadable.items()],
        tables=[*trend_tables(trends), _run_table(runs)],
        charts=[_chart(trend) for trend in trends if len(trend.runs) > 1],
        version=__version__,
    )


def _chart(trend: TrendReport) -> dict[str, str]:
    picture = draw_trend(trend, WIDE)
    picture.name = f"trend-{trend.series}"
    title = f"{trend.treatment}, {trend.measure}, of {trend.scenario or 'an unnamed scenario'} on {trend.hosts}"
    shown = {"answer": trend.answer, "svg": picture.svg(), "caption": picture.caption}
    return {"key": trend.series, "title": title, **shown}
