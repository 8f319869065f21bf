"""The engines' own cost: the scenario key, samples by trial, the baseline, and the reports."""

import math

import numpy as np
import pytest
from builders import S, overhead_report, sample_report, treatment_report

from bench_common.errors import ScenarioError
from bench_common.stats.rows import SampleColumns
from bench_common.treatment import EngineSampling, OverheadSampling
from bench_features.objects.common.job import Objects
from bench_master.analysis.report_types import as_json
from bench_master.run_data.host_samples import EngineCosts, TrialSpan, TrialSpans, compare_to_baseline
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

JOB = "job: {operations: [run, remove], container: {image: i, command: [x]}}\n"
MIB = 1 << 20
ALL = frozenset({0})


def overhead_of(text):
    return parse_scenario(Source("s.yaml", f"name: a\nengines: [docker, native]\n{JOB}{text}\n")).overhead


def block(rows, source="engine:docker", worker=0):
    """Build samples of (time in s, interval in s, RSS in MiB, CPU in s)."""
    columns = np.array(rows, float).T
    scale = (S, S, MIB, S)
    names = ("time_ns", "interval_ns", "rss_bytes", "cpu_ns")
    found = {n: c * k for n, c, k in zip(names, columns, scale, strict=True)}
    found["time_ns"] = found["time_ns"].astype(np.int64)
    return SampleColumns(worker, source, found, {})


# -- the key ------------------------------------------------------------------------------------------------------


def test_the_overhead_key_enables_sampling():
    """`true` means all defaults; a mapping changes the named settings; without the key nothing is sampled."""
    assert overhead_of("overhead: true") == OverheadSampling(0.5, {}, {})
    assert overhead_of("overhead: false") is None
    assert overhead_of("") is None
    text = "overhead: {interval: 2s, baseline: {engine: native}, cgroups: {docker: /system.slice/docker.service}}"
    assert overhead_of(text) == OverheadSampling(
        2.0, {"engine": "native"}, {"docker": "/system.slice/docker.service"}
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("overhead: yes", "expected true, false"),
        ("overhead: {intervall: 1s}", "did you mean 'interval'?"),
        ("overhead: {interval: 1ms}", "at least 100ms"),
        ("overhead: {baseline: {engine: podman}}", "no treatment matches the baseline engine=podman"),
        ("overhead: {cgroups: {dokcer: /x}}", "'dokcer' cannot be a key here"),
        ("overhead: {cgroups: {docker: x}}", "a control group such as"),
    ],
)
def test_invalid_overhead_settings_are_refused_with_their_place(text, words):
    """Unknown keys, intervals out of range, an invalid baseline, an unknown engine."""
    with pytest.raises(ScenarioError) as refused:
        overhead_of(text)
    assert words in str(refused.value)
    assert "s.yaml:4:" in str(refused.value)


def test_workers_receive_the_engines_and_their_control_groups():
    """Each engine of the plan with its control group, or none if the worker finds its processes."""
    told = OverheadSampling(cgroups={"docker": "/d"}).worker_settings(["docker", "runc"])
    assert told == EngineSampling(0.5, {"docker": "/d", "runc": ""})


def test_servers_are_sampled_by_their_place_and_a_group_is_by_the_engine():
    """Two treatments may use one protocol of different servers."""
    jobs = [Objects((), **place) for place in ({}, {"profile": "lab"}, {"endpoints": ("http://a:1", "http://b:2")})]
    assert [job.cost_name("s3") for job in jobs] == ["s3", "s3@lab", "s3@http://a:1,http://b:2"]
    told = OverheadSampling(cgroups={"s3": "/d"}).worker_settings(["s3", "s3@lab"])
    assert told.engines == {"s3": "/d", "s3@lab": "/d"}


# -- trials -------------------------------------------------------------------------------------------------------


def test_memory_counts_for_the_trial_of_the_reading():
    """Readings between trials, and those in another engine's trial, do not count."""
    costs = EngineCosts(
        TrialSpans([TrialSpan(0, 10 * S, 20 * S, ALL), TrialSpan(1, 30 * S, 40 * S, ALL)]), ["docker", "native"]
    )
    costs.add(block([(5, 1, 900, 0), (12, 1, 100, 0), (18, 1, 200, 0), (25, 1, 900, 0), (35, 1, 900, 0)]))
    measures = as_json(costs.report(0))["rss_bytes"]
    assert measures == {"unit": "B", "n": 2, "mean": 150 * MIB, "min": 100 * MIB, "max": 200 * MIB}
    assert costs.report(1) is None


def test_cpu_time_is_divided_by_overlap():
    """An interval across two trials gives each its part; the mean is all time used by all time covered."""
    costs = EngineCosts(
        TrialSpans([TrialSpan(0, 10 * S, 11 * S, ALL), TrialSpan(1, 11 * S, 14 * S, ALL)]), ["docker", "docker"]
    )
    costs.add(block([(12, 2, 1, 1.0), (13, 1, 1, 0.25)]))
    first, second = (as_json(costs.report(index)) for index in (0, 1))
    assert first["cpu_s"] == pytest.approx(0.5)
    assert first["cpu_percent"]["mean"] == pytest.approx(50.0)
    assert (first["cpu_percent"]["n"], first["cpu_percent"]["max"]) == (0, None)
    assert second["cpu_percent"]["mean"] == pytest.approx(100 * 0.75 / 2)
    assert (second["cpu_percent"]["n"], second["cpu_percent"]["max"]) == (1, pytest.approx(25.0))


