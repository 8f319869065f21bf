"""The first commands of a user: a scenario and nothing else, and a command without a file."""

import json

import pytest
from workspace import Run, require_images

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
    assert ended.out.startswith("`sleep 0.01`, from create to remove, on host ")
    run = Run(ended.status, ended.out, ended.err, first)
    assert run.outcomes() == {"done": 9}
    assert {operation for job in run.jobs for operation in job["operations"]} == {"create", "start", "wait", "remove"}
    second = workspace.master("run-scenario", "-f", saved, "-s", again)
    assert second.status == 0, second.err
    plans = [
        [getattr(StatsFile(path).header, key) for key in ("treatments", "trials", "seed")] for path in (first, again)
    ]
    assert plans[0] == plans[1]


def test_quoted_commands_are_weighed_against_the_first(workspace):
    """As plain processes, interleaved, with the value of each in the answer; a gate fails on the worse one."""
    words = ("echo score: 21", "echo score: 42", "-n", "old", "-n", "new", "--repeats", 6)
    measure = ("--metric", r"score: (\d+)", "--primary", "score:lower")
    stats = workspace.folder / "0.stats.gz"
    ended = workspace.master("weigh", *words, *measure, "-s", stats)
    assert ended.status == 0, ended.err
    document = Run(ended.status, ended.out, ended.err, stats).document
    (only,) = document["verdicts"]["comparisons"]
    assert (only["verdict"], only["name"], only["rounds"]) == ("worse", "new", 6)
    assert "Worse than old (21): new (42, 2.00x" in ended.out
    # Each job ran an empty command, too; in the shorter times that may matter.
    assert all(row["operations"]["start-cost"]["n"] == 6 for row in document["treatments"])
    gate = ("--fail-on", "worse by 50%", "-q", "-s", workspace.folder / "1.stats.gz")
    failed = workspace.master("weigh", *words, *measure, *gate)
    assert failed.status == 1, failed.err
    assert failed.out.startswith("Worse than old (")
    assert len(failed.out.splitlines()) == 1


def test_commands_run_here_with_input_and_metrics(workspace):
    """A relative path leads to the program, a file is the input, its number is compared, reports go to files."""
    program, data, stats = (workspace.folder / name for name in ("old", "data", "x.stats.gz"))
    program.write_text('#!/bin/sh\nread line; echo "score: $((line * $1))"\n')
    program.chmod(0o755)
    data.write_text("21\n")
    page = workspace.folder / "x.json"
    words = ("./old {N}", "-P", "N", 1, 2, "--input", data, "--export", "json", page, "-r", 6, "-s", stats)
    ended = workspace.master("weigh", *words, "--metric", r"score: (\d+)", "--primary", "score:higher")
    assert ended.status == 0, ended.err
    document = Run(ended.status, ended.out, ended.err, stats).document
    medians = {row["treatment"]["command"]: row["metrics"]["score"]["median"] for row in document["treatments"]}
    assert medians == {"./old 1": 21, "./old 2": 42}
    (only,) = document["verdicts"]["comparisons"]
    assert only["verdict"] == "better"
    assert json.loads(page.read_text())["treatments"] == document["treatments"]


def test_cpu_time_is_compared(workspace):
    """A sleeping command takes longer than a busy one, and less CPU time: the kernel counts it."""
    busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    stats = workspace.folder / "x.stats.gz"
    words = ("sleep 1", busy, "-n", "sleep", "-n", "busy", "--shell", "-r", 6, "-s", stats)
    ended = workspace.master("weigh", *words, "--primary", "user")
    assert ended.status == 0, ended.err
    rows = Run(ended.status, ended.out, ended.err, stats).document["treatments"]
    sleep, work = (row["metrics"]["user"]["median"] for row in rows)
    assert sleep < work


@pytest.mark.docker
def test_a_plain_process_beside_a_container_has_its_environment(workspace):
    """No locale and the same search path, so that neither is measured; a scenario may ask for the worker's."""
    require_images("weighbridge/base").close()
    shown = "echo locale: ${#LANG} path: ${#PATH}"
    words = ("docker", "native", shown, "--shell", "--metric", r"locale: (\d+)", "--metric", r"path: (\d+)", "-r", 1)
    found = []
    for place, more in enumerate(((), ("--set", "environment=inherit"))):
        stats = workspace.folder / f"{place}.stats.gz"
        ended = workspace.master("weigh", *words, *more, "-s", stats)
        assert ended.status == 0, ended.err
        rows = Run(ended.status, ended.out, ended.err, stats).document["treatments"]
        found.append([[row["metrics"][name]["median"] for name in ("locale", "path")] for row in rows])
    alike, inherited = found
    assert alike[0] == alike[1]
    assert inherited[1][0] == len("C.UTF-8")


@pytest.mark.docker
def test_a_directory_is_the_same_in_containers(workspace):
    """What is mounted at its own path is found by the same relative path natively and in a container."""
    require_images("weighbridge/base").close()
    (workspace.folder / "data").write_text("7\n")
    stats = workspace.folder / "x.stats.gz"
    words = ("docker", "native", "cat ./data", "--mount", ".", "-r", 1, "-s", stats)
    ended = workspace.master("weigh", *words, "--metric", r"number=^(\d+)")
    assert ended.status == 0, ended.err
    rows = Run(ended.status, ended.out, ended.err, stats).document["treatments"]
    assert [row["metrics"]["number"]["median"] for row in rows] == [7, 7]


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
    assert list(row["operations"])[:4] == ["create", "start", "start-cost", "run"]
    assert row["operations"]["run"]["p50_s"] >= 0.3
