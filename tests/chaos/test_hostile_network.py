"""A run over two hosts while the second is harmed: it ends within its bound, as documented, with one story."""

import re
import shutil
import signal
import time
from dataclasses import dataclass, field
from itertools import count

import pytest
from deadlines import LONG_END_S, START_S, wait_until
from history import faults_of
from live_run import LIFE, Gate, processes_of
from remote_run import Blades, RemoteRun
from small_disk import fill
from test_resumed_runs import ended_trials
from workspace import UNHURRIED, Workspace, free_ports

FAR = {
    "engines": ["native"],
    "environments": ["bare-metal", "hypervisor"],
    "repeats": 2,
    "concurrency": 2,
    "iterations": 5,
    "job": {"operations": LIFE, "container": {"command": ["sleep", "0.3"]}},
}
"""Four trials of ten jobs, two on each blade; a second and a half each."""
HOLD = "held"
"""A file of this name in the home of a blade keeps its jobs from ending."""
HELD = {
    **FAR,
    "job": {
        "operations": LIFE,
        "container": {"command": ["sh", "-c", f"while [ -e /root/{HOLD} ]; do sleep 0.1; done; exec sleep 0.3"]},
    },
}
"""The same, and jobs wait for what is done to their blade: a few seconds may pass unseen on a busy machine."""
JOBS = 40
LONG_AWAITED = ("--heartbeat-timeout", "6s", "--reconnect-timeout", f"{START_S:g}s", "--lease", f"{START_S:g}s")
"""For what comes back, which may take its time."""
SHORT = ("--heartbeat-timeout", "6s", "--reconnect-timeout", "6s", "--lease", "9s")
"""For what does not."""


@pytest.fixture(scope="module")
def bed():
    made = Blades()
    yield made
    made.close()


@pytest.fixture
def blades(bed):
    yield bed
    bed.repair()


@pytest.fixture
def gates(blades):
    """A gate on each blade: a trial of ten jobs passes each."""
    folders = [blades.home(number) / "gate" for number in (1, 2)]
    made = [Gate(folder, "/root/gate") for folder in folders]
    for gate in made:
        gate.admit(10)
    yield made
    for folder in folders:
        shutil.rmtree(folder)


# -- what is done to the second blade ------------------------------------------------------------------------------


def missed(run):
    """Wait until the master misses the worker."""
    wait_until(lambda: "silent for" in run.err, START_S, "the loss")


def back(run):
    """Wait until it is there again."""
    wait_until(lambda: "is back" in run.err, START_S, "its return")


def cable_out_for_a_moment(run):
    """For far less than the silence that is borne: TCP may wait as long again before it retries."""
    run.blades.set_link("down")
    time.sleep(2)
    run.blades.set_link("up")


def cable_out_for_longer(run):
    """Until it is missed, and in time for its return."""
    run.blades.set_link("down")
    missed(run)
    run.blades.set_link("up")
    back(run)


def cable_out_for_good(run):
    """It stays out until the run is over."""
    run.blades.set_link("down")


def nothing_comes_from_it(run):
    """Frames to the worker arrive; frames from it do not."""
    run.blades.inject_faults(**{"from": {"cut": True}})
    missed(run)
    run.blades.inject_faults()
    back(run)


def nothing_gets_to_it(run):
    """Frames from the worker arrive, and frames to it do not: it gets no acknowledgement either."""
    run.blades.inject_faults(to={"cut": True})
    missed(run)
    run.blades.inject_faults()
    back(run)


def frames_are_late_and_lost(run):
    """Each way a tenth of them, and the rest a tenth of a second late, until the run ends."""
    run.blades.inject_faults(to={"loss": 0.1, "delay_s": 0.1}, **{"from": {"loss": 0.1, "delay_s": 0.1}})


def frames_take_a_second(run):
    """As by way of a satellite, twice."""
    run.blades.inject_faults(to={"delay_s": 0.5}, **{"from": {"delay_s": 0.5}})


def frozen_and_thawed(run):
    """All of its processes stand still together, longer than silence is borne."""
    run.signal(run.worker(2), signal.SIGSTOP)
    missed(run)
    run.resume_worker(2)
    back(run)


def frozen_for_good(run):
    """And stay so."""
    run.signal(run.worker(2), signal.SIGSTOP)


def killed(run):
    """All of them at once, and they are not restarted."""
    run.signal(run.worker(2), signal.SIGKILL)


def rebooted(run):
    """The whole blade is gone without a word, comes up again, and its worker is started again."""
    run.blades.cut_power(2)
    run.blades.repair()
    run.start_worker(2)
    back(run)


@dataclass(frozen=True)
class Trouble:
    """What is done, and how the run is to end. `lossless`: no job may have needed a second attempt."""

    deed: object
    status: int = 0
    lossless: bool = False
    flags: tuple = LONG_AWAITED
    marks: tuple = field(default=())


TROUBLES = [
    Trouble(cable_out_for_a_moment, lossless=True, flags=UNHURRIED, marks=(pytest.mark.slow,)),
    Trouble(cable_out_for_longer, marks=(pytest.mark.slow,)),
    Trouble(cable_out_for_good, 3, flags=SHORT),
    Trouble(nothing_comes_from_it, marks=(pytest.mark.slow,)),
    Trouble(nothing_gets_to_it, marks=(pytest.mark.slow,)),
    Trouble(frames_are_late_and_lost, flags=UNHURRIED),
    Trouble(frames_take_a_second, lossless=True, flags=UNHURRIED, marks=(pytest.mark.slow,)),
    Trouble(frozen_and_thawed, marks=(pytest.mark.slow,)),
    Trouble(frozen_for_good, 3, flags=SHORT, marks=(pytest.mark.slow,)),
    Trouble(killed, 3, flags=SHORT, marks=(pytest.mark.slow,)),
    Trouble(rebooted),
]


