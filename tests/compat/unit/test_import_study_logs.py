"""The logs that the study vm-docker-bench kept, in their form: each of their runs is read, with its own figures."""

import io
import json

import pytest
from builders import write_report
from places import DATA

from bench_common.errors import ParseError, UsageError
from bench_common.stats.reader import StatsFile
from bench_features.compat.log_files import read_monitor, split_runs
from bench_master.cli import run_command_line
from bench_workloads.iibench import HEADER
from bench_workloads.registry import workload

ROWS = 100_000


def server_log(minute):
    """Return what the study's container printed before its benchmark: a server that was set up and started."""
    return (
        "=> An empty or uninitialized volume is detected in /var/lib/mysql\n=> Installing MySQL ...\n=> Done!\n"
        + "=" * 72
        + f"\n\n    mysql -uadmin -h<host>\n\n140710 19:{minute:02}:26 mysqld_safe Starting mysqld daemon\n"
        + HEADER.replace("#", "")
        + "\n"
    )


def iibench_run(rate):
    """Return one run of ten reports at this rate, with a warning in front of the first."""
    step = ROWS / rate
    rows = "".join(
        f"{ROWS * n} {step:.1f} {step * n:.1f} {rate:.1f} {ROWS * n} {rate:.1f} {4000 * n} {4000 / step:.1f} "
        f"{4000 / step:.1f}\n"
        for n in range(1, 11)
    )
    return (
        f"{HEADER}\niibench.py:175: Warning: Unknown table 'purchases_index'\n"
        "  cursor.execute('drop table if exists %s' % FLAGS.table_name)\n"
        f"create table purchases_index ( transactionid int ) engine=innodb \n{rows}Done\n"
    )


def test_all_25_runs_of_an_iibench_log_are_read():
    """Each begins with a server's log and has a warning before its first row; what follows `Done` is the log's."""
    rates = [5000 + 10 * n for n in range(25)]
    runs = [server_log(n) + iibench_run(rate) for n, rate in enumerate(rates)]
    found = split_runs(workload("iibench"), "Pulling repository registry/iibench\n\n" + "".join(runs))
    assert [run.error for run in found] == [""] * 25
    assert [run.metrics["inserts_per_second"] for run in found] == rates
    assert {run.metrics["rows"] for run in found} == {10 * ROWS}
    assert all(run.text.endswith("\nDone\n") for run in found)
    stated = {"version": "2012", "storage_engine": "innodb", "rows_per_report": ROWS, "max_rows": 10 * ROWS}
    assert all(run.stated_params == {**stated, "queries": True} for run in found)


@pytest.mark.parametrize(
    "warning",
    [
        "iibench.py:175: Warning: Unknown table 'x'\n  cursor.execute('drop table')",
        "/usr/lib/python2.7/a.py:3: DeprecationWarning: old",
        "140710 19:56:26 mysqld_safe Logging to '/var/log/mysql/error.log'.",
        "2024-05-01T10:00:00.123456Z 0 [Warning] InnoDB: a slow disk",
        "2024-05-01 10:00:00 0 [Note] mariadbd: ready for connections.",
    ],
)
def test_warnings_before_the_first_row_are_passed_over(warning):
    """Those of Python and of the server beside it; nothing that says of a failure is."""
    tool, plain = workload("iibench"), iibench_run(5000)
    text = plain.replace("create table", f"{warning}\ncreate table")
    assert tool.parse(text) == tool.parse(plain)
    with pytest.raises(ParseError, match="not a line that iibench prints here"):
        tool.parse(plain.replace("create table", "2024-05-01 10:00:00 0 [ERROR] out of memory\ncreate table"))
    with pytest.raises(ParseError):
        tool.parse(f"{HEADER}\n{warning}\n")


def test_an_iibench_run_that_was_killed_is_a_failed_run_among_the_others():
    """It has no `Done`, and its rows are not those of the next run."""
    cut = iibench_run(5000).rpartition("Done")[0]
    found = split_runs(workload("iibench"), server_log(1) + cut + server_log(2) + iibench_run(6000))
    assert [bool(run.error) for run in found] == [True, False]
    assert found[1].metrics["inserts_per_second"] == 6000


