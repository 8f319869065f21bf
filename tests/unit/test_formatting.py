"""Figures, plurals, safe text and tables as they are printed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.safe_text import one_line
from bench_master.formatting import (
    Column,
    fit_table,
    format_bytes,
    format_change,
    format_change_interval,
    format_count,
    format_elapsed,
    format_number,
    format_percent,
    format_seconds,
    format_share,
    format_significant,
    format_span,
    format_value,
    markdown_table,
    plural,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0, "0s"), (3e-9, "3ns"), (9.994e-7, "999ns"), (9.9996e-7, "1.000us"), (1.2344e-5, "12.34us"),
        (0.99996, "1.000s"), (0.9999, "999.9ms"), (1.5, "1.500s"), (12345.6, "12346s"), (-0.002, "-2.000ms"),
    ],
)  # fmt: skip
def test_durations_have_four_digits_and_a_unit(value, text):
    """Every duration is in the unit that leaves one to three digits before the point."""
    assert format_seconds(value) == text


@given(st.floats(min_value=1e-6, max_value=900), st.sampled_from([3, 4]))
def test_a_printed_duration_is_as_exact_as_its_digits(value, digits):
    """Reading a printed duration back is within half of its last digit."""
    text = format_seconds(value, digits)
    unit = text.lstrip("0123456789.")
    assert math.isclose(
        float(text.removesuffix(unit)) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit],
        value,
        rel_tol=0.51 * 10 ** (1 - digits),
    )


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (format_significant(0), "0"), (format_significant(0.012344), "0.01234"),
        (format_significant(12.345), "12.35"),
        (format_significant(503.0), "503"), (format_significant(123456.7), "123457"),
        (format_significant(1e-9), "1.00e-09"), (format_number(0.00123), "0.00123"),
            (format_value(3.03424e-08, "s"), "30.3 ns"), (format_value(3.14e-10, "s"), "0.314 ns"),
        (format_count(9_999_999), "9999999"), (format_count(12_345_678), "12.35M"), (format_count(10**9), "1G"),
        (format_percent(0.1234), "12.3%"), (format_percent(None), "-"), (format_bytes(8 * 2**30), "8GiB"),
        (format_bytes(1000 * 1024), "1000KiB"),
        (format_bytes(None), "-"), (format_span(0.0315), "31.5ms"), (format_span(42.25), "42.2s"),
        (format_span(3723), "1h2m"), (format_span(59.97), "1m"), (format_span(3599.7), "1h"),
        (format_span(86399), "1d"), (format_span(277_000), "3d5h"), (format_span(-0.2), "0s"),
        (format_span(None), "-"),
    ],
)  # fmt: skip
def test_measures_have_one_sober_form_each(shown, text):
    """Numbers, counts, shares, sizes and spans are short and carry their unit."""
    assert shown == text


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
    assert one_line("a\x1b[2Jb\r\n  c\u202ed\té") == r"a\u001b[2Jb c\u202ed é"


def test_a_noun_agrees_with_its_number():
    """One trial, but no trials and two trials."""
    assert [plural(count, "trial") for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
    assert plural(2, "series") == "2 series"


def test_a_table_gives_way_in_order():
    """First the gaps narrow, then spare columns go, and a long name gets a line of its own; nothing else is lost."""
    columns = [Column("name", left=True), Column("a"), Column("b", droppable=True)]
    assert fit_table(columns, [["x", "1", "2"]], indent=0) == ["name  a  b", "x     1  2"]
    assert fit_table(columns, [["x" * 70, "1" * 4, "2" * 4]], indent=0)[0] == "name" + " " * 70 + "a    b"
    wide = fit_table(columns, [["long name " * 3, "1" * 60, "2" * 15]], indent=0)
    assert wide[0].split() == ["name", "a"]
    assert fit_table(columns, [["n" * 90, "1", "2"]], indent=0)[-1].split() == ["1", "2"]
    words = fit_table([Column("trial", left=True), Column("what", left=True)], [["3", "taken " * 14]], indent=0)
    assert [line[:9] for line in words] == ["trial  wh", "3      ta", "       ta"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00386, "s", "3.86 ms"),
        (0.372, "s", "372 ms"),
        (0.0, "s", "0 s"),
        (2895.3, "1/s", "2,895/s"),
        (2895, "events/s", "2,895 events/s"),
        (12345678.0, "1/s", "12.35M/s"),
        (3.2e9, "B", "2.98 GiB"),
        (3e8, "B/s", "286 MiB/s"),
        (3, "1", "3"),
        (45.4, "%", "45.4 %"),
        (None, "s", "-"),
        (float("inf"), "s", "-"),
    ],
)
def test_a_measure_has_the_unit_that_a_person_would_use(value, unit, text):
    """Times, sizes and rates are scaled, and number and unit stand apart."""
    assert format_value(value, unit) == text


@pytest.mark.parametrize(
    ("ratio", "low", "high", "change", "interval"),
    [
        (1.21, 1.182, 1.239, "+21.0 %", "[+18.2, +23.9]"),
        (0.977, 0.941, 1.013, "-2.3 %", "[-5.9, +1.3]"),
        (1.0, 1.0, 1.0, "0.0 %", "[0.00, 0.00]"),
        (0.864, 0.8639, 0.8641, "-13.6 %", "[-13.61, -13.59]"),
        (79.6, 76.1, 83.0, "79.6x", "[76.1, 83.0]"),
        (1 / 79.6, 1 / 83.0, 1 / 76.1, "79.6x less", "[76.1, 83.0]"),
        (300.0, 172.0, None, "300x", "[172, open]"),
        (1.1, None, float("inf"), "+10.0 %", "[open, open]"),
    ],
)
def test_a_ratio_is_shown_in_percent_below_twofold_and_in_times_above(ratio, low, high, change, interval):
    """The interval has the form of its estimate, whatever its own ends would have."""
    assert format_change(ratio) == change
    assert format_change_interval(low, high, ratio) == interval
    assert format_change(ratio, sided=True) == change.removesuffix(" less")


def test_a_share_is_shown_in_percent():
    """Small shares have a decimal; what cannot be known is a dash."""
    assert [format_share(value) for value in (0.014, 0.136, 1.6, float("inf"), None)] == [
        "1.4 %", "13.6 %", "2.60x", "-", "-",
    ]  # fmt: skip


def test_a_column_that_says_nothing_is_left_out():
    """Where each row has a zero or a dash in it; other columns stay, whatever is in them."""
    columns = [Column("name", left=True), Column("lost", optional=True), Column("p", optional=True), Column("n")]
    rows = [["a", "0", "-", "0"], ["b", "0", "0.0", "0"]]
    assert fit_table(columns, rows) == ["  name  n", "  a     0", "  b     0"]
    rows[1][1] = "2"
    assert fit_table(columns, rows)[0].split() == ["name", "lost", "n"]
    assert fit_table(columns, [])[0].split() == ["name", "lost", "p", "n"]


def test_a_dash_among_the_cells_of_a_table_is_a_missing_value():
    """A column that is spare and has nothing else is left out; titles and longer cells stay."""
    columns = [Column("run", left=True), Column("-"), Column("spare", optional=True)]
    rows = [["a - b", "-", "-"], ["c", "1", "-"]]
    assert fit_table(columns, rows) == ["  run      -", "  a - b  n/a", "  c        1"]
    row = list(markdown_table(columns[:2], [row[:2] for row in rows]))[2]
    assert row.split() == ["|", "a", "-", "b", "|", "n/a", "|"]
