"""The line between a worker's agent and its load process: msgpack maps, length-prefixed, over a socket pair.

Its end is a message too: when one side dies the other reads end-of-file at once, and acts on it.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

import gevent
import msgpack
from gevent.lock import RLock

log = logging.getLogger(__name__)

MAX_MESSAGE = 1 << 20


class PipeChannel:
    """One end of the line. `received` gets each map, `closed` is called once when the other end is gone."""

    def __init__(
        self,
        line: socket.socket,
        received: Callable[[dict[str, Any]], None],
        closed: Callable[[], None],
    ) -> None:
        self._line = line
        self._received = received
        self._closed = closed
        self._lock = RLock()
        self._reader = gevent.spawn(self._read)

    def send(self, **message: Any) -> None:
        """Send a map; one that cannot be sent any more is dropped, since `closed` tells the same."""
        packed = msgpack.packb(message, use_bin_type=True)
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
                self._received(msgpack.unpackb(body, raw=False))
        except OSError:
            pass
        except Exception:  # what one message breaks must not leave a line that nobody reads and that looks open
            log.exception("a message of the other half of this worker could not be handled")
        self._closed()

    def _read_exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = self._line.recv(count - len(parts))
            if not part:
                return None
            parts += part
        return bytes(parts)
