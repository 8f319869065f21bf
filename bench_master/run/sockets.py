"""The master's sockets: frames become checked messages with a proven sender; messages go out to peers and lanes.

Whatever bytes come in, this listens on: what is no message of the contract is counted and dropped. Where CURVE is on,
a frame's sender is the owner of the key that it came with (``User-Id``), whatever it says of itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

import zmq

from bench_common.allow_list import CONTROL_DOMAIN, RESULTS_DOMAIN, AllowList, lane_domain
from bench_common.channel import Channel, Frames, put_together, tune
from bench_common.curve import secure_server
from bench_common.errors import ProtocolError
from bench_common.keys import KeyPair
from bench_common.messages import Lane, Message, decode, encode, largest_frame
from bench_common.zap import ZapHandler
from bench_master.run.endpoints import Endpoints

log = logging.getLogger(__name__)

ControlReceiver = Callable[[bytes, str | None, Message, int], None]
ResultReceiver = Callable[[str | None, Message], None]

MAX_SOCKETS: Final = 16_384


class Switchboard:
    """Binds and serves the sockets of one master.

    `on_control(peer, identity, message, received_ns)` and `on_result(identity, message)` are called in the loop and
    must not block. With keys (`master_key`, `allow_list`) every socket demands CURVE; `local_keys` are those of the
    workers that this master starts itself.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        on_control: ControlReceiver,
        on_result: ResultReceiver,
        master_key: KeyPair | None = None,
        allow_list: AllowList | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._on_control = on_control
        self._on_result = on_result
        self._key = master_key
        self._allow_list = allow_list
        self.local_keys: dict[bytes, str] = {}
        self.dropped: Counter[str] = Counter()
        self._context: zmq.Context[Any] = zmq.Context()
        # Each worker has a lane; zmq's own limit would be met at a thousand of them.
        self._context.max_sockets = MAX_SOCKETS
        self._zap: ZapHandler | None = None
        self._control: Channel | None = None
        self._results: Channel | None = None
        self._lanes: dict[int, Channel] = {}

    def open(self) -> None:
        """Bind the control and results sockets; raise `InfrastructureError` when an address cannot be had."""
        if self._key is not None:
            self._zap = ZapHandler(self._context, self._allow)
            self._zap.start()
        control = self._socket(zmq.ROUTER, "control", CONTROL_DOMAIN)
        self._endpoints.bind_control(control)
        self._control = Channel(control, self._control_came)
        results = self._socket(zmq.PULL, "results", RESULTS_DOMAIN)
        self._endpoints.bind_results(results)
        self._results = Channel(results, self._results_came)

    def close(self) -> None:
        """Close everything; what was said last gets a moment to leave."""
        for channel in (*self._lanes.values(), self._results, self._control):
            if channel is not None:
                channel.close(linger_ms=500)
        if self._zap is not None:
            self._zap.stop()
        self._context.term()

    def open_lane(self, number: int, worker_id: str, *, local: bool) -> str:
        """Bind a fresh lane for a member, in place of the one that it had; return its endpoint."""
        old = self._lanes.pop(number, None)
        if old is not None:
            old.close()
        socket = self._socket(zmq.PUSH, "work", lane_domain(worker_id) if self._key is not None else "")
        endpoint = self._endpoints.bind_lane(socket, local=local)
        self._lanes[number] = Channel(socket)
        return endpoint

    def results_endpoint(self, *, local: bool) -> str:
        """Return where a worker sends its results."""
        return self._endpoints.results_for(local=local)

    def say(self, peer: bytes, name: str, epoch: int, **fields: Any) -> None:
        """Send a control message to a peer; one that is gone gets nothing, and its silence tells."""
        if self._control is not None:
            self._control.send(peer, encode(name, epoch, **fields))

    def lane(self, number: int, name: str, epoch: int, **fields: Any) -> None:
        """Send a message on a member's lane."""
        channel = self._lanes.get(number)
        if channel is not None and not channel.send(encode(name, epoch, **fields)):
            self._drop("lane-full", f"the lane of member {number} is full")

    def admits(self, identity: str | None) -> bool:
        """Return whether a worker of this name still has a key here; always so where keys are not used."""
        if self._key is None or identity in self.local_keys.values():
            return True
        return identity is not None and self._allow_list is not None and self._allow_list.admits_name(identity)

    def _allow(self, domain: str, public_key: bytes) -> str | None:
        name = self.local_keys.get(public_key)
        if name is not None:
            return name if domain in (CONTROL_DOMAIN, RESULTS_DOMAIN, lane_domain(name)) else None
        return self._allow_list.admit(domain, public_key) if self._allow_list is not None else None

    def _socket(self, kind: int, lane: Lane, domain: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        tune(socket, largest_frame("worker", lane))
        if self._key is not None:
            secure_server(socket, self._key, domain)
        return socket

    def _identity(self, frame: zmq.Frame) -> str | None:
        if self._key is None:
            return None
        try:
            identity = frame.get("User-Id")
        except zmq.ZMQError:  # so zmq says that there is no such property
            identity = None
        if not isinstance(identity, str) or not identity:
            raise ProtocolError("a frame without a proven sender")
        return identity

    def _control_came(self, batch: list[Frames]) -> None:
        now_ns = monotonic_ns()
        for frames in batch:
            identity = None
            try:
                if len(frames) != 2:  # noqa: PLR2004  the peer's address and one frame
                    raise ProtocolError(f"{len(frames)} frames on the control socket")
                identity = self._identity(frames[-1])
                message = decode(frames[-1].bytes, sender="worker", lane="control")
                self._on_control(frames[0].bytes, identity, message, now_ns)
            except ProtocolError as error:
                self._drop("control", str(error), identity)
            except Exception as error:  # noqa: BLE001  the boundary: what breaks our code must not end the listener
                self._drop("control: internal error", str(error), identity, error)

    def _results_came(self, batch: list[Frames]) -> None:
        for frames in batch:
            identity = None
            try:
                identity = self._identity(frames[0])
                message = decode(put_together(frames), sender="worker", lane="results")
                self._on_result(identity, message)
            except ProtocolError as error:
                self._drop("results", str(error), identity)
            except Exception as error:  # noqa: BLE001  the boundary, as above
                self._drop("results: internal error", str(error), identity, error)

    def _drop(self, where: str, why: str, identity: str | None = None, trouble: Exception | None = None) -> None:
        """Count a message that is dropped, and tell of some: whose key it came with, so that it can be revoked."""
        self.dropped[where] += 1
        count = self.dropped[where]
        if count & (count - 1) == 0:  # the 1st, 2nd, 4th, 8th ...: a flood must not fill the log
            whose = f" from worker {identity}" if identity is not None else ""
            log.warning("dropped a message on %s%s (%d so far): %s", where, whose, count, why, exc_info=trouble)
