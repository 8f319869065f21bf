r"""Reads what a benchmark tool printed: strictly, line by line, for parsers; and the metrics that a scenario defines.

A number taken from a text that was not understood is worse than no number. So a parser names the lines that it
expects, in their order, and the reader refuses everything else with the offending line and, where a table knows it,
what that line means: help that the tool printed, a second run, an error.

Metrics of a scenario are found by regular expression, or in JSON. An expression has the syntax of Python's `re`;
`regex` searches with it, which takes a limit of CPU time and lets other threads run meanwhile; `re` does neither. A
path is a singular query of JSONPath (RFC 9535, section 2.3.5.1): names and indices, such as
``$.runs[0].latency['p99.9']``; whatever could select several values is left out, as a metric is one number.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import regex

from bench_common.errors import ParseError, did_you_mean
from bench_common.treatment import Scalar

if TYPE_CHECKING:
    from bench_common.treatment import MetricSource

Patterns: TypeAlias = Mapping[str, tuple[str, Callable[[str], Scalar]]]
"""By a parameter's name: the pattern of a whole line with one group, and how the group is read."""

Explanations: TypeAlias = Sequence[tuple[str | re.Pattern[str], str]]
"""Patterns of whole lines, and what such a line means where another one is expected; the first match counts."""


@dataclass(frozen=True, slots=True)
class OutputLine:
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
    cleaned = (clean_line(line) for line in text.split("\n"))
    return [OutputLine(number, line) for number, line in enumerate(cleaned, start=1) if line]


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
    lines = [clean_line(line) for line in text.splitlines()]
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


MAX_PATTERN_CHARS: Final = 1000
"""The longest regular expression, in characters."""
MAX_REPETITIONS: Final = 100_000
"""The largest product of the counts in braces: each repetition takes memory before anything is searched."""
SEARCH_CPU_S: Final = 1.0
"""How long the search for one metric may take: seconds of CPU time of this process."""
SHOWN_CHARS: Final = 200
"""How much of an output an error shows, in characters."""

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COUNT: Final = re.compile(r"(?<!\\)\{([0-9]+)")
_SEGMENT: Final = re.compile(
    r"\.(?P<name>[^\W\d]\w*)|\[(?P<index>0|-?[1-9][0-9]{0,8})\]|\['(?P<single>[^'\\]*)'\]|\[\"(?P<double>[^\"\\]*)\"\]"
)
PATH_SYNTAX: Final = "a JSONPath of names and indices, such as $.latency.p95, $.runs[0].score or $['p99.9']"


