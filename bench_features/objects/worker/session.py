"""Logs in to Swift, once for all slots of a process, and keeps the token valid.

Version 1 is Swift's own (TempAuth and its like); versions 2 and 3 are Keystone's, as plain posts of JSON. A token
that says how long it lives is renewed ahead of that, while operations go on with the old one. A token that the store
refuses (401) leads to one login, however many slots were refused at the same time; where new tokens are refused as
well, logins become rare, so that a store which refuses everything is not flooded with them.
"""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import gevent
from gevent.lock import BoundedSemaphore

from bench_common.errors import did_you_mean
from bench_common.safe_text import one_line
from bench_common.secret import Secret
from bench_features.objects.common.access import Access
from bench_features.objects.worker.base import StoreUnavailable
from bench_features.objects.worker.wire import Answer, Request, Wire, WireError

if TYPE_CHECKING:
    from gevent import Greenlet

LOGIN_TIMEOUT_S: Final = 30.0
RENEW_AHEAD_S: Final = 60.0
"""A token is renewed so long before it ends, in seconds; or after 80 % of its life, if that is later."""
LIFE_SHARE: Final = 0.8
MAX_PAUSE_S: Final = 60.0
"""The longest time between two logins whose tokens the store refuses, in seconds."""
OK: Final = 200
UNAUTHORIZED: Final = 401
NOT_FOUND: Final = 404
FORBIDDEN: Final = 403
MULTIPLE_CHOICES: Final = 300
INTERFACES: Final = ("public", "internal", "admin")


@dataclass(frozen=True, slots=True)
class Token:
    """What a login grants."""

    secret: Secret
    url: str
    """The storage URL; empty where the login names none."""
    life_s: float | None = None
    """How long it is valid, in seconds; None: unknown."""


