"""The container of one treatment: its settings, and what only shows where container, job and engine meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_common.spec import ContainerSettings, Mount, Operation
from bench_master.scenario.format import NATIVE
from bench_master.scenario.shapes import INVALID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_master.scenario.findings import Findings
    from bench_master.scenario.matrix import Settings
    from bench_master.scenario.tree import Place


def container_settings(settings: Settings, findings: Findings) -> ContainerSettings | None:
    """Return the container that the settings describe; None where one of them was refused."""
    mounts = _mounts(settings, findings)
    _check_cpuset(settings, findings)
    _check_ulimits(settings, findings)
    inner = {key.removeprefix("container."): given.value for key, given in settings.items() if _is_container(key)}
    if mounts is None or any(value is INVALID for value in inner.values()):
        return None
    return ContainerSettings(
        image=inner.get("image"),
        command=inner.get("command"),
        memory_bytes=inner.get("memory"),
        cpus=inner.get("cpus"),
        cpuset=inner.get("cpuset"),
        network=inner.get("network"),
        storage=mounts,
        env=_named("env.", inner),
        log_driver=inner.get("log_driver"),
        log_options=_named("log_options.", inner),
        init=inner.get("init"),
        runtime=inner.get("runtime"),
        pids=inner.get("pids"),
        ulimits=_named("ulimits.", inner),
        blkio_weight=inner.get("blkio_weight"),
        device_read_bps=_named("device_read_bps.", inner),
        device_write_bps=_named("device_write_bps.", inner),
        device_read_iops=_named("device_read_iops.", inner),
        device_write_iops=_named("device_write_iops.", inner),
        read_only=inner.get("read_only"),
        security_options=tuple(option.value for option in inner.get("security_options", ())),
    )


def _is_container(key: str) -> bool:
    return key == "container" or key.startswith("container.")


def _named(prefix: str, inner: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in inner.items() if key.startswith(prefix)}


def _mounts(settings: Settings, findings: Findings) -> tuple[Mount, ...] | None:
    given = settings.get("container.storage")
    if given is None:
        return ()
    if given.value is INVALID:
        return None
    targets: set[str] = set()
    for mount in given.value:
        target = mount.value.target.rstrip("/") or "/"
        if target in targets:
            findings.add(mount.place, f"something is mounted at '{target}' already: choose another target", deep=True)
        targets.add(target)
    return tuple(mount.value for mount in given.value)


def _check_cpuset(settings: Settings, findings: Findings) -> None:
    given = settings.get("container.cpuset")
    if given is None or given.value is INVALID:
        return
    for part in given.value.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            findings.add(given.place, f"'{part}' is no range of CPUs: write {last}-{first}", deep=True)


def _check_ulimits(settings: Settings, findings: Findings) -> None:
    for key, given in settings.items():
        if not key.startswith("container.ulimits.") or given.value is INVALID:
            continue
        soft, _, hard = str(given.value).partition(":")
        # -1 is no limit.
        if hard and int(hard) >= 0 and not 0 <= int(soft) <= int(hard):
            findings.add(given.place, f"'{given.value}': a soft limit is at most the hard one, {hard}", deep=True)


def check_lifecycle_container(
    operations: Sequence[Operation], engine: str, settings: Settings, place: Place, findings: Findings
) -> None:
    """Note what a life-cycle job's container lacks: an image for an engine that has images, a command without one."""
    makers = [operation for operation in operations if operation.kind in {"create", "run"}]
    if not makers or findings.is_misspelt("container"):
        return
    if engine == NATIVE:
        given = "container.command" in settings or makers[0].argv or "container" in settings
        if not given and not findings.is_misspelt("command"):
            findings.add(
                place,
                f"'container.command' is missing: engine {NATIVE} has no image that says what runs",
                deep=True,
            )
    elif not {"container.image", "container"} & settings.keys() and not findings.is_misspelt("image"):
        findings.add(
            place,
            f"'container.image' is missing: a life-cycle job under engine {engine} needs one (say weighbridge/base)",
            deep=True,
        )
