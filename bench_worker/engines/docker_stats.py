"""Docker's statistics of a container: one query, or the stream that it keeps sending.

``GET /containers/ID/stats`` looks twice, a second apart, because its answer holds the CPU time of both; so one
query takes at least a second. As a stream it answers once a second, until the container is removed; the pace is
Docker's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from bench_worker.engines.base import Done
from bench_worker.engines.docker import http as docker_http
from bench_worker.engines.docker.errors import check, operation

if TYPE_CHECKING:
    import docker

STREAM_INTERVAL_S: Final = 1.0
"""How often Docker sends a reading; nothing can change it."""


def one_reading(client: docker.APIClient, identity: str, timeout_s: float, address: str) -> Done:
    """Ask the engine at `address` once and read the whole answer."""
    url = docker_http.url(client, "containers", identity, "stats")
    with operation(timeout_s, address) as made, client.get(url, params={"stream": "0"}, stream=True) as response:
        check(response)
        _ = response.content
    return made.done()


def readings(client: docker.APIClient, identity: str, timeout_s: float, address: str) -> Iterator[Done]:
    """Yield each reading of the stream until it ends, each at most `timeout_s` after the one before."""
    url = docker_http.url(client, "containers", identity, "stats")
    with operation(timeout_s, address) as made:
        response = client.get(url, params={"stream": "1"}, stream=True)
    try:
        with operation(timeout_s, address):
            check(response)
            lines = response.iter_lines(chunk_size=1 << 16)
            line = next(lines, None)
        start_ns = made.start_ns
        while line is not None:
            if line:
                yield Done(start_ns, made.now_ns())
            with operation(timeout_s, address) as made:
                start_ns = made.begun_ns
                line = next(lines, None)
    finally:
        # The answer never ends by itself: its connection is given up, not given back.
        response.raw.close()
