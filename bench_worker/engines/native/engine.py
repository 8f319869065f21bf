"""The baseline: the verbs of a container on plain processes, to compare engines with no engine.

`create` makes a private directory, `start` spawns the command in it as the leader of its own session, `exec` spawns
beside it, `pause` and `unpause` are SIGSTOP and SIGCONT to its process group, `stop` is SIGTERM and, after the
grace period, SIGKILL. Files have their places below that directory. There is no image, network, log driver or limit
to set: see `settings`, `inapplicable` and `unsupported_settings`.
"""

from __future__ import annotations

import os
import platform
import resource
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import gevent

from bench_common import cost
from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_common.long_output import OUTPUT_LIMIT_BYTES
from bench_worker.engines.base import (
    OWNER_LABEL,
    PRINTED_LIMIT_BYTES,
    RUN_LABEL,
    Container,
    DaemonProcesses,
    Engine,
    EngineStatus,
    Leftover,
    OperationFailed,
    OperationResult,
)
from bench_worker.engines.native import TRAITS
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.oci.spec import SETTINGS as CONFINEMENT
from bench_worker.engines.output import parse_cpuset, parse_signal, read_ends
from bench_worker.engines.results import (
    delete_directory,
    disk_errors_as_failures,
    raise_operation_failed,
    result_at_exit,
    spawn_failure_kind,
    wait_exit,
    wait_result,
)
from bench_worker.engines.surroundings import NATIVE_LOCALE, host_surroundings
from bench_worker.timing import perf_counters, posix_spawn
from bench_worker.timing.processes import Process, SpawnFailed, WaitTimeout, spawn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_common.requirements import ImageProgram
    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import CostMeter
    from bench_worker.engines.native.labels import LabelledDirectory, LabelledProcess


LAYOUT_VARIABLE: Final = "WEIGHBRIDGE_LAYOUT"
"""As long as the layout of the trial says; a program has no reason to read it."""
LOOPBACK: Final = "127.0.0.1"


_KIB: Final = 1024
_BLOCK_BYTES: Final = 512
"""The unit of getrusage(2)'s blocks on Linux, whatever the file system's is."""
_CLEARLY_MORE: Final = 1.1
"""The kernel's counters of resident pages are not exact while a process runs."""
_STATE_POLL_S = 0.0002
_STRAGGLER_ROUNDS = 5


@dataclass(slots=True)
class NativeContainer:
    """The container of the native engine: a private directory, and the processes started in it."""

    directory: Path
    extra_chars: int = 0
    """Characters that the name of the working directory is longer by: see `bench_common.layout`."""
    main: Process | None = None
    """The process that `start` started."""
    exec_processes: list[Process] = field(default_factory=list)
    """The processes of each `exec`."""
    earlier: list[Process] = field(default_factory=list)
    """The ended processes of every `start` but the latest."""
    paused: bool = False
    """Whether `pause` stopped it: a process that leaves vfork may not show that from outside."""

    @property
    def work(self) -> Path:
        """The directory that the processes run in."""
        return self.directory / ("work" + "k" * self.extra_chars)

    def processes(self) -> list[Process]:
        """Return every process that was started in it, dead or alive."""
        return [process for process in (self.main, *self.exec_processes) if process is not None]

    def cost(self) -> dict[str, float]:
        """Return what its ended processes have cost; nothing where that of one of them is lost, or none has ended."""
        ended = [one for one in (*self.earlier, *self.processes()) if one.exit is not None]
        found = cost_of_processes([one.exit.usage for one in ended if one.exit is not None])
        counters = [one.counters for one in ended if one.counters is not None]
        return found | perf_counters.totals(counters) if found and len(counters) == len(ended) else found


def get_native_container(container: Container) -> NativeContainer:
    """Return the container that `create` made; fail with ``not-found`` where there is none."""
    if not isinstance(container.handle, NativeContainer):
        raise_operation_failed("not-found", f"{container.name} does not exist", time.monotonic_ns())
    return container.handle


