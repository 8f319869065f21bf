"""Executes commands in the containers of containerd, by its API.

``ctr tasks exec`` gives up copying what a command prints as soon as that has ended: on a busy host the output of a
short one may be lost, silently and with exit code 0. Here the streams are open before the command is started.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from bench_worker.engines.base import Done, OperationFailed
from bench_worker.engines.native.process import disk_errors
from bench_worker.engines.output import EXEC_OUTPUT_LIMIT_BYTES, Tap
from bench_worker.engines.protobuf import number, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from bench_worker.engines.containerd.api import ContainerdApi
    from bench_worker.engines.grpc import Reply
    from bench_worker.engines.protobuf import Value

_PROCESS: Final = "types.containerd.io/opencontainers/runtime-spec/1/Process"
"""What containerd calls the type of an OCI process; its value is JSON."""
_SIGKILL: Final = 9
_END_S: Final = 5.0


class Execution:
    """One command in the container `name`, known there as `exec_id`; its streams pass through `directory`."""

    def __init__(self, api: ContainerdApi, name: str, exec_id: str, directory: Path) -> None:
        self._api = api
        self._of: dict[int, Value] = {1: name, 2: exec_id}
        self._name, self._exec_id, self._directory = name, exec_id, directory

    def run(self, process: Mapping[str, Any], *, timeout_s: float) -> Done:
        """Run a command, given as an OCI process, to its end; at the timeout it is killed.

        It lasts from the first byte of ``Exec`` to the last one of the answer to ``Wait``. Raises `OperationFailed`.
        """
        deadline = time.monotonic() + timeout_s
        with ExitStack() as opened:
            with disk_errors(time.monotonic_ns()):
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
            whole = self._forgotten()
            for tap in taps:
                tap.drain()
        return Done(
            made.start_ns,
            ended.end_ns,
            end_bound_ns=ended.end_bound_ns,
            exit_code=number(unpack(ended.message), 1),
            stdout=stdout.capture.data,
            stderr=stderr.capture.data,
            truncated=stdout.capture.truncated or stderr.capture.truncated or not whole,
        )

    @contextmanager
    def _stream(self, which: str) -> Iterator[Tap]:
        path = self._directory / f"{self._exec_id}-{which}"
        os.mkfifo(path, 0o600)
        try:
            tap = Tap.of_fifo(path, EXEC_OUTPUT_LIMIT_BYTES)
            try:
                yield tap
            finally:
                tap.close()
        finally:
            path.unlink(missing_ok=True)

    def _forgotten(self) -> bool:
        """Have a command that has ended forgotten; return whether all that it wrote is copied, as it is by then."""
        try:
            self._call("DeleteProcess", self._of, time.monotonic() + _END_S)
        except OperationFailed:
            return False
        return True

    def _end(self) -> None:
        """Kill the command if it runs, and have it forgotten."""
        deadline = time.monotonic() + _END_S
        with suppress(OperationFailed):
            self._call("Kill", {**self._of, 3: _SIGKILL}, deadline)
            self._call("Wait", self._of, deadline)
        self._call("DeleteProcess", self._of, deadline)

    def _call(self, method: str, fields: Mapping[int, Value], deadline: float, first: Reply | None = None) -> Reply:
        left_s = max(0.001, deadline - time.monotonic())
        try:
            return self._api.call(f"tasks.v1.Tasks/{method}", fields, timeout_s=left_s)
        except OperationFailed as error:
            if first is not None:
                error.start_ns = first.start_ns
            raise
