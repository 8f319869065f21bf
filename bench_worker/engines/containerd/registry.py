"""Reads images from a registry (`OCI distribution specification <https://github.com/opencontainers/distribution-spec>`_).

Nobody logs in: a registry that asks for a token gives one to everybody, or the image is not public. A registry on the
loopback interface is asked by plain HTTP, and every other by HTTPS, with the certificates that this machine trusts.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib import error as urllib_error
from urllib import request as urllib_request
from urllib.parse import urlencode, urlsplit

from bench_common.errors import WeighbridgeError

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')
_LOOPBACK: Final = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
_DOCKER_HUB: Final = "docker.io"
_DOCKER_HUB_HOST: Final = "registry-1.docker.io"
_MAX_DOCUMENT_BYTES: Final = 4 << 20
"""What registries allow manifests to have at most."""
_PIECE_BYTES: Final = 1 << 18
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404


class RegistryError(WeighbridgeError):
    """A registry did not give what was asked of it; `kind` is that of `OperationFailed`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Registry:
    """The repository of an image, called by its whole name; all that it is asked has to be answered by `deadline`."""

    def __init__(self, name: str, deadline: float) -> None:
        self._name = name
        self._deadline = deadline
        name, _, digest = name.partition("@")
        self._host, _, rest = name.partition("/")
        self._repository, _, tag = rest.partition(":")
        self.reference = digest or tag
        """The tag or digest of the image."""
        local = _LOOPBACK.fullmatch(self._host) is not None
        host = _DOCKER_HUB_HOST if self._host == _DOCKER_HUB else self._host
        self._base = f"{'http' if local else 'https'}://{host}/v2/{self._repository}"
        self._token = ""
        self._opener = urllib_request.OpenerDirector()
        for handler in (
            urllib_request.ProxyHandler({} if local else None),
            urllib_request.HTTPHandler(),
            urllib_request.HTTPSHandler(),
            urllib_request.HTTPRedirectHandler(),
            urllib_request.HTTPErrorProcessor(),
            urllib_request.HTTPDefaultErrorHandler(),
        ):
            self._opener.add_handler(handler)

    def manifest(self, reference: str) -> tuple[str, bytes]:
        """Return the type and the text of a manifest, by its tag or digest; raise `RegistryError`."""
        with self._answer(f"manifests/{reference}", ", ".join(MANIFEST_TYPES)) as answer:
            content = self._read_document(answer)
            kind = str(answer.headers.get_content_type())
        if _DIGEST.fullmatch(reference):
            check_digest(reference, content)
        return kind, content

    def document(self, digest: str) -> bytes:
        """Return a small blob; raise `RegistryError`."""
        with self._answer(f"blobs/{_checked(digest)}") as answer:
            content = self._read_document(answer)
        check_digest(digest, content)
        return content

    def blob(self, digest: str, size: int) -> Iterator[bytes]:
        """Give a blob of `size` bytes in pieces; raise `RegistryError`. Its digest is for the receiver to check."""
        with self._answer(f"blobs/{_checked(digest)}") as answer:
            while size > 0:
                piece = self._read(answer, min(_PIECE_BYTES, size))
                if not piece:
                    raise RegistryError("engine", f"{self._host} sent {size} bytes too few of {digest}")
                size -= len(piece)
                yield piece

    @contextmanager
    def _answer(self, path: str, accepted: str = "*/*") -> Iterator[Any]:
        """Give the answer to a request; raise `RegistryError`, also for what fails while it is read."""
        address, token = f"{self._base}/{path}", self._token
        try:
            try:
                answer = self._open(address, accepted, token)
            except urllib_error.HTTPError as error:
                error.close()
                if error.code != _UNAUTHORIZED or error.filename != address:
                    raise
                # There is no token yet, or it has expired; another greenlet may have a new one already.
                if self._token == token:
                    self._token = self._new_token(error.headers.get("WWW-Authenticate", ""))
                answer = self._open(address, accepted, self._token)
            with answer:
                yield answer
        except urllib_error.HTTPError as error:
            error.close()
            raise self._refusal(error.code, path) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._check_time()
            reason = getattr(error, "reason", None) or error
            raise RegistryError("unreachable", f"registry {self._host} does not answer: {reason}") from error

    def _open(self, address: str, accepted: str = "*/*", token: str = "") -> Any:
        asked = urllib_request.Request(address, headers={"Accept": accepted, "User-Agent": "weighbridge"})  # noqa: S310
        if token:
            # It is for this registry, and not for whom it refers to.
            asked.add_unredirected_header("Authorization", f"Bearer {token}")
        self._check_time()
        return self._opener.open(asked, timeout=max(0.001, self._deadline - time.monotonic()))

    def _new_token(self, challenge: str) -> str:
        """Return the token that a registry wants to see (`how <https://distribution.github.io/distribution/spec/auth>`_)."""
        scheme, _, rest = challenge.partition(" ")
        given = dict(_PARAMETER.findall(rest))
        realm = given.pop("realm", "")
        trusted = urlsplit(realm).scheme == "https" or self._base.startswith(f"{urlsplit(realm).scheme}:")
        if scheme.lower() != "bearer" or not trusted:
            raise RegistryError("image-missing", f"access to {self._name} is denied: {self._host} wants a login")
        given = {name: given[name] for name in ("service", "scope") if name in given}
        with self._open(f"{realm}?{urlencode(given)}") as answer:
            found = json.loads(self._read_document(answer))
        token = found.get("token") or found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RegistryError("engine", f"{self._host} gives no token")
        return token

    def _refusal(self, status: int, path: str) -> RegistryError:
        if status == _NOT_FOUND:
            return RegistryError("image-missing", f"registry {self._host} has no {self._repository}/{path}")
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            return RegistryError("image-missing", f"access to {self._name} is denied (HTTP {status})")
        return RegistryError("engine", f"registry {self._host} answered {path} with HTTP {status}")

    def _read_document(self, answer: Any) -> bytes:
        content = self._read(answer, _MAX_DOCUMENT_BYTES + 1)
        if len(content) > _MAX_DOCUMENT_BYTES:
            raise RegistryError("engine", f"{self._host} sent a document of more than {_MAX_DOCUMENT_BYTES} bytes")
        return content

    def _read(self, answer: Any, size: int) -> bytes:
        """Return the next `size` bytes, or those up to the end; a slow sender gets no more time with each of them."""
        content = bytearray()
        while len(content) < size:
            piece = answer.read1(min(_PIECE_BYTES, size - len(content)))
            self._check_time()
            if not piece:
                break
            content += piece
        return bytes(content)

    def _check_time(self) -> None:
        if time.monotonic() >= self._deadline:
            raise RegistryError("timeout", f"pulling {self._name} did not finish in time")


def check_digest(digest: str, content: bytes) -> None:
    """Raise `RegistryError` unless content has this digest."""
    if _checked(digest) != f"sha256:{hashlib.sha256(content).hexdigest()}":
        raise RegistryError("engine", f"digest mismatch for {digest}")


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise RegistryError("engine", f"{digest!r} is no digest of the kind sha256:HEX")
    return digest
