"""`bench-master cleanup-containers`: remove containers, volumes, images and processes that runs left behind here."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_common.errors import ExitCode
from bench_common.safe_text import flat_line
from bench_master.formatting import format_span
from bench_master.worker_query import query_worker

NAME = "cleanup-containers"
HELP = "remove what finished runs left behind on this machine (only what carries Weighbridge's label)"

TIMEOUT_S = 600.0
_SHORT_ID = 12


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of `cleanup-containers`."""

    dry_run: bool
    """List what would be removed."""
    run: str | None
    """The run to clean up, even if it is active; None: every finished run."""
    format: str
    """``text`` or ``json``."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed, and remove nothing")
    parser.add_argument(
        "--run",
        metavar="RUN_ID",
        help="clean up after this run only, even if it is active (default: every finished run)",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")


def run(options: Options) -> int:
    """Clean up and print each leftover; return 3 if one could not be removed."""
    flags = ["--cleanup-containers"]
    flags += ["--dry-run"] if options.dry_run else []
    flags += [f"--run={options.run}"] if options.run else []
    rows = query_worker(*flags, timeout_s=TIMEOUT_S)
    sys.stdout.write(json.dumps(rows, indent=2) + "\n" if options.format == "json" else render(rows))
    failed = any(row["verdict"] == "failed" for row in rows)
    return int(ExitCode.INFRASTRUCTURE if failed else ExitCode.OK)


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each leftover, and a summary line."""
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
    lines = [flat_line(line) for line in lines]  # anybody may have labelled a container
    words = [_action_word(row) for row in rows]
    counts = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    return "\n".join([*lines, ", ".join(counts) if counts else "nothing was left behind"]) + "\n"


def _action_word(row: Mapping[str, Any]) -> str:
    # A failure needs attention, so it stands out.
    return "FAILED" if row["verdict"] == "failed" else str(row["verdict"])


def _describe(row: Mapping[str, Any]) -> str:
    name, identity = row["name"], row["identity"]
    return str(identity[:_SHORT_ID] if name == identity else name)
