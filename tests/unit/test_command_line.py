"""What the words of an engine's program mean, and the stamps of an operation made of several commands."""

import re

import pytest

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.command_line import CommandLine, CommandSequence, ProgramResult

CLI = CommandLine(
    "lightning", error_kinds=(("conflict", re.compile("already exists")), ("disk-full", re.compile("no space left")))
)


def answer(exit_code=0, stdout=b"", stderr=b"", start_ns=100, end_ns=200, bound_ns=10):
    return ProgramResult(("create", "x"), exit_code, stdout, stderr, False, start_ns, end_ns, bound_ns, 0.001)


class Recited(CommandSequence):
    """An errand whose commands give answers that were made beforehand."""

    def __init__(self, *answers, cli=CLI):
        super().__init__(cli, 10.0)
        self.answers = list(answers)

    def _run(self, words, **_how):
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (answer(1, stderr=b"x already exists\n"), "conflict"),
        (answer(1, stdout=b"write: no space left on device"), "disk-full"),
        (answer(1, stderr=b"segment 5 is odd"), "engine"),
    ],
)
def test_words_become_kinds(said, kind):
    """The first pattern that is found decides; stdout counts where stderr is silent."""
    with pytest.raises(OperationFailed) as caught:
        Recited(said).do("create", "x")
    assert caught.value.kind == kind
    assert (caught.value.start_ns, caught.value.end_ns) == (100, 200)
    assert str(caught.value) == said.complaint


def test_a_command_that_fails_without_a_word_is_named():
    """The message says which command, and its exit code."""
    with pytest.raises(OperationFailed, match="lightning create: exit code 4"):
        Recited(answer(4)).do("create", "x")


def test_the_stamps_of_several_commands():
    """From the start of the first to the end of the last that is timed; what is asked is not."""
    errand = Recited(answer(), answer(start_ns=300, end_ns=400, bound_ns=20), answer(start_ns=500, end_ns=600))
    errand.do("create", "x")
    errand.do("start", "x")
    errand.ask("inspect", "x")
    done = errand.done(exit_code=0)
    assert (done.start_ns, done.end_ns, done.end_uncertainty_ns, done.exit_code) == (100, 400, 20, 0)
    failure = errand.failure("conflict", "it was never started")
    assert (failure.kind, failure.start_ns, failure.end_ns) == ("conflict", 100, 400)


def test_the_bound_is_never_longer_than_the_operation():
    """An end cannot have been before the beginning."""
    errand = Recited(answer(start_ns=100, end_ns=105, bound_ns=50))
    errand.do("create", "x")
    assert errand.done().end_uncertainty_ns == 5


def test_a_failure_later_on_keeps_the_start_of_the_first_command():
    """The time of a failure is that of the whole attempt."""
    errand = Recited(answer(), answer(1, stderr=b"already exists", start_ns=300, end_ns=400))
    errand.do("create", "x")
    with pytest.raises(OperationFailed) as caught:
        errand.ask("start", "x")
    assert (caught.value.start_ns, caught.value.end_ns) == (100, 400)
