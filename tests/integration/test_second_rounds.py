"""A test that failed while the machine stood still has one more round; no other failure has one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import second_rounds
from deadlines import ANSWER_S, wait_until
from second_rounds import LIMIT_S, StallWitness, stalls_between

CONFTEST = """
import sys
sys.path.insert(0, {tests!r})
import second_rounds
from attention import TakenAgain
from collection_check import CollectionCheck
second_rounds.MOST = 1
def pytest_configure(config):
    config.pluginmanager.register(TakenAgain())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CollectionCheck())
    second_rounds.register(config)
"""
TESTS = """
import os, pytest
def fails_at_first(name):
    with open(name, "a+") as file:
        file.write("x")
        assert file.tell() > 1, "the engine did not answer"
@pytest.fixture
def engine():
    fails_at_first("fixture")
def test_of_an_engine(engine):
    pass
def test_of_another():
    fails_at_first("test")
"""


@pytest.fixture
def witness():
    """A witness of stalls of 0.05 s, which is stopped at the end."""
    made = StallWitness()
    yield made
    made.stop()
    assert made.process.returncode == 0
    assert not made.path.exists()


@pytest.mark.parametrize("priority", ["real-time", "ordinary"])
def test_a_stall_is_noted_with_its_time(witness, priority):
    """Here one of the witness itself, of which each of its two processes is stopped."""
    process = psutil.Process(witness.process.pid)
    if priority == "ordinary":
        (process,) = process.children()
    kind = "a process of ordinary priority" if priority == "ordinary" else "a process"

    def noted():
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        while time.monotonic() - stopped < 3 * LIMIT_S:
            time.sleep(0.005)
        process.send_signal(signal.SIGCONT)
        return f"{kind} was woken late by " in stalls_between(witness.path, 0, float("inf"))

    wait_until(noted, ANSWER_S)
    assert not stalls_between(witness.path, -2, -1)


def test_more_processes_than_cpus_are_noted(witness):
    """Busy ones, two more than there are CPUs: a test among them waits for its turn."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() + 2)]
    try:
        kind = "more processes than CPUs wanted to run for"
        wait_until(lambda: kind in stalls_between(witness.path, 0, float("inf")), ANSWER_S)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_the_longest_stall_of_a_time_is_told(tmp_path):
    """Of each kind, and none that was over before or began afterwards."""
    path = tmp_path / "stalls"
    noted = [
        [0, 1, "late by", 9.0],
        [2, 3, "late by", 0.1],
        [3, 4, "late by", 0.2],
        [3, 5, "took", 0.05],
        [9, 10, "took", 9],
    ]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in noted), "ascii")
    assert stalls_between(path, 2.5, 8) == "late by 200 ms and took 50 ms"
    assert not stalls_between(path, 6, 8)


def outcome_of(folder, stalls, *options, where="integration", status=1):
    """Run two tests that fail in their first round; return what pytest says, which ends with this status."""
    (folder / "stalls").write_text(stalls, "ascii")
    (folder / where).mkdir()
    (folder / "conftest.py").write_text(CONFTEST.format(tests=str(Path(second_rounds.__file__).parent)), "utf-8")
    (folder / where / "test_engines.py").write_text(TESTS, "ascii")
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:timeout",
        *options,
        str(folder / where),
    ]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environ = {**kept, second_rounds.VARIABLE: str(folder / "stalls")}
    done = subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=ANSWER_S
    )
    assert done.returncode == status, done.stdout
    return done.stdout


ALWAYS = json.dumps([0, 1e12, "the hypervisor took", 0.2]) + "\n"


@pytest.mark.parametrize("lanes", [(), ("-n", "1")], ids=["alone", "in a lane"])
def test_a_test_that_failed_in_a_stall_is_taken_again_and_told(tmp_path, lanes):
    """Also where a fixture failed; with the failure of its first round; and no more tests than allowed are."""
    said = outcome_of(tmp_path, ALWAYS, *lanes)
    assert "1 failed, 1 passed, 1 rerun" in said
    why = "the hypervisor took 200 ms; it had failed: AssertionError: the engine did not answer"
    assert f"integration/test_engines.py::test_of_an_engine: round taken again: {why}" in said


@pytest.mark.parametrize("lanes", [(), ("-n", "1")], ids=["alone", "in a lane"])
@pytest.mark.parametrize("kind", ["an_engine", "another"], ids=["its fixture failed", "it failed"])
def test_a_session_passes_whose_tests_pass_in_their_second_round(tmp_path, lanes, kind):
    """Nothing takes the second round for a test that ran too often."""
    said = outcome_of(tmp_path, ALWAYS, "-k", kind, *lanes, status=0)
    assert "1 passed" in said
    assert "1 rerun" in said


def test_a_failure_without_a_stall_is_final(tmp_path):
    """However often it would pass if it were tried again."""
    said = outcome_of(tmp_path, "")
    assert "1 failed, 1 error in" in said
    assert "1 rerun" not in said


def test_a_unit_test_has_no_second_round(tmp_path):
    """It waits for nothing that a machine could delay."""
    said = outcome_of(tmp_path, ALWAYS, where="unit")
    assert "1 failed, 1 error in" in said
    assert "1 rerun" not in said
