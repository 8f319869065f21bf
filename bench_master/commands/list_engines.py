"""``list-engines``: which engines can be used on this machine, and what to do about the others."""

from __future__ import annotations

import json
import sys
from textwrap import fill
from typing import TYPE_CHECKING, Any

from bench_master.formatting import one_line
from bench_master.worker_query import query_worker

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

NAME = "list-engines"
HELP = "say which engines can be used on this machine, and why the others cannot"

WIDTH = 80
_COLUMNS = ("engine", "usable", "version", "endpoint")
_UNENFORCED = "setting."
_UNSUPPORTED = "operation."
_BYTES = "_bytes"
"""How the name of a setting ends whose key in a scenario takes units, and has none in its name."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the choice of a format."""
    parser.add_argument(
        "--format",
        choices=("table", "tsv", "json"),
        help="table (the default on a terminal), tsv (the default elsewhere), or json with every detail",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask this machine's worker program, and print; an engine that cannot be used is an answer, not an error."""
    statuses = query_worker("--list-engines")
    chosen = arguments.format or ("table" if sys.stdout.isatty() else "tsv")
    render = {"table": as_table, "tsv": as_tsv, "json": as_json}[chosen]
    sys.stdout.write(render(statuses))
    return 0


def as_json(statuses: Sequence[Mapping[str, Any]]) -> str:
    """Return everything that the engines said, as one JSON list."""
    return json.dumps(list(statuses), indent=2) + "\n"


def as_tsv(statuses: Sequence[Mapping[str, Any]]) -> str:
    """Return a line of tab-separated fields for each engine, after one with the fields' names."""
    lines: list[tuple[str, ...]] = [(*_COLUMNS, "reason", "advice", "operations")]
    lines += [
        (*_row(status), one_line(status["reason"]), one_line(status["advice"]), " ".join(status["operations"]))
        for status in statuses
    ]
    return "".join("\t".join(line) + "\n" for line in lines)


def as_table(statuses: Sequence[Mapping[str, Any]], width: int = WIDTH) -> str:
    """Return a table for a person, and below it what is wrong and what to do, in lines of at most `width`."""
    rows = [tuple(name.upper() for name in _COLUMNS), *(_row(status) for status in statuses)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_COLUMNS) - 1)]
    lines = []
    for row in rows:
        start = "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False))
        # A path is to be copied: one that does not fit has a line of its own.
        fits = len(start) + 2 + len(row[-1]) <= width
        lines += [f"{start}  {row[-1]}".rstrip()] if fits else [start.rstrip(), f"    {row[-1]}"[:width]]
    for status in statuses:
        remarks = _notes(status)
        if remarks:
            lines.append("")
        lines += [
            fill(text, width, initial_indent=first, subsequent_indent="    ", break_long_words=False)
            for first, text in remarks
        ]
    return "\n".join(lines) + "\n"


def _row(status: Mapping[str, Any]) -> tuple[str, ...]:
    return (status["name"], "yes" if status["usable"] else "no", status["version"] or "-", status["endpoint"] or "-")


def _notes(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (indent, text): why it cannot be used and what to do, or what it can do here and what it cannot."""
    if not status["usable"]:
        reason = f"{status['name']} cannot be used: {one_line(status['reason'])}"
        return [("", reason), *([("  ", f"to do: {one_line(status['advice'])}")] if status["advice"] else [])]
    said = [(f"cannot do {key.removeprefix(_UNSUPPORTED)}", text) for key, text in _details(status, _UNSUPPORTED)]
    said += [
        (f"cannot enforce {key.removeprefix(_UNENFORCED).removesuffix(_BYTES)}", text)
        for key, text in _details(status, _UNENFORCED)
    ]
    able = [("", f"{status['name']} can do: {', '.join(status['operations'])}")] if status["operations"] else []
    return able + [("", f"{status['name']} {what}: {one_line(text)}") for what, text in said]


def _details(status: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    return [(key, text) for key, text in status["details"].items() if key.startswith(prefix)]
