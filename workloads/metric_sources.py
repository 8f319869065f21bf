r"""Finds the metrics that a scenario defines itself in what a command printed: by regular expression, or in JSON.

Pure. A regular expression has the syntax of Python's `re`; `regex` searches with it, which takes a limit of CPU time
and lets other threads run meanwhile; `re` does neither. A path is a singular query of JSONPath (RFC 9535,
section 2.3.5.1): names and indices, such as ``$.runs[0].latency['p99.9']``; whatever could select several values is
left out, as a metric is one number.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn

from bench_common.errors import ParseError, did_you_mean
from bench_common.long_output import OUTPUT_GAP, OUTPUT_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import regex

    from bench_common.treatment import MetricSource

MAX_PATTERN_CHARS: Final = 1000
"""The longest regular expression, in characters."""
MAX_REPETITIONS: Final = 100_000
"""The largest product of the counts in braces: each repetition takes memory before anything is searched."""
SEARCH_CPU_S: Final = 1.0
"""How long the search for one metric may take: seconds of CPU time of this process."""
SHOWN_CHARS: Final = 200
"""How much of an output an error shows, in characters."""

_TOO_LONG: Final = f"is longer than {OUTPUT_LIMIT_BYTES >> 20} MiB, so its middle was not kept"

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
    except (re.error, OverflowError, RecursionError) as error:
        at = getattr(error, "pos", None) or 0
        there = f" at character {at + 1}, '{pattern[at : at + 20]}'" if pattern[at:] else " at its end"
        raise ValueError(f"not a regular expression: {getattr(error, 'msg', error)}{there}") from error
    if compiled.groups != 1:
        several = "one has to capture the number: write the others as (?:...)"
        advice = several if compiled.groups else "put the number into one, such as 'score: ([0-9.]+)'"
        raise ValueError(f"a regular expression with {compiled.groups or 'no'} groups: {advice}")
    if math.prod(max(1, int(count[:9])) for count in _COUNT.findall(pattern)) > MAX_REPETITIONS:
        raise ValueError(f"its counts in braces ask for more than {MAX_REPETITIONS} repetitions: use smaller ones")
    import regex

    try:
        _compiled(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a usable regular expression: {error}") from error


@cache
def _compiled(pattern: str) -> regex.Pattern[str]:
    import regex  # it takes longer to load than all of this package

    return regex.compile(pattern, regex.MULTILINE)


def compile_patterns(sources: Sequence[MetricSource]) -> None:
    """Compile the expressions of these metrics, so that no job has to wait for it."""
    for source in sources:
        if source.regex:
            _compiled(source.regex)


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
            if OUTPUT_GAP in text:
                _refuse(source, f"{source.stream} {_TOO_LONG}")
            if source.stream not in documents:
                documents[source.stream] = _document(source, text)
            values[source.name] = _json_number(source, documents[source.stream])
        else:
            values[source.name] = _regex_number(source, text, streams)
    return values


def _regex_number(source: MetricSource, text: str, streams: dict[str, str]) -> float:
    head, gap, tail = text.partition(OUTPUT_GAP)
    if gap and source.take == "only":
        _refuse(source, f"{source.stream} {_TOO_LONG}: set 'take: first' or 'take: last'")
    text = tail if gap and source.take == "last" else head
    found = _matches(source, text)
    if not found and gap:
        end = "end" if source.take == "last" else "beginning"
        _refuse(source, f"nothing in the {end} of {source.stream}, which {_TOO_LONG}, matches '{source.regex}'")
    if not found:
        other = "stderr" if source.stream == "stdout" else "stdout"
        hint = f" ({other} has a match: set 'stream: {other}')" if _matches_at_all(source, streams[other]) else ""
        _refuse(source, f"nothing in {source.stream} matches '{source.regex}'{hint}; {_beginning(text)}")
    if source.take == "only" and len(found) > 1:
        lines = " and ".join(str(text.count("\n", 0, match.start()) + 1) for match in found)
        advice = "make it more precise, or set 'take: first' or 'take: last'"
        _refuse(source, f"'{source.regex}' matches more than once in {source.stream} (lines {lines}): {advice}")
    match = found[0] if source.take == "only" else found[-1]
    captured = match[1]
    if captured is None or not _NUMBER.fullmatch(captured) or not math.isfinite(float(captured)):
        line = text.count("\n", 0, match.start()) + 1
        _refuse(source, f"'{source.regex}' captures {captured!r} in line {line} of {source.stream}, not a number")
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
            f"the search for '{source.regex}' in {len(text)} characters took more than {SEARCH_CPU_S:g} s: use a "
            "simpler expression, without a repetition inside a repetition such as (a+)+",
        )
    except MemoryError:
        _refuse(source, f"the search for '{source.regex}' ran out of memory: use a simpler expression")


def _matches_at_all(source: MetricSource, text: str) -> bool:
    try:
        return bool(_matches(source, text))
    except ParseError:
        return False


def _document(source: MetricSource, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=float)
    except (RecursionError, ValueError) as error:  # it may be nested too deeply, or have a number of 5000 digits
        _refuse(source, f"{source.stream} is not JSON: {error}; {_beginning(text)}")


def _json_number(source: MetricSource, document: Any) -> float:
    value, walked = document, "$"
    for segment in parse_path(source.json):
        if (there := _step(value, segment)) is None:
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


def _beginning(text: str) -> str:
    shown = text.strip()
    more = "..." if len(shown) > SHOWN_CHARS else ""
    return f"it begins: {shown[:SHOWN_CHARS]!r}{more}" if shown else "it is empty"


def _refuse(source: MetricSource, reason: str) -> NoReturn:
    raise ParseError(f"metric {source.name}: {reason}")
