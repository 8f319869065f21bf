"""A master that is kept busy, or is busy itself, takes no host for one that does not answer."""

import threading

import gevent
import pytest
from deadlines import ANSWER_S

from bench_features.fleet import ssh, wheels
from bench_features.fleet.ssh import CommandResult, HostError
from bench_features.fleet.wheels import PythonPlatform, Wheelhouse


def test_connections_are_served_while_wheels_are_packed(monkeypatch, tmp_path):
    """What takes seconds of a processor is done beside the loop."""
    gone_on = threading.Event()

    def closure():
        assert gone_on.wait(ANSWER_S), "the loop stood still"
        return []

    monkeypatch.setattr(wheels, "required_distributions", closure)
    gevent.spawn(gone_on.set)
    bundle = Wheelhouse(tmp_path).bundle_for(PythonPlatform.current())
    assert [wheel.name.partition("-")[0] for wheel in bundle.wheels] == ["pip"]


class Channel:
    """A command that says what it has to say while it is not looked at; `ends`: it does."""

    closed = False
    said = b"out"

    def __init__(self, *, ends):
        self.ends = ends
        self.eof_received = False

    def come(self, _seconds):
        self.eof_received = self.ends

    def exit_status_ready(self):
        return self.eof_received

    def recv_ready(self):
        return self.eof_received and self.said

    def recv(self, _limit):
        said, self.said = self.said, b""
        return said

    def recv_stderr_ready(self):
        return False

    def recv_exit_status(self):
        return 3


@pytest.mark.parametrize("ends", [True, False])
def test_an_answer_that_came_while_nobody_looked_counts(monkeypatch, ends):
    """The deadline passed unseen: the answer is read first, and only where there is none, that is told."""
    channel, now = Channel(ends=ends), iter([0.0, 100.0])
    monkeypatch.setattr(ssh, "monotonic", lambda: next(now))
    monkeypatch.setattr(ssh, "sleep", channel.come)
    output = ssh._Output()
    if ends:
        assert output.wait(channel, "python3", 30) == CommandResult(3, b"out", b"")
    else:
        with pytest.raises(HostError, match="python3 did not end within 30 s"):
            output.wait(channel, "python3", 30)
