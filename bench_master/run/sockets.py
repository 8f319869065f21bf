"""The master's sockets, and what they need: keys and open files.

Frames become checked messages with a proven sender; what is not a message of the protocol is counted and dropped, and
the sockets go on listening. With CURVE a frame's sender is the owner of the key that it came with (``User-Id``),
whatever it says of itself. `endpoints` says where they are bound.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from hmac import compare_digest
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final, Protocol

import zmq

from bench_common import limits
from bench_common.channel import Frames, ZmqChannel, configure_socket, join_frames
from bench_common.curve import ZapHandler, insecure_warning, plain_server, secure_server
from bench_common.errors import InfrastructureError, ProtocolError, UsageError
from bench_common.keys import (
    ALLOW_LIST_FILE,
    CONTROL_DOMAIN,
    MASTER_FILE,
    RESULTS_DOMAIN,
    AllowList,
    KeyPair,
    default_directory,
    lane_domain,
    read_master_key,
)
from bench_common.messages import (
    FROM_WORKER,
    RESULTS,
    Lane,
    MasterControlMessage,
    MasterWorkMessage,
    Results,
    WorkerControlMessage,
    encode,
)
from bench_master.run.endpoints import Endpoints

log = logging.getLogger(__name__)


class Receiver(Protocol):
    """Gets the messages of a master's sockets. It is called in the loop, so it must not block."""

    def on_control(self, peer: bytes, identity: str | None, message: WorkerControlMessage, received_ns: int) -> None:
        """Take a control message; raise `ProtocolError` on one that breaks the protocol."""

    def on_results(self, identity: str | None, message: Results) -> None:
        """Take a batch of results; raise `ProtocolError` on one that breaks the protocol."""


_LANE_WITHOUT_KEYS: Final = "lane-of-member-"
"""The ZAP domain of a lane without keys; the member's number follows."""
MAX_SOCKETS: Final = 16_384
_MAX_INCOMING: Final[Mapping[Lane, int]] = {"control": FROM_WORKER.max_bytes, "results": RESULTS.max_bytes}
"""The largest frame that workers send on a lane, in bytes; on the others they send nothing."""


