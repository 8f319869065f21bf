"""`report-scenario`: what it writes where, and its exit codes."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from builders import (
    S,
    StatsBuilder,
    footer,
    header,
    lifecycle_run,
    report_validator,
    text_formats,
    ticket_of,
    treatment_wire,
)
from deadlines import END_S

from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile
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
    assert rates.read_text().splitlines()[0] == "second,done,failed,lost,aborted,run_state"


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
    assert "Thresholds" not in capsys.readouterr().out


def test_a_damaged_file_is_reported_with_exit_code_three(path, capsys):
    """The report covers the readable part and says what is missing, on both streams."""
    whole = lifecycle_run(path).read_bytes()
    path.write_bytes(whole[:-20])
    assert run_command_line(["report-scenario", "-s", str(path)]) == 3
    printed = capsys.readouterr()
    assert "*** DAMAGED" in printed.out
    assert printed.err.startswith(f"bench-master: {path}: the run is damaged: ")


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


@pytest.mark.parametrize("pctile", ["-1", "100.1", "nan", "many"])
def test_an_invalid_percentile_is_a_usage_error(path, capsys, pctile):
    """The error names the expected range; the exit code is 2."""
    with pytest.raises(SystemExit) as ended:
        run_command_line(["report-scenario", "-s", str(path), "--pctile", pctile])
    assert ended.value.code == 2
    assert "expected a number from 0 to 100" in capsys.readouterr().err


@pytest.mark.parametrize("asked", ["rum.stats.gz", "run"])
def test_a_missing_stats_file_suggests_the_nearest_name(path, capsys, asked):
    """For misspelt and for incomplete names."""
    lifecycle_run(path)
    assert run_command_line(["report-scenario", "-s", str(path.with_name(asked))]) == 2
    assert "(did you mean 'run.stats.gz'?)" in capsys.readouterr().err


def test_names_are_not_alike_by_the_ending_of_all_stats_files(path, capsys):
    """What has nothing else in common is not suggested."""
    lifecycle_run(path)
    assert run_command_line(["report-scenario", "-s", str(path.with_name("nosuch.stats.gz"))]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_damage_in_the_middle_ends_the_report_there(path, capsys):
    """A damaged block costs the data after it, never the report."""
    whole = bytearray(lifecycle_run(path).read_bytes())
    # More than a gzip header, of which not every byte means something.
    for place in range(len(whole) * 2 // 3, len(whole) * 2 // 3 + 16):
        whole[place] ^= 0xFF
    path.write_bytes(whole)
    assert run_command_line(["report-scenario", "-s", str(path)]) == 3
    assert "*** DAMAGED" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["-s", "-f", "-r"])
def test_an_empty_name_is_a_usage_error(path, capsys, flag):
    """It is not read as the working directory."""
    with pytest.raises(SystemExit) as ended:
        run_command_line(["report-scenario", "-s", str(path), flag, ""])
    assert ended.value.code == 2
    assert "expected a file name" in capsys.readouterr().err


FORMATS = text_formats()


STATE_PATTERNS = {
    "github": r"> (INCOMPLETE|DAMAGED): ",
    "html": r'data-run-state="(\w+)"',
    "markdown": r"> (INCOMPLETE|DAMAGED): ",
    "svg": r"The run is (incomplete|damaged)",
    "junit": r'<property name="run_state" value="(\w+)" />',
    "openmetrics": r'weighbridge_run_complete{.*state="(\w+)"} [01]\n',
}


def state_of(name, text):
    """Return the state of the run and the number of missing jobs, as a report of a format has them in its data."""
    if name in ("text", "bucketbench", "outputs", "ssbench"):
        found = re.search(r"INCOMPLETE|DAMAGED", text)
        return found[0].lower() if found else "complete", None
    if name in STATE_PATTERNS:
        found = re.search(STATE_PATTERNS[name], text)
        return found[1].lower() if found else "complete", None
    if name == "json":
        document = json.loads(text)
        report_validator().validate(document)
        assert sum(entry["jobs"]["missing"] for entry in document["treatments"]) <= document["totals"]["missing"]
        return document["run_state"], document["totals"]["missing"]
    if name == "jsonl":
        run, *_ = [json.loads(line) for line in text.splitlines()]
        return run["run_state"], run["jobs_missing"]
    rows = list(csv.DictReader(io.StringIO(text)))
    (state,) = {row["run_state"] for row in rows}
    if name == "ssbench-csv":
        return state, None
    if name == "samples":
        return state, int(next(row["value"] for row in rows if row["name"] == "jobs_missing"))
    assert name == "csv", f"this test does not know where {name} says that a run is incomplete"
    for row in rows:
        ran = int(row["jobs_done"]) + int(row["jobs_failed"])
        assert int(row["jobs_missing"]) == int(row["jobs_planned"]) - ran
        assert (row["jobs_not_started"] == "0") is (state == "complete")
    return state, None


def reported(path, name, capsys):
    """Return the exit code of a report, its text and what is on stderr."""
    status = run_command_line(["report-scenario", "-s", str(path), "--format", name])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def damaged_copies(whole, step):
    """Yield what can become of a file: cut at every so many bytes, and with a wrong bit in every so many."""
    for length in range(1, len(whole), step):
        yield whole[:length]
    for position in range(0, len(whole), step):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        yield bytes(flipped)


@pytest.fixture
def spread_run(path):
    """A whole run of 8 jobs with blocks of its own for each."""
    return lifecycle_run(path, flush=True)


def reported_in_files(path, folder):
    """Return the exit code of one command that writes every format, the texts by format, and what is on stderr."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        words = [f"--format={name}={folder / name}" for name in FORMATS]
        status = run_command_line(["report-scenario", "-s", str(path), "-f", str(folder / "first"), *words])
    assert out.getvalue() == ""
    texts = {}
    for file in [folder / name for name in FORMATS if (folder / name).exists()]:
        texts[file.name] = file.read_text("utf-8")
        file.unlink()
    return status, texts, err.getvalue()


