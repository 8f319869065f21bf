"""The keys ``primary``, ``baseline`` and ``margin`` of a scenario, and the options that override them."""

import pytest

from bench_common.errors import ScenarioError, UsageError
from bench_master.analysis.verdict_options import VerdictOptions, baseline_labels, margin
from bench_master.options.verdict import apply_verdict_options
from bench_master.plan import make_plan
from bench_master.run.journal import build_header
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

JOB = "job: {operations: [create, start, sleep: 1s, remove], container: {image: i, command: [x]}}\n"


def load(text, job=JOB):
    return parse_scenario(Source("s.yaml", f"name: a\nengines: [docker, podman]\n{job}{text}\n"))


def guest(params, text=""):
    return load(text, f"job: {{workload: sysbench-cpu, params: {{{params}}}}}\n")


PACKED = "job: {operations: [create, start, hold: 1s, remove], container: {image: i, command: [x]}}\n"


def problem(read, *args):
    with pytest.raises(ScenarioError) as refused:
        read(*args)
    (only,) = refused.value.problems
    return str(only)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (JOB, "job.p50"),
        (JOB + "rate: 5/s\noperation_count: 40\n", "response.p95"),
        ("job: {workload: sysbench-cpu}\n", "events_per_second"),
        ("job: {workload: sysbench-cpu, params: {rate: 5}}\n", "latency_avg_ms"),
        ("job: {workload: sysbench-fileio}\n", "mib_per_second"),
        (f"{PACKED}until: memory < 10%\n", "containers"),
        (PACKED, "start.p50"),
        (PACKED.replace("create, start", "run, sleep: 1s"), "run.p50"),
    ],
)
def test_the_default_follows_from_the_kind_of_job(job, expected):
    """A measure that the scenario fixes is none; a rate of events fixes the events per second."""
    assert set(load("", job).primary) == {expected}


def test_a_job_has_a_primary_measure_of_its_own():
    """It is written in one way, and inherited from the top level."""
    assert set(load("primary: operations.start.p95_s").primary) == {"start.p95"}
    own = JOB.replace("job: {", "job: {primary: jobs_per_s, ")
    assert set(load("primary: start.p95", own).primary) == {"jobs_per_s"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("primary: strat.p50", "s.yaml:4:10: 'primary': unknown measure 'strat.p50' (did you mean 'start.p50'?)"),
        ("primary: sleep.p50", "the scenario says how long 'sleep' lasts; use another measure, such as job.p50"),
        ("primary: response.p50", "only jobs that arrive at a 'rate' have a response time"),
        ("primary: containers", "the job packs no containers"),
        ("margin: 3", "a percentage such as 3%"),
        ("margin: 80%", "at most 50%"),
        ("baseline: {engine: dokcer}", "s.yaml:4:11: no treatment matches the baseline engine=dokcer (did you mean"),
        ("baseline: {engin: docker}", "unknown label 'engin' (did you mean 'engine'?)"),
    ],
)
def test_what_cannot_be_compared_is_refused_at_its_place(text, words):
    """With line and column, the reason and the nearest spelling."""
    assert words in problem(load, text)


def test_how_many_containers_the_scenario_asks_for_is_no_result():
    """A verdict on their number would be one on an input; where a condition ends the packing it is a result."""
    assert "without 'until' the scenario says how many" in problem(load, "primary: containers", PACKED)
    assert set(load("primary: containers\nuntil: memory < 10%", PACKED).primary) == {"containers"}


@pytest.mark.parametrize(
    ("params", "measure", "reason"),
    [
        ("time: 2s", "job.p50", "the parameter 'time' fixes it"),
        ("time: 2s", "run.p50", "the parameter 'time' fixes it"),
        ("time: 2s", "jobs_per_s", "the parameter 'time' fixes it"),
        ("time: 2s", "total_time_s", "the parameter 'time' fixes it"),
        ("time: 0, events: 100", "total_events", "the parameter 'events' fixes it"),
        ("rate: 10", "events_per_second", "the parameter 'rate' fixes it"),
    ],
)
def test_what_a_parameter_fixes_tells_no_treatments_apart(params, measure, reason):
    """The duration of a run that ends after a time, and what such a run counts or is given."""
    assert reason in problem(guest, params, f"primary: {measure}")


def test_what_a_parameter_leaves_open_can_be_compared():
    """The time that a number of events takes, and the engine's own part of a guest job."""
    assert set(guest("time: 0, events: 100", "primary: job.p50").primary) == {"job.p50"}
    assert set(guest("time: 2s", "primary: create.p50").primary) == {"create.p50"}


def test_the_header_keeps_baseline_margin_and_measures():
    """The command line overrides the scenario, so that a later report says the same."""
    scenario = load("baseline: {engine: podman}\nmargin: 5%\nhost_ceiling: true")
    about = {"run_id": "r", "argv": [], "noop": False, "environments": ["here"], "options": {}}

    def header(one):
        return build_header(one, make_plan(one, 1), **about, trial_jobs=[1, 1, 1])

    head = header(scenario)
    assert head["verdicts"] == {"baseline": {"engine": "podman"}, "margin": 0.05}
    assert [one["primary"] for one in head["treatments"]] == ["job.p50", "job.p50", None]
    chosen = VerdictOptions(baseline={"engine": "docker"}, margin=0.01)
    assert header(apply_verdict_options(scenario, chosen))["verdicts"] == {
        "baseline": {"engine": "docker"},
        "margin": 0.01,
    }
    assert apply_verdict_options(scenario, VerdictOptions()) == scenario
    with pytest.raises(UsageError, match="did you mean 'engine'"):
        apply_verdict_options(scenario, VerdictOptions(baseline={"enigne": "docker"}))


@pytest.mark.parametrize(("text", "option"), [("", False), ("allow_failures: true", False), ("", True)])
def test_the_header_says_whether_jobs_may_fail(text, option):
    """By the key or the option: a later report ends with the same exit code."""
    scenario = apply_verdict_options(load(text), VerdictOptions(allow_failures=option))
    about = {"run_id": "r", "argv": [], "noop": False, "environments": ["here"], "options": {}}
    head = build_header(scenario, make_plan(scenario, 1), **about, trial_jobs=[1, 1])
    assert head["allow_failures"] is bool(text or option)


def test_options_are_read():
    """Several labels, a percentage; anything else is refused with what was expected."""
    assert baseline_labels("engine=docker, network=host") == {"engine": "docker", "network": "host"}
    assert margin("2.5%") == 0.025
    for read, text, words in (
        (baseline_labels, "docker", "such as engine=docker"),
        (baseline_labels, "a=1,a=2", "given twice"),
        (margin, "3", "did you mean '3%'"),
        (margin, "0%", "more than 0%"),
        (margin, "few", "such as 3%"),
    ):
        with pytest.raises(Exception, match=words):
            read(text)
