"""The keys of jobs on objects are loaded for scenarios that use them, and for the hint to a misspelt one."""

import subprocess
import sys

import pytest
from deadlines import END_S

KEYS = "bench_features.objects.master.keys"
READ = f"""
import sys
from bench_common.errors import WeighbridgeError
from bench_master.scenario.load import load_scenario

try:
    load_scenario(sys.argv[1])
except WeighbridgeError as error:
    print(error)
print({KEYS!r} in sys.modules, "bench_features.objects.common.job" in sys.modules)
"""
HEAD = 'name: some\nengines: [native]\ncontainer: {command: [sleep, "60"]}\n'


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a scenario in a process of its own, and returns what that prints."""

    def run(text):
        (tmp_path / "s.yaml").write_text(text)
        command = [sys.executable, "-c", READ, str(tmp_path / "s.yaml")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=True)
        return ended.stdout.strip().splitlines()

    return run


def test_a_scenario_without_objects_loads_none_of_their_keys(read):
    """Not even with a matrix, whose keys may be those of any kind of job."""
    text = f"{HEAD}jobs: {{a: {{operations: [run]}}}}\nmatrix: {{concurrency: [1, 2]}}\n"
    assert read(text) == ["False False"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("jobs: {a: {objcts: {sizes: 1KiB}}}\n", "did you mean 'objects'?"),
        ("jobs: {a: {operations: [run]}}\nmatrix: {objects.blok: [1MiB]}\n", "did you mean 'objects.block'?"),
        ("jobs: {a: {operations: [run]}}\nmatrix: {objcts.block: [1MiB]}\n", "did you mean 'objects.block'?"),
    ],
)
def test_a_misspelt_key_has_the_nearest_right_spelling(read, text, hint):
    """Also where nothing of them was loaded before."""
    assert any(hint in line for line in read(HEAD + text))


def test_a_job_on_objects_loads_them(read):
    """They are what its keys are checked with."""
    objects = "objects: {sizes: 1KiB, mix: {create: 1}}"
    assert read(f"name: some\nengines: [swift]\njobs: {{a: {{{objects}}}}}\n")[-1] == "True True"
