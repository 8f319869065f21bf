"""How reports say where the time of operations went, and what becomes of an event that says nothing."""

import io
import json

import pytest
from builders import MS, S, StatsBuilder, footer, header, host, treatment_wire
from chart_runs import traced_event

from bench_common.errors import InfrastructureError
from bench_common.stats.reader import StatsFile
from bench_master.options.run import WorkerOptions
from bench_master.reports import ReportSource, report_named
from bench_master.run import explain
from bench_master.run_data.traced_types import TracedTrials, cause_sentence


def stats_of(path, *events):
    """Write a run of one job of each of two engines, and its traced events."""
    treatments = [
        treatment_wire(index, {"engine": engine}, ("start",)) | {"jobs_per_trial": 1}
        for index, engine in enumerate(("docker", "podman"))
    ]
    builder = StatsBuilder(path, header(treatments, [(0, 0, False), (1, 0, False)])).add("host", host(0))
    for trial in range(2):
        at = 1001 * S + trial * S
        times = {"ticket": trial, "treatment": trial, "trial": trial, "start_ns": at}
        builder.add("event", {"at_ns": at, "kind": "trial-begin", "trial": trial, "workers": [0]})
        builder.add_jobs({**times, "end_ns": at + 10 * MS}).add_operations({**times, "duration_ns": 10 * MS})
        builder.add("event", {"at_ns": at + 11 * MS, "kind": "trial-end", "trial": trial})
    for event in events:
        builder.add("event", event)
    counts = {"planned": 2, "done": 2, "failed": 0, "lost": 0, "aborted": 0}
    return StatsFile(builder.close(footer(counts=counts, duration_s=2.0)))


def written(stats, name, detail="page"):
    out = io.StringIO()
    report_named(name).write(ReportSource(stats, detail=detail), out)
    return out.getvalue()


@pytest.fixture
def stats(tmp_path):
    """Return a run of which one treatment was traced."""
    return stats_of(
        tmp_path / "run.stats.gz", traced_event(), traced_event(1, problem="a job failed", phases=[], job=[])
    )


def test_the_details_have_a_table_and_a_chart_in_letters(stats):
    """With -v: each cause with its process and its share, one job as letters, and how the threads were looked at."""
    lines = written(stats, "text", "full").splitlines()
    row = next(line for line in lines if "RCU (network namespace)" in line and "dockerd" in line)
    assert row.split()[0] == "start"
    assert "58.3%" in row.replace(" %", "%")
    chart = next(line for line in lines if line.strip().startswith("start  a"))
    letters = chart.split()[1]
    assert letters.strip("a#b") == ""
    assert abs(letters.count("a") / len(letters) - 7 / 12) < 0.03
    text = " ".join(" ".join(lines).split())
    assert "# on CPU, a RCU (network namespace), b fsync" in text
    assert "5 jobs after the measured ones, one at a time, in no other figure" in text
    assert "start 12.0 ms (10.0 ms)" in text


def test_the_page_has_the_table_and_the_chart(stats):
    """The table's sentence and the chart of one job, at both widths."""
    page = written(stats, "html")
    assert page.count('id="why') >= 1
    assert "start, 12 ms: 3.0 on CPU" in page
    assert "unshare: synchronize_rcu" in page
    assert "not traced: a job failed" in page


def test_json_has_it_as_data(stats):
    """As the event has it, by treatment."""
    found = json.loads(written(stats, "json"))["traced"]
    assert [one["treatment"] for one in found] == [0, 1]
    assert found[0]["phases"] == traced_event()["phases"]
    assert found[0]["job"] == traced_event()["job"]
    assert found[1]["problem"] == "a job failed"


def test_traced_jobs_are_in_no_count(stats):
    """The figures of the run are those of its two measured jobs."""
    document = ReportSource(stats).document
    assert (document.totals.jobs, document.totals.done, document.totals.warmup) == (2, 2, 0)
    assert [one.operations["start"].n for one in document.treatments] == [1, 1]


@pytest.mark.parametrize(
    "changed",
    [
        {"treatment": -1},
        {"treatment": "docker"},
        {"phases": [{"operation": "start"}]},
        {"phases": {"start": 1}},
        {"job": 5},
        {"sampling": {"interval_s": "often"}},
        {"kind": "traced too"},
    ],
)
def test_an_event_that_says_nothing_is_left_out(changed):
    """Damage and malice end no report."""
    trials = TracedTrials()
    trials.add_event(traced_event(**changed))
    assert trials.report(9) == []


def test_the_last_trace_of_a_treatment_counts_and_unknown_treatments_are_left_out():
    """A run that was extended is traced again."""
    trials = TracedTrials()
    for event in (traced_event(problem="no"), traced_event(), traced_event(7)):
        trials.add_event(event)
    (found,) = trials.report(2)
    assert found.problem == ""


def test_a_sentence_names_what_takes_longest_first():
    """Causes of several processes are added up."""
    event = traced_event()
    event["phases"][0]["causes"].append({"cause": "fsync", "process": "dockerd", "seconds": 0.006, "where": ""})
    trials = TracedTrials()
    trials.add_event(event)
    (found,) = trials.report(1)
    assert cause_sentence(found.phases[0]).endswith("8.0 in fsync, 7.0 in RCU (network namespace)")
    event["phases"][0]["causes"].append({"cause": "in the kernel: x", "process": "d", "seconds": 0.009, "where": ""})
    trials.add_event(event)
    (found,) = trials.report(1)
    assert " 9.0 in the kernel: x" in cause_sentence(found.phases[0])


class Plain:
    """As much of a treatment as is asked for."""

    index = 3


def test_workers_on_other_hosts_are_told_and_nothing_runs(monkeypatch):
    """What is traced is the engine of this machine."""
    monkeypatch.setattr(explain, "query_worker", None)
    (event,) = explain.trace_treatments([Plain()], WorkerOptions(), (), elsewhere=True)
    assert (event.kind, event.fields["treatment"]) == ("traced", 3)
    assert "other hosts" in event.fields["problem"]


def test_an_error_of_the_worker_is_told_in_the_report(monkeypatch):
    """The run has its results by then, and they are kept."""

    def fail(*_arguments, **_options):
        raise InfrastructureError("no sampler")

    monkeypatch.setattr(explain, "_query", fail)
    (event,) = explain.trace_treatments([Plain()], WorkerOptions(), (), elsewhere=False)
    assert event.fields == {"treatment": 3, "problem": "no sampler"}
