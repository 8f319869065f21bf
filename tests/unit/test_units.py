"""Sizes and durations mean what people write, and are refused where people would disagree."""

import re

import pytest
from documents import rows
from hypothesis import example, given
from hypothesis import strategies as st
from places import ROOT

from bench_common.thresholds import parse_threshold
from bench_common.units import (
    DURATION_PATTERN,
    RATE_PATTERN,
    SIZE_PATTERN,
    SIZE_UNITS,
    TIME_UNITS,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
    unit_converter,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("512m", 512 * 1024**2),
        ("512M", 512 * 1024**2),
        ("512Mi", 512 * 1024**2),
        ("512MiB", 512 * 1024**2),
        ("512MB", 512 * 10**6),
        ("1k", 1024),
        ("1kB", 1000),
        ("1 GiB", 1024**3),
        ("1.5GiB", 3 * 1024**3 // 2),
        ("2t", 2 * 1024**4),
        ("7B", 7),
        ("0.1k", 102),
    ],
)
def test_sizes(text, size):
    """A bare letter is binary as engines have it, ..iB is binary, ..B is decimal, and no unit is bytes."""
    assert parse_size(text) == size
    assert re.search(SIZE_PATTERN, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("512mb", "'MiB' for powers of 1024 or 'MB' for powers of 1000"),
        ("1kb", "'KiB' for powers of 1024 or 'kB'"),
        ("1.5", "without a unit"),
        ("-1", "such as 512MiB"),
        ("", "such as 512MiB"),
        ("12 parsecs", "unknown unit 'parsecs'"),
        ("1e3", "such as 512MiB"),
        ("9" * 20, "such as"),
    ],
)
def test_sizes_refused(text, said):
    """What is no size, or could be one of two, is refused with what to write."""
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_size(text)
    assert not re.search(SIZE_PATTERN, text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("15m", 900),
        ("1h30m", 5400),
        ("1d2h", 93600),
        ("500ms", 0.5),
        ("1s500ms", 1.5),
        ("20us", 20e-6),
        ("7ns", 7e-9),
        ("0s", 0),
    ],
)
def test_durations(text, seconds):
    """A duration is a sum of numbers with units, or a number of seconds."""
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-12)
    assert re.search(DURATION_PATTERN, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("12:30", "did you mean '12m30s'"),
        ("1:02:03", "did you mean '1h2m3s'"),
        ("30m1h", "from large to small"),
        ("1m1m", "from large to small"),
        ("5sec", "unknown unit 'sec'"),
        ("5 s", "without spaces"),
        ("1h30", "such as 500ms"),
        ("-5s", "such as 500ms"),
        ("", "such as 500ms"),
    ],
)
def test_durations_refused(text, said):
    """What is no duration is refused with what to write."""
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_duration(text)
    assert not re.search(DURATION_PATTERN, text)


@given(st.integers(min_value=0, max_value=2**60))
def test_a_size_survives_being_written(size):
    """What format_size writes, parse_size reads as exactly the same number of bytes."""
    assert parse_size(format_size(size)) == size


@given(st.integers(min_value=0, max_value=10**15))
def test_a_duration_survives_being_written(nanoseconds):
    """What format_duration writes, parse_duration reads as the same nanosecond."""
    seconds = nanoseconds / 10**9
    assert round(parse_duration(format_duration(seconds)) * 10**9) == pytest.approx(nanoseconds, abs=1)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (512 * 1024**2, "512MiB"),
        (5 * 10**6, "5MB"),
        (3 * 1024**3 // 2, "1536MiB"),
        (1024**2 // 4 * 5 + 256, "1280.25KiB"),
        (4095, "4095B"),
    ],
)
def test_sizes_are_written_short(size, text):
    """A size is written in the unit that makes it whole, else in the one that makes it short."""
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.5, "500ms"), (2.5, "2.5s"), (90, "1m30s"), (5400, "1h30m"), (86400, "1d"), (2e-5, "20us")],
)
def test_durations_are_written_short(seconds, text):
    """A duration is written the way that a person would."""
    assert format_duration(seconds) == text


@given(st.text(alphabet="0123456789.kKMGTiBbmshdun :_-/", max_size=12))
@example("0 ")
def test_patterns_say_what_the_parsers_accept(text):
    """The published patterns and the parsers agree on every text."""
    for pattern, parse in (
        (SIZE_PATTERN, parse_size),
        (DURATION_PATTERN, parse_duration),
        (RATE_PATTERN, parse_rate),
    ):
        try:
            parse(text)
        except ValueError:
            accepted = False
        else:
            accepted = True
        assert bool(re.search(pattern, text)) is accepted


@pytest.mark.parametrize(
    ("text", "per_second", "written"),
    [("200/s", 200.0, "200/s"), ("30/min", 0.5, "30/min"), ("90 / h", 0.025, "1.5/min"), ("12.5", 12.5, "12.5/s")],
)
def test_rates(text, per_second, written):
    """Jobs by the second, the minute or the hour; written back as a person would."""
    assert parse_rate(text) == pytest.approx(per_second)
    assert parse_rate(format_rate(per_second)) == pytest.approx(per_second)
    assert format_rate(per_second) == written


@pytest.mark.parametrize(
    ("text", "said"), [("5/fortnight", "unknown unit"), ("fast", "expected a rate such as 200/s")]
)
def test_what_is_no_rate_is_refused(text, said):
    """With what to write instead."""
    with pytest.raises(ValueError, match=said):
        parse_rate(text)


def test_one_list_of_units_holds_everywhere():
    """The reference lists it, and keys, options, thresholds and rates read each of them alike."""
    page = ROOT / "docs" / "reference" / "scenario-keys.rst"
    listed = {kind: re.findall(r"[\w\u00b5]+|%", text) for kind, text in rows(page, "unit of", "spelled")}
    assert set(listed["time"]) == set(TIME_UNITS)
    assert set(listed["size"]) & set(SIZE_UNITS) == set(SIZE_UNITS)
    for unit, seconds in TIME_UNITS.items():
        assert parse_duration(f"2{unit}") == float(2 * seconds)
        assert re.search(DURATION_PATTERN, f"2{unit}")
        assert parse_threshold(f"operations.start.p95_s < 2{unit}").unit == unit
        assert unit_converter(unit, "s") == seconds
        if seconds >= 1:
            assert parse_rate(f"6/{unit}") == float(6 / seconds)
            assert re.search(RATE_PATTERN, f"6/{unit}")
    for unit, size in SIZE_UNITS.items():
        assert parse_size(f"2{unit}") == int(2 * size)
        assert parse_threshold(f"overhead.rss_bytes.max < 2{unit}").unit == unit
        assert unit_converter(unit, "B") == size
        assert unit_converter(f"{unit}/s", "B/s") == size
    assert unit_converter("m", "s") == 60
    assert unit_converter("m", "B") == 1024**2
    assert parse_duration("1h5min") == parse_duration("1h5m") == 3900
