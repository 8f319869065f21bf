"""The stats file: data reads back as written; truncated, damaged and foreign files are reported and never raise."""

import errno
import gzip
import os
import struct
import threading
import zlib
from itertools import accumulate
from pathlib import Path

import msgpack
import msgspec
import numpy as np
import pytest
from builders import S, chained, header, job_rows, lifecycle_run, members_of, operation_rows, treatment_wire
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from bench_common.errors import DiskFullError, StatsFileError
from bench_common.job_rows import JOB_ROW, OPERATION_ROW
from bench_common.records import MAX_TEXT_CHARS, ErrorRecord, MetricRecord, OutputRecord
from bench_common.stats import frame as stats_frame
from bench_common.stats.block_types import Header, StoredFooter
from bench_common.stats.frame import MAGIC, MAX_PAYLOAD, pack_payload
from bench_common.stats.reader import FORMAT, MAX_KEPT_BYTES, VERSION, KeptBlocks, StatsFile, StatsWriter
from bench_common.stats.rows import MAX_ROWS, SampleColumns, pack_jobs, unpack
from bench_common.stats.writer import BlockBuilder

HEAD = header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def kinds(path):
    return [block.kind for block in StatsFile(path).blocks()]


def small_run(path):
    """Write a file of one block of each sort, as short as can be, and return its path."""
    writer = StatsWriter(path)
    writer.put("header", {"format": FORMAT, "version": VERSION})
    writer.jobs(job_rows({"ticket": 1, "end_ns": 900}, {"ticket": 2, "end_ns": 990}))
    writer.operations(operation_rows({"ticket": 1, "duration_ns": 77}))
    writer.metrics([MetricRecord(1, 0, 0, "speed", 1.5)])
    writer.outputs([OutputRecord(1, 0, 0, "run", b"fast")])
    writer.samples(0, "loop", {"time_ns": [S, 2 * S], "busy_share": [0.25, 0.5]}, {"busy_share": "share"})
    writer.put("event", {"at_ns": 2 * S, "kind": "trial-end", "trial": 0})
    writer.close({"status": "complete"})
    return path


def written(path, *blocks):
    """Write raw blocks, each a kind and a body, and return the path."""
    path.write_bytes(chained(*(pack_payload(kind, body) for kind, body in blocks)))
    return path


def test_everything_reads_back_as_written(path):
    """Rows, records, samples and plain blocks read equal to what was buffered."""
    jobs = job_rows({"ticket": 2**63, "outcome": 3, "start_ns": -5, "end_ns": 9, "worker": 65535})
    operations = operation_rows({"ticket": 1, "operation": 2, "duration_ns": 2**62, "ok": 0})
    metrics = [MetricRecord(1, 0, 0, "speed", 1.5)]
    errors = [ErrorRecord(2, 0, 0, "exec", "exit-code", "exit code 3")]
    outputs = [OutputRecord(1, 0, 0, "run", b"\xff\x00", b"err", 3, truncated=True)]
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.jobs(jobs)
    writer.operations(operations)
    writer.metrics(metrics)
    writer.errors(errors)
    writer.outputs(outputs)
    writer.samples(-1, "loop", {"time_ns": [S, 2 * S], "busy_share": [0.25, 0.5]}, {"busy_share": "share"})
    writer.close({"status": "complete"})
    bodies = {block.kind: block.body for block in StatsFile(path).blocks()}
    assert bodies["header"] == msgspec.convert(HEAD, Header)
    assert np.array_equal(bodies["jobs"], jobs)
    assert np.array_equal(bodies["operations"], operations)
    assert (bodies["metrics"], bodies["errors"], bodies["outputs"]) == (metrics, errors, outputs)
    samples = bodies["samples"]
    assert isinstance(samples, SampleColumns)
    assert (samples.worker, samples.source, samples.units) == (-1, "loop", {"busy_share": "share"})
    assert samples.columns["time_ns"].tolist() == [S, 2 * S]
    assert samples.columns["busy_share"].tolist() == [0.25, 0.5]
    assert bodies["footer"] == StoredFooter(status="complete")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_rows_read_back_exactly(tmp_path, data):
    """Rows of any valid values keep value and order, in any batches."""

    def drawn(dtype, **limits):
        fields = {}
        for name in dtype.names:
            info = np.iinfo(dtype[name])
            fields[name] = st.integers(int(info.min), min(int(info.max), limits.get(name, int(info.max))))
        return data.draw(st.lists(st.lists(st.fixed_dictionaries(fields), max_size=3), max_size=3))

    batches = drawn(JOB_ROW, outcome=3)
    operation_batches = drawn(OPERATION_ROW)
    path = tmp_path / "any.stats.gz"
    path.unlink(missing_ok=True)
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    for batch in batches:
        writer.jobs(job_rows(*batch))
    for batch in operation_batches:
        writer.operations(operation_rows(*batch))
        writer.flush()
    writer.close()
    stats = StatsFile(path)
    assert [tuple(row) for rows in stats.iter_jobs() for row in rows.tolist()] == [
        tuple(row) for batch in batches for row in job_rows(*batch).tolist()
    ]
    assert [row for block in stats.blocks({"operations"}) for row in block.body.tolist()] == [
        row for batch in operation_batches for row in operation_rows(*batch).tolist()
    ]


