"""What all tests have in common.

Of the programs that tests start, Python keeps what it compiled of our sources beside the cache: tests start hundreds
of them, and where the environment says that it shall keep nothing, each would spend half a second of processor time
on compiling the same sources again. A shell that runs the tests in its background has SIGINT ignored, and programs
inherit that: Ctrl-C would do nothing.

Unit tests alone generate examples, each of which may take as long as a busy machine takes for it; to load what does
so takes a second of processor time, which lanes of other tests need not spend. And while a process collects, it makes
hundreds of thousands of objects that stay: the garbage collector would spend a third of the time on looking at them.
"""

import gc
import os
import signal
import sys
from functools import cache
from pathlib import Path

import deadlines
import pytest
from repeat_failed import FailureLines

pytest_plugins = ["shared_fixtures"]
pytest.register_assert_rewrite("eyes")  # its assertions show what they compared, too

gc.disable()  # until all is collected

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # runs of tests belong in no job's summary
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parent.parent / ".pytest_cache" / "compiled"))
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]  # the tests themselves, too


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Set the deadline of tests; note how they fail."""
    if config.option.timeout is None and "PYTEST_TIMEOUT" not in os.environ:
        config.option.timeout = deadlines.TEST_S
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLines())


@cache
def load_hypothesis():
    """Load what generates examples, with our settings: it gives those to a test when the test's module loads.

    The examples are the same in each run, since they decide about a change; with `script/test --all` they are drawn.
    """
    import hypothesis

    drawn = "WEIGHBRIDGE_DRAWN_EXAMPLES" in os.environ
    hypothesis.settings.register_profile("unhurried", deadline=None, derandomize=not drawn)
    hypothesis.settings.load_profile("unhurried")


def pytest_pycollect_makemodule(module_path):
    """Before a module of unit tests loads."""
    if module_path.parent.name == "unit":
        load_hypothesis()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for garbage again once all tests are collected; they are none."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
