"""``import-results``: a stats file that every report reads, marked as imported, without invented values."""

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path

import pytest
from builders import write_report
from places import DATA

from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile
from bench_master.cli import run_command_line

GOOD = (DATA / "sysbench" / "cpu-1t.txt").read_text()
IMPORT = ["import-results", "sysbench-cpu"]
CPU_LOG = "user,nice,system,idle,iowait,irq,softirq,steal\n0,0,0,0,0,0,0,0\n50,0,0,50,0,0,0,0\n"


@pytest.fixture
def imported(tmp_path):
    """Import two good runs and a broken one from a gzip, and a monitor's log."""
    log, monitor, stats = tmp_path / "log.gz", tmp_path / "cpu.csv", tmp_path / "out.stats.gz"
    log.write_bytes(gzip.compress(f"noise\n{GOOD}\nnoise\n{GOOD[:300]}\nKilled\n{GOOD}".encode()))
    monitor.write_text(CPU_LOG)
    argv = [
        "import-results",
        "sysbench-cpu",
        "--environment",
        "control",
        "--engine",
        "docker",
        "--label",
        "threads=1",
    ]
    assert run_command_line([*argv, "-s", str(stats), str(log), str(monitor)]) == 0
    return stats


def test_a_text_is_prepended_to_each_run(tmp_path):
    """``--before-each`` supplies what is missing in the outputs, such as a tool's version; a note is no such line."""
    head, log, stats = tmp_path / "head.txt", tmp_path / "log.txt", tmp_path / "out.stats.gz"
    head.write_text("a note from elsewhere\n")
    log.write_text(GOOD + GOOD)
    argv = [*IMPORT, "--environment", "control", "--engine", "docker", "-s", str(stats), "--before-each", str(head)]
    assert run_command_line([*argv, str(log)]) == 3
    outputs = [record for block in StatsFile(stats).blocks({"outputs"}) for record in block.body]
    assert [record.stdout.decode().splitlines()[0] for record in outputs] == ["a note from elsewhere"] * 2


def report(stats, format_name):
    """Return a report as text."""
    out = io.StringIO()
    write_report(stats, out, format_name)
    return out.getvalue()


def test_runs_are_trials_and_an_incomplete_run_is_failed(imported):
    """Each run counts once; its output is kept with it."""
    document = json.loads(report(imported, "json"))
    (entry,) = document["treatments"]
    stated = {"version": "1.0", "threads": 1, "cpu_max_prime": 20000}
    assert entry["treatment"] == {"environment": "control", "engine": "docker", **stated}
    assert (entry["jobs"]["done"], entry["jobs"]["failed"], entry["trials"]["run"]) == (2, 1, 3)
    assert entry["metrics"]["events_per_second"]["n"] == 2
    assert "log.gz: line" in document["errors"][0]["message"]
    outputs = [record for block in StatsFile(imported).blocks({"outputs"}) for record in block.body]
    assert [record.stdout.decode().splitlines()[0][:8] for record in outputs] == ["sysbench"] * 3


def test_unknown_values_are_not_invented(imported):
    """Times, durations, rates, host, order and seed are unknown, and no report has a figure for them."""
    document = json.loads(report(imported, "json"))
    run, totals, (entry,) = document["run"], document["totals"], document["treatments"]
    assert [run[key] for key in ("created", "ended", "order", "seed", "sampling_interval_s")] == [None] * 5
    assert (totals["duration_s"], totals["jobs_per_s"], entry["jobs_per_s"]) == (None, None, None)
    assert entry["operations"]["job"]["n"] == 0
    assert entry["timing_error_max_s"] is None
    assert document["hosts"][0]["fingerprint"] is None
    assert not StatsFile(imported).header.clock.unix_ns
    _, *lines = [json.loads(line) for line in report(imported, "jsonl").splitlines()]
    assert {(line["start_s"], line["duration_s"]) for line in lines} == {(None, None)}


@pytest.mark.parametrize(
    ("format_name", "mark"),
    [
        ("text", "*** IMPORTED: measured elsewhere."),
        ("csv", ",true,,"),
        ("json", '"measures": "elsewhere"'),
        ("jsonl", '"imported": true'),
    ],
)
def test_every_report_says_that_it_was_imported(imported, format_name, mark):
    """A reader sees that Weighbridge did not run it."""
    assert mark in report(imported, format_name)


def test_the_source_files_are_recorded(imported):
    """Each file has its name, size, hash, and the number of runs and readings in it."""
    log, monitor = StatsFile(imported).header.imported["files"]
    assert (Path(log["name"]).name, log["runs"], log["readings"], len(log["sha256"])) == ("log.gz", 3, 0, 64)
    assert (Path(monitor["name"]).name, monitor["runs"], monitor["readings"]) == ("cpu.csv", 0, 1)


