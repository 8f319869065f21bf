"""A witness that measures, while a run goes on, how late this host wakes threads.

One native thread writes a byte into a socket at random instants and notes when; another waits for it exactly as those
threads do that stamp the ends of operations. The difference, less what the kernel's account of the waiting thread
explains, is what a bound must allow for (`bench_worker.timing.wake_ups`). Random instants see the host in each of its
states as often as it is in them (R. W. Wolff, Operations Research 30, 1982).

A reading takes 0.1 to 0.5 ms of CPU time, mostly to wake three threads; there are about 20 a second, at first more,
while the run is being prepared.
"""

from __future__ import annotations

import ctypes
import random
import socket
import time
from contextlib import suppress
from typing import Final

from gevent.monkey import get_original

from bench_worker.timing.ready_waiter import EDGE, IN, ReadyWaiter, prioritize_thread
from bench_worker.timing.stamps import quick_libc
from bench_worker.timing.wake_ups import WAKE_UPS, WINDOW, WakeUps

_native_sleep = get_original("time", "sleep")
_native_socket = get_original("socket", "socketpair")
_native_thread = get_original("_thread", "start_new_thread")

INTERVAL_S: Final = 0.05
"""The mean time between two readings, in seconds."""
FIRST_INTERVAL_S: Final = 0.002
"""The same until there are `WINDOW` readings."""
LONGEST_INTERVAL_S: Final = 0.2
_MAX_BYTES: Final = 4096
MAX_WRITE_NS: Final = 200_000
"""A write that took longer was interrupted itself, so nobody knows when the byte was there: no reading."""


class WakeUpWitness:
    """Records how late this host wakes a thread, from `start` until `stop`."""

    def __init__(self, wake_ups: WakeUps = WAKE_UPS, interval_s: float = INTERVAL_S) -> None:
        self._wake_ups = wake_ups
        self._interval_s = interval_s
        self._running = False
        self._began_ns = self._ended_ns = 0
        """When the last byte's write began and ended; the end is 0 until it is known."""

    def start(self) -> None:
        """Start measuring, in two threads of their own."""
        self._running = True
        near, far = _native_socket(socket.AF_UNIX, socket.SOCK_STREAM)
        near.setblocking(False)
        _native_thread(self._listen, (near,))
        _native_thread(self._write, (far,))

    def stop(self) -> None:
        """Stop measuring: the threads end with the next byte."""
        self._running = False

    def _write(self, far: socket.socket) -> None:
        write = quick_libc().write
        arguments = (ctypes.c_int(far.fileno()), ctypes.c_char_p(b"x"), ctypes.c_size_t(1))
        draw = random.expovariate
        # It must not be kept from the CPU while it holds the interpreter.
        prioritize_thread()
        with far:
            while self._running:
                mean_s = (
                    self._interval_s if self._wake_ups.count >= WINDOW else min(FIRST_INTERVAL_S, self._interval_s)
                )
                _native_sleep(min(draw(1 / mean_s), LONGEST_INTERVAL_S))
                # Without letting go of the interpreter in between: the listener reads both once it has it.
                self._ended_ns = 0
                self._began_ns = time.monotonic_ns()
                write(*arguments)
                self._ended_ns = time.monotonic_ns()

    def _listen(self, near: socket.socket) -> None:
        prioritize_thread()
        waiter = ReadyWaiter()
        waiter.register(near.fileno(), IN | EDGE)
        with near:
            while True:
                waiter.wait()
                began_ns, ended_ns = self._began_ns, self._ended_ns
                count, over = _drain(near)
                if count == 1 and waiter.woken_ns > began_ns and 0 < ended_ns - began_ns <= MAX_WRITE_NS:
                    self._wake_ups.record(waiter.woken_ns - began_ns)
                if over:
                    return


def _drain(near: socket.socket) -> tuple[int, bool]:
    """Read what is there; return how many bytes that was, and whether the other side is closed."""
    count = 0
    with suppress(BlockingIOError):
        while data := near.recv(_MAX_BYTES):
            count += len(data)
        return count, True
    return count, False
