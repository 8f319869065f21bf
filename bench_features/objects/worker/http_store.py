"""What the stores that speak HTTP have in common: connections, tries, and how an answer becomes a result.

An operation is one or more requests with one deadline. A try that fails for a reason that may pass is repeated where
the options allow it; the time of the operation goes from its first try. Failures are told with the server's words,
never with a request's headers.
"""

from __future__ import annotations

import html
import re
from abc import abstractmethod
from time import monotonic_ns
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import gevent
from msgspec.structs import replace

from bench_common.errors import UsageError
from bench_common.safe_text import one_line, shorten
from bench_features.objects.worker.base import (
    Body,
    Sink,
    Store,
    StoreAnswer,
    StoreOptions,
    StoreSlot,
    StoreUnavailable,
)
from bench_features.objects.worker.wire import Answer, Connection, Request, Wire, WireError
from bench_worker.http import length_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench_features.objects.common.access import Access

USER_AGENT: Final = b"User-Agent: weighbridge\r\n"
MAX_MESSAGE_CHARS: Final = 300
"""How much of a server's explanation is kept."""
MAX_PAGE_BYTES: Final = 64 << 20
"""A longer page of a listing is refused."""
PASSING: Final = frozenset(
    {
        *("refused", "reset", "closed", "truncated", "dns", "unreachable"),
        *("http-408", "http-429", "http-500", "http-502", "http-503", "http-504"),
    }
)
"""Why a try may fail of which the next one may succeed."""
MISSING_RETRIES: Final = 2
"""How often a read is tried again of an object that is not there: the copies of a new one may not all be."""
MAX_PAUSE_S: Final = 10.0
NS: Final = 1_000_000_000
OK: Final = 200
PARTIAL: Final = 206
FORBIDDEN: Final = 403
CONFLICT: Final = 409
UNAUTHORIZED: Final = 401

_TAG: Final = re.compile(r"<[^>]*>")
_UNSENT: Final = StoreAnswer(None)


def quick_check(url: str, what: str) -> None:
    """Raise `StoreUnavailable` for what is no URL of a server; a user or password in it is not repeated."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise StoreUnavailable(f"{what} is not a URL; expected one such as https://store.example:8080") from None
    if parts.username is not None or parts.password is not None:
        raise StoreUnavailable(f"{what} holds a user or password, which would show in files and logs: leave it out")
    if not valid:
        raise StoreUnavailable(f"{what} {url!r}: expected a URL such as https://store.example:8080")


class HttpStore(Store):
    """A store with a place for each of its endpoints."""

    def __init__(self, access: Access, options: StoreOptions) -> None:
        super().__init__(access, options)
        self._urls: tuple[str, ...] = ()
        self.wires: list[Wire] = []
        self.paths: list[str] = []
        """What the path of every request to an endpoint begins with."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The URLs that requests go to."""
        return self._urls

    def close(self) -> None:
        """Close every connection."""
        for wire in self.wires:
            wire.close()

    def _set_endpoints(self, urls: Iterable[str]) -> None:
        self._urls = tuple(url.rstrip("/") for url in urls)
        self.wires = [self.open_wire(url, "the endpoint") for url in self._urls]
        self.paths = [urlsplit(url).path for url in self._urls]

    def open_wire(self, url: str, what: str) -> Wire:
        """Return the place that a URL names. Raises `StoreUnavailable` for what is none, called `what`."""
        quick_check(url, what)
        try:
            return Wire(
                url,
                verify=not self.access.insecure,
                ca_file=self.access.ca_file or None,
                block_bytes=self.options.block_bytes,
            )
        except UsageError as error:
            raise StoreUnavailable(f"{what} {url}: {error}") from error
        except OSError as error:
            raise StoreUnavailable(f"{what} {url}: the certificates cannot be read: {error}") from error


