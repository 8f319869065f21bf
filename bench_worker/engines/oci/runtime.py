"""Probes and calls the program of an OCI runtime, in a mount namespace of our own.

A runtime and the commands that it runs write to the same stderr and may end with any exit code; the runtime's own
errors are also in its log, which tells them apart.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common.requirements import CAPABILITIES_WITHHELD, NETWORK_CHOICE, SERVICES_NETWORK, UNNAMED_VOLUMES
from bench_worker.engines import daemon_processes
from bench_worker.engines.base import HOST, PROBE_S, OperationFailed
from bench_worker.engines.command_line import CommandLine, CommandSequence, ProgramResult
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.spec import NETWORKS
from bench_worker.engines.output import read_head, read_tail
from bench_worker.timing.posix_spawn import FixedEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_worker.engines.base import EngineStatus
    from bench_worker.engines.oci.engine import OciBase
    from bench_worker.engines.oci.mount_namespace import MountNamespace


ERROR_KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("disk-full", r"no space left on device|disk quota exceeded"),
        ("refused", r"rlimit"),
        ("not-found", r"container .*does not exist|loading (container|sandbox): file does not exist"),
        ("conflict", r"already exists|id already in use|not running|is paused|not paused|in `created` or `stopped`"),
        ("conflict", r"incompatible container status|invalid container state"),
        ("conflict", r"cannot (pause|resume|exec|start)|not .?stopped"),
        ("not-executable", r"(exec|load).*(permission denied|exec format error|is a directory|correct permission)"),
        ("command-not-found", r"not found in|executable .*not found|(exec|load).*no such file or directory"),
    )
)
"""Kinds of a runtime's errors; the first match wins."""

_ERROR_LEVELS: Final = frozenset({"error", "fatal", "panic"})
_MESSAGES_BYTES: Final = 64 << 10
_LOG_BYTES: Final = 256 << 10
"""How much of the end of a runtime's log is read, where its last error is."""
_OVERLONG: Final = f"the runtime's last error fills more than {_LOG_BYTES >> 10} KiB of its log and is not shown"
_LEVEL_BYTES: Final = 4096
"""How much of either end of a longer entry is searched for its level, which is first or last in it."""
_LEVEL: Final = re.compile(rb'"level"\s*:\s*"(\w+)"')
"""Not in a message, where quotes are escaped."""
_BACKTRACE: Final = "\n\nStack backtrace:"


@dataclass
class RuntimeCommandSequence(CommandSequence):
    """An operation whose runtime writes its own errors to a file that does not exist yet."""

    log: str = os.devnull
    """The path of the file for the runtime's errors."""

    def run_silent(self, *arguments: str) -> ProgramResult:
        """Run a timed command that has to succeed and prints nothing but errors."""
        result = self.run_silent_unchecked(*arguments)
        if result.exit_code:
            raise self.failed(result)
        return result

    def run_silent_unchecked(self, *arguments: str) -> ProgramResult:
        """Run a timed command that prints nothing but errors, whatever its exit code.

        They go to a file, which nobody reads in the usual case; pipes would take longer than the rest of the call.
        """
        messages = f"{self.log.rpartition('/')[0]}/messages"
        result = self.run_unchecked(*arguments, stdout_path=os.devnull, stderr_path=messages)
        if not result.exit_code:
            return result
        return replace(result, stderr=read_head(Path(messages), _MESSAGES_BYTES)[0])

    def failed(self, result: ProgramResult) -> OperationFailed:
        """Return the failure with the last error in the runtime's log, or else with what is on stderr."""
        text = self.error_text()
        return super().failed(replace(result, stderr=text.encode()) if text else result)

    def error_text(self) -> str:
        """Return the last error that the runtime itself logged; nothing where there is none.

        Of a long log, it is looked for in the lines that are at its end. A last line that is longer than what is read
        is an error unless it has another level.
        """
        data, cut = read_tail(Path(self.log), _LOG_BYTES)
        lines = data.partition(b"\n")[2] if cut else data
        if cut and not lines.strip():
            level = self._level_of_last_line(data)
            return "" if level and level not in _ERROR_LEVELS else _OVERLONG
        errors = [
            entry.get("msg") or entry.get("message")
            for entry in _entries(lines.decode("utf-8", "replace"))
            if _is_error(entry)
        ]
        return str(errors[-1]).partition(_BACKTRACE)[0] if errors else ""

    def _level_of_last_line(self, end: bytes) -> str:
        """Return the level of a log's last line, which has this end and more before it; nothing if it is unknown."""
        beginning = read_head(Path(self.log), _LEVEL_BYTES)[0]
        found = _LEVEL.findall(end[-_LEVEL_BYTES:]) or (_LEVEL.findall(beginning) if b"\n" not in beginning else [])
        return found[-1].decode("ascii", "replace").lower() if found else ""


