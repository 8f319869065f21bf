"""Says before a run what a Docker Engine lacks for it: images, networks, log drivers, runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import docker
import docker.errors
import requests

from bench_common.errors import InfrastructureError, did_you_mean
from bench_worker.engines.docker.errors import IMAGE_ADVICE, root_cause
from bench_worker.engines.docker.http import exchange

if TYPE_CHECKING:
    from bench_common.treatment import ContainerSettings

_MODES: Final = ("default", "bridge", "host", "none", "private")
"""What is no name of a network; ``container:NAME`` is another."""
_SPOKEN_FOR: Final = frozenset({"json-file", "local", "none", "k8s-file", "passthrough"})
"""Log drivers that an engine has without a plugin, be they listed or not."""


def missing(client: docker.APIClient, settings: ContainerSettings, *, timeout_s: float) -> list[str]:
    """Return what containers with these settings would lack, one reason each; raise `InfrastructureError`."""
    try:
        with exchange(timeout_s):
            return [
                *_missing_image(client, settings.image),
                *_missing_network(client, settings.network),
                *_missing_log_driver(client, settings.log_driver),
                *_missing_runtime(client, settings.runtime),
            ]
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise InfrastructureError(f"it cannot say what it has: {root_cause(error)}") from error


def _missing_image(client: docker.APIClient, image: str | None) -> list[str]:
    if image is None:
        return []
    try:
        client.inspect_image(image)  # type: ignore[no-untyped-call]
    except docker.errors.NotFound:
        return [f"image {image!r} is not on this host ({IMAGE_ADVICE})"]
    return []


def _missing_network(client: docker.APIClient, network: str | None) -> list[str]:
    if network is None or network in _MODES or network.startswith(("container:", "ns:")):
        return []
    # Asked for, too, and not only looked for in the list: a network may be named by its id.
    try:
        client.inspect_network(network)
    except docker.errors.NotFound:
        names = sorted(str(item["Name"]) for item in client.networks())
        return [f"there is no network {network!r}{did_you_mean(network, names)}; there are {', '.join(names)}"]
    return []


def _missing_log_driver(client: docker.APIClient, driver: str | None) -> list[str]:
    if driver is None or driver in _SPOKEN_FOR:
        return []
    plugins: dict[str, Any] = client.info().get("Plugins") or {}
    known = sorted(map(str, plugins.get("Log") or ()))
    # A plugin for logs that was installed is listed by its own command only; its name has a tag.
    if not known or driver in known or ":" in driver:
        return []
    return [f"there is no log driver {driver!r}{did_you_mean(driver, known)}; there are {', '.join(known)}"]


def _missing_runtime(client: docker.APIClient, runtime: str | None) -> list[str]:
    # A shim of containerd's may be named without being registered.
    if runtime is None or runtime.startswith("io.containerd."):
        return []
    known = sorted(map(str, client.info().get("Runtimes") or ()))
    if runtime in known:
        return []
    advice = (
        f'register it in /etc/docker/daemon.json ("runtimes": {{"{runtime}": {{"path": ...}}}}) and reload the daemon'
    )
    there = ", ".join(known)
    return [f"no runtime {runtime!r} is registered{did_you_mean(runtime, known)}; there are {there} ({advice})"]
