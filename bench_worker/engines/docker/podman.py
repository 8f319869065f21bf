"""Podman through its API, which speaks Docker's: the same verbs, calls and stamps as the engine ``docker``.

There is no daemon to start with: where no service of Podman's API runs, the worker has one of its own for as long as
the engine is open (see `podman_service`). Images are built into Docker's store; `missing` copies them from there.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from docker.types import Ulimit
from gevent.lock import RLock

from bench_common.capability import STATS_INTERVAL
from bench_common.errors import EngineUnavailable
from bench_worker.engines import criu, podman_service
from bench_worker.engines.base import DaemonSide, Done, Engine, EngineOptions, EngineStatus
from bench_worker.engines.daemon_sides import podman_side
from bench_worker.engines.docker import probe as docker_probe
from bench_worker.engines.docker.engine import DockerEngine, container_id
from bench_worker.engines.docker.errors import check
from bench_worker.engines.podman_images import obtain
from bench_worker.engines.podman_service import ADVICE, PROGRAM, Limits, PrivateService

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import Container
    from bench_worker.engines.docker.http import Exchange

_START_S: Final = 10.0
_PROBE_START_S: Final = 2.5
_NO_RUNTIME: Final = "its API has none for a container; start its service with `podman --runtime NAME system service`"
_OWN_API: Final = "/v4.0.0/libpod"
_INIT: Final = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit")
"""Where Podman looks for the first process that ``init: true`` asks for."""


class PodmanEngine(DockerEngine):
    """Podman, through the socket that runs already or one of its own."""

    name: ClassVar[str] = "podman"
    settings: ClassVar[frozenset[str]] = DockerEngine.settings - {"runtime"}
    output_ends_last: ClassVar[bool] = True

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask the service that runs, or a private one that ends again."""
        service = PrivateService()
        try:
            address = podman_service.running_address() or _start(service, _PROBE_START_S)
            status = docker_probe.look(cls.name, address, cls.operations, cls.settings, _unable_to_save)
        except EngineUnavailable as error:
            return EngineStatus(cls.name, usable=False, reason=str(error), advice=ADVICE)
        finally:
            service.end()
        return _own(status, private=service.started) if status.usable else cls._failed(status)

    @classmethod
    def daemon_side(cls) -> DaemonSide:
        """Return the service that runs, or a private one once it is there, and the monitor of each container."""
        address = podman_service.running_address() or ""
        socket = address.removeprefix("unix://") if address.startswith("unix://") else None
        return podman_side(socket)

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._service = PrivateService()
        self._at = ""
        self._limits = Limits({})
        self._reviving = RLock()

    def open(self) -> None:
        """Connect to the service that runs, or to one that is started now."""
        try:
            self._at = podman_service.running_address() or _start(self._service, _START_S)
            self._limits = podman_service.service_limits(self._at)
            super().open()
        except EngineUnavailable as error:
            self._service.end()
            raise EngineUnavailable(f"engine 'podman' cannot be used: {error}") from error

    def close(self) -> None:
        """Close the connections, and end a service of our own. Containers go on."""
        super().close()
        self._service.end()

    def create(self, container: Container, *, timeout_s: float) -> Done:
        """Make the container; before that, and not timed, those of its named volumes that are not there yet.

        Podman would make them, too, but without the labels by which they are found again.
        """
        self._label(container)
        named = [mount.source for mount in container.settings.storage if mount.kind == "volume" and mount.source]
        if named:
            with self._operation(timeout_s):
                there = {volume["Name"] for volume in self._client.volumes().get("Volumes") or ()}
                for name in sorted(set(named) - there):
                    self._client.create_volume(name, labels=dict(container.labels))
        return super().create(container, timeout_s=timeout_s)

    def remove(self, container: Container, *, timeout_s: float) -> Done:
        """Remove it; where the private service has died, by another one, so that nothing is left of a run."""
        if podman_service.is_private(self._at):
            with self._reviving:
                if not podman_service.answers(self._at):
                    self._revive()
        return super().remove(container, timeout_s=timeout_s)

    def _revive(self) -> None:
        self._service.end()
        self._service = PrivateService()
        with suppress(EngineUnavailable):
            self._at = self._service.start(_START_S)
            super().close()
            super().open()

    def _save(self, identity: str, ordinal: int) -> None:
        del ordinal  # Podman keeps the last one only, and knows which that is
        self._own_call(identity, "checkpoint")

    def _go_on(self, identity: str, ordinal: int) -> None:
        del ordinal
        self._own_call(identity, "restore")

    def _own_call(self, identity: str, verb: str) -> None:
        """Make a call that Docker's API has not, in Podman's own."""
        check(self._client.post(f"{self._client.base_url}{_OWN_API}/containers/{identity}/{verb}"))

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> Done:
        """Return what its log driver kept of both streams, up to where one of them is full.

        Asked for one stream of a container that goes on writing to the other, Podman reads on and never ends.
        """
        with self._operation(timeout_s) as made:
            streams = {"stdout": "1", "stderr": "1"}
            stdout, stderr = self._logs(container_id(container, made), streams, limit_bytes)
        return made.done(stdout=stdout.data, stderr=stderr.data, truncated=stdout.truncated or stderr.truncated)

    def watch(self, container: Container, *, interval_s: float, timeout_s: float) -> Iterator[Done]:
        """Ask again and again: Podman's own stream comes every five seconds, and cannot be had at another pace."""
        return Engine.watch(self, container, interval_s=interval_s, timeout_s=timeout_s)

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Copy the image from Docker's store where it is not in Podman's, then say what is lacking."""
        reason = obtain(self._client, settings.image) if settings.image else ""
        return [reason] if reason else super().missing(settings)

    @classmethod
    def _failed(cls, status: EngineStatus) -> EngineStatus:
        return replace(
            status, reason=status.reason.replace("Docker Engine", "service of Podman's API"), advice=ADVICE
        )

    def _address(self) -> str:
        return self._at

    def _arguments(self, container: Container, made: Exchange) -> dict[str, Any]:
        arguments = super()._arguments(container, made)
        host = arguments["host_config"]
        given = {limit["Name"] for limit in host.get("Ulimits") or ()}
        host["Ulimits"] = [
            *(host.get("Ulimits") or ()),
            *(
                Ulimit(name=name, soft=most, hard=most)
                for name, most in self._limits.ulimits.items()
                if name not in given
            ),
        ]
        return arguments


def _start(service: PrivateService, timeout_s: float) -> str:
    if shutil.which(PROGRAM) is None:
        raise EngineUnavailable(f"there is no program {PROGRAM!r} on PATH, and no service of its API")
    return service.start(timeout_s)


def _unable_to_save(info: Mapping[str, Any], *, here: bool) -> str:
    """Return why the service that gave this `info` cannot save containers; nothing where it can."""
    return criu.trouble(str(info.get("DefaultRuntime") or "")) if here else ""


def _own(status: EngineStatus, *, private: bool) -> EngineStatus:
    """Return a status with what is Podman's own in it."""
    details = {**status.details, "service": "private" if private else "running", "setting.runtime": _NO_RUNTIME}
    details.pop(STATS_INTERVAL, None)  # it is asked, not listened to
    settings = set(status.settings)
    if private and not any(Path(path).exists() for path in _INIT):
        settings.discard("init")
        details["setting.init"] = "Podman's first process, catatonit, is not installed (`apt-get install catatonit`)"
    endpoint = "a private `podman system service`" if private else status.endpoint
    return replace(status, endpoint=endpoint, settings=tuple(sorted(settings)), details=details)
