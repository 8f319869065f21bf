"""An engine that exports an image without end: who takes it gives up with a reason, and fills no disk."""

import contextlib
import itertools
import json
import re
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from deadlines import ANSWER_S

from bench_common.errors import InfrastructureError
from bench_worker.engines.base import ImageUnavailable
from bench_worker.engines.containerd.images import import_archive
from bench_worker.engines.docker import archive
from bench_worker.engines.docker.archive import EndlessArchive, bounded_archive
from bench_worker.engines.docker.http import connect
from bench_worker.engines.docker.image_copy import ensure_image
from bench_worker.engines.oci import images as oci_images

SIZE_BYTES = 1 << 20
PIECE = b"x" * 65536
ENDLESS = re.compile(r"/(containers/c1/export|images/.*/get)$")
ANSWERS = {
    ("GET", "/version"): {"ApiVersion": "1.43", "MinAPIVersion": "1.24"},
    ("GET", "/images/i/json"): {"Id": "sha256:" + "a" * 64, "Size": SIZE_BYTES, "Config": {}},
    ("POST", "/containers/create"): {"Id": "c1"},
    ("DELETE", "/containers/c1"): {},
}


class Engine(BaseHTTPRequestHandler):
    """Has an image `i` whose export does not end; takes what it is sent."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        """Answer any request."""
        path = re.sub(r"^/v[0-9.]+", "", self.path.partition("?")[0])
        if self.server.empty and path.startswith("/images/i/"):
            self.reply(404, {"message": "No such image: i"})
        elif ENDLESS.search(path):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            while not self.server.stopped.is_set():
                try:
                    self.wfile.write(PIECE)
                except OSError:
                    self.close_connection = True
                    return
        else:
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                while size := int(self.rfile.readline() or b"0", 16):
                    self.server.taken_bytes += max(0, len(self.rfile.read(size + 2)) - 2)
                self.close_connection = True
            else:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with contextlib.suppress(OSError):
                self.reply(200, ANSWERS.get((self.command, path), {}))

    def reply(self, status, document):
        """Send a document."""
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(autouse=True)
def small_slack(monkeypatch):
    monkeypatch.setattr(archive, "SLACK_BYTES", SIZE_BYTES)


@pytest.fixture
def start_engine():
    """Return what starts a stub of an engine; each ends with the test."""
    servers = []

    def start(*, empty=False):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
        server.daemon_threads = True
        server.stopped, server.empty, server.taken_bytes = threading.Event(), empty, 0
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stopped.set()
        server.shutdown()
        server.server_close()


def address(server):
    return f"tcp://127.0.0.1:{server.server_address[1]}"


def test_an_image_that_is_unpacked_from_an_endless_export_is_unavailable(start_engine, tmp_path, monkeypatch):
    """With the sizes in the reason; nothing of it stays on the disk."""
    monkeypatch.setenv("DOCKER_HOST", address(start_engine()))
    monkeypatch.setattr(oci_images, "STORE", tmp_path / "store")
    with closing(oci_images.UnpackedImages()) as images, pytest.raises(ImageUnavailable) as caught:
        images.get("i", {})
    assert "the image has 1 MiB, as the engine says, and its export more than 5 MiB" in str(caught.value)
    assert list((tmp_path / "store" / "images").iterdir()) == []


def test_an_endless_export_is_not_copied_on_into_another_store(start_engine, monkeypatch):
    """The taker gets as much as an image of that size may have, and the copy fails with the reason."""
    monkeypatch.setenv("DOCKER_HOST", address(start_engine()))
    taker = start_engine(empty=True)
    with closing(connect(ANSWER_S, address(taker))) as engine, pytest.raises(InfrastructureError) as caught:
        ensure_image(engine, "i", "podman")
    assert str(caught.value) == (
        "image 'i' cannot be copied into Podman's store: the image has 1 MiB, as the engine says, "
        "and its export more than 5 MiB"
    )
    assert taker.taken_bytes <= archive.SIZE_FACTOR * SIZE_BYTES + SIZE_BYTES


def test_an_endless_archive_is_not_imported_into_containerd(tmp_path):
    """It is removed again before containerd is asked for anything."""
    with pytest.raises(EndlessArchive):
        import_archive(None, itertools.repeat(PIECE), {"Size": SIZE_BYTES}, tmp_path, "i")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("claim", [{"Size": 1 << 80}, {"Size": -1}, {"Size": "large"}, {}])
def test_what_an_engine_says_of_an_image_does_not_lift_the_limit(claim, monkeypatch):
    """Nor does a size that is none."""
    monkeypatch.setattr(archive, "LARGEST_BYTES", 3 * SIZE_BYTES)
    taken = bytearray()
    with pytest.raises(EndlessArchive, match="its export more than"):
        taken.extend(itertools.chain.from_iterable(bounded_archive(itertools.repeat(PIECE), claim)))
    assert len(taken) <= 3 * SIZE_BYTES


def test_an_archive_takes_no_more_than_most_of_what_is_free(tmp_path, monkeypatch):
    """A disk with less room than the archive may have is not filled; the reason says what it has."""
    room = type("Room", (), {"free": SIZE_BYTES})
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda folder: room)
    with pytest.raises(EndlessArchive, match=f"{tmp_path} has 1 MiB free, and the export of the image needs more"):
        list(bounded_archive(itertools.repeat(PIECE), {"Size": SIZE_BYTES}, tmp_path))


def test_an_archive_that_does_not_end_in_time_is_given_up(monkeypatch):
    """However small its pieces are."""
    clock = itertools.count(0, 600)
    monkeypatch.setattr(archive, "monotonic", lambda: next(clock))
    with pytest.raises(EndlessArchive, match="did not end within 3600 s"):
        list(bounded_archive(itertools.repeat(b""), {"Size": SIZE_BYTES}))


def test_an_archive_within_its_limit_is_passed_on_whole(tmp_path):
    """Piece by piece."""
    assert list(bounded_archive(iter([b"a", b"b"]), {"Size": 1}, tmp_path)) == [b"a", b"b"]
