"""A small program that changes settings of this host, and puts them back on request or when its starter ends.

It is a process of its own so that the settings come back whatever becomes of the worker, as `swap_guard` is. It is
given the process to watch, the directory of records, the run and the settings as JSON; it prints ``set`` once they
hold, and exits with 0 when they are as they were, or when others of the run need them still.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from bench_worker.host.settings import SettingClaim, SettingError, SettingRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REFUSED: Final = 4
"""The exit code where the kernel does not take a value."""


class ReleaseRequested(BaseException):
    """SIGTERM arrived."""


def guard(owner: int, directory: Path, run_id: str, settings: Mapping[str, str | None]) -> int:
    """Keep settings until SIGTERM comes or process `owner` ends; return the exit status."""
    claim = SettingClaim(directory, run_id)
    status = 0
    try:
        watched = os.pidfd_open(owner)
        claim.acquire(settings)
        try:
            # A SIGTERM that came meanwhile waited: half a change would be nobody's.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
            sys.stdout.write("set\n")
            sys.stdout.flush()
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            poll.poll()
        except ReleaseRequested:
            pass
        # What comes while settings are being put back must not interrupt that.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        claim.release()
    except (OSError, SettingError) as error:
        sys.stderr.write(f"{error}\n")
        status = REFUSED if isinstance(error, SettingRefused) else 1
    return status


def _on_sigterm(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise ReleaseRequested


def main(argv: Sequence[str]) -> int:
    """Guard for the process named on the command line."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    signal.signal(signal.SIGTERM, _on_sigterm)
    # Ctrl-C in a terminal reaches the whole process group; the worker decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return guard(int(argv[1]), Path(argv[2]), argv[3], json.loads(argv[4]))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
