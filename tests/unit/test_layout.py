"""The memory layout of plain processes: drawn for each trial from the run's seed, alike on both sides, or fixed."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from bench_common.layout import MAX_ENVIRONMENT_BYTES, MAX_PATH_CHARS, NO_LAYOUT, draw_layout
from bench_master.plan import make_plan
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_worker.pipe_channel import RunContext
from bench_worker.run_engines import RunEngines

SCENARIO = """\
name: layout
engines: [native, docker]
repeats: 4
job: {operations: [run, remove], container: {image: weighbridge/base, command: [x]}}
"""


def plan_of(text=SCENARIO, seed=7):
    """Make the plan of a scenario."""
    return make_plan(parse_scenario(Source("layout.yaml", text)), seed)


def layouts(plan):
    """Return the layout of each trial of plain processes."""
    return {
        trial.index: draw_layout(seed, trial.index)
        for trial in plan.trials
        if (seed := plan.treatments[trial.treatment].layout_seed) is not None
    }


def test_plain_processes_have_another_layout_in_each_trial():
    """The seed of the run draws it for each trial of native jobs, and for no container."""
    plan = plan_of()
    assert [one.layout_seed for one in plan.treatments] == [7, None]
    drawn = layouts(plan)
    assert len(drawn) == 4
    assert len(set(drawn.values())) == 4


def test_layout_follows_from_seed_and_trial():
    """Whoever has the stats file can draw the layouts again; another seed draws others."""
    assert layouts(plan_of()) == layouts(plan_of())
    assert layouts(plan_of()) != layouts(plan_of(seed=8))
    # The draws of a file must stay what they were.
    assert draw_layout(7, 0) == draw_layout(7, 0) != draw_layout(7, 1)


@pytest.mark.parametrize("place", ["", "job: "])
def test_fixed_layout_is_the_same_in_all_trials(place):
    """`layout: fixed` turns it off, for the scenario or for a job."""
    text = SCENARIO + "layout: fixed\n" if not place else SCENARIO.replace("job: {", "job: {layout: fixed, ")
    assert [one.layout_seed for one in plan_of(text).treatments] == [None, None]


def test_both_sides_draw_from_one_distribution():
    """Of 2,000 trials of two treatments in turns each side has every eighth of a page about equally often."""
    draws = [draw_layout(3, trial) for trial in range(4000)]
    assert {one.path_chars for one in draws} == set(range(MAX_PATH_CHARS + 1))
    for side in (draws[::2], draws[1::2]):
        eighths = Counter(one.environment_bytes * 8 // (MAX_ENVIRONMENT_BYTES + 1) for one in side)
        assert sorted(eighths) == list(range(8))
        # Each has 250 on average, with a standard deviation of 15.
        assert all(175 < count < 325 for count in eighths.values()), eighths


def test_engine_has_the_layout_of_the_trial():
    """An engine that is open gets it when a trial begins, one that opens later when it opens."""
    treatments = {one.index: one for one in plan_of().treatments}
    opened = {}

    def open_engine(name, options):
        del options
        return opened.setdefault(name, SimpleNamespace(layout=NO_LAYOUT))

    context = RunContext("r", "w", 1, noop=False, keep=False, allow_host_mounts=False, allow_native=True)
    engines = RunEngines(context, treatments, open_engine)
    engines.begin_trial(treatments[0], 0)
    engines.of(treatments[0])
    assert opened["native"].layout == draw_layout(7, 0)
    engines.begin_trial(treatments[0], 2)
    assert opened["native"].layout == draw_layout(7, 2)
    engines.begin_trial(treatments[1], 3)
    assert opened["native"].layout == NO_LAYOUT


def test_stats_file_has_the_seed_of_the_layouts():
    """The header has each treatment with the seed by which its layouts are drawn."""
    stored = [json.loads(json.dumps(one.to_dict())) for one in plan_of().treatments]
    assert [one.get("layout_seed") for one in stored] == [7, None]
