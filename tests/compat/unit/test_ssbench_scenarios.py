"""Scenario files of ssbench: recognised, planned unchanged, translated with every key, refused with their places."""

import json
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench_common.cli import read_options
from bench_common.errors import ScenarioError, UsageError
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_master.cli import build_parser, run_command_line
from bench_master.options.load import LoadOptions, settle_load_options
from bench_master.options.run import RunOptions
from bench_master.run_extension import scenario_change
from bench_master.scenario.dialects import load_scenario_or_definition, scenario_text
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.model import DefinitionFlags
from bench_master.scenario.yaml_tree import Source

DATA = Path("tests/data/ssbench")
FILES = sorted(path.name for path in DATA.glob("*.scenario"))
LARGE = {"demo_test.scenario": 20_000, "large_test.scenario": 1000}
"""Files with objects of 100 MB and more, with their operations."""
WHOLE = {
    "name": "Whole",
    "sizes": [
        {"name": "tiny", "size_min": 4096, "size_max": 65536},
        {"name": "big one", "size_min": 100, "size_max": 100, "crud_profile": [0, 2.5, 0, 0]},
        {"name": "unused", "size_min": 1, "size_max": 2},
    ],
    "initial_files": {"tiny": 100, "big one": 10, "unused": 0},
    "operation_count": 500,
    "run_seconds": 90,
    "crud_profile": [3, 4, 2, 2],
    "user_count": 7,
    "container_base": "base",
    "container_count": 12,
    "container_concurrency": 3,
    "policy": "gold",
    "delete_after": 3600,
    "nonsense": True,
}
YAML = """\
name: Small test scenario
sizes:
- name: tiny
  size_min: 4096
  size_max: 65536
- name: small
  size_min: 100000
  size_max: 200000
initial_files:
  tiny: 100
  small: 10
operation_count: 500
crud_profile: [3, 4, 2, 2]
user_count: 7
"""


def saved(tmp_path, document):
    path = tmp_path / "old.scenario"
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=1))
    return str(path)


def changed(**changes):
    """Return the whole scenario with other values; None leaves a key out."""
    return {key: value for key, value in {**WHOLE, **changes}.items() if value is not None}


def problems(path, **options):
    with pytest.raises(ScenarioError) as caught:
        load_scenario_or_definition(path, **options)
    return [str(problem) for problem in caught.value.problems]


def test_there_are_eight_files():
    assert len(FILES) == 8


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_planned_unchanged(name, capsys):
    assert run_command_line(["run-scenario", "-f", str(DATA / name), "--dry-run", "--workers", "1"]) == 0
    document = json.loads((DATA / name).read_text())
    scenario = load_scenario_or_definition(str(DATA / name))
    (treatment,) = scenario.treatments
    assert (scenario.origin.tool, scenario.name) == ("ssbench", document["name"])
    assert (treatment.engine, scenario.repeats, scenario.user_count) == ("swift", (1,), document["user_count"])
    assert treatment.operation_count == document.get("operation_count")
    assert treatment.run_seconds == document.get("run_seconds")
    job = treatment.job
    assert isinstance(job, Objects)
    assert {one.name: one.population for one in job.classes} == document["initial_files"]
    assert [(one.sizes.minimum, one.sizes.maximum) for one in job.classes] == [
        (one["size_min"], one["size_max"]) for one in document["sizes"]
    ]
    assert (job.container_base, job.containers) == (document["container_base"], document["container_count"])
    assert "1 treatment, 1 trial" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "operations"), LARGE.items())
def test_a_large_file_is_made_small_by_set(name, operations):
    path = str(DATA / name)
    assert load_scenario_or_definition(path).treatments[0].operation_count == operations
    smaller = ["operation_count=50", "job.objects.classes.large.population=1", "job.objects.classes.large.sizes=1MB"]
    (treatment,) = load_scenario_or_definition(path, smaller).treatments
    large = next(one for one in treatment.job.classes if one.name == "large")
    assert (treatment.operation_count, large.population, large.sizes) == (50, 1, Sizes("fixed", 10**6, 10**6))


@pytest.mark.parametrize("name", FILES)
def test_the_converted_file_is_the_scenario_that_runs(name, tmp_path):
    text, lost = scenario_text(str(DATA / name))
    direct = load_scenario_or_definition(str(DATA / name))
    assert parse_scenario(Source("new.yaml", text)).treatments == direct.treatments
    assert lost == direct.untranslated
    assert all(note in " ".join(text.replace("\n#  ", "").split()) for note in lost)


