"""What a worker says of a master that does not answer."""

import socket

import pytest

from bench_worker.control_channel import SILENCE_TIMEOUT_S, ReachabilityCheck


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class Connection:
    """What a look at the port opens."""

    def close(self):
        """Be closed."""


def answers(monkeypatch, answer):
    """Let a look at the master's port end in an error, or in a connection."""

    def connect(_address, _timeout):
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(socket, "create_connection", connect)


@pytest.mark.parametrize(
    ("answer", "keyed", "advice"),
    [
        (
            ConnectionRefusedError(111, "Connection refused"),
            True,
            "Connection refused; is bench-master running there",
        ),
        (TimeoutError("timed out"), False, "timed out; is bench-master running there, and TCP port 13577 open?"),
        (
            socket.gaierror(-2, "Name or service not known"),
            True,
            "the name mastr cannot be resolved (Name or service",
        ),
        (Connection(), True, "the server there rejects this worker; is it the master that made its key"),
        (
            Connection(),
            False,
            "the server there rejects this worker; is it a bench-master that requires a key",
        ),
    ],
)
def test_silence_is_told_once(monkeypatch, caplog, clock, answer, keyed, advice):
    """After ten seconds, with what to look at; a worker that waits for days does not fill its log."""
    answers(monkeypatch, answer)
    first = ReachabilityCheck("tcp://mastr:13577", clock, keyed=keyed)
    clock.now = SILENCE_TIMEOUT_S / 2
    first.check()
    assert not caplog.messages
    for clock.now in (SILENCE_TIMEOUT_S, 100 * SILENCE_TIMEOUT_S):
        first.check()
    (message,) = caplog.messages
    assert message.startswith(f"no master answers at tcp://mastr:13577 yet: {advice}")
    assert message.endswith("; this worker keeps asking")


def test_a_master_that_has_answered_may_be_silent(caplog, clock):
    """Between two runs there is nothing to tell."""
    first = ReachabilityCheck("tcp://master:13577", clock)
    first.on_answer()
    clock.now = 1000.0
    first.check()
    assert not caplog.messages
