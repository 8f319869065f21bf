"""The rows of jobs and operations as numpy arrays, as the master keeps and stores them.

A worker never loads this: numpy takes a fifth of its memory, and a good part of the time that it takes to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

JOB_ROW: Final = np.dtype(
    [
        ("ticket", "<u8"),
        ("treatment", "<u4"),
        ("trial", "<u4"),
        ("worker", "<u2"),
        ("outcome", "u1"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("uncertainty_ns", "<u4"),
        ("wait_ns", "<i8"),
    ]
)
"""A finished job. `worker` is the roster number that the master assigns (a worker itself sends 0).

`end_ns` is the latest instant at which it can have ended. No end of its operations was stamped more than
`uncertainty_ns` too late; `MAX_UNCERTAINTY_NS` stands for more than that. `wait_ns` is how long after its arrival it
began, in an open system (service time is from its start, response time from its arrival, to its end); 0 in the closed
model.
"""

OPERATION_ROW: Final = np.dtype(
    [
        ("ticket", "<u8"),
        ("treatment", "<u4"),
        ("trial", "<u4"),
        ("operation", "<u2"),
        ("ok", "u1"),
        ("start_ns", "<i8"),
        ("duration_ns", "<i8"),
    ]
)
"""An operation that was tried. `operation` is its position in the treatment's own list of operation names.

`ok` is one of `OPERATION_FAILED`, `OPERATION_DONE` and `OPERATION_EXCLUDED`; each is stored with its time, and only a
done one enters a latency.
"""


TRANSFER_ROW: Final = np.dtype(
    [
        ("ticket", "<u8"),
        ("treatment", "<u4"),
        ("trial", "<u4"),
        ("operation", "<u2"),
        ("ok", "u1"),
        ("endpoint", "<u2"),
        ("retries", "<u2"),
        ("redrawn", "u1"),
        ("bytes", "<i8"),
        ("duration_ns", "<i8"),
        ("last_try_ns", "<i8"),
        ("first_uncertainty_ns", "<i8"),
    ]
)
"""What only a job has that does one operation: see `records.SINGLE_FIELDS`. `operation`, `ok` and `duration_ns` are
those of its only operation, so that endpoints and bytes are counted without a look at other rows.
`bytes` is -1 where unknown, as of imported reads."""


def join_rows(batches: Sequence[np.ndarray[Any, np.dtype[Any]]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the rows of one or more batches of one dtype as one array, which must not be changed.

    `numpy.concatenate` determines a common dtype field by field for every batch, at some 8 us each; this function
    only joins the bytes.
    """
    if len(batches) == 1:
        return batches[0]
    return np.frombuffer(b"".join([batch.data for batch in batches]), batches[0].dtype)
