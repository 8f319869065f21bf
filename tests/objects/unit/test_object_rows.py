"""What a job on objects becomes on its way: a row on the wire, rows of the journal, blocks of the stats file."""

import numpy as np
import pytest

from bench_common.errors import ProtocolError
from bench_common.messages import RESULTS
from bench_common.records import (
    OPERATION_DONE,
    OPERATION_EXCLUDED,
    OPERATION_FAILED,
    JobReport,
    Outcome,
    TransactionRecord,
)
from bench_common.stats.reader import StatsFile
from bench_common.stats.writer import StatsWriter
from bench_common.treatment import Treatment
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_master.analysis.document import build_document
from bench_master.run.results import first_positions, single_rows, unpack_results
from bench_worker.job import Script
from bench_worker.outbox import Outbox
from bench_workloads.script import job_script

MIX = (("create", 1.0), ("read", 9.0))
JOB = Objects(classes=(SizeClass("tiny", Sizes("fixed", 9, 9), MIX), SizeClass("big", Sizes("fixed", 99, 99), MIX)))
SCRIPT = job_script(Treatment(0, {}, None, "swift", JOB))
NAMES = [operation.name for operation in SCRIPT]
FIRSTS = {0: first_positions(NAMES)}
CREATE, READ_BIG, FIRST_BIG = (NAMES.index(name) for name in ("create[tiny]", "read[big]", "read[big].first"))


def report(start, end, words, outcome=Outcome.DONE, **extras):
    made = JobReport()
    made.stamps, made.single_words = [start, end - start], words
    if outcome != Outcome.DONE:
        made.outcome = outcome
    for name, value in extras.items():
        setattr(made, name, value)
    return made


def batches(reports):
    """Return the batch that a worker sends with these reports, as the master unpacks it."""
    frames = []
    outbox = Outbox(1, lambda frame: frames.append(frame) or True)
    outbox.start_trial(0, 0, Script(SCRIPT), one_operation=True)
    for ticket, one in enumerate(reports):
        outbox.add(ticket, one)
    outbox.flush()
    return [unpack_results(RESULTS.decode(frame), [len(NAMES)], [0], FIRSTS) for frame in frames]


THRESHOLDS = [
    "operations.read[big].p99 < 20ms",
    "operations.read[big].first.p50_s < 1ns",
    "operations.read[big].per_s == 2",
    "mb_per_s > 5",
]
DONE = report(1000, 1500, (CREATE, 400, 0, 0, 9, 2, 0, 0), transactions=[("create[tiny]", "tx1")])
READ = report(2000, 2900, (READ_BIG, 700, 30, 0, 99, 1, 0, 1))
RETRIED = report(3000, 9000, (READ_BIG, 5600, 0, 5000, 99, 0, 2, 0))
FAILED = report(4000, 4100, (READ_BIG, 50, 0, 0, 10, 1, 0, 0), Outcome.FAILED, error=("read[big]", "truncated", "x"))
ABORTED = JobReport.ended(Outcome.ABORTED, (5000, 5000))


def test_each_job_has_one_operation_and_a_read_its_first_byte():
    (batch,) = batches([DONE, READ, RETRIED, FAILED, ABORTED])
    assert batch.transactions == [TransactionRecord(0, 0, 0, "create[tiny]", "tx1")]
    rows = single_rows([batch], [3], [100])
    assert rows.jobs["outcome"].tolist() == [0, 0, 0, 1, 3]
    assert rows.jobs["start_ns"].tolist() == [900, 1900, 2900, 3900, 4900]
    assert rows.operations["ticket"].tolist() == [0, 1, 2, 3], "a job that was called off did none"
    assert rows.operations["operation"].tolist() == [CREATE, READ_BIG, READ_BIG, READ_BIG]
    assert rows.operations["duration_ns"].tolist() == [500, 900, 6000, 100]
    assert rows.operations["ok"].tolist() == [OPERATION_DONE, OPERATION_DONE, OPERATION_DONE, OPERATION_FAILED]
    assert rows.firsts["operation"].tolist() == [FIRST_BIG] * 3
    assert rows.firsts["duration_ns"].tolist() == [700, 5600, 50]
    assert rows.firsts["ok"].tolist() == [OPERATION_DONE, OPERATION_DONE, OPERATION_EXCLUDED]
    found = {
        name: rows.transfers[name].tolist() for name in ("bytes", "endpoint", "retries", "redrawn", "last_try_ns")
    }
    assert found == {
        "bytes": [9, 99, 99, 10],
        "endpoint": [2, 1, 0, 1],
        "retries": [0, 0, 2, 0],
        "redrawn": [0, 1, 0, 0],
        "last_try_ns": [0, 0, 5000, 0],
    }
    assert rows.transfers["first_uncertainty_ns"].tolist() == [0, 30, 0, 0]


