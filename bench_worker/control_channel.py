"""An agent's connection to its master: it sends at once, and handles what comes in one message after the other.

Where no master answers, it says so once: one that is late and one whose name is misspelt look the same.
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
"""After so long without any message the user is warned."""
CONNECT_S: Final = 2.0
"""How long the master's port may take to accept a probing connection."""


class ReachabilityCheck:
    """Waits for the first message of the master at a zmq endpoint; `clock` gives seconds.

    `keyed` says whether the worker has a key for it.
    """

    def __init__(self, endpoint: str, clock: Callable[[], float] = monotonic, *, keyed: bool = False) -> None:
        self._endpoint = endpoint
        self._keyed = keyed
        self._clock = clock
        self._began_at = clock()
        self._is_done = False

    def on_answer(self) -> None:
        """Note that there is a master."""
        self._is_done = True

    def check(self) -> None:
        """Warn, once, that none has answered for `SILENCE_TIMEOUT_S`."""
        if self._is_done or self._clock() - self._began_at < SILENCE_TIMEOUT_S:
            return
        self._is_done = True
        log.warning("no master answers at %s yet: %s; this worker keeps asking", self._endpoint, self._advice())

    def _advice(self) -> str:
        if not self._endpoint.startswith("tcp://"):
            return "does it still run?"
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
    """A connection to the master at a zmq endpoint, encrypted where there is a key; the master may come and go.

    `on_heartbeat_ack(message, now_ns)` runs in the event loop itself, so that its stamp is the time of arrival.
    `on_message(message)` gets all else in a greenlet, one after the other, and may wait; what it raises is logged.
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

    def send(self, message: WorkerControlMessage) -> None:
        """Send a message; raise `ProtocolError` where the master would not accept it."""
        self._channel.send(encode(message))

    def send_or_log(self, message: WorkerControlMessage) -> None:
        """Send a message; one that the master would not accept is logged and dropped."""
        try:
            self.send(message)
        except ProtocolError:
            log.exception("a message was not sent")

    def check_reachability(self) -> None:
        """Warn the user, once, where no master has answered for long."""
        self._reachability.check()

    def stop_handling(self) -> None:
        """Abort the message that is being handled, and handle no more."""
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
            except Exception:  # the agent outlives whatever one message does
                log.exception("message %r could not be handled", type(message).__name__)
