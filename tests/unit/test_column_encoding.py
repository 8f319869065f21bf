"""Columns: exact round trips, strict decoding, few bytes."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.records import UNCERTAINTY_GRAIN_NS
from bench_common.stats.rows import DELTA, FLOAT, MAX_ROWS, OFFSET, ColumnError, decode_column, encode_column

int64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)


@given(st.lists(int64, max_size=100), st.sampled_from([OFFSET, DELTA]))
def test_integers_read_back_exactly(values, mode):
    """Both modes return every value, wrap-around differences included."""
    column = np.array(values, dtype=np.int64)
    assert decode_column(encode_column(column, mode), len(values)).tolist() == values


@given(st.integers(0, 64), st.data())
def test_a_column_of_any_width_reads_back(bits, data):
    """Codes of any number of planes, also just below and above half a word, return each value."""
    base, spread = data.draw(int64), st.integers(-(2**bits) // 2, 2**bits // 2)
    steps = [data.draw(spread) for _ in range(data.draw(st.integers(0, 9)))]
    for values in ([base + step for step in steps], [base + sum(steps[:end]) for end in range(len(steps))]):
        wrapped = [(value + 2**63) % 2**64 - 2**63 for value in values]
        for mode in (OFFSET, DELTA):
            data_of = encode_column(np.array(wrapped, dtype=np.int64), mode)
            assert decode_column(data_of, len(wrapped)).tolist() == wrapped


@given(st.lists(st.floats(), max_size=50))
def test_doubles_read_back_bit_for_bit(values):
    """Doubles keep their bits, so that NaN and -0.0 survive."""
    column = np.array(values, dtype=np.float64)
    assert decode_column(encode_column(column, FLOAT), len(values)).tobytes() == column.tobytes()


def test_unsigned_words_keep_their_bits():
    """A ticket with its highest bit set is the same 64 bits after a round trip."""
    tickets = np.array([2**64 - 1, 2**63, 5], dtype=np.uint64)
    assert decode_column(encode_column(tickets, DELTA), 3).view(np.uint64).tolist() == tickets.tolist()


def test_a_constant_column_takes_no_bytes_per_row():
    """A constant is stored as the base only."""
    assert len(encode_column(np.full(MAX_ROWS, 7), OFFSET)) == 10


def test_realistic_job_columns_take_at_most_fifteen_bytes_a_job():
    """Tickets, end stamps, durations and bounds of a busy run stay within the goal after gzip level 1."""
    rng = np.random.default_rng(5)
    rows = 20_000
    ends = np.cumsum(rng.exponential(400_000, rows)).astype(np.int64) + 10**15
    durations = rng.lognormal(16, 0.7, rows).astype(np.int64)
    tickets = np.arange(rows) + rng.integers(-12, 12, rows)
    columns = [(tickets, DELTA), (ends, DELTA), (durations, OFFSET), (rng.integers(0, 4, rows), OFFSET)]
    bounds = (100_000 + rng.lognormal(11, 1, rows)).astype(np.int64) | UNCERTAINTY_GRAIN_NS
    packed = b"".join(encode_column(values, mode) for values, mode in [*columns, (bounds, OFFSET)])
    assert len(zlib.compress(packed, 1)) / rows <= 15


GOOD = encode_column(np.array([3, 300, 5]), OFFSET)


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (GOOD, 2),
        (GOOD, 4),
        (GOOD, -1),
        (GOOD, MAX_ROWS + 1),
        (GOOD[:-1], 3),
        (GOOD + b"\0", 3),
        (b"", 0),
        (b"\x07" + GOOD[1:], 3),
        (bytes([OFFSET, 9]) + bytes(8 + 27), 3),
        (bytes([FLOAT, 7]) + bytes(8 + 21), 3),
    ],
)
def test_invalid_column_bytes_are_refused(data, rows):
    """A wrong number of rows, an unknown mode or an extra byte is an error, never other numbers."""
    with pytest.raises(ColumnError):
        decode_column(data, rows)


@pytest.mark.parametrize(
    ("values", "mode"),
    [(np.zeros(MAX_ROWS + 1, dtype=int), OFFSET), (np.zeros((2, 2), dtype=int), DELTA), (np.array([1.5]), OFFSET)],
)
def test_invalid_columns_are_not_encoded(values, mode):
    """Too many rows, a matrix, or fractions in an integer column are refused before anything is written."""
    with pytest.raises(ValueError, match=r"expected|at most"):
        encode_column(values, mode)


@given(st.binary(max_size=80), st.integers(0, 12))
def test_hostile_bytes_decode_or_are_refused(data, rows):
    """Arbitrary bytes give a column of the announced length or `ColumnError`."""
    try:
        column = decode_column(data, rows)
    except ColumnError:
        return
    assert len(column) == rows
