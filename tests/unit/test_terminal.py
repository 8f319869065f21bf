"""What a terminal adds to a text: its width, colours, and a pager; files and pipes get the text alone."""

import fcntl
import io
import os
import pty
import struct
import termios
from contextlib import closing, redirect_stdout
from pathlib import Path

import pytest
from builders import lifecycle_run

from bench_master.cli import run_command_line
from bench_master.formatting import DEFAULT_WIDTH, page_of, page_width, paragraph
from bench_master.terminal import pager_command, paint, screen_width, show_in_pager, text_output, wants_color
from bench_master.terminal_options import TerminalOptions

RED, GREEN, YELLOW, END = "\x1b[1;31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"


class Screen:
    """A terminal of some size, whose output is kept."""

    def __init__(self, columns, lines):
        self._master, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        attributes = termios.tcgetattr(follower)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(follower, termios.TCSANOW, attributes)
        os.set_blocking(self._master, False)
        self.stream = os.fdopen(follower, "w", encoding="utf-8")

    def shown(self):
        """What was written since the last call."""
        self.stream.flush()
        found = b""
        while True:
            try:
                found += os.read(self._master, 65536)
            except BlockingIOError:
                return found.decode()

    def command(self, *words):
        """Run a command with this terminal as standard output; return what it shows."""
        with redirect_stdout(self.stream):
            assert run_command_line([str(word) for word in words]) == 0
        return self.shown()

    def text(self, text, options, *, paged=False):
        """Print a text; return what the terminal shows."""
        with redirect_stdout(self.stream), text_output(options, paged=paged) as out:
            out.write(text)
        return self.shown()

    def close(self):
        """Close both ends."""
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def screen(monkeypatch):
    """Standard output is a terminal of 120 columns and 30 lines that knows colours; there is no pager."""
    for name, value in {"TERM": "xterm", "PAGER": "cat"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with closing(Screen(120, 30)) as terminal:
        yield terminal


@pytest.fixture
def stats(tmp_path):
    return lifecycle_run(tmp_path / "run.stats.gz")


def test_a_page_is_as_wide_as_the_terminal(screen):
    """A terminal gives its columns; what is none gives 80; the width holds within its block alone."""
    assert screen_width(screen.stream) == 120
    assert screen_width(io.StringIO()) == DEFAULT_WIDTH == page_width() == 80
    text = "word " * 60
    with page_of(120):
        assert 110 < max(map(len, paragraph(text))) <= 120
    assert max(map(len, paragraph(text))) <= 80


def test_the_report_uses_the_terminals_columns_and_a_file_80(screen, stats, tmp_path):
    """The same command writes lines of over 80 columns to a wide terminal, and none to a file."""
    shown = screen.command("report-scenario", "-v", "-s", stats, "--color", "never")
    assert 80 < max(map(len, shown.splitlines())) <= 120
    file = tmp_path / "report.txt"
    screen.command("report-scenario", "-v", "-s", stats, "-f", file, "--color", "always")
    assert max(map(len, file.read_text().splitlines())) <= 80
    assert "\x1b" not in file.read_text()


def test_verdicts_are_coloured_on_a_terminal_and_nowhere_else(screen, stats, capsys, monkeypatch):
    """Colours come on a terminal, not with NO_COLOR or never; in a pipe only on demand; CSV never has them."""
    report = ["report-scenario", "-s", str(stats)]
    assert f"{YELLOW}INCONCLUSIVE{END}" in screen.command(*report)
    assert "\x1b" not in screen.command(*report, "--color", "never")
    assert "\x1b" not in screen.command("--color", "always", *report, "--csv")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in screen.command(*report)
    assert f"{YELLOW}INCONCLUSIVE{END}" in screen.command(*report, "--color", "always")
    monkeypatch.delenv("NO_COLOR")
    run_command_line(report)
    assert "\x1b" not in capsys.readouterr().out
    run_command_line([*report, "--color", "always"])
    assert f"{YELLOW}INCONCLUSIVE{END}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mode", "environ", "wanted"),
    [
        ("auto", {"TERM": "xterm"}, True),
        ("auto", {"TERM": "xterm", "NO_COLOR": ""}, True),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ("auto", {"TERM": "dumb"}, False),
        ("auto", {}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"TERM": "xterm"}, False),
    ],
)
def test_who_wants_colours(screen, mode, environ, wanted):
    """An option decides; else NO_COLOR, if it is not empty, and what the terminal knows."""
    assert wants_color(mode, screen.stream, environ) == wanted
    assert wants_color(mode, io.StringIO(), environ) == (mode == "always")


