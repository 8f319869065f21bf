"""Fetches images through Docker's API, and takes one away before, where nobody would miss it.

Taking away is never forced. An image that has another name, that containers or other images are made from, or that
no registry could give again, stays, and the operation fails with that reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import docker
import docker.errors

from bench_worker.engines.docker.errors import failed, failure_kind
from bench_worker.engines.docker_listing import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.docker.http import Exchange

BY_MESSAGE: Final = (
    (
        "image-missing",
        re.compile(
            r"manifest .*unknown|repository .*not found|access .*denied|name unknown|resolve reference .*not found",
            re.IGNORECASE,
        ),
    ),
    (
        "unreachable",
        re.compile(
            r"connection refused|no such host|no route to host|i/o timeout|network is unreachable", re.IGNORECASE
        ),
    ),
)
"""What engines say of a registry that has no such image, or does not answer; the first match wins."""


def image_of(settings: ContainerSettings, made: Exchange) -> str:
    """Return the image that the settings name; raise the failure ``refused`` where they name none."""
    if not settings.image:
        raise failed("refused", "there is no image to pull", made)
    return settings.image


def pull(client: docker.APIClient, image: str, made: Exchange) -> None:
    """Fetch an image, as ``docker pull`` does; raise the failure that the engine's words mean."""
    try:
        complaint = next(
            (said["error"] for said in client.pull(image, stream=True, decode=True) if "error" in said), ""
        )
    except docker.errors.APIError as error:
        complaint = error.explanation or error
    if complaint:
        raise failed(kind_of(str(complaint)), str(complaint), made)


def kind_of(text: str) -> str:
    """Return the kind of failure that an engine's words of a pull mean."""
    return next((kind for kind, pattern in BY_MESSAGE if pattern.search(text)), failure_kind(None, text))


def take_away(client: docker.APIClient, image: str, made: Exchange) -> None:
    """Remove an image by its name, so that all of it has to be fetched; one that is not there is no error.

    The registry has to show first that it can bring it back, by a pull that finds everything there. Raises the
    failure ``refused`` where somebody would miss the image, ``conflict`` where a container is made from it, and
    whatever the pull fails of.
    """
    try:
        facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
    except docker.errors.NotFound:
        return
    reason = objection(facts, listed(client, all=True))
    if reason:
        raise failed("refused", f"image {image} is not taken away to be pulled anew: {reason}", made)
    pull(client, image, made)
    client.remove_image(image, force=False)


def objection(facts: Mapping[str, Any], images: Iterable[Mapping[str, Any]]) -> str:
    """Return why an image must stay, from its own facts and the list of all images; nothing where it may go."""
    names = facts.get("RepoTags") or []
    if len(names) > 1:
        return f"it has other names, too: {', '.join(map(str, names))}"
    if not facts.get("RepoDigests"):
        return "it came from no registry, so nobody could bring it back"
    if any(one.get("ParentId") == facts["Id"] for one in images):
        return "other images are built on it"
    return ""