class HttpSlot(StoreSlot):
    """The operations of one user over HTTP."""

    def __init__(self, store: HttpStore, number: int) -> None:
        self.number = number
        self.endpoint = 0
        self._store = store
        self._options = store.options
        self._timeout_ns = int(store.options.timeout_s * NS)
        self._connections: list[Connection | None] = [None] * len(store.wires)
        self._deadline_ns = 0

    @staticmethod
    @abstractmethod
    def _path(container: str, name: str = "") -> str:
        """Return the quoted path of a container or an object."""

    @abstractmethod
    def _authorize(self, method: str, path: str, query: str, headers: bytes) -> bytes:
        """Return the header lines with which the store accepts a request."""

    @abstractmethod
    def _transaction_id(self, answer: Answer) -> str:
        """Return the store's name of a request."""

    def _explain(self, answer: Answer) -> str:
        """Return the server's own words about a failure, on one line."""
        text = answer.body[: 64 * 1024].decode("utf-8", "replace")
        words = " ".join(unescaped(_TAG.sub(" ", text)).split())
        return shorten(one_line(words), MAX_MESSAGE_CHARS)

    def _login_again(self, result: StoreAnswer) -> bool:
        """Say whether a request that was refused (401) is worth another try, because there is a new login."""
        del result
        return False

    def _accepted_again(self) -> None:
        """Note that a request succeeded with the new login."""

    def _explain_refusal(self, message: str) -> str:
        """Return why a request was refused for good (401), from the server's message."""
        return message

    def connect(self) -> StoreAnswer:
        """Open the connection to `endpoint` where it is not."""
        try:
            start_ns, end_ns = self._connection().connect(monotonic_ns() + self._timeout_ns)
        except WireError as error:
            return self._failed(error)
        return replace(
            _UNSENT, start_ns=start_ns, try_start_ns=start_ns, first_ns=end_ns, last_ns=end_ns, endpoint=self.endpoint
        )

    def close(self) -> None:
        """Close the slot's connections."""
        for index, connection in enumerate(self._connections):
            if connection is not None:
                connection.close()
                self._connections[index] = None

    def _connection(self) -> Connection:
        connection = self._connections[self.endpoint]
        if connection is None:
            connection = self._connections[self.endpoint] = self._store.wires[self.endpoint].connection()
        return connection

    def _ask(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: bytes = b"",
        body: Body = (),
        sink: Sink | None = None,
        restart: Callable[[], None] | None = None,
    ) -> tuple[StoreAnswer, Answer | None]:
        """Send one request, with its tries; return the result and, where there is one, the last answer.

        Each retry goes to the next endpoint: the one before may be dead. A read that has begun is tried again only
        where `restart` tells its sink to begin anew.
        """
        deadline_ns = self._deadline_ns or monotonic_ns() + self._timeout_ns
        paths, request = self._store.paths, Request(method, "", b"", body, sink)
        start_ns = tries = 0
        idle = logged_in_again = False
        while True:
            whole = paths[self.endpoint] + path
            request.target = f"{whole}?{query}" if query else whole
            request.headers = self._authorize(method, whole, query, headers)
            result, answer, begun = self._try(request, deadline_ns)
            start_ns = start_ns or result.start_ns
            idle = idle or result.retried_idle
            if result.kind is None:
                break
            if result.status == UNAUTHORIZED and not logged_in_again and self._login_again(result):
                logged_in_again = True
            elif not self._again(result, method, tries, deadline_ns) or (begun and not _restarted(sink, restart)):
                break
            else:
                self.endpoint = (self.endpoint + 1) % len(paths)
            tries += 1
        if result.status == UNAUTHORIZED:
            result.message = self._explain_refusal(result.message)
        elif logged_in_again and result.kind is None:
            self._accepted_again()
        if tries:
            result.start_ns, result.retries, result.requests, result.retried_idle = start_ns, tries, tries + 1, idle
        if not self._deadline_ns:
            self._end_operation()
        return result, answer

    def _try(self, request: Request, deadline_ns: int) -> tuple[StoreAnswer, Answer | None, bool]:
        """Send a request once; return the result, the answer, and whether an answer had begun before it broke off."""
        connection = self._connection()
        try:
            answer = connection.exchange(request, deadline_ns)
        except WireError as error:
            return self._failed(error), None, error.answer_begun
        return self._result(answer), answer, False

    def _again(self, result: StoreAnswer, method: str, tries: int, deadline_ns: int) -> bool:
        """Say whether to try once more, after the pause before that."""
        # Not a HEAD: it asks whether an object is there, as before a store is filled, and "no" is an answer.
        missing = result.kind == "http-404" and method == "GET"
        most = min(MISSING_RETRIES, self._options.retries) if missing else self._options.retries
        if tries >= most or not (missing or result.kind in PASSING):
            return False
        pause_s = min(MAX_PAUSE_S, self._options.retry_pause_s * 2.0**tries)
        if monotonic_ns() + pause_s * NS >= deadline_ns:
            return False
        gevent.sleep(pause_s)
        return True

    def _result(self, answer: Answer) -> StoreAnswer:
        status = answer.status
        kind = None if 200 <= status < 300 else f"http-{status}"  # noqa: PLR2004
        etag = answer.field(b"etag")
        return StoreAnswer(
            kind,
            "" if kind is None else self._explain(answer) or f"HTTP status {status}",
            status,
            answer.start_ns,
            answer.start_ns,
            answer.first_ns,
            answer.last_ns,
            answer.first_uncertainty_ns,
            answer.last_uncertainty_ns,
            answer.received,
            self._transaction_id(answer),
            etag.strip(b'"').decode("latin-1") if etag else "",
            self.endpoint,
            0,
            answer.retried_idle,
        )

    def _failed(self, error: WireError) -> StoreAnswer:
        start_ns, end_ns = error.start_ns, error.end_ns
        text = shorten(one_line(error.message), MAX_MESSAGE_CHARS)
        return StoreAnswer(error.kind, text, 0, start_ns, start_ns, 0, end_ns, endpoint=self.endpoint)

    def get(
        self,
        container: str,
        name: str,
        sink: Sink | None = None,
        *,
        byte_range: tuple[int, int] | None = None,
        restart: Callable[[], None] | None = None,
    ) -> StoreAnswer:
        """Read an object, or a range of its bytes."""
        headers = b"" if byte_range is None else b"Range: bytes=%d-%d\r\n" % byte_range
        again = restart or (None if sink else _nothing)
        result, _ = self._ask("GET", self._path(container, name), "", headers, (), sink or _drop, again)
        if byte_range is not None and result.kind is None and result.status != PARTIAL:
            result.kind = "wrong-length"
            result.message = f"the store ignores ranges: it sent {result.length} bytes with status {result.status}"
        return result

    def head(self, container: str, name: str) -> StoreAnswer:
        """Read an object's headers."""
        result, answer = self._ask("HEAD", self._path(container, name))
        result.length = length_in(answer.headers.get(b"content-length", b"")) or 0 if answer is not None else 0
        return result

    def _page(self, path: str, query: str) -> tuple[StoreAnswer, bytes]:
        """Read a page of a listing; return the result and its text."""
        text = bytearray()

        def keep(piece: memoryview) -> None:
            if len(text) + len(piece) <= MAX_PAGE_BYTES:
                text.extend(piece)

        result, _ = self._ask("GET", path, query, sink=keep, restart=text.clear)
        return result, bytes(text)

    def _in_steps(self, steps: Callable[[StoreAnswer], StoreAnswer]) -> StoreAnswer:
        """Run an operation of several requests under one deadline; return one result for all of them.

        `steps` adds up what it sends, by `_add`, in the result that it gets.
        """
        self._deadline_ns = monotonic_ns() + self._timeout_ns
        try:
            return steps(StoreAnswer(None, endpoint=self.endpoint, requests=0))
        finally:
            self._deadline_ns = 0
            self._end_operation()

    def _end_operation(self) -> None:
        """Close the connection where each operation has one of its own."""
        if self._options.new_connections:
            for connection in self._connections:
                if connection is not None:
                    connection.drop()

    @staticmethod
    def _add(total: StoreAnswer, step: StoreAnswer) -> None:
        """Add a request to an operation of several: it begins with the first and ends with the last."""
        total.kind, total.message, total.status = step.kind, step.message, step.status
        total.endpoint = step.endpoint
        if not total.requests:
            total.start_ns, total.try_start_ns = step.start_ns, step.try_start_ns
        total.first_ns, total.first_uncertainty_ns = step.first_ns, step.first_uncertainty_ns
        total.last_ns, total.last_uncertainty_ns = step.last_ns, step.last_uncertainty_ns
        total.transaction_id, total.etag = step.transaction_id, step.etag
        total.retries += step.retries
        total.requests += step.requests
        total.retried_idle = total.retried_idle or step.retried_idle


