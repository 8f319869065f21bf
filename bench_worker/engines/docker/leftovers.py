"""What a run leaves in a Docker Engine beside its containers: found again by its labels, made and removed with them.

Only labels count: a name alone makes nothing ours. A container may own a data container, which never runs and holds
volumes that the other uses (``--volumes-from``), and host directories, which stand where the native engine has its
private directories and carry the same labels, so that the same clean-up finds them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import InfrastructureError
from bench_worker.engines.base import OWNER_LABEL, RUN_LABEL, WORKER_LABEL, Leftover
from bench_worker.engines.docker.errors import call_errors, docker_operation, root_cause
from bench_worker.engines.docker.http import DockerApiError
from bench_worker.engines.docker.settings import data_container_name, has_data_container, private_directory
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.results import delete_directory, disk_errors_as_failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import docker

    from bench_worker.engines.base import Container
    from bench_worker.engines.docker.http import DockerHttp, TimedRequest

_NOT_FOUND: Final = 404


_IMAGE_VANISHED: Final = "image not known"
"""What Podman says, with HTTP status 500, when somebody removes an image while it lists them."""
_ATTEMPTS: Final = 10


def find_leftovers(asked: TimedRequest, engine: str, run_id: str | None, worker_id: str | None) -> list[Leftover]:
    """Return containers, images, networks and volumes that carry the label, in the order in which they have to go.

    `engine` is what lists them. Raises `InfrastructureError` when the engine does not answer.
    """
    labels = [RUN_LABEL if run_id is None else f"{RUN_LABEL}={run_id}"]
    if worker_id is not None:
        labels.append(f"{WORKER_LABEL}={worker_id}")
    filters = json.dumps({"label": labels})
    try:
        return [
            *_containers(engine, asked.get("containers", "json", all="1", filters=filters)),
            *_images(engine, _list_images(asked, filters)),
            *_networks(engine, asked.get("networks", filters=filters)),
            *_volumes(engine, asked.get("volumes", filters=filters).get("Volumes") or ()),
        ]
    except call_errors(DockerApiError) as error:
        raise InfrastructureError(f"{engine} cannot list what runs left behind: {_error_text(error)}") from error


def _list_images(asked: TimedRequest, filters: str) -> list[dict[str, Any]]:
    """Return the images; an engine that fails because an image has just been removed is asked again."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return list(asked.get("images", "json", filters=filters))
        except DockerApiError as error:
            if _IMAGE_VANISHED not in str(error):
                raise
    return list(asked.get("images", "json", filters=filters))


def remove_leftover(client: docker.APIClient, leftover: Leftover) -> None:
    """Remove one; one that is missing, or that another is removing, is no error. Raises `InfrastructureError`."""
    import docker.errors

    try:
        _remove_by_kind(client, leftover)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if leftover.what == "container" and "already in progress" in str(error.explanation):
            _await_removal(client, leftover.identity)
        elif _exists(client, leftover):
            raise InfrastructureError(_error_text(error)) from error
    except call_errors() as error:
        raise InfrastructureError(_error_text(error)) from error


def _remove_by_kind(client: docker.APIClient, leftover: Leftover) -> None:
    if leftover.what == "container":
        client.remove_container(leftover.identity, v=True, force=True)
    elif leftover.what == "image":
        client.remove_image(leftover.identity, force=True)
    elif leftover.what == "network":
        client.remove_network(leftover.identity)
    elif leftover.what == "volume":
        client.remove_volume(leftover.identity)
    else:
        raise InfrastructureError(f"{leftover.engine} cannot remove a {leftover.what!r}")


def _exists(client: docker.APIClient, leftover: Leftover) -> bool:
    """Say whether it still exists: two removals at once can fail in more ways than by "not found"."""
    import docker.errors

    inspect = {
        "container": client.inspect_container,
        "image": client.inspect_image,
        "network": client.inspect_network,
        "volume": client.inspect_volume,
    }[leftover.what]
    try:
        inspect(leftover.identity)
    except docker.errors.NotFound:
        return False
    except call_errors():
        return True
    return True


