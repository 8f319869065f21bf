"""The host ceiling in a real run."""

from attention import undisturbed

from bench_master.plan import is_host_ceiling


def test_the_host_ceiling_runs_first_and_is_reported_like_a_treatment(workspace):
    """As many jobs as the treatment has, all of them before its first, with a rate of their own."""
    scenario = workspace.scenario(host_ceiling=True, iterations=3, repeats=2, concurrency=2)

    def run_and_compare():
        run = workspace.run(scenario)
        nap, ceiling = run.document["treatments"]
        # A trial of the ceiling is over in a moment, in which the machine has to be there.
        assert ceiling["jobs_per_s"] > nap["jobs_per_s"]
        return run, nap, ceiling

    run, nap, ceiling = undisturbed(run_and_compare)
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
