"""sysbench fileio: requests to a set of files, in order or at random, with fsync among them.

The files are made and removed by steps of their own, in the directory in which the job runs: the working directory of
the image, or under `native` a private one; for each job, or once for all jobs that run in the same container. Files
that fit the page cache measure the page cache; give `extra_flags: direct`, files larger than memory, or a memory
limit if the disk is meant.
"""

from __future__ import annotations

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
    read_run_of_files,
    summary_values,
    whole_seconds,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from bench_common.treatment import Scalar
    from bench_workloads.line_reader import Patterns

MODES: Final = ("seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw")
"""Sequential and random; read, write (sequential: create), rewrite, both."""

PREPARE_BYTES_PER_SECOND: Final = 64 * 2**20
"""What a slow disk writes, for the time that making the files may take."""

REMOVED_PER_SECOND: Final = 1000
"""How many files a slow disk forgets in a second, for the time that removing them may take."""

_COUNT: Final = r"(\d{1,18})"
_RATE: Final = r"(\d{1,15}[.,]\d\d)"
_SIZE: Final = r"(\d{1,15}(?:[.,]\d{1,15})?)([KMGT]?b)"
_FACTS: Final = {
    "mode": r"Doing (sequential (?:write \(creation\)|rewrite|read)|random (?:read|write|r/w)) test",
    # 0.4 and 0.5
    "performed": rf"Operations performed: +{_COUNT} [Rr]eads?, {_COUNT} [Ww]rites?, {_COUNT} Other = {_COUNT} Total",
    "sizes": rf"Read {_SIZE} +Written {_SIZE} +Total transferred {_SIZE} +\({_SIZE}/sec\)",
    "requests": rf"{_RATE} Requests/sec executed",
    # 1.0
    "heading": r"File operations:",
    "reads": rf"reads/s: +{_RATE}",
    "writes": rf"writes/s: +{_RATE}",
    "fsyncs": rf"fsyncs/s: +{_RATE}",
    "read_mib": rf"read, MiB/s: +{_RATE}",
    "written_mib": rf"written, MiB/s: +{_RATE}",
    # 1.0 and 1.1
    "throughput": r"Throughput:",
    # 1.1
    "read_line": rf"read: +IOPS={_RATE} {_RATE} MiB/s \({_RATE} MB/s\)",
    "write_line": rf"write: +IOPS={_RATE} {_RATE} MiB/s \({_RATE} MB/s\)",
    "fsync_line": rf"fsync: +IOPS={_RATE}",
}
_MODE_OF: Final = {
    "sequential write (creation)": "seqwr",
    "sequential rewrite": "seqrewr",
    "sequential read": "seqrd",
    "random read": "rndrd",
    "random write": "rndwr",
    "random r/w": "rndrw",
}
_IO_MODE_OF: Final = {
    "synchronous": "sync",
    "asynchronous": "async",
    "fast mmaped": "mmap",
    "slow mmaped": "mmap",
}
_EXTRA_FLAGS_OF: Final = {"0": "none", "(none)": "none", "directio": "direct", "sync": "sync", "dsync": "dsync"}
"""Other numbers mean other things in 0.4 and 0.5, and are left out."""
_PARAM_PATTERNS: Final[Patterns] = {
    **PARAM_PATTERNS,
    "mode": (r"Doing (.+) test", _MODE_OF.__getitem__),
    "file_num": (r"(\d{1,9}) files, \S+ each", int),
    "total_size": (r"(\S+) total file size", parse_tool_size),
    "block_size": (r"Block size (\S+)", parse_tool_size),
    "io_mode": (r"Using (.+) I/O mode", _IO_MODE_OF.__getitem__),
    "extra_flags": (r"Extra file open flags: (.*)", _EXTRA_FLAGS_OF.__getitem__),
    "fsync_freq": (r"Periodic FSYNC enabled, calling fsync\(\) each (\d{1,9}) requests\.", int),
    "rw_ratio": (r"Read/Write ratio for combined random IO test: (\d{1,9}[.,]\d{1,9})", number),
    "events": (r"Number of (?:random requests for random IO|IO requests): (\d{1,15})", int),
}
_PASSING: Final = (
    r"Extra file open flags: .*",
    r"\d+ files, \S+ each",
    r"\S+ total file size",
    r"Block size \S+",
    r"Merging requests up to \S+ for sequential IO\.",
    r"Number of (?:random requests for random IO|IO requests): \d+",
    r"Read/Write ratio for combined random IO test: \d+[.,]\d+",
    r"Periodic FSYNC enabled, calling fsync\(\) each \d+ requests\.",
    r"Calling fsync\(\) (?:at the end of test, Enabled|after each write operation)\.",
    r"Using (?:synchronous|asynchronous|fast mmaped|slow mmaped) I/O mode",
    r"Using checksums validation\.",
    r"\[ *\d+ ?s ?\] reads: .* writes: .* fsyncs: .*",
)
_COUNTS: Final = ("performed", "sizes", "requests")
_RATES: Final = ("heading", "reads", "writes", "fsyncs", "throughput", "read_mib", "written_mib")
_IOPS: Final = ("throughput", "read_line", "write_line", "fsync_line")
"""The lines of 0.4 and 0.5, of 1.0 and builds of 1.1, and of other builds of 1.1."""
_IN_MIB: Final = {"b": 2.0**-20, "Kb": 2.0**-10, "Mb": 1.0, "Gb": 2.0**10, "Tb": 2.0**20}
"""0.4 and 0.5 scale sizes by 1024 and write Mb for MiB."""
_NO_READS: Final = ("reads_per_second", "read_mib_per_second")
_NO_WRITES: Final = ("writes_per_second", "fsyncs_per_second", "written_mib_per_second")
_IDLE_IN: Final = {
    "sequential read": _NO_WRITES,
    "random read": _NO_WRITES,
    "sequential write (creation)": _NO_READS,
    "sequential rewrite": _NO_READS,
    "random write": _NO_READS,
}
"""The metrics that are 0 by nature in a test that only reads or only writes."""
_FIVE_DIGITS: Final = 2e-4
"""How far sizes printed with five digits, and rates made of them, may be from each other; relative."""


