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

import hypothesis
from collection_check import CollectionCheck

hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parent.parent / ".pytest_cache" / "compiled"))
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]  # the tests themselves, too


def pytest_configure(config):
    """Have the tests counted: where there are lanes, by the process that hands them out."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CollectionCheck())
