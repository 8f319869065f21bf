"""Adds a run that has just ended to the archive: it is in its stats file whatever becomes of the archive."""

from __future__ import annotations

import shlex

from bench_common.errors import ExitCode, WeighbridgeError
from bench_common.guard import error_lines
from bench_common.streams import tell
from bench_features.archive.archive import Archive
from bench_master.progress_message import progress_message
from bench_master.run_data.measured import MeasuredRun


def keep_run(run: MeasuredRun, url: str, *, quiet: bool) -> ExitCode:
    """Add a run to the archive, the default one if `url` is empty; if that fails say how to do it later, return 3."""
    stats = run.path
    try:
        with progress_message("adding the run to the archive"), Archive.open(url or None, create=True) as archive:
            added, where = archive.add(stats, run=run), archive.address.shown
    except (WeighbridgeError, OSError) as error:
        lines = error_lines(error) if isinstance(error, WeighbridgeError) else [str(error)]
        for line in lines:
            tell(f"bench-master: the run is not in the archive: {line}")
        same = "" if not url else " --archive URL" if "://" in url else f" --archive {shlex.quote(url)}"
        again = f"bench-master archive add {shlex.quote(str(stats))}{same}"
        tell(f"bench-master: it is whole in {stats}; when the archive works again: {again}")
        return ExitCode.INFRASTRUCTURE
    if not quiet:
        tell(f"archived as {added.id}: {where}")
    return ExitCode.OK
