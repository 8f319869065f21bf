"""Log records to the screen go through the view while it is up, so that neither writes into the other's lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable


class LogDiversion:
    """Takes over the root logger's handlers that write to `stream`; `show` gets what they would have written."""

    def __init__(self, stream: TextIO, show: Callable[[str], None]) -> None:
        self._stream = stream
        self._lines = cast("TextIO", _Lines(show))
        self._handlers: list[logging.StreamHandler[TextIO]] = []

    def start(self) -> None:
        """Divert the handlers that there are now."""
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is self._stream:
                handler.setStream(self._lines)
                self._handlers.append(handler)

    def stop(self) -> None:
        """Give the handlers their stream back; may come more than once."""
        while self._handlers:
            self._handlers.pop().setStream(self._stream)


class _Lines:
    """As much of a text stream as a log handler needs, which writes each record in one piece."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def write(self, text: str) -> int:
        self._show(text.removesuffix("\n"))
        return len(text)

    def flush(self) -> None:
        pass
