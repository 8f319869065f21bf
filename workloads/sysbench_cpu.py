"""sysbench cpu: how often a second every number up to a limit can be tested for being prime by trial division.

It touches neither memory beyond the caches nor the kernel, so it shows what a CPU limit, a steal of the hypervisor
or a frequency change takes away, and little else. Runs of 0.4 end after 10,000 events by default and runs of 1.0
after 10 seconds: compare rates, not totals, and never across these versions, whose events differ in work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import ParseError, UsageError
from bench_workloads.base import Metric, Parameter, Step, Workload
from bench_workloads.line_reader import parse_stated_params
from bench_workloads.sysbench import (
    PARAM_PATTERNS,
    PERCENTILE,
    RATE_PATTERN,
    RUN_START_PATTERN,
    SUMMARY_METRICS,
    latest_report,
    measures_fixed_by_end,
    number,
    read_run,
    summary_values,
    whole_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Scalar

EVENTS_PER_SECOND: Final = 400
"""What a CPU does of a limit of 20000, for estimates; published runs have 280 to 380."""

_FACTS: Final = {
    "test": r"Doing CPU performance benchmark",
    "limit": r"(?:Maximum prime number checked in CPU test|Primer? numbers limit): (\d{1,18})",
    "heading": r"CPU speed:",
    "rate": r"events per second: +(\d{1,15}[.,]\d\d)",
}


class SysbenchCpu(Workload):
    """The cpu test of sysbench."""

    name: ClassVar[str] = "sysbench-cpu"
    summary: ClassVar[str] = "CPU speed: prime numbers by trial division (sysbench cpu)"
    image: ClassVar[str] = "weighbridge/sysbench"
    binary: ClassVar[str] = "sysbench"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("threads", "int", 1, "threads that test numbers side by side", minimum=1, maximum=65536),
        Parameter("cpu_max_prime", "int", 10000, "the limit up to which one event looks for primes", minimum=3),
        Parameter("time", "duration", 10.0, "run time, whole seconds; 0 is until `events` are done", "s", minimum=0),
        Parameter("events", "int", 0, "end after this many events; 0 is without limit", minimum=0),
        Parameter("rate", "int", 0, "events a second to start at most; 0 is as fast as it goes", "1/s", minimum=0),
        PERCENTILE,
        Parameter(
            "report_interval", "duration", 0.0, "whole seconds between progress lines; 0 is none", "s", minimum=0
        ),
    )
    primary_metrics: ClassVar[tuple[str, ...]] = ("events_per_second", "latency_avg_ms")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("events_per_second", "1/s", "higher", "events completed a second, all threads together"),
        *SUMMARY_METRICS,
    )
    run_start_pattern: ClassVar[str | None] = RUN_START_PATTERN
    tool_option_names: ClassVar[Mapping[str, str]] = {
        "num-threads": "threads",
        "max-time": "time",
        "max-requests": "events",
        "tx-rate": "rate",
    }

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the one command; raise `UsageError` where parameters ask for what sysbench cannot do."""
        time_s = whole_seconds(params, "time")
        interval_s = whole_seconds(params, "report_interval")
        if not time_s and not params["events"]:
            raise UsageError(f"{self.name}: time and events are both 0, so it would never end; give one of them")
        argv = [
            self.binary,
            "cpu",
            f"--cpu-max-prime={params['cpu_max_prime']}",
            f"--threads={params['threads']}",
            f"--time={time_s}",
            f"--events={params['events']}",
            f"--percentile={params['percentile']}",
        ]
        if params["rate"]:
            argv.append(f"--rate={params['rate']}")
        if interval_s:
            argv.append(f"--report-interval={interval_s}")
        return (Step("run", (*argv, "run")),)

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run by sysbench 0.4, 0.5, 1.0 or 1.1.

        Before 1.0, and in its first releases, sysbench printed no rate; there ``events_per_second`` is its total
        number of events over its total time, and ``latency_sum_ms`` its total time taken by event execution. 1.0
        takes the rate over a slightly different time than the total that it prints, so its own figure is used. The
        percentile is left out where it was switched off.
        """
        run, facts = read_run(text, test="cpu", facts=_FACTS)
        if "limit" not in facts:
            raise ParseError("no limit of prime numbers is stated, which sysbench cpu prints")
        if ("heading" in facts) != ("rate" in facts):
            raise ParseError("'CPU speed:' and 'events per second' are printed together, and one of them is missing")
        if "rate" not in facts and not run.total_time_s:
            raise ParseError("the run was too short for the total time that is printed, so it has no rate")
        rate = number(facts["rate"][1]) if "rate" in facts else run.total_events / run.total_time_s
        return {"events_per_second": rate, **summary_values(run)}

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return version, threads, limit and, where one was given, the rate."""
        own = {"cpu_max_prime": (_FACTS["limit"], int), "rate": RATE_PATTERN}
        return parse_stated_params(text, {**PARAM_PATTERNS, **own})

    def progress(self, text: str) -> str:
        """Return the latest line of `report_interval`."""
        return latest_report(text)

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return what the end of the run and its rate fix."""
        return measures_fixed_by_end(params, rate_of="events_per_second")

    def usual_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the time of the events; the work of one grows with its limit to the power of 1.5."""
        work = int(str(params["events"])) * (int(str(params["cpu_max_prime"])) / 20_000) ** 1.5
        return work / (EVENTS_PER_SECOND * int(str(params["threads"]))) or None

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the time limit; None where only the number of events ends the run."""
        return float(str(params["time"])) or None