class Runtime(Struct, frozen=True):
    """A runtime's program, and how to call it."""

    program: str
    root: Path
    """Its private ``--root``."""
    mount_namespace: MountNamespace
    env: FixedEnvironment
    """The environment of its commands."""
    log_option: str = "{}"
    """How its ``--log`` names a file."""

    def sequence(self, log: str, options: tuple[str, ...], timeout_s: float) -> RuntimeCommandSequence:
        """Return an operation whose runtime reports its errors to `log`; `options` come before each command."""
        general = ("--root", str(self.root), "--log", self.log_option.format(log), "--log-format", "json")
        line = CommandLine(
            self.program,
            (*general, *options),
            error_kinds=ERROR_KINDS,
            env=self.env,
            spawner=self.mount_namespace.spawn,
        )
        return RuntimeCommandSequence(line, timeout_s, log=log)


def runtime_environment() -> FixedEnvironment:
    """Return the environment of a runtime's commands: this process's own, but for one variable.

    gVisor's sandbox makes its root in $TMPDIR as a user who may not get there, if that is somebody's own.
    """
    return FixedEnvironment({name: value for name, value in os.environ.items() if name != "TMPDIR"})


def _entries(text: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log of JSON objects, which not every runtime puts on lines of their own."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            entry, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        yield entry


def _is_error(entry: dict[str, Any]) -> bool:
    return str(entry.get("level")).lower() in _ERROR_LEVELS


def kill_from_pid_file(pid_file: Path, first: int) -> None:
    """Kill the process in a runtime's pid file if it is in the container whose first process is `first`.

    It may have ended, and a process of the host have its pid by now. A missing file or process is no error.
    """
    with suppress(OSError, ValueError):
        pid = int(pid_file.read_text(encoding="ascii"))
        pidfd = os.pidfd_open(pid)
        try:
            space = _pid_namespace(pid)
            if space == _pid_namespace(first) and space != _pid_namespace(os.getpid()):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def _pid_namespace(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/pid").stat().st_ino


_SBIN: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where distributions put runtimes; an ordinary user's PATH does not have these."""
_CAP_SYS_ADMIN: Final = 21


def probe_runtime(engine: type[OciBase]) -> EngineStatus:
    """Return the status of the runtime, whose program has its name or is at its place; never raises."""
    name, place, kind, advice = engine.name, engine.place, engine.kind, engine.advice
    cgroups = Cgroups.detect()
    program = shutil.which(place or name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    reason, version, remedy = "", "", ""
    if program is None and place:
        reason, remedy = f"{place} is no program", f"give the path of a {kind} (--engine {name}={kind}:PROGRAM)"
    elif program is None:
        reason, remedy = f"there is no program {name!r} on PATH", advice
    elif program is not None:
        try:
            sequence = CommandLine(program).sequence(PROBE_S)
            version = _version(sequence.run_untimed("--version").text)
        except OperationFailed as error:
            reason, remedy = f"`{program} --version` failed: {error}", advice
    if not reason and not _may_mount():
        reason, remedy = "mounting containers' layers needs root with CAP_SYS_ADMIN", "run the worker as root"
    return engine.status(
        program or "",
        version=version,
        reason=reason,
        advice=remedy,
        unenforced=cgroups.unenforced,
        details={
            "cgroup": f"v{cgroups.version} (cgroupfs)",
            "store": str(oci_images.STORE),
            SERVICES_NETWORK: HOST,
            NETWORK_CHOICE: " ".join(NETWORKS),
            UNNAMED_VOLUMES: "yes",
            CAPABILITIES_WITHHELD: " ".join(
                daemon_processes.unavailable_capabilities(daemon_processes.OWN_CAPABILITIES)
            ),
            "root": str(oci_images.STATE_ROOT / name),
        },
    )


def _version(text: str) -> str:
    """Return the version in the first line of ``--version`` (``runc version 1.1.5``)."""
    words = text.split("\n", 1)[0].split()
    return words[-1] if words else ""


def _may_mount() -> bool:
    """Say whether this process has CAP_SYS_ADMIN (capabilities(7)); being root is not enough in a container."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False
