"""Docker through its API: every verb is the call that `docker` itself would make, timed at the socket.

`exec` is three calls (make it, run it, ask for its exit code) of which the first two are timed. What Docker decides
after the fact (was it killed for want of memory? is it dead by now?) is asked for after the end was stamped.

Docker's statistics of a container: one query, or the stream that it keeps sending.

``GET /containers/ID/stats`` looks twice, a second apart, because its answer holds the CPU time of both; so one
query takes at least a second. As a stream it answers once a second, until the container is removed; the pace is
Docker's own.

Reads the two streams of a container, which Docker sends as frames on one connection.

A frame is a byte for the stream (1 stdout, 2 stderr), three zero bytes, the payload's length as a big-endian 32-bit
number, and the payload (Docker Engine API, "Attach to a container"). A terminal is never asked for, so there are
always frames.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import docker
import docker.errors
import gevent
import requests

from bench_common.errors import EngineUnavailable
from bench_worker.engines.base import (
    Container,
    DaemonProcesses,
    Engine,
    EngineStatus,
    Leftover,
    OperationFailed,
    OperationResult,
)
from bench_worker.engines.daemon_processes import docker_daemon
from bench_worker.engines.docker import http as docker_http
from bench_worker.engines.docker import images as docker_images
from bench_worker.engines.docker import leftovers as docker_leftovers
from bench_worker.engines.docker import probe as docker_probe
from bench_worker.engines.docker import settings as docker_settings
from bench_worker.engines.docker.errors import docker_operation, exec_failure, operation_failed, raise_for_status
from bench_worker.engines.docker.http import DockerHttp
from bench_worker.engines.docker.oom import (
    EVENT_TIMEOUT_S,
    KILLED_CODE,
    count_oom_kills,
    kernel_log_has_oom_kill,
    was_oom_killed,
)
from bench_worker.engines.docker.settings import MountRefused, create_arguments, tar_archive
from bench_worker.engines.output import EXEC_OUTPUT_LIMIT_BYTES, Capture, parse_signal

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.docker.http import TimedRequest

log = logging.getLogger(__name__)


STREAM_INTERVAL_S: Final = 1.0
"""How often Docker sends a reading; nothing can change it."""


def read_once(client: docker.APIClient, identity: str, timeout_s: float, address: str) -> OperationResult:
    """Ask the engine at `address` once and read the whole answer."""
    url = docker_http.url(client, "containers", identity, "stats")
    with (
        docker_operation(timeout_s, address) as made,
        client.get(url, params={"stream": "0"}, stream=True) as response,
    ):
        raise_for_status(response)
        _ = response.content
    return made.done()


def read_stream(client: docker.APIClient, identity: str, timeout_s: float, address: str) -> Iterator[OperationResult]:
    """Yield each reading of the stream until it ends, each at most `timeout_s` after the one before."""
    url = docker_http.url(client, "containers", identity, "stats")
    with docker_operation(timeout_s, address) as made:
        response = client.get(url, params={"stream": "1"}, stream=True)
    try:
        with docker_operation(timeout_s, address):
            raise_for_status(response)
            lines = response.iter_lines(chunk_size=1 << 16)
            line = next(lines, None)
        start_ns = made.start_ns
        while line is not None:
            if line:
                yield OperationResult(start_ns, made.now_ns())
            with docker_operation(timeout_s, address) as made:
                start_ns = made.begun_ns
                line = next(lines, None)
    finally:
        # The answer never ends by itself: its connection is given up, not given back.
        response.raw.close()


_HEADER = struct.Struct(">BxxxL")
_STDERR = 2
_CHUNK_BYTES = 64 * 1024


class Readable(Protocol):
    """The body of an answer: `read` returns fewer bytes than asked for only at its end."""

    def read(self, amt: int, /) -> bytes:
        """Return up to `amt` bytes."""


def frames(body: Readable) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the stream and a piece of its bytes until the body ends, be it in the middle of a frame."""
    while len(header := body.read(_HEADER.size)) == _HEADER.size:
        stream, left = _HEADER.unpack(header)
        while left:
            piece = body.read(min(left, _CHUNK_BYTES))
            if not piece:
                return
            left -= len(piece)
            yield stream, piece


def capture(
    body: Readable, limit_bytes: int, *, drain: bool, stdout: Capture | None = None
) -> tuple[Capture, Capture]:
    """Return the beginnings of stdout and stderr, at most `limit_bytes` of each.

    With `drain` the body is read to its end all the same, because its end says something (a command that is over);
    without, reading stops at the first stream that is full. A `stdout` that is given is filled, and can be looked at
    meanwhile.
    """
    streams = stdout or Capture(limit_bytes), Capture(limit_bytes)
    for stream, piece in frames(body):
        kept = streams[1] if stream == _STDERR else streams[0]
        kept.add(piece)
        if kept.truncated and not drain:
            break
    return streams


