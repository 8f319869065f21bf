"""A program of the user's that plain processes run: its file is recorded, and a comparison tells of another one."""

import hashlib
import json

from workspace import Workspace

PROGRAM = "#!/bin/sh\nexec sleep 0.01 # build {}\n"


def test_two_runs_with_different_builds_of_a_program_are_told_so(tmp_path):
    """Each run has path and digest of its file; that they differ stands beside the verdict and refuses nothing."""
    program = tmp_path / "tool"
    with Workspace(tmp_path) as workspace:
        job = {"operations": ["run", "wait", "remove"], "container": {"command": [str(program)]}}
        scenario = workspace.scenario(job=job, repeats=3)
        runs = []
        for build in ("one", "two"):
            program.write_text(PROGRAM.format(build))
            program.chmod(0o755)
            made = workspace.run(scenario)
            digest = hashlib.sha256(program.read_bytes()).hexdigest()
            [host] = made.document["hosts"]
            assert host["programs"]["native"] == {f"program {program}": str(program), f"sha256 {program}": digest}
            report = workspace.master("report-scenario", "-s", made.stats, "-v").out
            assert f"sha256 {digest[:12]}" in " ".join(report.split())
            runs.append((made.stats.rename(tmp_path / f"{build}.stats.gz"), digest[:12]))
        (old, one), (new, two) = runs
        ended = workspace.master("compare", old, new, "--format", "json")
        assert ended.status == 0, ended.err
        compared = json.loads(ended.out)
        name = f"program {program} of native"
        [told] = [each for each in compared["environment"]["differences"] if each["name"] == name]
        assert told["level"] == "warning"
        assert told["values"] == {"earlier": f"sha256 {one}", "new": f"sha256 {two}"}
        shown = "".join(workspace.master("compare", old, new).out.split())  # a long path is broken at any letter
        assert f"{program} of native: sha256 {one} -> sha256 {two} (warning)".replace(" ", "") in shown
        accepted = json.loads(workspace.master("compare", old, new, "--accept", name, "--format", "json").out)
        assert {each["name"]: each["level"] for each in accepted["environment"]["differences"]}[name] == "accepted"
