"""The commands that look before a run: what they print, where, and with which exit code."""

import io
import json
import re
import sys

import pytest

from bench_common.thresholds import (
    JOB_FIELDS,
    METRIC_FIELDS,
    OPERATION_FIELDS,
    OVERHEAD_FIELDS,
    OVERHEAD_UNITS,
    RELATIVE_UNITS,
    TRANSFER_FIELDS,
    TRANSFERRED_FIELDS,
)
from bench_master.cli import run_command_line

GOOD = "name: a\nengines: [native]\njob: {operations: [sleep: 1s]}\n"


def test_a_good_scenario_is_ok(tmp_path, capsys):
    """A scenario without problems gives one line and exit code 0."""
    path = tmp_path / "a.yaml"
    path.write_text(GOOD + "repeats: 6\nwarmup: 1\n")
    assert run_command_line(["validate-scenario", "-f", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: ok, 1 treatment, 6 trials and 1 warm-up trial\n"


def test_every_problem_of_every_file_goes_to_stderr(tmp_path, capsys):
    """A bad file does not keep the next from being checked; the exit code is 2."""
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_text("nmae: a\nrepeats: 0\n")
    good.write_text(GOOD)
    assert run_command_line(["validate-scenario", "-f", str(bad), str(good), "-f", "nowhere.yaml"]) == 2
    printed = capsys.readouterr()
    assert printed.out == f"{good}: ok, 1 treatment, 1 trial\n"
    assert f"{bad}:1:1: unknown key 'nmae' in the scenario (did you mean 'name'?)\n" in printed.err
    assert f"{bad}:2:10: '0': expected a whole number" in printed.err
    assert "nowhere.yaml: no such file" in printed.err


def test_overrides_are_checked_too(tmp_path, capsys):
    """--set is applied before the check, and named as the place of its own problems."""
    path = tmp_path / "a.yaml"
    path.write_text(GOOD)
    assert run_command_line(["validate-scenario", "-f", str(path), "--set", "repeats=0"]) == 2
    assert "--set repeats=0: '0': expected a whole number" in capsys.readouterr().err


def test_the_schema_is_printed(capsys):
    """--schema prints one JSON document that names its dialect."""
    assert run_command_line(["validate-scenario", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["repeats"]["default"] == 1


@pytest.mark.parametrize("argv", [[], ["--schema", "-f", "quickstart"]])
def test_a_command_line_without_a_clear_wish_is_refused(argv, capsys):
    """Neither nothing nor everything at once."""
    assert run_command_line(["validate-scenario", *argv]) == 2
    assert capsys.readouterr().err


def test_ready_made_scenarios_are_listed(capsys):
    """Off a terminal the list is tab-separated, one scenario a line, with its description."""
    assert run_command_line(["list", "scenarios"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["SCENARIO", "TREATMENTS", "TIME", "SMALL", "DISK", "IMAGES", "DESCRIPTION"]
    assert ["quickstart", "4", "1m9s", "3.8s", "0", "sysbench base"] in [row[:6] for row in rows]


def test_the_list_says_what_a_scenario_takes(capsys):
    """Time at both scales, the disk that its files fill, and the images; rough, and never silently unknown."""
    assert run_command_line(["list", "scenarios", "--format", "json"]) == 0
    rows = {row["scenario"]: row for row in json.loads(capsys.readouterr().out)}
    study = rows["mysql-on-docker/oltp"]
    assert study["seconds"] > 8 * 3600
    assert study["small_seconds"] < 600
    assert 30e9 < study["disk_bytes"] < 45e9
    assert study["images"] == ["sysbench", "mariadb"]
    # Two engines share no files, and the fifteen treatments of one do.
    assert rows["esxi-vs-hyperv/fileio"]["disk_bytes"] == 2 * (4 << 30)
    assert rows["noop"]["images"] == []
    # Of work that ends a run, and not a time, the speed of published runs gives an estimate.
    assert 3600 < rows["vm-docker-bench/ab"]["seconds"] < 3 * 3600
    assert 3600 < rows["vm-docker-bench/iibench"]["seconds"] < 2 * 3600
    assert run_command_line(["list", "scenarios", "--format", "table"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"mysql-on-docker/oltp +9h30m +55s +39GB", shown)
    assert "SMALL is the time with\n--set scale=small" in shown


def test_scenarios_and_workloads_as_json(capsys):
    """For programs there is JSON."""
    assert run_command_line(["list", "scenarios", "--format", "json"]) == 0
    scenarios = {row["scenario"]: row["treatments"] for row in json.loads(capsys.readouterr().out)}
    assert {"quickstart", "noop"} <= set(scenarios)
    assert all(type(treatments) is int for treatments in scenarios.values())
    assert run_command_line(["list", "workloads", "--format", "json"]) == 0
    assert "sysbench-cpu" in {row["name"] for row in json.loads(capsys.readouterr().out)}


def test_a_workload_shows_its_parameters_and_metrics(capsys):
    """With a name: type, default and help of each parameter; unit, direction and help of each metric."""
    assert run_command_line(["list", "workloads", "sysbench-cpu"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert ["parameter", "time", "duration >= 0s", "10s"] in [row[:4] for row in rows]
    assert ["metric", "events_per_second", "1/s", "higher"] in [row[:4] for row in rows]
    assert run_command_line(["list", "workloads", "sysbench-cpu", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"][0]["name"] == "threads"


def test_an_unknown_workload_gets_the_nearest_spelling(capsys):
    """A misspelt name is an error of usage that names the right one."""
    assert run_command_line(["list", "workloads", "sysbench-cup"]) == 2
    assert "did you mean 'sysbench-cpu'" in capsys.readouterr().err


def test_the_measures_are_listed_with_unit_and_meaning(capsys):
    """All that a threshold may name, and the metrics of the installed workloads; each row has a meaning."""
    assert run_command_line(["list", "measures", "--format", "json"]) == 0
    told = {row["measure"]: row for row in json.loads(capsys.readouterr().out)}
    assert all(row["meaning"] for row in told.values())
    assert told["operations.NAME.p95_s"]["unit"] == "s"
    assert told["overhead.rss_bytes.mean"]["unit"] == "B"
    assert told["events_per_second"]["unit"] == "1/s"
    fields = {name.rpartition(".")[2] for name in told}
    every = (*OPERATION_FIELDS, *METRIC_FIELDS, *JOB_FIELDS, *TRANSFERRED_FIELDS, *TRANSFER_FIELDS, *OVERHEAD_FIELDS)
    assert fields.issuperset((*every, *RELATIVE_UNITS))
    assert set(OVERHEAD_UNITS) <= {name.split(".")[1] for name in told if name.startswith("overhead.")}


def test_standard_input_is_as_good_as_a_file(capsys, monkeypatch):
    """What can be read once, as a pipe, is there again for the profiles."""
    text = GOOD + "profiles: {small: {repeats: 1}, wrong: {repaets: 1}}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run_command_line(["validate-scenario", "-f", "-"]) == 2
    told = capsys.readouterr()
    assert "- with --set scale=small: ok, 1 treatment, 1 trial\n" in told.out
    assert "'repaets'" in told.err
    assert "is empty" not in told.err


def test_an_unknown_measure_of_a_threshold_is_told_with_its_spelling(tmp_path, capsys):
    """The names that the scenario measures follow; job.p95 is known by its short name, as to `primary`."""
    scenario = tmp_path / "s.yaml"
    job = "job: {workload: command, command: ['true'], metrics: {score: {regex: '(1)', unit: s, better: lower}}}"
    scenario.write_text(f"name: s\nengines: [native]\n{job}\nthresholds: [jb.p95x < 1ms, score > 3, job.p95 < 1ms]\n")
    assert run_command_line(["validate-scenario", "-f", str(scenario)]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "unknown measure 'jb.p95x'" in first
    assert "; one of: operations.NAME.FIELD" in first
    assert first.endswith("; operations here: create, job, remove, run, start; metrics here: score")
    assert "unknown measure 'score'; one of: " in second