def test_every_key_is_carried_over_or_noted(tmp_path):
    path = saved(tmp_path, WHOLE)
    scenario = load_scenario_or_definition(path)
    (treatment,) = scenario.treatments
    assert treatment.job == Objects(
        classes=(
            SizeClass(
                "tiny",
                Sizes("uniform", 4096, 65536),
                (("create", 3.0), ("read", 4.0), ("update", 2.0), ("delete", 2.0)),
                100.0,
                100,
            ),
            SizeClass("big-one", Sizes("fixed", 100, 100), (("read", 2.5),), 10.0, 10),
        ),
        container_base="base",
        containers=12,
        policy="gold",
        delete_after_s=3600,
        retries=10,
        retry_pause_s=treatment.job.retry_pause_s,
    )
    assert (treatment.run_seconds, treatment.operation_count, treatment.concurrency) == (90.0, None, 7)
    notes = "\n".join(scenario.untranslated)
    for text in (
        "'nonsense' is not a key of an ssbench scenario: ignored, as in ssbench",
        "'operation_count' has no effect beside 'run_seconds', as in ssbench",
        "'container_concurrency' is not carried over",
        "class 'unused' has no 'initial_files'",
        "class 'big one' is called 'big-one' here",
    ):
        assert text in notes
    assert all(note.startswith(f"{path}:") for note in scenario.untranslated)


def test_no_class_takes_the_name_of_another(tmp_path):
    """Also where two names differ in what a scenario cannot have, or one is what the other becomes."""
    names = ["4 KB", "4/KB", "4-KB-3", "4\u00a0KB", "\u00b5", "size-"]
    sizes = [{"name": name, "size_min": 1, "size_max": number + 1} for number, name in enumerate(names)]
    path = saved(tmp_path, changed(sizes=sizes, initial_files=dict.fromkeys(names, 1)))
    (treatment,) = load_scenario_or_definition(path).treatments
    found = {one.name: one.sizes.maximum for one in treatment.job.classes}
    assert list(found.values()) == [1, 2, 3, 4, 5, 6]
    assert {found["4-KB"], found["4-KB-3"], found["size-"]} == {1, 3, 6}
    assert "class '4/KB' is called '4-KB-" in "\n".join(load_scenario_or_definition(path).untranslated)


def test_the_example_of_its_readme_is_loaded(tmp_path):
    """It is YAML, which ssbench's own loader refuses, and leaves out what has a default."""
    (treatment,) = load_scenario_or_definition(saved(tmp_path, YAML)).treatments
    assert (treatment.job.container_base, treatment.job.containers, treatment.concurrency) == ("ssbench", 100, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"crud_profile": [1, 2, 3]}, "expected the weights of CREATE, READ, UPDATE and DELETE"),
        ({"crud_profile": [0, 0, 0, 0]}, "at least one is above 0"),
        ({"crud_profile": None}, "class 'tiny' has no 'crud_profile', and the scenario has none either"),
        (
            {"initial_files": {"tiny": 1, "tinny": 1}},
            "'initial_files': class 'tinny' is not defined in 'sizes'",
        ),
        ({"initial_files": {"tiny": 0}}, "'initial_files' are all 0"),
        ({"sizes": []}, "an empty list"),
        ({"sizes": [WHOLE["sizes"][0]] * 2, "initial_files": {"tiny": 1}}, "two size classes are called 'tiny'"),
        ({"sizes": [{"name": "tiny", "size_min": 9, "size_max": 8}], "initial_files": {"tiny": 1}}, "is larger than"),
        ({"user_count": None}, "'user_count' is missing: add it, such as user_count: 4, or give -u 4"),
        ({"user_count": 0}, "expected a whole number, at least 1"),
        ({"operation_count": None, "run_seconds": None}, "'operation_count' is missing: add it or 'run_seconds'"),
        ({"initial_files": None}, "'initial_files' is missing"),
        ({"user_cuont": 4}, "unknown key 'user_cuont'"),
        ({"container_base": "x" * 50}, "40 at most"),
    ],
)
def test_a_problem_names_its_place(tmp_path, changes, message):
    path = saved(tmp_path, changed(**changes))
    found = problems(path)
    assert any(message in problem for problem in found), found
    assert all(problem.startswith(f"{path}:") for problem in found)


