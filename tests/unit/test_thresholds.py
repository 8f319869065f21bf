"""Thresholds: the grammar, and the verdicts on a report."""

import pytest
from builders import job_counts, metric_report, operation_report, overhead_report, sample_report, treatment_report

from bench_common.thresholds import (
    JOB_FIELDS,
    METRIC_FIELDS,
    OPERATION_FIELDS,
    OVERHEAD_FIELDS,
    OVERHEAD_UNITS,
    RELATIVE_UNITS,
    parse_threshold,
    required_percentiles,
)
from bench_master.analysis.gates import evaluate_thresholds
from bench_master.analysis.report_types import as_json
from bench_master.run_data.treatment_types import RelativeOverheadReport


def treatments():
    """Build reports on two treatments, docker and native, with one operation each."""
    return [
        treatment_report(
            treatment={"engine": "docker", "memory": 512, "tuned": True},
            jobs=job_counts(total=12, done=11, failed=1),
            jobs_per_s=2.5,
            operations={"start": operation_report(n=11, errors=1, percentiles_s={"p95": 0.4, "p99.9": 0.9})},
            metrics={"latency": metric_report(unit="ms", n=3, median=12.0)},
            overhead=overhead_report(
                rss_bytes=sample_report("B", 4, 100 << 20, 90 << 20, 120 << 20),
                processes=sample_report("1", 4, 3.5, 3.0, 4.0),
                cpu_percent=sample_report("%", 0, 4.0),
                cpu_s=0.25,
                relative=RelativeOverheadReport("", "rss_bytes", memory_percent=12.0, cpu_factor=1.5),
            ),
        ),
        treatment_report(
            treatment={"engine": "native", "memory": 1024, "tuned": False},
            jobs=job_counts(total=12, done=12),
            jobs_per_s=90.0,
            operations={"start": operation_report(percentiles_s={"p95": None})},
            metrics={"speed": metric_report(unit="MiB/s", n=3, median=100.0)},
        ),
    ]


def verdicts(text):
    return [
        (verdict.treatment.partition(" ")[0], verdict.passed) for verdict in evaluate_thresholds(treatments(), [text])
    ]


def test_a_threshold_is_parsed():
    """Path, operator, number, unit and conditions are found; spacing does not matter."""
    threshold = parse_threshold("  operations.exec-2.p99.9_s<=1.5e2ms   where engine=docker , note='a, b'")
    assert threshold.path == ("operations", "exec-2", "p99.9_s")
    assert (threshold.operator, threshold.value, threshold.unit) == ("<=", 150.0, "ms")
    assert threshold.where == (("engine", "docker"), ("note", "a, b"))
    assert threshold.percentile == 99.9
    short = parse_threshold("job.p95 < 1s")
    assert (short.path, str(short)) == (("operations", "job", "p95_s"), "job.p95 < 1s")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fast", "is not of the form"),
        ("jobs.failed = 0", "did you mean '=='"),
        ("jobs.failed => 0", "unknown operator '=>'"),
        ("jobs.faild == 0", "did you mean 'failed'"),
        ("operation.start.p95_s < 1", "did you mean 'operations'"),
        ("operations.start < 1", "operations.NAME.FIELD"),
        ("operations.start.median_s < 1", "did you mean 'p50_s'"),
        ("operations.start.p95_ms < 1", "did you mean 'p95_s'"),
        ("operations.start.p0_s < 1", "unknown field 'p0_s'"),
        ("operations.start.p95_s < 1 sec", "not a unit of time"),
        ("operations.a b.p95_s < 1", "is not of the form"),
        ("operations.(a).p95_s < 1", "cannot be a name"),
        ("metrics.speed.p95_s < 1", "unknown field 'p95_s'"),
        ("overheads.cpu_s < 1", "did you mean 'overhead'"),
        ("overhead.rss_byte.max < 1", "did you mean 'rss_bytes'"),
        ("overhead.rss_bytes < 1", "overhead.NAME.FIELD"),
        ("overhead.rss_bytes.p95 < 1", "unknown field 'p95'; one of: n, mean, min, max"),
        ("overhead.rss_bytes.max < 1 MIB", "not a unit of size (did you mean 'MiB'?)"),
        ("overhead.cpu_percent.mean < 1s", "is in %, not in 's'"),
        ("overhead.processes.max < 1B", "takes no unit"),
        ("overhead.cpu_s.max < 1", "is a single number"),
        ("overhead.relative.cpu_facter < 1", "did you mean 'cpu_factor'"),
        ("jobs.failed == none", "is not a number"),
        ("jobs.failed < 1e999", "is not a number"),
        ("jobs.failed == 0 %", "takes no unit"),
        ("jobs.failed == 0 where", "KEY=VALUE"),
        ("jobs.failed == 0 where engine", "KEY=VALUE expected"),
        ("jobs.failed == 0 when engine=docker", "'where KEY=VALUE"),
    ],
)
def test_a_wrong_threshold_is_refused_with_the_reason(text, complaint):
    """The error names what was expected or the nearest right spelling."""
    with pytest.raises(ValueError, match=r"threshold") as raised:
        parse_threshold(text)
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs.failed == 0", [("engine=docker", False), ("engine=native", True)]),
        ("jobs.failed == 0 where engine=native", [("engine=native", True)]),
        ("jobs.failed != 0 where memory=512.0", [("engine=docker", True)]),
        ("jobs_per_s > 2/s where tuned=true", [("engine=docker", True)]),
        ("operations.start.p95_s < 399ms where engine=docker", [("engine=docker", False)]),
        ("operations.start.p95_s <= 400ms where engine=docker", [("engine=docker", True)]),
        ("metrics.latency.median < 0.013 s", [("engine=docker", True)]),
        ("metrics.latency.median < 12", [("engine=docker", False)]),
        ("metrics.speed.median >= 0.05GiB/s", [("engine=native", True)]),
        ("metrics.speed.n >= 3", [("engine=native", True)]),
        ("overhead.rss_bytes.mean <= 100MiB", [("engine=docker", True)]),
        ("overhead.rss_bytes.max < 100e6", [("engine=docker", False)]),
        ("overhead.processes.max < 5", [("engine=docker", True)]),
        ("overhead.cpu_percent.mean < 5%", [("engine=docker", True)]),
        ("overhead.cpu_percent.n == 0", [("engine=docker", True)]),
        ("overhead.cpu_s < 200ms", [("engine=docker", False)]),
        ("overhead.relative.memory_percent < 10%", [("engine=docker", False)]),
        ("overhead.relative.cpu_factor < 2", [("engine=docker", True)]),
    ],
)
def test_a_threshold_is_judged_for_each_matching_treatment(text, expected):
    """Conditions select by label value, units are converted, and only treatments with the measure are judged."""
    assert verdicts(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("jobs.failed == 0 where engine=podman", "no treatment has engine=podman"),
        ("operations.strat.p95_s < 1", "no treatment has operations.strat (did you mean 'start'?); there is: start"),
        ("metrics.nothing.median < 1 where engine=docker", "there is: latency"),
        ("metrics.latency.median < 5MiB", "which 'MiB' cannot be converted to"),
        ("operations.start.p95_s < 1 where engine=native", "has no value (engine=native"),
        ("nonsense", "is not of the form"),
        ("overhead.cpu_percent.max < 5", "has no value (engine=docker"),
        ("overhead.pss_bytes.max < 5", "no treatment has overhead.pss_bytes (did you mean 'rss_bytes'?)"),
        ("overhead.cpu_s < 5 where engine=native", "there is nothing under overhead"),
    ],
)
def test_a_threshold_without_a_value_fails_with_the_reason(text, reason):
    """A wrong path, an empty selection, a missing value or an incompatible unit fails."""
    (verdict,) = evaluate_thresholds(treatments(), [text])
    assert not verdict.passed
    assert reason in verdict.message


