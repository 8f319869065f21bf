"""The pages of runs: the list, which can be searched and sorted, one run with its report, and any two compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from markupsafe import Markup
from msgspec.structs import replace

from bench_common.argument_types import InvalidValue
from bench_common.errors import InfrastructureError, StatsFileError
from bench_features.archive.contents import TreatmentContents
from bench_features.archive.options import moment
from bench_features.archive.prune import GONE, KEPT
from bench_features.archive.site.site import (
    MAX_PAGE,
    PAGE_ROWS,
    BadAddress,
    NoLongerHere,
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
from bench_features.archive.types import PRIMARY, SORT_KEYS, RunDetails, RunFilter, RunRow, SortKey
from bench_master.analysis.compare_runs import choose_runs, compare_runs
from bench_master.analysis.report_types import as_json
from bench_master.analysis.run_summary import read_paths
from bench_master.analysis.verdict_types import VerdictOptions, VerdictsReport, change_text, interval_text
from bench_master.formatting import format_bytes, format_span, format_value
from bench_master.reports.comparison import remark_lines
from bench_master.reports.html_tables import Cell, Head, Table

FILTERS: Final = ("scenario", "host", "tag", "since")
_COLUMNS: Final[Mapping[str, tuple[str, bool]]] = {
    "run": ("", True),
    "begun (UTC)": ("created", False),
    "scenario": ("scenario", True),
    "hosts": ("", True),
    "state": ("state", True),
    "done": ("done", False),
    "failed": ("failed", False),
    "took": ("duration", False),
    "tags": ("", True),
    "compare": ("", True),
}
"""The columns of the list: what each is sorted by, and whether it has words."""


def read_filter(given: Mapping[str, str]) -> RunFilter:
    """Return the filter that parameters name; raise `BadAddress` for a time that is none."""
    since = given.get("since")
    try:
        since_s = moment(since) if since else None
    except InvalidValue as error:
        raise BadAddress(f"since={error}") from error
    return RunFilter(given.get("scenario"), given.get("host"), since_s, None, given.get("tag"))


def show_runs(site: Site, given: dict[str, str]) -> View:
    """Show the runs that meet a filter."""
    sorts = [f"{sign}{key}" for key in SORT_KEYS for sign in ("", "-")]
    sort = read_choice(given, "sort", sorts, "-created")
    page = read_number(given, "page", 1, MAX_PAGE)
    wanted = read_filter(given)
    key = cast("SortKey", sort.removeprefix("-"))
    part = replace(wanted, limit=PAGE_ROWS, offset=(page - 1) * PAGE_ROWS, sort=key, rising=not sort.startswith("-"))
    runs, count = site.archive.runs(part), site.archive.count(wanted)
    links = page_links("/runs", given, page, count)
    data = {"count": count, "page": page, "pages": links["pages"], "sort": sort, "runs": runs}
    table = Table("Runs", "", _heads(given, sort), [_row(run) for run in runs], sortable=False)
    return View("Runs", data, lambda: {"table": table, "links": links, "given": given, "filters": FILTERS})


def _heads(given: Mapping[str, str], sort: str) -> list[Head]:
    heads = []
    others = {name: value for name, value in given.items() if name not in ("sort", "page")}
    for text, (key, left) in _COLUMNS.items():
        if not key:
            heads.append(Head(text, left=left))
            continue
        current = sort.removeprefix("-") == key
        falling = sort.startswith("-")
        # What is looked for first in names is the first of them, in numbers and times the largest.
        turned = (
            f"-{key}" if current and not falling else key if current or key in ("scenario", "state") else f"-{key}"
        )
        order = ("descending" if falling else "ascending") if current else ""
        heads.append(Head(text, left=left, link=link("/runs", **others, sort=turned), sort=order))
    return heads


def _row(run: RunRow) -> list[Cell]:
    words = [run.scenario or "-", ", ".join(run.hosts) or "-", state_text(run)]
    return [
        run_cell(run.id, run.name),
        Cell(when(run.created)),
        *map(word_cell, words),
        Cell(f"{run.done:,}", run.done),
        Cell(f"{run.failed:,}", run.failed),
        Cell(format_span(run.duration_s), run.duration_s),
        word_cell(", ".join(run.tags)),
        word_cell(f"with {run.id}", link("/compare", a=run.id)),
    ]


def state_text(run: RunRow) -> str:
    """Return what a run is in words."""
    more = (("superseded", run.superseded), ("no-op", run.noop), ("imported", run.imported), ("pruned", run.pruned))
    return ", ".join([run.state, *(word for word, is_so in more if is_so)])


def show_run(site: Site, given: dict[str, str], run: str) -> View:
    """Show one run: what people noted about it, its treatments and hosts, and its report."""
    del given
    details = site.archive.run(run)
    row = details.row
    title = f"{row.scenario or 'Run of an unknown scenario'} {row.name or row.id}"
    data = {
        "run": row,
        "argv": details.argv,
        "versions": details.versions,
        "hosts": details.hosts,
        "annotations": details.annotations,
        "treatments": details.treatments,
        "stats_file": "" if details.file is None else f"/runs/{row.id}/file",
        "missing": why_no_file(details),
    }
    return View(title, data, lambda: _more(site, details))


def _more(site: Site, details: RunDetails) -> dict[str, Any]:
    row = details.row
    report, problem = None, ""
    if details.file is not None:
        file = details.file
        try:
            report = site.reports.get(row.sha256)
            if report is None:
                report = site.background.run(lambda: site.reports.make(row.sha256, file))
        except StatsFileError as error:
            problem = f"There is no report: {error.message}"
    facts = [
        ("run", row.run_id or "-"),
        ("begun (UTC)", when(row.created)),
        ("took", format_span(row.duration_s)),
        ("state", state_text(row) + (f": {row.problem}" if row.problem else "")),
        ("jobs", f"{row.done:,} done, {row.failed:,} failed or lost"),
        ("tags", ", ".join(row.tags) or "-"),
        ("SHA-256", f"{row.sha256} ({format_bytes(row.bytes)})"),
    ]
    notes = [one for one in details.annotations if one.key in ("note", "baseline", "acknowledge")]
    return {
        "row": row,
        "facts": facts,
        "notes": notes,
        "table": _treatments(details.treatments),
        # It is our own template that was rendered, and escaped, before it was kept.
        "report": None if report is None else Markup(report),  # noqa: S704
        "problem": problem,
    }


def why_no_file(details: RunDetails) -> str:
    """Return what can no longer be asked of a run without its stats file, and what can; empty if it has one."""
    if details.file is not None:
        return ""
    if details.row.pruned:
        return (
            f"The stats file was pruned. No longer to be asked: {'; '.join(GONE)}. Still to be asked: {KEPT}. "
            "Adding the original file again (bench-master archive add) brings all of it back."
        )
    return (
        "The stats file is missing from the archive; bench-master archive verify says what else is. Adding the "
        "original file again (bench-master archive add) repairs it."
    )


def _treatments(treatments: Sequence[TreatmentContents]) -> Table:
    heads = [Head("treatment", left=True), Head("measure", left=True), Head("median"), Head("from"), Head("to")]
    heads += [Head("trials"), Head("done"), Head("failed"), Head("series", left=True)]
    rows = []
    for one in treatments:
        primary = next((value for value in one.values if value.kind == PRIMARY), None)
        values = sorted(v for v in primary.trials.get("value", ()) if v is not None) if primary is not None else []
        unit = primary.unit if primary is not None else ""
        middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2 if values else None
        ends = (middle, *((values[0], values[-1]) if values else (None, None)))
        cells = [Cell("-" if value is None else format_value(value, unit), value) for value in ends]
        name = Cell(one.title, left=True)
        measure = Cell("-" if primary is None else primary.name, left=True)
        counts = [Cell(f"{number:,}", number) for number in (len(values), one.done, one.failed)]
        series = Cell("over runs", left=True, link=link(f"/series/{one.series}"))
        rows.append([name, measure, *cells, *counts, series])
    return Table("What is kept of it", "The values of trials stay, also when the stats file is pruned.", heads, rows)


MOST_KEPT: Final = 64
"""Comparisons that are kept in memory."""


def show_comparison(site: Site, given: dict[str, str]) -> View:
    """Compare the run ``b`` with the earlier run ``a``; without one of them, offer runs to choose from."""
    if "a" not in given or "b" not in given:
        return _choice(site, given)
    sides = [site.archive.run(given[name]) for name in ("a", "b")]
    verdicts = _compare(site, *sides)
    rows = [one.row for one in sides]
    title = f"{rows[1].name or rows[1].id} compared with {rows[0].name or rows[0].id}"

    def more() -> dict[str, Any]:
        return {
            "tables": [table for table in (_verdicts(verdicts), _differences(verdicts)) if table.rows],
            "remarks": list(remark_lines(verdicts)),
            "left_out": [*verdicts.archive.left_out] if verdicts.archive is not None else [],
            "sides": list(zip(("earlier", "new"), rows, (when(row.created) for row in rows), strict=True)),
            "swapped": link("/compare", a=rows[1].id, b=rows[0].id),
        }

    return View(title, as_json(verdicts), more)


def _choice(site: Site, given: dict[str, str]) -> View:
    """Show the newest runs of the same scenario, each with a link to the comparison."""
    word = given.get("a") or given.get("b")
    chosen = site.archive.run(word).row if word else None
    runs = site.archive.runs(RunFilter(scenario=chosen.scenario if chosen else None, limit=PAGE_ROWS + 1))
    rows = []
    for run in runs:
        if chosen is None:
            address = link("/compare", a=run.id)
        elif run.sha256 == chosen.sha256:
            continue
        elif "a" in given:
            address = link("/compare", a=chosen.id, b=run.id)
        else:
            address = link("/compare", a=run.id, b=chosen.id)
        cells = [when(run.created), run.scenario or "-", ", ".join(run.hosts)]
        choose = word_cell(f"choose {run.name or run.id}", address)
        rows.append([run_cell(run.id, run.name), *map(word_cell, cells), choose])
    heads = [Head(name, left=True) for name in ("run", "begun (UTC)", "scenario", "hosts", "compare")]
    what = "Choose the earlier run" if chosen is None or "b" in given else "Choose the new run"
    table = Table("Runs", f"{what}, the newest first.", heads, rows[:PAGE_ROWS])
    data = {"a": given.get("a"), "b": given.get("b"), "runs": runs}
    return View("Compare two runs", data, lambda: {"table": table, "chosen": chosen, "given": given, "tables": None})


def _compare(site: Site, a: RunDetails, b: RunDetails) -> VerdictsReport:
    key = (a.row.sha256, b.row.sha256)
    found = site.compared.get(key)
    if found is None:
        files = {str(_file(one)): one.row.name or one.row.id for one in (a, b)}
        found = site.background.run(lambda: _verdicts_of(a, b, files))
        site.compared[key] = found
    site.compared.move_to_end(key)
    while len(site.compared) > MOST_KEPT:
        site.compared.popitem(last=False)
    return found


def _file(details: RunDetails) -> object:
    if details.file is None:
        error = NoLongerHere if details.row.pruned else InfrastructureError
        raise error(f"Run {details.row.id} cannot be compared, which needs its jobs. {why_no_file(details)}")
    return details.file


def _verdicts_of(a: RunDetails, b: RunDetails, names: dict[str, str]) -> VerdictsReport:
    read = []
    unreadable = []
    for one in (a, b):
        assert one.file is not None
        runs, bad = read_paths([one.file], "worst")
        read.append([replace(run, file=names.get(run.file, run.file)) for run in runs])
        unreadable += [(names.get(file, file), why) for file, why in bad]
    return compare_runs(choose_runs(read[0], read[1], unreadable, VerdictOptions()))


def _verdicts(verdicts: VerdictsReport) -> Table:
    heads = [Head("treatment", left=True), Head("verdict", left=True), Head("earlier"), Head("new")]
    heads += [Head("difference"), Head("within the runs"), Head("measure", left=True)]
    rows = [
        [
            Cell(each.name, left=True),
            Cell(each.word, left=True),
            Cell(format_value(each.a_value, each.unit), each.a_value),
            Cell(format_value(each.b_value, each.unit), each.b_value),
            Cell(change_text(each), each.ratio),
            Cell(interval_text(each), each.low),
            Cell(each.measure, left=True),
        ]
        for each in verdicts.comparisons
    ]
    return Table("Comparisons", "Each treatment of the new run with the same one of the earlier run.", heads, rows)


def _differences(verdicts: VerdictsReport) -> Table:
    heads = [Head(name, left=True) for name in ("property", "earlier", "new", "weight")]
    rows = []
    for each in verdicts.environment.differences:
        values = [*each.values.values(), "", ""]
        rows.append([Cell(text, left=True) for text in (each.name, values[0], values[1], each.level)])
    return Table("What else differs", "Each of these may explain a difference as well.", heads, rows)


PAGES: Final = (
    Page("/runs", "runs.html.j2", show_runs, (*FILTERS, "sort", "page")),
    Page("/runs/<run>", "run.html.j2", show_run),
    Page("/compare", "compare.html.j2", show_comparison, ("a", "b")),
)
