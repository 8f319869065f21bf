"""Loads what `-f` names, whichever of the two it is: a scenario, or a bucketbench definition."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench_common.errors import UsageError
from bench_master.bucketbench.schema import is_definition
from bench_master.bucketbench.translate import translate
from bench_master.bucketbench.writing import written
from bench_master.scenario.findings import Findings
from bench_master.scenario.load import scenario_from, tree_of
from bench_master.scenario.source import read_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_master.scenario.model import Scenario
    from bench_master.scenario.tree import Entries


def load_either(reference: str, overrides: Sequence[str] = (), *, legacy: bool = False) -> Scenario:
    """Return the scenario that a file holds, or that a bucketbench definition in it amounts to.

    `overrides` are ``--set`` texts; for a definition they are of the scenario that it becomes. `legacy` runs each of
    a definition's drivers with 1, 2 ... and all of its threads. Raises `ScenarioError` with every problem, each at
    its place in the file, and `UsageError` where there is no such file, or `legacy` has no meaning for it.
    """
    source = read_source(reference)
    lost: list[str] = []

    def native(root: Entries, findings: Findings) -> Entries:
        if not is_definition(root):
            if legacy:
                advice = "in a scenario, write `matrix: {concurrency: [1, 2, 4]}`"
                raise UsageError(f"{reference}: --legacy is of bucketbench's definitions; {advice}")
            return root
        translated = translate(root, findings, legacy=legacy).root
        lost.extend(findings.notes)
        return translated

    scenario = scenario_from(source, overrides, dialect=native)
    return replace(scenario, lost=tuple(lost))


def native_text(reference: str, *, legacy: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return a bucketbench definition as the text of a scenario, and what could not be carried over.

    The text loads to the treatments of `load_either`. Raises `UsageError` where the file holds no definition.
    """
    source = read_source(reference)
    root = tree_of(source)
    if not is_definition(root):
        raise UsageError(f"{reference}: no bucketbench definition: it has neither 'drivers' nor 'commands'")
    findings = Findings()
    native = translate(root, findings, legacy=legacy)
    load_either(reference, legacy=legacy)
    return written(native, source.path, findings.notes), tuple(findings.notes)