def check_pattern(pattern: str) -> None:
    """Raise `ValueError` with the reason and the position where `pattern` cannot find a metric."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"{len(pattern)} characters; a regular expression has at most {MAX_PATTERN_CHARS}")
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        at = error.pos or 0
        there = f" at character {at + 1}, '{pattern[at : at + 20]}'" if pattern[at:] else " at its end"
        raise ValueError(f"not a regular expression: {error.msg}{there}") from error
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    if compiled.groups != 1:
        advice = "put the number into one, such as 'score: ([0-9.]+)'"
        if compiled.groups:
            advice = "one has to capture the number: write the others as (?:...)"
        raise ValueError(f"a regular expression with {compiled.groups or 'no'} groups: {advice}")
    if math.prod(max(1, int(count[:9])) for count in _COUNT.findall(pattern)) > MAX_REPETITIONS:
        raise ValueError(f"its counts in braces ask for more than {MAX_REPETITIONS} repetitions: use smaller ones")
    try:
        _compiled(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a usable regular expression: {error}") from error


@cache
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern, regex.MULTILINE)


def parse_path(text: str) -> tuple[str | int, ...]:
    """Return the names and indices of a path; raise `ValueError` with the position of what cannot be understood."""
    if not text.startswith("$"):
        raise ValueError(f"a path begins with $, the whole document; expected {PATH_SYNTAX}")
    segments: list[str | int] = []
    at = 1
    while at < len(text):
        match = _SEGMENT.match(text, at)
        if match is None:
            raise ValueError(f"cannot read {text[at : at + 20]!r} at character {at + 1}; expected {PATH_SYNTAX}")
        kind = str(match.lastgroup)
        segments.append(int(match[kind]) if kind == "index" else match[kind])
        at = match.end()
    return tuple(segments)


def read_metrics(sources: Sequence[MetricSource], stdout: bytes, stderr: bytes) -> dict[str, float]:
    """Return the value of each metric, by name; raise `ParseError` for the first that is not there.

    Takes at most `SEARCH_CPU_S` of CPU time for each metric by regular expression, whatever the expression.
    """
    streams = {"stdout": stdout.decode("utf-8", "replace"), "stderr": stderr.decode("utf-8", "replace")}
    documents: dict[str, Any] = {}
    values = {}
    for source in sources:
        text = streams[source.stream]
        if source.json:
            if source.stream not in documents:
                documents[source.stream] = _document(source, text)
            values[source.name] = _json_number(source, documents[source.stream])
        else:
            values[source.name] = _regex_number(source, text, streams)
    return values


def _regex_number(source: MetricSource, text: str, streams: dict[str, str]) -> float:
    found = _matches(source, text)
    if not found:
        other = "stderr" if source.stream == "stdout" else "stdout"
        hint = f" ({other} has a match: set 'stream: {other}')" if _matches_at_all(source, streams[other]) else ""
        _refuse(source, f"nothing in {source.stream} matches {_quoted(source)}{hint}; {_beginning(text)}")
    if source.take == "only" and len(found) > 1:
        lines = [text.count("\n", 0, match.start()) + 1 for match in found]
        _refuse(
            source,
            f"{_quoted(source)} matches more than once in {source.stream} (lines {lines[0]} and {lines[1]}): make it "
            "more precise, or set 'take: first' or 'take: last'",
        )
    match = found[0] if source.take == "only" else found[-1]
    captured = match[1]
    if captured is None or not _NUMBER.fullmatch(captured) or not math.isfinite(float(captured)):
        line = text.count("\n", 0, match.start()) + 1
        _refuse(source, f"{_quoted(source)} captures {captured!r} in line {line} of {source.stream}, not a number")
    return float(captured)


def _matches(source: MetricSource, text: str) -> list[regex.Match[str]]:
    """Return the match that counts as the last of the list; two where there are several and one is expected."""
    try:
        found = _compiled(source.regex).finditer(text, timeout=SEARCH_CPU_S, concurrent=True)
        if source.take == "last":
            return list(deque(found, maxlen=1))
        return list(islice(found, 2 if source.take == "only" else 1))
    except TimeoutError:
        _refuse(
            source,
            f"the search for {_quoted(source)} in {len(text)} characters took more than {SEARCH_CPU_S:g} s: use a "
            "simpler expression, without a repetition inside a repetition such as (a+)+",
        )
    except MemoryError:
        _refuse(source, f"the search for {_quoted(source)} ran out of memory: use a simpler expression")


def _matches_at_all(source: MetricSource, text: str) -> bool:
    try:
        return bool(_matches(source, text))
    except ParseError:
        return False


def _document(source: MetricSource, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=float)
    except json.JSONDecodeError as error:
        what = f"{source.stream} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        _refuse(source, f"{what}; {_beginning(text)}")
    except (RecursionError, ValueError) as error:  # nested too deeply; a whole number of thousands of digits
        _refuse(source, f"{source.stream} is not JSON that can be read: {error}; {_beginning(text)}")


def _json_number(source: MetricSource, document: Any) -> float:
    value, walked = document, "$"
    for segment in parse_path(source.json):
        there = _step(value, segment)
        if there is None:
            _refuse(source, f"{source.json} leads nowhere: {_missing(value, segment, walked)}")
        value = there[0]
        walked += f"[{segment}]" if isinstance(segment, int) else f".{segment}"
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        _refuse(source, f"{source.json} is {json.dumps(value)[:SHOWN_CHARS]}, not a number")
    return number


def _step(value: Any, segment: str | int) -> tuple[Any] | None:
    """Return the value at one segment, in a tuple; None where there is none."""
    if isinstance(segment, str):
        return (value[segment],) if isinstance(value, dict) and segment in value else None
    in_range = isinstance(value, list) and -len(value) <= segment < len(value)
    return (value[segment],) if in_range else None


def _missing(value: Any, segment: str | int, walked: str) -> str:
    if isinstance(segment, int):
        return f"{walked} has {len(value)} items" if isinstance(value, list) else f"{walked} is not a list"
    if not isinstance(value, dict):
        return f"{walked} is not an object, so it has no {segment!r}"
    names = ", ".join(map(str, islice(value, 10))) or "none"
    return f"{walked} has no {segment!r}{did_you_mean(segment, value) or f'; its names are: {names}'}"


def _quoted(source: MetricSource) -> str:
    """Return the expression as its author wrote it: `repr` doubles the backslashes."""
    return f"'{source.regex}'"


def _beginning(text: str) -> str:
    shown = text.strip()
    if not shown:
        return "it is empty"
    return f"it begins: {shown[:SHOWN_CHARS]!r}{'...' if len(shown) > SHOWN_CHARS else ''}"


def _refuse(source: MetricSource, reason: str) -> NoReturn:
    raise ParseError(f"metric {source.name}: {reason}")
