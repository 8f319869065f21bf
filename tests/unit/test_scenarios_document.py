"""The guide to scenarios has every operation and order, and its examples load."""

import re

import pytest
import yaml
from places import ROOT

from bench_common.treatment import OPERATIONS
from bench_master.scenario.format import ORDERS
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

GUIDE = (ROOT / "docs" / "scenarios.rst").read_text()
EXAMPLES = [
    re.sub(r"^   ", "", match[1], flags=re.MULTILINE)
    for match in re.finditer(r"code-block:: yaml\n\n((?:   .*\n|\n)+)", GUIDE)
]


@pytest.mark.parametrize("word", [*OPERATIONS, *ORDERS])
def test_every_operation_and_order_is_explained(word):
    """What they do is in no schema."""
    assert f"``{word}``" in GUIDE


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_every_example_loads(example):
    """Each example is a scenario, or becomes one with a job beside it."""
    assert len(EXAMPLES) >= 5
    keys = yaml.safe_load(example)
    if "storage" in keys:
        example = "container:\n" + re.sub(r"^", "  ", example.rstrip(), flags=re.MULTILINE) + "\n"
    if "thresholds" in keys:
        example += "jobs: {a: {workload: sysbench-cpu}}\n"
    elif "job" not in keys and "jobs" not in keys:
        example += "job: {operations: [run, remove], container: {image: i, command: [x]}}\n"
    if "name" not in keys:
        example = "name: a\n" + example
    assert parse_scenario(Source("s.yaml", example)).treatments


def test_the_matrix_example_has_the_cells_that_the_text_counts():
    """The walk through include and exclude is true."""
    example = next(text for text in EXAMPLES if "exclude" in text)
    scenario = parse_scenario(
        Source("s.yaml", f"name: a\n{example}job: {{operations: [run], container: {{image: i, command: [x]}}}}\n")
    )
    in_flight = [treatment.concurrency for treatment in scenario.treatments]
    assert (in_flight.count(1), in_flight.count(8), in_flight.count(64)) == (4, 4, 1)
    assert [warmup for warmup, count in zip(scenario.warmup, in_flight, strict=True) if count == 8] == [2, 2, 2, 2]
