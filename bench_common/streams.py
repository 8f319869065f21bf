"""The standard streams of both programs: writes that cannot fail for others' faults, and messages to stderr."""

from __future__ import annotations

import codecs
import functools
import io
import os
import re
import select
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from bench_common.safe_text import BAR, escape_unprintable, flat_line, quoted_lines

PROGRAM: Final = "bench-master"
SHORT_NAME: Final = "weighbridge"
"""The same program by the name of its package, as ``uvx weighbridge`` starts it."""
ESCAPE: Final = "weighbridge-escape"
INDENT: Final = "  "
"""Before the further lines of a message that a terminal is too narrow for."""
CONTINUED: Final = " \\"
"""At the end of a line of a command that goes on in the next one."""
NARROWEST: Final = 40
"""Columns below which nothing is wrapped between words any more."""


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Return characters that an encoding cannot represent as JSON escapes, and where to continue."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)), error.end


codecs.register_error(ESCAPE, _escape_unencodable)


def harden_streams() -> None:
    """Make writing to the standard streams safe from faults that are not the command's.

    A stream that the caller closed (``>&-``) is redirected to /dev/null: otherwise the next file or socket would get
    its number. Output that stderr rejects, because its reader is gone or its disk is full, is dropped: no run may end
    because nobody watches it. A character that the caller's encoding cannot represent is escaped as in JSON: a report
    must not end in the middle of a name, and JSON must stay JSON. So is everything that could steer a terminal.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  stays open
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPE)
            kind = _name_stream_in_errors if name == "stdout" else _ignore_write_errors
            escape_output(stream)
            for method in ("write", "flush"):
                setattr(stream, method, kind(getattr(stream, method), name))


def stdout_has_reader() -> bool:
    """Whether stdout still has a reader; poll(2) reports an error for a pipe without one."""
    return not _stdout_state() & (select.POLLERR | select.POLLNVAL)


def stdout_is_blocked() -> bool:
    """Whether stdout accepts nothing until its reader reads."""
    return _stdout_state() == 0


def _stdout_state() -> int:
    from gevent.monkey import get_original

    try:
        poll = get_original("select", "poll")()  # gevent's reports no errors
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return sum(state for _, state in poll.poll(0))
    except (OSError, ValueError):
        return select.POLLNVAL


def discard_rejected_output() -> None:
    """Drop output that stdout rejects, as on a full disk: the interpreter would retry at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """Redirect stdout's buffered output to /dev/null, so that the interpreter does not fail at exit."""
    _redirect_to_devnull(sys.stdout.fileno())


def _redirect_to_devnull(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def escape_output(stream: TextIO) -> TextIO:
    """Return a stream, which from now on escapes what could steer a terminal that shows its text."""
    write = stream.write

    @functools.wraps(write)
    def escaped(text: str) -> int:
        write(escape_unprintable(text))
        return len(text)

    stream.write = escaped  # type: ignore[method-assign]
    return stream


def _name_stream_in_errors(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a stream's method: its errors name the stream, as a file's errors name the file."""

    @functools.wraps(method)
    def named(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except OSError as error:
            error.filename = error.filename or name
            raise

    return named


def _ignore_write_errors(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a stream's method: output that cannot be written is dropped."""

    @functools.wraps(method)
    def spared(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except BrokenPipeError:
            # Permanently: neither the buffered rest nor child processes should run into it again.
            _redirect_to_devnull(getattr(sys, name).fileno())
        except OSError:
            pass  # a full disk may get room again
        return len(arguments[0]) if arguments else None

    return spared


def program_name() -> str:
    """Return the name by which the master's program was called, for its help and its messages."""
    called = os.path.basename(sys.argv[0])  # noqa: PTH119  as short as it is often called
    return called if called == SHORT_NAME else PROGRAM


_OWN_COMMAND: Final = re.compile(rf"(?<![\w./-]){PROGRAM}(?=\s+(?:--)?[a-z])")


def as_called(text: str) -> str:
    """Return a text that a person reads now, with the program in its commands named as they called it.

    What is stored or compared (a report in a file, a stats file, what goes to another program) keeps `PROGRAM`.
    """
    return _OWN_COMMAND.sub(program_name(), text)


def tell(text: str) -> None:
    """Write a message to stderr, as one line whatever is in it; on a terminal wrapped between words."""
    sys.stderr.write(f"{fit_line(flat_line(as_called(text)), sys.stderr)}\n")


def tell_quoted(text: str) -> None:
    """Write a message that may have several lines to stderr; those after the first begin with a bar."""
    for line in quoted_lines(as_called(text)):
        sys.stderr.write(f"{fit_line(line, sys.stderr)}\n")


def tell_command(label: str, words: Sequence[str]) -> None:
    """Write to stderr what to run: where it is too long for a terminal, it can still be copied from there."""
    quoted = [flat_line(shlex.quote(word)) for word in words]
    line = f"{label}: {' '.join(quoted)}"
    columns = terminal_columns(sys.stderr)
    if columns is None or len(line) <= columns:
        sys.stderr.write(f"{line}\n")
        return
    lines = [f"{label}:", f"{INDENT}{quoted[0]}"]
    for word in quoted[1:]:
        if len(f"{lines[-1]} {word}{CONTINUED}") <= columns:
            lines[-1] += f" {word}"
        else:
            lines[-1] += CONTINUED
            lines.append(f"{INDENT}{word}")
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def redraws(stream: TextIO) -> bool:
    """Whether a line on a stream can be drawn again: it is a terminal that moves its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def draw_line(text: str, stream: TextIO) -> None:
    """Draw the line of a terminal again that was drawn last, cut to its width; an empty text removes it."""
    columns = terminal_columns(stream) or 80
    with suppress(OSError, ValueError):
        stream.flush()
        os.write(stream.fileno(), f"\r\x1b[K{flat_line(text)[: columns - 1]}".encode(errors="backslashreplace"))


def terminal_columns(stream: TextIO) -> int | None:
    """Return how many columns a terminal has; None if the stream is none, or its width is not known."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def fit_line(line: str, stream: TextIO) -> str:
    """Return a line as it goes to a stream: on a terminal, which would break it within words, in lines that fit.

    Those after the first are indented, and begin with a bar where it does. A file or a pipe gets the line as it is.
    """
    columns = terminal_columns(stream)
    if columns is None or len(line) <= columns:
        return line
    indent = BAR if line.startswith(BAR) else " " * (len(line) - len(line.lstrip())) + INDENT
    return textwrap.fill(
        line,
        max(NARROWEST, columns),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
