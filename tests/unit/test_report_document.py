"""The report document: what counts, exact percentiles, and every reason why a run is incomplete."""

import math

import numpy as np
import pytest
from builders import MS, S, StatsBuilder, footer, header, host, lifecycle_run, operation_rows, treatment_wire
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench_common.errors import StatsFileError, UsageError
from bench_common.histogram import RELATIVE_ERROR, nearest_rank
from bench_common.records import BATCH_SAMPLES_SOURCE, LOOP_FIELDS, ErrorRecord, MetricRecord, Outcome, ticket_of
from bench_common.stats.reader import StatsFile
from bench_common.stats.rows import Columns
from bench_master.analysis.document import build_document, percentile_name
from bench_master.analysis.report_types import as_json
from bench_master.reports.text import totals_text
from bench_master.run_data.percentiles import ExactPercentiles, LatencySeries


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def one_treatment(path, *, trials=((0, 0, False),), metrics=None, **changes):
    """Begin a file of one native treatment with the operations start and exec."""
    treatments = [treatment_wire(0, {"engine": "native"}, ("start", "exec"), metrics)]
    return StatsBuilder(path, header(treatments, trials, **changes))


def report_of(path, pctile=95.0):
    return as_json(build_document(StatsFile(path), pctile))


def timed_operations(durations, **fields):
    """Build one operation row for each duration, with tickets in order."""
    rows = operation_rows({}).repeat(len(durations))
    rows["ticket"], rows["duration_ns"] = np.arange(len(durations)), durations
    for name, value in fields.items():
        rows[name] = value
    return rows


def test_the_document_has_measures_by_treatment(path):
    """Outcomes, rate, operations, the whole job and metrics are those of the run's rows."""
    docker, native = report_of(lifecycle_run(path))["treatments"]
    assert docker["jobs"] == {
        "total": 3, "done": 2, "failed": 1, "left_out": 0, "lost": 0, "aborted": 0, "not_started": 0, "warmup": 1,
        "planned": 3, "missing": 0,
    }  # fmt: skip
    start = docker["operations"]["start"]
    # Jobs 2, 4 and 6 of docker take 102, 104 and 106 ms, the first half of it in start; job 0 is warm-up.
    assert (start["n"], start["errors"], start["slowest_job"]) == (3, 0, 6)
    assert [start[f"{name}_s"] for name in ("min", "p50", "mean", "p95", "max")] == [
        0.051,
        0.052,
        0.052,
        0.053,
        0.053,
    ]
    assert start["stddev_s"] == pytest.approx(0.001)
    assert list(docker["operations"]) == ["start", "exec", "remove", "job"]
    assert native["metrics"]["events_per_second"] == {
        "unit": "events/s", "direction": "higher", "primary": False, "n": 3, "median": 505.0, "mean": 505.0,
        "stddev": 2.0, "min": 503.0, "p95": 507.0, "max": 507.0, "worst_job": 3,
    }  # fmt: skip


def test_failures_are_counted_and_enter_no_latency(path):
    """A failed exec is an error of exec, its job an error of job, and neither is in any time; its start is."""
    docker = report_of(lifecycle_run(path))["treatments"][0]["operations"]
    assert (docker["exec"]["n"], docker["exec"]["errors"], docker["exec"]["max_s"]) == (2, 1, 0.026)
    assert (docker["job"]["n"], docker["job"]["errors"], docker["job"]["max_s"]) == (2, 1, 0.104)
    assert docker["start"]["n"] == 3


def test_the_rate_is_that_of_the_measured_trials(path):
    """Completed jobs by the time between start and end of the trials; warm-up trials and pauses are in neither."""
    native = report_of(lifecycle_run(path))["treatments"][1]
    # Three trials of 10.3, 10.5 and 10.7 ms, each ended by the master a millisecond later.
    assert native["busy_s"] == pytest.approx(0.0345)
    assert native["jobs_per_s"] == pytest.approx(3 / 0.0345)


