"""`bench-master archive add` and `import`: stats files go into the archive."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from bench_common.argument_types import file_name
from bench_common.errors import ExitCode, NotAStatsFileError, UsageError
from bench_common.streams import tell
from bench_features.archive.annotations import Annotations
from bench_features.archive.archive import Archive
from bench_features.archive.options import SubCommand, add_archive_option
from bench_features.archive.types import Added
from bench_master.formatting import plural
from bench_master.progress_message import Steps, note, progress_message, put

SUFFIX: Final = ".stats.gz"


class AddOptions(Struct, frozen=True):
    """The command line of `archive add`."""

    files: tuple[Path, ...]
    """The stats files."""
    link: bool
    """Whether to link them instead of copying, where that is possible."""
    quiet: bool
    """Print errors only."""
    archive: str | None = None
    """Where the archive is; None for the default."""


class ImportOptions(Struct, frozen=True):
    """The command line of `archive import`."""

    folders: tuple[Path, ...]
    """The folders, each with all that is below it."""
    link: bool
    """Whether to link the files instead of copying, where that is possible."""
    quiet: bool
    """Print errors only."""
    archive: str | None = None
    """Where the archive is; None for the default."""


def _configure_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=file_name, metavar="FILE", help="stats file")
    _add_shared(parser)


def _configure_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        nargs="+",
        type=file_name,
        metavar="FOLDER",
        help=f"folder: all stats files (*{SUFFIX}) in it and below it",
    )
    _add_shared(parser)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--link",
        action="store_true",
        help="make hard links, not copies: only for files that nobody writes to any more (--resume would)",
    )
    add_archive_option(parser)


def _run_add(options: AddOptions) -> int:
    for path in options.files:
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; bench-master archive import {path} takes what is in it")
        if not path.exists():
            raise UsageError(f"{path}: No such file or directory; nothing was added")
    with Archive.open(options.archive, create=True) as archive:
        return _take(archive, options.files, link=options.link, quiet=options.quiet, named=True)


def _run_import(options: ImportOptions) -> int:
    found = [file for folder in options.folders for file in find_stats_files(folder)]
    if not found:
        raise UsageError(
            f"{', '.join(map(str, options.folders))}: has no stats files (*{SUFFIX}), nor a folder with any"
        )
    with Archive.open(options.archive, create=True) as archive:
        code = _take(archive, found, link=options.link, quiet=options.quiet, named=False)
        _take_annotations(archive, {file.parent for file in found})
        return code


def _take_annotations(archive: Archive, folders: Iterable[Path]) -> None:
    """Take what was noted in the archive that folders were exported from."""
    known = {entry.uid for _, entry in archive.annotations.read() if entry is not None}
    found = {entry.uid: entry for folder in folders for _, entry in Annotations(folder).read() if entry is not None}
    archive.take_annotations([entry for uid, entry in found.items() if uid not in known])


def find_stats_files(folder: Path) -> Iterator[Path]:
    """Yield the stats files in a folder and below it, in order; raise `UsageError` if it cannot be read."""
    if not folder.is_dir():
        if not folder.exists():
            raise UsageError(f"{folder}: No such file or directory; a folder expected")
        raise UsageError(f"{folder}: is no folder; bench-master archive add {folder} takes one file")
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(root) / name for name in sorted(names) if name.endswith(SUFFIX))


def _take(archive: Archive, files: Sequence[Path], *, link: bool, quiet: bool, named: bool) -> int:
    """Add files; of those that are none, one that was named is an error at once, others are told."""
    steps, new, whole, damaged, odd = Steps("added", quiet=quiet), 0, 0, 0, 0
    with progress_message("adding runs to the archive"):
        for number, path in enumerate(files, 1):
            try:
                added = archive.add(path, link=link)
            except NotAStatsFileError as error:
                if named:
                    raise
                odd += 1
                note(f"bench-master: {error.message}")
                continue
            new += added.new
            whole += added.state == "complete"
            damaged += added.state == "damaged"
            if added.state != "complete":
                note(f"bench-master: {path}: {added.state}, enters no trend: {added.problem}")
            if named and not quiet:
                put(_line(added, path))
            steps(number, len(files))
    if not quiet and (not named or len(files) > 1):
        again = len(files) - new - odd
        parts = [f"{plural(new, 'run')} added", *([f"{again} were there already"] if again else [])]
        tell(f"{', '.join(parts)}: {archive.address.shown}")
    if named and damaged:
        return int(ExitCode.INFRASTRUCTURE)
    return int(ExitCode.USAGE if odd and not whole else ExitCode.OK)


def _line(added: Added, path: Path) -> str:
    return f"{added.id}\t{'added' if added.new else 'known'}\t{added.state}\t{path}"


COMMANDS: Final = (
    SubCommand(
        "add", "add stats files; those that are in the archive stay as they are", AddOptions, _configure_add, _run_add
    ),
    SubCommand(
        "import",
        "add all stats files of folders, old ones and damaged ones, too",
        ImportOptions,
        _configure_import,
        _run_import,
    ),
)
