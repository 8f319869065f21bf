"""The reference in docs/ tells of every key, operation and signal, and its examples load."""

import re

import pytest
import yaml
from places import ROOT

from bench_common.treatment import OPERATIONS
from bench_master.scenario.format import ORDERS, scenario_format
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.operations import SIGNALS
from bench_master.scenario.yaml_tree import Source

REFERENCE = (ROOT / "docs" / "scenario-reference.rst").read_text()
FORMAT = scenario_format()
EXAMPLES = [
    re.sub(r"^   ", "", match[1], flags=re.MULTILINE)
    for match in re.finditer(r"code-block:: yaml\n\n((?:   .*\n|\n)+)", REFERENCE)
]


@pytest.mark.parametrize(
    "word",
    [field.name for record in (FORMAT.scenario, FORMAT.job, FORMAT.container) for field in record.fields]
    + [
        *OPERATIONS,
        *ORDERS,
        "include",
        "exclude",
        "volume",
        "host",
        "data_container",
        "tmpfs",
        "target",
        "read_only",
    ],
)
def test_every_key_is_in_the_reference(word):
    """What can be written is documented."""
    assert f"``{word}``" in REFERENCE


@pytest.mark.parametrize("signal", SIGNALS)
def test_every_signal_is_in_the_reference(signal):
    """Each signal that `kill` knows is documented."""
    assert signal in REFERENCE


@pytest.mark.parametrize("name", ["concurrency", "iterations", "repeats", "warmup", "timeout", "sampling_interval"])
def test_defaults_are_those_of_the_format(name):
    """The defaults in the table are those that the schema publishes."""
    row = next(line for line in REFERENCE.splitlines() if line.startswith(f"``{name}``"))
    assert f"``{FORMAT.scenario.field(name).default}``" in row


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
