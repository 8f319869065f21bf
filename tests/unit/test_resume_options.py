"""Which options a resumed run takes from its stats file, and which it refuses."""

import os

import pytest
from builders import StatsBuilder, header
from msgspec.structs import asdict, fields

from bench_common.cli import read_options
from bench_common.errors import UsageError
from bench_master.cli import build_parser
from bench_master.commands.run_plan import WORKER_OPTIONS, restore_options, resumed_scenario, stored_options
from bench_master.commands.run_scenario import worker_policy
from bench_master.options.load import LoadOptions
from bench_master.options.run import RunOptions, TimeoutOptions, WorkerOptions
from bench_master.plan import make_plan
from bench_master.run.journal import build_header
from bench_master.run.resume import ResumableRun
from bench_master.scenario import load_scenario
from bench_master.scenario.yaml_tree import builtin_scenarios


def parsed(*words):
    return read_options(RunOptions, build_parser(["run-scenario"]).parse_args(["run-scenario", *map(str, words)]))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def started(path, *words, **changes):
    """Write the header of a run that started with these arguments; return it, to be resumed."""
    options = stored_options(parsed("-f", "quickstart", *words))
    StatsBuilder(path, header([], [], options=options, **changes)).close()
    return ResumableRun(path)


def test_the_options_of_the_start_are_restored(path):
    """Load, seed and workers are those that the run started with, without being given again."""
    past = started(path, "--workers", 3, "-u", 6, "-o", 90, "--no-look-ahead", "-k", seed=5)
    options = restore_options(parsed("--resume", path), past)
    load = options.load
    assert (options.workers.local_workers, load.user_count, load.operation_count) == (3, 6, 90)
    assert (load.look_ahead, load.keep, load.seed) == (False, True, 5)
    past.close()


def test_the_workers_can_be_given_again(path):
    """Workers on other hosts may replace local ones; their number is checked once they have connected."""
    past = started(path, "--workers", 2, "--environment", "control")
    options = restore_options(parsed("--resume", path, "--expect", 2), past)
    assert (options.local_workers, options.workers.expect, options.workers.environment) == (0, 2, "control")
    past.close()


@pytest.mark.parametrize(
    ("words", "local", "expected"),
    [
        ((), 1, 1),
        (("--workers", "3"), 3, 3),
        (("--workers", "0"), 0, 1),
        (("--expect", "2"), 0, 2),
        (("--workers", "1", "--expect", "2"), 1, 3),
        (("-i", os.devnull), 0, 1),
        (("--zmq-bind-ip", "0.0.0.0"), 0, 1),
    ],
)
def test_one_local_worker_runs_what_names_no_workers(path, words, local, expected):
    """Only who names other workers, or where to listen for them, gets none here; a resumed run starts the same."""
    options = parsed("-f", "quickstart", *words)
    plan = make_plan(load_scenario("quickstart"), 1)
    policy, _ = worker_policy(plan, options, 1 if "-i" in words else 0)
    assert (options.local_workers, policy.expected) == (local, expected)
    past = started(path, *words)
    again = restore_options(parsed("--resume", path), past)
    assert (again.local_workers, again.workers.expect) == (local, options.workers.expect)
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
        ("--heartbeat-timeout", "5s"),
        ("--reconnect-timeout", "10s"),
    ],
    ids=" ".join,
)
def test_an_option_that_changes_the_run_is_refused(path, words):
    """The error names the option and what to do, also for a value that is the default."""
    past = started(path, "--workers", 1, "--heartbeat-timeout", "6s", "--reconnect-timeout", "11s")
    with pytest.raises(UsageError, match="leave it out"):
        restore_options(parsed("--resume", path, *words), past)
    past.close()


def test_the_same_value_given_again_is_accepted(path):
    """Only a different value is refused."""
    past = started(path, "-u", 4, "--seed", 7)
    words = ("-u", 4, "--seed", 7, "-s", path, "--heartbeat-timeout", "5s")
    restore_options(parsed("--resume", path, *words), past)
    past.close()


def test_the_defaults_are_those_of_the_parser():
    """An option that is not given is told from one that is by the default of its field."""
    options = parsed("-f", "quickstart")
    assert (options.load, options.timeouts, options.workers) == (LoadOptions(), TimeoutOptions(), WorkerOptions())
    assert set(WORKER_OPTIONS) <= {field.name for field in fields(WorkerOptions)}
    of_features = {"container_count", "block_size", "policy", "delete_after"}
    own = asdict(LoadOptions()).keys() | asdict(TimeoutOptions()) | set(WORKER_OPTIONS)
    assert stored_options(options).keys() == own | of_features


@pytest.mark.parametrize("name", list(builtin_scenarios()))
def test_a_stored_scenario_gives_the_same_plan(path, name):
    """The scenario in the stats file, overrides applied, gives the plan that the run started with."""
    scenario = load_scenario(name, ["repeats=3"])
    plan = make_plan(scenario, 11)
    about = {"run_id": "r", "argv": [], "noop": False, "environments": ["here"]}
    options = stored_options(parsed("-f", name))
    StatsBuilder(
        path, build_header(scenario, plan, **about, options=options, trial_jobs=[None] * len(plan.treatments))
    ).close()
    past = ResumableRun(path)
    options = restore_options(parsed("--resume", path), past)
    past.check_plan(make_plan(resumed_scenario(options, past), options.load.seed))
    past.close()


def test_a_scenario_is_required_without_resume(capsys):
    """Only --resume makes -f optional."""
    with pytest.raises(SystemExit):
        parsed("--workers", 1)
    assert "required: -f/--file" in capsys.readouterr().err
