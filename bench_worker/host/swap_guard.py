"""A small program that switches swap off, and on again on request or when the process that started it ends.

It is a process of its own so that swap comes back whatever becomes of the worker: it waits for SIGTERM, or for the
end of the process whose id it is given, and then puts every area back with its priority. It prints ``off`` and the
areas once they are off, and exits with 0 when all of them are on again.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

SWAPS: Final = Path("/proc/swaps")
_PREFER: Final = 0x8000
"""swapon(2): the lower bits are a priority."""


class ReleaseRequested(BaseException):
    """SIGTERM arrived."""


def swap_areas(text: str) -> list[tuple[str, int]]:
    """Return path and priority of each area in the text of /proc/swaps, in its order.

    The kernel writes white space in a path as octal escapes (proc(5)).
    """
    found = []
    for line in text.splitlines()[1:]:
        path, *_, priority = line.split()
        unescaped = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
        found.append((unescaped, int(priority)))
    return found


def switch_off(path: str) -> None:
    """Switch an area off; raise `OSError`."""
    _call_libc("swapoff", path)


def switch_on(path: str, priority: int) -> None:
    """Switch an area on with its priority (below 0: the kernel's own choice); raise `OSError`."""
    _call_libc("swapon", path, _PREFER | priority if priority >= 0 else 0)


def _call_libc(name: str, path: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(os.fsencode(path), *arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def restore(areas: Sequence[tuple[str, int]]) -> int:
    """Switch on what is not on; return the exit status."""
    status = 0
    active = {path for path, _ in swap_areas(SWAPS.read_text("utf-8"))}
    for path, priority in areas:
        try:
            if path not in active:
                switch_on(path, priority)
        except OSError as error:
            sys.stderr.write(f"swap {path} could not be switched on again: {error.strerror}\n")
            status = 1
    return status


def guard(owner: int) -> int:
    """Switch all swap off until SIGTERM comes or process `owner` ends; return the exit status."""
    watched = os.pidfd_open(owner)
    areas = swap_areas(SWAPS.read_text("utf-8"))
    try:
        for path, _ in areas:
            switch_off(path)
        sys.stdout.write("off " + " ".join(f"{priority}:{path}" for path, priority in areas) + "\n")
        sys.stdout.flush()
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.poll()
    except OSError as error:
        sys.stderr.write(f"swap {error.filename} cannot be switched off: {error.strerror}\n")
        restore(areas)
        return 1
    except ReleaseRequested:
        pass
    return restore(areas)


def _on_sigterm(*_: object) -> NoReturn:
    # Once is enough: what comes while areas are being put back must not interrupt that.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise ReleaseRequested


def main(argv: Sequence[str]) -> int:
    """Guard for the process named on the command line."""
    signal.signal(signal.SIGTERM, _on_sigterm)
    return guard(int(argv[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
