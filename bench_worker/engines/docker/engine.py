"""Docker through its API: every verb is the call that `docker` itself would make, timed at the socket.

`exec` is three calls (create it, start it, ask for its exit code) of which the first two are timed. What Docker
decides after the fact (was it killed by the OOM killer? is it dead by now?) is asked after the end was stamped.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import gevent

from bench_common.errors import EngineUnavailable
from bench_common.long_output import OUTPUT_LIMIT_BYTES
from bench_common.treatment import CONTAINER_SETTINGS
from bench_worker.engines.base import (
    Container,
    DaemonProcesses,
    Engine,
    EngineStatus,
    Leftover,
    OperationFailed,
    OperationResult,
)
from bench_worker.engines.cost_group import (
    SYSTEMD,
    CostGroups,
    group_path,
    no_parent_reason,
    remove_group,
    tell_once,
)
from bench_worker.engines.daemon_processes import docker_daemon
from bench_worker.engines.docker import http as docker_http
from bench_worker.engines.docker import leftovers as docker_leftovers
from bench_worker.engines.docker import ownership
from bench_worker.engines.docker import probe as docker_probe
from bench_worker.engines.docker.context import endpoint
from bench_worker.engines.docker.errors import (
    EVENT_TIMEOUT_S,
    KILLED_CODE,
    call_errors,
    container_id,
    count_oom_kills,
    docker_operation,
    exec_failure,
    kernel_log_has_oom_kill,
    operation_failed,
    was_oom_killed,
)
from bench_worker.engines.docker.http import TAIL_LINES, capture, capture_end
from bench_worker.engines.docker.image_copy import ensure_image
from bench_worker.engines.docker.settings import create_body, tar_archive
from bench_worker.engines.oci.cgroups import Cgroups, cgroup_path
from bench_worker.engines.output import Capture, parse_signal
from bench_worker.engines.settings import MountRefused
from bench_worker.engines.surroundings import dockerd_surroundings
from bench_worker.program_digest import listening_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    import docker

    from bench_common.requirements import ImageProgram
    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import CostMeter
    from bench_worker.engines.docker.http import TimedRequest
    from bench_worker.images.build import ImageStore

log = logging.getLogger(__name__)

STREAM_INTERVAL_S: Final = 1.0
"""How often Docker sends a reading; nothing can change it."""

COMMIT_REPOSITORY: Final = "weighbridge/commit"

_POLL_S = 0.005


class DockerEngine(Engine):
    """A Docker Engine, or whatever speaks its API at DOCKER_HOST."""

    name: ClassVar[str] = "docker"
    operations: ClassVar[frozenset[str]] = frozenset(
        {"pull", "create", "start", "run", "exec", "wait", "pause", "unpause", "stop", "kill", "commit", "remove"}
        | {"stats", "logs"}
    )
    settings: ClassVar[frozenset[str]] = frozenset(CONTAINER_SETTINGS) - set(docker_probe.FOREIGN)

    output_ends_last: ClassVar[bool] = False
    """Whether the output of an exec ends with its command, even where the command closed it before."""
    scope: ClassVar[str] = "/system.slice/docker-{}.scope"
    """The control group that systemd makes for a container."""
    stops_by_sigkill: ClassVar[bool] = False
    """Whether its own `stop` with a grace period of 0 is one SIGKILL; Docker's is SIGTERM and, at once, SIGKILL."""

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask the engine about itself and about the limits that this host can enforce."""
        return docker_probe.probe_docker(cls.name, cls._endpoint(), cls.operations, cls.settings)

    @classmethod
    def program_of(cls, status: EngineStatus) -> str:
        """Return the daemon's."""
        return listening_program(status.endpoint)

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses | None:
        """Return the processes of the engine that listens at the present endpoint."""
        return docker_daemon(cls._endpoint())

    @classmethod
    def image_store(cls) -> ImageStore | None:
        """Return the images of the engine that the environment names."""
        from bench_worker.engines.docker.images import DockerImages

        return DockerImages()

    def open(self) -> None:
        """Connect; idle connections are kept for the next operation."""
        timeout_s = self.options.timeout_s
        try:
            self._http = docker_http.connect(min(10.0, timeout_s), self._address())
        except EngineUnavailable:
            raise
        except call_errors() as error:
            status = self._failed(docker_probe.failed_status(self.name, self._address(), error))
            raise EngineUnavailable(f"{status.reason}; {status.advice}") from error
        self._no_group: str | None = None
        self._warned: set[str] = set()
        self._claimed: dict[int, ContainerSettings] = {}
        self._bodies: dict[int, tuple[ContainerSettings, str]] = {}

    def prepare_pulls(self) -> None:
        """Load docker-py, which knows where the credentials of a registry are."""
        from bench_worker.engines.docker import images  # noqa: F401  no job has to wait for it

        _ = self._client

    def close(self) -> None:
        """Close the connections."""
        self._disconnect()
        self._cost_groups.close()

    def _disconnect(self) -> None:
        self._http.close()
        client = vars(self).pop("_client", None)  # opened again, the engine may be at another address
        if client is not None:
            client.close()

    @cached_property
    def _cost_groups(self) -> CostGroups:
        return CostGroups(Cgroups.detect(swap_limit=False))

    @cached_property
    def _client(self) -> docker.APIClient:
        """docker-py's client of the engine, for what few runs need."""
        return docker_http.docker_client(self._http, self.options.timeout_s, self.options.slots)

    def pull(self, container: Container, *, fresh: bool, timeout_s: float) -> OperationResult:
        """Fetch the image; done when the engine's account of it has ended."""
        from bench_worker.engines.docker import images as docker_images

        if fresh:
            with self._operation(timeout_s) as before:
                docker_images.remove_image(
                    self._client, docker_images.require_image(container.settings, before), before
                )
        with self._operation(timeout_s) as timed:
            docker_images.pull_image(self._client, docker_images.require_image(container.settings, timed), timed)
        return timed.result()

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Make the container; what it owns besides, and its files, are not timed. A warning is logged once."""
        self._label(container)
        self._claim(container, timeout_s)
        self._count_cost(container, timeout_s)
        docker_leftovers.create_attached(self._http, container, timeout_s=timeout_s)
        with self._operation(timeout_s) as timed:
            body = self._create_body(container, timed)
            answer = json.loads(timed.read("POST", "containers", "create", content=body, name=container.name))
        container.handle = identity = str(answer["Id"])
        for warning in set(answer.get("Warnings") or ()) - self._warned:
            self._warned.add(warning)
            log.warning("docker: %s", warning)
        if container.settings.files:
            archive = tar_archive(container.settings.files)
            kind = {"Content-Type": "application/x-tar"}
            with self._operation(timeout_s) as copied:
                copied.read("PUT", "containers", identity, "archive", content=archive, headers=kind, path="/")
        return timed.result()

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Start it; Docker answers when its process runs."""
        container.killed = False
        with self._operation(timeout_s) as timed:
            timed.post("containers", container_id(container, timed), "start")
        return timed.result()

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """Run a command in it, attached; done when its output has ended."""
        with self._operation(timeout_s) as before:
            kills = count_oom_kills(before, container)
        with self._operation(timeout_s) as timed:
            wanted = {"Cmd": list(argv), "AttachStdout": True, "AttachStderr": True}
            execution = timed.post("containers", container_id(container, timed), "exec", body=wanted)["Id"]
            timed.exclude_gap()
            # Not asked for an upgrade, as is usual: so its output is an ordinary answer.
            body = {"Detach": False, "Tty": False}
            with timed.stream("POST", "exec", execution, "start", body=body) as answer:
                container.live_output = Capture(OUTPUT_LIMIT_BYTES)
                streams = capture(answer, OUTPUT_LIMIT_BYTES, drain=True, stdout=container.live_output)
                (stdout, stderr), container.live_output = streams, None
            done = timed.result()
            state = timed.get("exec", execution, "json")
            while state["Running"]:
                ran_ns = timed.last_sent_ns
                gevent.sleep(_POLL_S)
                state = timed.get("exec", execution, "json")
                if not self.output_ends_last:
                    # It closed its output before its end, which was after the question that found it running.
                    done.end_ns, done.end_uncertainty_ns = timed.end_ns, timed.end_ns - ran_ns
        done.exit_code = int(state["ExitCode"])
        done.stdout, done.stderr = stdout.data, stderr.data
        done.truncated = stdout.truncated or stderr.truncated
        for printed in (done.stdout, done.stderr):
            kind = exec_failure(done.exit_code, printed)
            if kind:
                text = printed.decode("utf-8", "replace").strip()
                raise OperationFailed(kind, text, start_ns=done.start_ns, end_ns=done.end_ns)
        with self._operation(timeout_s) as after:
            done.oom_killed = was_oom_killed(after, container, done, kills)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Wait for its end: Docker answers at once when it is over already, so no exit is missed."""
        with self._operation(timeout_s) as timed:
            answer = timed.post("containers", container_id(container, timed), "wait")
            done = timed.result(exit_code=int(answer["StatusCode"]))
            state = self._last_state(timed, container, done)
            if state["Status"] == "created":
                raise operation_failed("conflict", f"{container.name} was never started", timed)
        done.oom_killed = bool(state["OOMKilled"])
        return done

    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Freeze its cgroup."""
        with self._operation(timeout_s) as timed:
            timed.post("containers", container_id(container, timed), "pause")
        return timed.result()

    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Thaw its cgroup."""
        with self._operation(timeout_s) as timed:
            timed.post("containers", container_id(container, timed), "unpause")
        return timed.result()

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """Stop it; Docker answers when it is over. Its API takes whole seconds of grace only; for 0 it is `kill`."""
        if not (grace_s or self.stops_by_sigkill):
            return self._stop_at_once(container, timeout_s)
        with self._operation(timeout_s) as timed:
            if grace_s != int(grace_s):
                text = f"docker takes the grace period of stop in whole seconds, not {grace_s:g} s"
                raise operation_failed("refused", text, timed)
            timed.post("containers", container_id(container, timed), "stop", t=int(grace_s))
            container.killed = True
        return timed.result()

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """Send a signal to its first process; after SIGKILL, done when the container is dead."""
        with self._operation(timeout_s) as timed:
            try:
                number = parse_signal(signal)
            except ValueError as error:
                raise operation_failed("refused", str(error), timed) from error
            identity = container_id(container, timed)
            timed.post("containers", identity, "kill", signal=number.name)
            container.killed |= number.name == "SIGKILL"
            done = timed.result()
            if number.name == "SIGKILL" and self._is_running(timed, container):
                timed.post("containers", identity, "wait")
                done.end_ns, done.end_uncertainty_ns = timed.end_ns, timed.end_uncertainty_ns
        return done

    def _stop_at_once(self, container: Container, timeout_s: float) -> OperationResult:
        """Kill it by one SIGKILL; one that does not run is stopped already."""
        try:
            return self.kill(container, "SIGKILL", timeout_s=timeout_s)
        except OperationFailed as failure:
            with self._operation(timeout_s) as after:
                if self._state(after, container)["Running"]:
                    raise
            return OperationResult(failure.start_ns, failure.end_ns)

    def commit(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Save it as an image, which has the container's labels."""
        tag = self._commit_tag(container)
        with self._operation(timeout_s) as timed:
            timed.post("commit", body={}, container=container_id(container, timed), repo=COMMIT_REPOSITORY, tag=tag)
        container.images.append(f"{COMMIT_REPOSITORY}:{tag}")
        return timed.result()

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Remove it with its anonymous volumes, then the images that `commit` made of it."""
        with self._operation(timeout_s) as timed:
            if container.handle is not None or not container.attached_resources:
                self._remove_by_force(timed, container_id(container, timed))
                container.handle = None
            while container.images:
                timed.delete("images", container.images[-1], force="true")
                container.images.pop()
        docker_leftovers.remove_attached(self._http, container, timeout_s=timeout_s)
        if container.cost_group is not None:
            container.cost_group.remove()
        return timed.result()

    def _remove_by_force(self, timed: TimedRequest, identity: str) -> None:
        timed.delete("containers", identity, v="true", force="true")

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what its log driver kept, one stream after the other so that neither hides the other's beginning."""
        with self._operation(timeout_s) as timed:
            identity = container_id(container, timed)
            stdout = self._logs(timed, identity, limit_bytes, stdout="1")[0]
            stderr = self._logs(timed, identity, limit_bytes, stderr="1")[1]
        return timed.result(stdout=stdout.data, stderr=stderr.data, truncated=stdout.truncated or stderr.truncated)

    def read_output(self, container: Container, *, timeout_s: float) -> bytes:
        """Return the output so far of the running exec, else what the log driver has."""
        if container.live_output is not None:
            return container.live_output.data
        return super().read_output(container, timeout_s=timeout_s)

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the loopback's under the host's network, else its address in the first network that gives it one."""
        with self._operation(timeout_s) as timed:
            seen = timed.get("containers", container_id(container, timed), "json")
        if seen["HostConfig"]["NetworkMode"] == "host":
            return "127.0.0.1"
        networks = seen["NetworkSettings"]["Networks"]
        address = next((one["IPAddress"] for one in networks.values() if one["IPAddress"]), None)
        if address is None:
            text = f"{container.name} has no address: it has ended, or its network is {', '.join(networks) or 'none'}"
            raise operation_failed("refused", text, timed)
        return str(address)

    def published_port(self, container: Container, *, timeout_s: float) -> int:
        """Return the port that the engine picked on the host."""
        with self._operation(timeout_s) as timed:
            seen = timed.get("containers", container_id(container, timed), "json")
        bound = [one for ports in (seen["NetworkSettings"]["Ports"] or {}).values() for one in ports or ()]
        if not bound:
            network = seen["HostConfig"]["NetworkMode"]
            text = f"{container.name} has no port on the host: it has ended, or its network ({network}) gives it none"
            raise operation_failed("refused", text, timed)
        return int(bound[0]["HostPort"])

    def committed_bytes(self, container: Container, *, timeout_s: float) -> int | None:
        """Return the size of the image's last layer, as its history tells it."""
        with self._operation(timeout_s) as timed:
            history = timed.get("images", container.images[-1], "history")
        return int(history[0]["Size"])

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Ask once, which takes at least a second: Docker samples twice, for the CPU time between."""
        with self._operation(timeout_s) as timed:
            timed.read("GET", "containers", container_id(container, timed), "stats", stream="0")
        return timed.result()

    def watch(self, container: Container, *, interval_s: float, timeout_s: float) -> Iterator[OperationResult]:
        """Read the stream, in which Docker answers once a second until the container is removed.

        Each reading comes at most `timeout_s` after the one before.
        """
        del interval_s  # any other one is refused before the run
        with self._operation(timeout_s) as timed:
            identity = container_id(container, timed)
            with timed.stream("GET", "containers", identity, "stats", stream="1") as answer:
                while line := answer.readline():
                    if line.strip():
                        yield OperationResult(timed.start_ns, timed.now_ns())
                        timed.restart()

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Look for the image, the network, the log driver and the runtime.

        Under a label, an image that only the usual engine has is copied from there before.
        """
        if self.place and settings.image and self._endpoint() != endpoint():
            reason = ensure_image(self._http, settings.image, self.name)
            if reason:
                return [reason]
        return docker_probe.missing_resources(self._lookup(), settings)

    def forbidden(self, settings: ContainerSettings) -> list[str]:
        """Ask whose the volumes and networks are."""
        if self.options.allow_foreign or not ownership.needs_claim(settings):
            return []
        return docker_probe.forbidden_resources(self._lookup(), settings)

    def absent_program(self, settings: ContainerSettings, wanted: ImageProgram) -> str:
        """Ask of a container of the image that is never started."""
        if settings.image is None:
            return ""
        return docker_probe.absent_program(self._lookup(), settings.image, wanted, self._labels())

    def surroundings(self, settings: ContainerSettings, wanted: ImageProgram | None) -> Mapping[str, str]:
        """Ask likewise, and what the daemon hands on."""
        if settings.image is None or wanted is None:
            return {}
        inside = docker_probe.surroundings(self._lookup(), settings.image, wanted, self._labels())
        return {**inside, **dockerd_surroundings(self._address())} if inside else {}

    def image_digest(self, settings: ContainerSettings) -> str:
        """Return the image's id, the digest of its configuration, which names its layers."""
        return docker_probe.image_digest(self._lookup(), settings.image)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers, images, networks and volumes that carry the label."""
        return docker_leftovers.find_leftovers(self._lookup(), self.name, run_id, worker_id)

    def discard(self, leftover: Leftover) -> None:
        """Remove one of them."""
        docker_leftovers.remove_leftover(self._client, leftover)
        if leftover.what == "container":
            remove_group(group_path(leftover.name))

    def cost_meter(self, container: Container) -> CostMeter:
        """Return what reads the group around the container, or else that of a container that systemd has."""
        if container.cost_group is not None:
            return container.cost_group.meter()
        if container.counts_cost and self._no_group == SYSTEMD and isinstance(container.handle, str):
            return self._cost_groups.cgroups.cost_meter(self.scope.format(container.handle))
        return dict

    def _count_cost(self, container: Container, timeout_s: float) -> None:
        """Put a container whose job tells its cost into a group that outlives it; not timed."""
        if not container.counts_cost:
            return
        if self._no_group is None:
            with self._operation(timeout_s) as asked:
                info = asked.get("info")
            self._no_group = no_parent_reason(info, here=docker_http.socket_path(self._address()) is not None)
        if self._no_group:
            tell_once(self._no_group)
        else:
            self._cost_groups.add(container)

    def cgroup(self, container: Container) -> str | None:
        """Return where its first process is, where that runs on this host."""
        identity = container.handle
        if not isinstance(identity, str):
            return None
        with suppress(OperationFailed), self._operation(self.options.timeout_s) as timed:
            return cgroup_path(int(self._state(timed, container)["Pid"]), identity)
        return None

    def _claim(self, container: Container, timeout_s: float) -> None:
        """Refuse volumes and networks of others, unless this worker allows them; not timed."""
        settings = container.settings
        if self.options.allow_foreign or id(settings) in self._claimed or not ownership.needs_claim(settings):
            return
        with self._operation(timeout_s) as before:
            try:
                ownership.claim_resources(before, container)
            except MountRefused as error:
                raise operation_failed("refused", str(error), before) from error
        self._claimed[id(settings)] = settings

    def _create_body(self, container: Container, timed: TimedRequest) -> bytes:
        """Return the body of the request that makes a container.

        Where its settings alone decide, all but the labels is made once for each treatment.
        """
        settings = container.settings
        _, shared = self._bodies.get(id(settings), (None, ""))
        if not shared or container.cost_group:
            body = self._body(container, timed)
            shared = json.dumps({name: value for name, value in body.items() if name != "Labels"})
            if not (settings.storage or container.shares or container.publish or container.cost_group):
                self._bodies[id(settings)] = settings, shared
        return f'{shared[:-1]}, "Labels": {json.dumps(container.labels)}}}'.encode()

    def _body(self, container: Container, timed: TimedRequest) -> dict[str, Any]:
        if not container.settings.image:
            raise operation_failed("refused", "a container needs an image", timed)
        try:
            return create_body(
                container,
                allow_host_mounts=self.options.allow_host_mounts,
                allow_foreign=self.options.allow_foreign,
                own_socket=docker_http.socket_path(self._address()),
            )
        except MountRefused as error:
            raise operation_failed("refused", str(error), timed) from error

    def _lookup(self) -> TimedRequest:
        """Return requests that look something up; nobody times them."""
        return docker_http.TimedRequest(self._http, self.options.timeout_s)

    def _logs(self, timed: TimedRequest, identity: str, limit_bytes: int, **streams: Any) -> tuple[Capture, Capture]:
        with timed.stream("GET", "containers", identity, "logs", **streams) as answer:
            kept = capture(answer, limit_bytes, drain=False)
        if any(one.truncated for one in kept):
            for each in kept:
                each.skip_to_end()
            # Podman refuses a log whose last line is only half written; its beginning is there all the same.
            with (
                suppress(docker_http.DockerApiError),
                timed.stream("GET", "containers", identity, "logs", tail=TAIL_LINES, **streams) as answer,
            ):
                capture_end(answer, kept)
        return kept

    @classmethod
    def _failed(cls, status: EngineStatus) -> EngineStatus:
        """Return the message for an engine that does not answer."""
        return status

    @classmethod
    def _endpoint(cls) -> str:
        """Return the address under its label, or else that of the environment."""
        return cls.place or endpoint()

    def _address(self) -> str:
        return self._endpoint()

    def _operation(self, timeout_s: float) -> AbstractContextManager[TimedRequest]:
        return docker_operation(self._http, timeout_s)

    def _commit_tag(self, container: Container) -> str:
        ordinal = f"-{len(container.images) + 1}" if container.images else ""
        return f"{container.name}{ordinal}"

    def _state(self, timed: TimedRequest, container: Container) -> dict[str, Any]:
        state: dict[str, Any] = timed.get("containers", str(container.handle), "json")["State"]
        return state

    def _is_running(self, timed: TimedRequest, container: Container) -> bool:
        """Ask whether it runs, and look for the answer in the text: taking its 7 kB apart costs more than asking.

        No value can be mistaken for it, since quotes in a value are escaped.
        """
        answer = timed.read("GET", "containers", str(container.handle), "json")
        return b'"Running":false' not in answer and bool(json.loads(answer)["State"]["Running"])

    def _last_state(self, timed: TimedRequest, container: Container, done: OperationResult) -> dict[str, Any]:
        """Return its state after its end, once a report of an OOM kill has had time to arrive."""
        state = self._state(timed, container)
        until = time.monotonic() + EVENT_TIMEOUT_S
        # One that we killed needs no wait; for others Docker may report an OOM kill later than the end.
        limited = container.settings.memory_bytes is not None and not container.killed
        doubtful = done.exit_code == KILLED_CODE and limited and not state["OOMKilled"]
        if doubtful and kernel_log_has_oom_kill(str(container.handle)):
            return {**state, "OOMKilled": True}
        while doubtful and not state["OOMKilled"] and time.monotonic() < until:
            gevent.sleep(_POLL_S)
            state = self._state(timed, container)
        return state
