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
"""The folder that newer releases mount over those that a container must not see."""
_USUAL_ROOT: Final = Path("/run/crun")
_IGNORED_BY_EXEC: Final = frozenset({"ulimits", "security_options", "cap_add", "cap_drop"})
"""What it leaves out for a command that is executed beside the container's own."""


class CrunEngine(OciEngine):
    """`crun <https://github.com/containers/crun>`_, see `bench_worker.engines.oci.engine`."""

    operations: ClassVar[frozenset[str]] = OciEngine.operations - {"stats"}
    lacks: ClassVar[dict[str, str]] = {**OciEngine.lacks, "stats": "crun has no command for it"}
    name: ClassVar[str] = "crun"
    log_option: ClassVar[str] = "file:{}"
    checkpoint_flags: ClassVar[tuple[str, ...]] = ("--manage-cgroups-mode=ignore",)
    """Else CRIU saves all groups of a hierarchy in which the container has none of its own, as v2 is beside v1."""
    advice: ClassVar[str] = "install it (`apt-get install crun`)"

    def clear(self, container: Container, errand: CommandSequence) -> None:
        """Say where the folder is that covers others: crun saves it by the name that it has below its usual root."""
        del errand
        bundle, covering = self._bundle(container), oci_images.STATE_ROOT / self.name / _EMPTY_DIRECTORY
        line = f"external mnt[{_USUAL_ROOT / _EMPTY_DIRECTORY}]:{covering}\n"
        with disk_errors_as_failures(time.monotonic_ns()):
            path = bundle.directory / CONFIGURATION
            text = path.read_text(encoding="ascii")
            if covering.exists() and line not in text:
                path.write_text(text + line, encoding="ascii")

    def exec_argv(self, container: Container, argv: tuple[str, ...]) -> list[str]:
        """Describe the whole process where it is confined: executing a command alone, crun leaves its limits out."""
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
    lacks: ClassVar[dict[str, str]] = {
        **OciEngine.lacks,
        **dict.fromkeys(OPERATIONS, "youki restores nothing that it has saved"),
    }
    name: ClassVar[str] = "youki"
    advice: ClassVar[str] = "install it (`script/engines youki`, or `cargo install youki --locked --features v1`)"


_END_EXEC_S: Final = 5.0
_BY_CGROUPS: Final = frozenset({"memory_bytes", "cpus", "cpuset", "pids", "blkio_weight", *DEVICE_LIMITS})
"""What would be limited by cgroups."""


class RunscEngine(OciEngine):
    """`runsc <https://gvisor.dev>`_ on the platform ``ptrace``, which needs no virtualisation."""

    name: ClassVar[str] = "runsc"
    settings: ClassVar[frozenset[str]] = OciEngine.settings - _BY_CGROUPS
    advice: ClassVar[str] = "install it (`script/engines runsc`, or `apt-get install runsc`)"

    exec_pid_option: ClassVar[str] = "--internal-pid-file"
    reasons: ClassVar[dict[str, str]] = {
        **OciEngine.reasons,
        **dict.fromkeys(_BY_CGROUPS, "it is run with --ignore-cgroups"),
    }

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Each container's kernel and file server, which are processes of the host."""
        return gvisor_processes(str(oci_images.STATE_ROOT / cls.name))

    @classmethod
    def checkpoint_unavailable_reason(cls, program: str) -> str:
        """Return nothing: its kernel saves itself, without CRIU."""
        del program
        return ""

    @classmethod
    def options_for(cls, container: Container | None) -> tuple[str, ...]:
        """Return the platform, and the network, which is an option of the program here."""
        network = container.settings.network if container else None
        return ("--platform=ptrace", "--ignore-cgroups", f"--network={network or 'none'}")

    def clear(self, container: Container, errand: CommandSequence) -> None:
        """Delete the saved container, whose name has to be free: a part of restoring it."""
        errand.do("delete", "--force", container.name)

    def end_exec(self, container: Container, pid_file: Path) -> None:
        """Kill the command of an `exec` inside of the sandbox, where it has a number of its own."""
        with suppress(OSError, ValueError, OperationFailed):
            pid = int(pid_file.read_text(encoding="ascii"))
            self._errand(container, _END_EXEC_S).do("kill", f"--pid={pid}", container.name, "KILL")