def test_a_file_truncated_at_any_byte_reads_to_its_last_complete_block(path, tmp_path):
    """For every length: the complete blocks before it, the reason for the end, and no exception."""
    whole = small_run(path).read_bytes()
    expected = [(block.kind, repr(block.body)) for block in StatsFile(path).blocks()]
    ends = block_ends(whole)
    assert len(ends) == len(expected)
    cut = tmp_path / "cut.stats.gz"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        stats = StatsFile(cut)
        blocks = [(block.kind, repr(block.body)) for block in stats.blocks()]
        complete = sum(end <= length for end in ends)
        assert blocks == expected[:complete]
        if length in (0, *ends):
            assert stats.damage is None
        else:
            assert stats.damage.startswith(f"byte {ends[complete - 1] if complete else 0}: the file ends within")


def block_ends(data):
    """Return where each gzip member of `data` ends, found by another way than the reader's own."""
    return list(accumulate(map(len, members_of(data))))


def test_a_flipped_bit_is_detected_and_ends_reading(path, tmp_path):
    """One wrong bit in any byte: blocks before it are read unchanged, none is wrong, and the damage is reported."""
    whole = small_run(path).read_bytes()
    expected = [(block.kind, repr(block.body)) for block in StatsFile(path).blocks()]
    ends = block_ends(whole)
    flipped = tmp_path / "flipped.stats.gz"
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        flipped.write_bytes(damaged)
        before = sum(end <= position for end in ends)
        try:
            stats = StatsFile(flipped)
        except StatsFileError as error:
            assert (position < ends[0], "is not a stats file" in str(error)) == (True, True)  # noqa: PT017
            continue
        blocks = [(block.kind, repr(block.body)) for block in stats.blocks()]
        # A few bits of a gzip head (its time stamp, its operating system) mean nothing to a reader.
        assert blocks in (expected[:before], expected)
        assert (stats.damage is None) == (blocks == expected)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"name,value\n1,2\n", "is not a stats file: no gzip member"),
        (gzip.compress(b"name,value\n1,2\n", mtime=0), "is not a stats file: gzip of something else"),
        (gzip.compress(b"", mtime=0), "is not a stats file: gzip of something else"),
        (chained(pack_payload("jobs", {"rows": 0})), "its first block is not a weighbridge-stats header"),
        (chained(pack_payload("event", {})), "its first block is not a weighbridge-stats header"),
        (
            chained(pack_payload("header", HEAD | {"trials": [[1, 0, False]]})),
            "its header, at byte 0, is malformed: trial 0 is of treatment 1, and there are 1",
        ),
        (
            chained(pack_payload("header", HEAD | {"treatments": [7]})),
            "its header, at byte 0, is malformed: Expected `object`, got `int` - at `$.treatments[0]`",
        ),
        (chained(pack_payload("header", {"format": "other", "version": 1})), "not a weighbridge-stats header"),
        (
            chained(pack_payload("header", HEAD | {"version": 3})),
            "has format version 3; this program reads version 2; read it with the Weighbridge that wrote it, or with",
        ),
        (
            chained(pack_payload("header", HEAD | {"version": "1"})),
            "format version '1': expected a number of at least 1",
        ),
        (b"", "the file is empty"),
    ],
)
def test_an_unreadable_stats_file_is_an_error(path, content, complaint):
    """Another file, a newer format and an empty file each have their own message, which names the file."""
    path.write_bytes(content)
    with pytest.raises(StatsFileError) as raised:
        _ = StatsFile(path).header
    assert complaint in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_missing_file_is_an_error(path):
    """A path that cannot be opened is a `StatsFileError` with the system's reason."""
    with pytest.raises(StatsFileError, match="No such file"):
        StatsFile(path)