COMMIT_REPOSITORY: Final = "weighbridge/commit"

_POLL_S = 0.005


class DockerEngine(Engine):
    """A Docker Engine, or whatever speaks its API at DOCKER_HOST."""

    name: ClassVar[str] = "docker"
    operations: ClassVar[frozenset[str]] = frozenset(
        {"pull", "create", "start", "run", "exec", "wait", "pause", "unpause", "stop", "kill", "commit", "remove"}
        | {"stats", "logs", "checkpoint", "restore"}
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
            *docker_settings.SETTINGS,
        }
    )

    output_ends_last: ClassVar[bool] = False
    """Whether the output of an exec ends with its command, even where the command closed it before."""

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask the engine about itself and about the limits that this host can enforce."""
        return docker_probe.probe_docker(cls.name, docker_http.endpoint(), cls.operations, cls.settings)

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses | None:
        """Return the processes of the engine that listens at the present endpoint."""
        return docker_daemon(docker_http.endpoint())

    def open(self) -> None:
        """Connect, with a connection for every slot."""
        try:
            self._client = docker_http.connect(self.options.slots, min(10.0, self.options.timeout_s), self._address())
        except EngineUnavailable:
            raise
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            status = self._failed(docker_probe.failed_status(self.name, self._address(), error))
            raise EngineUnavailable(f"{status.reason}; {status.advice}") from error
        self._http = DockerHttp(self._client, self._address())
        self._warned: set[str] = set()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._client.close()

    def pull(self, container: Container, *, fresh: bool, timeout_s: float) -> OperationResult:
        """Fetch the image; done when the engine's account of it has ended."""
        if fresh:
            with self._operation(timeout_s) as before:
                docker_images.remove_image(
                    self._client, docker_images.require_image(container.settings, before), before
                )
        with self._operation(timeout_s) as made:
            docker_images.pull_image(self._client, docker_images.require_image(container.settings, made), made)
        return made.done()

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Make the container; what it owns besides, and its files, are not timed. A warning is logged once."""
        self._label(container)
        docker_leftovers.create_attached(self._client, container, timeout_s=timeout_s, address=self._address())
        with self._operation(timeout_s) as made:
            arguments = self._arguments(container, made)
            named = arguments.pop("name")
            settings = self._client.create_container_config(**arguments)  # type: ignore[no-untyped-call]
            answer = self._http.post("containers", "create", body=settings, name=named)
        container.handle = identity = str(answer["Id"])
        for warning in set(answer.get("Warnings") or ()) - self._warned:
            self._warned.add(warning)
            log.warning("docker: %s", warning)
        if container.settings.files:
            with self._operation(timeout_s):
                self._client.put_archive(identity, "/", tar_archive(container.settings.files))
        return made.done()

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Start it; Docker answers when its process runs."""
        container.killed = False
        with self._operation(timeout_s) as made:
            self._http.post("containers", container_id(container, made), "start")
        return made.done()

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """Run a command in it, attached; done when its output has ended."""
        with self._operation(timeout_s):
            kills = count_oom_kills(self._client, container)
        with self._operation(timeout_s) as made:
            wanted = {"Cmd": list(argv), "AttachStdout": True, "AttachStderr": True}
            execution = self._http.post("containers", container_id(container, made), "exec", body=wanted)["Id"]
            made.pause()
            # Not asked for an upgrade, as is usual: so its output is an ordinary answer.
            with self._http.stream("exec", execution, "start", body={"Detach": False, "Tty": False}) as answer:
                container.live_output = Capture(EXEC_OUTPUT_LIMIT_BYTES)
                streams = capture(answer, EXEC_OUTPUT_LIMIT_BYTES, drain=True, stdout=container.live_output)
                (stdout, stderr), container.live_output = streams, None
            done = made.done()
            state = self._http.get("exec", execution, "json")
            while state["Running"]:
                ran_ns = made.last_sent_ns
                gevent.sleep(_POLL_S)
                state = self._http.get("exec", execution, "json")
                if not self.output_ends_last:
                    # It closed its output before its end, which was after the question that found it running.
                    done.end_ns, done.end_uncertainty_ns = made.end_ns, made.end_ns - ran_ns
        done.exit_code = int(state["ExitCode"])
        done.stdout, done.stderr = stdout.data, stderr.data
        done.truncated = stdout.truncated or stderr.truncated
        for printed in (done.stdout, done.stderr):
            kind = exec_failure(done.exit_code, printed)
            if kind:
                text = printed.decode("utf-8", "replace").strip()
                raise OperationFailed(kind, text, start_ns=done.start_ns, end_ns=done.end_ns)
        with self._operation(timeout_s):
            done.oom_killed = was_oom_killed(self._client, container, done, kills)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Wait for its end: Docker answers at once when it is over already, so no exit is missed."""
        with self._operation(timeout_s) as made:
            answer = self._http.post("containers", container_id(container, made), "wait")
            done = made.done(exit_code=int(answer["StatusCode"]))
            state = self._last_state(container, done)
            if state["Status"] == "created":
                raise operation_failed("conflict", f"{container.name} was never started", made)
        done.oom_killed = bool(state["OOMKilled"])
        return done

    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Freeze its cgroup."""
        with self._operation(timeout_s) as made:
            self._http.post("containers", container_id(container, made), "pause")
        return made.done()

    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Thaw its cgroup."""
        with self._operation(timeout_s) as made:
            self._http.post("containers", container_id(container, made), "unpause")
        return made.done()

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """Stop it; Docker answers when it is over. Its API takes whole seconds of grace only."""
        with self._operation(timeout_s) as made:
            if grace_s != int(grace_s):
                text = f"docker counts the grace period of stop in whole seconds: {grace_s:g} s cannot be had"
                raise operation_failed("refused", text, made)
            self._http.post("containers", container_id(container, made), "stop", t=int(grace_s))
            container.killed = True
        return made.done()

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """Send a signal to its first process; after SIGKILL, done when the container is dead."""
        with self._operation(timeout_s) as made:
            try:
                number = parse_signal(signal)
            except ValueError as error:
                raise operation_failed("refused", str(error), made) from error
            identity = container_id(container, made)
            self._http.post("containers", identity, "kill", signal=number.name)
            container.killed |= number.name == "SIGKILL"
            done = made.done()
            if number.name == "SIGKILL" and self._state(container)["Running"]:
                self._http.post("containers", identity, "wait")
                done.end_ns, done.end_uncertainty_ns = made.end_ns, made.end_uncertainty_ns
        return done

    def commit(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Save it as an image, which has the container's labels."""
        tag = self._commit_tag(container)
        with self._operation(timeout_s) as made:
            self._client.commit(container_id(container, made), repository=COMMIT_REPOSITORY, tag=tag)
        container.images.append(f"{COMMIT_REPOSITORY}:{tag}")
        return made.done()

    def checkpoint(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Save its processes and end them; done when the container has ended."""
        with self._operation(timeout_s) as made:
            identity = container_id(container, made)
            container.checkpoints += 1
            self._checkpoint(identity, container.checkpoints)
            done = made.done()
            if self._state(container)["Running"]:
                self._http.post("containers", identity, "wait")
                done.end_ns, done.end_uncertainty_ns = made.end_ns, made.end_uncertainty_ns
        return done

    def restore(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Let it go on from its last checkpoint."""
        with self._operation(timeout_s) as made:
            self._restore(container_id(container, made), container.checkpoints)
        return made.done()

    def _checkpoint(self, identity: str, ordinal: int) -> None:
        docker_probe.save_checkpoint(self._http, identity, ordinal)

    def _restore(self, identity: str, ordinal: int) -> None:
        docker_probe.restore_checkpoint(self._http, identity, ordinal)

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Remove it with its anonymous volumes, then the images that `commit` made of it."""
        with self._operation(timeout_s) as made:
            if container.handle is not None or not container.attached_resources:
                self._http.delete("containers", container_id(container, made), v="true", force="true")
                container.handle = None
            while container.images:
                self._client.remove_image(container.images[-1], force=True)
                container.images.pop()
        docker_leftovers.remove_attached(self._client, container, timeout_s=timeout_s, address=self._address())
        return made.done()

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what its log driver kept, one stream after the other so that neither hides the other's beginning."""
        with self._operation(timeout_s) as made:
            identity = container_id(container, made)
            stdout = self._logs(identity, {"stdout": "1"}, limit_bytes)[0]
            stderr = self._logs(identity, {"stderr": "1"}, limit_bytes)[1]
        return made.done(stdout=stdout.data, stderr=stderr.data, truncated=stdout.truncated or stderr.truncated)

    def read_output(self, container: Container, *, timeout_s: float) -> bytes:
        """Return what came of the exec under way, else what the log driver has."""
        if container.live_output is not None:
            return container.live_output.data
        return super().read_output(container, timeout_s=timeout_s)

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the loopback's under the host's network, else its address in the first network that gives it one."""
        with self._operation(timeout_s) as made:
            seen = self._client.inspect_container(container_id(container, made))
        if seen["HostConfig"]["NetworkMode"] == "host":
            return "127.0.0.1"
        networks = seen["NetworkSettings"]["Networks"]
        address = next((one["IPAddress"] for one in networks.values() if one["IPAddress"]), None)
        if address is None:
            text = f"{container.name} has no address: it has ended, or its network is {', '.join(networks) or 'none'}"
            raise operation_failed("refused", text, made)
        return str(address)

    def published_port(self, container: Container, *, timeout_s: float) -> int:
        """Return the port that the engine picked on the host."""
        with self._operation(timeout_s) as made:
            seen = self._client.inspect_container(container_id(container, made))
        bound = [one for ports in (seen["NetworkSettings"]["Ports"] or {}).values() for one in ports or ()]
        if not bound:
            network = seen["HostConfig"]["NetworkMode"]
            text = f"{container.name} has no port on the host: it has ended, or its network ({network}) gives it none"
            raise operation_failed("refused", text, made)
        return int(bound[0]["HostPort"])

    def committed_bytes(self, container: Container, *, timeout_s: float) -> int | None:
        """Return the size of the image's last layer, as its history tells it."""
        with self._operation(timeout_s):
            history = self._client.history(container.images[-1])  # type: ignore[no-untyped-call]
        return int(history[0]["Size"])

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Ask once, which takes a second: Docker looks twice."""
        return read_once(self._client, self._known(container), timeout_s, self._address())

    def watch(self, container: Container, *, interval_s: float, timeout_s: float) -> Iterator[OperationResult]:
        """Read the stream, in which Docker answers once a second."""
        del interval_s  # any other one is refused before the run
        return read_stream(self._client, self._known(container), timeout_s, self._address())

    def _known(self, container: Container) -> str:
        with self._operation(self.options.timeout_s) as made:
            return container_id(container, made)

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Look for the image, the network, the log driver and the volumes' driver."""
        return docker_images.missing_resources(self._client, settings, timeout_s=self.options.timeout_s)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers, images, networks and volumes that carry the label."""
        return docker_leftovers.find_leftovers(
            self._client, self.name, run_id, worker_id, timeout_s=self.options.timeout_s
        )

    def discard(self, leftover: Leftover) -> None:
        """Remove one of them."""
        docker_leftovers.remove_leftover(self._client, leftover, timeout_s=self.options.timeout_s)

    def _arguments(self, container: Container, made: TimedRequest) -> dict[str, Any]:
        if not container.settings.image:
            raise operation_failed("refused", "a container needs an image", made)
        try:
            return create_arguments(
                self._client,
                container,
                allow_host_mounts=self.options.allow_host_mounts,
                own_socket=docker_http.socket_path(self._address()),
            )
        except MountRefused as error:
            raise operation_failed("refused", str(error), made) from error

    def _logs(self, identity: str, streams: dict[str, str], limit_bytes: int) -> tuple[Capture, Capture]:
        address = docker_http.url(self._client, "containers", identity, "logs")
        with self._client.get(address, params=streams, stream=True) as response:
            raise_for_status(response)
            return capture(response.raw, limit_bytes, drain=False)

    @classmethod
    def _failed(cls, status: EngineStatus) -> EngineStatus:
        """Return what is said of an engine that does not answer, in this engine's own words."""
        return status

    def _address(self) -> str:
        return docker_http.endpoint()

    def _operation(self, timeout_s: float) -> AbstractContextManager[TimedRequest]:
        return docker_operation(timeout_s, self._address())

    def _commit_tag(self, container: Container) -> str:
        ordinal = f"-{len(container.images) + 1}" if container.images else ""
        return f"{container.name}{ordinal}"

    def _state(self, container: Container) -> dict[str, Any]:
        state: dict[str, Any] = self._http.get("containers", str(container.handle), "json")["State"]
        return state

    def _last_state(self, container: Container, done: OperationResult) -> dict[str, Any]:
        """Return its state after its end, when the news of a kill for want of memory has had the time to come."""
        state = self._state(container)
        until = time.monotonic() + EVENT_TIMEOUT_S
        # One that was killed by us waits for no news; another one's limit may be told of later than its end.
        limited = container.settings.memory_bytes is not None and not container.killed
        doubtful = done.exit_code == KILLED_CODE and limited and not state["OOMKilled"]
        if doubtful and kernel_log_has_oom_kill(str(container.handle)):
            return {**state, "OOMKilled": True}
        while doubtful and not state["OOMKilled"] and time.monotonic() < until:
            gevent.sleep(_POLL_S)
            state = self._state(container)
        return state


def container_id(container: Container, made: TimedRequest) -> str:
    """Return the engine's id of a container; raise the failure ``not-found`` where it was not made."""
    if not isinstance(container.handle, str):
        raise operation_failed("not-found", f"{container.name} does not exist", made)
    return container.handle
