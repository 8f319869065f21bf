"""What an image is read from: a registry on a real socket, whose answers a test makes up."""

import contextlib
import gzip
import hashlib
import io
import json
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from deadlines import ANSWER_S

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import ContainerdApi
from bench_worker.engines.containerd.images import qualified_name
from bench_worker.engines.containerd.pull import is_for_this_machine, pull_image
from bench_worker.engines.containerd.registry import MANIFEST_TYPES, Registry, RegistryError
from bench_worker.engines.containerd.storage import chain_id
from bench_worker.engines.grpc import CallSequence, GrpcError, GrpcReply

OCI_INDEX, _, OCI_MANIFEST, _ = MANIFEST_TYPES
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"


def digest_of(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def packed(name):
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return layer.getvalue()


def zipped(layer):
    return gzip.compress(layer, mtime=0)


class Handler(BaseHTTPRequestHandler):
    """Answers from `server.answers` (path: status, type, content), to those who show `server.token` if it is set.

    A request for a path of `server.expiring` is the end of that token: from then on another is asked for.
    """

    def do_GET(self):
        server = self.server
        server.asked.append((self.path, self.headers.get("Authorization")))
        if self.path.startswith("/token?"):
            return self.answer(200, "application/json", json.dumps({"token": server.token}).encode())
        if self.path in server.expiring:
            server.token = server.expiring.pop(self.path)
        if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
            where = f"http://127.0.0.1:{server.server_port}/token"
            return self.answer(401, "text/plain", b"", f'Bearer realm="{where}",service="s",scope="pull x"')
        if self.path in server.elsewhere:
            return self.answer(307, "text/plain", b"", location=server.elsewhere[self.path])
        return self.answer(*server.answers.get(self.path.removeprefix("/v2/some/image/"), (404, "text/plain", b"")))

    def answer(self, status, kind, content, challenge="", location=""):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (("WWW-Authenticate", challenge), ("Location", location)):
            if value:
                self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(content)

    def log_message(self, *_words):
        """Say nothing."""


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    made.token, made.answers, made.elsewhere, made.asked, made.expiring = "", {}, {}, [], {}
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def put(server, content, kind="application/octet-stream", where="blobs"):
    """Have the server know content by its digest, and return a descriptor."""
    server.answers[f"{where}/{digest_of(content)}"] = (200, kind, content)
    return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}


def fill(server, *layers):
    """Have it know an image of layers, below an index for several machines; return its configuration."""
    config = json.dumps({"rootfs": {"diff_ids": [digest_of(layer) for layer in layers]}}).encode()
    parts = [put(server, zipped(layer), GZIP) for layer in layers]
    manifest = json.dumps({"config": put(server, config), "layers": parts}).encode()
    ours = put(server, manifest, OCI_MANIFEST, "manifests")
    others = {"mediaType": OCI_MANIFEST, "digest": digest_of(b"other"), "platform": {"architecture": "s390x"}}
    index = json.dumps({"manifests": [others, ours]}).encode()
    server.answers["manifests/1"] = (200, OCI_INDEX, index)
    return config


def registry(server, seconds=ANSWER_S):
    return Registry(f"127.0.0.1:{server.server_port}/some/image:1", time.monotonic() + seconds)


def refusal(call, *arguments):
    with pytest.raises(RegistryError) as caught:
        call(*arguments)
    return caught.value


def test_a_token_is_asked_for_once_and_shown_to_nobody_else(server):
    """It is given to everybody; where a blob is elsewhere, the token stays here."""
    server.token = "open-sesame"
    blob = put(server, b"x" * 300_000)
    found = registry(server)
    server.answers["manifests/1"] = (200, OCI_MANIFEST, b"{}")
    assert found.manifest(found.reference) == (OCI_MANIFEST, b"{}")
    server.elsewhere[f"/v2/some/image/blobs/{blob['digest']}"] = f"http://127.0.0.1:{server.server_port}/cdn"
    assert refusal(list, found.blob(blob["digest"], 300_000)).kind == "image-missing"
    paths = [path.partition("?")[0] for path, _ in server.asked]
    assert paths.count("/token") == 1
    assert [shown for path, shown in server.asked if path == "/cdn"] == [None]
    assert "service=s&scope=pull+x" in server.asked[1][0]


def test_a_token_that_expires_is_replaced_once(server):
    """The old one is not shown to get it, and a new one that is none ends the pull."""
    server.token = "early"
    blobs = [put(server, b"x" * size) for size in (100, 200)]
    found = registry(server)
    paths = [f"/v2/some/image/blobs/{blob['digest']}" for blob in blobs]
    server.expiring[paths[1]] = "late"
    for blob in blobs:
        assert sum(map(len, found.blob(blob["digest"], blob["size"]))) == blob["size"]
    assert [shown for path, shown in server.asked if path == paths[1]] == ["Bearer early", "Bearer late"]
    assert [shown for path, shown in server.asked if path.startswith("/token?")] == [None, None]
    asked = len(server.asked)
    server.token = "no\u0142"
    assert refusal(list, found.blob(blobs[0]["digest"], 100)).kind == "engine"
    assert [path.partition("?")[0] for path, _ in server.asked[asked:]] == [paths[0], "/token"]


