"""OpenStack Swift: objects in containers of an account, large ones as static large objects (SLO).

Parts of a large object are in a container of their own, ``CONTAINER+segments``, under the object's name and the
number of the upload, so that an update can leave the old parts alone until the new object is complete.
"""

from __future__ import annotations

import json
from time import time_ns
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlencode, urlsplit

from bench_common.errors import did_you_mean
from bench_common.safe_text import one_line
from bench_features.objects.worker.base import MAX_LISTED, Body, StoreAnswer, StoreEntry, StoreUnavailable
from bench_features.objects.worker.http_store import (
    OK,
    USER_AGENT,
    HttpSlot,
    HttpStore,
    deadline_after,
    length_of,
    parts_of,
)
from bench_features.objects.worker.session import LOGIN_TIMEOUT_S, Session
from bench_features.objects.worker.wire import Answer, Request, WireError
from bench_worker.http import quoted

if TYPE_CHECKING:
    from bench_features.objects.common.access import Access
    from bench_features.objects.worker.base import StoreOptions

SEGMENTS: Final = "+segments"
"""What the container of the parts is called, after the name of the objects' container."""
SERVER_PROCESSES: Final = frozenset(
    {"memcached", *(f"swift-{name}-server"[:15] for name in ("proxy", "account", "container", "object"))}
)
MAX_PARTS: Final = 1000
"""How many parts an object may have, by Swift's default."""
_NOT_IN_PARTS: Final = b"Not an SLO manifest"
"""What Swift says where an object is to be deleted with its parts and has none."""


class SwiftStore(HttpStore):
    """A Swift account, with one login for all slots."""

    name: ClassVar[str] = "swift"
    server_processes: ClassVar[frozenset[str]] = SERVER_PROCESSES

    def __init__(self, access: Access, options: StoreOptions) -> None:
        super().__init__(access, options)
        self.session = Session(access, self.open_wire)
        expiry = b"" if options.delete_after_s is None else b"X-Delete-After: %d\r\n" % options.delete_after_s
        self.put_headers = b"Content-Type: application/octet-stream\r\n" + expiry
        self.container_headers = f"X-Storage-Policy: {options.policy}\r\n".encode() if options.policy else b""

    def open(self) -> None:
        """Log in, and find the storage URLs. Raises `StoreUnavailable`."""
        self.session.open()
        urls = self.access.endpoints or (self.session.url,)
        if not all(urls):
            raise StoreUnavailable(
                "there is a token, and no storage URL to use it with: set OS_STORAGE_URL, or give -S URL"
            )
        account = urlsplit(self.session.url).path
        # An endpoint without a path is another proxy of the same account.
        self._set_endpoints(url if urlsplit(url).path.strip("/") else url.rstrip("/") + account for url in urls)

    def slot(self, number: int) -> SwiftSlot:
        """Return the slot of that number."""
        return SwiftSlot(self, number)

    def close(self) -> None:
        """Close every connection."""
        self.session.close()
        super().close()

    def check(self) -> list[str]:
        """Return what is wrong: an account that refuses us, a storage policy that the store does not have."""
        found = self.slot(0).list_containers(limit=1)
        if not found.ok:
            return [f"{self.endpoints[0]}: {found.message} ({found.kind})"]
        policies = self.policies() if self.options.policy else []
        if policies and self.options.policy.lower() not in [each.lower() for each in policies]:
            hint = did_you_mean(self.options.policy, policies)
            known = ", ".join(policies)
            return [f"{self.endpoints[0]} has no storage policy {self.options.policy!r}{hint}; it has: {known}"]
        return []

    def info(self) -> dict[str, Any]:
        """Return what the store tells everybody about itself; empty where it does not."""
        parts = urlsplit(self.endpoints[0])
        path = parts.path.partition("/v1")[0] + "/info"
        connection = self.wires[0].connection()
        try:
            answer = connection.exchange(Request("GET", path, USER_AGENT), deadline_after(LOGIN_TIMEOUT_S))
            found = json.loads(answer.body) if answer.status == OK else {}
        except (WireError, ValueError):
            return {}
        finally:
            connection.close()
        return found if isinstance(found, dict) else {}

    def policies(self) -> list[str]:
        """Return the names of the storage policies, the default one first; empty where the store does not tell."""
        try:
            found = self.info()["swift"]["policies"]
            ordered = sorted(found, key=lambda each: not each.get("default"))
            aliases = [str(each.get("aliases") or each["name"]).split(", ") for each in ordered]
        except (KeyError, TypeError, AttributeError):
            return []
        return [name for names in aliases for name in names]


