"""`bench-master list engines`: list the engines that are usable on this machine, and why the others are not."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Annotated, Any, Literal

from msgspec import Struct

from bench_common.cli import engine_option
from bench_common.engine_traits import EngineLabel
from bench_common.errors import UsageError, did_you_mean
from bench_common.host_info import OTHER_ENGINE
from bench_common.options import Option
from bench_common.safe_text import flat_line, one_line
from bench_common.streams import program_name
from bench_master.formatting import choose_format, page_width, tab_separated
from bench_master.options.list_format import LIST_FORMAT_HELP
from bench_master.worker_query import query_worker

_COLUMNS = ("engine", "usable", "version", "endpoint")
_UNENFORCED = "setting."
_UNSUPPORTED = "operation."
_BYTES = "_bytes"
"""The suffix of a setting's name that its key in a scenario lacks, because the key takes units."""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `list engines`."""

    names: Annotated[
        tuple[str, ...],
        Option(
            "NAME",
            "list these engines, with what each can do here, and which settings it cannot enforce (default: all, in "
            "short)",
            nargs="*",
        ),
    ] = ()
    format: Annotated[
        Literal["table", "tsv", "json"] | None, Option("--format", f"{LIST_FORMAT_HELP}; json has every detail")
    ] = None
    engine: Annotated[
        tuple[EngineLabel, ...],
        engine_option("also list an engine under a label, with another program or socket"),
    ] = ()


def run(options: Options) -> int:
    """Ask this machine's bench-worker and print the list; an unusable engine is a result, not an error."""
    labels = [word for label in options.engine for word in ("--engine", str(label))]
    statuses = query_worker("--list-engines", *labels, doing="asking the engines of this machine")
    if options.names:
        known = {str(status["name"]): status for status in statuses}
        for name in options.names:
            if name not in known:
                near = did_you_mean(name, known)
                raise UsageError(f"there is no engine {one_line(name)!r}{near}; there are: {', '.join(known)}")
        statuses = [known[name] for name in dict.fromkeys(options.names)]
    chosen = choose_format(options.format)
    if chosen == "table":
        sys.stdout.write(as_table(statuses, full=bool(options.names)))
    else:
        sys.stdout.write({"tsv": as_tsv, "json": as_json}[chosen](statuses))
    return 0


def as_json(statuses: Sequence[Mapping[str, Any]]) -> str:
    """Return all that the engines report, as a JSON list."""
    return json.dumps(list(statuses), indent=2) + "\n"


def as_tsv(statuses: Sequence[Mapping[str, Any]]) -> str:
    """Return a header line and a line for each engine, tab-separated."""
    lines: list[tuple[str, ...]] = [(*_COLUMNS, "reason", "advice", "operations")]
    lines += [
        (*_row(status), status["reason"], status["advice"], " ".join(status["operations"])) for status in statuses
    ]
    return "\n".join(tab_separated(lines)) + "\n"


def as_table(statuses: Sequence[Mapping[str, Any]], width: int | None = None, *, full: bool = False) -> str:
    """Return an aligned table, and below it problems with advice, in lines of at most `width` (None: the page's).

    With `full` it has what each usable engine can and cannot do here, too, else how to see that.
    """
    width = page_width() if width is None else width
    rows = [tuple(name.upper() for name in _COLUMNS), *(_row(status) for status in statuses)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_COLUMNS) - 1)]
    lines = []
    for row in rows:
        start = "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False))
        # A path must be easy to copy: one that does not fit gets its own line.
        fits = len(start) + 2 + len(row[-1]) <= width
        lines += [f"{start}  {row[-1]}".rstrip()] if fits else [start.rstrip(), f"    {row[-1]}"]
    hidden = [status["name"] for status in statuses if status["usable"] and not full and _notes(status)]
    for status in statuses:
        notes = _notes(status) if full or not status["usable"] else []
        other = status["details"].get(OTHER_ENGINE)
        notes += [("", f"{status['name']} is {status['endpoint']}; {one_line(other)}")] if other else []
        if notes:
            lines.append("")
        lines += [
            fill(text, width, initial_indent=first, subsequent_indent="    ", break_long_words=False)
            for first, text in notes
        ]
    if hidden:
        lines += ["", f"What an engine can do and enforce here: {program_name()} list engines {hidden[0]}"]
    return "\n".join(lines) + "\n"


def _row(status: Mapping[str, Any]) -> tuple[str, ...]:
    usable = "yes" if status["usable"] else "no"
    return (status["name"], usable, flat_line(status["version"] or "-"), flat_line(status["endpoint"] or "-"))


def _notes(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (indent, text): why it is unusable and what to do, or what it can and cannot do here."""
    if not status["usable"]:
        reason = f"{status['name']} cannot be used: {one_line(status['reason'])}"
        return [("", reason), *([("  ", f"to do: {one_line(status['advice'])}")] if status["advice"] else [])]
    limits = [(f"cannot do {key.removeprefix(_UNSUPPORTED)}", text) for key, text in _details(status, _UNSUPPORTED)]
    limits += [
        (f"cannot enforce {key.removeprefix(_UNENFORCED).removesuffix(_BYTES)}", text)
        for key, text in _details(status, _UNENFORCED)
    ]
    able = [("", f"{status['name']} can do: {', '.join(status['operations'])}")] if status["operations"] else []
    return able + [("", f"{status['name']} {what}: {one_line(text)}") for what, text in limits]


def _details(status: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    return [(key, text) for key, text in status["details"].items() if key.startswith(prefix)]