def test_a_token_that_another_layer_has_replaced_is_used(server, monkeypatch):
    """Several layers are fetched at once, and all of their tokens expire at once."""
    server.token = "early"
    blob = put(server, b"x")
    found = registry(server)
    assert list(found.blob(blob["digest"], 1)) == [b"x"]
    server.token, opened = "late", found._open

    def replaced_meanwhile(*arguments):
        found._token = "late"
        return opened(*arguments)

    monkeypatch.setattr(found, "_open", replaced_meanwhile)
    assert list(found.blob(blob["digest"], 1)) == [b"x"]
    assert sum(path.startswith("/token?") for path, _ in server.asked) == 1


def test_the_deadline_holds_for_whoever_sends_slowly(server, monkeypatch):
    """Each byte comes long before the connection would be given up, and the last one never: it would take months."""
    blob, over = put(server, b"x" * 1000), threading.Event()

    def trickle(self, *_):
        self.send_response(200)
        self.send_header("Content-Length", "1000000000")
        self.end_headers()
        with contextlib.suppress(OSError):
            while not over.wait(0.01):
                self.wfile.write(b"x")

    monkeypatch.setattr(Handler, "answer", trickle)
    for call in (lambda found: list(found.blob(blob["digest"], 10**9)), lambda found: found.document(blob["digest"])):
        assert refusal(call, registry(server, 0.2)).kind == "timeout"
    over.set()


@pytest.mark.parametrize(
    "challenge",
    ["Basic realm='x'", 'Bearer realm="file:///etc/passwd"', 'Bearer realm="ftp://example.invalid/"', "Bearer", ""],
)
def test_a_login_that_nobody_gave(server, challenge, monkeypatch):
    """It is the image that cannot be had; and what a registry names as its realm is no file of ours."""
    monkeypatch.setattr(Handler, "do_GET", lambda self: self.answer(401, "text/plain", b"", challenge))
    refused = refusal(registry(server).manifest, "1")
    assert refused.kind == "image-missing"
    assert "denied" in str(refused)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (404, "image-missing", "has no some/image/manifests/1"),
        (403, "image-missing", "denied"),
        (500, "engine", "500"),
    ],
)
def test_what_a_registry_refuses(server, status, kind, words):
    """A missing image is told from a broken registry."""
    server.answers["manifests/1"] = (status, "text/plain", b"")
    refused = refusal(registry(server).manifest, "1")
    assert refused.kind == kind
    assert words in str(refused)


def test_what_a_registry_sends_is_checked(server):
    """A blob cut short, content of another digest, a name that is no digest, a document without end, no more time."""
    found = registry(server)
    blob = put(server, b"x" * 1000)
    assert "24 bytes too few" in str(refusal(list, found.blob(blob["digest"], 1024)))
    assert sum(map(len, found.blob(blob["digest"], 1000))) == 1000
    wrong = digest_of(b"wrong")
    server.answers[f"blobs/{wrong}"] = server.answers[f"manifests/{wrong}"] = (200, OCI_MANIFEST, b"right")
    assert refusal(found.document, wrong).kind == refusal(found.manifest, wrong).kind == "engine"
    assert "no digest" in str(refusal(found.document, "../../etc/passwd"))
    server.answers["manifests/1"] = (200, OCI_MANIFEST, b" " * ((4 << 20) + 1))
    assert "more than" in str(refusal(found.manifest, "1"))
    assert refusal(registry(server, 0).manifest, "1").kind == "timeout"
    server.shutdown()
    server.server_close()
    assert refusal(found.manifest, "1").kind == "unreachable"


class Containerd:
    """Stands for containerd's services: what is in `shared` another namespace has, what is in `content` this one."""

    def __init__(self, shared=()):
        self.content, self.labels, self.unpacked, self.images, self.shared = {}, {}, [], {}, set(shared)

    def call(self, method, requests, kind, *, timeout_s, metadata):
        assert timeout_s > 0
        assert metadata == [("containerd-lease", "l")]
        sent = list(requests)
        if method.endswith(("Content/Read", "Snapshots/Stat")):
            raise GrpcError(5, "not found", start_ns=1, end_ns=2)
        if method.endswith("Content/Write"):
            return self.write(sent, kind)
        if method.endswith("Apply"):
            self.unpacked.append(sent[0].diff.digest)
        if method.endswith("Images/Create"):
            self.images[sent[0].image.name] = sent[0].image.target
        return GrpcReply([kind()], 1, 2, 0)

    def write(self, sent, kind):
        [digest] = {one.expected for one in sent}
        if digest in self.content:
            raise GrpcError(6, "already exists", start_ns=1, end_ns=2)
        if sent[-1].action == messages.WriteContentRequest.STAT:
            return GrpcReply([kind(offset=sent[0].total if digest in self.shared else 0)], 1, 2, 0)
        assert sent[-1].action == messages.WriteContentRequest.COMMIT
        self.content[digest] = b"".join(one.data for one in sent)
        self.labels[digest] = dict(sent[-1].labels)
        return GrpcReply([kind()], 1, 2, 0)