def test_without_events_a_trial_lasts_from_first_start_to_last_end(path):
    """A trial without an end event is as long as its jobs."""
    builder = one_treatment(path).add_jobs(
        {"start_ns": 5 * S, "end_ns": 7 * S}, {"start_ns": 4 * S, "end_ns": 6 * S}, {"outcome": Outcome.LOST}
    )
    (entry,) = report_of(builder.close())["treatments"]
    assert (entry["busy_s"], entry["jobs_per_s"]) == (3.0, 2 / 3)


def bounded(path, bounds_us, operation_us, **fields):
    """Write jobs with these bounds, and one operation `start` of the given length for each."""
    builder = one_treatment(path)
    for ticket, bound_us in enumerate(bounds_us):
        builder.add_jobs({"ticket": ticket, "end_ns": S, "uncertainty_ns": bound_us * 1000, **fields})
        builder.add_operations({"ticket": ticket, "duration_ns": operation_us * 1000})
    return report_of(builder.close())


def test_the_timing_error_covers_successful_measured_jobs(path):
    """p99 is at least the true one, and at most the maximum; warm-up and failed jobs do not count."""
    builder = one_treatment(path, trials=((0, 0, True), (0, 1, False)))
    builder.add_jobs(*({"ticket": job, "trial": 1, "uncertainty_ns": 1000 * (job + 1)} for job in range(200)))
    builder.add_jobs({"ticket": 300, "uncertainty_ns": MS})
    builder.add_jobs({"ticket": 301, "trial": 1, "uncertainty_ns": MS, "outcome": Outcome.FAILED})
    (entry,) = report_of(builder.close())["treatments"]
    assert 198e-6 <= entry["timing_error_p99_s"] <= 198e-6 * (1 + 4 * RELATIVE_ERROR)
    assert entry["timing_error_max_s"] == 200e-6


def test_without_jobs_there_is_no_timing_error(path):
    """Without stamps there is no measure."""
    report = report_of(one_treatment(path).close())
    (entry,) = report["treatments"]
    assert (entry["timing_error_p99_s"], entry["timing_error_max_s"]) == (None, None)
    assert report["warnings"] == []


@pytest.mark.parametrize(
    ("bounds_us", "operation_us", "warned"),
    [
        ([600] * 5, 6000, False),
        ([601] * 5, 6000, True),
        # One job of many may be off by more: it moves no percentile.
        ([590] * 199 + [90_000], 6000, False),
        # What there may be in a calm run is no sign of load, however short the operation is.
        ([450] * 5, 50, False),
        ([900] * 5, 0, False),
    ],
)
def test_a_large_timing_error_gives_a_warning(path, bounds_us, operation_us, warned):
    """Above a tenth of the shortest operation's median the report warns and says what to do."""
    report = bounded(path, bounds_us, operation_us)
    warnings, own = report["warnings"], report["treatments"][0]["timing_warning"]
    assert len(warnings) == warned
    assert (own is not None) == warned
    if warned:
        assert "601us of 6.00ms (10%) in engine=native" in warnings[0]
        assert "fewer jobs in flight" in warnings[0]
        assert "more workers" in warnings[0]
        assert "601us, is more than 10% of the shortest operation's median, 6.00ms: " in own
        assert "fewer jobs in flight" in own


