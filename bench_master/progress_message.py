"""Says what a command is at while it prints nothing, so that it never seems to hang.

Work that may take longer than two seconds is done within `progress_message`. On a terminal one line on stderr is
redrawn each second and removed at the end; elsewhere the line gets a dot every two seconds. This needs a native
thread, since the work may hold the event loop. Nothing is printed outside of `show_progress_messages`, in which the
command line runs every command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final, TextIO

from gevent.monkey import get_original

from bench_common.safe_text import flat_line, one_line
from bench_common.streams import redraws, tell
from bench_master.terminal import screen_width

SILENCE_S: Final = 1.75
"""How long nothing is printed before it is said what goes on, in seconds."""
REDRAW_S: Final = 1.0
"""How often a line on a terminal is drawn again, in seconds."""
STEP_S: Final = 2.0
"""How often it is said how much is done, in seconds."""
POLL_S: Final = 0.1
"""How often it is looked whether that is due, in seconds."""
_CLEAR: Final = "\r\x1b[K"

_start_native_thread = get_original("_thread", "start_new_thread")
_new_native_lock = get_original("_thread", "allocate_lock")
_native_sleep = get_original("time", "sleep")


class WaitLine:
    """The text of one wait: pure, but for the clock that is passed in. `redraws` is for a terminal.

    Each method returns what to write.
    """

    def __init__(self, text: str, now: float, *, redraws: bool, width: int = 80) -> None:
        self._text = one_line(text)
        self._began = self._written_at = now
        self._redraws = redraws
        self._width = width
        self._open = False

    def tick(self, now: float) -> str:
        """Say that it goes on, if it is time."""
        if now - self._written_at < (REDRAW_S if self._redraws and self._open else SILENCE_S):
            return ""
        self._written_at = now
        took = f"{now - self._began:.0f} s"
        was_open, self._open = self._open, True
        if self._redraws:
            return f"{_CLEAR}{f'{self._text}: {took}'[: self._width - 1]}"
        return "." if was_open else f"{self._text}: {took} ."

    def end(self) -> str:
        """Remove the line, or finish it."""
        was_open, self._open = self._open, False
        return "" if not was_open else _CLEAR if self._redraws else "\n"

    def interrupt(self, now: float) -> str:
        """Make room for something else that is printed."""
        text = self.end()
        self._written_at = now
        return text


class _Printer:
    """Says on a stream what goes on, from a native thread, while there is something to wait for."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._redraws = redraws(stream)
        self._lock = _new_native_lock()
        self._lines: list[WaitLine] = []
        """One in the other; the last one is shown. The thread of the first ends when they are over."""

    def push(self, text: str) -> None:
        width = screen_width(self._stream)
        with self._lock:
            line = WaitLine(text, monotonic(), redraws=self._redraws, width=width)
            if self._lines:
                self._write(self._lines[-1].interrupt(monotonic()))
                self._lines.append(line)
                return
            self._lines = [line]
        # Where no thread can be started, nothing is said.
        with suppress(RuntimeError):
            _start_native_thread(self._print, (self._lines,))

    def pop(self) -> None:
        with self._lock:
            self._write(self._lines.pop().end())
            if self._lines:
                self._lines[-1].interrupt(monotonic())

    def relay(self, printed: bytes) -> None:
        """Print what another program prints meanwhile."""
        with self._lock:
            if self._lines:
                self._write(self._lines[-1].interrupt(monotonic()))
            self._write(printed)

    def _print(self, lines: list[WaitLine]) -> None:
        while True:
            _native_sleep(POLL_S)
            with self._lock:
                if not lines:
                    return
                self._write(lines[-1].tick(monotonic()))

    def _write(self, text: str | bytes) -> None:
        if text:
            with suppress(OSError, ValueError):
                os.write(self._stream.fileno(), text if isinstance(text, bytes) else text.encode())


_printer: _Printer | None = None


@contextmanager
def show_progress_messages(*, quiet: bool) -> Iterator[None]:
    """Print progress messages on stderr in this context, unless `quiet`."""
    global _printer  # noqa: PLW0603  there is one stderr
    before, _printer = _printer, None if quiet else _Printer(sys.stderr)
    try:
        yield
    finally:
        _printer = before


@contextmanager
def progress_message(text: str) -> Iterator[None]:
    """Say `text` if what is done in the context lasts longer than two seconds, and that it goes on."""
    printer = _printer
    if printer is None:
        yield
        return
    printer.push(text)
    try:
        yield
    finally:
        printer.pop()


def note(text: str) -> None:
    """Write a line to stderr, between the lines of a wait."""
    if _printer is None:
        tell(text)
    else:
        _printer.relay(f"{flat_line(text)}\n".encode())


class Steps:
    """Says now and then how many files of a long work are done."""

    def __init__(self, what: str, *, quiet: bool) -> None:
        self._what = what
        self._quiet = quiet
        self._last_s = monotonic()

    def __call__(self, done: int, of: int) -> None:
        """Say it, if it is time."""
        if not self._quiet and done < of and monotonic() - self._last_s >= STEP_S:
            self._last_s = monotonic()
            note(f"{self._what} {done:,} of {of:,} files")


def put(line: str) -> None:
    """Write a line to stdout, between the lines of a wait: on a terminal both are seen."""
    relay(b"")
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def relay(printed: bytes) -> None:
    """Print on stderr what another program prints, between the lines of a wait."""
    printer = _printer
    if printer is not None:
        printer.relay(printed)
        return
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), printed)
