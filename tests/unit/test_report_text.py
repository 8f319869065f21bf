"""The text report: readable in 80 columns for any figures."""

import io

import pytest
from builders import MS, S, StatsBuilder, footer, header, host, lifecycle_run, treatment_wire, write_report

from bench_common.records import ErrorRecord, MetricRecord, Outcome
from bench_master.formatting import DEFAULT_WIDTH


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def text_of(path, pctile=95.0, detail="full"):
    out = io.StringIO()
    write_report(path, out, "text", pctile, detail)
    return out.getvalue()


TOP = """\
Weighbridge report: quickstart
==============================

Engines against docker: job time (p50 of a trial), margin 3 %

  Inconclusive against docker (103 ms): native (10.5 ms). Jobs failed: docker (1
    of 3 jobs: exit code 3: no such table).

  engine  verdict       job p50  difference  range of the rounds  rounds
  native  INCONCLUSIVE  10.5 ms  9.90x less  [9.90, 9.90]              2
      2 rounds are too few; 1 round lost
  docker  the baseline   103 ms

  Trust: fair, 2 rounds are too few (1 more below). On host blade1, in this run.
  3 rounds in drawn order.
  ! engine=docker: 1 of 3 jobs failed; counted as the worst both ways
PASSED
Errors
------
  1 x exec: exit-code (engine=docker), such as job 6:
      exit code 3: no such table

"""
"""What the first page and the whole report begin with."""
PASSED = "  checks passed: no differences in parameters, versions or hosts\n"
"""What only the whole report has in it."""

GOLDEN = f"""\
{TOP.replace("PASSED", PASSED)}Comparisons
-----------
  comparison  jobs  lost
  native         1     1

Run
---
Life cycle and CPU

  run        20260102-030405-abcdef, 2026-01-02 03:04:05 UTC, took 1m
  scenario   scenarios/quickstart.yaml
  order      interleaved, seed 7
  jobs       5 done, 1 failed; 2 in warm-up, excluded from all figures
  versions   weighbridge 0.1.0, python 3.11.7
  host       w0 on blade1 (bare-metal), 4 slots; docker 20.10.24, native 1
             6.1.0-18-amd64; Test CPU; 2 threads; 8GiB

In every treatment: environment=bare-metal

engine  done  failed  jobs/s   job p50   job p95  events_per_second
docker     2       1   6.349  102.0 ms  104.0 ms       503 events/s
native     3       0   86.96  10.50 ms  10.70 ms       505 events/s

Side by side
------------
                           docker        native
  start p50               52.0 ms       5.25 ms
  exec p50                25.5 ms       2.62 ms
  remove p50              26.0 ms       2.62 ms
  job p50                  102 ms       10.5 ms
  job p95                  104 ms       10.7 ms
  events_per_second  503 events/s  505 events/s
  jobs/s                    6.349         86.96
  failed                   1 of 3        0 of 3

engine=docker
-------------
  jobs   2 done, 1 failed in 3 trials; 1 in warm-up, excluded
  rate   6.349 jobs/s over 315ms of trials
  timing error <= 50.0us p99, 50.0us max

  operation n err    min   mean stddev    p50    p95     p99    max slowest
  start     3   0 51.0ms 52.0ms 1.00ms 52.0ms 53.0ms 53.0ms? 53.0ms       6
  exec      2   1 25.5ms 25.7ms  354us 25.5ms 26.0ms 26.0ms? 26.0ms       4
  remove    3   0 25.5ms 26.0ms  500us 26.0ms 26.5ms 26.5ms? 26.5ms       6
  job       2   1  102ms  103ms 1.41ms  102ms  104ms  104ms?  104ms       4

  metric             unit        n  min  mean  stddev  median  p95  max  worst
  events_per_second  events/s +  2  502   503   1.414     503  504  504      2

engine=native
-------------
  jobs   3 done, 0 failed in 3 trials; 1 in warm-up, excluded
  rate   86.96 jobs/s over 34.5ms of trials
  timing error <= 80.0us p99, 80.0us max

  operation  n     min    mean  stddev     p50     p95      p99     max  slowest
  start      3  5.15ms  5.25ms   100us  5.25ms  5.35ms  5.35ms?  5.35ms        7
  exec       3  2.58ms  2.62ms  50.0us  2.62ms  2.67ms  2.67ms?  2.67ms        7
  remove     3  2.58ms  2.62ms  50.0us  2.62ms  2.67ms  2.67ms?  2.67ms        7
  job        3  10.3ms  10.5ms   200us  10.5ms  10.7ms  10.7ms?  10.7ms        7

  metric             unit        n  min  mean  stddev  median  p95  max  worst
  events_per_second  events/s +  3  503   505       2     505  507  507      3

Harness
-------
  process  readings  busy mean  busy max  lag p99  lag max
  master          4      15.0%     30.0%  4.000ms  4.000ms

Notes
-----
  n: successful operations of successful jobs. err: failures, excluded from all
    timings.
  End times are upper bounds, late by the timing error at most.
  `job` is a whole successful job, from its start to its end on the worker.
  Closed system: a slot starts its next job when the previous one ends, so slow
    jobs delay later ones unseen; set `rate` to see the delay.
  ? marks a p99 of fewer than 1000 values: it depends on a few of them.
  n of a metric counts trials. + means higher is better, - lower is better.
  n/a in a table: not measured, or no job gave a value.

Inconclusive against docker (103 ms): native (10.5 ms). Jobs failed: docker (1
  of 3 jobs: exit code 3: no such table).
"""

