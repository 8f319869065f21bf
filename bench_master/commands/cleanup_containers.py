"""`bench-master cleanup-containers`: remove what runs left behind, on this machine or in an object store."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from bench_common.argument_types import InvalidValue
from bench_common.errors import ExitCode, UsageError, did_you_mean
from bench_common.records import KEEP_RUN_PREFIX
from bench_common.safe_text import flat_line
from bench_common.streams import tell
from bench_master.formatting import format_span
from bench_master.options.store import NO_STORE_FLAGS, STORE_OPTIONS, StoreFlags, add_store_options
from bench_master.worker_query import query_worker

TIMEOUT_S = 600.0
STORE_TIMEOUT_S = 86_400.0
"""How long the clean-up of a store may take, in seconds: it may hold millions of objects, and shows its progress."""
_SHORT_ID = 12
_SHOWN: Final = 10
_RUN_ID: Final = re.compile(rf"(?:{KEEP_RUN_PREFIX})?[0-9a-f]{{12}}")


class Options(Struct, frozen=True):
    """The command line of `cleanup-containers`."""

    dry_run: bool
    """List what would be removed."""
    store: str | None
    """The object store to clean up in the place of this machine: a profile, a protocol or a URL."""
    base: str | None
    """With `store`: the base of further containers."""
    yes: bool
    """With `store`: delete, and do not only list."""
    run: str | None
    """The run to clean up, even if it is active; None: every finished run."""
    format: str
    """``text`` or ``json``."""
    credentials: StoreFlags = NO_STORE_FLAGS
    """How to log in to a store without a profile."""


def _run_id(text: str) -> str:
    """Return a run id; an empty one, as of a variable that is not set, would mean every run."""
    if not text.strip():
        raise InvalidValue(f"{text!r}: expected the id of a run, as reports have it")
    return text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "Exit codes: 0 ok, 2 usage error, or no such run, 3 something could not be removed."
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed, and remove nothing")
    parser.add_argument(
        "--run",
        type=_run_id,
        metavar="RUN_ID",
        help="clean up after this run only, even if it is active (default: every finished run)",
    )
    parser.add_argument(
        "--store",
        metavar="PROFILE|URL",
        help="list what runs left in an object store: that of a profile, or (a URL, swift or s3) with the login of "
        "the environment; --yes deletes it",
    )
    parser.add_argument(
        "--base",
        metavar="BASE",
        help="with --store: also our objects in the containers of this base (the scenario's, or ssbench's)",
    )
    parser.add_argument("--yes", action="store_true", help="with --store: delete what is listed")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    add_store_options(parser.add_argument_group(STORE_OPTIONS))


def run(options: Options) -> int:
    """Clean up and print each leftover; return 3 if one could not be removed.

    Raises `UsageError` if the named run can be none.
    """
    options.credentials.apply()
    if options.store is None and (options.base is not None or options.yes):
        raise UsageError(f"{'--yes' if options.yes else '--base'} is for --store PROFILE|URL, which says which store")
    query, *flags = _query(options)
    run = [f"--run={options.run}"] if options.run else []
    dry = options.dry_run if options.store is None else not options.yes or options.dry_run
    rows = query_worker(
        query,
        *(*flags, *run, *(["--dry-run"] if dry else [])),
        timeout_s=STORE_TIMEOUT_S if flags else TIMEOUT_S,
        doing=f"{'looking for' if dry else 'removing'} what runs left behind",
    )
    if options.run and not rows:
        _explain_nothing(options.run, (query, *flags))
    sys.stdout.write(json.dumps(rows, indent=2) + "\n" if options.format == "json" else render(rows))
    if options.store is not None and not options.yes and any(row["verdict"] == "listed" for row in rows):
        tell("bench-master: nothing was deleted; repeat it with --yes to delete what is listed")
    failed = any(row["verdict"] == "failed" for row in rows)
    return int(ExitCode.INFRASTRUCTURE if failed else ExitCode.OK)


def _query(options: Options) -> list[str]:
    """Return the query of the worker, and what says where it looks."""
    if options.store is None:
        return ["--cleanup-containers"]
    return ["--cleanup-store", f"--store={options.store}", *([f"--base={options.base}"] if options.base else [])]


def _explain_nothing(run_id: str, query: Sequence[str]) -> None:
    """Say that nothing of a run is here, and which runs left something; raise `UsageError` for no run's id."""
    others = query_worker(*query, "--dry-run", timeout_s=TIMEOUT_S, doing="looking for what runs left behind")
    known = sorted({row["run_id"] for row in others if row["run_id"]})
    there = f"; runs with leftovers here: {', '.join(known[:_SHOWN])}" if known else ""
    there += f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    if _RUN_ID.fullmatch(run_id) is None:
        raise UsageError(f"--run {run_id}: there is no such run{did_you_mean(run_id, known)}{there}")
    tell(f"bench-master: run {run_id} is unknown here, or left nothing{did_you_mean(run_id, known)}{there}")


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each leftover, and a summary line."""
    lines = [
        "  ".join(
            (
                f"{_action_word(row):7}",
                f"{row['engine']} {row['what']} {_describe(row)}",
                *([_contents(row)] if "objects" in row else []),
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


def _contents(row: Mapping[str, Any]) -> str:
    others = f" and {row['others']} that are not ours" if row["others"] else ""
    return f"{row['objects']} objects{others}"


def _describe(row: Mapping[str, Any]) -> str:
    name, identity = row["name"], row["identity"]
    return str(identity[:_SHORT_ID] if name == identity else name)