def test_an_operation_that_the_treatment_does_not_have_is_refused():
    (batch,) = batches([report(1, 2, (len(NAMES), -1, 0, 0, 0, 0, 0, 0))])
    with pytest.raises(ProtocolError, match="an operation that the treatment does not have"):
        single_rows([batch], [0], [0])


def test_the_stats_file_gives_the_rows_back_with_the_operations_within_their_jobs(tmp_path):
    """First bytes do not keep a job's own operation from its place in the jobs' block."""
    sent = batches([DONE, READ, RETRIED, FAILED])
    rows = single_rows(sent, [0] * len(sent), [0] * len(sent))
    writer = StatsWriter(tmp_path / "s.stats")
    header = {"treatments": [{"operation_names": NAMES}], "trials": [[0, 0, False]]}
    writer.put("header", {"format": "weighbridge-stats", "version": 2, **header})
    writer.jobs(rows.jobs)
    writer.operations(rows.operations)
    writer.first_bytes(rows.firsts)
    writer.transfers(rows.transfers)
    writer.transactions([TransactionRecord(0, 0, 0, "create[tiny]", "tx1")])
    writer.close({})
    blocks = [(block.kind, block.body) for block in StatsFile(tmp_path / "s.stats").blocks()]
    assert [kind for kind, _ in blocks] == [
        *("header", "jobs", "operations", "operations", "transfers", "transactions", "footer")
    ]
    for (_, body), expected in zip(
        blocks[1:5], (rows.jobs, rows.operations, rows.firsts, rows.transfers), strict=True
    ):
        assert np.array_equal(body, expected)
    assert blocks[5][1] == [TransactionRecord(0, 0, 0, "create[tiny]", "tx1")]


def test_a_report_has_rates_retries_endpoints_and_the_slowest_requests(tmp_path):
    """Of successful operations; retries count those of failed ones, too."""
    sent = batches([DONE, READ, RETRIED, FAILED])
    rows = single_rows(sent, [0] * len(sent), [0] * len(sent))
    path = tmp_path / "s.stats"
    labels = {"engine": "swift"}
    wire = {"title": "engine=swift", "labels": labels, "operation_names": NAMES, "engine": "swift"}
    job = {"kind": "objects", "endpoints": ["http://a", "http://b"]}
    writer = StatsWriter(path)
    head = {"format": "weighbridge-stats", "version": 2, "trials": [[0, 0, False]], "run_id": "0b1ec7000001"}
    writer.put(
        "header", {**head, "treatments": [{**wire, "job": job, "jobs_per_trial": 4}], "thresholds": THRESHOLDS}
    )
    writer.put("event", {"kind": "trial-begin", "at_ns": 0, "trial": 0, "workers": [0]})
    writer.jobs(rows.jobs)
    writer.operations(rows.operations)
    writer.first_bytes(rows.firsts)
    writer.transfers(rows.transfers)
    writer.transactions(
        [TransactionRecord(2, 0, 0, "read[big]", "tx2"), TransactionRecord(1, 0, 0, "read[big]", "tx8")]
    )
    writer.put("event", {"kind": "trial-end", "at_ns": 1_000_000_000, "trial": 0})
    writer.close({"status": "complete"})
    document = build_document(StatsFile(path))
    (treatment,) = document.treatments
    moved = treatment.objects
    assert (moved.content_bytes, moved.retries, moved.redrawn) == (9 + 99 + 99, 2, 1)
    assert moved.mb_per_s == pytest.approx(207e-6)
    big = moved.operations["read[big]"]
    assert (big.per_s, big.content_bytes, big.retries, big.slowest_transaction) == (2.0, 198, 2, "tx2")
    assert moved.operations["read[big].first"].first_byte_error_s == pytest.approx(30e-9)
    found = {one.url: (one.n, one.errors, one.retries) for one in moved.endpoints if one.endpoint < 2}
    assert found == {"http://a": (1, 0, 2), "http://b": (1, 1, 0)}
    assert {one.threshold: one.passed for one in document.thresholds if one.threshold in THRESHOLDS} == {
        THRESHOLDS[0]: True,
        THRESHOLDS[1]: False,
        THRESHOLDS[2]: True,
        THRESHOLDS[3]: False,
    }
