"""A session in which a test was lost, or ran twice, is not a good one."""

import gc
from types import SimpleNamespace

import hypothesis
import pytest
from collection_check import CollectionCheck


def session(*, collectonly=False):
    option = SimpleNamespace(collectonly=collectonly)
    return SimpleNamespace(exitstatus=pytest.ExitCode.OK, config=SimpleNamespace(option=option))


def called(planned, ran):
    """Return a roll call of tests that lanes were to run, and those that they ran."""
    roll = CollectionCheck()
    roll.pytest_xdist_node_collection_finished(list(planned))
    for test in ran:
        for when in ("setup", "call", "teardown"):
            roll.pytest_runtest_logreport(SimpleNamespace(nodeid=test, when=when))
    return roll


@pytest.mark.parametrize(
    ("ran", "faults"),
    [
        ("ab", []),
        ("ba", []),
        ("a", ["b: collected and never run"]),
        ("abb", ["b: run more often than once"]),
        ("aa", ["b: collected and never run", "a: run more often than once"]),
    ],
)
def test_each_test_has_to_run_once(ran, faults):
    """Whatever the order; the tests are named, and the session fails."""
    roll, ended = called("ab", ran), session()
    assert roll.faults == faults
    roll.pytest_sessionfinish(ended, ended.exitstatus)
    assert ended.exitstatus == (pytest.ExitCode.TESTS_FAILED if faults else pytest.ExitCode.OK)


def test_a_second_round_is_none_too_many():
    """It is told elsewhere; the test is one of those that ran, as often as it has rounds."""
    roll = called("ab", "ab")
    for when in ("setup", "call", "teardown"):
        roll.pytest_runtest_logreport(SimpleNamespace(nodeid="b", when=when, rerun=1))
    assert not roll.faults


def test_a_session_that_was_cut_short_keeps_its_own_exit_code():
    """And one that only lists the tests has run none, which is right."""
    roll, ended = called("ab", "a"), session()
    ended.exitstatus = pytest.ExitCode.INTERRUPTED
    roll.pytest_sessionfinish(ended, ended.exitstatus)
    assert ended.exitstatus == pytest.ExitCode.INTERRUPTED
    listed = session(collectonly=True)
    roll.pytest_sessionfinish(listed, listed.exitstatus)
    assert listed.exitstatus == pytest.ExitCode.OK


def test_garbage_is_collected_while_tests_run():
    """Only while the tests themselves are collected it is not: what lacks a reference then stays all the same."""
    assert gc.isenabled()


def test_a_generated_example_may_take_its_time():
    """The settings are there before a module of unit tests loads, in whatever folder that is."""
    assert hypothesis.settings().deadline is None
