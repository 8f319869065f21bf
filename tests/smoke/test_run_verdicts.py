"""Verdicts of real runs: from the scenario's keys to the report, with native processes."""

import json

from bench_common.stats.block_types import StoredVerdicts

LIFECYCLE = ["run", "wait", "remove"]


def comparison(document):
    (only,) = document["verdicts"]["comparisons"]
    return only


def test_a_run_ends_with_what_may_be_said_of_its_treatments(workspace):
    """Baseline, margin and measure go from the scenario to the file and the report; options override them."""
    scenario = workspace.scenario(
        job={"operations": LIFECYCLE, "container": {"command": ["sleep", "0.1"]}, "primary": "wait.mean"},
        matrix={"container.command": [["true"], ["sleep", "0.1"]]},
        iterations=1,
        repeats=6,
        baseline={"command": "sleep 0.1"},
        margin="5%",
    )
    wrong = workspace.refused("run-scenario", "-f", scenario, "--workers", 1, "--baseline", "comand=true")
    assert len(wrong.errors) == 1
    assert "did you mean 'command'?" in wrong.errors[0]

    run = workspace.run(scenario)
    only = comparison(run.document)
    assert (only["name"], only["rounds"], only["lost"]) == ("true", 6, 0)
    assert run.header.verdicts == StoredVerdicts({"command": "sleep 0.1"}, 0.05)
    assert [each.primary for each in run.header.treatments] == ["wait.mean", "wait.mean"]
    found = run.document["verdicts"]
    assert found["question"] == "Command against sleep 0.1: wait time (mean of a trial), margin 5 %"
    # Each stamp is exact or late by a known time: the interval covers that.
    assert only["band"]["why"] == "clock"
    assert only["low"] <= only["band"]["low"]
    assert "sleep 0.1" in found["answer"]

    other = workspace.master(
        "report-scenario", "-s", run.stats, "--format", "json", "--baseline", "command=true", "--margin", "1%"
    )
    turned = json.loads(other.out)
    assert comparison(turned)["name"] == "sleep 0.1"
    assert turned["verdicts"]["family"]["margin"] == 0.01
    typo = workspace.master("report-scenario", "-s", run.stats, "--baseline", "command=sleep 1")
    assert (typo.status, len(typo.errors)) == (2, 1)
    assert "command is one of: true, sleep 0.1" in typo.errors[0]


def test_jobs_that_fail_are_no_survivors(workspace):
    """One treatment fails in every other job: no median is known, and that it fails more often is said by itself."""
    flaky = ["sh", "-c", 'n=$(cat "$COUNT" || echo 0); echo $((n + 1)) > "$COUNT"; exit $((n % 2))']
    scenario = workspace.scenario(
        job={
            "operations": LIFECYCLE,
            "container": {"command": ["true"], "env": {"COUNT": str(workspace.folder / "count")}},
        },
        # The other is the slower one in any case: that the failed jobs took even less or more stays possible.
        matrix={"container.command": [["sleep", "0.1"], flaky]},
        iterations=4,
        repeats=8,
    )
    run = workspace.run(scenario, status=1)
    assert any("threshold failed: jobs.failed is 16" in line for line in run.errors)
    only = comparison(run.document)
    assert (only["verdict"], only["band"]["why"]) == ("inconclusive", "failed")
    assert {"failures", "failure-share"} <= {flag["kind"] for flag in only["flags"]}
    survivors = workspace.master("report-scenario", "-s", run.stats, "--format", "json", "--failures", "at-random")
    left_out = comparison(json.loads(survivors.out))
    assert left_out["high"] is not None
    assert any("left out" in flag["text"] for flag in left_out["flags"])
