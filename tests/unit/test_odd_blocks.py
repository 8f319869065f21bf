"""Whole blocks with odd content, through every report format: the rest is reported, and nothing raises."""

import gzip
import io
import json
import subprocess
import sys
from xml.etree import ElementTree as ET

import msgpack
import numpy as np
import pytest
from builders import S, chained, header, host, job_rows, loose_frame, operation_rows, text_formats, treatment_wire
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench_common.stats.reader import StatsFile
from bench_common.stats.rows import SampleColumns, pack_jobs, pack_operations, pack_samples
from bench_master.cli import run_command_line
from bench_master.commands.report_scenario import write_rate_histogram
from bench_master.reports import ReportSource, report_named

FORMATS = text_formats()
WORD = st.sampled_from(["", "native", "job", "\x1b[2J\n", "x" * 300])
INT = st.integers(-2, 12) | st.sampled_from([-(2**63), 2**31, 2**53, 2**62, 10**18, 2**64 - 1]) | st.integers(0, 12)
REAL = st.sampled_from([1.5, 0.0, 1e9]) | st.sampled_from([1e308, -1.0, 5e-324, float("nan"), float("inf")])
SCALAR = st.none() | st.booleans() | INT | REAL | WORD | st.binary(max_size=4)
ANY = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3), max_leaves=6
)


def sometimes_odd(**usual):
    """Return maps of usual values, of which in some one is missing or anything at all."""
    whole = st.fixed_dictionaries(usual)
    names = st.sampled_from(sorted(usual))
    without = st.builds(lambda body, name: {key: body[key] for key in body if key != name}, whole, names)
    return whole | whole | without | st.builds(lambda body, name, odd: {**body, name: odd}, whole, names, ANY)


TEXTS = st.lists(WORD, max_size=3)
NUMBERS = st.lists(INT, max_size=3)
HOSTS = sometimes_odd(
    worker=st.integers(-1, 3), worker_id=WORD, host=WORD, environment=WORD, slots=INT,
    engines=st.dictionaries(WORD, WORD, max_size=2),
    labels=st.just({}),
    fingerprint=sometimes_odd(memory=INT | REAL, cpu_threads=INT, hypervisor=WORD, os=WORD, kernel=WORD),
    clock=sometimes_odd(offset_ns=INT, uncertainty_ns=INT),
)  # fmt: skip
EVENTS = sometimes_odd(
    kind=st.sampled_from(
        ["trial-begin", "trial-end", "trial-skipped", "packed", "resumed", "run-begin", "worker-lost",
         "worker-joined", "interrupted", "cpu-contention", "odd"]
    ),
    at_ns=st.integers(999 * S, 1010 * S) | INT, trial=st.integers(0, 9), workers=st.lists(st.integers(0, 2)),
    clocks=st.lists(st.lists(INT, min_size=3, max_size=3), max_size=2), not_started=INT,
    not_started_outcome=st.sampled_from(["lost", "aborted"]), complete=st.booleans(), worker=st.integers(0, 2),
    containers=INT, full=st.booleans(), reason=WORD, returned=INT, hold_s=REAL, memory_before=INT,
    at=WORD, ended=WORD, gap_ns=INT, complete_trials=INT, rerun_trials=NUMBERS, first_job=INT,
    roster=ANY, planned=INT, began_ns=INT, ended_ns=INT, state=WORD, engine=WORD, failed=INT,
    begin_ns=st.integers(999 * S, 1010 * S) | INT, end_ns=st.integers(999 * S, 1010 * S) | INT,
    others_share=REAL, consumer=WORD, pid=INT, processes=INT, consumer_share=REAL,
)  # fmt: skip
FOOTERS = sometimes_odd(
    ended=WORD, status=WORD, duration_s=REAL, not_started=INT, warnings=TEXTS, remarks=TEXTS, resumes=INT,
    counts=sometimes_odd(planned=INT, done=INT, failed=INT),
)  # fmt: skip


def rows_of(dtype, **limits):
    """Return rows of a dtype with values of any size, or small ones."""
    fields = {}
    for name in dtype.names:
        info = np.iinfo(dtype[name])
        high = min(int(info.max), limits.get(name, int(info.max)))
        small = st.integers(max(0, int(info.min)), min(9, high))
        fields[name] = small | st.integers(int(info.min), high)
    return st.lists(st.fixed_dictionaries(fields), max_size=4)


