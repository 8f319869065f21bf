"""Loads what `-f` names, whichever of the two it is: a scenario, or a bucketbench definition."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench_common.errors import UsageError
from bench_master.bucketbench.convert import Flags, translate
from bench_master.bucketbench.schema import GRACE, is_definition
from bench_master.bucketbench.writing import written
from bench_master.scenario.diagnostics import Findings
from bench_master.scenario.load import scenario_from, tree_of
from bench_master.scenario.source import read_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_master.scenario.model import Scenario
    from bench_master.scenario.tree import Entries

NO_FLAGS: Final = Flags()
BUCKETBENCH: Final = "bucketbench"


def load_either(reference: str, overrides: Sequence[str] = (), flags: Flags = NO_FLAGS) -> Scenario:
    """Return the scenario that a file holds, or that a bucketbench definition in it amounts to.

    `overrides` are ``--set`` texts; for a definition they are of the scenario that it becomes, and `flags` are of
    definitions alone. Raises `ScenarioError` with every problem, each at its place in the file, and `UsageError`
    where there is no such file, or a flag has no meaning for it.
    """
    source = read_source(reference)
    lost: list[str] = []
    dialect = ""

    def native(root: Entries, findings: Findings) -> Entries:
        if not is_definition(root):
            _check_flags(reference, flags)
            return root
        nonlocal dialect
        dialect = BUCKETBENCH
        translated = translate(root, findings, flags).root
        lost.extend(findings.notes)
        return translated

    scenario = scenario_from(source, overrides, dialect=native)
    return replace(scenario, dialect=dialect, lost=tuple(lost))


def _check_flags(reference: str, flags: Flags) -> None:
    """Refuse flags that have no meaning for a scenario."""
    if flags.legacy:
        advice = "in a scenario, write `matrix: {concurrency: [1, 2, 4]}`"
        raise UsageError(f"{reference}: --legacy is of bucketbench's definitions; {advice}")
    if flags.grace != GRACE:
        raise UsageError(f"{reference}: --stop-grace is of bucketbench's definitions; write {{stop: {flags.grace}}}")
    if flags.drivers:
        raise UsageError(f"{reference}: --drivers is of bucketbench's definitions; a scenario lists its 'engines'")


def native_text(reference: str, flags: Flags = NO_FLAGS) -> tuple[str, tuple[str, ...]]:
    """Return a bucketbench definition as the text of a scenario, and what could not be carried over.

    The text loads to the treatments of `load_either`. Raises `UsageError` where the file holds no definition.
    """
    source = read_source(reference)
    root = tree_of(source)
    if not is_definition(root):
        raise UsageError(f"{reference}: no bucketbench definition: it has neither 'drivers' nor 'commands'")
    findings = Findings()
    native = translate(root, findings, flags)
    load_either(reference, flags=flags)
    return written(native, source.path, findings.notes), tuple(findings.notes)
