"""Reads what ab 2.3 prints, line by line in the order in which it prints it.

ab ends with 0 however the server answered: requests that failed, answers other than 2xx, or of another length than
the first. All of these are refused here, since their rate is that of something else than was asked for. A line that
nothing knows is refused as well, never skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bench_common.errors import NotARunOutput
from workloads.line_reader import LineReader, OutputLine, read_lines

_COUNT: Final = r"(\d{1,15})"
_DECIMAL: Final = r"(\d{1,12}\.\d{2,3})"
_ROW: Final = r" +(\d{1,12}) +(\d{1,12}) +(\d{1,12}\.\d +\d{1,12} +)?(\d{1,12})"
"""Least, mean, standard deviation, median and largest; ``ab -S`` leaves two of them out."""


@dataclass(frozen=True)
class _LinePattern:
    """A line of the report."""

    name: str
    """What the parser calls it."""
    pattern: str
    """Regular expression of the whole line."""
    always: bool = True
    """Whether every complete run prints it."""


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
    return _Output(text).run()


class _Output(LineReader):
    """The lines that are not blank and not progress."""

    explanations = _EXPLANATIONS

    def __init__(self, text: str) -> None:
        lines = read_lines(text.replace("\r", "\n" if "\n" not in text else ""))
        shown = [line for line in lines if not any(re.fullmatch(pattern, line.text) for pattern in _PROGRESS)]
        super().__init__("ab", shown, empty="it says why on stderr")
        self._found: dict[str, tuple[OutputLine, re.Match[str]]] = {}

    def run(self) -> AbResult:
        self._banner()
        first = self.position
        self.skip(_OPENING)
        if not any(line.text.startswith("Benchmarking ") for line in self.lines[first : self.position]):
            self._refuse_version_only()
        for known in _BODY:
            self._take(known)
        self._check_columns()
        self._check_answers()
        percentiles, longest = self._percentages()
        self.expect_end()
        return self._numbers(percentiles, longest)

    def _banner(self) -> None:
        match = self.expect(_BANNER, "'This is ApacheBench, Version 2.3'")
        if match[1] != "2.3":
            self.fail(f"ab {match[1]} is not supported; supported is 2.3", self.previous)

    def _take(self, known: _LinePattern) -> None:
        match = self.accept(known.pattern)
        if match is not None:
            self._found[known.name] = (self.previous, match)
        elif known.always:
            self.refuse(f"'{known.pattern.split(':')[0].replace(chr(92), '')}'")

    def _refuse_version_only(self) -> None:
        """Refuse a text that is only what ``ab -V`` prints."""
        patterns = tuple(pattern for pattern, _ in _EXPLANATIONS)
        if not any(re.fullmatch(pattern, line.text) for line in self.lines[1:] for pattern in patterns):
            first = self.lines[0]
            raise NotARunOutput("ab printed its version and ran nothing", line=first.number, text=first.text)

    def _check_columns(self) -> None:
        """Refuse a row with other columns than the table's head names, as one that was cut off has."""
        short = "avg" in self._found["columns"][1][0]
        for name in ("connect", "processing", "waiting", "total"):
            line, match = self._found[name]
            if (match[3] is None) is not short:
                self.fail("a row with other columns than its table", line)

    def _check_answers(self) -> None:
        """Refuse a run whose responses are not those that were asked for."""
        for name, meaning in (
            ("failed", "requests failed, or got a response of another length than the first"),
            ("non-2xx", "responses had a status other than 2xx"),
            ("write-errors", "requests could not be written"),
        ):
            if name in self._found and self._count(name):
                line, match = self._found[name]
                self.fail(f"{match[1]} {meaning}: this is no measurement", line)
        if not self._count("complete"):
            self.fail("no request was answered", self._found["complete"][0])
        # To ab, a request whose connection was closed without data, as after a failed TLS handshake, is complete.
        if not self._count("transferred"):
            self.fail("no byte was received: no request was answered", self._found["transferred"][0])

    def _percentages(self) -> tuple[dict[int, float], float]:
        """Return the percentiles by rank, and the longest request; one of a single request is in the table alone."""
        self.skip(_REMARKS)
        if self._count("complete") == 1:
            return {}, self._number("total", 4)
        # A text without percentages (ab -d) could end at any byte of its last number.
        self.end_reason = "the run was cut off, or made with -d, which omits the end that proves it whole"
        self.expect(_PERCENTAGES, "'Percentage of the requests served within a certain time (ms)'")
        self.end_reason = "the run was cut off"
        percentiles = {}
        for rank in _RANKS:
            percentiles[rank] = float(self.expect(rf"{rank}% +(\d{{1,12}})", f"'{rank}%'")[1])
        longest = float(self.expect(r"100% +(\d{1,12}) \(longest request\)", "'100%'")[1])
        if sorted([*percentiles.values(), longest]) != [*percentiles.values(), longest]:
            self.fail("the percentiles are not in order", self.previous)
        return percentiles, longest

    def _numbers(self, percentiles: dict[int, float], longest: float) -> AbResult:
        requests, time_s, rate = self._count("complete"), self._number("time"), self._number("rate")
        # The time is printed to a millisecond, which matters for short runs.
        if time_s and abs(requests / time_s - rate) > rate * (0.0006 / time_s) + 0.01:
            self.fail(f"{requests} requests in {time_s:g} s are not this rate", self._found["rate"][0])
        if self._number("total", 4) != longest:
            self.fail("the longest request is not the largest of the connection times", self._found["total"][0])
        return AbResult(
            requests=requests,
            concurrency=self._count("concurrency"),
            time_s=time_s,
            requests_per_second=rate,
            mean_ms=self._number("mean"),
            kib_per_second=self._number("transfer"),
            parts_ms={name: self._number(name, 2) for name in ("connect", "processing", "waiting")},
            percentiles_ms=percentiles,
            longest_ms=longest,
        )

    def _number(self, name: str, group: int = 1) -> float:
        return float(self._found[name][1][group])

    def _count(self, name: str) -> int:
        return int(self._found[name][1][1])