@pytest.mark.parametrize(
    "noise", ["\0\r", "\0\r\n", "^@\r\n", "\r\0^@", "^@^@", "\0^@\r", "^@^M", "\r\n\x1b[2J\x1b[H\0"]
)
def test_blogbench_is_read_with_what_a_terminal_puts_in_front(noise):
    """NUL, CR, their echoes and a cleared screen, in any mixture: the run and what it states are the same."""
    tool, run = workload("blogbench"), (DATA / "blogbench" / "1.2-i3-s2.txt").read_text().lstrip()
    found = split_runs(tool, (noise + run.replace("\n", "\r\n")) * 2)
    assert [(one.error, one.metrics, one.stated_params) for one in found] == [
        ("", tool.parse(run), tool.stated_params(run))
    ] * 2
    assert tool.parse(noise + run) == tool.parse(run)


MEMCPY, DUMB, MCBLOCK = (
    line for line in (DATA / "mbw" / "1.2.2-default-n3.txt").read_text().splitlines() if line.startswith("AVG")
)


def mbw_runs(*lines, before=""):
    """Return error, processes and sum of MEMCPY of each run."""
    return [
        (run.error[:40], run.stated_params.get("processes"), run.metrics.get("labelled_memcpy_total_mib_per_second"))
        for run in split_runs(workload("mbw"), "\n".join(lines) + "\n", before=before)
    ]


@pytest.mark.parametrize(
    ("order", "count"),
    [
        ([MEMCPY, MEMCPY, DUMB, DUMB, MCBLOCK, MCBLOCK], 2),
        ([MEMCPY, MEMCPY, DUMB, MEMCPY, DUMB, DUMB, MCBLOCK, MCBLOCK, MCBLOCK], 3),
        ([MEMCPY, MEMCPY, DUMB, DUMB, MCBLOCK, MCBLOCK, MEMCPY, DUMB, MCBLOCK], 3),
        (["Starting test on 2 cores", "Waiting for tests to finish", *[MEMCPY, DUMB, MCBLOCK] * 2], 2),
    ],
)
def test_averages_of_several_mbw_side_by_side_are_one_run(order, count):
    """In whatever order they came; the number of processes is stated with their sum."""
    (found,) = split_runs(workload("mbw"), "\n".join(order) + "\n")
    assert found.error == ""
    assert found.stated_params["processes"] == found.metrics["processes"] == count
    one = found.metrics["labelled_memcpy_mib_per_second"]
    assert found.metrics["labelled_memcpy_total_mib_per_second"] == pytest.approx(count * one)
    assert f"{one:.3f} MiB/s" in MEMCPY


def test_averages_of_mbw_that_may_have_run_one_after_the_other_have_no_sum():
    """The rate of each process is right either way; a sum would be invented."""
    assert mbw_runs(*[MEMCPY, DUMB, MCBLOCK] * 3) == [("", None, None)] * 3
    with pytest.raises(ParseError, match="side by side or one after the other"):
        workload("mbw").parse("\n".join([MEMCPY, DUMB, MCBLOCK] * 3))


def test_several_runs_of_several_mbw_are_told_apart():
    """A log of runs by two processes each, with the help in front or a line between, or neither."""
    two = [MEMCPY, MEMCPY, DUMB, DUMB, MCBLOCK, MCBLOCK]
    total = 2 * workload("mbw").parse(f"{MEMCPY}\n{DUMB}\n{MCBLOCK}")["labelled_memcpy_mib_per_second"]
    assert mbw_runs(*two * 3) == mbw_runs(*[*two, "$ next"] * 3) == [("", 2, total)] * 3
    helping = (DATA / "mbw" / "1.2.2-help.txt").read_text()
    runs = split_runs(workload("mbw"), (helping + "\n".join(two) + "\n") * 2)
    assert [(run.error, run.stated_params["version"]) for run in runs] == [("", "1.2.2 or older")] * 2
    assert all(run.metrics["dumb_total_mib_per_second"] == total for run in runs)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([MEMCPY, MEMCPY, DUMB, DUMB, MCBLOCK], "2 of MEMCPY, 2 of DUMB, 1 of MCBLOCK: cut off"),
        ([MEMCPY, DUMB], "1 of MEMCPY, 1 of DUMB, 0 of MCBLOCK: cut off"),
        (["Starting test on 3 cores", MEMCPY, DUMB, MCBLOCK], "averages of 1 mbw, where 3 were started"),
        ([MEMCPY, DUMB, MCBLOCK.replace("Elapsed: 0", "Elapsed: 9")], "MiB in"),
    ],
)
def test_averages_that_are_not_whole_are_a_failed_run(lines, why):
    """Nothing is read of a part."""
    (found,) = split_runs(workload("mbw"), "\n".join(lines) + "\n")
    assert why in found.error


