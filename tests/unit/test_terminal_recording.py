"""Recordings of a terminal: what they have, and what is left on the screen in the end."""

import json
import os

import pytest
from deadlines import ANSWER_S
from terminal_recording import COLUMNS, Screen, read, record, run


def screen_of(text, columns=20):
    screen = Screen(columns)
    screen.write(text)
    return screen.text()


@pytest.mark.parametrize(
    ("printed", "left"),
    [
        ("one\r\ntwo\r\n", "one\ntwo"),
        ("10 %\r20 %\rdone\r\n", "done"),
        ("first\r\nsecond\r\n\x1b[2A\x1b[2Knew\r\n\x1b[1B", "new\nsecond"),
        ("\x1b[?25l\x1b[1;31mFAILED\x1b[0m\x1b[?25h", "FAILED"),
        ("long\x1b[2D\x1b[K", "lo"),
        ("a\x1b[5Gb\b\bc", "a  cb"),
        ("kept\r\ngone\r\ngone\x1b[1A\r\x1b[J", "kept"),
        ("x" * 25, "x" * 20 + "\n" + "x" * 5),
    ],
    ids=["lines", "over it", "up and down", "colours", "erased", "columns", "below", "wrapped"],
)
def test_the_screen_is_what_a_terminal_shows(printed, left):
    """Progress that is drawn over itself leaves its last state; colours leave nothing."""
    assert screen_of(printed) == left


@pytest.mark.parametrize("printed", ["\x1b]0;title\x07", "\x1b[5;5H"])
def test_a_sequence_that_it_does_not_know_is_an_error(printed):
    """A screen that ignored it would show what no terminal shows."""
    with pytest.raises(ValueError, match="unknown control sequence"):
        screen_of(printed)


def test_a_recording_has_what_players_read_and_its_last_screen(tmp_path):
    """The header of version 2, the line that was typed, each output with its time; the exit code is the line's."""
    path = tmp_path / "a.cast"
    line = "tput cols; printf '10 %%\\r'; printf 'done\\n'; exit 7"
    assert record(line, path, ANSWER_S) == 7
    header, *events = map(json.loads, path.read_text().splitlines())
    assert (header["version"], header["width"], header["command"]) == (2, COLUMNS, line)
    assert [kind for _, kind, _ in events] == ["o"] * len(events)
    times = [seconds for seconds, _, _ in events]
    assert times == sorted(times)
    assert read(path) == (header, f"$ {line}\n{COLUMNS}\ndone")


def test_a_recording_of_another_version_is_refused(tmp_path):
    """With the version that was expected."""
    path = tmp_path / "a.cast"
    path.write_text('{"version": 1}\n')
    with pytest.raises(ValueError, match="expected a recording of version 2, not 1"):
        read(path)


def test_a_line_that_does_not_end_is_ended_with_all_that_it_started(tmp_path):
    """At the deadline: it returns when no process has the terminal any longer."""
    ended = run("sleep 3600 & wait", os.environ, tmp_path, 0.2)  # subject: a deadline that passes
    assert ended.status is None
    assert ended.screen() == ""