def running_process(container: Container) -> Process:
    """Return the main process; fail with ``conflict`` when it does not run."""
    main = get_native_container(container).main
    if main is None or main.exit is not None:
        raise_operation_failed("conflict", f"{container.name} is not running", time.monotonic_ns())
    return main


def cpu_time(process: Process) -> tuple[float, float] | None:
    """Return the CPU time of an ended process and of the children that it waited for: user mode and kernel, in s."""
    ended = process.exit
    return None if ended is None else ended.cpu_s


def cost_of_processes(usages: Sequence[resource.struct_rusage | None]) -> dict[str, float]:
    """Return the cost of processes that were reaped here, by the names of `bench_common.cost`.

    A process that this one makes takes over its peak of resident memory until it executes a program, and the kernel
    keeps the larger of the two: what is not clearly above the peak of this process says nothing of the program.
    """
    known = [one for one in usages if one is not None]
    if not known or len(known) < len(usages):
        return {}
    user_s, system_s = sum(one.ru_utime for one in known), sum(one.ru_stime for one in known)
    found = {
        cost.CPU_TOTAL: user_s + system_s,
        cost.CPU_USER: user_s,
        cost.CPU_SYSTEM: system_s,
        cost.CTX_VOLUNTARY: float(sum(one.ru_nvcsw for one in known)),
        cost.CTX_INVOLUNTARY: float(sum(one.ru_nivcsw for one in known)),
        cost.BLOCK_READ: float(sum(one.ru_inblock for one in known) * _BLOCK_BYTES),
        cost.BLOCK_WRITTEN: float(sum(one.ru_oublock for one in known) * _BLOCK_BYTES),
    }
    peak_kib = max(one.ru_maxrss for one in known)
    if peak_kib > _CLEARLY_MORE * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        found[cost.MAX_RSS] = float(peak_kib * _KIB)
    return found


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
    # The change lies between the last check that did not show it and the first that does.
    seen_ns = start_ns
    checked_ns = time.monotonic_ns()
    while is_stopped(main) is not stopped:
        if main.exit is not None:
            raise_operation_failed("conflict", f"{container.name} ended meanwhile", start_ns)
        if time.monotonic_ns() > deadline_ns:
            raise_operation_failed(
                "timeout", f"{container.name} did not take {number.name} in {timeout_s:g} s", start_ns
            )
        seen_ns = checked_ns
        gevent.sleep(_STATE_POLL_S)
        checked_ns = time.monotonic_ns()
    end_ns = time.monotonic_ns()
    return OperationResult(start_ns, end_ns, end_uncertainty_ns=end_ns - seen_ns)


