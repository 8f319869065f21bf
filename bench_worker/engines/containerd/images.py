"""Takes images into containerd's namespace of ours from the Docker Engine, each once for each digest.

Saves a container of containerd as an image, for which ``ctr`` has no command of its own, only the parts.

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
import re
import secrets
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import docker
import docker.errors
from gevent.lock import RLock

from bench_worker.engines.docker.images import PULL_KIND_PATTERNS
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.images import ImageUnavailable, docker_client
from bench_worker.engines.oci.spec import DEFAULT_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench_worker.engines.base import Container
    from bench_worker.engines.command_line import CommandLine, CommandSequence

PREFIX: Final = "weighbridge.invalid/image:"
"""What the images that we import are called, before the digest of their configuration; it can be no real registry."""
_IMPORT_S: Final = 300.0
_REGISTRY: Final = re.compile(r"[.:]|^localhost$")
"""What tells a registry's name from the first part of an image's."""
_HAS_TAG: Final = re.compile(r"[:@]")


class ContainerdImages:
    """The images of our namespace. Each is imported by the first that wants it, while the others wait."""

    def __init__(self, cli: CommandLine, folder: Path) -> None:
        self._cli = cli
        self._folder = folder
        self._names: dict[str, str] = {}
        self._lock = RLock()

    def get(self, image: str | None) -> str:
        """Return the name in containerd of what `image` is in the Docker Engine; raise `ImageUnavailable`."""
        if image is None:
            raise ImageUnavailable("refused", "an `image` is needed to make a container from")
        with self._lock:
            if image not in self._names:
                with docker_client(f"image {image}") as client:
                    self._names[image] = self._import(client, image)
            return self._names[image]

    def pull(self, image: str | None, *, fresh: bool, timeout_s: float) -> tuple[CommandSequence, str]:
        """Fetch an image from its registry into our namespace; return the errand, and what it is called there.

        With `fresh` what our namespace has of it is taken away before, untimed, once the registry has shown by a pull
        that it can bring it back. Raises `ImageUnavailable` where a container is made from it, and `OperationFailed`.
        """
        name = qualified_name(image)
        if fresh:
            before = self._cli.errand(timeout_s)
            if name in before.ask("images", "ls", "-q").text.split():
                if name in before.ask("containers", "ls").text.split():
                    raise ImageUnavailable("conflict", f"image {name} is not taken away: a container is made from it")
                _pull(before, name)
                before.ask("images", "rm", "--sync", name)
        errand = self._cli.errand(timeout_s)
        _pull(errand, name)
        return errand, name

    def _import(self, client: docker.APIClient, image: str) -> str:
        facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
        name = PREFIX + str(facts["Id"]).rpartition(":")[2]
        errand = self._cli.errand(_IMPORT_S)
        present = errand.ask("images", "ls", "-q").text.split()
        if name in present:
            return name
        archive = oci_images.make_private(self._folder) / f".{secrets.token_hex(8)}.tar"
        try:
            with archive.open("wb") as file:
                for chunk in client.get_image(facts["Id"]):
                    file.write(chunk)
            errand.ask("images", "import", "--index-name", name, str(archive))
        finally:
            archive.unlink(missing_ok=True)
        self._prune(client, present)
        return name

    def _prune(self, client: docker.APIClient, present: list[str]) -> None:
        """Remove what the Docker Engine no longer has, unless somebody is at work."""
        errand = self._cli.errand(_IMPORT_S)
        for name in present:
            if name.startswith(PREFIX) and not errand.ask("containers", "ls", "-q").text:
                try:
                    client.inspect_image(name.removeprefix(PREFIX))  # type: ignore[no-untyped-call]
                except docker.errors.ImageNotFound:
                    errand.call("images", "rm", name)


def qualified_name(image: str | None) -> str:
    """Return an image's name with its registry and tag, as containerd wants it; raise `ImageUnavailable` without one.

    What Docker's commands leave out is what they would put in (`reference grammar
    <https://pkg.go.dev/github.com/distribution/reference>`_).
    """
    if not image:
        raise ImageUnavailable("refused", "there is no image to pull")
    first, slash, _ = image.partition("/")
    if not slash:
        image = f"docker.io/library/{image}"
    elif not _REGISTRY.search(first):
        image = f"docker.io/{image}"
    last = image.rpartition("/")[2]
    return image if _HAS_TAG.search(last) else f"{image}:latest"


def _pull(errand: CommandSequence, name: str) -> None:
    answer = errand.call("images", "pull", name)
    if answer.exit_code:
        said = answer.complaint.rpartition("\n")[2]
        kind = next((kind for kind, pattern in PULL_KIND_PATTERNS if pattern.search(said)), errand.cli.kind_of(said))
        raise errand.failure(kind, said)


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
class BaseImage:
    """The image that a container was made from: its layers as a manifest names them, and its configuration."""

    layers: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]


def committed_image_prefix(name: str) -> str:
    """Return how the names of all images begin that were made of the container `name`."""
    return f"{REPOSITORY}{name}:"


def base_image(errand: CommandSequence, image: str, snapshot: str) -> BaseImage:
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
                return BaseImage(document["layers"], config)
    raise errand.failure("image-missing", f"image {image}, which {snapshot} was made from, is no longer what it was")


def chain_id(diff_ids: Sequence[str]) -> str:
    """Return what a snapshot of these layers, the lowest first, is called (OCI image-spec, "Layer ChainID")."""
    chain = ""
    for diff_id in diff_ids:
        chain = sha256_digest(f"{chain} {diff_id}".encode()) if chain else diff_id
    return chain


def sha256_digest(content: bytes) -> str:
    """Return what something is called by its content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def write_image_archive(layer: Path, archive: Path, base: BaseImage, container: Container) -> int:
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
            _add(packed, _blob(sha256_digest(content)), content)
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
    return {"mediaType": kind, "digest": sha256_digest(content), "size": len(content)}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(packed: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    packed.addfile(entry, io.BytesIO(content))
