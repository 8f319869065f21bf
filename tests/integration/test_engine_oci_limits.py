"""That what confines a container of an OCI runtime really holds, as the processes in it find out."""

import os
import resource
import time
from pathlib import Path

import pytest
from deadlines import ANSWER_S
from runtime_bench import ENGINES, FOREVER, RuntimeBench, failure, require

from bench_common.treatment import Mount
from bench_worker.engines.base import OperationFailed
from bench_worker.engines.oci import images as oci_images

MIB = 1 << 20


@pytest.fixture(params=sorted(ENGINES))
def bench(request, image):
    require(ENGINES[request.param])
    made = RuntimeBench(ENGINES[request.param], image)
    yield made
    made.close()


def result(bench, script, **settings):
    """Return what a shell's script prints, on both streams, in a container with these settings."""
    made = bench.running(*FOREVER, **settings)
    answer = bench.engine.exec(made, ("sh", "-c", script), timeout_s=ANSWER_S)
    bench.engine.remove(made, timeout_s=ANSWER_S)
    return (answer.stdout + answer.stderr).decode()


def refused(bench, setting, **settings):
    """Say whether the engine does not have this setting; then a container with it is refused, with the reason."""
    if setting in bench.engine.probe().settings:
        return False
    failed = failure(bench.engine.run, bench.container(*FOREVER, **settings))
    assert failed.kind == "refused"
    assert setting in str(failed)
    assert bench.engine.leftovers(bench.run_id) == []
    return True


def test_a_process_too_many_is_not_made(bench):
    """The limit counts all of the container, threads of the runtime that has not left it yet among them."""
    if refused(bench, "pids", pids=20):
        return
    script = "for a in 1 2 3 4 5 6; do for b in 1 2 3 4 5; do sleep 300 >/dev/null 2>&1 & done; done"
    assert "fork" in result(bench, script, pids=20)
    assert "fork" not in result(bench, script, pids=100)


def test_ulimits_are_those_of_the_command_and_of_what_is_executed_beside_it(bench):
    """Soft and hard; a limit above what this host may grant fails when the container starts, and leaves nothing."""
    # Not of open files: runc's own runtime raises their soft limit to the hard one now and then, after it was set.
    limits = {"cpu": "300:400", "core": "0"}
    if refused(bench, "ulimits", ulimits=limits):
        return
    assert result(bench, "ulimit -St; ulimit -Ht; ulimit -c", ulimits=limits).split() == ["300", "400", "0"]
    made = bench.running("sh", "-c", "ulimit -St; ulimit -Ht", ulimits=limits)
    assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
    assert bench.engine.logs(made, limit_bytes=99, timeout_s=ANSWER_S).stdout.split() == [b"300", b"400"]
    own = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    more = bench.container(*FOREVER, ulimits={"nofile": str(own + 1)})
    try:
        bench.engine.run(more, timeout_s=ANSWER_S)
    except OperationFailed as refusal:
        # What takes a capability that a container's root does not have.
        assert refusal.kind == "refused"  # noqa: PT017
    else:
        assert result(bench, "ulimit -n", ulimits={"nofile": str(own + 1)}).split() == [str(own + 1)]
    bench.engine.remove(more, timeout_s=ANSWER_S)


def test_a_root_that_is_read_only_takes_no_write(bench):
    """What is mounted in it does."""
    storage = (Mount("tmpfs", "/scratch", size_bytes=MIB), Mount("volume", "/data"))
    message = result(bench, "touch /x; touch /scratch/y /data/y && echo fine", read_only=True, storage=storage)
    assert "/x: Read-only file system" in message
    assert "fine" in message
    assert result(bench, "touch /x && echo fine", read_only=False) == "fine\n"


def test_a_tmpfs_is_as_large_as_it_may_be(bench):
    """A byte more does not fit."""
    storage = (Mount("tmpfs", "/scratch", size_bytes=MIB),)
    message = result(bench, "dd if=/dev/zero of=/scratch/x bs=64k count=32", storage=storage)
    assert "No space left on device" in message


def test_processes_get_no_new_privileges_where_that_is_said(bench):
    """As the kernel, or gVisor's own, reports them."""
    look = "while read name value; do case $name in NoNewPrivs:) echo $value;; esac; done < /proc/self/status"
    if refused(bench, "security_options", security_options=("no-new-privileges",)):
        return
    wanted = result(bench, look, security_options=("no-new-privileges",)).split()
    if bench.engine.name == "runsc" and not wanted:
        # Its kernel does not tell, and never grants any.
        return
    assert wanted == ["1"]
    # containerd's own client grants none unless it is told to.
    usual = "1" if bench.engine.name == "containerd" else "0"
    assert result(bench, look, security_options=("seccomp=unconfined", "apparmor=unconfined")).split() == [usual]


def test_files_are_there_before_the_command_starts(bench):
    """Also where no such folder was, also under a root that is read-only; and no link leads out of it."""
    files = {"/etc/bench.conf": "one\ntwo\n", "/deep/down/here": "three\n"}
    for settings in ({}, {"read_only": True}):
        made = bench.running("cat", *files, files=files, **settings)
        assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
        assert bench.engine.logs(made, limit_bytes=99, timeout_s=ANSWER_S).stdout == b"one\ntwo\nthree\n"
        bench.engine.remove(made, timeout_s=ANSWER_S)


def disk():
    """Return the block device that containers' volumes are on; None where that cannot be told."""
    number = oci_images.STORE.stat().st_dev
    event = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/uevent")
    if not event.exists():
        return None
    names = [line.removeprefix("DEVNAME=") for line in event.read_text().splitlines() if line.startswith("DEVNAME=")]
    return f"/dev/{names[0]}"


def test_disk_writes_are_limited_to_the_given_rate(bench):
    """Where the kernel can hold somebody to it; a device that is none is refused."""
    rate = {"device_write_bps": {disk() or "/dev/null": MIB}}
    if disk() is None or refused(bench, "device_write_bps", **rate):
        return
    begun = time.monotonic()
    script = "dd if=/dev/zero of=/data/x bs=256k count=12 oflag=direct"
    message = result(bench, script, storage=(Mount("volume", "/data"),), **rate)
    assert "12+0 records out" in message
    # 3 MiB at 1 MiB/s; what was free of charge at the beginning is less than a third of that.
    assert time.monotonic() - begun > 2
    failed = failure(bench.engine.run, bench.container(*FOREVER, device_read_iops={"/dev/null": 1}))
    assert (failed.kind, "/dev/null is no block device" in str(failed)) == ("refused", True)


def test_a_weight_for_disks_is_refused_where_no_disk_honours_it(bench):
    """Which is nearly everywhere; it would be ignored without a word."""
    refused(bench, "blkio_weight", blkio_weight=100)
