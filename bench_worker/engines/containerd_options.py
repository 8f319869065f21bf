"""Turns a container's settings into options of ``ctr``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_worker.engines import oci_files
from bench_worker.engines.oci.settings import bind

if TYPE_CHECKING:
    from pathlib import Path

    from bench_worker.engines.base import Container


def create_options(container: Container, directory: Path, *, allow_host_mounts: bool) -> list[str]:
    """Return the options of ``containers create`` and ``run``; volumes are below `directory`.

    Raises `SettingRefused` and `MountRefused`.
    """
    settings = container.settings
    options = [f"--label={name}={value}" for name, value in container.labels.items()]
    options += [f"--env={name}={value}" for name, value in settings.env.items()]
    if settings.network == "host":
        options.append("--net-host")
    if settings.memory_bytes is not None:
        options.append(f"--memory-limit={settings.memory_bytes}")
    if settings.cpus is not None:
        options.append(f"--cpus={settings.cpus:g}")
    if settings.read_only:
        options.append("--read-only")
    mounts = [bind(storage, directory, allow_host_mounts=allow_host_mounts) for storage in settings.storage]
    for mount in (*mounts, *oci_files.binds(settings.files, directory)):
        chosen = ":".join(mount["options"])
        options.append(
            f"--mount=type={mount['type']},src={mount['source']},dst={mount['destination']},options={chosen}"
        )
    return options
