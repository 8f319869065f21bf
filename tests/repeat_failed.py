"""Repeat what failed twice, alone: exit code 0 if nothing failed, or if all of it passes both times.

Usage: python tests/repeat_failed.py, after all parts of a test run and with nothing else running.

A fault of the product or of a test is there each time. What fails by chance, on a machine that others keep busy,
passes alone; it is called flaky, named at the end, and noted in build/flaky.jsonl with the first line of its failure
and the machine's load. Nothing is repeated where a unit test failed, since those do not depend on the machine, or
where more files have failures than chance explains.

pytest keeps the names of what failed in its cache, over all parts: it adds what fails, also in a fixture, and takes
out what passes, with xdist, too. `script/test` removes the file before the first part.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(".pytest_cache")
LINES = CACHE / "failures.jsonl"
FLAKY = Path("build/flaky.jsonl")


class FailureLines:
    """A plugin of pytest that notes the first line of each failure."""

    def pytest_runtest_logreport(self, report):
        """Add a line to the file."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            line = (crash.message if crash else str(report.longrepr)).partition("\n")[0]
            LINES.parent.mkdir(exist_ok=True)
            with LINES.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"test": report.nodeid, "line": line, "load": os.getloadavg()[0]}) + "\n")


def failed_tests():
    """Return the names of the tests that failed; a name without ``::`` is a file that could not be collected."""
    path = CACHE / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text("utf-8"))) if path.exists() else []


def first_failures():
    """Return what `FailureLines` noted, by test: the first failure of each."""
    found = {}
    for line in LINES.read_text("utf-8").splitlines() if LINES.exists() else ():
        failure = json.loads(line)
        found.setdefault(failure["test"], failure)
    return found


def why_not_repeated(tests, most_files):
    """Return why these failures are final, or None."""
    files = {test.partition("::")[0] for test in tests}
    if unit := sorted(file for file in files if Path(file).parent.name == "unit"):
        return f"a unit test failed, in {unit[0]}"
    if len(files) > most_files:
        return f"{len(tests)} tests failed, in {len(files)} files"
    return None


def passes(tests, seconds):
    """Run the tests in a fresh process, one after the other; return whether all passed in time."""
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:xdist", "-p", "no:cacheprovider", "--timeout=300"]
    try:
        return subprocess.run([*command, *tests], timeout=seconds, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"not within {seconds} s")
        return False


def main(arguments=None):
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=3, help="repeat nothing if more files than this have failures")
    parser.add_argument("--flaky", type=int, default=2, help="fail if more tests than this are flaky")
    parser.add_argument("--seconds", type=int, default=300, help="limit of each of the two repeats")
    options = parser.parse_args(arguments)
    tests = failed_tests()
    if not tests:
        return 0
    if reason := why_not_repeated(tests, options.files):
        print(f"not repeated: {reason}")
        return 1
    for _ in range(2):
        if not passes(tests, options.seconds):
            print("failed again, alone")
            return 1
    failures = first_failures()
    FLAKY.parent.mkdir(exist_ok=True)
    with FLAKY.open("a", encoding="utf-8") as file:
        for test in tests:
            failure = failures.get(test, {"test": test, "line": "", "load": None})
            file.write(json.dumps(failure) + "\n")
            print(f"FLAKY {test}: {failure['line']}")
    if len(tests) > options.flaky:
        print(f"{len(tests)} flaky tests; {options.flaky} may be")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
