"""`certify` with real runs: a certificate of a scenario, added to, shown, and named by a later run."""

import json
import signal

import pytest
from deadlines import END_S, LONG_TEST_S, START_S, wait_until

SCENARIO = """
name: short
engines: [native]
container: {command: ["true"]}
jobs: {short: {operations: [run, wait]}}
iterations: 4
warmup: 0
"""


@pytest.mark.timeout(LONG_TEST_S)
def test_a_machine_is_certified_and_its_runs_are_added_to(workspace, monkeypatch):
    """One run within a short budget, then one more; the third is interrupted, and the others stay certified."""
    monkeypatch.setenv("XDG_DATA_HOME", str(workspace.folder / "data"))
    scenario = workspace.folder / "short.yaml"
    scenario.write_text(SCENARIO)
    words = ("bench-master", "certify", "-f", scenario, "--rounds", "6")
    first = workspace.start(*words, "--budget", "1ms", "--keep", workspace.folder / "kept", "--format", "json")
    ended = first.wait_for_exit(3 * END_S)
    assert ended.status == 0, ended
    found = json.loads(ended.out)
    assert (found["rounds"], found["false_words"]["runs"], found["occasions"]) == (6, 1, 1)
    assert {"job.p50", "run.p50"} <= {one["measure"] for one in found["measures"]}
    assert all(one["detectable"]["10"] > 0.0 for one in found["measures"])
    assert found["machine"]["weighbridge_version"]
    assert found["probe"]["chance"] == pytest.approx(1 / 6)
    assert (workspace.folder / "kept" / "0001.stats.gz").exists()

    second = workspace.start(*words, "--between", "--budget", "1h", "--format", "json")
    wait_until(lambda: "run 1: " in second.err, 3 * END_S, "the end of the first run")
    wait_until(lambda: "run 2, " in second.err, START_S, "the second run")
    second.process.send_signal(signal.SIGINT)
    ended = second.wait_for_exit(2 * END_S)
    assert ended.status == 130
    assert "the runs before it are certified" in ended.err
    added = json.loads(ended.out)
    assert added["false_words"]["runs"] >= 2

    shown = workspace.start("bench-master", "certify", "--show")
    ended = shown.wait_for_exit(START_S)
    assert ended.status == 0, ended
    assert f"Certificate {added['id']}" in ended.out
    assert "VOID" not in ended.out

    words = ("-f", scenario, "--workers", "1", "--set", "repeats=1")
    later = workspace.start("bench-master", "-v", "run-scenario", *words)
    ended = later.wait_for_exit(2 * END_S)
    assert ended.status == 0, ended
    assert f"certified  {added['id']} of" in ended.out
