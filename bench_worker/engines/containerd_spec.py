"""Enters into a container's specification what ``ctr`` has no option for, between its making and its start.

``ctr`` takes a whole specification, too (``--config``), but then neither an image nor a snapshot. So a container is
made with the words that there are, and the rest goes into its record by containerd's own API, as any other client of
it would have written it there at once: the same entries of the same document that OCI runtimes are given.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.oci.settings import SettingRefused
from bench_worker.engines.oci_confinement import SETTINGS as CONFINEMENT
from bench_worker.engines.oci_confinement import confine
from bench_worker.engines.protobuf import blob, pack, text, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.containerd.api import ContainerdApi
    from bench_worker.engines.protobuf import Value

SETTINGS: Final = CONFINEMENT | {"cpuset"}
"""What is entered, ``read_only`` beside ``ctr``'s own option for it."""

_BY_OPTION: Final = frozenset({"read_only"})
_METHODS: Final = "containers.v1.Containers/"


def is_needed(settings: ContainerSettings) -> bool:
    """Say whether something is given that ``ctr`` has no option for."""
    return bool(settings.given() & (SETTINGS - _BY_OPTION))


def check(settings: ContainerSettings) -> None:
    """Raise `SettingRefused` for what cannot be entered, before anything is made."""
    try:
        enter(settings, {"process": {}, "root": {}, "linux": {}})
    except ValueError as error:
        raise SettingRefused(str(error)) from error


def enter(settings: ContainerSettings, document: dict[str, Any]) -> None:
    """Enter what is given into a specification; raise `ValueError` for a device that is none."""
    confine(document, settings)
    if settings.cpuset is not None:
        document["linux"]["resources"].setdefault("cpu", {})["cpus"] = settings.cpuset


class Specifications:
    """The specifications of containers, by containerd's API."""

    def __init__(self, api: ContainerdApi) -> None:
        self._api = api

    def confine(self, name: str, settings: ContainerSettings, *, timeout_s: float) -> None:
        """Enter what is given into that of the container `name`, before its start; raise `OperationFailed`."""
        kind, document = self._read(name, timeout_s)
        enter(settings, document)
        changed = pack({1: kind, 2: json.dumps(document).encode()})
        fields: dict[int, Value] = {1: pack({1: name, 5: changed}), 2: pack({1: ["spec"]})}
        self._api.call(f"{_METHODS}Update", fields, timeout_s=timeout_s)

    def process(self, name: str, argv: Sequence[str], *, timeout_s: float) -> dict[str, Any]:
        """Return an OCI process that executes `argv` as the container's own is executed; raise `OperationFailed`."""
        _, document = self._read(name, timeout_s)
        return {**document["process"], "terminal": False, "args": list(argv)}

    def _read(self, name: str, timeout_s: float) -> tuple[str, dict[str, Any]]:
        """Return the name of a specification's type, and the specification."""
        reply = self._api.call(f"{_METHODS}Get", {1: name}, timeout_s=timeout_s)
        # Container.spec is its fifth field, an Any of a type's name and a JSON text.
        present = unpack(blob(unpack(blob(unpack(reply.message), 1)), 5))
        document: dict[str, Any] = json.loads(blob(present, 2))
        return text(present, 1), document
