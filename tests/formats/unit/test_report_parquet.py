"""The Parquet report: types, nulls, units and row groups."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from builders import MS, S, StatsBuilder, footer, header, host, job_rows, lifecycle_run, treatment_wire

from bench_common.errors import UsageError
from bench_common.records import Outcome, ticket_of
from bench_common.stats.reader import StatsFile
from bench_features.formats import parquet
from bench_master.cli import run_command_line
from bench_master.reports import ReportSource, report_named


def folder_of(path):
    """Write the report of a stats file; return its folder."""
    folder = path.with_suffix(".parquet")
    report_named("parquet").write_folder(ReportSource(StatsFile(path)), folder)
    return folder


def test_jobs_trials_and_samples_are_columns_with_units(tmp_path):
    """Times are whole nanoseconds; labels are columns; units and meanings are in the fields."""
    folder = folder_of(lifecycle_run(tmp_path / "run.stats.gz"))
    assert sorted(path.name for path in folder.iterdir()) == [
        *("jobs.parquet", "metrics.parquet", "operations.parquet", "samples.parquet", "trials.parquet")
    ]
    jobs = pq.read_table(folder / "jobs.parquet")
    assert jobs["duration_ns"].to_pylist()[:2] == [100 * MS, 10_100_000]
    assert jobs["start_ns"].to_pylist()[0] == S
    assert str(jobs.schema.field("duration_ns").type) == "int64"
    assert jobs["engine"].to_pylist()[:2] == ["docker", "native"]
    assert jobs["outcome"].to_pylist()[6] == "failed"
    metadata = jobs.schema.field("duration_ns").metadata
    assert metadata[b"unit"] == b"ns"
    assert metadata[b"about"].startswith(b"from its start to its end")
    about = jobs.schema.metadata
    assert about[b"weighbridge.run_state"] == b"complete"
    assert about[b"weighbridge.run_id"] == b"20260102-030405-abcdef"
    trials = pq.read_table(folder / "trials.parquet")
    assert trials["job_mean_ns"].to_pylist()[5:] == [10_500_000, None, 10_700_000]
    samples = pq.read_table(folder / "samples.parquet")
    assert samples["trial"].to_pylist()[:2] == [0, None]
    assert samples["warmup"].to_pylist()[:2] == [True, None]
    assert samples["engine"].to_pylist()[:2] == ["docker", None]


def test_what_is_missing_is_null(tmp_path):
    """A job that never ran has no times; an incomplete run says so in the metadata."""
    head = header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)])
    builder = StatsBuilder(tmp_path / "lost.stats.gz", head).add("host", host(0))
    builder.add_jobs({"ticket": ticket_of(1), "outcome": Outcome.LOST, "end_ns": 1003 * S})
    folder = folder_of(builder.close(footer(status="interrupted")))
    jobs = pq.read_table(folder / "jobs.parquet")
    assert jobs["start_ns"].to_pylist() == jobs["duration_ns"].to_pylist() == [None]
    assert json.loads(jobs.schema.metadata[b"weighbridge.incomplete"])
    assert pq.read_table(folder / "samples.parquet").num_rows == 0


def test_many_jobs_are_written_in_row_groups(tmp_path, monkeypatch):
    """A group is written as soon as it is full: nothing holds the whole table."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2000)
    head = header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)])
    builder = StatsBuilder(tmp_path / "many.stats.gz", head)
    for first in range(0, 10_000, 1000):
        builder.writer.jobs(job_rows(*({"ticket": first + place, "end_ns": 1001 * S} for place in range(1000))))
        builder.flush()
    folder = folder_of(builder.close(footer()))
    file = pq.ParquetFile(folder / "jobs.parquet")
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [2000] * 5
    assert np.array_equal(file.read(["job_id"])["job_id"].to_numpy(), np.arange(10_000))


def test_files_of_an_earlier_report_do_not_stay(tmp_path):
    """A table that this run does not have is no file of the run before."""
    path = lifecycle_run(tmp_path / "run.stats.gz")
    folder = tmp_path / "run.stats.parquet"
    folder.mkdir()
    (folder / "transfers.parquet").write_text("old")
    (folder / "mine.txt").write_text("stays")
    assert folder_of(path) == folder
    assert not (folder / "transfers.parquet").exists()
    assert (folder / "mine.txt").read_text() == "stays"
    assert list(folder.glob(".*")) == []


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch, capsys):
    """One line and exit code 2, before anything is read."""
    monkeypatch.setattr(parquet, "find_spec", lambda _: None)
    status = run_command_line(
        ["report-scenario", "-s", str(tmp_path / "none"), "--format", f"parquet={tmp_path}/out"]
    )
    assert status == 2
    assert capsys.readouterr().err == (
        "bench-master: --format parquet: needs pyarrow, which is not installed: pip install 'weighbridge[parquet]'\n"
    )


def test_standard_output_is_no_folder(tmp_path, capsys):
    """The error says what to write."""
    path = lifecycle_run(tmp_path / "run.stats.gz")
    assert run_command_line(["report-scenario", "-s", str(path), "--format", "parquet"]) == 2
    assert "name a directory: --format parquet=FOLDER\n" in capsys.readouterr().err
    with pytest.raises(UsageError, match="parquet=FOLDER"):
        report_named("parquet").write(ReportSource(StatsFile(path)), None)
    assert run_command_line(["report-scenario", "-s", str(path), "--format", "parquet", "-f", f"{tmp_path}/pq"]) == 0
    assert (tmp_path / "pq" / "jobs.parquet").exists()
