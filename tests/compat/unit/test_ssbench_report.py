"""ssbench's report from its own stat files, line by line and column by column, and of runs that it crashed at."""

import csv
import io
from pathlib import Path

import msgpack
import pytest
from builders import write_report
from ssbench_results import DONE, FAILED, SCENARIO, SECRETS

from bench_common.stats.reader import StatsFile
from bench_features.objects.master.store_measures import percentile_ranks
from bench_master.cli import run_command_line

DATA = Path("tests/data/ssbench")
IMPORT = ["import-results", "ssbench", "--environment", "lab", "--engine", "swift"]
SIZES = [{"name": name, "size_min": low, "size_max": high} for name, low, high in (("tiny", 1, 2), ("big", 9, 9))]
DOCUMENT = {"name": "n", "sizes": SIZES, "initial_files": {"tiny": 3, "big": 1}, "crud_profile": [1, 1, 0, 0]}
HEAD = {**SCENARIO, "_scenario_data": DOCUMENT, "operation_count": 5}


def imported(tmp_path, *files, exit_code=0, extra=()):
    """Import stat files; return the stats file."""
    stats = tmp_path / "out.stats.gz"
    assert run_command_line([*IMPORT, "-s", str(stats), *extra, *map(str, files)]) == exit_code
    return stats


def stat_file(tmp_path, *results, head=HEAD):
    """Write a stat file of ssbench."""
    path = tmp_path / "made.stat"
    path.write_bytes(msgpack.packb(head) + b"".join(msgpack.packb([result]) for result in results))
    return path


def printed(stats, name="ssbench", pctile=95.0):
    out = io.StringIO()
    write_report(stats, out, name, pctile)
    return out.getvalue()


def row_of(stats, pctile=95.0):
    (row,) = csv.DictReader(io.StringIO(printed(stats, "ssbench-csv", pctile)))
    return row


@pytest.mark.parametrize("name", ["small", "medium"])
def test_the_report_of_ssbench_is_reproduced_line_by_line(tmp_path, name):
    """One line differs: when it began. ssbench takes a latency off the whole second that the first job ended in."""
    theirs = (DATA / f"{name}_test.report.txt").read_text().splitlines()
    ours = printed(imported(tmp_path, DATA / f"{name}_test.stat.gz")).splitlines()
    different = [(mine, own) for mine, own in zip(ours, theirs, strict=False) if mine != own]
    ((mine, own),) = different
    assert mine == own.replace("Ran 2026-11-22 08:34:53", "Ran 2026-11-22 08:34:54").replace("35:10", "35:11")
    more = ours[len(theirs) :]
    assert "TOTAL 0.0 " not in more[0]
    assert [line.partition(":")[0] for line in more] == ["Average MB per second (10^6 bytes)", "NOTE", "NOTE"]
    assert "40 ms" in more[1]
    assert "CREATE" in more[0]
    assert "TOTAL" not in more[0], "ssbench does not keep how large a read was"


@pytest.mark.parametrize("name", ["small", "medium"])
def test_the_csv_of_ssbench_is_reproduced_column_by_column(tmp_path, name):
    """The same columns in the same order. Its rates have rounding errors of sums of seconds since 1970."""
    with (DATA / f"{name}_test.csv").open() as file:
        (theirs,) = csv.DictReader(file)
    ours = row_of(imported(tmp_path, DATA / f"{name}_test.stat.gz"))
    assert list(ours)[: len(theirs)] == list(theirs)
    different = {key for key, value in theirs.items() if ours[key] != value}
    rates = {key for key in different if key.endswith("_avg_req_per_s")}
    assert different - rates <= {"start_time", "duration"}
    assert all(float(ours[key]) == pytest.approx(float(theirs[key]), abs=2e-6) for key in rates)
    assert set(list(ours)[len(theirs) :]) == {"run_state"} | {
        f"{block}_mb_per_s" for block in ("total", "create", "read", "update", "delete")
    }


