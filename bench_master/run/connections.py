"""Bounds what peers make a master hold, connection by connection, and cuts off those that exceed it.

libzmq takes what a peer sends as fast as it comes, and its own limit, a full queue, makes it abort (see
`bench_common.channel.configure_socket`). So a native thread compares what the kernel received on each TCP connection
(``TCP_INFO``) with what the event loop consumed of it. The difference is what the connection holds: messages that
wait, or frames of a message that never ends. A connection that holds too much is reset. While strangers and closed
connections together hold much, the listening port takes no new connections (a packet filter drops their SYN), so the
loop can catch up; a peer's kernel tries again by itself.

The thread gets the connections' file descriptors from zmq's socket monitors. libzmq may close a descriptor at any
time, so the thread works on duplicates.
"""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import socket as names
import struct
import termios
import traceback
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, cast

import gevent
import zmq
from gevent.event import Event
from gevent.monkey import get_original
from msgspec import Struct, field

from bench_common.argument_types import authority
from bench_common.channel import ZmqChannel
from bench_common.fields import KIB, MIB, Lane

log = logging.getLogger(__name__)

SCAN_INTERVAL_S: Final = 0.02
"""How often the thread looks at all connections, at most."""
SCAN_COST_S: Final = 0.0003
"""It looks less often where there are more of them: so long for each."""
HANDSHAKE_BYTES: Final = 4 * KIB
"""What a connection may send besides messages: the handshake, rounded up ..."""
OVERHEAD_BYTES_S: Final = 64
"""... and heartbeats of zmq, in bytes a second; rounded up."""
QUEUED_BYTES: Final = {"control": 16 * MIB, "results": 128 * MIB, "work": 16 * KIB}
"""How much a connection may hold, by lane: more than a worker sends until it leaves a master whose loop stands still.
It has about 16 MiB of results on their way (`bench_worker.outbox`), and sends each again after 1, 3, 7 and 15 s, when
the default lease ends: 80 MiB. To a lane nothing is sent."""
STRANGER_BYTES: Final = 512 * KIB
"""The same on the control port before a message of a worker that takes part came: twice its largest frame then. Small
frames take many times their size in libzmq."""
UNREAD_BYTES: Final = 1 * MIB
"""A port takes no new connections while strangers and closed connections hold more than this ..."""
READ_BYTES: Final = 256 * KIB
"""... until they hold less than this, and the loop has read what was there."""

TRIM_INTERVAL_S: Final = 5.0
"""How often memory that a flood has left is given back to the kernel, at most."""

_EVENT: Final = struct.Struct("=Hi")
_RECEIVED: Final = struct.Struct("=128xQ")
"""``tcpi_bytes_received`` within ``struct tcp_info`` (linux/tcp.h)."""
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
"""``SO_ATTACH_FILTER`` and ``SO_DETACH_FILTER`` (asm-generic/socket.h)."""
_native_thread = get_original("_thread", "start_new_thread")
_libc = ctypes.CDLL(None, use_errno=True)
_DROP_ALL = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0), 8)
"""A packet filter of one instruction, "return 0": keep nothing of any packet (linux/filter.h)."""
_DROP_ALL_PROGRAM: Final = struct.pack("@HP", 1, ctypes.addressof(_DROP_ALL))


class Cut(Struct, frozen=True):
    """A connection that was cut off."""

    lane: Lane
    address: str
    """The peer's address and port."""
    name: str
    """The peer's name: that of its key or its worker; empty if it has none."""
    reason: str


class Traffic(Struct):
    """What the loop consumed of the connections of one socket, by the number of the descriptor in libzmq."""

    consumed: dict[int, int] = field(default_factory=dict)
    """Bytes on the wire of the messages that were read; a new connection with the same number goes on counting."""
    names: dict[int, str] = field(default_factory=dict)
    """The name of the key or the worker."""
    workers: set[int] = field(default_factory=set)
    """Connections of workers that take part."""
    cut: set[int] = field(default_factory=set)
    """Connections that were cut off: what is left of them is not read."""


class _Connection(Struct):
    """One accepted TCP connection."""

    fd: int
    handle: _socket.socket
    address: str
    began_s: float
    base: int
    """What `Traffic.consumed` was when it began, and what was still to be read of those before it."""
    received: int = 0
    held: int = 0
    """How much it holds, by the last look."""
    cut: bool = False


class _Watched:
    """A socket that binds, and its connections."""

    def __init__(self, lane: Lane, monitor: zmq.Socket[bytes], traffic: Traffic, channel: ZmqChannel) -> None:
        self.lane: Lane = lane
        self.monitor = monitor
        self.traffic = traffic
        self.channel = channel
        self.connections: dict[int, _Connection] = {}
        self.listeners: list[_socket.socket] = []
        self.left_by: dict[int, int] = {}
        """What closed connections have left to be read, by number, since the socket was last empty."""
        self.ends: dict[int, int] = {}
        """What `Traffic.consumed` is, by number, once all of the closed connections has been read."""
        self.emptied = 0
        self.shut = False
        """Whether the ports take no new connections."""


