"""A pipe, device or endless link in the place of any file that a command reads: refused at once, and said so."""

import contextlib
import os
import signal

import pytest
from deadlines import ANSWER_S

INVENTORY = "hosts: {b: {address: 127.0.0.1}}\n"
BAD = "BAD"
COMMANDS = (  # those that run within this process; readers of the others: tests/unit/test_regular_files.py
    "validate-scenario BAD",
    "run-scenario -f BAD --dry-run",
    "run-scenario -f scenario.yaml --baseline BAD --dry-run",
    "run-scenario -f scenario.yaml --dry-run -i BAD",
    "convert-scenario BAD",
    "report-scenario -s BAD",
    "report-scenario -s run.stats.gz --baseline BAD",
    "report-scenario -s run.stats.gz --format ssbench --rps-histogram BAD/x",
    "compare BAD run.stats.gz",
    "compare run.stats.gz --new BAD",
    "show-output 0 -s BAD",
    "import-results sysbench-cpu BAD --environment e --engine x -s out.stats.gz",
    "import-results sysbench-cpu hosts.yaml --before-each BAD --environment e --engine x -s out.stats.gz",
    "import-results ssbench BAD --environment e --engine x -s out.stats.gz",
    "parse-output sysbench-cpu BAD",
    "archive add BAD --archive kept",
    "archive html BAD --archive kept",
    "archive compare BAD run.stats.gz --archive kept",
    "archive list --archive BAD",
    "archive list --archive damaged",
    "keygen --key-dir BAD",
)


class Hung(BaseException):
    """A command waits for what never comes."""


@contextlib.contextmanager
def at_once():
    def late(*_):
        raise Hung

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, ANSWER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def make_bad(kind, path):
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a pipe":
        os.mkfifo(path.with_name("pipe-behind-it"))
        path.symlink_to("pipe-behind-it")
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to(path.name)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with good files of each sort; an archive without runs; one whose index is to be replaced."""
    from workspace import Workspace

    with Workspace(tmp_path_factory.mktemp("files")) as workspace:
        workspace.scenario().rename(workspace.folder / "scenario.yaml")
        workspace.run(workspace.folder / "scenario.yaml").stats.rename(workspace.folder / "run.stats.gz")
        (workspace.folder / "hosts.yaml").write_text(INVENTORY)
        for name in ("kept", "damaged"):
            assert workspace.master("archive", "add", "run.stats.gz", "--archive", name).status == 0
        yield workspace


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to itself", "device"])
def test_every_command_refuses_what_is_no_file(files, kind):
    """With exit code 2 or 3, in its own words, naming the file; nothing waits, and no traceback is shown."""
    bad = files.folder / "bad"
    make_bad(kind, bad)
    index = files.folder / "damaged" / "index.sqlite3"
    make_bad(kind, index)
    wrong = {}
    for command in COMMANDS:
        words = [word.replace(BAD, str(bad)) for word in command.split()]
        try:
            with at_once():
                ended = files.master(*words)
        except Hung:
            wrong[command] = "hung"
            continue
        named = str(bad) in ended.err or "index.sqlite3" in ended.err or "damaged" in ended.err
        if ended.status not in {2, 3} or "Traceback" in ended.err or "internal error" in ended.err or not named:
            wrong[command] = (ended.status, ended.out[-300:], ended.err[-600:])
    index.unlink()
    for extra in (bad, *files.folder.glob("**/pipe-behind-it")):
        extra.unlink()
    assert not wrong, wrong