def test_idle_hosts_do_not_count_for_a_trial():
    """If environments take turns, readings of the others do not count."""
    spans = [TrialSpan(0, 0, 10 * S, frozenset({0})), TrialSpan(1, 10 * S, 20 * S, frozenset({1, 2}))]
    costs = EngineCosts(TrialSpans(spans), ["docker", "docker"])
    for worker, mib in ((0, 100), (1, 200), (2, 300)):
        costs.add(block([(5, 1, mib, 0.5), (15, 1, mib, 0.25)], worker=worker))
    first, second = (as_json(costs.report(index)) for index in (0, 1))
    assert (first["rss_bytes"]["n"], first["rss_bytes"]["mean"], first["cpu_s"]) == (1, 100 * MIB, 0.5)
    assert (second["rss_bytes"]["n"], second["rss_bytes"]["mean"], second["cpu_s"]) == (2, 250 * MIB, 0.5)


def test_one_worker_of_each_host_counts():
    """All of a host's workers read the same processes; the first of those that ran the trial counts."""
    spans = [TrialSpan(0, 0, 10 * S, frozenset({0, 1, 2})), TrialSpan(0, 10 * S, 20 * S, frozenset({1}))]
    costs = EngineCosts(TrialSpans(spans), ["docker"], {0: "here", 1: "here", 2: "there"})
    for worker in (0, 1, 2):
        costs.add(block([(5, 1, 100 * (worker + 1), 0.5), (15, 1, 1000, 0.25)], worker=worker))
    document = as_json(costs.report(0, 5))
    assert (document["rss_bytes"]["n"], document["rss_bytes"]["min"]) == (3, 100 * MIB)
    assert document["cpu_s"] == pytest.approx(0.5 + 0.5 + 0.25)
    assert document["cpu_per_job_s"] == pytest.approx(0.25)


def test_missing_readings_are_left_out():
    """NaN enters neither a mean nor the CPU time, and host samples are not an engine's."""
    costs = EngineCosts(TrialSpans([TrialSpan(0, 0, 100 * S, ALL)]), ["docker"])
    costs.add(block([(1, 1, math.nan, math.nan), (2, 1, 8, 0.5)]))
    costs.add(block([(3, 1, 1000, 1000)], source="host"))
    document = as_json(costs.report(0))
    assert (document["rss_bytes"]["n"], document["cpu_s"]) == (1, pytest.approx(0.5))


def test_cpu_time_of_the_engine_is_told_for_each_job():
    """All of the measured trials by all of their jobs, so each second counts once; without a job there is none."""
    costs = EngineCosts(TrialSpans([TrialSpan(0, 0, 100 * S, ALL)]), ["docker"])
    costs.add(block([(1, 1, 8, 0.5), (2, 1, 8, 0.25)]))
    assert costs.report(0, 3).cpu_per_job_s == pytest.approx(0.25)
    assert "cpu_per_job_s" not in as_json(costs.report(0, 0))


# -- the baseline -------------------------------------------------------------------------------------------------


def entry(labels, mean, percent):
    overhead = overhead_report(rss_bytes=sample_report(mean=mean), cpu_percent=sample_report(mean=percent))
    return treatment_report(title=str(labels), treatment=labels, overhead=overhead)


def test_the_first_treatment_with_measures_is_the_baseline_unless_one_is_named():
    """The relation is in percent of memory and a factor of CPU."""
    none = treatment_report(treatment={"engine": "native"})
    entries = [none, entry({"engine": "a"}, 100, 10), entry({"engine": "b"}, 150, 5)]
    entries = compare_to_baseline(entries, {})
    assert entries[2].overhead.relative.memory_percent == pytest.approx(50.0)
    assert entries[2].overhead.relative.cpu_factor == pytest.approx(0.5)
    assert entries[1].overhead.relative.cpu_factor == 1.0
    assert entries[0].overhead is None


def test_a_baseline_has_the_other_labels_of_its_treatment():
    """engine=a is compared at the same concurrency, as long as there is such a treatment."""
    entries = [
        entry({"engine": name, "concurrency": count}, 100 * count, 1) for count in (1, 2) for name in ("a", "b")
    ]
    entries.append(entry({"engine": "b", "concurrency": 8}, 800, 1))
    entries = compare_to_baseline(entries, {"engine": "a"})
    changes = [one.overhead.relative.memory_percent for one in entries]
    assert changes == pytest.approx([0, 0, 0, 0, 700])
    assert entries[3].overhead.relative.baseline == "{'engine': 'a', 'concurrency': 2}"


def test_a_baseline_that_used_no_cpu_gives_no_factor():
    """A division by zero is not shown as a number."""
    entries = [entry({"engine": "a"}, 100, 0.0), entry({"engine": "b"}, 100, 5)]
    entries = compare_to_baseline(entries, {"engine": "a"})
    assert entries[1].overhead.relative.cpu_factor is None
