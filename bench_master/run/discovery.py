"""Finds the workers that ask to join at this master's ports, outside of any run; can also stop them.

`fleet list` and `fleet stop` bind the same sockets as a run. Waiting workers keep sending hellos, so each one
shows up within about a second.
"""

from __future__ import annotations

from time import monotonic, monotonic_ns

import gevent
from msgspec import Struct, field

from bench_common.host_info import HostInfo
from bench_common.messages import HeartbeatAck, Hello, Preflight, Results, Stop, WorkerControlMessage
from bench_master.run.incoming import EpochState
from bench_master.run.sockets import Sockets


class DiscoveredWorker(Struct):
    """A worker that asked to join."""

    peer: bytes
    """Its address on the control socket."""
    worker_id: str
    environment: str
    slots: int
    """How many jobs it can run at once."""
    info: HostInfo = field(default_factory=HostInfo)
    """Its host, versions and engines, from its hello."""
    heard_ns: int = 0
    """When its last hello arrived (monotonic)."""

    def seconds_since_heard(self) -> float:
        """Return how long ago its last hello arrived, in seconds."""
        return (monotonic_ns() - self.heard_ns) / 1e9

    def clock(self, boot_id: str) -> tuple[int, int] | None:
        """Return how far its clock is ahead of ours, and the uncertainty, in ns; None before it has compared them.

        Within one boot of one machine (`boot_id` is ours) there is one clock.
        """
        if boot_id and self.info.get("boot_id") == boot_id:
            return 0, 0
        reported = self.info.get("clock")
        return None if reported is None else (-reported["offset_ns"], reported["uncertainty_ns"])


class WorkerDiscovery:
    """Collects the hellos that arrive at `sockets`, which are opened with this receiver.

    With `asks` each worker examines its engines again: its last report may be old.
    """

    def __init__(self, sockets: Sockets, *, asks: bool = False) -> None:
        self.present: dict[str, DiscoveredWorker] = {}
        self._refresh_engines = asks
        self._asked: set[bytes] = set()
        self._sockets = sockets

    def on_control(self, peer: bytes, identity: str | None, message: WorkerControlMessage, received_ns: int) -> None:
        """Receive a control message; all but hellos are ignored.

        The answer is a heartbeat: with it the worker compares its clock to ours, and reports that with its next
        hello, together with the present state of its engines.
        """
        if not isinstance(message, Hello) or not self._sockets.admits(identity):
            return
        worker_id = identity or message.worker_id
        place = (message.environment, message.slots, message.info)
        self.present[worker_id] = DiscoveredWorker(peer, worker_id, *place, heard_ns=received_ns)
        engines = message.info.get("engines")
        if self._refresh_engines and peer not in self._asked and engines is not None:
            self._asked.add(peer)
            self._sockets.send(peer, Preflight(epoch=0, requirements=[], engines=sorted(engines)))
        stamps = HeartbeatAck(epoch=0, echo_ns=message.sent_ns, received_ns=received_ns, sent_ns=monotonic_ns())
        self._sockets.send(peer, stamps)

    def epoch_state(self, epoch: int) -> EpochState:  # noqa: ARG002
        """No worker takes part in anything."""
        return "unknown"

    def on_broken(self, _peer: bytes | None, _identity: str | None, _epoch: int, _reason: str) -> None:
        """No worker takes part in anything."""

    def on_results(self, _identity: str | None, _message: Results) -> None:
        """Ignore results: no run is under way."""

    def gather(self, seconds: float) -> list[DiscoveredWorker]:
        """Listen for so many seconds; return the workers, by id."""
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            gevent.sleep(0.05)
        return [self.present[name] for name in sorted(self.present)]

    def send_home(self) -> None:
        """Tell every worker to exit."""
        for worker in self.present.values():
            self._sockets.send(worker.peer, Stop(epoch=0, exit=True))
        gevent.sleep(0.2)
