"""The text report: readable in 80 columns for any figures."""

import io

import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire, write_report

from bench_common.records import ErrorRecord, MetricRecord, Outcome
from bench_master.formatting import DEFAULT_WIDTH


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def text_of(path, pctile=95.0, detail="full"):
    out = io.StringIO()
    write_report(path, out, "text", pctile, detail)
    return out.getvalue()


def extreme_run(path, *, noop=True):
    """Write a run in which everything is long, large, missing or hostile, and return its path."""
    names = ("start", "exec-with-a-very-long-name-of-its-own-that-goes-on")
    metric = "a_metric_with_quite_a_long_name_per_second"
    metrics = {metric: {"unit": "transactions/s", "direction": "higher"}, "none": {"unit": "", "direction": "lower"}}
    labels = {"engine": "docker", "memory": "x" * 100, "note": "several words " * 9}
    treatments = [
        treatment_wire(0, labels, names, metrics),
        treatment_wire(1, {**labels, "engine": "podman"}, names, metrics),
        treatment_wire(2, {"engine": "native"}, ()),
    ]
    head = header(
        treatments,
        [(0, 0, False), (1, 0, False), (2, 0, False)],
        noop=noop,
        thresholds=["jobs.failed == 0", "operations.strat.p95_s < 500ms"],
    )
    head["scenario"]["description"] = "word " * 60
    head["scenario"]["path"] = "/a/path/without/spaces" * 8
    builder = StatsBuilder(path, head)
    builder.add("host", host(0, fingerprint={"cpu_model": "CPU " * 40, "memory": 2**40, "hypervisor": "kvm"}))
    builder.add("host", host(1, worker_id="w" * 60, environment=None, engines={}, fingerprint={}))
    huge = 10**17
    builder.add_jobs(
        {"ticket": 2**47, "end_ns": huge},
        {"ticket": 123456789, "end_ns": 1},
        {"ticket": 3, "outcome": Outcome.FAILED, "treatment": 1},
        {"ticket": 5, "outcome": Outcome.LOST, "treatment": 2},
    )
    builder.add_operations(
        {"ticket": 2**47, "operation": 1, "duration_ns": huge},
        {"ticket": 2**47, "operation": 1, "duration_ns": 0},
        {"ticket": 2**47, "operation": 0, "duration_ns": 1},
    )
    builder.writer.metrics(
        [
            MetricRecord(2**47, 0, 0, metric, 1e300),
            MetricRecord(1, 1, 1, metric, -1e-9),
            MetricRecord(1, 1, 1, "b", 0.5),
        ]
    )
    builder.writer.errors(
        [ErrorRecord(3, 1, 1, "exec", "engine", "\x1b[2Jwiped\n" + "y" * 500 + "\n" + "line\n" * 20)]
    )
    columns = {
        "cpu_user_percent": [99.5, 100.0],
        "memory_used_bytes": [2**39, 2**45],
        "disk_read_bytes": [2**40, 2**50],
        "net_sent_bytes": [1, 2],
        "interval_ns": [S, S],
        "time_ns": [S, 2 * S],
    }
    units = {name: "%" if name.endswith("percent") else "B" for name in columns}
    builder.writer.samples(1, "host", columns, units)
    builder.writer.samples(1, "loop", {"time_ns": [S], "busy_share": [1.0], "lag_max_ns": [700 * S]}, {})
    builder.writer.close(footer(status="interrupted", not_started=10**9, warnings=["w" * 200]))
    return path


