"""Text of others, made safe to show: each character, each line, each place where text is formatted."""

import io
import json
import logging
import re
import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from narrow_terminal import narrow_terminal
from places import ROOT

from bench_common.errors import InfrastructureError, Problem, ScenarioError, UsageError
from bench_common.guard import error_lines, run_guarded
from bench_common.safe_text import (
    LineFormatter,
    escape_unprintable,
    flat_line,
    one_line,
    quoted_lines,
    shorten,
)
from bench_common.streams import escape_output, tell, tell_command, tell_quoted
from bench_master.commands.cleanup_containers import render as render_leftovers
from bench_master.formatting import align_table, paragraph, tab_separated, table_cell

STEERING = "\x1b[2J \x07 \x08 \x7f \x9b \u202e \u2066 \u200b \u2028 \u0085 \ud800 \r \x00"
CLAIM = "bench-master: all thresholds passed"
FORGED = f"lost\n{CLAIM}"


def test_what_could_steer_a_terminal_is_an_escape_of_json():
    """Controls of C0 and C1, directional overrides, invisible characters, line separators, lone surrogates."""
    shown = escape_unprintable(STEERING)
    assert shown.isprintable()
    assert json.loads(f'"{shown}"') == STEERING
    assert escape_unprintable("é 好 🎉\n\tx") == "é 好 🎉\n\tx"


@given(st.text(st.characters()), st.sampled_from(["", "".join(map(chr, range(160)))]))
def test_a_text_is_escaped_character_by_character(text, controls):
    """Whether it has few or many different characters that are not printable."""
    text += controls
    assert escape_unprintable(text) == "".join(map(escape_unprintable, text))


@given(st.text(st.characters()))
def test_no_text_gets_through(text):
    """Whatever it is: one line is one line, and of several lines only the first begins like one of ours."""
    for line in (one_line(text), flat_line(text), *quoted_lines(text)):
        assert line.isprintable()
        line.encode()
    assert all(line.startswith("  | ") for line in quoted_lines(text)[1:])


def test_a_log_record_has_one_line_of_its_own():
    """What follows, a traceback too, stands behind a bar."""
    formatter = LineFormatter("%(levelname)s: %(message)s")
    record = logging.LogRecord("x", logging.WARNING, __file__, 1, "worker %s", ("a\nERROR: b\x1b[2J",), None)
    assert formatter.format(record) == "WARNING: worker a\n  | ERROR: b\\u001b[2J"
    try:
        raise ValueError(FORGED)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "broken", (), sys.exc_info())
    first, *rest = formatter.format(record).split("\n")
    assert first == "ERROR: broken"
    assert rest
    assert all(line.startswith("  | ") for line in rest)


def test_an_error_cannot_have_a_line_that_is_not_its_own(capsys):
    """Its details, and the problems of a scenario, are lines of ours; their values have none."""
    errors = [
        (UsageError(FORGED), ["lost", f"  | {CLAIM}"]),
        (InfrastructureError("head:", "one", FORGED), ["head:", "  one", "  lost", f"    | {CLAIM}"]),
        (ScenarioError([Problem("a", 1, 2, FORGED)]), [f"a:1:2: lost {CLAIM}"]),
    ]

    for error, lines in errors:
        assert error_lines(error) == lines

        def fail(error=error):
            raise error

        assert run_guarded(fail, program="p", debug=False) in (2, 3)
        assert capsys.readouterr().err.splitlines() == [f"p: {line}" for line in lines]


def test_messages_and_tables_have_one_line_each(capsys):
    """Whatever is in a value."""
    tell(f"note: {FORGED}\x1b")
    tell_quoted(FORGED)
    assert capsys.readouterr().err.splitlines() == [
        "note: lost bench-master: all thresholds passed\\u001b",
        "lost",
        f"  | {CLAIM}",
    ]
    assert align_table(("A", "B"), [(FORGED, "x\x1b")])[1:] == [f"{flat_line(FORGED)}  x\\u001b"]
    assert tab_separated([("a\tb", FORGED)]) == [f"a b\t{one_line(FORGED)}"]


def test_a_message_on_a_terminal_is_wrapped_between_words(monkeypatch):
    """Further lines are indented, quoted ones begin with a bar; a path is never broken, a short line left alone."""
    path = f"/tmp/{'long-folder/' * 9}x.stats.gz"
    with narrow_terminal() as (stream, printed), monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        tell("scale small: the profile sets repeats")
        tell(f"note: {'word ' * 20}at the end")
        tell(f"stats file: {path}")
        tell_quoted(f"bench-master: first\n{'second ' * 15}")
        lines = printed().splitlines()
    assert lines == [
        "scale small: the profile sets repeats",
        f"note: {' '.join(['word'] * 15)}",
        f"  {'word ' * 5}at the end",
        "stats file:",
        f"  {path}",
        "bench-master: first",
        f"  | {' '.join(['second'] * 11)}",
        f"  | {' '.join(['second'] * 4)}",
    ]