@pytest.mark.parametrize(
    "payload_length", [MAX_PAYLOAD + 1, 2**32 - 1, 3], ids=["too large", "as large as can be", "more than it says"]
)
def test_a_gzip_bomb_is_never_inflated(path, payload_length):
    """A member that announces too much, or holds more than it announces, is damage and costs no memory."""
    content = MAGIC + payload_length.to_bytes(4, "little") + bytes(4) + bytes(1 << 20)
    path.write_bytes(chained(pack_payload("header", HEAD)) + gzip.compress(content))
    stats = StatsFile(path)
    assert [block.kind for block in stats.blocks()] == ["header"]
    assert stats.damage


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("jobs", {"rows": 1}),
        ("jobs", {"rows": 1, "columns": {}}),
        ("jobs", {"rows": "1", "columns": {}}),
        ("jobs", pack_jobs(job_rows({"outcome": 4}))),
        ("jobs", {**pack_jobs(job_rows({})), "operations": {}}),
        ("jobs", {**pack_jobs(job_rows({})), "operations": [1]}),
        ("operations", {"rows": 1 << 40, "columns": {}}),
        ("metrics", {"rows": [[1, 0, 0, "speed", "fast"]]}),
        ("metrics", {"rows": [[1, 0, 0, "speed"]]}),
        ("errors", {"rows": {"a": 1}}),
        ("outputs", {}),
        ("samples", {"worker": 0, "source": "host", "units": {"a": 1}, "rows": 0, "columns": {}}),
    ],
)
def test_a_malformed_body_is_damage(path, kind, body):
    """A block with a valid frame and a body that does not fit its kind is skipped and named; the rest is read."""
    stats = StatsFile(written(path, ("header", HEAD), (kind, body), ("footer", {})))
    assert [block.kind for block in stats.blocks()] == ["header", "footer"]
    (offset,) = block_ends(path.read_bytes())[:1]
    assert stats.damage.startswith(f"byte {offset}: the {kind} block is malformed and skipped: ")
    assert (stats.odd_blocks, stats.intact_bytes) == (1, offset)


def test_an_unknown_kind_is_returned(path):
    """A kind that a later minor version adds is returned unchanged and is no damage."""
    stats = StatsFile(written(path, ("header", HEAD), ("novelty", {"a": 1})))
    assert [(block.kind, block.body) for block in stats.blocks({"novelty"})] == [("novelty", {"a": 1})]
    assert stats.damage is None


def test_an_existing_file_is_never_overwritten(path):
    """An existing path is refused, its content untouched, and the message says what to do."""
    path.write_text("precious")
    with pytest.raises(StatsFileError, match="never overwritten; name another"):
        StatsWriter(path)
    assert path.read_text() == "precious"


