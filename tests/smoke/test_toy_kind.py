"""A kind of job from a package of its own: installed beside the program, it runs in a scenario and is in the report.

The package is tests/toy_kind, the worked example of docs/architecture.rst.
"""

import json
import os
import shutil
import tomllib

import pytest
from places import TESTS

TOY = TESTS / "toy_kind"


@pytest.fixture
def installed(tmp_path, workspace):
    """Install the package for the programs of one test, as pip would: its modules, and what it registers."""
    target = tmp_path / "installed"
    shutil.copytree(TOY / "dice_jobs", target / "dice_jobs", ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((TOY / "pyproject.toml").read_text("utf-8"))["project"]
    information = target / "dice_jobs-1.0.dist-info"
    information.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (information / "METADATA").write_text(head)
    groups = project["entry-points"].items()
    lines = [line for group, names in groups for line in (f"[{group}]", *(f"{a} = {b}" for a, b in names.items()))]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")
    known = os.environ.get("PYTHONPATH", "")
    workspace.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(target), known)))


@pytest.mark.usefixtures("installed")
def test_a_kind_from_a_package_runs_in_a_scenario_and_is_in_the_report(workspace, monkeypatch):
    """Its key is checked and varied, its plan told, its jobs run from their seeds, its metric compared."""
    job = {"dice": {"count": 3}, "matrix": {"dice.sides": [6, 20]}}
    scenario = workspace.scenario(engines=["cup"], job=job, operation_count=40, repeats=2)
    plan = workspace.master("run-scenario", "-f", scenario, "--dry-run").out
    assert "Dice         3 of 6 sides (treatments 0)" in plan
    run = workspace.run(scenario)
    # A report needs no package.
    monkeypatch.setitem(workspace.environ, "PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    document = json.loads(workspace.master("report-scenario", "-s", run.stats, "--format", "json").out)
    small, large = document["treatments"]
    assert (small["title"], small["jobs"]["done"]) == ("engine=cup sides=6", 80)
    assert set(small["operations"]) >= {"shake", "throw"}
    assert 3 <= small["metrics"]["pips"]["mean"] <= 18
    assert small["metrics"]["pips"]["mean"] < large["metrics"]["pips"]["mean"] <= 60
    assert "pips" in workspace.master("report-scenario", "-s", run.stats).out


@pytest.mark.usefixtures("installed")
def test_keys_of_a_kind_are_checked_like_any_other(workspace):
    """What is misspelt, out of bounds, of containers alone or under an engine of another kind is refused."""
    broken = {
        "a": {"dice": {"count": 0, "side": 6}},
        "b": {"dice": {}, "container": {"image": "x"}},
        "c": {"dice": {}, "engines": ["native"]},
    }
    scenario = workspace.scenario(engines=["cup"], jobs=broken)
    told = workspace.master("validate-scenario", "-f", scenario)
    assert told.status == 2
    for complaint in (
        "unknown key 'side' in the dice (did you mean 'sides'?)",
        "'0': expected a whole number",
        "'container' has no meaning for a job with dice",
        "engine native runs no jobs with dice",
    ):
        assert complaint in told.err
