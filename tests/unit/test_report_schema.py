"""The JSON Schema of the JSON report: made from the declared types, and kept by real documents.

Every JSON report that `builders.write_report` writes in another test is checked, too.
"""

import io
import json

import jsonschema
import pytest
from builders import S, StatsBuilder, footer, header, lifecycle_run, report_validator, treatment_wire, write_report

from bench_common.records import MetricRecord, ticket_of
from bench_master.analysis.report_schema import report_schema
from bench_master.cli import run_command_line


@pytest.fixture
def document(tmp_path):
    """The JSON report of a small run."""
    out = io.StringIO()
    write_report(lifecycle_run(tmp_path / "run.stats.gz"), out, "json")
    return json.loads(out.getvalue())


def test_the_schema_is_printed_without_a_stats_file(capsys):
    """It is a valid schema of draft 2020-12, and the whole report's."""
    with pytest.raises(SystemExit) as ended:
        run_command_line(["report-scenario", "--schema"])
    assert ended.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(printed)
    assert (printed["title"], printed) == ("weighbridge-report", json.loads(json.dumps(report_schema())))


def test_a_real_report_keeps_to_the_schema(document):
    """With its verdicts and every percentile."""
    report_validator().validate(document)
    assert document["verdicts"]["format"] == "weighbridge-verdicts"
    assert "p95_s" in document["treatments"][0]["operations"]["start"]


def changed(document, path, value):
    """Return a copy of a document with another value at a path; a missing key is the value itself."""
    copy = json.loads(json.dumps(document))
    *way, last = path
    node = copy
    for step in way:
        node = node[step]
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["version"], 99),
        (["format"], "weighbridge-verdicts"),
        (["run_state"], "fine"),
        (["totals"], KeyError),
        (["totals", "jobs"], "many"),
        (["treatments", 0, "jobs", "failed"], None),
        (["treatments", 0, "operations", "start", "p95_s"], "fast"),
        (["verdicts", "comparisons", 0, "verdict"], "perhaps"),
        (["hosts", 0, "clock_checks"], KeyError),
    ],
)
def test_what_is_no_report_breaks_the_schema(document, path, value):
    """A wrong version, a missing key, a text for a number."""
    with pytest.raises(jsonschema.ValidationError):
        report_validator().validate(changed(document, path, value))


def test_the_schema_explains_every_key():
    """With the text that stands below the field in the source; None is null there."""
    for name, shape in report_schema()["$defs"].items():
        keys = {**shape.get("properties", {}), **shape.get("patternProperties", {})}
        assert [key for key, value in keys.items() if not value.get("description")] == [], name


def test_percentiles_are_keys_of_their_own_in_the_schema():
    """As in the document, which has ``p95_s`` and no map of percentiles."""
    operation = report_schema()["$defs"]["OperationReport"]
    assert "percentiles_s" not in operation["properties"]
    assert list(operation["patternProperties"]) == [r"^p\d{1,2}(\.\d+)?_s$"]


def test_a_measure_that_is_not_finite_is_null(tmp_path, capsys):
    """A metric may be infinite, JSON has no such number, and the schema allows null in its place."""
    head = header(
        [treatment_wire(0, {"engine": "native"}, (), {"score": {"unit": "1/s", "direction": "higher"}})],
        [(0, 0, False)],
    )
    builder = StatsBuilder(tmp_path / "run.stats.gz", head).add_jobs({"end_ns": S})
    builder.writer.metrics([MetricRecord(ticket_of(0), 0, 0, "score", float("inf"))])
    assert run_command_line(["report-scenario", "-s", str(builder.close(footer())), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    report_validator().validate(found)
    assert found["treatments"][0]["metrics"]["score"]["median"] is None