@pytest.fixture(scope="module")
def damaged_reports(tmp_path_factory):
    """Return what is reported of a whole file, and of each damaged copy with the jobs in it; and the copies' path."""
    folder = tmp_path_factory.mktemp("damaged")
    path = lifecycle_run(folder / "run.stats.gz", flush=True)
    whole, healthy = path.read_bytes(), reported_in_files(path, folder)
    found = []
    for content in damaged_copies(whole, step=211):
        path.write_bytes(content)
        status, texts, err = reported_in_files(path, folder)
        ran = sum(int((rows["outcome"] <= 1).sum()) for rows in StatsFile(path).iter_jobs()) if texts else None
        found.append((content, status, texts, err, ran))
    return healthy, found, path


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_a_damaged_file_says_so(damaged_reports, name):
    """In its data, on stderr and by exit code 3; the report of the whole file says that it is complete."""
    healthy, copies, path = damaged_reports
    status, texts, err = healthy
    assert (status, err, state_of(name, texts[name])[0]) == (0, "", "complete")
    damaged = 0
    for _, status, texts, err, ran in copies:
        if (status, texts.get(name), err) == (0, healthy[1][name], ""):
            continue  # a bit of a gzip head that means nothing
        if not texts:
            # The header is damaged: there is nothing to report.
            assert status in (2, 3)
            assert err.startswith(f"bench-master: {path}: ")
            continue
        damaged += 1
        assert (status, err.startswith(f"bench-master: {path}: the run is ")) == (3, True)
        state, missing = state_of(name, texts[name])
        assert state != "complete"
        if missing is not None:
            assert missing == 8 - ran
    assert damaged > 15


