"""Brings an image into Podman's store from Docker's on the same machine, where Weighbridge's images are built."""

from __future__ import annotations

from typing import Any, Final

import docker
import docker.errors
import requests

from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_worker.engines.docker.errors import IMAGE_ADVICE, root_cause
from bench_worker.engines.docker.http import connect, exchange

COPY_LIMIT_S: Final = 300.0
"""How long the copying of one image may take."""
_LOOK_S: Final = 10.0
_OWN: Final = "weighbridge/"
"""Images that Weighbridge builds: of these Docker's store has the true one, and a rebuilt one is copied anew."""


def obtain(podman: docker.APIClient, image: str) -> str:
    """See to it that Podman has an image; return why it has not, or nothing. Raises `InfrastructureError`.

    Copied is what Podman lacks and what Weighbridge has built anew since; an image keeps its id (the digest of its
    configuration) on the way, so nothing is copied twice.
    """
    present = _identity(podman, image)
    if present and not image.startswith(_OWN):
        return ""
    try:
        source = connect(1, _LOOK_S)
    except (EngineUnavailable, docker.errors.DockerException, requests.RequestException, OSError):
        return "" if present else _nowhere(image, "and no Docker Engine answers that could have it")
    try:
        wanted = _identity(source, image)
        if wanted and wanted != present:
            _copy(source, podman, image)
    finally:
        source.close()
    return "" if wanted or present else _nowhere(image, "nor in Docker's, from where it would be copied")


def _nowhere(image: str, elsewhere: str) -> str:
    return f"image {image!r} is not in Podman's store, {elsewhere} ({IMAGE_ADVICE})"


def _identity(client: docker.APIClient, image: str) -> str | None:
    try:
        with exchange(_LOOK_S):
            facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
    except docker.errors.NotFound:
        return None
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise InfrastructureError(f"image {image!r} cannot be looked at: {root_cause(error)}") from error
    return str(facts["Id"]).removeprefix("sha256:")


def _copy(source: docker.APIClient, podman: docker.APIClient, image: str) -> None:
    try:
        with exchange(COPY_LIMIT_S):
            # What it says while it loads is of no interest, but it has loaded only once that has ended.
            for _ in podman.load_image(source.get_image(image)):  # type: ignore[no-untyped-call]
                pass
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise InfrastructureError(
            f"image {image!r} cannot be copied into Podman's store: {root_cause(error)}"
        ) from error
    if _identity(podman, image) is None:
        raise InfrastructureError(f"image {image!r} was copied into Podman's store and is not there")
