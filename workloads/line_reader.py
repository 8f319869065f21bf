"""Reads what a benchmark tool printed, line by line, strictly: a line that nothing knows is an error, never skipped.

A number taken from a text that was not understood is worse than no number. So a parser names the lines that it
expects, in their order, and the reader refuses everything else with the offending line and, where a table knows it,
what that line means: help that the tool printed, a second run, an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from msgspec import Struct

from bench_common.errors import ParseError
from bench_common.treatment import Scalar

Patterns: TypeAlias = Mapping[str, tuple[str, Callable[[str], Scalar]]]
"""By a parameter's name: the pattern of a whole line with one group, and how the group is read."""

Explanations: TypeAlias = Sequence[tuple[str | re.Pattern[str], str]]
"""Patterns of whole lines, and what such a line means where another one is expected; the first match counts."""


class OutputLine(Struct, frozen=True):
    """One line that is not blank."""

    number: int
    """Its place in the text, from 1."""
    text: str
    """The line without the white space around it."""


def line_pattern(pattern: str) -> re.Pattern[str]:
    """Return a pattern with ASCII digits only, so that what matches also converts."""
    return re.compile(pattern, re.ASCII)


def match_line(pattern: str | re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the match of a whole line, or None."""
    return (line_pattern(pattern) if isinstance(pattern, str) else pattern).fullmatch(text)


_TERMINAL_NOISE: Final = re.compile(r"(?:[ \t\r\0\ufeff]|\^[@M]|\x1b\[[0-9;?]{0,16}[A-Za-z])+")


def clean_line(line: str) -> str:
    """Return a line without the white space around it, and without what a terminal or an editor adds.

    That is the CR before the LF, NUL and a byte order mark on both sides; and in front of it, in any mixture, the
    echo of these characters (``^@``, ``^M``) and escape sequences such as those of a cleared screen.
    """
    noise = _TERMINAL_NOISE.match(line)
    return (line[noise.end() :] if noise else line).rstrip(" \t\r\0\ufeff")


def read_lines(text: str) -> list[OutputLine]:
    """Split at LF only, as tools end their lines; drop blank lines and what a terminal or an editor adds."""
    # An empty line, of which a text may be full, needs no cleaning.
    filled = ((number, line) for number, line in enumerate(text.split("\n"), start=1) if line)
    return [OutputLine(number, clean) for number, line in filled if (clean := clean_line(line))]


class LineReader:
    """One pass over the lines of one tool's output. Each refusal is a `ParseError` with the offending line."""

    explanations: Explanations = ()

    def __init__(self, tool: str, lines: Sequence[OutputLine], *, empty: str = "was it started at all?") -> None:
        if not lines:
            raise ParseError(f"empty: {tool} printed nothing ({empty})")
        self.lines: Final = lines
        self.position = 0
        self.unknown = f"not a line that {tool} prints here"
        """What a line is that no explanation knows."""
        self.end_reason = "the run was cut off"
        """Why the text may end before a line that every complete run prints."""

    @property
    def line(self) -> OutputLine | None:
        """The line to be read next; None at the end."""
        return self.lines[self.position] if self.position < len(self.lines) else None

    @property
    def previous(self) -> OutputLine:
        """The line that was read last; the first one before any was."""
        return self.lines[max(0, min(self.position, len(self.lines)) - 1)]

    def advance(self) -> None:
        """Pass over one line."""
        self.position += 1

    def accept(self, pattern: str | re.Pattern[str]) -> re.Match[str] | None:
        """Read the next line if it matches `pattern` as a whole; return the match or None."""
        match = match_line(pattern, self.line.text) if self.line else None
        if match:
            self.advance()
        return match

    def expect(self, pattern: str | re.Pattern[str], what: str) -> re.Match[str]:
        """Read the next line, which must match `pattern`; `what` names it in the error."""
        return self.accept(pattern) or self.refuse(what)

    def skip(self, patterns: Iterable[str | re.Pattern[str]]) -> None:
        """Pass over lines while they match one of the patterns."""
        wanted = tuple(patterns)
        while self.line and any(match_line(pattern, self.line.text) for pattern in wanted):
            self.advance()

    def expect_end(self, what: str = "the end of the text") -> None:
        """Refuse anything that follows."""
        if self.line:
            self.refuse(what)

    def refuse(self, expected: str) -> NoReturn:
        """Raise `ParseError` for the next line, or the end of the text, where `expected` should be."""
        line = self.line
        if line is None:
            self.fail(f"the text ends here, before {expected}: {self.end_reason}", self.lines[-1])
        for pattern, meaning in self.explanations:
            if match_line(pattern, line.text):
                self.fail(meaning, line)
        self.fail(f"{self.unknown}; expected {expected}", line)

    def fail(self, message: str, line: OutputLine | None = None) -> NoReturn:
        """Raise `ParseError` with `message` for `line`; without one for the next line, or the last."""
        at = line or self.line or self.lines[-1]
        raise ParseError(message, line=at.number, text=at.text)


_SIZE: Final = re.compile(r"(\d{1,15})(?:\.0+)? ?([KMGT]?)(?:i?B|b)?", re.ASCII)


def parse_stated_params(text: str, patterns: Patterns) -> dict[str, Scalar]:
    """Return the parameters that `text` states, by name: the group of the first line that matches each pattern.

    A parameter without such a line, or whose group cannot be read, is left out.
    """
    found: dict[str, Scalar] = {}
    lines = [clean for line in text.splitlines() if line and (clean := clean_line(line))]
    for name, (pattern, read) in patterns.items():
        compiled = re.compile(pattern, re.ASCII)
        match = next((match for line in lines if (match := compiled.fullmatch(line))), None)
        if match is not None:
            try:
                found[name] = read(match[1])
            except (ValueError, KeyError):
                continue
    return found


def parse_tool_size(text: str) -> int:
    """Return the bytes of a tool's ``16KiB``, ``16Kb`` or ``1K``; each unit is a power of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")
