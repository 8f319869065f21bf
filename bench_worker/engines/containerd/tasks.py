"""Processes in containerd: a container's own, and the commands that run beside it.

containerd starts a process; its end is stamped by the reaper's thread, which waits on a pidfd. The process is no
child of ours, so its exit code comes from containerd.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.any_pb2 import Any as TypedValue
from google.protobuf.json_format import MessageToJson

from bench_common.long_output import OUTPUT_LIMIT_BYTES
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import SNAPSHOTTER
from bench_worker.engines.output import PipeReader
from bench_worker.engines.results import disk_errors_as_failures, result_at_exit, wait_exit
from bench_worker.timing.processes import Process, WaitTimeout, spawn_lock, watch_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from google.protobuf.message import Message

    from bench_worker.engines.containerd.api import ContainerdApi
    from bench_worker.engines.grpc import CallSequence

TASKS: Final = "tasks.v1.Tasks/"
_PROCESS_TYPE: Final = "types.containerd.io/opencontainers/runtime-spec/1/Process"
"""containerd's name for the type of an OCI process; its value is JSON."""
_METRICS: Final[Mapping[str, type[Message]]] = {
    "io.containerd.cgroups.v1.Metrics": messages.CgroupV1Metrics,
    "io.containerd.cgroups.v2.Metrics": messages.CgroupV2Metrics,
}
_END_CONFIRMATION_S: Final = 0.2
_RESUME_TIMEOUT_S: Final = 20.0
_CLEANUP_S: Final = 20.0


@dataclass(slots=True)
class Task:
    """What the engine knows of a container, and its process once there is one."""

    name: str
    directory: Path
    image: str
    """The name in containerd of what it was made from."""
    stop_signal: str = "SIGTERM"
    snapshotter: str = SNAPSHOTTER
    """What keeps its file system."""
    process: dict[str, Any] = field(default_factory=dict)
    """The entry ``process`` of its OCI specification."""
    mounts: Sequence[messages.Mount] = ()
    """What its root file system is mounted from."""
    main: Process | None = None
    """Its process, as long as it is watched."""
    created: bool = False
    """Whether containerd has a task for it."""
    started: bool = False
    """Whether its process was started."""
    end_known: bool = False
    """Whether containerd knows, too, that its process has ended: its task cannot be deleted before."""
    paused: bool = False
    """Whether it was paused by `pause`."""
    exec_numbers: Iterator[int] = field(default_factory=partial(count, 1))
    """Numbers the commands that run beside it; several may begin at once."""
    committed_layer: messages.Descriptor | None = None
    """What the last image that was made of it has beyond the one that it was made from."""

    @property
    def runs(self) -> bool:
        """Whether its process runs, as far as is known."""
        return self.main is not None and self.main.exit is None

    def start(self, calls: CallSequence) -> None:
        """Start its process and watch it; what is left of one that has ended is deleted before."""
        if self.created and not self.runs:
            delete_task(calls, self.name, runs=False, end_known=self.end_known)
        # Both streams go to one file: the shim does not keep them apart.
        log = f"file://{self.directory / 'log'}"
        self.started, self.paused, self.end_known, self.main = False, False, False, None
        made = calls.call(
            f"{TASKS}Create",
            messages.CreateTaskRequest(container_id=self.name, rootfs=self.mounts, stdout=log, stderr=log),
            messages.TaskPid,
        )
        self.created = True
        # The process waits to be started, so that it cannot end before it is watched.
        with suppress(ProcessLookupError), spawn_lock:
            self.main = watch_process(made.pid, start_ns=calls.start_ns)
        calls.do(f"{TASKS}Start", messages.ProcessRequest(container_id=self.name))
        self.started = True

    def wait_ended(self, start_ns: int, timeout_s: float) -> OperationResult:
        """Wait for the end of the process; one that ended before it could be watched ended before `start_ns`."""
        if self.main is None:
            return OperationResult(start_ns, start_ns)
        return result_at_exit(start_ns, wait_exit(self.main, start_ns, time.monotonic() + timeout_s))

    def exit_code(self, calls: CallSequence) -> int:
        """Return the exit code of a process that has ended, as soon as containerd knows it."""
        request = messages.ProcessRequest(container_id=self.name)
        status: int = calls.call(f"{TASKS}Wait", request, messages.WaitResponse).exit_status
        self.end_known = True
        return status

    def do_unless_ended(self, calls: CallSequence, method: str, request: Message) -> bool:
        """Call a method for the running process and return True; False where it has just ended."""
        try:
            calls.do(f"{TASKS}{method}", request)
        except OperationFailed:
            if self.main is None:
                raise
            try:
                self.main.wait(_END_CONFIRMATION_S)
            except WaitTimeout:
                pass
            else:
                return False
            raise
        return True

    @contextmanager
    def paused_during(self, api: ContainerdApi, calls: CallSequence) -> Iterator[None]:
        """Pause the process meanwhile, where it runs, so that its files do not change."""
        request = messages.ProcessRequest(container_id=self.name)
        if not self.runs or self.paused or not self.do_unless_ended(calls, "Pause", request):
            yield
            return
        try:
            yield
        except BaseException:
            # The operation's time may be over: the process must not stay paused for that.
            with suppress(OperationFailed):
                api.calls(_RESUME_TIMEOUT_S).do(f"{TASKS}Resume", request)
            raise
        self.do_unless_ended(calls, "Resume", request)