class ConnectionGuard:
    """Watches the connections of a master's sockets; `on_cut` runs in the loop for each one that is cut off."""

    def __init__(self, context: zmq.Context[Any], on_cut: Callable[[Cut], None]) -> None:
        self._context = context
        self._on_cut = on_cut
        self._monitors: dict[zmq.Socket[bytes], zmq.Socket[bytes]] = {}
        self._new: deque[_Watched] = deque()
        self._cuts: deque[Cut] = deque()
        self._channels: list[ZmqChannel] = []
        self._closing = False
        loop = gevent.get_hub().loop
        self._stopped = Event()
        self._wake = loop.async_()
        self._running = False
        self._failure = ""
        self._trimmed_s = 0.0

    def monitor(self, socket: zmq.Socket[bytes]) -> None:
        """Have zmq report the connections of a socket; call it before the socket is bound."""
        address = f"inproc://connections-{id(socket)}-{len(self._monitors)}"
        socket.monitor(address, zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        monitor: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        # Without limits: libzmq's own thread would wait for us with an event that does not fit.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.setsockopt(zmq.LINGER, 0)
        monitor.connect(address)
        self._monitors[socket] = monitor

    def watch(self, lane: Lane, socket: zmq.Socket[bytes], channel: ZmqChannel, traffic: Traffic) -> None:
        """Watch the connections of a socket that is monitored, from now on."""
        self._channels.append(channel)
        self._new.append(_Watched(lane, self._monitors.pop(socket), traffic, channel))
        if not self._running:
            self._running = True
            self._wake.start(self._report)
            _native_thread(self._guard, ())

    def forget(self, socket: zmq.Socket[bytes], channel: ZmqChannel) -> None:
        """Call it before a watched socket is closed."""
        socket.disable_monitor()
        with contextlib.suppress(ValueError):
            self._channels.remove(channel)

    def abandon(self, socket: zmq.Socket[bytes]) -> None:
        """Call it before a socket is closed that is monitored and was never watched."""
        socket.disable_monitor()
        monitor = self._monitors.pop(socket, None)
        if monitor is not None:
            monitor.close()

    def close(self) -> None:
        """Stop; the sockets' monitors must be disabled by now (`forget`)."""
        self._closing = True
        if self._running:
            self._stopped.wait(5.0)
        for monitor in self._monitors.values():
            monitor.close()
        self._wake.stop()
        self._wake.close()

    # -- in the loop --------------------------------------------------------------------------------------------

    def _report(self) -> None:
        for channel in self._channels:
            channel.look()
        while self._cuts:
            self._on_cut(self._cuts.popleft())
        if self._failure:
            log.error("connections are not guarded any longer: %s", self._failure)
            self._failure = ""
        if self._closing and not self._running:
            self._stopped.set()

    # -- in the thread ------------------------------------------------------------------------------------------

    def _guard(self) -> None:
        watched: list[_Watched] = []
        poller = zmq.Poller()
        next_scan = 0.0
        try:
            while not self._closing:
                while self._new:
                    one = self._new.popleft()
                    watched.append(one)
                    poller.register(one.monitor, zmq.POLLIN)
                poller.poll(int(SCAN_INTERVAL_S * 1000))
                for one in list(watched):
                    if not self._take_events(one):
                        poller.unregister(one.monitor)
                        watched.remove(one)
                        self._release(one)
                if monotonic() < next_scan:
                    continue
                for one in watched:
                    self._scan(one)
                count = sum(len(one.connections) for one in watched)
                next_scan = monotonic() + max(SCAN_INTERVAL_S, SCAN_COST_S * count)
        except Exception:  # noqa: BLE001  what it guards against is rare: the run goes on without it
            self._failure = traceback.format_exc()  # logging has gevent's locks, which are not for native threads
        finally:
            for one in (*watched, *self._new):
                self._release(one)
            self._running = False
            self._wake.send()

    def _release(self, one: _Watched) -> None:
        self._open(one)
        for handle in (*(each.handle for each in one.connections.values()), *one.listeners):
            handle.close()
        one.monitor.close()

    def _take_events(self, one: _Watched) -> bool:
        """Note connections that came and went; return False once the socket is closed."""
        while cast("int", one.monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            # As in zmq_socket_monitor(3); pyzmq's own reader of events loads asyncio.
            kind, fd = _EVENT.unpack(one.monitor.recv_multipart()[0])
            if kind == zmq.EVENT_MONITOR_STOPPED:
                return False
            if kind == zmq.EVENT_LISTENING:
                with contextlib.suppress(OSError):
                    handle = _duplicate(fd)
                    if handle.family == names.AF_UNIX:
                        handle.close()
                    else:
                        one.listeners.append(handle)
            elif kind == zmq.EVENT_ACCEPTED:
                if fd in one.connections:
                    self._end(one, fd)
                self._begin(one, fd)
            else:
                self._end(one, fd)
        return True

    def _begin(self, one: _Watched, fd: int) -> None:
        try:
            handle = _duplicate(fd)
        except OSError:
            return  # it is closed already, or there is no descriptor left for ours
        if handle.family == names.AF_UNIX:
            handle.close()
            return
        try:
            host, port, *_ = handle.getpeername()
            address = authority(host.removeprefix("::ffff:"), port)
        except OSError:
            address = "a closed connection"
        # The loop may have read the first messages of this connection before this thread learns of it.
        consumed, base = one.traffic.consumed.get(fd, 0), one.ends.get(fd, 0)
        if consumed <= base:
            one.traffic.names.pop(fd, None)
            one.traffic.workers.discard(fd)
        if fd not in one.left_by:
            base = min(base, consumed)  # a frame of a message that never ended is not read any more
        one.traffic.cut.discard(fd)
        one.connections[fd] = _Connection(fd, handle, address, monotonic(), base)

    def _end(self, one: _Watched, fd: int) -> None:
        connection = one.connections.pop(fd, None)
        consumed = one.traffic.consumed.get(fd, 0)
        if connection is None:
            one.ends[fd] = max(consumed, one.ends.get(fd, 0))
            return
        if not connection.cut:
            self._look(one, connection)
        connection.handle.close()
        one.ends[fd] = max(consumed, connection.base) + connection.held
        if connection.held > 0:
            one.left_by[fd] = one.left_by.get(fd, 0) + connection.held

    def _look(self, one: _Watched, connection: _Connection) -> None:
        """Update what a connection holds."""
        with contextlib.suppress(OSError):
            info = connection.handle.getsockopt(names.IPPROTO_TCP, names.TCP_INFO, 256)
            if len(info) >= _RECEIVED.size:
                (connection.received,) = _RECEIVED.unpack_from(info)
        read = max(0, one.traffic.consumed.get(connection.fd, 0) - connection.base)
        overhead = HANDSHAKE_BYTES + int(OVERHEAD_BYTES_S * (monotonic() - connection.began_s))
        connection.held = max(0, connection.received - read - overhead)
        if connection.held:
            # What the kernel still holds is bounded by its own buffer, and not in our memory.
            connection.held = max(0, connection.held - _unread(connection.handle))

    def _scan(self, one: _Watched) -> None:
        if one.channel.emptied != one.emptied:
            one.emptied = one.channel.emptied
            one.left_by.clear()
        unread = sum(one.left_by.values())
        for connection in one.connections.values():
            if connection.cut:
                continue
            self._look(one, connection)
            limit = QUEUED_BYTES[one.lane]
            if connection.fd not in one.traffic.workers:
                limit = STRANGER_BYTES if one.lane == "control" else limit
                unread += connection.held
            if connection.held > limit:
                self._cut(one, connection, f"{_mib(connection.held)} wait to be read, more than {_mib(limit)}")
        if not one.shut and unread > UNREAD_BYTES:
            self._shut(one)
        elif one.shut and unread < READ_BYTES:
            self._open(one)
        if unread > READ_BYTES:
            self._wake.send()

    def _cut(self, one: _Watched, connection: _Connection, reason: str) -> None:
        connection.cut = True
        one.traffic.cut.add(connection.fd)
        # Dissolving the association resets the connection and drops what the kernel holds of it; `shutdown` would
        # leave that to be read.
        if _libc.connect(connection.handle.fileno(), bytes(16), 16) != 0:
            with contextlib.suppress(OSError):
                connection.handle.shutdown(names.SHUT_RDWR)
        self._cuts.append(Cut(one.lane, connection.address, one.traffic.names.get(connection.fd, ""), reason))
        self._wake.send()

    def _shut(self, one: _Watched) -> None:
        one.shut = True
        for listener in one.listeners:
            with contextlib.suppress(OSError):
                listener.setsockopt(names.SOL_SOCKET, _ATTACH_FILTER, _DROP_ALL_PROGRAM)

    def _open(self, one: _Watched) -> None:
        if one.shut and monotonic() - self._trimmed_s > TRIM_INTERVAL_S:
            self._trimmed_s = monotonic()
            with contextlib.suppress(AttributeError):  # a C library without it
                _libc.malloc_trim(0)  # what was read has left holes all over the heap
        one.shut = False
        for listener in one.listeners:
            with contextlib.suppress(OSError):
                listener.setsockopt(names.SOL_SOCKET, _DETACH_FILTER, 0)


def _duplicate(fd: int) -> _socket.socket:
    duplicate = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        return _socket.socket(fileno=duplicate)
    except OSError:
        with contextlib.suppress(OSError):
            os.close(duplicate)
        raise


def _unread(handle: _socket.socket) -> int:
    """Return how many bytes the kernel received that nobody has read."""
    buffer = bytearray(4)
    try:
        fcntl.ioctl(handle.fileno(), termios.FIONREAD, buffer)
    except OSError as error:
        if error.errno == errno.EBADF:
            raise
        return 0
    return int.from_bytes(buffer, "little")


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
