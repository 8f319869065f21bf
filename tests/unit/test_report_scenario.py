"""`report-scenario`: what it writes where, and its exit codes."""

import json

import pytest
from builders import S, StatsBuilder, footer, header, lifecycle_run, treatment_wire

from bench_master.cli import run_command_line


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def thresholded(path, *thresholds):
    head = header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)], thresholds=list(thresholds))
    return StatsBuilder(path, head).add_jobs({"end_ns": S}).close(footer())


def test_the_text_report_goes_to_standard_output(path, capsys):
    """Without further arguments the text report is printed, and nothing on stderr."""
    assert run_command_line(["report-scenario", "-s", str(lifecycle_run(path))]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("Weighbridge report: quickstart\n")
    assert printed.err == ""


def test_a_report_and_a_rate_histogram_go_to_files(path, tmp_path, capsys):
    """-f and -r write files and leave standard output alone; a name with .csv is separated by commas."""
    report, rates = tmp_path / "report.json", tmp_path / "rates.csv"
    status = run_command_line(
        ["report-scenario", "-s", str(lifecycle_run(path)), "--format", "json", "-f", str(report), "-r", str(rates)]
    )
    assert (status, capsys.readouterr().out) == (0, "")
    assert json.loads(report.read_text())["totals"]["done"] == 5
    assert rates.read_text().splitlines()[0] == "second,done,failed,lost,aborted"


def test_csv_and_percentile_are_switches(path, capsys):
    """--csv is a format by itself, and --pctile adds its column."""
    assert run_command_line(["report-scenario", "-s", str(lifecycle_run(path)), "--csv", "--pctile", "99.9"]) == 0
    assert "p99.9" in capsys.readouterr().out.splitlines()[0].split(",")


@pytest.mark.parametrize("format_", ["text", "json", "jsonl"])
def test_a_failed_threshold_is_exit_code_one(path, capsys, format_):
    """The report is written all the same, and stderr says that a threshold failed."""
    thresholded(path, "jobs.done >= 2", "jobs.failed == 0")
    assert run_command_line(["report-scenario", "-s", str(path), "--format", format_]) == 1
    printed = capsys.readouterr()
    assert printed.out
    assert "threshold" in printed.err


def test_met_thresholds_are_exit_code_zero(path, capsys):
    """If all thresholds pass, stderr is empty."""
    thresholded(path, "jobs.done >= 1")
    assert run_command_line(["report-scenario", "-s", str(path)]) == 0
    assert "passed  jobs.done >= 1  (1 treatment)" in capsys.readouterr().out


def test_a_damaged_file_is_reported_with_exit_code_zero(path, capsys):
    """The report covers the readable part and says what is missing."""
    whole = lifecycle_run(path).read_bytes()
    path.write_bytes(whole[:-20])
    assert run_command_line(["report-scenario", "-s", str(path)]) == 0
    assert "*** INCOMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(("content", "status"), [(b"", 3), (b"not a stats file", 2), (None, 2)])
def test_an_invalid_stats_file_is_an_error(path, tmp_path, capsys, content, status):
    """A wrong name is the caller's mistake, a damaged start is not; both leave an existing report unchanged."""
    report = tmp_path / "report.txt"
    report.write_text("the last one")
    if content is not None:
        path.write_bytes(content)
    assert run_command_line(["report-scenario", "-s", str(path), "-f", str(report)]) == status
    assert capsys.readouterr().err.startswith(f"bench-master: {path}: ")
    assert report.read_text() == "the last one"


def test_the_stats_file_is_never_overwritten(path, capsys):
    """The stats file as the report's name is refused before anything is opened for writing."""
    whole = lifecycle_run(path).read_bytes()
    for flag in ("-f", "-r"):
        assert run_command_line(["report-scenario", "-s", str(path), flag, str(path)]) == 2
    assert path.read_bytes() == whole
    assert "is the stats file itself" in capsys.readouterr().err


@pytest.mark.parametrize("pctile", ["0", "100", "nan", "many"])
def test_an_invalid_percentile_is_a_usage_error(path, capsys, pctile):
    """The error names the expected range; the exit code is 2."""
    with pytest.raises(SystemExit) as ended:
        run_command_line(["report-scenario", "-s", str(path), "--pctile", pctile])
    assert ended.value.code == 2
    assert "expected a number above 0 and below 100" in capsys.readouterr().err


@pytest.mark.parametrize("asked", ["rum.stats.gz", "run"])
def test_a_missing_stats_file_suggests_the_nearest_name(path, capsys, asked):
    """For misspelt and for incomplete names."""
    lifecycle_run(path)
    assert run_command_line(["report-scenario", "-s", str(path.with_name(asked))]) == 2
    assert "(did you mean 'run.stats.gz'?)" in capsys.readouterr().err


def test_damage_in_the_middle_ends_the_report_there(path, capsys):
    """A damaged block costs the data after it, never the report."""
    whole = bytearray(lifecycle_run(path).read_bytes())
    # More than a gzip header, of which not every byte means something.
    for place in range(len(whole) * 2 // 3, len(whole) * 2 // 3 + 16):
        whole[place] ^= 0xFF
    path.write_bytes(whole)
    assert run_command_line(["report-scenario", "-s", str(path)]) == 0
    assert "*** INCOMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["-s", "-f", "-r"])
def test_an_empty_name_is_a_usage_error(path, capsys, flag):
    """It is not read as the working directory."""
    with pytest.raises(SystemExit) as ended:
        run_command_line(["report-scenario", "-s", str(path), flag, ""])
    assert ended.value.code == 2
    assert "expected a file name" in capsys.readouterr().err
