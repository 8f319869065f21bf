"""A server that speaks as much of Docker's API as a timing needs, and takes a known time for each request.

It says in each answer how long it really took from the request's last byte to just before its answer's first, because
a sleep of 20 ms is a little more than that on a machine at work, and when that was (CLOCK_MONOTONIC); and of the
answer before, on the same connection, when that was and when it had left. All in nanoseconds. Run by
`timing_truth.py`.

    python benchmarks/stub_engine.py SOCKET|PORT SECONDS
"""

from __future__ import annotations

import socket
import sys
import threading
import time

VERSION = b'{"ApiVersion": "1.41", "Version": "stub"}'


def serve(connection: socket.socket, service_s: float) -> None:
    """Answer the requests of one connection."""
    last_ended_ns = last_sent_ns = 0
    with connection, connection.makefile("rb") as lines:
        while request := lines.readline():
            length = 0
            while line := lines.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            lines.read(length)
            heard_ns = time.monotonic_ns()
            body = VERSION
            if not request.split()[1].endswith(b"/version"):
                time.sleep(service_s)
                ended_ns = time.monotonic_ns()
                body = b"[%d, %d, %d, %d]" % (ended_ns - heard_ns, ended_ns, last_ended_ns, last_sent_ns)
                last_ended_ns = ended_ns
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            last_sent_ns = time.monotonic_ns()


def main() -> None:
    """Serve until killed."""
    if sys.argv[1].isdecimal():
        listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=256)
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen(256)
    while True:
        connection, _ = listener.accept()
        if listener.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(connection, float(sys.argv[2])), daemon=True).start()


if __name__ == "__main__":
    main()
