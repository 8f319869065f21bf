"""A loop that comes by much later than it was to did not run meanwhile."""

import pytest

from bench_common import eventloop


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    times = [100.0]
    monkeypatch.setattr(eventloop, "monotonic", lambda: times[0])
    return times


def test_who_is_late_by_much_was_absent(clock):
    """By what is beyond the time that its round was to take."""
    clock[0] = 110.0
    assert eventloop.stall_s(100.0, 0.5) == pytest.approx(9.5)


def test_who_is_merely_busy_was_not(clock):
    """Nor was one that comes before its time."""
    for later_s in (0.1, 0.5, 2.4):
        clock[0] = 100.0 + later_s
        assert eventloop.stall_s(100.0, 0.5) == 0.0
