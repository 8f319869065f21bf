"""The tools whose files are read like scenarios; a translator is loaded for its own files only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_master.scenario.dialects import Dialect
from bench_master.scenario.model import Origin

if TYPE_CHECKING:
    from bench_master.scenario.diagnostics import Diagnostics
    from bench_master.scenario.model import DefinitionFlags, TranslatedScenario
    from bench_master.scenario.yaml_tree import MappingNode

_SSBENCH_MARKS: Final = frozenset({"initial_files", "crud_profile", "size_min"})
_OTHERS: Final = frozenset({"job", "jobs", "drivers", "commands", "objects"})
"""Top-level keys that no scenario of ssbench has."""


def is_bucketbench_definition(root: MappingNode) -> bool:
    """Return whether a tree is (meant as) a bucketbench definition: no scenario has its lists."""
    return bool(root.values.keys() & {"drivers", "commands"}) and not root.values.keys() & {"job", "jobs"}


def is_ssbench_scenario(root: MappingNode) -> bool:
    """Return whether a tree is (meant as) a scenario of ssbench: no other file has its size classes."""
    keys = root.values.keys()
    return "sizes" in keys and bool(keys & _SSBENCH_MARKS) and not keys & _OTHERS


def _translate_bucketbench(root: MappingNode, findings: Diagnostics, flags: DefinitionFlags) -> TranslatedScenario:
    from bench_features.compat.bucketbench_scenarios import translate

    return translate(root, findings, flags)


def _translate_ssbench(root: MappingNode, findings: Diagnostics, flags: DefinitionFlags) -> TranslatedScenario:
    from bench_features.compat.ssbench_scenarios import translate

    return translate(root, findings, flags)


BUCKETBENCH: Final = Dialect(
    Origin(
        "bucketbench",
        "a",
        "definition",
        marks="'drivers' and 'commands'",
        takes_flags=True,
        if_refused="to run only the other drivers of the definition: --drivers A,B",
    ),
    is_bucketbench_definition,
    _translate_bucketbench,
)
SSBENCH: Final = Dialect(
    Origin("ssbench", "an", "scenario", marks="'sizes' and 'initial_files'", length_wins=True),
    is_ssbench_scenario,
    _translate_ssbench,
)