@pytest.mark.parametrize("trouble", [pytest.param(one, id=one.deed.__name__, marks=one.marks) for one in TROUBLES])
def test_a_run_survives(tmp_path, blades, trouble):
    """Each job has one end; the other host's are done, whatever happens to this one; the host is clean in the end."""
    hold = blades.home(2) / HOLD
    hold.touch()
    with RemoteRun(tmp_path / "live", HELD, *trouble.flags, blades=blades) as run:
        run.start_worker(1)
        run.start_worker(2)
        wait_until(lambda: run.jobs_on(2), START_S, f"jobs on the second blade; {run.err}")
        trouble.deed(run)
        hold.unlink(missing_ok=True)
        assert run.end() == trouble.status, run.err
        assert not run.faults(), run.faults()
        rows = run.run.jobs
        assert {row["outcome"] for row in rows if row["worker"] == "blade-1"} == {"done"}
        assert sum(row["worker"] == "blade-1" for row in rows) == JOBS / 2
        outcomes = run.run.outcomes()
        if trouble.status:
            assert 1 <= outcomes["lost"] <= 2, outcomes
            assert "INCOMPLETE" in run.out
            assert "did not come back" in run.err
        else:
            assert outcomes == {"done": JOBS}
        if trouble.lossless:
            assert "was lost" not in run.err
            assert not any(row["attempt"] for row in rows)
        blades.repair()
        run.resume_worker(2)
        wait_until(lambda: not processes_of(run.run.run_id), START_S, "the clean-up of the blades")
        run.dismiss_workers()
        run.assert_clean()


@pytest.mark.slow
def test_a_disk_that_is_full_fails_jobs_of_its_own_host(tmp_path, blades, gates):
    """What needs the space fails, each job once and with a reason; its results come all the same."""
    write = ["sh", "-c", "head -c 1000 /dev/zero > zeros && sleep 0.2"]
    job = {"operations": LIFE, "container": {"command": write}}
    scenario = {**FAR, "iterations": 10, "job": job, "allow_failures": True}
    gates[0].open()
    with RemoteRun(tmp_path / "live", gates[1].holds(scenario), *UNHURRIED, blades=blades) as run:
        there, seen = blades.tiny_disk(2)
        run.start_worker(1)
        run.start_worker(2, TMPDIR=there)
        names = (seen / f"ballast-{number}" for number in count())
        wait_until(lambda: not [*gates[1].folder.glob("pass-*")], START_S, "what passes the gate of the second blade")
        fill(next(names))
        gates[1].open()
        # What a job that ends leaves free is taken too, until one has failed.
        wait_until(
            lambda: fill(next(names)) or re.search(r"^  [.oO*]*X", run.err, re.MULTILINE), START_S, "a failed job"
        )
        assert run.end() == 0, run.err
        assert not run.faults(), run.faults()
        rows = run.run.jobs
        assert {row["worker"] for row in rows if row["outcome"] == "failed"} == {"blade-2"}
        assert {row["outcome"] for row in rows} == {"done", "failed"}
        assert all(row["error"]["message"] for row in rows if row["outcome"] == "failed")
        assert len(rows) == 2 * JOBS
        assert "was lost" not in run.err
        run.dismiss_workers()


@pytest.mark.slow
def test_a_fleet_whose_host_vanishes_ends_its_run(tmp_path, blades, gates):
    """Started over SSH, cut off for good: the run ends, says which worker may still be there, and how to end it."""
    with Workspace(tmp_path) as master:
        master.environ["XDG_CACHE_HOME"] = str(blades.cache)
        control, results, work = free_ports(3)
        ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
        reach = ("-i", blades.inventory(tmp_path / "hosts.yaml"), "--known-hosts", blades.known_hosts)
        flags = (*reach, *ports, *SHORT, "--progress", "chars")
        program, stats = master.start_run(master.scenario(**gates[0].holds(FAR)), *flags, workers=0)
        program.wait_for_output("worker blade-2", LONG_END_S)
        wait_until(lambda: ended_trials(stats), START_S, "a whole trial")
        blades.set_link("down")
        gates[0].open()
        run = master.finish(program, stats, 3)
        assert not faults_of(stats)
        assert "INCOMPLETE" in run.out
        (result,) = (line for line in run.errors if "may still run" in line)
        assert result.startswith("worker blade-2 may still run: ")
        assert f"fleet stop -i {tmp_path}/hosts.yaml --only blade-2" in result
        cut_off = master.master("fleet", "stop", *reach, seconds=LONG_END_S)
        assert cut_off.status == 3
        assert "blade-1\tblade-1\twas not running" in cut_off.out
        blades.repair()
        ended = master.master("fleet", "stop", *reach, seconds=LONG_END_S)
        assert ended.status == 0, ended.out
        wait_until(lambda: blades.processes() == [], START_S, "the end of the workers")
        assert not processes_of(run.run_id)
