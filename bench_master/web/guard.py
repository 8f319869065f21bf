"""What keeps strangers out of the pages that a program of ours serves: a WSGI middleware.

Whoever can send packets to a port is not yet a reader. A web site that a user visits can have the user's browser send
requests to this machine, under a name of its own that it lets point here (DNS rebinding), or from its own pages. So:

- ``Host`` must be a name of this server (421).
- A request that is not GET or HEAD must come from a page of this server, by ``Sec-Fetch-Site`` and ``Origin`` (403),
  and be small (413). A GET never changes anything. Other sites may link to a page, but not load a part of it (403).
- With a token, each request needs a session (401). The token is in the fragment of the printed address, which no
  browser sends or logs; the page exchanges it by a POST to `SESSION_PATH` for a cookie that no script can read.
- Each answer forbids the browser to load anything from elsewhere, to be framed, cached, or guessed at.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

SESSION_PATH: Final = "/session"
"""Where a page exchanges its token for a cookie."""
SESSION: Final = "weighbridge.session"
"""The key of a request's `Session` in the environment that the application gets; None where none is needed."""
MAX_BODY: Final = 4096
"""Bytes of the body of a request; the pages send none that is longer."""
MAX_SESSIONS: Final = 64
"""How many sessions there may be; a further one ends the oldest."""
TOKEN_BYTES: Final = 16
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of answers that name none."""
_HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[0-9]{1,5})?", re.IGNORECASE)

Headers: TypeAlias = list[tuple[str, str]]


class Rules(Struct, frozen=True):
    """Who may see the pages of one server."""

    hosts: frozenset[str]
    """Names and addresses under which it may be asked for, in lower case, without brackets and port."""
    any_address: bool = False
    """Whether any IP address will do as well: a name can be made to point here, an address cannot."""
    token: str | None = None
    """The secret of the printed address; None: whoever reaches the port may read."""
    cookie: str = "weighbridge"
    """The cookie's name; as browsers send cookies to every port of a host, it should contain the port."""
    open_paths: frozenset[str] = frozenset()
    """What needs no session, such as the page that exchanges the token."""


class Session(Struct, frozen=True):
    """A browser that has shown the token."""

    number: int
    """Its number, from 1."""
    csrf: str
    """A secret that a request must name in its ``X-Weighbridge`` header to change something."""


class Refused(Exception):
    """A request that is not answered: its status and, in words, why and what to do."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard:
    """Passes on to `application` what the rules allow, and answers the rest itself."""

    def __init__(self, application: WSGIApplication, rules: Rules) -> None:
        self._application = application
        self._rules = rules
        self._sessions: dict[str, Session] = {}
        self._count = 0

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        try:
            self._check(environ)
            exchange = environ["REQUEST_METHOD"] == "POST" and environ.get("PATH_INFO") == SESSION_PATH
            if exchange and self._rules.token is not None:
                return self._begin_session(environ, start_response)
            environ[SESSION] = session = self._session(environ)
            is_open = self._rules.token is None or environ.get("PATH_INFO") in self._rules.open_paths
            if session is None and not is_open:
                raise Refused(
                    "401 Unauthorized", "no session: open the address that the program printed, with its #t="
                )
        except Refused as refused:
            return refuse(refused, start_response)
        return self._application(environ, _adding_headers(start_response))

    def _check(self, environ: WSGIEnvironment) -> None:
        host = environ.get("HTTP_HOST", "")
        if not self._is_ours(host):
            raise Refused(
                "421 Misdirected Request", "this server is not known by that Host: open the printed address"
            )
        method, site = environ["REQUEST_METHOD"], environ.get("HTTP_SEC_FETCH_SITE")
        if method in ("GET", "HEAD"):
            if site not in (None, "same-origin", "none") and environ.get("HTTP_SEC_FETCH_MODE") != "navigate":
                raise Refused("403 Forbidden", "another site may link to this page, but not load parts of it")
            return
        if method != "POST":
            raise Refused("405 Method Not Allowed", "use GET or POST")
        check_origin(environ)
        check_length(environ)

    def _is_ours(self, host: str) -> bool:
        name = host_of(host)
        return name is not None and (name in self._rules.hosts or (self._rules.any_address and _is_address(name)))

    def _begin_session(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a page that shows the token with a cookie."""
        cookie = ("Set-Cookie", self._exchange(environ, read_json(environ).get("token")))
        start_response("204 No Content", with_headers([cookie]))
        return []

    def _exchange(self, environ: WSGIEnvironment, given: Any) -> str:
        """Return the cookie of a new session, for who shows the token."""
        token = (self._rules.token or "").encode()
        # JSON may have half of a surrogate pair, which is no UTF-8 and no token.
        if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), token):
            raise Refused("403 Forbidden", "wrong token: open the address that the program printed, with its #t=")
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        key = new_token()
        self._count += 1
        self._sessions[key] = Session(self._count, new_token())
        secure = "; Secure" if environ.get("wsgi.url_scheme") == "https" else ""
        return f"{self._rules.cookie}={key}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _session(self, environ: WSGIEnvironment) -> Session | None:
        try:
            cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(self._rules.cookie)
        except CookieError:
            return None
        return self._sessions.get(cookie.value) if cookie is not None else None


