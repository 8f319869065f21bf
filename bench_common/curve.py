"""When a socket must be encrypted and authenticated, and how it is made so.

The policy: what stays on this machine (``ipc://`` in a private directory, loopback TCP) needs no keys; any TCP bind
beyond loopback needs CURVE with a ZAP allow-list, because CURVE without ZAP encrypts for everybody who asks.
"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING, Final

import zmq

from bench_common.errors import InfrastructureError
from bench_common.zap import ZAP_ENDPOINT

if TYPE_CHECKING:
    from bench_common.keys import KeyPair

INSECURE_WARNING: Final = """\
--insecure: {address} is open to everybody who can reach it, without keys or encryption.
Whoever connects can pose as a worker and report invented results, pose as this master towards a worker and
have containers started there, and read scenario and results on the way. Use it on a network of your own only.
The safe way: `bench-master keygen --worker NAME`, then leave --insecure out.
"""


def is_loopback(address: str) -> bool:
    """Return whether `address` reaches this machine only: 127.0.0.0/8, ::1, ``localhost``.

    Takes a host, ``host:port`` or ``tcp://host:port``. Whatever is not certain (``*``, an interface's or another
    host's name) is not loopback.
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
    """Return whether a socket bound to `bind_address` must use CURVE and ZAP.

    With `insecure` it never must; the caller then shows `insecure_warning` for every address that it opens so.
    """
    if insecure:
        return False
    transport, separator, _ = bind_address.partition("://")
    if separator and transport in ("ipc", "inproc"):
        return False
    return not is_loopback(bind_address)


def insecure_warning(bind_address: str) -> str:
    """Return what to print when ``--insecure`` opens an address that needs keys, or an empty string."""
    return INSECURE_WARNING.format(address=bind_address) if curve_required(bind_address) else ""


def secure_server(socket: zmq.Socket[bytes], keys: KeyPair, domain: str) -> None:
    """Make `socket` demand CURVE and ask the ZAP handler about `domain`; call it before `bind`.

    Raises `InfrastructureError` when no ZAP handler serves the socket's context: every key would be admitted.
    """
    if not _zap_is_served(socket.context):
        raise InfrastructureError(
            f"no ZAP handler serves this context, so CURVE would admit every key to {domain}; start ZapHandler first"
        )
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    socket.setsockopt(zmq.ZAP_DOMAIN, domain.encode("utf-8"))
    # Keeps the door shut should the handler ever end. Not every build of libzmq knows it, hence the look above.
    with contextlib.suppress(zmq.ZMQError):
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def secure_client(socket: zmq.Socket[bytes], keys: KeyPair, server_public: bytes) -> None:
    """Make `socket` use CURVE as `keys` and talk to the owner of `server_public` only; call it before `connect`."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, server_public)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)


def _host(address: str) -> str:
    rest = address.partition("://")[2] or address
    if rest.startswith("["):
        return rest[1:].partition("]")[0]
    # One colon parts a port; more are an IPv6 address without brackets.
    return rest.partition(":")[0] if rest.count(":") == 1 else rest


def _zap_is_served(context: zmq.Context[zmq.Socket[bytes]]) -> bool:
    """Return whether some socket of `context` is bound where ZAP requests go (only one can be)."""
    with context.socket(zmq.REP) as probe:
        try:
            probe.bind(ZAP_ENDPOINT)
        except zmq.ZMQError:
            return True
    return False
