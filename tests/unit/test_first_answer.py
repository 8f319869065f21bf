"""What a worker says of a master that does not answer."""

import socket

import pytest

from bench_worker.first_answer import SILENCE_S, FirstAnswer


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def resolves(monkeypatch, *, known):
    """Let names be known, or unknown."""

    def look_up(_host, _port):
        if not known:
            raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.parametrize(
    ("known", "advice"),
    [
        (True, "is bench-master running there, and TCP port 13577 open?"),
        (False, "the name mastr cannot be resolved (Name or service not known)"),
    ],
)
def test_silence_is_told_once(monkeypatch, caplog, clock, known, advice):
    """After ten seconds, with what to look at; a worker that waits for days does not fill its log."""
    resolves(monkeypatch, known=known)
    first = FirstAnswer("tcp://mastr:13577", clock)
    clock.now = SILENCE_S / 2
    first.look()
    assert not caplog.messages
    for clock.now in (SILENCE_S, 100 * SILENCE_S):
        first.look()
    assert caplog.messages == [f"no master answers at tcp://mastr:13577 yet: {advice}; this worker keeps asking"]


def test_a_master_that_has_answered_may_be_silent(caplog, clock):
    """Between two runs there is nothing to tell."""
    first = FirstAnswer("tcp://master:13577", clock)
    first.came()
    clock.now = 1000.0
    first.look()
    assert not caplog.messages
