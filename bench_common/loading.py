"""Ctrl-C while a program is still being loaded: nothing was begun, so it ends at once.

A `KeyboardInterrupt` in the middle of an import prints a traceback, or is lost in a callback, and the command would
then go on as if nobody had asked it to stop. This module is loaded before all others, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def _end(number: int, frame: object) -> NoReturn:
    del number, frame
    os._exit(130)


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, with exit code 130; one that was told to ignore it goes on doing so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def loaded() -> None:
    """Let Ctrl-C be a `KeyboardInterrupt` again: from here on there is something to clean up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
