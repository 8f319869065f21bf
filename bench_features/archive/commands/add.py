"""`bench-master archive add`: stats files go into the archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct

from bench_common.errors import ExitCode, UsageError
from bench_common.options import Option
from bench_common.streams import tell
from bench_features.archive.archive import Archive
from bench_features.archive.options import ArchivePlace, SubCommand
from bench_master.formatting import plural
from bench_master.progress_message import Steps, note, progress_message, put


class AddOptions(Struct, frozen=True):
    """The command line of `archive add`."""

    files: Annotated[tuple[Path, ...], Option("FILE", "stats file", nargs="+")]
    quiet: bool
    archive: ArchivePlace = None


def _run(options: AddOptions) -> int:
    for path in options.files:
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; expected stats files, such as {path}/*.stats.gz")
        if not path.exists():
            raise UsageError(f"{path}: No such file or directory; nothing was added")
    steps, new, damaged = Steps("added", quiet=options.quiet), 0, 0
    with (
        Archive.open(options.archive, create=True) as archive,
        progress_message("adding runs to the archive"),
    ):
        for number, path in enumerate(options.files, 1):
            added = archive.add(path)
            run = added.run
            new += added.new
            damaged += run.state == "damaged"
            if run.state != "complete":
                note(f"bench-master: {path}: {run.state}, enters no trend: {run.problem}")
            if not options.quiet:
                put(f"{run.id}\t{'added' if added.new else 'known'}\t{run.state}\t{path}")
            steps(number, len(options.files))
    if not options.quiet and len(options.files) > 1:
        again = len(options.files) - new
        known = f", {again} were there already" if again else ""
        tell(f"{plural(new, 'run')} added{known}: {archive.folder.shown}")
    return int(ExitCode.INFRASTRUCTURE if damaged else ExitCode.OK)


COMMANDS: Final = (
    SubCommand("add", "add stats files; those that are in the archive stay as they are", AddOptions, _run),
)
