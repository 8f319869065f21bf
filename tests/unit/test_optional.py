"""Optional treatments: skipped with the reason if a requirement is missing, and for no other reason."""

import io
import json

import msgspec
import pytest
from builders import MS, header, job_counts, job_rows, treatment_report, treatment_wire, write_report

from bench_common.job_kind import read_job
from bench_common.records import ErrorRecord, MetricRecord, Outcome, ticket_of
from bench_common.stats.reader import StatsFile, StatsWriter
from bench_common.treatment import Treatment
from bench_master.analysis.gates import evaluate_thresholds
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

MISSING = "No such image: weighbridge/blogbench:latest"


def written(tmp_path, *errors, optional=True, done=0):
    """Write a run of one treatment whose jobs failed with these errors, after some that were done."""
    tmp_path.mkdir(exist_ok=True)
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
def test_a_missing_requirement_skips_the_treatment(tmp_path, kind):
    """Image or tool: every format shows what was missing."""
    path = written(tmp_path, (kind, MISSING), (kind, MISSING))
    assert skipped(path) == MISSING
    for name in ("text", "csv"):
        out = io.StringIO()
        write_report(path, out, name)
        assert MISSING in out.getvalue().replace("\n    ", " ")
    assert StatsFile(path).header.treatments[0].optional is True


def test_jobs_that_are_left_out_did_not_fail(tmp_path):
    """They have a count of their own, of the treatment and of the run, and none of them is missing."""
    path = written(tmp_path, ("image-missing", MISSING), ("image-missing", MISSING))
    document, text = io.StringIO(), io.StringIO()
    write_report(path, document, "json")
    write_report(path, text, "text")
    report = json.loads(document.getvalue())
    for counts in (report["totals"], report["treatments"][0]["jobs"]):
        assert (counts["failed"], counts["left_out"], counts["done"]) == (0, 2, 0)
    assert report["totals"]["missing"] == 0
    assert report["run_state"] == "complete"
    assert "0 done, 0 failed, 2 left out (optional)" in text.getvalue()
    failed = io.StringIO()
    write_report(written(tmp_path / "other", ("exit-code", "exit code 1")), failed, "json")
    totals = json.loads(failed.getvalue())["totals"]
    assert (totals["failed"], totals["left_out"]) == (1, 0)


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
def test_other_failures_are_not_skipped(tmp_path, errors, more):
    """Another failure, a treatment that is not optional, and one with a result are reported normally."""
    assert skipped(written(tmp_path, *errors, **more)) is None


def test_the_optional_key_reaches_the_treatment():
    """It is in the treatment that the workers and the stats file get."""
    text = "name: a\njobs: {a: {workload: blogbench, optional: true}, b: {workload: blogload}}\n"
    first, second = parse_scenario(Source("s.yaml", text)).treatments
    assert (first.optional, second.optional) == (True, False)
    assert msgspec.convert(first.to_dict(), Treatment, dec_hook=read_job) == first


def test_skipped_treatments_are_not_judged():
    """A threshold applies to treatments that ran; if all were skipped it passes."""
    treatments = [
        treatment_report(treatment={"job": "a"}),
        treatment_report(treatment={"job": "b"}, skipped=MISSING, jobs=job_counts(failed=3)),
    ]
    both, only = evaluate_thresholds(treatments, ["jobs.failed == 0", "jobs.failed == 0 where job=b"])
    assert (both.treatment, both.passed) == ("job=a", True)
    assert only.passed
    assert "was skipped" in only.message


def test_a_baseline_that_was_skipped_is_why_there_is_no_verdict(tmp_path):
    """Also where it was asked for in the report; other treatments that were skipped are the reason if one is left."""
    labels = [{"engine": "docker"}, {"engine": "podman"}, {"engine": "native"}]
    path = tmp_path / "a.stats.gz"
    writer = StatsWriter(path)
    treatments = [treatment_wire(n, own, ["run"]) | {"optional": n == 0} for n, own in enumerate(labels)]
    trials = [[n, 0, False] for n in range(3)]
    writer.put("header", header(treatments, trials, verdicts={"baseline": {"engine": "docker"}, "margin": None}))
    rows = [{"ticket": ticket_of(n), "treatment": n, "trial": n, "end_ns": MS} for n in range(3)]
    writer.jobs(job_rows(rows[0] | {"outcome": Outcome.FAILED}, *rows[1:]))
    writer.errors([ErrorRecord(ticket_of(0), 0, 0, "run", "image-missing", MISSING)])
    writer.close({"status": "complete", "counts": {"planned": 3, "done": 2, "failed": 1}})
    reason = f"the baseline engine=docker is optional and was skipped: {MISSING}; provide what it lacks"
    for name in ("text", "markdown"):
        out = io.StringIO()
        write_report(path, out, name)
        assert f"No verdict: {reason}" in " ".join(out.getvalue().replace("\\", "").split())
    out = io.StringIO()
    write_report(path, out, "json")
    document = json.loads(out.getvalue())
    assert (document["verdicts"], document["no_verdict"].startswith(reason)) == (None, True)


def test_what_was_skipped_is_why_one_treatment_is_left(tmp_path):
    """A single treatment that ran is compared with nothing, and the report says what it lacked."""
    out = io.StringIO()
    write_report(written(tmp_path, ("image-missing", MISSING)), out, "json")
    said = json.loads(out.getvalue())["no_verdict"]
    assert said == f"no treatment ran, as engine=docker is optional and was skipped: {MISSING}"