def test_samples_have_rates_only_with_an_interval(tmp_path):
    """Without --interval a disk has amounts only."""
    head = "major number,minor number,device name,a,b,c,d,e,f,g,h,i,j,k\n"
    disk = tmp_path / "io.csv"
    disk.write_text(head + "8,0,sda,0,0,0,0,0,0,0,0,0,0,0\n8,0,sda,0,0,60,0,0,0,0,0,0,0,0\n")
    argv = ["import-results", "sysbench-fileio", "--environment", "e", "--engine", "docker", str(disk), "-s"]
    assert run_command_line([*argv, str(tmp_path / "a.gz")]) == 0
    assert run_command_line([*argv, str(tmp_path / "b.gz"), "--interval", "15s"]) == 0
    bare, rated = (json.loads(report(tmp_path / name, "json"))["hosts"][0]["samples"] for name in ("a.gz", "b.gz"))
    assert bare["disk_read_bytes"]["mean"] == 60 * 512
    assert rated["disk_read_bytes_per_s"]["mean"] == 60 * 512 / 15


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--label", "threads"], "--label threads: expected KEY=VALUE"),
        (["--label", "engine=x"], "--label engine=x: give it with --engine"),
        (["--interval", "0s"], "--interval: '0s': expected more than 0 seconds"),
        ([], "no run of sysbench-cpu in "),
        (["--metric", "total_time_s"], "line 1 is no number"),
    ],
)
def test_invalid_input_is_refused(tmp_path, capsys, more, message):
    """A usage error creates no file."""
    text = tmp_path / "t.txt"
    text.write_text("nothing here\n")
    stats = tmp_path / "o.stats.gz"
    argv = ["import-results", "sysbench-cpu", "--environment", "e", "--engine", "docker", "-s", str(stats), str(text)]
    try:
        status = run_command_line([*argv, *more])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert message in capsys.readouterr().err
    assert not stats.exists()


def test_a_stats_file_is_never_overwritten(imported, tmp_path, capsys):
    """An existing name is refused."""
    text = tmp_path / "t.txt"
    text.write_text(GOOD)
    argv = [
        "import-results",
        "sysbench-cpu",
        "--environment",
        "e",
        "--engine",
        "docker",
        "-s",
        str(imported),
        str(text),
    ]
    assert run_command_line(argv) == 3
    assert "already exists" in capsys.readouterr().err


def test_imported_results_have_no_rate_histogram(imported, tmp_path, capsys):
    """It is unknown when the jobs ended."""
    argv = ["report-scenario", "-s", str(imported), "-r", str(tmp_path / "r.tsv")]
    assert run_command_line(argv) == 2
    assert "imported results carry no timestamps, so no rates can be shown" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "seconds"), [([], [""]), (["--interval", "15s"], ["15.000000"])])
def test_monitor_readings_have_times_only_with_an_interval(tmp_path, more, seconds):
    """The start of a log is unknown; the offset of a reading follows from the interval."""
    monitor, stats = tmp_path / "cpu.csv", tmp_path / "o.gz"
    monitor.write_text(CPU_LOG)
    argv = [*IMPORT, "--environment", "e", "--engine", "docker", *more, "-s", str(stats), str(monitor)]
    assert run_command_line(argv) == 0
    rows = [line.split(",") for line in report(stats, "samples").splitlines()]
    assert [row[0] for row in rows if row[3] == "cpu_user_percent"] == seconds
    assert [row[5] for row in rows if row[3] == "cpu_user_percent"] == ["50.0"]


def test_formats_that_need_times_refuse_imported_results(imported, tmp_path, capsys):
    """No file is created."""
    out = tmp_path / "report"
    assert run_command_line(["report-scenario", "-s", str(imported), "--format", "bucketbench", "-f", str(out)]) == 2
    assert capsys.readouterr().err.endswith("imported results carry no timestamps, so no times can be shown\n")
    assert not out.exists()


def test_failed_runs_count_as_failed_jobs(imported):
    """The rows identify each run."""
    (rows,) = StatsFile(imported).iter_jobs()
    assert rows["outcome"].tolist() == [Outcome.DONE, Outcome.FAILED, Outcome.DONE]
    assert set(rows["start_ns"].tolist()) | set(rows["end_ns"].tolist()) == {0}


def sysbench(threads, limit, text=GOOD):
    """Return the output with other values."""
    lines = text.replace("Number of threads: 1", f"Number of threads: {threads}")
    return "\n".join(
        f"Prime numbers limit: {limit}" if line.startswith("Prime numbers limit") else line
        for line in lines.splitlines()
    )


