"""What an object store is: one per load process, treatment and list of endpoints, with one slot per user.

A store is a class in one module, registered under the entry-point group ``weighbridge.stores``. Operations are
methods of a slot. They never raise because of the server or the network: each returns a `StoreAnswer`, whose `kind`
is None for a success and otherwise a short stable word to group failures by. Its stamps are those of the HTTP client,
taken next to the socket, so a failure's time is known, too.

Kinds: those of the HTTP client (`wire_errors.KINDS`), ``http-401``, ``http-403``, ``http-404``, ``http-409``,
``http-412``, ``http-429``, ``http-503`` and so on, ``wrong-length`` and ``wrong-etag``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct

from bench_common.errors import InfrastructureError
from bench_features.objects.common.access import Access

Body: TypeAlias = Sequence[memoryview | bytes]
"""The content of an object, in pieces."""
Sink: TypeAlias = Callable[[memoryview], None]
"""Gets each piece of an answer's body, in order; a piece is valid during the call only."""

DEFAULT_TIMEOUT_S: Final = 60.0
MIB: Final = 1 << 20
MIN_PART_BYTES: Final = 5 * MIB
"""The smallest part of a multipart upload under S3, but for the last."""
MAX_LISTED: Final = 1000
"""How many names a page of a listing has at most, under S3."""


class StoreUnavailable(InfrastructureError):
    """A store cannot be used: its URL, its login or its settings; the message says why and what to do."""


class StoreOptions(Struct, frozen=True):
    """What a store is opened with, beside the access."""

    slots: int = 1
    """How many operations may be in progress at once."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """The deadline of an operation, with all its tries, in seconds."""
    retries: int = 0
    """How many more times an operation is tried that fails for a reason that may pass."""
    retry_pause_s: float = 0.1
    """The pause before the first of them, in seconds; it doubles each time."""
    policy: str = ""
    """The storage policy (Swift) of containers that are made; under S3 the storage class of objects. Empty: the
    store's default."""
    delete_after_s: int | None = None
    """After how many seconds the store deletes an object by itself; None: never."""
    multipart_above_bytes: int | None = None
    """Objects larger than this are uploaded in parts; None: none."""
    part_bytes: int = 64 * MIB
    """The size of a part."""
    block_bytes: int = 64 << 10
    """How much of a body is received at once."""
    new_connections: bool = False
    """Whether each operation opens a connection of its own."""


class StoreEntry(Struct, frozen=True):
    """One object, or one container, of a listing."""

    name: str
    length: int = 0
    """Bytes of the object; of a container, the sum of its objects, where the store tells."""
    etag: str = ""
    """The object's ETag without quotes."""
    objects: int | None = None
    """How many objects a container has, where the store tells."""
    in_parts: bool = False
    """Whether it was uploaded in parts that have to be deleted with it."""


