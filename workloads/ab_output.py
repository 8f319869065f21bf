"""Reads what ab 2.3 prints, line by line in the order in which it prints it.

ab ends with 0 however the server answered: requests that failed, answers other than 2xx, or of another length than
the first. All of these are refused here, since their rate is that of something else than was asked for. A line that
nothing knows is refused as well, never skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from bench_common.errors import NotARunOutput, ParseError

_COUNT: Final = r"(\d{1,15})"
_DECIMAL: Final = r"(\d{1,12}\.\d{2,3})"
_ROW: Final = r" +(\d{1,12}) +(\d{1,12}) +(\d{1,12}\.\d +\d{1,12} +)?(\d{1,12})"
"""Least, mean, standard deviation, median and largest; ``ab -S`` leaves two of them out."""


@dataclass(frozen=True)
class _LinePattern:
    """A line: what it is called here, its pattern, and whether every complete run prints it."""

    name: str
    pattern: str
    always: bool = True
    shown: str = ""

    @property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.ASCII)


_BODY: Final = (
    _LinePattern("server", r"Server Software: *(.*)"),
    _LinePattern("host", r"Server Hostname: +(\S+)"),
    _LinePattern("port", r"Server Port: +(\d+)"),
    _LinePattern("tls", r"SSL/TLS Protocol: .*", always=False),
    _LinePattern("tls-key", r"Server Temp Key: .*", always=False),
    _LinePattern("tls-name", r"TLS Server Name: .*", always=False),
    _LinePattern("path", r"Document Path: +(.*)"),
    _LinePattern("length", r"Document Length: +(?:\d+ bytes|Variable)"),
    _LinePattern("concurrency", rf"Concurrency Level: +{_COUNT}"),
    _LinePattern("time", rf"Time taken for tests: +{_DECIMAL} seconds"),
    _LinePattern("complete", rf"Complete requests: +{_COUNT}"),
    _LinePattern("failed", rf"Failed requests: +{_COUNT}"),
    _LinePattern("failures", r"\(Connect: \d+, (?:Receive|Length): \d+, .*\)", always=False),
    _LinePattern("write-errors", rf"Write errors: +{_COUNT}", always=False),
    _LinePattern("non-2xx", rf"Non-2xx responses: +{_COUNT}", always=False),
    _LinePattern("kept-alive", rf"Keep-Alive requests: +{_COUNT}", always=False),
    _LinePattern("transferred", rf"Total transferred: +{_COUNT} bytes"),
    _LinePattern("sent", rf"Total (?:POSTed|PUT|body sent): +{_COUNT}", always=False),
    _LinePattern("html", rf"HTML transferred: +{_COUNT} bytes"),
    _LinePattern("rate", rf"Requests per second: +{_DECIMAL} \[#/sec\] \(mean\)"),
    _LinePattern("mean", rf"Time per request: +{_DECIMAL} \[ms\] \(mean\)"),
    _LinePattern("share", rf"Time per request: +{_DECIMAL} \[ms\] \(mean, across all concurrent requests\)"),
    _LinePattern("transfer", rf"Transfer rate: +{_DECIMAL} \[Kbytes/sec\] received"),
    _LinePattern("sent-rate", rf"{_DECIMAL} kb/s sent", always=False),
    _LinePattern("total-rate", rf"{_DECIMAL} kb/s total", always=False),
    _LinePattern("times", r"Connection Times \(ms\)"),
    _LinePattern("columns", r"min +(?:mean\[\+/-sd\] +median|avg) +max"),
    _LinePattern("connect", f"Connect:{_ROW}"),
    _LinePattern("processing", f"Processing:{_ROW}"),
    _LinePattern("waiting", f"Waiting:{_ROW}"),
    _LinePattern("total", f"Total:{_ROW}"),
)
"""The lines from the table's first to the connection times, in the order in which they come."""

