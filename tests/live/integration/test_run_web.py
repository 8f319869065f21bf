"""Real runs with `--web`: the address, who looked and who stopped it, and a page that ends with its master."""

import json
import os
import signal
import socket

import psutil
import pytest
from deadlines import START_S, wait_until
from live_reader import Reader, address_in
from workspace import NAP, UNHURRIED, held_until, naps_until

from bench_common.errors import ExitCode
from bench_common.stats.reader import StatsFile


@pytest.fixture
def over(workspace):
    """A file that says that the reader has seen what the test is about: before that the run does not end."""
    return workspace.folder / "over"


def job(command):
    return {**NAP, "container": {"command": command}}


def events(stats, *kinds):
    return [block.body for block in StatsFile(stats).blocks({"event"}) if block.body["kind"] in kinds]


def pages_of(program):
    """Return the process of the page."""
    return [
        child
        for child in psutil.Process(program.process.pid).children()
        if "bench_features.live.live_process" in child.cmdline()
    ]


def start(workspace, *flags, **scenario):
    flags = ("--web", "127.0.0.1:0", *UNHURRIED, *flags)
    program, stats = workspace.start_run(workspace.scenario(**scenario), *flags)
    program.wait_for_output("live page: ", START_S)
    return program, stats, Reader(address_in(program.err))


def test_a_reader_stops_the_run_and_both_are_told(workspace, over):
    jobs = {"repeats": 2, "iterations": 50, "concurrency": 2, "job": job(naps_until(over))}
    program, stats, reader = start(workspace, "--web-control", **jobs)
    assert reader.log_in() == 204
    _, stream = reader.look()
    secret = next(stream)[1]["secret"]
    seen = {}
    for name, data in stream:
        seen[name] = data
        if name == "state" and data["done"] > 5 and len(data["points"]) and data["points"][-1][4]:
            break
    assert seen["plan"]["scenario"].startswith("workspace: `sh -c ")
    assert seen["plan"]["treatments"][0]["engine"] == "native"
    state = seen["state"]
    assert (state["planned"], state["trial"]["total"]) == (200, 2)
    assert [row["operation"] for row in state["latencies"]] == ["job", "run", "wait", "remove"]
    assert (state["hosts"][0]["worker"], state["hosts"][0]["slots"]) == ("local-0", 2)
    (page,) = pages_of(program)
    assert page.nice() == 10
    assert reader.token not in " ".join(page.cmdline())
    code = reader.change("/stop", {}, secret)[1].split('"')[3]
    assert reader.change("/stop", {"confirm": code}, secret)[0] == 200
    who = "127.0.0.1, session 1"
    program.wait_for_output(f"stopped on the live page, by {who}", START_S)
    over.touch()
    *_, (last, how) = stream
    assert (last, how["status"]) == ("end", "interrupted")
    done = program.wait_for_exit()
    reader.close()
    assert done.status == ExitCode.INTERRUPTED
    assert not page.is_running()
    assert [event["who"] for event in events(stats, "stopped-on-page")] == [who]
    assert len(events(stats, "interrupted")) == 1
    began, ended = events(stats, "watched")
    assert (began["state"], ended["state"], ended["viewers"], ended["shares_host"]) == ("began", "ended", 1, True)
    assert ended["snapshots"] > 0
    assert b"#t=" not in stats.read_bytes()
    # The rest of the run is not watched: the report names only what was.
    resumed = workspace.master("run-scenario", "--resume", stats, "--web", "127.0.0.1:0", "-q")
    assert resumed.status == ExitCode.OK
    assert "live page: http://127.0.0.1:" in resumed.err
    report = workspace.master("report-scenario", "-s", stats, "--format", "json")
    assert f"the run was stopped on its live page, by {who}" in report.out


def test_the_page_says_what_the_report_says(workspace):
    """While the run goes on a sentence is there after some trials; at its end it is that at the top of the report."""
    commands = {"container.command": [["sleep", "0.01"], ["sleep", "0.06"]]}
    job = {"operations": ["run", "wait", "remove"], "container": {}}
    program, stats, reader = start(workspace, "--web-control", repeats=5000, job=job, matrix=commands)
    assert reader.log_in() == 204
    _, stream = reader.look()
    secret = next(stream)[1]["secret"]
    assert next(data["answer"] for name, data in stream if name == "state" and data["answer"])
    code = reader.change("/stop", {}, secret)[1].split('"')[3]
    assert reader.change("/stop", {"confirm": code}, secret)[0] == 200
    *_, (last, how) = stream
    assert (last, how["status"]) == ("end", "interrupted")
    program.wait_for_exit()
    reader.close()
    report = workspace.master("report-scenario", "-s", stats, "-q").out.splitlines()
    assert report[0].startswith("INCOMPLETE")
    assert how["answer"] == " ".join(report[1:])
    assert how["answer"]
    document = json.loads(workspace.master("report-scenario", "-s", stats, "--format", "json").out)
    assert document["verdicts"] is None or how["answer"] == document["verdicts"]["answer"]


def two(over):
    """Return two treatments of which one is plainly slower; the first job waits for a file `over`."""
    job = {"workload": "command", "command": ["true"], "setup": held_until(over)}
    commands = {"command": [["sleep", "0.01"], ["sleep", "0.05"]]}
    return {"repeats": 4, "iterations": 8, "job": job, "matrix": commands}


