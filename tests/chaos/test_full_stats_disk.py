"""A disk of the stats file that fills up in mid-run: the run waits for room, and loses nothing if it gets some.

The disks are real, a small tmpfs each, which another file fills and frees.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess

import pytest
from builders import header, job_rows, treatment_wire
from deadlines import ANSWER_S, END_S, START_S, wait_until
from live_run import NATIVE, LiveRun
from small_disk import mounted_disk
from workspace import Run, held_until, skip_or_fail

from bench_common.errors import DiskFullError
from bench_common.stats.reader import StatsFile, StatsWriter

PAUSED = "paused: no room for "
MORE = {**NATIVE, "iterations": 20}
"""160 jobs in about twelve seconds: some are left when the first are shown."""


class Disk:
    """A file system of a few KiB in a folder, which a file of nothing but zeros fills."""

    def __init__(self, folder):
        self.folder = folder
        self.stats = folder / "run.stats.gz"
        self._ballast = folder / "ballast"

    def fill(self):
        """Take what space there is left, also within the last page of another file."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self):
        """Give it back."""
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path):
    """A file system of 256 KiB."""
    with mounted_disk(tmp_path / "tiny", "256k") as folder:
        yield Disk(folder)


@pytest.fixture
def quota(tmp_path):
    """A folder that may have 16 MiB, by the quota of a btrfs that has more: root, too, may not go beyond that one."""
    if os.geteuid() != 0 or shutil.which("mkfs.btrfs") is None:
        skip_or_fail("a file system with a quota takes root and btrfs: apt-get install btrfs-progs")
    image, root = tmp_path / "btrfs.img", tmp_path / "btrfs"
    folder = root / "limited"
    root.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)

    def do(*command):
        subprocess.run(list(map(str, command)), capture_output=True, timeout=END_S, check=True)

    do("mkfs.btrfs", "-q", image)
    try:
        do("mount", "-o", "loop", image, root)
    except subprocess.CalledProcessError as error:
        skip_or_fail(f"a btrfs cannot be mounted here: {error.stderr.decode().strip()}")
    try:
        do("btrfs", "quota", "enable", root)
        do("btrfs", "subvolume", "create", folder)
        do("btrfs", "qgroup", "limit", "16M", folder)
        yield Disk(folder)
    finally:
        do("umount", "-l", root)


@pytest.fixture
def paused(tmp_path, disk):
    """Return a run, started with some options, that is paused for want of room, with no job under way."""
    with contextlib.ExitStack() as stack:

        def start(*flags, scenario=MORE):
            live = stack.enter_context(LiveRun(tmp_path / "live", scenario, *flags, stats=disk.stats))
            live.wait_for_jobs()
            disk.fill()
            wait_until(lambda: PAUSED in live.err, START_S, "the pause")
            wait_until(lambda: not live.job_processes(), ANSWER_S, "the end of the running jobs")
            return live

        yield start


def test_a_block_without_room_is_whole_or_not_there(disk):
    """On a full disk each flush leaves whole blocks alone; with room the file goes on where it was."""
    writer = StatsWriter(disk.stats)
    writer.put("header", header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)]))
    writer.flush()
    disk.fill()
    rows = job_rows(*({"ticket": ticket, "end_ns": ticket * 7919**3} for ticket in range(3000)))
    writer.jobs(rows)
    for _ in range(3):
        with pytest.raises(DiskFullError, match="No space left on device") as raised:
            writer.flush()
        assert raised.value.free_bytes == 0
        assert disk.stats.stat().st_size == writer.bytes_written
        assert [block.kind for block in StatsFile(disk.stats).blocks()] == ["header"]
        assert StatsFile(disk.stats).damage is None
    disk.free()
    writer.close({"status": "complete"})
    stats = StatsFile(disk.stats)
    assert [block.kind for block in stats.blocks()] == ["header", "jobs", "footer"]
    assert stats.damage is None
    assert sum(len(part) for part in stats.iter_jobs()) == 3000