class Session:
    """The login of one process. `open_wire(url, what)` opens the place of a URL."""

    def __init__(self, access: Access, open_wire: Callable[[str, str], Wire]) -> None:
        self._access = access
        self._open_wire = open_wire
        self._wire: Wire | None = None
        self._lock = BoundedSemaphore()
        self._renewal: Greenlet[[], None] | None = None
        self._refused = 0
        """How many tokens in a row the store has refused."""
        self._not_before = 0.0
        """When the next login may be tried after a refusal."""
        self._failure = ""
        """Why the last login failed."""
        self.logins = 0
        """How many logins have succeeded."""
        self.url = ""
        """The storage URL that the login named."""
        self.header = b""
        """The header line with the token."""

    def open(self) -> None:
        """Log in. Raises `StoreUnavailable` with why, and what to do."""
        if self._access.auth_version:
            self._log_in(anew=False)
        elif self._access.token:
            self._use(Token(self._access.token, ""))
        else:
            raise StoreUnavailable(describe_lack(self._access))

    def close(self) -> None:
        """Renew nothing any more."""
        if self._renewal is not None:
            self._renewal.kill(block=False)
            self._renewal = None
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def renew(self, refused: bytes) -> bool:
        """Return whether there is another token than `refused`, a header line that the store answered with 401.

        One caller logs in, the others wait for it.
        """
        with self._lock:
            if self.header != refused:
                return True
            if not self._access.auth_version or monotonic() < self._not_before:
                return False
            self._refused += 1
            self._not_before = monotonic() + min(MAX_PAUSE_S, 2.0 ** (self._refused - 1) - 1)
            try:
                self._log_in(anew=True)
            except StoreUnavailable as error:
                self._failure = str(error)
                self._not_before = max(self._not_before, monotonic() + 1)
                return False
            return True

    def accepted(self) -> None:
        """Note that the store accepts the present token, which followed a refused one."""
        self._refused = 0

    def explain_refusal(self) -> str:
        """Return why a token is refused and nothing can be done about it."""
        if not self._access.auth_version:
            return "the store refuses the given token, and without a user and a key nobody can log in again"
        if self._failure:
            return f"the token is no longer valid, and the login failed: {self._failure}"
        return (
            f"the store refuses the tokens that {self._access.auth_url} grants ({self._refused} in a row): "
            "do the two belong together?"
        )

    def _log_in(self, *, anew: bool) -> None:
        token = self._granted(anew=anew)
        self.logins += 1
        self._failure = ""
        self._use(token)

    def _use(self, token: Token) -> None:
        text = token.secret.reveal()
        if not text.isprintable() or not text.isascii():
            raise StoreUnavailable("the token has characters that no header can have")
        self.header = f"X-Auth-Token: {text}\r\n".encode()
        self.url = self.url or token.url
        if token.life_s is not None and token.life_s > 0:
            if self._renewal is not None and self._renewal is not gevent.getcurrent():
                self._renewal.kill(block=False)
            wait_s = max(token.life_s * LIFE_SHARE, token.life_s - RENEW_AHEAD_S)
            self._renewal = gevent.spawn_later(wait_s, self._renew_ahead)

    def _renew_ahead(self) -> None:
        """Log in before the token ends. Where that fails, a 401 will lead to the next login."""
        pause_s = 1.0
        while True:
            with self._lock:
                try:
                    self._log_in(anew=True)
                except StoreUnavailable as error:
                    self._failure = str(error)
                else:
                    return
            gevent.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)

    def _granted(self, *, anew: bool) -> Token:
        access = self._access
        match access.auth_version:
            case "1":
                return self._version_1(anew=anew)
            case "2":
                return self._version_2()
            case "3":
                return self._version_3()
        raise StoreUnavailable(f"{access.source}: there is no authentication version {access.auth_version!r}; "
                               "expected 1, 2 or 3")  # fmt: skip

    # -- the three versions ---------------------------------------------------------------------------------------

    def _version_1(self, *, anew: bool) -> Token:
        access = self._access
        if not access.user or not access.key:
            raise StoreUnavailable(describe_lack(access))
        headers = f"X-Auth-User: {_header_text(access.user)}\r\nX-Auth-Key: {_header_text(access.key.reveal())}\r\n"
        if anew:
            headers += "X-Auth-New-Token: true\r\n"  # otherwise tempauth returns the one that is about to end
        answer = self._ask("GET", access.auth_url, headers.encode("utf-8"), b"")
        found = answer.headers
        token = found.get(b"x-auth-token", found.get(b"x-storage-token", b"")).decode("latin-1")
        url = found.get(b"x-storage-url", b"").decode("latin-1")
        if not token or not url:
            missing = "X-Auth-Token" if not token else "X-Storage-Url"
            raise StoreUnavailable(
                f"{access.auth_url} answers without {missing}: a login's URL is like http://HOST:8080/auth/v1.0"
            )
        life = found.get(b"x-auth-token-expires", b"").decode("latin-1")
        return Token(Secret(token), url, float(life) if life.isdigit() else None)

    def _version_2(self) -> Token:
        access = self._access
        if not access.user or not access.key:
            raise StoreUnavailable(describe_lack(access))
        auth: dict[str, Any] = {"passwordCredentials": {"username": access.user, "password": access.key.reveal()}}
        if access.project_id:
            auth["tenantId"] = access.project_id
        elif access.project:
            auth["tenantName"] = access.project
        url = f"{_keystone_root(access.auth_url)}/v2.0/tokens"
        _, body = self._post(url, {"auth": auth})
        with _odd_answers(url):
            granted = body["access"]
            token = granted["token"]
            catalogue = {
                str(service.get("type")): [
                    (str(each.get("region", "")), interface, str(each[f"{interface}URL"]))
                    for each in service["endpoints"]
                    for interface in INTERFACES
                    if each.get(f"{interface}URL")
                ]
                for service in granted.get("serviceCatalog") or ()
            }
            return Token(Secret(str(token["id"])), self._endpoint(catalogue), _life_s(str(token.get("expires", ""))))

    def _version_3(self) -> Token:
        access = self._access
        identity: dict[str, Any]
        scope: dict[str, Any] | None = None
        if access.application_credential_id or access.application_credential:
            given: dict[str, Any] = {"secret": access.key.reveal()}
            if access.application_credential_id:
                given["id"] = access.application_credential_id
            else:
                given |= {"name": access.application_credential, "user": self._user()}
            identity = {"methods": ["application_credential"], "application_credential": given}
        elif access.key and (access.user or access.user_id):
            user = {**self._user(), "password": access.key.reveal()}
            identity = {"methods": ["password"], "password": {"user": user}}
            scope = self._scope()
        elif access.token:
            identity = {"methods": ["token"], "token": {"id": access.token.reveal()}}
            scope = self._scope()
        else:
            raise StoreUnavailable(describe_lack(access))
        url = f"{_keystone_root(access.auth_url)}/v3/auth/tokens"
        answer, body = self._post(url, {"auth": {"identity": identity, **({"scope": scope} if scope else {})}})
        secret = Secret(answer.headers.get(b"x-subject-token", b"").decode("latin-1"))
        if not secret:
            raise StoreUnavailable(f"{url} answers without X-Subject-Token: it is no Keystone of version 3")
        with _odd_answers(url):
            granted = body["token"]
            catalogue = {
                str(service.get("type")): [
                    (str(each.get("region_id") or each.get("region") or ""), str(each["interface"]), str(each["url"]))
                    for each in service["endpoints"]
                ]
                for service in granted.get("catalog") or ()
            }
            return Token(secret, self._endpoint(catalogue), _life_s(str(granted.get("expires_at", ""))))

    def _user(self) -> dict[str, Any]:
        access = self._access
        if access.user_id:
            return {"id": access.user_id}
        return {"name": access.user, "domain": _domain(access.user_domain, access.user_domain_id)}

    def _scope(self) -> dict[str, Any] | None:
        access = self._access
        if access.project_id:
            return {"project": {"id": access.project_id}}
        if access.project:
            domain = _domain(
                access.project_domain or access.user_domain, access.project_domain_id or access.user_domain_id
            )
            return {"project": {"name": access.project, "domain": domain}}
        return None

    def _endpoint(self, catalogue: dict[str, list[tuple[str, str, str]]]) -> str:
        """Return the store's URL from a catalogue: services with region, interface and URL of their endpoints."""
        access = self._access
        if access.endpoints and all(urlsplit(url).path.strip("/") for url in access.endpoints):
            return ""
        where = f"the catalogue of {access.auth_url}"
        if not catalogue:
            raise StoreUnavailable(
                f"{where} is empty: name the project (OS_PROJECT_NAME), or the storage URL (-S, OS_STORAGE_URL)"
            )
        if access.service_type not in catalogue:
            kind = access.service_type
            hint = did_you_mean(kind, catalogue)
            raise StoreUnavailable(f"{where} has no service {kind!r}{hint}; it has: {', '.join(sorted(catalogue))}")
        found = catalogue[access.service_type]
        interface = access.interface.removesuffix("URL")
        regions = sorted({region for region, _, _ in found})
        if access.region and access.region not in regions:
            hint = did_you_mean(access.region, regions)
            raise StoreUnavailable(f"{where} has no region {access.region!r}{hint}; it has: {', '.join(regions)}")
        for region, kind, url in found:
            if kind == interface and region == (access.region or region):
                return url
        kinds = sorted({kind for _, kind, _ in found})
        raise StoreUnavailable(
            f"{where} has no {interface!r} endpoint{did_you_mean(interface, kinds)}; it has: {', '.join(kinds)}"
        )

    # -- requests -------------------------------------------------------------------------------------------------

    def _post(self, url: str, value: dict[str, Any]) -> tuple[Answer, dict[str, Any]]:
        headers = b"Content-Type: application/json\r\nAccept: application/json\r\n"
        answer = self._ask("POST", url, headers, json.dumps(value).encode())
        with _odd_answers(url):
            body = json.loads(answer.body)
            if not isinstance(body, dict):
                raise TypeError
            return answer, body

    def _ask(self, method: str, url: str, headers: bytes, body: bytes) -> Answer:
        """Send a login and return the answer to it. Raises `StoreUnavailable` where it does not succeed."""
        if self._wire is None:
            self._wire = self._open_wire(url, "the URL of the login")
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        request = Request(method, target, b"User-Agent: weighbridge\r\n" + headers, (body,) if body else ())
        connection = self._wire.connection()
        try:
            answer = connection.exchange(request, monotonic_ns() + int(LOGIN_TIMEOUT_S * 1e9))
        except WireError as error:
            raise StoreUnavailable(f"cannot log in at {url}: {one_line(error.message)}") from None
        finally:
            connection.close()
        if OK <= answer.status < MULTIPLE_CHOICES:
            return answer
        raise StoreUnavailable(self._explain(url, answer))

    def _explain(self, url: str, answer: Answer) -> str:
        access = self._access
        status = answer.status
        who = access.user or access.user_id or access.application_credential or access.application_credential_id
        if status in (UNAUTHORIZED, FORBIDDEN):
            project = access.project or access.project_id
            where = f" of project {project!r}" if project else ""
            return f"{url} refuses user {who!r}{where} or the key ({status}); they come from {access.source}"
        if status == NOT_FOUND:
            return (
                f"{url} is not there (404): check the URL ({access.source}) and the version ({access.auth_version})"
            )
        if status == MULTIPLE_CHOICES:
            return f"{url} offers several versions (300): give the version (-V 2 or -V 3)"
        try:
            message = str(json.loads(answer.body)["error"]["message"])
        except (ValueError, TypeError, KeyError):
            message = ""
        return one_line(f"cannot log in at {url}: HTTP status {status} {message}".rstrip())


