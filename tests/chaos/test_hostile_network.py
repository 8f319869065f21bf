"""A run over two hosts while the second is harmed: it ends within its bound, as documented, with one story."""

import signal
import time
from dataclasses import dataclass, field

import pytest
from arena import LIFE, marked
from far import Blades, FarRun
from weighing import until

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
LONG_AWAITED = ("--silence", "3s", "--rejoin", "60s", "--lease", "60s")
"""For what takes its time to come back."""
SHORT = ("--silence", "3s", "--rejoin", "6s", "--lease", "9s")
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
    Trouble(cable_out_for_a_moment, lossless=True, flags=()),
    Trouble(cable_out_for_longer),
    Trouble(cable_out_for_good, 3),
    Trouble(nothing_comes_from_it),
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