@pytest.mark.parametrize("name", FORMATS)
def test_a_printed_report_of_a_damaged_file_is_that_of_its_file(damaged_reports, capsys, name):
    """With the same message and exit code: of a file that is cut in the middle, and of one with a wrong bit there."""
    _, copies, path = damaged_reports
    for content, status, texts, err, _ in (copies[len(copies) // 4], copies[len(copies) * 3 // 4]):
        path.write_bytes(content)
        assert reported(path, name, capsys) == (status, texts[name], err)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_an_incomplete_run_says_so(path, capsys, name):
    """A run that was interrupted has an undamaged file: the same words, the same exit code."""
    head = header([treatment_wire(0, {"engine": "native"})], [])
    StatsBuilder(path, head).add_jobs({"end_ns": S}).close(footer(status="interrupted"))
    status, text, err = reported(path, name, capsys)
    assert (status, err) == (3, f"bench-master: {path}: the run is incomplete: the run was interrupted\n")
    assert "incomplete" in text.lower()


def test_a_reader_that_leaves_early_learns_of_an_incomplete_run(path):
    """As under `head`: the exit code and stderr say so all the same."""
    head = header([treatment_wire(0, {"engine": "native"})], [])
    StatsBuilder(path, head).add_jobs({"end_ns": S}).close(footer(status="interrupted"))
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "bench_master", "report-scenario", "-s", str(path), "--csv"]
    with os.fdopen(writing, "wb") as out:
        ended = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, text=True, timeout=END_S, check=False)
    assert (ended.returncode, ended.stderr) == (
        3,
        f"bench-master: {path}: the run is incomplete: the run was interrupted\n",
    )


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_with_a_header_alone_has_a_report(path, capsys, name):
    """All of the plan is missing, and each format says so though it has nothing else to show."""
    head = StatsFile(lifecycle_run(path)).header
    path.unlink()
    StatsBuilder(path, head).close()
    status, text, err = reported(path, name, capsys)
    assert status == 3
    assert "8 of 8 planned jobs are missing; the stats file has no footer" in err
    assert "incomplete" in text.lower()


def test_the_rates_of_a_damaged_file_say_so(spread_run, tmp_path, capsys):
    """The histogram of jobs by second has the state in each line."""
    rates = tmp_path / "rates.csv"
    states = set()
    for content in damaged_copies(spread_run.read_bytes(), step=397):
        spread_run.write_bytes(content)
        rates.unlink(missing_ok=True)
        status = run_command_line(["report-scenario", "-s", str(spread_run), "-r", str(rates)])
        if rates.exists() and status:
            (state,) = {row["run_state"] for row in csv.DictReader(io.StringIO(rates.read_text()))}
            states.add(state)
    capsys.readouterr()
    assert states == {"damaged"}


def failing(path, *, failed, done=1, **changes):
    """Write a run of one treatment that recorded whether failures are allowed."""
    head = header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)], **({"allow_failures": False} | changes))
    rows = [{"end_ns": S, "outcome": Outcome.FAILED if number < failed else Outcome.DONE, "ticket": ticket_of(number)}
            for number in range(failed + done)]  # fmt: skip
    return StatsBuilder(path, head).add_jobs(*rows).close(footer())


@pytest.mark.parametrize(
    ("failed", "done", "changes", "status"),
    [
        (0, 5, {}, 0),
        (1, 4, {}, 1),
        (4, 1, {}, 1),
        (5, 0, {}, 3),
        (5, 0, {"allow_failures": True}, 3),
        (1, 4, {"allow_failures": True}, 0),
        (1, 4, {"allow_failures": None}, 0),
        (1, 4, {"thresholds": ["jobs.failed <= 2"]}, 0),
        (3, 2, {"thresholds": ["jobs.failed <= 2"]}, 1),
        (1, 4, {"thresholds": ["jobs.failed <= 2 where engine=docker", "jobs.done > 1"]}, 1),
        (1, 4, {"noop": True}, 0),
    ],
)
def test_failed_jobs_are_no_success_unless_somebody_said_so(path, capsys, failed, done, changes, status):
    """One failed job gives 1 by itself; a treatment without a result gives 3; files of old versions keep 0."""
    failing(path, failed=failed, done=done, **changes)
    assert run_command_line(["report-scenario", "-s", str(path), "--format", "json"]) == status, capsys.readouterr()


def test_failed_jobs_are_a_threshold_in_the_report(path, capsys):
    """With what permits them; ``--allow-failures`` does."""
    failing(path, failed=1)
    assert run_command_line(["report-scenario", "-s", str(path)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "FAILED jobs.failed == 0 jobs.failed is 1, wanted == 0" in text
    assert "--allow-failures" in text
    assert run_command_line(["report-scenario", "-s", str(path), "--allow-failures"]) == 0
    assert "jobs.failed == 0" not in capsys.readouterr().out


def test_a_run_without_any_result_is_no_success_in_its_report_either(path, capsys):
    """Its exit code is that of the run, and says why."""
    failing(path, failed=2, done=0)
    assert run_command_line(["report-scenario", "-s", str(path)]) == 3
    assert "no job succeeded in 1 of 1 treatment" in capsys.readouterr().err
