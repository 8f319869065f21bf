"""The table of exit codes in README, held over all commands: what each makes of the same file."""

import resource
import signal

import pytest
from builders import StatsBuilder, footer, header, host, ticket_of, treatment_wire

from bench_common.files import write_new
from bench_common.records import Outcome, OutputRecord
from bench_common.stats.reader import StatsFile
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.cli import run_command_line
from bench_master.commands import run_scenario
from bench_master.reports import ReportSource

S = 10**9
RUNS = {
    "good": ({}, 5, 0, "complete", 0),
    "one failed job": ({}, 4, 1, "complete", 1),
    "most jobs failed": ({}, 1, 4, "complete", 1),
    "failures are allowed": ({"allow_failures": True}, 4, 1, "complete", 0),
    "a threshold allows them": ({"thresholds": ["jobs.failed <= 2"]}, 3, 2, "complete", 0),
    "a threshold does not": ({"thresholds": ["jobs.failed <= 2"]}, 2, 3, "complete", 1),
    "no result": ({}, 0, 5, "complete", 3),
    "no result, failures are allowed": ({"allow_failures": True}, 0, 5, "complete", 3),
    "interrupted": ({}, 3, 0, "interrupted", 3),
    "incomplete": ({}, 3, 1, "incomplete", 3),
    "killed": ({}, 3, 0, None, 3),
    "a no-op run": ({"noop": True}, 4, 1, "complete", 0),
}
"""What a run was: changes to its header, jobs that were done, jobs that failed, how it ended, and its exit code."""


def written(path, changes, done, failed, status):
    """Write a run of one treatment; return its path."""
    head = header(
        [treatment_wire(0, {"engine": "native"}, ("run",)) | {"jobs_per_trial": 5}],
        [(0, 0, False)],
        run_id=path.name,
        **({"allow_failures": False} | changes),
    )
    builder = StatsBuilder(path, head).add("host", host(0))
    builder.add("event", {"kind": "trial-begin", "at_ns": S, "trial": 0})
    for number in range(done + failed):
        outcome = Outcome.DONE if number < done else Outcome.FAILED
        builder.add_jobs({"ticket": ticket_of(number), "start_ns": S, "end_ns": 2 * S, "outcome": outcome})
    builder.writer.outputs([OutputRecord(ticket_of(0), 0, 0, "run", b"text", b"", 0, False)])
    builder.add("event", {"kind": "trial-end", "at_ns": 3 * S, "trial": 0, "complete": status == "complete"})
    return builder.close(None if status is None else footer() | {"status": status})


COMMANDS = {
    "report-scenario": lambda path, good: ["report-scenario", "-s", path],
    "report-scenario --format json": lambda path, good: ["report-scenario", "-s", path, "--format", "json"],
    "report-scenario --csv": lambda path, good: ["report-scenario", "-s", path, "--csv"],
    "report-scenario --format markdown": lambda path, good: ["report-scenario", "-s", path, "--format", "markdown"],
    "report-scenario -q": lambda path, good: ["-q", "report-scenario", "-s", path],
    "compare": lambda path, good: ["compare", good, path],
    "compare --format json": lambda path, good: ["compare", good, "--new", path, "--format", "json"],
}


@pytest.mark.parametrize("what", RUNS)
def test_a_run_has_one_exit_code_whatever_judges_it(tmp_path, capsys, what):
    """Reports of each format, a comparison, and the run itself."""
    *run, expected = RUNS[what]
    path = written(tmp_path / "run.stats.gz", *run)
    good = written(tmp_path / "good.stats.gz", *RUNS["good"][:-1])
    found = {}
    for name, words in COMMANDS.items():
        found[name] = run_command_line([str(word) for word in words(path, good)])
        if expected:
            assert capsys.readouterr().err, f"{name} ends with {expected} and does not say why"
    assert found == dict.fromkeys(COMMANDS, expected)
    if run[-1] == "complete":
        source = ReportSource(StatsFile(path), 99.0, VerdictOptions())
        judged = run_scenario._judge(source, run_scenario._check_results(source, errors_shown=False))
        assert judged == expected, "the run itself ends so"


FILES = {
    "is missing": (None, 2),
    "is a directory": ("dir", 2),
    "is something else": (b"hello", 2),
    "is empty": (b"", 3),
}
READERS = {
    "report-scenario": lambda path, good: ["report-scenario", "-s", path],
    "compare": lambda path, good: ["compare", good, path],
    "show-output": lambda path, good: ["show-output", "0", "-s", path],
    "run-scenario --resume": lambda path, good: ["run-scenario", "--resume", path],
    "run-scenario --baseline": lambda path, good: ["run-scenario", "-f", "noop", "--dry-run", "--baseline", path],
}


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_no_run_has_one_exit_code(tmp_path, capsys, command, what):
    """Whoever names it has made a mistake (2); an empty one is what a run left that ended before it began (3)."""
    content, expected = FILES[what]
    path, good = tmp_path / "x.stats.gz", written(tmp_path / "good.stats.gz", *RUNS["good"][:-1])
    if content == "dir":
        path.mkdir()
        (path / "note.txt").write_text("no run")
    elif content is not None:
        path.write_bytes(content)
    code = run_command_line([str(word) for word in READERS[command](path, good)])
    printed = capsys.readouterr()
    assert (code, "Traceback" in printed.err) == (expected, False), printed.err
    assert "x.stats.gz" in printed.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--baseline", "engine=docker"],
            "no treatment matches the baseline engine=docker; engine is one of: native",
        ),
        (["--accept", "kernal"], "--accept kernal: no property has this name"),
    ],
)
def test_an_option_that_means_nothing_is_an_error(tmp_path, capsys, flags, said):
    """Also where one treatment is compared with nothing: who gives it expects that it counts."""
    path = written(tmp_path / "good.stats.gz", *RUNS["good"][:-1])
    assert run_command_line(["report-scenario", "-s", str(path), *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_text_that_cannot_be_written_whole_leaves_no_file(tmp_path, capsys):
    """Half a scenario is none; a directory of keys that is a file is named."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
        with pytest.raises(OSError, match="large"):
            write_new(tmp_path / "x.yaml", "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(tmp_path.iterdir()) == []
    write_new(tmp_path / "x.yaml", "name: x")
    assert run_command_line(["keygen", "--key-dir", str(tmp_path / "x.yaml")]) == 2
    assert "is a file; name a directory for the keys" in capsys.readouterr().err