def test_rows_are_gathered_into_full_blocks(path):
    """Many small batches become few blocks of at most 65,536 rows, and no row is lost between them."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    for first in range(0, 100_000, 1000):
        rows = np.zeros(1000, dtype=JOB_ROW)
        rows["ticket"] = np.arange(first, first + 1000)
        writer.jobs(rows)
    assert writer.pending_bytes > 100_000 * JOB_ROW.itemsize
    writer.flush()
    assert writer.pending_bytes == 0
    writer.close()
    blocks = list(StatsFile(path).iter_jobs())
    assert [len(rows) for rows in blocks] == [MAX_ROWS, 100_000 - MAX_ROWS]
    assert np.array_equal(np.concatenate(blocks)["ticket"], np.arange(100_000))


def one_operation_jobs(count):
    """Build jobs and operations as 24 slots give them: log-normal milliseconds, out of order."""
    rng = np.random.default_rng(5)
    durations = rng.lognormal(np.log(8e6), 0.5, (24, count // 24 + 1)).astype(np.int64)
    gaps = rng.lognormal(np.log(1e5), 0.5, durations.shape).astype(np.int64)
    ends = (10**15 + np.cumsum(durations + gaps, axis=1)).ravel()
    starts = ends - durations.ravel()
    tickets = np.argsort(np.argsort(starts))
    order = np.argsort(ends)[:count]
    jobs, operations = np.zeros(count, JOB_ROW), np.zeros(count, OPERATION_ROW)
    jobs["ticket"] = operations["ticket"] = tickets[order]
    jobs["start_ns"] = operations["start_ns"] = starts[order]
    jobs["end_ns"], operations["duration_ns"], operations["ok"] = ends[order], (ends - starts)[order], 1
    return jobs, operations


def test_a_job_of_one_operation_takes_at_most_eight_bytes(path):
    """Job and operation together keep the promise in realistic batches, and read back in full blocks."""
    jobs, operations = one_operation_jobs(100_000)
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    for first in range(0, len(jobs), 1000):
        writer.jobs(jobs[first : first + 1000])
        writer.operations(operations[first : first + 1000])
    writer.close()
    assert path.stat().st_size <= 8 * len(jobs)
    stats = StatsFile(path)
    assert kinds(path) == ["header", *["jobs", "operations"] * 2]
    batches = [block.body for block in stats.blocks({"operations"})]
    assert len(batches) == 2
    assert np.array_equal(np.concatenate(list(stats.iter_jobs())), jobs)
    assert np.array_equal(np.concatenate(batches), operations)


INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2**64 - 1), st.sampled_from([1, 1, 1, 0, 2]), INT64, INT64), max_size=9),
        max_size=6,
    ),
    st.booleans(),
)
def test_jobs_with_any_number_of_operations_read_back(monkeypatch, flows, mixed):
    """No operation, one or several per job, in step with the jobs or not: no row changes."""
    monkeypatch.setattr("bench_common.stats.writer.MAX_ROWS", 4)
    batches, payloads, given_rows = BlockBuilder(), [], {"jobs": [], "operations": []}
    for flow in flows:
        jobs = job_rows(*({"ticket": ticket, "start_ns": start, "end_ns": end} for ticket, _, start, end in flow))
        operations = operation_rows(
            *(
                {"ticket": ticket, "operation": place, "start_ns": end if mixed else start, "duration_ns": end // 2}
                for ticket, count, start, end in flow
                for place in range(count if mixed else 1)
            )
        )
        for kind, rows in (("jobs", jobs), ("operations", operations)):
            if len(rows):
                payloads += batches.add(kind, rows)
                given_rows[kind] += rows.tolist()
    payloads += batches.drain()
    found = {"jobs": [], "operations": []}
    for payload in payloads:
        for kind, rows in unpack(*msgpack.unpackb(payload)):
            assert 0 < len(rows) <= 4
            found[kind] += rows.tolist()
    assert found == given_rows


def test_a_loss_stands_between_the_rows_before_it_and_the_retries_after_it(path):
    """Other events of the same flush may come behind rows that are later than they are."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.jobs(job_rows({}))
    writer.put("event", {"at_ns": 1, "kind": "worker-lost", "worker": 0})
    writer.put("event", {"at_ns": 1, "kind": "worker-reconnected", "worker": 0})
    writer.jobs(job_rows({}))
    writer.close({})
    assert kinds(path) == ["header", "jobs", "event", "jobs", "event", "footer"]


