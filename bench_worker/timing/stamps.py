"""How late a stamp may be that a native thread takes of what it waited for.

Such a stamp is the latest instant at which the event can have been; here the earliest one is worked out. A thread
that waits in the kernel hears of an event late when it has to wait for a CPU, then for the interpreter; and what
happened while it was not waiting at all it hears of in its next round. What a hypervisor takes is in no account of
the thread: `bench_worker.timing.wake_ups` has what was measured of that.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final

from bench_common import eventloop
from bench_worker.timing.wake_ups import WAKE_UPS, WakeUps

_SCHEDSTAT_BYTES: Final = 97


def earliest_ns(entered_ns: int, stamped_ns: int, late_ns: int, before_ns: int) -> int:
    """Return the earliest instant of an event that a wait brought: begun at `entered_ns`, stamped when it was over.

    `late_ns` is how long the thread may have been kept from stamping, `before_ns` the earliest end of the wait before
    this one, at which the event was not there yet.
    """
    woken_ns = stamped_ns - late_ns
    # A wait that may have ended at once brought something that may have happened before it.
    return woken_ns if woken_ns - entered_ns > eventloop.MIN_WAIT_NS else before_ns


class WaitTimer:
    """The waits of one native thread, one after the other: `enter` before each, `stamp` after it.

    Any thread may make it; from then on it is for the thread that waits.
    """

    def __init__(
        self,
        run_delay: Callable[[], int] | None = None,
        held: Callable[[int], int] = eventloop.gil_wait_ns,
        clock: Callable[[], int] = time.monotonic_ns,
        wake_ups: WakeUps = WAKE_UPS,
    ) -> None:
        self._run_delay = run_delay
        self._held = held
        self._clock = clock
        self._wake_ups = wake_ups
        self._entered_ns = self._ended_ns = clock()

    def enter(self) -> None:
        """Note that the thread is about to wait."""
        if self._run_delay is None:
            self._run_delay = SchedDelay().read  # the account of the thread that makes it
        self._entered_ns = self._clock()

    def stamp(self) -> tuple[int, int]:
        """Return the latest and the earliest possible instant of what the wait brought."""
        assert self._run_delay is not None
        stamped_ns = self._clock()
        late_ns = self._wake_ups.allowance_ns + self._held(stamped_ns) + self._run_delay()
        earliest = earliest_ns(self._entered_ns, stamped_ns, late_ns, self._ended_ns)
        self._ended_ns = max(self._entered_ns, stamped_ns - late_ns)
        return stamped_ns, earliest


class LoopTimer:
    """What the event loop itself hears of, and a greenlet reads at once. The loop's meter knows when it waited."""

    def __init__(self) -> None:
        self._delay: SchedDelay | None = None
        self._seen_ns = -1
        self._earliest_ns = 0

    def earliest_ns(self) -> int:
        """Return the earliest instant of what the loop's last wait brought; 0 where nobody knows."""
        poll = eventloop.last_poll()
        if poll is None:
            return 0
        # Once for all that one wait brought: the account of the kernel is read as a difference, and costs a call.
        if poll.ended_ns != self._seen_ns:
            self._seen_ns = poll.ended_ns
            self._delay = self._delay or SchedDelay()
            late_ns = WAKE_UPS.allowance_ns + eventloop.switch_interval_ns() + self._delay.read()
            before_ns = poll.previous_ended_ns - late_ns
            self._earliest_ns = earliest_ns(poll.entered_ns, poll.ended_ns, late_ns, before_ns)
        return self._earliest_ns


class SchedDelay:
    """How long the thread that makes it waits for a CPU, from the kernel's own account (proc_pid_schedstat(5))."""

    def __init__(self) -> None:
        self._fd = -1
        self._last_ns = 0
        self._text = ctypes.create_string_buffer(_SCHEDSTAT_BYTES)
        with suppress(OSError):
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        room = ctypes.c_size_t(_SCHEDSTAT_BYTES - 1)
        self._arguments = (ctypes.c_int(self._fd), self._text, room, ctypes.c_long(0))
        self.read()

    def read(self) -> int:
        """Return the nanoseconds since the last call; 0 where the kernel does not count them."""
        # Not `os.pread`: that lets go of the interpreter, and a thread that stamps would wait for it again.
        if self._fd < 0 or quick_libc().pread(*self._arguments) <= 0:
            return 0
        total_ns = int(self._text.value.split()[1])
        since_ns, self._last_ns = total_ns - self._last_ns, total_ns
        return since_ns


@cache
def quick_libc() -> ctypes.PyDLL:
    """Return the C library for calls that do not wait: unlike those of `os`, they keep the interpreter meanwhile."""
    return ctypes.PyDLL(None)
