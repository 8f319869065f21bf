"""An agent's connection to its master: it sends at once, and handles received messages one after the other.

If no master answers, it warns once: a late master and a misspelt host name look the same.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from time import monotonic, monotonic_ns
from typing import Any, Final

import gevent
import zmq
from gevent.queue import Queue

from bench_common.channel import Frames, ZmqChannel, configure_socket
from bench_common.curve import secure_client
from bench_common.errors import ProtocolError
from bench_common.keys import WorkerKey
from bench_common.messages import FROM_MASTER, HeartbeatAck, MasterControlMessage, WorkerControlMessage, encode

log = logging.getLogger(__name__)


SILENCE_TIMEOUT_S: Final = 10.0
"""After this time without any message the user gets a warning, in seconds."""
CONNECT_S: Final = 2.0
"""How long the master's port may take to accept a test connection, in seconds."""


class ReachabilityCheck:
    """Waits for the first message of the master at a zmq endpoint; `clock` returns seconds.

    `keyed` says whether the worker has a key for this master.
    """

    def __init__(self, endpoint: str, clock: Callable[[], float] = monotonic, *, keyed: bool = False) -> None:
        self._endpoint = endpoint
        self._keyed = keyed
        self._clock = clock
        self._began_at = clock()
        self._is_done = False

    def on_answer(self) -> None:
        """Record that the master has answered."""
        self._is_done = True

    def check(self) -> None:
        """Warn, once, if no master has answered for `SILENCE_TIMEOUT_S`."""
        if self._is_done or self._clock() - self._began_at < SILENCE_TIMEOUT_S:
            return
        self._is_done = True
        log.warning("no master answers at %s yet: %s; this worker keeps asking", self._endpoint, self._advice())

    def _advice(self) -> str:
        if not self._endpoint.startswith("tcp://"):
            return (
                "no master of this user runs on this machine; start one (bench-master run-scenario), or name "
                "its host with --zmq-host HOST --key FILE"
            )
        host, _, port = self._endpoint.removeprefix("tcp://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except socket.gaierror as error:
            return f"the name {host} cannot be resolved ({error.strerror})"
        except OSError as error:
            return f"{error.strerror or error}; is bench-master running there, and TCP port {port} open?"
        if self._keyed:
            return (
                "the server there rejects this worker; is it the master that made its key, "
                "and is the key on that master's allow-list (bench-master keygen --list)?"
            )
        return "the server there rejects this worker; is it a bench-master that requires a key (--key FILE)?"


class ControlChannel:
    """A connection to the master at a zmq endpoint, encrypted if there is a key; it survives restarts of the master.

    `on_heartbeat_ack(message, now_ns)` runs in the event loop itself, so that `now_ns` is the time of arrival.
    `on_message(message)` gets all other messages in a greenlet, one at a time, and may wait; its errors are logged.
    """

    def __init__(
        self,
        endpoint: str,
        key: WorkerKey | None,
        *,
        on_heartbeat_ack: Callable[[HeartbeatAck, int], None],
        on_message: Callable[[MasterControlMessage], None],
    ) -> None:
        self._on_heartbeat_ack = on_heartbeat_ack
        self._on_message = on_message
        self._reachability = ReachabilityCheck(endpoint, keyed=key is not None)
        self._inbox: Queue[MasterControlMessage] = Queue()
        self._dropped = 0
        self._context: zmq.Context[Any] = zmq.Context()
        control: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        configure_socket(control)
        if key is not None:
            secure_client(control, key.keys, key.master_public)
        control.connect(endpoint)
        self._channel = ZmqChannel(control, self._received)
        self._reader = gevent.spawn(self._read)

    def send(self, message: WorkerControlMessage) -> bytes:
        """Send a message and return its frame; raise `ProtocolError` if the master would not accept it."""
        frame = encode(message)
        self._channel.send(frame)
        return frame

    def send_again(self, frame: bytes) -> None:
        """Send a frame once more."""
        self._channel.send(frame)

    def send_or_log(self, message: WorkerControlMessage) -> None:
        """Send a message; log and drop it if the master would not accept it."""
        try:
            self.send(message)
        except ProtocolError:
            log.exception("a message was not sent")

    def check_reachability(self) -> None:
        """Warn the user, once, if no master has answered for long."""
        self._reachability.check()

    def stop_handling(self) -> None:
        """Abort the handling of the current message, and handle no more."""
        self._reader.kill()

    def close(self) -> None:
        """Close the connection; the last messages get half a second to leave."""
        self.stop_handling()
        self._channel.close(linger_ms=500)
        self._context.term()

    def _received(self, batch: list[Frames]) -> None:
        now_ns = monotonic_ns()
        self._reachability.on_answer()
        for frames in batch:
            try:
                message = FROM_MASTER.decode(frames[-1].bytes)
            except ProtocolError as error:
                self._dropped += 1
                if self._dropped & (self._dropped - 1) == 0:
                    log.warning("dropped a message from the master (%d so far): %s", self._dropped, error)
                continue
            if isinstance(message, HeartbeatAck):
                self._on_heartbeat_ack(message, now_ns)
            else:
                self._inbox.put_nowait(message)

    def _read(self) -> None:
        while True:
            message = self._inbox.get()
            try:
                self._on_message(message)
            except Exception:  # an error in one message must not end the agent
                log.exception("message %r could not be handled", type(message).__name__)
