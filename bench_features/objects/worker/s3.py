"""S3: objects in buckets, by paths (``http://HOST/BUCKET/KEY``), signed with version 4, large ones in parts.

A container's name becomes a bucket's: AWS allows neither underscores nor capital letters.
"""

from __future__ import annotations

import email.utils
import html
import re
import time
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import unquote_plus

from bench_common.safe_text import one_line
from bench_features.objects.common.access import bucket_name
from bench_features.objects.worker.base import (
    MAX_LISTED,
    MIN_PART_BYTES,
    Body,
    StoreAnswer,
    StoreEntry,
    StoreUnavailable,
)
from bench_features.objects.worker.http_store import (
    CONFLICT,
    FORBIDDEN,
    USER_AGENT,
    HttpSlot,
    HttpStore,
    length_of,
    parts_of,
    unescaped,
)
from bench_features.objects.worker.sigv4 import EMPTY_PAYLOAD, UNSIGNED_PAYLOAD, Signer, query_of, quoted
from bench_features.objects.worker.swift import SERVER_PROCESSES
from bench_features.objects.worker.wire import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_features.objects.common.access import Access
    from bench_features.objects.worker.base import StoreOptions

DEFAULT_REGION: Final = "us-east-1"
MAX_PARTS: Final = 10_000
"""How many parts an object may have."""
SKEW_LIMIT_S: Final = 60.0
"""From this difference on a refused signature is put down to the clocks, in seconds; servers allow 15 minutes."""
MAX_ERROR_BYTES: Final = 64 * 1024


class S3Store(HttpStore):
    """An S3 store, path style."""

    name: ClassVar[str] = "s3"
    server_processes: ClassVar[frozenset[str]] = SERVER_PROCESSES | {
        "garage",
        "minio",
        "radosgw",
        "rustfs",
        "seaweedfs",
        "versitygw",
        "weed",
    }

    def __init__(self, access: Access, options: StoreOptions) -> None:
        super().__init__(access, options)
        self.region = access.region or DEFAULT_REGION
        self.signer = Signer(access.user, access.key, self.region, token=access.token)
        self.clock: Callable[[], float] = time.time

    def open(self) -> None:
        """Check the access. Raises `StoreUnavailable`; nothing is asked yet, since S3 has no login."""
        if not self.access.user or not self.access.key:
            given = f" ({self.access.source} does not have both)" if self.access.source else ""
            raise StoreUnavailable(
                f"nobody to sign requests as{given}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a "
                "profile; a store to try with: script/store start"
            )
        if self.options.delete_after_s is not None:
            raise StoreUnavailable(
                "delete_after: S3 deletes no single object after a time; leave it out, or use swift"
            )
        self._set_endpoints(self.access.endpoints or (f"https://s3.{self.region}.amazonaws.com",))

    def slot(self, number: int) -> S3Slot:
        """Return the slot of that number."""
        return S3Slot(self, number)

    def check(self) -> list[str]:
        """Return what is wrong: an endpoint that is none, a key, a region or a clock that the store refuses."""
        found = self.slot(0).list_containers()
        return [] if found.ok else [f"{self.endpoints[0]}: {found.message} ({found.kind})"]

    def container_name(self, name: str) -> str:
        """Return the bucket of a container."""
        return bucket_name(name)


