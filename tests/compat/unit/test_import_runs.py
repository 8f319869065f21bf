"""Finds the runs in a text: one or many, with foreign lines between them; an incomplete run is a failed run."""

import pytest
from places import DATA

from bench_common.errors import UsageError
from bench_features.compat.log_files import common_beginning, split_runs, without_prefixes
from bench_workloads.registry import workload

GOOD = (DATA / "sysbench" / "cpu-1t.txt").read_text()
CPU = workload("sysbench-cpu")


def rates(text, **more):
    """Return the rate of each run, or its error."""
    return [run.error or run.metrics["events_per_second"] for run in split_runs(CPU, text, **more)]


def test_a_single_run_is_found():
    """The plain output of the tool is read unchanged."""
    (run,) = split_runs(CPU, GOOD)
    assert run.metrics == CPU.parse(GOOD)
    assert (run.line, run.error) == (1, "")


def test_many_runs_with_other_lines_between():
    """Lines before, between and after runs are skipped."""
    text = f"Pulling image\n\n{GOOD}\n--- second\nreal 0m10s\n{GOOD}{GOOD}done\n"
    once = CPU.parse(GOOD)["events_per_second"]
    assert rates(text) == [once, once, once]
    assert [text.splitlines()[run.line - 1][:8] for run in split_runs(CPU, text)] == ["sysbench"] * 3


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_run_that_is_cut_off_is_a_failed_run(cut):
    """A killed run is not dropped silently: it is listed with the line where it stops being valid."""
    lines = GOOD.splitlines(keepends=True)
    broken = "".join(lines[: cut * len(lines) // 8])
    found = split_runs(CPU, f"{broken}\nKilled\n{GOOD}")
    assert [bool(run.error) for run in found] == [True, False]


def test_terminal_line_ends_are_read():
    """A log recorded through a terminal, with CR LF, is read like any other."""
    assert rates(GOOD.replace("\n", "\r\n") + "# prompt\r\n") == [CPU.parse(GOOD)["events_per_second"]]


def test_a_text_without_a_run_has_none():
    """Without a line that begins a run there is none."""
    assert split_runs(CPU, "hello\n") == []
    assert split_runs(CPU, "") == []


def test_the_help_of_mbw_belongs_to_the_next_run():
    """Lines that may begin a run can be inside one: the run is as long as its parser accepts."""
    mbw = workload("mbw")
    text = (DATA / "mbw" / "1.2.2-help.txt").read_text() + (DATA / "mbw" / "1.2.2-default-n3.txt").read_text()
    found = split_runs(mbw, f"$ run\n{text}\n$ again\n{text}")
    assert [run.error for run in found] == ["", ""]
    assert all("memcpy_mib_per_second" in run.metrics for run in found)


def test_plain_numbers_need_a_name():
    """One number on each line is read as the metric that the user names, and refused without one."""
    text = "26.0617\n\n26.0665\n 1e1 \n"
    found = split_runs(CPU, text, "total_time_s")
    assert [run.metrics for run in found] == [
        {"total_time_s": 26.0617},
        {"total_time_s": 26.0665},
        {"total_time_s": 10.0},
    ]
    assert [run.line for run in found] == [1, 3, 4]
    with pytest.raises(
        UsageError, match="these are plain numbers; name their metric with --metric, one of: events_per_second, "
    ):
        split_runs(CPU, text)
    with pytest.raises(UsageError, match=r"no metric 'total_time' \(did you mean 'total_time_s'\?\)"):
        split_runs(CPU, text, "total_time")


def test_a_metric_applies_to_plain_numbers_only():
    """A metric for a complete output is an error, and so is a word among numbers."""
    with pytest.raises(UsageError, match="line 2 is no number"):
        split_runs(CPU, "26.1\nfailed\n26.2\n", "total_time_s")


def test_the_study_s_nan_is_no_number():
    """Python's spellings of nan and infinity are not read as numbers."""
    with pytest.raises(UsageError, match="line 1 is no number"):
        split_runs(CPU, "nan\n1.5\n", "total_time_s")
    with pytest.raises(UsageError, match="line 2 is no number"):
        split_runs(CPU, "1.5\n1e999\n", "total_time_s")


def test_a_text_before_each_run_states_the_version():
    """What a study did not log (the version of blogbench) can be added; line numbers are those of the log."""
    blogbench = workload("blogbench")
    helping, run = ((DATA / "blogbench" / name).read_text() for name in ("1.1-help.txt", "1.1-i5-s2.txt"))
    log = f"Pulling\n{run}\n{run[:400]}\n"
    good, broken = split_runs(blogbench, log, before=helping)
    assert good.metrics == {"reads_score_1_1": 13713.0, "writes_score_1_1": 518.0}
    assert broken.error.startswith(f"line {len(log.rstrip().splitlines())}: ")
    assert split_runs(blogbench, log)[0].metrics.keys() == {
        "reads_score_unknown_version",
        "writes_score_unknown_version",
    }


LOGGED = [
    ("sysbench-cpu", "sysbench/cpu-1t.txt"),
    ("sysbench-cpu", "sysbench/docker-cpu-tty-crlf.txt"),
    ("sysbench-memory", "sysbench/memory-0.4.12.txt"),
    ("sysbench-fileio", "sysbench/fileio-rndrw.txt"),
    ("sysbench-oltp", "sysbench/oltp_read_write.txt"),
    ("ab", "ab/ok-n2000-c4.txt"),
    ("ab", "ab/ok-quiet.txt"),
    ("iibench", "iibench/py2-2012-insert_only.txt"),
    ("iibench", "iibench/py3-head-docker-q4.txt"),
    ("mbw", "mbw/1.2.2-default-n3.txt"),
    ("mbw", "mbw/1.2.2-quiet.txt"),
    ("mbw", "mbw/1.2.2-t1.txt"),
    ("mbw", "mbw/2.0-quiet.txt"),
    ("blogbench", "blogbench/1.2-i3-s2.txt"),
]


@pytest.mark.parametrize(("name", "file"), LOGGED)
@pytest.mark.parametrize("between", ["", "\n", "real\t0m10s\n# next\n\nstarting ...\n"])
def test_the_runs_of_every_tool_are_found_in_a_log(name, file, between):
    """Three runs are found whatever is between them, each with the same figures as alone."""
    tool, output = workload(name), (DATA / file).read_text()
    found = split_runs(tool, between + (output + between) * 3)
    assert [(run.error, run.metrics, run.stated_params) for run in found] == [
        ("", tool.parse(output), tool.stated_params(output))
    ] * 3


@pytest.mark.parametrize(
    ("name", "run", "others"),
    [
        (
            "sysbench-fileio",
            "sysbench/fileio-rndrw.txt",
            ("sysbench/fileio-prepare.txt", "sysbench/fileio-cleanup.txt"),
        ),
        (
            "sysbench-oltp",
            "sysbench/oltp_read_write.txt",
            ("sysbench/oltp_read_write-prepare.txt", "sysbench/oltp_read_write-cleanup.txt"),
        ),
        ("sysbench-cpu", "sysbench/cpu-1t.txt", ("sysbench/memory-read-global.txt", "sysbench/mutex.txt")),
        ("ab", "ab/ok-c1.txt", ("ab/version.txt", "ab/version.txt")),
    ],
)
def test_preparation_cleanup_and_other_tests_are_not_failed_runs(name, run, others):
    """A script's log has all of them; only the run counts, and the others are reported."""
    before, after = ((DATA / other).read_text() for other in others)
    version = "sysbench 1.0.20\n"
    found = split_runs(workload(name), version + before + (DATA / run).read_text() + after)
    assert [one.other for one in found] == [True, False, True]
    assert found[1].metrics == workload(name).parse((DATA / run).read_text())


def test_a_preparation_that_failed_is_a_failure():
    """A failed preparation is not skipped."""
    prepare = (DATA / "sysbench" / "fileio-prepare.txt").read_text()
    full = (
        prepare.rpartition("268435456 bytes")[0]
        + "FATAL: Failed to write file! errno = 28 (No space left on device)\n"
    )
    (found,) = split_runs(workload("sysbench-fileio"), full)
    assert not found.other
    assert "sysbench failed: 'FATAL: Failed to write file!" in found.error


@pytest.mark.parametrize("methods", [("MEMCPY", "DUMB"), ("MEMCPY", "DUMB", "MCBLOCK")])
@pytest.mark.parametrize("quiet", [False, True])
def test_a_run_of_mbw_that_was_killed_between_its_methods_is_a_failed_run(methods, quiet):
    """The output of the first method is complete, and is not read as a run of that method alone."""
    output = (DATA / "mbw" / "1.2.2-default-n3.txt").read_text().splitlines()
    kept = [line for line in output if "Method" not in line or any(method in line for method in methods)]
    if "MCBLOCK" not in methods:
        kept = [line for line in kept if "as blocks" not in line]
    if quiet:
        kept = [line for line in kept if "Method" in line]
    cut = kept.index(next(line for line in kept if "DUMB" in line)) + 1
    (found,) = split_runs(workload("mbw"), "\n".join([*kept[:cut], "Killed", ""]))
    assert found.error


def test_many_mbw_at_once_are_one_run():
    """The help and the output of each process belong together, however many there are."""
    helping, one = ((DATA / "mbw" / name).read_text() for name in ("1.4-help.txt", "1.4-default-n3.txt"))
    together = helping + "".join(f"process {number} of 6\n{one}" for number in range(1, 7))
    found = split_runs(workload("mbw"), f"$ bench\n{together}$ bench\n{together}")
    assert [(run.error, run.metrics["processes"]) for run in found] == [("", 6.0)] * 2


@pytest.mark.parametrize(
    "prefix",
    [
        "2024-05-01T12:00:00.123456789Z ",
        "2024-05-01T12:00:00.123456789+02:00 stdout F ",
        "[2024-05-01 12:00:00] ",
        "bench-1  | ",
        "bench-1  | 2024-05-01T12:00:00.123456789Z ",
        "May  1 12:00:00 blade sysbench[1234]: ",
        "May 11 12:00:00.123456 blade sysbench[1234]: ",
        "2024-05-01T12:00:00+0000 blade bench.service[1234]: ",
        "1714564800.123456 blade sysbench[1234]: ",
        "<14>1 2024-05-01T12:00:00.1Z blade sysbench 1234 - - ",
        "<14>May  1 12:00:00 blade sysbench[1234]: ",
        "[pod/loadgen-9h51j/bench] ",
        "[pod/loadgen-9h51j/bench] 2024-05-01T12:00:00.123456789Z ",
        "bench.1.tzxlgl1v7s4u@node-1    | ",
        "2024-05-01T12:00:00.123456789Z bench.1.tzxlgl1v7s4u@node-1    | ",
    ],
)
@pytest.mark.parametrize(("name", "file"), LOGGED)
def test_prefixes_of_log_collectors_are_removed(name, file, prefix):
    """From each line, also if the collector strips the trailing blank of an empty one."""
    tool, output = workload(name), (DATA / file).read_text()
    if output.startswith("^@"):
        output = output.removeprefix("^@")
    log = "".join(f"{(prefix + line).rstrip()}\n" for line in ["starting", *output.splitlines(), "stopped"])
    assert [(run.error, run.metrics) for run in split_runs(tool, log)] == [("", tool.parse(output))]
    alone = "".join(f"{prefix + line}\n" for line in output.splitlines())
    assert tool.parse(without_prefixes(tool, alone)) == tool.parse(output)


def test_an_unknown_prefix_is_told_as_one():
    """The first line of the tool is not what is wrong with it."""
    text = "".join(f"loadgen-9h51j bench {line}\n" for line in (DATA / LOGGED[0][1]).read_text().splitlines())
    assert "every line begins with 'loadgen-9h51j bench '" in common_beginning(text)
    assert common_beginning("one\ntwo\n") == common_beginning("") == ""
