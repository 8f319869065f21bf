"""What containerd stores for images and containers: content by its digest, and file systems as snapshots.

The API stores content, unpacks layers and compares snapshots; what an image is made of (a configuration, a manifest,
a name) its clients write, as here (`OCI image format <https://github.com/opencontainers/image-spec>`_).
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import tarfile
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final

import gevent

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import SNAPSHOTTER
from bench_worker.engines.grpc import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_worker.engines.grpc import CallSequence

IMAGES: Final = "images.v1.Images/"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
"""The type of a layer that is not compressed, as Docker's are not."""

CONFIG_LABEL: Final = "containerd.io/gc.ref.content.config"
LAYER_LABEL: Final = "containerd.io/gc.ref.content.l."
"""The labels by which containerd's garbage collector knows what a manifest refers to; a layer has a number."""

_SNAPSHOTS: Final = "snapshots.v1.Snapshots/"
_CONTENT: Final = "content.v1.Content/"
_PIECE_BYTES: Final = 1 << 18
_GZIP_MAGIC: Final = b"\x1f\x8b"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"


def snapshot_label(snapshotter: str) -> str:
    """Return the label by which the garbage collector knows that a snapshot is in use."""
    return f"containerd.io/gc.ref.snapshot.{snapshotter}"


class ImageWriter:
    """Writes the parts of an image; `calls` need a lease until the image has its name.

    `snapshotter` keeps the file systems of its layers.
    """

    def __init__(self, calls: CallSequence, snapshotter: str = SNAPSHOTTER) -> None:
        self._calls = calls
        self._snapshotter = snapshotter

    def write_layer(self, file: IO[bytes]) -> messages.Descriptor:
        """Store a layer and return its descriptor."""
        is_compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        digest: str = gevent.get_hub().threadpool.apply(_digest_of, (file,))
        file.seek(0)
        self._write(digest, size, iter(lambda: file.read(_PIECE_BYTES), b""), {})
        return messages.Descriptor(media_type=f"{LAYER}+gzip" if is_compressed else LAYER, digest=digest, size=size)

    def unpack(self, parent: str, layer: messages.Descriptor, diff_id: str) -> str:
        """Make the snapshot of a layer above `parent`, unless it exists; return its name."""
        chain = next_chain(parent, diff_id)
        with suppress(NotFound):
            self._calls.do(f"{_SNAPSHOTS}Stat", messages.SnapshotRequest(snapshotter=self._snapshotter, key=chain))
            return chain
        key = f"weighbridge-unpack-{secrets.token_hex(8)}"
        mounts = prepare_snapshot(self._calls, key, parent, self._snapshotter)
        try:
            self._calls.do("diff.v1.Diff/Apply", messages.ApplyRequest(diff=layer, mounts=mounts))
            self._calls.do(
                f"{_SNAPSHOTS}Commit",
                messages.CommitSnapshotRequest(snapshotter=self._snapshotter, name=chain, key=key),
            )
        except OperationFailed as failure:
            remove_snapshot(self._calls, key, self._snapshotter)
            # Another worker was faster.
            if failure.kind != "conflict":
                raise
        return chain

    def finish(
        self,
        name: str,
        config: bytes,
        chain: str,
        layers: Sequence[messages.Descriptor],
        labels: Mapping[str, str],
    ) -> None:
        """Store the configuration and the manifest of an image whose layers are stored, and give it its name.

        The labels of each part name what it refers to: the garbage collector goes by them.
        """
        config_part = self._write_document(_CONFIG, config, {snapshot_label(self._snapshotter): chain})
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _as_json(config_part),
            "layers": [_as_json(layer) for layer in layers],
        }
        refers = {f"{LAYER_LABEL}{index}": layer.digest for index, layer in enumerate(layers)}
        refers[CONFIG_LABEL] = config_part.digest
        target = self._write_document(_MANIFEST, json.dumps(manifest, sort_keys=True).encode(), refers)
        self.name_image(name, target, labels)

    def name_image(self, name: str, target: messages.Descriptor, labels: Mapping[str, str]) -> None:
        """Give a name to an image whose manifest or index is stored; one that has the name loses it."""
        image = messages.ImageMessage(image=messages.Image(name=name, labels=labels, target=target))
        try:
            self._calls.do(f"{IMAGES}Create", image)
        except OperationFailed as failure:
            if failure.kind != "conflict":
                raise
            self._calls.do(f"{IMAGES}Update", messages.UpdateImageRequest(image=image.image))

    def keep_snapshot(self, name: str, chain: str) -> None:
        """Note on an image that it has its file system in this snapshotter, too, for the garbage collector."""
        image = self._calls.call(f"{IMAGES}Get", messages.ImageRequest(name=name), messages.ImageMessage).image
        labels = {**image.labels, snapshot_label(self._snapshotter): chain}
        kept = messages.Image(name=name, labels=labels, target=image.target)
        self._calls.do(f"{IMAGES}Update", messages.UpdateImageRequest(image=kept))

    def write_content(self, digest: str, content: bytes, labels: Mapping[str, str]) -> None:
        """Store content; what is stored already stays."""
        self._write(digest, len(content), iter([content]), labels)

    def _write_document(self, media_type: str, content: bytes, labels: Mapping[str, str]) -> messages.Descriptor:
        digest = sha256_digest(content)
        self.write_content(digest, content, labels)
        return messages.Descriptor(media_type=media_type, digest=digest, size=len(content))

    def _write(
        self,
        digest: str,
        size: int,
        pieces: Iterator[bytes],
        labels: Mapping[str, str],
    ) -> None:
        """Store content; what is stored already stays."""
        reference = f"weighbridge-{secrets.token_hex(8)}"

        def requests() -> Iterator[messages.WriteContentRequest]:
            offset = 0
            for data in pieces:
                is_last = offset + len(data) == size
                yield messages.WriteContentRequest(
                    action=messages.WriteContentRequest.COMMIT if is_last else messages.WriteContentRequest.WRITE,
                    ref=reference,
                    total=size,
                    expected=digest,
                    offset=offset,
                    data=data,
                    labels=labels,
                )
                offset += len(data)

        try:
            self._calls.stream(f"{_CONTENT}Write", requests(), messages.WriteContentResponse)
        except OperationFailed as failure:
            if failure.kind != "conflict":
                raise


