"""Writes to the screen without ever blocking, and keeps log records out of a view's lines.

A terminal stopped with Ctrl-S, an idle pager or a dead SSH connection would block a plain write, and with it the loop
that keeps the workers alive. `NonblockingWriter` writes what the screen takes at once, buffers some of the rest, and
drops the excess with a notice. A closed screen ends the output, never the run.
"""

from __future__ import annotations

import logging
import os
import select
import time
from typing import TYPE_CHECKING, Final, TextIO, cast

from gevent.monkey import get_original

from bench_common.safe_text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES: Final = 1024
"""The size of one write: a pipe that is ready takes as much (PIPE_BUF and above) without blocking."""

BACKLOG_BYTES: Final = 65_536
"""How much is buffered for a blocked screen."""

CLOSE_TIMEOUT_S: Final = 2.0
"""How long the last lines may wait for the screen, in total."""


class NonblockingWriter:
    """A text stream in front of `stream` that never blocks.

    What could steer a terminal is escaped, unless `steers` says that it is meant to.
    """

    def __init__(self, stream: TextIO) -> None:
        self.steers = False
        self._stream = stream
        self._fd = _descriptor(stream)
        self._backlog = b""
        self._dropped_chars = 0
        self._closed = False
        self._deadline: float | None = None

    @property
    def encoding(self) -> str:
        """The encoding that text is written in."""
        return self._stream.encoding or "utf-8"

    @property
    def blocked(self) -> bool:
        """Whether earlier output still waits for the screen."""
        self._drain(0)
        return bool(self._backlog)

    def write(self, text: str) -> int:
        """Write now, later or never; return the length of `text`."""
        if self._closed:
            return len(text)
        if not self.steers:
            text = escape_unprintable(text)
        if self._fd is None:
            self._stream.write(text)
            return len(text)
        self._drain(0)
        if len(self._backlog) > BACKLOG_BYTES:
            self._dropped_chars += len(text)
            return len(text)
        self._keep(self._omission_notice() + text)
        self._drain(0)
        return len(text)

    def flush(self) -> None:
        """Write what the screen takes now."""
        self._drain(0)

    def close(self) -> None:
        """Write what is left within `CLOSE_TIMEOUT_S` seconds of the first call; leave the stream open."""
        if self._deadline is None:
            self._deadline = time.monotonic() + CLOSE_TIMEOUT_S
        self._keep(self._omission_notice())
        self._drain(self._deadline - time.monotonic())

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's descriptor; raise `OSError` where it has none."""
        return self._stream.fileno()

    def _omission_notice(self) -> str:
        count, self._dropped_chars = self._dropped_chars, 0
        return f"\n[{count:,} characters were dropped: the screen did not take them]\n" if count else ""

    def _keep(self, text: str) -> None:
        self._backlog += text.encode(self.encoding, errors="backslashreplace")

    def _drain(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._backlog and not self._closed and self._fd is not None:
            if not _is_writable(self._fd, max(0.0, deadline - time.monotonic())):
                return
            try:
                written = os.write(self._fd, self._backlog[:PIECE_BYTES])
            except BlockingIOError:
                # Another process made the shared terminal non-blocking.
                return
            except OSError:
                self._closed = True
                self._backlog = b""
            else:
                self._backlog = self._backlog[written:]


def _descriptor(stream: TextIO) -> int | None:
    try:
        stream.flush()
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _is_writable(fd: int, timeout_s: float) -> bool:
    # The system's poll, not gevent's: it does not wait, so there is nothing to yield for; only the end has a few
    # waits. A descriptor in an error state counts as ready: the write then raises.
    poll = cast("Callable[[], select.poll]", get_original("select", "poll"))()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(timeout_s * 1000))


class LogRedirect:
    """Redirects the root logger's handlers that write to `stream` to `show`."""

    def __init__(self, stream: TextIO, show: Callable[[str], None]) -> None:
        self._stream = stream
        self._lines = cast("TextIO", _LineStream(show))
        self._handlers: list[logging.StreamHandler[TextIO]] = []

    def start(self) -> None:
        """Redirect the handlers that exist now."""
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is self._stream:
                handler.setStream(self._lines)
                self._handlers.append(handler)

    def stop(self) -> None:
        """Give the handlers their stream back; may be called more than once."""
        while self._handlers:
            self._handlers.pop().setStream(self._stream)


class _LineStream:
    """The part of a text stream that a log handler needs; it writes each record in one piece."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def write(self, text: str) -> int:
        self._show(text.removesuffix("\n"))
        return len(text)

    def flush(self) -> None:
        pass