def test_appending_works_while_another_thread_flushes(path):
    """No row is lost or doubled when the hub appends during flushes in a native thread."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    stop = threading.Event()

    def flushing():
        while not stop.is_set():
            writer.flush()

    thread = threading.Thread(target=flushing)
    thread.start()
    for ticket in range(3000):
        writer.jobs(job_rows({"ticket": ticket}))
    stop.set()
    thread.join()
    writer.close()
    tickets = np.concatenate([rows["ticket"] for rows in StatsFile(path).iter_jobs()])
    assert tickets.tolist() == list(range(3000))


def refuse_writes(monkeypatch, code):
    """Let the next write come to ten bytes, and each after it fail; return what ends that."""
    real = os.write

    def full(descriptor, data):
        monkeypatch.setattr(os, "write", refuse)
        return real(descriptor, bytes(data)[:10])

    def refuse(descriptor, data):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", full)
    return lambda: monkeypatch.setattr(os, "write", real)


def test_a_broken_disk_leaves_the_last_complete_block(path, monkeypatch):
    """A partial write is removed, the error names file and byte, and later flushes repeat it."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.flush()
    good = writer.bytes_written
    mend = refuse_writes(monkeypatch, errno.EIO)
    writer.jobs(job_rows({}))
    with pytest.raises(StatsFileError, match=f"at byte {good}: Input/output error"):
        writer.flush()
    mend()
    assert path.stat().st_size == good
    writer.jobs(job_rows({}))
    with pytest.raises(StatsFileError, match="Input/output error"):
        writer.close({})
    assert kinds(path) == ["header"]
    assert StatsFile(path).damage is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_costs_no_block_when_there_is_room_again(path, monkeypatch, code):
    """Until then the file ends with its last whole block; then it goes on with the block that did not fit."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.flush()
    good = writer.bytes_written
    mend = refuse_writes(monkeypatch, code)
    writer.jobs(job_rows({"ticket": 1}))
    writer.metrics([MetricRecord(1, 0, 0, "speed", 1.5)])
    writer.put("event", {"at_ns": 1, "kind": "trial-end", "trial": 0})
    for _ in range(2):
        with pytest.raises(DiskFullError, match=f"at byte {good}: {os.strerror(code)}") as raised:
            writer.flush()
        assert raised.value.free_bytes > 0
        assert path.stat().st_size == good
    mend()
    writer.jobs(job_rows({"ticket": 2}))
    writer.close({"status": "complete"})
    assert kinds(path) == ["header", "jobs", "metrics", "event", "jobs", "footer"]
    assert StatsFile(path).damage is None


def test_a_half_written_block_that_could_not_be_removed_is_removed_first(path, monkeypatch):
    """A disk may refuse to shorten a file, too: no block may follow the half of one."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.flush()
    good, shorten = writer.bytes_written, os.ftruncate
    mend = refuse_writes(monkeypatch, errno.ENOSPC)

    def refuse(descriptor, length):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "ftruncate", refuse)
    writer.jobs(job_rows({}))
    with pytest.raises(DiskFullError):
        writer.flush()
    assert path.stat().st_size == good + 10
    mend()
    with pytest.raises(DiskFullError):
        writer.flush()
    monkeypatch.setattr(os, "ftruncate", shorten)
    writer.close({})
    assert kinds(path) == ["header", "jobs", "footer"]
    assert StatsFile(path).damage is None


def test_nothing_follows_a_footer_that_waits_for_room(path):
    """What comes in meanwhile, such as readings of a host, is dropped."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.end({"status": "complete"})
    writer.put("event", {"at_ns": 1, "kind": "late"})
    writer.close()
    assert kinds(path) == ["header", "footer"]


def test_invalid_unicode_stays_readable(path):
    """A message with surrogates, as in a file name, is stored with escapes."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.errors([ErrorRecord(1, 0, 0, "start", "engine", "no such file: caf\udce9")])
    writer.close()
    (record,) = next(StatsFile(path).blocks({"errors"})).body
    assert record.message == "no such file: caf\\udce9"


