"""Runs in a text: one or many, with others' lines between, and a run that is not complete is a failed one."""

from pathlib import Path

import pytest

from bench_common.errors import UsageError
from bench_master.imported.runs import split_runs
from workloads.registry import workload

DATA = Path(__file__).parents[1] / "data"
GOOD = (DATA / "sysbench" / "cpu-1t.txt").read_text()
CPU = workload("sysbench-cpu")


def rates(text, **more):
    """Return the rate of each run, or its error."""
    return [run.error or run.metrics["events_per_second"] for run in split_runs(CPU, text, **more)]


def test_one_run_is_one_run():
    """The plain output of the tool is read as it is."""
    (run,) = split_runs(CPU, GOOD)
    assert run.metrics == CPU.parse(GOOD)
    assert (run.line, run.error) == (1, "")


def test_many_runs_with_other_lines_between():
    """What stands before, between and after runs belongs to somebody else."""
    text = f"Pulling image\n\n{GOOD}\n--- second\nreal 0m10s\n{GOOD}{GOOD}done\n"
    once = CPU.parse(GOOD)["events_per_second"]
    assert rates(text) == [once, once, once]
    assert [text.splitlines()[run.line - 1][:8] for run in split_runs(CPU, text)] == ["sysbench"] * 3


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_run_that_is_cut_off_is_a_failed_run(cut):
    """A run that was killed is not dropped in silence: it is there, with the line at which it ends to be one."""
    lines = GOOD.splitlines(keepends=True)
    broken = "".join(lines[: cut * len(lines) // 8])
    found = split_runs(CPU, f"{broken}\nKilled\n{GOOD}")
    assert [bool(run.error) for run in found] == [True, False]


def test_a_carriage_return_before_each_line_feed_is_a_terminals():
    """A log that was taken through a terminal is read like any other."""
    assert rates(GOOD.replace("\n", "\r\n") + "# prompt\r\n") == [CPU.parse(GOOD)["events_per_second"]]


def test_a_text_without_a_run_has_none():
    """Nothing is found where nothing begins."""
    assert split_runs(CPU, "hello\n") == []
    assert split_runs(CPU, "") == []


def test_the_help_of_mbw_belongs_to_the_run_behind_it():
    """Lines that may begin a run can stand within one: the run is as long as its parser accepts."""
    mbw = workload("mbw")
    text = (DATA / "mbw" / "1.2.2-help.txt").read_text() + (DATA / "mbw" / "1.2.2-default-n3.txt").read_text()
    found = split_runs(mbw, f"$ run\n{text}\n$ again\n{text}")
    assert [run.error for run in found] == ["", ""]
    assert all("memcpy_mib_per_second" in run.metrics for run in found)


def test_plain_numbers_need_a_name():
    """One number a line is read as the metric that the user names, and refused without one."""
    text = "26.0617\n\n26.0665\n 1e1 \n"
    found = split_runs(CPU, text, "total_time_s")
    assert [run.metrics for run in found] == [
        {"total_time_s": 26.0617},
        {"total_time_s": 26.0665},
        {"total_time_s": 10.0},
    ]
    assert [run.line for run in found] == [1, 3, 4]
    with pytest.raises(UsageError, match="these are plain numbers: say with --metric which of events_per_second, "):
        split_runs(CPU, text)
    with pytest.raises(UsageError, match=r"no metric 'total_time' \(did you mean 'total_time_s'\?\)"):
        split_runs(CPU, text, "total_time")


def test_a_metric_is_named_for_numbers_alone():
    """A name with an output that says itself what its numbers are is a mistake, and so is a word among numbers."""
    with pytest.raises(UsageError, match="line 2 is no number"):
        split_runs(CPU, "26.1\nfailed\n26.2\n", "total_time_s")


def test_the_study_s_nan_is_no_number():
    """Python's words for what is no number are not taken for one."""
    with pytest.raises(UsageError, match="line 1 is no number"):
        split_runs(CPU, "nan\n1.5\n", "total_time_s")
    with pytest.raises(UsageError, match="line 2 is no number"):
        split_runs(CPU, "1.5\n1e999\n", "total_time_s")


def test_a_text_in_front_of_each_run_says_the_version():
    """What a study did not log (which blogbench it was) can be said afterwards; lines are those of the log."""
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
