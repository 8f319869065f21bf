"""The JUnit report: thresholds, gates and verdicts as test cases, for Jenkins, GitLab and others that read JUnit XML.

A case has one of four states: passed, failed, in error (could not be judged) or skipped. Cases fail or are in error
exactly where the exit code says so: a verdict alone, such as *slower*, is no failure; a gate on it is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final, Literal, TextIO, TypeAlias
from xml.etree import ElementTree as ET

from bench_common.safe_text import one_line, shorten
from bench_master.analysis.verdict_types import (
    ComparisonReport,
    GateReport,
    VerdictsReport,
    change_text,
    interval_text,
    verdict_line,
)
from bench_master.reports import ReportSource
from bench_master.reports.verdict_text import FEWEST_ROUNDS, remark_text

State: TypeAlias = Literal["passed", "failure", "error", "skipped"]

_STATES: Final[Mapping[str, State]] = {
    "passed": "passed",
    "failed": "failure",
    "undecided": "error",
    "kept": "passed",
    "broken": "failure",
}
"""The state of a case by that of a threshold, gate or claim."""
_NO_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 document may contain, not even escaped."""
_MAX_CHARS: Final = 4000
"""How much of a text is shown, in characters."""


@dataclass(frozen=True, slots=True)
class _Case:
    group: str
    """Its class: ``run``, ``thresholds``, ``gates``, ``claims`` or ``verdicts``."""
    name: str
    state: State
    kind: str = ""
    """What a machine may group cases by: ``incomplete``, ``threshold``, ``inconclusive`` ..."""
    text: str = ""


class JunitReport:
    """Writes test cases for Jenkins, GitLab and others: of the run, of each threshold, gate, claim and comparison."""

    name: ClassVar[str] = "junit"

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the XML document."""
        document = source.document
        properties = {
            "run_id": document.run.run_id,
            "run_state": document.run_state,
            "stats_file": document.stats_file,
            **({"answer": document.verdicts.answer} if document.verdicts is not None else {}),
        }
        attributes = {}
        if document.totals.duration_s is not None:
            attributes["time"] = f"{document.totals.duration_s:.3f}"
        if document.run.created:
            attributes["timestamp"] = _timestamp(document.run.created)
        name = str(document.scenario.name or "weighbridge")
        _write_suite(name, list(_run_cases(source)), properties, attributes, out)


def write_comparison(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write a suite of verdicts between runs: cases of each gate and comparison."""
    cases = [*_gate_cases(verdicts.gates), *_comparison_cases(verdicts.comparisons)]
    _write_suite("runs compared", cases, {"question": verdicts.question, "answer": verdicts.answer}, {}, out)


def _write_suite(
    name: str,
    cases: Sequence[_Case],
    properties: Mapping[str, str | None],
    attributes: Mapping[str, str],
    out: TextIO,
) -> None:
    counts = {state: str(sum(case.state == state for case in cases)) for state in ("failure", "error", "skipped")}
    totals = {"tests": str(len(cases)), "failures": counts["failure"], "errors": counts["error"]}
    root = ET.Element("testsuites", {"name": _text(name), **totals})
    suite = ET.SubElement(root, "testsuite", {"name": _text(name), **totals, "skipped": counts["skipped"]})
    for key, text in attributes.items():
        suite.set(key, text)
    listed = ET.SubElement(suite, "properties")
    for key, value in properties.items():
        ET.SubElement(listed, "property", {"name": key, "value": _text(str(value))})
    for case in cases:
        _add_case(suite, case)
    ET.indent(root)
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    out.write(ET.tostring(root, encoding="unicode"))
    out.write("\n")


def _add_case(suite: ET.Element, case: _Case) -> None:
    element = ET.SubElement(suite, "testcase", {"classname": f"weighbridge.{case.group}", "name": _text(case.name)})
    text = _text(case.text)
    if case.state != "passed":
        ET.SubElement(element, case.state, {"type": case.kind, "message": text}).text = text
    elif text:
        ET.SubElement(element, "system-out").text = text


def _run_cases(source: ReportSource) -> Iterator[_Case]:
    """Yield cases of the run, its thresholds, gates, claims and verdicts."""
    document, verdicts = source.document, source.document.verdicts
    for name, kind, problem in (
        ("the run is complete", document.run_state, source.incomplete_text if document.incomplete else ""),
        ("each treatment has a result", "no-result", source.missing_results),
    ):
        yield _Case("run", name, "error" if problem else "passed", kind, problem)
    for one in document.thresholds:
        name = f"{one.threshold} ({one.treatment})" if one.treatment else one.threshold
        state, text = document.threshold_state(one), one.message
        if state != "undecided":
            yield _Case("thresholds", name, _STATES[state], "threshold", text)
        elif document.run.noop:
            yield _Case("thresholds", name, "skipped", "noop", f"a no-op run is not judged: {text}")
        else:
            yield _Case("thresholds", name, "skipped", document.run_state, text)
    yield from _gate_cases(source.gates)
    if verdicts is None:
        if document.no_verdict:
            yield _Case("verdicts", "verdict", "skipped", "no-verdict", document.no_verdict)
        return
    for claim in () if verdicts.claims is None else verdicts.claims.claims:
        name = f"{claim.name}: {claim.says} ({claim.measure}, {claim.rounds} rounds)"
        yield _Case("claims", name, _STATES[claim.state], claim.state, claim.text)
    between = verdicts.between.comparisons if verdicts.between is not None else ()
    yield from _comparison_cases((*verdicts.comparisons, *between))


def _gate_cases(gates: Iterable[GateReport]) -> Iterator[_Case]:
    for gate in gates:
        name = f"{gate.gate} ({gate.comparison})" if gate.comparison else gate.gate
        yield _Case("gates", name, _STATES[gate.state], gate.state, gate.text)


def _comparison_cases(comparisons: Iterable[ComparisonReport]) -> Iterator[_Case]:
    for each in comparisons:
        name = f"{each.b} against {each.a}: {each.measure}"
        text = _outcome(each)
        undecided = each.verdict in ("inconclusive", "refused")
        yield _Case("verdicts", name, "skipped" if undecided else "passed", each.verdict, text)


def _outcome(comparison: ComparisonReport) -> str:
    """Return a verdict with its interval and what limits it."""
    interval = interval_text(comparison, FEWEST_ROUNDS)
    parts = [f"{verdict_line(comparison)} {interval}, {comparison.rounds} rounds"]
    if comparison.verdict in ("inconclusive", "refused"):
        found = [comparison.b_failure or ""] if comparison.has_failed else [change_text(comparison), interval]
        size = " ".join(text for text in found if text not in ("", "-"))
        parts = [f"{comparison.word}{f': {size}' if size else ''}"]
    return "; ".join([*parts, *filter(None, [remark_text(comparison)])])


def _text(text: str) -> str:
    """Return a text that XML can contain, on one line: what is not printable is an escape of JSON."""
    return _NO_XML.sub("\ufffd", shorten(one_line(text), _MAX_CHARS))


def _timestamp(created: str) -> str:
    """Return an instant as JUnit has it: UTC, without a zone; a text that is no instant as it is."""
    try:
        instant = datetime.fromisoformat(created).astimezone(UTC)
    except (ValueError, OverflowError):
        return _text(created)
    return instant.replace(tzinfo=None).isoformat(timespec="seconds")
