"""In what two runs' hosts and engines differ, and what follows from it for comparing them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from bench_master.analysis.run_summary import RunSummary, TreatmentSummary
from bench_master.analysis.verdict_types import PropertyReport
from bench_master.verdicts.confounds import (
    Difference,
    engine_differences,
    host_differences,
    parameter_differences,
    same_machine,
)

HARNESS: Final = "weighbridge"
"""The name of a difference in the harness itself."""


def property_differences(a: RunSummary, b: RunSummary, accept: Collection[str]) -> list[PropertyReport]:
    """Return the properties in which run `b` differs from `a`, each once, those that refuse first."""
    found: dict[str, PropertyReport] = {}
    for each in _differences(a, b):
        level = "accepted" if each.name in accept else each.effect
        found.setdefault(each.name, PropertyReport(each.name, {"earlier": each.a, "new": each.b}, level))
    return sorted(found.values(), key=lambda each: each.level != "refusal")


def _differences(a: RunSummary, b: RunSummary) -> Iterator[Difference]:
    yield from _machines(a, b)
    if a.harness != b.harness:
        yield Difference(HARNESS, a.harness, b.harness, "warning")
    shared = a.treatments.keys() & b.treatments.keys()
    used = {run.treatments[title].engine for title in shared for run in (a, b)}
    for name, other in zip(sorted(a.hosts), sorted(b.hosts), strict=False):
        one, two = a.hosts[name], b.hosts[other]
        yield from host_differences(one.fingerprint, two.fingerprint)
        yield from engine_differences(one.engines, two.engines, used)


def _machines(a: RunSummary, b: RunSummary) -> Iterator[Difference]:
    names = [", ".join(sorted(run.hosts)) or "unknown" for run in (a, b)]
    if names[0] != names[1]:
        yield Difference("host", names[0], names[1], "refusal")
        return
    for name in a.hosts:
        if same_machine(a.hosts[name].fingerprint, b.hosts[name].fingerprint) is False:
            ids = [str(run.hosts[name].fingerprint["machine_id"])[:8] for run in (a, b)]
            yield Difference("machine_id", ids[0], ids[1], "refusal")


def parameter_changes(own: TreatmentSummary, like: TreatmentSummary, accept: Collection[str]) -> list[Difference]:
    """Return the parameters in which a treatment differs from one of another run, without the accepted ones."""
    return [each for each in parameter_differences(own.definition, like.definition) if each.name not in accept]
