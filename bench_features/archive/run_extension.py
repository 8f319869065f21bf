"""The archive's part in a run: what ``--archive`` adds to it, and ``--baseline trend`` judges it by."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import InvalidValue
from bench_common.engine_traits import engine_names
from bench_common.errors import ExitCode, WeighbridgeError
from bench_common.guard import error_lines
from bench_common.options import Option, add_options
from bench_common.streams import program_name, tell
from bench_master.analysis.trend_source import BaselineWord
from bench_master.run_extension import FIRST_RESULTS, RESULTS, OptionGroups, RunExtension

if TYPE_CHECKING:
    from bench_master.options.run import RunOptions
    from bench_master.reports import ReportSource
    from bench_master.run_data.measured import LookMaker, MeasuredRun

_DEFAULT: Final = "\0"
"""What no command line can have."""


def _option(kind: Callable[[str], str]) -> Option:
    return Option(
        "--archive FOLDER",
        "add the run to this archive at its end (without a value: to the one of WEIGHBRIDGE_ARCHIVE, else the "
        "default); it is checked before the run begins",
        nargs="?",
        const=_DEFAULT,
        type=kind,
    )


class ArchiveOptions(Struct, frozen=True):
    """Where a run is kept."""

    archive: Annotated[str | None, _option(_folder)] = None
    """Empty for the default archive, None for none."""


class ArchiveExtension(RunExtension):
    """Adds a run to an archive at its end. What it needs is loaded only then."""

    Options = ArchiveOptions

    def add_options(self, groups: OptionGroups) -> None:
        """Add ``--archive``; where engines stand on the command line, a name of one is no archive."""
        beside = {} if groups.takes_file else {"archive": _option(_folder_beside_engines)}
        add_options(groups.named(RESULTS), ArchiveOptions, **beside)
        groups.show_first(FIRST_RESULTS, "--archive")

    def settle(self, options: RunOptions) -> RunOptions:
        """Judge the run by the archive that it goes into, if it is judged by a trend at all."""
        folder = options.extensions.of(ArchiveOptions).archive
        if options.verdicts.trend is None or folder is None:
            return options
        from bench_features.archive.baseline import ArchiveTrend

        trend = ArchiveTrend(folder or None, create=True)
        return replace(options, verdicts=replace(options.verdicts, trend=trend))

    def check(self, options: RunOptions) -> None:
        """Raise the archive's own error where the run could not be added; make it where there is none yet."""
        folder = options.extensions.of(ArchiveOptions).archive
        if folder is not None:
            from bench_features.archive.archive import Archive

            Archive.open(folder or None, create=True).close()

    def parts(self, options: RunOptions) -> frozenset[LookMaker]:
        """Return what the archive has of a run and its report may not have."""
        if options.extensions.of(ArchiveOptions).archive is None:
            return frozenset()
        from bench_features.archive.extract import ARCHIVED_PARTS

        return ARCHIVED_PARTS

    def finish(self, options: RunOptions, source: ReportSource) -> ExitCode:
        """Add the run to the archive."""
        folder = options.extensions.of(ArchiveOptions).archive
        if folder is None:
            return ExitCode.OK
        return keep_run(source.run, folder, quiet=options.quiet)


def keep_run(run: MeasuredRun, folder: str, *, quiet: bool) -> ExitCode:
    """Add a run to the archive, the default one if `folder` is empty; if that fails say what to do, and return 3.

    The run is in its stats file whatever becomes of the archive.
    """
    from bench_features.archive.archive import Archive
    from bench_master.progress_message import progress_message

    try:
        with progress_message("adding the run to the archive"), Archive.open(folder or None, create=True) as archive:
            added, where = archive.add(run.path, run=run).run, archive.folder.shown
    except (WeighbridgeError, OSError) as error:
        lines = error_lines(error) if isinstance(error, WeighbridgeError) else [str(error)]
        for line in lines:
            tell(f"{program_name()}: the run is not in the archive: {line}")
        same = f" --archive {shlex.quote(folder)}" if folder else ""
        again = f"bench-master archive add {shlex.quote(str(run.path))}{same}"
        tell(f"{program_name()}: it is whole in {run.path}; when the archive works again: {again}")
        return ExitCode.INFRASTRUCTURE
    if not quiet:
        tell(f"archived as {added.id}: {where}")
    return ExitCode.OK


def _folder(text: str) -> str:
    if text == _DEFAULT:
        return ""
    if not text.strip():
        raise InvalidValue("'': expected a folder; without a value it is the default archive")
    return text


def _folder_beside_engines(text: str) -> str:
    if text in engine_names():
        raise InvalidValue(
            f"{text!r} is an engine: name the engines first, or an archive with its value, such as --archive=./{text}"
        )
    return _folder(text)


EXTENSION: Final = ArchiveExtension()
TREND: Final = BaselineWord(
    "with the earlier runs of the archive, where a second run must confirm a change before a gate fails",
    "bench_features.archive.baseline:ArchiveTrend",
)