TWO_COLUMNS = "\n7587.8 318.6\n7611.0 315.1\n"


def test_each_column_of_a_list_has_its_metric():
    """By commas; a dash leaves a column out; the first line may be empty."""
    tool = workload("iibench")
    both = split_runs(tool, TWO_COLUMNS, "inserts_per_second,last_queries_per_second")
    assert [(run.line, run.metrics) for run in both] == [
        (2, {"inserts_per_second": 7587.8, "last_queries_per_second": 318.6}),
        (3, {"inserts_per_second": 7611.0, "last_queries_per_second": 315.1}),
    ]
    second = split_runs(tool, TWO_COLUMNS.replace(" ", ", "), "-,last_queries_per_second")
    assert [run.metrics for run in second] == [{"last_queries_per_second": 318.6}, {"last_queries_per_second": 315.1}]


@pytest.mark.parametrize(
    ("text", "metric", "why"),
    [
        (TWO_COLUMNS, None, "these are 2 plain numbers on each line; name the metric of each column"),
        (TWO_COLUMNS, "rows", "--metric rows names 1 of 2 columns; - leaves a column out"),
        (TWO_COLUMNS, "rows,row", r"no metric 'row' \(did you mean 'rows'\?\)"),
        (TWO_COLUMNS, "rows,rows", "name each metric once"),
        (TWO_COLUMNS, "-,-", "name each metric once, and at least one"),
        (TWO_COLUMNS + "7 8 9\n", "rows,total_time_s", "line 4 has 3 numbers, expected 2: '7 8 9'"),
        ("1\n", "-", "iibench has no metric '-'"),
    ],
)
def test_columns_that_have_no_metric_are_refused(text, metric, why):
    """With what was found and what to write."""
    with pytest.raises(UsageError, match=why):
        split_runs(workload("iibench"), text, metric)


CPU = "user,nice,system,idle,iowait,irq,softirq,steal\ncpu,10,0,0,10,0,0,0,0,0,0\ncpu,20,0,0,20,0,0,0,0,0,0\n"


@pytest.mark.parametrize("text", ["\n" + CPU, "\n \n\0" + CPU, "\n" + CPU.partition("\n")[2]])
def test_a_monitors_log_may_begin_with_an_empty_line(text):
    """Before the line that names the columns, or instead of it."""
    assert read_monitor(text).columns["cpu_user_percent"] == [50.0]
    with pytest.raises(ParseError) as caught:
        read_monitor(text + "disk,1\n")
    assert caught.value.line == len(text.splitlines()) + 1


@pytest.mark.parametrize(
    "lines",
    [
        ["0.52 0.58 0.59 1/389 12345", "1.52 0.68 0.60 3/401 12399"],
        [
            " 10:01:02 up 3 days,  2:03,  1 user,  load average: 0.52, 0.58, 0.59",
            "top - 10:01:03 up 1:04, 0 users,  load average: 1.52, 0.68, 0.60",
        ],
        ["load average: 0,52 0,58 0,59", "load average: 1,52 0,68 0,60"],
    ],
)
def test_load_averages_are_read(lines):
    """Of /proc/loadavg, of uptime and of top."""
    monitor = read_monitor("\n" + "\n".join(lines) + "\n")
    assert monitor.columns == {"load1": [0.52, 1.52], "load5": [0.58, 0.68], "load15": [0.59, 0.60]}
    assert monitor.units["load1"] == "1"
    with pytest.raises(ParseError, match=r"line 4: neither a line of /proc/loadavg nor of uptime: 'now'"):
        read_monitor("\n" + "\n".join([*lines, "now"]) + "\n")


def import_log(tmp_path, name, text, *more):
    """Import a log; return the stats file and the treatments of its JSON report."""
    log, stats = tmp_path / f"{name}.txt", tmp_path / f"{name}.stats.gz"
    log.write_text(text)
    argv = ["import-results", "ab", "--environment", name, "--engine", "docker", "-s", str(stats), str(log), *more]
    assert run_command_line(argv) == 0
    out = io.StringIO()
    write_report(stats, out, "json")
    return stats, json.loads(out.getvalue())["treatments"]


