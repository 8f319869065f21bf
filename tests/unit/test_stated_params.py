"""The parameters that an output states, in base units, from any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import DATA

from bench_workloads.line_reader import parse_tool_size
from bench_workloads.registry import workload, workload_classes

OURS = ("blogbench", "blogload", "mbw", "sysbench-cpu", "sysbench-fileio", "sysbench-memory")
BLOGLOAD = "blogload 1: 3 writers, 1 rewriters, 5 commenters, 10 readers; seed 7, fsync on\n"


@pytest.mark.parametrize(
    ("name", "file", "stated"),
    [
        ("sysbench-cpu", "sysbench/cpu-1t.txt", {"version": "1.0", "threads": 1}),
        ("sysbench-cpu", "sysbench/cpu-0.4.12-4t.txt", {"version": "0.4", "threads": 4}),
        (
            "sysbench-memory",
            "sysbench/memory-read-global.txt",
            {"threads": 2, "operation": "read", "scope": "global", "block_size": 1024, "total_size": 100 << 30},
        ),
        ("sysbench-memory", "sysbench/memory-0.4.12.txt", {"operation": "write", "block_size": 1024}),
        (
            "sysbench-fileio",
            "sysbench/fileio-rndrw.txt",
            {"mode": "rndrw", "file_num": 16, "total_size": 256 << 20, "block_size": 4096},
        ),
        (
            "sysbench-fileio",
            "sysbench/fileio-0.4.12-rndrw.txt",
            {"mode": "rndrw", "file_num": 128, "total_size": 3 << 30, "block_size": 16384, "threads": 16},
        ),
        ("sysbench-oltp", "sysbench/oltp_read_write.txt", {"version": "1.0", "threads": 2, "queries": "read+write"}),
        ("sysbench-oltp", "sysbench/oltp_point_select.txt", {"queries": "read"}),
        ("sysbench-oltp", "sysbench/oltp_insert.txt", {"queries": "write"}),
        ("ab", "ab/ok-n2000-c4-keepalive.txt", {"concurrency": 4, "keepalive": True}),
        ("ab", "ab/ok-n2000-c4.txt", {"concurrency": 4, "keepalive": False}),
        ("iibench", "iibench/py2-2012-insert_only.txt", {"version": "2012", "max_rows": 50000, "queries": False}),
        ("iibench", "iibench/py3-head-docker-q4.txt", {"version": "later", "max_rows": 100000, "queries": True}),
        ("mbw", "mbw/1.4-default-n3.txt", {"array_size": 64 << 20}),
        (
            "blogbench",
            "blogbench/1.2-i3-s2.txt",
            {"sleep": 2.0, "writers": 5, "rewriters": 5, "commenters": 30, "readers": 40, "iterations": 3},
        ),
    ],
)
def test_real_outputs_state_their_parameters(name, file, stated):
    """Sizes are in bytes and durations in seconds, as in a loaded scenario."""
    assert stated.items() <= workload(name).stated_params((DATA / file).read_text()).items()


def test_our_own_program_states_its_parameters():
    """It states the number of each kind of process."""
    expected = {"writers": 3, "rewriters": 1, "commenters": 5, "readers": 10, "seed": 7, "fsync": True}
    assert workload("blogload").stated_params(BLOGLOAD) == expected


@pytest.mark.parametrize("name", OURS)
def test_stated_values_are_parameters(name):
    """Each can be the label that our own run would have; only the version is not a parameter."""
    parameters = {parameter.name for parameter in workload(name).parameters} | {"version"}
    texts = [path.read_text(errors="replace") for path in DATA.rglob("*.txt")] + [BLOGLOAD]
    assert {key for text in texts for key in workload(name).stated_params(text)} <= parameters


@given(text=st.text())
def test_any_text_is_accepted(text):
    """A text without parameters gives none, and is never an error."""
    for cls in workload_classes().values():
        assert isinstance(cls().stated_params(text), dict)


@pytest.mark.parametrize(("text", "number"), [("16KiB", 16384), ("16Kb", 16384), ("1K", 1024), ("5GiB", 5 << 30)])
def test_tools_count_by_1024(text, number):
    """Whatever they call the unit."""
    assert parse_tool_size(text) == number
