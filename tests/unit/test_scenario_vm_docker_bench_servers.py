"""The tests of vm-docker-bench that need a server: as published, and with a place for every measure."""

import csv

import pytest
from places import ROOT

from bench_master.scenario.load import load_scenario
from bench_workloads.ab import WEBBENCH
from bench_workloads.registry import workload
from bench_workloads.script import job_script

FOLDER = ROOT / "scenarios" / "vm-docker-bench"


def published():
    lines = (FOLDER / "published-servers.csv").read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize(
    ("name", "repeats", "expected"),
    [
        (
            "oltp",
            100,
            {
                "test": "read_only",
                "table_size": 1_000_000,
                "threads": 8,
                "time": 60.0,
                "prepare": "each-job",
                "connection": "socket",
            },
        ),
        (
            "iibench",
            25,
            {"max_rows": 1_000_000, "rows_per_report": 100_000, "query_threads": 1, "connection": "socket"},
        ),
        ("ab", 15, {"requests": 1_000_000}),
    ],
)
def test_parameters_are_those_of_the_study(name, repeats, expected):
    """As often, as long, as many."""
    scenario = load_scenario(str(FOLDER / f"{name}.yaml"))
    assert set(scenario.repeats) == {repeats}
    for treatment in scenario.treatments:
        assert expected.items() <= treatment.job.params.items()


@pytest.mark.parametrize(
    ("name", "repeats", "containers", "script"),
    [
        ("boot", 6, {15, 100}, ["create", "start", ("hold", 5.0), "stop", "remove"]),
        ("packing", 1, {15, 100}, ["create", "start", ("hold", 900.0), "stop", "remove"]),
        ("reboot", 5, {15}, ["create", "start", ("hold", 300.0), "stop", "remove", ("sleep", 300.0)]),
    ],
)
def test_the_host_is_packed_with_the_studys_web_server(name, repeats, containers, script):
    """As many of them and as long as its scripts had them, with the host looked at every second."""
    scenario = load_scenario(f"host/{name}")
    assert set(scenario.repeats) == {repeats}
    assert {one.concurrency for one in scenario.treatments} == containers
    assert scenario.sampling_interval_s == 1.0
    for one in scenario.treatments:
        assert (one.container.image, one.container.command) == (WEBBENCH.image, None)
        steps = [
            (step.kind, step.seconds) if step.kind in {"hold", "sleep"} else step.kind for step in job_script(one)
        ]
        assert steps == script


@pytest.mark.parametrize("name", ["oltp", "iibench", "ab"])
def test_each_published_measure_is_one_of_a_treatment_and_of_a_metric(name):
    """What was published can stand beside what is measured: in the same unit, of the same load."""
    treatments = load_scenario(str(FOLDER / f"{name}.yaml")).treatments
    labels = [{key: str(value) for key, value in one.labels.items()} for one in treatments]
    rows = [row for row in published() if row["job"] == name]
    assert {row["where"] for row in rows} == {"bare-metal", "hypervisor", "control"}
    units = {metric.name: metric.unit for metric in workload(treatments[0].job.workload).metrics}
    for row in rows:
        wanted = {key: row[key] for key in ("job", "concurrency") if row[key]}
        assert any(wanted.items() <= one.items() for one in labels)
        assert units[row["metric"]] == row["unit"]
        assert float(row["min"]) <= float(row["median"]) <= float(row["max"])
