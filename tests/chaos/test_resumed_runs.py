"""A master that is killed outright, once and again: the run goes on in its file, and every trial counts once."""

import os
import signal
import time
from collections import Counter

import pytest
from deadlines import ANSWER_S, END_S, START_S, wait_until
from live_run import LIFE, SHORT_LEASE, Gate, LiveRun, processes_of
from workspace import Workspace

from bench_common.stats.frame import FrameReader
from bench_common.stats.reader import StatsFile

NATIVE = {
    "engines": ["native"],
    "repeats": 8,
    "concurrency": 2,
    "iterations": 2,
    "job": {"operations": LIFE, "container": {"command": ["sleep", "0.3"]}},
}
"""Eight trials of four jobs, 0.6 s and more each."""
SHORTER = NATIVE | {"repeats": 6}


@pytest.fixture
def gate(tmp_path):
    """Two trials of `NATIVE` pass it; no run is over before it is open."""
    made = Gate(tmp_path / "gate")
    made.admit(8)
    return made


class Resumed(LiveRun):
    """The same run, resumed in its own file; nothing but the file is said."""

    def launch(self, source, workers, flags):
        """Start a master that goes on."""
        return self.workspace.start(
            "bench-master", "run-scenario", "--resume", self.stats, "--progress", "chars", *flags
        )


def ended_trials(stats):
    """Return the trials that the file vouches for at this moment."""
    events = [block.body for block in StatsFile(stats).blocks({"event"})] if stats.exists() else []
    return [event["trial"] for event in events if event["kind"] == "trial-end" and event["complete"]]


def kill_after(live, trials):
    """Kill the master once so many trials are whole."""

    def there():
        assert live.program.process.poll() is None, live.err
        live.refresh()
        return live.stats.exists() and len(ended_trials(live.stats)) >= trials

    wait_until(there, END_S, f"{trials} whole trials")
    live.signal([live.master], signal.SIGKILL)
    live.program.process.wait(ANSWER_S)


@pytest.mark.slow
def test_a_master_that_was_killed_twice_goes_on_where_it_was(tmp_path, gate):
    """After two kills the third life ends the run: each trial whole and once, no job twice, the file readable."""
    trials = NATIVE["repeats"]
    with LiveRun(tmp_path / "first", gate.holds(NATIVE), *SHORT_LEASE) as first:
        stats = first.stats
        kill_after(first, 2)
        with Resumed(tmp_path / "second", NATIVE, stats=stats) as second:
            second.program.wait_for_output("has joined")  # by then no job of the part before is at the gate
            gate.admit(8)
            kill_after(second, 4)
            gate.open()
            with Resumed(tmp_path / "third", NATIVE, stats=stats) as third:
                assert third.end() == 0, third.err
                assert not processes_of(third.run.run_id), "no job of any part is left"
                rows = list(StatsFile(stats).iter_jobs())
                counted = Counter(trial for part in rows for trial in part["trial"].tolist())
                assert counted == dict.fromkeys(range(trials), 4)
                tickets = [ticket for part in rows for ticket in part["ticket"].tolist()]
                assert len(set(tickets)) == len(tickets)
                assert sorted(ended_trials(stats)) == list(range(trials)), "each trial ended once"
                file = StatsFile(stats)
                events = [block.body for block in file.blocks({"event"})]
                assert file.damage is None
                resumes = [event for event in events if event["kind"] == "resumed"]
                assert [event["ended"] for event in resumes] == ["killed", "killed"]
                assert "resumed    2 times" in third.out, "the report tells of both"
                assert "INCOMPLETE" not in third.out
                again = third.workspace.master("run-scenario", "--resume", stats)
                assert (again.status, again.out) == (0, "")
                assert "nothing to resume" in again.err


def test_an_interrupted_run_goes_on(tmp_path, gate):
    """After Ctrl-C a run goes on without a wait; the trial that was cut short is run again, and counts once."""
    with LiveRun(tmp_path / "live", gate.holds(SHORTER)) as live:
        live.wait_for_jobs(8)
        live.signal([live.master], signal.SIGINT)
        live.program.wait_for_output("Ctrl-C again aborts", ANSWER_S)
        gate.open()
        assert live.end() == 130
        with Resumed(tmp_path / "next", SHORTER, stats=live.stats) as following:
            assert following.end() == 0, following.err
            assert "until then workers of the earlier run" not in following.err
            assert [entry["jobs"]["done"] for entry in following.run.document["treatments"]] == [24]
            assert following.run.document["run"]["resumes"][0]["ended"] == "interrupted"


