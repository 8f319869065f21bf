"""What the sysbench workloads share: the parser of sysbench 0.4 to 1.1, common metrics and parameters.

Every test prints the same frame: banner, options, progress, the lines of the test, and a table of totals, latencies
and fairness. A workload brings the lines that only its test prints; an unknown line is an error, never skipped. The
table's last line has a fixed number of decimals, so an output that is cut off at any byte is complete or refused.

fileio differs: it has its own table ``Throughput``, the name of the other tests' totals in 1.1, and prints no totals
since 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from msgspec import Struct

from bench_common.errors import NotARunOutput, UsageError
from bench_common.long_output import OUTPUT_GAP
from bench_workloads.base import Metric, Parameter
from bench_workloads.line_reader import LineReader, OutputLine, line_pattern, match_line, read_lines

if TYPE_CHECKING:
    from bench_common.treatment import Scalar
    from bench_workloads.line_reader import Patterns


_NUMBER: Final = (
    r"(\d{1,15}[.,]\d{1,15})"  # sysbench prints no thousands separator, so a comma is a locale's decimal point
)


_BANNER: Final = line_pattern(
    r"sysbench v?(\d+\.\d+)[\w.+-]*(:\s+multi-threaded system evaluation benchmark| \(.*\))?"
)
_KNOWN_VERSIONS: Final = ("0.4", "0.5", "1.0", "1.1")
_OPTIONS: Final = line_pattern(r"Running the test with following options:")
_THREADS: Final = line_pattern(r"Number of threads: (\d{1,9})")
_STARTED: Final = line_pattern(r"Threads started!")
_TOTALS: Final = line_pattern(r"(General statistics|Test execution summary|Throughput):")
_TOTALS_OF_FILES: Final = line_pattern(r"(General statistics|Test execution summary):")
_LATENCY_TABLE: Final = line_pattern(
    r"Latency \((ms)\):|(?:per-request statistics|response time|Latency statistics):"
)
_TOTALS_OR_LATENCIES: Final = line_pattern(f"{_TOTALS_OF_FILES.pattern}|{_LATENCY_TABLE.pattern}")

_CHATTER: Final = tuple(
    line_pattern(pattern)
    for pattern in (
        r"WARNING: .*",
        r"DEBUG:.*",
        r"Debug mode enabled\.",
        r"Target transaction rate: \d+/sec",
        r"Report checkpoint\(s\) at .* seconds",
        r"Forcing shutdown in \d+ seconds",
        r"Report intermediate results every \d+ second\(s\)",
        r"Random number generator seed is \d+ and will be (ignored|used)",
        r"Initializing random number generator from .*",
        r"Additional request validation enabled\.",
        r"Validation checks: on\.",
        r"Warmup time: \d+s",
        r"Warming up for \d+ seconds\.\.\.",
        r"Initializing worker threads\.\.\.",
        # What drivers of other databases say of themselves.
        r"setting write concern to \S+",
        r"\[ *\d+ ?s ?\] (thds|threads): \d+,? .*",
        r"\[ *\d+ ?s ?\] queue length: \d+,? concurrency: \d+",
        r"Latency histogram \(values are in milliseconds\)",
        r"value +-+ distribution -+ count",
        r"\d+[.,]\d+ \|\** +\d+",
        r"(Time|Event) limit exceeded, exiting\.\.\.",
        r"\(last message repeated \d+ times\)",
        r"Done\.",
        # What is left out of hours of reports are reports: the table comes once, at the end.
        re.escape(OUTPUT_GAP),
    )
)
# What an unexpected line means; the first pattern that matches decides. A match of _NO_RUN means that the output is
# not a run of this test, so nothing failed.
_NO_RUN: Final = (
    (
        r"Creating files for the test\.\.\.|Removing test files\.\.\.|\d+ files, \d+Kb each, \d+Mb total",
        "this is what fileio prints when it makes or removes its files; it measured nothing",
    ),
    (
        r"(?:Creating|Dropping|Prewarming) table .*|Inserting \d+ records into .*|Creating a secondary index on .*",
        "this is what oltp prints when it makes or removes its tables; it measured nothing",
    ),
    (
        (
            r"Running memory speed .*|Doing (memory|thread|mutex|CPU) .*|Extra file open flags.*|\d+ files, .*|"
            r".*OLTP test.*|SQL statistics:|File operations:|Prime numbers limit: \d+"
        ),
        "this is the output of another test of sysbench, not of {test}",
    ),
)
_FAILED: Final = re.compile(r"(FATAL|PANIC|ALERT|CRITICAL): .*|Number of unfinished transactions .*")
_EXPLANATIONS: Final = (
    (_FAILED.pattern, "sysbench failed"),
    (
        r"Usage:.*|\w+ options:|Unknown command: .*|[Ii]nvalid .*|The '.*' test requires a command.*",
        "sysbench printed help or refused its arguments; it ran nothing",
    ),
    (_BANNER.pattern, "a second run begins here; give one run at a time"),
    (
        r"\[ *\d+ ?s ?\] Checkpoint report:",
        "a report of a part of the run (--report-checkpoints) is not the run's result",
    ),
)


_BUCKET: Final = 0.05
"""A percentile is a bound of a bucket of a histogram, which is so much wider than its events at most."""
_ROUNDED_MS: Final = 0.11
"""How far rounding moves a latency: 0.4 prints seconds with four digits."""


class SysbenchLatencies(Struct, frozen=True, kw_only=True):
    """The latencies that every test of sysbench prints."""

    version: str
    """Major and minor version, such as ``1.0``."""
    threads: int
    latency_min_ms: float
    latency_avg_ms: float
    latency_max_ms: float
    latency_sum_ms: float
    """Time of all events of all threads."""
    percentile: tuple[int, float] | None
    """Rank and value (ms); None if it is switched off."""


class SysbenchSummary(SysbenchLatencies, frozen=True, kw_only=True):
    """The totals and the fairness at the end of a run."""

    total_time_s: float
    total_events: int
    """Events completed by all threads."""
    events_avg: float
    """Events of a thread, mean over threads."""
    events_stddev: float
    """Standard deviation of that over threads."""
    time_avg_s: float
    """Execution time of a thread, mean over threads."""
    time_stddev_s: float
    """Standard deviation of that over threads."""


def number(text: str) -> float:
    """Return the value of a number as sysbench prints it, with either decimal point."""
    return float(text.replace(",", "."))


def read_run(
    text: str, *, test: str, facts: Mapping[str, str], passing: Iterable[str] = ()
) -> tuple[SysbenchSummary, dict[str, re.Match[str]]]:
    """Return the summary of the one run in `text`, and the matches of the test's own lines by name.

    `facts` maps names to regular expressions of whole lines that only `test` prints; each may occur once. `passing`
    matches its lines without a result, which may occur any number of times. Raises `ParseError` if the text is not
    exactly one complete, successful run.
    """
    return _Output(text, test, facts, passing).run()


def read_run_of_files(
    text: str, *, test: str, facts: Mapping[str, str], passing: Iterable[str] = ()
) -> tuple[SysbenchLatencies, dict[str, re.Match[str]]]:
    """Do the same for fileio, which has its own table ``Throughput`` and, in 1.1, latencies only."""
    return _Output(text, test, facts, passing).run_of_files()


class _Output(LineReader):
    """The frame of a run, with the lines that only one test prints."""

    explanations = _EXPLANATIONS

    def __init__(self, text: str, test: str, facts: Mapping[str, str], passing: Iterable[str]) -> None:
        super().__init__(
            "sysbench", read_lines(text), empty="was it started at all? below --verbosity=3 it prints no result"
        )
        self.unknown = f"not a line that a run of sysbench {test} prints here"
        self.end_reason = "the run was cut off, or sysbench refused its arguments and says why on stderr"
        self._test = test
        self._facts = {name: line_pattern(pattern) for name, pattern in facts.items()}
        self._ignored = (*_CHATTER, *(line_pattern(pattern) for pattern in passing))
        self._found: dict[str, re.Match[str]] = {}

    def run(self) -> tuple[SysbenchSummary, dict[str, re.Match[str]]]:
        version, threads = self._preamble()
        self._progress_until(_TOTALS, "the table of totals")
        summary = self._summary(version, threads)
        self._epilogue()
        return summary, self._found

    def run_of_files(self) -> tuple[SysbenchLatencies, dict[str, re.Match[str]]]:
        version, threads = self._preamble()
        # Builds of 1.1 exist with totals and without.
        self._progress_until(_TOTALS_OR_LATENCIES, "the table of totals or of latencies")
        if self.line and _LATENCY_TABLE.fullmatch(self.line.text):
            result, summed = self._latencies(version, threads)
            if summed is None or not re.fullmatch(r"\d+[.,]\d\d", summed[1]):
                self.fail("'sum: X' was cut off", self.previous)
            self._check_order(result, self.previous)
        else:
            result = self._summary(version, threads)
        self._epilogue()
        return result, self._found

    def _preamble(self) -> tuple[str, int]:
        """Return the version and the number of threads; the next lines are printed while the test runs."""
        self._progress_until(_BANNER, "sysbench's banner with its version")
        version = self._banner()
        self._progress_until(_OPTIONS, "'Running the test with following options:'")
        self.end_reason = "the run was cut off"
        self.advance()
        threads = self.expect(_THREADS, "'Number of threads: N'")
        self._progress_until(_STARTED, "'Threads started!'")
        self.advance()
        return version, int(threads[1])

    def _epilogue(self) -> None:
        while self.line is not None:
            self._skip_notices("nothing more after the table")
        if not self._found:
            raise NotARunOutput(
                f"it has no line that only sysbench {self._test} prints: this is another test of sysbench"
            )

    def _banner(self) -> str:
        match = self.expect(_BANNER, "sysbench's banner")
        if match[1] not in _KNOWN_VERSIONS:
            self.fail(f"sysbench {match[1]} is not known (known: {', '.join(_KNOWN_VERSIONS)})", self.previous)
        return match[1]

    def _summary(self, version: str, threads: int) -> SysbenchSummary:
        self.advance()
        self.accept(rf"events/s \(eps\): +{_NUMBER}")
        total = self.expect(rf"(?:total time|time elapsed): +{_NUMBER}s", "'total time: Xs'")
        events = self.expect(r"total number of events: +(\d{1,18})", "'total number of events: N'")
        where = self.previous
        executed = self.accept(rf"total time taken by event execution: +{_NUMBER}s?")
        latencies, summed = self._latencies(version, threads)
        if executed is None and summed is None:
            self.refuse("'sum: X'")
        self.expect("Threads fairness:", "'Threads fairness:'")
        share = self.expect(r"events \(avg/stddev\): +(\d{1,15}[.,]\d{4})/(\d{1,15}[.,]\d\d)", "events per thread")
        time = self.expect(
            r"execution time \(avg/stddev\): +(\d{1,15}[.,]\d{4})/(\d{1,15}[.,]\d\d)",
            "execution time per thread",
        )
        summary = SysbenchSummary(
            version=version,
            threads=threads,
            total_time_s=number(total[1]),
            total_events=int(events[1]),
            latency_min_ms=latencies.latency_min_ms,
            latency_avg_ms=latencies.latency_avg_ms,
            latency_max_ms=latencies.latency_max_ms,
            latency_sum_ms=number(summed[1]) if summed else number(executed[1]) * 1000 if executed else 0.0,
            percentile=latencies.percentile,
            events_avg=number(share[1]),
            events_stddev=number(share[2]),
            time_avg_s=number(time[1]),
            time_stddev_s=number(time[2]),
        )
        self._check(summary, where)
        return summary

    def _latencies(self, version: str, threads: int) -> tuple[SysbenchLatencies, re.Match[str] | None]:
        """Return the table of latencies, and the match of its sum, which only 1.0 and later print."""
        unit = "ms" if self.expect(_LATENCY_TABLE, "the table of latencies")[1] else ""
        low, mean, high = (self._milliseconds(name, unit) for name in ("min", "avg", "max"))
        percentile = self._percentile(unit)
        summed = self.accept(rf"sum: +{_NUMBER}")
        latencies = SysbenchLatencies(
            version=version,
            threads=threads,
            latency_min_ms=low,
            latency_avg_ms=mean,
            latency_max_ms=high,
            latency_sum_ms=number(summed[1]) if summed else 0.0,
            percentile=percentile,
        )
        return latencies, summed

    def _check(self, summary: SysbenchSummary, where: OutputLine | None) -> None:
        """Refuse totals that contradict each other: the text was changed, or the run did not end by itself."""
        # A total time of 0.0000s is no contradiction: ten short events take less than the printed precision.
        if summary.total_events == 0 or summary.threads == 0:
            self.fail("no event was completed, so there is nothing to measure", where)
        if abs(summary.events_avg * summary.threads - summary.total_events) > 0.0001 * summary.threads:
            self.fail(
                f"{summary.threads} threads with {summary.events_avg:g} events each do not make "
                f"{summary.total_events} events",
                where,
            )
        mean = summary.latency_sum_ms / summary.total_events
        if abs(mean - summary.latency_avg_ms) > _ROUNDED_MS + 0.01 * summary.latency_avg_ms:
            self.fail(f"{summary.total_events} events with this sum have a mean of {mean:.2f} ms", where)
        self._check_order(summary, where)

    def _check_order(self, run: SysbenchLatencies, where: OutputLine | None) -> None:
        if not run.latency_min_ms <= run.latency_avg_ms <= run.latency_max_ms:
            self.fail("the latencies are not in the order min, avg, max", where)
        if run.percentile is not None:
            low, high = (
                run.latency_min_ms * (1 - _BUCKET) - _ROUNDED_MS,
                run.latency_max_ms * (1 + _BUCKET) + _ROUNDED_MS,
            )
            # Of no event the rank is 0, and of few in old versions, too.
            if not low <= run.percentile[1] <= high and run.percentile[1]:
                self.fail("the percentile is not between the fastest and the slowest event", where)

    def _milliseconds(self, name: str, unit: str) -> float:
        pattern = rf"{name}: +{_NUMBER}" + ("()" if unit else "(ms|s)")
        match = self.expect(pattern, f"'{name}: X{'' if unit else 'ms'}'")
        return number(match[1]) * (1000 if match[2] == "s" else 1)

    def _percentile(self, unit: str) -> tuple[int, float] | None:
        if self.accept("percentile stats: +disabled"):
            return None
        if unit:
            match = self.expect(rf"(\d{{1,3}})(?:st|nd|rd|th) percentile: +{_NUMBER}()", "a percentile")
        else:
            match = self.expect(
                rf"approx\. +(\d{{1,3}})(?:st|nd|rd|th)? percentile: +{_NUMBER}(ms|s)", "a percentile"
            )
        return int(match[1]), number(match[2]) * (1000 if match[3] == "s" else 1)

    def _progress_until(self, wanted: re.Pattern[str], what: str) -> None:
        while self.line is None or not wanted.fullmatch(self.line.text):
            self._skip_notices(what)

    def _skip_notices(self, what: str) -> None:
        """Skip a line without a result; keep the match of one of the test's own lines."""
        line = self.line
        if line is None:
            self.refuse(what)
        for name, pattern in self._facts.items():
            match = pattern.fullmatch(line.text)
            if match:
                if name in self._found:
                    self.fail("this line occurs twice: there is more than one run in the text", line)
                self._found[name] = match
                break
        else:
            if not any(pattern.fullmatch(line.text) for pattern in self._ignored):
                self.refuse(what)
        self.advance()

    def refuse(self, expected: str) -> NoReturn:
        """Raise `NotARunOutput` if the line belongs to no run of this test; else refuse it as unexpected."""
        line = self.line
        if line and not any(match_line(pattern, line.text) for pattern, _ in _EXPLANATIONS):
            for pattern, meaning in _NO_RUN:
                if match_line(pattern, line.text):
                    self._refuse_other_output(meaning.format(test=self._test), line)
        super().refuse(expected)

    def _refuse_other_output(self, meaning: str, line: OutputLine) -> NoReturn:
        """Raise `NotARunOutput`, unless the text says further down that sysbench failed."""
        later = self.lines[self.position + 1 :]
        failed = next((line for line in later if _FAILED.fullmatch(line.text)), None)
        if failed:
            self.fail("sysbench failed", failed)
        if self._found:
            self.fail(meaning, line)
        raise NotARunOutput(meaning, line=line.number, text=line.text)


