"""Builders of small stats files and of the rows in them, for any test that needs something to read."""

import gzip
import struct
import zlib
from functools import cache

import jsonschema
import msgspec
import numpy as np

from bench_common.job_rows import JOB_ROW, OPERATION_ROW
from bench_common.records import (
    ErrorRecord,
    MetricRecord,
    Outcome,
    ticket_of,
)
from bench_common.stats.block_types import StoredTreatment
from bench_common.stats.frame import LOOSE_MAGIC, Chain, encode_frame
from bench_common.stats.reader import FORMAT, VERSION, StatsFile, StatsWriter
from bench_master.analysis.report_schema import report_schema
from bench_master.analysis.report_types import as_json
from bench_master.analysis.verdict_types import BandReport, ComparisonReport
from bench_master.reports import ReportSource, report_formats, report_named
from bench_master.reports.jsonl import replace_nonfinite
from bench_master.run_data.treatment_types import (
    JobCounts,
    MetricReport,
    OperationReport,
    OverheadReport,
    SampleReport,
    TreatmentReport,
    TrialCounts,
)
from bench_master.verdicts.reasons import Code, because

MS = 1_000_000
S = 1_000_000_000


def job_rows(*jobs):
    """Build `JOB_ROW` rows of dicts; what is not given is 0, so a job is done and of the first treatment."""
    return _rows(JOB_ROW, jobs)


def operation_rows(*operations):
    """Build `OPERATION_ROW` rows of dicts; an operation is ok unless it says otherwise."""
    return _rows(OPERATION_ROW, [{"ok": 1, **operation} for operation in operations])


def _rows(dtype, items):
    rows = np.zeros(len(items), dtype=dtype)
    for name in dict.fromkeys(name for item in items for name in item):
        rows[name] = [item.get(name, 0) for item in items]
    return rows


def treatment_wire(index, labels, operations=(), metrics=None):
    """Build what the header says of a treatment."""
    labels = dict(labels)
    return {
        "index": index,
        "labels": labels,
        "environment": labels.get("environment"),
        "engine": labels.get("engine", "native"),
        "title": " ".join(f"{key}={value}" for key, value in labels.items()),
        "operation_names": list(operations),
        "metrics": metrics or {},
        "concurrency": 2,
    }


def stored(treatment):
    """Return a treatment as a reader of a stats file gets it."""
    return msgspec.convert(treatment, StoredTreatment)


def header(treatments, trials, **changes):
    """Build a header; `trials` are (treatment, block, warmup)."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "run_id": "20260102-030405-abcdef",
        "created": "2026-01-02T03:04:05+00:00",
        "clock": {"unix_ns": 1_767_323_045 * S, "monotonic_ns": 1000 * S},
        "scenario": {
            "name": "quickstart",
            "description": "Life cycle and CPU",
            "path": "scenarios/quickstart.yaml",
            "text": "name: quickstart\n",
            "document": {"name": "quickstart"},
        },
        "thresholds": [],
        "order": "interleaved",
        "seed": 7,
        "argv": ["bench-master", "run-scenario", "-f", "quickstart"],
        "versions": {"weighbridge": "0.1.0", "python": "3.11.7"},
        "noop": False,
        "sampling_interval_s": 1.0,
        "treatments": list(treatments),
        "trials": [list(trial) for trial in trials],
        **changes,
    }


def host(worker=0, **changes):
    """Build what is known of a host."""
    return {
        "worker": worker,
        "worker_id": f"w{worker}",
        "host": "blade1",
        "environment": "bare-metal",
        "slots": 4,
        "engines": {"docker": "20.10.24", "native": "1"},
        "fingerprint": {"kernel": "6.1.0-18-amd64", "cpu_model": "Test CPU", "cpu_threads": 2, "memory": 2**33},
        "clock": {"offset_ns": 0, "uncertainty_ns": 20_000},
        **changes,
    }


def footer(**changes):
    """Build the footer of a run that went well."""
    return {
        "ended": "2026-01-02T03:05:05+00:00",
        "status": "complete",
        "duration_s": 60.0,
        "counts": {"planned": 0},
        "not_started": 0,
        "warnings": [],
        **changes,
    }


def chained(*payloads):
    """Return the bytes of a file of these payloads, as one writer writes it."""
    chain = Chain()
    return b"".join(encode_frame(payload, chain) for payload in payloads)


def loose_frame(payload):
    """Return a block as older files have it: it can stand anywhere."""
    head = struct.pack("<4sII", LOOSE_MAGIC, len(payload), zlib.crc32(payload))
    return gzip.compress(head + payload, 6, mtime=0)


def members_of(content):
    """Return the gzip members of a file, which are its blocks, found by another way than the reader's own."""
    found = []
    while content:
        inflater = zlib.decompressobj(31)
        inflater.decompress(content)
        found.append(content[: len(content) - len(inflater.unused_data)])
        content = inflater.unused_data
    return found


