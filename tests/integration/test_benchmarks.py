"""The benchmarks: each runs to its end and prints its ratio. The sizes are tiny, and no figure is judged."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from workspace import require_images

ROOT = Path(__file__).parent.parent.parent

SMALL = [
    ("noop_ceiling.py", "--jobs", "200", "--repeats", "1"),
    ("noop_ceiling.py", "--jobs", "200", "--repeats", "1", "--workers", "2", "--operations", "2"),
    ("noop_ceiling.py", "--jobs", "200", "--repeats", "1", "--round-trip"),
    ("noop_ceiling.py", "--jobs", "200", "--repeats", "1", "--mixed"),
    ("memory.py", "--jobs", "100,200"),
    ("fan_in.py", "--jobs", "2000", "--workers", "1,6", "--real", "1", "--per-process", "3"),
    ("report_time.py", "--jobs", "1k", "--repeats", "1"),
    ("verdict_time.py", "--treatments", "3", "--jobs", "1k", "--rounds", "10", "--late"),
    ("timing_truth.py", "--jobs", "8", "--concurrency", "4", "--nap-ms", "5", "--calls", "64"),
]
SLOW = [
    ("timing_truth.py", "--jobs", "8", "--concurrency", "4", "--nap-ms", "5", "--calls", "64", "--stub", "python"),
]


def run(script, *words, **environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def ratios(result):
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("ratio ")]
    return [float(line.rpartition(": ")[2]) for line in lines]


@pytest.mark.parametrize(
    "command", [*SMALL, *(pytest.param(command, marks=pytest.mark.slow) for command in SLOW)], ids=" ".join
)
def test_a_benchmark_prints_its_ratio(command):
    """Against a baseline of the same run, and more than nothing."""
    found = ratios(run(*command))
    assert found
    assert all(ratio > 0 for ratio in found)


def test_the_plain_reference_runs_alone():
    """It prints jobs per second."""
    result = run("reference.py", "--jobs", "200", "--concurrency", "4", "--workers", "2")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(" jobs/s\n")


@pytest.mark.parametrize("engine", ["native", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_treatment_against_itself(engine):
    """Each method's share of false differences, with its interval; one run alone proves nothing against the level."""
    if engine == "docker":
        require_images("weighbridge/base").close()
    sizes = ("--runs", "1", "--rounds", "6", "--jobs", "2", "--pairs", "1")
    result = run("aa.py", "--engine", engine, *sizes)
    assert result.returncode == 0, result.stderr
    rows = result.stdout.partition("95 % interval\n")[2].splitlines()
    names = [row.partition("  ")[0] for row in rows]
    assert names[0] == "Weighbridge, any verdict of a run"
    assert {"Welch, pooled jobs", "Mann-Whitney, trials"} <= set(names)
    assert all(" of 1 " in row and row.endswith("]") for row in rows)


@pytest.mark.docker
@pytest.mark.parametrize("end", ["kill", pytest.param("stop", marks=pytest.mark.slow)])
def test_life_cycles_are_compared_with_docker_itself(end):
    """A ratio for each number in flight and each baseline, and no container is left."""
    client = require_images("weighbridge/base")
    mark = uuid.uuid4().hex
    sizes = ("--jobs", "2", "--repeats", "1", "--in-flight", "1,2")
    found = ratios(run("docker_lifecycle.py", *sizes, "--end", end, "--mark", mark))
    left = client.containers(all=True, filters={"label": f"weighbridge.benchmark={mark}"})
    client.close()
    assert len(found) >= 2
    assert left == []


def test_life_cycles_need_an_engine(tmp_path):
    """Without one the exit code is 3 and the message says how to get one."""
    result = run("docker_lifecycle.py", DOCKER_HOST=f"unix://{tmp_path}/none")
    assert result.returncode == 3
    assert "script/docker-engine start" in result.stderr
