"""`--only LABEL=VALUE` runs part of a scenario: the rest of it stays as written."""

import pytest
from builders import header, treatment_wire

from bench_common.cli import CommandParser, read_options
from bench_common.errors import UsageError
from bench_common.stats.reader import StatsWriter
from bench_features.fleet.run_extension import FleetOptions
from bench_master.cli import run_command_line
from bench_master.commands import run_plan, run_scenario
from bench_master.options.load import LoadOptions
from bench_master.options.run import RunOptions
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.selection import select_treatments
from bench_master.scenario.yaml_tree import Source

OF_NATIVE = "metrics.events_per_second.mean > 1 where engine=native"
TEXT = f"""\
name: a
engines: [docker, native]
repeats: 7
baseline: {{engine: native}}
matrix: {{params.threads: [1, 2, 4]}}
jobs:
  cpu: {{workload: sysbench-cpu}}
thresholds:
  - jobs.failed == 0
  - {OF_NATIVE}
"""


def scenario(text=TEXT):
    return parse_scenario(Source("s.yaml", text))


def chosen(*only, text=TEXT):
    return [
        (one.index, one.engine, one.labels["threads"]) for one in select_treatments(scenario(text), only).treatments
    ]


def test_values_of_a_label_are_alternatives_and_labels_narrow():
    """The treatments that are left are numbered anew, as workers expect."""
    assert chosen("engine=docker") == [(0, "docker", 1), (1, "docker", 2), (2, "docker", 4)]
    assert chosen("threads=1", "threads=4", "engine=native") == [(0, "native", 1), (1, "native", 4)]
    assert select_treatments(scenario(), ["engine=docker"]).repeats == (7, 7, 7)
    assert select_treatments(scenario(), []) == scenario()


def test_what_speaks_of_left_out_treatments_is_left_out_with_a_note():
    """A threshold that matches nothing would fail, and a baseline that is not there compares with nothing."""
    selected = select_treatments(scenario(), ["engine=docker"])
    assert selected.thresholds == ("jobs.failed == 0",)
    assert selected.baseline == {}
    assert selected.notes[:3] == (
        "--only engine=docker: 3 of 6 treatments",
        f"threshold '{OF_NATIVE}': left out, because no selected treatment matches it",
        "baseline engine=native: left out, because no selected treatment has it",
    )
    assert select_treatments(scenario(), ["engine=native"]).baseline == {"engine": "native"}


STUDY = """\
name: a
engines: [docker, native]
baseline: {engine: native}
matrix:
  concurrency: [1, 2]
  container.network: [host, bridge]
  exclude: [{engine: native}]
  include:
    - {engine: native, concurrency: 1}
    - {engine: native, concurrency: 2}
job: {operations: [run, remove], container: {image: i, command: [c]}}
"""


@pytest.mark.parametrize(
    ("only", "kept", "note"),
    [
        (["network=host"], ["docker", "docker", "native", "native"], "4 of 6 treatments, 2 of them the baseline"),
        (["network=host", "concurrency=2"], ["docker", "native"], "2 of 6 treatments, 1 of them the baseline"),
        (["concurrency=2"], ["docker", "docker", "native"], "3 of 6 treatments"),
        (["network=host", "engine=docker"], ["docker", "docker"], "2 of 6 treatments"),
    ],
)
def test_a_baseline_without_the_label_stays(only, kept, note):
    """A server on the host has no network of a container, and is what each network is compared with."""
    selected = select_treatments(scenario(STUDY), only)
    assert [one.engine for one in selected.treatments] == kept
    assert selected.notes[0].endswith(f": {note}")
    assert (selected.baseline == {"engine": "native"}) is ("native" in kept)


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["engin=docker"], "--only engin=docker: no treatment has the label 'engin' (did you mean 'engine'?)"),
        (["engine=dockr"], "--only engine=dockr: no treatment has engine 'dockr' (did you mean 'docker'?)"),
        (["threads=9"], "no treatment has threads '9'; threads is one of: 1, 2, 4"),
        (["xyz=1"], "no treatment has the label 'xyz'; the labels are: engine, job, threads"),
        (["=1"], "expected LABEL=VALUE"),
        (["threads="], "expected LABEL=VALUE"),
    ],
)
def test_an_unknown_label_or_value_gets_the_nearest_spelling(only, message):
    """The error quotes the argument."""
    with pytest.raises(UsageError) as refused:
        select_treatments(scenario(), only)
    assert message in str(refused.value)


