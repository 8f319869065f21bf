"""The benchmarks: each runs to its end and prints its ratio. The sizes are tiny, and no figure is judged.

A benchmark starts many programs, so only the central ones run with every test run; of the others it is seen that they
load.
"""

import os
import re
import subprocess
import sys
import uuid

import pytest
from busybox_image import skip_or_fail
from deadlines import LONG_END_S
from places import ROOT
from test_engine_oci import require
from workspace import require_images

from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import ContainerdApi, address
from bench_worker.engines.containerd.engine import ContainerdEngine
from bench_worker.engines.oci import images as oci_images

SMALL = [
    ("noop_ceiling.py", "--jobs", "200", "--repeats", "1"),
    ("timing_truth.py", "--jobs", "8", "--concurrency", "4", "--nap-ms", "5", "--calls", "64"),
]
"""The ceiling and the truth of times, with life cycles below; `SLOW` has the others."""
SLOW = [
    ("report_time.py", "--jobs", "1k", "--repeats", "1"),
    ("objects.py", "--requests", "400", "--turns", "1", "--stamped", "64", "--only", "cpu", "stamps"),
    ("noop_ceiling.py", "--jobs", "200", "--repeats", "1", "--round-trip"),
    ("noop_ceiling.py", "--jobs", "200", "--repeats", "1", "--workers", "2", "--operations", "2"),
    ("noop_ceiling.py", "--jobs", "200", "--repeats", "1", "--mixed"),
    ("cost_overhead.py", "--engine", "native", "--turns", "3"),
    ("knee_rates.py", "--curves", "4"),
    ("pressure_rates.py", "--rounds", "2", "--seconds", "0.2", "--quiet-only"),
    ("memory.py", "--jobs", "100,200"),
    ("trends.py", "--series", "40", "--gate-series", "4"),
    (
        "objects.py",
        "--requests",
        "400",
        "--turns",
        "1",
        "--gigabytes",
        "0.01",
        "--only",
        "protocols",
        "jobs",
        "verify",
        "memory",
    ),
    ("timing_truth.py", "--jobs", "8", "--concurrency", "4", "--nap-ms", "5", "--calls", "64", "--stub", "python"),
]
WITH_OPTIONS = sorted(
    path.name for path in (ROOT / "benchmarks").glob("*.py") if "    parser = parser_of(__doc__)" in path.read_text()
)
HELP_OF_EACH = """
import contextlib, io, runpy, sys
for script in sys.argv[1:]:
    sys.argv, sys.path[0], shown = [script, "--help"], script.rpartition("/")[0], io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")
    print(shown.getvalue().split()[1])
"""


def run(script, *words, **environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG_END_S,
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


def test_every_benchmark_loads_and_explains_itself():
    """Also those of which only `--slow` makes a run: they find what they import, and print their help."""
    scripts = [str(ROOT / "benchmarks" / name) for name in WITH_OPTIONS]
    shown = subprocess.run(
        [sys.executable, "-c", HELP_OF_EACH, *scripts], capture_output=True, text=True, timeout=LONG_END_S, check=True
    )
    assert shown.stdout.splitlines() == WITH_OPTIONS
    assert {command[0] for command in (*SMALL, *SLOW)} <= set(WITH_OPTIONS)


@pytest.mark.slow
def test_each_comparison_beside_hyperfine_is_right_wrong_or_without_a_word():
    """Each case has a row for each tool, and no comparison is lost."""
    result = run("beside_hyperfine.py", "--times", "1", "--runs", "3", "--ms", "5")
    if result.returncode == 3:
        skip_or_fail(result.stderr)
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(("+3 ", "+0 "))]
    assert [row[2] for row in rows] == ["weighbridge", "hyperfine"] * 5
    assert [sum(map(int, row[3:])) for row in rows] == [1] * 10


@pytest.mark.slow
def test_a_commit_against_itself_is_counted_by_its_words():
    """Each comparison of each gate is in one of the shares; three rounds are too few for a word."""
    result = run("noop_gate.py", "--times", "1", "--comparisons", "2", "--runs", "3")
    assert result.returncode == 0, result.stderr
    assert "gate 1: inconclusive 2" in result.stdout
    shares = [line.split("   ")[0] for line in result.stdout.splitlines() if " of " in line and "[" in line]
    assert shares == [
        "false words",
        "red comparisons (exit code 1)",
        "comparisons without a judgement (exit code 4)",
        "gates with a red comparison",
    ]


def test_the_plain_reference_runs_alone():
    """It prints jobs per second."""
    result = run("reference.py", "--jobs", "200", "--concurrency", "4", "--workers", "2")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(" jobs/s\n")


