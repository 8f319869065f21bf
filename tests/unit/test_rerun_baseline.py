"""`--rerun-baseline`: which treatments of an earlier run run again beside the new ones, and what is refused."""

import json

import pytest
from builders import StatsBuilder, footer, header

from bench_common.errors import UsageError
from bench_master.commands.run_scenario import add_rerun_baseline
from bench_master.plan import make_plan
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

JOB = {"operations": ["run", "wait", "remove"], "iterations": 2, "container": {"image": "web:1", "command": ["true"]}}


def scenario(image="web:2", **keys):
    job = {**JOB, "container": {**JOB["container"], "image": image}, **keys.pop("job", {})}
    return parse_scenario(
        Source("new.yaml", json.dumps({"name": "web", "engines": ["docker"], "repeats": 6, "job": job, **keys}))
    )


def earlier(tmp_path, image="web:1", **keys):
    """Write a stats file of a run of this scenario; return its path."""
    made = scenario(image, **keys)
    head = header([], [], scenario={"name": "web", "path": "gone.yaml", "text": "", "document": dict(made.document)})
    return StatsBuilder(tmp_path / "old.stats.gz", head).close(footer())


def test_old_and_new_run_in_turns(tmp_path):
    """With equal labels but for the build, so that each new treatment is compared with its old one."""
    old = earlier(tmp_path, matrix={"concurrency": [1, 2]}, thresholds=["jobs.failed == 0"])
    both = add_rerun_baseline(scenario(matrix={"concurrency": [1, 2, 4]}), old)
    builds = [(one.index, one.labels["build"], one.concurrency, one.container.image) for one in both.treatments]
    assert builds == [
        (0, "new", 1, "web:2"),
        (1, "new", 2, "web:2"),
        (2, "new", 4, "web:2"),
        (3, "baseline", 1, "web:1"),
        (4, "baseline", 2, "web:1"),
    ]
    assert both.baseline == {"build": "baseline"}
    assert both.repeats == (6,) * 5
    assert len(both.primary) == len(both.warmup) == 5
    rounds = make_plan(both, 1).trials
    assert {trial.treatment for trial in rounds[: len(rounds) // 6]} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({"image": "web:2"}, {}, "both would measure the build that is installed now"),
        ({"engines": ["native"]}, {}, "none of its treatments is in this scenario"),
        ({}, {"job": {"iterations": 5}}, "it measured something else: iterations (2 -> 5); change this scenario"),
        ({}, {"order": "blocked"}, "needs rounds that have both builds"),
    ],
)
def test_what_cannot_run_again(tmp_path, old, new, message):
    """Is one error that says what to do."""
    with pytest.raises(UsageError) as refused:
        add_rerun_baseline(scenario(**new), earlier(tmp_path, **old))
    assert message in str(refused.value)


def test_a_parameter_that_is_accepted(tmp_path):
    """Runs as each scenario says."""
    both = add_rerun_baseline(scenario(job={"iterations": 5}), earlier(tmp_path), {"iterations"})
    assert [one.iterations for one in both.treatments] == [5, 2]


def test_a_file_without_a_scenario(tmp_path):
    """Imported results, and a scenario of which this version knows nothing."""
    head = header([], [], imported={"files": []}, scenario={"name": "x", "document": None})
    path = StatsBuilder(tmp_path / "imported.stats.gz", head).close(footer())
    with pytest.raises(UsageError, match="hold no scenario"):
        add_rerun_baseline(scenario(), path)
    head = header([], [], scenario={"name": "x", "document": {"name": "x", "future": 1}})
    path = StatsBuilder(tmp_path / "future.stats.gz", head).close(footer())
    with pytest.raises(UsageError, match="cannot be run by this version"):
        add_rerun_baseline(scenario(), path)
