"""Commands that end unexpectedly: cut off, killed, or finished before they have read their input."""

import paramiko
import pytest
from deadlines import ANSWER_S

from bench_features.fleet import ssh
from bench_features.fleet.ssh import HostError, run_on


class Channel(paramiko.Channel):
    """A channel without a connection: received output, and whether the command ended by itself."""

    def __init__(self, out=b"", err=b"", status=None, *, cut=False):
        super().__init__(0)
        self.in_buffer.feed(out)
        self.in_stderr_buffer.feed(err)
        self._over = status is not None or cut
        if status is not None:
            self.exit_status = status
            self.status_event.set()
            self.eof_received = True
        if self._over:
            self.closed = True
            self.status_event.set()

    def get_transport(self):
        """Be the client and the transport, too."""
        return self

    def open_session(self, **_):
        """Be what is opened."""
        return self

    def exec_command(self, command):
        """Take the command."""

    def sendall(self, part):
        """Take what is sent, or say what a closed channel says."""
        if self._over:
            raise OSError("Socket is closed")

    def shutdown_write(self):
        """Take the end of what is sent."""

    def close(self):
        """Leave it as it is."""


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """Fail instead of waiting for output that never arrives."""

    def never(_):
        raise AssertionError("it waits")

    monkeypatch.setattr(ssh, "sleep", never)


def test_a_command_that_stops_reading_explains_why():
    """Its answer is returned, not the error that the rest could not be sent."""
    said = run_on(Channel(b'{"refused": "no"}', status=0), ["python3"], stdin=[b"x"], timeout_s=ANSWER_S)
    assert (said.status, said.stdout) == (0, b'{"refused": "no"}')


def test_a_connection_that_was_cut_is_not_waited_for():
    """No exit status will arrive: reported immediately, with the end of stderr."""
    with pytest.raises(HostError, match=r"connection broke, or python3 was killed on the host: gone$"):
        run_on(Channel(err=b"gone\n", cut=True), ["python3"], timeout_s=ANSWER_S)


def test_an_unreadable_input_is_reported_while_the_connection_is_open():
    """For example a local file that was deleted."""

    def parts():
        yield b"x"
        raise FileNotFoundError("a wheel")

    with pytest.raises(HostError, match="a wheel"):
        run_on(Channel(), ["python3"], stdin=parts(), timeout_s=ANSWER_S)
