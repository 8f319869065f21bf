"""What Swift and S3 slots ask for, and what they make of the answers, with a server of a few lines."""

from time import monotonic_ns
from urllib.parse import parse_qs, urlsplit

import pytest

from bench_common.secret import Secret
from bench_features.objects.common.access import Access
from bench_features.objects.worker.base import MIB, StoreOptions
from bench_features.objects.worker.s3 import S3Store
from bench_features.objects.worker.swift import SwiftStore
from bench_features.objects.worker.wire import Answer, WireError

NOT_AN_SLO = b"Number Deleted: 0\nResponse Status: 400 Bad Request\nResponse Body: Not an SLO manifest\n"
FOUND = b"<ListBucketResult><Contents><Key>o</Key><Size>%s</Size></Contents></ListBucketResult>"
NOTHING = b"<ListBucketResult></ListBucketResult>"
UPLOADS = b"<R><Upload><Key>o</Key><UploadId>1</UploadId></Upload></R>"


class Server:
    """Answers what `answer(method, path, query)` says: a status, 0 for no answer, and a body; notes each request."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []
        self.heads = []
        self.deadlines = []
        self.length = b""
        """What each answer tells as its length instead of its own."""

    def exchange(self, request, deadline_ns):
        now = monotonic_ns()
        parts = urlsplit(request.target)
        query = parse_qs(parts.query, keep_blank_values=True)
        path = parts.path.removeprefix("/v1/AUTH_test")
        self.asked.append(f"{request.method} {path}" + "".join(f" {name}" for name in sorted(query)))
        self.heads.append(request.headers)
        self.deadlines.append(deadline_ns)
        status, body = self.answer(request.method, path, query)
        if not status:
            raise WireError("timeout", "no answer", start_ns=now, end_ns=now, answer_begun=False)
        head = b"HTTP/1.1 %d X\r\nContent-Length: %b\r\n\r\n" % (status, self.length or b"%d" % len(body))
        if request.sink is not None and status < 300:
            request.sink(memoryview(body))
        return Answer(status, head, body, len(body), now, now, now, 0, 0, 0, retried_idle=False)

    def drop(self):
        self.asked.append("closed")


def slot_of(protocol, answer, **options):
    """Return a slot, and the server that it asks."""
    options = StoreOptions(**{"multipart_above_bytes": MIB, "part_bytes": 5 * MIB, **options})
    access = Access(protocol, endpoints=("http://store/v1/AUTH_test",), user="u", key=Secret("k"), token=Secret("t"))
    store = (S3Store if protocol == "s3" else SwiftStore)(access, options)
    store._set_endpoints(access.endpoints if protocol == "swift" else ("http://store",))
    slot, server = store.slot(0), Server(answer)
    slot._connections[0] = server
    return slot, server


@pytest.mark.parametrize("protocol", ["swift", "s3"])
def test_a_connection_of_its_own_is_for_a_whole_operation(protocol):
    """With all its parts and tries: it is closed once, at the end."""
    failing = iter([503, 404])

    def answer(method, _path, query):
        if "uploads" in query:
            return 200, b"<UploadId>1</UploadId>"
        return (next(failing), b"") if method == "HEAD" else (200, b"")

    slot, server = slot_of(protocol, answer, new_connections=True, retries=1, retry_pause_s=0.0)
    assert slot.put("c", "o", [bytes(11 * MIB)]).ok
    assert len(server.asked) == {"swift": 5, "s3": 6}[protocol]
    assert server.asked.index("closed") == len(server.asked) - 1
    assert slot.head("c", "o").kind == "http-404"
    assert server.asked[-3:] == ["HEAD /c/o", "HEAD /c/o", "closed"]
    assert slot.get("c", "o").ok
    assert server.asked[-2:] == ["GET /c/o", "closed"]


def test_a_swift_container_that_stays_keeps_its_parts():
    """Those of a container that is not empty are of objects in use."""
    statuses = {"/c": 409, "/c%2Bsegments": 204}
    slot, server = slot_of("swift", lambda _method, path, _query: (statuses[path], b""))
    assert slot.delete_container("c").kind == "http-409"
    assert server.asked == ["DELETE /c"]
    for gone, status, kind in ((204, 404, None), (404, 404, "http-404"), (404, 204, None), (204, 503, "http-503")):
        statuses |= {"/c": gone, "/c%2Bsegments": status}
        assert slot.delete_container("c").kind == kind, (gone, status)


def test_a_bucket_that_stays_keeps_its_uploads():
    """They are aborted only where the bucket is empty, and so about to go."""
    bucket = [FOUND % b"5"]

    def answer(method, _path, query):
        return (204, b"") if method == "DELETE" else (200, UPLOADS if "uploads" in query else bucket[0])

    slot, server = slot_of("s3", answer)
    refused = slot.delete_container("c")
    assert (refused.kind, refused.status) == ("http-409", 409)
    assert server.asked == ["GET /c encoding-type list-type max-keys"]
    bucket[0] = NOTHING
    assert slot.delete_container("c").ok
    assert server.asked[2:] == ["GET /c uploads", "DELETE /c/o uploadId", "DELETE /c"]


def test_a_bucket_that_is_there_is_not_made_again():
    """AWS would answer as if it were new, and reset who may use it; its status tells that the run did not make it."""
    there = [404]
    slot, server = slot_of("s3", lambda method, _path, _query: (there[0] if method == "HEAD" else 200, b""))
    made = slot.make_container("c")
    assert (made.kind, made.status, made.requests) == (None, 200, 2)
    there[0] = 200
    found = slot.make_container("c")
    assert (found.kind, found.status) == (None, 409)
    assert server.asked == ["HEAD /c", "PUT /c", "HEAD /c"]


def test_a_failed_upload_is_aborted_in_a_time_of_its_own():
    """The upload may have used up its own; its failure is what is told."""

    def answer(method, _path, query):
        return {"PUT": 0, "POST": 200, "DELETE": 204}[method], UPLOADS if "uploads" in query else b""

    slot, server = slot_of("s3", answer)
    assert slot.put("c", "o", [bytes(2 * MIB)]).kind == "timeout"
    assert server.asked == ["POST /c/o uploads", "PUT /c/o partNumber uploadId", "DELETE /c/o uploadId"]
    assert server.deadlines[0] == server.deadlines[1] < server.deadlines[2]


def test_the_storage_class_goes_with_what_makes_an_object_only():
    """Other requests that name one are refused by some servers."""
    slot, server = slot_of(
        "s3", lambda _method, _path, query: (200, UPLOADS if "uploads" in query else b""), policy="X"
    )
    slot.put("c", "o", [b"x"])
    slot.get("c", "o")
    slot.put("c", "o", [bytes(2 * MIB)])
    slot.head("c", "o")
    named = [asked for asked, head in zip(server.asked, server.heads, strict=True) if b"x-amz-storage-class" in head]
    assert named == ["PUT /c/o", "POST /c/o uploads"]


def test_an_object_that_is_not_in_parts_after_all_is_deleted():
    """After an update in doubt it may be of either kind."""
    slot, server = slot_of("swift", lambda *asked: (200, NOT_AN_SLO) if asked[2] else (204, b""))
    deleted = slot.delete("c", "o", in_parts=True)
    assert (deleted.kind, deleted.status, deleted.requests) == (None, 204, 2)
    assert server.asked == ["DELETE /c/o multipart-manifest", "DELETE /c/o"]


def test_what_failed_uploads_left_of_one_object_is_deleted():
    """And nothing of another one whose name begins like it."""
    left = b'[{"name": "o/1/00000000", "bytes": 1}]'
    slot, server = slot_of("swift", lambda method, _, query: (200, b"" if "marker" in query else left))
    assert slot.delete_rest("c", "o").ok
    assert server.asked[:2] == ["GET /c%2Bsegments format limit prefix", "DELETE /c%2Bsegments/o/1/00000000"]
    uploads = b"<R><Upload><Key>o2</Key><UploadId>2</UploadId></Upload></R>" + UPLOADS
    slot, server = slot_of("s3", lambda method, *_: (204, b"") if method == "DELETE" else (200, uploads))
    assert slot.delete_rest("c", "o").ok
    assert server.asked == ["GET /c prefix uploads", "DELETE /c/o uploadId"]


@pytest.mark.parametrize("size", [b"x", b"9" * 5000], ids=["no number", "a number without an end"])
def test_a_listing_with_an_odd_size_is_a_failure(size):
    """It is not one of this program."""
    slot, _ = slot_of("s3", lambda *_: (200, FOUND % size))
    assert slot.list_objects("c").kind == "protocol"


def test_a_reference_without_an_end_is_no_failure_of_this_program():
    """It stays as the server wrote it."""
    slot, _ = slot_of("s3", lambda *_: (400, b"<Code>&#%b;</Code>" % (b"9" * 5000)))
    assert slot.head("c", "o").message.startswith("&#999")


def test_a_length_beyond_any_object_is_none():
    """Python refuses to read numbers of so many digits."""
    slot, server = slot_of("swift", lambda *_: (200, b""))
    for length, told in ((b"123", 123), (b"9" * 5000, 0), (b"-1", 0)):
        server.length = length
        assert slot.head("c", "o").length == told
