"""Optional treatments: left out with the reason where what they need is not there, and for no other reason."""

import io
import json

import msgspec
import pytest
from builders import MS, header, job_counts, job_rows, treatment_report, treatment_wire, write_report

from bench_common.records import ErrorRecord, MetricRecord, Outcome, ticket_of
from bench_common.stats.reader import StatsFile, StatsWriter
from bench_common.treatment import Treatment
from bench_master.analysis.document import evaluate_thresholds
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

MISSING = "No such image: weighbridge/blogbench:latest"


def written(tmp_path, *errors, optional=True, done=0):
    """Write a run of one treatment whose jobs failed with these errors, after some that were done."""
    path = tmp_path / "a.stats.gz"
    writer = StatsWriter(path)
    treatment = treatment_wire(0, {"engine": "docker"}, ["create"], {"m": {"unit": "1", "direction": "higher"}})
    count = done + len(errors)
    writer.put("header", header([{**treatment, "optional": optional}], [[0, index, False] for index in range(count)]))
    outcomes = [Outcome.DONE] * done + [Outcome.FAILED] * len(errors)
    writer.jobs(
        job_rows(*({"ticket": ticket_of(n), "trial": n, "outcome": o, "end_ns": MS} for n, o in enumerate(outcomes)))
    )
    writer.metrics([MetricRecord(ticket_of(n), 0, n, "m", 1.0) for n in range(done)])
    writer.errors([ErrorRecord(ticket_of(done + n), 0, n, "create", *error) for n, error in enumerate(errors)])
    writer.close({"status": "complete", "counts": {"planned": count, "done": done, "failed": len(errors)}})
    return path


def skipped(path):
    """Return why the JSON report says that the treatment was left out."""
    out = io.StringIO()
    write_report(path, out, "json")
    return json.loads(out.getvalue())["treatments"][0]["skipped"]


@pytest.mark.parametrize("kind", ["image-missing", "command-not-found"])
def test_what_is_not_there_is_left_out_with_the_reason(tmp_path, kind):
    """Image or tool: the report says what was missing, and each format has it."""
    path = written(tmp_path, (kind, MISSING), (kind, MISSING))
    assert skipped(path) == MISSING
    for name in ("text", "csv"):
        out = io.StringIO()
        write_report(path, out, name)
        assert MISSING in out.getvalue().replace("\n    ", " ")
    assert StatsFile(path).header["treatments"][0]["optional"] is True


@pytest.mark.parametrize(
    ("errors", "more"),
    [
        ([("exit-code", "exit code 1")], {}),
        ([("image-missing", MISSING), ("exit-code", "exit code 1")], {}),
        ([("exit-code", "exit code 1"), ("image-missing", MISSING)], {}),
        ([("image-missing", MISSING)], {"optional": False}),
        ([("image-missing", MISSING)], {"done": 1}),
    ],
)
def test_a_failure_is_not_excused(tmp_path, errors, more):
    """Another failure, a treatment that is not optional, and one that gave a result are what they are."""
    assert skipped(written(tmp_path, *errors, **more)) is None


def test_the_key_reaches_the_treatment_and_back():
    """A job says that it is optional; the workers and the stats file are told."""
    text = "name: a\njobs: {a: {workload: blogbench, optional: true}, b: {workload: blogload}}\n"
    first, second = parse_scenario(Source("s.yaml", text)).treatments
    assert (first.optional, second.optional) == (True, False)
    assert msgspec.convert(first.to_dict(), Treatment) == first


def test_what_was_left_out_is_not_judged():
    """A threshold speaks of what ran; where nothing of that ran, there is nothing that could fail it."""
    treatments = [
        treatment_report(treatment={"job": "a"}),
        treatment_report(treatment={"job": "b"}, skipped=MISSING, jobs=job_counts(failed=3)),
    ]
    both, only = evaluate_thresholds(treatments, ["jobs.failed == 0", "jobs.failed == 0 where job=b"])
    assert (both.treatment, both.passed) == ("job=a", True)
    assert only.passed
    assert "was skipped" in only.message
