"""Which view is chosen, and what the plain ones show."""

from __future__ import annotations

import io
import logging
import re
import sys

import numpy as np
import pytest
from narrow_terminal import narrow_terminal

from bench_common.errors import UsageError
from bench_common.job_rows import JOB_ROW
from bench_master.progress import choose_view
from bench_master.progress.line_views import CharsView, LinesView
from bench_master.progress.live import LiveView
from bench_master.progress.view import NotificationsView, RoundRow, Snapshot, TrialRow, View

GOOD = {"TERM": "xterm-256color"}


class Terminal(io.StringIO):
    """A terminal that only remembers what was written."""

    def __init__(self, encoding="utf-8"):
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self):
        return self._encoding

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("mode", "stream", "environ", "view"),
    [
        ("auto", Terminal(), GOOD, LiveView),
        ("live", Terminal(), GOOD, LiveView),
        ("auto", io.StringIO(), GOOD, LinesView),
        ("chars", io.StringIO(), GOOD, CharsView),
        ("auto", Terminal(), {"TERM": "dumb"}, CharsView),
        ("auto", Terminal(), {}, CharsView),
        ("auto", Terminal("iso8859-1"), GOOD, CharsView),
        ("chars", Terminal(), GOOD, CharsView),
        ("lines", Terminal(), GOOD, LinesView),
        ("none", Terminal(), GOOD, NotificationsView),
    ],
)
def test_the_view_suits_the_stream(mode, stream, environ, view):
    """The live view is for terminals that can show it; everything else is as asked for."""
    assert type(choose_view(mode, stream, environ=environ)) is view


@pytest.mark.parametrize("mode", ["chars", "lines"])
def test_a_no_op_run_is_called_one_from_the_beginning(mode):
    """Its rates are the harness's own."""
    stream = io.StringIO()
    choose_view(mode, stream).begin(Snapshot("s", noop=True))
    assert "NO-OP: nothing is executed, this is the harness's own maximum\n" in stream.getvalue()


@pytest.mark.parametrize("mode", ["auto", "live", "chars", "lines", "none"])
def test_quiet_shows_nothing_at_all(mode):
    """With -q not a character is written from beginning to end."""
    terminal = Terminal()
    with choose_view(mode, terminal, quiet=True, environ=GOOD) as view:
        assert type(view) is View
        view.begin(Snapshot("s"))
        view.jobs(np.zeros(3, dtype=JOB_ROW))
        view.notify("worker lost")
        view.refresh(Snapshot("s"))
        view.end(Snapshot("s"))
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("stream", "environ", "reason"),
    [
        (io.StringIO(), GOOD, "not a terminal"),
        (Terminal(), {"TERM": "dumb"}, "TERM=dumb"),
        (Terminal("ascii"), GOOD, "encoding is ascii"),
    ],
)
def test_a_live_view_that_cannot_be_is_refused_with_the_reason(stream, environ, reason):
    """--progress live says why not, and what to use."""
    with pytest.raises(UsageError, match=f"{reason}.*use --progress chars or lines"):
        choose_view("live", stream, environ=environ)


def test_an_unknown_mode_is_refused_with_the_nearest():
    """A misspelt mode names the right one, quiet or not."""
    for quiet in (False, True):
        with pytest.raises(UsageError, match="did you mean 'chars'"):
            choose_view("char", io.StringIO(), quiet=quiet)


def test_notices_are_all_that_none_shows():
    """--progress none shows what must be seen and nothing else."""
    out = io.StringIO()
    view = choose_view("none", out)
    view.begin(Snapshot("s"))
    view.refresh(Snapshot("s"))
    view.notify("worker w-1 was lost")
    view.end(Snapshot("s"))
    assert out.getvalue() == "worker w-1 was lost\n"


def test_lines_come_at_intervals_of_the_run():
    """A line at the start, then one in two seconds however often the view is refreshed, then the sum."""
    out = io.StringIO()
    view = choose_view("lines", out)
    trial, trial_text = TrialRow(2, 9, 0, "engine=docker", warmup=True), "trial 2/9 (warm-up): engine=docker"
    view.begin(Snapshot("s", planned=40))
    for tick in range(61):
        view.refresh(Snapshot("s", elapsed_s=tick / 5, planned=40, done=tick, failed=1, eta_s=7, trial=trial))
    view.end(Snapshot("s", elapsed_s=12.2, done=39, failed=1, rate_mean=3.2))
    assert out.getvalue().splitlines() == [
        "0:00  0/40 jobs, 0 failed, 0.00 jobs/s, -:-- to go",
        *(
            f"0:{second:02}  {5 * second + 1}/40 jobs, 1 failed, 0.00 jobs/s, 0:07 to go, {trial_text}"
            for second in (2, 4, 6, 8, 10, 12)
        ),
        "0:12  40 jobs in 0:12 (3.20 jobs/s): 39 done, 1 failed",
    ]


def test_lines_go_on_when_the_time_restarts():
    """A long wait for workers before the first trial does not delay the lines of the run."""
    out = io.StringIO()
    view = choose_view("lines", out)
    view.begin(Snapshot("s"))
    for elapsed_s in (61.0, 0.2, 1.9, 4.1):
        view.refresh(Snapshot("s", elapsed_s=elapsed_s))
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["0:00", "1:01", "0:00", "0:04"]


