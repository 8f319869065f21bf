"""Whatever stands in a definition: it is refused with places, or converted to what it is run as. Nothing else."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bench_common.errors import ScenarioError
from bench_features.compat.bucketbench_scenarios import COMMANDS, DEFINITION_KEYS, DRIVER_KEYS, DRIVERS
from bench_master.scenario.dialects import load_scenario_or_definition, scenario_text
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.model import DefinitionFlags
from bench_master.scenario.yaml_tree import Source

ENGINES = ("containerd", "cri", "crun", "docker", "docker-cli", "native", "runc", "youki")

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["json-file", "date", "weighbridge/base", "/srv/bundle", "a 'b c'", "yes", "~", "-x", "\u2028", "1s"]
    ),
)
WORDS = st.sampled_from([*COMMANDS, *map(str.upper, COMMANDS), "rum"])
"""Mostly what bucketbench knows, so that many definitions are right."""

DRIVER = st.fixed_dictionaries(
    {
        "type": st.sampled_from([driver.name for driver in DRIVERS]),
        "threads": st.integers(1, 4),
        "iterations": st.integers(1, 9),
    },
    optional={
        "clientpath": SCALARS,
        "logDriver": st.sampled_from(["none", "json-file", ""]),
        "logOpts": st.dictionaries(st.sampled_from(["max-size", "tag", "a.b"]), st.text(max_size=4), max_size=2),
        "streamStats": st.booleans(),
        "statsIntervalSec": st.integers(0, 5),
        "cgroupPath": st.sampled_from(["/docker", "/x/y"]),
    },
)
RIGHT = st.fixed_dictionaries(
    {
        "image": st.sampled_from(["a", "weighbridge/base", "localhost:5000/x@sha256:0"]),
        "drivers": st.lists(DRIVER, min_size=1, max_size=3),
        "commands": st.just(["run", "pause", "stats", "resume", "stop", "stats", "delete"])
        | st.lists(WORDS, min_size=1, max_size=4).map(lambda words: ["run", *words]),
    },
    optional={
        "name": st.text(min_size=1, max_size=12),
        "command": st.text(max_size=12),
        "rootfs": st.just("/srv/bundle"),
        "detached": st.booleans(),
        "entrypoint": SCALARS,
    },
)
WRONG = (
    st.dictionaries(
        st.sampled_from([field.name for field in (*DEFINITION_KEYS, *DRIVER_KEYS)]) | st.text(max_size=6),
        st.recursive(
            SCALARS,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
            max_leaves=6,
        ),
        max_size=6,
    )
    .filter(lambda keys: not keys.keys() & {"job", "jobs"})
    .map(lambda keys: {"drivers": [{}], **keys})
)
FLAGS = st.builds(
    DefinitionFlags, legacy=st.booleans(), overhead=st.booleans(), grace=st.sampled_from([None, "10s", "0s", "1m30s"])
)


@pytest.fixture(autouse=True)
def every_engine(monkeypatch):
    """A definition is read in the same way wherever the engines are installed."""
    monkeypatch.setattr("bench_master.scenario.format.engine_names", lambda: ENGINES)


generated = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def problems(read):
    """Return what is wrong with a definition, or nothing."""
    try:
        read()
    except ScenarioError as error:
        return error.problems
    return ()


def both(path, definition, flags):
    """Return the scenario of the direct run and of the converted file, or None where the definition is refused."""
    path.write_text(json.dumps(definition), encoding="utf-8")
    refused = problems(lambda: load_scenario_or_definition(str(path), flags=flags))
    if refused:
        assert all(problem.file == str(path) and problem.line >= 1 for problem in refused)
        assert problems(lambda: scenario_text(str(path), flags)) == refused
        return None
    direct = load_scenario_or_definition(str(path), flags=flags)
    text, lost = scenario_text(str(path), flags)
    assert lost == direct.untranslated
    return direct, parse_scenario(Source("new.yaml", text))


@generated
@given(RIGHT, FLAGS)
@example(
    {"image": "a", "drivers": [{"type": "CRI", "threads": 1, "iterations": 1}], "commands": ["run", "pause"]},
    DefinitionFlags(),
)
def test_a_valid_definition_converts_to_the_same_plan(tmp_path, definition, flags):
    """Both plans are equal, whatever the names, options and flags are."""
    scenarios = both(tmp_path / "old.yaml", definition, flags)
    if scenarios is not None:
        direct, converted = scenarios
        assert converted.treatments == direct.treatments
        assert converted.document == direct.document
        assert len(direct.treatments) >= len(definition["drivers"])


@generated
@given(WRONG, FLAGS)
def test_no_definition_causes_a_crash(tmp_path, definition, flags):
    """It is refused with the place of every problem, or it is valid."""
    both(tmp_path / "old.yaml", definition, flags)
