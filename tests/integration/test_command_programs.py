"""Each command that tests run in their own process, as the program that users start: both do the same."""

import re
import shutil

import pytest
from archive_runs import a_run
from attention import undisturbed
from command_line import DRY, IN_PROCESS, run_in_process, runs_in_process
from places import DATA
from workspace import NAP, Completed, Workspace

OUTPUT = DATA / "sysbench" / "cpu-1.1.0.txt"

COMMANDS = {
    "archive": ("archive", "list", "--archive", "archive"),
    "cleanup-containers": ("cleanup-containers", "--run", "no-such-run"),
    "compare": ("compare", "runs/0.stats.gz", "runs/1.stats.gz"),
    "completion": ("completion", "bash"),
    "convert-scenario": ("convert-scenario", DATA / "bucketbench" / "docker.yaml"),
    "import-results": (
        "import-results", "--environment", "local", "--engine", "native", "-s", "made.stats.gz", "sysbench-cpu",
        OUTPUT,
    ),
    "keygen": ("keygen", "--key-dir", "keys", "--list"),
    "list": ("list", "scenarios"),
    "parse-output": ("parse-output", "sysbench-cpu", OUTPUT),
    "report-scenario": ("report-scenario", "-s", "runs/0.stats.gz"),
    "run-scenario": ("run-scenario", "-f", "nap.yaml", "--dry-run"),
    "show-output": ("show-output", "-s", "runs/0.stats.gz", "0"),
    "validate-scenario": ("validate-scenario", "-f", "nap.yaml"),
    "weigh": ("weigh", "native", "--dry-run", "--", "sleep", "1"),
}  # fmt: skip
"""One call of each."""
REFUSED = {"cleanup-containers", "show-output"}
"""Those that end with exit code 2: no engine here knows the run, and the runs here have no outputs."""


@pytest.fixture
def folder(tmp_path):
    """A workspace with an archive of two runs, keys of a worker and a scenario."""
    with Workspace(tmp_path) as workspace:
        runs = tmp_path / "runs"
        runs.mkdir()
        paths = [a_run(runs / f"{number}.stats.gz", number) for number in range(2)]
        for words in (
            ("keygen", "--key-dir", "keys", "--worker", "blade"),
            ("archive", "add", "--archive", "archive"),
        ):
            prepared = run_in_process([*words, *(paths if "add" in words else ())], tmp_path, workspace.environ)
            assert prepared[0] == 0, prepared
        shutil.move(workspace.scenario(job=NAP), tmp_path / "nap.yaml")
        yield workspace


def test_every_command_that_runs_in_process_is_proved():
    """A command that is added to one list has its call in the other."""
    assert set(COMMANDS) == IN_PROCESS | DRY


@pytest.mark.parametrize("name", COMMANDS)
def test_the_program_does_what_the_command_does_in_process(folder, name):
    """The same exit code, and the same on both streams: the process of the tests adds nothing and hides nothing."""
    words = ("-q", *COMMANDS[name])
    assert runs_in_process(words, folder.environ)

    def compare():
        made = folder.folder / "made.stats.gz"
        made.unlink(missing_ok=True)
        program = folder.start("bench-master", *words).wait_for_exit()
        made.unlink(missing_ok=True)
        here = folder.master(*words)
        assert program.status == (2 if name in REFUSED else 0), program.err
        assert lasting(program) == lasting(here)

    # An engine that does not answer a probe in time is told as such, by either of them.
    undisturbed(compare)


def lasting(ended):
    """Return how a program ended without what differs from call to call: times, seeds, containers of other tests."""
    changing = r"\d+|; runs with leftovers here: .*"
    return Completed(ended.status, *(re.sub(changing, "", text) for text in (ended.out, ended.err)))
