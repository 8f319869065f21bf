"""Tunnels: what a worker sends to a port of its own host's loopback comes out at the master, inside of SSH.

For hosts that may open no connection to the master. Both ends still prove themselves with keys inside of the tunnel,
because every user of a host can reach its loopback.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

import paramiko

from bench_master.fleet.ssh import HostFailed

LOOPBACK = "127.0.0.1"
PIECE = 1 << 16


class Tunnel:
    """Forwards ports of a host's loopback to the same ports of `master`, for as long as the connection stands."""

    def __init__(self, client: paramiko.SSHClient, master: str, ports: Sequence[int]) -> None:
        self._client = client
        self._master = master
        transport = client.get_transport()
        if transport is None:
            raise HostFailed("the connection is closed")
        for port in ports:
            try:
                transport.request_port_forward(LOOPBACK, port, self._came)
            except paramiko.SSHException as error:
                raise HostFailed(
                    f"its SSH server forwards no port {port} ({error}): it may be in use there, perhaps by another "
                    "master's tunnel (choose other ports), or AllowTcpForwarding is off in its sshd_config"
                ) from error

    def close(self) -> None:
        """Close the connection, and the tunnel with it."""
        self._client.close()

    def _came(self, channel: paramiko.Channel, _origin: tuple[str, int], server: tuple[str, int]) -> None:
        """Join a connection at the host's end to one to the master; called for each in the transport's thread."""
        threading.Thread(target=self._join, args=(channel, server[1]), daemon=True).start()

    def _join(self, channel: paramiko.Channel, port: int) -> None:
        try:
            line = socket.create_connection((self._master, port), timeout=10)
        except OSError:
            channel.close()  # no master is there at the moment: the worker tries again
            return
        line.settimeout(None)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_pump, args=(channel, line), daemon=True).start()
        _pump(line, channel)


def _pump(source: socket.socket | paramiko.Channel, target: socket.socket | paramiko.Channel) -> None:
    """Carry bytes one way; when one side ends, both do."""
    try:
        while piece := source.recv(PIECE):
            target.sendall(piece)
    except (OSError, EOFError, paramiko.SSHException):
        pass
    finally:
        for end in (target, source):
            _shut(end)


def _shut(end: socket.socket | paramiko.Channel) -> None:
    try:
        if isinstance(end, socket.socket):
            # The other thread may be reading it: a close alone would not wake that.
            end.shutdown(socket.SHUT_RDWR)
        end.close()
    except (OSError, EOFError):
        return
