"""Real runs against each other: two, five and a sixth that is slower by construction, old and new in turns."""

import json

import pytest
from workspace import Workspace

pytestmark = pytest.mark.alone

LENGTH_S, SLOWER = 0.3, 1.1


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    with Workspace(tmp_path_factory.mktemp("comparisons")) as made:
        yield made


def job(command):
    return {"operations": ["run", "wait", "remove"], "container": {"command": command}}


@pytest.fixture(scope="module")
def runs(workspace):
    """Five runs of one build, and one of a build that takes 10 % longer, of the same scenario."""
    build = workspace.folder / "build"
    scenario = workspace.scenario(job=job(["sh", "-c", f'sleep "$(cat {build})"']), repeats=4)
    archive = workspace.folder / "archive"
    archive.mkdir()
    found = []
    for number in range(6):
        build.write_text(f"{LENGTH_S * (SLOWER if number == 5 else 1):.3f}")
        made = workspace.run(scenario, "-R")
        found.append(made.stats.rename(archive / f"{number}.stats.gz") if number < 5 else made.stats)
    return found


def compare(workspace, *words, status=0):
    ended = workspace.master("compare", *words, "--format", "json")
    assert ended.status == status, ended.err
    return json.loads(ended.out)


def test_two_runs_of_one_scenario_are_refused(workspace, runs):
    """However narrow the intervals within them are; the shift that would explain the difference is named."""
    alike, slower = compare(workspace, *runs[:2]), compare(workspace, runs[0], runs[5])
    assert alike["answer"].startswith("REFUSED")
    assert slower["comparisons"][0]["verdict"] == "refused"
    assert slower["comparisons"][0]["tipping"] == pytest.approx(SLOWER - 1, abs=0.1)
    text = workspace.master("compare", runs[0], runs[5]).out
    assert "A shift of" in text
    assert "make both builds treatments of one scenario" in " ".join(text.split())


def test_a_sixth_run_that_is_slower_is_found(workspace, runs):
    """By five earlier ones, in `compare` and in the report of the run itself."""
    (comparison,) = compare(workspace, runs[0].parent, runs[5])["comparisons"]
    assert comparison["verdict"] == "slower"
    assert comparison["ratio"] == pytest.approx(SLOWER, abs=0.07)
    report = workspace.master("report-scenario", "-s", runs[5], "--baseline", runs[0].parent)
    assert "Against earlier runs" in report.out
    assert "SLOWER" in report.out


def test_old_and_new_in_turns(workspace, runs):
    """The old build, whose command the old file has, and the new one: one run with a verdict of its own."""
    changed = workspace.scenario(job=job(["sleep", f"{LENGTH_S * 3:.3f}"]), repeats=3)
    (workspace.folder / "build").write_text(f"{LENGTH_S}")
    program, stats = workspace.start_run(changed, "--rerun-baseline", runs[0])
    made = workspace.finish(program, stats)
    verdicts = made.document["verdicts"]
    (comparison,) = verdicts["comparisons"]
    assert (comparison["name"], comparison["verdict"]) == ("new", "slower")
    assert verdicts["design"]["order"] == "interleaved"
    assert comparison["ratio"] == pytest.approx(3, abs=0.3)
    again = workspace.master("run-scenario", "--resume", stats)
    assert again.status == 0
