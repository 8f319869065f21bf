"""Peers that send as fast as they can, whatever they send: the run goes on, and the master holds little of it."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live_run import NATIVE, OverTcp
from test_hostile_sockets import highest
from workspace import UNHURRIED, naps_until

FLOOD = Path(__file__).with_name("flood.py")
KINDS = {"control": "DEALER", "results": "PUSH", "work": "PULL"}
FLOODS = [
    ("control", "tiny"),
    ("control", "endless"),
    ("results", "endless-large"),
    ("control", "maps"),
    ("control", "samples"),
    ("results", "results"),
    ("control", "hellos"),
    ("control", "warnings"),
]
"""One of each kind."""
LIKE_OTHERS = [("results", "tiny"), ("work", "tiny"), ("control", "maps-256"), ("control", "heartbeats")]
"""Those of a kind at another port, or of another size."""
SECONDS_EACH = 1.5
MEMORY_BYTES = 320 << 20


@contextlib.contextmanager
def flooded(live, floods):
    """Flood the ports of a run meanwhile; yield the programs that do."""
    ports = dict(zip(("control", "results", "work"), live.ports, strict=True))
    root = FLOOD.parents[2]
    programs = [
        subprocess.Popen(
            [sys.executable, FLOOD, str(ports[lane]), KINDS[lane], name],
            env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"},
            stdout=subprocess.PIPE,
        )
        for lane, name in floods
    ]
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()
            program.stdout.close()


@pytest.mark.parametrize(
    "floods", [FLOODS, pytest.param(LIKE_OTHERS, marks=pytest.mark.slow)], ids=["kinds", "others"]
)
def test_a_run_withstands_floods(tmp_path, floods):
    """Each flood, by six connections that are opened again: no job is lost or retried."""
    gone = tmp_path / "gone"
    job = {**NATIVE["job"], "container": {"command": naps_until(gone)}}
    with OverTcp(tmp_path / "live", {**NATIVE, "iterations": 100, "job": job}, *UNHURRIED) as live:
        live.join("-c", 4, "--environment", "local", "solo")
        live.wait_for_jobs()
        for flood in floods:
            with flooded(live, [flood]) as programs:
                for program in programs:
                    assert program.stdout.readline() == b"connected\n"
                time.sleep(SECONDS_EACH)
            assert live.program.process.poll() is None, (flood, live.err)
        peak = highest(live.master)
        gone.touch()
        assert live.end() == 0, live.err
    assert set(live.run.outcomes()) == {"done"}
    assert not any(job["attempt"] for job in live.run.jobs)
    assert peak < MEMORY_BYTES, f"{peak >> 20} MiB"
    assert re.search(r"cut off 127\.0\.0\.1:\d+ on the control port", live.err)
    assert "cut off 127.0.0.1 on the control port" in live.run.details
    assert len(live.err) < 30_000, "a flood does not fill the log"
