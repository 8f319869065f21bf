"""`bench-master archive list` and `show`: which runs there are, and what is known of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import InvalidValue, int_range
from bench_common.errors import ExitCode, did_you_mean
from bench_common.options import Option
from bench_common.safe_text import one_line
from bench_common.streams import tell
from bench_features.archive.archive import EVERYTHING, Archive
from bench_features.archive.options import ArchivePlace, SubCommand
from bench_features.archive.types import ArchivedRun, ArchivedTreatment, RunFilter
from bench_master.formatting import (
    DEFAULT_WIDTH,
    MISSING,
    choose_format,
    field,
    format_bytes,
    format_span,
    format_value,
    page_of,
    plural,
    says_nothing,
    tab_separated,
    wrap_last_column,
)
from bench_master.options.list_format import LIST_FORMAT_HELP
from bench_master.terminal import text_output
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions

DASH: Final = "-"


def shown_time(seconds: float | None) -> str:
    """Return a time as people read it, in the local time zone."""
    return DASH if seconds is None else f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def shown_state(run: ArchivedRun) -> str:
    """Return what a run is in words."""
    more = (("superseded", run.superseded), ("noop", run.noop), ("imported", run.imported))
    return ",".join([run.state, *(word for word, is_so in more if is_so)])


def shown_value(run: ArchivedRun) -> str:
    """Return the value of a run's only treatment, by its primary measure; of several the verdicts or the number."""
    if run.treatment_count > 1:
        return run.verdict or plural(run.treatment_count, "treatment")
    return DASH if run.value is None else format_value(run.value, run.unit)


COLUMNS: Final[Mapping[str, Callable[[ArchivedRun], str]]] = {
    "id": lambda run: run.id,
    "created": lambda run: shown_time(run.created),
    "scenario": lambda run: run.scenario or DASH,
    "value": shown_value,
    "trust": lambda run: run.trust or DASH,
    "measure": lambda run: run.measure or DASH,
    "hosts": lambda run: ",".join(host.label for host in run.hosts) or DASH,
    "state": shown_state,
    "done": lambda run: str(run.done),
    "failed": lambda run: str(run.failed),
    "duration": lambda run: format_span(run.duration_s),
    "treatments": lambda run: str(run.treatment_count),
    "size": lambda run: format_bytes(run.bytes),
    "version": lambda run: run.version or DASH,
    "problem": lambda run: run.problem or DASH,
    "sha256": lambda run: run.sha256,
}
"""What a list can show, in order."""
DEFAULT_COLUMNS: Final = ("id", "created", "state", "done", "failed", "value", "trust", "hosts", "scenario")
_SPARE: Final = frozenset({"failed", "value"})
"""Columns that a table leaves out unless they are asked for, where no run has anything in them."""
_LEAST_CHARS: Final = 8
"""Of the last column, which is wrapped: the others may need the rest of a page."""
_RIGHT: Final = ("done", "failed", "value", "duration", "treatments", "size")


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in COLUMNS:
            raise InvalidValue(f"{name!r}: no such column{did_you_mean(name, COLUMNS)}; one of: {', '.join(COLUMNS)}")
    return names


class ListOptions(Struct, frozen=True):
    """The command line of `archive list`."""

    wanted: RunFilter = EVERYTHING
    limit: Annotated[int | None, Option("--limit N", "at most N runs, the newest", type=int_range(1))] = None
    columns: Annotated[
        tuple[str, ...],
        Option(
            "--columns A,B",
            f"what to show of each run, of: {', '.join(COLUMNS)} (default: {','.join(DEFAULT_COLUMNS)})",
            action="store",
            type=_columns,
        ),
    ] = DEFAULT_COLUMNS
    format: Annotated[Literal["table", "tsv"] | None, Option("--format", LIST_FORMAT_HELP)] = None
    archive: ArchivePlace = None
    quiet: bool = False


