"""Signs requests to S3 with AWS Signature Version 4.

Source: "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API reference. The key of a day is kept,
and so is the date of a second. Bodies are not hashed (UNSIGNED-PAYLOAD): hashing a mebibyte takes a millisecond.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from bench_common.secret import NO_SECRET, Secret
from bench_worker.http import quoted as quoted_part

UNSIGNED_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
EMPTY_PAYLOAD: Final = sha256(b"").hexdigest()
ALGORITHM: Final = "AWS4-HMAC-SHA256"
_NOTHING: Final[Mapping[str, str]] = {}


class Signer:
    """Signs for one user, region and service."""

    def __init__(
        self, access_key: str, key: Secret, region: str, *, token: Secret = NO_SECRET, service: str = "s3"
    ) -> None:
        self._access_key = access_key
        self._key = key
        self._region = region
        self._service = service
        self._token = token
        self._second = -1
        self._date = ""
        self._scope = ""
        self._day_key = b""

    def sign(
        self,
        method: str,
        host: str,
        path: str,
        query: str,
        now_s: float,
        *,
        payload: str = EMPTY_PAYLOAD,
        headers: Mapping[str, str] = _NOTHING,
    ) -> bytes:
        """Return the header lines of a request: its date, the payload's hash, `headers` and the signature.

        `path` and `query` are those of the request, as `quoted` and `query_of` return them; `host` is its Host
        header; `now_s` is the time of day (seconds since 1970). Names in `headers` are in lower case.
        """
        second = int(now_s)
        if second != self._second:
            self._set_time(second)
        signed = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": self._date, **headers}
        if self._token:
            signed["x-amz-security-token"] = self._token.reveal()
        names = sorted(signed)
        lines = "".join([f"{name}:{signed[name]}\n" for name in names])
        listed = ";".join(names)
        request = f"{method}\n{path}\n{query}\n{lines}\n{listed}\n{payload}".encode()
        text = f"{ALGORITHM}\n{self._date}\n{self._scope}\n{sha256(request).hexdigest()}".encode()
        signature = hmac.digest(self._day_key, text, "sha256").hex()
        del signed["host"]
        sent = "".join([f"{name}: {value}\r\n" for name, value in signed.items()])
        credential = f"Credential={self._access_key}/{self._scope}, SignedHeaders={listed}, Signature={signature}"
        return f"{sent}authorization: {ALGORITHM} {credential}\r\n".encode()

    def _set_time(self, second: int) -> None:
        self._second = second
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        if date[:8] != self._date[:8]:
            key = f"AWS4{self._key.reveal()}".encode()
            for part in (date[:8], self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day_key = key
            self._scope = f"{date[:8]}/{self._region}/{self._service}/aws4_request"
        self._date = date


def quoted(path: str) -> str:
    """Return a path as it is sent and signed: every byte but letters, digits and ``-._~/`` is escaped."""
    return quoted_part(path, "/~")


def query_of(values: Mapping[str, str]) -> str:
    """Return a query as it is sent and signed: sorted, with a value for each name."""
    return "&".join(sorted(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in values.items()))
