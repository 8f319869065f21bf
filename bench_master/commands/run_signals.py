"""What signals mean to `run-scenario`: while its run is on, and once there is no run that they could be meant for."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import gevent

from bench_common.terminal import hangs_up

if TYPE_CHECKING:
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
