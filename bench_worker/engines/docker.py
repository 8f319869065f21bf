"""Docker through its API: every verb is the call that `docker` itself would make, timed at the socket.

`exec` is three calls (make it, run it, ask for its exit code) of which the first two are timed. What Docker decides
after the fact (was it killed for want of memory? is it dead by now?) is asked for after the end was stamped.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

import docker.errors
import gevent
import requests

from bench_common.errors import EngineUnavailable
from bench_worker.engines import docker_belongings, docker_leftovers, docker_probe, docker_transport
from bench_worker.engines.arguments import parse_signal
from bench_worker.engines.base import (
    RUN_LABEL,
    TICKET_LABEL,
    WORKER_LABEL,
    Container,
    Done,
    Engine,
    EngineStatus,
    Leftover,
    OperationFailed,
)
from bench_worker.engines.docker_errors import check, exec_failure, failed, operation
from bench_worker.engines.docker_settings import MountRefused, archive_of, create_arguments
from bench_worker.engines.docker_streams import capture
from bench_worker.engines.output import EXEC_OUTPUT_LIMIT_BYTES, Capture

if TYPE_CHECKING:
    from bench_worker.engines.docker_transport import Exchange

log = logging.getLogger(__name__)

COMMIT_REPOSITORY: Final = "weighbridge/commit"

_KILLED_CODE = 137
_OOM_NEWS_S = 0.3
"""How long the news of an out-of-memory kill may come after that of the exit (containerd sends them apart)."""
_POLL_S = 0.005


class DockerEngine(Engine):
    """A Docker Engine, or whatever speaks its API at DOCKER_HOST."""

    name: ClassVar[str] = "docker"
    operations: ClassVar[frozenset[str]] = frozenset(
        {"create", "start", "run", "exec", "wait", "pause", "unpause", "stop", "kill", "commit", "remove"}
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {
            "image",
            "command",
            "memory_bytes",
            "cpus",
            "cpuset",
            "network",
            "storage",
            "env",
            "log_driver",
            "log_options",
            "init",
            "files",
        }
    )

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask the engine about itself and about the limits that this host can enforce."""
        return docker_probe.look(cls.operations, cls.settings)

    def open(self) -> None:
        """Connect, with a connection for every slot."""
        try:
            self._client = docker_transport.connect(self.options.slots, min(10.0, self.options.timeout_s))
        except EngineUnavailable:
            raise
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            status = docker_probe.failed_status(error)
            raise EngineUnavailable(f"{status.reason}; {status.advice}") from error
        self._warned: set[str] = set()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def create(self, container: Container, *, timeout_s: float) -> Done:
        """Make the container; what it owns besides, and its files, are not timed. A warning is logged once."""
        container.labels.update(
            {
                RUN_LABEL: self.options.run_id,
                WORKER_LABEL: self.options.worker_id,
                TICKET_LABEL: str(container.ticket),
            }
        )
        docker_belongings.make(self._client, container, timeout_s=timeout_s)
        with operation(timeout_s) as made:
            arguments = self._arguments(container, made)
            answer = self._client.create_container(**arguments)
        container.handle = identity = str(answer["Id"])
        for warning in set(answer.get("Warnings") or ()) - self._warned:
            self._warned.add(warning)
            log.warning("docker: %s", warning)
        if container.settings.files:
            with operation(timeout_s):
                self._client.put_archive(identity, "/", archive_of(container.settings.files))
        return made.done()

    def start(self, container: Container, *, timeout_s: float) -> Done:
        """Start it; Docker answers when its process runs."""
        with operation(timeout_s) as made:
            self._client.start(_id(container, made))
        return made.done()

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> Done:
        """Run a command in it, attached; done when its output has ended."""
        with operation(timeout_s) as made:
            execution = self._client.exec_create(_id(container, made), list(argv))["Id"]
            address = docker_transport.url(self._client, "exec", execution, "start")
            # Not asked for an upgrade, as is usual: after one, docker-py loses what came in together with the head.
            with self._client.post(address, json={"Detach": False, "Tty": False}, stream=True) as response:
                check(response)
                container.printing = Capture(EXEC_OUTPUT_LIMIT_BYTES)
                streams = capture(response.raw, EXEC_OUTPUT_LIMIT_BYTES, drain=True, stdout=container.printing)
                (stdout, stderr), container.printing = streams, None
            done = made.done()
            state = self._client.exec_inspect(execution)
            while state["Running"]:
                # It closed its output before its end, which was after the question that found it running.
                ran_ns = made.asked_ns
                gevent.sleep(_POLL_S)
                state = self._client.exec_inspect(execution)
                done.end_ns, done.end_bound_ns = made.end_ns, made.end_ns - ran_ns
        done.exit_code = int(state["ExitCode"])
        done.stdout, done.stderr = stdout.data, stderr.data
        done.truncated = stdout.truncated or stderr.truncated
        for printed in (done.stdout, done.stderr):
            kind = exec_failure(done.exit_code, printed)
            if kind:
                text = printed.decode("utf-8", "replace").strip()
                raise OperationFailed(kind, text, start_ns=done.start_ns, end_ns=done.end_ns)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> Done:
        """Wait for its end: Docker answers at once when it is over already, so no exit is missed."""
        with operation(timeout_s) as made:
            answer = self._client.wait(_id(container, made))
            done = made.done(exit_code=int(answer["StatusCode"]))
            state = self._state(container)
            if state["Status"] == "created":
                raise failed("conflict", f"{container.name} was never started", made)
            until = time.monotonic() + _OOM_NEWS_S
            limited = container.settings.memory_bytes is not None
            while done.exit_code == _KILLED_CODE and limited and not state["OOMKilled"] and time.monotonic() < until:
                gevent.sleep(_POLL_S)
                state = self._state(container)
        done.oom_killed = bool(state["OOMKilled"])
        return done

    def pause(self, container: Container, *, timeout_s: float) -> Done:
        """Freeze its cgroup."""
        with operation(timeout_s) as made:
            self._client.pause(_id(container, made))
        return made.done()

    def unpause(self, container: Container, *, timeout_s: float) -> Done:
        """Thaw its cgroup."""
        with operation(timeout_s) as made:
            self._client.unpause(_id(container, made))
        return made.done()

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> Done:
        """Stop it; Docker answers when it is over. Its API takes whole seconds of grace only."""
        with operation(timeout_s) as made:
            if grace_s != int(grace_s):
                text = f"docker counts the grace period of stop in whole seconds: {grace_s:g} s cannot be had"
                raise failed("refused", text, made)
            self._client.stop(_id(container, made), timeout=int(grace_s))
        return made.done()

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> Done:
        """Send a signal to its first process; after SIGKILL, done when the container is dead."""
        with operation(timeout_s) as made:
            try:
                number = parse_signal(signal)
            except ValueError as error:
                raise failed("refused", str(error), made) from error
            identity = _id(container, made)
            self._client.kill(identity, number.name)
            done = made.done()
            if number.name == "SIGKILL" and self._state(container)["Running"]:
                self._client.wait(identity)
                done.end_ns, done.end_bound_ns = made.end_ns, made.end_bound_ns
        return done

    def commit(self, container: Container, *, timeout_s: float) -> Done:
        """Save it as an image, which has the container's labels."""
        ordinal = f"-{len(container.images) + 1}" if container.images else ""
        tag = f"{container.name}{ordinal}"
        with operation(timeout_s) as made:
            self._client.commit(_id(container, made), repository=COMMIT_REPOSITORY, tag=tag)
        container.images.append(f"{COMMIT_REPOSITORY}:{tag}")
        return made.done()

    def remove(self, container: Container, *, timeout_s: float) -> Done:
        """Remove it with its anonymous volumes, then the images that `commit` made of it."""
        with operation(timeout_s) as made:
            if container.handle is not None or not container.belongings:
                self._client.remove_container(_id(container, made), v=True, force=True)
                container.handle = None
            while container.images:
                self._client.remove_image(container.images[-1], force=True)
                container.images.pop()
        docker_belongings.remove(self._client, container, timeout_s=timeout_s)
        return made.done()

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> Done:
        """Return what its log driver kept, one stream after the other so that neither hides the other's beginning."""
        with operation(timeout_s) as made:
            address = docker_transport.url(self._client, "containers", _id(container, made), "logs")
            kept = []
            for index, stream in enumerate(("stdout", "stderr")):
                with self._client.get(address, params={stream: "1"}, stream=True) as response:
                    check(response)
                    kept.append(capture(response.raw, limit_bytes, drain=False)[index])
        stdout, stderr = kept
        return made.done(stdout=stdout.data, stderr=stderr.data, truncated=stdout.truncated or stderr.truncated)

    def printed(self, container: Container, *, timeout_s: float) -> bytes:
        """Return what came of the exec under way, else what the log driver has."""
        if container.printing is not None:
            return container.printing.data
        return super().printed(container, timeout_s=timeout_s)

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the loopback's under the host's network, else its address in the first network that gives it one."""
        with operation(timeout_s) as made:
            seen = self._client.inspect_container(_id(container, made))
        if seen["HostConfig"]["NetworkMode"] == "host":
            return "127.0.0.1"
        networks = seen["NetworkSettings"]["Networks"]
        address = next((one["IPAddress"] for one in networks.values() if one["IPAddress"]), None)
        if address is None:
            text = f"{container.name} has no address: it has ended, or its network is {', '.join(networks) or 'none'}"
            raise failed("refused", text, made)
        return str(address)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers, images, networks and volumes that carry the label."""
        return docker_leftovers.find(self._client, run_id, worker_id, timeout_s=self.options.timeout_s)

    def discard(self, leftover: Leftover) -> None:
        """Remove one of them."""
        docker_leftovers.remove(self._client, leftover, timeout_s=self.options.timeout_s)

    def _arguments(self, container: Container, made: Exchange) -> dict[str, Any]:
        if not container.settings.image:
            raise failed("refused", "a container needs an image", made)
        try:
            return create_arguments(
                self._client,
                container,
                allow_host_mounts=self.options.allow_host_mounts,
                own_socket=docker_transport.socket_path(),
            )
        except MountRefused as error:
            raise failed("refused", str(error), made) from error

    def _state(self, container: Container) -> dict[str, Any]:
        state: dict[str, Any] = self._client.inspect_container(str(container.handle))["State"]
        return state


def _id(container: Container, made: Exchange) -> str:
    if not isinstance(container.handle, str):
        raise failed("not-found", f"{container.name} does not exist", made)
    return container.handle
