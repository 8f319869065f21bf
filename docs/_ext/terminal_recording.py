"""Record a terminal as asciinema does (a .cast file, version 2), and read what such a recording leaves on the screen.

    python docs/_ext/terminal_recording.py FILE 'echo a line for the shell'

``script/record-terminal`` calls it so, with a Python that has nothing installed: it needs the standard library alone.
The format is https://docs.asciinema.org/manual/asciicast/v2/: a line of JSON that describes the terminal, then one
for each output: seconds since the beginning, ``"o"``, and the text.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

COLUMNS: Final = 80
ROWS: Final = 48
"""High enough for a report: one that is longer than the screen is shown by a pager, which waits for a key."""
PROMPT: Final = "$ "
TERM: Final = "xterm-256color"
DEADLINE_S: Final = 1800.0
"""Of a recording: it installs what Weighbridge needs."""
GRACE_S: Final = 30.0
"""What a line has to clean up in, after its deadline."""
IDLE_LIMIT_S: Final = 2.0
"""Longer pauses are played as this long."""
_CONTROL: Final = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|[\r\n\b\a]|\x1b")


class Ended(NamedTuple):
    """What became of a line that ran on a terminal."""

    status: int | None
    """The exit code of the shell; None: the deadline ended it."""
    outputs: list[tuple[float, str]]
    """What was printed, each time with the seconds since the beginning."""
    columns: int

    def screen(self) -> str:
        """Return the text that is on the screen at the end; see `Screen`."""
        screen = Screen(self.columns)
        screen.write("".join(text for _, text in self.outputs))
        return screen.text()


def run(line: str, environment: Mapping[str, str], folder: Path, deadline_s: float) -> Ended:
    """Run a line in bash on a terminal of its own, to its end or to the deadline, which ends all that it started."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    own = {name: text for name, text in environment.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    began_s = time.monotonic()
    process = subprocess.Popen(  # noqa: S603
        ["bash", "-euo", "pipefail", "-c", line],  # noqa: S607
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**own, "TERM": TERM, "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    os.close(theirs)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    outputs: list[tuple[float, str]] = []
    in_time = True
    while True:
        left_s = began_s + deadline_s - time.monotonic()
        if not select.select([ours], [], [], max(0.0, left_s))[0]:
            if not in_time:
                os.killpg(process.pid, signal.SIGKILL)
                break
            in_time = False
            os.killpg(process.pid, signal.SIGTERM)  # asked first, so that a run cleans up after itself
            deadline_s += GRACE_S
            continue
        try:
            printed = os.read(ours, 65536)
        except OSError:  # the last process that had the terminal has ended
            printed = b""
        text = decoder.decode(printed, final=not printed)
        if text:
            outputs.append((round(time.monotonic() - began_s, 6), text))
        if not printed:
            break
    os.close(ours)
    status = process.wait()
    return Ended(status if in_time else None, outputs, COLUMNS)


def record(line: str, path: Path, deadline_s: float) -> int:
    """Run a line on a terminal, write what it prints to `path`, and return its exit code; 1 after the deadline."""
    ended = run(line, os.environ, Path.cwd(), deadline_s)
    header = {
        "version": 2,
        "width": COLUMNS,
        "height": ROWS,
        "timestamp": int(time.time()),
        "idle_time_limit": IDLE_LIMIT_S,
        "command": line,
        "env": {"TERM": TERM, "SHELL": "/bin/bash"},
    }
    typed = (0.0, f"{PROMPT}{line}\n".replace("\n", "\r\n"))
    events = [(seconds, "o", text) for seconds, text in (typed, *ended.outputs)]
    path.write_text("".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in (header, *events)), "utf-8")
    return 1 if ended.status is None else ended.status


def read(path: Path) -> tuple[dict[str, Any], str]:
    """Return the header of a recording, and the text that is on the screen at its end, without colours.

    Raises:
        ValueError: it is none of version 2, or has a control sequence that `Screen` does not know.

    """
    header, *events = map(json.loads, path.read_text("utf-8").splitlines())
    if header.get("version") != 2:  # noqa: PLR2004
        raise ValueError(f"{path}: expected a recording of version 2, not {header.get('version')}")
    screen = Screen(header["width"])
    screen.write("".join(text for _, kind, text in events if kind == "o"))
    return header, screen.text()


class Screen:
    """The lines of a terminal that keeps all that scrolled away: enough of one for progress that is drawn again."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0

    def text(self) -> str:
        """Return the lines, without blanks at their ends and without empty ones at the end."""
        return "\n".join("".join(line).rstrip() for line in self._lines).rstrip("\n")

    def write(self, text: str) -> None:
        """Print text; raise `ValueError` for a control sequence that is not known."""
        end = 0
        for match in _CONTROL.finditer(text):
            self._print(text[end : match.start()])
            end = match.end()
            if match[2]:
                self._control(match[1], match[2])
            elif match[0] == "\n":
                self._move_to(self._row + 1, 0)
            elif match[0] == "\r":
                self._column = 0
            elif match[0] == "\b":
                self._column = max(0, self._column - 1)
            elif match[0] == "\x1b":
                raise ValueError(f"unknown control sequence {text[match.start() : match.start() + 8]!r}")
        self._print(text[end:])

    def _print(self, text: str) -> None:
        for character in text:
            if self._column >= self._columns:
                self._move_to(self._row + 1, 0)
            line = self._lines[self._row]
            line.extend(" " * (self._column + 1 - len(line)))
            line[self._column] = character
            self._column += 1

    def _control(self, arguments: str, kind: str) -> None:
        if kind == "m" or (kind in "hl" and arguments.startswith("?")):
            return  # colours, and modes such as a hidden cursor
        if arguments and not arguments.isdecimal():
            raise ValueError(f"unknown control sequence ESC [ {arguments} {kind}")
        count = int(arguments or 1) if kind in "ABCD" else int(arguments or 0)
        line = self._lines[self._row]
        if kind in "AB":
            self._move_to(max(0, self._row + (count if kind == "B" else -count)), self._column)
        elif kind in "CD":
            self._column = max(0, self._column + (count if kind == "C" else -count))
        elif kind == "G":
            self._column = max(0, count - 1)
        elif kind == "K" and count in (0, 2):
            del line[0 if count == 2 else self._column :]  # noqa: PLR2004
        elif kind == "J" and count == 0:
            del line[self._column :]
            del self._lines[self._row + 1 :]
        else:
            raise ValueError(f"unknown control sequence ESC [ {arguments} {kind}")

    def _move_to(self, row: int, column: int) -> None:
        self._lines.extend([] for _ in range(row + 1 - len(self._lines)))
        self._row, self._column = row, column


if __name__ == "__main__":
    sys.exit(record(sys.argv[2], Path(sys.argv[1]), DEADLINE_S))