def new_token() -> str:
    """Return a new secret of 128 bits."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def host_of(header: str) -> str | None:
    """Return the name in a ``Host`` header in lower case, without brackets and port; None for any other text."""
    match = _HOST.fullmatch(header)
    return match[1].strip("[]").lower() if match else None


def hosts_of(bound: str) -> frozenset[str]:
    """Return the names of a server that listens at an IP address; on every address also the machine's own name.

    Those of this machine always count: the way to a remote one is a tunnel (``ssh -L``) to its loopback.
    """
    address = ipaddress.ip_address(bound)
    names = {"localhost", "127.0.0.1", "::1", str(address)}
    if not address.is_loopback:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


def check_origin(environ: WSGIEnvironment) -> None:
    """Raise `Refused` for a request that no page of this server sent; every browser says where a POST comes from."""
    site, origin = environ.get("HTTP_SEC_FETCH_SITE"), environ.get("HTTP_ORIGIN")
    own = f"{environ.get('wsgi.url_scheme', 'http')}://{environ.get('HTTP_HOST', '')}"
    wrong_origin = origin is not None and origin.lower() != own.lower()
    if (site is None and origin is None) or site not in (None, "same-origin") or wrong_origin:
        raise Refused("403 Forbidden", "only a page of this server may change something here")


def check_length(environ: WSGIEnvironment) -> None:
    """Raise `Refused` for a body of unknown length, or one that is too long."""
    length = environ.get("CONTENT_LENGTH") or ("" if "HTTP_TRANSFER_ENCODING" in environ else "0")
    if not (length.isascii() and length.isdigit()):
        raise Refused("411 Length Required", "the body needs a Content-Length")
    if len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
        raise Refused("413 Content Too Large", f"the body has more than {MAX_BODY} bytes")


def check_csrf(environ: WSGIEnvironment) -> Session:
    """Return the session of a request that may change something: it names that session's secret; else `Refused`."""
    session: Session | None = environ.get(SESSION)
    given = environ.get("HTTP_X_WEIGHBRIDGE", "")
    if session is None or not hmac.compare_digest(given.encode(), session.csrf.encode()):
        raise Refused("403 Forbidden", "the secret of this session is missing: reload the page")
    return session


def read_json(environ: WSGIEnvironment) -> dict[str, Any]:
    """Return the object in the body of a request that passed `check_length`; raise `Refused` for anything else."""
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("415 Unsupported Media Type", "expected application/json")
    try:
        found = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused("400 Bad Request", "expected an object in JSON")
    return found


def refuse(refused: Refused, start_response: StartResponse) -> list[bytes]:
    """Answer a request that is refused, with one line of text."""
    body = f"{refused}\n".encode()
    extra = [("Allow", "GET, HEAD, POST")] if refused.status.startswith("405") else []
    plain = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), *extra]
    # What is left of the body is not worth reading.
    start_response(refused.status, with_headers([*plain, ("Connection", "close")]))
    return [body]


def with_headers(given: Headers) -> Headers:
    """Return headers with those of every answer; what is given stays."""
    names = {name.lower() for name, _ in given}
    return [*given, *(header for header in _HEADERS if header[0].lower() not in names)]


def _adding_headers(start_response: StartResponse) -> StartResponse:
    def start(status: str, headers: Headers, exc_info: Any = None) -> Callable[[bytes], object]:
        return start_response(status, with_headers(headers), exc_info)

    return start


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
