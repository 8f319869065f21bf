"""The image that a container of containerd is saved as: its layers, its names, and what it says of itself."""

import hashlib
import io
import json
import tarfile

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container
from bench_worker.engines.containerd.images import (
    BaseImage,
    chain_id,
    committed_image_prefix,
    configuration,
    sha256_digest,
    write_image_archive,
)

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


def test_the_archive_names_each_part_by_its_content(tmp_path):
    """From the index on; of the layers the new one alone is carried, and its files are counted."""
    layer, archive = tmp_path / "layer.tar", tmp_path / "image.tar"
    with tarfile.open(layer, "w") as changes:
        for name, size in (("one", 700), ("two", 34)):
            entry = tarfile.TarInfo(name)
            entry.size = size
            changes.addfile(entry, io.BytesIO(b"x" * size))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        changes.addfile(folder)
    assert write_image_archive(layer, archive, BaseImage(LAYERS, CONFIG), container()) == 734
    with tarfile.open(archive) as packed:
        parts = {name: packed.extractfile(name).read() for name in packed.getnames()}
    blobs = {f"sha256:{name.rpartition('/')[2]}": content for name, content in parts.items() if "blobs/" in name}
    assert all(sha256_digest(content) == digest for digest, content in blobs.items())
    assert json.loads(parts["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [named] = json.loads(parts["index.json"])["manifests"]
    manifest = json.loads(blobs.pop(named["digest"]))
    config = json.loads(blobs.pop(manifest["config"]["digest"]))
    *below, added = manifest["layers"]
    assert [one["digest"] for one in below] == [LOWEST, NEXT]
    assert [one["mediaType"].rpartition(".")[2] for one in below] == ["tar+gzip", "tar+zstd"]
    assert all(".oci." in one["mediaType"] for one in below)
    assert blobs == {added["digest"]: layer.read_bytes()}
    assert added["size"] == layer.stat().st_size
    # It is not compressed, so both of its names are the same.
    assert config["rootfs"]["diff_ids"] == [LOWEST, NEXT, added["digest"]]


def test_no_container_has_the_images_of_another():
    """Not even where a name begins with another's."""
    assert not committed_image_prefix("life-1").startswith(committed_image_prefix("life"))
