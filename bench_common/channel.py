"""A plain pyzmq socket on the gevent hub: a watcher on its file descriptor drains it, and sends never block.

zmq.green costs a greenlet switch and a poll per message. Here one watcher drains all pending messages and passes
them on as a batch. A socket's FD is edge-triggered: after every drain and every send the channel reads the socket's
EVENTS, or a message that arrives in between would stay there until the next one.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

import gevent
import zmq

from bench_common.eventloop import BusyPoller
from bench_common.fields import KIB, MAX_FRAME

log = logging.getLogger(__name__)

READ_EVENT = 1
# pyzmq's constants are enums, and slow to compute with.
NOBLOCK, POLLIN, POLLOUT, EVENTS = int(zmq.NOBLOCK), int(zmq.POLLIN), int(zmq.POLLOUT), int(zmq.EVENTS)
Frames = list[zmq.Frame]
Receiver = Callable[[list[Frames]], None]

MAX_DRAIN = 1000
"""Messages received in one drain, so that a flood on one socket does not starve the others."""
MAX_DRAIN_BYTES = 8 << 20
"""Likewise bytes."""
MAX_QUEUED = 100_000
"""Messages that wait here because a socket takes none."""
MAX_PARTS = 2
"""How many frames a message has at most: one, and on a ROUTER its sender's address before it."""


FRAME_OVERHEAD: Final = KIB
"""What encryption and the wire protocol add to a frame, and their own control frames need, in bytes; rounded up."""


def configure_socket(socket: zmq.Socket[bytes], max_bytes: int = MAX_FRAME, *, binds: bool = False) -> None:
    """Set the limits that zmq leaves unlimited or off: sizes, lingering, heartbeats, queues.

    `max_bytes` is the largest frame to accept. It applies from a connection's first byte, before authentication, so
    an unknown peer cannot make us buffer more.

    The receive queue has no limit, and a socket that `binds` sends no heartbeats. libzmq 4.3.5 stops reading from a
    peer when the queue is full; if that peer then resets its connection, the next heartbeat to it aborts this process
    (``Assertion failed: !_io_error``). `bench_master.run.connections` bounds what peers send. The heartbeats of a
    worker say for how long its connection may be silent (``HEARTBEAT_TTL``), so the master closes dead ones. A
    handshake takes seven ways through the network, each of which may take seconds where that is congested.
    """
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes + FRAME_OVERHEAD)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 0 if binds else 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10000)
    socket.setsockopt(zmq.HEARTBEAT_TTL, 20000)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 30_000)
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
    socket.setsockopt(zmq.SNDHWM, 100_000)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.IPV6, 1)
    if socket.type == zmq.ROUTER:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)