class SwiftSlot(HttpSlot):
    """The operations of one user."""

    def __init__(self, store: SwiftStore, number: int) -> None:
        super().__init__(store, number)
        self._swift = store
        self._sent = b""

    @staticmethod
    def _path(container: str, name: str = "") -> str:
        """Return the quoted path of a container or an object."""
        path = f"/{quoted(container)}"
        return f"{path}/{quoted(name, '/')}" if name else path

    def put(self, container: str, name: str, body: Body, *, update: bool = False) -> StoreAnswer:
        """Create an object, or replace it (`update`); in parts above a size."""
        above = self._options.multipart_above_bytes
        if above is not None and (size := length_of(body)) > above:
            return self._put_in_parts(container, name, body, size, update=update)
        result, _ = self._ask("PUT", self._path(container, name), "", self._swift.put_headers, body)
        if result.ok:
            result.length = length_of(body)
        return result

    def delete(self, container: str, name: str, *, in_parts: bool = False) -> StoreAnswer:
        """Delete an object; `in_parts`: with its parts."""
        path = self._path(container, name)
        result = self._in_steps(lambda total: self._delete_in_parts(total, path)) if in_parts else self._delete(path)
        if result.kind == "http-404" and result.retries:
            result.kind, result.message = None, ""  # an earlier try has deleted it, and its answer was lost
        return result

    def delete_rest(self, container: str, name: str) -> StoreAnswer:
        """Delete the parts that belong to no object any more."""
        return self._in_steps(lambda total: self._tidy(total, container + SEGMENTS, f"{name}/", keep=""))

    def list_objects(
        self, container: str, *, prefix: str = "", marker: str = "", limit: int = MAX_LISTED
    ) -> StoreAnswer:
        """List a page of a container's objects."""
        return self._list(self._path(container), prefix, marker, limit)

    def list_containers(self, *, prefix: str = "", marker: str = "", limit: int = MAX_LISTED) -> StoreAnswer:
        """List a page of the account's containers."""
        return self._list("", prefix, marker, limit)

    def make_container(self, container: str) -> StoreAnswer:
        """Make a container, and one for parts where objects may be large."""

        def steps(total: StoreAnswer) -> StoreAnswer:
            names = (
                (container, container + SEGMENTS) if self._options.multipart_above_bytes is not None else (container,)
            )
            for name in names:
                result, _ = self._ask("PUT", self._path(name), "", self._swift.container_headers)
                self._add(total, result)
                if result.kind == "http-409":
                    total.message = (
                        f"container {name} is there, with another storage policy than {self._options.policy}"
                    )
                if not result.ok:
                    break
            return total

        return self._in_steps(steps)

    def delete_container(self, container: str) -> StoreAnswer:
        """Delete an empty container, and what is left of parts."""

        def steps(total: StoreAnswer) -> StoreAnswer:
            result = self._delete(self._path(container))
            self._add(total, result)
            # The parts of a container that is not empty are in use.
            if self._options.multipart_above_bytes is None or result.kind not in (None, "http-404"):
                return total
            segments = container + SEGMENTS
            if self._delete_parts(total, segments, "", keep=""):
                self._add(total, self._delete(self._path(segments)))
            if total.kind == "http-404" and result.ok:
                total.kind, total.message, total.status = None, "", result.status  # it had no parts
            return total

        return self._in_steps(steps)

    def _delete(self, path: str) -> StoreAnswer:
        return self._ask("DELETE", path)[0]

    # -- large objects ----------------------------------------------------------------------------------------------

    def _delete_in_parts(self, total: StoreAnswer, path: str) -> StoreAnswer:
        """Delete an object with its parts; one that has none after all, as it is."""
        result, answer = self._ask("DELETE", path, "multipart-manifest=delete")
        if result.ok and answer is not None:
            _judge_bulk_delete(result, answer.body)
        self._add(total, result)
        if answer is not None and _NOT_IN_PARTS in answer.body:
            self._add(total, self._delete(path))
        return total

    def _put_in_parts(self, container: str, name: str, body: Body, size: int, *, update: bool) -> StoreAnswer:
        part_bytes = max(self._options.part_bytes, -(-size // MAX_PARTS))
        segments = container + SEGMENTS
        upload = f"{name}/{time_ns():x}-{self.number}/"

        def steps(total: StoreAnswer) -> StoreAnswer:
            manifest = []
            for number, part in enumerate(parts_of(body, part_bytes)):
                path = f"{upload}{number:08d}"
                result, _ = self._ask("PUT", self._path(segments, path), "", self._swift.put_headers, part)
                self._add(total, result)
                if not result.ok:
                    return total
                entry = {"path": f"/{segments}/{path}", "etag": result.etag, "size_bytes": length_of(part)}
                manifest.append(entry)
            text = json.dumps(manifest).encode()
            headers = self._swift.put_headers
            result, _ = self._ask("PUT", self._path(container, name), "multipart-manifest=put", headers, (text,))
            self._add(total, result)
            if result.ok:
                total.length = size
            return total

        total = self._in_steps(steps)
        if update or not total.ok:
            # Not in its time: the parts of the object that was replaced, or of this one if it failed.
            self._in_steps(lambda extra: self._tidy(extra, segments, f"{name}/", keep=upload if total.ok else ""))
        return total

    def _tidy(self, total: StoreAnswer, segments: str, prefix: str, *, keep: str) -> StoreAnswer:
        self._delete_parts(total, segments, prefix, keep=keep)
        return total

    def _delete_parts(self, total: StoreAnswer, segments: str, prefix: str, *, keep: str) -> bool:
        """Delete the parts with `prefix` but for those with `keep`; say whether their container is there."""
        marker = ""
        while True:
            page = self._list(self._path(segments), prefix, marker, MAX_LISTED)
            self._add(total, page)
            if not page.ok:
                return page.kind != "http-404"
            if not page.entries:
                return True
            for entry in page.entries:
                marker = entry.name
                if not keep or not entry.name.startswith(keep):
                    self._add(total, self._delete(self._path(segments, entry.name)))

    # -- how Swift does it ------------------------------------------------------------------------------------------

    def _authorize(self, method: str, path: str, query: str, headers: bytes) -> bytes:
        del method, path, query
        self._sent = self._swift.session.header
        return self._sent + headers + USER_AGENT

    def _transaction_id(self, answer: Answer) -> str:
        return (answer.field(b"x-trans-id") or answer.field(b"x-openstack-request-id")).decode("latin-1")

    def _login_again(self, result: StoreAnswer) -> bool:
        del result
        return self._swift.session.renew(self._sent)

    def _explain_refusal(self, message: str) -> str:
        return one_line(f"{self._swift.session.explain_refusal()} ({message})")

    def _accepted_again(self) -> None:
        self._swift.session.accepted()

    def _list(self, path: str, prefix: str, marker: str, limit: int) -> StoreAnswer:
        query = {"format": "json", "limit": str(limit), "prefix": prefix, "marker": marker}
        result, text = self._page(path, urlencode({name: value for name, value in query.items() if value}))
        if result.ok:
            try:
                result.entries = tuple(
                    StoreEntry(
                        str(each["name"]),
                        int(each["bytes"]),
                        str(each.get("hash", "")),
                        each.get("count"),
                        "slo_etag" in each,
                    )
                    for each in (json.loads(text) if text else ())
                    if "name" in each
                )
            except (ValueError, TypeError, KeyError) as error:
                result.kind, result.message = "protocol", f"the listing is not what Swift sends: {error}"
        return result


def _judge_bulk_delete(result: StoreAnswer, text: bytes) -> None:
    """Find the failure in the answer to deleting an object with its parts, whose own status is always 200."""
    fields = dict(line.partition(b": ")[::2] for line in text.splitlines())
    status = fields.get(b"Response Status", b"").decode("latin-1")
    nothing = fields.get(b"Number Deleted", b"").strip() == b"0"
    if nothing and fields.get(b"Number Not Found", b"0").strip() != b"0":
        status = "404 Not Found"
    if status and not status.startswith("2"):
        result.status = int(status[:3]) if status[:3].isdecimal() else 500
        result.kind, result.message = (
            f"http-{result.status}",
            one_line(f"deleting the object and its parts: {status}"),
        )
