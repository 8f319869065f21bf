"""What saving and restoring a container takes beside the runtime's own two commands: where its output goes.

A container's output goes to files of the host, which CRIU finds in no mount of the container and refuses to save. So
they are declared beforehand, in a configuration of CRIU's that an annotation of the config.json names: saved as
external, and on restoring replaced by those that the runtime was started with: the same files, as they were.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.criu import first_error

if TYPE_CHECKING:
    from bench_worker.engines.oci.bundle import Bundle

ANNOTATION: Final = "org.criu.config"
"""How runc and crun are told of a configuration of CRIU's for one container."""
CONFIGURATION: Final = "criu.conf"
_OUTPUTS: Final = (1, 2)
_LOGS: Final = ("restore.log", "dump.log")
"""CRIU's own logs, the later one first."""


def declare_outputs(bundle: Bundle, pid: int) -> None:
    """Write CRIU's configuration for a container whose first process is `pid`; raise `OSError`."""
    lines = []
    for descriptor in _OUTPUTS:
        entry = Path(f"/proc/{pid}/fd/{descriptor}")
        mount = _mount_of(pid, descriptor)
        # Both numbers in the form in which CRIU prints them to itself.
        file = f"file[{mount:x}:{entry.stat().st_ino:x}]"
        lines += [f"external {file}", f"inherit-fd fd[{descriptor}]:{file}"]
    (bundle.directory / CONFIGURATION).write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def words(bundle: Bundle, *, anew: bool = False) -> list[str]:
    """Return the options, for saving (`anew`) and for restoring, that say where the state is; raise `OSError`."""
    bundle.checkpoints += anew
    directory = bundle.directory / f"checkpoint-{bundle.checkpoints}"
    directory.mkdir(mode=0o700, exist_ok=True)
    return ["--image-path", str(directory), "--work-path", str(bundle.directory)]


def explained(bundle: Bundle, failure: OperationFailed) -> OperationFailed:
    """Return a failure with CRIU's own reason, which a runtime leaves in a log that goes with the bundle."""
    for log in _LOGS:
        with suppress(OSError):
            said = (bundle.directory / log).read_text(encoding="utf-8", errors="replace")
            text = f"{failure}: {first_error(said)}"
            return OperationFailed(failure.kind, text, start_ns=failure.start_ns, end_ns=failure.end_ns)
    return failure


def _mount_of(pid: int, descriptor: int) -> int:
    """Return the number of the mount that a file was opened in (proc_pid_fdinfo(5))."""
    text = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("mnt_id:"))
