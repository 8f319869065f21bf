"""A run over two hosts while the second is harmed: it ends within its bound, as documented, with one story."""

import re
import signal
import time
from dataclasses import dataclass, field
from itertools import count

import pytest
from arena import LIFE, marked
from far import INSTALL_S, Blades, FarRun
from history import faults_of
from test_foreign_conditions import _fill
from test_resumed_runs import ended_trials
from weighing import Weighing, free_ports, until

from bench_common.stats.reader import StatsFile

FAR = {
    "engines": ["native"],
    "environments": ["bare-metal", "hypervisor"],
    "repeats": 2,
    "concurrency": 2,
    "iterations": 5,
    "job": {"operations": LIFE, "container": {"command": ["sleep", "0.3"]}},
}
"""Four trials of ten jobs, two on each blade; a second and a half each."""
JOBS = 40
LONG_AWAITED = ("--heartbeat-timeout", "3s", "--reconnect-timeout", "60s", "--lease", "60s")
"""For what takes its time to come back."""
SHORT = ("--heartbeat-timeout", "3s", "--reconnect-timeout", "6s", "--lease", "9s")
END_S = 90
"""How long a run may take on a machine that does other things, too; what hangs takes longer."""


@pytest.fixture(scope="module")
def bed():
    made = Blades()
    yield made
    made.close()


@pytest.fixture
def blades(bed):
    yield bed
    bed.mend()


# -- what is done to the second blade ------------------------------------------------------------------------------


def missed(run):
    """Wait until the master misses the worker."""
    until(lambda: "silent for" in run.said, 30, "the loss")


def back(run):
    """Wait until it is there again."""
    until(lambda: "is back" in run.said, 30, "its return")


def cable_out_for_a_moment(run):
    """For less than half of the silence that is borne: TCP may wait as long again before it tries anew."""
    run.blades.cable("down")
    time.sleep(2)
    run.blades.cable("up")


def cable_out_for_longer(run):
    """Until it is missed, and in time for its return."""
    run.blades.cable("down")
    missed(run)
    run.blades.cable("up")
    back(run)


def cable_out_for_good(run):
    """Nobody puts it in again before the run is over."""
    run.blades.cable("down")


def nothing_comes_from_it(run):
    """What the master says arrives; what the worker says does not."""
    run.blades.harm(**{"from": {"cut": True}})
    missed(run)
    run.blades.harm()
    back(run)


def nothing_gets_to_it(run):
    """What the worker says arrives, and what the master says does not: it is not even told that it is heard."""
    run.blades.harm(to={"cut": True})
    missed(run)
    run.blades.harm()
    back(run)


def frames_are_late_and_lost(run):
    """Each way a tenth of them, and the rest a tenth of a second late, until the run ends."""
    run.blades.harm(to={"loss": 0.1, "delay_s": 0.1}, **{"from": {"loss": 0.1, "delay_s": 0.1}})


def frames_take_a_second(run):
    """As by way of a satellite, twice."""
    run.blades.harm(to={"delay_s": 0.5}, **{"from": {"delay_s": 0.5}})


def frozen_and_thawed(run):
    """All of its processes stand still together, longer than silence is borne."""
    run.signal(run.worker(2), signal.SIGSTOP)
    missed(run)
    run.thaw(2)
    back(run)


def frozen_for_good(run):
    """And stay so."""
    run.signal(run.worker(2), signal.SIGSTOP)


def killed(run):
    """All of them at once, and nobody starts it again."""
    run.signal(run.worker(2), signal.SIGKILL)


def rebooted(run):
    """The whole blade is gone without a word, comes up again, and its worker is started anew."""
    run.blades.cut_power(2)
    run.blades.mend()
    run.board(2)
    back(run)


@dataclass(frozen=True)
class Trouble:
    """What is done, and how the run is to end. `lossless`: no job may have needed a second attempt."""

    deed: object
    status: int = 0
    lossless: bool = False
    flags: tuple = SHORT
    marks: tuple = field(default=())


TROUBLES = [
    Trouble(cable_out_for_a_moment, lossless=True, flags=(), marks=(pytest.mark.slow,)),
    Trouble(cable_out_for_longer, marks=(pytest.mark.slow,)),
    Trouble(cable_out_for_good, 3),
    Trouble(nothing_comes_from_it, marks=(pytest.mark.slow,)),
    Trouble(nothing_gets_to_it, marks=(pytest.mark.slow,)),
    Trouble(frames_are_late_and_lost, flags=()),
    Trouble(frames_take_a_second, lossless=True, flags=(), marks=(pytest.mark.slow,)),
    Trouble(frozen_and_thawed, marks=(pytest.mark.slow,)),
    Trouble(frozen_for_good, 3, marks=(pytest.mark.slow,)),
    Trouble(killed, 3, marks=(pytest.mark.slow,)),
    Trouble(rebooted, flags=LONG_AWAITED),
]


