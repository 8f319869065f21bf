"""The host ceiling: its jobs, the place of its trials, and how it is skipped."""

import msgspec
import pytest

from bench_common.job_kind import read_job
from bench_common.treatment import Treatment
from bench_master.cli import run_command_line
from bench_master.plan import host_ceilings, is_host_ceiling, make_plan
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_workloads.script import job_script

TEXT = """\
name: a
engines: [docker]
host_ceiling: true
repeats: 3
warmup: 1
iterations: 4
matrix: {concurrency: [1, 2]}
job: {operations: [run, remove], container: {image: i, command: [x]}}
"""


def scenario(text=TEXT, *overrides):
    return parse_scenario(Source("s.yaml", text), overrides)


def plan_of(*overrides, seed=1):
    return make_plan(scenario(TEXT, *overrides), seed)


def test_the_host_ceiling_runs_before_every_treatment_and_is_listed_after_them():
    """Its trials are first, warm-up included; the treatments keep their indices and their order of trials."""
    plan, without = plan_of(), plan_of("host_ceiling=false")
    assert [one.index for one in plan.treatments] == [0, 1, 2, 3]
    assert plan.treatments[:2] == without.treatments
    assert [trial.treatment for trial in plan.trials[:8]] == [2, 3] * 4
    assert [trial.warmup for trial in plan.trials[:8]] == [True] * 2 + [False] * 6
    rest = [(trial.treatment, trial.block, trial.warmup) for trial in plan.trials[8:]]
    assert rest == [(trial.treatment, trial.block, trial.warmup) for trial in without.trials]


def test_it_has_the_sizes_of_the_treatments():
    """One for each concurrency and size, of a plain process that does nothing."""
    plan = plan_of()
    for ceiling, treatment in zip(plan.treatments[2:], plan.treatments[:2], strict=True):
        assert (ceiling.concurrency, ceiling.iterations) == (treatment.concurrency, treatment.iterations)
        assert ceiling.engine == "native"
        assert ceiling.container.command == ("true",)
        assert [operation.kind for operation in job_script(ceiling)] == ["run", "wait", "remove"]
        assert msgspec.convert(ceiling.to_dict(), Treatment, dec_hook=read_job) == ceiling


def test_its_labels_are_unique():
    """No two ceilings and no treatment share a title; without several concurrencies there is no such label."""
    titles = [one.title for one in plan_of().treatments]
    assert titles[2:] == [
        "engine=native job=(host-ceiling) concurrency=1",
        "engine=native job=(host-ceiling) concurrency=2",
    ]
    assert len(set(titles)) == 4
    one = plan_of("matrix={}", "engines=[native]").treatments
    assert [entry.title for entry in one] == ["engine=native", "engine=native job=(host-ceiling)"]
    assert [is_host_ceiling(entry.labels) for entry in one] == [False, True]


def test_treatments_of_one_size_share_a_host_ceiling_with_the_most_repeats():
    """Two engines at one concurrency need one ceiling; it is repeated as often as the one repeated most."""
    made = scenario(TEXT, "matrix={}", "engines=[docker, native]")
    ceilings, repeats, warmup = host_ceilings(made.treatments, (3, 7), (0, 2))
    assert (len(ceilings), repeats, warmup) == (1, (7,), (2,))


@pytest.mark.parametrize(("flags", "there"), [([], True), (["--skip-host-ceiling"], False), (["--noop"], False)])
def test_the_plan_has_it_unless_it_is_skipped(tmp_path, capsys, flags, there):
    """`--skip-host-ceiling` leaves it out; a no-op run is a ceiling itself."""
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    assert run_command_line(["run-scenario", "-f", str(path), "--workers", "1", "--dry-run", *flags]) == 0
    assert ("(host-ceiling)" in capsys.readouterr().out) == there
