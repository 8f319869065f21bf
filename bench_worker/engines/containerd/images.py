"""Images in containerd: imported from the Docker Engine, pulled from a registry, and saved from containers."""

from __future__ import annotations

import copy
import json
import os
import platform
import re
import secrets
import tarfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from gevent.lock import RLock

from bench_common.treatment import CONTAINER_PATH
from bench_worker.engines.base import ImageUnavailable
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import SNAPSHOTTER
from bench_worker.engines.containerd.pull import pull_image
from bench_worker.engines.containerd.storage import IMAGES, LAYER, ImageWriter, chain_id, read_content, view
from bench_worker.engines.docker.archive import bounded_archive
from bench_worker.engines.grpc import NotFound
from bench_worker.engines.image_programs import find_in_root
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.images import docker_client, image_facts
from bench_worker.engines.oci.spec import ImageConfig, User, read_user

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import docker

    from bench_worker.engines.base import Container, OperationResult
    from bench_worker.engines.containerd.api import ContainerdApi
    from bench_worker.engines.grpc import CallSequence

IMPORTED: Final = "weighbridge.invalid/image:"
"""How imported images are called, before the digest of their configuration; no real registry can have this name."""
COMMITTED: Final = "weighbridge.invalid/commit/"
"""How saved images are called, before the container's name and a number."""
_IMPORT_S: Final = 300.0
_CALL_S: Final = 30.0
_REGISTRY: Final = re.compile(r"[.:]|^localhost$")
"""What distinguishes a registry's name from the first part of an image's."""
_HAS_TAG: Final = re.compile(r"[:@]")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""The OCI's names of the machines that call themselves otherwise."""
_DOCKER_LAYERS: Final = {
    "application/vnd.docker.image.rootfs.diff.tar": LAYER,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{LAYER}+gzip",
}


@dataclass(frozen=True)
class ContainerdImage:
    """An image with all that a container is made from."""

    name: str
    layers: Sequence[Mapping[str, Any]]
    """The descriptors of its layers, the lowest first."""
    document: Mapping[str, Any]

    @cached_property
    def chain(self) -> str:
        """The name of the snapshot of all its layers."""
        return chain_id(self.document["rootfs"]["diff_ids"])

    @cached_property
    def config(self) -> ImageConfig:
        """What it says about its containers."""
        return ImageConfig.read(self.document.get("config") or {})


