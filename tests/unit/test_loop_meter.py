"""The loop meter: what it calls busy, what idle, and how long a thread may have been kept waiting."""

import subprocess
import sys

import pytest
from deadlines import END_S

from bench_common import eventloop
from bench_common.eventloop import GIL_HANDOVER_NS, LoopMeter, LoopPoll, LoopReading

PROGRAM = """
import time
import gevent
from bench_common import eventloop
from bench_common.eventloop import LoopMeter

def work(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass

def said(condition, text):
    if not condition:
        raise SystemExit(text)

meter = LoopMeter()
said(eventloop.last_poll() is None, "a meter that was not started counts as at work")
meter.start()
gevent.sleep(0.01)
"""
"""Runs in a process of its own, since a hub that other tests have used has greenlets and watchers of theirs."""


def in_a_fresh_process(program):
    command = [sys.executable, "-c", PROGRAM + program]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=END_S)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_work_is_busy_and_lag():
    """A greenlet that does not let go for 100 ms is 100 ms of lag and not a bit of sleep."""
    in_a_fresh_process("""
meter.read()
work(0.1)
gevent.sleep(0.001)
reading = meter.read()
said(reading.lag_max_ns >= 100_000_000, f"lag {reading.lag_max_ns}")
said(reading.busy_share > 0, f"busy {reading.busy_share}")
""")


def test_work_of_woken_and_spawned_greenlets_is_not_taken_for_sleep():
    """The loop runs them between its own watchers; their time is busy all the same."""
    in_a_fresh_process("""
meter.read()
begun = time.monotonic_ns()
gevent.spawn(work, 0.1)
gevent.spawn(work, 0.1)
gevent.sleep(0.001)
gevent.sleep(0.001)
span = time.monotonic_ns() - begun
reading = meter.read()
said(reading.lag_max_ns >= 200_000_000, f"lag {reading.lag_max_ns}")
said(reading.busy_share * span >= 190_000_000, f"busy {reading.busy_share} of {span}")
""")


def test_laps_are_measured_apart_from_readings():
    """Each has the work of its own time, and the stretch that it is called from counts as lag."""
    in_a_fresh_process("""
meter.lap()
work(0.05)
meter.read()
gevent.sleep(0.05)
meter.read()
span, busy, lag = meter.lap()
said(span >= 100_000_000, f"span {span}")
said(50_000_000 <= busy <= span - 40_000_000 or span > 300_000_000, f"busy {busy} of {span}")
said(lag >= 50_000_000, f"lag {lag}")
work(0.02)
span, busy, lag = meter.lap()
said(20_000_000 <= busy <= span and lag >= 20_000_000, f"then busy {busy}, lag {lag} of {span}")
""")


def test_sleep_is_idle():
    """A loop with nothing to do has slept at least so long as it was told to, however slow the machine."""
    in_a_fresh_process("""
meter.read()
begun = time.monotonic_ns()
gevent.sleep(0.2)
reading = meter.read()
span = time.monotonic_ns() - begun
said((1 - reading.busy_share) * span >= 150_000_000 or span > 400_000_000, f"busy {reading.busy_share} of {span}")
""")


def test_a_native_thread_sees_whether_the_loop_is_busy():
    """While greenlets run, the stretch has a beginning before now; while the loop polls there is none."""
    in_a_fresh_process("""
from gevent.monkey import get_original
seen = []
native_sleep = get_original("time", "sleep")

def look():
    native_sleep(0.1)
    seen.append((meter.busy_since_ns, time.monotonic_ns()))

start = get_original("_thread", "start_new_thread")
start(look, ())
while not seen:
    gevent.sleep(0.5)
said(seen == [(0, seen[0][1])], f"polling, and busy since {seen}")
seen.clear()
gevent.sleep(0.001)
begun = time.monotonic_ns()
start(look, ())
while not seen:
    work(0.01)
since, at = seen[0]
said(0 < since <= begun < at, f"busy since {since}, begun {begun}, seen {at}")
said(meter.held_ns(at) >= at - begun, "a thread was not held up by a busy loop")
""")


