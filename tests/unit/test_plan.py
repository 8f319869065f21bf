"""The plan: which trials, in which order, how many jobs, how long; all from the scenario and the seed alone."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.treatment import Lifecycle, Operation, Treatment
from bench_master.plan import DEFAULT_OPERATION_S, estimate_seconds, make_plan
from bench_master.plan_text import ExpectedWorker, job_worker_counts, render_plan
from bench_master.scenario import load_scenario
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.model import Scenario
from bench_master.scenario.yaml_tree import Source


def estimate(plan, workers=1):
    """Return the estimate with so many workers in each treatment."""
    return estimate_seconds(plan, [workers] * len(plan.treatments))


def a_treatment(index=0, **more):
    """Return a treatment that sleeps for two seconds."""
    job = Lifecycle((Operation("sleep", "sleep", seconds=2.0),))
    return Treatment(
        **{"index": index, "labels": {"n": index}, "environment": None, "engine": "x", "job": job} | more
    )


def a_scenario(repeats=(2, 2, 2), warmup=None, order="interleaved", **more):
    """Return a scenario of as many sleeping treatments as there are repeats."""
    return Scenario(
        name="a",
        description="",
        path="a.yaml",
        text="",
        document={},
        treatments=tuple(a_treatment(index, **more) for index in range(len(repeats))),
        repeats=tuple(repeats),
        warmup=tuple(warmup or [0] * len(repeats)),
        order=order,
        seed=None,
        sampling_interval_s=1.0,
        thresholds=(),
    )


def order_of(plan):
    """Return (block, treatment, warm-up) of each trial."""
    return [(trial.block, trial.treatment, trial.warmup) for trial in plan.trials]


def test_each_block_holds_every_treatment_once():
    """Interleaved: a block is a permutation of all treatments, and blocks differ from each other."""
    plan = make_plan(a_scenario(repeats=[20] * 5), seed=1)
    blocks = [[trial.treatment for trial in plan.trials if trial.block == number] for number in range(20)]
    assert all(sorted(block) == [0, 1, 2, 3, 4] for block in blocks)
    assert len({tuple(block) for block in blocks}) > 10


def test_the_seed_decides_and_nothing_else():
    """The same seed gives an equal plan, another seed another order."""
    scenario = a_scenario(repeats=[10] * 4)
    assert make_plan(scenario, 7) == make_plan(scenario, 7)
    assert order_of(make_plan(scenario, 7)) != order_of(make_plan(scenario, 8))


def test_the_order_of_a_seed_does_not_change_between_versions():
    """A saved seed must give the saved order for ever: this one was drawn when the format was laid."""
    plan = make_plan(a_scenario(repeats=[3] * 4), seed=2024)
    assert [trial.treatment for trial in plan.trials] == [2, 0, 1, 3, 3, 2, 0, 1, 2, 1, 3, 0]


def test_as_written():
    """As written: the same rounds without being shuffled."""
    plan = make_plan(a_scenario(repeats=(2, 1), warmup=(1, 0), order="as-written"), 1)
    assert order_of(plan) == [(0, 0, True), (1, 0, False), (1, 1, False), (2, 0, False)]


def test_blocked():
    """Blocked: one treatment after the other, its warm-up first; rounds keep their numbers for pairing."""
    plan = make_plan(a_scenario(repeats=(2, 2), warmup=(1, 1), order="blocked"), 1)
    assert order_of(plan) == [
        (0, 0, True),
        (1, 0, False),
        (2, 0, False),
        (0, 1, True),
        (1, 1, False),
        (2, 1, False),
    ]


def test_a_treatment_with_fewer_repeats_is_in_the_first_blocks_only():
    """Unequal repeats: the early blocks are full, the late ones hold what is left."""
    plan = make_plan(a_scenario(repeats=(1, 3)), 1)
    assert {trial.block for trial in plan.trials if trial.treatment == 0} == {0}
    assert [trial.block for trial in plan.trials if trial.treatment == 1] == [0, 1, 2]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=6),
    st.sampled_from(["interleaved", "blocked", "as-written"]),
    st.integers(0, 2**53),
)
def test_every_order_holds_exactly_the_trials_asked_for(counts, order, seed):
    """Whatever the order: each treatment's trials are complete, warm-ups precede, indices count, blocks pair."""
    repeats, warmup = zip(*counts, strict=True)
    plan = make_plan(a_scenario(repeats, warmup, order), seed)
    assert [trial.index for trial in plan.trials] == list(range(sum(repeats) + sum(warmup)))
    measured = Counter(trial.treatment for trial in plan.trials if not trial.warmup)
    assert [measured[index] for index in range(len(repeats))] == list(repeats)
    for index in range(len(repeats)):
        mine = [trial for trial in plan.trials if trial.treatment == index]
        assert [trial.warmup for trial in mine] == [True] * warmup[index] + [False] * repeats[index]
        assert [trial.block for trial in mine] == sorted({trial.block for trial in mine})
        assert next(trial.block for trial in mine if not trial.warmup) == max(warmup)


