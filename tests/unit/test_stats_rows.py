"""Rows by column: equal to the rows, decoded on demand, checked at once."""

import numpy as np
import pytest
from builders import job_rows, operation_rows
from hypothesis import given
from hypothesis import strategies as st

from bench_common.job_rows import JOB_ROW, OPERATION_ROW
from bench_common.stats.rows import (
    DELTA,
    OFFSET,
    ColumnError,
    encode_column,
    pack_jobs,
    pack_operations,
    unpack,
    unpack_by_column,
    unpack_operations,
)

TICKETS = st.integers(0, 2**64 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(TICKETS, INT64, INT64, st.integers(0, 2**16 - 1)), max_size=9), st.data())
def test_columns_equal_the_rows(drawn, data):
    """Jobs, their only operations, and any slice of a slice have the same values by column as by row."""
    jobs = job_rows(*({"ticket": one, "start_ns": start, "end_ns": end} for one, start, end, _ in drawn))
    operations = operation_rows(
        *(
            {"ticket": one, "start_ns": end, "duration_ns": start, "operation": place}
            for one, start, end, place in drawn
        )
    )
    body = pack_jobs(jobs, operations)
    for (_, columns), (kind, rows) in zip(unpack_by_column("jobs", body), unpack("jobs", body), strict=True):
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), dtype=bool)
        for part, same in ((columns, rows), (columns[mask], rows[mask]), (columns[mask][::2], rows[mask][::2])):
            assert len(part) == len(same)
            assert all(np.array_equal(part[name], same[name]) for name in rows.dtype.names), kind
            assert np.array_equal(part.rows(rows.dtype), same)
    assert rows.dtype == OPERATION_ROW
    assert (unpack_by_column("jobs", body, {"jobs"})[0][1].rows(JOB_ROW) == jobs).all()


@pytest.mark.parametrize("mode", [OFFSET, DELTA])
@pytest.mark.parametrize(("name", "value"), [("operation", 2**16), ("ok", 2**8), ("trial", 2**32), ("treatment", -1)])
def test_a_value_out_of_range_is_detected_at_once(name, value, mode):
    """A value that no row can hold invalidates its block before its column is read, in any encoding."""
    body = pack_operations(operation_rows({}, {}))
    body["columns"][name] = encode_column(np.array([0, value]), mode)
    with pytest.raises(ColumnError, match=f"{name} {value}: 0 to "):
        unpack_operations(body)
    body["columns"][name] = encode_column(np.array([0, 200]), mode)
    assert unpack_operations(body)[name].tolist() == [0, 200]