class Sockets:
    """Binds and serves the sockets of one master, from `open` to `close`.

    With keys (`master_key`, `allow_list`) every socket demands CURVE; `local_keys` are the names, by public key, of
    the workers that this master starts itself.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        master_key: KeyPair | None = None,
        allow_list: AllowList | None = None,
        local_keys: Mapping[bytes, str] | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._key = master_key
        self._allow_list = allow_list
        self._local_keys = dict(local_keys or {})
        self.dropped: Counter[str] = Counter()
        self._context: zmq.Context[Any] = zmq.Context()
        # Each worker has a lane; zmq's own limit would be met at a thousand of them.
        self._context.max_sockets = MAX_SOCKETS
        self._zap: ZapHandler | None = None
        self._control: ZmqChannel | None = None
        self._results: ZmqChannel | None = None
        self._lanes: dict[int, ZmqChannel] = {}
        self._tokens: dict[int, tuple[bytes, bytes]] = {}
        """The epoch and token of each member, which open its lane, and the results, over TCP without keys."""

    def open(self, receiver: Receiver) -> None:
        """Bind the control and results sockets for a receiver; raise `InfrastructureError` if a port is in use."""
        if self._endpoints.bind_ip is not None or self._key is not None:
            self._zap = ZapHandler(self._context, self._allow, allow_token=self._allow_token)
            self._zap.start()
        control = self._socket(zmq.ROUTER, "control", CONTROL_DOMAIN)
        self._endpoints.bind_control(control)
        self._control = ZmqChannel(control, partial(self._on_control_frames, receiver))
        results = self._socket(zmq.PULL, "results", RESULTS_DOMAIN)
        self._endpoints.bind_results(results, partial(self._demand_token, results, RESULTS_DOMAIN))
        self._results = ZmqChannel(results, partial(self._on_result_frames, receiver))

    def close(self) -> None:
        """Close everything; the last messages get a moment to leave."""
        for channel in (*self._lanes.values(), self._results, self._control):
            if channel is not None:
                channel.close(linger_ms=500)
        if self._zap is not None:
            self._zap.stop()
        self._context.term()

    def open_lane(self, number: int, worker_id: str, epoch: int, token: str, *, local: bool) -> str:
        """Bind a fresh lane for a member's epoch, in place of the one that it had; return its endpoint.

        Over TCP without keys only the bearer of `token` can connect to it.
        """
        old = self._lanes.pop(number, None)
        if old is not None:
            old.close()
        socket = self._socket(zmq.PUSH, "work", lane_domain(worker_id) if self._key is not None else "")
        self._tokens[number] = (str(epoch).encode(), token.encode())
        if not self._endpoints.stays_here(local=local):
            self._demand_token(socket, f"{_LANE_WITHOUT_KEYS}{number}")
        endpoint = self._endpoints.bind_lane(socket, local=local)
        self._lanes[number] = ZmqChannel(socket)
        return endpoint

    def results_endpoint(self, *, local: bool) -> str:
        """Return where a worker sends its results."""
        return self._endpoints.results_for(local=local)

    def send(self, peer: bytes, message: MasterControlMessage) -> None:
        """Send a control message to a peer; a message to a peer that has disconnected is dropped."""
        if self._control is not None:
            self._control.send(peer, encode(message))

    def send_on_lane(self, number: int, message: MasterWorkMessage) -> bytes:
        """Send a message on a member's lane; return its frame."""
        frame = encode(message)
        channel = self._lanes.get(number)
        if channel is not None and not channel.send(frame):
            self._drop("lane-full", f"the lane of member {number} is full")
        return frame

    def send_again_on_lane(self, number: int, frames: Sequence[bytes]) -> None:
        """Send frames once more, unless the lane is not connected and earlier ones still wait."""
        channel = self._lanes.get(number)
        if channel is not None and not channel.has_backlog:
            for frame in frames:
                channel.send(frame)

    def admits(self, identity: str | None) -> bool:
        """Return whether a worker of this name still has a key here; always true without keys."""
        if self._key is None or identity in self._local_keys.values():
            return True
        return identity is not None and self._allow_list is not None and self._allow_list.has_name(identity)

    def _allow(self, domain: str, public_key: bytes) -> str | None:
        name = self._local_keys.get(public_key)
        if name is not None:
            return name if domain in (CONTROL_DOMAIN, RESULTS_DOMAIN, lane_domain(name)) else None
        return self._allow_list.admit(domain, public_key) if self._allow_list is not None else None

    def _allow_token(self, domain: str, epoch: bytes, token: bytes) -> bool:
        if domain == RESULTS_DOMAIN:
            found = next((one for one in self._tokens.values() if one[0] == epoch), None)
        else:
            found = self._tokens.get(int(domain.removeprefix(_LANE_WITHOUT_KEYS)))
        return found is not None and found[0] == epoch and compare_digest(found[1], token)

    def _demand_token(self, socket: zmq.Socket[bytes], domain: str) -> None:
        if self._key is None:
            plain_server(socket, domain)

    def _socket(self, kind: int, lane: Lane, domain: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        configure_socket(socket, _MAX_INCOMING.get(lane, 0))
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

    def _check_token(self, frame: zmq.Frame, epoch: int) -> None:
        """Raise `ProtocolError` for results in an epoch whose token their connection did not show."""
        try:
            proven = frame.get("User-Id")
        except zmq.ZMQError:
            return  # from the private directory
        if proven != str(epoch):
            raise ProtocolError("results in the epoch of another worker")

    def _on_control_frames(self, receiver: Receiver, batch: list[Frames]) -> None:
        now_ns = monotonic_ns()
        for frames in batch:
            identity = None
            try:
                if len(frames) != 2:  # noqa: PLR2004  the peer's address and one frame
                    raise ProtocolError(f"{len(frames)} frames on the control socket")
                identity = self._identity(frames[-1])
                message = FROM_WORKER.decode(frames[-1].bytes)
                receiver.on_control(frames[0].bytes, identity, message, now_ns)
            except ProtocolError as error:
                self._drop("control", str(error), identity)
            except Exception as error:  # noqa: BLE001  the boundary: what breaks our code must not end the listener
                self._drop("control: internal error", str(error), identity, error)

    def _on_result_frames(self, receiver: Receiver, batch: list[Frames]) -> None:
        for frames in batch:
            identity = None
            try:
                identity = self._identity(frames[0])
                message = RESULTS.decode(join_frames(frames))
                if self._key is None and self._endpoints.bind_ip is not None:
                    self._check_token(frames[0], message.epoch)
                receiver.on_results(identity, message)
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


def load_keys(
    endpoints: Endpoints, key_dir: Path | None, *, insecure: bool, only: frozenset[str] | None = None
) -> tuple[KeyPair | None, AllowList | None]:
    """Return the master's key and its allow-list where `endpoints` need them, else None and None.

    `only` restricts the allow-list to some workers. With `insecure` the warning goes to stderr. Raises `UsageError`
    where keys are needed and there are none.
    """
    if insecure and endpoints.bind_ip is not None:
        sys.stderr.write(insecure_warning(endpoints.bind_ip))
    if not endpoints.curve:
        return None, None
    directory = key_dir or default_directory()
    if not (directory / MASTER_FILE).exists():
        raise UsageError(
            f"{directory / MASTER_FILE}: not found; listening on {endpoints.bind_ip} needs keys: "
            "make them with `bench-master keygen --worker NAME` (docs/security.rst explains)"
        )
    return read_master_key(directory / MASTER_FILE), AllowList(directory / ALLOW_LIST_FILE, only_names=only)


BASE_FDS: Final = 256
"""What a master has open without any worker, with room to spare."""
FDS_PER_WORKER: Final = 8
"""A lane that listens, its connections and zmq's own signals; measured, and rounded up."""


def raise_fd_limit(workers: int) -> None:
    """Raise the soft limit of open files to what so many workers take, if it is lower.

    It is left alone where it suffices, since processes that are started inherit it. Raises `InfrastructureError`
    where the hard limit is too low.
    """
    needed = BASE_FDS + FDS_PER_WORKER * workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InfrastructureError(
            f"{workers} workers take {needed} open files, and this process may have {hard}: raise the hard limit "
            "(ulimit -Hn, limits.conf, or LimitNOFILE of the service)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def require_for_run(local_workers: int) -> None:
    """Raise `InfrastructureError` where a master and its local workers would lack threads, memory or file size."""
    reason = limits.missing(
        tasks=limits.RUN_TASKS + limits.WORKER_TASKS * local_workers,
        address_bytes=limits.RUN_BYTES,
        file_bytes=limits.RUN_FILE_BYTES,
    )
    if reason is not None:
        raise InfrastructureError(reason)
