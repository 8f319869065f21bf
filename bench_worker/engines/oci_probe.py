"""Finds out whether an OCI runtime can be used here: the program, its version, and what this process may do."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

from bench_common.capability import CAPABILITIES_WITHHELD, NETWORK_CHOICE, SERVICES_NETWORK, UNNAMED_VOLUMES
from bench_worker.engines import oci_homes, processes_of
from bench_worker.engines.base import EngineStatus, OperationFailed
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.criu import OPERATIONS
from bench_worker.engines.host_network import HOST
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.spec import NETWORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_VERSION_S: Final = 1.5
_SBIN: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where distributions put runtimes, and where an ordinary user's PATH does not look."""
_CAP_SYS_ADMIN: Final = 21


def look(
    name: str,
    *,
    advice: str,
    operations: frozenset[str],
    settings: frozenset[str],
    inapplicable: frozenset[str],
    reasons: Mapping[str, str],
    lacks: Mapping[str, str],
    unable: Callable[[str], str],
) -> EngineStatus:
    """Return the status of the runtime whose program is called `name`; never raises, within 5 s.

    `unable` says of the program at a path why it cannot save and restore containers, or nothing.
    """
    cgroups = Cgroups.look()
    program = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    reason, version, remedy = "", "", ""
    if program is None:
        reason, remedy = f"there is no program {name!r} on PATH", advice
    else:
        try:
            errand = CommandLine(program).errand(_VERSION_S)
            version = _version(errand.ask("--version").text)
        except OperationFailed as error:
            reason, remedy = f"`{program} --version` failed: {error}", advice
    if not reason and not _may_mount():
        reason, remedy = "it takes root with CAP_SYS_ADMIN to mount containers' layers", "run the worker as root"
    unsaved = unable(program) if program is not None and not reason else ""
    unenforced = {**reasons, **{key: text for key, text in cgroups.unenforced.items() if key in settings}}
    return EngineStatus(
        name=name,
        usable=not reason,
        version=version,
        endpoint=program or "",
        reason=reason,
        advice=remedy,
        operations=tuple(sorted(operations - (OPERATIONS if unsaved else frozenset()))),
        settings=tuple(sorted(settings - set(cgroups.unenforced))),
        inapplicable=tuple(sorted(inapplicable)),
        details={
            "cgroup": f"v{cgroups.version} (cgroupfs)",
            "store": str(oci_homes.STORE),
            SERVICES_NETWORK: HOST,
            NETWORK_CHOICE: " ".join(NETWORKS),
            UNNAMED_VOLUMES: "yes",
            CAPABILITIES_WITHHELD: " ".join(processes_of.withheld(processes_of.OWN)),
            "root": str(oci_homes.STATE_ROOT / name),
            **{f"operation.{operation}": text for operation, text in lacks.items()},
            **{f"setting.{setting}": text for setting, text in unenforced.items()},
            **{f"operation.{operation}": unsaved for operation in sorted(OPERATIONS & operations) if unsaved},
        },
    )


def _version(text: str) -> str:
    """Return the version in the first line of what a runtime says of itself (``runc version 1.1.5``)."""
    words = text.split("\n", 1)[0].split()
    return words[-1] if words else ""


def _may_mount() -> bool:
    """Say whether this process has CAP_SYS_ADMIN (capabilities(7)); being root is not enough in a container."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False
