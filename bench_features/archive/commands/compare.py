"""`bench-master archive compare`: runs of the archive, compared as the command `compare` does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import InfrastructureError, UsageError
from bench_common.options import Option, add_options
from bench_features.archive.archive import Archive
from bench_features.archive.folder import hash_of
from bench_features.archive.options import ArchivePlace, SubCommand
from bench_master.commands import compare


class CompareOptions(Struct, frozen=True):
    """The command line of `archive compare`."""

    compare: compare.Options
    """As the command `compare` has it; its files are ids of runs."""
    archive: ArchivePlace = None


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "RUN is the beginning of a run's id; the last one is the new run. All else is as in bench-master compare.\n"
    )
    add_options(parser, CompareOptions, runs=Option("RUN", "beginning of a run's id", nargs="+"))


def _run(options: CompareOptions) -> int:
    given = options.compare
    with Archive.open(options.archive) as archive:
        names: dict[str, str] = {}
        runs, new = (
            tuple(_file_of(archive, str(word), names) for word in words) for words in (given.runs, given.new)
        )
    if len(runs) + len(new) < 2:  # noqa: PLR2004  of one run there is no ratio
        raise UsageError("archive compare: name two runs or more, such as: archive compare 1e6b6731 8575409c")
    return compare.run(replace(given, runs=runs, new=new), names)


def _file_of(archive: Archive, word: str, names: dict[str, str]) -> Path:
    """Return the file of a run, and note how the report calls it."""
    run = archive.find(word)
    file = archive.file(run)
    try:
        changed = hash_of(file) != run.sha256
    except OSError as error:
        raise InfrastructureError(f"{file}: run {run.id} cannot be read: {error.strerror}") from error
    if changed:
        raise InfrastructureError(
            f"{file}: its content is not that of run {run.id}: it has changed since it was added; add the original "
            "file again, which repairs it"
        )
    names[str(file)] = run.id
    return file


COMMANDS: Final = (
    SubCommand(
        "compare", "compare runs of the archive, as the command compare does", CompareOptions, _run, _configure
    ),
)
