"""Saves a container of containerd as an image, for which ``ctr`` has no command of its own, only the parts.

What changed in a container's snapshot (``ctr snapshots diff``) becomes one more layer above those of the image that
it was made from: with a configuration and a manifest of its own, as an archive of an `OCI image layout
<https://github.com/opencontainers/image-spec/blob/main/image-layout.md>`_, for ``ctr images import``. The layers
below are named there by their digests and not carried, as containerd has them.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.oci.spec import DEFAULT_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench_worker.engines.base import Container
    from bench_worker.engines.command_line import Errand

REPOSITORY: Final = "weighbridge.invalid/commit/"
"""What the images that we save are called, before the container's name and a number; it can be no real registry."""
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
"""The type of the layer: not compressed, as Docker's are not."""

DIFF: Final = ("snapshots", "diff", "--media-type", LAYER)
"""What writes a container's layer to stdout, before its name."""

_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_DOCKER_LAYERS: Final = {
    "application/vnd.docker.image.rootfs.diff.tar": LAYER,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{LAYER}+gzip",
}


@dataclass(frozen=True, slots=True)
class Base:
    """The image that a container was made from: its layers as a manifest names them, and its configuration."""

    layers: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]


def images_of(name: str) -> str:
    """Return how the names of all images begin that were made of the container `name`."""
    return f"{REPOSITORY}{name}:"


def base_of(errand: Errand, image: str, snapshot: str) -> Base:
    """Look up what the container with this snapshot was made from: the image whose layers are below.

    All commands of this errand are looking it up.

    Raises the failure ``image-missing`` where the image has another content by now.
    """
    parent = str(json.loads(errand.ask("snapshots", "info", snapshot).stdout).get("Parent", ""))
    rows = errand.ask("images", "ls", f"name=={image}").text.splitlines()[1:]
    # Its index may name manifests for other machines, which are not here.
    waiting = [row.split()[2] for row in rows]
    while waiting:
        answer = errand.call("content", "get", waiting.pop(0))
        if answer.exit_code:
            continue
        document: dict[str, Any] = json.loads(answer.stdout)
        waiting += [str(one["digest"]) for one in document.get("manifests", ())]
        if "config" in document:
            config: dict[str, Any] = json.loads(errand.ask("content", "get", document["config"]["digest"]).stdout)
            if chain_id(config["rootfs"]["diff_ids"]) == parent:
                return Base(document["layers"], config)
    raise errand.failure("image-missing", f"image {image}, which {snapshot} was made from, is no longer what it was")


def chain_id(diff_ids: Sequence[str]) -> str:
    """Return what a snapshot of these layers, the lowest first, is called (OCI image-spec, "Layer ChainID")."""
    chain = ""
    for diff_id in diff_ids:
        chain = digest_of(f"{chain} {diff_id}".encode()) if chain else diff_id
    return chain


def digest_of(content: bytes) -> str:
    """Return what something is called by its content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def pack(layer: Path, archive: Path, base: Base, container: Container) -> int:
    """Write the archive of an image that has `layer` above `base`; return how many bytes of files are in the layer.

    As Docker counts them, without directories, names and holes. Not for the event loop: it reads and writes files.
    Raises `OSError`.
    """
    with layer.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    with tarfile.open(layer) as changes:
        changed_bytes = sum(entry.size for entry in changes if entry.isreg())
    added = {"mediaType": LAYER, "digest": digest, "size": layer.stat().st_size}
    config = _json(configuration(base.config, digest, container))
    layers = [{**one, "mediaType": _DOCKER_LAYERS.get(one["mediaType"], one["mediaType"])} for one in base.layers]
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [*layers, added],
        }
    )
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [_descriptor(_MANIFEST, manifest)]})
    with tarfile.open(archive, "w") as packed:
        _add(packed, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for content in (config, manifest):
            _add(packed, _blob(digest_of(content)), content)
        packed.add(layer, _blob(digest), recursive=False)
        _add(packed, "index.json", index)
    return changed_bytes


def configuration(base: Mapping[str, Any], diff_id: str, container: Container) -> dict[str, Any]:
    """Return an image's configuration: that of `base`, with one more layer and what the container was given.

    As after ``docker commit``: its command, its environment and its labels.
    """
    settings = container.settings
    config = copy.deepcopy(dict(base))
    config["created"] = datetime.now(UTC).isoformat()
    config["rootfs"]["diff_ids"].append(diff_id)
    config.setdefault("history", []).append(
        {"created": config["created"], "created_by": " ".join(settings.command or ()), "comment": container.name}
    )
    inner = config["config"] = dict(config.get("config") or {})
    if settings.command is not None:
        inner["Cmd"] = list(settings.command)
    present = dict(item.partition("=")[::2] for item in inner.get("Env") or ())
    # containerd gives a PATH of its own only to an image that has no environment at all.
    merged = {"PATH": DEFAULT_PATH, **present, **settings.env}
    inner["Env"] = [f"{name}={value}" for name, value in merged.items()]
    inner["Labels"] = {**(inner.get("Labels") or {}), **container.labels}
    return config


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(packed: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    packed.addfile(entry, io.BytesIO(content))
