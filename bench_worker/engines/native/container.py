"""The container of the native engine: a directory and processes; how they are paused and killed."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import gevent

from bench_common.errors import InfrastructureError
from bench_worker.engines.base import Container, OperationResult
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.results import raise_operation_failed
from bench_worker.timing.processes import (
    Process,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_STATE_POLL_S = 0.0002
_STRAGGLER_ROUNDS = 5


@dataclass(slots=True)
class NativeContainer:
    """What stands for a container: its private directory and the processes started in it."""

    directory: Path
    main: Process | None = None
    exec_processes: list[Process] = field(default_factory=list)
    paused: bool = False
    """Whether it was paused by us: seen from outside, a process on its way out of vfork may not show it."""

    @property
    def work(self) -> Path:
        """The directory that the processes run in."""
        return self.directory / "work"

    def processes(self) -> list[Process]:
        """Every process that was started in it, dead or alive."""
        return [process for process in (self.main, *self.exec_processes) if process is not None]


def get_native_container(container: Container) -> NativeContainer:
    """Return what `create` made for this container; fail with ``not-found`` where there is none."""
    if not isinstance(container.handle, NativeContainer):
        raise_operation_failed("not-found", f"{container.name} does not exist", time.monotonic_ns())
    return container.handle


def running_process(container: Container) -> Process:
    """Return the main process; fail with ``conflict`` when it does not run."""
    main = get_native_container(container).main
    if main is None or main.exit is not None:
        raise_operation_failed("conflict", f"{container.name} is not running", time.monotonic_ns())
    return main


def is_stopped(main: Process) -> bool:
    """Say whether a process is stopped.

    One that has just called vfork waits for its child's exec without taking signals: when the child was stopped
    before that, the parent shows ``D`` for as long as the child is stopped, and runs no more than it.
    """
    state = native_labels.state_of(main.pid)
    return state == "T" or (state == "D" and "T" in native_labels.states_of_group(main.pid))


def signal_and_confirm(
    container: Container, number: signal.Signals, timeout_s: float, *, stopped: bool
) -> OperationResult:
    """Send SIGSTOP or SIGCONT to the group and return when the main process is seen stopped, or no longer so."""
    main = running_process(container)
    start_ns = time.monotonic_ns()
    if is_stopped(main) is stopped:
        raise_operation_failed("conflict", f"{container.name} is {'already' if stopped else 'not'} paused", start_ns)
    if not main.signal_group(number):
        raise_operation_failed("conflict", f"{container.name} is not running", start_ns)
    deadline_ns = start_ns + int(timeout_s * 1e9)
    # It was not so when last looked at, and is when looked at now.
    seen_ns = start_ns
    looked_ns = time.monotonic_ns()
    while is_stopped(main) is not stopped:
        if main.exit is not None:
            raise_operation_failed("conflict", f"{container.name} ended meanwhile", start_ns)
        if time.monotonic_ns() > deadline_ns:
            raise_operation_failed(
                "timeout", f"{container.name} did not take {number.name} in {timeout_s:g} s", start_ns
            )
        seen_ns = looked_ns
        gevent.sleep(_STATE_POLL_S)
        looked_ns = time.monotonic_ns()
    end_ns = time.monotonic_ns()
    return OperationResult(start_ns, end_ns, end_uncertainty_ns=end_ns - seen_ns)


def _group_exists(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_stragglers(stock: NativeContainer, labels: Mapping[str, str], start_ns: int) -> None:
    """Kill what is left in the groups of leaders that have ended: found by label, never by a number alone."""
    for _ in range(_STRAGGLER_ROUNDS):
        if not any(_group_exists(process.pid) for process in stock.processes()):
            return
        # A process that was just forked by one that is killed here is found in the next round.
        found = [
            process for process in native_labels.labelled_processes() if process.labels.items() <= labels.items()
        ]
        if not found:
            return
        for process in found:
            try:
                native_labels.kill_labelled(process)
            except InfrastructureError as error:
                raise_operation_failed("engine", str(error), start_ns)
