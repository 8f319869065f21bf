"""Swap, off while a job needs it off: for benchmarks of memory, on hosts whose owner allows it.

All jobs that need it share one guard, a process that puts swap back even if this one is killed (see `swap_guard`).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import gevent
from gevent.lock import RLock

from bench_common.errors import InfrastructureError
from bench_worker.host.swap_guard import SWAPS, swap_areas
from bench_worker.timing.posix_spawn import spawn

if TYPE_CHECKING:
    from types import TracebackType

SWITCH_OFF_TIMEOUT_S: Final = 120.0
"""How long switching swap off may take: what is swapped out is read back meanwhile."""
SWITCH_ON_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02


class SwapError(InfrastructureError):
    """Swap could not be switched off, or not on again."""


def has_swap() -> bool:
    """Return whether any swap is switched on."""
    return bool(swap_areas(SWAPS.read_text("utf-8")))


class SwapSwitch:
    """A context in which swap is off; several jobs may be in it at once, and the last to leave switches it on."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._users = 0
        self._guard: _SwapGuardProcess | None = None

    def __enter__(self) -> None:
        """Switch swap off; raise `SwapError` where that cannot be done."""
        with self._lock:
            if self._guard is None:
                self._guard = _SwapGuardProcess()
            self._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Switch swap on if nobody else needs it off; raise `SwapError` where that cannot be done."""
        with self._lock:
            self._users -= 1
            if not self._users and self._guard is not None:
                guard, self._guard = self._guard, None
                guard.release()


class _SwapGuardProcess:
    """The process that has switched swap off and will switch it on."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="weighbridge-swap-"))
        argv = [sys.executable, "-m", "bench_worker.host.swap_guard", str(os.getpid())]
        self._out, self._err = self._folder / "out", self._folder / "err"
        try:
            self._pid = spawn(
                sys.executable,
                argv,
                env=dict(os.environ),
                cwd=str(Path.cwd()),
                stdout=str(self._out),
                stderr=str(self._err),
            )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SwapError(f"swap cannot be switched off: {error}") from error
        deadline = monotonic() + SWITCH_OFF_TIMEOUT_S
        while not self._read_output():
            status = self._status()
            if status is not None or monotonic() > deadline:
                words = self._words()
                self._end(status)
                raise SwapError(words or "swap cannot be switched off: it takes too long")
            gevent.sleep(_POLL_S)

    def release(self) -> None:
        """Have swap switched on; raise `SwapError` where some of it could not be."""
        os.kill(self._pid, signal.SIGTERM)
        deadline = monotonic() + SWITCH_ON_TIMEOUT_S
        while (status := self._status()) is None and monotonic() < deadline:
            gevent.sleep(_POLL_S)
        words = self._words()
        self._end(status)
        if status != 0:
            raise SwapError(words or f"swap was not switched on again (status {status}): see /proc/swaps")

    def _status(self) -> int | None:
        """Return the exit status of the process once it has ended (a signal as a negative number)."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _read_output(self) -> bool:
        return self._out.exists() and self._out.read_bytes().endswith(b"\n")

    def _words(self) -> str:
        return self._err.read_text("utf-8", "replace").strip() if self._err.exists() else ""

    def _end(self, status: int | None) -> None:
        if status is None:
            # It still works on it; whatever happens to us, it goes on until swap is as it was.
            return
        shutil.rmtree(self._folder, ignore_errors=True)
