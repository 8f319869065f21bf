"""An alarm on the event loop that rings within microseconds of an instant (timerfd_create(2)).

The loop's own timers are as coarse as epoll_wait(2): they ring up to a millisecond late, which is longer than many a
job that is to begin at that instant. The kernel's timer is a file descriptor that becomes readable in time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Final

import gevent

_CLOCK_MONOTONIC: Final = 1
_TFD_NONBLOCK: Final = os.O_NONBLOCK
_TFD_CLOEXEC: Final = os.O_CLOEXEC
_TFD_TIMER_ABSTIME: Final = 1
_S_NS: Final = 10**9


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Alarm:
    """Calls `ring()` in the loop once CLOCK_MONOTONIC has reached the instant that was set last."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._ring = ring
        self._watcher = gevent.get_hub().loop.io(self._fd, 1)
        self._watcher.start(self._rang)

    def set(self, at_ns: int) -> None:
        """Ring at an instant (ns of CLOCK_MONOTONIC), at once where it has passed, in place of any set before."""
        # A value of zero would switch it off.
        seconds, nanoseconds = divmod(max(1, at_ns), _S_NS)
        value = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(value), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        """Never ring again."""
        self._watcher.stop()
        self._watcher.close()
        os.close(self._fd)

    def _rang(self) -> None:
        with contextlib.suppress(BlockingIOError):  # set anew in the same pass of the loop
            os.read(self._fd, 8)
            self._ring()