def _group_exists(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_stragglers(native: NativeContainer, labels: Mapping[str, str], start_ns: int) -> None:
    """Kill the processes left in the groups of ended leaders: found by label, never by a number alone."""
    for _ in range(_STRAGGLER_ROUNDS):
        if not any(_group_exists(process.pid) for process in native.processes()):
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


class NativeEngine(Engine):
    """Plain processes of this host; see the module's text for what each verb is."""

    name: ClassVar[str] = "native"
    operations: ClassVar[frozenset[str]] = frozenset(
        {"create", "start", "run", "exec", "wait", "pause", "unpause", "stop", "kill", "logs", "remove"}
    )
    settings: ClassVar[frozenset[str]] = frozenset({"command", "env", "cpuset", "files", "directory"})
    inapplicable: ClassVar[frozenset[str]] = TRAITS.inapplicable
    unsupported_settings: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(CONFINEMENT, "a plain process is not confined"),
        "memory_bytes": "a plain process has no memory limit of its own; weigh it without one, or use an engine",
        "cpus": "a plain process has no share of CPU time; `cpuset` can be enforced",
    }
    unsupported_operations: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("pull", "commit"), "a plain process has no image"),
        "stats": "a plain process has no counters of its own; `sampling_interval` samples its host",
    }

    @classmethod
    def probe(cls) -> EngineStatus:
        """Say whether this kernel and libc can do it."""
        reason, endpoint = posix_spawn.missing_feature() or "", ""
        try:
            endpoint = str(native_labels.private_root())
        except EngineUnavailable as error:
            reason = reason or str(error)
        return cls.status(
            endpoint,
            version=f"{platform.system()} {platform.release()}",
            reason=reason,
            advice="use a newer kernel and C library, or set TMPDIR to a directory of yours" if reason else "",
            details={f"{cost.UNTOLD}{name}": why for name, why in perf_counters.unavailable().items()},
        )

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return none: plain processes need no daemon."""
        return DaemonProcesses()

    def open(self) -> None:
        """Make the directory that holds the private ones."""
        missing = posix_spawn.missing_feature()
        if missing:
            raise EngineUnavailable(f"engine 'native' cannot be used: {missing}")
        self._home = native_labels.private_root()

    def close(self) -> None:
        """Nothing is held."""

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Make the private directory, which also claims the name; no process yet."""
        del timeout_s
        start_ns = time.monotonic_ns()
        settings = container.settings
        foreign = settings.non_default() - self.settings - self.inapplicable
        for setting in sorted(foreign):
            value, why = getattr(settings, setting), self.unsupported_settings[setting]
            raise_operation_failed("refused", f"native cannot enforce {setting}={value!r}: {why}", start_ns)
        if not settings.command:
            raise_operation_failed(
                "refused", "a plain process needs `command`: there is no image to take one from", start_ns
            )
        self._cpus(container, start_ns)
        if settings.directory is not None and not Path(settings.directory).is_dir():
            raise_operation_failed(
                "refused", f"there is no directory {settings.directory} on this host to work in", start_ns
            )
        self._label(container)
        native = NativeContainer(self._home / container.name, self.layout.path_chars)
        with disk_errors_as_failures(start_ns):
            if native.directory.parent != self._home:
                raise_operation_failed("refused", f"{container.name!r} is no name for a container", start_ns)
            native.directory.mkdir(mode=0o700)
            # From here on there is something to remove, also where the disk is too full for the labels.
            container.handle = native
            native_labels.write_labels(native.directory, container.labels)
            native.work.mkdir()
            for path, text in settings.files.items():
                _write(native.work, path, text, start_ns)
        return OperationResult(start_ns, time.monotonic_ns())

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Spawn the command; done when the program has replaced the spawner."""
        del timeout_s
        native = get_native_container(container)
        if native.main is not None and native.main.exit is None:
            raise_operation_failed(
                "conflict", f"{container.name} runs already (process {native.main.pid})", time.monotonic_ns()
            )
        if native.main is not None:
            native.earlier.append(native.main)
        native.main = self._spawn(container, container.settings.command or (), "")
        return OperationResult(native.main.start_ns, native.main.running_ns)

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """Spawn a command beside the main one, in the same directory, and wait for its end."""
        deadline = time.monotonic() + timeout_s
        native = get_native_container(container)
        main = running_process(container)
        if native.paused or is_stopped(main):
            raise_operation_failed(
                "conflict", f"{container.name} is paused; unpause it before exec", time.monotonic_ns()
            )
        prefix = f"exec-{len(native.exec_processes) + 1}."
        process = self._spawn(container, argv, prefix)
        native.exec_processes.append(process)
        done = wait_result(process, process.start_ns, deadline, kill_late=True)
        done.cpu_s = cpu_time(process)
        done.stdout, cut_out = read_ends(native.directory / f"{prefix}stdout", OUTPUT_LIMIT_BYTES)
        done.stderr, cut_err = read_ends(native.directory / f"{prefix}stderr", OUTPUT_LIMIT_BYTES)
        done.truncated = cut_out or cut_err
        return done

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Wait for the end of the main process; its stamp is the reaper's, however late this greenlet wakes."""
        start_ns = time.monotonic_ns()
        main = get_native_container(container).main
        if main is None:
            raise_operation_failed("conflict", f"{container.name} was never started", start_ns)
        done = wait_result(main, start_ns, time.monotonic() + timeout_s)
        done.cpu_s = cpu_time(main)
        return done

    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """SIGSTOP to the group; done when the kernel shows the main process as stopped."""
        done = signal_and_confirm(container, signal.SIGSTOP, timeout_s, stopped=True)
        get_native_container(container).paused = True
        return done

    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """SIGCONT to the group; done when the main process is no longer stopped."""
        done = signal_and_confirm(container, signal.SIGCONT, timeout_s, stopped=False)
        get_native_container(container).paused = False
        return done

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """SIGTERM to the group and, after `grace_s`, SIGKILL; done when the main process is reaped.

        Without a grace period, SIGKILL alone.
        """
        start_ns = time.monotonic_ns()
        deadline = time.monotonic() + timeout_s
        main = get_native_container(container).main
        if main is None or not main.signal_group(signal.SIGTERM if grace_s > 0 else signal.SIGKILL):
            return OperationResult(start_ns, time.monotonic_ns())
        if 0 < grace_s < timeout_s:
            with suppress(WaitTimeout):
                return result_at_exit(start_ns, main.wait(grace_s))
            main.signal_group(signal.SIGKILL)
        return result_at_exit(start_ns, wait_exit(main, start_ns, deadline))

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """Send a signal to the group; after SIGKILL, done when the main process is reaped."""
        start_ns = time.monotonic_ns()
        deadline = time.monotonic() + timeout_s
        try:
            number = parse_signal(signal)
        except ValueError as error:
            raise_operation_failed("refused", str(error), start_ns)
        main = running_process(container)
        main.signal_group(number)
        if number.name != "SIGKILL":
            return OperationResult(start_ns, time.monotonic_ns())
        return result_at_exit(start_ns, wait_exit(main, start_ns, deadline))

    def commit(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Not among `operations`: a plain process has no image."""
        del timeout_s
        raise_operation_failed(
            "unsupported", f"native cannot commit {container.name}: there is no image", time.monotonic_ns()
        )

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Kill what still runs in the container's sessions, then delete its directory."""
        start_ns = time.monotonic_ns()
        deadline = time.monotonic() + timeout_s
        native = get_native_container(container)
        for process in native.processes():
            if process.signal_group(signal.SIGKILL):
                wait_exit(process, start_ns, deadline)
        kill_stragglers(native, container.labels, start_ns)
        with disk_errors_as_failures(start_ns):
            end_ns, uncertainty_ns = delete_directory(native.directory, last=native_labels.LABEL_FILE)
        container.handle = None
        return OperationResult(start_ns, end_ns, end_uncertainty_ns=min(uncertainty_ns, end_ns - start_ns))

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what the main process wrote to its two files."""
        del timeout_s
        start_ns = time.monotonic_ns()
        native = get_native_container(container)
        stdout, cut_out = read_ends(native.directory / "stdout", limit_bytes)
        stderr, cut_err = read_ends(native.directory / "stderr", limit_bytes)
        return OperationResult(
            start_ns, time.monotonic_ns(), stdout=stdout, stderr=stderr, truncated=cut_out or cut_err
        )

    def read_output(self, container: Container, *, timeout_s: float) -> bytes:
        """Return what the latest exec wrote while it runs, else what the main process did."""
        del timeout_s
        native = get_native_container(container)
        latest = native.exec_processes[-1] if native.exec_processes else None
        prefix = f"exec-{len(native.exec_processes)}." if latest is not None and latest.exit is None else ""
        return read_ends(native.directory / f"{prefix}stdout", PRINTED_LIMIT_BYTES)[0]

    def surroundings(self, settings: ContainerSettings, wanted: ImageProgram | None) -> Mapping[str, str]:
        """Return what this process hands on."""
        del settings, wanted
        return host_surroundings()

    def cost_meter(self, container: Container) -> CostMeter:
        """Return what adds up its reaped processes."""
        native = container.handle
        return native.cost if isinstance(native, NativeContainer) else dict

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the loopback's: its processes have the host's network."""
        del container, timeout_s
        return LOOPBACK

    def shared_path(self, container: Container, path: str) -> str:
        """Return the way from one private directory to another: a path that is as short as the kernel's sockets."""
        other = get_native_container(container).work
        return f"{relpath(other, other.parent.with_name('x') / other.name)}{path}"

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return marked processes, then marked directories (in the order in which they have to go)."""
        processes = [
            self._leftover("process", f"{item.pid}:{item.start_ticks}", item.command, item)
            for item in native_labels.labelled_processes()
            if item.labels[RUN_LABEL] and native_labels.matches(item.labels, run_id, worker_id)
        ]
        directories = [
            self._leftover("directory", str(item.path), item.path.name, item)
            for item in native_labels.labelled_directories()
            if native_labels.matches(item.labels, run_id, worker_id)
        ]
        return processes + directories

    def discard(self, leftover: Leftover) -> None:
        """Kill the process or delete the directory, if it still carries the label of that run."""
        if leftover.what == "process":
            for process in native_labels.labelled_processes():
                if f"{process.pid}:{process.start_ticks}" == leftover.identity:
                    native_labels.kill_labelled(process)
            return
        for directory in native_labels.labelled_directories():
            if str(directory.path) == leftover.identity and directory.labels[RUN_LABEL] == leftover.run_id:
                try:
                    delete_directory(directory.path, last=native_labels.LABEL_FILE)
                except OSError as error:
                    raise InfrastructureError(f"cannot delete {error.filename}: {error.strerror}") from error

    def _leftover(self, what: str, identity: str, name: str, item: LabelledProcess | LabelledDirectory) -> Leftover:
        owner = str(item.labels.get(OWNER_LABEL, ""))
        return Leftover(self.name, what, identity, name, item.labels[RUN_LABEL], item.age_s, owner)

    def _spawn(self, container: Container, argv: tuple[str, ...], prefix: str) -> Process:
        begun_ns = time.monotonic_ns()
        if not argv:
            raise_operation_failed("refused", "there is no command to start", begun_ns)
        native = get_native_container(container)
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": NATIVE_LOCALE,
            "HOME": str(native.work),
            **self._padding(),
            **container.settings.env,
            **{name: container.labels[label] for label, name in native_labels.VARIABLES.items()},
        }
        try:
            return spawn(
                argv,
                env=env,
                cwd=container.settings.directory or str(native.work),
                stdout_path=str(native.directory / f"{prefix}stdout"),
                stderr_path=str(native.directory / f"{prefix}stderr"),
                cpus=self._cpus(container, begun_ns),
                counted=container.counts_cost,
            )
        except SpawnFailed as error:
            raise OperationFailed(
                spawn_failure_kind(error), str(error), start_ns=error.start_ns, end_ns=error.end_ns
            ) from error

    def _padding(self) -> dict[str, str]:
        """Return the variable that makes the environment as large as the layout of the trial says."""
        size = self.layout.environment_bytes
        return {LAYOUT_VARIABLE: "x" * size} if size else {}

    def _cpus(self, container: Container, start_ns: int) -> frozenset[int] | None:
        """Return the CPUs to run on; the kernel would leave out those that it does not have, without a word."""
        if container.settings.cpuset is None:
            return None
        try:
            cpus = parse_cpuset(container.settings.cpuset)
        except ValueError as error:
            raise_operation_failed("refused", str(error), start_ns)
        missing = sorted(cpus - os.sched_getaffinity(0))
        if missing:
            usable = ",".join(map(str, sorted(os.sched_getaffinity(0))))
            text = f"cpuset {container.settings.cpuset!r}: there is no CPU {missing[0]} here; usable: {usable}"
            raise_operation_failed("refused", text, start_ns)
        return cpus


def _write(root: Path, path: str, text: str, start_ns: int) -> None:
    """Write a file that a container would have at `path`: below `root`, and nowhere else."""
    target = root / path.lstrip("/")
    if ".." in target.parts or target == root:
        raise_operation_failed("refused", f"{path!r} is no place for a file", start_ns)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