_BANNER: Final = re.compile(r"This is ApacheBench, Version (\S+) .*")
_OPENING: Final = (
    r"Copyright .*",
    r"Licensed to .*",
    r"Benchmarking \S+ (?:\[through \S+\] )?\(be patient\)(?:\.+(?:done)?)?",
)
_PROGRESS: Final = (r"Completed \d+ requests", r"Finished \d+ requests", r"\.+done")
"""What ab writes to stderr, where both streams were kept in one file."""
_REMARKS: Final = (
    r"(?:WARNING|ERROR): The median and mean for the .*",
    r"(?:deviation apart\. )?These results are (?:probably not that|NOT) reliable\.",
)
_PERCENTAGES: Final = re.compile(r"Percentage of the requests served within a certain time \(ms\)")
_RANKS: Final = (50, 66, 75, 80, 90, 95, 98, 99)
_EXPLANATIONS: Final = (
    (r"Total of \d+ requests completed", "ab gave up here: the connection failed, or it was interrupted"),
    (r"ab: .*|Usage: ab .*|Invalid number of requests", "ab refused its arguments; it ran nothing"),
    (r"apr_\w+.*|SSL .*failed.*|Test aborted after .*", "ab could not reach the server, or lost it"),
    (_BANNER.pattern, "a second run begins here; give one run at a time"),
    (r"<p>|<table.*", "this is HTML (ab -w); run ab without -w"),
    (
        (
            r"(?:Benchmarking \S+ .*\(be patient\)\.+)?(?:LOG: .*|INFO: .*|"
            r"WARNING: (?:Response code|POST header|GET header|HEAD header).*)"
        ),
        "run ab without -v",
    ),
)


@dataclass(frozen=True, slots=True)
class AbResult:
    """The numbers of one run, as ab prints them: times in ms but for `time_s`, KiB as its Kbytes.

    `parts_ms` are mean times by name, `percentiles_ms` by rank; a run of one request has no percentiles.
    """

    requests: int
    concurrency: int
    time_s: float
    requests_per_second: float
    mean_ms: float
    kib_per_second: float
    parts_ms: dict[str, float]
    percentiles_ms: dict[int, float]
    longest_ms: float


def read_run(text: str) -> AbResult:
    """Return the one run in `text`; raise `ParseError`, with the offending line, for anything less."""
    return _AbOutputParser(text).run()


