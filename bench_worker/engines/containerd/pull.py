"""Pulls images into containerd: from the registry to the content store, and from there to snapshots.

Recent versions of containerd do that by themselves (``transfer.v1.Transfer``); Debian's has no such call, so this
client does what containerd's own does.
"""

from __future__ import annotations

import json
import platform
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gevent.pool import Pool

from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import SNAPSHOTTER
from bench_worker.engines.containerd.registry import Registry, RegistryError
from bench_worker.engines.containerd.storage import (
    CONFIG_LABEL,
    LAYER_LABEL,
    MANIFEST_LABEL,
    ImageWriter,
    read_content,
    sha256_digest,
    snapshot_label,
)
from bench_worker.engines.grpc import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_worker.engines.containerd.api import ContainerdApi
    from bench_worker.engines.grpc import CallSequence

_PARALLEL_LAYERS: Final = 3
"""As many as Docker and containerd's own client fetch at once."""
_NOT_VALID: Final = (LookupError, TypeError, ValueError, AttributeError)
"""What comes of documents that are not what they ought to be."""
_MAX_INDEXES: Final = 4
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""The OCI's names of the machines that call themselves otherwise."""


def pull_image(api: ContainerdApi, name: str, timeout_s: float) -> OperationResult:
    """Pull and unpack an image, called by its whole name; what is there already is not fetched.

    It lasts from the first request to the registry to the image's record. Raises `OperationFailed`.
    """
    deadline = time.monotonic() + timeout_s
    with api.lease(timeout_s) as header:
        pull = _Pull(api, Registry(name, deadline), header, deadline)
        start_ns = time.monotonic_ns()
        try:
            done = pull.run(name)
        except RegistryError as error:
            raise OperationFailed(error.kind, str(error), start_ns=start_ns, end_ns=time.monotonic_ns()) from error
        except _NOT_VALID as error:
            text = f"the manifest or configuration of {name} is not valid: {error!r}"
            raise OperationFailed("engine", text, start_ns=start_ns, end_ns=time.monotonic_ns()) from error
        except OperationFailed as error:
            error.start_ns = start_ns
            raise
    done.start_ns = start_ns
    return done


class _Pull:
    """One image on its way."""

    def __init__(self, api: ContainerdApi, registry: Registry, header: tuple[str, str], deadline: float) -> None:
        self._api = api
        self._registry = registry
        self._header = header
        self._deadline = deadline

    def run(self, name: str) -> OperationResult:
        """Fetch, store, unpack, name."""
        documents = self._manifests(name)
        manifest = json.loads(documents[-1][1])
        layers = [
            messages.Descriptor(media_type=one["mediaType"], digest=one["digest"], size=one["size"])
            for one in manifest["layers"]
        ]
        config = manifest["config"]["digest"]
        config_text = self._config(config)
        diff_ids = json.loads(config_text)["rootfs"]["diff_ids"]
        pool = Pool(_PARALLEL_LAYERS)
        try:
            for failure in pool.imap_unordered(self._fetch, layers):
                if failure is not None:
                    raise failure
        finally:
            pool.kill()
        calls = self._calls()
        writer, chain = ImageWriter(calls), ""
        for layer, diff_id in zip(layers, diff_ids, strict=True):
            chain = writer.unpack(chain, layer, diff_id)
        writer.write_content(config, config_text, {snapshot_label(SNAPSHOTTER): chain})
        labels = {CONFIG_LABEL: config} | {f"{LAYER_LABEL}{index}": one.digest for index, one in enumerate(layers)}
        for target, text in reversed(documents):
            writer.write_content(target.digest, text, labels)
            labels = {f"{MANIFEST_LABEL}0": target.digest}
        writer.name_image(name, documents[0][0], {})
        return calls.result()

    def _manifests(self, name: str) -> list[tuple[messages.Descriptor, bytes]]:
        """Return the manifest for this machine, after the indexes that lead to it."""
        found: list[tuple[messages.Descriptor, bytes]] = []
        reference = self._registry.reference
        while len(found) <= _MAX_INDEXES:
            kind, text = self._registry.manifest(reference)
            found.append((messages.Descriptor(media_type=kind, digest=sha256_digest(text), size=len(text)), text))
            document = json.loads(text)
            if "manifests" not in document:
                break
            fitting = [one for one in document["manifests"] if is_for_this_machine(one)]
            if not fitting:
                raise RegistryError("image-missing", f"{name} has no manifest for this machine ({_architecture()})")
            reference = fitting[0]["digest"]
        if "layers" not in document:
            raise RegistryError("refused", f"{name} is no image that containerd can run (its type is {kind})")
        return found

    def _config(self, digest: str) -> bytes:
        """Return the configuration, which is small, from the content store or else from the registry."""
        with suppress(NotFound):
            return read_content(self._calls(), digest)
        return self._registry.document(digest)

    def _fetch(self, layer: messages.Descriptor) -> Exception | None:
        """Store a layer, unless it is there; return what went wrong, as nobody else catches it in a greenlet."""
        try:
            ImageWriter(self._calls()).write_blob(layer, self._registry.blob(layer.digest, layer.size))
        except (RegistryError, OperationFailed, *_NOT_VALID) as error:
            return error
        return None

    def _calls(self) -> CallSequence:
        return self._api.calls(max(0.001, self._deadline - time.monotonic()), [self._header])


def is_for_this_machine(manifest: Mapping[str, Any]) -> bool:
    """Say whether an entry of an index is the image for this machine, or may be."""
    wanted = _architecture()
    platform_of = manifest.get("platform") or {}
    return bool(platform_of.get("architecture", wanted) == wanted and platform_of.get("os", "linux") == "linux")


def _architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