def test_what_the_outputs_of_two_imports_state_tells_their_treatments_apart(tmp_path):
    """One was run with 4 connections and one with 100: each import alone has nothing that differs."""
    four = (DATA / "ab" / "ok-n2000-c4.txt").read_text()
    hundred = four.replace("Concurrency Level:      4", "Concurrency Level:      100").replace("1.234", "30.86")
    stats, (one,) = import_log(tmp_path, "one", four * 2)
    _, (other,) = import_log(tmp_path, "other", hundred * 2)
    assert (one["treatment"]["concurrency"], other["treatment"]["concurrency"]) == (4, 100)
    stated = {"version": "2.3", "server": "Apache/2.4.68", "document_bytes": 12, "path": "/index.php"}
    assert stated.items() <= one["treatment"].items()
    header = StatsFile(stats).header.treatments[0]
    assert header.job["params"] == {**stated, "concurrency": 4, "keepalive": False}
    text = io.StringIO()
    write_report(stats, text, "text")
    assert "concurrency=4" in text.getvalue()


def test_fileio_states_how_its_requests_were_made():
    """How files were opened, when they were synced and how many requests there were to be."""
    tool = workload("sysbench-fileio")
    old, new = (
        tool.stated_params((DATA / "sysbench" / name).read_text())
        for name in ("fileio-0.4.12-rndrw.txt", "fileio-rndrw-direct.txt")
    )
    assert {
        "io_mode": "sync",
        "extra_flags": "none",
        "fsync_freq": 100,
        "rw_ratio": 1.5,
        "events": 10000,
    }.items() <= (old.items())
    assert (new["extra_flags"], new["events"]) == ("direct", 0)
    assert "rw_ratio" not in tool.stated_params((DATA / "sysbench" / "fileio-rndrd.txt").read_text())


def test_load_averages_of_a_monitor_are_in_the_report(tmp_path):
    """They are samples of the host like those of CPU and memory."""
    log, stats = tmp_path / "load.txt", tmp_path / "load.stats.gz"
    log.write_text("0.50 0.40 0.30 1/389 12345\n1.50 0.60 0.40 1/389 12346\n")
    argv = ["import-results", "ab", "--environment", "e", "--engine", "docker", "-s", str(stats), str(log)]
    assert run_command_line(argv) == 0
    out = io.StringIO()
    write_report(stats, out, "json")
    assert json.loads(out.getvalue())["hosts"][0]["samples"]["load1"]["mean"] == 1.0


def data(name):
    return (DATA / name).read_text()


def numbers(count):
    return "".join(f"{25 + n / 100:.2f}\n" for n in range(count))


SUMS = (
    "Starting test on 32 cores\nWaiting for tests to finish\nMEMCPY Total AVG: 31337.300 MiB/s\n"
    "DUMB Total AVG: 23275.900 MiB/s\nMCBLOCK Total AVG: 29488.400 MiB/s\n"
)
BLOGBENCH, AB = data("blogbench/1.1-i5-s2.txt"), data("ab/ok-n2000-c4.txt")
STUDY = [
    # workload, metric of plain numbers, log, and in it: whole runs, runs that were cut off
    ("sysbench-cpu", "total_time_s", numbers(300), 300, 0),
    ("sysbench-fileio", "mib_per_second", numbers(150), 150, 0),
    ("sysbench-oltp", "transactions_per_second", numbers(200), 200, 0),
    ("sysbench-oltp", None, data("sysbench/oltp_read_write.txt") * 100, 100, 0),
    ("mbw", None, SUMS * 300, 300, 0),
    ("blogbench", None, "\0\r\n".join([BLOGBENCH] * 69 + [BLOGBENCH[:600]] * 6), 69, 6),
    ("ab", None, AB * 44 + AB[:400], 44, 1),
    ("iibench", None, "".join(server_log(n % 60) + iibench_run(5000 + n) for n in range(75)), 75, 0),
]


def test_each_of_as_many_runs_as_the_study_has_is_read_or_a_failed_run():
    """1,245 runs in the forms in which it kept them; seven never ended. None is dropped, and none invented."""
    read, failed = 0, 0
    for name, metric, log, whole, cut in STUDY:
        found = [run for run in split_runs(workload(name), log, metric) if not run.other]
        good = sum(not run.error for run in found)
        assert (name, good, len(found) - good) == (name, whole, cut)
        assert all(run.metrics for run in found if not run.error)
        read, failed = read + good, failed + len(found) - good
    assert (read, failed) == (1238, 7)
