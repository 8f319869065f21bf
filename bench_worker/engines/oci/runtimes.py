"""The engines of single OCI runtimes: `runc`, `crun` (in C), `youki` (in Rust), `runsc` (gVisor)."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace

from bench_worker.engines.base import Container, DaemonProcesses, EngineStatus, OperationFailed
from bench_worker.engines.command_line import CommandLine, CommandSequence
from bench_worker.engines.daemon_processes import gvisor_processes
from bench_worker.engines.oci import cgroups as oci_cgroups
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.bundle import Bundle
from bench_worker.engines.oci.engine import OciEngine
from bench_worker.engines.settings import DEVICE_LIMITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings


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
    advice: ClassVar[str] = "install it (`apt-get install crun`)"

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

    name: ClassVar[str] = "youki"
    advice: ClassVar[str] = "install it (`script/engines youki`, or `cargo install youki --locked --features v1`)"


_END_EXEC_S: Final = 5.0
_OF_THE_SANDBOX: Final = frozenset({"pids", "blkio_weight", *DEVICE_LIMITS})
"""Settings that would hold for gVisor's own threads and files, and not for the processes of the container."""
_BY_CGROUPS: Final = frozenset({"memory_bytes", "cpus", "cpuset"})
"""Settings that cgroups enforce, for gVisor and the container together."""
_FLAGS_S: Final = 1.5
_PLATFORM_FLAG: Final = re.compile(r"^\s+-platform string\n\s+(.*)", re.MULTILINE)
_DEFAULT: Final = re.compile(r'\(default "([^"]+)"\)')
PLATFORM: Final = "platform"
"""The detail with the platform that containers have which ask for none."""


class RunscEngine(OciEngine):
    """`runsc <https://gvisor.dev>`_, on the platform that it chooses itself unless a container asks for another."""

    name: ClassVar[str] = "runsc"
    settings: ClassVar[frozenset[str]] = OciEngine.settings - _OF_THE_SANDBOX | {"gvisor_platform"}
    advice: ClassVar[str] = "install it (`script/engines runsc`, or `apt-get install runsc`)"

    exec_pid_option: ClassVar[str] = "--internal-pid-file"
    unsupported_settings: ClassVar[Mapping[str, str]] = {
        **{key: why for key, why in OciEngine.unsupported_settings.items() if key != "gvisor_platform"},
        **dict.fromkeys(_OF_THE_SANDBOX, "it would limit gVisor's own threads and files, not the container's"),
    }

    @classmethod
    def probe(cls) -> EngineStatus:
        """Say whether the runtime is there and may do its work, and which platform it has by default."""
        status = super().probe()
        if not status.usable:
            return status
        details = {**status.details, PLATFORM: default_platform(_described_flags(status.endpoint))}
        limits = frozenset[str]() if oci_cgroups.are_writable() else _BY_CGROUPS & set(status.settings)
        details |= {f"setting.{key}": "this host's cgroups cannot be changed from here" for key in limits}
        return replace(status, settings=tuple(sorted({*status.settings} - limits)), details=details)

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Fetch the root file system of a container; return why it, or the platform, is unavailable."""
        return [*self._platform_reasons(settings.gvisor_platform), *super().missing(settings)]

    def _platform_reasons(self, platform: str | None) -> list[str]:
        """Return that this release of runsc has no such platform, as its own help says."""
        if platform is None:
            return []
        described = _described_flags(self._runtime.program)
        found = _PLATFORM_FLAG.search(described)
        # The sentence names each one; a release that words it otherwise refuses a wrong one by itself.
        if found is None or re.search(rf"\b{re.escape(platform)}\b", found[1]):
            return []
        return [f"this runsc has no platform {platform!r}: `{self._runtime.program} flags` says {found[1]!r}"]

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return each container's kernel and file server, which are processes of the host."""
        return gvisor_processes(str(oci_images.STATE_ROOT / cls.name))

    @classmethod
    def options_for(cls, container: Container | None) -> tuple[str, ...]:
        """Return the network, which is an option of this program, and the platform where a container asks for one."""
        network = container.settings.network if container else None
        platform = container.settings.gvisor_platform if container else None
        cgroups = () if oci_cgroups.are_writable() else ("--ignore-cgroups",)
        return (f"--network={network or 'none'}", *cgroups, *((f"--platform={platform}",) if platform else ()))

    def prepare_restore(self, container: Container, sequence: CommandSequence) -> None:
        """Delete the saved container, as its name has to be free: a part of restoring it."""
        sequence.run("delete", "--force", container.name)

    def end_exec(self, container: Container, pid_file: Path) -> None:
        """Kill the command of an `exec` inside the sandbox, where it has a pid of its own."""
        with suppress(OSError, ValueError, OperationFailed):
            pid = int(pid_file.read_text(encoding="ascii"))
            self._sequence(container, _END_EXEC_S).run("kill", f"--pid={pid}", container.name, "KILL")


def default_platform(described: str) -> str:
    """Return gVisor's platform by default, from what ``runsc flags`` prints; empty where that does not say it."""
    flag = _PLATFORM_FLAG.search(described)
    found = _DEFAULT.search(flag[1]) if flag is not None else None
    return found[1] if found is not None else ""


def _described_flags(program: str) -> str:
    try:
        result = CommandLine(program).sequence(_FLAGS_S).run_unchecked("flags")
    except OperationFailed:
        return ""
    return (result.stdout + result.stderr).decode("utf-8", "replace")