class _AbOutputParser:
    """One pass over the lines that are not blank and not progress."""

    def __init__(self, text: str) -> None:
        numbered = enumerate(text.replace("\r", "\n" if "\n" not in text else "").split("\n"), start=1)
        stripped = ((number, line.strip(" \t\0\ufeff")) for number, line in numbered)
        self._lines = [(number, line) for number, line in stripped if line and not _is_one_of(line, _PROGRESS)]
        self._position = 0
        self._started = False
        self._found: dict[str, tuple[int, re.Match[str]]] = {}

    def run(self) -> AbResult:
        if not self._lines:
            raise ParseError("empty: ab printed nothing on stdout; it says why on stderr")
        self._banner()
        while self._position < len(self._lines) and _is_one_of(self._text, _OPENING):
            self._started |= self._text.startswith("Benchmarking ")
            self._position += 1
        if not self._started:
            self._pass_over()
        for known in _BODY:
            self._take(known)
        self._check_columns()
        self._check_answers()
        percentiles, longest = self._percentages()
        if self._position < len(self._lines):
            self._refuse("the end of the text")
        return self._numbers(percentiles, longest)

    @property
    def _text(self) -> str:
        return self._lines[self._position][1]

    def _banner(self) -> None:
        match = _BANNER.fullmatch(self._text)
        if match is None:
            self._refuse("'This is ApacheBench, Version 2.3'")
        if match[1] != "2.3":
            number, line = self._lines[0]
            raise ParseError(f"ab {match[1]} is not known; known is 2.3", line=number, text=line)
        self._position += 1

    def _take(self, known: _LinePattern) -> None:
        match = known.compiled.fullmatch(self._text) if self._position < len(self._lines) else None
        if match is not None:
            self._found[known.name] = (self._lines[self._position][0], match)
            self._position += 1
        elif known.always:
            self._refuse(f"'{known.pattern.split(':')[0].replace(chr(92), '')}'")

    def _pass_over(self) -> None:
        """Refuse what is only the text that ``ab -V`` prints, too."""
        if not any(_is_one_of(line, tuple(pattern for pattern, _ in _EXPLANATIONS)) for _, line in self._lines[1:]):
            number, line = self._lines[0]
            raise NotARunOutput("ab told its version, and ran nothing", line=number, text=line)

    def _check_columns(self) -> None:
        """Refuse a row with other columns than the table's head names, as one that was cut off has."""
        short = "avg" in self._found["columns"][1][0]
        for name in ("connect", "processing", "waiting", "total"):
            number, match = self._found[name]
            if (match[3] is None) is not short:
                raise ParseError("a row with other columns than its table", line=number, text=match[0])

    def _check_answers(self) -> None:
        """Refuse a run whose answers were not what was asked for."""
        for name, meaning in (
            ("failed", "requests failed, or were answered with another length than the first"),
            ("non-2xx", "answers had a status other than 2xx"),
            ("write-errors", "requests could not be written"),
        ):
            number, match = self._found.get(name, (0, None))
            if match is not None and int(match[1]):
                raise ParseError(f"{match[1]} {meaning}: this is no measurement", line=number, text=match[0])
        number, match = self._found["complete"][0], self._found["complete"][1]
        if not int(match[1]):
            raise ParseError("no request was answered", line=number, text=match[0])
        # Requests whose connection was closed without a word, as after a failed TLS handshake, are complete to ab.
        number, match = self._found["transferred"]
        if not int(match[1]):
            raise ParseError("not a byte was received: nothing was answered", line=number, text=match[0])

    def _percentages(self) -> tuple[dict[int, float], float]:
        """Return the percentiles by rank, and the longest request; one of a single request is in the table alone."""
        while self._position < len(self._lines) and _is_one_of(self._text, _REMARKS):
            self._position += 1
        if int(self._found["complete"][1][1]) == 1:
            return {}, float(self._found["total"][1][4])
        self._expect(_PERCENTAGES, "'Percentage of the requests served within a certain time (ms)'")
        percentiles = {}
        for rank in _RANKS:
            percentiles[rank] = float(self._expect(re.compile(rf"{rank}% +(\d{{1,12}})", re.ASCII), f"'{rank}%'")[1])
        last = self._expect(re.compile(r"100% +(\d{1,12}) \(longest request\)", re.ASCII), "'100%'")
        longest = float(last[1])
        if sorted([*percentiles.values(), longest]) != [*percentiles.values(), longest]:
            raise ParseError("the percentiles are not in order", line=self._lines[-1][0], text=last[0])
        return percentiles, longest

    def _numbers(self, percentiles: dict[int, float], longest: float) -> AbResult:
        def number(name: str, group: int = 1) -> float:
            return float(self._found[name][1][group])

        requests, concurrency, time_s, rate = (number(name) for name in ("complete", "concurrency", "time", "rate"))
        line, match = self._found["rate"]
        # The time is printed to a millisecond, which short runs feel.
        if time_s and abs(requests / time_s - rate) > rate * (0.0006 / time_s) + 0.01:
            raise ParseError(f"{requests:g} requests in {time_s:g} s are not this rate", line=line, text=match[0])
        if number("total", 4) != longest:
            raise ParseError(
                "the longest request is not the largest of the connection times",
                line=self._found["total"][0],
                text=self._found["total"][1][0],
            )
        return AbResult(
            requests=int(requests),
            concurrency=int(concurrency),
            time_s=time_s,
            requests_per_second=rate,
            mean_ms=number("mean"),
            kib_per_second=number("transfer"),
            parts_ms={name: number(name, 2) for name in ("connect", "processing", "waiting")},
            percentiles_ms=percentiles,
            longest_ms=longest,
        )

    def _expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.fullmatch(self._text) if self._position < len(self._lines) else None
        if match is None:
            self._refuse(what)
        self._position += 1
        return match

    def _refuse(self, expected: str) -> NoReturn:
        if self._position >= len(self._lines):
            number, line = self._lines[-1]
            # A text without percentages (ab -d) could end at any byte of its last number.
            why = (
                "cut off, or made with -d, which leaves out how one knows" if "Percentage" in expected else "cut off"
            )
            raise ParseError(f"the text ends here, before {expected}: the run was {why}", line=number, text=line)
        number, line = self._lines[self._position]
        for pattern, meaning in _EXPLANATIONS:
            if re.fullmatch(pattern, line):
                raise ParseError(meaning, line=number, text=line)
        raise ParseError(f"not a line that ab prints here; expected {expected}", line=number, text=line)


def _is_one_of(line: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(pattern, line) for pattern in patterns)