def test_words_are_coloured_where_they_have_their_meaning():
    """Failures are red, warnings yellow, good news green; the same word within a sentence stays as it is."""
    lines = [
        "*** INCOMPLETE: the run was interrupted",
        "  ! the host was busy",
        "  FAILED  jobs.failed == 0",
        "  passed  job.p50 < 1 s",
        "  crun    FASTER  10 ms",
        "a job FAILED and nothing passed!",
        "warning  cpu   one",
    ]
    assert paint("\n".join(lines)).splitlines() == [
        f"*** {RED}INCOMPLETE{END}: the run was interrupted",
        "  \x1b[1;33m!\x1b[0m the host was busy",
        f"  {RED}FAILED{END}  jobs.failed == 0",
        f"  {GREEN}passed{END}  job.p50 < 1 s",
        f"  crun    {GREEN}FASTER{END}  10 ms",
        "a job FAILED and nothing passed!",
        f"{YELLOW}warning{END}  cpu   one",
    ]


def test_no_value_can_bring_its_own_colours(screen):
    """What could steer a terminal is escaped in coloured text, too."""
    shown = screen.text("  FAILED  \x1b[2Jwiped\n", TerminalOptions(color="always"))
    assert shown == f"  {RED}FAILED{END}  \\u001b[2Jwiped\n"


def test_a_person_reads_the_name_that_they_typed_and_a_file_has_one_name(screen, monkeypatch, capsys):
    """A terminal and stderr name the program as it was called; a pipe has one name, as a report in a file has."""
    text = "continue: bench-master run-scenario --resume a\n  or bench-master\n  list; not /opt/bench-master x\n"
    called = "continue: weighbridge run-scenario --resume a\n  or weighbridge\n  list; not /opt/bench-master x\n"
    plain = TerminalOptions(color="never")
    assert screen.text(text, plain) == text
    monkeypatch.setattr("sys.argv", ["/opt/bin/weighbridge"])
    for options in (plain, TerminalOptions(color="always")):
        assert screen.text(text, options) == called
    file = Path(__file__).parents[1] / "data" / "pages" / "open.stats.gz"
    told = "compare runs with 'weighbridge compare'"
    assert told in " ".join(screen.command("report-scenario", "-s", file, "--color", "never").split())
    run_command_line(["report-scenario", "-s", str(file)])
    assert told.replace("weighbridge", "bench-master") in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit):
        run_command_line(["validate-scenario", "-f", "no-such-scenario", "--no-such-option"])
    assert run_command_line(["validate-scenario", "-f", "no-such-scenario"]) == 2
    assert "see weighbridge list scenarios" in capsys.readouterr().err


def test_a_long_text_is_shown_in_the_pager(screen, tmp_path, monkeypatch):
    """PAGER gets what is longer than the terminal, with settings for less, unless there is --no-pager."""
    seen = tmp_path / "seen"
    monkeypatch.setenv("PAGER", f'(echo "LESS=$LESS"; cat) > {seen}')
    monkeypatch.delenv("LESS", raising=False)
    long = "  ! line\n" * 40
    assert screen.text(long, TerminalOptions(), paged=True) == ""
    assert seen.read_text() == "LESS=FRX\n" + paint(long)
    seen.unlink()
    plain, unpaged = TerminalOptions(color="never"), TerminalOptions(color="never", no_pager=True)
    assert screen.text("short\n", plain, paged=True) == "short\n"
    assert screen.text(long, unpaged, paged=True) == long
    assert screen.text(long, plain) == long
    assert not seen.exists()


def test_a_pager_that_is_left_early_or_missing_harms_nothing(screen, monkeypatch):
    """Leaving before the end is no error; without the program the text is printed."""
    assert show_in_pager("x" * 1_000_000, "true")
    monkeypatch.setenv("PAGER", "no-such-pager-here 2> /dev/null")
    text = "line\n" * 40
    assert screen.text(text, TerminalOptions(color="never"), paged=True) == text


def test_the_pager_is_the_users_or_less(tmp_path):
    """PAGER decides, and switches it off if it is empty or cat; without it less is used where it is installed."""
    assert [pager_command({"PAGER": text}) for text in ("most -s", "", "cat")] == ["most -s", "", ""]
    assert pager_command({"PATH": str(tmp_path)}) == ""
    program = tmp_path / "less"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert pager_command({"PATH": str(tmp_path)}) == "less"
    assert [pager_command({"PATH": str(tmp_path), "CI": "true", **own}) for own in ({}, {"PAGER": "more"})] == [
        "",
        "more",
    ]
