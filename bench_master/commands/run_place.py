"""Where a run is saved."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from bench_common.errors import UsageError
from bench_master.scenario import Scenario

DEFAULT_DIRECTORY = Path("weighbridge-results")
NAME_LIMIT = 60
"""How much of a scenario's name becomes part of its file's name, in characters."""


def default_path(scenario: Scenario, *, noop: bool) -> Path:
    """Return where a run of a scenario is saved when nobody says: a new file."""
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in scenario.name.lower())
    # Runs that are started side by side have files of their own; a name of any length has one.
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3] + "Z"
    stem = f"{name[:NAME_LIMIT].strip('-') or 'scenario'}{'.noop' if noop else ''}.{when}"
    path = DEFAULT_DIRECTORY / f"{stem}.stats.gz"
    count = 1
    while path.exists():
        count += 1
        path = DEFAULT_DIRECTORY / f"{stem}-{count}.stats.gz"
    return path


def try_out(stats: Path) -> None:
    """Make the stats file and remove it again: a place that cannot be written is told of before anything runs."""
    try:
        stats.parent.mkdir(parents=True, exist_ok=True)
        stats.touch(exist_ok=False)
        stats.unlink()
    except OSError as error:
        raise UsageError(f"{stats}: cannot be created: {error.strerror}; name another place with -s") from error
