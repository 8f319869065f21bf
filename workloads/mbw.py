"""mbw: how fast one thread copies one array in memory to another, by three methods; or several mbw in parallel.

Arrays that fit into the last-level cache measure the cache; mbw allocates two, so mind the memory limit and swap.

Versions up to 1.2.2, which Debian ships to bookworm, have two faults (`mbw_output` detects the version). They swap
the labels MEMCPY and DUMB, which the parser undoes. Their MCBLOCK copies the same block again and again and so
measures the cache: it has its own metric, never compared with that of later versions.

The study vm-docker-bench ran one mbw for each CPU. Sums over different numbers of processes cannot be compared, so
every sum comes with the number of processes and the mean of one.
"""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import ParseError, UsageError
from bench_common.units import format_size
from bench_workloads.base import Metric, Parameter, Step, Workload
from bench_workloads.line_reader import parse_stated_params, read_lines
from bench_workloads.mbw_output import (
    OLD_HELP,
    PROCESS,
    STARTING,
    VERSION_BEGINS,
    WAITING,
    Averages,
    Labels,
    MethodRates,
    read_averages,
    read_output,
    run_starts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench_common.treatment import Scalar
    from bench_workloads.line_reader import Patterns

PROCESSES_SCRIPT: Final = (
    "mbw -h; n=$1; shift; "
    '[ "$n" -gt 0 ] || n=$(nproc) || exit; '
    "d=$(mktemp -d) || exit; trap 'rm -r \"$d\"' EXIT; "
    'i=1; while [ "$i" -le "$n" ]; do mbw "$@" >"$d/$i" 2>&1 & i=$((i+1)); done; wait; '
    'i=1; while [ "$i" -le "$n" ]; do echo "process $i of $n"; cat "$d/$i"; i=$((i+1)); done'
)
"""Prints the help, starts N mbw in parallel (0: one for each usable CPU), then prints the output of each.

The script is fixed; the number and the parameters are arguments.
"""

_SUM: Final = re.compile(r"(MEMCPY|DUMB|MCBLOCK) Total AVG: (\d{1,12}(?:\.\d{1,6})?) MiB/s", re.ASCII)


def total_name(name: str) -> str:
    """Return the name of the sum of a rate over all processes."""
    return name.replace("_mib_per_second", "_total_mib_per_second")


def read_processes(text: str, read: Callable[[str], dict[str, float]]) -> dict[str, float] | None:
    """Return the metrics of several mbw in parallel; None if the text is of one. `read` is the parser of one.

    Raises `ParseError` if one of them failed, is missing or measured other things than the others.
    """
    lines = text.split("\n")
    places = [(at, match) for at, line in enumerate(lines) if (match := PROCESS.fullmatch(line.strip()))]
    if not places:
        return _read_sums([line.strip() for line in lines])
    count = int(places[0][1][2])
    found = [(int(match[1]), int(match[2])) for _, match in places]
    if found != [(number, count) for number in range(1, count + 1)]:
        raise ParseError(
            "processes are missing, or there are two runs", line=places[-1][0] + 1, text=lines[places[-1][0]]
        )
    starts = [at for at, _ in places]
    helping = lines[: starts[0]]
    metrics = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        # Blank lines in place of the others keep the line numbers of the whole text.
        blank = [""] * (start + 1 - len(helping))
        metrics.append(read("\n".join([*helping, *blank, *lines[start + 1 : end]])))
    if any(set(one) != set(metrics[0]) for one in metrics):
        raise ParseError("the processes have different metrics")
    return _combine_processes(metrics)


def _combine_processes(metrics: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each rate over the processes, the extremes, and the sums."""
    count = len(metrics)
    merged: dict[str, float] = {"processes": float(count)}
    for name in metrics[0]:
        values = [one[name] for one in metrics]
        if "_min_" in name:
            merged[name] = min(values)
        elif "_max_" in name:
            merged[name] = max(values)
        elif "_median_" not in name:
            merged[name] = sum(values) / count
            merged[total_name(name)] = sum(values)
    return merged


def _read_sums(lines: list[str]) -> dict[str, float] | None:
    """Return the metrics in the output of the study's own script: sums of averages, by label as printed."""
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line]
    cores = STARTING.fullmatch(numbered[0][1]) if numbered else None
    if cores is None:
        return None
    count = int(cores[1])
    metrics: dict[str, float] = {"processes": float(count)}
    for (number, line), expected in zip(numbered[1:], (WAITING, "MEMCPY", "DUMB", "MCBLOCK"), strict=False):
        match = _SUM.fullmatch(line)
        if line == expected == WAITING:
            continue
        if match is None or match[1] != expected or not count:
            raise ParseError(f"expected '{expected} ...'", line=number, text=line)
        name = f"labelled_{expected.lower()}_mib_per_second"
        metrics |= {name: float(match[2]) / count, total_name(name): float(match[2])}
    if len(numbered) != 5:  # noqa: PLR2004  the lines of one run
        at = min(5, len(numbered) - 1)
        raise ParseError("this is not one run of the study's script", line=numbered[at][0], text=numbered[at][1])
    return metrics


MIB: Final = 2**20

SCRIPT: Final = 'mbw -h; exec mbw "$@"'
"""Prints the help, the only output with mbw's version (it exits with 1), then runs.

The script is fixed; the parameters are arguments.
"""

SLOW_MEMORIES: Final = 4
"""Assumed slowdown of one mbw for each CPU against one alone: hosts with more CPUs have more memory bandwidth."""

SLOW_BYTES_PER_SECOND: Final = 2**30
"""The rate of a slow machine, for the estimated run time."""

_TESTS: Final = {"all": (), "copy": ("-t0", "-t1"), "mcblock": ("-t2",)}
"""Arguments for each value of `methods`. Which of ``-t0`` and ``-t1`` is memcpy depends on the version."""

_KINDS: Final = {
    "memcpy": "memcpy of the whole array",
    "dumb": "a plain loop, a word at a time",
    "mcblock": "memcpy a block at a time",
    "mcblock_hot": "memcpy of the same block again and again (mbw up to 1.2.2): its source stays in the cache",
    "labelled_memcpy": "printed as MEMCPY by an unknown version: memcpy, or the loop up to 1.2.2",
    "labelled_dumb": "printed as DUMB by an unknown version: the loop, or memcpy up to 1.2.2",
    "labelled_mcblock": "printed as MCBLOCK by an unknown version: from memory, or the cache up to 1.2.2",
}

_SUMMARIES: Final = {
    "": "all data over all time, by one process",
    "_total": "the sum over `processes`",
    "_min": "the slowest run",
    "_median": "the median run",
    "_max": "the fastest run",
}

_KIND_OF: Final[dict[Labels, dict[str, str]]] = {
    "right": {"MEMCPY": "memcpy", "DUMB": "dumb", "MCBLOCK": "mcblock"},
    "swapped": {"MEMCPY": "dumb", "DUMB": "memcpy", "MCBLOCK": "mcblock_hot"},
    "unknown": {"MEMCPY": "labelled_memcpy", "DUMB": "labelled_dumb", "MCBLOCK": "labelled_mcblock"},
}


_PARAM_PATTERNS: Final[Patterns] = {
    "version": (r"mbw memory benchmark v(\d{1,4}\.\d{1,4})\b.*", str),
    "array_size": (
        r"(?:\d{1,9}|AVG)[\t ]+Method: .*[\t ]MiB: (\d{1,9}\.0+)[\t ].*",
        lambda text: int(float(text)) * MIB,
    ),
    "runs": (r"Getting down to business\.\.\. Doing (\d{1,9}) runs per test\.", int),
    "block_size": (r"Using (\d{1,18}) bytes as blocks for memcpy block copy test\.", int),
    "processes": (r"(?:process 1 of|Starting test on) (\d{1,5})(?: cores)?", int),
}


class Mbw(Workload):
    """The memory bandwidth benchmark mbw."""

    name: ClassVar[str] = "mbw"
    summary: ClassVar[str] = "memory bandwidth: one array copied to another (mbw)"
    image: ClassVar[str] = "weighbridge/mbw"
    binary: ClassVar[str] = "mbw"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("array_size", "size", 256 * MIB, "size of each of two arrays, whole MiB", "B", minimum=MIB),
        Parameter("runs", "int", 10, "copies of the array by each method", minimum=1, maximum=2000),
        Parameter(
            "methods",
            "choice",
            "all",
            "which methods: copy is memcpy and the plain loop, mcblock is memcpy by blocks",
            choices=tuple(_TESTS),
        ),
        Parameter("block_size", "size", 256 * 1024, "block of mcblock", "B", minimum=1),
        Parameter(
            "processes",
            "int",
            1,
            "mbw in parallel; 0 is one for each usable CPU",
            minimum=0,
            maximum=4096,
        ),
    )
    run_line_pattern: ClassVar[str | None] = r"(?:\d{1,9}|AVG)[\t ]+M"
    primary_metrics: ClassVar[tuple[str, ...]] = tuple(f"{kind}_mib_per_second" for kind in _KINDS)
    metrics: ClassVar[tuple[Metric, ...]] = (
        *(
            Metric(f"{kind}{suffix}_mib_per_second", "MiB/s", "higher", f"{help_text}; {what}")
            for kind, help_text in _KINDS.items()
            for suffix, what in _SUMMARIES.items()
        ),
        Metric("processes", "1", "higher", "mbw processes that ran in parallel"),
    )

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the command; raise `UsageError` for parameters that mbw does not support."""
        array, block = int(str(params["array_size"])), int(str(params["block_size"]))
        if array % MIB:
            raise UsageError(f"mbw takes whole MiB: array_size cannot be {format_size(array)}")
        if block > array:
            raise UsageError(f"mbw: block_size {format_size(block)} is larger than array_size {format_size(array)}")
        tests = _TESTS[str(params["methods"])]
        argv = (*tests, "-b", str(block), "-n", str(params["runs"]), str(array // MIB))
        if params["processes"] == 1:
            return (Step("run", ("sh", "-c", SCRIPT, "mbw", *argv)),)
        return (Step("run", ("sh", "-c", PROCESSES_SCRIPT, "mbw", str(params["processes"]), *argv)),)

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return the number of processes."""
        del params
        return {"processes": "processes"}

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run by mbw 1.x or 2.x.

        After the help of ``mbw -h``, which this workload's own runs print, swapped labels are corrected. Without it
        the version is unknown, so the metrics are named as labelled. For several mbw in parallel each rate is the
        mean of one, with the sum and the number of processes.
        """
        averages = read_averages(text)
        if averages is not None:
            return _values_of_averages(averages)
        together = read_processes(text, self.parse)
        return self._parse_one(text) if together is None else together

    @staticmethod
    def _parse_one(text: str) -> dict[str, float]:
        output = read_output(text)
        kinds = _KIND_OF[output.labels]
        return {name: value for label, table in output.tables.items() for name, value in _values(kinds[label], table)}

    def run_starts(self, lines: Sequence[str]) -> list[int]:
        """Return the indexes of the lines that begin a run: the help or the first row."""
        return run_starts(lines)

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return what the run states of arrays, blocks and copies, the version, and how many processes there were."""
        stated = parse_stated_params(text, _PARAM_PATTERNS)
        lines = [line.text for line in read_lines(text)]
        if OLD_HELP in lines and not any(line.startswith(VERSION_BEGINS) for line in lines):
            stated["version"] = "1.2.2 or older"
        if "processes" not in stated:
            averages = _averages_or_none(text)
            if averages is not None and len(averages.rates["MEMCPY"]) > 1:
                stated["processes"] = len(averages.rates["MEMCPY"])
        return stated

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the time of a slow machine for all copies, and for filling the arrays."""
        copies = int(str(params["runs"])) * 3 + 2
        # All processes share one memory; only the host knows the number of its CPUs.
        at_once = int(str(params["processes"])) or SLOW_MEMORIES
        return 1.0 + at_once * copies * int(str(params["array_size"])) / SLOW_BYTES_PER_SECOND


def _values_of_averages(averages: Averages) -> dict[str, float]:
    """Return the mean of one process by method; with several, also their number and the sums."""
    kinds = _KIND_OF[averages.labels]
    each = [
        {f"{kinds[label]}_mib_per_second": rate for label, rate in zip(averages.rates, rates, strict=True)}
        for rates in zip(*averages.rates.values(), strict=True)
    ]
    return each[0] if len(each) == 1 else _combine_processes(each)


def _averages_or_none(text: str) -> Averages | None:
    try:
        return read_averages(text)
    except ParseError:
        return None


def _values(kind: str, table: MethodRates) -> tuple[tuple[str, float], ...]:
    return (
        (f"{kind}_mib_per_second", table.average),
        (f"{kind}_min_mib_per_second", min(table.runs)),
        (f"{kind}_median_mib_per_second", median(table.runs)),
        (f"{kind}_max_mib_per_second", max(table.runs)),
    )
