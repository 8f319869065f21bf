"""Runs that go on until their verdicts are settled, with real workers."""

from workspace import NAP

ROUNDS = 10
FAST, SLOW = ["sleep", "0.01"], ["sleep", "0.06"]


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
    run = workspace.run(scenario, "--progress", "lines")
    document = run.document
    assert (run.status, document["run_state"]) == (0, "complete")
    (found,) = document["verdicts"]["comparisons"]
    stopping = document["verdicts"]["design"]["stopping"]
    assert (found["verdict"], stopping["last"], stopping["why"]) == ("slower", ROUNDS, "settled")
    assert stopping["look"] == found["rounds"] <= 8
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
