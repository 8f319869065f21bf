"""Docker through its command line: every verb is one ``docker`` command, timed as a shell would time it.

An operation begins just before the program is started and ends when it has ended, so it costs what a user of the
command line waits for: the client's own start, its question for the API's version, and the call. What is no verb
(probing, finding leftovers, whether the OOM killer ended a command) goes through the API, as for the engine
``docker``, and is not measured. Settings and refusals are those of the API, too: it is the same container.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace

from bench_common.errors import EngineUnavailable
from bench_common.long_output import join_ends
from bench_common.requirements import ENGINE_MANAGED_STORAGE, STATS_INTERVAL
from bench_worker.engines.base import PROBE_S, Container, Engine, EngineStatus, OperationFailed, OperationResult
from bench_worker.engines.command_line import CommandLine, CommandSequence
from bench_worker.engines.docker.engine import COMMIT_REPOSITORY, DockerEngine
from bench_worker.engines.docker.errors import (
    ENGINE_AWAY,
    KIND_PATTERNS,
    count_oom_kills,
    exec_failure,
    operation_failed,
    was_oom_killed,
)
from bench_worker.engines.docker.http import TAIL_LINES, socket_path
from bench_worker.engines.docker.settings import allowed_log_options, allowed_source, limit_flags
from bench_worker.engines.output import parse_signal
from bench_worker.engines.settings import MountRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench_common.treatment import ContainerSettings, Mount
    from bench_worker.engines.command_line import ProgramResult


def create_flags(
    container: Container, *, allow_host_mounts: bool, allow_foreign: bool, own_socket: str | None
) -> list[str]:
    """Return the words after ``docker create``; raise `MountRefused`. Never privileged, never a tty, never a pull."""
    settings = container.settings
    words = ["--pull=never", f"--name={container.name}"]
    words += [f"--label={key}={value}" for key, value in container.labels.items()]
    words += [f"--env={key}={value}" for key, value in settings.env.items()]
    words += _limits(settings)
    log_options = allowed_log_options(settings, allow_foreign=allow_foreign)
    words += [f"--log-opt={key}={value}" for key, value in log_options.items()]
    words += limit_flags(settings)
    words += [f"--volumes-from={name}" for name in container.shares]
    if container.publish is not None:
        words.append(f"--publish={container.publish[0]}::{container.publish[1]}")
    if container.cost_group is not None:
        words.append(f"--cgroup-parent={container.cost_group.path}")
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
    if settings.directory is not None:
        yield f"--workdir={settings.directory}"


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


PROGRAM: Final = "docker"
_MIN_VERSION: Final = (20, 10)
"""The first version whose ``create`` has ``--pull``: without it, a missing image would be fetched in the middle."""
_LOOKUP_TIMEOUT_S: Final = 20.0
_MAX_ERROR_BYTES: Final = 4096

ERROR_KINDS: Final = (
    (
        "unreachable",
        re.compile(
            r"^(docker: )?(Cannot connect to the Docker daemon|error during connect|failed to connect)", re.MULTILINE
        ),
    ),
    # The connection broke while the client waited for the answer.
    ("unreachable", re.compile(r"\b(EOF|connection reset by peer)\"?$", re.MULTILINE)),
    ("unreachable", ENGINE_AWAY),
    *KIND_PATTERNS,
    ("conflict", re.compile(r"\bis paused\b|\bConflict\b")),
    ("not-found", re.compile(r"No such (container|network|volume)|(network|volume) \S+ not found", re.IGNORECASE)),
    (
        "refused",
        re.compile(r"invalid|minimum memory limit|are not available - requested|unknown flag", re.IGNORECASE),
    ),
)
"""What the status of the API's answer would say, read from the text: the command line prints no status."""

_DAEMON_ERROR: Final = re.compile(
    rb"\A(docker: )?(Error response from daemon|Cannot connect to the Docker|error during connect)"
)
"""How the command line begins when ``exec`` failed before there was a command whose exit code it could have."""

_ADVICE: Final = (
    f"install Docker's command line (`apt-get install docker.io`, {_MIN_VERSION[0]}.{_MIN_VERSION[1]} or newer)"
)


