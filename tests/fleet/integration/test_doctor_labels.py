"""The doctor on engines under labels: of the command line, and of the hosts of an inventory."""

import json
import shutil

from runtime_bench import require
from workspace import Workspace

from bench_worker.engines.oci.runtimes import CrunEngine

LIFE = {"operations": ["run", "remove"], "container": {"rootfs": "/", "command": ["true"]}}


def of_label(findings, label):
    """Return level and text of what is said of an engine."""
    engines = [one for one in findings if one["check"] == "engine"]
    return [(one["level"], one["finding"]) for one in engines if label in one["finding"]]


def test_a_label_is_checked_like_an_engine(tmp_path):
    """A scenario may name it; a program that is not there is a problem for it."""
    require(CrunEngine)
    program = shutil.which("crun")
    with Workspace(tmp_path) as workspace:
        scenario = workspace.scenario(engines=["mine"], job=LIFE)
        given = ("doctor", "-f", scenario, "--format", "json")
        unknown = workspace.master(*given)
        assert unknown.status == 2
        assert "unknown engine 'mine'" in unknown.err
        there = workspace.master(*given, "--engine", f"mine=crun:{program}")
        [(level, finding)] = of_label(json.loads(there.out), "mine")
        assert (level, finding.split()[0]) == ("ok", "mine")
        missing = workspace.master(*given, "--engine", f"mine=crun:{tmp_path}/none")
        assert missing.status == 3
        [(level, finding)] = of_label(json.loads(missing.out), "mine")
        assert level == "problem"
        assert f"{tmp_path}/none" in finding


def test_labels_of_an_inventory_are_checked_on_their_hosts(tmp_path):
    """The host that lacks the label of the scenario is unfit; the label needs no option."""
    require(CrunEngine)
    with Workspace(tmp_path) as workspace:
        inventory = tmp_path / "hosts.yaml"
        has = {"launcher": "local", "engines": {"mine": f"crun:{shutil.which('crun')}"}}
        inventory.write_text(json.dumps({"hosts": {"has": has, "lacks": {"launcher": "local"}}}))
        scenario = workspace.scenario(engines=["mine"], job=LIFE)
        given = ("doctor", "-i", inventory, "--format", "json")
        told = json.loads(workspace.master(*given).out)["hosts"]
        assert "mine" in told["has"]["engines"]
        assert "mine" not in told["lacks"]["engines"]
        checked = workspace.master(*given, "-f", scenario)
        assert checked.status == 3
        told = json.loads(checked.out)["hosts"]
        assert [level for level, _ in of_label(told["has"]["findings"], "mine")] == ["ok"]
        assert of_label(told["lacks"]["findings"], "mine") == [
            ("problem", "mine: this host has no engine under this label")
        ]
        everywhere = workspace.master(*given, "-f", scenario, "--engine", f"mine=crun:{shutil.which('crun')}")
        told = json.loads(everywhere.out)["hosts"]
        assert [level for level, _ in of_label(told["lacks"]["findings"], "mine")] == ["ok"]
