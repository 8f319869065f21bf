"""Runs that go on until their verdicts are settled, and runs that are extended, with real workers."""

import signal

from deadlines import START_S, wait_until
from workspace import NAP, has_started

from bench_common.stats.reader import StatsFile


def events_of(stats, kind):
    """Return the events of a kind that a file has."""
    return [block.body for block in StatsFile(stats).blocks({"event"}) if block.body["kind"] == kind]


def test_an_interrupted_run_goes_on_to_its_last_look(workspace):
    """Resumed, it looks after the rounds that follow, and never later than was fixed before its first look."""
    nap = {**NAP, "container": {"command": ["sleep", "0.03"]}}
    repeats = {"until": "verdict", "at-most": 7, "budget": "1h"}
    scenario = workspace.scenario(
        job=nap, matrix={"container.env.NAME": ["one", "two"]}, repeats=repeats, settle="0.2s"
    )
    program, stats = workspace.start_run(scenario, "--margin", "0.1%")
    wait_until(lambda: has_started(stats) and events_of(stats, "look"), START_S, "a look")
    program.process.send_signal(signal.SIGINT)
    workspace.finish(program, stats, 130)
    (last,) = events_of(stats, "last-look")
    assert (last["last"], last["at_most"]) == (7, 7)
    ended = workspace.master("run-scenario", "--resume", stats, "--margin", "0.1%")
    assert ended.status == 0, ended.err
    looks = [event["rounds"] for event in events_of(stats, "look")]
    assert looks == sorted(set(looks))
    assert (looks[0], looks[-1]) == (5, 7)
    assert events_of(stats, "rounds-over")[0]["rounds"] == 7
    refused = workspace.refused("-q", "run-scenario", "--resume", stats, "--more", "3")
    assert "went on until it was settled" in refused.err


def test_a_complete_run_is_extended_and_judged_more_strictly(workspace):
    """Its rounds are counted on, by the same draw; the report names the level and why."""
    nap = {**NAP, "container": {"command": ["sleep", "0.01"]}}
    scenario = workspace.scenario(job=nap, matrix={"container.env.NAME": ["one", "two"]}, repeats=3, seed=7)
    run = workspace.run(scenario)
    again = workspace.master("run-scenario", "--resume", run.stats, "--more", "4")
    assert again.status == 0, again.err
    verdicts = run.document["verdicts"]
    assert run.document["run_state"] == "complete"
    (found,) = verdicts["comparisons"]
    assert (found["rounds"], verdicts["family"]["alpha"], found["confidence"]) == (7, 0.025, 0.975)
    assert "extended by 8 trials" in str(verdicts["runs"]["flags"])
    assert len(StatsFile(run.stats).header.trials) == 14
    assert [trial["trials"] for trial in run.document["treatments"]] == [{"planned": 7, "run": 7, "left_out": 0}] * 2
    assert "--resume FILE" in workspace.refused("-q", "run-scenario", "-f", scenario, "--more", "3").err
