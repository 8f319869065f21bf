"""The alarm: it rings at its instant, once, and never before."""

from time import monotonic_ns

import gevent
from deadlines import ANSWER_S
from gevent.event import Event

from bench_worker.slots import TimerFd

MS = 1_000_000


def test_it_rings_once_and_not_before_its_instant():
    """The instant that was set last counts; one that has passed rings at once."""
    rung = []
    heard = Event()

    def ring():
        rung.append(monotonic_ns())
        heard.set()

    alarm = TimerFd(ring)
    at = monotonic_ns() + 2 * MS
    alarm.set(at - 1 * MS)
    alarm.set(at)
    assert heard.wait(ANSWER_S)
    gevent.sleep(0.002)
    assert len(rung) == 1
    assert rung[0] >= at
    heard.clear()
    alarm.set(1)
    assert heard.wait(ANSWER_S)
    alarm.set(monotonic_ns() + MS)
    alarm.close()
    gevent.sleep(0.003)
    assert len(rung) == 2
