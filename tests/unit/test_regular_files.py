"""Files that a user names: a pipe, a socket, a device or a directory is refused at once, and never waited for."""

import io
import os
import socket
import sys
from pathlib import Path

import pytest
from builders import lifecycle_run

from bench_common.errors import UsageError, WeighbridgeError
from bench_common.files import open_regular, spool_stdin
from bench_common.keys import AllowList, read_master_key
from bench_common.stats.reader import StatsFile
from bench_common.stats.writer import StatsWriter
from bench_features.compat.imports import read_bytes
from bench_features.fleet import ssh_config
from bench_features.fleet.inventory import load_inventory
from bench_features.fleet.known_hosts import KnownHosts
from bench_master.cli import run_command_line
from bench_master.run.resume import ResumableRun
from bench_master.scenario.dialects import load_scenario_or_definition
from bench_master.scenario.yaml_tree import read_source


@pytest.fixture
def odd_files(tmp_path, monkeypatch):
    """A FIFO without a writer, a socket, a device, and a directory, each with what is said of it."""
    os.mkfifo(tmp_path / "fifo", 0o600)
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        (tmp_path / "directory").mkdir()
        (tmp_path / "link").symlink_to("fifo")
        (tmp_path / "round").symlink_to("round")
        yield {
            tmp_path / "fifo": "is a pipe (FIFO), not a regular file",
            tmp_path / "link": "is a pipe (FIFO), not a regular file",
            tmp_path / "socket": "is a socket, not a regular file",
            "/dev/zero": "is a device, not a regular file",
            tmp_path / "directory": "a directory",
            tmp_path / "round": "Too many levels of symbolic links",
        }


READERS = {
    "a stats file": StatsFile,
    "a run to resume": ResumableRun,
    "a scenario": lambda path: read_source(str(path)),
    "a definition": lambda path: load_scenario_or_definition(str(path)),
    "results to import": lambda path: read_bytes(str(path)),
    "an inventory": load_inventory,
    "a key": read_master_key,
    "an allow-list": AllowList,
    "known hosts": lambda path: KnownHosts(path).client(),
    "a configuration of SSH": lambda path: list(ssh_config._lines(path)),
}


@pytest.mark.parametrize("reader", list(READERS))
def test_only_regular_files_are_read(odd_files, reader):
    """The error names the file and what it is; nothing waits for a writer."""
    for path, what in odd_files.items():
        with pytest.raises(WeighbridgeError) as raised:
            READERS[reader](Path(path))
        assert str(path) in str(raised.value)
        assert what in str(raised.value)
        assert raised.value.exit_code in {2, 3}


def test_a_file_that_became_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    """What is opened is checked once more: it may have been replaced since the first look."""
    regular = tmp_path / "regular"
    regular.write_text("text")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    known = regular.stat()
    monkeypatch.setattr("bench_common.files.Path.stat", lambda _: known)
    with pytest.raises(OSError, match="is a pipe"):
        open_regular(fifo)


def test_a_report_reads_standard_input(tmp_path, monkeypatch, capsys):
    """`-` is a pipe: it is read once, and its report is that of the file."""
    path = lifecycle_run(tmp_path / "run.stats.gz")
    assert run_command_line(["report-scenario", "-s", str(path)]) == 0
    expected = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert run_command_line(["report-scenario", "-s", "-"]) == 0
    assert capsys.readouterr().out == expected


def test_a_pipe_without_end_is_not_read_to_its_end(monkeypatch):
    """Beyond the limit it is refused, and the temporary file is gone."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(3 << 20))))
    with pytest.raises(OSError, match="larger than what is read from a pipe"):
        spool_stdin(2 << 20)


def test_a_scenario_is_read_from_standard_input(monkeypatch):
    """`-` is a scenario that another program writes; what is wrong with it has its line."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name: a\njobb: 1\n")))
    with pytest.raises(UsageError, match=r"<stdin>:2:1: .*did you mean 'job"):
        load_scenario_or_definition("-")


def test_an_empty_stats_file_is_replaced_and_any_other_is_not(tmp_path):
    """A master that is killed before it begins leaves an empty file: its name can be used again."""
    path = tmp_path / "run.stats.gz"
    path.touch()
    with pytest.raises(WeighbridgeError, match="the file is empty: its run ended before it began; delete the file"):
        _ = StatsFile(path).header
    first = StatsWriter(path)
    with pytest.raises(WeighbridgeError, match="is being written by another process"):
        StatsWriter(path)
    first.put("event", {})
    first.close()
    with pytest.raises(WeighbridgeError, match="already exists, and stats files are never overwritten"):
        StatsWriter(path)
    path.unlink()
    path.symlink_to("elsewhere")
    with pytest.raises(WeighbridgeError, match="already exists"):
        StatsWriter(path)
