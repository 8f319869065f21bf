"""Runs that go on until their verdicts are settled, and runs that are extended, with real workers."""

import signal

from attention import undisturbed
from deadlines import START_S, wait_until
from workspace import NAP, has_started

from bench_common.stats.reader import StatsFile

ROUNDS = 10
FAST, SLOW = ["sleep", "0.01"], ["sleep", "0.3"]


def test_a_run_ends_when_its_question_is_settled(workspace):
    """One treatment is much slower, one runs twice: the run stops early, is complete, and its report says why."""
    commands = {"container.command": [FAST, SLOW]}
    scenario = workspace.scenario(
        job=NAP,
        matrix=commands,
        aa="sleep 0.01",
        iterations=2,
        settle="10ms",
        repeats={"until": "verdict", "at-most": ROUNDS},
    )

    def settled():
        run = workspace.run(scenario, "--progress", "lines")
        (found,) = run.document["verdicts"]["comparisons"]
        stopping = run.document["verdicts"]["design"]["stopping"]
        assert (found["verdict"], stopping["last"], stopping["why"]) == ("slower", ROUNDS, "settled")
        assert stopping["look"] == found["rounds"] <= 8
        return run, found

    run, found = undisturbed(settled, limit_s=0.005)
    document = run.document
    assert (run.status, document["run_state"]) == (0, "complete")
    # The second run of a treatment is the noise floor, and no treatment.
    assert len(document["treatments"]) == 2
    assert document["verdicts"]["runs"]["noise_floor"]["rounds"] == found["rounds"]
    assert (run.header["settle_s"], run.header["until_verdict"]["at_most"]) == (0.01, ROUNDS)
    events = run.blocks("event")
    looks = [event for event in events if event["kind"] == "look"]
    assert [look["rounds"] for look in looks] == list(range(5, found["rounds"] + 1))
    assert looks[-1]["settled"] == [0, 1, 2]
    skipped = [event for event in events if event["kind"] == "trial-skipped"]
    assert {event["reason"] for event in skipped} == {"settled"}
    assert len(skipped) == 3 * (ROUNDS - found["rounds"])
    ends = {event["trial"]: event["at_ns"] for event in events if event["kind"] == "trial-end"}
    begins = {event["trial"]: event["at_ns"] for event in events if event["kind"] == "trial-begin"}
    assert all(begins[trial] - ends[trial - 1] >= 10_000_000 for trial in begins if trial)


def test_equal_treatments_are_not_called_different(workspace):
    """The same command under two names, until settled by the command line: whatever is said is within the noise."""
    scenario = workspace.scenario(job=NAP, matrix={"container.env.NAME": ["one", "two"]}, repeats=1)
    run = workspace.run(scenario, "--until", "verdict", "--max-rounds", "6", "--budget", "1h")
    (found,) = run.document["verdicts"]["comparisons"]
    assert (run.status, run.document["run_state"]) == (0, "complete")
    # One run in thirty may call even these different, but never by much.
    assert found["low"] < 1.1
    assert found["high"] > 0.9
    assert run.document["verdicts"]["design"]["stopping"]["last"] == 6


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
    assert len(StatsFile(run.stats).header["trials"]) == 14
    assert [trial["trials"] for trial in run.document["treatments"]] == [{"planned": 7, "run": 7, "left_out": 0}] * 2
    assert "--resume FILE" in workspace.refused("-q", "run-scenario", "-f", scenario, "--more", "3").err
