"""Unpacks images for engines that have none of their own: exported from the Docker Engine, once for each digest.

The environment names that engine (``DOCKER_HOST``, or the local socket; podman's service speaks the same language).
An unpacked image is a directory with ``rootfs`` and ``image.json``, made under another name and renamed when it is
whole, so that several workers may want the same one at once.
"""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import docker
import docker.errors
import docker.utils
import requests
from gevent.lock import RLock

from bench_worker.engines import oci_homes
from bench_worker.engines.base import OperationFailed
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.oci_spec import ImageConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONFIG: Final = "image.json"
_CHUNK_BYTES: Final = 1 << 20
_ANSWER_S: Final = 60
_UNPACK_S: Final = 300


class ImageTrouble(Exception):
    """An image that cannot be had: `kind` is one of `OperationFailed`'s, the text says why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A root file system to start containers from; `base` is a config.json that came with it, or nothing."""

    rootfs: Path
    config: ImageConfig
    base: Mapping[str, Any]


class Images:
    """The images that one engine has used: each unpacked by the first that wants it, while the others wait."""

    def __init__(self) -> None:
        self._unpacked: dict[str, Unpacked] = {}
        self._lock = RLock()

    def get(self, image: str | None, labels: Mapping[str, str]) -> Unpacked:
        """Return `image` unpacked, as it was when it was first wanted; raise `ImageTrouble`."""
        if image is None:
            raise ImageTrouble("refused", "an `image` is needed to make a container from")
        with self._lock:
            if image not in self._unpacked:
                self._unpacked[image] = unpack(image, labels)
            return self._unpacked[image]


def unpack(image: str, labels: Mapping[str, str]) -> Unpacked:
    """Return `image` unpacked, from the store or from the Docker Engine; raise `ImageTrouble`.

    The engine is asked what the name means now. The container that is made for the export carries `labels`.
    """
    try:
        client = docker.APIClient(**docker.utils.kwargs_from_env(), version="auto", timeout=_ANSWER_S)
        try:
            facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
            directory = oci_homes.images() / str(facts["Id"]).rpartition(":")[2]
            if not (directory / _CONFIG).exists():
                _fetch(client, facts, directory, labels)
        finally:
            client.close()
    except docker.errors.ImageNotFound as error:
        text = f"image {image} is not in the Docker Engine that images are taken from; pull or build it there"
        raise ImageTrouble("image-missing", text) from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        text = f"image {image} cannot be taken from the Docker Engine: {error}; start it, or give `rootfs` instead"
        raise ImageTrouble("unreachable", text) from error
    except (OSError, OperationFailed) as error:
        raise ImageTrouble("engine", f"image {image} cannot be unpacked below {oci_homes.STORE}: {error}") from error
    return _known(directory)


def _known(directory: Path) -> Unpacked:
    config: dict[str, Any] = json.loads((directory / _CONFIG).read_text(encoding="utf-8"))
    return Unpacked(directory / "rootfs", ImageConfig.read(config), {})


def _fetch(client: docker.APIClient, facts: Mapping[str, Any], directory: Path, labels: Mapping[str, str]) -> None:
    oci_homes.make_private(directory.parent)
    fresh = directory.with_name(f".{secrets.token_hex(8)}.new")
    rootfs, archive = fresh / "rootfs", fresh / "rootfs.tar"
    container: dict[str, Any] = client.create_container(facts["Id"], ["true"], labels=dict(labels))
    try:
        rootfs.mkdir(parents=True)
        with archive.open("wb") as file:
            for chunk in client.export(container["Id"], _CHUNK_BYTES):
                file.write(chunk)
        # A program of its own unpacks it: in here it would take seconds of the interpreter.
        tar = CommandLine("tar").errand(_UNPACK_S)
        tar.do("-xpf", str(archive), "-C", str(rootfs), "--numeric-owner", "--xattrs", "--xattrs-include=*")
        archive.unlink()
        (fresh / _CONFIG).write_text(json.dumps(facts.get("Config") or {}), encoding="utf-8")
        try:
            fresh.rename(directory)
        except OSError:
            # Another worker was quicker.
            if not (directory / _CONFIG).exists():
                raise
    finally:
        client.remove_container(container["Id"], v=True, force=True)
        shutil.rmtree(fresh, ignore_errors=True)
