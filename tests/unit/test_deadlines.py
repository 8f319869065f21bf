"""The factor of all deadlines: measured once, within bounds, or as stated by hand."""

import os

import deadlines
import pytest
from deadlines import LARGEST, REFERENCE_S, VARIABLE, factor_of, find_factor, measure_rounds, wait_until


@pytest.mark.parametrize(
    ("rounds", "factor"),
    [
        ([REFERENCE_S], 1.5),
        ([REFERENCE_S, 2 * REFERENCE_S, REFERENCE_S], 3),
        ([REFERENCE_S / 10], 1),
        ([1000 * REFERENCE_S], LARGEST),
    ],
)
def test_the_factor_is_that_of_the_worst_round_within_bounds(rounds, factor):
    """With head-room; a fast machine shortens no deadline, and the slowest has an end, too."""
    assert factor_of(rounds) == factor


def test_the_factor_is_measured_once_and_handed_on():
    """A lane finds in its environment what the first process has measured."""
    environ = {}
    factor, origin = find_factor(environ, lambda: [2 * REFERENCE_S])
    assert (factor, environ) == (3, {VARIABLE: "3.0"})
    assert "times 1.5" in origin
    assert find_factor(environ, measure=None) == (3, f"{VARIABLE} says so")


@pytest.mark.parametrize("given", ["much", "0", "-1", "inf", "nan"])
def test_a_factor_that_is_none_is_refused(given):
    """It names the variable and what is expected."""
    with pytest.raises(ValueError, match=rf"{VARIABLE}={given}: expected a number above 0, such as 3"):
        find_factor({VARIABLE: given})


def test_a_slow_machine_measures_fewer_rounds():
    """The measurement takes well under a second where it matters, and is never left out."""
    assert measure_rounds(lambda: 0.06) == [0.06] * 5
    assert measure_rounds(lambda: 0.25) == [0.25] * 3
    assert measure_rounds(lambda: 9.0) == [9.0]


def test_this_process_has_the_factor_of_the_environment():
    """Whatever starts from here has the same deadlines, and each of them has its place."""
    assert float(os.environ[VARIABLE]) == deadlines.FACTOR
    assert deadlines.HEADER.startswith(f"deadlines: x{deadlines.FACTOR:g} (")
    assert deadlines.ANSWER_S < deadlines.START_S < deadlines.END_S < deadlines.LONG_END_S < deadlines.TEST_S
    assert deadlines.TEST_S < deadlines.BUILD_S < deadlines.LONG_TEST_S
    assert deadlines.LONG_TEST_S < deadlines.SLOW_BUILD_S < deadlines.SLOW_TEST_S


def test_a_wait_gives_what_it_waited_for():
    """Asked again and again, less and less often up to a bound."""
    answers, naps = iter([0, "", *[None] * 20, "there"]), []
    assert wait_until(lambda: next(answers), sleep=naps.append) == "there"
    assert naps[0] >= 0.001
    assert naps[-1] >= deadlines.LONGEST_NAP_S


def test_a_wait_for_what_never_comes_names_it():
    """And how long it was."""
    with pytest.raises(AssertionError, match="the moon: not within 0 s"):
        wait_until(lambda: False, 0, "the moon", sleep=lambda _: None)