@pytest.mark.parametrize("name", ["small", "medium"])
def test_the_requests_per_second_of_ssbench_are_reproduced(tmp_path, name, capsys):
    rates = tmp_path / "rps.csv"
    stats = imported(tmp_path, DATA / f"{name}_test.stat.gz")
    argv = ["report-scenario", "-s", str(stats), "--format", "ssbench", "--pctile", "50", "-r", str(rates)]
    assert run_command_line(argv) == 0
    assert rates.read_text() == (DATA / f"{name}_test.rps.csv").read_text()
    assert "50%-ile" in capsys.readouterr().out


def test_a_percentile_is_that_of_ssbench_and_the_extremes_are_the_extremes():
    """At a whole rank ssbench takes the mean with the next value; at 100 it fails, at 0 it takes two extremes."""
    assert [tuple(percentile_ranks(100, pctile)) for pctile in (0, 0.5, 50, 95, 99.5, 100)] == [
        (1,),
        (1,),
        (50, 51),
        (95, 96),
        (100,),
        (100,),
    ]
    assert [tuple(percentile_ranks(7, pctile)) for pctile in (50, 95)] == [(4,), (7,)]


@pytest.mark.parametrize(("pctile", "value"), [(0, "0.500000"), (50, "1.500000"), (100, "4.000000")])
def test_the_percentile_can_be_any_from_0_to_100(tmp_path, pctile, value):
    results = [{**DONE, "last_byte_latency": each, "completed_at": 1000.0 + each} for each in (0.5, 1, 2, 4)]
    row = row_of(imported(tmp_path, stat_file(tmp_path, *results)), pctile)
    assert float(row[f"total_last_all_{pctile}_pctile"]) == float(value)


def test_failed_jobs_are_counted_by_kind_and_have_no_latency(tmp_path, capsys):
    """One class fails as a whole, where ssbench prints nothing but a traceback."""
    failed = [{**FAILED, "size_str": "big", "completed_at": 1001 + each} for each in range(2)]
    stats = imported(tmp_path, stat_file(tmp_path, DONE, *failed, {**DONE, "trans_id": "tx2"}))
    text = printed(stats)
    assert "       Count:     2 (    2 error;    22 retries: 1100.00%)  Average" in text
    assert "       Count:     0 (    2 error;    20 retries:  0.00%)  Average requests per second:   0.0" in text
    assert "Errors by kind:\n           2  create[big]: http-503\n" in text
    assert text.count("NOTE: WARNING") == 0
    assert not any(secret in text + capsys.readouterr().err for secret in SECRETS)
    row = row_of(stats)
    assert (row["errors create[big]: http-503"], row["create_errors"], row["total_count"]) == ("2", "2", "2")


@pytest.mark.parametrize("others", [[], ["big"]])
def test_a_class_called_all_is_counted_once(tmp_path, others):
    """So is the only class of a scenario that names none."""
    sizes = [{"name": name, "size_min": 1, "size_max": 2} for name in ("all", *others)]
    document = {"name": "n", "sizes": sizes, "initial_files": {"all": 3}, "crud_profile": [1, 0, 0, 0]}
    results = [{**DONE, "size_str": name} for name in ("all", "all", *others)]
    row = row_of(imported(tmp_path, stat_file(tmp_path, *results, head={**HEAD, "_scenario_data": document})))
    assert (row["total_count"], row["read_count"]) == (str(len(results)),) * 2
    assert ("total_last_class_all_avg" in row) == bool(others)


def test_nothing_that_an_import_leaves_has_a_credential(tmp_path, capsys):
    stats = imported(tmp_path, stat_file(tmp_path, DONE, FAILED))
    everything = repr([block.body for block in StatsFile(stats).blocks()])
    for name in ("text", "json", "jsonl", "csv", "markdown", "ssbench", "ssbench-csv"):
        everything += printed(stats, name)
    captured = capsys.readouterr()
    assert not any(secret in everything + captured.out + captured.err for secret in SECRETS)


def test_a_file_in_which_every_job_failed_is_reported(tmp_path, capsys):
    stats = imported(tmp_path, stat_file(tmp_path, FAILED, FAILED), exit_code=3)
    assert "every job failed" in capsys.readouterr().err
    text = printed(stats)
    assert "Count:     0 (    2 error;" in text
    assert "no request succeeded" in text
    assert "Last-byte  latency:  N/A   -   N/A " in text


