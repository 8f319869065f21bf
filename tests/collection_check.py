"""That each test of a session has run once: no lane may lose one, or run what another has run already.

A session that says that all is well although a test is missing would be believed for as long as nobody counts.
"""

from collections import Counter

import pytest


class CollectionCheck:
    """Compares what a session has collected with what it has run, and fails it where these differ."""

    def __init__(self):
        self.planned = Counter()
        self.ran = Counter()

    @property
    def faults(self):
        """What is wrong, a line for each test: nothing while all is well."""
        faults = [f"{test}: collected and never run" for test in sorted((self.planned - self.ran).keys())]
        return faults + [f"{test}: run more often than once" for test in sorted((self.ran - self.planned).keys())]

    def pytest_collection_finish(self, session):
        """Note what is to be run by this process alone."""
        self.planned = Counter(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        """Note what is to be run by the lanes together: each of them has collected the same."""
        self.planned = Counter(ids)

    def pytest_runtest_logreport(self, report):
        """Count a test; whatever becomes of it, it is set up once, but for a second round (`second_rounds`)."""
        if report.when == "setup" and not getattr(report, "rerun", 0):
            self.ran[report.nodeid] += 1

    def pytest_sessionfinish(self, session, exitstatus):
        """Fail a session that passes for good and is not; one that failed or was cut short says so by itself."""
        if exitstatus == pytest.ExitCode.OK and not session.config.option.collectonly and self.faults:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter, exitstatus):
        """Say which tests it is."""
        if exitstatus == pytest.ExitCode.OK and not terminalreporter.config.option.collectonly:
            for line in self.faults:
                terminalreporter.write_line(f"ERROR {line}", red=True)
