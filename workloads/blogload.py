"""blogload: our own load of writers, rewriters, commenters and readers on one directory of blogs.

It resembles blogbench, which is not available everywhere, but its figures are rates of its own: never compare them
with blogbench's scores. The interpreter of the host or the image gets the text of `blogload_program`, so that both
run the same.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import UsageError
from bench_common.long_output import OUTPUT_GAP
from bench_workloads.base import Metric, Parameter, Step, Workload
from bench_workloads.line_reader import LineReader, parse_stated_params, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Scalar
    from bench_workloads.line_reader import Patterns

MIB: Final = 2**20
START_S: Final = 5.0
"""Time to start the processes and to remove the files (s)."""

_COUNTERS: Final = ("blogs", "articles", "pictures", "rewrites", "comments", "reads", "written_bytes", "read_bytes")
_RUN_START: Final = re.compile(
    r"blogload (\d{1,9}): \d{1,9} writers, \d{1,9} rewriters, \d{1,9} commenters, \d{1,9} readers; "
    r"seed \d{1,18}, fsync (?:on|off)"
)
_KNOWN: Final = "1"
_PROGRESS: Final = re.compile(r"\[\d{1,9}\.\ds\]" + "".join(rf" {name}=\d{{1,18}}" for name in _COUNTERS))
_TOTAL: Final = re.compile(r"total time: (\d{1,9}\.\d{4})s")


@cache
def program() -> str:
    """Return the text of the program."""
    return (files("bench_workloads") / "blogload_program.py").read_text(encoding="utf-8")


_PARAM_PATTERNS: Final[Patterns] = {
    **{
        role: (rf"blogload \d+: (?:.*, )?(\d{{1,9}}) {role}[,;].*", int)
        for role in ("writers", "rewriters", "commenters", "readers")
    },
    "seed": (r"blogload .*; seed (\d{1,18}), .*", int),
    "fsync": (r"blogload .*, fsync (on|off)", lambda word: word == "on"),
}


class Blogload(Workload):
    """Our own load on a directory of blogs."""

    name: ClassVar[str] = "blogload"
    summary: ClassVar[str] = "a busy directory of blogs, by processes of our own (no blogbench: own figures)"
    image: ClassVar[str] = "weighbridge/blogload"
    binary: ClassVar[str] = "python3"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("writers", "int", 3, "processes that write new blogs", minimum=1, maximum=1000),
        Parameter("rewriters", "int", 1, "processes that replace articles and pictures", minimum=0, maximum=1000),
        Parameter("commenters", "int", 5, "processes that add comments", minimum=0, maximum=1000),
        Parameter("readers", "int", 10, "processes that read whole files", minimum=0, maximum=1000),
        Parameter("time", "duration", 10.0, "run time", "s", minimum=0.1, maximum=86400),
        Parameter(
            "total_size",
            "size",
            2**30,
            "articles and pictures, about; then old ones make way",
            "B",
            minimum=MIB,
        ),
        Parameter("fsync", "bool", False, "fsync every file before it appears"),
        Parameter("seed", "int", 1, "fixes what each process draws", minimum=0, maximum=2**53),
        Parameter("report_interval", "duration", 0.0, "time between progress lines; 0 is none", "s", minimum=0),
    )
    primary_metrics: ClassVar[tuple[str, ...]] = ("blogs_per_second", "reads_per_second")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("blogs_per_second", "1/s", "higher", "blogs completed a second, all writers together"),
        Metric("files_written_per_second", "1/s", "higher", "articles and pictures of new blogs a second"),
        Metric("rewrites_per_second", "1/s", "higher", "articles and pictures replaced a second"),
        Metric("comments_per_second", "1/s", "higher", "comments added a second"),
        Metric("reads_per_second", "1/s", "higher", "files read from end to end a second"),
        Metric("written_mib_per_second", "MiB/s", "higher", "data written a second; MiB are 2**20 bytes"),
        Metric("read_mib_per_second", "MiB/s", "higher", "data read a second"),
        Metric("total_time_s", "s", "lower", "run time, as requested"),
    )
    run_start_pattern: ClassVar[str | None] = r"blogload \d+: "

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the one command; raise `UsageError` for so short a time that there is no interval in it."""
        time_s, interval_s = float(str(params["time"])), float(str(params["report_interval"]))
        if interval_s > time_s:
            raise UsageError(f"{self.name}: report_interval {interval_s:g} s is longer than time {time_s:g} s")
        argv = (
            *(f"--{role}={params[role]}" for role in ("writers", "rewriters", "commenters", "readers")),
            f"--time={time_s:g}",
            f"--interval={interval_s:g}",
            f"--total-size={params['total_size']}",
            f"--seed={params['seed']}",
            *(("--fsync",) if params["fsync"] else ()),
        )
        return (Step("run", (self.binary, "-c", program(), *argv)),)

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return the run time."""
        del params
        return {"job": "time", "total_time_s": "time"}

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run."""
        lines = LineReader("blogload", read_lines(text))
        lines.end_reason = "the run was killed or failed"
        start = lines.expect(_RUN_START, f"'blogload {_KNOWN}: ...'")
        if start[1] != _KNOWN:
            lines.fail(f"blogload {start[1]} is not supported; supported is {_KNOWN}", lines.previous)
        lines.skip((_PROGRESS, re.escape(OUTPUT_GAP)))
        total = lines.expect(_TOTAL, "'total time: ...'")
        where = lines.previous
        counts = {name: int(lines.expect(rf"{name}: (\d{{1,18}})", f"'{name}: ...'")[1]) for name in _COUNTERS}
        lines.expect("done", "'done'")
        if lines.line:
            lines.fail("a run ends with 'done'; give one run at a time")
        seconds = float(total[1])
        if not seconds or not counts["blogs"]:
            lines.fail("no blog was completed in that time; give it more", where)
        return {
            "blogs_per_second": counts["blogs"] / seconds,
            "files_written_per_second": (counts["articles"] + counts["pictures"]) / seconds,
            "rewrites_per_second": counts["rewrites"] / seconds,
            "comments_per_second": counts["comments"] / seconds,
            "reads_per_second": counts["reads"] / seconds,
            "written_mib_per_second": counts["written_bytes"] / MIB / seconds,
            "read_mib_per_second": counts["read_bytes"] / MIB / seconds,
            "total_time_s": seconds,
        }

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return the processes of each kind, the seed, and whether every file was synced."""
        return parse_stated_params(text, _PARAM_PATTERNS)

    def disk_bytes(self, params: Mapping[str, Scalar]) -> int:
        """Return the size at which new blogs take the place of the oldest."""
        return int(str(params["total_size"]))

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the run time, and what starting and clearing up may take."""
        return float(str(params["time"])) + START_S