JOBS = rows_of(job_rows().dtype, outcome=3).map(lambda rows: ("jobs", pack_jobs(job_rows(*rows))))
OPERATIONS = rows_of(operation_rows().dtype).map(lambda rows: ("operations", pack_operations(operation_rows(*rows))))


@st.composite
def samples(draw):
    """Draw a block of samples, of any columns that a report looks for."""
    source = draw(st.sampled_from(["host", "loop", "batches", "engine:docker", "engine:native", "pressure", "odd"]))
    names = draw(
        st.sets(
            st.sampled_from(
                ["time_ns", "interval_ns", "busy_share", "lag_max_ns", "running_mean", "waiting_mean", "cpu_ns",
                 "rss_bytes", "cpu_idle_percent", "cpu_iowait_percent", "cpu_user_ticks", "memory_used_bytes",
                 "cpu_iowait_ticks", "cpu_system_ticks", "cpu_steal_ticks", "cpu_idle_ticks",
                 "cpu_some_ns", "load_wait_ns", "cpu_ticks", "steal_ticks",
                 "disk_read_bytes", "treatment", "trial", "span_ns", "busy_ns"]
            )
        )
    )  # fmt: skip
    rows = draw(st.integers(0, 3))
    columns = {}
    for name in names:
        whole = draw(st.booleans())
        values = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2000 * S) if whole else st.floats()
        column = draw(st.lists(values, min_size=rows, max_size=rows))
        columns[name] = np.array(column, np.int64 if whole else np.float64)
    worker = draw(st.integers(-1, 3))
    return "samples", pack_samples(SampleColumns(worker, source, columns, {})) | {"rows": rows}


RECORDS = st.tuples(
    st.sampled_from(["metrics", "errors", "outputs"]),
    st.lists(
        st.tuples(INT, INT, INT, WORD, REAL).map(list)
        | st.tuples(INT, st.integers(0, 2), INT, WORD, WORD, WORD).map(list)
        | ANY,
        max_size=3,
    ).map(lambda rows: {"rows": rows}),
)
BLOCKS = (
    JOBS | OPERATIONS | samples() | RECORDS
    | st.tuples(st.just("host"), HOSTS) | st.tuples(st.just("event"), EVENTS) | st.tuples(st.just("footer"), FOOTERS)
    | st.tuples(st.sampled_from(["jobs", "operations", "samples", "novelty", "header", "host"]), ANY)
)  # fmt: skip

TREATMENTS = [
    treatment_wire(0, {"engine": "docker"}, ("start", "remove"), {"speed": {"unit": "1/s", "direction": "higher"}}),
    treatment_wire(1, {"engine": "native"}, ("start",))
    | {"open_load": {"rate_per_s": 2.0, "process": "constant", "queue_timeout_s": 1.0}, "jobs_per_trial": 2},
]
TRIALS = [(index % 2, index // 2, index < 2) for index in range(6)]
HEAD = header(TREATMENTS, TRIALS, thresholds=["jobs.failed == 0", "operations.start.p99_s < 1s"])


HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "treatments": st.lists(
            sometimes_odd(
                title=WORD, labels=st.dictionaries(WORD, SCALAR, max_size=2), engine=WORD, operation_names=TEXTS,
                metrics=st.dictionaries(WORD, sometimes_odd(unit=WORD, direction=WORD), max_size=2), concurrency=INT,
                iterations=INT, jobs_per_trial=INT, optional=st.booleans(),
                open_load=sometimes_odd(rate_per_s=REAL, process=WORD, queue_timeout_s=REAL),
            ),
            min_size=2, max_size=2,
        ),
        "trials": st.lists(st.tuples(st.integers(0, 1), INT, st.booleans()).map(list), max_size=4),
        "clock": sometimes_odd(unix_ns=INT, monotonic_ns=INT),
        "scenario": sometimes_odd(name=WORD, path=WORD, document=st.dictionaries(WORD, ANY, max_size=2)),
        "thresholds": TEXTS,
        "published": sometimes_odd(
            title=WORD, source=WORD, file=WORD,
            rows=st.lists(
                sometimes_odd(
                    labels=st.just({}), where=WORD, metric=st.just("speed"), unit=WORD, source=WORD, note=WORD,
                    **dict.fromkeys(("n", "mean", "stddev", "min", "median", "max"), REAL | INT),
                ), max_size=2,
            ),
        ),
        "imported": sometimes_odd(
            at=WORD, workload=WORD,
            files=st.lists(sometimes_odd(name=WORD, bytes=INT, sha256=WORD, runs=INT, readings=INT), max_size=2),
        ),
        "argv": TEXTS, "versions": st.dictionaries(WORD, WORD, max_size=2),
        "overhead": sometimes_odd(baseline=st.dictionaries(WORD, SCALAR)),
        "noop": st.booleans(), "created": WORD, "seed": INT, "order": WORD, "run_id": WORD,
        "sampling_interval_s": REAL,
    },
)  # fmt: skip


