"""The live view: the picture of `screen.render`, redrawn in place on a terminal.

It draws when it is told to and never otherwise; the scroll-back stays clean, because at the end the picture is
replaced by one line. What others write while it is up (log records, warnings) is printed above it.
"""

from __future__ import annotations

import atexit
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bench_master.progress.quantities import printable
from bench_master.progress.screen import render
from bench_master.progress.view import NoticesView, closing_line

if TYPE_CHECKING:
    from bench_master.progress.snapshot import Snapshot


class LiveView(NoticesView):
    """Shows the run on a terminal and gives the terminal back on any end that Python knows of."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._console = Console(file=cast("TextIO", self.outlet), force_terminal=True, highlight=False)
        self._live: Live | None = None

    def begin(self, snapshot: Snapshot) -> None:
        """Take the terminal: hide the cursor, divert what others print, draw."""
        # Only a stdout that is on a terminal too would write across the picture; a pipe is none of our business.
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=sys.stdout.isatty(), redirect_stderr=True
        )
        atexit.register(self.close)
        self._live.start()
        super().begin(snapshot)
        self.refresh(snapshot)

    def refresh(self, snapshot: Snapshot) -> None:
        """Draw the picture anew."""
        # A screen that has not taken the last picture yet does not get another one to queue up behind it.
        if self._live is not None and not self.outlet.blocked:
            width, height = self._console.size
            self._live.update(render(snapshot, width, height - 1), refresh=True)

    def say(self, text: str) -> None:
        """Show `text` above the picture."""
        if self._live is None:
            super().say(text)
        else:
            self._console.print(Text(printable(text)))

    def end(self, snapshot: Snapshot) -> None:
        """Replace the picture by one line that sums up."""
        if self._live is not None:
            self._live.transient = True
        self.close()
        # Broken between words here: a terminal would break within one.
        self.outlet.write(f"{textwrap.fill(closing_line(snapshot), self._console.width)}\n")
        self.outlet.close()

    def close(self) -> None:
        """Give the terminal back; the last picture stays where it is."""
        live, self._live = self._live, None
        if live is not None:
            # A line that is not complete yet would be lost with the diversion.
            sys.stdout.flush()
            sys.stderr.flush()
            live.stop()
            atexit.unregister(self.close)
        super().close()
