"""Copies images from the Docker Engine, where they are built, to another engine that speaks its API."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_worker.engines.docker.archive import EndlessArchive, bounded_archive
from bench_worker.engines.docker.errors import IMAGE_ADVICE, call_errors, root_cause
from bench_worker.engines.docker.http import DockerApiError, DockerHttp, TimedRequest, connect, docker_client

COPY_LIMIT_S: Final = 300.0
"""How long an engine may be silent while an image is copied."""
_LOOKUP_TIMEOUT_S: Final = 20.0
_OWN_IMAGE_PREFIX: Final = "weighbridge/"
"""Images that Weighbridge builds: Docker's store has the current one, and a rebuilt one is copied again."""


def ensure_image(engine: DockerHttp, image: str, name: str) -> str:
    """See to it that the engine called `name` has an image; return why it has not, or nothing.

    Raises `InfrastructureError`. Copies images that the engine does not have and those that Weighbridge has rebuilt
    since; an image keeps its id (the digest of its configuration) on the way, so nothing is copied twice.
    """
    present = _identity(engine, image)
    if present and not image.startswith(_OWN_IMAGE_PREFIX):
        return ""
    try:
        source = connect(_LOOKUP_TIMEOUT_S)
    except call_errors(EngineUnavailable):
        return "" if present else _not_found_reason(image, name, "and no Docker Engine answers to copy it from")
    with closing(source):
        wanted = _identity(source, image)
        if wanted and wanted != present:
            _copy(source, engine, image, name)
    return (
        "" if wanted or present else _not_found_reason(image, name, "nor in Docker's, from which it would be copied")
    )


def _not_found_reason(image: str, name: str, elsewhere: str) -> str:
    place = "is not in Podman's store" if name == "podman" else f"is not in the store of engine {name}"
    return f"image {image!r} {place}, {elsewhere} ({IMAGE_ADVICE})"


def _title(name: str) -> str:
    return "Podman" if name == "podman" else name


def _identity(engine: DockerHttp, image: str) -> str | None:
    try:
        facts = TimedRequest(engine, _LOOKUP_TIMEOUT_S).find_image(image)
    except call_errors(DockerApiError) as error:
        raise InfrastructureError(f"image {image!r} cannot be inspected: {root_cause(error)}") from error
    return None if facts is None else str(facts["Id"]).removeprefix("sha256:")


def _copy(source: DockerHttp, engine: DockerHttp, image: str, name: str) -> None:
    try:
        with (
            closing(docker_client(source, COPY_LIMIT_S)) as giver,
            closing(docker_client(engine, COPY_LIMIT_S)) as taker,
        ):
            # What it prints while it loads is of no interest, but it has loaded only once that has ended.
            archive = bounded_archive(giver.get_image(image), giver.inspect_image(image))  # type: ignore[no-untyped-call]
            for _ in taker.load_image(archive):  # type: ignore[no-untyped-call]
                pass
    except call_errors(EndlessArchive) as error:
        raise InfrastructureError(
            f"image {image!r} cannot be copied into {_title(name)}'s store: {root_cause(error)}"
        ) from error
    if _identity(engine, image) is None:
        raise InfrastructureError(f"image {image!r} was copied into {_title(name)}'s store but is missing there")
