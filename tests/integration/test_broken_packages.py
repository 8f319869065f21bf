"""A package that registers something of every kind and cannot be imported: named, and nothing else suffers."""

import tomllib

import pytest
import yaml
from places import ROOT

MODULES = {"raises": "raise RuntimeError('no\\nlicence')\n", "exits": "import sys\nsys.exit(0)\n"}
"""Modules that an import does not survive; the second ends who imports it, as a script does."""
REASONS = {"raises": "RuntimeError: no licence", "exits": "the module ends the program that imports it (sys.exit(0))"}
LIFE = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"], "image": "none"}}


def entry_names(how):
    """Return the group of each kind of entry point, with the name of the broken one in it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {group: f"{how}-{group.partition('.')[2].replace('_', '-')}" for group in project["entry-points"]}


@pytest.fixture(params=MODULES)
def how(request, workspace):
    """Install a package that breaks in one way for the programs of a test; return how."""
    site = workspace.folder / "site"
    (site / "broken-1.0.dist-info").mkdir(parents=True)
    (site / "broken_module.py").write_text(MODULES[request.param])
    (site / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    lines = [f"[{group}]\n{name} = broken_module:IT\n" for group, name in entry_names(request.param).items()]
    (site / "broken-1.0.dist-info" / "entry_points.txt").write_text("".join(lines))
    workspace.environ["PYTHONPATH"] = str(site)
    return request.param


def test_a_run_goes_on_without_what_cannot_be_loaded(workspace, how):
    """Its jobs are done and its report is printed; each part that is missing is told once on stderr."""
    run = workspace.run(workspace.scenario())
    assert run.outcomes() == {"done": 1}
    assert "engine=native" in run.out
    told = " ".join(run.err.replace("\n  | ", " ").split())
    for kind in ("run-extensions", "baselines", "dialects", "workloads", "job-kinds"):
        assert told.count(f"{how}-{kind}") == 1, kind
    assert REASONS[how] in told


def test_what_is_asked_of_a_broken_package_is_refused_with_the_reason(workspace, how):
    """Exit code 2 where it is a matter of the command line or a file, 3 where the package has to be repaired."""
    hosts = workspace.folder / "hosts.yaml"
    hosts.write_text(yaml.safe_dump({"hosts": {"a": {"address": "127.0.0.9", "launcher": f"{how}-launchers"}}}))
    told = {
        kind: workspace.master("run-scenario", "-f", workspace.scenario(**keys), "--dry-run", *words)
        for kind, keys, words in (
            ("workloads", {"job": {"workload": f"{how}-workloads"}}, ()),
            ("job-kinds", {"job": {f"{how}-job-kinds": {}}}, ()),
            ("baselines", {}, ("--baseline", f"{how}-baselines")),
        )
    }
    told["commands"] = workspace.master(f"{how}-commands")
    told["launchers"] = workspace.master("fleet", "start", "-i", hosts)
    run = workspace.run(workspace.scenario(engines=[f"{how}-engines"], job=LIFE), status=3)
    told["engines"] = run
    told["reports"] = workspace.master("report-scenario", "-s", run.stats, "--format", f"{how}-reports")
    for kind, ended in told.items():
        said = " ".join(ended.err.replace("\n  | ", " ").split())
        assert ended.status == (3 if kind in {"engines", "reports"} else 2), said
        assert f"{how}-{kind}" in said
        assert REASONS[how] in said
        assert "Traceback" not in said