def _run_list(options: ListOptions) -> int:
    wanted = replace(options.wanted, limit=options.limit)
    with Archive.open(options.archive) as archive:
        runs = archive.runs(wanted)
        shown = archive.folder.shown
    rows = [[COLUMNS[name](run) for name in options.columns] for run in runs]
    if choose_format(options.format) == "tsv":
        lines = tab_separated([options.columns, *rows])
    else:
        lines = _table(options.columns, rows)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if not options.quiet and not runs:
        tell(f"{'no run meets the filter' if wanted != EVERYTHING else 'no runs'}: {shown}")
    return int(ExitCode.INFRASTRUCTURE if archive.unreadable else ExitCode.OK)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table of the page's width, whose last column is wrapped."""
    cells: dict[str, list[str]] = {}
    for place, name in enumerate(columns):
        found = [row[place] for row in rows]
        if columns == DEFAULT_COLUMNS and (
            (name in _SPARE and says_nothing(found)) or (name == "state" and set(found) == {"complete"})
        ):
            continue
        if name == "created":
            found = [cell.rpartition(":")[0] or cell for cell in found]
        found = [MISSING if cell == DASH else cell for cell in found]
        width = max(map(len, [name, *found]))
        cells[name] = [cell.rjust(width) if name in _RIGHT else cell for cell in found]
    shown = [name.rjust(len(cells[name][0])) if name in _RIGHT and rows else name for name in cells]
    return wrap_last_column(shown, list(zip(*cells.values(), strict=True)), _LEAST_CHARS)


class ShowOptions(Struct, frozen=True):
    """The command line of `archive show`."""

    run: Annotated[str, Option("RUN", "a unique beginning of the run's id (4 characters or more)")]
    archive: ArchivePlace = None
    verbose: bool = False
    """Show every property of the hosts."""
    terminal: TerminalOptions = DEFAULT_TERMINAL
    """How to show it on a terminal."""


def _run_show(options: ShowOptions) -> int:
    with Archive.open(options.archive) as archive:
        run = archive.find(options.run)
        file = archive.file(run)
    with text_output(options.terminal, paged=True) as out:
        out.write("".join(f"{line}\n" for line in shown_run(run, file, verbose=options.verbose)))
    return int(ExitCode.OK)


def shown_run(run: ArchivedRun, file: Path, *, verbose: bool = False) -> Iterator[str]:
    """Yield what is known of a run as lines."""
    yield one_line(f"{run.scenario or 'unknown scenario'}  {run.id}")
    yield from _field("begun", f"{shown_time(run.created)}, took {format_span(run.duration_s)}")
    yield from _field("state", f"{shown_state(run)}{f': {run.problem}' if run.problem else ''}")
    yield from _field("verdict", f"{run.verdict or DASH}; trust: {run.trust or DASH}")
    yield from _field("jobs", f"{run.done:,} done, {run.failed:,} failed or lost")
    yield from _field("command", " ".join(run.argv) or DASH)
    yield from _field("versions", ", ".join(f"{name} {version}" for name, version in run.versions.items()) or DASH)
    yield from _field("file", str(file))
    yield from _field("sha256", f"{run.sha256} ({format_bytes(run.bytes)})")
    for host in run.hosts:
        engines = ", ".join(f"{name} {version}" for name, version in host.engines.items() if version)
        yield from _field("host", f"{host.label} ({host.environment or DASH}): {engines or 'no engines'}")
        facts = {**host.facts, **(host.noise if verbose else {})}
        yield from _field("", "; ".join(f"{name} {value}" for name, value in facts.items()))
    yield ""
    yield from _treatment_table(run.treatments)


def _field(name: str, text: str) -> list[str]:
    """Return a line of the head; texts of runs steer no terminal."""
    return field(name, one_line(text))


def _treatment_table(treatments: Sequence[ArchivedTreatment]) -> Iterator[str]:
    rows = []
    for one in treatments:
        primary = one.primary
        values = [] if primary is None else [v for v in primary.trials.get("value", ()) if v is not None]
        unit = primary.unit if primary is not None else ""
        rows.append(
            [
                one.series,
                "" if primary is None else primary.name,
                format_value(median(values), unit) if values else DASH,
                f"{format_value(min(values), unit)} to {format_value(max(values), unit)}" if values else DASH,
                str(len(values)),
                str(one.failed),
                one.title,
            ]
        )
    titles = ("series", "measure", "median", "trials from to", "n", "failed", "treatment")
    with page_of(max(DEFAULT_WIDTH, 120)):
        yield from wrap_last_column(titles, rows)
    yield ""
    what = "a series is a treatment in all its runs: bench-master archive trend SERIES"
    yield f"{plural(len(rows), 'treatment')}; {what}"


COMMANDS: Final = (
    SubCommand("list", "list the runs of the archive, the newest first", ListOptions, _run_list),
    SubCommand("show", "show what the archive has of one run", ShowOptions, _run_show),
)
