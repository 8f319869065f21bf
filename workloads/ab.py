"""ab (ApacheBench): requests to a web server over a few connections, each of which waits for its response.

That is a closed model: a server that stalls receives fewer requests, so those that would have waited are never made,
and latencies look better than for real visitors. `caveat` says so in every report. The service webbench is Apache
with PHP and one page of twelve bytes.

ab 2.3 exits with 0 even if requests fail, responses are not 2xx, or their length differs from the first. The parser
refuses all of these, and any unknown line, since the rate would be that of something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import NotARunOutput, ParseError, UsageError
from bench_workloads.base import Metric, Parameter, Service, Step, Workload
from bench_workloads.line_reader import LineReader, OutputLine, parse_stated_params, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Scalar
    from bench_workloads.line_reader import Patterns


NAME: Final = "webbench"
URL: Final = f"http://{{{NAME}.authority}}/index.php"
"""The address of the page; the worker fills in host and port."""

REQUESTS_PER_SECOND: Final = 6_000
"""The rate of the published runs on machines of 2014, for estimates."""
PAGE_BYTES: Final = len("Hello World!")

WEBBENCH: Final = Service(
    NAME,
    image="weighbridge/webbench",
    command=("serve-webbench",),
    port=80,
    ready=("ready-webbench",),
    binary="apache2",
)

PROGRAMS: Final = {"serve-webbench": "webbench/serve-webbench", "ready-webbench": "webbench/ready-webbench"}


_PARAM_PATTERNS: Final[Patterns] = {
    "version": (r"This is ApacheBench, Version (\d{1,4}\.\d{1,4}).*", str),
    "server": (r"Server Software: *(\S.*)", str),
    "tls": (r"SSL/TLS Protocol: *([^\s,]+).*", str),
    "document_bytes": (r"Document Length: +(\d{1,15}) bytes", int),
    "concurrency": (r"Concurrency Level: +(\d{1,9})", int),
    "path": (r"Document Path: +(\S+)", str),
    "keepalive": (r"Keep-Alive requests: +(\d{1,15})", lambda _: True),
}
"""The parameters that the output states; it does not state the intended number of requests."""


class Ab(Workload):
    """ApacheBench, against a web server of the job's own."""

    name: ClassVar[str] = "ab"
    summary: ClassVar[str] = "requests to a web server, closed model: Apache and PHP in a container of their own (ab)"
    image: ClassVar[str] = "weighbridge/ab"
    binary: ClassVar[str] = "ab"
    package: ClassVar[str] = "apache2-utils"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("requests", "int", 10_000, "requests to make", minimum=1, maximum=100_000_000),
        Parameter("concurrency", "int", 1, "connections in parallel", minimum=1, maximum=20_000),
        Parameter("keepalive", "bool", default=False, help="reuse connections (keep-alive)"),
        Parameter("timeout", "duration", 30.0, "whole seconds to wait for a response", "s", minimum=1, maximum=86400),
        Parameter("warmup", "int", 0, "requests before the run that are not counted", minimum=0, maximum=100_000_000),
    )
    primary_metrics: ClassVar[tuple[str, ...]] = ("requests_per_second", "latency_mean_ms")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("requests_per_second", "1/s", "higher", "responses per second (closed model)"),
        Metric("transfer_kib_per_second", "KiB/s", "higher", "bytes received per second, headers included"),
        Metric("total_time_s", "s", "lower", "time of all requests together"),
        Metric("requests", "requests", "higher", "requests with a response"),
        Metric("latency_mean_ms", "ms", "lower", "mean time of a request: concurrency over the rate (closed model)"),
        Metric("connect_mean_ms", "ms", "lower", "mean time to connect, whole ms"),
        Metric("processing_mean_ms", "ms", "lower", "mean time from there to the end of the response, whole ms"),
        Metric("waiting_mean_ms", "ms", "lower", "mean time from there to the first byte of the response, whole ms"),
        *(
            Metric(f"latency_p{rank}_ms", "ms", "lower", f"{rank} % of requests were faster (closed model), whole ms")
            for rank in (50, 66, 75, 80, 90, 95, 98, 99)
        ),
        Metric("latency_max_ms", "ms", "lower", "the slowest request (closed model), whole ms"),
    )
    tool_option_names: ClassVar[Mapping[str, str]] = {
        "n": "requests",
        "c": "concurrency",
        "k": "keepalive",
        "s": "timeout",
    }
    caveat: ClassVar[str] = (
        "a closed model: each connection waits for its response before its next request, so a server that stalls "
        "receives fewer requests, and latencies leave out those that would have waited"
    )
    run_start_pattern: ClassVar[str | None] = r"This is ApacheBench, Version "
    services: ClassVar[tuple[Service, ...]] = (WEBBENCH,)
    programs: ClassVar[Mapping[str, str]] = PROGRAMS

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return warm-up and run, the run is timed and parsed; raise `UsageError` for what ab refuses."""
        requests, concurrency, warmup = (int(str(params[name])) for name in ("requests", "concurrency", "warmup"))
        timeout_s = float(str(params["timeout"]))
        if not timeout_s.is_integer():
            raise UsageError(f"{self.name} takes whole seconds: timeout cannot be {timeout_s:g} s")
        for name, count in (("requests", requests), ("warmup", warmup)):
            if 0 < count < concurrency:
                raise UsageError(
                    f"{self.name}: {count} {name} are fewer than the {concurrency} connections of concurrency; "
                    f"make it at least {concurrency}"
                )
        argv = (
            self.binary,
            "-c",
            str(concurrency),
            "-s",
            f"{timeout_s:.0f}",
            *(("-k",) if params["keepalive"] else ()),
        )
        steps = [Step("run", (*argv, "-n", str(requests), URL))]
        if warmup:
            steps.insert(0, Step("warmup", (*argv, "-n", str(warmup), URL), timed=False, parse=False))
        return tuple(steps)

    def verify(self, params: Mapping[str, Scalar], metrics: Mapping[str, float]) -> None:
        """Raise `ParseError` where fewer requests were answered than were to be made."""
        if metrics["requests"] != params["requests"]:
            raise ParseError(f"{metrics['requests']:.0f} of {params['requests']} requests were answered")

    def usual_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the time at the rate of published runs."""
        return int(str(params["requests"])) / REQUESTS_PER_SECOND

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return the number of requests."""
        del params
        return {"requests": "requests"}

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run by ab 2.3 in which every request was answered as it should be.

        Raises `ParseError` where requests failed, were answered with a status other than 2xx, or where the answers do
        not have the length that the first one had: ab itself ends with 0 then.
        """
        run = read_run(text)
        return {
            "requests_per_second": run.requests_per_second,
            "transfer_kib_per_second": run.kib_per_second,
            "total_time_s": run.time_s,
            "requests": float(run.requests),
            "latency_mean_ms": run.mean_ms,
            **{f"{name}_mean_ms": mean for name, mean in run.parts_ms.items()},
            **{f"latency_p{rank}_ms": value for rank, value in run.percentiles_ms.items()},
            "latency_max_ms": run.longest_ms,
        }

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return version, server, page, connections and, of a run that ended, whether connections were used again."""
        stated = parse_stated_params(text, _PARAM_PATTERNS)
        return {**stated, "keepalive": "keepalive" in stated} if "concurrency" in stated else stated


_COUNT: Final = r"(\d{1,15})"
_DECIMAL: Final = r"(\d{1,12}\.\d{2,3})"
_ROW: Final = r" +(\d{1,12}) +(\d{1,12}) +(\d{1,12}\.\d +\d{1,12} +)?(\d{1,12})"
"""Minimum, mean, standard deviation, median and maximum; ``ab -S`` leaves two of them out."""


@dataclass(frozen=True)
class _LinePattern:
    """A line of the report."""

    name: str
    """Its name in the parser."""
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
    (
        r"(?:Benchmarking \S+ .*\(be patient\)\.+)?(?:apr_\w+.*|SSL .*failed.*|Test aborted after .*)",
        "ab could not reach the server, or lost it",
    ),
    # What it prints on its way out: a call of the system and its error's number, or a word of its own.
    (
        r"(?:Benchmarking \S+ .*\(be patient\)\.+)?(?:[\w() ]+: .* \(\d+\)|.*[Ff]ailed!?|.*: not enough .*)",
        "ab failed",
    ),
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
    """The numbers of one run, as ab prints them."""

    requests: int
    concurrency: int
    time_s: float
    """Time of all requests together."""
    requests_per_second: float
    """Responses per second."""
    mean_ms: float
    """Mean time of a request."""
    kib_per_second: float
    """Received, in KiB: what ab calls Kbytes."""
    parts_ms: dict[str, float]
    """Mean times by name: connect, processing, waiting."""
    percentiles_ms: dict[int, float]
    """Times by rank; empty for a run of one request."""
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
        """Refuse a run with failed or unexpected responses."""
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
        if min(percentiles.values()) < self._number("total", 1):
            self.fail("a percentile is below the shortest request", self.previous)
        if sorted([*percentiles.values(), longest]) != [*percentiles.values(), longest]:
            self.fail("the percentiles are not in order", self.previous)
        return percentiles, longest

    def _numbers(self, percentiles: dict[int, float], longest: float) -> AbResult:
        requests, time_s, rate = self._count("complete"), self._number("time"), self._number("rate")
        # The time is printed to a millisecond, which matters for short runs.
        if time_s and abs(requests / time_s - rate) > rate * (0.0006 / time_s) + 0.01:
            self.fail(f"{requests} requests in {time_s:g} s are not this rate", self._found["rate"][0])
        self._check_times()
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

    def _check_times(self) -> None:
        """Refuse times that contradict one another; all but the mean of all requests are printed as whole ms."""
        for name in ("connect", "processing", "waiting", "total"):
            low, mean, high = (self._number(name, group) for group in (1, 2, 4))
            if not low <= mean <= high:
                self.fail("these times are not in the order min, mean, max", self._found[name][0])
        requests, concurrency = self._count("complete"), self._count("concurrency")
        mean, time_ms = self._number("mean"), self._number("time") * 1000
        if abs(mean * requests - time_ms * concurrency) > 0.002 * concurrency * time_ms + 0.6 * (
            requests + concurrency
        ):
            self.fail(f"{requests} requests by {concurrency} do not take {mean:g} ms each", self._found["mean"][0])
        if mean > self._number("total", 4) + 1:
            self.fail(
                "the mean time of a request is above the longest: connections had no request for a part of the run; "
                "make many more requests than connections",
                self._found["mean"][0],
            )

    def _number(self, name: str, group: int = 1) -> float:
        return float(self._found[name][1][group])

    def _count(self, name: str) -> int:
        return int(self._found[name][1][1])
