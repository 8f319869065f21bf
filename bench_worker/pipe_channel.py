"""The pipe between a worker's agent and its load process: declared MessagePack messages over a socket pair.

When one side dies, the other reads end-of-file at once and acts on it.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import gevent
import msgspec
from gevent.lock import RLock
from msgspec import Struct

from bench_common.messages import (
    PackingReport,
    PopulationReport,
    Progress,
    RunWarning,
    ServiceRequest,
    ServiceResult,
)

log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 1 << 20
"""The largest message on the pipe, in bytes."""


class RunContext(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a run that its load process needs."""

    run_id: str
    """The id of the run."""
    worker_id: str
    """The id of this worker."""
    slots: int
    """How many jobs it may run at once."""
    noop: bool
    keep: bool
    """Whether containers stay when the run ends."""
    allow_host_mounts: bool
    """Whether a container may see a directory of this host."""
    allow_foreign: bool = False
    """Whether a container may use volumes, networks and log drivers of others."""
    allow_native: bool = False
    """Whether jobs may run programs of this host."""
    allow_swapoff: bool = False
    """Whether swap may be switched off on this host."""
    allow_cold: bool = False
    """Whether the page cache of this host may be dropped, and images be removed, before a job."""
    allow_host_settings: tuple[str, ...] = ()
    """Settings of this host's kernel that may be changed."""
    address: str = "127.0.0.1"
    """Where other hosts reach this one."""


class CurveKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """The CURVE keys of a load process's connections."""

    public: bytes
    secret: bytes
    master_public: bytes


class _PipeMessage(Struct, forbid_unknown_fields=True, tag=True):
    pass


class StartRun(_PipeMessage):
    """Start a run."""

    context: RunContext
    """The settings of the run."""
    epoch: int
    """The epoch of this worker's admission."""
    lane_endpoint: str
    """Where the load process receives jobs."""
    results_endpoint: str
    profile: bool
    """Whether to profile the load process."""
    keys: CurveKeys | None
    """None if the master's sockets require no keys."""
    token: str = ""
    """The secret of this admission, which opens lane and results where there are no keys."""
    store_variables: dict[str, str] = {}
    """Variables of the environment that say how what the jobs use is reached, beside those of this host."""

    def __repr__(self) -> str:
        """Return what is no secret."""
        return f"StartRun(context={self.context}, epoch={self.epoch})"


class TakeProfile(_PipeMessage):
    """Stop profiling and answer with a `ProfileTaken`."""


class ReleaseServices(_PipeMessage):
    """There are no more jobs: remove the idle services and answer with `ServicesReleased`."""


class EndProcess(_PipeMessage):
    """Abort running jobs, clean up and exit."""


class Ready(_PipeMessage):
    """The load process is ready for a run."""


class LoadStatus(_PipeMessage):
    """A heartbeat of the load process."""

    running: int
    """How many jobs are running."""
    loop: LoopSample | None = None
    """The event loop since the previous status; None outside of a run."""


class LaneTaken(_PipeMessage):
    """The load process has taken messages of the lane."""

    number: int
    """The number of the last one."""


class LoopSample(Struct, frozen=True, forbid_unknown_fields=True):
    """A reading of the load process's event loop; the fields are the columns of the ``loop`` samples."""

    time_ns: int
    """When the interval ended (CLOCK_MONOTONIC)."""
    busy_share: float
    """The share of the interval in which the loop ran code (0 to 1)."""
    lag_max_ns: int
    """The longest stretch without a poll."""
    running_mean: float
    """The mean number of running jobs."""
    waiting_mean: float
    """The mean number of jobs that were due and had no slot."""


class ProfileTaken(_PipeMessage):
    """The answer to `TakeProfile`."""

    content: bytes
    """The packed profile; empty if it is too large to send."""


class ServicesReleased(_PipeMessage):
    """The idle services are removed."""


ToLoadProcess: TypeAlias = StartRun | TakeProfile | ReleaseServices | EndProcess
Forwarded: TypeAlias = PackingReport | PopulationReport | Progress | RunWarning | ServiceRequest | ServiceResult
"""Messages to the master; the agent, which owns the control socket, forwards them."""
ToAgent: TypeAlias = Ready | LoadStatus | LaneTaken | ProfileTaken | ServicesReleased | Forwarded


_READ_BYTES: Final = 4096


class PipeChannel:
    """One end of the pipe. `received` gets each message; `closed` is called once, when the other end closes.

    `incoming` is the type of the messages to receive; any other message ends the pipe.
    """

    def __init__(
        self, line: socket.socket, incoming: Any, received: Callable[[Any], None], closed: Callable[[], None]
    ) -> None:
        self._line = line
        self._decode = msgspec.msgpack.Decoder(incoming).decode
        self._received = received
        self._closed = closed
        self._lock = RLock()
        self._unread = bytearray()
        self._reader = gevent.spawn(self._read)

    def send(self, message: Struct) -> None:
        """Send a message; drop it if the pipe is closed, since `closed` reports that."""
        packed = msgspec.msgpack.encode(message)
        with self._lock:
            try:
                self._line.sendall(struct.pack("<I", len(packed)) + packed)
            except OSError:
                return

    def close(self) -> None:
        """Close this end; `closed` is not called."""
        self._reader.kill(block=False)
        self._line.close()

    def _read(self) -> None:
        try:
            while (head := self._read_exactly(4)) is not None:
                (length,) = struct.unpack("<I", head)
                body = self._read_exactly(length) if length <= MAX_MESSAGE else None
                if body is None:
                    break
                self._received(self._decode(body))
        except OSError:
            pass
        except Exception:  # an error in one message must not leave a pipe that looks open and is not read
            log.exception("a message from the other process of this worker could not be handled")
        self._closed()

    def _read_exactly(self, count: int) -> bytes | None:
        # Head and body of a message come together as a rule, and are then one system call.
        unread = self._unread
        while len(unread) < count:
            part = self._line.recv(max(_READ_BYTES, count - len(unread)))
            if not part:
                return None
            unread += part
        read = bytes(unread[:count])
        del unread[:count]
        return read