class ZmqChannel:
    """A socket that receives by callback and sends without blocking.

    `receiver` gets lists of multipart messages (lists of `zmq.Frame`); its errors are logged and do not end the
    channel. `send` queues messages that the socket cannot take now, up to `MAX_QUEUED`; a ROUTER queues nothing.
    """

    def __init__(self, socket: zmq.Socket[bytes], receiver: Receiver | None = None) -> None:
        self._socket = socket
        self._receiver = receiver
        self._queue: deque[list[bytes]] = deque()
        # A ROUTER rejects a message if that one peer does not read: the other peers must not wait for it.
        self._many_peers = socket.type == zmq.ROUTER
        self._closed = False
        self._draining = False
        self._settled = True
        """Whether the socket reported nothing more to read, and was not used since."""
        self.emptied = 0
        """How often the socket was found empty."""
        self._again: Any = None
        self._busy_poller = None if receiver is None else BusyPoller()
        loop = gevent.get_hub().loop
        self._callback = loop.run_callback
        self._watcher = loop.io(cast("int", socket.getsockopt(zmq.FD)), READ_EVENT)
        self._watcher.start(self._on_edge)
        self._schedule()

    def send(self, *frames: bytes) -> bool:
        """Send one message; return False if it is dropped: unknown peer, peer that does not read, or full queue."""
        if self._closed:
            return False
        if self._queue:
            if len(self._queue) >= MAX_QUEUED:
                return False
            self._queue.append(list(frames))
            return True
        sent = True
        try:
            if len(frames) == 1:
                self._socket.send(frames[0], NOBLOCK, copy=True)
            else:
                self._socket.send_multipart(frames, NOBLOCK)
        except zmq.Again:
            sent = not self._many_peers
            if sent:
                self._queue.append(list(frames))
        except zmq.ZMQError as error:
            log.debug("a message could not be sent: %s", error)
            sent = False
        # Also after a failed send: the attempt itself may have consumed the edge of an incoming message.
        self._settled = False
        self._look()
        return sent

    @property
    def has_backlog(self) -> bool:
        """Whether messages wait here because the socket takes none."""
        return bool(self._queue)

    def close(self, *, linger_ms: int = 0) -> None:
        """Stop watching and close the socket; messages still queued in zmq have `linger_ms` to leave."""
        if self._closed:
            return
        self._closed = True
        if self._busy_poller is not None:
            self._busy_poller.close()
        self._watcher.stop()
        self._watcher.close()
        for frames in self._queue:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.send_multipart(frames, NOBLOCK)
        self._socket.close(linger=linger_ms)

    def _on_edge(self) -> None:
        self._drain()

    def _schedule(self) -> None:
        """Drain in the next pass of the loop: a call from within a receiver must not recurse into it."""
        if self._again is None and not self._closed:
            self._again = self._callback(self._scheduled)

    def _scheduled(self) -> None:
        self._again = None
        self._drain()

    def _look(self) -> None:
        # A socket that only sends has nothing to check while its queue is empty.
        if (self._receiver is not None or self._queue) and not self._draining and self._has_pending_io():
            self._schedule()

    def _has_pending_io(self) -> bool:
        # Reading EVENTS consumes the edge for sending as well as for receiving: act on both.
        events = cast("int", self._socket.getsockopt(EVENTS))
        readable = bool(events & POLLIN) and self._receiver is not None
        return readable or (bool(events & POLLOUT) and bool(self._queue))

    def _drain(self) -> None:
        if self._closed or self._draining:
            return
        self._draining = True
        self._settled = False
        try:
            while self._queue:
                try:
                    self._socket.send_multipart(self._queue[0], NOBLOCK)
                except zmq.Again:
                    break
                except zmq.ZMQError as error:
                    log.debug("a queued message could not be sent: %s", error)
                self._queue.popleft()
            if self._receiver is not None:
                self._receive(self._receiver)
        finally:
            self._draining = False
        # Reading EVENTS is the most expensive call here: skip it if the socket has just reported nothing left.
        if not (self._settled and not self._queue) and not self._is_closed() and self._has_pending_io():
            self._schedule()

    def look(self) -> None:
        """Check for messages even if no edge announced any; note whether the socket is empty."""
        if self._closed or self._draining or self._receiver is None:
            return
        if self._has_pending_io():
            self._schedule()
        else:
            self.emptied += 1

    def _receive(self, receiver: Receiver) -> None:
        messages: list[Frames] = []
        room = MAX_DRAIN_BYTES
        receive, events = self._socket.recv, self._socket.getsockopt
        # The edge announces one message. For further ones, read EVENTS: an exception for an empty socket costs more
        # than a message.
        try:
            while not self._settled and len(messages) < MAX_DRAIN and room > 0:
                frames = [receive(NOBLOCK, copy=False)]
                while frames[-1].more:
                    frame = receive(NOBLOCK, copy=False)
                    if len(frames) > MAX_PARTS:
                        # Enough to show that it is too long; the rest is not kept.
                        frames.pop()
                    frames.append(frame)
                messages.append(frames)
                room -= len(frames[-1])
                self._settled = not cast("int", events(EVENTS)) & POLLIN
        except zmq.ZMQError as error:
            # Some edges announce no message, and a peer that disconnects may withdraw an announced one. Keep the
            # messages read so far.
            log.debug("a message that was announced could not be read: %s", error)
        if self._settled:
            self.emptied += 1
        if messages:
            try:
                receiver(messages)
            except Exception:  # a boundary that must survive any message
                log.exception("a batch of %d messages could not be handled", len(messages))
            if self._busy_poller is not None and not self._is_closed():
                self._busy_poller.message_arrived()

    def _is_closed(self) -> bool:
        """Return whether a receiver closed it (a call: type checkers assume that the attribute stays as it was)."""
        return self._closed
