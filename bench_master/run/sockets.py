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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

import zmq

from bench_common.channel import Frames, ZmqChannel, configure_socket
from bench_common.curve import ZapHandler, ZapVerdict, insecure_warning, plain_server, secure_server
from bench_common.errors import InfrastructureError, UsageError
from bench_common.fields import Lane
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
from bench_common.messages import FROM_WORKER, RESULTS, MasterControlMessage, MasterWorkMessage, encode
from bench_common.streams import as_called
from bench_master.run.connections import ConnectionGuard, Cut
from bench_master.run.endpoints import Endpoints
from bench_master.run.incoming import Incoming, Receiver, drop

log = logging.getLogger(__name__)


_LANE_WITHOUT_KEYS: Final = "lane-of-member-"
"""The ZAP domain of a lane without keys; the member's number follows."""
MAX_NAMED_PEERS: Final = 20
"""How many peers that were cut off the report names."""
MAX_SOCKETS: Final = 16_384
MIN_HELD: Final = 4
"""With fewer messages of results at once, each is answered before it is recorded: nobody waits for another."""
MAX_HELD: Final = 32
"""After so many messages of results, a millisecond or two, their answers go out."""
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
        self._context: zmq.Context[Any] = zmq.Context()
        # Each worker has a lane; zmq's own limit would be met at a thousand of them.
        self._context.max_sockets = MAX_SOCKETS
        self._zap: ZapHandler | None = None
        self._incoming: Incoming | None = None
        self.dropped: Counter[str] = Counter()
        """How many messages were dropped, by where and why."""
        self._control: ZmqChannel | None = None
        self._results: ZmqChannel | None = None
        self._bound: list[tuple[zmq.Socket[bytes], ZmqChannel]] = []
        self._lanes: dict[int, tuple[zmq.Socket[bytes], ZmqChannel]] = {}
        self._tokens: dict[int, tuple[bytes, bytes]] = {}
        """The epoch and token of each member, which open its lane, and the results, over TCP without keys."""
        self.cut_off: Counter[tuple[Lane, str]] = Counter()
        """How many connections were cut off, by lane and peer."""
        self._guard: ConnectionGuard | None = None
        self._held: list[tuple[int, bytes]] | None = None
        """While results are handled: the members and frames of orders that go out together, right after them."""

    def open(self, receiver: Receiver) -> None:
        """Bind the control and results sockets for a receiver; raise `InfrastructureError` if a port is in use."""
        if self._endpoints.bind_ip is not None or self._key is not None:
            self._zap = ZapHandler(self._context, self._allow, allow_token=self._allow_token)
            self._zap.start()
        if self._endpoints.bind_ip is not None:  # peers of a local socket are processes of this user
            self._guard = ConnectionGuard(self._context, self._on_cut)
        incoming = self._incoming = Incoming(
            receiver,
            self.dropped,
            keyed=self._key is not None,
            tokens=self._key is None and self._endpoints.bind_ip is not None,
        )
        control = self._socket(zmq.ROUTER, "control", CONTROL_DOMAIN)
        with self._closing_on_error(control):
            self._endpoints.bind_control(control)
        self._control = ZmqChannel(control, incoming.on_control_frames)
        self._watch("control", control, self._control)
        self._bound.append((control, self._control))
        results = self._socket(zmq.PULL, "results", RESULTS_DOMAIN)
        with self._closing_on_error(results):
            self._endpoints.bind_results(results, partial(self._demand_token, results, RESULTS_DOMAIN))
        self._results = ZmqChannel(results, self._on_result_frames)
        self._watch("results", results, self._results)
        self._bound.append((results, self._results))

    def close(self) -> None:
        """Close everything; the last messages get a moment to leave."""
        bound = (*self._lanes.values(), *self._bound)
        if self._guard is not None:
            for socket, channel in bound:
                self._guard.forget(socket, channel)
            self._guard.close()
        for _, channel in bound:
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
            if self._guard is not None:
                self._guard.forget(*old)
            old[1].close()
        socket = self._socket(zmq.PUSH, "work", lane_domain(worker_id) if self._key is not None else "")
        self._tokens[number] = (str(epoch).encode(), token.encode())
        if not self._endpoints.stays_here(local=local):
            self._demand_token(socket, f"{_LANE_WITHOUT_KEYS}{number}")
        with self._closing_on_error(socket):
            endpoint = self._endpoints.bind_lane(socket, number, local=local)
        channel = ZmqChannel(socket)
        self._lanes[number] = (socket, channel)
        if not local:
            self._watch("work", socket, channel)
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
        if self._held is None:
            self._send_frame(number, frame)
        else:
            self._held.append((number, frame))
        return frame

    def _send_frame(self, number: int, frame: bytes) -> None:
        lane = self._lanes.get(number)
        if lane is not None and not lane[1].send(frame):
            drop(self.dropped, "lane-full", f"the lane of member {number} is full")

    def _on_result_frames(self, batch: list[Frames]) -> None:
        """Handle messages of results; what they cause to be sent on lanes goes out at once for some of them.

        One by one each send would wake the thread of zmq, which would be asleep again before the next.
        """
        assert self._incoming is not None
        if len(batch) < MIN_HELD:
            self._incoming.on_result_frames(batch)
            return
        for first in range(0, len(batch), MAX_HELD):
            held: list[tuple[int, bytes]] = []
            self._held = held
            try:
                self._incoming.on_result_frames(batch[first : first + MAX_HELD])
            finally:
                self._held = None
            for number, frame in held:
                self._send_frame(number, frame)

    def send_again_on_lane(self, number: int, frames: Sequence[bytes]) -> None:
        """Send frames once more, unless the lane is not connected and earlier ones still wait."""
        lane = self._lanes.get(number)
        if lane is not None and not lane[1].has_backlog:
            for frame in frames:
                lane[1].send(frame)

    @property
    def refused(self) -> int:
        """How many connections were refused, as their keys are not known."""
        return 0 if self._zap is None else self._zap.counts[ZapVerdict.REFUSED]

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
        configure_socket(socket, _MAX_INCOMING.get(lane, 0), binds=True)
        if self._guard is not None:
            self._guard.monitor(socket)
        if self._key is not None:
            secure_server(socket, self._key, domain)
        return socket

    @contextmanager
    def _closing_on_error(self, socket: zmq.Socket[bytes]) -> Iterator[None]:
        """Close a socket that could not be bound: the context would wait for it for ever."""
        try:
            yield
        except BaseException:
            if self._guard is not None:
                self._guard.abandon(socket)
            socket.close(linger=0)
            raise

    def _watch(self, lane: Lane, socket: zmq.Socket[bytes], channel: ZmqChannel) -> None:
        if self._guard is not None and self._incoming is not None:
            self._guard.watch(lane, socket, channel, self._incoming.traffic[lane])

    def _on_cut(self, cut: Cut) -> None:
        who = f"{cut.name} ({cut.address})" if cut.name else cut.address
        peer = cut.name or cut.address.rpartition(":")[0]
        if (cut.lane, peer) in self.cut_off or len(self.cut_off) < MAX_NAMED_PEERS:
            self.cut_off[cut.lane, peer] += 1
        else:
            self.cut_off[cut.lane, "others"] += 1
        count = self.cut_off.total()
        if count & (count - 1) == 0:
            log.warning("cut off %s on the %s port (%d connections so far): %s", who, cut.lane, count, cut.reason)


def load_keys(
    endpoints: Endpoints, key_dir: Path | None, *, insecure: bool, only: frozenset[str] | None = None
) -> tuple[KeyPair | None, AllowList | None]:
    """Return the master's key and its allow-list where `endpoints` need them, else None and None.

    `only` restricts the allow-list to some workers. With `insecure` the warning goes to stderr. Raises `UsageError`
    where keys are needed and there are none.
    """
    if insecure and endpoints.bind_ip is not None:
        sys.stderr.write(as_called(insecure_warning(endpoints.bind_ip)))
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
FDS_PER_WORKER: Final = 16
"""A lane that listens, its connections, its monitor and zmq's own signals; measured (11), and rounded up."""


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
