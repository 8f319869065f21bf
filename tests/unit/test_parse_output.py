"""`parse-output` turns a tool's output into JSON, or reports the first invalid line."""

from __future__ import annotations

import gzip
import io
import json
import sys

import places
import pytest

from bench_master.cli import run_command_line

DATA = places.DATA / "sysbench"


@pytest.fixture
def answer(capsys):
    """Run the command; return (exit code, stdout, stderr)."""

    def run(*argv):
        status = run_command_line(["parse-output", *map(str, argv)])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def stdin(monkeypatch):
    def feed(data: bytes):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return feed


def test_metrics_have_unit_and_direction(answer):
    """A file's metrics are printed with what a reader needs to use them."""
    status, out, err = answer("sysbench-cpu", DATA / "cpu-1t.txt")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["workload"] == "sysbench-cpu"
    assert document["metrics"]["events_per_second"] == {"value": 377.99, "unit": "1/s", "direction": "higher"}
    assert document["metrics"]["latency_p95_ms"] == {"value": 3.07, "unit": "ms", "direction": "lower"}


@pytest.mark.parametrize("argv", [("sysbench-cpu",), ("sysbench-cpu", "-")])
def test_standard_input_is_read_when_no_file_is_named(answer, stdin, argv):
    """Without a file, or with -, the text comes from a pipe."""
    stdin((DATA / "cpu-1t.txt").read_bytes())
    status, out, _ = answer(*argv)
    assert status == 0
    assert json.loads(out)["metrics"]["total_events"]["value"] == 1891


def test_gzip_is_decompressed_from_files_and_pipes(answer, stdin, tmp_path):
    """A compressed output gives the same result as the plain one."""
    packed = tmp_path / "cpu.txt.gz"
    packed.write_bytes(gzip.compress((DATA / "cpu-1t.txt").read_bytes()))
    plain = answer("sysbench-cpu", DATA / "cpu-1t.txt")
    assert answer("sysbench-cpu", packed) == plain
    stdin(packed.read_bytes())
    assert answer("sysbench-cpu") == plain


def test_a_refused_text_is_reported_with_file_and_line(answer):
    """The message begins with FILE:LINE: so that an editor can jump there; the exit code is 2."""
    file = DATA / "fail-prime0.txt"
    status, out, err = answer("sysbench-cpu", file)
    assert (status, out) == (2, "")
    assert err.startswith(f"{file}:3: sysbench failed: ")


def test_an_empty_input_is_reported_without_a_line(answer, stdin):
    """It has no line to name."""
    stdin(b"")
    status, _, err = answer("sysbench-cpu")
    assert status == 2
    assert err.startswith("<stdin>: empty: ")


def test_binary_input_is_refused(answer, stdin):
    """A binary file is a usage error, not a crash."""
    stdin(bytes(range(256)))
    status, _, err = answer("sysbench-cpu")
    assert status == 2
    assert err.startswith("<stdin>:1: ")


@pytest.mark.parametrize("cut", [3, 12, 60, -1])
def test_damaged_gzip_is_reported(answer, stdin, cut):
    """The error names the truncated or damaged gzip file; the exit code is 2."""
    stdin(gzip.compress((DATA / "cpu-1t.txt").read_bytes())[:cut])
    status, _, err = answer("sysbench-cpu")
    assert status == 2
    assert "<stdin>: damaged gzip" in err


def test_a_gzip_bomb_stops_at_the_limit(answer, stdin, monkeypatch):
    """Decompression stops there."""
    monkeypatch.setattr("bench_features.compat.log_files.LIMIT_BYTES", 2**20)
    stdin(gzip.compress(bytes(2**21)))
    status, _, err = answer("sysbench-cpu")
    assert status == 2
    assert "longer than 1 MiB" in err


def test_a_missing_file_and_a_misspelt_workload_are_usage_errors(answer, tmp_path):
    """Both errors are one line that says what to do."""
    status, _, err = answer("sysbench-cpu", tmp_path / "nothing.txt")
    assert status == 2
    assert "nothing.txt: No such file or directory" in err
    status, _, err = answer("sysbench_cpu", DATA / "cpu-1t.txt")
    assert status == 2
    assert "did you mean 'sysbench-cpu'?" in err