def test_rates_of_pairs_tell_words_and_intervals_that_miss():
    """Each row of `alternate` has all of its runs in its answers: words at a fixed number of pairs, and by looks."""
    result = run("verdict_rates.py", "alternate", "--runs", "2")
    assert result.returncode == 0, result.stderr
    _, *rows = result.stdout.splitlines()
    assert sum("looks" in row for row in rows) == len(rows) / 2 > 1
    for row in rows:
        assert sum(float(share) for share in re.findall(r" ([\d.]+) %", row.rpartition("; ")[2])) == 100.0, row


@pytest.mark.slow
def test_tables_of_the_decision_have_all_runs_in_their_answers():
    """Each row of each table: the shares of its answers add up to all of its runs."""
    result = run("verdict_tables.py", "--runs", "2")
    assert result.returncode == 0, result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("  ")]
    assert len(rows) > 100
    for row in rows:
        assert sum(float(share) for share in re.findall(r" ([\d.]+) %", row.rpartition(": ")[2])) == 100.0, row


@pytest.mark.slow
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
@pytest.mark.parametrize("in_flight", ["2", pytest.param("1,2", marks=pytest.mark.slow)])
def test_life_cycles_are_compared_with_bare_clients_of_the_same_engine(in_flight):
    """A ratio for each number in flight and each baseline, and no container is left."""
    client = require_images("weighbridge/base")
    mark = uuid.uuid4().hex
    sizes = ("--jobs", "2", "--repeats", "1", "--in-flight", in_flight)
    found = ratios(run("life_cycles.py", "--engine", "docker", *sizes, "--mark", mark))
    left = client.containers(all=True, filters={"label": f"weighbridge.benchmark={mark}"})
    client.close()
    assert len(found) >= 2 * len(in_flight.split(","))
    assert left == []


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize("engine", ["containerd", "cri"])
def test_life_cycles_through_the_api_of_containerd(engine):
    """Each client finishes its life cycles, and no container is left."""
    require_images("weighbridge/base").close()
    require(ContainerdEngine)
    mark = uuid.uuid4().hex
    sizes = ("--jobs", "2", "--repeats", "1", "--in-flight", "1")
    found = ratios(run("life_cycles.py", "--engine", engine, *sizes, "--mark", mark))
    assert found
    assert all(ratio > 0 for ratio in found)
    api = ContainerdApi(address())
    wanted = messages.ListRequest(filters=[f'labels."weighbridge.benchmark"=="{mark}"'])
    listed = api.calls(20).call("containers.v1.Containers/List", wanted, messages.ListContainersResponse)
    api.close()
    assert not listed.containers


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize("engine", ["crun", "native"])
def test_life_cycles_without_a_daemon_are_compared_with_bare_clients(engine):
    """Each client has a ratio, a runtime's own CPU time is one more baseline, and no bundle is left."""
    require_images("weighbridge/base").close()
    mark = uuid.uuid4().hex
    sizes = ("--jobs", "2", "--repeats", "1", "--in-flight", "2", "--mark", mark)
    result = run("life_cycles.py", "--engine", engine, *sizes)
    if result.returncode == 3:
        skip_or_fail(result.stderr)
    found = ratios(result)
    assert len(found) == (4 if engine == "crun" else 2), result.stdout
    assert not oci_images.containers_directory(f"bare-{mark}").exists()


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize("engine", ["runc", "native"])
def test_the_trace_of_a_life_cycle_names_each_operation_and_gap(engine):
    """In their order, and the sum beside that of the leanest client."""
    require_images("weighbridge/base").close()
    result = run("life_cycle_trace.py", "--engine", engine, "--jobs", "4")
    if result.returncode == 3:
        skip_or_fail(result.stderr)
    assert len(ratios(result)) == 2
    names = [line.strip().partition("  ")[0] for line in result.stdout.splitlines()[1:8]]
    assert names == ["before run", "run", "before kill", "kill", "before remove", "remove", "together"]


def test_life_cycles_leave_out_an_engine_that_does_not_answer(tmp_path):
    """If none is left the exit code is 3, and the message says how to get one."""
    result = run("life_cycles.py", "--engine", "docker", DOCKER_HOST=f"unix://{tmp_path}/none")
    assert result.returncode == 3
    assert "docker is left out: " in result.stderr
    assert "script/docker-engine start" in result.stderr


def test_life_cycles_know_their_engines():
    """An unknown one is told with those that are known."""
    result = run("life_cycles.py", "--engine", "docker,rkt")
    assert result.returncode == 2
    assert "unknown engine 'rkt'; choose from docker, podman" in result.stderr
