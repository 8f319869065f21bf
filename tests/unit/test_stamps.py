"""How late a native thread's stamp may be, on numbers that are given."""

import os

import pytest

from bench_common import eventloop
from bench_common.eventloop import MIN_WAIT_NS, LoopPoll
from bench_worker.timing import stamps
from bench_worker.timing.stamps import WAKE_UP_NS, LoopTimer, SchedDelay, WaitTimer, earliest_ns

MS = 1_000_000


def rounds(instants, *, delays=(), held=()):
    """Build the rounds of a thread that looks at its clock at these instants."""
    delays, held = list(delays), list(held)
    return WaitTimer(
        lambda: delays.pop(0) if delays else 0,
        lambda _: held.pop(0) if held else 0,
        iter(instants).__next__,
    )


def test_a_wait_that_blocked_brings_what_happened_just_now():
    """Nothing kept the thread: the stamp is late by a waking-up and no more."""
    thread = rounds([0, 1 * MS, 9 * MS])
    thread.enter()
    assert thread.stamp() == (9 * MS, 9 * MS - WAKE_UP_NS)


def test_waiting_for_a_cpu_and_for_the_interpreter_add_up():
    """The event may be older by both."""
    thread = rounds([0, 1 * MS, 9 * MS], delays=[2 * MS], held=[3 * MS])
    thread.enter()
    assert thread.stamp() == (9 * MS, 4 * MS - WAKE_UP_NS)


def test_a_wait_that_ended_at_once_brings_what_happened_since_the_last_one():
    """It was there before the wait began, but not yet when the one before was over."""
    thread = rounds([0, 1 * MS, 9 * MS, 12 * MS, 12 * MS + 5000])
    thread.enter()
    thread.stamp()
    thread.enter()
    assert thread.stamp() == (12 * MS + 5000, 9 * MS - WAKE_UP_NS)


def test_a_wait_that_may_have_ended_at_once_counts_as_one_that_did():
    """A thread that was kept for as long as it waited cannot know that it waited for the event at all."""
    thread = rounds([0, 1 * MS, 9 * MS, 12 * MS, 15 * MS], held=[0, 3 * MS])
    thread.enter()
    thread.stamp()
    thread.enter()
    assert thread.stamp() == (15 * MS, 9 * MS - WAKE_UP_NS)


def test_a_round_is_never_over_before_it_was_entered():
    """However late the thread was, what it heard of in the next round came after it had entered this one."""
    thread = rounds([0, 1 * MS, 9 * MS, 9 * MS, 9 * MS], held=[100 * MS])
    thread.enter()
    assert thread.stamp() == (9 * MS, 0)
    thread.enter()
    assert thread.stamp() == (9 * MS, 1 * MS)


def test_the_threshold_of_blocking():
    """A wait within the threshold did not block; one beyond it did."""
    assert earliest_ns(100, 100 + MIN_WAIT_NS, 0, 7) == 7
    assert earliest_ns(100, 101 + MIN_WAIT_NS, 0, 7) == 101 + MIN_WAIT_NS


def test_without_a_meter_nobody_knows_what_the_loop_brought(monkeypatch):
    """Then the reading says nothing about the arrival."""
    monkeypatch.setattr(eventloop, "last_poll", lambda: None)
    assert LoopTimer().earliest_ns() == 0


@pytest.mark.parametrize(
    ("ended_ns", "earliest"),
    [(9 * MS, 9 * MS - MS // 2 - WAKE_UP_NS), (5 * MS + 1000, 4 * MS - MS // 2 - WAKE_UP_NS)],
)
def test_the_loops_own_waits_are_judged_like_a_threads(monkeypatch, ended_ns, earliest):
    """One that blocked brought what happened just then, one that did not what happened since the wait before."""
    monkeypatch.setattr(eventloop, "switch_interval_ns", lambda: MS // 2)
    monkeypatch.setattr(SchedDelay, "read", lambda _: 0)
    monkeypatch.setattr(eventloop, "last_poll", lambda: LoopPoll(5 * MS, ended_ns, 4 * MS))
    assert LoopTimer().earliest_ns() == earliest


def test_the_kernels_account_is_read_as_differences(monkeypatch):
    """Each reading is the delay since the one before, from the second number of the file."""
    texts = [b"5 1000 1\n", b"9 1500 3\n", b"9 1500 3\n"]
    ours, real = 1 << 20, os.pread
    # Native threads that other tests have left in this process go on reading files of their own.
    monkeypatch.setattr(stamps.os, "pread", lambda fd, *rest: texts.pop(0) if fd == ours else real(fd, *rest))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stamps.os, "open", lambda *_: ours)
        delay = SchedDelay()
    assert (delay.read(), delay.read()) == (500, 0)


def test_without_the_kernels_account_nothing_is_added(monkeypatch):
    """A kernel that keeps none has no such file, or one of zeros."""

    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(stamps.os, "open", missing)
    assert SchedDelay().read() == 0
