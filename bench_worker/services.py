"""The services of one job at a time: each made, started, checked until it is ready, stopped and removed.

What goes wrong is told in the service's own words: how it ended, and what its log says of it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final, Protocol, TypeAlias, TypeVar

import gevent

from bench_common.cli import authority
from bench_common.records import JobReport
from bench_common.requirements import KIND
from bench_common.treatment import ContainerSettings, Guest, Mount, Treatment
from bench_worker.engines.base import Container, Done, Engine, OperationFailed
from bench_worker.performer import MESSAGE_LIMIT, OUTPUT_LIMIT, has_no_images
from workloads.base import Service, Workload
from workloads.script import CLEAN_UP_S, on_host

LOOPBACK: Final = "127.0.0.1"

POLL_S: Final = 0.2
"""How often it is looked whether a service is ready."""

MOST_LINES: Final = 6
"""How many lines of a service's log a failure tells; the whole is kept with the job's output."""

_TELLING: Final = re.compile(r"\b(?:error|fatal|panic)\b", re.IGNORECASE)

SEEN_DEAD_S: Final = 1.0
"""How long an engine may take to say that a service has ended."""

Output: TypeAlias = tuple[str, bytes, bytes, int, bool]
Waited = TypeVar("Waited")


class Wait(Protocol):
    """Does what only waits; raises `JobAborted` where the job is called off before or meanwhile."""

    def __call__(self, call: Callable[[], Waited]) -> Waited:
        """Return what `call` returns."""


class ServiceFailed(Exception):
    """A service could not be had: which, why, and what it printed; `kind` is that of the job's failure."""

    def __init__(self, service: str, message: str, outputs: tuple[Output, ...] = (), kind: str = KIND) -> None:
        super().__init__(message)
        self.service = service
        self.outputs = outputs
        self.kind = kind


