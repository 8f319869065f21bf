"""The thresholds of a scenario, checked against what it will measure: one that can find nothing would always fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_common.errors import did_you_mean
from bench_common.thresholds import Threshold, parse_threshold
from bench_common.treatment import Treatment
from bench_master.scenario.types import INVALID
from workloads.script import metrics_of, script_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_master.scenario.diagnostics import Findings, Given


def check_thresholds(
    read: Mapping[str, Given[Any]], treatments: Sequence[Treatment], findings: Findings
) -> tuple[str, ...]:
    """Return the thresholds of a scenario; note those that cannot be read, or that no treatment can answer."""
    given = read.get("thresholds")
    if given is None or given.value is INVALID:
        return ()
    overhead = read.get("overhead")
    watched = overhead is not None and overhead.value is not None
    for one in given.value:
        try:
            complaint = _unanswered(parse_threshold(one.value), treatments, watched=watched)
        except ValueError as error:
            complaint = str(error)
        if complaint:
            findings.add(one.place, complaint, deep=True)
    return tuple(one.value for one in given.value)


def _unanswered(threshold: Threshold, treatments: Sequence[Treatment], *, watched: bool) -> str:
    """Return why no treatment can answer a threshold, or nothing."""
    labels = {label for treatment in treatments for label in treatment.labels}
    for key, _ in threshold.where:
        if treatments and key not in labels:
            return f"threshold '{threshold}': no treatment has a '{key}'{did_you_mean(key, labels)}"
    meant = [treatment for treatment in treatments if threshold.selects(treatment.labels)]
    if treatments and not meant:
        return f"threshold '{threshold}': no treatment is what 'where' asks for"
    if threshold.path[0] == "overhead" and not watched:
        return f"threshold '{threshold}': what engines cost is not measured; say 'overhead: true' in the scenario"
    if threshold.path[0] not in {"operations", "metrics"}:
        return ""
    known = {name for treatment in meant for name in _figures(treatment, threshold.path[0])}
    if not meant or threshold.path[1] in known:
        return ""
    kind = threshold.path[0].removesuffix("s")
    hint = did_you_mean(threshold.path[1], known) or f"; there is: {', '.join(sorted(known)) or 'none'}"
    return f"threshold '{threshold}': no treatment has {kind} '{threshold.path[1]}'{hint}"


def _figures(treatment: Treatment, kind: str) -> set[str]:
    """Return the names of a treatment's operations or metrics; every job has the operation `job`, all of it."""
    if kind == "operations":
        return {"job", *(operation.name for operation in script_of(treatment))}
    return set(metrics_of(treatment))
