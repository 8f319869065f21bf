"""What failed is repeated alone, twice: chance passes and is told, a real failure never passes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import repeat_failed

TESTS = Path(repeat_failed.__file__).parent

MODULE = """
import pathlib, pytest
COUNT = pathlib.Path(__file__).with_suffix(".count")
def count():
    times = int(COUNT.read_text()) if COUNT.exists() else 0
    COUNT.write_text(str(times + 1))
    return times
@pytest.fixture
def broken():
    raise OSError("no such engine")
"""
PASSES = "def test_passes(): pass\n"
CHANCE = "def test_chance(): assert count() > 0, 'by chance\\nand more'\n"
REAL = "def test_real(): assert False\n"
TWICE = "def test_twice(): assert count() == 1\n"
ERROR = "def test_error(broken): pass\n"
CONFTEST = """
import sys
sys.path.insert(0, {tests!r})
from repeat_failed import FailureLines
def pytest_configure(config):
    config.pluginmanager.register(FailureLines())
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder, the current one, whose tests have failed or passed once."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, *bodies, name="test_it"):
    for place, body in enumerate(bodies):
        path = folder / "smoke" / f"{name}_{place}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(MODULE + body, "utf-8")


def run_once(folder, *words):
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *words], cwd=folder, check=False).returncode


def flaky(folder):
    path = folder / "build" / "flaky.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else None


@pytest.mark.parametrize("words", [(), ("-n2", "--dist=loadfile")])
def test_what_failed_by_chance_passes_and_is_told(folder, words, capfd):
    """With its first line, its name and the load of the machine, on the screen and in a file."""
    write(folder, PASSES, CHANCE)
    (folder / "conftest.py").write_text(CONFTEST.format(tests=str(TESTS)), "utf-8")
    assert run_once(folder, *words) == 1
    assert repeat_failed.main([]) == 0
    [told] = flaky(folder)
    assert told["test"] == "smoke/test_it_1.py::test_chance"
    assert told["line"].startswith("AssertionError: by chance")
    assert told["load"] >= 0
    assert capfd.readouterr().out.splitlines()[-1].startswith("FLAKY smoke/test_it_1.py::test_chance: AssertionError")


@pytest.mark.parametrize("body", [REAL, TWICE, ERROR, "def test_x(:\n"])
def test_what_fails_once_more_is_red(folder, body):
    """In the first repeat or the second, in the test or in its fixture, or where the file cannot be read."""
    write(folder, CHANCE, body)
    assert run_once(folder) in {1, 2}
    assert repeat_failed.main([]) == 1
    assert flaky(folder) is None


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (["tests/unit/test_a.py::test_a"], "a unit test failed, in tests/unit/test_a.py"),
        (["tests/live/unit/test_a.py::test_a"], "a unit test failed, in tests/live/unit/test_a.py"),
        ([f"tests/chaos/test_{n}.py::test_a" for n in range(4)], "4 tests failed, in 4 files"),
        ([f"tests/chaos/test_a.py::test_{n}" for n in range(9)], None),
    ],
)
def test_what_cannot_be_chance_is_not_repeated(tests, reason):
    """Unit tests and failures in many files."""
    assert repeat_failed.why_not_repeated(tests, 3) == reason
