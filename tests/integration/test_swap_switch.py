"""Swap on a real kernel: off while a job runs, on again afterwards, and also after a worker that was killed.

Only where nothing is swapped to but an area of the test's own: nobody's swap is touched.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from busybox_image import skip_or_fail
from deadlines import ANSWER_S, wait_until
from workspace import Workspace

from bench_worker.host.swap import SwapError, SwapSwitch
from bench_worker.host.swap_guard import SWAPS, swap_areas, switch_off, switch_on

pytestmark = pytest.mark.alone

PRIORITY = 7


def areas():
    """Return the areas that are on."""
    return swap_areas(SWAPS.read_text())


@pytest.fixture
def area(tmp_path):
    """An area of swap of our own, on while the test runs; its path."""
    if os.geteuid():
        skip_or_fail("switching swap needs root")
    if areas():
        skip_or_fail("this machine swaps, and its swap is not ours to switch off")
    path = tmp_path / "swap"
    path.touch(0o600)
    path.write_bytes(bytes(8 << 20))
    tool = shutil.which("mkswap", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if tool is None:
        skip_or_fail("there is no mkswap; apt-get install util-linux")
    subprocess.run([tool, path], check=True, stdout=subprocess.DEVNULL)
    try:
        switch_on(str(path), PRIORITY)
    except OSError as error:
        skip_or_fail(f"the kernel takes no swap on this file system: {error}")
    yield str(path)
    if any(name == str(path) for name, _ in areas()):
        switch_off(str(path))


def test_swap_is_off_within_and_as_it_was_after(area):
    """The priority comes back too, and several that need it off share one switch."""
    switch = SwapSwitch()
    with switch:
        assert areas() == []
        with switch:
            assert areas() == []
        assert areas() == []
    assert areas() == [(area, PRIORITY)]


def test_swap_comes_back_when_its_user_is_killed(area):
    """Nobody has to clean up after a process that could not."""
    code = "import time; from bench_worker.host.swap import SwapSwitch\n"
    code += "with SwapSwitch(): print('off', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as user:
        assert user.stdout.readline() == b"off\n"
        assert areas() == []
        user.send_signal(signal.SIGKILL)
        wait_until(areas, ANSWER_S, "swap on again")
    assert areas() == [(area, PRIORITY)]


def test_swap_that_cannot_be_restored_is_reported(area):
    """An area that is gone meanwhile is a failure, with its name."""
    with pytest.raises(SwapError, match="could not be switched on again"), SwapSwitch():
        Path(area).unlink()
    assert areas() == []


def test_a_run_needs_leave_and_leaves_swap_as_it_was(area, tmp_path):
    """Without the flag the run is refused and touches nothing; with it, swap is off while the job runs."""
    job = {"workload": "mbw", "params": {"array_size": "16MiB", "runs": 100}, "swap": "off"}
    if shutil.which("mbw") is None:
        skip_or_fail("there is no mbw; apt-get install mbw")
    folder = tmp_path / "runs"
    folder.mkdir()
    with Workspace(folder) as workspace:
        scenario = workspace.scenario(job=job, repeats=3)
        refused = workspace.start_run(scenario)[0].wait_for_exit()
        assert refused.status == 2
        assert "start it with --allow-swapoff" in refused.err
        seen = set()
        program, stats = workspace.start_run(scenario, "--allow-swapoff")
        while program.process.poll() is None:
            seen.add(len(areas()))
            time.sleep(0.005)
        assert workspace.finish(program, stats).outcomes() == {"done": 3}
        assert seen == {0, 1}
    assert areas() == [(area, PRIORITY)]
