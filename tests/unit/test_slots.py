"""Slots: as many jobs at once as allowed and no more, whoever waits; and none is woken for nothing time and again."""

import gevent
from gevent.event import Event

from bench_worker.slots import JobAborted, Slots


def settle():
    """Let the loop run whatever is due."""
    for _ in range(10):
        gevent.sleep(0)


class Work:
    """What slots execute: notes its orders, and waits at those in `waits` until it is let go on."""

    def __init__(self, waits=()):
        self.waits = set(waits)
        self.on = Event()
        self.begun = []
        self.ended = []
        self.most = 0

    def __call__(self, order):
        self.begun.append(order)
        self.most = max(self.most, len(self.begun) - len(self.ended))
        if order in self.waits:
            self.on.wait()
        self.ended.append(order)


def test_orders_that_wait_fill_every_slot_and_the_others_come_in_turn():
    """With `limit` jobs waiting no other begins; when they go on, each order is executed once, in its turn."""
    work = Work(waits=range(6))
    slots = Slots(8, work)
    slots.limit = 3
    slots.put(range(10))
    settle()
    assert (work.begun, slots.running, slots.waiting) == ([0, 1, 2], 3, 7)
    work.on.set()
    settle()
    assert work.begun == list(range(10))
    assert sorted(work.ended) == list(range(10))
    assert (work.most, slots.running, slots.waiting) == (3, 0, 0)


def test_a_job_that_waits_holds_up_none_behind_it():
    """Orders behind one that waits are executed by other slots, however many came before it without waiting."""
    work = Work(waits=[5])
    slots = Slots(4, work)
    slots.put(range(12))
    settle()
    assert slots.running == 1
    assert sorted(work.begun) == list(range(12))
    work.on.set()
    settle()
    assert sorted(work.ended) == list(range(12))
    slots.put([12, 13])
    settle()
    assert work.ended[-2:] == [12, 13]


def test_a_limit_that_is_raised_takes_effect_with_the_next_orders():
    """More run at once where more may, and orders that are taken back never run."""
    work = Work(waits=range(100))
    slots = Slots(8, work)
    slots.limit = 1
    slots.put(range(4))
    settle()
    assert slots.running == 1
    slots.limit = 3
    slots.put([4])
    settle()
    assert slots.running == 3
    assert list(slots.cancel_queued()) == [3, 4]
    work.on.set()
    settle()
    assert work.ended == [0, 1, 2]


def test_a_slot_outlives_what_escapes_from_a_job(caplog):
    """Whatever breaks is told; the jobs behind it are executed, and as many at once as before."""
    work = Work(waits=[3, 4])

    def execute(order):
        if order < 3:
            gevent.sleep(0)
            raise (ValueError, JobAborted, KeyError)[order]("odd")
        work(order)

    slots = Slots(2, execute)
    slots.put(range(8))
    settle()
    assert (work.begun, slots.running, slots.waiting) == ([3, 4], 2, 3)
    work.on.set()
    settle()
    assert sorted(work.ended) == list(range(3, 8))
    assert (slots.running, slots.waiting, slots.made) == (0, 0, 2)
    told = [record.exc_info[0] for record in caplog.records if record.levelname == "ERROR"]
    assert told == [ValueError, KeyError]
