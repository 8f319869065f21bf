"""What signals do while workers start, during a run, and after it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import gevent

from bench_common.guard import honors_sighup
from bench_common.streams import tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_master.run.session import Session


def install_signal_handlers(session: Session) -> None:
    """Interrupt the session at Ctrl-C, terminate it at SIGTERM and when the terminal closes.

    A run under ``nohup`` outlives its terminal.
    """
    gevent.signal_handler(signal.SIGINT, session.interrupt)
    gevent.signal_handler(signal.SIGTERM, session.terminate)
    if honors_sighup():
        gevent.signal_handler(signal.SIGHUP, session.terminate)


def restore_signal_handlers() -> None:
    """Let signals end this process again: the run is saved, and a report can take long or wait for its reader."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if honors_sighup():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def interruptible(consequence: str) -> Iterator[None]:
    """Let a signal raise `KeyboardInterrupt` in this greenlet only, and print `consequence` at once.

    Restores the previous handlers afterwards.
    """
    here = gevent.getcurrent()

    def interrupt() -> None:
        tell(f"interrupted: {consequence}")
        gevent.kill(here, KeyboardInterrupt)

    signals = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if honors_sighup() else ()))
    before = {sign: signal.getsignal(sign) for sign in signals}
    handlers = [gevent.signal_handler(sign, interrupt) for sign in signals]
    try:
        yield
    finally:
        for handler in handlers:
            handler.cancel()
        for sign, meaning in before.items():
            # The event loop leaves the system's default handler behind, unknown to the interpreter.
            signal.signal(sign, meaning)
