"""blogbench: writers, rewriters, commenters and readers at work on one directory of blogs, and two scores for them.

Its versions do not measure the same: 1.2 reads files eight bytes at a time, where 1.1 read them by blocks. Scores of
one are never those of the other, so each version has metrics of its own; the output of a run does not say which
version it is from, its help does, and the job prints that first.

It exits with 0 whatever happens: after an unknown option, on a directory that is read-only, on a full disk. Its
messages go to stderr, which the job merges into the output that the parser reads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import UsageError
from bench_workloads.base import Metric, Parameter, Step, Workload
from bench_workloads.line_reader import LineReader, parse_stated_params, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Scalar
    from bench_workloads.line_reader import Patterns

SCRIPT: Final = 'blogbench --help && exec blogbench "$@" 2>&1'
"""Prints the help, the only place where blogbench says which version it is, then runs with stderr merged into stdout.

The text is fixed, and parameters reach blogbench as words of their own.
"""

_VERSIONS: Final = {"1.0": "1_1", "1.1": "1_1", "1.2": "1_2", None: "unknown_version"}
"""What the metrics of each version are called; 1.0 and 1.1 read alike."""

_HELP_BEGINS: Final = re.compile(r"blogbench (\d{1,4}\.\d{1,4})(?: - \w{3} +\d{1,2} \d{4})?")
_HELP_ENDS: Final = re.compile(r"Please report bugs to \S+\.")
_HELP: Final = re.compile(r"--[a-z]+(?:=<[a-z]+>)? \(-\w(?: <[a-z]+>)?\): .*|Sample usage:|blogbench -d /mnt/bench")
_HEADER: Final = (
    re.compile(r"Frequency = (\d{1,9}) secs"),
    re.compile(r"Scratch dir = \[.+\]"),
    re.compile(r"Spawning (\d{1,9}) writers\.\.\."),
    re.compile(r"Spawning (\d{1,9}) rewriters\.\.\."),
    re.compile(r"Spawning (\d{1,9}) commenters\.\.\."),
    re.compile(r"Spawning (\d{1,9}) readers\.\.\."),
    re.compile(r"Benchmarking for (\d{1,9}) iterations\."),
    re.compile(r"The test will run during \d{1,9} minutes\."),
    re.compile(r"Nb blogs +R articles +W articles +R pictures +W pictures +R comments +W comments"),
)
_ITERATIONS: Final = 6
"""Which line of the header states them."""
_ROW: Final = re.compile(r"(\d{1,18})(?: +\d{1,18}){6}")
_WRITES: Final = re.compile(r"Final score for writes:[ \t]+(\d{1,18})")
_READS: Final = re.compile(r"Final score for reads ?:[ \t]+(\d{1,18})")


_KINDS: Final = ("writers", "rewriters", "commenters", "readers")
_PARAM_PATTERNS: Final[Patterns] = {
    "version": (_HELP_BEGINS.pattern, str),
    "sleep": (_HEADER[0].pattern, float),
    **{kind: (rf"Spawning (\d{{1,9}}) {kind}\.\.\.", int) for kind in _KINDS},
    "iterations": (_HEADER[_ITERATIONS].pattern, int),
}


class Blogbench(Workload):
    """The file system benchmark blogbench."""

    name: ClassVar[str] = "blogbench"
    summary: ClassVar[str] = "a busy directory of blogs: written, rewritten, commented and read (blogbench)"
    image: ClassVar[str] = "weighbridge/blogbench"
    binary: ClassVar[str] = "blogbench"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("writers", "int", 3, "threads that write new blogs", minimum=1, maximum=10_000),
        Parameter("rewriters", "int", 1, "threads that rewrite what is there", minimum=1, maximum=10_000),
        Parameter("commenters", "int", 5, "threads that add comments", minimum=1, maximum=10_000),
        Parameter("readers", "int", 10, "threads that read", minimum=1, maximum=10_000),
        Parameter("iterations", "int", 30, "lines of the table; the test ends with the last", minimum=1),
        Parameter("sleep", "duration", 10.0, "whole seconds between two lines", "s", minimum=1),
    )
    metrics: ClassVar[tuple[Metric, ...]] = tuple(
        Metric(f"{what}_score_{suffix}", "points", "higher", f"final score for {what}, of blogbench {version}")
        for suffix, version in (("1_1", "1.1"), ("1_2", "1.2"), ("unknown_version", "of a version that is not known"))
        for what in ("reads", "writes")
    )
    primary_metrics: ClassVar[tuple[str, ...]] = tuple(metric.name for metric in metrics)
    install_hint: ClassVar[str] = (
        "Debian does not package it: install it from a distribution that does, or use blogload instead"
    )
    run_start_pattern: ClassVar[str | None] = r"blogbench \d+\.\d+|Frequency = \d+ secs"

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the one command; raise `UsageError` for a fraction of a second."""
        sleep_s = float(str(params["sleep"]))
        if not sleep_s.is_integer():
            raise UsageError(f"blogbench takes whole seconds: sleep cannot be {sleep_s:g} s")
        argv = (
            f"--commenters={params['commenters']}",
            f"--iterations={params['iterations']}",
            f"--readers={params['readers']}",
            f"--rewriters={params['rewriters']}",
            f"--writers={params['writers']}",
            f"--sleep={sleep_s:.0f}",
            "--directory=.",
        )
        return (Step("run", ("sh", "-c", SCRIPT, "blogbench", *argv)),)

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return the run time."""
        del params
        return {"job": "iterations"}

    def parse(self, text: str) -> dict[str, float]:
        """Return the two scores of one complete run by blogbench 1.x, under the name of its version.

        With the help in front, as this workload's own runs have it, the version is known.
        """
        return _Output(text).scores()

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return the threads of each kind, how long it was to run and, with the help in front, the version."""
        return parse_stated_params(text, _PARAM_PATTERNS)

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the sum of the iterations; stopping threads and removing nothing takes little more."""
        return float(str(params["sleep"])) * int(str(params["iterations"]))


class _Output(LineReader):
    """What blogbench printed: its help or not, a row for each iteration, two scores."""

    explanations = (
        (_HELP_BEGINS, "blogbench printed help: it refused its arguments, or a second run begins here"),
        (r"Frequency =.*", "a second run begins here; give one run at a time"),
    )

    def __init__(self, text: str) -> None:
        super().__init__("blogbench", read_lines(text))
        self.unknown = "blogbench failed, or this is not its output"
        self.end_reason = "the run was killed or failed"

    def scores(self) -> dict[str, float]:
        suffix = self._version()
        header = [self.expect(pattern, f"'{pattern.pattern[:24]}...'") for pattern in _HEADER]
        iterations = int(header[_ITERATIONS][1])
        blogs = [int(self.expect(_ROW, f"line {number + 1} of {iterations}")[1]) for number in range(iterations)]
        writes = int(self.expect(_WRITES, "the final score for writes")[1])
        where = self.previous
        reads = int(self.expect(_READS, "the final score for reads")[1])
        if self.line:
            self.fail("text follows the scores; give one run at a time")
        if not blogs or not blogs[-1]:
            self.fail("no blog was written: the directory is read-only or full, or no file can be created", where)
        if writes != blogs[-1]:
            self.fail(f"the score for writes is the number of blogs, which is {blogs[-1]}", where)
        return {f"reads_score_{suffix}": float(reads), f"writes_score_{suffix}": float(writes)}

    def _version(self) -> str:
        """Pass over the help, if there is one, and return what the metrics of its version are called."""
        first = self.accept(_HELP_BEGINS)
        if first is None:
            return _VERSIONS[None]
        if first[1] not in _VERSIONS:
            self.fail(f"unsupported version of blogbench (supported: 1.0 to 1.2): {first[1]}", self.previous)
        self.skip((_HELP,))
        self.expect(_HELP_ENDS, "the end of the help")
        if self.line is None or _HELP_BEGINS.fullmatch(self.line.text):
            self.fail("only the help is here: blogbench refused its arguments, or was given none")
        return _VERSIONS[first[1]]
