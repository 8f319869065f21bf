"""`bench-master list-engines`: list the engines that are usable on this machine, and why the others are not."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from msgspec import Struct

from bench_common.safe_text import flat_line, one_line
from bench_master.formatting import page_width, tab_separated
from bench_master.worker_query import query_worker

_COLUMNS = ("engine", "usable", "version", "endpoint")
_UNENFORCED = "setting."
_UNSUPPORTED = "operation."
_BYTES = "_bytes"
"""The suffix of a setting's name that its key in a scenario lacks, because the key takes units."""


class Options(Struct, frozen=True):
    """The command line of `list-engines`."""

    format: str | None
    """How to print it; None: a table on a terminal, else tab-separated."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--format",
        choices=("table", "tsv", "json"),
        help="output format (default: table on a terminal, else tsv); json has every detail",
    )


def run(options: Options) -> int:
    """Ask this machine's bench-worker and print the list; an unusable engine is a result, not an error."""
    statuses = query_worker("--list-engines", doing="asking the engines of this machine")
    chosen = options.format or ("table" if sys.stdout.isatty() else "tsv")
    render = {"table": as_table, "tsv": as_tsv, "json": as_json}[chosen]
    sys.stdout.write(render(statuses))
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


def as_table(statuses: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Return an aligned table, and below it problems with advice, in lines of at most `width` (None: the page's)."""
    width = page_width() if width is None else width
    rows = [tuple(name.upper() for name in _COLUMNS), *(_row(status) for status in statuses)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_COLUMNS) - 1)]
    lines = []
    for row in rows:
        start = "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False))
        # A path must be easy to copy: one that does not fit gets its own line.
        fits = len(start) + 2 + len(row[-1]) <= width
        lines += [f"{start}  {row[-1]}".rstrip()] if fits else [start.rstrip(), f"    {row[-1]}"]
    for status in statuses:
        notes = _notes(status)
        if notes:
            lines.append("")
        lines += [
            fill(text, width, initial_indent=first, subsequent_indent="    ", break_long_words=False)
            for first, text in notes
        ]
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