@pytest.mark.parametrize(
    ("size", "jobs"),
    [
        ({"iterations": 5, "concurrency": 4}, 60),
        ({"iterations": None, "operation_count": 100, "concurrency": 4}, 100),
        ({"iterations": None, "run_seconds": 9.0}, None),
    ],
)
def test_jobs_of_a_trial(size, jobs):
    """Iterations are per slot of each worker, an operation count is over all of them, time has no count."""
    plan = make_plan(a_scenario([1], **size), 1)
    assert plan.job_count(plan.trials[0], workers=3) == jobs


@pytest.mark.parametrize(
    ("size", "seconds"),
    [
        ({"iterations": 5, "concurrency": 4}, 10.0),
        ({"iterations": None, "operation_count": 100, "concurrency": 4}, 18.0),
        ({"iterations": None, "run_seconds": 9.0}, 9.0),
    ],
)
def test_estimate_of_sleeping_jobs_is_exact(size, seconds):
    """Sleeps and run times are known, and jobs in flight share the time; nothing has to be assumed."""
    plan = make_plan(a_scenario([1, 1], **size), 1)
    assert estimate(plan, 3) == (2 * seconds, [])


def test_estimate_says_what_it_assumes():
    """What an operation costs is not known beforehand, and the estimate says what it took."""
    job = Lifecycle(
        (Operation("run", "run"), Operation("wait", "wait"), Operation("stop", "stop"), Operation("exec", "exec"))
    )
    seconds, assumptions = estimate(make_plan(a_scenario([1], job=job), 1))
    assert seconds == pytest.approx(4 * DEFAULT_OPERATION_S)
    assert any("an operation takes about 100ms" in each for each in assumptions)
    assert any("'wait' end at once" in each for each in assumptions)
    assert any("grace period" in each for each in assumptions)


def test_estimate_counts_each_step_for_itself_and_preparation_once():
    """A step that says how long it takes is not counted as a whole job; what is done once is in no trial."""
    params = "{tables: 2, table_size: 100000, warmup: 5s, time: 7s}"
    text = f"name: a\nrepeats: 3\njob: {{workload: sysbench-oltp, params: {params}}}\n"
    seconds, _ = estimate(make_plan(parse_scenario(Source("s.yaml", text)), 1))
    assert seconds == pytest.approx(10 + 3 * (5 + 7) + (4 + 3 * 5) * DEFAULT_OPERATION_S)


def test_estimate_of_files_counts_making_them_once():
    """Neither the run nor the removal takes as long as making them does."""
    params = "{total_size: 640MiB, file_num: 1000, time: 7s}"
    text = f"name: a\njob: {{workload: sysbench-fileio, params: {params}}}\n"
    seconds, _ = estimate(make_plan(parse_scenario(Source("s.yaml", text)), 1))
    assert seconds == pytest.approx(10 + 7 + 1 + 6 * DEFAULT_OPERATION_S)


def test_estimate_of_a_guest_job_asks_its_workload():
    """A guest job lasts as long as its workload says; an unknown duration is an assumption that the plan shows."""
    text = "name: a\njob: {workload: sysbench-cpu, params: {time: 7s}}\n"
    scenario = parse_scenario(Source("s.yaml", text))
    assert estimate(make_plan(scenario, 1))[0] == pytest.approx(7 + 4 * DEFAULT_OPERATION_S)
    endless = parse_scenario(Source("s.yaml", text), ["job.params={time: 0, events: 5}"])
    assert any("is unknown, assumed" in each for each in estimate(make_plan(endless, 1))[1])


def test_workers_are_divided_among_the_environments():
    """A treatment of one environment is done by the workers of that one: not every worker has a part of it."""
    text = "name: a\nenvironments: [x, y]\nconcurrency: 3\njob: {operations: [{sleep: 1s}]}\n"
    scenario = parse_scenario(Source("s.yaml", text))
    shown = render_plan(scenario, make_plan(scenario, 5), [ExpectedWorker()] * 4)
    assert "2 treatments, 2 trials, 12 jobs" in shown
    said = " ".join(shown.split())
    assert "4; jobs and time assume that 2 of them take part in each treatment: there are 2 environments" in said
    anywhere = load_scenario("lifecycle")
    assert "Workers      4\n" in render_plan(anywhere, make_plan(anywhere, 5), [ExpectedWorker()] * 4)


