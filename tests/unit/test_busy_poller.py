"""The poller: where a loop waits awake for the next message, and that it lets the CPU go again."""

import gevent
import pytest
from deadlines import ANSWER_S

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
def poller(clock):
    made = BusyPoller()
    yield made
    made.close()


def come(poller, clock, interval_ns, count=100):
    for _ in range(count):
        clock.ns += interval_ns
        poller.message_arrived()


def passes():
    """Let the loop come by some times."""
    for _ in range(5):
        gevent.sleep(0.001)


def test_quick_messages_are_waited_for_awake_until_one_is_late(poller, clock):
    come(poller, clock, POLL_INTERVAL_NS // 2)
    passes()
    assert poller.polling
    clock.ns += POLL_INTERVAL_NS + 1
    passes()
    assert not poller.polling


def test_what_comes_at_longer_intervals_is_waited_for_asleep(poller, clock):
    come(poller, clock, POLL_INTERVAL_NS + 1000)
    assert not poller.polling


def test_some_quick_ones_are_not_enough(poller, clock):
    come(poller, clock, POLL_INTERVAL_NS // 10, count=10)
    assert not poller.polling


def test_one_pause_does_not_outweigh_all_that_came_quickly(poller, clock):
    """After a second of silence the very next messages are waited for awake again."""
    come(poller, clock, POLL_INTERVAL_NS // 10)
    clock.ns += 1_000_000_000
    passes()
    assert not poller.polling
    poller.message_arrived()
    assert poller.polling
    # A second one is nearer to what is slow, and a few make it so.
    come(poller, clock, MAX_INTERVAL_NS, count=10)
    passes()
    clock.ns += POLL_INTERVAL_NS + 1
    passes()
    poller.message_arrived()
    assert not poller.polling


def test_whoever_wants_the_cpu_gets_it_and_keeps_it(poller, clock):
    """However quickly the next messages come, the loop sleeps for a while."""
    come(poller, clock, POLL_INTERVAL_NS // 10)
    assert poller.polling
    clock.away_ns = MAX_YIELD_NS + 1
    passes()
    assert not poller.polling
    clock.away_ns = 0
    come(poller, clock, BACKOFF_NS // 1000, count=999)
    assert not poller.polling
    come(poller, clock, BACKOFF_NS // 1000, count=2)
    passes()
    assert poller.polling


def test_a_single_cpu_is_not_kept_from_the_sender(poller, clock, monkeypatch):
    monkeypatch.setattr(module, "CPU_COUNT", 1)
    come(poller, clock, POLL_INTERVAL_NS // 10)
    assert not poller.polling


def test_other_greenlets_run_meanwhile(poller, clock):
    come(poller, clock, POLL_INTERVAL_NS // 10)
    worked = gevent.spawn(lambda: 42)
    assert worked.get(timeout=ANSWER_S) == 42
    assert poller.polling