class SysbenchFileio(Workload):
    """The fileio test of sysbench."""

    name: ClassVar[str] = "sysbench-fileio"
    summary: ClassVar[str] = "file I/O: sequential or random requests with fsync (sysbench fileio)"
    image: ClassVar[str] = "weighbridge/sysbench"
    binary: ClassVar[str] = "sysbench"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("mode", "choice", "rndrw", "what is done, and in which order", choices=MODES),
        Parameter("threads", "int", 1, "threads that make requests side by side", minimum=1, maximum=65536),
        Parameter("file_num", "int", 128, "files", minimum=1, maximum=1_000_000),
        Parameter("total_size", "size", 2 * 2**30, "size of all files together", "B", minimum=4096),
        Parameter("block_size", "size", 16384, "size of one request", "B", minimum=1, maximum=2**30),
        Parameter(
            "extra_flags", "choice", "none", "flag to open files with", choices=("none", "sync", "dsync", "direct")
        ),
        Parameter("io_mode", "choice", "sync", "how requests are made", choices=("sync", "async", "mmap")),
        Parameter("fsync_freq", "int", 100, "fsync every so many requests; 0 is only at the end", minimum=0),
        Parameter("rw_ratio", "float", 1.5, "reads for each write, under rndrw", minimum=0),
        Parameter("time", "duration", 10.0, "run time, whole seconds; 0 is until `events` are done", "s", minimum=0),
        Parameter("events", "int", 0, "end after this many requests; 0 is without limit", minimum=0),
        Parameter("prepare", "choice", "each-job", "when the files are made", choices=("each-job", "once")),
        PERCENTILE,
    )
    primary_metrics: ClassVar[tuple[str, ...]] = ("mib_per_second", "reads_per_second", "writes_per_second")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("reads_per_second", "1/s", "higher", "read requests a second, all threads together"),
        Metric("writes_per_second", "1/s", "higher", "write requests a second, all threads together"),
        Metric("fsyncs_per_second", "1/s", "higher", "calls of fsync a second, all threads together"),
        Metric("read_mib_per_second", "MiB/s", "higher", "data read a second; MiB are 2**20 bytes"),
        Metric("written_mib_per_second", "MiB/s", "higher", "data written a second"),
        Metric("mib_per_second", "MiB/s", "higher", "data read and written a second, together"),
        *SUMMARY_METRICS,
    )
    run_start_pattern: ClassVar[str | None] = RUN_START_PATTERN
    tool_option_names: ClassVar[Mapping[str, str]] = {
        "num-threads": "threads",
        "max-time": "time",
        "max-requests": "events",
        "file-test-mode": "mode",
        "file-total-size": "total_size",
        "file-block-size": "block_size",
        "file-extra-flags": "extra_flags",
        "file-io-mode": "io_mode",
        "file-fsync-freq": "fsync_freq",
        "file-rw-ratio": "rw_ratio",
    }

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return preparation, run and clean-up; raise `UsageError` for what sysbench cannot do.

        Only the run is timed and parsed. The files are made without the extra flags, which would only slow it down.
        Files that are made once are not removed by a step: they go with their container.
        """
        time_s = whole_seconds(params, "time")
        if not time_s and not params["events"]:
            raise UsageError(f"{self.name}: time and events are both 0, so it would never end; give one of them")
        files, total, block = (int(str(params[name])) for name in ("file_num", "total_size", "block_size"))
        if total < files * block:
            raise UsageError(
                f"{self.name}: {format_size(total)} in {files} files leave less than one block of "
                f"{format_size(block)} in each; make total_size larger, or file_num or block_size smaller"
            )
        files_of = (
            self.binary,
            "fileio",
            f"--file-num={files}",
            f"--file-total-size={total}",
            f"--file-block-size={block}",
        )
        base = (*files_of, f"--file-test-mode={params['mode']}")
        run = (
            f"--file-io-mode={params['io_mode']}",
            *(() if params["extra_flags"] == "none" else (f"--file-extra-flags={params['extra_flags']}",)),
            f"--file-fsync-freq={params['fsync_freq']}",
            f"--file-rw-ratio={params['rw_ratio']:g}",
            f"--threads={params['threads']}",
            f"--time={time_s}",
            f"--events={params['events']}",
            f"--percentile={params['percentile']}",
        )
        making_s, removing_s = total / PREPARE_BYTES_PER_SECOND, files / REMOVED_PER_SECOND
        once = self.shares_container(params)
        # The same command for all modes, so that they share the files. Sequential writes make them anew.
        prepare = (*files_of, "--file-test-mode=rndrw") if once and params["mode"] != "seqwr" else base
        steps = (
            Step("prepare", (*prepare, "prepare"), timed=False, parse=False, once=once, expected_s=making_s),
            Step("run", (*base, *run, "run"), expected_s=float(time_s) or None),
            Step("cleanup", (*base, "cleanup"), timed=False, parse=False, expected_s=removing_s),
        )
        return steps[:-1] if once else steps

    def shares_container(self, params: Mapping[str, Scalar]) -> bool:
        """Return whether the files are made once, for all jobs that run in the container."""
        return params["prepare"] == "once"

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run by sysbench 0.4, 0.5, 1.0 or 1.1.

        0.4 and 0.5 print counts and sizes, the latter as b, Kb, Mb or Gb by 1024: rates are these over the total
        time. Builds of 1.1 without totals or fairness have no such metrics; nor are there rates that are 0 in any
        run of the mode, as that of reads where files are only written.
        """
        run, facts = read_run_of_files(text, test="fileio", facts=_FACTS, passing=_PASSING)
        wanted = _COUNTS if "performed" in facts else _IOPS if "read_line" in facts else _RATES
        missing = [name for name in ("mode", *wanted) if name not in facts]
        if missing:
            raise ParseError(
                f"lines are missing that sysbench fileio {run.version} prints ({', '.join(missing)}): this is "
                "another test of sysbench, or was altered"
            )
        foreign = [name for name in facts if name not in ("mode", *wanted)]
        if foreign:
            raise ParseError(f"sysbench fileio {run.version} prints no such line", text=facts[foreign[0]][0])
        if wanted is _COUNTS:
            if not isinstance(run, SysbenchSummary):
                raise ParseError("counts without a total time give no rates", text=facts["performed"][0])
            rates = _old_rates(run, facts)
        else:
            rates = _rates(facts)
        together = {"mib_per_second": rates["read_mib_per_second"] + rates["written_mib_per_second"]}
        return _of_mode(rates, facts["mode"]) | together | summary_values(run)

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return version, threads, mode, files and requests; the ratio only where reads and writes are mixed."""
        stated = parse_stated_params(text, _PARAM_PATTERNS)
        if stated.get("mode") != "rndrw":
            stated.pop("rw_ratio", None)
        if "io_mode" in stated:
            stated.setdefault("fsync_freq", 0)
        return stated

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return what the end of the run fixes."""
        return measures_fixed_by_end(params)

    def disk_bytes(self, params: Mapping[str, Scalar]) -> int:
        """Return the size of the files."""
        return int(str(params["total_size"]))

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the time limit and what making the files takes; None where only `events` ends the run."""
        time_s = float(str(params["time"]))
        if self.shares_container(params):
            return time_s or None
        return time_s + int(str(params["total_size"])) / PREPARE_BYTES_PER_SECOND if time_s else None


def _of_mode(rates: dict[str, float], mode: re.Match[str]) -> dict[str, float]:
    """Return the rates of what the mode does; raise `ParseError` where others are not 0."""
    idle = _IDLE_IN.get(mode[1], ())
    for name in idle:
        if rates[name]:
            raise ParseError(f"{name} is {rates[name]:g}, which this test does not do", text=mode[0])
    return {name: value for name, value in rates.items() if name not in idle}


def _rates(facts: Mapping[str, re.Match[str]]) -> dict[str, float]:
    """Return the rates as 1.0 and 1.1 print them."""
    if "read_line" in facts:
        reads, read_mib = (number(facts["read_line"][group]) for group in (1, 2))
        writes, written_mib = (number(facts["write_line"][group]) for group in (1, 2))
        fsyncs = number(facts["fsync_line"][1])
    else:
        names = ("reads", "writes", "fsyncs", "read_mib", "written_mib")
        reads, writes, fsyncs, read_mib, written_mib = (number(facts[name][1]) for name in names)
    if not reads and not writes:
        raise ParseError("no request was completed, so there is nothing to measure")
    return {
        "reads_per_second": reads,
        "writes_per_second": writes,
        "fsyncs_per_second": fsyncs,
        "read_mib_per_second": read_mib,
        "written_mib_per_second": written_mib,
    }


def _old_rates(run: SysbenchSummary, facts: Mapping[str, re.Match[str]]) -> dict[str, float]:
    """Return the rates that follow from the counts and sizes of 0.4 and 0.5."""
    reads, writes, other, total = (int(facts["performed"][group]) for group in (1, 2, 3, 4))
    if reads + writes + other != total:
        raise ParseError("the operations do not make their total", text=facts["performed"][0])
    if not reads and not writes:
        raise ParseError("no request was completed, so there is nothing to measure", text=facts["performed"][0])
    if not run.total_time_s:
        raise ParseError("the run was too short for the total time that is printed, so it has no rate")
    line = facts["sizes"]
    read_mib, written_mib, all_mib, mib_per_s = (
        number(line[group]) * _IN_MIB[line[group + 1]] for group in (1, 3, 5, 7)
    )
    # The table states the time with four decimals only, which short runs feel.
    slack = _FIVE_DIGITS + 1e-4 / run.total_time_s
    if abs(read_mib + written_mib - all_mib) > _FIVE_DIGITS * all_mib:
        raise ParseError("the sizes read and written do not make the total", text=line[0])
    if abs(all_mib / run.total_time_s - mib_per_s) > slack * mib_per_s:
        raise ParseError(f"{all_mib:g} MiB in {run.total_time_s:g} s are not {mib_per_s:g} MiB/s", text=line[0])
    return {
        "reads_per_second": reads / run.total_time_s,
        "writes_per_second": writes / run.total_time_s,
        "fsyncs_per_second": other / run.total_time_s,
        "read_mib_per_second": read_mib / run.total_time_s,
        "written_mib_per_second": written_mib / run.total_time_s,
    }