def pull(server, store, image="some/image:1"):
    api = ContainerdApi("/nowhere")
    api.lease = lambda _timeout_s: contextlib.nullcontext(("containerd-lease", "l"))
    api.calls = lambda _timeout_s, metadata: CallSequence(store, 20, (), metadata)
    name = f"127.0.0.1:{server.server_port}/{image}"
    return pull_image(api, name, 20), name


def test_an_image_is_stored_with_what_holds_it_together(server):
    """Index, manifest, configuration, layers and snapshot: each names the next to the garbage collector."""
    layers = [packed("one"), packed("two"), packed("three"), packed("four")]
    config, store = fill(server, *layers), Containerd()
    before_ns = time.monotonic_ns()
    done, name = pull(server, store)
    assert done.start_ns >= before_ns
    digests = [digest_of(zipped(layer)) for layer in layers]
    assert store.unpacked == digests
    target = store.images[name]
    assert (target.media_type, target.digest) == (OCI_INDEX, digest_of(server.answers["manifests/1"][2]))
    [manifest] = store.labels[target.digest].values()
    assert set(store.labels[manifest].values()) == {digest_of(config), *digests}
    [chain] = store.labels[digest_of(config)].values()
    assert chain == chain_id([digest_of(layer) for layer in layers])
    asked = len(server.asked)
    pull(server, store)
    assert not any(path.rpartition("/")[2] in digests for path, _ in server.asked[asked:])


def test_a_layer_that_another_namespace_has_is_not_fetched(server):
    """It is complete from the beginning; this namespace notes that it has it, too."""
    layer = packed("one")
    fill(server, layer)
    digest = digest_of(zipped(layer))
    store = Containerd([digest])
    pull(server, store)
    assert store.content[digest] == b""
    assert not any(digest in path for path, _ in server.asked)


@pytest.mark.parametrize(
    ("document", "kind", "words"),
    [
        ({"manifests": [{"digest": "x", "platform": {"architecture": "s390x"}}]}, "image-missing", "this machine"),
        ({"manifests": [{"platform": {}}]}, "engine", "not valid"),
        ({"manifests": 5}, "engine", "not valid"),
        ({"config": {}, "layers": []}, "engine", "not valid"),
        ({"config": {"digest": "../../x"}, "layers": []}, "engine", "no digest"),
        ({"fsLayers": []}, "refused", "no image that containerd can run"),
        ([], "refused", "no image that containerd can run"),
        (7, "engine", "not valid"),
    ],
)
def test_a_manifest_that_is_none(server, document, kind, words):
    """One error, which begins when the pull began, and nothing gets a name."""
    server.answers["manifests/1"] = (200, OCI_MANIFEST, json.dumps(document).encode())
    store, before_ns = Containerd(), time.monotonic_ns()
    with pytest.raises(OperationFailed, match=words) as caught:
        pull(server, store)
    assert caught.value.kind == kind
    assert before_ns <= caught.value.start_ns <= caught.value.end_ns
    assert store.images == {}


def test_a_layer_that_is_missing_ends_the_pull(server):
    """It is named, and the other layers are given up."""
    fill(server, packed("one"), packed("two"))
    digest = digest_of(zipped(packed("two")))
    del server.answers[f"blobs/{digest}"]
    store = Containerd()
    with pytest.raises(OperationFailed, match=digest) as caught:
        pull(server, store)
    assert caught.value.kind == "image-missing"
    assert store.images == {}


def test_images_are_asked_for_where_their_names_say():
    """Docker's short names mean the Docker Hub; a digest goes before a tag."""
    assert Registry(qualified_name("busybox"), 0)._base == "https://registry-1.docker.io/v2/library/busybox"
    assert Registry("[::1]:5000/a/b:c", 0)._base == "http://[::1]:5000/v2/a/b"
    assert Registry("localhost/a:c", 0)._base == "http://localhost/v2/a"
    assert Registry("127.0.0.1.example.org/a:c", 0)._base.startswith("https://127.0.0.1.example.org/")
    found = Registry(f"quay.io/a/b:tag@sha256:{'0' * 64}", 0)
    assert (found._base, found.reference) == ("https://quay.io/v2/a/b", f"sha256:{'0' * 64}")


def test_which_entry_of_an_index_is_for_this_machine():
    """One that says nothing may be; attestations and other systems are not."""
    assert is_for_this_machine({})
    assert not is_for_this_machine({"platform": {"architecture": "unknown", "os": "unknown"}})
    assert not is_for_this_machine({"platform": {"os": "windows"}})
