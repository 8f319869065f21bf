"""The machine's own limit in a real run."""

from bench_master.plan import is_host_ceiling


def test_the_limit_runs_first_and_is_reported_like_a_treatment(weighing):
    """As many jobs as the treatment has, all of them before its first, with a rate of their own."""
    run = weighing.run(weighing.scenario(limit=True, iterations=3, repeats=2, concurrency=2))
    nap, limit = run.document["treatments"]
    assert is_host_ceiling(limit["treatment"])
    assert nap["jobs"]["done"] == limit["jobs"]["done"] == 12
    assert limit["jobs_per_s"] > nap["jobs_per_s"]
    starts = {
        kind: [row["start_s"] for row in run.jobs if is_host_ceiling(row["treatment"]) is kind]
        for kind in (True, False)
    }
    assert max(starts[True]) < min(starts[False])


def test_the_limit_is_left_out_where_it_is_skipped(weighing):
    """`--skip-limit` runs the treatments alone."""
    run = weighing.run(weighing.scenario(limit=True), "--skip-limit")
    assert len(run.document["treatments"]) == 1
