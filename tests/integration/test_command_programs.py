"""Commands that tests run in their own process do as the program that users start."""

import re
import shutil

import pytest
from archive_runs import a_run
from attention import undisturbed
from command_line import runs_in_process
from workspace import NAP, Completed


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("report-scenario", "-s", "run.stats.gz"), 0),
        (("run-scenario", "-f", "nap.yaml", "--dry-run"), 0),
        (("show-output", "-s", "run.stats.gz", "0"), 2),
    ],
)
def test_the_program_does_what_the_command_does_in_process(workspace, words, status):
    """The same exit code, and the same on both streams: the process of the tests adds nothing and hides nothing."""
    a_run(workspace.folder / "run.stats.gz", 0)
    shutil.move(workspace.scenario(job=NAP), workspace.folder / "nap.yaml")
    words = ("-q", *words)
    assert runs_in_process(words, workspace.environ)

    def compare():
        program = workspace.start("bench-master", *words).wait_for_exit()
        assert program.status == status, program.err
        assert lasting(program) == lasting(workspace.master(*words))

    # An engine that does not answer a probe in time is told as such, by either of them.
    undisturbed(compare)


def lasting(ended):
    """Return how a program ended without what differs from call to call: times and seeds."""
    return Completed(ended.status, *(re.sub(r"\d+", "", text) for text in (ended.out, ended.err)))
