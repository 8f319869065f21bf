"""Finds and removes what runs left in a Docker Engine. Only labels count: a name alone makes nothing ours."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import docker
import docker.errors
import requests

from bench_common.errors import InfrastructureError
from bench_worker.engines.base import RUN_LABEL, WORKER_LABEL, Leftover
from bench_worker.engines.docker.errors import root_cause
from bench_worker.engines.docker.http import exchange, url
from bench_worker.engines.docker_listing import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from bench_worker.engines.docker.http import Exchange


def find(
    client: docker.APIClient, engine: str, run_id: str | None, worker_id: str | None, *, timeout_s: float
) -> list[Leftover]:
    """Return containers, images, networks and volumes that carry the label, in the order in which they have to go.

    `engine` is what lists them. Raises `InfrastructureError` when the engine does not tell.
    """
    labels = [RUN_LABEL if run_id is None else f"{RUN_LABEL}={run_id}"]
    if worker_id is not None:
        labels.append(f"{WORKER_LABEL}={worker_id}")
    wanted: dict[str, Any] = {"label": labels}
    try:
        with exchange(timeout_s):
            found = [
                *_containers(engine, client.containers(all=True, filters=wanted)),
                *_images(engine, listed(client, filters=wanted)),
                *_networks(engine, client.networks(filters=wanted)),
                *_volumes(engine, client.volumes(filters=wanted).get("Volumes") or ()),
            ]
    except _ERRORS as error:
        raise InfrastructureError(f"{engine} cannot say what was left behind: {_said(error)}") from error
    return found


def remove(client: docker.APIClient, leftover: Leftover, *, timeout_s: float) -> None:
    """Remove one; one that is gone, or that somebody else is removing, ends as well. Raises `InfrastructureError`."""
    try:
        with exchange(timeout_s):
            _remove(client, leftover)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if leftover.what == "container" and "already in progress" in str(error.explanation):
            _await_removal(client, leftover.identity, exchange(timeout_s))
        elif _is_there(client, leftover, exchange(timeout_s)):
            raise InfrastructureError(_said(error)) from error
    except _ERRORS as error:
        raise InfrastructureError(_said(error)) from error


_ERRORS = (docker.errors.DockerException, requests.RequestException, OSError)


def _remove(client: docker.APIClient, leftover: Leftover) -> None:
    if leftover.what == "container":
        client.remove_container(leftover.identity, v=True, force=True)
    elif leftover.what == "image":
        client.remove_image(leftover.identity, force=True)
    elif leftover.what == "network":
        client.remove_network(leftover.identity)
    elif leftover.what == "volume":
        client.remove_volume(leftover.identity)
    else:
        raise InfrastructureError(f"{leftover.engine} knows no {leftover.what!r} to remove")


def _is_there(client: docker.APIClient, leftover: Leftover, bounded: AbstractContextManager[Exchange]) -> bool:
    """Say whether it still exists: two removals at once can fail in more ways than by "not found"."""
    look = {
        "container": client.inspect_container,
        "image": client.inspect_image,
        "network": client.inspect_network,
        "volume": client.inspect_volume,
    }[leftover.what]
    try:
        with bounded:
            look(leftover.identity)
    except docker.errors.NotFound:
        return False
    except _ERRORS:
        return True
    return True


def _await_removal(client: docker.APIClient, identity: str, bounded: AbstractContextManager[Exchange]) -> None:
    try:
        with bounded:
            client.post(url(client, "containers", identity, "wait"), params={"condition": "removed"})
    except _ERRORS as error:
        raise InfrastructureError(f"somebody else began to remove it and did not end: {_said(error)}") from error


def _containers(engine: str, rows: list[dict[str, Any]]) -> Iterator[Leftover]:
    for row in rows:
        name = (row.get("Names") or [""])[0].lstrip("/")
        yield Leftover(engine, "container", row["Id"], name, _run_of(row), _age_s(row.get("Created")))


def _images(engine: str, rows: list[dict[str, Any]]) -> Iterator[Leftover]:
    for row in rows:
        name = (row.get("RepoTags") or [row["Id"]])[0]
        yield Leftover(engine, "image", row["Id"], name, _run_of(row), _age_s(row.get("Created")))


def _networks(engine: str, rows: list[dict[str, Any]]) -> Iterator[Leftover]:
    for row in rows:
        yield Leftover(engine, "network", row["Id"], row["Name"], _run_of(row))


def _volumes(engine: str, rows: Iterable[dict[str, Any]]) -> Iterator[Leftover]:
    for row in rows:
        yield Leftover(engine, "volume", row["Name"], row["Name"], _run_of(row))


def _run_of(row: Mapping[str, Any]) -> str:
    return str((row.get("Labels") or {}).get(RUN_LABEL, ""))


def _age_s(created: Any) -> float | None:
    return max(0.0, time.time() - created) if isinstance(created, int | float) else None


def _said(error: BaseException) -> str:
    return str(getattr(error, "explanation", None) or root_cause(error))
