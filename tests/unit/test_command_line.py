"""What the error texts of an engine's program mean, and the stamps of an operation made of several commands."""

import re

import pytest

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.command_line import CommandLine, CommandSequence, ProgramResult

CLI = CommandLine(
    "lightning", error_kinds=(("conflict", re.compile("already exists")), ("disk-full", re.compile("no space left")))
)


def program_result(exit_code=0, stdout=b"", stderr=b"", start_ns=100, end_ns=200, uncertainty_ns=10):
    return ProgramResult(("create", "x"), exit_code, stdout, stderr, False, start_ns, end_ns, uncertainty_ns, 0.001)


class PreparedSequence(CommandSequence):
    """A sequence whose commands give prepared results."""

    def __init__(self, *results, cli=CLI):
        super().__init__(cli, 10.0)
        self.results = list(results)

    def _execute(self, arguments, **_options):
        return self.results.pop(0)


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (program_result(1, stderr=b"x already exists\n"), "conflict"),
        (program_result(1, stdout=b"write: no space left on device"), "disk-full"),
        (program_result(1, stderr=b"segment 5 is odd"), "engine"),
    ],
)
def test_error_texts_become_kinds(failed, kind):
    """The first pattern that is found decides; stdout counts where stderr is empty."""
    with pytest.raises(OperationFailed) as caught:
        PreparedSequence(failed).run("create", "x")
    assert caught.value.kind == kind
    assert (caught.value.start_ns, caught.value.end_ns) == (100, 200)
    assert str(caught.value) == failed.error_text


def test_a_command_that_fails_without_output_is_named():
    """The message says which command, and its exit code."""
    with pytest.raises(OperationFailed, match="lightning create: exit code 4"):
        PreparedSequence(program_result(4)).run("create", "x")


def test_the_stamps_of_several_commands():
    """From the start of the first to the end of the last timed one; the untimed one is left out."""
    sequence = PreparedSequence(
        program_result(),
        program_result(start_ns=300, end_ns=400, uncertainty_ns=20),
        program_result(start_ns=500, end_ns=600),
    )
    sequence.run("create", "x")
    sequence.run("start", "x")
    sequence.run_untimed("inspect", "x")
    done = sequence.result(exit_code=0)
    assert (done.start_ns, done.end_ns, done.end_uncertainty_ns, done.exit_code) == (100, 400, 20, 0)
    failure = sequence.failure("conflict", "it was never started")
    assert (failure.kind, failure.start_ns, failure.end_ns) == ("conflict", 100, 400)


def test_the_bound_is_never_longer_than_the_operation():
    """The end cannot precede the start."""
    sequence = PreparedSequence(program_result(start_ns=100, end_ns=105, uncertainty_ns=50))
    sequence.run("create", "x")
    assert sequence.result().end_uncertainty_ns == 5


def test_a_failure_later_on_keeps_the_start_of_the_first_command():
    """The time of a failure is that of the whole attempt."""
    sequence = PreparedSequence(
        program_result(), program_result(1, stderr=b"already exists", start_ns=300, end_ns=400)
    )
    sequence.run("create", "x")
    with pytest.raises(OperationFailed) as caught:
        sequence.run_untimed("start", "x")
    assert (caught.value.start_ns, caught.value.end_ns) == (100, 400)


def test_of_a_long_error_text_the_beginning_and_the_end_count():
    """Patterns are searched in a few thousand characters, however many there are; the kind can be at either end."""
    for stderr in (b"already exists " + b"exec" * 1_000_000, b"exec" * 1_000_000 + b" already exists"):
        with pytest.raises(OperationFailed) as caught:
            PreparedSequence(program_result(1, stderr=stderr)).run("create", "x")
        assert caught.value.kind == "conflict"
        assert len(str(caught.value)) <= 4096
