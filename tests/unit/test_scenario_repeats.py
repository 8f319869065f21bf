"""The keys ``repeats``, ``settle`` and ``aa``, and the command line's word for them."""

import json

import pytest

from bench_common.cli import read_options
from bench_common.errors import ScenarioError, UsageError
from bench_master.cli import build_parser
from bench_master.options.run import RunOptions
from bench_master.plan import is_host_ceiling, make_plan, more_rounds
from bench_master.plan_text import ExpectedWorker, render_plan
from bench_master.run_extension import scenario_change
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.model import UntilVerdict, is_again
from bench_master.scenario.yaml_tree import Source

UNTIL = {"until": "verdict", "at-most": 20}


def load(change=None, **keys):
    base = {"name": "s", "engines": ["docker", "native"], "job": {"operations": ["run", "wait", "remove"]}}
    return parse_scenario(
        Source("s.yaml", json.dumps({**base, "container": {"image": "busybox", "command": ["true"]}, **keys})),
        change=change,
    )


def complaint(**keys):
    with pytest.raises(ScenarioError) as caught:
        load(**keys)
    return str(caught.value)


def with_options(*words, **keys):
    options = read_options(
        RunOptions, build_parser(["run-scenario"]).parse_args(["run-scenario", "-f", "s.yaml", *words])
    )
    return load(scenario_change(options), **keys)


def test_repeats_may_go_on_until_every_comparison_is_settled():
    """With a limit, and a budget where there is one; a plan has no more rounds than that."""
    scenario = load(repeats={**UNTIL, "budget": "2h"}, warmup=1)
    assert scenario.until_verdict == UntilVerdict(20, 7200.0)
    assert scenario.repeats == (20, 20)
    assert len(make_plan(scenario, 1).trials) == 42
    assert load(repeats={"until": "verdict"}).until_verdict == UntilVerdict(30)
    assert load(repeats=3).until_verdict is None
    assert load(**scenario.document).until_verdict == scenario.until_verdict


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"repeats": {"until": "verdicts"}}, "did you mean 'verdict'?"),
        ({"repeats": {"at-most": 9}}, "key 'until' is missing"),
        ({"repeats": {"until": "verdict", "at_most": 9}}, "did you mean 'at-most'?"),
        ({"repeats": {"until": "verdict", "at-most": 5}}, "at least 6 and at most 60"),
        ({"repeats": [3]}, "expected a whole number"),
        ({"repeats": UNTIL, "order": "blocked"}, "looks at whole rounds"),
        ({"repeats": UNTIL, "engines": ["docker"]}, "needs a second treatment"),
        ({"matrix": {"repeats": [3, UNTIL]}}, "holds for a whole run"),
        ({"settle": "2 hours"}, "s.yaml"),
        ({"aa": "dokcer"}, "did you mean 'docker'?"),
        ({"aa": {"engin": "docker"}}, "no treatment matches engin=docker"),
    ],
)
def test_what_cannot_be_is_reported_at_its_place(keys, message):
    """With the nearest right spelling where there is one."""
    found = complaint(**keys)
    assert message in found
    assert "s.yaml:1:" in found


def test_a_treatment_runs_a_second_time_under_a_hidden_label():
    """In the same rounds as the others, by the value of any label or by labels; the rest is the same."""
    scenario = load(aa="docker", repeats=6, host_ceiling=True)
    assert [is_again(one.labels) for one in scenario.treatments] == [False, False, True]
    first, _, again = scenario.treatments
    assert (again.index, again.job, again.labels["engine"]) == (2, first.job, "docker")
    plan = make_plan(scenario, 1)
    measured = [trial for trial in plan.trials if not is_host_ceiling(plan.treatments[trial.treatment].labels)]
    assert all({trial.treatment for trial in measured if trial.block == block} == {0, 1, 2} for block in range(6))
    assert len(load(aa={"engine": "native"}).treatments) == 3


def test_the_host_settles_for_a_time():
    """None unless it is asked for."""
    assert (load().settle_s, load(settle="2s").settle_s) == (0.0, 2.0)


def test_the_command_line_may_ask_for_it():
    """For any scenario; its limits replace those of a scenario that goes on until it is settled."""
    assert with_options("--until", "verdict", repeats=3).until_verdict == UntilVerdict(30)
    assert with_options("--until", "verdict", repeats=3).repeats == (30, 30)
    assert with_options("--max-rounds", "12", repeats=UNTIL).until_verdict == UntilVerdict(12)
    assert with_options("--budget", "1h", repeats=UNTIL).until_verdict == UntilVerdict(20, 3600.0)
    assert with_options(repeats=UNTIL).until_verdict == UntilVerdict(20)


@pytest.mark.parametrize(
    ("words", "keys", "message"),
    [
        (
            ("--max-rounds", "12"),
            {},
            "--max-rounds 12: the scenario has a fixed number of repeats; add --until verdict",
        ),
        (
            ("--until", "verdict"),
            {"engines": ["docker"]},
            "--until verdict: 'until: verdict' needs a second treatment",
        ),
        (("--until", "verdict"), {"order": "blocked"}, "use 'order: interleaved'"),
    ],
)
def test_an_option_that_cannot_hold_is_refused(words, keys, message):
    """Before anything runs."""
    with pytest.raises(UsageError, match=message):
        with_options(*words, **keys)


def test_the_plan_says_how_long_it_may_go_on():
    """The pause is part of the time, and a budget ends it."""
    scenario = load(repeats={**UNTIL, "budget": "1h"}, settle="60s")
    shown = render_plan(scenario, make_plan(scenario, 1), [ExpectedWorker()])
    assert "Settle       1m after each trial" in shown
    assert "Rounds       until every comparison is settled, at most 20, for 1h: a look after" in shown
    assert "Time         at most about 39" in shown
    scenario = load(repeats={**UNTIL, "budget": "5s"})
    shown = render_plan(scenario, make_plan(scenario, 1), [ExpectedWorker()])
    assert "Time         at most about 5s and the round that is running then" in shown


def test_more_rounds_follow_those_of_the_plan():
    """Drawn by the same seed, as a longer plan would have had them; a host ceiling is not measured again."""
    scenario = load(repeats=4, warmup=1, host_ceiling=True)
    plan = make_plan(scenario, 5)
    added = more_rounds(scenario, plan, 3)
    longer = make_plan(load(repeats=7, warmup=1), 5)
    assert [trial.index for trial in added] == list(range(len(plan.trials), len(plan.trials) + 6))
    assert [(one.treatment, one.block) for one in added] == [(one.treatment, one.block) for one in longer.trials[-6:]]
    assert not any(trial.warmup for trial in added)
