"""`--format` several times: one report on standard output, the others in files."""

import json
import os

import pytest
from builders import lifecycle_run

from bench_common.cli import read_options
from bench_common.stats.reader import StatsFile
from bench_master.cli import build_parser, run_command_line
from bench_master.commands import run_scenario
from bench_master.options.report import ReportTarget, add_to_job_summary, job_summary, report_target
from bench_master.options.run import RunOptions
from bench_master.reports import ReportSource
from bench_master.run.session import RunResult


@pytest.fixture
def path(tmp_path):
    return lifecycle_run(tmp_path / "run.stats.gz")


def run(path, *words):
    return run_command_line(["report-scenario", "-s", str(path), *map(str, words)])


def test_text_stays_on_standard_output_beside_files(path, tmp_path, capsys):
    """Each file has what its format alone would print."""
    files = {name: tmp_path / name for name in ("json", "github", "junit", "openmetrics", "csv")}
    assert run(path, *(f"--format={name}={file}" for name, file in files.items())) == 0
    assert capsys.readouterr().out.startswith("Weighbridge report: quickstart\n")
    for name, file in files.items():
        assert run(path, "--format", name) == 0
        assert capsys.readouterr().out == file.read_text("utf-8")


def test_another_format_goes_to_standard_output_without_a_file(path, tmp_path, capsys):
    """--csv, too; the files are written all the same."""
    assert (
        run(path, "--csv", "--format", f"json={tmp_path / 'a.json'}", "--format", f"json={tmp_path / 'b.json'}") == 0
    )
    assert capsys.readouterr().out.startswith("environment,engine,scenario")
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads((tmp_path / "b.json").read_text())


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["--format", "json", "--csv"],
            "json and csv both go to standard output: give one a file: --format csv=FILE",
        ),
        (["--format", "json=x", "--format", "github=./x"], "json and github both go to x: name two files"),
        (["--format", "jsn=x"], "(did you mean 'json'?)"),
        (["--format", "json="], "expected a file after =, as in json=FILE"),
    ],
)
def test_a_wrong_format_is_one_line_with_exit_code_2(path, capsys, words, error):
    """It says what to write."""
    with pytest.raises(SystemExit) as ended:
        run(path, *words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert error in line


def test_files_that_cannot_be_written_are_found_before_anything_is_read(path, tmp_path, capsys):
    """The stats file itself, a missing folder, a folder where a file should be; nothing is written."""
    whole = path.read_bytes()
    for target, error in (
        (path, "this is the stats file itself"),
        (tmp_path / "none" / "x.json", f"the folder {tmp_path / 'none'} does not exist"),
        (tmp_path, "it is a folder"),
    ):
        assert run(path, "--format", f"json={target}", "--format", f"csv={tmp_path / 'x.csv'}") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert error in line
    assert path.read_bytes() == whole
    assert not (tmp_path / "x.csv").exists()
    assert run(path, "-f", tmp_path / "x", "--format", f"json={tmp_path / 'x'}") == 2
    assert "two reports go to this file" in capsys.readouterr().err
    assert run(path, "-r", tmp_path / "r.csv", "-f", tmp_path / "r.csv") == 2
    assert "two reports go to this file" in capsys.readouterr().err


@pytest.mark.parametrize("no_report", [True, False])
def test_a_run_writes_its_files_and_prints_the_text(path, tmp_path, capsys, no_report):
    """Also where nothing is printed (-R); stderr says where each file is."""
    words = ["-f", "noop", "--format", f"junit={tmp_path / 'run.xml'}", "--format", f"csv={tmp_path / 'run.csv'}"]
    arguments = build_parser(["run-scenario"]).parse_args(["run-scenario", *words, *(["-R"] if no_report else [])])
    assert run_scenario.finish_run(RunResult("complete", stats=path), read_options(RunOptions, arguments)) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("Weighbridge report: quickstart\n") is not no_report
    assert f"junit report: {tmp_path / 'run.xml'}\n" in printed.err
    assert f"csv report: {tmp_path / 'run.csv'}\n" in printed.err
    assert (tmp_path / "run.xml").read_text().startswith("<?xml")
    assert (tmp_path / "run.csv").exists()


def test_a_run_in_a_job_of_github_actions_adds_its_report_to_the_summary(path, tmp_path, monkeypatch):
    """Below what other commands wrote; not beside a summary that goes to a file by its name."""
    summary = tmp_path / "summary.md"
    summary.write_text("# My step\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for words in ([], ["--format", f"github={tmp_path / 'mine.md'}"]):
        arguments = build_parser(["run-scenario"]).parse_args(["run-scenario", "-f", "noop", "-R", *words])
        assert run_scenario.finish_run(RunResult("complete", stats=path), read_options(RunOptions, arguments)) == 0
        assert summary.read_text().startswith("# My step\n### Weighbridge: quickstart\n")
        assert summary.read_text().count("### Weighbridge: quickstart\n") == 1


def test_a_dash_is_standard_output(path, tmp_path, capsys, monkeypatch):
    """With a format and with -f, as everywhere; no file of that name is made,"""
    monkeypatch.chdir(tmp_path)
    assert run(path, "--format", "json") == 0
    whole = capsys.readouterr().out
    for words in (["--format", "json=-"], ["--format", "json", "-f", "-"]):
        assert run(path, *words) == 0
        assert capsys.readouterr().out == whole
    assert not (tmp_path / "-").exists()


def test_a_report_that_fails_after_a_run_hides_nothing_else(path, tmp_path, capsys):
    """A chart that the run lacks, printed and in a file: the others are written, stderr says where the run is."""
    words = ["-f", "noop", "--chart", "scaling", "--format", "svg", "--format", f"svg={tmp_path / 'x.svg'}"]
    (tmp_path / "x.svg").write_text("of an earlier run")
    arguments = build_parser(["run-scenario"]).parse_args(
        ["run-scenario", *words, "--format", f"junit={tmp_path / 'run.xml'}"]
    )
    assert run_scenario.finish_run(RunResult("complete", stats=path), read_options(RunOptions, arguments)) == 2
    said = capsys.readouterr().err
    assert f"stats file: {path}\n" in said
    assert f"junit report: {tmp_path / 'run.xml'}\n" in said
    assert "svg report" not in said
    assert said.count("no chart scaling") == 2
    assert (tmp_path / "run.xml").read_text().startswith("<?xml")
    interrupted = RunResult("interrupted", stats=path)
    assert run_scenario.finish_run(interrupted, read_options(RunOptions, arguments)) == 130
    assert capsys.readouterr().err.count("no chart scaling") == 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--metric", "x"], "--metric x: needs --chart metrics or --chart trials"),
        (["--metric", "x", "--chart", "ecdf"], "needs --chart metrics or --chart trials, and not --chart ecdf"),
        (["--by", "x", "--chart", "trials"], "--by x: needs --chart metrics or --chart overhead"),
        (["--metric", "events_per_secnd", "--chart", "trials"], "did you mean 'events_per_second'?"),
        (["--by", "engin", "--chart", "metrics"], "unknown label 'engin' (did you mean 'engine'?)"),
    ],
)
def test_what_a_chart_does_not_show_is_refused(path, capsys, words, error):
    """With the nearest right spelling."""
    assert run(path, "--format", "svg", *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert error in line


def test_a_file_is_replaced_at_once_and_keeps_its_mode(path, tmp_path, monkeypatch):
    """A scrape between two bytes would see half a file; what fails leaves the old one."""
    prom = tmp_path / "weighbridge.prom"
    prom.write_text("old")
    prom.chmod(0o640)
    before = prom.stat().st_ino
    assert run(path, "--format", f"openmetrics={prom}") == 0
    assert prom.read_text().endswith("# EOF\n")
    assert prom.stat().st_ino != before
    assert prom.stat().st_mode & 0o777 == 0o640
    whole = prom.read_text()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bench_features.formats.openmetrics.OpenMetricsReport.write", fail)
    assert run(path, "--format", f"openmetrics={prom}") == 3
    assert prom.read_text() == whole
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run.stats.gz", "weighbridge.prom"]


def test_a_pipe_is_written_and_not_replaced(path, tmp_path):
    """What is no regular file stays what it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(path, "--format", f"github={pipe}") == 0
        assert os.read(reader, 100).startswith(b"### Weighbridge: quickstart\n")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_githubs_summary_keeps_what_other_commands_wrote(path, tmp_path, monkeypatch):
    """Two reports of one step are both on the page."""
    summary = tmp_path / "summary.md"
    summary.write_text("# My step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(2):
        assert run(path, "--format", f"github={summary}") == 0
    text = summary.read_text()
    assert text.startswith("# My step\n### Weighbridge: quickstart\n")
    assert text.count("### Weighbridge: quickstart\n") == 2


def test_the_summary_of_a_job_is_found_by_the_variables_of_github_actions(tmp_path):
    """Elsewhere, and where a summary goes to a file by its name, nothing is added to it."""
    summary = tmp_path / "summary.md"
    job = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    assert job_summary((), job) == summary
    assert job_summary([report_target("json=x.json"), report_target("github")], job) == summary
    assert job_summary([report_target("github=mine.md")], job) is None
    for environ in ({}, {**job, "GITHUB_ACTIONS": ""}, {**job, "GITHUB_STEP_SUMMARY": ""}):
        assert job_summary((), environ) is None


def test_a_summary_that_cannot_be_written_is_told(path, tmp_path, monkeypatch, capsys):
    """The run keeps its exit code."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    add_to_job_summary((), ReportSource(StatsFile(path)))
    assert "the summary of the job lacks the report" in capsys.readouterr().err


def test_commands_that_run_and_that_report_know_the_same_formats():
    """run-scenario and report-scenario take NAME=FILE alike."""
    found = {}
    for name in ("report-scenario", "run-scenario"):
        for action in build_parser([name]).sub_commands()[name]._actions:
            if action.dest == "formats":
                found.setdefault(name, set()).update(action.choices or ())
    assert found["run-scenario"] == found["report-scenario"] >= {"github", "junit", "openmetrics"}


def test_a_target_is_its_formats_name():
    """So that argparse finds it among its choices; only the first = parts name and file."""
    target = report_target("json=a=b")
    assert (target, str(target.path)) == ("json", "a=b")
    assert ReportTarget("text").path is None
