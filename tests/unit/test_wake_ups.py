"""What bounds allow for late wake-ups of the host, and the witness that measures them."""

import threading
import time

import pytest
from deadlines import ANSWER_S
from gevent.monkey import get_original

from bench_worker.timing import ready_waiter, wake_up_witness
from bench_worker.timing.ready_waiter import IN, ReadyWaiter
from bench_worker.timing.wake_up_witness import MAX_WRITE_NS, WakeUpWitness
from bench_worker.timing.wake_ups import LEAST_ALLOWANCE_NS, WakeUps

MS = 1_000_000
native_lock = get_original("_thread", "allocate_lock")


def test_without_readings_a_wake_up_may_be_as_late_as_on_an_idle_machine():
    """So do those that are early: there is always something that waking up takes."""
    wake_ups = WakeUps()
    assert (wake_ups.allowance_ns, wake_ups.count) == (LEAST_ALLOWANCE_NS, 0)
    wake_ups.record(1000)
    assert (wake_ups.allowance_ns, wake_ups.count) == (LEAST_ALLOWANCE_NS, 1)


def test_the_largest_of_the_last_readings_counts():
    """Until it has left the window; then the largest of those that are left, or the least there is."""
    wake_ups = WakeUps(window=3)
    seen = []
    for late_ms in (1, 5, 2, 1, 1, 0, 0, 0):
        wake_ups.record(late_ms * MS)
        seen.append((wake_ups.allowance_ns, wake_ups.count))
    least = LEAST_ALLOWANCE_NS
    assert seen == [(MS, 1), (5 * MS, 2), (5 * MS, 3), (5 * MS, 3), (2 * MS, 3), (MS, 3), (MS, 3), (least, 3)]


class KnownWait:
    """What the kernel says of a thread's waits, which is given."""

    def __init__(self, now):
        self.now = now
        self.over = False
        self.next_ns = self.entered_ns = self.woken_ns = 0

    def wait(self):
        self.entered_ns = self.now[0]
        self.now[0] = self.woken_ns = self.entered_ns + self.next_ns


class Kernel:
    """A waiter on a known clock: how long each wait is, and for how long the thread had no CPU, is given."""

    def __init__(self, monkeypatch, wake_ups):
        self.now = [0]
        monkeypatch.setattr(ready_waiter.time, "monotonic_ns", lambda: self.now[0])
        monkeypatch.setattr(ready_waiter, "_native_thread", lambda *_: None)
        self.waiter = ReadyWaiter(wake_ups)
        self.waiter._wait = KnownWait(self.now)
        self.waiter._delay = self
        self.waiter._scout = ready_waiter._Scout(0, [1])
        self.scout = self.waiter._scout._wait = KnownWait(self.now)
        self.delay_ns = 0

    def read(self):
        return self.delay_ns

    def wait(self, waited_ns, delay_ns=0, scout_woken_ns=None):
        self.waiter._wait.next_ns, self.delay_ns = waited_ns, delay_ns
        self.scout.over, self.scout.woken_ns = scout_woken_ns is not None, scout_woken_ns or 0
        assert self.waiter.wait() == []
        return self.waiter.earliest_ns


@pytest.fixture
def wake_ups():
    return WakeUps()


@pytest.fixture
def kernel(monkeypatch, wake_ups):
    known = Kernel(monkeypatch, wake_ups)
    known.now[0] = MS
    known.wait(0)  # the look at 1 ms, before which nothing was there
    known.now[0] = 2 * MS
    return known


@pytest.mark.parametrize(
    ("waited_ns", "delay_ns", "earliest"),
    [
        (8 * MS, 0, 10 * MS - LEAST_ALLOWANCE_NS),
        (8 * MS, 3 * MS, 7 * MS - LEAST_ALLOWANCE_NS),
        (LEAST_ALLOWANCE_NS, 0, 1 * MS),
        (3 * MS, 3 * MS, 1 * MS),
        (0, 0, 1 * MS),
    ],
    ids=["blocked", "waited for a CPU", "may have been woken late", "may not have blocked", "kernel is mute"],
)
def test_the_kernels_own_measure_of_a_wait(kernel, waited_ns, delay_ns, earliest):
    """Begun at 2 ms: what it brought came before its end, or, where it may not have blocked, since the last look."""
    assert kernel.wait(waited_ns, delay_ns) == earliest


def test_a_bound_allows_for_the_latest_wake_up(kernel, wake_ups):
    """What the host was late by lately it may be late by again; when it was woken, the waiter knows all the same."""
    wake_ups.record(2 * MS)
    assert kernel.wait(8 * MS) == 8 * MS
    assert kernel.waiter.woken_ns == 10 * MS