class ContainerdImages:
    """The images of one namespace. Each is imported by the first that needs it, while the others wait."""

    def __init__(self, api: ContainerdApi, folder: Path) -> None:
        self._api = api
        self._folder = folder
        self._names: dict[str, str] = {}
        self._unpacked: set[tuple[str, str]] = set()
        self._resolved: dict[str, ContainerdImage] = {}
        self._imported: dict[str, ContainerdImage] = {}
        self._users: dict[tuple[str, str], User] = {}
        self._lock = RLock()

    def get(self, image: str | None) -> str:
        """Return the name in containerd of what `image` is in the Docker Engine; raise `ImageUnavailable`."""
        if image is None:
            raise ImageUnavailable("refused", "an `image` is needed to make a container from")
        with self._lock:
            if image not in self._names:
                self._names[image] = self._import(image)
            return self._names[image]

    def unpack(self, name: str, snapshotter: str) -> None:
        """See to it that an image's file system is in a snapshotter, too; raise `OperationFailed`."""
        if snapshotter == SNAPSHOTTER or (name, snapshotter) in self._unpacked:
            return
        with self._lock:
            image = self.resolve(name)
            with self._api.lease(_CALL_S) as header:
                writer = ImageWriter(self._api.calls(_IMPORT_S, [header]), snapshotter)
                chain = ""
                for layer, diff_id in zip(image.layers, image.document["rootfs"]["diff_ids"], strict=True):
                    chain = writer.unpack(chain, _descriptor(layer), diff_id)
                writer.keep_snapshot(name, chain)
            self._unpacked.add((name, snapshotter))

    def resolve(self, name: str) -> ContainerdImage:
        """Return what an image consists of by now; raise `OperationFailed`.

        What an imported one consists of never changes, since its name is the digest of its configuration.
        """
        found = self._imported.get(name)
        if found is not None:
            return found
        calls = self._api.calls(_CALL_S)
        target = calls.call(f"{IMAGES}Get", messages.ImageRequest(name=name), messages.ImageMessage).image.target
        key = f"{name} {target.digest}"
        if key not in self._resolved:
            self._resolved[key] = _read_image(calls, name, target.digest)
        found = self._resolved[key]
        if name.startswith(IMPORTED):
            self._imported[name] = found
        return found

    def user(self, image: ContainerdImage) -> User:
        """Return the user that an image's commands run as; raise `ValueError` for one that it does not know."""
        text = image.config.user
        if not text:
            return User()
        key = image.chain, text
        if key not in self._users:
            with self.layers(image) as roots:
                accounts = [read_in_layers(path, roots) for path in ("/etc/passwd", "/etc/group")]
            self._users[key] = read_user(text, *((one or b"").decode(errors="replace") for one in accounts))
        return self._users[key]

    @contextmanager
    def layers(self, image: ContainerdImage) -> Iterator[list[Path]]:
        """Give the directories of an image's layers, the highest first; none where they are no directories."""
        prefix = "lowerdir="
        with view(self._api.calls(_CALL_S), image.chain) as mounts:
            options = (option for one in mounts for option in one.options)
            lower = next((one.removeprefix(prefix) for one in options if one.startswith(prefix)), "")
            roots = [Path(each) for each in (lower.split(":") if lower else [one.source for one in mounts])]
            yield roots if all(map(os.path.isdir, roots)) else []  # False, too, where it cannot be read

    def pull(self, image: str | None, *, fresh: bool, timeout_s: float) -> tuple[OperationResult, str]:
        """Pull an image from its registry; return the operation, and the image's name in containerd.

        With `fresh` the present one is removed before, untimed, once a pull shows that the registry can bring it
        back. That the image is there is checked afterwards. Raises `ImageUnavailable` where a container is made from
        it, and `OperationFailed`.
        """
        name = qualified_name(image)
        if fresh:
            calls = self._api.calls(timeout_s)
            present = list_images(calls)
            if name in present:
                used = calls.call(
                    "containers.v1.Containers/List", messages.ListRequest(), messages.ListContainersResponse
                )
                if any(container.image == name for container in used.containers):
                    raise ImageUnavailable("conflict", f"image {name} is not removed: a container is made from it")
                pull_image(self._api, name, timeout_s)
                present = list_images(calls)
                same = [other for other, digest in present.items() if digest == present[name] and other != name]
                if same:
                    # Each name of an image keeps all of its content.
                    text = f"image {name} is not removed for a fresh pull: it has other names: {', '.join(same)}"
                    raise ImageUnavailable("refused", text)
                calls.do(f"{IMAGES}Delete", messages.ImageRequest(name=name, sync=True))
                if name in list_images(calls):
                    text = f"image {name} is still there after its removal, so a pull would not fetch it"
                    raise ImageUnavailable("conflict", text)
        done = pull_image(self._api, name, timeout_s)
        self.resolve(name)  # its manifest for this machine and its configuration have come
        return done, name

    def _import(self, image: str) -> str:
        facts = image_facts(image)
        name = IMPORTED + str(facts["Id"]).rpartition(":")[2]
        present = list_images(self._api.calls(_CALL_S))
        if name in present:
            return name
        with docker_client(f"image {image}") as client:
            import_archive(self._api, client.get_image(facts["Id"]), facts, self._folder, name)
            self._prune(client, present)
        return name

    def _prune(self, client: docker.APIClient, present: dict[str, str]) -> None:
        """Remove what the Docker Engine no longer has, unless there are containers."""
        import docker.errors

        calls = self._api.calls(_IMPORT_S)
        for name in present:
            if not name.startswith(IMPORTED):
                continue
            if calls.call(
                "containers.v1.Containers/List", messages.ListRequest(), messages.ListContainersResponse
            ).containers:
                return
            try:
                client.inspect_image(name.removeprefix(IMPORTED))  # type: ignore[no-untyped-call]
            except docker.errors.ImageNotFound:
                calls.do_if_present(f"{IMAGES}Delete", messages.ImageRequest(name=name))


def list_images(calls: CallSequence) -> dict[str, str]:
    """Return the names of all images of the namespace, each with the digest of its manifest."""
    found = calls.call(f"{IMAGES}List", messages.ListRequest(), messages.ListImagesResponse).images
    return {image.name: image.target.digest for image in found}