LENT = "name: a\nenvironments: [{0}]\njob: {{workload: ab, services: {{webbench: {{placement: {1}}}}}}}\n"


@pytest.mark.parametrize(
    ("environments", "place", "workers", "takers"),
    [
        ("local", "local-1", [ExpectedWorker("local-0", "local"), ExpectedWorker("local-1", "local")], (1,)),
        ("local", "local", [ExpectedWorker("local-0", "local"), ExpectedWorker("local-1", "local")], (2,)),
        ("far", "near", [ExpectedWorker("a", "far"), ExpectedWorker("b", "near"), ExpectedWorker("c", "far")], (2,)),
        (
            "far, near",
            "near",
            [ExpectedWorker("a", "far"), ExpectedWorker("b", "near"), ExpectedWorker("c", "near")],
            (1, 2),
        ),
        (
            "far, near",
            "c",
            [ExpectedWorker("a", "far"), ExpectedWorker("b", "near"), ExpectedWorker("c", "near")],
            (1, 1),
        ),
        ("far", "near", [ExpectedWorker()] * 3, (2,)),
        ("far, near", "near", [ExpectedWorker()] * 4, (2, 2)),
        ("far", "b", [ExpectedWorker("a"), ExpectedWorker("b"), ExpectedWorker("c")], (2,)),
        ("far", "near", [ExpectedWorker()], (1,)),
        ("far", "gone", [ExpectedWorker("a", "far")], (1,)),
    ],
)
def test_who_lends_a_service_is_not_counted_among_those_who_take_jobs(environments, place, workers, takers):
    """Unless nobody else is there; named by id, by environment, or by nobody that is known."""
    scenario = parse_scenario(Source("s.yaml", LENT.format(environments, place)))
    assert job_worker_counts(scenario.treatments, workers) == takers


def test_jobs_of_a_treatment_whose_service_is_lent_are_those_of_its_takers():
    """Three workers, of whom one lends: two take jobs, and the plan says why."""
    scenario = parse_scenario(Source("s.yaml", LENT.format("far", "near") + "iterations: 5\n"))
    shown = " ".join(render_plan(scenario, make_plan(scenario, 1), [ExpectedWorker()] * 3).split())
    assert "1 treatment, 1 trial, 10 jobs" in shown
    assert (
        "3; jobs and time assume that 2 of them take part in each treatment: a worker that hosts a service" in shown
    )


def test_notes_thresholds_and_time_limits_are_shown():
    """The plan shows what the user should know before the run: notes, thresholds, trials that time ends."""
    text = (
        "name: a\nengines: [native]\njobs:\n"
        "  x: {operations: [sleep: 1s]}\n"
        "  y: {operations: [sleep: 1s], run_seconds: 5}\n"
        "order: blocked\nthresholds: [jobs.failed == 0]\n"
    )
    scenario = parse_scenario(Source("s.yaml", text))
    shown = render_plan(scenario, make_plan(scenario, 1), [ExpectedWorker()] * 1)
    assert "1 job and all that fit into 1 timed trial" in shown
    assert "for 5s" in shown
    assert "Threshold    jobs.failed == 0" in shown
    assert "fewer than 6 repeats give no 95 % interval" in shown
    assert "0 x 1, 1 x 1" in shown


def test_the_mix_and_the_sizes_of_objects_are_shown_once_for_equal_treatments():
    """What each size class does, how large its objects are and how many there are before the first trial."""
    text = """
        name: store
        engines: [swift, s3]
        operation_count: 40
        job:
          objects:
            classes:
              tiny: {sizes: 4KiB, population: 30, mix: {read: 3, create: 1}, weight: 3}
              wide: {sizes: {min: 1KiB, max: 1MiB, distribution: log}, population: 2000, mix: {delete: 1}}
    """
    scenario = parse_scenario(Source("store.yaml", text))
    shown = " ".join(render_plan(scenario, make_plan(scenario, 1), [ExpectedWorker()]).split())
    assert "Objects tiny, 75 % of the jobs: create 25 %, read 75 %; 4KiB, 30 made before the first trial" in shown
    assert "wide, 25 % of the jobs: delete 100 %; 1KiB to 1MiB (uniform in the logarithm), 2,000 made" in shown
    assert shown.count("made before the first trial") == 2
