"""How late a native thread's stamp may be, on numbers that are given."""

import pytest
from deadlines import ANSWER_S
from gevent.monkey import get_original

from bench_common import eventloop
from bench_common.eventloop import MIN_WAIT_NS, LoopPoll
from bench_worker.timing import stamps
from bench_worker.timing.stamps import (
    LoopTimer,
    SchedDelay,
    WaitTimer,
    earliest_ns,
)
from bench_worker.timing.wake_ups import LEAST_ALLOWANCE_NS, WakeUps

MS = 1_000_000
WAKE_UP_NS = LEAST_ALLOWANCE_NS

native_ident = get_original("_thread", "get_ident")
native_lock = get_original("_thread", "allocate_lock")
native_thread = get_original("_thread", "start_new_thread")


def rounds(instants, *, delays=(), held=()):
    """Build the rounds of a thread that looks at its clock at these instants."""
    delays, held = list(delays), list(held)
    return WaitTimer(
        lambda: delays.pop(0) if delays else 0,
        lambda _: held.pop(0) if held else 0,
        iter(instants).__next__,
        WakeUps(),
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


def test_it_is_the_waiting_thread_whose_time_without_a_cpu_counts(monkeypatch):
    """Whichever thread made the timer: the kernel's account is the one of the thread that opens it."""
    opened_by, ended = [], native_lock()
    ended.acquire()

    class Delay:
        def __init__(self):
            opened_by.append(native_ident())

        def read(self):
            return 0

    def wait():
        try:
            timer.enter()
            timer.stamp()
        finally:
            ended.release()

    monkeypatch.setattr(stamps, "SchedDelay", Delay)
    timer = WaitTimer()
    waiting = native_thread(wait, ())
    assert ended.acquire(timeout=ANSWER_S)
    assert opened_by == [waiting]


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


def test_the_kernels_account_is_read_as_differences(monkeypatch, tmp_path):
    """Each reading is the delay since the one before, from the second number of the file."""
    account = tmp_path / "schedstat"
    account.write_text("5 1000 1\n")
    with account.open("rb") as file, monkeypatch.context() as meanwhile:
        meanwhile.setattr(stamps.os, "open", lambda *_: file.fileno())
        delay = SchedDelay()
        account.write_text("9 1500 3\n")
        assert (delay.read(), delay.read()) == (500, 0)


def test_without_the_kernels_account_nothing_is_added(monkeypatch):
    """A kernel that keeps none has no such file, or one of zeros."""

    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(stamps.os, "open", missing)
    assert SchedDelay().read() == 0


def test_what_one_wait_of_the_loop_brought_came_equally_late(monkeypatch):
    """Several greenlets read after one wait: what the loop waited for a CPU counts for each of them."""
    delays = [2 * MS, 0, 1 * MS]
    monkeypatch.setattr(eventloop, "switch_interval_ns", lambda: 0)
    monkeypatch.setattr(SchedDelay, "read", lambda _: delays.pop(0))
    monkeypatch.setattr(SchedDelay, "__init__", lambda _: None)
    timer = LoopTimer()
    polls = [LoopPoll(5 * MS, 9 * MS, 4 * MS)] * 2 + [LoopPoll(9 * MS, 20 * MS, 9 * MS)]
    monkeypatch.setattr(eventloop, "last_poll", lambda: polls.pop(0))
    first, second, third = (timer.earliest_ns() + WAKE_UP_NS for _ in range(3))
    assert (first, second, third) == (7 * MS, 7 * MS, 20 * MS)
