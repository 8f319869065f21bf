"""What signals mean while workers are started, while a run is on, and once there is no run that they could be for."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import gevent

from bench_common.cli import hangs_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_master.run.session import Session


def take_signals(session: Session) -> None:
    """Let signals mean what the user expects: Ctrl-C once and twice, and the end of the terminal or the system.

    A run that was begun under ``nohup`` outlives its terminal.
    """
    gevent.signal_handler(signal.SIGINT, session.interrupt)
    gevent.signal_handler(signal.SIGTERM, session.terminate)
    if hangs_up():
        gevent.signal_handler(signal.SIGHUP, session.terminate)


def give_signals_back() -> None:
    """Let signals end this process again: the run is saved, and a report can take long or wait for its reader."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hangs_up():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def interruptible(consequence: str) -> Iterator[None]:
    """Let a signal break off what goes on, in this greenlet and no other; `consequence` is told at once.

    Afterwards signals mean what they meant before.
    """
    here = gevent.getcurrent()

    def break_off() -> None:
        sys.stderr.write(f"interrupted: {consequence}\n")
        gevent.kill(here, KeyboardInterrupt)

    signals = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up() else ()))
    before = {sign: signal.getsignal(sign) for sign in signals}
    handlers = [gevent.signal_handler(sign, break_off) for sign in signals]
    try:
        yield
    finally:
        for handler in handlers:
            handler.cancel()
        for sign, meaning in before.items():
            # The event loop leaves the system's default behind, of which the interpreter does not know.
            signal.signal(sign, meaning)
