"""`report-scenario --verify`: whether a published report follows from its stats file."""

import hashlib
import json
import os
import re
import shutil

import pytest
from builders import lifecycle_run

from bench_master.cli import run_command_line

FORMATS = {
    "text": "txt",
    "markdown": "md",
    "html": "html",
    "json": "json",
    "csv": "csv",
    "jsonl": "jsonl",
    "junit": "xml",
    "openmetrics": "prom",
}


@pytest.fixture
def stats(tmp_path):
    """A stats file, and a name for a report of it."""
    return lifecycle_run(tmp_path / "run.stats.gz")


def report(stats, name, *options):
    """Write a report, with any further options; return its file."""
    path = stats.parent / f"report.{FORMATS[name]}"
    words = ["report-scenario", "-s", str(stats), "--format", name, "-f", str(path), *options]
    assert run_command_line(words) == 0
    return path


def verify(stats, path, *options):
    """Return the exit code of a verification."""
    return run_command_line(["report-scenario", "-s", str(stats), "--verify", str(path), *options])


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_that_was_made_from_the_file_is_verified(stats, name, capsys):
    """Also one of a copy with another name, since this is no number of the run; its format is known by its ending."""
    path = report(stats, name)
    copy = stats.with_name("copy of it.stats.gz")
    shutil.copy(stats, copy)
    for file in (stats, copy):
        assert verify(file, path) == 0
        digest, verdict = capsys.readouterr().out.splitlines()
        assert digest == f"SHA-256 of {file}: {hashlib.sha256(stats.read_bytes()).hexdigest()}"
        assert re.search(r"verified: all of it follows from the rows \([\d,]+ (words|values), [\d,]+ with", verdict)


@pytest.mark.parametrize("detail", ["-v", "-q"])
@pytest.mark.parametrize("name", ["text", "markdown"])
def test_how_much_a_report_shows_need_not_be_told(stats, name, detail):
    assert verify(stats, report(stats, name, detail)) == 0


@pytest.mark.parametrize("name", ["text", "html", "csv", "markdown"])
def test_a_number_that_was_changed_is_named_with_its_line(stats, name, capsys):
    """One digit of one number is enough, and nothing else is complained of."""
    path = report(stats, name)
    lines = path.read_text().splitlines()
    at = max(at for at, line in enumerate(lines) if re.search(r"[1-8][^1-8]*$", line))
    changed = re.sub(r"[1-8](?=[^1-8]*$)", lambda digit: str(int(digit[0]) + 1), lines[at])
    assert changed != lines[at]
    path.write_text("\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n")
    assert verify(stats, path) == 1
    printed = capsys.readouterr()
    assert "NOT verified: 1 place differs from what follows from the rows" in printed.out
    assert f"  line {at + 1}: the report says '" in printed.out
    assert "does not follow from" in printed.err


def test_a_value_of_json_is_named_by_its_keys(stats, capsys):
    """A value that was changed, one that is too many, and one that is missing."""
    path = report(stats, "json")
    document = json.loads(path.read_text())
    document["totals"]["done"] += 1
    document["totals"]["more"] = 1
    del document["totals"]["failed"]
    path.write_text(json.dumps(document))
    assert verify(stats, path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "  totals.done: the report says 6, from the rows follows 5",
        "  totals.more: 1 does not follow from the rows",
        "  totals.failed: 1 follows from the rows and is missing",
    ]


def test_a_line_that_is_missing_or_too_many_shifts_no_other(stats, capsys):
    """Each is told by itself, with where it is or should be."""
    path = report(stats, "text")
    lines = path.read_text().splitlines()
    (at,) = (at for at, line in enumerate(lines) if line.startswith("  run "))
    path.write_text("\n".join(["Better than ever.", *lines[:at], *lines[at + 1 :]]) + "\n")
    assert verify(stats, path) == 1
    extra, missing, *more = capsys.readouterr().out.splitlines()[2:]
    assert extra == "  line 1: 'Better than ever.' does not follow from the rows"
    assert missing.startswith(f"  line {at + 2}: 'run ")
    assert missing.endswith("follows from the rows and is missing")
    assert more == []


def test_other_options_are_another_report(stats):
    path = report(stats, "json", "--pctile", "75")
    assert verify(stats, path) == 1
    assert verify(stats, path, "--pctile", "75") == 0


def test_a_stats_file_with_another_digest_is_another_file(stats, capsys):
    """Whatever the report says; the right one is accepted in letters of either size."""
    path = report(stats, "json")
    right = hashlib.sha256(stats.read_bytes()).hexdigest()
    assert verify(stats, path, "--sha256", right.upper()) == 0
    assert verify(stats, path, "--sha256", "0" * 64) == 1
    assert f"{stats}: this is another file: its SHA-256 is not {'0' * 64}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sha256", "0" * 64], "--sha256: expected --verify REPORT beside it"),
        (["--verify", "report.json", "--sha256", "abc"], "'abc': expected the 64 hexadecimal digits"),
        (["--verify", "report.pdf"], "report.pdf: no report that ends in .pdf is known; name its format"),
        (["--verify", "report"], "report: no report without an ending is known; name its format"),
        (["--verify", "missing.json"], "missing.json: cannot read: No such file or directory"),
        (["--verify", "binary.html"], "binary.html: no text in UTF-8 (byte 0): --verify compares texts"),
        (["--verify", "pipe.json"], "pipe.json: cannot read: is a pipe (FIFO), not a regular file"),
        (["--verify", "run.stats.gz"], "run.stats.gz: this is the stats file itself; name the report"),
        (["--verify", "report.json", "-f", "x"], "--verify prints no report: leave out -f"),
        (["--verify", "report.json", "--format", "csv=x"], "--verify prints no report: leave out --format NAME=FILE"),
    ],
)
def test_what_cannot_be_verified_is_refused(stats, words, says, capsys, monkeypatch):
    monkeypatch.chdir(stats.parent)
    report(stats, "json")
    os.mkfifo(stats.parent / "pipe.json")
    (stats.parent / "binary.html").write_bytes(b"\xff\xfe")
    try:
        status = run_command_line(["report-scenario", "-s", stats.name, *words])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert says in capsys.readouterr().err


def test_a_file_that_is_no_json_is_not_verified(stats, capsys):
    path = stats.with_name("report.json")
    path.write_text("{")
    assert verify(stats, path) == 1
    assert "line 1, column 2: no JSON" in capsys.readouterr().out