def test_the_timing_error_is_shown_with_the_load_of_the_workers(path):
    """Beside each treatment: how busy the workers' loops were while its jobs ran, and how late at most."""
    builder = StatsBuilder(path, header([treatment_wire(0, {"engine": "native"}, ("start",))], [(0, 0, False)]))
    builder.add("host", host(0)).add("host", host(1)).add_jobs({"uncertainty_ns": 400_000})
    for worker, busy_ns in ((0, 100_000_000), (1, 320_000_000)):
        place = {"time_ns": [S], "treatment": [0], "trial": [0], "batches": [1]}
        loop = {"span_ns": [S], "busy_ns": [busy_ns], "lag_max_ns": [busy_ns // 100]}
        builder.writer.samples(worker, "batches", {**place, **loop}, {})
    text = text_of(builder.close())
    assert "400 us 400 us 21.0% 3.20 ms" in " ".join(text.split())


def test_no_line_is_longer_than_the_page(path):
    """Long names, huge numbers, long messages and many labels wrap or shorten, at any chosen percentile."""
    for pctile in (50.0, 95.0, 99.0, 99.999):
        lines = text_of(path if path.exists() else extreme_run(path), pctile).splitlines()
        assert [line for line in lines if len(line) > DEFAULT_WIDTH] == []


def test_problems_are_shown_first(path):
    """No-op and incomplete are above the first measure, with every reason; the verdicts alone begin with it, too."""
    text = text_of(extreme_run(path))
    head = text.partition("engine=native")[0]
    assert "*** NO-OP: nothing was executed. The figures show" in head
    assert "*** INCOMPLETE" in head
    notice = " ".join(head.partition("*** INCOMPLETE: ")[2].partition("\n\n")[0].split())
    said, _, command = notice.partition("; continue: ")
    assert said == (
        "the run was interrupted; 1 of the jobs lost; 1,000,000,000 more never started; "
        "2 of 2 trials of 2 treatments not run"
    )
    assert command.replace(" ", "") == f"bench-master run-scenario --resume {path}".replace(" ", "")
    assert "\nWarnings\n--------\n  ! w" in text
    brief = text_of(path, detail="answer")
    assert brief.startswith("INCOMPLETE: the run was interrupted; 1 of the jobs lost; ")
    assert brief.splitlines()[1:] == ["Failed: the baseline docker (2 of 4 jobs). Refused: podman."]


def test_no_message_can_control_the_terminal(path):
    """Control characters of a message are escaped, and a long message is shortened with the number of lines."""
    text = text_of(extreme_run(path))
    assert "\x1b" not in text
    assert "\\u001b[2Jwiped" in text
    assert "... 16 more lines in the stats file" in text


def test_thresholds_are_shown_with_what_failed(path):
    """A threshold that is not met names each measure; one whose measure an incomplete run lacks is undecided."""
    text = " ".join(text_of(extreme_run(path, noop=False)).split())
    assert "FAILED jobs.failed == 0 jobs.failed is 1, wanted == 0 (engine=podman" in text
    words = "no treatment has operations.strat (did you mean 'start'?)"
    assert f"UNDECIDED operations.strat.p95_s < 500ms {words}" in text


def test_metrics_without_values_are_listed_by_name(path):
    """A declared metric without values has no row of dashes, but is not left out silently."""
    assert "missing from every trial: none" in text_of(extreme_run(path))
    assert "missing from every trial" not in text_of(path, detail="page"), "it is no primary metric"


def test_the_overview_has_the_columns_that_it_needs(path):
    """A row for each treatment, a column for each label, for lost jobs if there are any, and each metric."""
    metrics = [{name: {"unit": "MB/s", "direction": "higher"}} for name in ("read", "write")]
    treatments = [treatment_wire(k, {"job": f"j{k}"}, (), metrics[k]) for k in range(2)]
    builder = StatsBuilder(path, header(treatments, [(0, 0, False), (1, 0, False)]))
    builder.add_jobs({"outcome": Outcome.LOST}, {"ticket": 1, "treatment": 1, "trial": 1, "end_ns": S})
    builder.writer.metrics([MetricRecord(1, 1, 1, "write", 80.5)])
    page = text_of(builder.close(footer()), detail="page")
    lines = [" ".join(line.split()) for line in page.splitlines()]
    assert "job done lost jobs/s job p50 job p95 write" in lines
    assert "j0 0 1 n/a n/a n/a n/a" in lines
    assert "j1 1 0 1 1.00 s 1.00 s 80.5 MB/s" in lines
    builder = StatsBuilder(path.with_name("both.stats.gz"), header(treatments, [(0, 0, False), (1, 0, False)]))
    builder.writer.metrics([MetricRecord(0, 0, 0, "read", 2.0), MetricRecord(1, 1, 1, "write", 3.0)])
    page = text_of(builder.close(footer()), detail="page")
    lines = [" ".join(line.split()) for line in page.splitlines()]
    assert "job done read write" in lines
    assert "j0 0 2 MB/s n/a" in lines
    assert "j1 0 n/a 3 MB/s" in lines


def test_a_treatment_of_which_no_job_was_done_has_no_table_of_times(path):
    """Its errors have a section."""
    builder = StatsBuilder(path, header([treatment_wire(0, {"engine": "e"})], [(0, 0, False)]))
    builder.add_jobs({"outcome": Outcome.FAILED, "end_ns": S})
    builder.writer.errors([ErrorRecord(0, 0, 0, "job", "exit-code", "exit code 1")])
    page = text_of(builder.close(footer()), detail="page")
    assert "exit code 1" in page
    assert "stddev" not in page
