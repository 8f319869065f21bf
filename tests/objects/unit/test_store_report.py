"""The report of a storage engineer: operations over all sizes, endpoints by URL, and the course second by second."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders import footer, header, treatment_wire, write_report

from bench_common.job_rows import JOB_ROW, OPERATION_ROW, TRANSFER_ROW
from bench_common.records import OPERATION_DONE, OPERATION_FAILED, ErrorRecord, Outcome
from bench_common.stats.reader import StatsFile
from bench_common.stats.writer import StatsWriter
from bench_master.analysis.document import build_document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench_master.run_data.transfer_types import TransfersReport

S = 1_000_000_000
MS = 1_000_000
NAMES = ("read[tiny]", "read[big]", "delete[tiny]", "read[tiny].first", "read[big].first")
URLS = ["http://a/v1/AUTH_x", "http://b/v1/AUTH_x"]
Operation = tuple[int, int, int, int, int, int, str]
"""When it ended (ms), what, its duration and the time to its first byte (ms), bytes, endpoint, and why it failed."""

# Five seconds: 4, 1, 3, 2 and 2 operations that are done; the second endpoint fails in the fourth one.
OPERATIONS: list[Operation] = [
    (100, 0, 10, 4, 1000, 0, ""), (200, 1, 20, 5, 9000, 1, ""), (300, 0, 10, 4, 1000, 0, ""),
    (900, 2, 2, 0, 0, 1, ""),
    (1500, 0, 12, 6, 1000, 1, ""),
    (2100, 0, 10, 4, 1000, 0, ""), (2200, 0, 10, 4, 1000, 0, ""), (2300, 2, 3, 0, 0, 0, ""),
    (3100, 0, 10, 4, 1000, 0, ""), (3200, 0, 10, 4, 1000, 0, ""), (3300, 0, 900, 0, 0, 1, "http-503"),
    (3400, 1, 50, 0, 0, 1, "reset"), (3500, 2, 5, 0, 0, 1, "http-503"),
    (4100, 0, 10, 4, 1000, 0, ""), (4200, 1, 30, 8, 9000, 1, ""),
]  # fmt: skip


def _rows(dtype: np.dtype[Any], count: int, **columns: Sequence[int]) -> Any:
    rows = np.zeros(count, dtype)
    for name, values in columns.items():
        rows[name] = values
    return rows


def _run(path: Path, *, apart: bool = False, lasts: int = 5) -> Path:
    """Write a run of one trial of some seconds; with `apart` the parts of a job are in blocks of their own."""
    count = len(OPERATIONS)
    ends, places, took, first_ms, sizes, endpoints, kinds = zip(*OPERATIONS, strict=True)
    tickets = range(count)
    begins = [1000 * S + (end - own) * MS for end, own in zip(ends, took, strict=True)]
    ok = [OPERATION_FAILED if kind else OPERATION_DONE for kind in kinds]
    durations = [own * MS for own in took]
    jobs = _rows(
        JOB_ROW, count, ticket=tickets, start_ns=begins, end_ns=[1000 * S + end * MS for end in ends],
        outcome=[Outcome.FAILED if kind else Outcome.DONE for kind in kinds],
    )  # fmt: skip
    own = _rows(OPERATION_ROW, count, ticket=tickets, operation=places, ok=ok, start_ns=begins, duration_ns=durations)
    read = [place for place in tickets if first_ms[place]]
    firsts = own[read]
    firsts["operation"] = [3 + places[place] for place in read]
    firsts["duration_ns"] = [first_ms[place] * MS for place in read]
    moved = _rows(
        TRANSFER_ROW, count, ticket=tickets, operation=places, ok=ok, duration_ns=durations, bytes=sizes,
        endpoint=endpoints, first_uncertainty_ns=[2000 if first_ms[place] else 0 for place in tickets],
    )  # fmt: skip
    writer = StatsWriter(path)
    one = treatment_wire(0, {"engine": "swift"}, NAMES) | {"job": {"kind": "objects"}}
    writer.put("header", header([one], [(0, 0, False)]))
    filled = {"kind": "objects", "worker": 0, "treatment": 0, "phase": "populate", "objects": 9, "found": 0}
    filled |= {"content_bytes": 9, "failed": 0, "reason": "", "seconds": 1.0, "endpoints": URLS}
    writer.put("event", {"at_ns": 999 * S, **filled})
    writer.put("event", {"at_ns": 1000 * S, "kind": "trial-begin", "trial": 0, "workers": [0]})
    errors = [ErrorRecord(at, 0, 0, NAMES[places[at]], kind, "x") for at, kind in enumerate(kinds) if kind]
    parts = [
        (writer.transfers, moved), (writer.jobs, jobs), (writer.operations, own),
        (writer.first_bytes, firsts), (writer.errors, errors),
    ]  # fmt: skip
    for write, rows in parts:
        write(rows)
        if apart:
            writer.flush()
    writer.put("event", {"at_ns": (1000 + lasts) * S, "kind": "trial-end", "trial": 0})
    writer.close(footer())
    return path


@pytest.fixture(params=[False, True], ids=["together", "apart"])
def moved(request: pytest.FixtureRequest, tmp_path: Path) -> TransfersReport:
    (treatment,) = build_document(StatsFile(_run(tmp_path / "s.stats", apart=request.param))).treatments
    assert treatment.objects is not None
    return treatment.objects


def test_an_operation_is_told_over_objects_of_all_sizes(moved: TransfersReport) -> None:
    read = moved.by_operation["read"]
    assert (read.n, read.errors, read.error_kinds) == (10, 2, {"http-503": 1, "reset": 1})
    assert (read.per_s, read.mb_per_s) == (2.0, pytest.approx((8 * 1000 + 2 * 9000) / 5e6))
    assert (read.percentiles_s["p50"], read.percentiles_s["p99"], read.max_s) == (0.01, 0.03, 0.03)
    assert read.percentiles_exact
    assert read.first_byte is not None
    assert (read.first_byte.n, read.first_byte.percentiles_s["p50"], read.first_byte.error_s) == (10, 0.004, 2e-6)
    deleted = moved.by_operation["delete"]
    assert (deleted.n, deleted.error_kinds, deleted.first_byte) == (2, {"http-503": 1}, None)
    assert list(moved.by_operation) == ["read", "delete"]


def test_only_first_bytes_say_how_late_they_may_be_stamped(moved: TransfersReport) -> None:
    assert {name: one.first_byte_error_s for name, one in moved.operations.items()} == {
        "read[tiny]": None,
        "read[big]": None,
        "delete[tiny]": None,
        "read[tiny].first": 2e-6,
        "read[big].first": 2e-6,
    }


def test_each_endpoint_has_its_url_operations_first_bytes_and_kinds_of_failure(moved: TransfersReport) -> None:
    first, second = moved.endpoints
    assert [one.url for one in moved.endpoints] == URLS
    assert (first.n, first.errors, second.n, second.errors) == (8, 0, 4, 3)
    assert {name: (one.n, one.errors, one.error_kinds) for name, one in second.operations.items()} == {
        "read": (3, 2, {"http-503": 1, "reset": 1}),
        "delete": (1, 1, {"http-503": 1}),
    }
    firsts = [one.operations["read"].first_byte for one in moved.endpoints]
    assert [(one.n, one.max_s) for one in firsts if one is not None] == [(7, 0.004), (3, 0.008)]
    assert second.operations["delete"].first_byte is None


def test_the_course_has_each_operation_at_each_endpoint_second_by_second(moved: TransfersReport) -> None:
    course = {(one.operation, one.endpoint): one for one in moved.series}
    assert course.keys() == {("read", 0), ("read", 1), ("delete", 0), ("delete", 1)}
    assert course["read", 0].done == [2, 0, 2, 2, 1]
    assert course["read", 1].done == [1, 1, 0, 0, 1]
    assert course["read", 1].failed == [0, 0, 0, 2, 0]
    assert course["read", 1].content_bytes == [9000, 1000, 0, 0, 9000]
    assert moved.interval_s == 1.0
    assert moved.seconds is not None
    assert moved.seconds.n == 5
    fastest, median, slowest = moved.seconds.fastest, moved.seconds.median, moved.seconds.slowest
    assert [(one.second, one.per_s) for one in (fastest, median, slowest)] == [(0, 4.0), (4, 2.0), (1, 1.0)]
    assert fastest.mb_per_s == pytest.approx(0.011)
    reads = moved.by_operation["read"].seconds
    assert reads is not None
    assert (reads.fastest.per_s, reads.slowest.per_s) == (3.0, 1.0)


def test_a_trial_of_less_than_three_seconds_has_no_course(tmp_path: Path) -> None:
    (treatment,) = build_document(StatsFile(_run(tmp_path / "s.stats", lasts=2))).treatments
    assert treatment.objects is not None
    assert (treatment.objects.series, treatment.objects.seconds) == ([], None)
    assert treatment.objects.by_operation["read"].n == 10


def _report(path: Path, name: str, **options: Any) -> str:
    out = io.StringIO()
    write_report(path, out, name, **options)
    return out.getvalue()


def test_the_first_page_answers_before_anything_else(tmp_path: Path) -> None:
    """Operations and content a second, p50 and p99; then each operation, each endpoint, and why some failed."""
    path = _run(tmp_path / "s.stats")
    assert _report(path, "text", detail="answer").startswith(
        "2.4 operations/s, 0.0052 MB/s, p50 10.0 ms, p99 30.0 ms"
    )
    page = _report(path, "text", detail="page")
    read = next(line.split() for line in page.splitlines() if line.split()[:1] == ["read"])
    assert read[:7] == ["read", "10", "2", "2", "0.0052", "4.00", "ms"]
    told = " ".join(page.split())
    assert "errors: 2 x http-503 (read 1, delete 1); 1 x reset (read)" in told
    assert "of 5 seconds: fastest 4/s and 0.011 MB/s, median 2/s and 0.01 MB/s, slowest 1/s and 0.001 MB/s" in told
    assert "(second 2 of trial 0)" in told
    assert "http://b/v1/AUTH_x: 2 x http-503, 1 x reset" in told
    full = _report(path, "text")
    assert "trial 0, 3 to 4 s" in full
    assert "first byte of read: stamped at most 2.00 us late" in full
