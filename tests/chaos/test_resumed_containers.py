"""A run of containers whose master is killed outright, alone or with its workers, and that is resumed then."""

import re
import signal

import pytest
from deadlines import ANSWER_S, START_S, wait_until
from live_run import DOCKER, Gate, LiveRun, children, processes_of
from test_resumed_runs import Resumed, ended_trials
from workspace import containers_of

from bench_common.stats.reader import StatsFile

SHORT = ("--heartbeat-timeout", "5s", "--reconnect-timeout", f"{START_S:g}s", "--lease", "5s")
"""What a run that is resumed has again: it waits for this lease, and not for the default's."""
TRIALS = {**DOCKER, "repeats": 4, "iterations": 2}
"""Four trials of four containers, of a second and more each."""


def kill(live, *, workers):
    """Kill the master, and the workers with it where a whole host is lost."""
    victims = [live.master, *(children(live.master) if workers else ())]
    live.signal(victims, signal.SIGKILL)
    live.program.process.wait(ANSWER_S)


@pytest.mark.docker
@pytest.mark.parametrize("workers", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["master", "both"])
def test_containers_of_the_earlier_part_are_removed_and_nothing_counts_twice(tmp_path, workers):
    """Who is left cleans up within its lease, or the next worker does; what was cut short is run again, and once."""
    gate = Gate(tmp_path / "gate")
    gate.admit(4)
    with LiveRun(tmp_path / "first", gate.holds(TRIALS), *SHORT) as first:
        wait_until(lambda: len(ended_trials(first.stats)) >= 1, START_S, "a whole trial")
        run_id = first.run.run_id
        wait_until(lambda: containers_of(first.docker, run_id), START_S, "a container that is at work")
        first.refresh()
        kill(first, workers=workers)
        assert not first.faults(), "what was written before the kill is one story already"
        before = {block.body["trial"] for block in StatsFile(first.stats).blocks({"event"}) if "trial" in block.body}
        gate.open()
        with Resumed(tmp_path / "second", TRIALS, stats=first.stats) as second:
            assert second.end() == 0, second.err
            assert containers_of(first.docker, run_id) == [], "of the part before"
            assert not second.faults()
            assert not processes_of(run_id)
            document = second.run.document
            assert (document["totals"]["done"], document["totals"]["missing"]) == (16, 0)
            assert sorted(ended_trials(first.stats)) == [0, 1, 2, 3]
            (resumed,) = (
                block.body for block in StatsFile(first.stats).blocks({"event"}) if block.body["kind"] == "resumed"
            )
            assert resumed["ended"] == "killed"
            assert re.fullmatch(rf"{run_id}-2-[0-9a-f]{{8}}", resumed["run_label"])
            assert containers_of(first.docker, resumed["run_label"]) == [], "of the part after it"
            assert set(resumed["rerun_trials"]) <= before
            # What the file holds of a trial that was cut short is there for whoever wants it, and does not count.
            everything = sum(len(block.body) for block in StatsFile(first.stats).blocks({"jobs"}, everything=True))
            assert everything >= 16