def test_each_treatment_has_the_load_of_the_workers_loops(path):
    """Batches weigh by their duration, over all workers; the worst lag and wake-up count, and warm-up does not."""
    treatments = [treatment_wire(index, {"engine": name}, ("start",)) for index, name in enumerate("abc")]
    builder = StatsBuilder(path, header(treatments, [(0, 0, True), (0, 1, False), (1, 1, False), (2, 1, False)]))
    for worker, treatment, trial, *loop in (
        (0, 0, 0, 9 * S, 9 * S, 9 * S, 9 * S, 9),
        (0, 0, 1, 3 * S, S, 2 * MS, 4 * MS, 500),
        (1, 0, 1, S, S, 30 * MS, 3 * MS, 999),
        (1, 1, 2, 2 * S, 0, 0, 0, 0),
        (1, 7, 2, S, S, S, S, 9),
    ):
        place = {"time_ns": [S], "treatment": [treatment], "trial": [trial], "batches": [5]}
        reading = dict(zip(LOOP_FIELDS, ([value] for value in loop), strict=True))
        builder.writer.samples(worker, BATCH_SAMPLES_SOURCE, {**place, **reading}, {})
    found = [
        tuple(entry[name] for name in ("worker_busy_share", "worker_lag_max_s", "host_wake_up_max_s"))
        for entry in report_of(builder.close())["treatments"]
    ]
    assert found == [(0.5, 0.03, 0.004), (0.0, 0.0, None), (None, None, None)]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.integers(0, 2**40), min_size=1, max_size=60),
    failed=st.lists(st.integers(0, 2**40), max_size=5),
    percentile=st.sampled_from([0.1, 12.5, 50.0, 95.0, 99.9]),
)
def test_percentiles_are_those_of_the_sorted_values(tmp_path, values, failed, percentile):
    """Each percentile is exactly the nearest-rank value, and the moments are numpy's."""
    path = tmp_path / "percentiles.stats.gz"
    path.unlink(missing_ok=True)
    builder = one_treatment(path)
    builder.writer.operations(timed_operations(values))
    builder.flush().writer.operations(timed_operations(failed, ok=0))
    start = report_of(builder.close(), percentile)["treatments"][0]["operations"]["start"]
    ordered = sorted(values)
    for wanted in (50.0, 95.0, 99.0, percentile):
        rank = nearest_rank(len(values), wanted / 100)
        assert start[f"{percentile_name(wanted)}_s"] == ordered[rank - 1] / 1e9
    assert start["percentiles_exact"]
    assert (start["n"], start["errors"]) == (len(values), len(failed))
    assert start["mean_s"] == pytest.approx(np.mean(values) / 1e9)
    if len(values) > 1:
        assert start["stddev_s"] == pytest.approx(np.std(values, ddof=1) / 1e9, abs=1e-15)
    assert values[start["slowest_job"]] == max(values)


def numbered(count):
    """Return so many rows with a ticket each."""
    return Columns(count, {"ticket": lambda _: np.arange(count, dtype=np.uint64)})


def test_many_values_in_one_bucket_are_still_exact():
    """If a bucket holds more values than it is wide, they are counted one by one, and the percentile stays exact."""
    values = np.random.default_rng(1).integers(1_000_000, 1_003_000, 50_000)
    series = LatencySeries()
    series.add(values, numbered(len(values)))
    exact = ExactPercentiles({(0, "job"): series}, [50.0, 99.0], budget=100_000)
    for part in np.array_split(values, 7):
        exact.collect((0, "job"), part)
    for percentile in (50.0, 99.0):
        truth = np.sort(values)[nearest_rank(len(values), percentile / 100) - 1]
        assert exact.value((0, "job"), percentile) == (truth, True)


def test_beyond_the_memory_budget_percentiles_are_approximate():
    """Without memory for the second pass a percentile is marked as not exact and is within the documented error."""
    values = np.random.default_rng(2).integers(10**9, 2 * 10**9, 1000)
    series = LatencySeries()
    series.add(values, numbered(len(values)))
    exact = ExactPercentiles({(0, "job"): series}, [95.0], budget=0)
    assert not exact.needs_second_pass
    value, is_exact = exact.value((0, "job"), 95.0)
    assert not is_exact
    assert math.isclose(value, np.sort(values)[949], rel_tol=RELATIVE_ERROR)


def test_durations_out_of_range_keep_their_percentiles():
    """A negative or absurd duration is reported unchanged, in the first pass and in the second."""
    values = np.array([-5, -3, 2**60])
    series = LatencySeries()
    series.add(values, numbered(3))
    exact = ExactPercentiles({(0, "job"): series}, [33.0, 66.0, 99.0])
    exact.collect((0, "job"), values)
    assert [exact.value((0, "job"), percentile)[0] for percentile in (33.0, 66.0, 99.0)] == [-5, -3, 2**60]


