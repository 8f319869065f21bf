"""How often a stats file is read: once for all that follows a run, twice where too much of it would be kept.

``python benchmarks/walks.py`` prints the same for a file of a chosen size.
"""

import io
import sys

import pytest
from archive_runs import a_run
from builders import lifecycle_run, write_report
from documents import ROOT

from bench_common.stats import reader
from bench_common.stats.reader import StatsFile
from bench_features.archive.archive import Archive
from bench_features.archive.extract import ARCHIVED_PARTS, contents_of
from bench_master.analysis.run_summary import summarize
from bench_master.cli import run_command_line
from bench_master.reports import ReportSource
from bench_master.run_data.measured import MeasuredRun

sys.path.insert(0, str(ROOT / "benchmarks"))
from walks import counted_walks, walks_after_a_run

SOME = 0
"""Room for no block at all, as of a run with millions of jobs."""


@pytest.mark.parametrize(("room", "walks"), [(None, 1), (SOME, 2)])
def test_report_trend_charts_and_archive_share_one_reading(tmp_path, room, walks):
    """So does a file that is too large to keep: all that needs the whole file to be known shares the second one."""
    path = a_run(tmp_path / "run.stats.gz", times=(100, 101, 99, 100, 102))
    assert walks_after_a_run(path, tmp_path / "archive", room) == [path] * walks


def test_what_the_archive_takes_over_is_what_it_would_read(tmp_path):
    """The sums of a report, whatever was asked of them before, give what a reading of their own gives."""
    path = lifecycle_run(tmp_path / "run.stats.gz")
    source = ReportSource(StatsFile(path), 99.9, also=ARCHIVED_PARTS)
    assert source.document.run_state == "complete"
    assert contents_of(path, "x", 1, source.run) == contents_of(path, "x", 1)


def test_the_archive_reads_a_file_that_has_changed(tmp_path):
    """Sums of another content are not taken for those of the file."""
    path, other = tmp_path / "run.stats.gz", a_run(tmp_path / "other.stats.gz", times=(100, 101, 99, 98))
    run = MeasuredRun(StatsFile(a_run(path)))
    other.replace(path)
    with Archive.open(str(tmp_path / "archive"), create=True) as archive:
        assert archive.add(path, run=run).run.done == 8


@pytest.mark.parametrize("room", [None, SOME])
def test_a_run_is_compared_after_one_reading(tmp_path, monkeypatch, room):
    """Of thousands of earlier runs each is read once; large ones without metrics, too."""
    if room is not None:
        monkeypatch.setattr(reader, "MAX_KEPT_BYTES", room)
    stats = StatsFile(a_run(tmp_path / "run.stats.gz"))
    with counted_walks() as walks:
        assert len(summarize(stats).treatments) == 2
    assert len(walks) == 1


@pytest.mark.parametrize("name", ["jsonl", "trace", "samples"])
def test_reports_that_show_every_job_read_their_run_once(tmp_path, name):
    """What they show beside the document is in the blocks that were kept for it."""
    path = lifecycle_run(tmp_path / "run.stats.gz")
    with counted_walks() as walks:
        write_report(path, io.StringIO(), name)
    assert walks == [path]


def test_ssbench_s_report_reads_its_run_once(tmp_path):
    """Its sums, its percentiles and the transactions of the slowest requests are in the blocks that were kept."""
    path = tmp_path / "run.stats.gz"
    words = ["import-results", "ssbench", "--environment", "lab", "--engine", "swift", "-s", path]
    assert run_command_line([*map(str, words), str(ROOT / "tests" / "data" / "ssbench" / "small_test.stat.gz")]) == 0
    with counted_walks() as walks:
        write_report(path, io.StringIO(), "ssbench")
    assert walks == [path]
