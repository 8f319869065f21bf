"""A server that speaks as much of Docker's API as a timing needs, and takes a known time for each request.

It says in each answer how long it really took from the request's last byte to just before its answer's first, in
nanoseconds, because a sleep of 20 ms is a little more than that on a machine at work. Run by `timing_truth.py`.

    python benchmarks/stub_engine.py SOCKET SECONDS
"""

from __future__ import annotations

import socket
import sys
import threading
import time

VERSION = b'{"ApiVersion": "1.41", "Version": "stub"}'


def serve(connection: socket.socket, service_s: float) -> None:
    """Answer the requests of one connection."""
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
                body = b"%d" % (time.monotonic_ns() - heard_ns)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def main() -> None:
    """Serve until killed."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(256)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, float(sys.argv[2])), daemon=True).start()


if __name__ == "__main__":
    main()
