"""``list-scenarios``: what is ready-made."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from bench_common.errors import UsageError
from bench_master.layout import choose_format, tab_separated, wrap_last_column
from bench_master.scenario import builtin_scenarios, load_scenario

if TYPE_CHECKING:
    import argparse

NAME = "list-scenarios"
HELP = "list the ready-made scenarios, which run-scenario -f takes by name"

COLUMNS = ("SCENARIO", "TREATMENTS", "DESCRIPTION")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the choice of a format."""
    parser.add_argument(
        "--format",
        choices=("table", "tsv", "json"),
        help="table (the default on a terminal), tsv (the default elsewhere) or json",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the ready-made scenarios."""
    rows = [_row(name) for name in builtin_scenarios()]
    chosen = choose_format(arguments.format)
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
        # A scenario may need an engine or workload that is not installed; the others are listed all the same.
        return name, "-", f"cannot be loaded: {str(error).splitlines()[0]}"
    return name, len(scenario.treatments), scenario.description
