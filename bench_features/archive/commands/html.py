"""`bench-master archive html`: the archive as pages: its trends and runs, and the report of each run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Struct

from bench_common import __version__
from bench_common.errors import ExitCode, UsageError
from bench_common.options import Option
from bench_common.safe_text import one_line
from bench_common.stats.reader import StatsFile
from bench_common.streams import tell
from bench_features.archive.archive import EVERYTHING, Archive
from bench_features.archive.commands.list_show import DASH, shown_state, shown_time, shown_value
from bench_features.archive.commands.trend import trend_of
from bench_features.archive.options import ArchivePlace, SubCommand
from bench_features.archive.trend_chart import draw_trend
from bench_features.archive.trend_types import TrendReport
from bench_features.archive.types import ArchivedRun
from bench_features.charts import WIDE
from bench_master.formatting import Column, plural
from bench_master.progress_message import Steps, progress_message
from bench_master.reports import ReportSource
from bench_master.reports.html import HtmlReport, hash_source, page_environment, page_style, template_text
from bench_master.reports.table import Cell, Table

_TEMPLATES: Final = "bench_features.archive:pages"


class HtmlOptions(Struct, frozen=True):
    """The command line of `archive html`."""

    folder: Annotated[Path, Option("DIR", "folder for index.html and a page of each run; it is made")]
    archive: ArchivePlace = None
    quiet: bool = False


def _run(options: HtmlOptions) -> int:
    folder, steps = options.folder, Steps("written", quiet=options.quiet)
    with Archive.open(options.archive) as archive, progress_message("writing pages"):
        runs = archive.runs()
        trends = [trend_of(archive, series, EVERYTHING) for series in archive.series()]
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
    return int(ExitCode.INFRASTRUCTURE if archive.unreadable else ExitCode.OK)


def _page_of(run: ArchivedRun) -> str:
    return f"run-{run.id}.html"


def _index(archive: Archive, runs: list[ArchivedRun], trends: list[TrendReport]) -> str:
    style, script = page_style(), template_text("page.js")
    drawn = [trend for trend in trends if len(trend.runs) > 1]
    return page_environment(_TEMPLATES).get_template("archive.html.j2").render(
        archive=archive.folder.shown,
        unreadable=[f"{path}: {reason}" for path, reason in archive.unreadable.items()],
        tables=[_trend_table(trends), _run_table(runs)],
        charts=[_chart(trend) for trend in drawn],
        version=__version__,
        policy=f"default-src 'none'; style-src {hash_source(style)}; script-src {hash_source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
    )  # fmt: skip


def _chart(trend: TrendReport) -> dict[str, Any]:
    picture = draw_trend(trend, WIDE)
    picture.name = f"trend-{trend.series}"
    title = f"{trend.treatment}, {trend.measure}, of {trend.scenario or 'an unnamed scenario'} on {trend.hosts}"
    return {"key": trend.series, "title": title, "svg": picture.svg(), "caption": picture.caption}


def _trend_table(trends: list[TrendReport]) -> Table:
    columns = [Column(name, left=True) for name in ("treatment", "scenario", "hosts", "measure")]
    columns += [Column("runs"), Column("since when", left=True)]
    rows = [
        [
            Cell(one.treatment, left=True, link=f"#{one.series}" if len(one.runs) > 1 else ""),
            *(Cell(text, left=True) for text in (one.scenario, one.hosts, one.measure)),
            Cell(str(len(one.runs)), len(one.runs)),
            Cell(one.answer, left=True),
        ]
        for one in trends
    ]
    return Table(
        "Trends", "Each treatment in all its runs with the same parameters on the same hosts.", columns, rows
    )


def _run_table(runs: list[ArchivedRun]) -> Table:
    columns = [Column(name, left=True) for name in ("run", "begun", "scenario", "hosts", "state")]
    columns += [Column("jobs"), Column("failed"), Column("value"), Column("trust", left=True)]
    rows = [
        [
            Cell(run.id, left=True, link=_page_of(run) if run.state != "damaged" else ""),
            Cell(shown_time(run.created), run.created, left=True),
            *(Cell(text, left=True) for text in (run.scenario or DASH, run.place or DASH, shown_state(run))),
            Cell(f"{run.done:,}", run.done),
            Cell(f"{run.failed:,}", run.failed),
            Cell(shown_value(run), run.value),
            Cell(run.trust or DASH, left=True),
        ]
        for run in runs
    ]
    return Table("Runs", "The newest first.", columns, rows)


COMMANDS: Final = (SubCommand("html", "write pages: trends, runs, and the report of each run", HtmlOptions, _run),)