class ServiceSet:
    """The services of one job at a time, in the order in which the workload declares them.

    `services` are those of the workload that are to be had here. They listen where only this host's jobs reach them,
    or with `outside`, an IP address of this host, there. `words` are where they were found at their latest start,
    by placeholder.
    """

    def __init__(
        self,
        engine: Engine,
        treatment: Treatment,
        workload: Workload,
        name: str,
        ticket: int,
        *,
        services: Sequence[Service],
        outside: str | None = None,
    ) -> None:
        self._engine = engine
        self._timeout_s = treatment.timeout_s
        self._services = services
        job = treatment.job
        self._by_socket = isinstance(job, Guest) and workload.uses_sockets(job.params)
        self._outside = outside
        self._programs = workload.programs if has_no_images(engine) else {}
        self._containers = {
            service.name: self._container(f"{name}-{service.name}", ticket, treatment, service)
            for service in services
        }
        self.words: dict[str, str] = {}

    def start(self, wait: Wait) -> tuple[Output, ...]:
        """Start each service and wait until it is ready; return what its readiness check printed.

        Raises `ServiceFailed`, or `JobAborted` where the job is called off meanwhile.
        """
        outputs = []
        for service in self._services:
            container = self._containers[service.name]
            try:
                if container.handle is None:
                    self._engine.create(container, timeout_s=self._timeout_s)
                self._engine.start(container, timeout_s=self._timeout_s)
            except OperationFailed as failure:
                raise ServiceFailed(service.name, f"{service.name} could not be started: {failure}") from failure
            ready = self._until_ready(service, container, wait)
            try:
                self.words |= self._words(service, container)
            except OperationFailed as failure:
                raise ServiceFailed(service.name, f"{service.name} cannot be reached: {failure}") from failure
            outputs.append((f"{service.name}-ready", ready.stdout, ready.stderr, 0, ready.truncated))
        return tuple(outputs)

    @property
    def shares(self) -> tuple[str, ...]:
        """The containers whose volumes a job's own has to share."""
        return tuple(
            one.name for one in self._containers.values() if self._by_socket and "LISTEN_SOCKET" in one.settings.env
        )

    def stop(self) -> str | None:
        """Stop each service, the last first; return what went wrong."""
        for service in reversed(self._services):
            try:
                self._engine.stop(
                    self._containers[service.name],
                    grace_s=service.stop_s,
                    timeout_s=service.stop_s + self._timeout_s,
                )
            except OperationFailed as failure:
                return str(failure)[:MESSAGE_LIMIT]
        return None

    def remove(self) -> str | None:
        """Remove each service that was made, the last first; return what went wrong first."""
        problem = None
        for service in reversed(self._services):
            container = self._containers[service.name]
            if container.handle is None and not container.belongings:
                continue
            try:
                self._engine.remove(container, timeout_s=CLEAN_UP_S)
            except OperationFailed as failure:
                if failure.kind != "not-found":
                    problem = problem or f"{service.name}: {failure}"[:MESSAGE_LIMIT]
        return problem

    def blame(self, report: JobReport) -> None:
        """Say in the report of a job that failed which service had ended by then, and keep the services' logs."""
        for service in self._services:
            container = self._containers[service.name]
            log = self._log(service, container)
            report.outputs = [*(report.outputs or ()), log]
            ended = self._ended(container)
            if ended is None or report.error is None:
                continue
            _, _, said = report.error
            text = f"{service.name} {_end_of(ended)} during the job; {said}; it said: {_last_words(log)}"
            report.error = (service.name, _kind_of(ended), text[:MESSAGE_LIMIT])

    def logs(self) -> tuple[Output, ...]:
        """Return what each service has printed so far."""
        return tuple(self._log(service, self._containers[service.name]) for service in self._services)

    def end_of(self, service: str) -> tuple[str, str] | None:
        """Return of which kind of failure it is that a service has ended, and how it did; None where it runs."""
        ended = self._ended(self._containers[service])
        return None if ended is None else (_kind_of(ended), _end_of(ended))

    def _container(self, name: str, ticket: int, treatment: Treatment, service: Service) -> Container:
        """Return how a service's container is made; where it listens is told by its environment."""
        given = treatment.services.get(service.name, ContainerSettings())
        shares_host = "network" in self._engine.inapplicable or given.network == "host"
        host = self._outside or LOOPBACK
        where = {
            "LISTEN_HOST": host if shares_host else "0.0.0.0",  # noqa: S104  in a network of its own
            "LISTEN_PORT": str(_free_port(host) if shares_host else service.port),
        }
        if self._by_socket and service.socket:
            where["LISTEN_SOCKET"] = service.socket
            given = self._with_room_for_socket(given, service.socket.rpartition("/")[0])
        settings = replace(
            given,
            image=given.image or service.image,
            command=on_host(service.command, self._programs),
            env={**given.env, **where},
        )
        published = None if self._outside is None or shares_host else (self._outside, service.port)
        container = Container(name, ticket, settings)
        container.publish = published
        return container

    def _with_room_for_socket(self, given: ContainerSettings, folder: str) -> ContainerSettings:
        """Give a container a volume that those share which reach it by a socket."""
        if "storage" in self._engine.inapplicable or any(mount.target == folder for mount in given.storage):
            return given
        return replace(given, storage=(*given.storage, Mount("volume", folder)))

    def _words(self, service: Service, container: Container) -> dict[str, str]:
        """Return where a running service is, by placeholder; one that is reached by its socket needs no address."""
        if "LISTEN_SOCKET" in container.settings.env:
            return {f"{{{service.name}.socket}}": self._engine.shared_path(container, service.socket)}
        return words_of(service.name, *self._found(container))

    def _found(self, container: Container) -> tuple[str, int]:
        """Return host and port at which a running service is reached."""
        if container.publish is not None:
            return container.publish[0], self._engine.published_port(container, timeout_s=self._timeout_s)
        host = self._outside or self._engine.address(container, timeout_s=self._timeout_s)
        return host, int(container.settings.env["LISTEN_PORT"])

    def _until_ready(self, service: Service, container: Container, wait: Wait) -> Done:
        """Return how the readiness check ended that first succeeded."""
        deadline = monotonic() + service.ready_s
        argv = on_host(service.ready, self._programs)
        said = ""
        while True:
            left_s = max(POLL_S, deadline - monotonic())
            try:
                done = wait(partial(self._engine.exec, container, argv, timeout_s=left_s))
                if done.exit_code == 0:
                    return done
                said = _last_words((service.name, done.stdout, done.stderr, 0, False), count=1)
            except OperationFailed as failure:
                said = str(failure)
                ended = self._ended(container)
                if ended is not None:
                    why = f"{_end_of(ended)} before it was ready"
                    raise self._failure(service, container, why, _kind_of(ended)) from failure
                if failure.kind != "timeout":
                    why = f"cannot be asked whether it is ready: {said}"
                    raise self._failure(service, container, why) from failure
            if monotonic() >= deadline:
                text = f"was not ready within {service.ready_s:g} s" + (f" ({said})" if said else "")
                raise self._failure(service, container, text)
            wait(partial(gevent.sleep, POLL_S))

    def _failure(self, service: Service, container: Container, why: str, kind: str = KIND) -> ServiceFailed:
        log = self._log(service, container)
        lines = _last_words(log)
        text = f"{service.name} {why}" + (f"; it said: {lines}" if lines else "; it printed nothing")
        return ServiceFailed(service.name, text[:MESSAGE_LIMIT], (log,), kind)

    def _ended(self, container: Container) -> Done | None:
        """Return how a service ended, or None where it runs."""
        try:
            return self._engine.wait(container, timeout_s=SEEN_DEAD_S)
        except OperationFailed:
            return None

    def _log(self, service: Service, container: Container) -> Output:
        try:
            done = self._engine.logs(container, limit_bytes=OUTPUT_LIMIT, timeout_s=self._timeout_s)
        except OperationFailed as failure:
            return (service.name, b"", f"its log could not be read: {failure}".encode(), 0, False)
        return (service.name, done.stdout, done.stderr, 0, done.truncated)


def _kind_of(ended: Done) -> str:
    return "oom-killed" if ended.oom_killed else KIND


def _end_of(ended: Done) -> str:
    if ended.oom_killed:
        return "was killed for want of memory under its limit"
    return f"ended with exit code {ended.exit_code}"


def _last_words(output: Output, count: int = MOST_LINES) -> str:
    """Return what most likely says what went wrong, as one line: the first errors of a log, else its last lines.

    What was printed on stderr goes before what was printed on stdout.
    """
    _, stdout, stderr, _, _ = output
    lines = [line.strip() for line in (stderr or stdout).decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    return " / ".join(telling[:count] or lines[-count:])


def words_of(service: str, host: str, port: int) -> dict[str, str]:
    """Return what stands in commands for where a service is, by placeholder."""
    return {
        f"{{{service}.host}}": host,
        f"{{{service}.port}}": str(port),
        f"{{{service}.authority}}": authority(host, port),
    }


def _free_port(host: str) -> int:
    """Return a TCP port of an address of this host that nobody listens on at present; raise `ServiceFailed`."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as listener:
            port: int = listener.getsockname()[1]
            return port
    except OSError as error:
        text = f"nothing can listen at {host}, where this worker says that others reach it: {error} (see --address)"
        raise ServiceFailed("worker", text) from error
