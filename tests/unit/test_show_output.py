"""``show-output`` and ``--format outputs``: what tools printed, as the stats file keeps it."""

import pytest
from builders import S, StatsBuilder, footer, header, lifecycle_run, ticket_of, treatment_wire

from bench_common.records import OutputRecord
from bench_master.cli import run_command_line

RAW = b"score: 12.5\njob 9, trial 9: forged\nodd \xff byte, \x1b[31mred\n"


@pytest.fixture
def path(tmp_path):
    """Two jobs with output of one and of two steps, and one without."""
    head = header([treatment_wire(0, {"engine": "native"})], [(0, 0, True), (0, 1, False), (0, 2, False)])
    builder = StatsBuilder(tmp_path / "run.stats.gz", head)
    builder.add_jobs(*({"end_ns": S, "ticket": ticket_of(job), "trial": job} for job in range(3)))
    builder.writer.outputs(
        [
            OutputRecord(ticket_of(0), 0, 0, "run", b"warming\n"),
            OutputRecord(ticket_of(1), 0, 1, "prepare", b"prepared\n"),
            OutputRecord(ticket_of(1), 0, 1, "run", RAW, b"careful\n", 3, truncated=True),
        ]
    )
    return builder.close(footer())


def show(capsysbinary, path, *words, status=0):
    assert run_command_line(["show-output", *words, "-s", str(path)]) == status
    printed = capsysbinary.readouterr()
    return printed.out, printed.err.decode()


def test_the_output_of_a_job_is_printed_unchanged(path, capsysbinary):
    """Byte for byte; which step it is of, its exit code and its standard error are on stderr."""
    out, err = show(capsysbinary, path, "1")
    assert out == b"prepared\n" + RAW
    heads = [line for line in err.splitlines() if line.startswith("job 1, trial 1, ")]
    assert [head.partition("step ")[2] for head in heads] == ["prepare: exit code 0", "run: exit code 3, truncated"]
    assert "careful" in err
    assert show(capsysbinary, path, "1", "--step", "prepare")[0] == b"prepared\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("2",), "no output of job 2; 2 jobs have one, from 0 to 1"),
        (("1", "--step", "prepar"), "(did you mean 'prepare'?); its steps: prepare, run"),
    ],
)
def test_output_that_is_not_there_is_a_usage_error(path, capsysbinary, words, expected):
    """With the jobs or the steps that have one."""
    assert expected in show(capsysbinary, path, *words, status=2)[1]


def test_a_file_without_outputs_says_so(tmp_path, capsysbinary):
    """Life-cycle jobs run no tool."""
    path = lifecycle_run(tmp_path / "life.stats.gz")
    assert "holds no outputs; only jobs that run a tool have any" in show(capsysbinary, path, "1", status=2)[1]


def test_a_cut_file_is_no_success(path, capsysbinary):
    """What can be read is shown; the exit code is that of its report."""
    path.write_bytes(path.read_bytes()[:-30])
    out, err = show(capsysbinary, path, "0", status=3)
    assert out in (b"", b"warming\n")
    assert str(path) in err


def test_the_report_of_outputs_has_all_of_them(path, capsys):
    """Each under its job, trial, treatment, step and exit code; no line of a tool passes for one of the report."""
    assert run_command_line(["report-scenario", "-s", str(path), "--format", "outputs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run_state: complete"
    heads = [line for line in lines if line.startswith("job ")]
    assert [head.partition(",")[0] for head in heads] == ["job 0", "job 1", "job 1"]
    assert "trial 0 (warm-up)" in heads[0]
    assert heads[2].endswith("step run: exit code 3, truncated")
    assert "  job 9, trial 9: forged" in lines
    assert lines[-2:] == ["standard error:", "  careful"]
    assert not any("\x1b" in line for line in lines)