_REPORT: Final = re.compile(r"^\[ *\d+ ?s ?\] (?!queue length).*$", re.MULTILINE)

PERCENTILES: Final = ("50", "75", "90", "95", "99")
"""The ranks with a metric of their own: values of different ranks never share a name."""

RUN_START_PATTERN: Final = r"sysbench v?\d+\.\d+\S*(?::\s| \()"
"""The banner, the first line of every run since 0.4; ``--version`` prints nothing after the number."""

PARAM_PATTERNS: Final[Patterns] = {
    "version": (r"sysbench v?(\d+\.\d+).*", str),
    "threads": (r"Number of threads: (\d{1,9})", int),
}
"""The parameters that the output of every test states."""

RATE_PATTERN: Final = (r"Target transaction rate: (\d{1,15})/sec", int)
"""The rate that a run was to keep, where it was given one."""

PERCENTILE: Final = Parameter(
    "percentile", "choice", "95", "rank of the latency percentile; 0 is none", choices=("0", *PERCENTILES)
)

SUMMARY_METRICS: Final = (
    Metric("total_time_s", "s", "lower", "run time; meaningful unless `time` ends the run"),
    Metric("total_events", "events", "higher", "events completed; meaningful if `time` ends the run"),
    Metric("latency_min_ms", "ms", "lower", "the fastest event"),
    Metric("latency_avg_ms", "ms", "lower", "the mean event"),
    Metric("latency_max_ms", "ms", "lower", "the slowest event"),
    *(Metric(f"latency_p{rank}_ms", "ms", "lower", f"{rank} % of events were faster") for rank in PERCENTILES),
    Metric("latency_sum_ms", "ms", "lower", "time of all events of all threads"),
    Metric("thread_events_avg", "events", "higher", "events completed by a thread, mean over threads"),
    Metric("thread_events_stddev", "events", "lower", "unfairness among threads: standard deviation of their events"),
    Metric("thread_time_avg_s", "s", "lower", "time in events of a thread, mean over threads"),
    Metric("thread_time_stddev_s", "s", "lower", "unfairness among threads: standard deviation of their time"),
)


