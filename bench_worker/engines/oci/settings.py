"""Refuses what an OCI runtime cannot do for a container, and turns its storage into the mounts of a config.json."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from bench_common.errors import did_you_mean
from bench_worker.engines.low_level import ImageUnavailable
from bench_worker.engines.oci.spec import NETWORKS
from bench_worker.engines.output import parse_cpuset
from bench_worker.engines.results import raise_operation_failed
from bench_worker.engines.settings import KNOWN_SOCKETS, MountRefused, safe_host_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench_common.treatment import ContainerSettings, Mount
    from bench_worker.engines.oci.cgroups import Cgroups


class HasUnsupportedReasons(Protocol):
    """An engine that says why it cannot enforce what it cannot."""

    name: ClassVar[str]
    settings: ClassVar[frozenset[str]]
    inapplicable: ClassVar[frozenset[str]]
    reasons: ClassVar[dict[str, str]]


class UnsupportedSetting(ValueError):
    """A setting that an OCI runtime cannot fulfil; the message says which and why."""


def check_settings(
    engine: type[HasUnsupportedReasons],
    settings: ContainerSettings,
    cgroups: Cgroups,
    *,
    networks: Sequence[str] = NETWORKS,
) -> None:
    """Raise `UnsupportedSetting` for a setting that the engine would have to ignore on a host with these cgroups.

    `networks` are those that it has.
    """
    name = engine.name
    why = {**engine.reasons, **cgroups.unenforced}
    for setting in sorted(settings.non_default() - engine.inapplicable):
        if setting not in engine.settings or setting in cgroups.unenforced:
            reason = why.get(setting, "an OCI runtime has nothing of the kind")
            raise UnsupportedSetting(f"{name} cannot enforce {setting}={getattr(settings, setting)!r}: {reason}")
    if settings.network is not None and settings.network not in networks:
        known = " or ".join(map(repr, networks))
        hint = did_you_mean(settings.network, networks)
        raise UnsupportedSetting(f"network {settings.network!r}: {name} makes no networks{hint}; expected {known}")
    if settings.cpuset is not None:
        try:
            parse_cpuset(settings.cpuset)
        except ValueError as error:
            raise UnsupportedSetting(str(error)) from error


@contextmanager
def as_operation_failures(begun_ns: int) -> Iterator[None]:
    """Turn what is in the way of a container, or of its image, into the failure of the operation that wants it."""
    try:
        yield
    except ImageUnavailable as error:
        raise_operation_failed(error.kind, str(error), begun_ns)
    except (UnsupportedSetting, MountRefused) as error:
        raise_operation_failed("refused", str(error), begun_ns)


def make_volumes(settings: ContainerSettings, directory: Path) -> None:
    """Make the directories of a container's storage that is to live as long as it does; raise `OSError`."""
    for mount in settings.storage:
        if mount.kind != "tmpfs" and not mount.source:
            volume_path(mount, directory).mkdir(mode=0o755, parents=True)


def volume_path(mount: Mount, directory: Path) -> Path:
    """Return where below a container's own directory a volume without a name is."""
    return directory / "volumes" / mount.target.strip("/").replace("/", "-")


def bind_mount(mount: Mount, directory: Path, *, allow_host_mounts: bool) -> dict[str, Any]:
    """Return one piece of storage as a mount; a volume without a name is a directory below `directory`.

    Raises `UnsupportedSetting` and `MountRefused`.
    """
    mode = "ro" if mount.read_only else "rw"
    if mount.kind == "tmpfs":
        size = [f"size={mount.size_bytes}"] if mount.size_bytes else []
        options = [mode, "nosuid", "nodev", *size]
        return {"destination": mount.target, "type": "tmpfs", "source": "tmpfs", "options": options}
    if mount.kind not in {"volume", "host"}:
        raise UnsupportedSetting(
            f"storage of the kind {mount.kind!r} needs an engine with volumes; use a host directory"
        )
    if mount.kind == "volume" or not mount.source:
        if mount.source:
            raise UnsupportedSetting(
                f"volume {mount.source!r}: an OCI runtime knows no volumes by name; leave the name out for one "
                "that lives as long as the container, or mount a host directory"
            )
        source = str(volume_path(mount, directory))
    else:
        if not allow_host_mounts:
            raise MountRefused(
                f"host directory {mount.source} may not be mounted: this worker does not allow host mounts"
            )
        source = safe_host_directory(mount.source, KNOWN_SOCKETS)
    return {"destination": mount.target, "type": "bind", "source": source, "options": ["rbind", mode]}
