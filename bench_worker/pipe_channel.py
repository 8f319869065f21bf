"""The pipe between a worker's agent and its load process: declared MessagePack messages over a socket pair.

The end of the pipe is a message too: when one side dies the other reads end-of-file at once, and acts on it.
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

from bench_common.messages import PackingReport, Progress, ServiceRequest, ServiceResult

log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 1 << 20
"""The largest message on the pipe, in bytes."""


class RunContext(Struct, frozen=True, forbid_unknown_fields=True):
    """What a load process needs to know of the run that it works for."""

    run_id: str
    worker_id: str
    slots: int
    """How many jobs it may run at once."""
    noop: bool
    """Whether jobs execute nothing."""
    keep: bool
    """Whether containers are left when the run is over."""
    allow_host_mounts: bool
    """Whether a container may see a directory of this host."""
    allow_swapoff: bool = False
    """Whether swap may be switched off on this host."""
    address: str = "127.0.0.1"
    """Where other hosts reach this one."""


class CurveKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """The keys that a load process connects with."""

    public: bytes
    secret: bytes
    master_public: bytes


class _PipeMessage(Struct, forbid_unknown_fields=True, tag=True):
    pass


class StartRun(_PipeMessage):
    """Work for a run."""

    context: RunContext
    epoch: int
    """The admission of this worker."""
    lane_endpoint: str
    results_endpoint: str
    profile: bool
    """Whether to profile the load process."""
    keys: CurveKeys | None
    """None where the master's sockets demand no keys."""


class TakeProfile(_PipeMessage):
    """Stop profiling and answer with a `ProfileTaken`."""


class ReleaseServices(_PipeMessage):
    """No more jobs come: remove the services that wait for one, and answer with `ServicesReleased`."""


class EndProcess(_PipeMessage):
    """Abort what runs, clean up, end."""


class Ready(_PipeMessage):
    """The load process can be given a run."""


class LoadStatus(_PipeMessage):
    """A sign of life, with what the event loop did since the one before."""

    running: int
    """How many jobs are under way."""
    loop: LoopSample | None = None
    """None outside of a run."""


class LoopSample(Struct, frozen=True, forbid_unknown_fields=True):
    """A reading of the load process's event loop; the fields are the columns of the ``loop`` samples."""

    time_ns: int
    busy_share: float
    lag_max_ns: int
    running_mean: float
    """How many jobs were under way, on average."""
    waiting_mean: float
    """How many jobs were due and had no slot, on average."""


class ProfileTaken(_PipeMessage):
    """The packed profile; empty where it is too large to be sent."""

    content: bytes


class ServicesReleased(_PipeMessage):
    """The services that waited for another job are removed."""


ToLoadProcess: TypeAlias = StartRun | TakeProfile | ReleaseServices | EndProcess
Forwarded: TypeAlias = PackingReport | Progress | ServiceRequest | ServiceResult
"""Messages to the master: the agent holds the control socket, and passes them on."""
ToAgent: TypeAlias = Ready | LoadStatus | ProfileTaken | ServicesReleased | Forwarded


class PipeChannel:
    """One end of the pipe. `received` gets each message, `closed` is called once when the other end is gone.

    `incoming` is the type of the messages that come in; anything else ends the pipe.
    """

    def __init__(
        self, line: socket.socket, incoming: Any, received: Callable[[Any], None], closed: Callable[[], None]
    ) -> None:
        self._line = line
        self._decode = msgspec.msgpack.Decoder(incoming).decode
        self._received = received
        self._closed = closed
        self._lock = RLock()
        self._reader = gevent.spawn(self._read)

    def send(self, message: Struct) -> None:
        """Send a message; one that cannot be sent any more is dropped, since `closed` reports the same."""
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
        except Exception:  # what one message breaks must not leave a pipe that nobody reads and that looks open
            log.exception("a message from the other process of this worker could not be handled")
        self._closed()

    def _read_exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = self._line.recv(count - len(parts))
            if not part:
                return None
            parts += part
        return bytes(parts)
