"""Control groups of version 2 as the kernel itself has them: real processes in a group of the test's own."""

import math
import os
import resource
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from busybox_image import skip_or_fail
from deadlines import ANSWER_S, wait_until

from bench_worker.host.sampler import CgroupSampler

BUSY = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"


def hierarchy():
    """Return where version 2 is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and place.startswith("/sys/fs/cgroup"):
            return Path(place)
    return skip_or_fail("no cgroup v2 hierarchy is mounted")


@pytest.fixture
def group():
    """A group of version 2 that nobody is in yet."""
    path = hierarchy() / f"weighbridge-test-{uuid.uuid4().hex[:8]}"
    try:
        path.mkdir()
    except OSError as error:
        skip_or_fail(f"no group can be made in {path.parent}: {error.strerror}")
    yield path
    wait_until(lambda: not (path / "cgroup.procs").read_text(), ANSWER_S, "the group's end")
    path.rmdir()


def in_group(group, *argv):
    """Start a program that is in the group before its first instruction."""
    words = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(group / "cgroup.procs"), *argv]
    return subprocess.Popen(words)


def test_cpu_time_is_that_of_all_that_ran_in_the_group(group):
    """Two programs of half a second each, one of them in a group inside, both gone when the group is looked at."""
    sampler = CgroupSampler(f"/{group.name}")
    assert sampler.found
    inner = group / "inner"
    inner.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for place in (group, inner):
        assert in_group(place, sys.executable, "-c", BUSY).wait(ANSWER_S) == 0
    inner.rmdir()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row = sampler.sample()
    assert 0.95 <= row["cpu_ns"] / 1e9 <= used_s + 0.05
    assert row["cpu_ns"] < 1.1 * os.cpu_count() * row["interval_ns"]
    assert sampler.sample()["cpu_ns"] == 0


def test_memory_is_known_where_version_2_has_the_controller(group):
    """64 MiB that a program holds are charged to its group; without the controller, there is no measure."""
    sampler = CgroupSampler(f"/{group.name}")
    holds = "import sys; held = bytearray(b'x') * (64 << 20); print(flush=True); sys.stdin.read()"
    argv = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(group / "cgroup.procs"), sys.executable, "-c", holds]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        program.stdout.readline()
        row = sampler.sample()
        program.stdin.close()
    if (group / "memory.current").exists():
        assert 64 << 20 <= row["cgroup_bytes"] < 128 << 20
    else:
        assert math.isnan(row["cgroup_bytes"])
    assert row["cpu_ns"] > 0
