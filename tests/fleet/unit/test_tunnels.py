"""A broken tunnel is reopened until it is closed, whatever error an attempt ends with."""

import threading

import paramiko
import pytest
from deadlines import ANSWER_S

from bench_features.fleet import tunnels
from bench_features.fleet.ssh import HostError
from bench_features.fleet.tunnels import Tunnel


class Client:
    """An SSH connection: `fault` is raised when a port is to be forwarded, and `broken` when it broke afterwards."""

    def __init__(self, fault=None, *, broken=False):
        self.fault, self.broken = fault, broken
        self.closed = threading.Event()
        self.used = threading.Event()

    def get_transport(self):
        return self

    def is_active(self):
        return not self.broken

    def request_port_forward(self, _address, _port, _handler):
        if self.fault is not None:
            raise self.fault
        self.used.set()

    def close(self):
        self.closed.set()


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(tunnels, "WATCH_INTERVAL_S", 0.0)


def test_a_tunnel_is_retried_after_any_error(at_once, caplog):
    """Logged and retried: a refusal and an unexpected error; useless connections are closed."""
    first, refused, odd, good = clients = [
        Client(broken=True),
        Client(paramiko.SSHException("no")),
        Client(ValueError("odd")),
        Client(),
    ]
    ahead = iter(clients)
    tunnel = Tunnel("blade-1", lambda: next(ahead), "127.0.0.1", [1])
    try:
        assert good.used.wait(ANSWER_S)
        assert all(client.closed.wait(ANSWER_S) for client in (first, refused, odd))
        assert not good.closed.is_set()
    finally:
        tunnel.close()
    said = [record.getMessage() for record in caplog.records if "cannot be opened" in record.getMessage()]
    assert [text.partition(":")[0] for text in said] == ["the tunnel to blade-1 cannot be opened"] * 2
    assert good.closed.is_set()


def test_a_failing_first_attempt_raises():
    """Its connection is closed."""
    client = Client(paramiko.SSHException("no"))
    with pytest.raises(HostError, match="cannot forward port 1"):
        Tunnel("blade-1", lambda: client, "127.0.0.1", [1])
    assert client.closed.is_set()