def watched_to_its_end(workspace, over, *flags):
    """Run two treatments with somebody at the page; return how it ended, how the page did, and the stats file."""
    over.unlink(missing_ok=True)
    program, stats, reader = start(workspace, "--fail-on", "slower by 900%", *flags, **two(over))
    assert reader.log_in() == 204
    _, stream = reader.look()
    over.touch()
    *_, (last, how) = stream
    assert (last, how["status"]) == ("end", "complete")
    done = program.wait_for_exit()
    reader.close()
    return done, how, stats


def test_the_page_of_a_run_with_a_baseline_ends_with_both_answers(workspace, over):
    """Against the earlier run first, as the report begins, then within the run; on the page as in the report."""
    before = workspace.folder / "before.stats.gz"
    over.touch()
    assert workspace.master("run-scenario", "-f", workspace.scenario(**two(over)), "-s", before, "-R").status == 0
    done, how, stats = watched_to_its_end(workspace, over, "--baseline", before)
    # One earlier run is no evidence of how much runs differ: the gate cannot be judged.
    assert done.status == ExitCode.INCONCLUSIVE, done.err
    report = workspace.master("report-scenario", "-s", stats, "--baseline", before, "-q").out.splitlines()
    assert len(report) == 2
    assert "earlier run" in report[0]
    assert "sleep 0.05" in report[1]
    assert how["answer"] == " ".join(report)
    assert "repeats give no 95 % interval" not in done.err, "the verdicts say it"
    page = " ".join(done.out.split())
    assert page.index("Against earlier runs") < page.index("Within this run")
    for sentence in report:
        assert sentence.removeprefix("Against earlier runs: ") in page


def test_the_page_of_a_run_with_a_trend_ends_with_what_the_archive_says(workspace, over):
    """The first run of an archive has nothing to be held against, the second too little: the page says so, too."""
    words = ("--archive", workspace.folder / "archive", "--baseline", "trend")
    for earlier in ("no earlier run", "only 1 earlier run"):
        done, how, stats = watched_to_its_end(workspace, over, *words)
        assert done.status == ExitCode.INCONCLUSIVE, done.err
        assert "archived as " in done.err
        page = " ".join(done.out.split())
        assert earlier in page
        assert page.index("Against earlier runs") < page.index("Within this run")
        assert "sleep 0.05" in how["answer"]
        assert how["answer"].startswith("Against earlier runs: ")
        for sentence in how["answer"].removeprefix("Against earlier runs: ").split(". "):
            assert sentence.rstrip(".") in page, how["answer"]
        stats.unlink()


def test_a_run_that_was_watched_says_which_trials(workspace, over):
    program, stats, reader = start(workspace, repeats=2, iterations=30, job=job(held_until(over)))
    reader.log_in()
    _, stream = reader.look()
    wait_until(lambda: stats.exists() and events(stats, "watched"), START_S, "the run knows of its reader")
    over.touch()
    *_, (last, how) = stream
    assert (last, how["status"]) == ("end", "complete")
    assert how["line"].startswith("60 jobs in ")
    assert program.wait_for_exit().status == ExitCode.OK
    report = workspace.master("report-scenario", "-s", stats, "-v")
    assert "watched during trials 1-2: somebody had the live page open" in " ".join(report.out.split())


def test_a_page_that_nobody_looks_at_asks_nothing_and_ends_with_a_master_that_is_killed(workspace, over):
    program, stats, reader = start(workspace, job=job(held_until(over)))
    assert reader.log_in() == 204
    wait_until(lambda: stats.exists() and events(stats, "trial-begin"), START_S, "the run begins")
    (page,) = pages_of(program)
    assert events(stats, "watched") == []
    with reader.raw() as silent:
        silent.sendall(b"GET /events HTTP/1.1\r\n")
        os.kill(program.process.pid, signal.SIGKILL)
        wait_until(lambda: not page.is_running(), START_S, "the page's process ends")
    over.touch()


def test_a_page_that_dies_does_not_end_the_run(workspace, over):
    program, stats, reader = start(workspace, iterations=5, job=job(held_until(over)))
    reader.log_in()
    _, stream = reader.look()
    assert next(stream)[0] == "hello"
    wait_until(lambda: stats.exists() and events(stats, "watched"), START_S, "the run knows of its reader")
    (page,) = pages_of(program)
    page.kill()
    program.wait_for_output("the live page is gone (its process ended); the run goes on without it", START_S)
    over.touch()
    done = program.wait_for_exit()
    reader.close()
    assert done.status == ExitCode.OK
    assert [event["state"] for event in events(stats, "watched")] == ["began", "ended"]


def test_an_address_that_cannot_be_had_ends_the_command_before_the_run(workspace):
    scenario = workspace.scenario()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        cases = {
            ("--web", address): f"--web {address}: the port is taken; name another one, or port 0 for a free one",
            ("--web", "0.0.0.0:0"): "add --web-insecure-bind",
            ("--web", "example.org"): "'example.org': expected ADDRESS:PORT, such as 127.0.0.1:8089",
            ("--web", "127.0.0.1:70000"): "expected a port from 0 (a free one) to 65535",
            ("--web", "192.0.2.1:0", "--web-insecure-bind"): "--web 192.0.2.1:0: Cannot assign requested address",
            ("--web-control",): "--web-control: there is no page without --web",
        }
        for flags, expected in cases.items():
            words = ("run-scenario", "-f", scenario, "-s", workspace.folder / "run.stats.gz", *flags)
            # One of them is the program, which ends as it does in this process.
            done = workspace.master(*words) if address in flags else workspace.refused(*words)
            messages = [line for line in done.err.splitlines() if line.startswith("bench-master")]
            assert (done.status, len(messages)) == (ExitCode.USAGE, 1), done.err
            assert expected in done.err
            assert not (workspace.folder / "run.stats.gz").exists()
