"""SSH tunnels: connections to a port of a host's loopback are forwarded to the same port of the master.

For hosts that cannot connect to the master. Worker and master still authenticate each other with keys inside the
tunnel, because every user of a host can reach its loopback. A tunnel that breaks is reopened.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

import paramiko

from bench_common.errors import InfrastructureError
from bench_features.fleet.ssh import HostError

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
PIECE_BYTES: Final = 1 << 16
"""How much is read at once."""
WATCH_INTERVAL_S: Final = 1.0
"""How often a tunnel is checked, and how long after a failure it is retried (s)."""


class Tunnel:
    """Forwards ports of a host's loopback to the same ports of `master`, until it is closed.

    `connect` opens the connection; `name` is the host's, for the log. Raises `HostError` if the first attempt fails.
    """

    def __init__(
        self, name: str, connect: Callable[[], paramiko.SSHClient], master: str, ports: Sequence[int]
    ) -> None:
        self._name = name
        self._connect = connect
        self._master = master
        self._ports = tuple(ports)
        self._closed = threading.Event()
        self._client = self._open()
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        """Close the tunnel and its connection."""
        self._closed.set()
        self._client.close()

    def _open(self) -> paramiko.SSHClient:
        client = self._connect()
        transport = client.get_transport()
        try:
            if transport is None:
                raise HostError("the connection is closed")
            for port in self._ports:
                self._listen(transport, port)
        except BaseException:
            client.close()
            raise
        return client

    def _listen(self, transport: paramiko.Transport, port: int) -> None:
        try:
            transport.request_port_forward(LOOPBACK, port, self._on_connection)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise HostError(
                f"its SSH server cannot forward port {port} ({error}): it may be in use there, perhaps by another "
                "master's tunnel (choose other ports), or AllowTcpForwarding is off in its sshd_config"
            ) from error

    def _watch(self) -> None:
        while not self._closed.wait(WATCH_INTERVAL_S):
            transport = self._client.get_transport()
            if transport is not None and transport.is_active():
                continue
            log.warning("the tunnel to %s broke; reopening it", self._name)
            self._client.close()
            try:
                client = self._open()
            except InfrastructureError as error:
                log.warning("the tunnel to %s cannot be opened: %s", self._name, error)
                continue
            except Exception:  # without this thread the host would stay unreachable for the rest of the run
                log.exception("the tunnel to %s cannot be opened", self._name)
                continue
            self._client = client
            if self._closed.is_set():
                client.close()

    def _on_connection(self, channel: paramiko.Channel, _origin: tuple[str, int], server: tuple[str, int]) -> None:
        """Connect one connection from the host's end to the master; the transport's thread calls this."""
        threading.Thread(target=self._forward_connection, args=(channel, server[1]), daemon=True).start()

    def _forward_connection(self, channel: paramiko.Channel, port: int) -> None:
        try:
            line = socket.create_connection((self._master, port), timeout=10)
        except OSError:
            channel.close()  # no master is listening at the moment: the worker retries
            return
        line.settimeout(None)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_pump, args=(channel, line), daemon=True).start()
        _pump(line, channel)


def _pump(source: socket.socket | paramiko.Channel, target: socket.socket | paramiko.Channel) -> None:
    """Copy bytes in one direction; when one side ends, close both."""
    try:
        while piece := source.recv(PIECE_BYTES):
            target.sendall(piece)
    except (OSError, EOFError, paramiko.SSHException):
        pass
    finally:
        for end in (target, source):
            _shutdown_write(end)


def _shutdown_write(end: socket.socket | paramiko.Channel) -> None:
    try:
        if isinstance(end, socket.socket):
            # The other thread may be reading it: a close alone would not wake it.
            end.shutdown(socket.SHUT_RDWR)
        end.close()
    except (OSError, EOFError):
        return
