"""What is read during a run: when, and what becomes of it."""

import pytest

from bench_common.errors import InfrastructureError
from bench_worker.host import sampler
from bench_worker.host.sampler import SEND_S, Sampling

UNITS = {"time_ns": "ns"}


class Time:
    """A clock that only waiting moves on, and an end after some waits; `late`: by how much some take longer."""

    def __init__(self, waits, late=None):
        self.now = 100.0
        self.left = waits
        self.late = late or {}
        self.done = 0
        self.waited = []

    def monotonic(self):
        return self.now

    def wait(self, timeout):
        self.done += 1
        self.now += timeout + self.late.get(self.done, 0.0)
        self.waited.append(self.now - 100.0)
        return self.done > self.left

    def is_set(self):
        return self.done > self.left


class Counting:
    """A source that counts how often it was read; it has nothing where it says so."""

    units = UNITS

    def __init__(self, nothing=()):
        self.count = 0
        self.nothing = nothing

    def sample(self):
        self.count += 1
        return None if self.count in self.nothing else {"time_ns": self.count}


@pytest.fixture
def samples(monkeypatch):
    """Return what gives a `Sampling` whose time goes by at once, and what it has sent."""
    monkeypatch.setattr(sampler.gevent, "spawn", lambda function, *arguments: function(*arguments))

    def of(waits, late=None):
        time = Time(waits, late)
        monkeypatch.setattr(sampler, "monotonic", time.monotonic)
        sent = []
        made = Sampling(lambda *what: sent.append(what))
        made._over = time
        return made, sent, time

    return of


def test_the_schedule_does_not_drift(samples):
    """A reading that comes late is followed by the next on the first schedule; what was missed stays missed."""
    made, _, time = samples(4, late={2: 1.3})
    made.start_sampling({"a": Counting()}, 0.5)
    assert time.waited == pytest.approx([0.5, 2.3, 2.5, 3.0, 3.5])


def test_what_was_gathered_is_sent_now_and_then(samples):
    """All of it, source by source, as columns with their units; and each reading once."""
    made, sent, _ = samples(7)
    made.start_sampling({"a": Counting(), "b": Counting(nothing={1, 2})}, SEND_S / 4)
    assert sent == [("a", {"time_ns": [1, 2, 3, 4]}, UNITS), ("b", {"time_ns": [3, 4]}, UNITS)]
    made.flush()
    assert sent[2:] == [("a", {"time_ns": [5, 6, 7]}, UNITS), ("b", {"time_ns": [5, 6, 7]}, UNITS)]
    made.flush()
    assert len(sent) == 4


def test_a_source_that_tells_by_itself_is_sent_with_the_others(samples):
    """Nobody reads it."""
    made, sent, _ = samples(4)
    made.add("loop", {"busy_share": 0.5}, {"busy_share": "1"})
    made.start_sampling({"a": Counting()}, SEND_S / 4)
    assert sent[0] == ("loop", {"busy_share": [0.5]}, {"busy_share": "1"})


def test_a_host_that_cannot_be_read_is_told_and_ends_no_more_than_its_samples(samples, monkeypatch, caplog):
    """The worker goes on without."""

    class Unreadable:
        def __init__(self):
            raise InfrastructureError("/proc/stat gives nothing")

    made, sent, _ = samples(4)
    monkeypatch.setattr(sampler, "HostSampler", Unreadable)
    made.start_host_sampling(0.5)
    assert sent == []
    assert caplog.messages == ["this host cannot be sampled any more: /proc/stat gives nothing"]


def test_nothing_is_read_once_it_is_over():
    """Also of a reader that was about to begin."""
    source = Counting()
    made = Sampling(lambda *_: None)
    made.end()
    made._read({"a": source}, 0.1)
    assert source.count == 0
