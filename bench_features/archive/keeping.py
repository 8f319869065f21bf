"""Adds a run that has just ended to the archive: it is in its stats file whatever becomes of the archive."""

from __future__ import annotations

import shlex

from bench_common.errors import ExitCode, WeighbridgeError
from bench_common.guard import error_lines
from bench_common.streams import tell
from bench_features.archive.archive import Archive
from bench_master.progress_message import progress_message
from bench_master.run_data.measured import MeasuredRun


def keep_run(run: MeasuredRun, folder: str, *, quiet: bool) -> ExitCode:
    """Add a run to the archive, the default one if `folder` is empty; if that fails say what to do, and return 3."""
    stats = run.path
    try:
        with progress_message("adding the run to the archive"), Archive.open(folder or None, create=True) as archive:
            added, where = archive.add(stats, run=run).run, archive.folder.shown
    except (WeighbridgeError, OSError) as error:
        lines = error_lines(error) if isinstance(error, WeighbridgeError) else [str(error)]
        for line in lines:
            tell(f"bench-master: the run is not in the archive: {line}")
        same = f" --archive {shlex.quote(folder)}" if folder else ""
        again = f"bench-master archive add {shlex.quote(str(stats))}{same}"
        tell(f"bench-master: it is whole in {stats}; when the archive works again: {again}")
        return ExitCode.INFRASTRUCTURE
    if not quiet:
        tell(f"archived as {added.id}: {where}")
    return ExitCode.OK
