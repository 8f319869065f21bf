"""The services of one job at a time: each made, started, checked until it is ready, stopped and removed.

A failure quotes the service: how it ended, and the errors in its log.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final, Protocol, TypeAlias, TypeVar

import gevent
from msgspec.structs import replace

from bench_common.argument_types import authority
from bench_common.job_rules import CLEANUP_S, rules_of
from bench_common.long_output import OUTPUT_LIMIT_BYTES
from bench_common.records import JobReport
from bench_common.requirements import SERVICE_FAILURE
from bench_common.safe_text import shorten
from bench_common.treatment import ContainerSettings, Mount, Treatment
from bench_worker.engines.base import Container, Engine, OperationFailed, OperationResult
from bench_worker.operation_runner import MAX_LINE_CHARS, MAX_MESSAGE_CHARS, has_no_images
from bench_workloads.base import Service, Workload
from bench_workloads.script import native_argv

LOOPBACK: Final = "127.0.0.1"

READY_POLL_S: Final = 0.2
"""Interval of readiness checks, in seconds."""

MAX_LOG_LINES: Final = 6
"""How many lines of a service's log a failure quotes; the job's output keeps the whole log."""

_ERROR_LINE: Final = re.compile(
    r"\b(?:error|fatal|panic|denied|cannot|can't|unable|failed|no such|not found|not permitted|no space)\b",
    re.IGNORECASE,
)

EXIT_CHECK_S: Final = 1.0
"""How long an engine may take to report that a service has ended, in seconds."""

CommandOutput: TypeAlias = tuple[str, bytes, bytes, int, bool]
ResultT = TypeVar("ResultT")


class InterruptibleWait(Protocol):
    """Does what only waits; raises `JobAborted` where the job is called off before or meanwhile."""

    def __call__(self, call: Callable[[], ResultT]) -> ResultT:
        """Return what `call` returns."""


class ServiceFailed(Exception):
    """A service failed to start: which, why, and what it printed; `kind` is that of the job's failure."""

    def __init__(
        self, service: str, message: str, outputs: tuple[CommandOutput, ...] = (), kind: str = SERVICE_FAILURE
    ) -> None:
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
        self._uses_sockets = workload.uses_sockets(rules_of(treatment).params)
        self._outside = outside
        self._programs = workload.programs if has_no_images(engine) else {}
        self._containers = {
            service.name: self._container(f"{name}-{service.name}", ticket, treatment, service)
            for service in services
        }
        self.words: dict[str, str] = {}

    def start(self, wait: InterruptibleWait) -> tuple[CommandOutput, ...]:
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
            ready = self._await_ready(service, container, wait)
            try:
                self.words |= self._words(service, container)
            except OperationFailed as failure:
                raise ServiceFailed(service.name, f"{service.name} cannot be reached: {failure}") from failure
            outputs.append((f"{service.name}-ready", ready.stdout, ready.stderr, 0, ready.truncated))
        return tuple(outputs)

    @property
    def shares(self) -> tuple[str, ...]:
        """The containers whose volumes a job's own container shares."""
        return tuple(
            one.name
            for one in self._containers.values()
            if self._uses_sockets and "LISTEN_SOCKET" in one.settings.env
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
                return shorten(str(failure), MAX_MESSAGE_CHARS)
        return None

    def remove(self) -> str | None:
        """Remove each service that was made, the last first; return what went wrong first."""
        problem = None
        for service in reversed(self._services):
            container = self._containers[service.name]
            if container.handle is None and not container.attached_resources:
                continue
            try:
                self._engine.remove(container, timeout_s=CLEANUP_S)
            except OperationFailed as failure:
                if failure.kind != "not-found":
                    problem = problem or shorten(f"{service.name}: {failure}", MAX_MESSAGE_CHARS)
        return problem

    def explain_failure(self, report: JobReport) -> None:
        """Add to the report of a failed job which service had ended by then, and the services' logs."""
        for service in self._services:
            container = self._containers[service.name]
            log = self._log(service, container)
            report.outputs = [*(report.outputs or ()), log]
            ended = self._exit_result(container)
            if ended is None or report.error is None:
                continue
            _, _, message = report.error
            text = f"{service.name} {_describe_exit(ended)} during the job; {message}; its log: {_error_lines(log)}"
            report.error = (service.name, _failure_kind(ended), shorten(text, MAX_MESSAGE_CHARS))

    def logs(self) -> tuple[CommandOutput, ...]:
        """Return the output of each service so far."""
        return tuple(self._log(service, self._containers[service.name]) for service in self._services)

    def describe_exit(self, service: str) -> tuple[str, str] | None:
        """Return the kind of failure and how a service ended; None where it runs."""
        ended = self._exit_result(self._containers[service])
        return None if ended is None else (_failure_kind(ended), _describe_exit(ended))

    def _container(self, name: str, ticket: int, treatment: Treatment, service: Service) -> Container:
        """Return the settings of a service's container; its environment holds the address to listen on."""
        given = treatment.services.get(service.name, ContainerSettings())
        shares_host = "network" in self._engine.inapplicable or given.network == "host"
        host = self._outside or LOOPBACK
        where = {
            "LISTEN_HOST": host if shares_host else "0.0.0.0",  # noqa: S104  in a network of its own
            "LISTEN_PORT": str(_free_port(host) if shares_host else service.port),
        }
        if self._uses_sockets and service.socket:
            where["LISTEN_SOCKET"] = service.socket
            given = self._with_socket_volume(given, service.socket.rpartition("/")[0])
        settings = replace(
            given,
            image=given.image or service.image,
            command=native_argv(service.command, self._programs),
            env={**given.env, **where},
        )
        published = None if self._outside is None or shares_host else (self._outside, service.port)
        container = Container(name, ticket, settings)
        container.publish = published
        return container

    def _with_socket_volume(self, given: ContainerSettings, folder: str) -> ContainerSettings:
        """Give a container a volume to share with those that reach it by a socket."""
        if "storage" in self._engine.inapplicable or any(mount.target == folder for mount in given.storage):
            return given
        return replace(given, storage=(*given.storage, Mount("volume", folder)))

    def _words(self, service: Service, container: Container) -> dict[str, str]:
        """Return the address of a running service by placeholder; one that is reached by its socket needs none."""
        if "LISTEN_SOCKET" in container.settings.env:
            return {f"{{{service.name}.socket}}": self._engine.shared_path(container, service.socket)}
        return endpoint_placeholders(service.name, *self._found(container))

    def _found(self, container: Container) -> tuple[str, int]:
        """Return host and port at which a running service is reached."""
        if container.publish is not None:
            return container.publish[0], self._engine.published_port(container, timeout_s=self._timeout_s)
        host = self._outside or self._engine.address(container, timeout_s=self._timeout_s)
        return host, int(container.settings.env["LISTEN_PORT"])

    def _await_ready(self, service: Service, container: Container, wait: InterruptibleWait) -> OperationResult:
        """Return the result of the first readiness check that succeeds."""
        deadline = monotonic() + service.ready_s
        argv = native_argv(service.ready, self._programs)
        error = ""
        while True:
            left_s = max(READY_POLL_S, deadline - monotonic())
            try:
                done = wait(partial(self._engine.exec, container, argv, timeout_s=left_s))
                if done.exit_code == 0:
                    return done
                error = _error_lines((service.name, done.stdout, done.stderr, 0, False), count=1)
            except OperationFailed as failure:
                error = str(failure)
                ended = self._exit_result(container)
                if ended is not None:
                    why = f"{_describe_exit(ended)} before it was ready"
                    raise self._failure(service, container, why, _failure_kind(ended)) from failure
                if failure.kind != "timeout":
                    why = f"its readiness check cannot run: {error}"
                    raise self._failure(service, container, why) from failure
            if monotonic() >= deadline:
                text = f"was not ready within {service.ready_s:g} s" + (f" ({error})" if error else "")
                raise self._failure(service, container, text)
            wait(partial(gevent.sleep, READY_POLL_S))

    def _failure(
        self, service: Service, container: Container, why: str, kind: str = SERVICE_FAILURE
    ) -> ServiceFailed:
        log = self._log(service, container)
        lines = _error_lines(log)
        text = f"{service.name} {why}" + (f"; its log: {lines}" if lines else "; it printed nothing")
        from_host = has_no_images(self._engine) and service.binary
        if from_host and shutil.which(service.binary, path=container.settings.env.get("PATH")) is None:
            # The script that starts it may have failed of something else first.
            kind, text = "command-not-found", f"there is no program {service.binary} on PATH"
        return ServiceFailed(service.name, shorten(text, MAX_MESSAGE_CHARS), (log,), kind)

    def _exit_result(self, container: Container) -> OperationResult | None:
        """Return how a service ended, or None where it runs."""
        try:
            return self._engine.wait(container, timeout_s=EXIT_CHECK_S)
        except OperationFailed:
            return None

    def _log(self, service: Service, container: Container) -> CommandOutput:
        try:
            done = self._engine.logs(container, limit_bytes=OUTPUT_LIMIT_BYTES, timeout_s=self._timeout_s)
        except OperationFailed as failure:
            return (service.name, b"", f"its log could not be read: {failure}".encode(), 0, False)
        return (service.name, done.stdout, done.stderr, 0, done.truncated)


def _failure_kind(ended: OperationResult) -> str:
    return "oom-killed" if ended.oom_killed else SERVICE_FAILURE


def _describe_exit(ended: OperationResult) -> str:
    if ended.oom_killed:
        return "was killed by the OOM killer (memory limit)"
    return f"ended with exit code {ended.exit_code}"


def _error_lines(output: CommandOutput, count: int = MAX_LOG_LINES) -> str:
    """Return the lines of a log that most likely explain a failure, as one: its first errors, else its last lines.

    What was printed on stderr goes before what was printed on stdout.
    """
    _, stdout, stderr, _, _ = output
    lines = [line.strip() for line in (stderr or stdout).decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.search(line)]
    return " / ".join(shorten(line, MAX_LINE_CHARS) for line in errors[:count] or lines[-count:])


def endpoint_placeholders(service: str, host: str, port: int) -> dict[str, str]:
    """Return the address of a service by its placeholders in commands."""
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
