"""When the kernel received bytes: SO_TIMESTAMPNS stamps of a TCP socket, on CLOCK_MONOTONIC.

The kernel stamps each segment as it comes in, so the stamp is true however late the event loop reads it, and needs no
thread. It is of CLOCK_REALTIME, so the distance between the two clocks is measured beside: by readings so close
together that nothing came in between. A clock that was set meanwhile is noticed and its stamps are not used; nor are
any where the clock that a program reads is not the kernel's, as under libfaketime.

A stamp that comes with a read is that of the last segment which the read touched. The kernel merges segments that lie
in the queue of a socket and keeps the later stamp: the last byte's stamp is right, the first byte may have come
earlier where there was more than one segment. How much earlier, the event loop knows: not before its last wait (see
`bench_worker.timing.stamps`).

Sources: socket(7), Linux Documentation/networking/timestamping.rst; tcp_try_coalesce in net/ipv4/tcp_input.c.
"""

from __future__ import annotations

import _socket
import socket
import struct
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from bench_worker.timing.stamps import LoopTimer

ANCILLARY_BYTES: Final = socket.CMSG_SPACE(16)
"""What a read must have room for, to get its stamp."""

_SO_TIMESTAMPNS: Final = 35
"""SO_TIMESTAMPNS_OLD, with the kernel's own long: the same number on every architecture but SPARC, PA-RISC."""
_TIMESPEC: Final = struct.Struct("@qq")
_LOOK_EVERY_NS: Final = 100_000_000
_READINGS: Final = 8
_GOOD_READING_NS: Final = 1_500
_AHEAD_NS: Final = 1_000_000
_BEHIND_NS: Final = 20_000
"""How far the difference of two readings, one after the other, may be off the known distance of the clocks."""
_CHECKS: Final = 3
_STEP_NS: Final = 100_000
"""A distance that has changed by more since the last reading: a clock was set."""


def enable_stamps(sock: Any) -> bool:
    """Have the kernel stamp what a socket receives; say whether it does."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return struct.calcsize("@l") == _TIMESPEC.size // 2


def same_clock(real: Callable[[], int] = time.time_ns) -> bool:
    """Say whether the kernel stamps by the clock that this process reads: something may stand before that clock."""
    for _ in range(_CHECKS):
        try:
            with closing(_socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
                sock.bind(("127.0.0.1", 0))
                sock.setblocking(False)
                enable_stamps(sock)
                before_ns = real()
                sock.sendto(b"?", sock.getsockname())
                _, ancillary, _, _ = sock.recvmsg(1, ANCILLARY_BYTES)
                after_ns = real()
            seconds, nanos = _TIMESPEC.unpack(ancillary[0][2])
        except (OSError, IndexError, struct.error):
            continue
        if before_ns - _STEP_NS <= seconds * 1_000_000_000 + nanos <= after_ns + _STEP_NS:
            return True
    return False


class ReceiveClock:
    """Turns the kernel's stamps into CLOCK_MONOTONIC, in nanoseconds."""

    __slots__ = (
        "_loop_timer",
        "_monotonic",
        "_offset_ns",
        "_real",
        "_same",
        "_trusted",
        "_until_ns",
        "uncertainty_ns",
    )

    def __init__(
        self,
        monotonic: Callable[[], int] = time.monotonic_ns,
        real: Callable[[], int] = time.time_ns,
        loop_timer: LoopTimer | None = None,
        same: Callable[[], bool] = same_clock,
    ) -> None:
        self._monotonic = monotonic
        self._real = real
        self._same = same
        self._trusted = False
        self._loop_timer = loop_timer or LoopTimer()
        self._offset_ns = self._until_ns = 0
        self.uncertainty_ns = 0
        """The largest error of the distance between the clocks."""

    def stamp(self, ancillary: Any, now_ns: int) -> int:
        """Return when what was just read had come in, by its ancillary data; 0 where the stamp is of no use.

        `now_ns` is CLOCK_MONOTONIC after the read.
        """
        shift = self._real() - now_ns - self._offset_ns
        if (shift > _AHEAD_NS or shift < -_BEHIND_NS or now_ns > self._until_ns) and not self._measure():
            return 0
        data = ancillary[0][2]
        if not self._trusted or len(data) != _TIMESPEC.size:
            return 0
        seconds, nanos = _TIMESPEC.unpack(data)
        stamp_ns: int = seconds * 1_000_000_000 + nanos - self._offset_ns
        return min(stamp_ns, now_ns)

    def earliest_ns(self) -> int:
        """Return the earliest instant at which bytes that are read just now can have come in; 0: nobody knows."""
        return self._loop_timer.earliest_ns()

    def _measure(self) -> bool:
        """Measure the distance of the clocks; say whether it is what it was."""
        best_ns = 1 << 62
        offset_ns = 0
        for _ in range(_READINGS):
            before_ns = self._monotonic()
            real_ns = self._real()
            after_ns = self._monotonic()
            if after_ns - before_ns < best_ns:
                best_ns, offset_ns = after_ns - before_ns, real_ns - (before_ns + after_ns) // 2
            if best_ns < _GOOD_READING_NS:
                break
        known = self._until_ns > 0
        self._until_ns = self._monotonic() + _LOOK_EVERY_NS
        moved_ns = abs(offset_ns - self._offset_ns)
        uncertainty_ns = (best_ns + 1) // 2
        if known and moved_ns <= uncertainty_ns + self.uncertainty_ns and uncertainty_ns >= self.uncertainty_ns:
            return (
                True  # both clocks run at one pace: what was known is better, and two stamps of one read stay equal
            )
        self.uncertainty_ns = uncertainty_ns
        self._offset_ns = offset_ns
        if known and moved_ns <= _STEP_NS + best_ns:
            return True
        self._trusted = self._same()
        return not known


RECEIVE_CLOCK: Final = ReceiveClock()