class StoreAnswer(Struct):
    """How an operation ended. Times are nanoseconds of CLOCK_MONOTONIC."""

    kind: str | None
    """None for a success, else why it failed."""
    message: str = ""
    """What the server or the client said of a failure, in one line."""
    status: int = 0
    """The HTTP status of the last answer; 0 without one."""
    start_ns: int = 0
    """When its first request was about to be sent."""
    try_start_ns: int = 0
    """When the request of its last try was about to be sent."""
    first_ns: int = 0
    """When the first byte of the last answer arrived; 0 if none did."""
    last_ns: int = 0
    """When its last byte arrived; when it failed, where there was no answer."""
    first_uncertainty_ns: int = 0
    """The first byte arrived at most this long before `first_ns`."""
    last_uncertainty_ns: int = 0
    """The last byte arrived at most this long before `last_ns`."""
    length: int = 0
    """Bytes of content that were sent or received; for `head`, the length that the store tells."""
    transaction_id: str = ""
    """The store's name of the request: ``X-Trans-Id``, ``x-amz-request-id``."""
    etag: str = ""
    """The object's ETag without quotes."""
    endpoint: int = 0
    """Which endpoint it went to, from 0."""
    retries: int = 0
    """How many tries failed before the last one."""
    retried_idle: bool = False
    """Whether it was sent again because the server had closed the idle connection. This is not a retry."""
    requests: int = 1
    """How many HTTP requests it took: parts of an upload, pages of a listing, retries."""
    entries: tuple[StoreEntry, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.kind is None


class StoreSlot(ABC):
    """The operations of one user, one at a time: a connection of its own to each endpoint.

    `endpoint` says where the next operations go, as an index into the store's endpoints.
    """

    endpoint: int = 0

    @abstractmethod
    def connect(self) -> StoreAnswer:
        """Open the connection to `endpoint` where it is not, so that the first operation does not pay for it."""

    @abstractmethod
    def put(self, container: str, name: str, body: Body, *, update: bool = False) -> StoreAnswer:
        """Create an object, or replace it (`update`); in parts above a size."""

    @abstractmethod
    def get(
        self,
        container: str,
        name: str,
        sink: Sink | None = None,
        *,
        byte_range: tuple[int, int] | None = None,
        restart: Callable[[], None] | None = None,
    ) -> StoreAnswer:
        """Read an object, or the bytes from the first to the last of `byte_range`, both included.

        Only the body of a success goes to `sink`; without one it is dropped. Before a retry that reads from the
        start, `restart` is called; without it, a read that broke off within the body is not tried again.
        """

    @abstractmethod
    def head(self, container: str, name: str) -> StoreAnswer:
        """Read an object's headers."""

    @abstractmethod
    def delete(self, container: str, name: str, *, in_parts: bool = False) -> StoreAnswer:
        """Delete an object; `in_parts`: one that was uploaded in parts, or may have been, with all of them.

        One that is not there is a failure (``http-404``) under Swift, and a success under S3.
        """

    def delete_rest(self, container: str, name: str) -> StoreAnswer:  # noqa: ARG002  a store may have no parts
        """Delete what uploads in parts that failed have left of an object that is deleted."""
        return StoreAnswer(None, endpoint=self.endpoint)

    @abstractmethod
    def list_objects(
        self, container: str, *, prefix: str = "", marker: str = "", limit: int = MAX_LISTED
    ) -> StoreAnswer:
        """List a page of a container's objects with `prefix`, after the name `marker`, in order."""

    @abstractmethod
    def list_containers(self, *, prefix: str = "", marker: str = "", limit: int = MAX_LISTED) -> StoreAnswer:
        """List a page of the containers with `prefix`, after the name `marker`, in order."""

    @abstractmethod
    def make_container(self, container: str) -> StoreAnswer:
        """Make a container; one of ours that is there already is a success."""

    @abstractmethod
    def delete_container(self, container: str) -> StoreAnswer:
        """Delete an empty container, and with it what is left of the parts of its objects."""

    @abstractmethod
    def close(self) -> None:
        """Close its connections."""


class Store(ABC):
    """One protocol to reach a store. A third party's class registers under its `name`."""

    name: ClassVar[str]
    """Its registered name; a scenario calls it so as its ``engine``."""
    server_processes: ClassVar[frozenset[str]] = frozenset()
    """What its servers' processes are called (15 characters at most): on this host they are what is measured."""

    def __init__(self, access: Access, options: StoreOptions) -> None:
        self.access = access
        self.options = options

    @abstractmethod
    def open(self) -> None:
        """Check the access and log in. Raises `StoreUnavailable`, with why and what to do."""

    @abstractmethod
    def slot(self, number: int) -> StoreSlot:
        """Return the slot of that number, from 0."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""

    @property
    @abstractmethod
    def endpoints(self) -> tuple[str, ...]:
        """The URLs that requests go to; known once it is open."""

    def check(self) -> list[str]:
        """Return what is wrong with the options, now that it is open: a policy that the store does not have."""
        return []

    def container_name(self, name: str) -> str:
        """Return what a container is called in this store, whose rules of names may differ."""
        return name
