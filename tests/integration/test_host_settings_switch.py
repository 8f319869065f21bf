"""A setting of a real kernel as a treatment: set while its trials run, as it was afterwards, whatever is killed."""

import json
import os
import signal
from pathlib import Path

import pytest
from busybox_image import skip_or_fail
from deadlines import END_S, START_S, wait_until

from bench_worker.host.setting_switch import records_directory

pytestmark = pytest.mark.alone

NAME = "proc/sys/vm/swappiness"
FILE = Path(f"/{NAME}")
GUARD = "bench_worker.host.settings_guard"
SECONDS = 600
"""How long a job takes that a test ends before."""


def value():
    return FILE.read_text().strip()


@pytest.fixture
def others():
    """Two values that the setting does not have; it has its own again after the test, whatever comes of it."""
    if os.geteuid():
        skip_or_fail("changing a setting of the kernel needs root")
    before = value()
    try:
        yield sorted({"10", "20", "30"} - {before})[:2]
        assert value() == before
        assert not list(records_directory().glob("*.setting"))
    finally:
        FILE.write_text(before)


def sleeper(value_of):
    return {
        "operations": ["run", "wait", "remove"],
        "container": {"command": ["sleep", str(SECONDS)]},
        "host": {"vm.swappiness": value_of},
    }


def processes(*words):
    """Return the numbers of the processes whose command line has all of these words."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode("utf-8", "replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if line and all(word in line for word in words):
            found.append(int(entry.name))
    return found


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_each_job_sees_the_value_of_its_treatment(workspace, others):
    """The values take turns, are labels and part of the record, and the old value is there in the end."""
    job = {
        "workload": "command",
        "command": ["cat", str(FILE)],
        "metrics": {"seen": {"regex": "^(\\d+)$", "better": "lower"}},
        "host": {"vm.swappiness": others},
    }
    run = workspace.run(workspace.scenario(job=job, repeats=3, iterations=2), "--allow-host-settings", "swappiness")
    assert run.outcomes() == {"done": 12}
    treatments = run.header.treatments
    assert [one.labels["vm.swappiness"] for one in treatments] == others
    assert [one.host for one in treatments] == [{NAME: one} for one in others]
    seen = {(row["treatment"]["vm.swappiness"], row["metrics"]["seen"]) for row in run.jobs}
    assert seen == {(one, float(one)) for one in others}


def test_mistakes_end_before_anything_runs(workspace, others):
    """With exit code 2, the place, and what to do; the value that the kernel does not take is told in its words."""
    unasked = workspace.scenario(job=sleeper(others[0]))
    refused = workspace.start_run(unasked)[0].wait_for_exit()
    assert refused.status == 2
    assert f"host setting {NAME} may not be changed: start it with --allow-host-settings {NAME}" in refused.err
    for setting, wrong, told in (
        ("vm.swappiness", "1000", "'1000': the kernel refuses '1000': Invalid argument"),
        ("thp", "alway", "'alway': it is none of its values (did you mean 'always'?)"),
        ("kernel.swappiness", "1", "there is no file /proc/sys/kernel/swappiness on this host"),
    ):
        scenario = workspace.scenario(job={**sleeper("1"), "host": {setting: wrong}})
        refused = workspace.start_run(scenario, "--allow-host-settings", setting)[0].wait_for_exit()
        assert refused.status == 2, refused.err
        assert told in refused.err
        assert f"{scenario}:" in refused.err
    assert workspace.master("validate-scenario", "-f", unasked).status == 0


class Started:
    """A run whose only job sleeps under another value, on a worker that was started by hand."""

    def __init__(self, workspace, wanted):
        scenario = workspace.scenario(job=sleeper(wanted))
        flags = ("--expect", "1", "--heartbeat-timeout", "2s", "--lease", "2s")
        self.master, self.stats = workspace.start_run(scenario, *flags, workers=0)
        self.worker = workspace.start("bench-worker", "--once", "--allow-native", "--allow-host-settings", NAME)
        wait_until(lambda: value() == wanted, START_S, "the value of the run")
        wait_until(lambda: processes("sleep", str(SECONDS)), START_S, "the job")
        self.load_processes = children(self.worker.process.pid)
        self.guards = processes(GUARD, str(records_directory()))

    def kill(self, *names):
        for name in names:
            pids = {
                "master": [self.master.process.pid],
                "worker": [self.worker.process.pid],
                "load process": self.load_processes,
                "guard": self.guards,
            }[name]
            assert pids
            for pid in pids:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "killed", [("worker",), ("master",), ("worker", "master"), ("worker", "load process", "master")]
)
def test_the_value_comes_back_when_these_are_killed(workspace, others, killed):
    """With SIGKILL: nobody has to clean up after them."""
    before = value()
    started = Started(workspace, others[0])
    started.kill(*killed)
    wait_until(lambda: value() == before, END_S, "the old value")
    wait_until(lambda: not processes(GUARD, str(records_directory())), END_S, "the end of the guard")


@pytest.mark.parametrize("by", ["cleanup-containers", "bench-worker"])
def test_what_nobody_could_put_back_is_put_back_later(workspace, others, by):
    """With the guard killed, too, a clean-up tells and restores it, and so does the next worker on the host."""
    before = value()
    started = Started(workspace, others[0])
    started.kill("guard", "worker", "load process", "master")
    wait_until(lambda: not processes(GUARD, str(records_directory())), END_S, "the end of the guard")
    assert value() == others[0]
    if by == "cleanup-containers":
        listed = workspace.master("cleanup-containers", "--dry-run", "--format", "json")
        assert {(one["what"], one["name"], one["verdict"]) for one in json.loads(listed.out)} >= {
            ("setting", NAME, "listed")
        }
        assert value() == others[0]
        swept = workspace.master("cleanup-containers")
        assert swept.status == 0, swept.err
        assert NAME in swept.out
    else:
        worker = workspace.start("bench-worker", "--master-timeout", "0")
        wait_until(lambda: value() == before, START_S, "the old value")
        assert f"removed setting {NAME}, left by run " in worker.wait_for_exit().err
    assert value() == before


def test_a_guard_that_was_killed_is_replaced(workspace, others):
    """The next trial sets its own value again, and the old value of before the run is there in the end."""
    before = value()
    job = {**sleeper(others), "container": {"command": ["sleep", "1"]}}
    scenario = workspace.scenario(job=job, repeats=3, seed=1)
    program, stats = workspace.start_run(scenario, "--allow-host-settings", NAME)
    wait_until(lambda: value() in others, START_S, "a value of the run")
    for pid in processes(GUARD, str(records_directory())):
        os.kill(pid, signal.SIGKILL)
    assert workspace.finish(program, stats).outcomes() == {"done": 6}
    assert value() == before


def test_a_value_that_somebody_else_gives_is_told(workspace, others):
    """The trial did not run under its own value all the time; the old value comes back all the same."""
    before = value()
    begun = workspace.folder / "begun"
    waits = f'touch {begun}; until [ "$(cat {FILE})" = 77 ]; do sleep 0.01; done'
    job = {**sleeper(others[0]), "container": {"command": ["sh", "-c", waits]}}
    program, stats = workspace.start_run(workspace.scenario(job=job), "--allow-host-settings", NAME)
    wait_until(begun.exists, START_S, "the job")
    FILE.write_text("77")
    run = workspace.finish(program, stats)
    told = f"host setting {NAME} was changed to '77' by somebody else while trials ran with '{others[0]}'"
    assert told in run.details
    assert value() == before