def test_p99_is_marked_below_a_thousand_values(path):
    """999 values leave p99 marked, 1,000 do not."""
    builder = one_treatment(path)
    builder.writer.operations(timed_operations(np.arange(999)))
    builder.writer.operations(timed_operations(np.arange(1000), operation=1))
    operations = report_of(builder.close())["treatments"][0]["operations"]
    assert (operations["start"]["p99_marked"], operations["exec"]["p99_marked"]) == (True, False)


def test_warm_up_is_counted_separately(path):
    """Jobs, operations, metrics and unstarted jobs of warm-up trials are in no figure but `warmup`."""
    trials = [(0, 0, True), (0, 1, False)]
    builder = one_treatment(path, trials=trials, metrics={"speed": {"unit": "x", "direction": "higher"}})
    builder.add_jobs({"ticket": 0, "trial": 0, "end_ns": 9 * S}, {"ticket": 1, "trial": 1, "end_ns": S})
    builder.add_operations({"trial": 0, "duration_ns": 9 * S}, {"trial": 1, "duration_ns": S})
    builder.writer.metrics([MetricRecord(0, 0, 0, "speed", 9.0), MetricRecord(1, 0, 1, "speed", 1.0)])
    builder.add(
        "event", {"at_ns": 0, "kind": "trial-end", "trial": 0, "not_started": 5, "not_started_outcome": "lost"}
    )
    report = report_of(builder.close(footer()))
    (entry,) = report["treatments"]
    assert (entry["jobs"]["total"], entry["jobs"]["warmup"], entry["jobs"]["lost"]) == (1, 1, 0)
    assert entry["operations"]["start"]["max_s"] == entry["operations"]["job"]["max_s"] == 1.0
    assert (entry["metrics"]["speed"]["n"], entry["metrics"]["speed"]["max"]) == (1, 1.0)
    assert report["totals"]["warmup"] == 1


def test_a_metric_counts_trials_not_jobs(path):
    """A trial of several jobs gives one value, their mean; unsuccessful jobs and NaN give none."""
    builder = one_treatment(
        path, trials=[(0, 0, False), (0, 1, False)], metrics={"speed": {"unit": "x", "direction": "lower"}}
    )
    builder.writer.metrics(
        [
            MetricRecord(0, 0, 0, "speed", 10.0),
            MetricRecord(1, 0, 0, "speed", 20.0),
            MetricRecord(2, 0, 1, "speed", 40.0),
            MetricRecord(3, 0, 1, "speed", 999.0),
            MetricRecord(4, 0, 1, "speed", math.nan),
        ]
    )
    builder.add_jobs(*({"ticket": job, "outcome": Outcome.FAILED if job == 3 else Outcome.DONE} for job in range(5)))
    metric = report_of(builder.close())["treatments"][0]["metrics"]["speed"]
    assert (metric["n"], metric["min"], metric["median"], metric["max"]) == (2, 15.0, 27.5, 40.0)
    assert metric["worst_job"] == 2


def test_a_metric_without_values_has_no_measures(path):
    """A declared metric is listed with n 0 and nulls, so that a threshold on it fails instead of passing silently."""
    builder = one_treatment(
        path, metrics={"speed": {"unit": "x", "direction": "lower"}}, thresholds=["metrics.speed.median < 1"]
    )
    report = report_of(builder.close())
    assert report["treatments"][0]["metrics"]["speed"] == {
        "unit": "x", "direction": "lower", "primary": False, "n": 0, "median": None, "mean": None, "stddev": None,
        "min": None, "p95": None, "max": None, "worst_job": None,
    }  # fmt: skip
    (verdict,) = report["thresholds"]
    assert (verdict["passed"], verdict["value"]) == (False, None)


def test_thresholds_get_the_percentiles_they_need(path):
    """A threshold on p75 is judged on an exact p75, though no report shows it by default."""
    builder = one_treatment(path, thresholds=["operations.start.p75_s == 3ns"])
    builder.writer.operations(timed_operations([1, 2, 3, 4]))
    (verdict,) = report_of(builder.close())["thresholds"]
    assert (verdict["passed"], verdict["value"]) == (True, 3e-9)


