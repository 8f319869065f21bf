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
    "maps": lambda: frame(b"\x92\x03\x83\xa4type\xa5hello\xa5epoch\x00\xa4info" + MAPS),
    "maps-256": lambda: frame(b"\x92\x03\x83\xa4type\xa5hello\xa5epoch\x00\xa4info" + MAPS[:5] + b"\x80" * 250_000),
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


def attack(port, kind, content, connected):
    """Send the content again and again, by one connection after the other."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as line:
            flood(line, kind, content, connected)
        time.sleep(0.001)


def flood(line, kind, content, connected):
    """Send the content until the line is cut off, or takes no more; then reset it."""
    line.sendall(GREETING + ready(kind))
    connected.set()
    came = 0
    while came < 64 + 27:
        data = line.recv(500)
        if not data:
            return
        came += len(data)
    line.settimeout(1.5)  # subject: how long it stays where nothing is taken any more
    with contextlib.suppress(OSError):
        while True:
            line.sendall(content)
    with contextlib.suppress(OSError):
        # Where it does not take any more a reset hurts.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


if __name__ == "__main__":
    words = int(sys.argv[1]), sys.argv[2].encode(), FLOODS[sys.argv[3]](), threading.Event()
    for _ in range(CONNECTIONS):
        threading.Thread(target=attack, args=words, daemon=True).start()
    words[-1].wait(ANSWER_S)
    print("connected", flush=True)  # noqa: T201
    while os.getppid() != 1:
        time.sleep(1)