def _drop(piece: memoryview) -> None:
    """Take a piece of a body that nobody wants."""


def _nothing() -> None:
    """Begin anew where nothing was kept."""


def unescaped(text: str) -> str:
    """Return HTML or XML text with its references resolved; as it is where a server wrote one of absurd length."""
    try:
        return html.unescape(text)
    except ValueError:
        return text


def deadline_after(seconds: float) -> int:
    """Return the instant (ns, CLOCK_MONOTONIC) so many seconds from now."""
    return monotonic_ns() + int(seconds * NS)


def _restarted(sink: Sink | None, restart: Callable[[], None] | None) -> bool:
    """Have a sink begin anew; say whether it can."""
    if sink is not None and restart is not None:
        restart()
    return sink is None or restart is not None


def length_of(body: Body) -> int:
    """Return the bytes of a body."""
    return sum(map(len, body))


def parts_of(body: Body, part_bytes: int) -> Iterable[list[memoryview]]:
    """Cut a body into parts of a size, without copying it."""
    part: list[memoryview] = []
    room = part_bytes
    for piece in body:
        view = memoryview(piece)
        while view:
            part.append(view[:room])
            room -= len(part[-1])
            view = view[len(part[-1]) :]
            if not room:
                yield part
                part, room = [], part_bytes
    if part:
        yield part