def measures_fixed_by_end(params: Mapping[str, Scalar], amount: str = "events", rate_of: str = "") -> dict[str, str]:
    """Return the figures that the end of a run fixes: times if only `time` ends it, counts if only `amount` does.

    With a `rate` the metric `rate_of` is fixed as well, and so are counts.
    """
    if params.get("rate"):
        counts = dict.fromkeys(("total_events", "thread_events_avg", rate_of), "rate")
        return counts | measures_fixed_by_end({**params, "rate": 0}, amount)
    if params.get("time") and not params.get(amount):
        return dict.fromkeys(("job", "total_time_s", "latency_sum_ms", "thread_time_avg_s"), "time")
    if params.get(amount) and not params.get("time"):
        return dict.fromkeys(("total_events", "thread_events_avg"), amount)
    return {}


def summary_values(run: SysbenchLatencies) -> dict[str, float]:
    """Return the values of the `SUMMARY_METRICS` that the run has, by name.

    A run without totals has latencies only; the percentile is left out if it is switched off or its rank has no
    metric.
    """
    latencies = {
        "latency_min_ms": run.latency_min_ms,
        "latency_avg_ms": run.latency_avg_ms,
        "latency_max_ms": run.latency_max_ms,
        **_percentile(run),
        "latency_sum_ms": run.latency_sum_ms,
    }
    if not isinstance(run, SysbenchSummary):
        return latencies
    return {
        "total_time_s": run.total_time_s,
        "total_events": float(run.total_events),
        **latencies,
        "thread_events_avg": run.events_avg,
        "thread_events_stddev": run.events_stddev,
        "thread_time_avg_s": run.time_avg_s,
        "thread_time_stddev_s": run.time_stddev_s,
    }


def latest_report(text: str) -> str:
    """Return the last complete progress line in the output so far, or an empty string."""
    whole = text.rpartition("\n")[0]
    reports = _REPORT.findall(whole)
    return reports[-1].strip() if reports else ""


def whole_seconds(params: Mapping[str, Scalar], name: str) -> int:
    """Return a duration in whole seconds; raise `UsageError` for a fraction of a second."""
    value = float(str(params[name]))
    if not value.is_integer():
        raise UsageError(f"sysbench takes whole seconds: {name} cannot be {value:g} s; try {max(1, round(value))} s")
    return int(value)


def _percentile(run: SysbenchLatencies) -> dict[str, float]:
    if run.percentile is None:
        return {}
    rank, value = run.percentile
    return {f"latency_p{rank}_ms": value} if str(rank) in PERCENTILES else {}
