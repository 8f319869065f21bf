"""Remembers which engines runs have used on this host, so that clean-up asks those and wakes no others.

Asking every engine there is what a run may have left takes a dozen processes, and for Podman a service of its own. A
note is an empty file that names a run and an engine. It is made before the engine is opened for the run, so whatever
there may be of a run was noted before; it stays over a reboot, as containers do; and it goes when a clean-up of
everything has found nothing more of that run there. Every user of the host can read the notes, and clear away
his own.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOTS_DIRECTORY: Final = Path("/var/lib/weighbridge-used")
"""Where root's notes are."""
SHARED_DIRECTORY: Final = Path("/var/tmp/weighbridge-used")  # noqa: S108  sticky; a note of others can do no harm
"""Where other users' notes are, and root's where the other cannot be written."""


@dataclass(frozen=True, slots=True)
class EngineUse:
    """A note that a run has used an engine here."""

    run_id: str
    engine: str
    path: Path


def record_engine_use(run_id: str, engine: str) -> None:
    """Note that a run uses an engine on this host; raise `InfrastructureError` where no note can be kept."""
    name = f"{quote(run_id, safe='')}:{quote(engine, safe='')}"
    for directory in _own_directories():
        with suppress(OSError):
            _make(directory)
            os.close(os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
            return
    raise InfrastructureError(
        f"cannot note in {' or '.join(map(str, _own_directories()))} that engine {engine} is used, and clean-up goes "
        "by such notes; make one of them writable"
    )


def recorded_uses(run_id: str | None = None) -> list[EngineUse]:
    """Return what is noted: of one run, or of all."""
    found = []
    for directory in (ROOTS_DIRECTORY, SHARED_DIRECTORY):
        with suppress(OSError):
            for path in sorted(directory.iterdir()):
                run, colon, engine = path.name.partition(":")
                if colon and run_id in (None, unquote(run)):
                    found.append(EngineUse(unquote(run), unquote(engine), path))
    return found


def delete_records(noted: Iterable[EngineUse]) -> None:
    """Clear notes away; those of another user stay."""
    for use in noted:
        with suppress(OSError):
            use.path.unlink()


def _own_directories() -> tuple[Path, ...]:
    return (ROOTS_DIRECTORY, SHARED_DIRECTORY) if os.geteuid() == 0 else (SHARED_DIRECTORY,)


def _make(directory: Path) -> None:
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    if directory == SHARED_DIRECTORY and directory.stat().st_uid == os.geteuid():
        # Beyond the umask: everybody makes files here, nobody touches another's.
        directory.chmod(0o1777)