class S3Slot(HttpSlot):
    """The operations of one user."""

    def __init__(self, store: S3Store, number: int) -> None:
        super().__init__(store, number)
        self._s3 = store
        self._extra: dict[str, str] = {}
        self._storage_class = {"x-amz-storage-class": store.options.policy} if store.options.policy else {}

    @staticmethod
    def _path(container: str, name: str = "") -> str:
        """Return the quoted path of a bucket or an object."""
        path = f"/{quoted(bucket_name(container))}"
        return f"{path}/{quoted(name)}" if name else path

    def put(self, container: str, name: str, body: Body, *, update: bool = False) -> StoreAnswer:
        """Create an object, or replace it; in parts above a size."""
        del update
        above = self._options.multipart_above_bytes
        if above is not None and (size := length_of(body)) > above:
            return self._put_in_parts(self._path(container, name), body, size)
        kind = b"Content-Type: application/octet-stream\r\n"
        result, _ = self._ask_with_class("PUT", self._path(container, name), "", kind, body)
        if result.ok:
            result.length = length_of(body)
        return result

    def delete(self, container: str, name: str, *, in_parts: bool = False) -> StoreAnswer:
        """Delete an object, with its parts."""
        del in_parts
        result, _ = self._ask("DELETE", self._path(container, name))
        return result

    def delete_rest(self, container: str, name: str) -> StoreAnswer:
        """Abort the uploads that nobody completed."""

        def steps(total: StoreAnswer) -> StoreAnswer:
            self._abort_uploads(total, container, name)
            return total

        return self._in_steps(steps)

    def list_objects(
        self, container: str, *, prefix: str = "", marker: str = "", limit: int = MAX_LISTED
    ) -> StoreAnswer:
        """List a page of a bucket's objects."""
        values = {"list-type": "2", "encoding-type": "url", "max-keys": str(min(limit, MAX_LISTED))}
        values |= {name: value for name, value in (("prefix", prefix), ("start-after", marker)) if value}
        result, text = self._page(self._path(container), query_of(values))
        if result.ok:
            try:
                result.entries = _entries_of(text)
            except ValueError as error:
                result.kind, result.message = "protocol", one_line(f"the listing is not what S3 sends: {error}")
        return result

    def list_containers(self, *, prefix: str = "", marker: str = "", limit: int = MAX_LISTED) -> StoreAnswer:
        """List a page of the buckets."""
        result, text = self._page("/", "")
        if result.ok:
            names = sorted(_element(each, "Name") for each in _elements(text, "Bucket"))
            start = bucket_name(prefix)
            found = [name for name in names if name.startswith(start) and name > marker]
            result.entries = tuple(StoreEntry(name) for name in found[:limit])
            if b"<ListAllMyBucketsResult" not in text:
                result.kind, result.message = "protocol", "the listing of buckets is not what S3 sends"
        return result

    def make_container(self, container: str) -> StoreAnswer:
        """Make a bucket; one that is there already is a success, with status 409, and stays as it is."""
        body: Body = ()
        if self._s3.region != DEFAULT_REGION:
            place = f"<LocationConstraint>{html.escape(self._s3.region)}</LocationConstraint>"
            body = (f"<CreateBucketConfiguration>{place}</CreateBucketConfiguration>".encode(),)

        def steps(total: StoreAnswer) -> StoreAnswer:
            # AWS answers 200 to who makes his own bucket anew in us-east-1, as if it were new, and resets its ACLs.
            there, _ = self._ask("HEAD", self._path(container))
            self._add(total, there)
            if there.ok:
                total.status = CONFLICT
                return total
            result, answer = self._ask("PUT", self._path(container), body=body)
            self._add(total, result)
            if result.status == CONFLICT and answer is not None and _code(answer) == "BucketAlreadyOwnedByYou":
                total.kind, total.message = None, ""
            return total

        return self._in_steps(steps)

    def delete_container(self, container: str) -> StoreAnswer:
        """Delete an empty bucket, and the uploads in parts that nobody completed."""

        def steps(total: StoreAnswer) -> StoreAnswer:
            if self._options.multipart_above_bytes is not None:
                # The uploads of a bucket that stays may be somebody's who is at work.
                first = self.list_objects(container, limit=1)
                self._add(total, first)
                if first.entries:
                    total.kind, total.status = f"http-{CONFLICT}", CONFLICT
                    total.message = "the bucket is not empty"
                if not total.ok:
                    return total
                self._abort_uploads(total, container)
            self._add(total, self._ask("DELETE", self._path(container))[0])
            return total

        return self._in_steps(steps)

    # -- large objects ----------------------------------------------------------------------------------------------

    def _put_in_parts(self, path: str, body: Body, size: int) -> StoreAnswer:
        part_bytes = max(self._options.part_bytes, MIN_PART_BYTES, -(-size // MAX_PARTS))
        upload = ""

        def steps(total: StoreAnswer) -> StoreAnswer:
            nonlocal upload
            result, answer = self._ask_with_class("POST", path, "uploads=")
            self._add(total, result)
            upload = _element(answer.body, "UploadId") if answer is not None and result.ok else ""
            if not upload:
                if result.ok:
                    total.kind, total.message = (
                        "protocol",
                        "the store began an upload in parts, and named no UploadId",
                    )
                return total
            parts = []
            for number, part in enumerate(parts_of(body, part_bytes), 1):
                query = query_of({"partNumber": str(number), "uploadId": upload})
                result, _ = self._ask("PUT", path, query, b"", part)
                self._add(total, result)
                if not result.ok:
                    break
                parts.append(
                    f'<Part><PartNumber>{number}</PartNumber><ETag>"{html.escape(result.etag)}"</ETag></Part>'
                )
            else:
                text = f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>".encode()
                result, answer = self._ask("POST", path, query_of({"uploadId": upload}), b"", (text,))
                if result.ok and answer is not None:
                    _judge_completion(result, answer)
                self._add(total, result)
            if total.ok:
                total.length = size
            return total

        total = self._in_steps(steps)
        if upload and not total.ok:
            # In a time of its own, which the upload may have used up, and not in the result: the failure counts.
            self._in_steps(lambda _: self._ask("DELETE", path, query_of({"uploadId": upload}))[0])
        return total

    def _abort_uploads(self, total: StoreAnswer, container: str, only: str = "") -> None:
        """Abort the uploads in a bucket, or those of one object."""
        query = {"uploads": "", **({"prefix": only} if only else {})}
        result, text = self._page(self._path(container), query_of(query))
        self._add(total, result)
        for each in _elements(text, "Upload") if result.ok else ():
            name = _text(each, "Key")
            if only in ("", name):
                upload = query_of({"uploadId": _element(each, "UploadId")})
                self._add(total, self._ask("DELETE", self._path(container, name), upload)[0])

    def _ask_with_class(
        self, method: str, path: str, query: str = "", headers: bytes = b"", body: Body = ()
    ) -> tuple[StoreAnswer, Answer | None]:
        """Send a request that makes an object: with the storage class, which the others must not have."""
        self._extra = self._storage_class
        try:
            return self._ask(method, path, query, headers, body)
        finally:
            self._extra = {}

    # -- how S3 does it --------------------------------------------------------------------------------------------

    def _authorize(self, method: str, path: str, query: str, headers: bytes) -> bytes:
        host = self._s3.wires[self.endpoint].authority
        payload = UNSIGNED_PAYLOAD if method in ("PUT", "POST") else EMPTY_PAYLOAD
        extra = self._extra
        signed = self._s3.signer.sign(method, host, path, query, self._s3.clock(), payload=payload, headers=extra)
        return signed + headers + USER_AGENT

    def _transaction_id(self, answer: Answer) -> str:
        return answer.field(b"x-amz-request-id").decode("latin-1")

    def _explain(self, answer: Answer) -> str:
        """Return the store's words, and in plain ones what a clock, a region or a key has to do with it."""
        code, message = _code(answer), _element(answer.body[:MAX_ERROR_BYTES], "Message")
        advice = self._advice(code, answer)
        if not code:
            return one_line(advice or super()._explain(answer))
        return one_line(f"{advice + ': ' if advice else ''}{code}: {message}")

    def _advice(self, code: str, answer: Answer) -> str:
        store = self._s3
        region = _element(answer.body[:MAX_ERROR_BYTES], "Region") or answer.headers.get(
            b"x-amz-bucket-region", b""
        ).decode("latin-1")
        if region and region != store.region and answer.status in (301, 307, 400, 403):
            return f"requests are signed for region {store.region}; the store is in {region}: set AWS_REGION={region}"
        if answer.status != FORBIDDEN:
            return ""
        ahead_s = self._clock_ahead_s(answer)
        if code == "RequestTimeTooSkewed" or abs(ahead_s) > SKEW_LIMIT_S:
            side = "ahead of" if ahead_s > 0 else "behind"
            return f"this host's clock is {abs(ahead_s):.0f} s {side} the store's: set the clock (NTP)"
        if code == "InvalidAccessKeyId":
            return f"the store does not know the access key of {store.access.source}"
        if code == "SignatureDoesNotMatch":
            return (
                f"the secret key of {store.access.source} is not that of its access key, or the store knows neither"
            )
        return ""

    def _clock_ahead_s(self, answer: Answer) -> float:
        """Return by how much this host's clock is ahead of the server's, as far as its answer tells; else 0."""
        try:
            theirs = email.utils.parsedate_to_datetime(answer.headers.get(b"date", b"").decode("latin-1")).timestamp()
        except (ValueError, TypeError):
            return 0.0
        return self._s3.clock() - theirs


def _code(answer: Answer) -> str:
    return _element(answer.body[:MAX_ERROR_BYTES], "Code")


def _judge_completion(result: StoreAnswer, answer: Answer) -> None:
    """Find the failure in the answer that completes an upload: its status is 200 in any case."""
    code = _code(answer)
    if code:
        result.kind, result.message = "http-500", one_line(f"{code}: {_element(answer.body, 'Message')}")
    else:
        result.etag = _element(answer.body, "ETag").strip('"')


def _entries_of(text: bytes) -> tuple[StoreEntry, ...]:
    """Return the objects of a listing; raise `ValueError` for what is none."""
    if b"<ListBucketResult" not in text:
        raise ValueError("it has no ListBucketResult")
    encoded = _element(text, "EncodingType") == "url"
    return tuple(
        StoreEntry(
            unquote_plus(_text(each, "Key")) if encoded else _text(each, "Key"),
            int(_element(each, "Size") or 0),
            _element(each, "ETag").strip('"'),
        )
        for each in _elements(text, "Contents")
    )


# The lists and errors of S3 are flat, and come from servers that nobody has to trust: no XML parser reads them.


def _elements(text: bytes, name: str) -> list[bytes]:
    """Return the content of each element of a name."""
    return re.findall(rb"<%(n)s(?:\s[^>]*)?>(.*?)</%(n)s>" % {b"n": name.encode()}, text, re.DOTALL)


def _element(text: bytes, name: str) -> str:
    """Return the text of the first element of a name, without blanks around it; empty where there is none."""
    return _text(text, name).strip()


def _text(text: bytes, name: str) -> str:
    """Return the same with its blanks, which are a part of a key."""
    found = re.search(rb"<%(n)s(?:\s[^>]*)?>([^<]*)</%(n)s>" % {b"n": name.encode()}, text)
    return unescaped(found[1].decode("utf-8", "replace")) if found else ""