def test_a_meter_that_was_stopped_says_nothing():
    """After `stop` the process has no meter, and a bound rests on the switch interval alone."""
    in_a_fresh_process("""
said(eventloop.last_poll() is not None, "no meter at work")
meter.stop()
said(eventloop.last_poll() is None, "still at work")
said(eventloop.gil_wait_ns(1) == eventloop.switch_interval_ns(), "not the switch interval")
""")


MS = 1_000_000


@pytest.fixture
def meter(monkeypatch):
    """A meter on a clock that the test sets."""
    monkeypatch.setattr(eventloop, "switch_interval_ns", lambda: MS // 2)
    now = [0]
    monkeypatch.setattr(eventloop.time, "monotonic_ns", lambda: now[0])
    made = LoopMeter()

    def advance(**instants):
        for what, now[0] in instants.items():
            (made._before_poll if what.startswith("polls") else made._after_poll)()
        return made

    return advance


def test_a_reading_is_of_the_interval_since_the_last(meter, monkeypatch):
    """Busy share and lag are those of the interval; a stretch that is under way counts as lag."""
    measured = meter(polls=2 * MS, wakes=8 * MS)
    monkeypatch.setattr(eventloop.time, "monotonic_ns", lambda: 10 * MS)
    assert measured.read() == LoopReading(10 * MS, 0.4, 2 * MS)
    monkeypatch.setattr(eventloop.time, "monotonic_ns", lambda: 14 * MS)
    assert measured.read() == LoopReading(14 * MS, 1.0, 6 * MS)


def test_a_thread_may_have_waited_for_the_stretch_that_is_under_way(meter):
    """As long as the loop has been awake, and no longer, if it had slept before."""
    measured = meter(polls=2 * MS, wakes=8 * MS)
    assert measured.held_ns(11 * MS) == 3 * MS
    assert measured.last_poll() == LoopPoll(2 * MS, 8 * MS, 0)


def test_a_thread_that_gets_the_interpreter_as_the_loop_lets_go_has_waited_too(meter):
    """Just after the stretch the whole of it counts; when the loop has long been asleep nothing does."""
    measured = meter(polls=2 * MS, wakes=8 * MS, polls_again=12 * MS)
    assert measured.busy_since_ns == 0
    assert measured.held_ns(12 * MS + GIL_HANDOVER_NS) == 4 * MS + GIL_HANDOVER_NS
    assert measured.held_ns(12 * MS + GIL_HANDOVER_NS + 1) == 0


def test_a_loop_that_does_not_rest_holds_a_thread_for_a_switch_interval(meter):
    """Polls that return at once need not let a thread in: it waits for more than the last stretch."""
    measured = meter(polls=2 * MS, wakes=8 * MS, polls_2=9 * MS, wakes_2=9 * MS + 1000)
    assert measured.held_ns(9 * MS + 2000) == MS // 2


def test_a_pass_in_which_nothing_was_found_to_do_is_waited():
    """A loop that stays awake for the next message is not busy with anything, and nothing was noticed late."""
    in_a_fresh_process("""
meter.read()
gevent.sleep(0.001)
work(0.1)
begun = time.monotonic_ns()
said(begun <= eventloop.mark_idle() <= time.monotonic_ns(), "another time than now")
span, busy, lag = meter.lap()
said(span - busy >= 100_000_000, f"busy {busy} of {span}")
reading = meter.read()
said(reading.busy_share < 1, f"busy {reading.busy_share}")
said(meter.held_ns(time.monotonic_ns()) < 100_000_000, "a native thread was kept waiting")
meter.stop()
said(begun <= eventloop.mark_idle() <= time.monotonic_ns(), "without a meter")
""")
