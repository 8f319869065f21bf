"""Cold starts on a real kernel and a real registry: what is gone when a job begins."""

import os
import subprocess
import sys

import pytest
from busybox_image import skip_or_fail
from deadlines import LONG_END_S, wait_until
from private_registry import private_registry

pytestmark = pytest.mark.alone  # the page cache is that of the whole machine

IS_CACHED = """
import ctypes, mmap, sys
with open(sys.argv[1], "rb") as file:
    with mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE) as pages:
        page, state = ctypes.c_char.from_buffer(pages), ctypes.c_ubyte()
        address = ctypes.c_void_p(ctypes.addressof(page))
        failed = ctypes.CDLL(None).mincore(address, ctypes.c_size_t(4096), ctypes.byref(state))
        del page
    print("cached", "unknown" if failed else state.value & 1)
    file.read(1)
"""
"""By mincore(2), which reads nothing: preadv(2) with RWF_NOWAIT begins to read what it does not find."""


def is_cached(file):
    """Return whether the first page of a file is in the page cache, and read it."""
    told = subprocess.run([sys.executable, "-c", IS_CACHED, file], capture_output=True, text=True, check=True)
    return {"cached 1": True, "cached 0": False}[told.stdout.strip()]


@pytest.fixture
def file(tmp_path):
    """A file whose pages are in the page cache, and on the disk."""
    if os.geteuid():
        skip_or_fail("dropping the page cache needs root")
    made = tmp_path / "file"
    with made.open("wb") as opened:
        opened.write(bytes(1 << 16))
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if (is_cached(made), is_cached(made)) != (False, True):
        skip_or_fail("this file system does not say what is cached")
    return made


def test_a_cold_job_finds_nothing_in_the_cache(workspace, file):
    """A warm one, in turns with it, finds the page that the job before has read."""
    job = {
        "workload": "command",
        "command": [sys.executable, "-c", IS_CACHED, str(file)],
        "metrics": {"cached": {"regex": "^cached ([01])$", "better": "higher"}},
    }
    scenario = workspace.scenario(job=job, matrix={"cold": ["none", "page-cache"]}, repeats=3)
    refused = workspace.start_run(scenario)[0].wait_for_exit()
    assert refused.status == 2
    assert "`cold: page-cache` is not allowed on its host: start it with --allow-cold" in refused.err
    run = workspace.run(scenario, "--allow-cold")
    assert run.outcomes() == {"done": 6}
    seen = {(row["treatment"]["cold"], row["metrics"]["cached"]) for row in run.jobs}
    assert seen == {("none", 1.0), ("page-cache", 0.0)}
    assert "cold: page-cache: before each job, outside its time, the host's page cache is dropped" in run.details


@pytest.mark.docker
def test_the_image_is_fetched_before_each_job(workspace, tmp_path):
    """From its registry, once for each job, before the first operation; a job that pulls fetches it once, too."""
    with private_registry(tmp_path) as registry:
        life = {"container": {"image": registry.image, "command": ["true"], "network": "none"}, "cold": "image"}
        for operations in (["create", "start", "wait", "remove"], ["pull", "create", "remove"]):
            sent = registry.layers_sent() + 3
            scenario = workspace.scenario(engines=["docker"], job={**life, "operations": operations}, iterations=3)
            run = workspace.run(scenario, "--allow-cold", seconds=LONG_END_S)
            assert run.outcomes() == {"done": 3}
            # It writes its log when an answer is out.
            wait_until(lambda sent=sent: registry.layers_sent() >= sent)
            assert registry.layers_sent() == sent
            assert list(run.document["treatments"][0]["operations"]) == [*operations, "job"]
