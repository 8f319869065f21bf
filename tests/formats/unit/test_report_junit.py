"""The JUnit report: states of its cases, hostile texts, and the form that Jenkins accepts."""

import io
import re
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from builders import footer, lifecycle_run
from msgspec.structs import replace
from verdict_builders import engine_verdicts

from bench_common.stats.reader import StatsFile
from bench_features.formats.junit import JunitReport
from bench_master.analysis.report_types import ThresholdReport
from bench_master.analysis.verdict_types import GateReport
from bench_master.reports import ReportSource

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testsuite", "properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "property": set(),
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
    **{tag: set() for tag in ("skipped", "error", "failure", "system-out", "system-err")},
}
"""What may be in what, as in junit-10.xsd of Jenkins' xunit-plugin, without the elements of reruns."""
OUTCOME = (set(), {"type", "message"})
ATTRIBUTES = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
    ),
    "properties": (set(), set()),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name"}, {"time", "classname", "group"}),
    **dict.fromkeys(("skipped", "error", "failure"), OUTCOME),
    **dict.fromkeys(("system-out", "system-err"), (set(), set())),
}
"""Required and optional attributes there."""
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")
"""The pattern of a time there."""


def checked(text):
    """Return the root of a report that has the form that Jenkins accepts."""
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional = ATTRIBUTES[element.tag]
        assert required <= set(element.attrib) <= required | optional, element.tag
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        if "time" in element.attrib:
            assert TIME.fullmatch(element.get("time"))
    suite = root[0]
    cases = suite.findall("testcase")
    assert suite.get("tests") == root.get("tests") == str(len(cases))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.get(attribute) == str(sum(case.find(tag) is not None for case in cases))
    return root


def states(source):
    """Return the state of each case by class and name."""
    out = io.StringIO()
    JunitReport().write(source, out)
    found = {}
    for case in checked(out.getvalue()).iter("testcase"):
        tags = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[case.get("classname").removeprefix("weighbridge."), case.get("name")] = (tags or {"passed"}).pop()
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A complete small run."""
    return ReportSource(StatsFile(lifecycle_run(tmp_path_factory.mktemp("junit") / "run.stats.gz")))


def changed(source, gates=(), **changes):
    document = replace(source.document, **changes)
    return SimpleNamespace(document=document, gates=gates, missing_results="", incomplete_text="why")


def gate(state, code):
    return GateReport(f"--fail-on {state}", state, "", "SLOWER podman +21.0 %", code)


def threshold(passed, value=1.0):
    return ThresholdReport("jobs.failed == 0", "engine=docker", value, passed, "is 1, wanted == 0")


def test_thresholds_gates_and_verdicts_have_one_of_four_states(source):
    """A word that was decided passes, whatever it is; a gate on it fails; what was not decided is skipped."""
    gates = (gate("failed", 1), gate("undecided", 4))
    found = states(changed(source, gates=gates, verdicts=engine_verdicts(), thresholds=[threshold(passed=False)]))
    assert found["run", "the run is complete"] == "passed"
    assert found["thresholds", "jobs.failed == 0 (engine=docker)"] == "failure"
    verdicts = {name.split(" against ")[0]: state for (kind, name), state in found.items() if kind == "verdicts"}
    assert [(name.split("engine=")[1].split()[0], state) for name, state in verdicts.items()] == [
        ("podman", "passed"), ("crun", "passed"), ("native", "passed"), ("runsc", "skipped"),
    ]  # fmt: skip
    assert sorted(state for (kind, _), state in found.items() if kind == "gates") == ["error", "failure"]


def test_a_threshold_without_a_measure_of_an_incomplete_run_is_skipped(source):
    """As the exit code: it has not failed; the run itself is in error. Of a no-op run nothing is judged."""
    found = states(changed(source, incomplete=["interrupted"], thresholds=[threshold(passed=False, value=None)]))
    assert found["thresholds", "jobs.failed == 0 (engine=docker)"] == "skipped"
    assert found["run", "the run is complete"] == "error"
    noop = replace(source.document.run, noop=True)
    found = states(changed(source, run=noop, thresholds=[threshold(passed=False)]))
    assert found["thresholds", "jobs.failed == 0 (engine=docker)"] == "skipped"


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("status", ["complete", "interrupted"])
def test_cases_fail_exactly_where_the_exit_code_says_so(tmp_path, passed, status):
    """A green report has exit code 0, a red one another."""
    path = lifecycle_run(tmp_path / "run.stats.gz", foot=footer(status=status))
    source = ReportSource(StatsFile(path))
    source.__dict__["document"] = replace(source.document, thresholds=[threshold(passed=passed)])
    red = {"failure", "error"} & set(states(source).values())
    assert bool(red) == bool(source.exit_code())


def test_no_text_of_a_run_breaks_the_document(source):
    """Markup, the end of CDATA, characters that XML forbids, right-to-left marks, lone surrogates, long words."""
    evil = "<script>]]>&\x00\x1b[2J\u202e\ufffe\ud800\"'" + "x" * 10_000
    scenario = replace(source.document.scenario, name=evil)
    verdict = ThresholdReport(evil, evil, 1.0, passed=False, message=evil)
    out = io.StringIO()
    JunitReport().write(changed(source, scenario=scenario, thresholds=[verdict]), out)
    root = checked(out.getvalue())
    shown = root[0].get("name")
    assert shown.startswith("<script>]]>&\\u0000\\u001b[2J\\u202e")
    assert len(shown) <= 4000
    assert out.getvalue().count("<script") == 0
