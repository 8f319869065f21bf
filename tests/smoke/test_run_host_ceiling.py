"""The host ceiling in a real run."""

from bench_master.plan import is_host_ceiling


def test_the_host_ceiling_runs_first_and_is_reported_like_a_treatment(workspace):
    """As many jobs as the treatment has, all of them before its first, with a rate of their own."""
    scenario = workspace.scenario(host_ceiling=True, iterations=3, repeats=2, concurrency=2)

    run = workspace.run(scenario)
    nap, ceiling = run.document["treatments"]
    assert ceiling["jobs_per_s"] > 0
    assert is_host_ceiling(ceiling["treatment"])
    assert nap["jobs"]["done"] == ceiling["jobs"]["done"] == 12
    starts = {
        kind: [row["start_s"] for row in run.jobs if is_host_ceiling(row["treatment"]) is kind]
        for kind in (True, False)
    }
    assert max(starts[True]) < min(starts[False])


def test_the_host_ceiling_is_left_out_where_it_is_skipped(workspace):
    """`--skip-host-ceiling` runs the treatments alone."""
    run = workspace.run(workspace.scenario(host_ceiling=True), "--skip-host-ceiling")
    assert len(run.document["treatments"]) == 1