def test_labels_that_no_treatment_has_together_select_nothing():
    """A native server has no storage to choose."""
    text = TEXT.replace("matrix: {", "matrix: {exclude: [{engine: native, params.threads: 4}], ")
    with pytest.raises(UsageError, match=r"native --only threads=4: no treatment has all of these labels"):
        select_treatments(scenario(text), ["engine=native", "threads=4"])


def test_one_treatment_has_no_verdict_to_wait_for():
    """A run until its verdicts are settled needs two treatments."""
    text = TEXT.replace("repeats: 7", "repeats: {until: verdict}")
    with pytest.raises(UsageError, match=r"one treatment is left, and 'until: verdict' needs two"):
        select_treatments(scenario(text), ["engine=native", "threads=4"])


def test_a_dry_run_shows_the_selected_part(tmp_path, capsys):
    """The plan, its time and its notes are those of the part."""
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    command = ["run-scenario", "-f", str(path), "--workers", "1", "--dry-run", "--only"]
    assert run_command_line([*command, "threads=2"]) == 0
    out = capsys.readouterr().out
    assert "2 treatments, 14 trials" in out
    assert "--only threads=2: 2 of 6 treatments" in out
    assert run_command_line([*command, "threads=3"]) == 2
    assert "threads is one of: 1, 2, 4" in capsys.readouterr().err


def test_a_name_without_a_value_needs_an_inventory(tmp_path, capsys):
    """Without hosts to choose from, a forgotten value is an error and not ignored."""
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    assert run_command_line(["run-scenario", "-f", str(path), "--dry-run", "--only", "engine"]) == 2
    assert "--only engine: expected LABEL=VALUE" in capsys.readouterr().err


def options(*argv):
    parser = CommandParser()
    parser.set_defaults(quiet=False, verbose=False)
    run_scenario.configure(parser)
    return read_options(RunOptions, parser.parse_args(["-f", "s.yaml", *argv]))


def test_labels_and_hosts_share_the_option():
    """A text with = is a label, any other one a host, in any order."""
    given = options("--only", "engine=docker", "--only", "blade-[1-3]", "--only", "threads=1")
    assert given.load.only_labels == ("engine=docker", "threads=1")
    assert given.only == given.extensions.of(FleetOptions).hosts.only == ("blade-[1-3]",)


def test_a_resumed_run_keeps_its_part(tmp_path):
    """The labels are in the stats file; others given now are refused."""
    stored = {"only_labels": ["engine=docker"]}
    restored = run_plan._restore_group(LoadOptions(), stored, tmp_path)
    assert restored.only_labels == ("engine=docker",)
    assert run_plan._restore_group(restored, stored, tmp_path) == restored
    with pytest.raises(UsageError, match=r"^--only: .* started with another value"):
        run_plan._restore_group(LoadOptions(only_labels=("engine=native",)), stored, tmp_path)


def test_an_earlier_run_of_a_part_is_rerun_in_part(tmp_path):
    """`--rerun-baseline` takes the treatments that ran, not those of the whole scenario."""
    whole = scenario()
    path = tmp_path / "x.stats.gz"
    head = header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)])
    head["scenario"]["document"] = dict(whole.document)
    head["options"] = {"only_labels": ["engine=native"]}
    writer = StatsWriter(path)
    writer.put("header", head)
    writer.close()
    earlier = run_scenario._earlier_scenario(path)
    assert [one.engine for one in earlier.treatments] == ["native"] * 3