def test_errors_are_grouped_with_one_real_message_each(path):
    """Same operation and kind are one group, the largest first, with the first message, its job, the treatments."""
    builder = one_treatment(path, trials=[(0, 0, True), (0, 1, False)])
    builder.writer.errors(
        [
            ErrorRecord(ticket_of(4, 1), 0, 1, "start", "timeout", "took too long"),
            ErrorRecord(7, 0, 0, "exec", "exit-code", "exit code 3"),
            ErrorRecord(8, 0, 1, "exec", "exit-code", "exit code 4"),
        ]
    )
    assert report_of(builder.close())["errors"] == [
        {"operation": "exec", "kind": "exit-code", "count": 2, "warmup": 1, "treatments": ["engine=native"],
         "job": 7, "message": "exit code 3"},
        {"operation": "start", "kind": "timeout", "count": 1, "warmup": 0, "treatments": ["engine=native"],
         "job": 4, "message": "took too long"},
    ]  # fmt: skip


def test_a_complete_run_has_no_reason_to_be_incomplete(path):
    """All trials run, a footer that says complete, nothing lost: no banner."""
    report = report_of(lifecycle_run(path))
    assert (report["incomplete"], report["damage"], report["warnings"]) == ([], None, [])


def test_a_reconnected_worker_leaves_a_run_complete(path):
    """A loss that cost no job, since the worker reconnected in time, does not make a run incomplete."""
    builder = one_treatment(path, trials=[(0, 0, False)])
    builder.add_jobs({"trial": 0, "end_ns": S})
    builder.add("event", {"at_ns": 0, "kind": "trial-begin", "trial": 0})
    builder.add("event", {"at_ns": 0, "kind": "worker-lost", "worker": 0, "reason": "killed"})
    builder.add("event", {"at_ns": S, "kind": "trial-end", "trial": 0, "not_started": 0})
    assert report_of(builder.close(footer()))["incomplete"] == []


def test_a_trial_in_which_a_worker_was_lost_is_in_no_figure(path):
    """Its time has no load, or the making of objects, in it; the report names it, and a resumed run does it again."""
    trials = [(0, 0, True), (0, 1, False), (0, 2, False), (0, 3, False)]
    builder = one_treatment(path, trials=trials)
    for trial, seconds in ((0, 2), (1, 1), (2, 9), (3, 1)):
        begin_ns = 10 * trial * S
        builder.add_jobs({"ticket": trial, "trial": trial, "start_ns": begin_ns, "end_ns": begin_ns + seconds * S})
        builder.add("event", {"at_ns": begin_ns, "kind": "trial-begin", "trial": trial})
        if trial in (0, 2):
            lost = {"kind": "worker-lost", "worker": 0, "worker_id": "local-0", "reason": "killed", "trial": trial}
            builder.add("event", {"at_ns": begin_ns, **lost})
        builder.add("event", {"at_ns": begin_ns + seconds * S, "kind": "trial-end", "trial": trial, "not_started": 0})
    report = report_of(builder.close(footer()))
    (entry,) = report["treatments"]
    assert (entry["trials"], entry["jobs_per_s"]) == ({"planned": 2, "run": 2, "left_out": 1}, 1.0)
    assert (entry["jobs"]["done"], entry["jobs"]["warmup"]) == (2, 2)
    assert entry["operations"]["job"]["max_s"] == 1.0
    (warning,) = report["warnings"]
    told = "engine=native: left out of all figures and verdicts: 1 trial (round 3), in which a worker was lost"
    assert warning == f"{told}: worker local-0: killed"
    document = build_document(StatsFile(path))
    where = "2 in warm-up or a trial that lost a worker, excluded from all figures"
    assert totals_text(document.totals, document.treatments).endswith(where)


