"""The pages of series and hosts: lists, one series with its changes, what a host was, and how two differ."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from bench_common.argument_types import InvalidValue
from bench_common.errors import UsageError
from bench_features.archive.baseline import acknowledged_runs
from bench_features.archive.contents import ValueContents
from bench_features.archive.facts import HostState, compare_hosts
from bench_features.archive.site.run_pages import FILTERS, read_filter
from bench_features.archive.site.site import (
    MAX_PAGE,
    PAGE_ROWS,
    BadAddress,
    Page,
    Site,
    View,
    link,
    page_links,
    read_choice,
    read_number,
    run_cell,
    when,
    word_cell,
)
from bench_features.archive.trend_chart import Across, draw_trend
from bench_features.archive.trend_types import TrendReport
from bench_features.archive.trends import build_trend, measure_of
from bench_features.archive.types import OPERATION, STATISTICS, Series, TrendPoint
from bench_features.charts.in_reports import at_both_widths
from bench_features.charts.layout import NoChartError
from bench_master.formatting import format_change, format_change_interval, format_value
from bench_master.options.verdict import margin as read_margin
from bench_master.reports.charts import PageChart
from bench_master.reports.html_tables import Cell, Head, Table
from bench_master.verdicts.decision import DEFAULT_MARGIN

DEFAULT_RUNS: Final = 400
"""Runs of a series that a page looks at unless its address says otherwise: the newest."""
MOST_RUNS: Final = 100_000
ACROSS: Final = ("date", "version")


def show_series_list(site: Site, given: dict[str, str]) -> View:
    """Show the series that runs of a filter belong to."""
    page = read_number(given, "page", 1, MAX_PAGE)
    known = site.archive.series(read_filter(given))
    shown = known[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    links = page_links("/series", given, page, len(known))
    heads = [Head(name, left=True) for name in ("treatment", "scenario", "hosts", "measure")]
    heads += [Head("runs"), Head("newest (UTC)", left=True)]
    rows = [
        [
            word_cell(one.title, link(f"/series/{one.key}")),
            *map(word_cell, (one.scenario, one.hosts, one.measure)),
            Cell(f"{one.runs:,}", one.runs),
            Cell(when(one.newest), left=True),
        ]
        for one in shown
    ]
    table = Table(
        "Series", "A series is one treatment with the same parameters on hosts of the same names.", heads, rows
    )
    data = {"count": len(known), "page": page, "pages": links["pages"], "series": shown}
    return View("Series", data, lambda: {"table": table, "links": links, "given": given, "filters": FILTERS})


def show_series(site: Site, given: dict[str, str], key: str) -> View:
    """Show one series: the chart over its runs, its changes with their interval, and where the machine changed."""
    across = cast("Across", read_choice(given, "across", ACROSS, "date"))
    most = read_number(given, "runs", DEFAULT_RUNS, MOST_RUNS)
    try:
        margin = read_margin(given["margin"]) if "margin" in given else DEFAULT_MARGIN
    except InvalidValue as error:
        raise BadAddress(f"margin={error}") from error
    points = site.archive.points(key, given.get("measure"), most)
    known = site.archive.series_named(key)
    if known is None:
        raise UsageError(f"series {key}: none of its runs is whole, so there is nothing to show over runs")
    values = _values(site, points, key)
    measure = measure_of(known, values, given.get("measure"))
    acknowledged = acknowledged_runs(site.archive, key)
    build = partial(build_trend, known, points, margin=margin, acknowledged=acknowledged, measure=measure)
    trend = site.background.run(build)
    title = f"{known.title} over runs"
    data = {"trend": trend, "all_runs": known.runs}
    return View(title, data, lambda: _more(trend, known, values, across, known.runs, given))


def _values(site: Site, points: Sequence[TrendPoint], key: str) -> Sequence[ValueContents]:
    """Return the measures of the newest run of a series."""
    newest = site.archive.run(points[-1].run_id) if points else None
    found = (one.values for one in newest.treatments if one.series == key) if newest is not None else ()
    return next(iter(found), ())


def _names(values: Sequence[ValueContents]) -> list[str]:
    found: list[str] = []
    for value in values:
        of_operation = value.kind == OPERATION
        found += [f"{value.name}.{statistic}" for statistic in STATISTICS] if of_operation else [value.name]
    return list(dict.fromkeys(found))


def _more(
    trend: TrendReport,
    series: Series,
    values: Sequence[ValueContents],
    across: Across,
    count: int,
    given: dict[str, str],
) -> dict[str, Any]:
    drawn: PageChart | None = None
    with contextlib.suppress(NoChartError):
        drawn = at_both_widths(partial(draw_trend, trend, across=across))
    tables = [_changes(trend), _breaks(trend), _runs(trend)]
    return {
        "series": series,
        "chart": drawn,
        "tables": [table for table in tables if table.rows],
        "names": _names(values),
        "across": across,
        "choices": ACROSS,
        "shown": len(trend.runs),
        "count": count,
        "all": link(f"/series/{series.key}", **{**given, "runs": str(min(count, MOST_RUNS))}),
        "given": given,
    }


def _changes(trend: TrendReport) -> Table:
    heads = [Head("since (UTC)", left=True), Head("run", left=True), Head("change", left=True), Head("size")]
    heads += [Head("interval"), Head("runs"), Head("version", left=True), Head("certainty", left=True)]
    about = {"step": "a step of the history", "confirmed": "confirmed by a second run", "unconfirmed": "unconfirmed"}
    rows = [
        [
            Cell(each.created[:16].replace("T", " "), left=True),
            run_cell(each.run),
            Cell(each.word, left=True),
            Cell(format_change(each.ratio), each.ratio),
            Cell(format_change_interval(each.low, each.high, each.ratio), each.low),
            Cell(f"{each.runs:,}", each.runs),
            Cell(each.version, left=True),
            Cell(about[each.kind] + (", acknowledged" if each.acknowledged else ""), left=True),
        ]
        for each in reversed(trend.changes)
    ]
    words = "Of the level of runs; the interval holds at 95 %, that of an unconfirmed change at 99.9 %."
    return Table("Changes", words, heads, rows)


def _breaks(trend: TrendReport) -> Table:
    heads = [Head(name, left=True) for name in ("since (UTC)", "run", "fact", "before", "after")]
    rows = [
        [
            Cell(each.created[:16].replace("T", " "), left=True),
            run_cell(each.run),
            *(Cell(text, left=True) for text in (fact.name, fact.before, fact.after)),
        ]
        for each in reversed(trend.breaks)
        for fact in each.facts
    ]
    return Table("Where the machine changed", "Nothing is compared across.", heads, rows)


def _runs(trend: TrendReport) -> Table:
    heads = [Head("begun (UTC)", left=True), Head("run", left=True), Head("version", left=True), Head("value")]
    heads += [Head("from"), Head("to"), Head("trials")]
    rows = []
    for run in reversed(trend.runs[-PAGE_ROWS:]):
        ends = [Cell("-" if end is None else format_value(end, trend.unit), end) for end in (run.low, run.high)]
        words = [Cell(run.created[:16].replace("T", " "), left=True), run_cell(run.run), Cell(run.version, left=True)]
        rows.append([*words, Cell(format_value(run.value, trend.unit), run.value), *ends, Cell(str(run.trials))])
    return Table("Newest runs", f"Up to {PAGE_ROWS}; the chart has more. Intervals are within a run.", heads, rows)


_SHOWN: Final = ("cpu_model", "cpu_threads", "memory", "kernel")
"""Facts that the list has."""


def _host_cell(name: str) -> Cell:
    return word_cell(name, link("/host", name=name))


def show_hosts(site: Site, given: dict[str, str]) -> View:
    """Show all hosts, as they were in their newest runs."""
    page = read_number(given, "page", 1, MAX_PAGE)
    hosts = site.archive.hosts()
    shown = hosts[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    links = page_links("/hosts", given, page, len(hosts))
    heads = [Head("host", left=True), Head("environment", left=True), Head("runs"), Head("newest (UTC)", left=True)]
    heads += [Head(name.replace("_", " "), left=True) for name in _SHOWN]
    rows = [
        [
            _host_cell(one.host),
            Cell(one.environment or "-", left=True),
            Cell(f"{one.runs:,}", one.runs),
            Cell(when(one.last_s), left=True),
            *(word_cell(one.facts.get(name, "-")) for name in _SHOWN),
        ]
        for one in shown
    ]
    table = Table("Hosts", "Each as it was in its newest run.", heads, rows)
    data = {"count": len(hosts), "page": page, "pages": links["pages"], "hosts": shown}
    names = [one.host for one in hosts[:1000]]
    return View("Hosts", data, lambda: {"table": table, "links": links, "names": names})


def show_host(site: Site, given: dict[str, str]) -> View:
    """Show what is known of one host, and when that changed."""
    if "name" not in given:
        raise UsageError("no host is named: choose one from the list of hosts")
    states = site.archive.host(given["name"])
    newest = states[0]
    heads = [Head(name, left=True) for name in ("since (UTC)", "until (UTC)")]
    heads += [Head("runs"), Head("newest run", left=True), Head("what changed", left=True)]
    rows = [
        [
            Cell(when(one.first_s), left=True),
            Cell(when(one.last_s), left=True),
            Cell(f"{one.runs:,}", one.runs),
            run_cell(one.newest),
            Cell("; ".join(f"{fact.name} {fact.before} -> {fact.after}" for fact in one.changed), left=True),
        ]
        for one in states[:PAGE_ROWS]
    ]
    history = Table("History", "A new line where a fact of the machine or a version changed.", heads, rows)
    names = [one.host for one in site.archive.hosts() if one.host != newest.host][:1000]
    data = {"host": newest.host, "states": states}
    return View(newest.host, data, lambda: {"newest": newest, "tables": [history, _facts(newest)], "names": names})


def _facts(state: HostState) -> Table:
    heads = [Head("fact", left=True), Head("value", left=True)]
    found = [*state.facts.items(), *((f"engine {name}", version) for name, version in state.engines.items())]
    rows = [[Cell(name, left=True), Cell(value, left=True)] for name, value in found]
    return Table(
        "Facts", "As of the newest run. A series of runs breaks where one of the machine changes.", heads, rows
    )


def show_host_difference(site: Site, given: dict[str, str]) -> View:
    """Show in what two hosts differ."""
    missing = [name for name in ("a", "b") if name not in given]
    if missing:
        raise UsageError("two hosts are needed: choose them on the page of hosts")
    a, b = (site.archive.host(given[name])[0] for name in ("a", "b"))
    pairs = compare_hosts(a, b)
    differing = [pair for pair in pairs if pair.differs]
    data: dict[str, Any] = {"a": a.host, "b": b.host, "differences": len(differing), "facts": pairs}

    def more() -> dict[str, Any]:
        heads = [Head(name, left=True) for name in ("fact", "kind", "first", "second")]
        tables = []
        for name, words, shown in (
            ("Differences", "Each of these may explain a difference between the hosts.", differing),
            ("Equal or unknown on one of them", "", [pair for pair in pairs if not pair.differs]),
        ):
            rows = [
                [Cell(text, left=True) for text in (pair.name, pair.kind, pair.a or "-", pair.b or "-")]
                for pair in shown
            ]
            tables.append(Table(name, words, heads, rows))
        return {
            "sides": [("first", a.host, link("/host", name=a.host)), ("second", b.host, link("/host", name=b.host))],
            "tables": [table for table in tables if table.rows],
        }

    return View(f"{a.host} and {b.host}", data, more)


PAGES: Final = (
    Page("/series", "list.html.j2", show_series_list, (*FILTERS, "page")),
    Page("/series/<key>", "series.html.j2", show_series, ("measure", "across", "margin", "runs")),
    Page("/hosts", "hosts.html.j2", show_hosts, ("page",)),
    Page("/host", "host.html.j2", show_host, ("name",)),
    Page("/hosts/difference", "difference.html.j2", show_host_difference, ("a", "b")),
)
