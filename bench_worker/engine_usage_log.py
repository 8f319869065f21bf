"""Remembers which engines runs have used on this host, so that clean-up asks those and wakes no others.

Asking every installed engine for leftovers takes a dozen processes, and for Podman a service of its own. A record is
an empty file that names a run and an engine. It is made before the engine is opened for the run, so no leftover is
without one; it survives a reboot, as containers do; a clean-up that finds no more leftovers of the run deletes it.
Every user of the host can read the records and delete his own.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from bench_common.errors import InfrastructureError
from bench_worker.leases import make_shared_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOTS_DIRECTORY: Final = Path("/var/lib/weighbridge-used")
"""Where root's records are."""
SHARED_DIRECTORY: Final = Path("/var/tmp/weighbridge-used")  # noqa: S108  sticky; the records of others do no harm
"""Where other users' records are, and root's where the other directory cannot be written."""


@dataclass(frozen=True, slots=True)
class EngineUse:
    """A record that a run has used an engine on this host."""

    run_id: str
    """The run."""
    engine: str
    """The name of the engine."""
    path: Path
    """The file that records it."""


def record_engine_use(run_id: str, engine: str) -> None:
    """Record that a run uses an engine on this host. Raises `InfrastructureError` where that is impossible."""
    name = f"{quote(run_id, safe='')}:{quote(engine, safe='')}"
    for directory in _own_directories():
        with suppress(OSError):
            if directory == SHARED_DIRECTORY:
                make_shared_directory(directory)
            else:
                directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            os.close(os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
            return
    raise InfrastructureError(
        f"cannot record in {' or '.join(map(str, _own_directories()))} that engine {engine} is used, which clean-up "
        "needs to know; make one of them writable"
    )


def recorded_uses(run_id: str | None = None) -> list[EngineUse]:
    """Return the records of one run, or of all."""
    found = []
    for directory in (ROOTS_DIRECTORY, SHARED_DIRECTORY):
        with suppress(OSError):
            for path in sorted(directory.iterdir()):
                run, colon, engine = path.name.partition(":")
                if colon and run_id in (None, unquote(run)):
                    found.append(EngineUse(unquote(run), unquote(engine), path))
    return found


def delete_records(uses: Iterable[EngineUse]) -> None:
    """Delete records; those of another user stay."""
    for use in uses:
        with suppress(OSError):
            use.path.unlink()


def _own_directories() -> tuple[Path, ...]:
    return (ROOTS_DIRECTORY, SHARED_DIRECTORY) if os.geteuid() == 0 else (SHARED_DIRECTORY,)