class ContentFile(io.RawIOBase):
    """Stored content as a file that can be read anywhere in it, by calls of the API."""

    def __init__(self, calls: CallSequence, content: messages.Descriptor) -> None:
        super().__init__()
        self._calls = calls
        self._content = content
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another place."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._content.size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read from the present place on; raise `OperationFailed`."""
        size = min(len(buffer), self._content.size - self._position)
        if size <= 0:
            return 0
        data = read_content(self._calls, self._content.digest, self._position, size)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def changed_bytes(calls: CallSequence, layer: messages.Descriptor) -> int:
    """Return how many bytes of files are in a layer, as Docker counts: without directories, names and holes."""
    content = io.BufferedReader(ContentFile(calls, layer), _PIECE_BYTES)
    with tarfile.open(fileobj=content, mode="r:") as changes:
        return sum(entry.size for entry in changes if entry.isreg())


def read_content(calls: CallSequence, digest: str, offset: int = 0, size: int = 0) -> bytes:
    """Return stored content from `offset` on, all of it where `size` is 0; raise `OperationFailed`."""
    request = messages.ReadContentRequest(digest=digest, offset=offset, size=size)
    replies = calls.stream(f"{_CONTENT}Read", [request], messages.ReadContentResponse)
    return b"".join(reply.data for reply in replies)


def save_layer(
    calls: CallSequence, left: Sequence[messages.Mount], container: str, snapshotter: str = SNAPSHOTTER
) -> messages.Descriptor:
    """Store what a container changed above the snapshot mounted by `left`, as a layer; return its descriptor."""
    right = calls.call(
        f"{_SNAPSHOTS}Mounts",
        messages.SnapshotRequest(snapshotter=snapshotter, key=container),
        messages.MountsResponse,
    ).mounts
    reference = f"weighbridge-{secrets.token_hex(8)}"
    request = messages.DiffRequest(left=left, right=right, media_type=LAYER, ref=reference)
    return calls.call("diff.v1.Diff/Diff", request, messages.DiffResponse).diff


def snapshot_parent(calls: CallSequence, key: str, snapshotter: str = SNAPSHOTTER) -> str:
    """Return the name of the snapshot below another one; raise `OperationFailed`."""
    request = messages.SnapshotRequest(snapshotter=snapshotter, key=key)
    return calls.call(f"{_SNAPSHOTS}Stat", request, messages.StatSnapshotResponse).info.parent


def prepare_snapshot(
    calls: CallSequence, key: str, parent: str, snapshotter: str = SNAPSHOTTER
) -> Sequence[messages.Mount]:
    """Make a writable snapshot above `parent`; return what mounts it. Raises `OperationFailed`."""
    request = messages.PrepareSnapshotRequest(snapshotter=snapshotter, key=key, parent=parent)
    return calls.call(f"{_SNAPSHOTS}Prepare", request, messages.MountsResponse).mounts


def remove_snapshot(calls: CallSequence, key: str, snapshotter: str = SNAPSHOTTER) -> None:
    """Remove a snapshot; a missing one is no error. Raises `OperationFailed`."""
    calls.do_if_present(f"{_SNAPSHOTS}Remove", messages.SnapshotRequest(snapshotter=snapshotter, key=key))


@contextmanager
def view(calls: CallSequence, chain: str, snapshotter: str = SNAPSHOTTER) -> Iterator[Sequence[messages.Mount]]:
    """Give what mounts a snapshot read-only; raise `OperationFailed`."""
    key = f"weighbridge-view-{secrets.token_hex(8)}"
    request = messages.PrepareSnapshotRequest(snapshotter=snapshotter, key=key, parent=chain)
    mounts = calls.call(f"{_SNAPSHOTS}View", request, messages.MountsResponse).mounts
    try:
        yield mounts
    finally:
        with suppress(OperationFailed):
            remove_snapshot(calls, key, snapshotter)


def chain_id(diff_ids: Sequence[str]) -> str:
    """Return the name of the snapshot of these layers, the lowest first (OCI image-spec, "Layer ChainID")."""
    chain = ""
    for diff_id in diff_ids:
        chain = next_chain(chain, diff_id)
    return chain


def next_chain(parent: str, diff_id: str) -> str:
    """Return the name of the snapshot of one more layer above `parent` (nothing where that is empty)."""
    return sha256_digest(f"{parent} {diff_id}".encode()) if parent else diff_id


def sha256_digest(content: bytes) -> str:
    """Return the digest that content is stored under."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _digest_of(file: Any) -> str:
    return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _as_json(part: messages.Descriptor) -> dict[str, Any]:
    return {"mediaType": part.media_type, "digest": part.digest, "size": part.size}
