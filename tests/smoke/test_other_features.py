"""One real use of each feature that no other smoke test has: other tools' files, objects, losses, the live page.

The jobs of a run that something happens to wait for a file which the test makes afterwards: the order is certain.
"""

import json
import signal

import pytest
from deadlines import START_S, wait_until
from live_reader import Reader, address_in
from live_run import SHORT_LEASE, LiveRun
from places import DATA
from workspace import held_until

from bench_common.stats.reader import StatsFile

LIFE = ["run", "wait", "remove"]


def held(folder, **keys):
    """Return a scenario of four jobs that last until `folder` has a file `go`, and that file."""
    go = folder / "go"
    scenario = {"engines": ["native"], "repeats": 2, "warmup": 0, "concurrency": 2, "iterations": 1}
    return {**scenario, **keys, "job": {"operations": LIFE, "container": {"command": held_until(go)}}}, go


def trials(stats):
    """Return how many trials the file vouches for at this moment."""
    events = [block.body for block in StatsFile(stats).blocks({"event"})] if stats.exists() else []
    return sum(event["kind"] == "trial-end" for event in events)


def test_the_output_of_a_tool_is_read(workspace):
    """As JSON, with value, unit and direction."""
    done = workspace.master("parse-output", "sysbench-cpu", DATA / "sysbench" / "cpu-1t.txt")
    assert json.loads(done.out)["metrics"]["events_per_second"] == {
        "value": 377.99,
        "unit": "1/s",
        "direction": "higher",
    }


@pytest.mark.parametrize(
    "words",
    [
        ("ssbench", "ssbench/small_test.stat.gz"),
        ("sysbench-cpu", "vm-docker-bench/bare-metal-cpu.txt", "--metric", "total_time_s"),
        ("sysbench-oltp", "sysbench/oltp_read_write.txt"),
        ("iibench", "iibench/py2-2012-insert_only.txt"),
    ],
    ids=lambda words: words[0],
)
def test_results_of_each_predecessor_are_imported_and_reported(workspace, words):
    """Their stat files and logs become a stats file like that of a run."""
    stats = workspace.folder / "imported.stats.gz"
    workload, file, *more = words
    flags = ("--environment", "bare-metal", "--engine", "native", "-s", stats, *more)
    done = workspace.master("import-results", *flags, workload, DATA / file)
    assert done.status == 0, done.err
    report = json.loads(workspace.master("report-scenario", "-s", stats, "--format", "json").out)
    assert report["totals"]["done"] >= 1
    assert report["totals"]["failed"] == 0


def test_jobs_on_objects_run_without_a_store(workspace):
    """A no-op run measures the harness; every job is there."""
    run = workspace.run("objects/quick", "--noop")
    assert set(run.outcomes()) == {"done"}
    assert {row["treatment"]["engine"] for row in run.document["treatments"]} == {"swift", "s3"}


def test_a_killed_load_process_costs_attempts_and_no_job(tmp_path):
    """Its jobs are tried again, and each of the run is done once."""
    scenario, go = held(tmp_path)
    with LiveRun(tmp_path / "live", scenario) as live:
        wait_until(lambda: trials_begun(live.stats) and live.load_processes(), START_S, "the first trial")
        live.signal(live.load_processes(), signal.SIGKILL)
        wait_until(lambda: "is back" in live.err, START_S, "the worker's return")
        go.touch()
        assert live.end() == 0
        assert live.run.outcomes() == {"done": 4}
        live.assert_clean()


def trials_begun(stats):
    """Return whether a trial has begun."""
    return stats.exists() and any(block.body["kind"] == "trial-begin" for block in StatsFile(stats).blocks({"event"}))


def test_a_run_whose_master_was_killed_goes_on_in_its_file(workspace):
    """Each trial counts once; who resumes waits until the workers of before have given their master up."""
    scenario, go = held(workspace.folder)
    program, stats = workspace.start_run(workspace.scenario(**scenario), *SHORT_LEASE)
    wait_until(lambda: trials_begun(stats), START_S, "the first trial")
    program.process.kill()
    program.wait_for_exit()
    go.touch()
    run = workspace.finish(workspace.start("bench-master", "run-scenario", "--resume", stats), stats)
    assert run.outcomes() == {"done": 4}
    assert trials(stats) >= 2


def test_a_reader_of_the_live_page_sees_the_run(workspace):
    """The plan and the state come with a stream, which ends with the run."""
    scenario, go = held(workspace.folder)
    program, stats = workspace.start_run(workspace.scenario(**scenario), "--web", "127.0.0.1:0")
    program.wait_for_output("live page: ", START_S)
    reader = Reader(address_in(program.err))
    try:
        assert reader.log_in() == 204
        status, stream = reader.look()
        assert status == 200
        seen = {}
        for name, data in stream:
            seen[name] = data
            if "plan" in seen and seen.get("state", {}).get("planned") == 4:
                break
        assert seen["plan"]["treatments"][0]["engine"] == "native"
        go.touch()
        *_, (last, how) = stream
        assert (last, how["status"]) == ("end", "complete")
    finally:
        reader.close()
    assert workspace.finish(program, stats).outcomes() == {"done": 4}
