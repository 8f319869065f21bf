"""`bench-master archive compare` and `export`: runs come out of the archive."""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import file_name
from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_common.safe_text import one_line
from bench_common.streams import tell
from bench_features.archive.annotations import FILE, Annotations
from bench_features.archive.archive import Archive
from bench_features.archive.objects import hash_of
from bench_features.archive.options import SubCommand, add_archive_option, add_filter_options
from bench_features.archive.prune import KEPT
from bench_features.archive.types import RunFilter, RunRow
from bench_master.commands import compare
from bench_master.formatting import plural, table_cell
from bench_master.progress_message import progress_message


class CompareOptions(Struct, frozen=True):
    """The command line of `archive compare`."""

    compare: compare.Options
    """As the command `compare` has it; its files are ids or names of runs."""
    archive: str | None = None
    """Where the archive is; None for the default."""


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    compare.configure(parser)
    parser.epilog = (
        "RUN is the beginning of a run's id, or its name; the last one is the new run. All else is as in "
        "bench-master compare.\n"
    )
    for action in parser._actions:  # noqa: SLF001  argparse shows them in no other way
        if action.dest == "runs":
            action.help = "beginning of a run's id, or its name"
    add_archive_option(parser)


def _run_compare(options: CompareOptions) -> int:
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
    """Return the file of a run, and note how the report calls it; raise `UsageError` where it was pruned."""
    details = archive.run(word)
    row = details.row
    if details.file is None and row.pruned:
        raise UsageError(
            f"{one_line(word)}: the stats file of run {row.id} was pruned, and a comparison needs its jobs; still to "
            f"be asked: {KEPT} (bench-master archive show {row.id})"
        )
    if details.file is None:
        raise InfrastructureError(
            f"{one_line(word)}: the stats file of run {row.id} is missing from {archive.objects.path(row.sha256)}; "
            "add the original file again, which repairs it"
        )
    if hash_of(details.file) != row.sha256:
        raise InfrastructureError(
            f"{details.file}: its content is not that of run {row.id}: it has changed since it was added; add the "
            "original file again, which repairs it"
        )
    names[str(details.file)] = f"{row.id} ({row.name})" if row.name else row.id
    return details.file


class ExportOptions(Struct, frozen=True):
    """The command line of `archive export`."""

    to: Path | None = None
    """The folder that stats files are copied to; None: print values."""
    format: str = "csv"
    """``csv`` or ``jsonl``."""
    scenario: str | None = None
    """Only runs of this scenario."""
    host: str | None = None
    """Only runs on this host."""
    since: float | None = None
    """Only runs begun since (Unix, seconds)."""
    tag: str | None = None
    """Only runs with this tag."""
    quiet: bool = False
    """Print values and errors only."""
    archive: str | None = None
    """Where the archive is; None for the default."""


def _configure_export(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without --to it prints the values of each trial: one line for each run, treatment, measure, statistic and "
        "trial.\nWith --to it copies stats files and annotations; archive import takes them into another archive.\n"
    )
    parser.add_argument(
        "--to", type=file_name, metavar="FOLDER", help="copy stats files and annotations to this folder"
    )
    parser.add_argument(
        "--format", choices=("csv", "jsonl"), default="csv", help="format of the values (default: csv)"
    )
    add_filter_options(parser)
    add_archive_option(parser)


def _run_export(options: ExportOptions) -> int:
    wanted = RunFilter(options.scenario, options.host, options.since, None, options.tag)
    with Archive.open(options.archive) as archive:
        if options.to is not None:
            return _copy_files(archive, wanted, options.to, quiet=options.quiet)
        rows = (row for run in reversed(archive.runs(wanted)) for row in _values(archive, run))
        if options.format == "jsonl":
            for row in rows:
                sys.stdout.write(json.dumps(row) + "\n")
            return int(ExitCode.OK)
        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: table_cell(one) if isinstance(one, str) else one for name, one in row.items()})
    return int(ExitCode.OK)


COLUMNS: Final = (
    "run",
    "created",
    "scenario",
    "treatment",
    "series",
    "kind",
    "measure",
    "statistic",
    "unit",
    "trial",
    "value",
)


def _values(archive: Archive, run: RunRow) -> Iterator[Mapping[str, Any]]:
    created = None if run.created is None else datetime.fromtimestamp(run.created, UTC).isoformat()
    for treatment in archive.run(run.sha256).treatments:
        for value in treatment.values:
            for statistic, trials in value.trials.items():
                for number, one in enumerate(trials):
                    row = (run.id, created, run.scenario, treatment.title, treatment.series, value.kind, value.name)
                    yield dict(zip(COLUMNS, (*row, statistic, value.unit, number, one), strict=True))


def _copy_files(archive: Archive, wanted: RunFilter, folder: Path, *, quiet: bool) -> int:
    runs = archive.runs(wanted)
    without, hashes = 0, set()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with progress_message("copying stats files"):
            for run in runs:
                file = archive.objects.find(run.sha256)
                if file is None:
                    without += 1
                    continue
                hashes.add(run.sha256)
                copy = folder / f"{run.id}.stats.gz"
                if not (copy.exists() and copy.samefile(file)):  # such as a hard link of add --link
                    shutil.copyfile(file, copy)
    except OSError as error:
        raise InfrastructureError(
            f"{error.filename or folder}: cannot be written: {error.strerror or error}"
        ) from error
    known = {entry.uid for _, entry in Annotations(folder).read() if entry is not None}
    mine = [entry for _, entry in archive.annotations.read() if entry is not None and entry.run in hashes]
    Annotations(folder).write([entry for entry in mine if entry.uid not in known])
    if not quiet:
        left = f"; {without} have no stats file any more" if without else ""
        tell(f"{plural(len(hashes), 'stats file')} and {FILE} copied to {folder}{left}")
    return int(ExitCode.OK)


COMMANDS: Final = (
    SubCommand(
        "compare",
        "compare runs of the archive, as the command compare does",
        CompareOptions,
        _configure_compare,
        _run_compare,
    ),
    SubCommand(
        "export",
        "print values of trials, or copy stats files out of the archive",
        ExportOptions,
        _configure_export,
        _run_export,
    ),
)
