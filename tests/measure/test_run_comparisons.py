"""Real runs against each other: two, five and a sixth that is slower by construction, old and new in turns."""

import json
import statistics
import tempfile
from pathlib import Path

import pytest
from attention import undisturbed
from workspace import Run, Workspace

pytestmark = pytest.mark.alone  # five lanes that begin processes disturbed five rounds of five

LENGTH_S, SLOWER = 0.2, 4
"""So much slower that it is seen on a machine on which such a length is once 0.2 s and once 0.25 s."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    with Workspace(tmp_path_factory.mktemp("comparisons")) as made:
        yield made


def job(command):
    return {"operations": ["run", "wait", "remove"], "container": {"command": command}}


def level(stats, treatment=0):
    """Return how long a treatment's jobs took: their length, and what this machine needed besides."""
    run = Run(0, "", "", stats)
    return statistics.median(
        job["duration_s"] for job in run.jobs if run.header["trials"][job["trial"]][0] == treatment
    )


def compare(workspace, *words):
    ended = workspace.master("compare", *words, "--format", "json")
    assert ended.status == 0, ended.err
    return json.loads(ended.out)


@pytest.fixture(scope="module")
def runs(workspace):
    """Five runs of one build, and one of a build that is slower, of the same scenario: which is found out."""
    build = workspace.folder / "build"
    scenario = workspace.scenario(job=job(["sh", "-c", f'sleep "$(cat {build})"']), repeats=4)

    def make():
        archive = Path(tempfile.mkdtemp(dir=workspace.folder))
        found = []
        for number in range(6):
            build.write_text(f"{LENGTH_S * (SLOWER if number == 5 else 1):.3f}")
            made = workspace.run(scenario, "-R")
            found.append(made.stats.rename(archive / f"{number}.stats.gz") if number < 5 else made.stats)
        (by_five,) = compare(workspace, archive, found[5])["comparisons"]
        assert by_five["verdict"] == "refused"
        assert "too few occasions: earlier runs of 5 can carry a word; here 1" in by_five["reason"]
        usual = statistics.geometric_mean(map(level, found[:5]))
        assert by_five["ratio"] == pytest.approx(level(found[5]) / usual, rel=0.1)
        (by_one,) = compare(workspace, found[0], found[5])["comparisons"]
        assert by_one["tipping"] == pytest.approx(level(found[5]) / level(found[0]) - 1, rel=0.1)
        return found

    return undisturbed(make, limit_s=0.005)


def test_five_runs_of_one_occasion_refuse_a_word_on_the_sixth(workspace, runs):
    """Made shortly after one another they are one, in `compare` (see `runs`) and in the report of the run itself."""
    report = workspace.master("report-scenario", "-s", runs[5], "--baseline", runs[0].parent)
    assert "1 run against 5 earlier runs" in report.out
    assert "REFUSED" in report.out
    assert "too few occasions" in " ".join(report.out.split())


def test_old_and_new_in_turns(workspace, runs):
    """The old build, whose command the old file has, and the new one: one run with a verdict of its own."""
    changed = workspace.scenario(job=job(["sleep", f"{LENGTH_S * 2 * SLOWER:.3f}"]), repeats=3)
    (workspace.folder / "build").write_text(f"{LENGTH_S}")

    def make():
        program, stats = workspace.start_run(changed, "--rerun-baseline", runs[0])
        verdicts = workspace.finish(program, stats).document["verdicts"]
        (comparison,) = verdicts["comparisons"]
        assert (comparison["name"], comparison["verdict"]) == ("new", "slower")
        assert verdicts["design"]["order"] == "interleaved"
        old, new = sorted(level(stats, treatment) for treatment in (0, 1))
        assert comparison["ratio"] == pytest.approx(new / old, rel=0.1)
        return stats

    again = workspace.master("run-scenario", "--resume", undisturbed(make, limit_s=0.005))
    assert again.status == 0
