"""Calls containerd's own API, over gRPC on its socket, for the little that ``ctr`` cannot do or cannot do well.

Services and messages are those of containerd's ``api/services``; messages are given by their fields' numbers there.

Executes commands in the containers of containerd, by its API.

``ctr tasks exec`` gives up copying what a command prints as soon as that has ended: on a busy host the output of a
short one may be lost, silently and with exit code 0. Here the streams are open before the command is started.

Enters into a container's specification what ``ctr`` has no option for, between its making and its start.

``ctr`` takes a whole specification, too (``--config``), but then neither an image nor a snapshot. So a container is
made with the words that there are, and the rest goes into its record by containerd's own API, as any other client of
it would have written it there at once: the same entries of the same document that OCI runtimes are given.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.containerd.tasks import ERROR_KINDS
from bench_worker.engines.cri.engine import grpc_as_operation_failures
from bench_worker.engines.grpc import GrpcChannel, GrpcReply, blob, number, pack, text, unpack
from bench_worker.engines.native.container import disk_errors_as_failures
from bench_worker.engines.oci.settings import UnsupportedSetting
from bench_worker.engines.oci.spec import SETTINGS as CONFINEMENT
from bench_worker.engines.oci.spec import apply_limits
from bench_worker.engines.output import EXEC_OUTPUT_LIMIT_BYTES, PipeReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.grpc import Value

_NAMESPACE: Final = "containerd-namespace"
"""The header that says whose containers are meant."""
_KIND_PATTERNS: Final = (("timeout", re.compile(r"deadline exceeded", re.IGNORECASE)), *ERROR_KINDS)
"""What containerd's words mean, which tell more than its codes: of most failures that is UNKNOWN."""


class ContainerdApi:
    """The containerd at the socket `path`, as far as one namespace of it is concerned."""

    def __init__(self, path: str, namespace: str) -> None:
        self._channel = GrpcChannel(path, {_NAMESPACE: namespace})

    def call(self, method: str, fields: Mapping[int, Value], *, timeout_s: float) -> GrpcReply:
        """Call a method such as ``containers.v1.Containers/Get``; raise `OperationFailed`."""
        with grpc_as_operation_failures(_KIND_PATTERNS):
            return self._channel.call(f"/containerd.services.{method}", pack(fields), timeout_s=timeout_s)

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()


_PROCESS: Final = "types.containerd.io/opencontainers/runtime-spec/1/Process"
"""What containerd calls the type of an OCI process; its value is JSON."""
_SIGKILL: Final = 9
_END_TIMEOUT_S: Final = 5.0


class ExecProcess:
    """One command in the container `name`, known there as `exec_id`; its streams pass through `directory`."""

    def __init__(self, api: ContainerdApi, name: str, exec_id: str, directory: Path) -> None:
        self._api = api
        self._of: dict[int, Value] = {1: name, 2: exec_id}
        self._name, self._exec_id, self._directory = name, exec_id, directory

    def run(self, process: Mapping[str, Any], *, timeout_s: float) -> OperationResult:
        """Run a command, given as an OCI process, to its end; at the timeout it is killed.

        It lasts from the first byte of ``Exec`` to the last one of the answer to ``InterruptibleWait``. Raises
        `OperationFailed`.
        """
        deadline = time.monotonic() + timeout_s
        with ExitStack() as opened:
            with disk_errors_as_failures(time.monotonic_ns()):
                taps = [opened.enter_context(self._stream(which)) for which in ("stdout", "stderr")]
            stdout, stderr = taps
            made = self._call(
                "Exec",
                {
                    1: self._name,
                    3: stdout.path,
                    4: stderr.path,
                    6: pack({1: _PROCESS, 2: json.dumps(process).encode()}),
                    7: self._exec_id,
                },
                deadline,
            )
            try:
                self._call("Start", self._of, deadline, made)
                for tap in taps:
                    tap.open()
                ended = self._call("Wait", self._of, deadline, made)
            except OperationFailed:
                with suppress(OperationFailed):
                    self._end()
                raise
            whole = self._was_deleted()
            for tap in taps:
                tap.drain()
        return OperationResult(
            made.start_ns,
            ended.end_ns,
            end_uncertainty_ns=ended.end_uncertainty_ns,
            exit_code=number(unpack(ended.message), 1),
            stdout=stdout.capture.data,
            stderr=stderr.capture.data,
            truncated=stdout.capture.truncated or stderr.capture.truncated or not whole,
        )

    @contextmanager
    def _stream(self, which: str) -> Iterator[PipeReader]:
        path = self._directory / f"{self._exec_id}-{which}"
        os.mkfifo(path, 0o600)
        try:
            tap = PipeReader.of_fifo(path, EXEC_OUTPUT_LIMIT_BYTES)
            try:
                yield tap
            finally:
                tap.close()
        finally:
            path.unlink(missing_ok=True)

    def _was_deleted(self) -> bool:
        """Have a command that has ended forgotten; return whether all that it wrote is copied, as it is by then."""
        try:
            self._call("DeleteProcess", self._of, time.monotonic() + _END_TIMEOUT_S)
        except OperationFailed:
            return False
        return True

    def _end(self) -> None:
        """Kill the command if it runs, and have it forgotten."""
        deadline = time.monotonic() + _END_TIMEOUT_S
        with suppress(OperationFailed):
            self._call("Kill", {**self._of, 3: _SIGKILL}, deadline)
            self._call("Wait", self._of, deadline)
        self._call("DeleteProcess", self._of, deadline)

    def _call(
        self, method: str, fields: Mapping[int, Value], deadline: float, first: GrpcReply | None = None
    ) -> GrpcReply:
        left_s = max(0.001, deadline - time.monotonic())
        try:
            return self._api.call(f"tasks.v1.Tasks/{method}", fields, timeout_s=left_s)
        except OperationFailed as error:
            if first is not None:
                error.start_ns = first.start_ns
            raise


SETTINGS: Final = CONFINEMENT | {"cpuset"}
"""What is entered, ``read_only`` beside ``ctr``'s own option for it."""

_BY_OPTION: Final = frozenset({"read_only"})
_METHODS: Final = "containers.v1.Containers/"


def needs_spec_change(settings: ContainerSettings) -> bool:
    """Say whether something is given that ``ctr`` has no option for."""
    return bool(settings.non_default() & (SETTINGS - _BY_OPTION))


def check_spec_settings(settings: ContainerSettings) -> None:
    """Raise `UnsupportedSetting` for what cannot be entered, before anything is made."""
    try:
        apply_settings(settings, {"process": {}, "root": {}, "linux": {}})
    except ValueError as error:
        raise UnsupportedSetting(str(error)) from error


def apply_settings(settings: ContainerSettings, document: dict[str, Any]) -> None:
    """Enter what is given into a specification; raise `ValueError` for a device that is none."""
    apply_limits(document, settings)
    if settings.cpuset is not None:
        document["linux"]["resources"].setdefault("cpu", {})["cpus"] = settings.cpuset


class ContainerSpecs:
    """The specifications of containers, by containerd's API."""

    def __init__(self, api: ContainerdApi) -> None:
        self._api = api

    def confine(self, name: str, settings: ContainerSettings, *, timeout_s: float) -> None:
        """Enter what is given into that of the container `name`, before its start; raise `OperationFailed`."""
        kind, document = self._read(name, timeout_s)
        apply_settings(settings, document)
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
