"""What a terminal adds to a text for people: its width, colours, and a pager for what is longer than it.

Reports are plain text; nothing in them knows of a terminal. The command line sets the width of the page once
(`screen_width`), and what is printed to standard output passes through `text_output`, which colours known words,
names the program as it was called and starts the pager. Colours are added after everything else in the text has been
escaped, so no value can bring its own.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from bench_common.safe_text import escape_unprintable
from bench_common.streams import PROGRAM, as_called, program_name
from bench_master.formatting import DEFAULT_WIDTH

if TYPE_CHECKING:
    from bench_master.terminal_options import TerminalOptions

COLOR_MODES: Final = ("auto", "always", "never")
"""The values of ``--color``."""

_NARROWEST: Final = 40
"""Columns below which no table can be read: narrower terminals get wrapped lines."""
_PAGER_SETTINGS: Final = {"LESS": "FRX", "LV": "-c"}
"""How pagers show colours, leave the text on the screen and end by themselves, unless the user has settings."""
_NOT_STARTED: Final = (126, 127)
"""What a shell returns for a command that it cannot start."""


def screen_width(stream: TextIO) -> int:
    """Return the columns of the terminal that a stream is; `DEFAULT_WIDTH` if it is none."""
    size = _screen_size(stream)
    return DEFAULT_WIDTH if size is None or size.columns == 0 else max(_NARROWEST, size.columns)


def _screen_size(stream: TextIO) -> os.terminal_size | None:
    try:
        return os.get_terminal_size(stream.fileno()) if stream.isatty() else None
    except (OSError, ValueError):
        return None


def wants_color(mode: str, stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether text for `stream` gets colours: ``auto`` on a terminal that knows them, unless NO_COLOR is set."""
    if mode == "auto":
        return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
    return mode == "always"


_RED, _GREEN, _YELLOW, _BOLD = "31", "32", "33", "1"
_WORDS: Final = {
    **dict.fromkeys(("FASTER", "BETTER", "passed"), _GREEN),
    **dict.fromkeys(("SLOWER", "WORSE", "FAILED", "INCOMPLETE", "problem"), f"{_BOLD};{_RED}"),
    **dict.fromkeys(("INCONCLUSIVE", "REFUSED", "UNDECIDED", "SKIPPED", "NO-OP", "IMPORTED", "warning"), _YELLOW),
    **dict.fromkeys(("SAME", "ok"), _GREEN),
    "!": f"{_BOLD};{_YELLOW}",
}
_MARKED: Final = re.compile(
    r"(?P<start>^[ ]{0,2}(?:\*\*\*[ ])?)(?P<first>[A-Z-]+|!|passed|problem|warning|ok)(?=[ :])"
    r"|(?<=[ ])(?P<word>FASTER|SLOWER|BETTER|WORSE|SAME|INCONCLUSIVE|REFUSED)(?=[ ]|$)",
    re.MULTILINE,
)


def paint(text: str) -> str:
    """Return a report with its verdicts, failures and warnings in colour; what else it says stays as it is."""

    def mark(match: re.Match[str]) -> str:
        word = match["first"] or match["word"]
        style = _WORDS.get(word)
        return match[0] if style is None else f"{match['start'] or ''}\x1b[{style}m{word}\x1b[0m"

    return _MARKED.sub(mark, text)


def pager_command(environ: Mapping[str, str] = os.environ) -> str:
    """Return the user's pager; ``less`` if none is set, nothing where it is off, not installed, or in CI."""
    command = environ.get("PAGER")
    if command is None:
        return "less" if not environ.get("CI") and shutil.which("less", path=environ.get("PATH")) else ""
    return "" if command.strip() in ("", "cat") else command


@contextmanager
def text_output(options: TerminalOptions, *, paged: bool = False) -> Iterator[TextIO]:
    """Yield the stream to write a text for people to: standard output, or what shows it there at the block's end."""
    out = sys.stdout
    color = wants_color(options.color, out)
    size = _screen_size(out) if paged and not options.no_pager else None
    pager = pager_command() if size is not None else ""
    renamed = out.isatty() and program_name() != PROGRAM
    if not color and not pager and not renamed:
        yield out
        return
    collected = io.StringIO()
    yield collected
    text = escape_unprintable(as_called(collected.getvalue()) if renamed else collected.getvalue())
    longer = size is not None and _lines_on_screen(text, size.columns) >= size.lines
    shown = paint(text) if color else text
    if not (pager and longer and show_in_pager(shown, pager)):
        _write_unescaped(out, shown)


def _lines_on_screen(text: str, columns: int) -> int:
    return sum(max(1, -(-len(line) // max(1, columns))) for line in text.splitlines())


def show_in_pager(text: str, command: str) -> bool:
    """Show text in a pager until the user leaves it; return whether it could be started."""
    before = signal.getsignal(signal.SIGINT)
    # Ctrl-C ends what the pager is doing, and not this program below it.
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        # The user's own command line, as PAGER has it.
        shell = ["/bin/sh", "-c", command]
        pager = subprocess.Popen(shell, stdin=subprocess.PIPE, env={**_PAGER_SETTINGS, **os.environ})  # noqa: S603
        pager.communicate(text.encode(errors="backslashreplace"))  # as long as the user reads
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    return pager.returncode not in _NOT_STARTED


def _write_unescaped(out: TextIO, text: str) -> None:
    """Write text that is escaped already, past the stream's own escaping: that would show colours as codes."""
    try:
        buffer = out.buffer
    except AttributeError:
        out.write(text)
        return
    out.flush()
    try:
        buffer.write(text.encode(out.encoding or "utf-8", errors=out.errors or "backslashreplace"))
        out.flush()
    except OSError as error:
        error.filename = error.filename or "stdout"
        raise
