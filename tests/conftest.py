"""What all tests have in common.

A generated example may take as long as a busy machine takes for it. And of the programs that tests start, Python
keeps what it compiled of our sources beside the cache: tests start hundreds of them, and where the environment says
that it shall keep nothing, each would spend half a second of processor time on compiling the same sources again. A
shell that runs the tests in its background has SIGINT ignored, and programs inherit that: Ctrl-C would do nothing.
"""

import os
import signal
import sys
from pathlib import Path

import deadlines
import hypothesis
import pytest
from attention import TakenAgain
from collection_check import CollectionCheck
from durations import DurationRecorder, Lanes

hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parent.parent / ".pytest_cache" / "compiled"))
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]  # the tests themselves, too


def pytest_addoption(parser):
    """Add the option that `script/test --record` uses."""
    parser.addoption("--record", action="store_true", help="write how long each file took to tests/durations.json")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Set the deadline of tests; have them ordered, counted and timed by the process that hands them out to lanes."""
    if config.option.timeout is None and "PYTEST_TIMEOUT" not in os.environ:
        config.option.timeout = deadlines.TEST_S
    config.pluginmanager.register(Lanes())
    config.pluginmanager.register(TakenAgain())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CollectionCheck())
        if config.getoption("record"):
            config.pluginmanager.register(DurationRecorder(config.rootpath))


def pytest_report_header():
    """State how long the tests wait for what hangs."""
    return deadlines.HEADER
