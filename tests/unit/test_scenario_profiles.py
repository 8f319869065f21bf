"""Profiles: the same scenario at another scale, checked as strictly, and never mistaken for the full one."""

import pytest

from bench_common.errors import ScenarioError
from bench_master.cli import run_command_line
from bench_master.scenario import builtin_scenarios
from bench_master.scenario.load import load_scenario, parse_scenario
from bench_master.scenario.published import matches_labels
from bench_master.scenario.yaml_tree import Source

TEXT = """\
name: primes
repeats: 30
matrix: {params.threads: [1, 2, 4]}
jobs:
  cpu: {workload: sysbench-cpu}
profiles:
  small: {repeats: 2, jobs.cpu.params.time: 1s, matrix.params.threads: [1]}
  named: {name: tiny}
"""


def load(*overrides, text=TEXT):
    """Return the scenario with overrides."""
    return parse_scenario(Source("s.yaml", text), overrides)


def problems(*overrides, text=TEXT):
    """Return what is wrong."""
    with pytest.raises(ScenarioError) as caught:
        load(*overrides, text=text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("overrides", [(), ("scale=full",)])
def test_without_a_profile_the_scenario_is_as_written(overrides):
    """`full` is the scale of what stands in the file."""
    scenario = load(*overrides)
    assert (scenario.name, scenario.scale, scenario.profiles) == ("primes", "full", ("small", "named"))
    assert scenario.repeats == (30, 30, 30)
    assert not any("scale" in note for note in scenario.notes)


def test_a_profile_sets_its_keys_and_the_name_says_so():
    """Each key is set as `--set` would set it; the name and a note tell of it."""
    scenario = load("scale=small")
    assert (scenario.name, scenario.scale, scenario.repeats) == ("primes (small)", "small", (2,))
    assert scenario.treatments[0].job.params["time"] == 1.0
    expected = "scale small: the profile sets repeats, jobs.cpu.params.time, matrix.params.threads"
    assert expected in scenario.notes


def test_a_note_names_a_few_of_the_keys_that_a_profile_sets():
    """It stands above the answer of each run; the plan has the values of all."""
    more = TEXT.replace("small: {", "small: {warmup: 0, sampling_interval: 1s, ")
    expected = "scale small: the profile sets warmup, sampling_interval, repeats and 2 more"
    assert expected in load("scale=small", text=more).notes


def test_a_profile_may_name_the_run():
    """The name that a profile gives stands as it is."""
    assert load("scale=named").name == "tiny"


@pytest.mark.parametrize("overrides", [("scale=small", "repeats=7"), ("repeats=7", "scale=small")])
def test_other_overrides_have_the_last_word(overrides):
    """Whatever the order, a profile is applied before the command line's own overrides."""
    assert load(*overrides).repeats == (7,)


def test_the_file_may_choose():
    """`scale` in the file is applied, and `--set scale=full` takes it back."""
    text = TEXT + "scale: small\n"
    assert load(text=text).scale == "small"
    assert load("scale=full", text=text).repeats == (30, 30, 30)


def test_the_document_is_the_scenario_at_its_scale():
    """What is saved with a run has the profile applied and loads to the same, profiles or not."""
    document = load("scale=small", "repeats=3").document
    assert document["repeats"] == 3
    assert document["name"] == "primes (small)"
    assert not {"profiles", "scale"} & document.keys()


@pytest.mark.parametrize(
    ("overrides", "text", "message"),
    [
        (("scale=smal",), TEXT, "--set scale=smal: the scenario has no profile 'smal' (did you mean 'small'?)"),
        (
            ("scale=x",),
            "name: a\njob: {workload: mbw}\n",
            "--set scale=x: the scenario has no profile 'x'; the profiles are: full",
        ),
        (
            ("scale=s",),
            "name: a\njob: {workload: mbw}\nprofiles:\n  s: {jb.params.runs: 3}\n",
            "s.yaml:4:7: unknown key 'jb' in the scenario (did you mean 'job'?)",
        ),
        (
            ("scale=s",),
            "name: a\njob: {workload: mbw}\nprofiles:\n  s: {scale: t}\n",
            "s.yaml:4:7: a profile cannot set 'scale': remove it",
        ),
        ((), "name: a\njob: {workload: mbw}\nprofiles: {s: 5}\n", "s.yaml:3:15: '5': expected a profile"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(overrides, text, message):
    """An unknown profile, and what is wrong inside of one, has its line and column."""
    assert any(one.startswith(message) for one in problems(*overrides, text=text))


def test_validate_scenario_checks_every_profile(tmp_path, capsys):
    """A mistake in a profile is found before somebody needs it."""
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    assert run_command_line(["validate-scenario", "-f", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"{path} with --set scale=small: ok, 1 treatment, 2 trials\n" in out
    path.write_text(TEXT.replace("repeats: 2", "repeats: two"))
    assert run_command_line(["validate-scenario", "-f", str(path)]) == 2
    assert f"with --set scale=small: {path}:7:20: 'two': expected a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("name", builtin_scenarios())
def test_every_ready_scenario_has_a_small_size(name):
    """One name for all of them; fewer trials, and beside a published figure where the full size is."""
    full, small = load_scenario(name), load_scenario(name, ["scale=small"])
    assert sum(small.repeats) + sum(small.warmup) < sum(full.repeats) + sum(full.warmup) or name == "host/packing"
    if full.published is not None:
        rows = full.published["rows"]
        assert any(matches_labels(row, one.labels) for row in rows for one in small.treatments)
