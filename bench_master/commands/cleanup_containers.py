"""``cleanup-containers``: removes what runs left behind on this machine: containers, volumes, images, processes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from bench_common.errors import ExitCode
from bench_master.formatting import format_span
from bench_master.worker_query import query_worker

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

NAME = "cleanup-containers"
HELP = "remove what runs that are over left behind on this machine (only what carries Weighbridge's label)"

TIMEOUT_S = 600.0
_SHORT_ID = 12


def configure(parser: argparse.ArgumentParser) -> None:
    """Add how much is looked at, and whether it is touched."""
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed; remove nothing")
    parser.add_argument(
        "--run", metavar="RUN_ID", help="of this run alone, even if it is alive (without: of every run that is over)"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="json: a list, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Sweep, and print each leftover; exit 3 when one that should go is still there."""
    flags = ["--cleanup-containers"]
    flags += ["--dry-run"] if arguments.dry_run else []
    flags += [f"--run={arguments.run}"] if arguments.run else []
    rows = query_worker(*flags, timeout_s=TIMEOUT_S)
    sys.stdout.write(json.dumps(rows, indent=2) + "\n" if arguments.format == "json" else render(rows))
    failed = any(row["verdict"] == "failed" for row in rows)
    return int(ExitCode.INFRASTRUCTURE if failed else ExitCode.OK)


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each leftover, and a last one that sums up."""
    lines = [
        "  ".join(
            (
                f"{_action_word(row):7}",
                f"{row['engine']} {row['what']} {_describe(row)}",
                *([f"run {row['run_id']}"] if row["run_id"] else []),
                *([f"made {format_span(row['age_s'])} ago"] if row["age_s"] is not None else []),
                *([row["why"]] if row["why"] and row["verdict"] in {"failed", "kept"} else []),
            )
        )
        for row in rows
    ]
    words = [_action_word(row) for row in rows]
    counts = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    return "\n".join([*lines, ", ".join(counts) if counts else "nothing was left behind"]) + "\n"


def _action_word(row: Mapping[str, Any]) -> str:
    # The one that somebody has to look after stands out.
    return "FAILED" if row["verdict"] == "failed" else str(row["verdict"])


def _describe(row: Mapping[str, Any]) -> str:
    name, identity = row["name"], row["identity"]
    return str(identity[:_SHORT_ID] if name == identity else name)
