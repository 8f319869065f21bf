"""Reads bucketbench's benchmark definitions, so that its files run here as they are.

`schema` reads a definition, `convert` translates it into a scenario's tree, and `load` is the entry point: it returns
a `Scenario` for either kind of file. Nothing else knows bucketbench, except the report format of that name.
"""

from bench_master.bucketbench.convert import DefinitionFlags
from bench_master.bucketbench.load import load_scenario_or_definition, scenario_text

__all__ = ["DefinitionFlags", "load_scenario_or_definition", "scenario_text"]
