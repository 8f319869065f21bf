"""`bench-master list-scenarios`: list the ready-made scenarios."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass

from bench_common.errors import UsageError
from bench_master.formatting import choose_format, tab_separated, wrap_last_column
from bench_master.scenario import builtin_scenarios, load_scenario

NAME = "list-scenarios"
HELP = "list the ready-made scenarios; run-scenario -f NAME runs one"

COLUMNS = ("SCENARIO", "TREATMENTS", "DESCRIPTION")


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of `list-scenarios`."""

    format: str | None
    """How to print it; None: a table on a terminal, else tab-separated."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--format",
        choices=("table", "tsv", "json"),
        help="output format (default: table on a terminal, else tsv)",
    )


def run(options: Options) -> int:
    """Print the ready-made scenarios."""
    rows = [_row(name) for name in builtin_scenarios()]
    chosen = choose_format(options.format)
    if chosen == "json":
        keys = [column.lower() for column in COLUMNS]
        lines = [json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2)]
    else:
        cells = [(name, str(count), description) for name, count, description in rows]
        lines = wrap_last_column(COLUMNS, cells) if chosen == "table" else tab_separated([COLUMNS, *cells])
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _row(name: str) -> tuple[str, int | str, str]:
    try:
        scenario = load_scenario(name)
    except UsageError as error:
        # A scenario may need an engine or workload that is not installed; list the others nevertheless.
        return name, "-", f"cannot load: {str(error).splitlines()[0]}"
    return name, len(scenario.treatments), scenario.description
