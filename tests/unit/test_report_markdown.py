"""The Markdown report, and the JSON Schema of the verdicts."""

import io
import json
import re
from types import SimpleNamespace

import jsonschema
import pytest
from builders import lifecycle_run, write_report
from msgspec.structs import replace
from verdict_builders import comparison, engine_verdicts, refused_verdicts, said

from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.report_schema import verdicts_schema
from bench_master.analysis.report_types import as_json
from bench_master.cli import run_command_line
from bench_master.formatting import escape_markdown as escape
from bench_master.reports.jsonl import replace_nonfinite
from bench_master.reports.markdown import MarkdownReport


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The document of a small run."""
    return build_document(StatsFile(lifecycle_run(tmp_path_factory.mktemp("markdown") / "run.stats.gz")))


def markdown(document, detail="page"):
    out = io.StringIO()
    MarkdownReport().write(SimpleNamespace(document=document, detail=detail), out)
    return out.getvalue()


@pytest.mark.parametrize("incomplete", [["the run was interrupted"], []])
def test_markdown_says_first_whether_the_run_is_whole(document, incomplete):
    """An incomplete run is a quotation above every measure, with -q too."""
    state = "incomplete" if incomplete else "complete"
    cut = replace(document, run_state=state, incomplete=incomplete, verdicts=engine_verdicts())
    for detail in ("page", "answer", "full"):
        assert ("> INCOMPLETE: the run was interrupted" in markdown(cut, detail)) == bool(incomplete)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("events_per_second", "events_per_second"),
        ("[-5.9, +1.3]", "[-5.9, +1.3]"),
        ("jobs.failed < 1, 'x' != \"y\"", "jobs.failed < 1, 'x' != \"y\""),
        ("a|b", "a&#124;b"),
        ("`x` **y**", "&#96;x&#96; &#42;&#42;y&#42;&#42;"),
        ("<script>", "&#60;script&#62;"),
        ("[x](y)", "&#91;x&#93;(y)"),
        ("[1](y)", "&#91;1&#93;(y)"),
        ("@root", "&#64;<!-- -->root"),
        ("www.evil.org", "www<!-- -->.evil.org"),
        ("http://evil.org", "http&#58;//evil.org"),
        ("_x_", "\\_x\\_"),
        ("a\nb\x1b[0m", "a b&#92;u001b&#91;0m"),
    ],
)
def test_what_others_wrote_is_no_markup(text, shown):
    """Words, numbers and intervals stay as they are; what could be markup, HTML, a link or a mention is escaped."""
    assert escape(text) == shown


def test_hostile_names_stay_in_their_cell(document):
    """A name with a pipe, a line end and HTML leaves the table whole."""
    evil = "a|b\n| x | <img src=x> [q](http://x) @root `"
    one = comparison(evil, "faster", 0.9, 0.8, 0.95, labels={"engine": evil}, reasons=[said(evil)])
    text = markdown(replace(document, verdicts=engine_verdicts(comparisons=(one,), question=evil)))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows[:4]}) == 1
    assert not re.search(r"<img|\]\(|@root|://|`", text)


def check(schema, verdicts):
    jsonschema.validate(json.loads(json.dumps(replace_nonfinite(as_json(verdicts)))), schema)


def test_the_schema_holds_for_the_verdicts_of_a_report(tmp_path, capsys):
    """compare --schema prints a schema that real and hand-made verdicts keep to, and that describes each key."""
    with pytest.raises(SystemExit) as ended:
        run_command_line(["compare", "--schema"])
    assert ended.value.code == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == json.loads(json.dumps(verdicts_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    out = io.StringIO()
    write_report(lifecycle_run(tmp_path / "run.stats.gz"), out, "json")
    real = json.loads(out.getvalue())["verdicts"]
    assert real["format"] == "weighbridge-verdicts"
    jsonschema.validate(real, schema)
    check(schema, engine_verdicts())
    check(schema, refused_verdicts())
    for shape in schema["$defs"].values():
        assert [name for name, key in shape.get("properties", {}).items() if not key.get("description")] == []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(real | {"comparisons": [{"a": 1}]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(real | {"version": 2}, schema)
