"""sysbench memory: how fast threads read or write one buffer, over and over, a block at a time.

With blocks that fit a cache it measures the cache, the loop and the overhead of each event; only blocks larger than
the last-level cache measure memory. 1.0 costs far less an event than 0.4 and 0.5, which take a lock for each, so that
small blocks are not comparable across these versions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import ParseError, UsageError
from bench_common.units import format_size
from bench_workloads.base import Metric, Parameter, Step, Workload
from bench_workloads.line_reader import parse_stated_params, parse_tool_size
from bench_workloads.sysbench import (
    PARAM_PATTERNS,
    PERCENTILE,
    RUN_START_PATTERN,
    SUMMARY_METRICS,
    SysbenchSummary,
    measures_fixed_by_end,
    number,
    read_run,
    summary_values,
    whole_seconds,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from bench_common.treatment import Scalar
    from bench_workloads.line_reader import Patterns

MIB: Final = 2**20

_FACTS: Final = {
    "test": r"Doing memory operations speed test|Running memory speed test with the following options:",
    "block": r"(?:Memory block size|block size): (\d{1,12})(?:K|KiB)",
    "size": r"(?:Memory transfer size|total size): (\d{1,12})(?:M|MiB)",
    "operation": r"(?:Memory operations type|operation): (read|write|none)",
    "scope": r"(?:Memory scope type|scope): (global|local)",
    "operations": (
        r"(?:Total operations|Operations performed): (\d{1,18}) \( *(\d{1,15}[.,]\d\d) (?:per second|ops/sec)\)"
    ),
    "transferred": r"(\d{1,15}[.,]\d\d) (MiB|MB) transferred \((\d{1,15}[.,]\d\d) (MiB|MB)/sec\)",
}
_PARAM_PATTERNS: Final[Patterns] = {
    **PARAM_PATTERNS,
    "operation": (_FACTS["operation"], str),
    "scope": (_FACTS["scope"], str),
    "block_size": (r"(?:Memory block size|block size): (\S+)", parse_tool_size),
    "total_size": (r"(?:Memory transfer size|total size): (\S+)", parse_tool_size),
}
_PASSING: Final = (r"\[ *\d+ ?s ?\] \d+[.,]\d\d (?:MiB|MB)/sec,?",)
_ROUNDED_MIB: Final = 0.0051
"""How far two decimals may be from the number that was printed with them."""
_WORD: Final = 4
"""Every version refuses blocks that are no multiple of this many bytes."""


class SysbenchMemory(Workload):
    """The memory test of sysbench."""

    name: ClassVar[str] = "sysbench-memory"
    summary: ClassVar[str] = "memory speed: one buffer read or written block by block (sysbench memory)"
    image: ClassVar[str] = "weighbridge/sysbench"
    binary: ClassVar[str] = "sysbench"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("threads", "int", 1, "threads that transfer side by side", minimum=1, maximum=65536),
        Parameter("operation", "choice", "write", "what is done with the buffer", choices=("read", "write")),
        Parameter("access", "choice", "seq", "order: word after word, or at random", choices=("seq", "rnd")),
        Parameter(
            "scope", "choice", "global", "one buffer for all threads, or one for each", choices=("global", "local")
        ),
        Parameter("block_size", "size", 1024, "size of the buffer, a power of two; one pass is one event", "B", 8),
        Parameter("total_size", "size", 100 * 2**30, "end when this much was transferred", "B", minimum=8),
        Parameter("time", "duration", 10.0, "run time at most, whole seconds; 0 is no limit", "s", minimum=0),
        PERCENTILE,
    )
    primary_metrics: ClassVar[tuple[str, ...]] = ("operations_per_second", "mib_per_second")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("operations_per_second", "1/s", "higher", "blocks transferred a second, all threads together"),
        Metric("mib_per_second", "MiB/s", "higher", "transfer rate, all threads together; MiB are 2**20 bytes"),
        Metric("transferred_mib", "MiB", "higher", "data transferred; meaningful if `time` ends the run"),
        *SUMMARY_METRICS,
    )
    run_start_pattern: ClassVar[str | None] = RUN_START_PATTERN
    tool_option_names: ClassVar[Mapping[str, str]] = {
        "num-threads": "threads",
        "max-time": "time",
        "memory-oper": "operation",
        "memory-access-mode": "access",
        "memory-scope": "scope",
        "memory-block-size": "block_size",
        "memory-total-size": "total_size",
    }

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the one command; raise `UsageError` where parameters ask for what sysbench cannot do."""
        time_s = whole_seconds(params, "time")
        block, total = int(str(params["block_size"])), int(str(params["total_size"]))
        if block & (block - 1):
            nearest = format_size(1 << (block.bit_length() - 1))
            raise UsageError(f"{self.name}: block_size must be a power of two, such as {nearest}")
        if total < block:
            raise UsageError(f"{self.name}: total_size {format_size(total)} is less than one block")
        argv = (
            self.binary,
            "memory",
            f"--memory-oper={params['operation']}",
            f"--memory-access-mode={params['access']}",
            f"--memory-scope={params['scope']}",
            f"--memory-block-size={block}",
            f"--memory-total-size={total}",
            f"--threads={params['threads']}",
            f"--time={time_s}",
            f"--percentile={params['percentile']}",
            "run",
        )
        return (Step("run", argv),)

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run by sysbench 0.4, 0.5, 1.0 or 1.1.

        0.4 and 0.5 write MB where 1.0 writes MiB, and both mean 2**20 bytes. The amount must follow from the number
        of operations and the block's size, or the text is refused. 0.5 does not print the block's size.
        """
        run, facts = read_run(text, test="memory", facts=_FACTS, passing=_PASSING)
        if "operations" not in facts:
            raise ParseError("no 'Total operations' are stated, which sysbench memory prints")
        if "operation" in facts and facts["operation"][1] == "none":
            raise ParseError("run with --memory-oper=none, which transfers nothing", text=facts["operation"][0])
        if "transferred" not in facts:
            raise ParseError("no 'MiB transferred' is stated, which every test of memory but 'none' prints")
        if run.version.startswith("1.") and not {"test", "block", "size", "operation", "scope"} <= set(facts):
            raise ParseError("one of the lines with the test's options is missing, which sysbench 1.0 prints")
        _check(run, facts)
        return {
            "operations_per_second": number(facts["operations"][2]),
            "mib_per_second": number(facts["transferred"][3]),
            "transferred_mib": number(facts["transferred"][1]),
            **summary_values(run),
        }

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return version, threads, block, amount and what is done; 0.5 says no more than the first two."""
        return parse_stated_params(text, _PARAM_PATTERNS)

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return what the end of the run fixes."""
        return measures_fixed_by_end(params, "total_size") | (
            {} if params["time"] else {"transferred_mib": "total_size"}
        )

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the time limit; None where only the amount of data ends the run."""
        return float(str(params["time"])) or None