def delete_task(calls: CallSequence, name: str, *, runs: bool, end_known: bool = False) -> None:
    """Kill what runs in a container and delete its task; a missing one is no error.

    The kernel tells the end of a process to us and to containerd, in any order: unless `end_known`, containerd is
    waited for, as it deletes no task whose process still runs as far as it knows.
    """
    request = messages.ProcessRequest(container_id=name)
    if runs:
        try:
            calls.do(f"{TASKS}Kill", messages.KillRequest(container_id=name, signal=signal.SIGKILL.value, all=True))
        except OperationFailed as failure:
            # It may have ended meanwhile.
            if failure.kind not in {"not-found", "conflict"}:
                raise
    if not end_known:
        calls.do_if_present(f"{TASKS}Wait", request)
    calls.do_if_present(f"{TASKS}Delete", request)


def read_metrics(calls: CallSequence, name: str) -> bytes:
    """Return one reading of what a container uses, as JSON."""
    request = messages.MetricsRequest(filters=[f'id=="{name}"'])
    readings = calls.call(f"{TASKS}Metrics", request, messages.MetricsResponse).metrics
    if not readings:
        raise calls.failure("not-found", f"containerd has no metrics of {name}: it does not run")
    data = readings[0].data
    kind = _METRICS.get(data.type_url.rpartition("/")[2])
    if kind is None:
        return json.dumps({"type": data.type_url}).encode()
    metrics = kind()
    metrics.ParseFromString(data.value)
    return MessageToJson(metrics, preserving_proto_field_name=True).encode()


class ExecProcess:
    """One command beside the process of `task`, known there as `exec_id`."""

    def __init__(self, api: ContainerdApi, task: Task, exec_id: str) -> None:
        self._api = api
        self._task = task
        self._exec_id = exec_id
        self._request = messages.ProcessRequest(container_id=task.name, exec_id=exec_id)

    def run(self, argv: Sequence[str], *, timeout_s: float) -> OperationResult:
        """Run a command to its end, as the container's own is run; at the timeout it is killed.

        It lasts from the first byte of ``Exec`` to the last one of the reply to ``Wait``. Raises `OperationFailed`.
        """
        calls = self._api.calls(timeout_s)
        process = {**self._task.process, "terminal": False, "args": list(argv)}
        spec = TypedValue(type_url=_PROCESS_TYPE, value=json.dumps(process).encode())
        with ExitStack() as opened:
            with disk_errors_as_failures(time.monotonic_ns()):
                taps = [opened.enter_context(self._stream(which)) for which in ("stdout", "stderr")]
            stdout, stderr = taps
            request = messages.ExecProcessRequest(
                container_id=self._task.name,
                stdout=stdout.path,
                stderr=stderr.path,
                spec=spec,
                exec_id=self._exec_id,
            )
            calls.do(f"{TASKS}Exec", request)
            try:
                calls.do(f"{TASKS}Start", self._request)
                for tap in taps:
                    tap.open()
                ended = calls.call(f"{TASKS}Wait", self._request, messages.WaitResponse)
            except OperationFailed:
                with suppress(OperationFailed):
                    self._end()
                raise
            complete = self._was_deleted()
            for tap in taps:
                tap.drain()
        return calls.result(
            exit_code=ended.exit_status,
            stdout=stdout.capture.data,
            stderr=stderr.capture.data,
            truncated=stdout.capture.truncated or stderr.capture.truncated or not complete,
        )

    @contextmanager
    def _stream(self, which: str) -> Iterator[PipeReader]:
        path = self._task.directory / f"{self._exec_id}-{which}"
        os.mkfifo(path, 0o600)
        try:
            tap = PipeReader.of_fifo(path, OUTPUT_LIMIT_BYTES)
            try:
                yield tap
            finally:
                tap.close()
        finally:
            path.unlink(missing_ok=True)

    def _was_deleted(self) -> bool:
        """Delete a command that has ended; return whether all of its output is copied, as it is by then."""
        try:
            self._api.calls(_CLEANUP_S).do(f"{TASKS}DeleteProcess", self._request)
        except OperationFailed:
            return False
        return True

    def _end(self) -> None:
        """Kill the command if it runs, and delete it."""
        calls = self._api.calls(_CLEANUP_S)
        kill = messages.KillRequest(container_id=self._task.name, exec_id=self._exec_id, signal=signal.SIGKILL.value)
        with suppress(OperationFailed):
            calls.do(f"{TASKS}Kill", kill)
            calls.do(f"{TASKS}Wait", self._request)
        calls.do(f"{TASKS}DeleteProcess", self._request)
