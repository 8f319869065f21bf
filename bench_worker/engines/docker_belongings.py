"""What a container owns beside itself: a data container, and host directories of its own. Made and removed with it.

A data container never runs. It holds volumes that the other uses (``--volumes-from``), as people did before volumes
had names. A host directory of its own is for weighing directories of the host without naming one: it stands where
the native engine has its private directories and carries the same labels, so that the same clean-up finds it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import docker.errors

from bench_worker.engines.docker.errors import operation
from bench_worker.engines.docker.settings import data_container_name, has_data_container, private_directory
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.native.process import delete_directory, disk_errors

if TYPE_CHECKING:
    from bench_worker.engines.base import Container


def make(client: docker.APIClient, container: Container, *, timeout_s: float, address: str) -> None:
    """Make what the container's storage asks for, in the engine at `address`; raise `OperationFailed`."""
    with disk_errors(time.monotonic_ns()):
        for mount in container.settings.storage:
            if mount.kind == "host" and not mount.source:
                _make_directory(private_directory(container, mount), container)
    if not has_data_container(container):
        return
    targets = [mount.target for mount in container.settings.storage if mount.kind == "data_container"]
    with operation(timeout_s, address):
        answer = client.create_container(
            image=container.settings.image,
            command=["true"],
            name=data_container_name(container),
            labels=dict(container.labels),
            volumes=targets,
            host_config=client.create_host_config(network_mode="none"),
        )
    container.belongings.append(answer["Id"])


def remove_attached(client: docker.APIClient, container: Container, *, timeout_s: float, address: str) -> None:
    """Remove it all, with what is in it; what is gone already is no error. Raises `OperationFailed`."""
    while container.belongings:
        one = container.belongings[-1]
        if one.startswith("/"):
            with disk_errors(time.monotonic_ns()):
                delete_directory(Path(one))
        else:
            with operation(timeout_s, address), suppress(docker.errors.NotFound):
                client.remove_container(one, v=True, force=True)
        container.belongings.pop()


def _make_directory(directory: Path, container: Container) -> None:
    native_labels.make_home()
    owned = directory.parent
    if str(owned) not in container.belongings:
        owned.mkdir(mode=0o700)
        container.belongings.append(str(owned))
        native_labels.write_labels(owned, container.labels)
    directory.mkdir()
