"""Processes in containers of containerd: what a command prints, read as in a worker, and who learns of its end."""

import json
import os
import signal
import sys
import threading

import psutil
import pytest
from deadlines import ANSWER_S, LONG_END_S
from places import ROOT
from runtime_bench import FOREVER, RuntimeBench, require

from bench_common.long_output import OUTPUT_GAP, OUTPUT_LIMIT_BYTES
from bench_common.requirements import ImageProgram
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.containerd.engine import ContainerdEngine

ROUNDS, HELD_UP_S = 10, 0.05
"""How often an end is watched, and for how long after it a shim does not know of it."""

PATCHED = """
from gevent import monkey
monkey.patch_all()
import json, sys
from runtime_bench import FOREVER, RuntimeBench
from bench_worker.engines.containerd.engine import ContainerdEngine

image, *scripts = sys.argv[1:]
bench = RuntimeBench(ContainerdEngine, image)
try:
    made = bench.running(*FOREVER)
    for script in scripts:
        done = bench.engine.exec(made, ("sh", "-c", script), timeout_s=600)  # whoever runs this has the deadline
        print(json.dumps([len(done.stdout), done.stderr.decode(), done.truncated, done.exit_code]))
finally:
    bench.close()
"""


def test_an_image_tells_what_surrounds_its_commands(image):
    """Found in its layers before a run: which file a command is, whose it is, and that there is none."""
    require(ContainerdEngine)
    bench = RuntimeBench(ContainerdEngine, image)
    try:
        settings = bench.container(*FOREVER).settings
        found = bench.engine.surroundings(settings, ImageProgram("sh"))
        assert (found["side user"], found["side open files"], found["program sh"]) == ("root", "1024", "/bin/sh")
        assert len(found["sha256 sh"]) == 64
        assert bench.engine.absent_program(settings, ImageProgram("sh")) == ""
        assert "has no program 'shhh'" in bench.engine.absent_program(settings, ImageProgram("shhh"))
    finally:
        bench.close()


def test_however_much_it_is_nobody_waits_for_a_reader(image):
    """More than a pipe holds, more than is kept, and from a process that goes on when the command has ended."""
    require(ContainerdEngine)
    scripts = (
        "dd if=/dev/zero bs=1k count=1000 2>/dev/null; echo done >&2; exit 3",
        f"dd if=/dev/zero bs={OUTPUT_LIMIT_BYTES + 1} count=1 2>/dev/null; echo done >&2",
        "sleep 10000 & echo started",
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / "tests" / folder) for folder in (".", "integration")),
    }
    run = CommandLine(sys.executable, env=env).sequence(LONG_END_S).run_untimed("-c", PATCHED, image, *scripts)
    assert [json.loads(line) for line in run.text.splitlines()] == [
        [1_024_000, "done\n", False, 3],
        [OUTPUT_LIMIT_BYTES + len(OUTPUT_GAP) + 2, "done\n", True, 0],
        [len("started\n"), "", False, 0],
    ]


@pytest.mark.parametrize("stopped", [True, False])
def test_a_task_is_deleted_only_when_containerd_knows_of_its_end(image, stopped):
    """The worker learns of an end before the shim does: nothing fails, with a `stop` or without."""
    require(ContainerdEngine)
    bench = RuntimeBench(ContainerdEngine, image)
    try:
        for _ in range(ROUNDS):
            made = bench.running(*FOREVER)
            main = made.handle.main
            shim = psutil.Process(main.pid).parent()
            shim.suspend()
            resume = threading.Timer(HELD_UP_S, shim.resume)
            try:
                os.kill(main.pid, signal.SIGKILL)
                main.wait(ANSWER_S)
            finally:
                resume.start()
            if stopped:
                bench.engine.stop(made, grace_s=ANSWER_S, timeout_s=ANSWER_S)
            bench.engine.remove(made, timeout_s=ANSWER_S)
            resume.join(ANSWER_S)
    finally:
        bench.close()