class DockerCliEngine(DockerEngine):
    """A Docker Engine, through the ``docker`` program; the handle of a container is its id."""

    name: ClassVar[str] = "docker-cli"
    # What is put into a container, or made for it, before it starts: ``docker create`` has no word for that.
    settings: ClassVar[frozenset[str]] = DockerEngine.settings - {"files"}
    store: ClassVar[str] = "docker"

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask for the program's version, then the engine about itself."""
        try:
            version = _version()
        except EngineUnavailable as error:
            return EngineStatus(cls.name, usable=False, endpoint=cls._endpoint(), reason=str(error), advice=_ADVICE)
        status = super().probe()
        # Its client is asked for statistics, not listened to.
        details = {
            key: text for key, text in status.details.items() if key not in {ENGINE_MANAGED_STORAGE, STATS_INTERVAL}
        }
        return replace(status, details={**details, "client": version})

    @classmethod
    def program_of(cls, status: EngineStatus) -> str:
        """Return the client."""
        del status
        return shutil.which(PROGRAM) or ""

    @classmethod
    def image_store(cls) -> None:
        """Leave building to the engine ``docker``, which has the same images."""

    def open(self) -> None:
        """Find the program, and connect for what is not measured."""
        try:
            _version()
        except EngineUnavailable as error:
            raise EngineUnavailable(f"{error}; {_ADVICE}") from error
        super().open()
        # The endpoint is the other engine's, whatever context the user's configuration has chosen.
        env = {name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"}
        env |= {"DOCKER_HOST": self._address(), "DOCKER_CLI_HINTS": "false"}
        self._cli = CommandLine(PROGRAM, error_kinds=ERROR_KINDS, env=env)

    def pull(self, container: Container, *, fresh: bool, timeout_s: float) -> OperationResult:
        """Run ``docker pull``; what is taken away before goes through the API, as it is not timed."""
        from bench_worker.engines.docker import images as docker_images

        with self._operation(timeout_s) as before:
            image = docker_images.require_image(container.settings, before)
            if fresh:
                docker_images.remove_image(self._client, image, before)
        sequence = self._cli.sequence(timeout_s)
        result = sequence.run_unchecked("pull", "--quiet", "--", image)
        if result.exit_code:
            raise sequence.failure(docker_images.pull_failure_kind(result.error_text), result.error_text)
        return sequence.result()

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker create``."""
        return self._make(container, ("create",), timeout_s)

    def run(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker run --detach``, which makes and starts it in one command."""
        return self._make(container, ("run", "--detach"), timeout_s)

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker start``."""
        container.killed = False
        return self._run_simple(container, ("start",), timeout_s)

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """Run ``docker exec``, attached, to its end; at the timeout the client is killed, the command goes on."""
        with self._operation(timeout_s) as before:
            kills = count_oom_kills(before, container)
        sequence = self._cli.sequence(timeout_s)
        result = sequence.run_unchecked("exec", "--", _container_id(container, sequence), *argv)
        if result.exit_code and _DAEMON_ERROR.match(result.stderr):
            raise sequence.failed(result)
        for printed in (result.stdout, result.stderr):
            kind = exec_failure(result.exit_code, printed)
            if kind:
                raise sequence.failure(kind, printed.decode("utf-8", "replace").strip())
        done = sequence.result(
            exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr, truncated=result.truncated
        )
        with self._operation(timeout_s) as after:
            done.oom_killed = was_oom_killed(after, container, done, kills)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker wait``; whether the OOM killer ended it is read afterwards."""
        sequence = self._cli.sequence(timeout_s)
        result = sequence.run("wait", "--", _container_id(container, sequence))
        done = sequence.result(exit_code=_exit_code(result, sequence))
        with self._operation(sequence.remaining_s()) as after:
            state = self._last_state(after, container, done)
        if state["Status"] == "created":
            raise sequence.failure("conflict", f"{container.name} was never started")
        done.oom_killed = bool(state["OOMKilled"])
        return done

    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker pause``."""
        return self._run_simple(container, ("pause",), timeout_s)

    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker unpause``."""
        return self._run_simple(container, ("unpause",), timeout_s)

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """Run ``docker stop``, which takes whole seconds of grace only; for 0 it is ``docker kill``."""
        if not grace_s:
            return self._stop_at_once(container, timeout_s)
        if grace_s != int(grace_s):
            text = f"docker takes the grace period of stop in whole seconds, not {grace_s:g} s"
            raise self._cli.sequence(timeout_s).failure("refused", text)
        done = self._run_simple(container, ("stop", "-t", str(int(grace_s))), timeout_s)
        container.killed = True
        return done

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """Run ``docker kill``; after SIGKILL also ``docker wait`` where it is not dead yet."""
        sequence = self._cli.sequence(timeout_s)
        try:
            number = parse_signal(signal)
        except ValueError as error:
            raise sequence.failure("refused", str(error)) from error
        identity = _container_id(container, sequence)
        sequence.run("kill", f"--signal={number.name}", "--", identity)
        if number.name == "SIGKILL":
            container.killed = True
            with self._operation(sequence.remaining_s()) as after:
                dead = not self._state(after, container)["Running"]
            if not dead:
                sequence.run("wait", "--", identity)
        return sequence.result()

    def commit(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker commit``; the image has the container's labels."""
        image = f"{COMMIT_REPOSITORY}:{self._commit_tag(container)}"
        sequence = self._cli.sequence(timeout_s)
        sequence.run("commit", "--", _container_id(container, sequence), image)
        container.images.append(image)
        return sequence.result()

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker rm --force --volumes``, then ``docker rmi`` for what ``commit`` made."""
        sequence = self._cli.sequence(timeout_s)
        result = sequence.run("rm", "--force", "--volumes", "--", _container_id(container, sequence))
        container.handle = None
        if b"No such container" in result.stderr:
            # Forced, it finds nothing wrong with that.
            raise sequence.failure("not-found", result.error_text)
        while container.images:
            sequence.run("rmi", "--force", "--", container.images[-1])
            container.images.pop()
        if container.cost_group is not None:
            container.cost_group.remove()
        return sequence.result()

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Run ``docker logs`` once for each stream, so that neither hides the other's beginning."""
        sequence = self._cli.sequence(timeout_s)
        words = ("logs", "--", _container_id(container, sequence))
        # Errors are on stderr, which is therefore read first, with room for them.
        room = max(limit_bytes, _MAX_ERROR_BYTES)
        answers = [
            sequence.run_unchecked(*words, limit_bytes=limit, until_full=True, **{other: os.devnull})
            for limit, other in ((room, "stdout_path"), (limit_bytes, "stderr_path"))
        ]
        for result in answers:
            if result.exit_code and not result.truncated:
                raise sequence.failed(result)
        truncated = any(result.truncated for result in answers)
        err, out = answers[0].stderr, answers[1].stdout
        if truncated:
            tail = (words[0], "--tail", TAIL_LINES, *words[1:])
            ends = [
                sequence.run_unchecked(*tail, limit_bytes=limit_bytes, **{other: os.devnull})
                for other in ("stdout_path", "stderr_path")
            ]
            err, out = join_ends(err, ends[0].stderr, limit_bytes), join_ends(out, ends[1].stdout, limit_bytes)
        return sequence.result(stdout=out, stderr=err, truncated=truncated)

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Run ``docker stats --no-stream``, which takes more than a second: Docker reads twice."""
        return self._run_simple(container, ("stats", "--no-stream"), timeout_s)

    def watch(self, container: Container, *, interval_s: float, timeout_s: float) -> Iterator[OperationResult]:
        """Request single readings: the client's stream redraws a screen, which cannot be split into readings."""
        try:
            yield from Engine.watch(self, container, interval_s=interval_s, timeout_s=timeout_s)
        except OperationFailed as failure:
            # Under way when its container ends or is removed, the client says no more than "EOF".
            with self._operation(_LOOKUP_TIMEOUT_S) as after:
                if not self._state(after, container)["Running"]:
                    raise operation_failed("conflict", f"{container.name} has ended: {failure}", after) from failure
            raise

    def _make(self, container: Container, verb: tuple[str, ...], timeout_s: float) -> OperationResult:
        self._label(container)
        self._claim(container, timeout_s)
        self._count_cost(container, timeout_s)
        sequence = self._cli.sequence(timeout_s)
        if not container.settings.image:
            raise sequence.failure("refused", "a container needs an image")
        try:
            words = create_flags(
                container,
                allow_host_mounts=self.options.allow_host_mounts,
                allow_foreign=self.options.allow_foreign,
                own_socket=socket_path(self._address()),
            )
        except MountRefused as error:
            raise sequence.failure("refused", str(error)) from error
        try:
            result = sequence.run(*verb, *words)
        except OperationFailed:
            # It may have been made before what failed: then it is ours to remove.
            container.handle = self._find(container)
            raise
        container.handle = result.text.rpartition("\n")[2]
        return sequence.result()

    def _find(self, container: Container) -> str | None:
        """Return the id of the container if it is there and carries our labels, not only the name."""
        labels = [f"{key}={value}" for key, value in container.labels.items()]
        wanted = json.dumps({"name": [f"^/{re.escape(container.name)}$"], "label": labels})
        try:
            with self._operation(_LOOKUP_TIMEOUT_S) as asked:
                rows = asked.get("containers", "json", all="1", filters=wanted)
        except OperationFailed:
            return None
        return str(rows[0]["Id"]) if rows else None

    def _run_simple(self, container: Container, words: tuple[str, ...], timeout_s: float) -> OperationResult:
        sequence = self._cli.sequence(timeout_s)
        sequence.run(*words, "--", _container_id(container, sequence))
        return sequence.result()


def _container_id(container: Container, sequence: CommandSequence) -> str:
    if not isinstance(container.handle, str):
        raise sequence.failure("not-found", f"{container.name} does not exist")
    return container.handle


def _exit_code(result: ProgramResult, sequence: CommandSequence) -> int:
    try:
        return int(result.text)
    except ValueError as error:
        raise sequence.failure("engine", f"`docker wait` printed no exit code: {result.text!r}") from error


def _version() -> str:
    """Return the program's version; raise `EngineUnavailable` where it is missing, too old or not Docker's."""
    if shutil.which(PROGRAM) is None:
        raise EngineUnavailable(f"program {PROGRAM!r} is not on PATH")
    try:
        output = CommandLine(PROGRAM).sequence(PROBE_S).run("--version").text
    except OperationFailed as error:
        raise EngineUnavailable(f"`docker --version` failed: {error}") from error
    match = re.match(r"Docker version (\d+)\.(\d+)([^\s,]*)", output)
    if not match:
        raise EngineUnavailable(f"`docker` on PATH is not Docker's command line: {output!r}")
    if (int(match[1]), int(match[2])) < _MIN_VERSION:
        raise EngineUnavailable(f"Docker's command line is too old: {match[1]}.{match[2]}{match[3]}")
    return f"{match[1]}.{match[2]}{match[3]}"
