"""A loop that comes by much later than it was to did not run meanwhile."""

import pytest

from bench_common import absence


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    times = [100.0]
    monkeypatch.setattr(absence, "monotonic", lambda: times[0])
    return times


def test_who_is_late_by_much_was_absent(clock):
    """By what is beyond the time that its round was to take."""
    rounds = absence.Rounds()
    clock[0] = 110.0
    assert rounds.come(0.5) == pytest.approx(9.5)


def test_who_is_merely_busy_was_not(clock):
    """Each round is measured from the one before."""
    rounds = absence.Rounds()
    for _ in range(100):
        clock[0] += 2.4
        assert rounds.come(0.5) == 0.0
