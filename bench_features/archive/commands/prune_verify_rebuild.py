"""`bench-master archive prune`, `verify` and `rebuild`: keep an archive small, whole and readable."""

from __future__ import annotations

import argparse
from typing import Final

from msgspec import Struct

from bench_common.argument_types import int_range
from bench_common.errors import ExitCode, UsageError
from bench_common.streams import tell
from bench_features.archive.archive import Archive
from bench_features.archive.commands.list_show import DASH, shown_time
from bench_features.archive.options import SubCommand, add_archive_option, span
from bench_features.archive.prune import GONE, KEPT, Rule, find_candidates, remove_file
from bench_features.archive.rebuild import rebuild
from bench_features.archive.types import ID_CHARS
from bench_features.archive.verify import verify
from bench_master.formatting import format_bytes, plural, tab_separated
from bench_master.progress_message import Steps, note, progress_message, put


class PruneOptions(Struct, frozen=True):
    """The command line of `archive prune`."""

    keep_last: int | None = None
    """So many of each scenario keep their files."""
    keep_tagged: bool = False
    """Whether those with a tag, a name or as a baseline keep them."""
    older: float | None = None
    """Only those older than so many seconds lose them."""
    dry_run: bool = False
    """Only say what would go."""
    quiet: bool = False
    """Print the runs only."""
    archive: str | None = None
    """Where the archive is; None for the default."""


def _configure_prune(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Removes stats files, not runs.\n\nStill to be asked: "
        + KEPT
        + ".\nNo longer:\n"
        + "".join(f"  - {one}\n" for one in GONE)
    )
    parser.add_argument("--keep-last", type=int_range(0), metavar="N", help="keep the newest N of each scenario")
    parser.add_argument(
        "--keep-tagged", action="store_true", help="keep those that have a tag or a name, or are a baseline"
    )
    parser.add_argument("--older", type=span, metavar="SPAN", help="keep those that are younger, such as 180d")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_archive_option(parser)


def _run_prune(options: PruneOptions) -> int:
    if options.keep_last is None and options.older is None:
        raise UsageError("archive prune: says nothing of what may go; add --keep-last N or --older SPAN, or both")
    with Archive.open(options.archive) as archive:
        runs = find_candidates(archive, Rule(options.keep_last, options.keep_tagged, options.older))
        gone, stayed = 0, 0
        with progress_message("removing stats files"):
            for run in runs:
                problem = None if options.dry_run else remove_file(archive, run)
                if problem is not None:
                    stayed += 1
                    note(f"bench-master: {problem}")
                    continue
                gone += run.bytes
                line = [run.id, shown_time(run.created), run.scenario or DASH, format_bytes(run.bytes)]
                put(tab_separated([line])[0])
    if not options.quiet:
        verb = "would lose their stats files" if options.dry_run else "lost their stats files"
        tell(f"{plural(len(runs) - stayed, 'run')} {verb}: {format_bytes(gone)}")
        if runs:
            tell(f"still to be asked: {KEPT}")
            tell(f"no longer: {'; '.join(GONE)}")
    return int(ExitCode.INFRASTRUCTURE if stayed else ExitCode.OK)


class VerifyOptions(Struct, frozen=True):
    """The command line of `archive verify`."""

    quiet: bool = False
    """Print faults only."""
    archive: str | None = None
    """Where the archive is; None for the default."""


def _run_verify(options: VerifyOptions) -> int:
    found = 0
    with Archive.open(options.archive) as archive:
        steps = Steps("verified", quiet=options.quiet)
        with progress_message("reading every file of the archive"):
            for fault in verify(archive, steps):
                found += 1
                put(tab_separated([[fault.kind, fault.where, fault.text]])[0])
        runs = archive.count()
    if not options.quiet:
        tell(f"{plural(runs, 'run')}, {plural(found, 'fault') if found else 'no fault'}: {archive.address.shown}")
    return int(ExitCode.INFRASTRUCTURE if found else ExitCode.OK)


class RebuildOptions(Struct, frozen=True):
    """The command line of `archive rebuild`."""

    quiet: bool = False
    """Print errors only."""
    archive: str | None = None
    """Where the archive is; None for the default."""


def _run_rebuild(options: RebuildOptions) -> int:
    with progress_message("reading every file of the archive"):
        found = rebuild(options.archive, Steps("read", quiet=options.quiet))
    for path, why in found.refused:
        tell(f"bench-master: {path}: not in the new index: {why}")
    for path, why in found.damaged:
        tell(f"bench-master: {path}: run {path.name[:ID_CHARS]} is damaged: {why}")
    if found.odd_lines:
        tell(
            f"bench-master: {plural(found.odd_lines, 'line')} of annotation.jsonl cannot be read and were passed over"
        )
    if not options.quiet:
        pruned = f", {found.pruned} of them pruned" if found.pruned else ""
        tell(f"new index of {plural(found.runs + found.pruned, 'run')}{pruned}: {found.address.shown}")
    return int(ExitCode.INFRASTRUCTURE if found.refused or found.damaged else ExitCode.OK)


COMMANDS: Final = (
    SubCommand(
        "prune",
        "remove stats files of old runs; summaries and values of trials stay",
        PruneOptions,
        _configure_prune,
        _run_prune,
    ),
    SubCommand(
        "verify",
        "read every file and check it against its hash and the index",
        VerifyOptions,
        add_archive_option,
        _run_verify,
    ),
    SubCommand(
        "rebuild",
        "make the index anew from the stats files and annotations",
        RebuildOptions,
        add_archive_option,
        _run_rebuild,
    ),
)
