"""The vigil: where a loop waits awake for the next message, and that it lets the CPU go again."""

import gevent
import pytest

from bench_common import eventloop as module
from bench_common.eventloop import BACKOFF_NS, MAX_INTERVAL_NS, MAX_YIELD_NS, POLL_INTERVAL_NS, BusyPoller


class Clock:
    """Stands still but for what a test, or whoever is given the CPU, makes of it."""

    def __init__(self):
        self.ns = 1_000_000_000
        self.away_ns = 0

    def now(self):
        return self.ns

    def yielded(self):
        self.ns += self.away_ns


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(module, "monotonic_ns", made.now)
    monkeypatch.setattr(module, "mark_idle", made.now)
    monkeypatch.setattr(module.os, "sched_yield", made.yielded)
    monkeypatch.setattr(module, "CPU_COUNT", 2)
    return made


@pytest.fixture
def vigil(clock):
    made = BusyPoller()
    yield made
    made.close()


def come(vigil, clock, interval_ns, count=100):
    for _ in range(count):
        clock.ns += interval_ns
        vigil.came()


def passes():
    """Let the loop come by some times."""
    for _ in range(5):
        gevent.sleep(0.001)


def test_quick_messages_are_waited_for_awake_until_one_is_late(vigil, clock):
    come(vigil, clock, POLL_INTERVAL_NS // 2)
    passes()
    assert vigil.polling
    clock.ns += POLL_INTERVAL_NS + 1
    passes()
    assert not vigil.polling


def test_what_comes_at_longer_intervals_is_waited_for_asleep(vigil, clock):
    come(vigil, clock, POLL_INTERVAL_NS + 1000)
    assert not vigil.polling


def test_some_quick_ones_are_not_enough(vigil, clock):
    come(vigil, clock, POLL_INTERVAL_NS // 10, count=10)
    assert not vigil.polling


def test_one_pause_does_not_outweigh_all_that_came_quickly(vigil, clock):
    """After a second of silence the very next messages are waited for awake again."""
    come(vigil, clock, POLL_INTERVAL_NS // 10)
    clock.ns += 1_000_000_000
    passes()
    assert not vigil.polling
    vigil.came()
    assert vigil.polling
    # A second one is nearer to what is slow, and a few make it so.
    come(vigil, clock, MAX_INTERVAL_NS, count=10)
    passes()
    clock.ns += POLL_INTERVAL_NS + 1
    passes()
    vigil.came()
    assert not vigil.polling


def test_whoever_wants_the_cpu_gets_it_and_keeps_it(vigil, clock):
    """However quickly the next messages come, the loop sleeps for a while."""
    come(vigil, clock, POLL_INTERVAL_NS // 10)
    assert vigil.polling
    clock.away_ns = MAX_YIELD_NS + 1
    passes()
    assert not vigil.polling
    clock.away_ns = 0
    come(vigil, clock, BACKOFF_NS // 1000, count=999)
    assert not vigil.polling
    come(vigil, clock, BACKOFF_NS // 1000, count=2)
    passes()
    assert vigil.polling


def test_a_single_cpu_is_not_kept_from_the_sender(vigil, clock, monkeypatch):
    monkeypatch.setattr(module, "CPU_COUNT", 1)
    come(vigil, clock, POLL_INTERVAL_NS // 10)
    assert not vigil.polling


def test_other_greenlets_run_meanwhile(vigil, clock):
    come(vigil, clock, POLL_INTERVAL_NS // 10)
    worked = gevent.spawn(lambda: 42)
    assert worked.get(timeout=10) == 42
    assert vigil.polling
