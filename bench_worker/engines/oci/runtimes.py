"""The engines of single OCI runtimes: `runc`, `crun` (in C), `youki` (in Rust), `runsc` (gVisor)."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from bench_worker.engines.base import Container, DaemonProcesses, OperationFailed
from bench_worker.engines.command_line import CommandSequence
from bench_worker.engines.daemon_processes import gvisor_processes
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.bundle import CONFIGURATION, Bundle
from bench_worker.engines.oci.engine import OciEngine
from bench_worker.engines.oci.runtime import OPERATIONS
from bench_worker.engines.results import disk_errors_as_failures
from bench_worker.engines.settings import DEVICE_LIMITS


class RuncEngine(OciEngine):
    """`runc <https://github.com/opencontainers/runc>`_, see `bench_worker.engines.oci.engine`."""

    name: ClassVar[str] = "runc"
    advice: ClassVar[str] = "install it (`apt-get install runc`; it comes with docker.io)"


_EMPTY_DIRECTORY: Final = ".empty-directory"
"""The directory that newer releases mount over those that a container must not see."""
_USUAL_ROOT: Final = Path("/run/crun")
_IGNORED_BY_EXEC: Final = frozenset({"ulimits", "security_options", "cap_add", "cap_drop"})
"""Settings that crun ignores for a command of `exec`."""


class CrunEngine(OciEngine):
    """`crun <https://github.com/containers/crun>`_, see `bench_worker.engines.oci.engine`."""

    operations: ClassVar[frozenset[str]] = OciEngine.operations - {"stats"}
    unsupported_operations: ClassVar[dict[str, str]] = {
        **OciEngine.unsupported_operations,
        "stats": "crun has no command for it",
    }
    name: ClassVar[str] = "crun"
    log_option: ClassVar[str] = "file:{}"
    checkpoint_flags: ClassVar[tuple[str, ...]] = ("--manage-cgroups-mode=ignore",)
    """Else CRIU saves all groups of a hierarchy in which the container has none of its own, as v2 is beside v1."""
    advice: ClassVar[str] = "install it (`apt-get install crun`)"

    def prepare_restore(self, container: Container, sequence: CommandSequence) -> None:
        """Map the directory that covers others: crun saves it by the name that it has below its usual root."""
        del sequence
        bundle, covering = self._bundle(container), oci_images.STATE_ROOT / self.name / _EMPTY_DIRECTORY
        line = f"external mnt[{_USUAL_ROOT / _EMPTY_DIRECTORY}]:{covering}\n"
        with disk_errors_as_failures(time.monotonic_ns()):
            path = bundle.directory / CONFIGURATION
            text = path.read_text(encoding="ascii")
            if covering.exists() and line not in text:
                path.write_text(text + line, encoding="ascii")

    def exec_argv(self, container: Container, argv: tuple[str, ...]) -> list[str]:
        """Describe the whole process where it is confined: for a command alone, crun ignores the limits."""
        settings, bundle = container.settings, container.handle
        if not isinstance(bundle, Bundle) or not settings.non_default() & _IGNORED_BY_EXEC:
            return super().exec_argv(container, argv)
        config = json.loads(bundle.config.read_text(encoding="utf-8"))
        path = bundle.directory / "process.json"
        path.write_text(json.dumps({**config["process"], "args": list(argv)}), encoding="utf-8")
        return ["--process", str(path), container.name]


class YoukiEngine(OciEngine):
    """`youki <https://github.com/youki-dev/youki>`_, see `bench_worker.engines.oci.engine`."""

    operations: ClassVar[frozenset[str]] = OciEngine.operations - OPERATIONS
    unsupported_operations: ClassVar[dict[str, str]] = {
        **OciEngine.unsupported_operations,
        **dict.fromkeys(OPERATIONS, "youki cannot restore what it has saved"),
    }
    name: ClassVar[str] = "youki"
    advice: ClassVar[str] = "install it (`script/engines youki`, or `cargo install youki --locked --features v1`)"


_END_EXEC_S: Final = 5.0
_BY_CGROUPS: Final = frozenset({"memory_bytes", "cpus", "cpuset", "pids", "blkio_weight", *DEVICE_LIMITS})
"""Settings that cgroups enforce."""


class RunscEngine(OciEngine):
    """`runsc <https://gvisor.dev>`_ on the platform ``ptrace``, which needs no virtualisation."""

    name: ClassVar[str] = "runsc"
    settings: ClassVar[frozenset[str]] = OciEngine.settings - _BY_CGROUPS
    advice: ClassVar[str] = "install it (`script/engines runsc`, or `apt-get install runsc`)"

    exec_pid_option: ClassVar[str] = "--internal-pid-file"
    unsupported_settings: ClassVar[dict[str, str]] = {
        **OciEngine.unsupported_settings,
        **dict.fromkeys(_BY_CGROUPS, "runsc runs with --ignore-cgroups"),
    }

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return each container's kernel and file server, which are processes of the host."""
        return gvisor_processes(str(oci_images.STATE_ROOT / cls.name))

    @classmethod
    def checkpoint_unavailable_reason(cls, program: str) -> str:
        """Return nothing: its kernel saves itself, without CRIU."""
        del program
        return ""

    @classmethod
    def options_for(cls, container: Container | None) -> tuple[str, ...]:
        """Return the platform and the network, which is an option of this program."""
        network = container.settings.network if container else None
        return ("--platform=ptrace", "--ignore-cgroups", f"--network={network or 'none'}")

    def prepare_restore(self, container: Container, sequence: CommandSequence) -> None:
        """Delete the saved container, as its name has to be free: a part of restoring it."""
        sequence.run("delete", "--force", container.name)

    def end_exec(self, container: Container, pid_file: Path) -> None:
        """Kill the command of an `exec` inside the sandbox, where it has a pid of its own."""
        with suppress(OSError, ValueError, OperationFailed):
            pid = int(pid_file.read_text(encoding="ascii"))
            self._sequence(container, _END_EXEC_S).run("kill", f"--pid={pid}", container.name, "KILL")