def test_what_the_command_line_gives_may_be_missing_in_the_file(tmp_path):
    path = saved(tmp_path, changed(user_count=None, operation_count=None, run_seconds=None))
    scenario = load_scenario_or_definition(path, flags=DefinitionFlags(user_count=5, run_seconds=120.0))
    assert (scenario.user_count, scenario.treatments[0].run_seconds) == (5, 120.0)
    scenario = load_scenario_or_definition(path, flags=DefinitionFlags(user_count=5, operation_count=9))
    assert scenario.treatments[0].operation_count == 9


def options_of(*words):
    return read_options(RunOptions, build_parser(["run-scenario"]).parse_args(["run-scenario", "-f", "x", *words]))


def change_of(*words):
    return partial(scenario_change, options_of(*words))


def load_of(tmp_path, *words):
    """Return the treatment of the whole scenario under options of the command line, and the options as they apply."""
    scenario = load_scenario_or_definition(saved(tmp_path, WHOLE), change=change_of(*words))
    (treatment,) = scenario.treatments
    return treatment, settle_load_options(scenario, options_of(*words).load)


def test_the_flags_have_the_precedence_of_ssbench(tmp_path):
    """-r before -o, both before the file's own; users of the file are those of all workers, as with -u."""
    treatment, options = load_of(tmp_path, "-o", "5", "-r", "30")
    assert (treatment.run_seconds, treatment.operation_count, options.user_count) == (30.0, None, 7)
    treatment, options = load_of(tmp_path, "-o", "5", "-u", "3")
    assert (treatment.run_seconds, treatment.operation_count, options.user_count) == (None, 5, 3)


def test_the_flags_change_the_jobs(tmp_path):
    treatment, _ = load_of(tmp_path, *["-c", "80", "-b", "4KiB", "-p", "silver", "--delete-after", "60"])
    job = treatment.job
    assert (job.containers, job.block_bytes, job.policy, job.delete_after_s) == (80, 4096, "silver", 60)
    treatment, _ = load_of(tmp_path, "--delete-after", "0")
    assert treatment.job.delete_after_s is None


def test_both_sizes_on_the_command_line_are_refused_for_other_scenarios():
    both = change_of("-o", "5", "-r", "30")
    with pytest.raises(UsageError, match="--run-seconds 30s: not allowed with -o 5"):
        load_scenario_or_definition("noop", change=both)
    scenario = load_scenario_or_definition("noop")
    with pytest.raises(UsageError, match="--container-count 3: the scenario has no jobs on objects"):
        load_scenario_or_definition("noop", change=change_of("-c", "3"))
    varied = ["matrix.objects.block=[4KiB, 8KiB]"]
    with pytest.raises(UsageError, match=r"--block-size 5: the matrix varies 'objects.block'; use --set 'matrix.obj"):
        load_scenario_or_definition("objects/quick", varied, change=change_of("-b", "5"))
    with pytest.raises(UsageError, match="--policy a/b: "):
        load_scenario_or_definition("objects/quick", change=change_of("-p", "a/b"))
    assert settle_load_options(replace(scenario, user_count=4), LoadOptions()).user_count == 4


def test_the_command_line_of_its_documentation_is_planned(capsys):
    argv = ["run-scenario", "-f", str(DATA / "small_test.scenario"), "-u", "4", "-c", "80", "-o", "613"]
    assert run_command_line([*argv, "--pctile", "50", "--workers", "2", "--dry-run", "-b", "64KiB", "-k"]) == 0
    out = capsys.readouterr().out
    assert "613 jobs" in out
    assert "swift" in out


@pytest.mark.parametrize(("flag", "value"), [("-b", "0"), ("-b", "x"), ("-c", "0"), ("--delete-after", "-1")])
def test_a_bad_value_of_a_flag_is_refused(flag, value, capsys):
    with pytest.raises(SystemExit) as caught:
        run_command_line(["run-scenario", "-f", str(DATA / "small_test.scenario"), flag, value])
    assert caught.value.code == 2
    assert flag in capsys.readouterr().err


def test_flags_of_bucketbench_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--legacy applies to bucketbench definitions only"):
        load_scenario_or_definition(saved(tmp_path, WHOLE), flags=DefinitionFlags(legacy=True))


def test_a_scenario_of_our_own_with_sizes_is_none_of_ssbench(tmp_path):
    path = saved(tmp_path, "name: a\nsizes: 3\njob: {operations: [sleep: 1s]}\n")
    assert any("unknown key 'sizes'" in problem for problem in problems(path))
