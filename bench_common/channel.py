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

from bench_common.errors import ProtocolError
from bench_common.eventloop import BusyPoller
from bench_common.messages import KIB, MAX_FRAME, MAX_PART_BYTES

log = logging.getLogger(__name__)

READ_EVENT = 1
# pyzmq's constants are enums, and slow to compute with.
NOBLOCK, POLLIN, POLLOUT, EVENTS = int(zmq.NOBLOCK), int(zmq.POLLIN), int(zmq.POLLOUT), int(zmq.EVENTS)
Frames = list[zmq.Frame]
Receiver = Callable[[list[Frames]], None]

MAX_DRAIN = 1000
"""Messages received in one drain, so that a flood on one socket does not starve the others."""


FRAME_OVERHEAD: Final = KIB
"""What encryption and the wire protocol add to a frame, and their own control frames need, in bytes; rounded up."""


def configure_socket(socket: zmq.Socket[bytes], max_bytes: int = MAX_FRAME) -> None:
    """Set the limits that zmq leaves unlimited or off: sizes, lingering, heartbeats, queues.

    `max_bytes` is the largest frame to accept. It applies from a connection's first byte, before authentication, so
    an unknown peer cannot make us buffer more. A queue of 100,000 messages is far above what credit allows in flight;
    it bounds a peer that ignores credit.
    """
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes + FRAME_OVERHEAD)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10000)
    socket.setsockopt(zmq.HEARTBEAT_TTL, 20000)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 5000)
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
    socket.setsockopt(zmq.SNDHWM, 100_000)
    socket.setsockopt(zmq.RCVHWM, 100_000)
    socket.setsockopt(zmq.IPV6, 1)
    if socket.type == zmq.ROUTER:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)


def split_message(message: bytes) -> list[bytes]:
    """Return the frames that carry a message: one, if it is no larger than `MAX_PART_BYTES`."""
    return (
        [message]
        if len(message) <= MAX_PART_BYTES
        else [message[at : at + MAX_PART_BYTES] for at in range(0, len(message), MAX_PART_BYTES)]
    )


def join_frames(frames: Frames) -> bytes:
    """Return the message that these frames carry; raise `ProtocolError` if it is larger than `MAX_FRAME`."""
    if len(frames) == 1:
        content: bytes = frames[0].bytes
        return content
    size = sum(len(frame) for frame in frames)
    if size > MAX_FRAME:
        raise ProtocolError(f"{len(frames)} frames of {size} bytes are more than any message")
    return b"".join(frame.bytes for frame in frames)


class ZmqChannel:
    """A socket that receives by callback and sends without blocking.

    `receiver` gets lists of multipart messages (lists of `zmq.Frame`); its errors are logged and do not end the
    channel. `send` queues messages that the socket cannot take now, up to `max_queued`; a ROUTER queues nothing.
    """

    def __init__(
        self, socket: zmq.Socket[bytes], receiver: Receiver | None = None, *, max_queued: int = 100_000
    ) -> None:
        self._socket = socket
        self._receiver = receiver
        self._queue: deque[list[bytes]] = deque()
        self._max_queued = max_queued
        # A ROUTER rejects a message if that one peer does not read: the other peers must not wait for it.
        self._many_peers = socket.type == zmq.ROUTER
        self._closed = False
        self._draining = False
        self._settled = True
        """Whether the socket reported nothing more to read, and was not used since."""
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
            if len(self._queue) >= self._max_queued:
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

    def _receive(self, receiver: Receiver) -> None:
        messages: list[Frames] = []
        receive, events = self._socket.recv, self._socket.getsockopt
        # The edge announces one message. For further ones, read EVENTS: an exception for an empty socket costs more
        # than a message.
        try:
            while not self._settled and len(messages) < MAX_DRAIN:
                frames = [receive(NOBLOCK, copy=False)]
                while frames[-1].more:
                    frames.append(receive(NOBLOCK, copy=False))
                messages.append(frames)
                self._settled = not cast("int", events(EVENTS)) & POLLIN
        except zmq.ZMQError as error:
            # Some edges announce no message, and a peer that disconnects may withdraw an announced one. Keep the
            # messages read so far.
            log.debug("a message that was announced could not be read: %s", error)
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
