"""When a socket must be encrypted and authenticated with CURVE, and how that is set up.

What stays with one user (``ipc://`` in a private directory) needs no keys. Every TCP port needs CURVE with an
allow-list, because CURVE alone encrypts for everybody; so does loopback, which each user of this machine, and of the
far end of a tunnel, can reach. `ZapHandler` answers libzmq's
question whether a key is admitted (ZAP, https://rfc.zeromq.org/spec/27/): one greenlet serves one plain socket, woken
by the event loop; `authenticate` decides and is pure.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import time
from enum import Enum
from typing import TYPE_CHECKING, Final

import gevent
import zmq
from gevent.event import Event
from msgspec import Struct
from zmq.utils import z85

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    Allow = Callable[[str, bytes], str | None]
    AllowToken = Callable[[str, bytes, bytes], bool]
    from bench_common.keys import KeyPair

LOG: Final = logging.getLogger(__name__)

ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
"""Where libzmq looks for the handler of a context; the RFC fixes the address."""
VERSION: Final = b"1.0"
LEADING_FRAMES: Final = 6
"""version, request id, domain, address, identity, mechanism; the credentials follow."""
CURVE_KEY_BYTES: Final = 32
REQUESTS_BETWEEN_YIELDS: Final = 64
"""How many requests are answered before other greenlets get a turn."""


class ZapVerdict(Enum):
    """How a request was answered."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    MALFORMED = "malformed"
    BROKEN = "broken"


class ZapReply(Struct, frozen=True):
    """The answer to a request."""

    frames: tuple[bytes, ...]
    """The reply in ZAP frames."""
    verdict: ZapVerdict
    reason: str = ""
    """Why the key was not admitted, in one line."""


def authenticate(frames: Sequence[bytes], allow: Allow, allow_token: AllowToken | None = None) -> ZapReply:
    """Return the answer to a request: 200 with the owner's name as User-Id, or 400, or 500 if `allow` broke."""
    request_id = frames[1] if len(frames) > 1 else b""
    if len(frames) < LEADING_FRAMES or frames[0] != VERSION:
        return _rejection(
            request_id, ZapVerdict.MALFORMED, f"not a ZAP {VERSION.decode()} request ({len(frames)} frames)"
        )
    domain = frames[2].decode("utf-8", "replace")
    address = frames[3].decode("utf-8", "replace")
    mechanism, credentials = frames[5], frames[LEADING_FRAMES:]
    client = f"a connection from {address!r} to {domain!r}"
    if mechanism == b"PLAIN" and len(credentials) == 2:  # noqa: PLR2004  a name and a password
        if allow_token is None or not allow_token(domain, *credentials):
            return _rejection(request_id, ZapVerdict.REFUSED, f"{client} with a token that opens nothing here")
        return ZapReply((VERSION, request_id, b"200", b"OK", credentials[0], b""), ZapVerdict.ADMITTED)
    if mechanism != b"CURVE":
        return _rejection(request_id, ZapVerdict.REFUSED, f"{client} without a key (mechanism {mechanism[:16]!r})")
    if len(credentials) != 1 or len(credentials[0]) != CURVE_KEY_BYTES:
        return _rejection(request_id, ZapVerdict.MALFORMED, f"{client} with something that is not a CURVE key")
    key = z85.encode(credentials[0])
    try:
        name = allow(domain, key)
    except Exception as error:  # noqa: BLE001  the wire is a boundary: on any error the client is refused and we go on
        return _rejection(request_id, ZapVerdict.BROKEN, f"{client}: {type(error).__name__}: {error}", status=b"500")
    if not name:
        return _rejection(request_id, ZapVerdict.REFUSED, f"{client} with key {key.decode()}: not on its allow-list")
    return ZapReply((VERSION, request_id, b"200", b"OK", name.encode("utf-8"), b""), ZapVerdict.ADMITTED)


