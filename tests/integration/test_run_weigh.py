"""The first commands of a user: a scenario and nothing else, and a command without a file."""

from workspace import Run

from bench_common.stats.reader import StatsFile

TRUE = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"]}}


def test_a_scenario_alone_runs_on_this_host(workspace):
    """Without a word about workers one is started here, and nobody is told to start another."""
    ended = workspace.master(
        "run-scenario", "-f", workspace.scenario(job=TRUE), "-s", workspace.folder / "x.stats.gz"
    )
    assert ended.status == 0, ended.err
    assert "worker local-0 on " in ended.err
    assert "waiting for 1 worker" not in ended.err


def test_a_command_is_weighed_like_a_scenario(workspace):
    """It runs, is reported and saved; the scenario that it writes runs the same again."""
    saved, first, again = (workspace.folder / name for name in ("x.yaml", "first.stats.gz", "again.stats.gz"))
    words = ("native", "--repeats", 2, "-o", 3, "--seed", 7, "--save-scenario", saved, "-s", first)
    ended = workspace.master("weigh", *words, "--", "sleep", "0.01")
    assert ended.status == 0, ended.err
    assert ended.out.startswith("Weighbridge report: sleep 0.01\n")
    run = Run(ended.status, ended.out, ended.err, first)
    assert run.outcomes() == {"done": 9}
    assert {operation for job in run.jobs for operation in job["operations"]} == {"create", "start", "wait", "remove"}
    second = workspace.master("run-scenario", "-f", saved, "-s", again)
    assert second.status == 0, second.err
    plans = [[StatsFile(path).header[key] for key in ("treatments", "trials", "seed")] for path in (first, again)]
    assert plans[0] == plans[1]


def test_the_command_alone_is_weighed_in_an_idle_container(workspace):
    """Its verdicts are about its own time; one that fails is a failed job, and exit code 1."""
    stats = workspace.folder / "x.stats.gz"
    words = ("native", "--job", "command", "--repeats", 1, "-s", stats)
    ended = workspace.master("weigh", *words, "--", "sh", "-c", "sleep 0.3; exit 3")
    assert ended.status == 1, ended.err
    ended = workspace.master("weigh", *words[:-1], workspace.folder / "y.stats.gz", "--", "sleep", "0.3")
    assert ended.status == 0, ended.err
    run = Run(ended.status, ended.out, ended.err, workspace.folder / "y.stats.gz")
    (row,) = run.document["treatments"]
    assert list(row["operations"])[:4] == ["create", "start", "prepare", "run"]
    assert row["operations"]["run"]["p50_s"] >= 0.3