@pytest.mark.parametrize(
    ("scout_woken_ns", "woken_ns"),
    [(7 * MS, 7 * MS), (11 * MS, 10 * MS), (MS, 10 * MS), (3 * MS // 2, 10 * MS)],
    ids=["was quicker", "was slower", "speaks of an earlier event", "was late for an earlier event"],
)
def test_the_thread_that_is_woken_first_counts(kernel, scout_woken_ns, woken_ns):
    """Of the two that wait for the same on different CPUs; what woke one before the other's wait was not the same."""
    assert kernel.wait(8 * MS, scout_woken_ns=scout_woken_ns) == woken_ns - LEAST_ALLOWANCE_NS
    assert kernel.waiter.woken_ns == woken_ns


def test_a_second_thread_whose_wait_is_over_waits_again_with_the_first(kernel):
    """Not before: what woke it may still be ready until the first one is back, and would wake it at once."""
    gate = kernel.waiter._scout._gate
    kernel.wait(8 * MS)
    assert gate.locked()
    kernel.wait(8 * MS, scout_woken_ns=12 * MS)
    assert not gate.locked()


def test_a_second_thread_that_is_still_waiting_says_nothing(kernel):
    """It goes on waiting, and is not let on."""
    assert kernel.wait(8 * MS) == 10 * MS - LEAST_ALLOWANCE_NS
    assert kernel.waiter._scout._gate.locked()


@pytest.mark.unpatched
def test_both_threads_hear_of_the_same_events():
    """In a process of two CPUs: what one writes is heard of, once, however often; no wait is missed."""
    near, far = wake_up_witness._native_socket()
    with near, far:
        waiter = ReadyWaiter()
        waiter.register(near.fileno(), IN)
        for _ in range(50):
            timer = threading.Timer(0.002, far.send, (b"x",))
            timer.start()
            assert waiter.wait() == [near.fileno()]
            assert waiter.earliest_ns <= time.monotonic_ns()
            near.recv(1)
            timer.join()


class KnownWriter:
    """A listener's wait that brings one byte after the other, whose writes began and ended at given instants."""

    def __init__(self, witness, far, writes):
        self.witness, self.far, self.writes, self.woken_ns = witness, far, list(writes), 0

    def register(self, *_):
        pass

    def wait(self):
        if not self.writes:
            self.far.close()
            return
        self.witness._began_ns, self.witness._ended_ns, self.woken_ns = times = self.writes.pop(0)
        if any(times):
            self.far.send(b"x")


def test_a_reading_is_what_the_account_of_the_thread_does_not_explain(monkeypatch, wake_ups):
    """From the beginning of a write to the wake-up.

    A write that was held up itself gives none, nor one that is still going on, nor an event that brings no byte.
    """
    witness = WakeUpWitness(wake_ups)
    writes = [
        (10 * MS, 10 * MS + 9000, 13 * MS),
        (20 * MS, 20 * MS + MAX_WRITE_NS + 1, 29 * MS),
        (30 * MS, 0, 39 * MS),
        (0, 0, 0),
        (40 * MS, 40 * MS + 9000, 0),
        (50 * MS, 50 * MS + 9000, 50 * MS + 20_000),
    ]
    near, far = wake_up_witness._native_socket()
    near.setblocking(False)
    monkeypatch.setattr(wake_up_witness, "ReadyWaiter", lambda: KnownWriter(witness, far, writes))
    monkeypatch.setattr(wake_up_witness, "prioritize_thread", lambda: None)
    witness._listen(near)
    assert (list(wake_ups._readings), near.fileno()) == ([3 * MS, 20_000], -1)


@pytest.mark.unpatched
def test_the_witness_reads_this_host_until_it_is_stopped(monkeypatch, wake_ups):
    """It gives readings by itself, none of them of no time at all, and its threads end."""
    three, ended = native_lock(), native_lock()
    three.acquire()
    ended.acquire()
    record = wake_ups.record

    def recorded(late_ns):
        record(late_ns)
        if wake_ups.count == 3:
            three.release()

    listen = WakeUpWitness._listen

    def listened(self, near):
        listen(self, near)
        ended.release()

    monkeypatch.setattr(wake_ups, "record", recorded)
    monkeypatch.setattr(WakeUpWitness, "_listen", listened)
    witness = WakeUpWitness(wake_ups, interval_s=0.001)
    witness.start()
    assert three.acquire(timeout=ANSWER_S)
    witness.stop()
    assert ended.acquire(timeout=ANSWER_S)
    assert all(late_ns > 0 for late_ns in wake_ups._readings)