def test_long_outputs_are_spread_over_blocks(path):
    """However long the outputs of one flush are, no block exceeds the reader's limit; long messages are cut."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.outputs([OutputRecord(job, 0, 0, "run", b"x" * (1 << 20)) for job in range(9)])
    writer.errors([ErrorRecord(9, 0, 0, "start", "engine", "x" * (MAX_TEXT_CHARS + 1))])
    assert writer.pending_bytes > 9 << 20
    writer.close()
    blocks = [block.body for block in StatsFile(path).blocks({"outputs"})]
    assert [len(records) for records in blocks] == [4, 4, 1]
    ((error,),) = (block.body for block in StatsFile(path).blocks({"errors"}))
    assert len(error.message) == MAX_TEXT_CHARS


def test_a_block_that_cannot_be_encoded_raises(path):
    """If rows cannot be encoded, the flush and every later one raise: nothing is dropped silently."""
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.flush()
    writer.metrics([MetricRecord(1, 0, 0, "speed", "fast")])
    with pytest.raises(StatsFileError, match="a block could not be made: ValueError: could not convert"):
        writer.flush()
    writer.jobs(job_rows({}))
    with pytest.raises(StatsFileError, match="a block could not be made"):
        writer.close()
    assert kinds(path) == ["header"]


def test_the_documented_format_is_the_real_one(path):
    """A reader written from docs/stats-file.rst alone, with gzip, struct and msgpack, gets the same numbers."""
    rows = job_rows(
        *({"ticket": 2**63 + k * k, "end_ns": 10**15 - k, "start_ns": k, "worker": k} for k in range(300))
    )
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.jobs(rows)
    operations = np.zeros(300, dtype=OPERATION_ROW)
    operations["ticket"], operations["start_ns"] = rows["ticket"], rows["start_ns"] + 7
    operations["duration_ns"] = np.arange(300) * 9
    writer.operations(operations)
    writer.samples(0, "loop", {"busy_share": [0.1, -2.5]}, {})
    writer.close()
    with gzip.open(path) as file:
        content = file.read()
    bodies, running = {}, 0
    while content:
        magic, length, checksum, number, chained_so_far = struct.unpack_from("<4sIIII", content)
        running = zlib.crc32(content[4:16], running)
        payload, content = content[20 : 20 + length], content[20 + length :]
        assert (magic, checksum) == (b"WBB\2", zlib.crc32(payload))
        assert (number, chained_so_far) == (len(bodies), running)
        kind, body = msgpack.unpackb(payload)
        bodies[kind] = body
    columns = {name: by_the_docs(data, 300) for name, data in bodies["jobs"]["columns"].items()}
    assert [ticket % 2**64 for ticket in columns["ticket"]] == rows["ticket"].tolist()
    assert columns["end_ns"] == rows["end_ns"].tolist()
    assert columns["worker"] == rows["worker"].tolist()
    starts = [end - duration for end, duration in zip(columns["end_ns"], columns["duration_ns"], strict=True)]
    assert starts == rows["start_ns"].tolist()
    only = {name: by_the_docs(data, 300) for name, data in bodies["jobs"]["operations"].items()}
    assert only["delay_ns"] == [7] * 300
    ends = [end - rest for end, rest in zip(columns["end_ns"], only["rest_ns"], strict=True)]
    assert ends == (operations["start_ns"] + operations["duration_ns"]).tolist()
    assert by_the_docs(bodies["samples"]["columns"]["busy_share"], 2) == [0.1, -2.5]


def by_the_docs(data, rows):
    """Decode a column as the page on the format says, in plain Python."""
    mode, planes, base = struct.unpack_from("<BBq", data)
    codes = [sum(data[10 + plane * rows + row] << 8 * plane for plane in range(planes)) for row in range(rows)]
    if mode == 2:
        return [struct.unpack("<d", code.to_bytes(8, "little"))[0] for code in codes]
    values, previous = [], base
    for code in codes:
        previous = base + code if mode == 0 else previous + (code >> 1 ^ -(code & 1))
        values.append((previous + 2**63) % 2**64 - 2**63)
    return values


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["jobs", "operations", "samples", "metrics", "errors", "outputs", "event", "novelty"]),
    body=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9) | st.binary(max_size=30),
        lambda inner: (
            st.lists(inner, max_size=6)
            | st.dictionaries(
                st.sampled_from(["rows", "columns", "operations", "worker", "source", "units", "ticket"]), inner
            )
        ),
    ),
)
def test_hostile_bodies_give_blocks_or_damage(tmp_path, kind, body):
    """Whatever a complete frame holds, reading it raises no other exception."""
    path = tmp_path / "hostile.stats.gz"
    payload = msgpack.packb([kind, body])
    path.write_bytes(chained(pack_payload("header", HEAD), payload))
    stats = StatsFile(path)
    blocks = list(stats.blocks())
    assert len(blocks) == 1 if stats.damage else len(blocks) >= 2


@pytest.mark.parametrize("library", [zlib, isal_zlib], ids=["zlib", "isal"])
def test_either_library_reads_files_of_the_other(path, monkeypatch, library):
    """Without isal, zlib is used: each reads the other's files, and detects the same damage."""
    lifecycle_run(path)
    other = path.with_name("other.stats.gz")
    monkeypatch.setattr(stats_frame, "_zlib", library)
    assert kinds(path)[-1] == "footer"
    lifecycle_run(other)
    monkeypatch.undo()
    whole = [repr(block) for block in StatsFile(path).blocks()]
    assert [repr(block) for block in StatsFile(other).blocks()] == whole
    monkeypatch.setattr(stats_frame, "_zlib", library)
    content = bytearray(other.read_bytes())
    content[-5] ^= 1
    other.write_bytes(content)
    stats = StatsFile(other)
    assert [repr(block) for block in stats.blocks()] == whole[:-1]
    assert "the gzip member is damaged" in stats.damage