def _rejection(request_id: bytes, verdict: ZapVerdict, reason: str, status: bytes = b"400") -> ZapReply:
    # The peer does not learn the reason: that is for our log.
    return ZapReply((VERSION, request_id, status, b"refused", b"", b""), verdict, reason)


class RateLimitedLog:
    """Logs the first `burst` lines of every `window_s` seconds and counts the rest.

    A flood of connections must not fill the disk.
    """

    def __init__(
        self,
        log_line: Callable[[str], None],
        *,
        burst: int = 10,
        window_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log_line = log_line
        self._burst = burst
        self._window_s = window_s
        self._clock = clock
        self._since = clock()
        self._logged = 0
        self._suppressed = 0

    def log(self, text: str) -> None:
        """Log `text`, or count it."""
        now = self._clock()
        if now - self._since >= self._window_s:
            self.flush()
            self._since, self._logged = now, 0
        if self._logged < self._burst:
            self._logged += 1
            self._log_line(text)
        else:
            self._suppressed += 1

    def flush(self) -> None:
        """Log how many lines were suppressed."""
        if self._suppressed:
            self._log_line(f"{self._suppressed} similar lines suppressed")
            self._suppressed = 0


class ZapHandler:
    """Serves ZAP for every socket of one context, from `start` to `stop`.

    `allow(domain, public_key)` gets the server socket's ZAP domain and the client's public key in Z85, and returns
    the name that its frames will carry as ``User-Id``, or None; an exception refuses the client. `counts` has the
    number of each verdict. Start the handler before any secured socket is bound. `allow_token(domain, name, token)`
    decides on connections without keys to sockets that demand a token (`plain_server`).
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        allow: Allow,
        *,
        allow_token: AllowToken | None = None,
        rejection_log: RateLimitedLog | None = None,
    ) -> None:
        self._allow_token = allow_token
        self.counts: dict[ZapVerdict, int] = dict.fromkeys(ZapVerdict, 0)
        self._context = context
        self._allow = allow
        self._rejection_log = rejection_log or RateLimitedLog(LOG.warning)
        self._ready = Event()
        self._socket: zmq.Socket[bytes] | None = None
        self._greenlet: gevent.Greenlet[..., None] | None = None

    def start(self) -> None:
        """Bind and serve; raise `InfrastructureError` if the context already has a handler."""
        socket = self._context.socket(zmq.REP)
        socket.setsockopt(zmq.LINGER, 0)
        try:
            socket.bind(ZAP_ENDPOINT)
        except zmq.ZMQError as error:
            socket.close()
            raise InfrastructureError(f"this context already has a ZAP handler ({error})") from error
        self._socket = socket
        self._greenlet = gevent.spawn(self._serve, socket)

    def stop(self) -> None:
        """Stop serving; no new connection is admitted any more. Safe to call twice, or before `start`."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._rejection_log.flush()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _serve(self, socket: zmq.Socket[bytes]) -> None:
        watcher = gevent.get_hub().loop.io(socket.FD, 1)
        watcher.start(self._ready.set)
        try:
            while True:
                # Cleared before the drain: a request that arrives during it wakes us again. The descriptor signals
                # changes only, so the socket must be drained until libzmq has no more.
                self._ready.clear()
                self._drain(socket)
                self._ready.wait()
        finally:
            watcher.stop()
            watcher.close()

    def _drain(self, socket: zmq.Socket[bytes]) -> None:
        served = 0
        while True:
            try:
                request = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            reply = authenticate(request, self._allow, self._allow_token)
            socket.send_multipart(reply.frames, zmq.NOBLOCK)
            self.counts[reply.verdict] += 1
            if reply.reason:
                self._rejection_log.log(f"refused {reply.reason}")
            served += 1
            if served % REQUESTS_BETWEEN_YIELDS == 0:
                gevent.sleep(0)


INSECURE_WARNING: Final = """\
--insecure: {address} accepts everybody who can reach it, without keys or encryption.
Anybody can pose as a worker and report false results, pose as this master and start containers on workers, and
read the scenario and the results in transit. Use it only on a network, and on machines, that you control.
The safe way: `bench-master keygen --worker NAME`, then run without --insecure.
"""
INSECURE_WORKER_WARNING: Final = """\
--insecure: this worker obeys whoever answers at {address}, as user {user}: it starts the containers and processes
that it is told to. Anybody in between can read and change what it sends. The safe way: --key FILE.
"""


def is_loopback(address: str) -> bool:
    """Return whether `address` is reachable from this machine only: 127.0.0.0/8, ::1, ``localhost``.

    Takes a host, ``host:port`` or ``tcp://host:port``. Anything uncertain (``*``, the name of an interface or of
    another host) is not loopback.
    """
    host = _host(address)
    if host.lower() == "localhost":
        return True
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def curve_required(bind_address: str, *, insecure: bool = False) -> bool:
    """Return whether a socket bound to `bind_address` must use CURVE and ZAP: every one on TCP, also on loopback.

    With `insecure` never; the caller then shows `insecure_warning` for every such address.
    """
    transport, separator, _ = bind_address.partition("://")
    return not insecure and not (separator and transport in ("ipc", "inproc"))


def insecure_warning(bind_address: str) -> str:
    """Return the warning for an address that ``--insecure`` opens without keys; empty for none that needs them."""
    return INSECURE_WARNING.format(address=bind_address) if curve_required(bind_address) else ""


def secure_server(socket: zmq.Socket[bytes], keys: KeyPair, domain: str) -> None:
    """Make `socket` require CURVE and a ZAP check for `domain`; call it before `bind`.

    Raises `InfrastructureError` if no ZAP handler serves the socket's context: every key would be admitted.
    """
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    _set_domain(socket, domain)


def plain_server(socket: zmq.Socket[bytes], domain: str) -> None:
    """Make `socket` demand a name and a token, checked for `domain`, on what is bound from now on; not encrypted.

    Raises `InfrastructureError` as `secure_server` does.
    """
    socket.setsockopt(zmq.PLAIN_SERVER, 1)
    _set_domain(socket, domain)


def plain_client(socket: zmq.Socket[bytes], epoch: int, token: str) -> None:
    """Make `socket` prove an admission by its epoch and token; call it before `connect`."""
    socket.setsockopt(zmq.PLAIN_USERNAME, str(epoch).encode("ascii"))
    socket.setsockopt(zmq.PLAIN_PASSWORD, token.encode("utf-8"))


def _set_domain(socket: zmq.Socket[bytes], domain: str) -> None:
    if not _zap_is_served(socket.context):
        raise InfrastructureError(
            f"no ZAP handler serves this context, so everybody would be admitted to {domain}; start ZapHandler first"
        )
    socket.setsockopt(zmq.ZAP_DOMAIN, domain.encode("utf-8"))
    # Refuses everybody if the handler ever ends. Not every build of libzmq supports it, hence the check above.
    with contextlib.suppress(zmq.ZMQError):
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def secure_client(socket: zmq.Socket[bytes], keys: KeyPair, server_public: bytes) -> None:
    """Make `socket` use CURVE with `keys` and accept `server_public` only; call it before `connect`."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, server_public)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)


def _host(address: str) -> str:
    rest = address.partition("://")[2] or address
    if rest.startswith("["):
        return rest[1:].partition("]")[0]
    # One colon separates a port; several are an IPv6 address without brackets.
    return rest.partition(":")[0] if rest.count(":") == 1 else rest


def _zap_is_served(context: zmq.Context[zmq.Socket[bytes]]) -> bool:
    """Return whether a socket of `context` is bound to the ZAP endpoint (only one can be)."""
    with context.socket(zmq.REP) as probe:
        try:
            probe.bind(ZAP_ENDPOINT)
        except zmq.ZMQError:
            return True
    return False
