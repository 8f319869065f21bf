"""Reads a scenario: what to run, where, how often, in which order. `load_scenario` is the way in."""

from bench_master.scenario.json_schema import scenario_schema
from bench_master.scenario.load import load_scenario
from bench_master.scenario.model import Scenario
from bench_master.scenario.yaml_tree import builtin_scenarios

__all__ = ["Scenario", "builtin_scenarios", "load_scenario", "scenario_schema"]