def test_jobs_that_failed_in_a_trial_that_lost_a_worker_have_failed(path):
    """A trial that is left out hides no failure, and no loss."""
    builder = one_treatment(path, trials=[(0, 0, False), (0, 1, False)])
    builder.add("event", {"at_ns": 0, "kind": "trial-begin", "trial": 0})
    outcomes = (Outcome.DONE, Outcome.FAILED, Outcome.LOST)
    builder.add_jobs(*({"ticket": n, "trial": 0, "end_ns": S, "outcome": one} for n, one in enumerate(outcomes)))
    builder.add("event", {"at_ns": 0, "kind": "worker-lost", "worker": 0, "reason": "killed", "trial": 0})
    end = {"kind": "trial-end", "trial": 0, "not_started": 2, "not_started_outcome": "lost"}
    builder.add("event", {"at_ns": S, **end})
    (entry,) = report_of(builder.close(footer()))["treatments"]
    counts = {name: entry["jobs"][name] for name in ("done", "failed", "lost", "warmup", "not_started")}
    assert counts == {"done": 0, "failed": 1, "lost": 3, "warmup": 1, "not_started": 2}


def test_a_trial_that_was_done_again_counts(path):
    """The loss of a worker was in the time before the run was resumed."""
    builder = one_treatment(path, trials=[(0, 0, False)])
    for lost in (True, False):
        builder.add("event", {"at_ns": 0, "kind": "trial-begin", "trial": 0})
        if lost:
            builder.add("event", {"at_ns": 0, "kind": "worker-lost", "worker": 0, "reason": "killed", "trial": 0})
    builder.add_jobs({"trial": 0, "end_ns": S})
    builder.add("event", {"at_ns": S, "kind": "trial-end", "trial": 0, "not_started": 0})
    (entry,) = report_of(builder.close(footer()))["treatments"]
    assert entry["trials"] == {"planned": 1, "run": 1, "left_out": 0}


def test_every_reason_for_an_incomplete_run_is_listed(path):
    """Interruption, losses, aborts, jobs and trials that never started, and lost workers."""
    builder = one_treatment(path, trials=[(0, 0, False), (0, 1, False), (0, 2, False)])
    builder.add_jobs({"trial": 0, "end_ns": S}, {"ticket": 1, "trial": 0, "outcome": Outcome.LOST})
    end = {"at_ns": S, "kind": "trial-end", "not_started": 2}
    builder.add("event", {"at_ns": 0, "kind": "trial-begin", "trial": 0})
    builder.add("event", end | {"trial": 0, "not_started_outcome": "lost"})
    builder.add("event", {"at_ns": S, "kind": "trial-begin", "trial": 1})
    builder.add("event", end | {"trial": 1, "not_started_outcome": int(Outcome.ABORTED)})
    builder.add("event", {"at_ns": S, "kind": "worker-lost", "worker": 0, "reason": "no heartbeat for 10 s"})
    report = report_of(builder.close(footer(status="interrupted", not_started=9)))
    assert report["treatments"][0]["jobs"] == {
        "total": 6, "done": 1, "failed": 0, "left_out": 0, "lost": 3, "aborted": 2, "not_started": 4, "warmup": 0,
        "planned": None, "missing": None,
    }  # fmt: skip
    assert report["incomplete"] == [
        "the run was interrupted",
        "3 of the jobs lost",
        "2 of the jobs aborted",
        "4 of these never started",
        "5 more never started",
        "1 of 3 trials not run: engine=native",
        "lost worker 0: no heartbeat for 10 s",
    ]


def test_jobs_that_never_ran_are_counted_once(path):
    """Where an interrupted run lost none of its jobs, the number of the missing ones is the only count."""
    builder = one_treatment(path, trials=[(0, 0, False), (0, 1, False)])
    builder.add_jobs({"trial": 0, "end_ns": S})
    builder.add("event", {"at_ns": 0, "kind": "trial-begin", "trial": 0})
    builder.add("event", {"at_ns": S, "kind": "trial-end", "trial": 0, "not_started": 0})
    report = report_of(builder.close(footer(status="interrupted", not_started=7, counts={"planned": 8})))
    assert (report["totals"]["missing"], report["totals"]["not_started"]) == (7, 7)
    assert report["incomplete"] == ["the run was interrupted"]


