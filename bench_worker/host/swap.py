"""Swap, off while a job needs it off: for benchmarks of memory, on hosts whose owner allows it.

All jobs that need it share one guard, a process that puts swap back even if this one is killed (see `swap_guard`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gevent.lock import RLock

from bench_common.errors import InfrastructureError
from bench_worker.host.guard_process import GuardFailed, GuardProcess
from bench_worker.host.swap_guard import SWAPS, swap_areas

if TYPE_CHECKING:
    from types import TracebackType

SWITCH_OFF_TIMEOUT_S: Final = 120.0
"""How long switching swap off may take: what is swapped out is read back meanwhile."""
SWITCH_ON_TIMEOUT_S: Final = 30.0


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
        self._guard: GuardProcess | None = None

    def __enter__(self) -> None:
        """Switch swap off; raise `SwapError` where that cannot be done."""
        with self._lock:
            if self._guard is None:
                self._guard = _switch_off()
            self._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Switch swap on if nobody else needs it off; raise `SwapError` where that cannot be done."""
        with self._lock:
            self._users -= 1
            if not self._users and self._guard is not None:
                guard, self._guard = self._guard, None
                _switch_on(guard)


def _switch_off() -> GuardProcess:
    try:
        return GuardProcess(
            "bench_worker.host.swap_guard", (), prefix="weighbridge-swap-", timeout_s=SWITCH_OFF_TIMEOUT_S
        )
    except GuardFailed as error:
        raise SwapError(str(error) or "swap cannot be switched off: it takes too long") from error


def _switch_on(guard: GuardProcess) -> None:
    status, words = guard.release(SWITCH_ON_TIMEOUT_S)
    if status != 0:
        raise SwapError(words or f"swap was not switched on again (status {status}): see /proc/swaps")