def test_a_run_goes_on_when_there_is_room_again(disk, paused):
    """No job begins meanwhile, none is lost, and the report says which trial was held up."""
    live = paused()
    shown = live.jobs_shown()
    told = next(line for line in live.err.splitlines() if PAUSED in line)
    assert f"{PAUSED}{disk.stats}: No space left on device (0B free)" in told
    assert "free some space there, and the run goes on by itself. After 10m (--disk-wait) it is cancelled" in told
    assert live.jobs_shown() == shown
    assert live.job_processes() == []
    disk.free()
    assert live.end() == 0, live.err
    assert "there is room for the stats file again" in live.err
    assert live.run.outcomes() == {"done": 160}
    assert StatsFile(disk.stats).damage is None
    kinds = {one["kind"] for entry in live.run.document["treatments"] for one in entry["disturbances"]}
    assert "disk-full" in kinds
    assert "for want of room on the disk of the stats file" in live.run.details
    live.assert_clean()


def test_a_run_goes_on_when_its_quota_has_room_again(tmp_path, quota):
    """A quota that is used up is waited for like a full disk, though the disk itself has room; nothing is lost."""
    with LiveRun(tmp_path / "live", MORE, stats=quota.stats) as live:
        live.wait_for_jobs()
        quota.fill()
        wait_until(lambda: PAUSED in live.err, START_S, "the pause")
        told = next(line for line in live.err.splitlines() if PAUSED in line)
        assert f"{PAUSED}{quota.stats}: Disk quota exceeded" in told
        quota.free()
        assert live.end() == 0, live.err
        assert live.run.outcomes() == {"done": 160}
        assert StatsFile(quota.stats).damage is None
        live.assert_clean()


def test_a_run_whose_disk_stays_full_ends_and_can_be_resumed(disk, paused):
    """Its time is up: it cleans up, the file is good up to its last block, and --resume does the rest."""
    live = paused("--disk-wait", "2s")
    assert live.end() == 3
    assert "the file is good up to there" in live.err
    assert float(re.search(r"The run waited ([\d.]+)s for room", live.err)[1]) >= 2
    assert re.search(r"\*\*\* (INCOMPLETE|DAMAGED)", live.out)
    assert "interrupted" not in live.err + live.out
    live.run.outcomes()
    live.assert_clean(cut_off=True)
    disk.free()
    resumed = live.workspace.start("bench-master", "run-scenario", "--resume", disk.stats).wait_for_exit(END_S)
    assert resumed.status == 0, resumed.err
    assert Run(resumed.status, resumed.out, resumed.err, disk.stats).outcomes() == {"done": 160}
    assert StatsFile(disk.stats).damage is None


def test_a_run_without_patience_ends_at_once(tmp_path, disk):
    """With --disk-wait 0 there is one clear message; what is in the file can be read."""
    with LiveRun(tmp_path / "live", MORE, "--disk-wait", "0", stats=disk.stats) as live:
        live.wait_for_jobs()
        disk.fill()
        assert live.end() == 3
        assert live.err.count("No space left on device") == 2, "once when it happens, once as the reason in the end"
        assert "the file is good up to there" in live.err
        assert re.search(r"\*\*\* (INCOMPLETE|DAMAGED)", live.out)
        assert PAUSED not in live.err
        live.run.outcomes()
        live.assert_clean(cut_off=True)


def test_ctrl_c_ends_a_pause_at_once(disk, paused):
    """The run does not wait for its disk any longer: it cleans up and ends with what is in the file."""
    live = paused("--disk-wait", "1d")
    live.signal([live.master], signal.SIGINT)
    assert live.end(seconds=ANSWER_S) == 3
    assert "writing failed at byte" in live.err
    live.assert_clean(cut_off=True)


def test_the_end_of_a_run_waits_for_room_too(tmp_path, disk):
    """All jobs are done, but for their rows: these and the last block are not given up either."""
    full = tmp_path / "full"
    scenario = {**NATIVE, "repeats": 1, "concurrency": 1, "iterations": 1, "warmup": 0}
    scenario["job"] = {"operations": ["run", "wait", "remove"], "container": {"command": held_until(full)}}
    with LiveRun(tmp_path / "live", scenario, stats=disk.stats) as live:
        wait_until(live.job_processes, START_S, "the job")
        disk.fill()
        # Samples take what is left in the last page of the file: what the job adds might have room there.
        wait_until(lambda: PAUSED in live.err, START_S, "the pause")
        full.touch()
        wait_until(lambda: not live.agents(), START_S, "the end of the worker")
        disk.free()
        assert live.end() == 0, live.err
        assert live.run.outcomes() == {"done": 1}
        assert "footer" in {block.kind for block in StatsFile(disk.stats).blocks()}
        live.assert_clean()