def test_a_truncated_file_is_reported_up_to_its_end(path):
    """Half a file gives the figures of its complete blocks; the report names the damage and the missing footer."""
    whole = lifecycle_run(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    report = report_of(path)
    assert "the file ends within a block" in report["damage"]
    assert report["incomplete"][0].startswith("the stats file is damaged: byte ")
    assert "no footer" in report["incomplete"][1]
    assert report["totals"]["duration_s"] is None or report["totals"]["duration_s"] > 0


@pytest.mark.parametrize("done", [1, 5])
def test_a_block_of_jobs_that_is_missing_or_there_twice_is_damage(path, done):
    """By the footer's own account, where the run was complete: no row shows it."""
    builder = one_treatment(path).add_jobs({"end_ns": S}, {"treatment": 7})
    report = report_of(builder.close(footer(counts={"done": done, "failed": 0})))
    assert report["run_state"] == "damaged"
    assert f"the run counted {done} job{'s' if done > 1 else ''} done, the file holds 2" in report["damage"]


def test_contradictory_counts_of_an_incomplete_run_give_a_warning(path):
    """It may have lost results before they were in the file."""
    builder = one_treatment(path).add_jobs({"end_ns": S}, {"treatment": 7})
    counts = {"done": 5, "failed": 0}
    report = report_of(builder.close(footer(counts=counts, status="incomplete", warnings=["the host swapped"])))
    assert report["warnings"] == [
        "the host swapped",
        "excluded: 1 job of treatments that the header does not list",
        "the run counted 5 jobs done, the file holds 2",
    ]


def test_samples_are_aggregated_by_host_and_rates_use_their_interval(path):
    """Percentages have mean and extremes without NaN; bytes become bytes per second of their own interval."""
    builder = one_treatment(path)
    builder.add("host", host(0)).writer.samples(
        0,
        "host",
        {
            "time_ns": [S, 3 * S, 4 * S],
            "interval_ns": [S, 2 * S, S],
            "cpu_user_percent": [math.nan, 20.0, 40.0],
            "disk_read_bytes": [100, 400, 0],
        },
        {"cpu_user_percent": "%", "disk_read_bytes": "B"},
    )
    builder.writer.samples(-1, "loop", {"busy_share": [0.5], "lag_max_ns": [3 * MS]}, {})
    report = report_of(builder.close())
    samples = report["hosts"][0]["samples"]
    assert samples["cpu_user_percent"] == {"unit": "%", "n": 2, "mean": 30.0, "min": 20.0, "max": 40.0}
    assert samples["disk_read_bytes_per_s"] == {"unit": "B/s", "n": 3, "mean": 100.0, "min": 0.0, "max": 200.0}
    assert report["hosts"][0]["loop"] is None
    assert report["master"]["loop"] == {
        "n": 1, "busy_mean": 0.5, "busy_max": 0.5, "lag_p99_s": 0.003, "lag_max_s": 0.003
    }  # fmt: skip


@pytest.mark.parametrize("pctile", [-0.1, 100.1, -1, math.nan, math.inf])
def test_an_invalid_percentile_is_refused(path, pctile):
    """Zero, a hundred and anything beyond is a usage error that names the expected range."""
    with pytest.raises(UsageError, match="from 0 to 100"):
        report_of(lifecycle_run(path), pctile)


def test_a_file_without_a_complete_header_cannot_be_reported(path):
    """The error names the file that ends within its first block."""
    path.write_bytes(lifecycle_run(path).read_bytes()[:50])
    with pytest.raises(StatsFileError, match="nothing to read"):
        report_of(path)


def test_a_header_alone_gives_a_report(path):
    """A run that was killed before its first job gives a report with zeros and reasons, not an error."""
    report = report_of(one_treatment(path).close())
    assert (report["totals"]["jobs"], report["totals"]["jobs_per_s"]) == (0, None)
    assert report["treatments"][0]["operations"]["start"]["p50_s"] is None