@contextmanager
def _odd_answers(url: str) -> Iterator[None]:
    """Turn what is wrong with an answer's form into `StoreUnavailable`, without the answer, which holds a token."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError):
        raise StoreUnavailable(f"{url} answers, but not as Keystone does: is this its URL?") from None


def describe_lack(access: Access) -> str:
    """Return what is missing for a login."""
    given = f" ({access.source} does not have all of it)" if access.source else ""
    if access.auth_version in ("2", "3"):
        needed = "OS_AUTH_URL, OS_USERNAME, OS_PASSWORD and OS_PROJECT_NAME"
    else:
        needed = "ST_AUTH, ST_USER and ST_KEY (-A, -U, -K), or OS_AUTH_TOKEN and OS_STORAGE_URL (-T, -S)"
    return (
        f"no credentials for the object store{given}: set {needed}, or name a profile; "
        "a store to try with: script/store start"
    )


def _keystone_root(url: str) -> str:
    root = url.rstrip("/")
    for ending in ("/tokens", "/auth", "/v3", "/v2.0", "/v2"):
        root = root.removesuffix(ending)
    return root


def _domain(name: str, identity: str) -> dict[str, str]:
    """Return a domain; the default one of every Keystone where none is named."""
    return {"id": identity} if identity else {"name": name} if name else {"id": "default"}


def _header_text(text: str) -> str:
    if not text.isprintable():
        raise StoreUnavailable("the user or the key has characters that no header can have")
    return text


def _life_s(expires: str) -> float | None:
    """Return how long a token is valid that ends at an instant in ISO 8601 (UTC), in seconds."""
    try:
        end = calendar.timegm(time.strptime(expires[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
    return end - time.time()