def test_what_is_synced_is_on_disk_with_its_name(path, monkeypatch):
    """`sync` writes what is buffered, then syncs the file, then the directory that has its name."""
    steps = []
    real = os.fsync

    def noted(descriptor):
        where = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        steps.append((where, StatsFile(path).header.run_id))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.sync()
    assert steps == [(str(path), HEAD["run_id"]), (str(path.parent), HEAD["run_id"])]
    writer.close()


def test_a_plan_that_no_reader_would_take_is_refused_before_the_run(path):
    """A header beyond the limits of a reader is an error of whoever writes it."""
    writer = StatsWriter(path)
    deep = {}
    for _ in range(99):
        deep = {"a": deep}
    with pytest.raises(StatsFileError, match="this plan does not fit into a stats file: nested more than 64 deep"):
        writer.put("header", {**HEAD, "options": deep})
    writer.close()


# -- a second look ------------------------------------------------------------------------------------------------


def shown(blocks):
    """Return blocks as comparable values: rows by column in order, everything else as it is."""
    names = {"jobs": ("ticket", "start_ns", "duration_ns"), "operations": ("ticket", "operation", "duration_ns")}
    return [
        (block.kind, [block.body[name].tolist() for name in names[block.kind]] if block.kind in names else block.body)
        for block in blocks
    ]


def walks_of(stats, monkeypatch):
    """Return a list that gets an entry for each walk through the file from now on."""
    walks, walk = [], stats._intact_blocks
    monkeypatch.setattr(stats, "_intact_blocks", lambda *args, **more: walks.append(args) or walk(*args, **more))
    return walks


LOOK = ("jobs", "operations", "event", "metrics")


@pytest.mark.parametrize("room", [MAX_KEPT_BYTES, 0])
def test_a_second_look_sees_what_the_first_one_saw(path, monkeypatch, room):
    """Of a small file without reading it again; of one that takes more memory than there is room, by another walk."""
    stats = StatsFile(lifecycle_run(path))
    kept = KeptBlocks(LOOK, room)
    first = shown(block for block in stats.blocks(by_column=True, keep=kept) if block.kind in LOOK)
    walks = walks_of(stats, monkeypatch)
    assert shown(stats.blocks_again(kept, LOOK)) == first
    assert shown(stats.blocks_again(kept, {"operations"})) == [one for one in first if one[0] == "operations"]
    assert len(walks) == (0 if room else 2)
