"""Floods at a master's ports, each by several connections that are opened again as soon as they are cut off.

The peers do the handshake, so that their messages get to the master's queues. Used by `test_floods.py`, which says
what each flood must not do; as a program it attacks for as long as it is let: PORT, KIND of its socket, NAME.
"""

import contextlib
import os
import socket
import struct
import sys
import threading
import time

from deadlines import ANSWER_S

from bench_common.messages import Heartbeat, Hello, Results, RunWarning, Samples, encode
from bench_common.records import LOOP_BYTES

CONNECTIONS = 6
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)
"""What a peer of ZMTP 3 without keys says first (RFC 23)."""
RESET = struct.pack("ii", 1, 0)
MIB = 1 << 20


def ready(kind):
    """Return the command that ends a handshake without keys."""
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    return b"\x04" + bytes([len(body)]) + body


def frame(content, *, more=False):
    """Return a frame on the wire."""
    if len(content) < 256:
        return bytes([more, len(content)]) + content
    return bytes([2 | more]) + struct.pack(">Q", len(content)) + content


MAPS = b"\xdd" + struct.pack(">I", MIB - 200) + b"\x80" * (MIB - 200)
"""A list of a million empty maps."""
FLOODS = {
    "tiny": lambda: frame(b"ab") * 20_000,
    "endless": lambda: frame(b"", more=True) * 30_000,
    "endless-large": lambda: frame(bytes(200_000), more=True) * 5,
    "maps": lambda: frame(b"\x92\x02\x83\xa4type\xa5hello\xa5epoch\x00\xa4info" + MAPS),
    "maps-256": lambda: frame(b"\x92\x02\x83\xa4type\xa5hello\xa5epoch\x00\xa4info" + MAPS[:5] + b"\x80" * 250_000),
    "samples": lambda: frame(
        encode(Samples(epoch=9, source="host", columns={"time_ns": [1] * 9000, "x": [1] * 9000}, units={}))
    )
    * 20,
    "results": lambda: frame(
        encode(Results(epoch=9, sequence=0, treatment=0, trial=0, rows=bytes(200_000), loop=bytes(LOOP_BYTES),
                       metrics=[], errors=[], outputs=[]))
    )
    * 5,
    "hellos": lambda: frame(
        encode(Hello(epoch=0, worker_id="w", environment="e", slots=1, sent_ns=1, info={"host": "h", "engines": {}}))
    )
    * 2000,
    "heartbeats": lambda: frame(encode(Heartbeat(epoch=9, sent_ns=1, running=0, offset_ns=0, uncertainty_ns=-1)))
    * 2000,
    "warnings": lambda: frame(encode(RunWarning(epoch=9, text="so it says"))) * 2000,
}  # fmt: skip


class Flood:
    """One flood at one port, by `CONNECTIONS` connections at once, from `start` to `stop`."""

    def __init__(self, port, kind, name, *, routing_id=b""):
        self._port, self._kind = port, kind
        self._content = FLOODS[name]()
        self._over = threading.Event()
        self.connected = threading.Event()
        self.sent = 0
        self.cut = 0
        self._threads = [threading.Thread(target=self._attack, daemon=True) for _ in range(CONNECTIONS)]

    def start(self):
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self):
        """End, and wait for it."""
        self._over.set()
        for thread in self._threads:
            thread.join(ANSWER_S)

    def _attack(self):
        while not self._over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5) as line:
                self._flood(line)
            time.sleep(0.001)

    def _flood(self, line):
        line.sendall(GREETING + ready(self._kind))
        self.connected.set()
        came = 0
        while came < 64 + 27:
            data = line.recv(500)
            if not data:
                return
            came += len(data)
        line.settimeout(1.5)  # subject: how long it stays where nothing is taken any more
        try:
            while not self._over.is_set():
                line.sendall(self._content)
                self.sent += len(self._content)
        except TimeoutError:
            # It does not take any more: this is where a reset hurts.
            pass
        except OSError:
            self.cut += 1
        with contextlib.suppress(OSError):
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


if __name__ == "__main__":
    port, kind, name = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3]
    flood = Flood(port, kind, name).start()
    flood.connected.wait(ANSWER_S)
    print("connected", flush=True)  # noqa: T201
    while os.getppid() != 1:
        time.sleep(1)
        print(f"{flood.sent / MIB:.0f} MiB {flood.cut} cut", flush=True)  # noqa: T201
