"""Signals and CPU lists as text."""

import signal

import pytest

from bench_worker.engines.output import parse_cpuset, parse_signal


@pytest.mark.parametrize("text", ["SIGTERM", "TERM", "term", " sigterm ", "15"])
def test_a_signal_is_known_by_each_of_its_spellings(text):
    """The name with and without SIG, in any case, and the number mean the same signal."""
    assert parse_signal(text) is signal.SIGTERM


def test_an_unknown_signal_is_refused_with_the_nearest_spelling():
    """A typing error is answered with what was probably meant."""
    with pytest.raises(ValueError, match=r"SIGTREM.*did you mean 'SIGTERM'"):
        parse_signal("SIGTREM")


@pytest.mark.parametrize("text", ["0", "99", "", "-9"])
def test_a_number_that_is_no_signal_is_refused(text):
    """0 would be a question to the kernel and not a signal."""
    with pytest.raises(ValueError, match="unknown signal"):
        parse_signal(text)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", {0}), ("0-2", {0, 1, 2}), ("0-1,4", {0, 1, 4}), ("3, 1", {1, 3}), ("2-2", {2})]
)
def test_a_cpuset_is_numbers_and_ranges(text, cpus):
    """Commas separate numbers and inclusive ranges."""
    assert parse_cpuset(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "1-", "2-1", "0,,1", "-1", "1.5", "0x1"])
def test_anything_else_is_no_cpuset(text):
    """What the kernel's own notation does not have is refused with the text that was given."""
    with pytest.raises(ValueError, match="expected such as"):
        parse_cpuset(text)