def payload(kind, body):
    return msgpack.packb([kind, body], use_bin_type=True, unicode_errors="surrogatepass")


def frame(kind, body):
    return loose_frame(payload(kind, body))


def write_every_report(path):
    """Write each format, and the histogram, as one command does; return the texts by format."""
    texts, source = {}, ReportSource(StatsFile(path))
    for name in FORMATS:
        report, out = report_named(name), io.StringIO()
        report.write(source, out)
        texts[name] = out.getvalue()
    write_rate_histogram(source, io.StringIO())
    json.loads(texts["json"])
    ET.fromstring(texts["junit"].encode())
    return texts


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(blocks=st.lists(BLOCKS, max_size=6))
def test_no_odd_block_makes_a_report_impossible(tmp_path, blocks):
    """Whatever whole blocks a file holds, every format is written; odd and contradicting ones are named as damage."""
    path = tmp_path / "odd.stats.gz"
    path.write_bytes(chained(payload("header", HEAD), *(payload(*block) for block in blocks)))
    stats = StatsFile(path)
    read = sum(1 for _ in stats.blocks(everything=True))
    assert read + stats.odd_blocks >= 1 + len(blocks)
    texts = write_every_report(path)
    is_whole = stats.odd_blocks == 0 and StatsFile(path).contradiction is None
    assert (json.loads(texts["json"])["damage"] is None) == is_whole


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(changes=HEADERS)
def test_an_odd_header_is_refused_or_reported(tmp_path, capsys, changes):
    """It is one line that names the place, or a report in every format."""
    path = tmp_path / "odd.stats.gz"
    rows = pack_jobs(job_rows({"end_ns": S}, {"ticket": 1, "treatment": 1, "trial": 1, "end_ns": 2 * S}))
    whole = [frame("header", HEAD | changes), frame("host", host(0)), frame("jobs", rows)]
    path.write_bytes(b"".join(whole))
    status = run_command_line(["report-scenario", "-s", str(path)])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    if "header, at byte 0, is malformed" in err:
        assert status == 3
        return
    write_every_report(path)


# -- memory ------------------------------------------------------------------------------------------------------

MAX_FILE_BYTES = 68 << 10
PROGRAM = """
import os, resource, signal, sys
from bench_master.cli import run_command_line

def report(path, names, expected):
    for name in names:
        status = run_command_line(["report-scenario", "-s", path, "--format", name, "-f", "/dev/null"])
        assert status == expected, (name, status)

report(sys.argv[1], ["text", "jsonl"], 3)  # loads what reports need, once for all
for line in sys.stdin:
    path, *names = line.split()
    child = os.fork()
    if not child:
        errors = os.open(path + ".errors", os.O_WRONLY | os.O_CREAT)
        os.dup2(errors, 2)
        signal.alarm(300)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        try:
            report(path, names, 3)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Reports in a process of their own for each line with a file and formats; answers with that process's exit code."""


