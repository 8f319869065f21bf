"""What a real run says of a neighbour that makes the host's other tasks wait, while it has idle CPU."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deadlines import START_S, wait_until
from workspace import skip_or_fail

MIB = 1 << 20
TRIALS = 8
READERS = 4
HELD_UP = 4
"""The trial that has a neighbour."""
SHARE = 0.1
"""The neighbour stays until memory was waited for during this share of the trial, by the kernel's own count."""
READER = """
import os, sys
with open(sys.argv[2], "w") as group:
    group.write(str(os.getpid()))
file = os.open(sys.argv[1], os.O_RDONLY)
while True:
    place = 0
    while os.pread(file, 1 << 20, place):
        place += 1 << 20
"""
WAITS = ("cpu-pressure", "io-pressure", "memory-pressure")
JOB = "echo >> {0}/begun; n=$(wc -l < {0}/begun); sleep 0.3; while [ ! -e {0}/go-$n ]; do sleep 0.01; done"


def waited_ns(resource):
    """Return the kernel's count of time in which some task waited for a resource; None without one."""
    try:
        text = Path(f"/proc/pressure/{resource}").read_text()
    except OSError:
        return None
    return 1000 * int(text.splitlines()[0].rpartition("total=")[2])


@contextlib.contextmanager
def little_memory(limit_bytes):
    """Make a control group that has only so much memory, and give the file that takes a process in."""
    for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root, f"weighbridge-test-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / name).exists():
                (group / name).write_text(str(limit_bytes))
                yield group / "cgroup.procs"
                return
        finally:
            group.rmdir()
    skip_or_fail("a control group with a limit of memory cannot be made here")


@contextlib.contextmanager
def readers(folder):
    """Read a file again and again that is larger than the memory that its readers may use."""
    big = folder / "big"
    with big.open("wb") as file:
        for _ in range(64):
            file.write(bytes(MIB))
        os.fsync(file.fileno())
        # What is in memory already is charged to nobody who reads it.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with little_memory(16 * MIB) as group:
        command = [sys.executable, "-c", READER, big, group]
        programs = [subprocess.Popen(command, start_new_session=True) for _ in range(READERS)]
        try:
            yield
        finally:
            for program in programs:
                program.kill()
                program.wait()


@pytest.mark.alone
def test_a_trial_beside_a_neighbour_that_keeps_memory_is_marked_and_no_other(workspace):
    """The mark has cause and value; each trial has readings of its own, however short it is."""
    if waited_ns("memory") is None:
        skip_or_fail("the kernel counts no waits (PSI)")
    folder = workspace.folder
    job = {"operations": ["run", "wait", "remove"], "container": {"command": ["sh", "-c", JOB.format(folder)]}}
    program, stats = workspace.start_run(
        # Readings are taken around the measurement of the speed.
        workspace.scenario(job=job, repeats=TRIALS, warmup=0, iterations=1, concurrency=1, speed_probe=True),
        "--no-report",
    )
    begun = folder / "begun"
    for trial in range(TRIALS):
        began_ns, before_ns = time.monotonic_ns(), waited_ns("memory")
        wait_until(lambda number=trial: begun.exists() and begun.stat().st_size > number, START_S, "the next trial")
        if trial == HELD_UP:
            with readers(folder):
                wait_until(
                    lambda began=began_ns, before=before_ns: (
                        waited_ns("memory") - before > SHARE * (time.monotonic_ns() - began)
                    ),
                    START_S,
                    "a task that waits for memory",
                )
        (folder / f"go-{trial + 1}").touch()
    run = workspace.finish(program, stats)
    (entry,) = run.document["treatments"]
    marks = [one for one in entry["disturbances"] if one["kind"] == "memory-pressure"]
    assert [one["trial"] for one in marks] == [HELD_UP]
    assert marks[0]["share"] > SHARE / 2
    assert "waited for memory for " in marks[0]["text"]
    assert [text for text in run.document["warnings"] if f"waited for memory unusually long in 1 of {TRIALS}" in text]
    readings = entry["pressure"]
    assert {readings[name]["n"] for name in (*WAITS, "steal", "softirq", "run-queue")} == {TRIALS}
    assert readings["memory-pressure"]["max_trial"] == HELD_UP
    row_columns = [block.columns.keys() for block in run.blocks("samples") if block.source == "pressure"]
    assert all({"time_ns", "interval_ns", "cpu_some_ns", "load_wait_ns"} <= names for names in row_columns)