def committed_image_prefix(name: str) -> str:
    """Return how the names of all images begin that were saved from the container `name`."""
    return f"{COMMITTED}{name}:"


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


def import_archive(
    api: ContainerdApi, chunks: Iterator[bytes], facts: Mapping[str, Any], folder: Path, name: str
) -> None:
    """Import an image as ``docker save`` writes it, under a name; `folder` holds the archive meanwhile.

    `facts` is what the engine that writes it tells of the image. Raises `OperationFailed`, `EndlessArchive` and
    `OSError`.
    """
    archive = oci_images.make_private(folder) / f".{secrets.token_hex(8)}.tar"
    try:
        with archive.open("wb") as file:
            for chunk in bounded_archive(chunks, facts, folder):
                file.write(chunk)
        with api.lease(_CALL_S) as header, tarfile.open(archive) as packed:
            writer = ImageWriter(api.calls(_IMPORT_S, [header]))
            manifest = json.load(_member(packed, "manifest.json"))[0]
            config = _member(packed, manifest["Config"]).read()
            chain, layers = "", []
            diff_ids = json.loads(config)["rootfs"]["diff_ids"]
            for path, diff_id in zip(manifest["Layers"], diff_ids, strict=True):
                layers.append(writer.write_layer(_member(packed, path)))
                chain = writer.unpack(chain, layers[-1], diff_id)
            writer.finish(name, config, chain, layers, {})
    finally:
        archive.unlink(missing_ok=True)


def _member(packed: tarfile.TarFile, name: str) -> IO[bytes]:
    file = packed.extractfile(name)
    if file is None:
        raise OSError(f"{name} is no file in the archive of the image")
    return file


def _descriptor(layer: Mapping[str, Any]) -> messages.Descriptor:
    """Return an entry of a manifest's layers as containerd takes it."""
    kind = _DOCKER_LAYERS.get(layer["mediaType"], layer["mediaType"])
    return messages.Descriptor(media_type=kind, digest=layer["digest"], size=layer["size"])


def save_image(
    calls: CallSequence, base: ContainerdImage, layer: messages.Descriptor, container: Container, name: str
) -> None:
    """Make an image of `base` and one more layer, which is stored, with the container's settings and labels."""
    writer = ImageWriter(calls, container.settings.snapshotter or SNAPSHOTTER)
    config = json.dumps(configuration(base.document, layer.digest, container), sort_keys=True).encode()
    layers = [_descriptor(one) for one in base.layers]
    chain = writer.unpack(base.chain, layer, layer.digest)
    writer.finish(name, config, chain, [*layers, layer], container.labels)


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
    merged = {"PATH": CONTAINER_PATH, **present, **settings.env}
    inner["Env"] = [f"{name}={value}" for name, value in merged.items()]
    inner["Labels"] = {**(inner.get("Labels") or {}), **container.labels}
    return config


def _read_image(calls: CallSequence, name: str, digest: str) -> ContainerdImage:
    """Read an image's manifest for this machine and its configuration; raise `OperationFailed`."""
    waiting = [digest]
    while waiting:
        try:
            document: dict[str, Any] = json.loads(read_content(calls, waiting.pop(0)))
        except NotFound:
            # An index may name manifests for other machines, which are not here.
            continue
        waiting += [str(one["digest"]) for one in document.get("manifests", ()) if is_for_this_machine(one)]
        if "config" in document:
            config = read_content(calls, document["config"]["digest"])
            return ContainerdImage(name, document["layers"], json.loads(config))
    raise calls.failure("image-missing", f"image {name} has no manifest for this machine in containerd")


def is_for_this_machine(manifest: Mapping[str, Any]) -> bool:
    """Say whether an entry of an index is the image for this machine, or may be."""
    machine = platform.machine()
    wanted = _ARCHITECTURES.get(machine, machine)
    platform_of = manifest.get("platform") or {}
    return bool(platform_of.get("architecture", wanted) == wanted and platform_of.get("os", "linux") == "linux")


def read_in_layers(place: str, roots: Sequence[Path]) -> bytes | None:
    """Return the content of a file of an image's layers; None where there is none, or it cannot be read."""
    found = find_in_root(place, *roots)
    with suppress(OSError):
        return found.read_bytes() if found is not None and found.is_file() else None
    return None