def test_a_log_has_a_line_every_ten_seconds_and_at_once_what_is_new():
    """Without a terminal: notices when they come, what a run waits for once, and what a look has settled."""
    out = io.StringIO()
    view = choose_view("auto", out)
    view.begin(Snapshot("s", planned=40))
    for tick in range(150):
        elapsed_s = tick / 5
        if elapsed_s == 7:
            view.notify("worker w-1 was lost")
        waits = "waiting for 1 worker" if 12 <= elapsed_s < 29 else ""
        rounds = RoundRow(number=3, last=9, settled=int(elapsed_s >= 25), comparisons=2)
        view.refresh(Snapshot("s", elapsed_s=elapsed_s, planned=40, done=tick, doing=waits, round=rounds))
    shown = out.getvalue().splitlines()
    assert [line.partition("  ")[0] for line in shown] == [
        "0:00", "worker w-1 was lost", "0:10", "0:14", "0:20", "0:25",
    ]  # fmt: skip
    assert ["waiting" in line for line in shown] == [False, False, False, True, True, True]
    assert "1 of 2 settled" in shown[-1]


def test_the_live_view_draws_when_it_is_told_to():
    """Each refresh draws the newest snapshot; the end leaves one line and shows the cursor again."""
    terminal = Terminal()
    with choose_view("live", terminal, environ=GOOD) as view:
        view.begin(Snapshot("quickstart", planned=5))
        assert "0/5 jobs" in terminal.getvalue()
        view.refresh(Snapshot("quickstart", planned=5, done=3))
        assert "3/5 jobs" in terminal.getvalue()
        view.notify("worker w-1 was lost")
        view.end(Snapshot("quickstart", planned=5, done=5, elapsed_s=2))
    text = terminal.getvalue()
    assert "worker w-1 was lost" in text
    assert text.endswith("5 jobs in 0:02 (0.00 jobs/s): 5 done, 0 failed\n")
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.parametrize(
    ("color", "environ", "coloured"),
    [
        ("auto", {}, True),
        ("never", {}, False),
        ("auto", {"NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
    ],
)
def test_the_live_view_has_colours_as_reports_have(color, environ, coloured, monkeypatch):
    """The option decides, else NO_COLOR; the picture is drawn in any case."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with choose_view("live", terminal, color=color, environ=GOOD | environ) as view:
        view.begin(Snapshot("quickstart", planned=5, failed=3, done=1))
        view.end(Snapshot("quickstart", planned=5, done=5, elapsed_s=2))
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.getvalue())) == coloured


def test_the_live_view_says_nothing_above_its_picture_that_the_picture_has():
    """Who joined stands among the hosts while a run goes on, and not above the report; a log has a line of it."""
    stream, log = Terminal(), io.StringIO()
    with choose_view("live", stream, environ=GOOD) as view:
        view.begin(Snapshot("s"))
        view.notify("worker w-1 has joined", passing=True)
        view.notify("worker w-2 was lost")
    assert "worker w-2 was lost" in stream.getvalue()
    assert "has joined" not in stream.getvalue()
    for mode in ("none", "lines", "chars"):
        choose_view(mode, log).notify("worker w-1 has joined", passing=True)
    assert log.getvalue().splitlines() == ["worker w-1 has joined"] * 3


@pytest.mark.parametrize("mode", ["chars", "lines", "none"])
def test_no_view_has_a_terminal_break_a_line_within_a_word(mode):
    """Whatever is shown is wrapped between words where a terminal is too narrow for it."""
    said = "worker w-1 was lost (its connection broke while it sent the results of its trial) with 12 jobs"
    with narrow_terminal() as (stream, printed):
        view = choose_view(mode, stream)
        view.begin(Snapshot("s", planned=40))
        view.notify(said)
        view.end(Snapshot("s", done=123_456, failed=7_890, lost=123, aborted=45))
        view.close()
        lines = printed().splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(said.split()) in " ".join(" ".join(lines).split())


def test_the_terminal_comes_back_after_an_exception():
    """Whatever ends the run, the cursor is shown and stdout and stderr are as they were."""
    terminal = Terminal()
    before = (sys.stdout, sys.stderr)

    def interrupted_run():
        with choose_view("live", terminal, environ=GOOD) as view:
            view.begin(Snapshot("quickstart", planned=5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_run()
    assert (sys.stdout, sys.stderr) == before
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


@pytest.fixture
def log_handler():
    """A handler of the root logger that writes to a terminal."""
    handler = logging.StreamHandler(Terminal())
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def test_log_records_are_shown_above_the_picture(log_handler):
    """A record to the terminal is printed through the live view, and the handler gets its stream back."""
    terminal = log_handler.stream
    with choose_view("live", terminal, environ=GOOD) as view:
        view.begin(Snapshot("quickstart", planned=5))
        logging.getLogger("bench_master").warning("clock of w-1 is off")
        text = terminal.getvalue()
        assert text.index("WARNING: clock of w-1 is off") < text.rindex("0/5 jobs")
    assert log_handler.stream is terminal


def test_log_records_do_not_run_into_the_characters(log_handler):
    """A record, of several lines or with an escape sequence, stands on lines of its own."""
    terminal = log_handler.stream
    with choose_view("chars", terminal) as view:
        view.begin(Snapshot("quickstart"))
        view.jobs(np.zeros(2, dtype=JOB_ROW))
        logging.getLogger("bench_master").warning("two lines\n\tand\x1b[2J an indent")
        view.jobs(np.zeros(1, dtype=JOB_ROW))
    assert terminal.getvalue().endswith("  ..\nWARNING: two lines\n        and\\u001b[2J an indent\n  .\n")
    assert log_handler.stream is terminal
