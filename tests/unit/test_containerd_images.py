"""Images that are written to containerd: imported from Docker, and saved from containers."""

import contextlib
import hashlib
import io
import json
import tarfile

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import ContainerdApi
from bench_worker.engines.containerd.images import (
    ContainerdImage,
    committed_image_prefix,
    configuration,
    import_archive,
    save_image,
)
from bench_worker.engines.containerd.storage import LAYER, ImageWriter, chain_id, changed_bytes, sha256_digest
from bench_worker.engines.grpc import CallSequence, GrpcError, GrpcReply

LOWEST, NEXT = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
LAYERS = (
    {"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "digest": LOWEST, "size": 10},
    {"mediaType": "application/vnd.oci.image.layer.v1.tar+zstd", "digest": NEXT, "size": 20},
)
CONFIG = {"os": "linux", "config": {"Env": ["A=1", "B=2"]}, "rootfs": {"type": "layers", "diff_ids": [LOWEST, NEXT]}}


def container(**settings):
    """Return a container with labels."""
    made = Container("life", 1, ContainerSettings(image="i", **settings))
    made.labels["weighbridge.run"] = "r"
    return made


def test_a_chain_is_named_by_all_layers_below():
    """A single layer by itself, and each further one by the hash of what is below and of itself."""
    assert chain_id([LOWEST]) == LOWEST
    two = "sha256:" + hashlib.sha256(f"{LOWEST} {NEXT}".encode()).hexdigest()
    assert chain_id([LOWEST, NEXT]) == two
    assert chain_id([LOWEST, NEXT, LOWEST]) == "sha256:" + hashlib.sha256(f"{two} {LOWEST}".encode()).hexdigest()
    assert chain_id([]) == ""


def test_a_container_is_configured_as_it_was_itself():
    """Command, environment and labels are its own on top of the image's, which stays as it is."""
    made = configuration(CONFIG, "sha256:new", container(command=("sleep", "9"), env={"B": "3"}))
    assert made["rootfs"]["diff_ids"] == [LOWEST, NEXT, "sha256:new"]
    assert made["config"]["Cmd"] == ["sleep", "9"]
    assert made["config"]["Env"][1:] == ["A=1", "B=3"]
    assert made["config"]["Env"][0].startswith("PATH=/")
    assert made["config"]["Labels"] == {"weighbridge.run": "r"}
    assert [entry["created_by"] for entry in made["history"]] == ["sleep 9"]
    assert CONFIG["rootfs"]["diff_ids"] == [LOWEST, NEXT]
    assert "Cmd" not in configuration({**CONFIG, "config": None}, "sha256:new", container())["config"]


class Store:
    """Stands for containerd's content, snapshots and images: it notes what is written and knows no snapshot."""

    def __init__(self):
        self.content, self.labels, self.images, self.methods = {}, {}, [], []

    def call(self, method, requests, kind, *, timeout_s, metadata):
        """Answer a call."""
        assert timeout_s > 0
        assert not metadata
        service, verb = method.split("/")
        self.methods.append(verb)
        if verb == "Stat":
            raise GrpcError(5, "snapshot not found", start_ns=1, end_ns=2)
        if verb == "Write":
            pieces = list(requests)
            digest = pieces[-1].expected
            assert [piece.offset for piece in pieces] == sorted({piece.offset for piece in pieces})
            assert [piece.action for piece in pieces][-1] == messages.WriteContentRequest.COMMIT
            self.content[digest] = b"".join(piece.data for piece in pieces)
            self.labels[digest] = dict(pieces[-1].labels)
        if verb == "Create" and service.endswith("Images"):
            self.images.append(requests[0].image)
        if verb == "Read":
            [wanted] = requests
            data = self.content[wanted.digest][wanted.offset :][: wanted.size or None]
            return GrpcReply([kind(data=data[:50]), kind(data=data[50:])], 1, 2, 0)
        return GrpcReply([kind()], 1, 2, 0)


def layer_of(*sizes):
    """Return a layer with files of these sizes and a directory."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as changes:
        for number, size in enumerate(sizes):
            entry = tarfile.TarInfo(f"file-{number}")
            entry.size = size
            changes.addfile(entry, io.BytesIO(b"x" * size))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        changes.addfile(folder)
    return packed


def test_a_saved_image_names_each_part_by_its_content():
    """Its layers are those of the base, under the OCI's names, and the new one; labels hold all of them together."""
    store, made = Store(), container()
    layer = messages.Descriptor(media_type=LAYER, digest=f"sha256:{'c' * 64}", size=30)
    save_image(CallSequence(store, 5), ContainerdImage("base", LAYERS, CONFIG), layer, made, "saved")
    assert all(sha256_digest(content) == digest for digest, content in store.content.items())
    [image] = store.images
    assert (image.name, dict(image.labels)) == ("saved", made.labels)
    manifest = json.loads(store.content[image.target.digest])
    config = json.loads(store.content[manifest["config"]["digest"]])
    assert [one["digest"] for one in manifest["layers"]] == [LOWEST, NEXT, layer.digest]
    assert [one["mediaType"].rpartition(".")[2] for one in manifest["layers"]] == ["tar+gzip", "tar+zstd", "tar"]
    assert all(".oci." in one["mediaType"] for one in manifest["layers"])
    # It is not compressed, so both of its names are the same.
    assert config["rootfs"]["diff_ids"] == [LOWEST, NEXT, layer.digest]
    referred = set(store.labels[image.target.digest].values())
    assert referred == {manifest["config"]["digest"], LOWEST, NEXT, layer.digest}
    [snapshot] = store.labels[manifest["config"]["digest"]].values()
    assert snapshot == chain_id(config["rootfs"]["diff_ids"])


def test_the_files_of_a_layer_are_counted_where_it_is_stored():
    """Without directories and names; of large files only their headers are read."""
    store, packed = Store(), layer_of(700, 34, 1 << 21)
    digest = ImageWriter(CallSequence(store, 5)).write_layer(packed).digest
    content = messages.Descriptor(digest=digest, size=len(packed.getvalue()))
    assert changed_bytes(CallSequence(store, 5), content) == 734 + (1 << 21)
    assert store.methods.count("Read") < 6


def test_an_image_that_docker_saved_is_imported(tmp_path):
    """Each layer is stored and unpacked above the last one, in pieces where it is large; the archive is deleted."""
    layers = [layer_of(1 << 20).getvalue(), layer_of(7).getvalue()]
    config = json.dumps({"rootfs": {"diff_ids": [sha256_digest(layer) for layer in layers]}}).encode()
    manifest = [{"Config": "config.json", "Layers": ["0/layer.tar", "1/layer.tar"]}]
    parts = {
        "config.json": config,
        "manifest.json": json.dumps(manifest).encode(),
        **{f"{number}/layer.tar": layer for number, layer in enumerate(layers)},
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    api, store = ContainerdApi("/nowhere"), Store()
    api.lease = lambda _timeout_s: contextlib.nullcontext(())
    api.calls = lambda _timeout_s, _metadata: CallSequence(store, 5)
    import_archive(api, iter([packed.getvalue()]), {}, tmp_path, "imported")
    assert {sha256_digest(layer) for layer in layers} <= set(store.content)
    assert store.content[sha256_digest(config)] == config
    assert [store.methods.count(verb) for verb in ("Prepare", "Apply", "Commit")] == [2, 2, 2]
    assert [image.name for image in store.images] == ["imported"]
    assert list(tmp_path.iterdir()) == []


def test_no_container_has_the_images_of_another():
    """Not even where a name begins with another's."""
    assert not committed_image_prefix("life-1").startswith(committed_image_prefix("life"))