def test_what_cannot_be_resumed_is_refused(tmp_path, gate):
    """Another scenario, other options, a live run: each is refused with a plain error and exit code 2 or 3."""
    with LiveRun(tmp_path / "live", gate.holds(NATIVE)) as live:
        live.wait_for_jobs()
        alive = live.workspace.master("run-scenario", "--resume", live.stats)
        assert alive.status == 3
        assert "its run is still running" in alive.err
        live.signal([live.master], signal.SIGINT)
        live.program.wait_for_output("Ctrl-C again aborts", ANSWER_S)
        gate.open()
        live.end()
        with Workspace(tmp_path / "live" / "home") as workspace:
            other = workspace.scenario(**{**NATIVE, "repeats": 9})
            ended = workspace.master("-q", "run-scenario", "--resume", live.stats, "--workers", 2)
            assert ended.status == 3
            assert "the run was begun with 1 worker in local, now there are 2 workers in local" in ended.err
            for flags, message in [
                (("-f", other), "this is not the plan that it was begun with"),
                (("--noop",), "--noop: "),
                (("-u", 3), "--user-count: "),
                (("--set", "repeats=3"), "--set repeats=3: "),
            ]:
                assert message in workspace.refused("-q", "run-scenario", "--resume", live.stats, *flags).err
            assert "is not a stats file" in workspace.refused("run-scenario", "--resume", other).err


def test_a_master_killed_as_soon_as_its_workers_joined_leaves_its_plan(tmp_path):
    """The plan is on disk before the first order: whatever the moment, there is a report, and the run goes on."""
    gate = Gate(tmp_path / "gate")
    scenario = gate.holds({**NATIVE, "repeats": 2})
    left = []
    for place, delay_s in enumerate((0.0, 0.05)):
        with LiveRun(tmp_path / f"run-{place}", scenario, *SHORT_LEASE) as live:
            wait_until(lambda live=live: "has joined" in live.err, START_S, "a worker")
            time.sleep(delay_s)
            ordered = bool(live.job_processes())
            live.signal([live.master], signal.SIGKILL)
            live.program.process.wait(ANSWER_S)
            if not live.stats.exists():
                assert not ordered, "no job without a file"
                continue
            left.append(live.stats)
            ended = live.workspace.master("report-scenario", "-s", live.stats, "--csv")
            if not live.stats.stat().st_size:
                assert not ordered, "no job without a plan in the file"
                assert "the file is empty: its run ended before it began" in ended.err
                continue
            assert ended.status == 3
            assert "8 of 8 planned jobs are missing" in ended.err
    assert left, "some master was killed in time"
    # What it is at its shortest: a header, and workers that have given up long since.
    stats = left[-1]
    with stats.open("rb") as file:
        reader = FrameReader(file)
        assert reader.read({"header"})[0] == "header"
        header_bytes = reader.offset
    os.truncate(stats, header_bytes)
    os.utime(stats, (0, 0))
    gate.open()
    with Resumed(tmp_path / "next", scenario, stats=stats) as following:
        assert following.end() == 0, following.err
        assert following.run.outcomes() == {"done": 8}


def test_copies_of_one_file_are_not_resumed_at_once(tmp_path, gate):
    """The second master is told which process works on the run, touches nothing, and resumes its copy afterwards."""
    with LiveRun(tmp_path / "live", gate.holds(SHORTER), *SHORT_LEASE) as live:
        kill_after(live, 2)
        copy = tmp_path / "copy.stats.gz"
        copy.write_bytes(live.stats.read_bytes())
        with Resumed(tmp_path / "next", SHORTER, stats=live.stats) as following:
            wait_until(lambda: "resuming" in following.err, START_S, "the first master")
            refused = following.workspace.master("run-scenario", "--resume", copy)
            assert refused.status == 3
            (line,) = refused.err.splitlines()
            assert line.startswith(
                f"bench-master: another master of this user (process {following.program.process.pid}) works on run "
                f"{live.run.run_id}, with this stats file or a copy of it"
            )
            gate.open()
            assert following.end() == 0, following.err
            assert following.run.outcomes() == {"done": 24}
        with Resumed(tmp_path / "other", SHORTER, stats=copy) as other:
            assert other.end() == 0, other.err
            assert other.run.outcomes() == {"done": 24}
        events = [[block.body for block in StatsFile(path).blocks({"event"})] for path in (live.stats, copy)]
        labels = [event["run_label"] for part in events for event in part if event["kind"] == "resumed"]
        assert len(set(labels)) == 2, "two parts of the same number are two parts"
