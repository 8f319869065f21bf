"""How long each test file takes, as recorded in `durations.json`: lanes get their files by it, the longest first.

A long file that is handed out late keeps one lane busy while the others have nothing left to do. The tests of a file
share expensive fixtures, so a file stays in one lane. `script/test --all --record` writes the record.
"""

import json
import statistics
from collections import defaultdict
from pathlib import Path, PurePosixPath

import pytest
from xdist.scheduler import LoadFileScheduling

RECORD = Path(__file__).parent / "durations.json"


def file_of(test):
    """Return the file of a test, by pytest's name of it."""
    return test.partition("::")[0]


class Durations:
    """Seconds by file; a file without a record takes as long as the others of its folder do (their median)."""

    def __init__(self, seconds):
        self.seconds = seconds
        folders = defaultdict(list)
        for file, taken_s in seconds.items():
            folders[PurePosixPath(file).parent].append(taken_s)
        self._usual_s = {folder: statistics.median(taken) for folder, taken in folders.items()}

    @classmethod
    def read(cls, path=RECORD):
        """Return the record; without one every file takes equally long, and files keep their order."""
        return cls(json.loads(path.read_text("utf-8")) if path.exists() else {})

    def expected_s(self, file):
        """Return how long a file is going to take."""
        return self.seconds.get(file, self._usual_s.get(PurePosixPath(file).parent, 0.0))

    def longest_first(self, tests):
        """Return tests, by their names: those of the longest file first, and in a file as they were."""
        return sorted(tests, key=lambda test: (-self.expected_s(file_of(test)), file_of(test)))


class LaneScheduling(LoadFileScheduling):
    """Hands out whole files in their order, and each as late as possible.

    A lane has to know its next test before it begins one, or it could not tell which fixtures to keep. xdist gives a
    lane its next file when two tests are left; the two may take minutes, in which another lane is free for that file.
    Here it is given when one is left.
    """

    def _reschedule(self, node):
        """Give a lane its next file, or the word that there is none, once it waits for that with its last test."""
        if self.workqueue and self._pending_of(self.assigned_work[node]) > 1:
            return
        super()._reschedule(node)


class Lanes:
    """Has the tests of a session with lanes (`--dist loadfile`) handed out by the record."""

    def pytest_collection_modifyitems(self, config, items):
        """Bring the tests into their order, in each lane the same."""
        if hasattr(config, "workerinput"):
            place = {
                test: place for place, test in enumerate(Durations.read().longest_first(i.nodeid for i in items))
            }
            items.sort(key=lambda item: place[item.nodeid])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config, log):
        """Return what hands them out."""
        return LaneScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


class DurationRecorder:
    """Notes what the files of a session took, and brings the record up to date at its end.

    Files that no longer exist leave the record, and a file with a failed test keeps what it had: who knows for how
    long that test waited in vain.
    """

    def __init__(self, root, path=RECORD):
        self.root, self.path = root, path
        self.taken_s = defaultdict(float)
        self.failed = set()

    def pytest_runtest_logreport(self, report):
        """Add a phase of a test: what it sets up for the others of its file is part of the file, too."""
        self.taken_s[file_of(report.nodeid)] += report.duration
        if report.failed:
            self.failed.add(file_of(report.nodeid))

    def pytest_sessionfinish(self):
        """Write the record, in an order that makes for small differences."""
        fresh = {file: round(taken_s, 1) for file, taken_s in self.taken_s.items() if file not in self.failed}
        both = Durations.read(self.path).seconds | fresh
        kept = {file: both[file] for file in sorted(both) if (self.root / file).exists()}
        self.path.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")
