"""Durations, counts and rates as they read on the screen."""

from __future__ import annotations

import pytest

from bench_master.progress.output import format_elapsed, format_latency, format_number, one_line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (-1e-9, "0 s"),
        (5e-9, "5.00 ns"),
        (789e-6, "789 us"),
        (0.0123, "12.3 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (9.996, "10.0 s"),
        (99.96, "100 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds, text):
    """A latency is written in the unit in which it has one to three digits before the point."""
    assert format_latency(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-:--"), (0, "0:00"), (-3, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3723, "1:02:03")],
)
def test_spans_read_like_a_clock(seconds, text):
    """A span is minutes and seconds, with hours when there are any."""
    assert format_elapsed(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00"), (0.123, "0.12"), (9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (412345.6, "412,346")],
)
def test_rates_have_three_digits_or_all(value, text):
    """A rate is neither longer than needed nor rounded to zeros."""
    assert format_number(value) == text


def test_a_message_cannot_steer_the_terminal():
    """Escape sequences, line ends and direction marks in foreign text are shown, not obeyed."""
    assert one_line("a\x1b[2Jb\r\n  c\u202ed\té") == r"a\x1b[2Jb c\u202ed é"