class StatsBuilder:
    """Writes a stats file piece by piece; each `add_*` returns the builder."""

    def __init__(self, path, head):
        self.path = path
        self.writer = StatsWriter(path)
        self.writer.put("header", head)

    def add(self, kind, body):
        """Add a block without rows."""
        self.writer.put(kind, body)
        return self

    def add_jobs(self, *jobs):
        """Add jobs, given as dicts."""
        self.writer.jobs(job_rows(*jobs))
        return self

    def add_operations(self, *operations):
        """Add operations, given as dicts."""
        self.writer.operations(operation_rows(*operations))
        return self

    def flush(self):
        """Write what there is, so that the next rows begin a block."""
        self.writer.flush()
        return self

    def close(self, foot=None):
        """Close the file, with a footer or (None) without; return its path."""
        self.writer.close(foot)
        return self.path


def lifecycle_run(path, *, head=None, foot=None, flush=False):
    """Write a small whole run and return its path: docker against native, three blocks after a warm-up block.

    With `flush` each job has blocks of its own, as if much time had passed between them.

    Each trial is one job of start, exec and remove. Job k of docker takes 100 ms + k; native a tenth of it. An end of
    job k may be stamped 10 us x (k + 1) late. Docker's last exec fails, and a guest metric is given by every job that
    is done.
    """
    names = ("start", "exec", "remove")
    metric = {"events_per_second": {"unit": "events/s", "direction": "higher"}}
    treatments = [
        treatment_wire(index, {"environment": "bare-metal", "engine": engine}, names, metric) | {"jobs_per_trial": 1}
        for index, engine in enumerate(("docker", "native"))
    ]
    trials = [(index, block, block == 0) for block in range(4) for index in range(2)]
    builder = StatsBuilder(path, head or header(treatments, trials))
    builder.add("host", host(0))
    clock = 1001 * S
    for job, (treatment, _, _) in enumerate(trials):
        took = (100 + job) * MS // (10 if treatment else 1)
        failed = job == 6
        row = {"ticket": ticket_of(job), "treatment": treatment, "trial": job}
        stamps = {"start_ns": clock, "end_ns": clock + took, "uncertainty_ns": (job + 1) * MS // 100}
        builder.add("event", {"at_ns": clock, "kind": "trial-begin", "trial": job})
        builder.add_jobs(row | stamps | {"outcome": Outcome.FAILED if failed else Outcome.DONE})
        parts = [took // 2, took // 4, took - took // 2 - took // 4]
        starts = [clock, clock + parts[0], clock + parts[0] + parts[1]]
        builder.add_operations(
            *(
                row | {"operation": k, "start_ns": starts[k], "duration_ns": parts[k], "ok": not (failed and k == 1)}
                for k in range(3)
            )
        )
        if failed:
            builder.writer.errors(
                [ErrorRecord(ticket_of(job), treatment, job, "exec", "exit-code", "exit code 3: no such table")]
            )
        else:
            builder.writer.metrics([MetricRecord(ticket_of(job), treatment, job, "events_per_second", 500.0 + job)])
        clock += took + MS
        builder.add("event", {"at_ns": clock, "kind": "trial-end", "trial": job})
        if flush:
            builder.flush()
    seconds = np.arange(4)
    builder.writer.samples(
        -1,
        "loop",
        {"time_ns": 1001 * S + seconds * S, "busy_share": seconds / 10.0, "lag_max_ns": (seconds + 1) * MS},
        {"time_ns": "ns", "busy_share": "share", "lag_max_ns": "ns"},
    )
    counts = {"planned": 8, "done": 7, "failed": 1, "lost": 0, "aborted": 0}
    return builder.close(foot if foot is not None else footer(counts=counts))


def text_formats():
    """Return the report formats."""
    return sorted(report_formats())


def write_report(path, out, name="text", pctile=95.0, detail="full"):
    """Write a report of a stats file to `out`, with all details; return its source."""
    source = ReportSource(StatsFile(path), pctile, detail=detail)
    report_named(name).write(source, out)
    if name == "json":
        report_validator().validate(replace_nonfinite(as_json(source.document)))
    return source


@cache
def report_validator():
    """Return what checks a JSON report against its JSON Schema."""
    return jsonschema.Draft202012Validator(report_schema())


def _declared(kind, known, **missing):
    """Build a Struct; fields that are not given are None, or as in `missing`."""
    return kind(**{name: known.get(name, missing.get(name)) for name in kind.__struct_fields__})


def treatment_report(**known):
    """Build the report on a treatment; its title is made of its labels."""
    labels = known.get("treatment", {})
    return _declared(
        TreatmentReport,
        known,
        title=" ".join(f"{key}={value}" for key, value in labels.items()),
        treatment=labels,
        trials=TrialCounts(planned=1, run=1),
        jobs=job_counts(),
        busy_s=0.0,
        population=(),
        operations={},
        metrics={},
    )


def job_counts(**known):
    """Build counts of jobs; those that are not given are 0."""
    return JobCounts(**{name: known.get(name, 0) for name in JobCounts.__struct_fields__})


def operation_report(**known):
    """Build the report on an operation."""
    return _declared(
        OperationReport, known, n=0, errors=0, percentiles_s={}, percentiles_exact=True, p99_marked=False
    )


def metric_report(**known):
    """Build the report on a metric."""
    return _declared(MetricReport, known, unit="", n=0, percentiles={})


def overhead_report(**known):
    """Build the report on an engine's overhead."""
    return _declared(OverheadReport, known)


def sample_report(unit="", n=1, mean=0.0, low=None, high=None):
    """Build mean and extremes of readings."""
    return SampleReport(unit=unit, n=n, mean=mean, min=low, max=high)


def comparison_report(name="podman", verdict="slower", interval=(1.18, 1.21, 1.24), **given):
    """Build a comparison with the baseline docker: its low end, ratio and high end are the interval."""
    low, ratio, high = interval
    values = {
        "a": "engine=docker",
        "b": f"engine={name}",
        "name": name,
        "group": "",
        "labels": {"engine": name},
        "measure": "job.p50",
        "unit": "s",
        "direction": "lower",
        "verdict": verdict,
        "reasons": (),
        "ratio": ratio,
        "low": low,
        "high": high,
        "scale": "ratio",
        "confidence": 0.95,
        "rounds": 10,
        "lost": 0,
        "p": 0.01,
        "mde": 0.02,
        "tipping": 0.0,
        "more_rounds": None,
        "band": None,
        "a_value": 0.3,
        "b_value": 0.36,
        "jobs_per_trial": 30.0,
        "effective_jobs": 3.0,
        "per_round": [],
        "per_host": [],
        "quantiles": [],
        "flags": [],
    }
    return ComparisonReport(**{**values, **given})


def lost_rounds(lost=2, **given):
    """Build a comparison that is undecided because rounds are missing."""
    band = BandReport(1.1, 1.3, "failed")
    return comparison_report(
        verdict="inconclusive", lost=lost, band=band, reasons=[because(Code.DEPENDS_ON_FAILURES)], **given
    )
