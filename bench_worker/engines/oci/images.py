"""Unpacks images for engines that have none of their own: exported from the Docker Engine, once for each digest.

The environment names that engine (``DOCKER_HOST``, or the local socket; podman's service speaks the same language).
An unpacked image is a directory with ``rootfs`` and ``image.json``, made under another name and renamed when it is
complete, so that several workers may need the same one at once. Each container has a directory of its own; its
labels are annotations of config.json, and a directory without them is not ours.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gevent.lock import RLock
from msgspec import Struct

from bench_common.errors import EngineUnavailable
from bench_worker.engines.base import RUN_LABEL, ImageUnavailable, OperationFailed
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.docker import http as docker_http
from bench_worker.engines.docker.archive import EndlessArchive, bounded_archive
from bench_worker.engines.docker.client import bounded_client
from bench_worker.engines.docker.context import endpoint
from bench_worker.engines.docker.errors import call_errors
from bench_worker.engines.oci.spec import ImageConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import docker

CONFIG: Final = "config.json"
STORE: Final = Path("/var/lib/weighbridge")
"""Below it are the unpacked images and the directories of the containers; it may be a mount of the disk to weigh."""
STATE_ROOT: Final = Path("/run/weighbridge/oci")
"""Below it each runtime has its private ``--root``; on memory, as the runtimes' own defaults are."""


class LabelledContainer(Struct, frozen=True):
    """A container's directory that carries our labels; `age_s` in seconds."""

    path: Path
    labels: Mapping[str, str]
    age_s: float


def make_private(path: Path) -> Path:
    """Make a directory for this user alone; raise `EngineUnavailable` when somebody else owns what is there."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise EngineUnavailable(f"cannot make {path}: {error.strerror}; it has to be on a writable disk") from error
    if found.st_uid != os.geteuid() or found.st_mode & 0o022 or not path.is_dir() or path.is_symlink():
        raise EngineUnavailable(f"{path} is not a directory of this user alone; remove it, or chown and chmod it")
    return path


def images_directory() -> Path:
    """Return the directory of the unpacked images."""
    return STORE / "images"


def containers_directory(engine: str) -> Path:
    """Return the directory below which an engine's containers have theirs."""
    return STORE / engine


def labelled_containers(engine: str) -> list[LabelledContainer]:
    """Return an engine's containers that carry our labels."""
    try:
        candidates = list(containers_directory(engine).iterdir())
    except OSError:
        return []
    found = []
    for path in candidates:
        try:
            config: Any = json.loads((path / CONFIG).read_text(encoding="utf-8"))
            age_s = time.time() - path.stat().st_mtime
        except (OSError, ValueError):
            continue
        labels = config.get("annotations") if isinstance(config, dict) else None
        if isinstance(labels, dict) and isinstance(labels.get(RUN_LABEL), str):
            found.append(LabelledContainer(path, labels, max(0.0, age_s)))
    return found


def delete_directory(directory: Path) -> None:
    """Delete a directory with all that is in it; a missing one is no error. Raises `OSError`."""
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)


_CONFIG: Final = "image.json"
_CHUNK_BYTES: Final = 1 << 20
_ANSWER_S: Final = 60
_TUNNEL: Final = "ssh://"
"""What docker-py alone can go through."""
_UNPACK_S: Final = 300


class UnpackedImage(Struct, frozen=True):
    """A root file system to start containers from; `base` is a config.json that came with it, or nothing."""

    rootfs: Path
    config: ImageConfig
    base: Mapping[str, Any]


class UnpackedImages:
    """The images that one engine has used: each unpacked by the first that wants it, while the others wait.

    What it has handed out is locked until `close`, so that nobody takes it away.
    """

    def __init__(self) -> None:
        self._unpacked: dict[str, UnpackedImage] = {}
        self._lock = RLock()
        self._held = ExitStack()

    def get(self, image: str | None, labels: Mapping[str, str]) -> UnpackedImage:
        """Return `image` unpacked, as it was when it was first wanted; raise `ImageUnavailable`.

        The container that is made for the export carries `labels`.
        """
        if image is None:
            raise ImageUnavailable("refused", "an `image` is needed to make a container from")
        with self._lock:
            if image not in self._unpacked:
                self._unpacked[image] = self._unpack(image, labels)
            return self._unpacked[image]

    def close(self) -> None:
        """Let go of all images."""
        self._held.close()

    def _unpack(self, image: str, labels: Mapping[str, str]) -> UnpackedImage:
        facts = image_facts(image)
        directory = images_directory() / str(facts["Id"]).rpartition(":")[2]
        while True:
            if not (directory / _CONFIG).exists():
                with docker_client(f"image {image}") as client:
                    _fetch(client, facts, directory, labels)
                    _prune(client)
            try:
                file = (directory / _CONFIG).open("rb")
            except FileNotFoundError:
                continue
            fcntl.flock(file, fcntl.LOCK_SH)
            if (directory / _CONFIG).exists():
                self._held.callback(file.close)
                return UnpackedImage(directory / "rootfs", ImageConfig.read(json.load(file)), {})
            file.close()


