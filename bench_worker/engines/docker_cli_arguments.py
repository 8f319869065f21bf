"""Turns a container's settings into the words of ``docker create`` and ``docker run``. Pure but for host mounts.

The same settings as through the API, and the same refusals (see `docker_settings`): whether Docker is weighed through
its API or its command line, it is asked for the same container.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from bench_worker.engines.docker.settings import allowed_source
from bench_worker.engines.docker_confinement import confinement_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench_common.treatment import ContainerSettings, Mount
    from bench_worker.engines.base import Container


def create_words(container: Container, *, allow_host_mounts: bool, own_socket: str | None) -> list[str]:
    """Return the words after ``docker create``; raise `MountRefused`. Never privileged, never a tty, never a pull."""
    settings = container.settings
    words = ["--pull=never", f"--name={container.name}"]
    words += [f"--label={key}={value}" for key, value in container.labels.items()]
    words += [f"--env={key}={value}" for key, value in settings.env.items()]
    words += _limits(settings)
    words += confinement_words(settings)
    words += [f"--volumes-from={name}" for name in container.shares]
    if container.publish is not None:
        words.append(f"--publish={container.publish[0]}::{container.publish[1]}")
    for mount in settings.storage:
        fields = _mount(mount, container.labels, allow_host_mounts=allow_host_mounts, own_socket=own_socket)
        words.append(f"--mount={_joined(fields)}")
    # What begins with a dash after this is the container's, not docker's.
    return [*words, "--", str(settings.image), *(settings.command or ())]


def _limits(settings: ContainerSettings) -> Iterator[str]:
    if settings.memory_bytes is not None:
        # As through the API: memory and swap together, so that there is no swap.
        yield f"--memory={settings.memory_bytes}b"
        yield f"--memory-swap={settings.memory_bytes}b"
    if settings.cpus is not None:
        yield f"--cpus={settings.cpus:.9f}"
    if settings.cpuset is not None:
        yield f"--cpuset-cpus={settings.cpuset}"
    if settings.network is not None:
        yield f"--network={settings.network}"
    if settings.init is not None:
        yield f"--init={'true' if settings.init else 'false'}"
    if settings.log_driver is not None:
        yield f"--log-driver={settings.log_driver}"
    for key, value in settings.log_options.items():
        yield f"--log-opt={key}={value}"


def _mount(mount: Mount, labels: Mapping[str, str], *, allow_host_mounts: bool, own_socket: str | None) -> list[str]:
    fields = [f"target={mount.target}", *(["readonly"] if mount.read_only else [])]
    if mount.kind == "tmpfs":
        return ["type=tmpfs", *fields, *([f"tmpfs-size={mount.size_bytes}"] if mount.size_bytes else [])]
    if mount.kind == "volume":
        named = [f"source={mount.source}"] if mount.source else []
        return ["type=volume", *named, *fields, *(f"volume-label={key}={value}" for key, value in labels.items())]
    source = allowed_source(mount, allow_host_mounts=allow_host_mounts, own_socket=own_socket)
    return ["type=bind", f"source={source}", *fields]


def _joined(fields: list[str]) -> str:
    """Return the fields as the one row of comma-separated values that ``--mount`` reads."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
