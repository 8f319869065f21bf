"""`bench-master cleanup-containers`: remove what runs left behind, on this machine or where a feature looks."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Struct

from bench_common.argument_types import InvalidValue
from bench_common.errors import ExitCode, UsageError, did_you_mean
from bench_common.options import Option, add_options
from bench_common.records import KEEP_RUN_PREFIX
from bench_common.safe_text import flat_line
from bench_common.streams import program_name, tell
from bench_master.command_extension import NO_OPTIONS, CommandOptions, add_extensions, done_instead
from bench_master.formatting import format_span, listed
from bench_master.worker_query import query_worker

COMMAND: Final = "cleanup-containers"
TIMEOUT_S: Final = 600.0
_SHORT_ID = 12
_SHOWN: Final = 10
_RUN_ID: Final = re.compile(rf"(?:{KEEP_RUN_PREFIX})?[0-9a-f]{{12}}")


EPILOG: Final = "Exit codes: 0 ok, 2 usage error, or no such run, 3 something could not be removed."


class Options(Struct, frozen=True):
    """The command line of `cleanup-containers`."""

    dry_run: Annotated[bool, Option("--dry-run", "list what would be removed, and remove nothing")] = False
    run: Annotated[
        str | None,
        Option(
            "--run RUN_ID",
            "clean up after this run only, even if it is active (default: every finished run)",
            type=_run_id,
        ),
    ] = None
    format: Annotated[Literal["text", "json"], Option("--format", "output format (default: text)")] = "text"
    extensions: CommandOptions = NO_OPTIONS


def _run_id(text: str) -> str:
    """Return a run id; an empty one, as of a variable that is not set, would mean every run."""
    if not text.strip():
        raise InvalidValue(f"{text!r}: expected the id of a run, as reports have it")
    return text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options, and those of features."""
    add_options(parser, Options)
    add_extensions(parser, COMMAND)


def run(options: Options) -> int:
    """Clean up and print each leftover; return 3 if one could not be removed.

    Raises `UsageError` if the named run can be none.
    """
    code = done_instead(options, COMMAND)
    if code is None:
        rows = find_leftovers(options, ["--cleanup-containers"], dry=options.dry_run, timeout_s=TIMEOUT_S)
        code = print_leftovers(options, rows)
    return code


def find_leftovers(
    options: Options, query: Sequence[str], *, dry: bool, timeout_s: float
) -> Sequence[Mapping[str, Any]]:
    """Return what a query of the worker finds of runs and, unless `dry`, removes; see `run`."""
    run = [f"--run={options.run}"] if options.run else []
    doing = f"{'looking for' if dry else 'removing'} what runs left behind"
    rows = query_worker(*query, *run, *(["--dry-run"] if dry else []), timeout_s=timeout_s, doing=doing)
    if options.run and not rows:
        _explain_nothing(options.run, query)
    return rows


def print_leftovers(
    options: Options, rows: Sequence[Mapping[str, Any]], contents: Callable[[Mapping[str, Any]], str] | None = None
) -> int:
    """Print what was found; return the exit code. `contents` tells what is in one, in words."""
    text = json.dumps(rows, indent=2) + "\n" if options.format == "json" else render(rows, contents)
    sys.stdout.write(text)
    failed = any(row["verdict"] == "failed" for row in rows)
    return int(ExitCode.INFRASTRUCTURE if failed else ExitCode.OK)


def _explain_nothing(run_id: str, query: Sequence[str]) -> None:
    """Say that nothing of a run is here, and which runs left something; raise `UsageError` for no run's id."""
    others = query_worker(*query, "--dry-run", timeout_s=TIMEOUT_S, doing="looking for what runs left behind")
    known = sorted({row["run_id"] for row in others if row["run_id"]})
    there = f"; runs with leftovers here: {listed(known, _SHOWN)}" if known else ""
    if _RUN_ID.fullmatch(run_id) is None:
        raise UsageError(f"--run {run_id}: there is no such run{did_you_mean(run_id, known)}{there}")
    tell(f"{program_name()}: run {run_id} is unknown here, or left nothing{did_you_mean(run_id, known)}{there}")


def render(rows: Sequence[Mapping[str, Any]], contents: Callable[[Mapping[str, Any]], str] | None = None) -> str:
    """Return a line for each leftover, and a summary line."""
    lines = [
        "  ".join(
            (
                f"{_action_word(row):7}",
                f"{row['engine']} {row['what']} {_describe(row)}",
                *([contents(row)] if contents is not None else []),
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
    summary = ", ".join(counts) if counts else "nothing was left behind"
    return "\n".join([*lines, summary]) + "\n"


def _action_word(row: Mapping[str, Any]) -> str:
    # A failure needs attention, so it stands out.
    return "FAILED" if row["verdict"] == "failed" else str(row["verdict"])


def _describe(row: Mapping[str, Any]) -> str:
    name, identity = row["name"], row["identity"]
    return str(identity[:_SHORT_ID] if name == identity else name)
