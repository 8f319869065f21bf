"""What a resumed run takes from its file, and what of the command line it refuses."""

import pytest
from builders import StatsBuilder, header

from bench_common.errors import UsageError
from bench_master.cli import build_parser
from bench_master.commands.run_options import (
    FIXED_OPTIONS,
    WORKER_OPTIONS,
    restore_options,
    resumed_scenario,
    stored_options,
)
from bench_master.plan import make_plan
from bench_master.run.journal import build_header
from bench_master.run.resume import ResumableRun
from bench_master.scenario import load_scenario
from bench_master.scenario.yaml_tree import builtin_scenarios


def parsed(*words):
    return build_parser().parse_args(["run-scenario", *map(str, words)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def begun(path, *words, **changes):
    """Write the head of a run that was begun with these words; return it, to be resumed."""
    options = stored_options(parsed("-f", "quickstart", *words))
    StatsBuilder(path, header([], [], options=options, **changes)).close()
    return ResumableRun(path)


def test_the_options_of_the_beginning_are_taken(path):
    """Load, seed and workers are those that the run was begun with, without a word."""
    past = begun(path, "--workers", 3, "-u", 6, "-o", 90, "--no-look-ahead", "-k", seed=5)
    arguments = parsed("--resume", path)
    restore_options(arguments, past)
    assert (arguments.workers, arguments.user_count, arguments.operation_count) == (3, 6, 90)
    assert (arguments.look_ahead, arguments.keep, arguments.seed) == (False, True, 5)
    past.close()


def test_who_works_can_be_said_anew(path):
    """Workers on other hosts may take the place of local ones; how many is looked at when they are there."""
    past = begun(path, "--workers", 2, "--environment", "control")
    arguments = parsed("--resume", path, "--expect", 2)
    restore_options(arguments, past)
    assert (arguments.workers, arguments.expect, arguments.environment) == (0, 2, "control")
    past.close()


@pytest.mark.parametrize(
    "words",
    [
        ("--noop",),
        ("-k",),
        ("-u", "7"),
        ("-o", "7"),
        ("-r", "7s"),
        ("--no-look-ahead",),
        ("--batch-size", "7"),
        ("--seed", "8"),
        ("--set", "repeats=2"),
        ("-s", "other.stats.gz"),
    ],
    ids=" ".join,
)
def test_what_would_make_another_run_is_refused(path, words):
    """Each is told by its name, with what to do."""
    past = begun(path, "--workers", 1)
    with pytest.raises(UsageError, match="leave it out"):
        restore_options(parsed("--resume", path, *words), past)
    past.close()


def test_the_same_said_again_is_no_other(path):
    """What is said as it was is accepted."""
    past = begun(path, "-u", 4, "--seed", 7)
    restore_options(parsed("--resume", path, "-u", 4, "--seed", 7, "-s", path), past)
    past.close()


def test_every_option_is_one_or_the_other():
    """The header keeps no option that the command does not have."""
    arguments = parsed("-f", "quickstart")
    assert all(hasattr(arguments, name) for name in (*FIXED_OPTIONS, *WORKER_OPTIONS))
    assert all(getattr(arguments, name) == default for name, default in FIXED_OPTIONS.items())


@pytest.mark.parametrize("name", list(builtin_scenarios()))
def test_a_stored_scenario_is_planned_alike(path, name):
    """What the file holds of a scenario, overrides and all, gives the plan that the run was begun with."""
    scenario = load_scenario(name, ["repeats=3"])
    plan = make_plan(scenario, 11)
    about = {"run_id": "r", "argv": [], "noop": False, "environments": ["here"]}
    options = stored_options(parsed("-f", name))
    StatsBuilder(path, build_header(scenario, plan, **about, options=options)).close()
    past = ResumableRun(path)
    arguments = parsed("--resume", path)
    restore_options(arguments, past)
    past.check_plan(make_plan(resumed_scenario(arguments, past), arguments.seed))
    past.close()


def test_a_scenario_must_be_named_where_nothing_is_resumed(capsys):
    """-f can be left out with --resume alone."""
    with pytest.raises(SystemExit):
        parsed("--workers", 1)
    assert "required: -f/--file" in capsys.readouterr().err