@pytest.fixture(scope="module")
def reporter(tmp_path_factory):
    """Return a program that waits for files to report."""
    usual = tmp_path_factory.mktemp("usual") / "usual.stats.gz"
    usual.write_bytes(frame("header", HEAD))
    words = [sys.executable, "-c", PROGRAM, str(usual)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process
        process.stdin.close()
    assert process.returncode == 0


def payload_of(kind, content):
    """Return the bytes of a payload of a kind whose body is these bytes."""
    return b"\x92" + msgpack.packb(kind) + content


def filled(kind, key, item, count):
    """Return a body with a list of very many equal items under a key."""
    return payload_of(kind, b"\x81" + msgpack.packb(key) + b"\xdd" + count.to_bytes(4, "big") + item * count)


def repeated(*blocks):
    """Return the blocks over and over, as many as a small file holds; the others would only take time."""
    return b"".join(frame(*block) for block in blocks) * 40


def many_jobs(**values):
    """Return a block of as many jobs as there can be, all different and all alike in a few bytes."""
    rows = np.zeros(65_536, job_rows().dtype)
    rows["ticket"] = np.arange(65_536)
    rows["end_ns"] = rows["start_ns"] + 5
    for name, value in values.items():
        rows[name] = value
    return "jobs", pack_jobs(rows)


def many_operations():
    """Return operations of which each has another name, and no job."""
    rows = np.zeros(65_536, operation_rows().dtype)
    rows["operation"] = rows["ticket"] = np.arange(65_536)
    return "operations", pack_operations(rows)


def many_samples(columns):
    """Return samples of many columns that take ten bytes each in the file."""
    names = ("time_ns", "running_mean", "waiting_mean", "rss_bytes", *(f"c{number}" for number in range(columns)))
    return "samples", pack_samples(SampleColumns(0, "loop", dict.fromkeys(names, np.ones(65_536, np.int64)), {}))


BOMBS = {
    "empty maps in an unknown block": lambda: loose_frame(filled("novelty", "a", b"\x80", (64 << 20) - 64)),
    "empty maps in an event": lambda: loose_frame(filled("event", "a", b"\x80", 15 << 20)),
    "nested lists in an event": lambda: loose_frame(filled("event", "a", b"\x91\x91\x91\xc0", 3 << 20)),
    "short texts in a footer": lambda: loose_frame(filled("footer", "warnings", b"\xa2ab", 5 << 20)),
    "a list without end": lambda: loose_frame(payload_of("host", b"\x81\xa1a\xdd\xff\xff\xff\xff")),
    "records without number": lambda: loose_frame(filled("errors", "rows", b"\x96\1\0\0\xa1a\xa1b\xa1c", 1 << 20)),
    "columns without number": lambda: loose_frame(
        payload_of("samples", b"\x81\xa7columns\xdf\x00\x40\x00\x00" + b"\xa1a\xc4\x00" * (4 << 20))
    ),
    "more than is announced": lambda: gzip.compress(b"WBB\x01\x10\0\0\0\0\0\0\0" + bytes(64 << 20)),
    "failed jobs": lambda: repeated(many_jobs(outcome=1)),
    "operations without jobs": lambda: repeated(many_operations()),
    "samples of few columns": lambda: repeated(many_samples(0)),
    "metrics without jobs": lambda: repeated(("metrics", {"rows": [[1, 0, 0, "speed", 1.0]] * 4096})),
    "hosts with many facts": lambda: repeated(
        ("host", {"worker": 1, "fingerprint": {str(number): "x" * 16_000 for number in range(20)}})
    ),
    "a superseded trial far away": lambda: frame(
        "event", {"at_ns": 1, "kind": "resumed", "rerun_trials": [1 << 20], "first_job": 1}
    ),
}


@pytest.mark.parametrize("bomb", list(BOMBS))
def test_a_small_file_takes_little_memory(reporter, tmp_path, bomb):
    """64 KiB of whatever it is: each report ends within 1 GiB of address space, and covers what is there."""
    path = tmp_path / "bomb.stats.gz"
    content = frame("header", HEAD) + BOMBS[bomb]()
    assert len(content) <= MAX_FILE_BYTES
    path.write_bytes(content)
    formats = ("text", "jsonl") if "metrics" in bomb else ("text",)
    reporter.stdin.write(f"{path} {' '.join(formats)}\n".encode())
    reporter.stdin.flush()
    status = reporter.stdout.readline()
    told = path.with_name("bomb.stats.gz.errors").read_text()
    assert status == b"0\n", told[-2000:]
    # Too little memory has the exit code of a damaged file, too, and no report.
    assert told.count(f"bench-master: {path}: the run is ") == len(formats), told[-2000:]
