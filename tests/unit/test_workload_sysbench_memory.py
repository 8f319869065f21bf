"""sysbench memory: its command line, its output in the units of its version, and what is refused."""

from __future__ import annotations

import re

import places
import pytest

from bench_common.errors import ParseError, UsageError
from bench_workloads.sysbench_memory import SysbenchMemory

DATA = places.DATA / "sysbench"
GOOD = (
    "memory-complete",
    "memory-read-global",
    "memory-read-local",
    "memory-write-global",
    "memory-write-local",
    "memory-0.4.12",
    "memory-0.4.12-1m",
    "memory-0.5",
)

parse = SysbenchMemory().parse


def sample(name: str) -> str:
    return (DATA / f"{name}.txt").read_text("utf-8")


def params(**changes):
    return {**SysbenchMemory().defaults(), **changes}


def test_every_number_of_a_run_is_read():
    """Each measure of sysbench 1.0's report arrives under its own name."""
    assert parse(sample("memory-read-global")) == {
        "operations_per_second": 10548590.26,
        "mib_per_second": 10301.36,
        "transferred_mib": 30924.78,
        "total_time_s": 3.0001,
        "total_events": 31666974,
        "latency_min_ms": 0,
        "latency_avg_ms": 0,
        "latency_max_ms": 8.27,
        "latency_p95_ms": 0,
        "latency_sum_ms": 1825.45,
        "thread_events_avg": 15833487,
        "thread_events_stddev": 401710,
        "thread_time_avg_s": 0.9127,
        "thread_time_stddev_s": 0.01,
    }


@pytest.mark.parametrize(
    ("name", "operations", "rate", "transferred"),
    [
        ("memory-0.4.12", 1022031.23, 998.08, 10240),
        ("memory-0.4.12-1m", 6906.34, 6906.34, 10240),
        ("memory-0.5", 1436157.48, 11219.98, 2048),
        ("memory-complete", 10314.71, 10314.71, 2048),
    ],
)
def test_mb_of_old_versions_and_mib_of_new_ones_are_the_same_unit(name, operations, rate, transferred):
    """0.4 and 0.5 write MB for 2**20 bytes, so the number is taken as it is."""
    metrics = parse(sample(name))
    assert metrics["operations_per_second"] == operations
    assert metrics["mib_per_second"] == rate
    assert metrics["transferred_mib"] == transferred


@pytest.mark.parametrize(
    ("name", "right", "wrong"), [("memory-complete", "MiB", "MB"), ("memory-0.4.12", "MB", "MiB")]
)
def test_units_that_no_version_prints_are_refused(name, right, wrong):
    """MiB, or MB for the same in old builds, and the same in both places; never another one."""
    with pytest.raises(ParseError, match="counts in MiB"):
        parse(re.sub(rf" {right}(?=/sec)", f" {wrong}", sample(name)))


@pytest.mark.parametrize("name", GOOD)
def test_an_amount_in_units_of_ten_to_the_six_is_refused(name):
    """The amount must follow from operations and block size by 2**20, whatever the unit is called."""

    def decimal(match):
        return f"{float(match[1]) * 1.048576:.2f} {match[2]} transferred ({float(match[3]) * 1.048576:.2f}"

    text = re.sub(r"(\S+) (MiB|MB) transferred \((\S+)", decimal, sample(name))
    with pytest.raises(ParseError, match="do not transfer"):
        parse(text)


def test_a_rate_in_another_unit_than_the_amount_is_refused():
    """The two numbers of the line are in one unit."""
    with pytest.raises(ParseError, match=r"are not 10801\.8 MiB/s"):
        parse(sample("memory-read-global").replace("10301.36 MiB/sec", "10801.80 MiB/sec"))


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("memory-help", 3, "printed help or refused"),
        ("fail-mem-bigblock", 3, "sysbench failed.*memory-block-size: 3K"),
        ("cpu-1t", 8, "another test of sysbench, not of memory"),
        ("cpu-0.4.12", None, "."),
        ("fileio-rndrw", 8, "another test of sysbench, not of memory"),
        ("oltp_read_only", 12, "another test of sysbench, not of memory"),
        ("mutex", None, "this is another test of sysbench"),
        ("fail-zero-threads", 1, "sysbench failed.*threads: 0"),
        ("version", 1, "cut off, or sysbench refused its arguments"),
    ],
)
def test_what_is_not_a_complete_run_of_memory_is_refused(name, line, reason):
    """Failures, help and other tests are refused with the line that shows what they are."""
    with pytest.raises(ParseError, match=reason) as caught:
        parse(sample(name))
    if line:
        assert caught.value.line == line


@pytest.mark.parametrize("place", ["Threads started!\n", "Threads fairness:\n", "Total operations"])
def test_a_fatal_line_anywhere_is_a_failure(place):
    """sysbench says on stdout that it failed; its exit code is not needed to know."""
    text = sample("memory-complete").replace(place, f"FATAL: out of luck\n{place}")
    with pytest.raises(ParseError, match=r"sysbench failed.*out of luck"):
        parse(text)


def test_a_run_that_transferred_nothing_is_refused():
    """--memory-oper=none prints operations and no amount."""
    text = re.sub(r".*MiB transferred.*\n", "", sample("memory-complete")).replace(
        "operation: write", "operation: none"
    )
    with pytest.raises(ParseError, match="--memory-oper=none"):
        parse(text)


def test_the_command_line():
    """One step, whose argument vector states every parameter, sizes in bytes."""
    (step,) = SysbenchMemory().steps(params(operation="read", access="rnd", scope="local", block_size=2**20))
    assert step.argv == (
        "sysbench",
        "memory",
        "--memory-oper=read",
        "--memory-access-mode=rnd",
        "--memory-scope=local",
        "--memory-block-size=1048576",
        "--memory-total-size=107374182400",
        "--threads=1",
        "--time=10",
        "--percentile=95",
        "run",
    )
    assert step.timed
    assert step.parse


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"time": 2.5}, r"whole seconds: time cannot be 2\.5 s; try 2 s"),
        ({"block_size": 3072}, "power of two, such as 2KiB"),
        ({"total_size": 512}, "less than one block"),
    ],
)
def test_parameters_that_sysbench_cannot_serve_are_refused(changes, reason):
    """What sysbench would refuse in every job is refused before anything starts."""
    with pytest.raises(UsageError, match=reason):
        SysbenchMemory().steps(params(**changes))