def test_a_command_that_a_terminal_is_too_narrow_for_can_be_copied(monkeypatch, capsys):
    """On a terminal in lines that a shell takes for one; in a log on one line."""
    words = ["bench-master", "report-scenario", "-s", f"/tmp/a folder/{'x' * 40}.stats.gz"]
    tell_command("report again", words)
    assert capsys.readouterr().err == f"report again: {shlex.join(words)}\n"
    with narrow_terminal() as (stream, printed), monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        tell_command("report again", words)
        tell_command("continue", ["bench-master", "run-scenario"])
        label, *lines, last = printed().splitlines()
    assert (label, last) == ("report again:", "continue: bench-master run-scenario")
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == words


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-x", "'-x"),
        ("-1.5", "-1.5"),
        ("+3", "+3"),
        ("a=b", "a=b"),
        ("", ""),
        ("a\nb\x1b", "a b\\u001b"),
    ],
)
def test_a_cell_is_text_to_a_spreadsheet(text, cell):
    """Numbers stay numbers."""
    assert table_cell(text) == cell


def test_a_stream_escapes_whatever_is_written_to_it():
    """By write, writelines and print, and in pieces."""
    raw = io.BytesIO()
    stream = escape_output(io.TextIOWrapper(raw, encoding="utf-8"))
    stream.writelines(["a\x1b\n", "b\u202e\n"])
    print("c\x9b", "\ud800", file=stream)
    stream.flush()
    assert raw.getvalue().decode() == "a\\u001b\nb\\u202e\nc\\u009b \\ud800\n"


WRITERS = {
    "bench_common/guard.py": "the messages themselves",
    "bench_common/streams.py": "the same",
    "bench_common/limits.py": "before anything else is loaded",
    "bench_master/run/sockets.py": "a warning of ours, of several lines",
    "bench_worker/cli.py": "the same",
    "bench_worker/host/settings_guard.py": "a program of its own, whose output is read",
    "bench_worker/host/swap_guard.py": "a program of its own, whose output is read",
    "bench_master/commands/init.py": "a question, with the answer on the same line",
    "bench_worker/queries/build_images.py": "the output of a build, as it comes",
    "bench_workloads/blogload_program.py": "a program of its own, in a container",
}


def test_messages_go_through_one_place():
    """A module that wrote to stderr itself could let a value forge a line; those that do have a reason."""
    packages = ("bench_common", "bench_features", "bench_master", "bench_worker", "bench_workloads")
    paths = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT))
        for path in paths
        if re.search(r"sys\.stderr\.write|\bprint\((?!Text|\()", path.read_text("utf-8"))
    }
    assert found - {"bench_features/fleet/remote_host.py", "bench_master/progress/live.py"} == set(WRITERS)


def test_a_leftover_has_one_line_in_the_list():
    """Anybody may have labelled a container."""
    made = {"engine": "docker", "what": "container", "name": FORGED, "identity": "1", "run_id": FORGED, "age_s": 1.0}
    lines = render_leftovers([{"verdict": "kept", "why": FORGED, **made}]).splitlines()
    assert len(lines) == 2
    assert not lines[1].startswith(CLAIM)


@given(st.text(max_size=60), st.integers(0, 60))
def test_a_long_text_keeps_its_beginning_and_its_end(text, limit):
    """A reason is at either end of a text: only its middle is left out."""
    short = shorten(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    elif limit > 20:
        assert short.startswith(text[:7])
        assert short.endswith(text[-7:])


def test_no_reason_is_cut_at_its_end():
    """Each place that limits an error's text keeps its end, too; names, digests and quoted lines may be cut."""
    cut = re.compile(
        r"\[:\s*\w*(?:MESSAGE|REASON|FAILURE|ERROR|TEXT)_(?:CHARS|LIMIT)\s*\]|(?:str\(error\)|str\(failure\)|reason)\[:"
    )
    paths = [
        path
        for folder in ("bench_common", "bench_features", "bench_master", "bench_worker")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = [
        f"{path.name}: {line.strip()}" for path in paths for line in path.read_text().splitlines() if cut.search(line)
    ]
    assert found == []


def test_an_error_line_of_a_long_text_keeps_both_ends():
    """In as many lines as are asked for."""
    text = "mariadbd: cannot create its directory " + "x/" * 300 + ": Permission denied"
    lines = paragraph(text, indent=6, hanging=8, lines=2)
    assert len(lines) == 2
    assert lines[0].startswith("      mariadbd: cannot create its directory x/")
    assert lines[1].endswith(": Permission denied")


def test_a_url_has_no_password_in_a_message():
    """Whatever the message is about; the rest of it is left as it is."""
    assert one_line("no http://me:hunter2@host:80/x?y@z, me@host") == "no http://***@host:80/x?y@z, me@host"
    assert one_line("two: https://a@b ftp://c:d@e") == "two: https://***@b ftp://***@e"
