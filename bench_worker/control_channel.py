"""An agent's line to its masters: what it says goes out at once, what it is told is done in turn.

Says once that no master answers: one that is late and one whose name is misspelt look the same.
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
from bench_common.messages import Message, decode, encode

log = logging.getLogger(__name__)


SILENCE_TIMEOUT_S: Final = 10.0
"""How long nothing at all is heard before it is told."""
CONNECT_S: Final = 2.0
"""How long the master's port may take to answer when it is looked at."""


class ReachabilityCheck:
    """Watches for the first word of the master at a zmq endpoint; `clock` gives seconds.

    `keyed` says whether the worker shows a key there.
    """

    def __init__(self, endpoint: str, clock: Callable[[], float] = monotonic, *, keyed: bool = False) -> None:
        self._endpoint = endpoint
        self._keyed = keyed
        self._clock = clock
        self._asked_at = clock()
        self._settled = False

    def came(self) -> None:
        """Note that there is a master."""
        self._settled = True

    def look(self) -> None:
        """Tell, once, that none has answered for `SILENCE_TIMEOUT_S`."""
        if self._settled or self._clock() - self._asked_at < SILENCE_TIMEOUT_S:
            return
        self._settled = True
        log.warning("no master answers at %s yet: %s; this worker keeps asking", self._endpoint, self._advice())

    def _advice(self) -> str:
        if not self._endpoint.startswith("tcp://"):
            return "is it still there?"
        host, _, port = self._endpoint.removeprefix("tcp://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except socket.gaierror as error:
            return f"the name {host} cannot be resolved ({error.strerror})"
        except OSError as error:
            return f"{error.strerror or error}; is bench-master running there, and TCP port {port} open?"
        if self._keyed:
            return (
                "who listens there does not let this worker in; is it the master that made its key, "
                "and is the key on that master's allow-list (bench-master keygen --list)?"
            )
        return "who listens there does not let this worker in; is it a bench-master, and wants a key (--key FILE)?"


class ControlChannel:
    """A line to the master at a zmq endpoint, encrypted where there is a key; it may come, go and come back.

    `pulse(message, now_ns)` gets a heartbeat in the event loop itself, so that its stamp is that of its arrival.
    `obey(message)` gets all else in a greenlet, one after the other, and may take its time; what it raises is logged.
    """

    def __init__(
        self,
        endpoint: str,
        key: WorkerKey | None,
        *,
        pulse: Callable[[Message, int], None],
        obey: Callable[[Message], None],
    ) -> None:
        self._on_heartbeat_ack = pulse
        self._on_message = obey
        self._reachability = ReachabilityCheck(endpoint, keyed=key is not None)
        self._inbox: Queue[Message] = Queue()
        self._dropped = 0
        self._context: zmq.Context[Any] = zmq.Context()
        control: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        configure_socket(control)
        if key is not None:
            secure_client(control, key.keys, key.master_public)
        control.connect(endpoint)
        self._channel = ZmqChannel(control, self._received)
        self._reader = gevent.spawn(self._read)

    def send(self, name: str, epoch: int, **fields: Any) -> None:
        """Send a message; raise `ProtocolError` where it cannot be made."""
        self._channel.send(encode(name, epoch, **fields))

    def send_or_log(self, name: str, epoch: int, **fields: Any) -> None:
        """Send a message; one that cannot be made is logged."""
        try:
            self.send(name, epoch, **fields)
        except ProtocolError:
            log.exception("a message %r could not be made", name)

    def check_reachability(self) -> None:
        """Tell the user, once, where no master has answered for long."""
        self._reachability.look()

    def stop_handling(self) -> None:
        """Break off what is being done, and do no more of what comes."""
        self._reader.kill()

    def close(self) -> None:
        """Let go of the line; what was said last gets half a second to leave."""
        self.stop_handling()
        self._channel.close(linger_ms=500)
        self._context.term()

    def _received(self, batch: list[Frames]) -> None:
        now_ns = monotonic_ns()
        self._reachability.came()
        for frames in batch:
            try:
                message = decode(frames[-1].bytes, sender="master", lane="control")
            except ProtocolError as error:
                self._dropped += 1
                if self._dropped & (self._dropped - 1) == 0:
                    log.warning("a message of the master was dropped (%d so far): %s", self._dropped, error)
                continue
            if message.type == "pulse":
                self._on_heartbeat_ack(message, now_ns)
            else:
                self._inbox.put_nowait(message)

    def _read(self) -> None:
        while True:
            message = self._inbox.get()
            try:
                self._on_message(message)
            except Exception:  # the agent outlives whatever one message does
                log.exception("the message %r could not be obeyed", message.type)