def test_a_report_without_treatments_fails_every_threshold():
    """Without measurements no threshold passes."""
    (verdict,) = evaluate_thresholds([], ["jobs.failed == 0"])
    assert (verdict.passed, verdict.message) == (False, "there is no treatment")


def test_a_verdict_has_the_value_and_the_limit():
    """Both in the unit of the question, else in the measure's own, with the treatment."""
    (verdict,) = evaluate_thresholds(treatments(), ["operations.start.p95_s < 250ms where engine=docker"])
    assert verdict.message.startswith("operations.start.p95_s is 400 ms, wanted < 250 ms (engine=docker")
    assert verdict.value == 0.4
    (verdict,) = evaluate_thresholds(treatments(), ["operations.start.p95_s < 0.25 where engine=docker"])
    assert verdict.message.startswith("operations.start.p95_s is 0.4 s, wanted < 0.25 s (engine=docker")


def test_required_percentiles_are_known_in_advance():
    """Every percentile in a threshold is required; other measures require none."""
    texts = ["operations.start.p99.9_s < 1", "operations.job.p75_s < 1", "jobs.failed == 0", "broken"]
    assert required_percentiles(texts) == {99.9, 75.0}


def test_every_measure_that_a_threshold_may_name_is_in_the_report():
    """The grammar lists only fields of the report."""
    reading, relative = sample_report(), RelativeOverheadReport("", "rss_bytes", memory_percent=0.0, cpu_factor=1.0)
    overhead = overhead_report(**dict.fromkeys(OVERHEAD_UNITS, reading), cpu_s=1.0, relative=relative)
    operation = operation_report(percentiles_s=dict.fromkeys(("p50", "p95", "p99")))
    entry = as_json(
        treatment_report(operations={"start": operation}, metrics={"speed": metric_report()}, overhead=overhead)
    )
    assert set(OPERATION_FIELDS) <= entry["operations"]["start"].keys()
    assert set(METRIC_FIELDS) <= entry["metrics"]["speed"].keys()
    assert set(JOB_FIELDS) <= entry["jobs"].keys()
    assert {*OVERHEAD_UNITS, "cpu_s", "relative"} <= entry["overhead"].keys()
    assert set(OVERHEAD_FIELDS) <= entry["overhead"]["rss_bytes"].keys()
    assert set(RELATIVE_UNITS) <= entry["overhead"]["relative"].keys()
    assert "jobs_per_s" in entry