def test_several_files_are_trials_or_treatments(tmp_path, capsys):
    """Files of the same scenario and users are trials of one treatment; of others they are another one."""
    small, medium = (DATA / f"{name}_test.stat.gz" for name in ("small", "medium"))
    stats = imported(tmp_path, small, medium, small)
    text = printed(stats)
    assert text.count("CRUD weighted average") == 2
    assert "2 trials together" in text
    assert "Small test scenario, Medium test scenario: environment=lab engine=swift scenario=Small test" in text
    lines = list(csv.DictReader(io.StringIO(printed(stats, "ssbench-csv"))))
    assert [line["total_count"] for line in lines] == ["600", "300"]
    assert "3 runs of ssbench imported: 900 jobs" in capsys.readouterr().err


def test_errors_are_those_of_the_treatment_and_workers_are_all_that_ran_jobs(tmp_path):
    """Two of three failures are of the second file; its second worker had no success, and is one all the same."""
    one = stat_file(tmp_path, DONE, {**FAILED, "worker_id": 0}).rename(tmp_path / "one.stat")
    head = {**HEAD, "user_count": 3, "_scenario_data": {**DOCUMENT, "name": "m"}, "name": "m"}
    two = stat_file(tmp_path, DONE, FAILED, FAILED, head=head)
    stats = imported(tmp_path, one, two)
    rows = list(csv.DictReader(io.StringIO(printed(stats, "ssbench-csv"))))
    (errors,) = [name for name in rows[0] if name.startswith("errors ")]
    assert [(row["worker_count"], row["total_errors"], row[errors]) for row in rows] == [
        ("1", "1", "1"),
        ("2", "2", "2"),
    ]
    assert "Distribution of requests per worker-ID:  0.000 -   1.000 " in printed(stats)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--metric", "x"], "--metric x: stat files"),
        (["--interval", "1s"], "--interval 1s: stat files"),
        (["--label", "engine=x"], "--label engine=x"),
    ],
)
def test_what_a_stat_file_needs_not_is_refused(tmp_path, capsys, argv, message):
    imported(tmp_path, DATA / "small_test.stat.gz", exit_code=2, extra=argv)
    assert message in capsys.readouterr().err


def test_a_file_whose_scenario_cannot_be_read_is_refused(tmp_path, capsys):
    head = {**HEAD, "_scenario_data": {**DOCUMENT, "crud_profile": [1, 1]}}
    imported(tmp_path, stat_file(tmp_path, DONE, head=head), exit_code=2)
    assert "its scenario cannot be read" in capsys.readouterr().err


def test_a_class_has_the_name_that_its_scenario_has_here(tmp_path):
    sizes = [{**SIZES[0], "name": "my class"}]
    head = {**HEAD, "_scenario_data": {**DOCUMENT, "sizes": sizes, "initial_files": {"my class": 1}}}
    text = printed(imported(tmp_path, stat_file(tmp_path, {**DONE, "size_str": "my class"}, head=head)))
    assert "(my-class objs)" in text
    assert "my class" not in text


def test_a_report_of_other_jobs_says_that_there_are_no_objects(tmp_path, capsys):
    log = Path("tests/data/sysbench/cpu-1t.txt")
    stats = tmp_path / "out.stats.gz"
    argv = ["import-results", "sysbench-cpu", "--environment", "e", "--engine", "docker", "-s", str(stats), str(log)]
    assert run_command_line(argv) == 0
    assert run_command_line(["report-scenario", "-s", str(stats), "--format", "ssbench"]) == 2
    assert "carry no timestamps" in capsys.readouterr().err
    assert "(no jobs on objects: the format text shows every job)" in printed(stats)
    assert row_of(stats) == {"scenario_name": "sysbench-cpu, measured elsewhere", "run_state": "complete"}


def test_results_of_two_classes_stay_those_of_two(tmp_path):
    names = ["my class", "my/class"]
    sizes = [{**SIZES[0], "name": name} for name in names]
    head = {**HEAD, "_scenario_data": {**DOCUMENT, "sizes": sizes, "initial_files": dict.fromkeys(names, 1)}}
    results = [{**DONE, "size_str": name} for name in names]
    text = printed(imported(tmp_path, stat_file(tmp_path, *results, head=head)))
    assert "(my-class objs)" in text
    assert "(my-class-2 objs)" in text