def test_runs_with_other_parameters_are_separate_treatments(tmp_path):
    """Stated parameters separate runs, and are labels; an incomplete run joins its group."""
    log, stats = tmp_path / "log.txt", tmp_path / "o.stats.gz"
    broken = "\n".join(sysbench(1, 16000).splitlines()[:8])
    log.write_text("\n\n".join([sysbench(1, 4000), sysbench(1, 16000), sysbench(1, 4000), broken, ""]))
    argv = [*IMPORT, "--environment", "e", "--engine", "docker", "-s", str(stats), str(log)]
    assert run_command_line(argv) == 0
    document = json.loads(report(stats, "json"))
    rows = [(row["treatment"], row["jobs"]["done"], row["jobs"]["failed"]) for row in document["treatments"]]
    place = {"environment": "e", "engine": "docker", "version": "1.0", "threads": 1}
    assert rows == [({**place, "cpu_max_prime": 4000}, 2, 0), ({**place, "cpu_max_prime": 16000}, 1, 1)]
    assert StatsFile(stats).header.treatments[0].job["params"]["threads"] == 1
    assert StatsFile(stats).header.trials == [(0, 0, False), (1, 0, False), (0, 1, False), (1, 1, False)]


def test_versions_that_are_not_comparable_are_separate_treatments(tmp_path):
    """An event of sysbench 0.4 is other work than one of 1.0: their rates share no mean."""
    files = [str(DATA / "sysbench" / name) for name in ("cpu-1t.txt", "cpu-0.4.12.txt")]
    stats = tmp_path / "o.stats.gz"
    assert run_command_line([*IMPORT, "--environment", "e", "--engine", "docker", "-s", str(stats), *files]) == 0
    labels = [row["treatment"]["version"] for row in json.loads(report(stats, "json"))["treatments"]]
    assert labels == ["1.0", "0.4"]


def test_a_label_that_an_output_contradicts_is_refused(tmp_path, capsys):
    """The label of the user and the parameter in the output cannot both be true."""
    text, stats = tmp_path / "t.txt", tmp_path / "o.stats.gz"
    text.write_text(sysbench(4, 4000))
    argv = [*IMPORT, "--environment", "e", "--engine", "docker", "-s", str(stats), str(text), "--label", "threads=2"]
    assert run_command_line(argv) == 2
    assert "--label threads=2: an output states 4" in capsys.readouterr().err
    assert not stats.exists()


@pytest.mark.parametrize(
    ("data", "reason"), [(lzma.compress(b"x"), "compressed with xz"), (bz2.compress(b"x"), "compressed with bzip2")]
)
def test_another_compressed_format_is_refused_by_name(tmp_path, capsys, data, reason):
    """It is not read as a text without a run."""
    packed = tmp_path / "cpu.packed"
    packed.write_bytes(data)
    argv = [*IMPORT, "--environment", "e", "--engine", "docker", "-s", str(tmp_path / "o.gz"), str(packed)]
    assert run_command_line(argv) == 2
    assert f"{packed}: {reason}; decompress it first, or use gzip" in capsys.readouterr().err


def test_files_without_a_run_are_reported_one_by_one(tmp_path, capsys):
    """An empty output and one of a preparation are reported; a text from a Windows shell is read."""
    empty, other, wide = (tmp_path / name for name in ("empty.txt", "prepare.txt", "wide.txt"))
    empty.write_text("")
    other.write_text((DATA / "sysbench" / "fileio-prepare.txt").read_text())
    wide.write_bytes(GOOD.replace("\n", "\r\n").encode("utf-16"))
    argv = [*IMPORT, "--environment", "e", "--engine", "docker", "-s", str(tmp_path / "o.gz")]
    assert run_command_line([*argv, str(empty), str(other), str(wide)]) == 0
    stderr = capsys.readouterr().err
    assert f"{empty}: no run of sysbench-cpu in this file\n" in stderr
    assert f"{other}: 1 output skipped, not a run of sysbench-cpu: line 3: this is what fileio prints" in stderr
    assert "1 run imported\n" in stderr


def test_an_import_of_failed_runs_only_is_no_success(tmp_path, capsys):
    """The file is written, for its errors; neither the import nor its report is a success."""
    log, stats = tmp_path / "log.txt", tmp_path / "out.stats.gz"
    log.write_text(f"{GOOD[:300]}\nKilled\n")
    argv = [*IMPORT, "--environment", "control", "--engine", "docker", "-s", str(stats), str(log)]
    assert run_command_line(argv) == 3
    assert "every run failed" in capsys.readouterr().err
    assert run_command_line(["report-scenario", "-s", str(stats), "-q"]) == 3
