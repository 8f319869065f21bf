"""runsc: gVisor's runtime, which has a kernel of its own in user space for each container."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from bench_worker.engines import oci_homes
from bench_worker.engines.base import Container, DaemonSide, OperationFailed
from bench_worker.engines.command_line import Errand
from bench_worker.engines.daemon_sides import gvisor_side
from bench_worker.engines.docker_confinement import THROTTLES
from bench_worker.engines.oci.engine import OciEngine

_END_EXEC_S: Final = 5.0
_BY_CGROUPS: Final = frozenset({"memory_bytes", "cpus", "cpuset", "pids", "blkio_weight", *THROTTLES})
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
    def daemon_side(cls) -> DaemonSide:
        """Each container's kernel and file server, which are processes of the host."""
        return gvisor_side(str(oci_homes.STATE_ROOT / cls.name))

    @classmethod
    def unable_to_save(cls, program: str) -> str:
        """Return nothing: its kernel saves itself, without CRIU."""
        del program
        return ""

    @classmethod
    def options_for(cls, container: Container | None) -> tuple[str, ...]:
        """Return the platform, and the network, which is an option of the program here."""
        network = container.settings.network if container else None
        return ("--platform=ptrace", "--ignore-cgroups", f"--network={network or 'none'}")

    def clear(self, container: Container, errand: Errand) -> None:
        """Delete the saved container, whose name has to be free: a part of restoring it."""
        errand.do("delete", "--force", container.name)

    def end_exec(self, container: Container, pid_file: Path) -> None:
        """Kill the command of an `exec` inside of the sandbox, where it has a number of its own."""
        with suppress(OSError, ValueError, OperationFailed):
            pid = int(pid_file.read_text(encoding="ascii"))
            self._errand(container, _END_EXEC_S).do("kill", f"--pid={pid}", container.name, "KILL")