def _await_removal(client: docker.APIClient, identity: str) -> None:
    import docker.errors

    try:
        client.wait(identity, condition="removed", timeout=client.timeout)
    except docker.errors.NotFound:
        return
    except call_errors() as error:
        raise InfrastructureError(
            f"somebody else began to remove it and did not finish: {_error_text(error)}"
        ) from error


def _containers(engine: str, rows: list[dict[str, Any]]) -> Iterator[Leftover]:
    for row in rows:
        name = (row.get("Names") or [""])[0].lstrip("/")
        yield _leftover(engine, "container", row["Id"], name, row, _age_s(row.get("Created")))


def _images(engine: str, rows: list[dict[str, Any]]) -> Iterator[Leftover]:
    for row in rows:
        name = (row.get("RepoTags") or [row["Id"]])[0]
        yield _leftover(engine, "image", row["Id"], name, row, _age_s(row.get("Created")))


def _networks(engine: str, rows: list[dict[str, Any]]) -> Iterator[Leftover]:
    for row in rows:
        yield _leftover(engine, "network", row["Id"], row["Name"], row)


def _volumes(engine: str, rows: Iterable[dict[str, Any]]) -> Iterator[Leftover]:
    for row in rows:
        yield _leftover(engine, "volume", row["Name"], row["Name"], row)


def _leftover(
    engine: str, what: str, identity: str, name: str, row: Mapping[str, Any], age_s: float | None = None
) -> Leftover:
    labels = row.get("Labels") or {}
    return Leftover(
        engine, what, identity, name, str(labels.get(RUN_LABEL, "")), age_s, str(labels.get(OWNER_LABEL, ""))
    )


def _age_s(created: Any) -> float | None:
    return max(0.0, time.time() - created) if isinstance(created, int | float) else None


def _error_text(error: BaseException) -> str:
    return str(getattr(error, "explanation", None) or root_cause(error))


def create_attached(engine: DockerHttp, container: Container, *, timeout_s: float) -> None:
    """Make what the container's storage asks for; raise `OperationFailed`."""
    if not container.settings.storage:
        return
    with disk_errors_as_failures(time.monotonic_ns()):
        for mount in container.settings.storage:
            if mount.kind == "host" and not mount.source:
                _make_directory(private_directory(container, mount), container)
    if not has_data_container(container):
        return
    targets = [mount.target for mount in container.settings.storage if mount.kind == "data_container"]
    body: dict[str, Any] = {
        "Image": container.settings.image,
        "Cmd": ["true"],
        "Labels": dict(container.labels),
        "Volumes": {target: {} for target in targets},
        "HostConfig": {"NetworkMode": "none"},
    }
    with docker_operation(engine, timeout_s) as timed:
        answer = timed.post("containers", "create", body=body, name=data_container_name(container))
    container.attached_resources.append(answer["Id"])


def remove_attached(engine: DockerHttp, container: Container, *, timeout_s: float) -> None:
    """Remove it all, with what is in it; what no longer exists is no error. Raises `OperationFailed`."""
    while container.attached_resources:
        one = container.attached_resources[-1]
        if one.startswith("/"):
            with disk_errors_as_failures(time.monotonic_ns()):
                delete_directory(Path(one))
        else:
            with docker_operation(engine, timeout_s) as timed:
                try:
                    timed.delete("containers", one, v="true", force="true")
                except DockerApiError as error:
                    if error.status != _NOT_FOUND:
                        raise
        container.attached_resources.pop()


def _make_directory(directory: Path, container: Container) -> None:
    owned = directory.parent
    if str(owned) not in container.attached_resources:
        owned.mkdir(mode=0o700)
        container.attached_resources.append(str(owned))
        native_labels.write_labels(owned, container.labels)
    directory.mkdir()