def _check(run: SysbenchSummary, facts: Mapping[str, re.Match[str]]) -> None:
    """Refuse amounts in a unit that the version does not print, or that contradict the number of operations."""
    line = facts["transferred"][0]
    amount, speed = facts["transferred"][2], facts["transferred"][4]
    # Old builds call 2**20 bytes MB; none counts in units of 10**6.
    if amount != speed or amount not in {"MB", "MiB"}:
        raise ParseError(f"sysbench counts in MiB, or MB in old builds, not in {amount} and {speed}", text=line)
    operations = int(facts["operations"][1])
    if abs(operations - run.total_events) > run.threads:
        raise ParseError(f"{operations} operations are not {run.total_events} events", text=facts["operations"][0])
    transferred = number(facts["transferred"][1])
    least = max(transferred - _ROUNDED_MIB, 0) * MIB / operations
    most = (transferred + _ROUNDED_MIB) * MIB / operations
    fits = math.floor(most / _WORD) * _WORD >= least
    if fits and "block" in facts:
        printed = int(facts["block"][1]) * 1024
        fits = most >= printed and least < printed + 1024
    if not fits:
        raise ParseError(f"{operations} operations on whole blocks do not transfer {transferred:g} MiB", text=line)
    rate, operations_rate = number(facts["transferred"][3]), number(facts["operations"][2])
    expected = operations_rate * transferred / operations
    if abs(rate - expected) > 0.001 * expected + 2 * _ROUNDED_MIB + _ROUNDED_MIB * operations_rate / operations:
        raise ParseError(f"{operations_rate:g} operations/s are not {rate:g} MiB/s here", text=line)