PAGE = f"""\
{TOP.replace("PASSED", "")}Side by side
------------
                           docker        native
  start p50               52.0 ms       5.25 ms
  exec p50                25.5 ms       2.62 ms
  remove p50              26.0 ms       2.62 ms
  job p95                  104 ms       10.7 ms
  events_per_second  503 events/s  505 events/s
  jobs/s                    6.349         86.96
  failed                   1 of 3        0 of 3

  run        20260102-030405-abcdef, 2026-01-02 03:04:05 UTC, took 1m
  jobs       5 done, 1 failed; 2 in warm-up, excluded from all figures
More with -v: each treatment, hosts, harness, notes.
"""


def test_the_report_of_a_good_run_reads_like_this(path):
    """The complete report of a small run, word for word, and its first page."""
    assert text_of(lifecycle_run(path)) == GOLDEN
    assert text_of(path, detail="page") == PAGE


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
    assert "  timing error <= 400us p99, 400us max; worker loops busy 21.0%, lag <= 3.20ms\n" in text


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
    assert notice == (
        "the run was interrupted; 1 of the jobs lost; 1,000,000,000 more never started; "
        "2 of 2 trials of 2 treatments not run"
    )
    assert "\nWarnings\n--------\n  ! w" in text
    brief = text_of(path, detail="answer")
    assert brief.startswith("INCOMPLETE the run was interrupted; 1 of the jobs lost; ")
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
    lines = [" ".join(line.split()) for line in text_of(builder.close(footer())).splitlines()]
    assert "job done lost jobs/s job p50 job p95 write" in lines
    assert "j0 0 1 n/a n/a n/a n/a" in lines
    assert "j1 1 0 1 1.000 s 1.000 s 80.5 MB/s" in lines
    builder = StatsBuilder(path.with_name("both.stats.gz"), header(treatments, [(0, 0, False), (1, 0, False)]))
    builder.writer.metrics([MetricRecord(0, 0, 0, "read", 2.0), MetricRecord(1, 1, 1, "write", 3.0)])
    lines = [" ".join(line.split()) for line in text_of(builder.close(footer())).splitlines()]
    assert "job done read write" in lines
    assert "j0 0 2 MB/s n/a" in lines
    assert "j1 0 n/a 3 MB/s" in lines


def test_the_first_page_has_the_primary_metrics(path):
    """Those that a workload marks are shown, by name; the others need -v."""
    metrics = {
        "rate": {"unit": "1/s", "direction": "higher", "primary": True},
        "least": {"unit": "ms", "direction": "lower"},
        "mean": {"unit": "ms", "direction": "lower", "primary": True},
    }
    for count in (1, 2):
        treatments = [treatment_wire(k, {"engine": f"e{k}", "job": "j"}, (), metrics) for k in range(count)]
        builder = StatsBuilder(
            path.with_name(f"{count}.stats.gz"), header(treatments, [(k, 0, False) for k in range(count)])
        )
        for k in range(count):
            builder.add_jobs({"ticket": k, "treatment": k, "trial": k, "end_ns": S})
            builder.writer.metrics([MetricRecord(k, k, k, name, 4.0) for name in metrics])
        file = builder.close(footer())
        page = text_of(file, detail="page")
        assert "rate" in page
        assert "mean" in page
        assert "least" not in page
        assert "least" in text_of(file)
        assert ("... and 1 other metric with -v" in page) == (count == 1)
        assert ("metric  unit   value" in page) == (count == 1)


def test_what_is_zero_everywhere_has_no_column(path):
    """Errors of operations, and failed, lost and aborted jobs, are shown where there are some."""
    treatments = [treatment_wire(k, {"engine": f"e{k}"}, ("start",)) for k in range(2)]
    builder = StatsBuilder(path, header(treatments, [(0, 0, False), (1, 0, False)], noop=False))
    for k in range(2):
        builder.add_jobs({"ticket": k, "treatment": k, "trial": k, "end_ns": S})
        builder.add_operations({"ticket": k, "treatment": k, "trial": k, "operation": 0, "duration_ns": MS})
    lines = [" ".join(line.split()) for line in text_of(builder.close(footer())).splitlines()]
    assert "operation n min mean stddev p50 p95 p99 max slowest" in lines
    assert "jobs 1 done, 0 failed in 1 trial" in lines
    assert "n: successful operations of successful jobs." in lines


def test_a_single_treatment_needs_no_overview(path):
    """With one treatment there is nothing to compare, and its labels are its heading."""
    builder = StatsBuilder(path, header([treatment_wire(0, {"engine": "native"}, ("start",))], [(0, 0, False)]))
    text = text_of(builder.add_jobs({"end_ns": MS}).close(footer()))
    assert "treatment  " not in text
    assert "engine=native\n-------------\n" in text


def test_a_truncated_file_still_reports(path):
    """The report covers the readable part, and names the byte at which it ends."""
    whole = lifecycle_run(path).read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 5])
    text = " ".join(text_of(path).split())
    assert "*** INCOMPLETE: the stats file is damaged: byte" in text
    assert "has no footer" in text
