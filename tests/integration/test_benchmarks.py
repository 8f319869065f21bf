"""The benchmarks: each loads and explains itself, two run to their end. Sizes are tiny, and no figure is judged."""

import os
import re
import subprocess
import sys

import pytest
from deadlines import LONG_END_S
from places import ROOT

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


@pytest.mark.parametrize(
    "command",
    [
        ("noop_ceiling.py", "--jobs", "200", "--repeats", "1"),
        ("timing_truth.py", "--jobs", "8", "--concurrency", "4", "--nap-ms", "5", "--calls", "64"),
    ],
    ids=" ".join,
)
def test_a_benchmark_prints_its_ratio(command):
    """Against a baseline of the same run, and more than nothing."""
    result = run(*command)
    assert result.returncode == 0, result.stderr
    found = [float(line.rpartition(": ")[2]) for line in result.stdout.splitlines() if line.startswith("ratio ")]
    assert found
    assert all(ratio > 0 for ratio in found)


def test_every_benchmark_loads_and_explains_itself():
    """They find what they import, and print their help."""
    scripts = [str(ROOT / "benchmarks" / name) for name in WITH_OPTIONS]
    shown = subprocess.run(
        [sys.executable, "-c", HELP_OF_EACH, *scripts], capture_output=True, text=True, timeout=LONG_END_S, check=True
    )
    assert shown.stdout.splitlines() == WITH_OPTIONS


def test_the_no_op_experiment_simulates_what_it_does_not_weigh():
    """Of two gates the first is weighed; the other one is drawn from it, and both have their shares."""
    result = run("noop_gate.py", "--times", "2", "--measured", "1", "--comparisons", "2", "--runs", "2")
    assert result.returncode == 0, result.stderr
    parts = re.split(r"^(weighed|simulated): 1 times 2 comparisons of 2 rounds, ", result.stdout, flags=re.MULTILINE)
    assert parts[1::2] == ["weighed", "simulated"]
    for shares in parts[2::2]:
        assert re.findall(r"^(\w.+?)  +\d of ([12]) ", shares, re.MULTILINE) == [
            ("false words", "2"),
            ("red comparisons (exit code 1)", "2"),
            ("not judged (exit code 4)", "2"),
            ("gates with a red comparison", "1"),
        ]


def test_an_engine_that_does_not_answer_is_left_out(tmp_path):
    """If none is left the exit code is 3, and the message says how to get one."""
    result = run("life_cycles.py", "--engine", "docker", DOCKER_HOST=f"unix://{tmp_path}/none")
    assert result.returncode == 3
    assert "docker is left out: " in result.stderr