def prune() -> None:
    """Delete the unpacked images that the Docker Engine no longer has and nobody uses; raise `ImageUnavailable`."""
    with docker_client("what is no longer used") as client:
        _prune(client)


def image_facts(image: str) -> dict[str, Any]:
    """Return what the Docker Engine that images are taken from says of one; raise `ImageUnavailable`.

    docker-py takes longer to load than several containers to start, so it is loaded only where an image is fetched.
    """
    what = f"image {image}"
    if endpoint().startswith(_TUNNEL):
        with docker_client(what) as client:
            facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
            return facts
    try:
        with closing(docker_http.connect(_ANSWER_S)) as engine:
            found = docker_http.TimedRequest(engine, _ANSWER_S).find_image(image)
    except call_errors(docker_http.DockerApiError, EngineUnavailable) as error:
        raise _not_taken(what, error) from error
    if found is None:
        raise _not_there(what)
    return dict(found)


@contextmanager
def docker_client(what: str) -> Iterator[docker.APIClient]:
    """Lend a client of the Docker Engine; what goes wrong with `what` becomes an `ImageUnavailable`."""
    import docker.errors
    import docker.utils
    import requests

    try:
        client = bounded_client(**docker_http.environment_settings(), version="auto", timeout=_ANSWER_S)
        try:
            yield client
        finally:
            client.close()
    except docker.errors.ImageNotFound as error:
        raise _not_there(what) from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise _not_taken(what, error) from error
    except (OSError, OperationFailed, EndlessArchive) as error:
        raise ImageUnavailable("engine", f"{what} cannot be unpacked below {STORE}: {error}") from error


def _not_there(what: str) -> ImageUnavailable:
    text = f"{what} is not in the Docker Engine that images are taken from; pull or build it there"
    return ImageUnavailable("image-missing", text)


def _not_taken(what: str, error: Exception) -> ImageUnavailable:
    text = f"{what} cannot be taken from the Docker Engine: {error}; start it, or give `rootfs` instead"
    return ImageUnavailable("unreachable", text)


def _prune(client: docker.APIClient) -> None:
    import docker.errors

    for unfinished in (*images_directory().glob(".*.new"), *images_directory().glob(".*.old")):
        with suppress(FileNotFoundError):
            if time.time() - unfinished.stat().st_mtime > _UNPACK_S:
                delete_directory(unfinished)
    for config in images_directory().glob(f"[!.]*/{_CONFIG}"):
        with suppress(FileNotFoundError, BlockingIOError), config.open("rb") as file:
            try:
                client.inspect_image(config.parent.name)  # type: ignore[no-untyped-call]
            except docker.errors.ImageNotFound:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                doomed = config.parent.rename(config.parent.with_name(f".{config.parent.name}.old"))
                delete_directory(doomed)


def _fetch(client: docker.APIClient, facts: Mapping[str, Any], directory: Path, labels: Mapping[str, str]) -> None:
    import docker.errors

    make_private(directory.parent)
    fresh = directory.with_name(f".{secrets.token_hex(8)}.new")
    rootfs, archive = fresh / "rootfs", fresh / "rootfs.tar"
    container: dict[str, Any] = client.create_container(facts["Id"], ["true"], labels=dict(labels))
    try:
        rootfs.mkdir(parents=True)
        with archive.open("wb") as file:
            for chunk in bounded_archive(client.export(container["Id"], _CHUNK_BYTES), facts, fresh):
                file.write(chunk)
        # A program of its own unpacks it: in here it would take seconds of the interpreter.
        tar = CommandLine("tar").sequence(_UNPACK_S)
        tar.run("-xpf", str(archive), "-C", str(rootfs), "--numeric-owner", "--xattrs", "--xattrs-include=*")
        archive.unlink()
        (fresh / _CONFIG).write_text(json.dumps(facts.get("Config") or {}), encoding="utf-8")
        try:
            fresh.rename(directory)
        except OSError:
            # Another worker was quicker.
            if not (directory / _CONFIG).exists():
                raise
    finally:
        # A clean-up of the whole host may have removed it already.
        with suppress(docker.errors.NotFound):
            client.remove_container(container["Id"], v=True, force=True)
        shutil.rmtree(fresh, ignore_errors=True)
