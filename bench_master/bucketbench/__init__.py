"""Reads bucketbench's benchmark definitions, so that its files run here as they are.

`schema` reads one as it was written, `translate` makes a scenario's tree of it, `writing` writes that tree as a file,
and `load` is the way in: whatever the file is, a `Scenario` comes of it. Nothing else knows bucketbench, but for the
report format of that name.
"""

from bench_master.bucketbench.convert import DefinitionFlags
from bench_master.bucketbench.load import load_scenario_or_definition, scenario_text

__all__ = ["DefinitionFlags", "load_scenario_or_definition", "scenario_text"]
