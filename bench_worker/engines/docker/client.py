"""docker-py's client with bounds: what answers without end, an engine or what poses as one, cannot fill the memory.

docker-py reads an answer whole, and a message of a stream until it ends, however much that is. Here both have the
limits of the other ways to an engine (`bench_worker.engines.docker.connection`), and whoever asks gets an error. A
stream of content, such as an exported image, has no limit: whoever asks for it writes it to a disk, piece by piece.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.docker.connection import ANSWER_LIMIT_BYTES, LINE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import docker
    import requests

_PIECE_BYTES: Final = 64 * 1024
_FIRST_WITHOUT_STREAM: Final = 300
"""The statuses from here on are redirections and failures, whose answers docker-py reads whole."""


def bounded_client(**settings: Any) -> docker.APIClient:
    """Return a client, by docker-py's own arguments; it raises `docker.errors.DockerException` at each limit."""
    return _bounded_class()(**settings)


@functools.cache
def _bounded_class() -> type[docker.APIClient]:
    import docker  # it takes longer to load than all else of an engine

    class BoundedClient(docker.APIClient):
        """A client whose answers are bounded."""

        def get_adapter(self, url: str) -> Any:
            """Return what sends the requests of an address, and bounds the answers before anybody reads them."""
            return _BoundedAdapter(super().get_adapter(url))

        def _stream_helper(self, response: requests.Response, decode: bool = False) -> Iterator[Any]:  # noqa: FBT001, FBT002  docker-py's own
            pieces = response.iter_content(_PIECE_BYTES)
            return _messages(pieces) if decode else pieces

        def _stream_raw_result(
            self,
            response: requests.Response,
            chunk_size: int = 1,
            decode: bool = True,  # noqa: FBT001, FBT002  docker-py's own
        ) -> Iterator[bytes]:
            try:
                yield from response.iter_content(chunk_size, decode)
            finally:
                # Whoever takes no more of it does not wait for its end.
                response.close()

    return BoundedClient


class _BoundedAdapter:
    """An adapter of `requests` that reads answers itself: all but streams, and those of failures in any case."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request."""
        response: requests.Response = self._adapter.send(request, **options)
        if not options.get("stream") or response.status_code >= _FIRST_WITHOUT_STREAM:
            _read_whole(response)
        return response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


def _read_whole(response: requests.Response) -> None:
    """Read an answer as `requests` does, up to the limit."""
    pieces, size = [], 0
    for piece in response.iter_content(_PIECE_BYTES):
        size += len(piece)
        if size > ANSWER_LIMIT_BYTES:
            response.close()
            raise _refused(f"the engine's answer is longer than {ANSWER_LIMIT_BYTES >> 20} MiB")
        pieces.append(piece)
    response._content = b"".join(pieces)  # noqa: SLF001  where `requests` keeps what it has read


def _messages(pieces: Iterable[bytes]) -> Iterator[Any]:
    """Yield the messages of a stream, each of which is a line of JSON."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LINE_LIMIT_BYTES:
            raise _refused(f"a line of the engine's answer is longer than {LINE_LIMIT_BYTES >> 20} MiB")
        for line in filter(bytes.strip, lines):
            yield _message(line)
    if rest.strip():
        yield _message(rest)


def _message(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise _refused(f"a line of the engine's answer is no JSON: {error}") from error


def _refused(text: str) -> Exception:
    import docker.errors  # loaded with the client

    return docker.errors.DockerException(text)