@pytest.mark.parametrize("trouble", [pytest.param(one, id=one.deed.__name__, marks=one.marks) for one in TROUBLES])
def test_a_run_survives(tmp_path, blades, trouble):
    """Each job has one end; the other host's are done, whatever happens to this one; the host is clean in the end."""
    with FarRun(tmp_path / "arena", FAR, *trouble.flags, blades=blades) as run:
        run.board(1)
        run.board(2)
        until(lambda: run.naps_on(2), 60, f"jobs on the second blade; {run.said}")
        trouble.deed(run)
        assert run.end(END_S) == trouble.status, run.said
        assert not run.faults(), run.faults()
        rows = run.run.jobs
        assert {row["outcome"] for row in rows if row["worker"] == "blade-1"} == {"done"}
        assert sum(row["worker"] == "blade-1" for row in rows) == JOBS / 2
        outcomes = run.run.outcomes()
        if trouble.status:
            assert 1 <= outcomes["lost"] <= 2, outcomes
            assert "INCOMPLETE" in run.out
            assert "did not come back" in run.said
        else:
            assert outcomes == {"done": JOBS}
        if trouble.lossless:
            assert "was lost" not in run.said
            assert not any(row["attempt"] for row in rows)
        blades.mend()
        run.thaw(2)
        until(lambda: not marked(run.run.run_id), 40, "the clean-up of the blades")
        run.send_home()
        run.nothing_left()


@pytest.mark.slow
def test_a_run_goes_on_when_its_master_was_killed(tmp_path, blades):
    """Resumed in its file, with the workers that had outlived it; no trial counts twice, and no job."""
    with FarRun(tmp_path / "arena", {**FAR, "repeats": 3}, *SHORT, blades=blades) as run:
        run.board(1)
        run.board(2)
        until(lambda: len(ended_trials(run.stats)) >= 2, 60, "two whole trials")
        run.signal([run.master], signal.SIGKILL)
        run.program.process.wait(10)
        assert not run.faults(), run.faults()
        until(lambda: not marked(run.run.run_id), 40, "the clean-up of the workers, after their lease")
        words = ("run-scenario", "--resume", run.stats, "--expect", 2, "--worker-timeout", "60s", *run.reach)
        ended = run.started("bench-master", *words).ended(END_S)
        assert ended.status == 0, ended.err
        assert not faults_of(run.stats)
        assert sorted(ended_trials(run.stats)) == list(range(6))
        assert sum(len(rows) for rows in StatsFile(run.stats).iter_jobs()) == 60
        run.send_home()
        assert not marked(run.run.run_id)


@pytest.mark.slow
def test_a_disk_that_is_full_fails_jobs_of_its_own_host(tmp_path, blades):
    """What needs the space fails, each job once and with a reason; its results come all the same."""
    write = ["sh", "-c", "head -c 1000 /dev/zero > zeros && sleep 0.2"]
    scenario = {**FAR, "iterations": 10, "job": {"operations": LIFE, "container": {"command": write}}}
    with FarRun(tmp_path / "arena", scenario, blades=blades) as run:
        there, seen = blades.tiny_disk(2)
        run.board(1)
        run.board(2, TMPDIR=there)
        names = (seen / f"ballast-{number}" for number in count())
        until(lambda: run.shown() >= 4, 60, "the first jobs")
        # What a job that ends leaves free is taken too, until one has failed.
        until(lambda: _fill(next(names)) or re.search(r"^  [.]*X", run.said, re.MULTILINE), 60, "a failed job")
        assert run.end(END_S) == 0, run.said
        assert not run.faults(), run.faults()
        rows = run.run.jobs
        assert {row["worker"] for row in rows if row["outcome"] == "failed"} == {"blade-2"}
        assert {row["outcome"] for row in rows} == {"done", "failed"}
        assert all(row["error"]["message"] for row in rows if row["outcome"] == "failed")
        assert len(rows) == 2 * JOBS
        assert "was lost" not in run.said
        run.send_home()


@pytest.mark.slow
def test_a_fleet_whose_host_vanishes_ends_its_run(tmp_path, blades):
    """Started over SSH, cut off for good: the run ends, says which worker may still be there, and how to end it."""
    with Weighing(tmp_path) as master:
        master.environ["XDG_CACHE_HOME"] = str(blades.cache)
        control, results, work = free_ports(3)
        ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
        reach = ("-i", blades.inventory(tmp_path / "hosts.yaml"), "--known-hosts", blades.known_hosts)
        flags = (*reach, *ports, *SHORT, "--progress", "chars")
        program, stats = master.start_run(master.scenario(**FAR), *flags, workers=0)
        program.says("worker blade-2", INSTALL_S)
        until(lambda: ended_trials(stats), 60, "a whole trial")
        blades.cable("down")
        run = master.over(program, stats, status=3, seconds=END_S)
        assert not faults_of(stats)
        assert "INCOMPLETE" in run.out
        (told,) = (line for line in run.complaints if "may still run" in line)
        assert told.startswith("worker blade-2 may still run: ")
        assert f"kill-workers -i {tmp_path}/hosts.yaml --only blade-2" in told
        cut_off = master.master("kill-workers", *reach, seconds=INSTALL_S)
        assert cut_off.status == 3
        assert "blade-1\tblade-1\twas not running" in cut_off.out
        blades.mend()
        ended = master.master("kill-workers", *reach, seconds=INSTALL_S)
        assert ended.status == 0, ended.out
        until(lambda: blades.processes() == [], 40, "the end of the workers")
        assert not marked(run.run_id)
