"""Finds containerd: its command line, the socket that it listens on, and whether it answers."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Final

from bench_common.requirements import CAPABILITIES_WITHHELD, NETWORK_CHOICE, SERVICES_NETWORK, UNNAMED_VOLUMES
from bench_worker.engines import daemon_processes
from bench_worker.engines.base import EngineStatus, OperationFailed
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.low_level import HOST
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.spec import NETWORKS

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE: Final = "weighbridge"
VARIABLE: Final = "CONTAINERD_ADDRESS"
_SOCKETS: Final = ("/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock")
"""Its usual socket, and that of the one that dockerd starts for itself where there is no other."""
_PROBE_S: Final = 4.0
_SERVER: Final = re.compile(r"Server:\s+Version:\s+(\S+)")
_START_ADVICE: Final = (
    "start it (`systemctl start containerd`, or `script/docker-engine`), or name one in CONTAINERD_ADDRESS"
)


def address() -> str:
    """Return the socket of containerd: the one that the environment names, or the first usual one that there is."""
    named = os.environ.get(VARIABLE)
    return named or next((path for path in _SOCKETS if os.path.exists(path)), _SOCKETS[0])  # noqa: PTH110


def program(socket: str) -> tuple[str, ...]:
    """Return the command line with the options that come before every command."""
    return ("ctr", "--address", socket, "--connect-timeout", "3s", "--namespace", NAMESPACE)


def probe_containerd(
    name: str,
    *,
    operations: frozenset[str],
    settings: frozenset[str],
    inapplicable: frozenset[str],
    reasons: Mapping[str, str],
    lacks: Mapping[str, str],
) -> EngineStatus:
    """Ask the containerd at `address` for its version; never raises, within `_PROBE_S`."""
    socket = address()
    cgroups = Cgroups.look(swap_limit=False)
    reason, advice, version = "", "", ""
    if shutil.which("ctr") is None:
        reason, advice = "there is no program 'ctr' on PATH", "install containerd (`apt-get install containerd`)"
    else:
        ctr, *options = program(socket)
        try:
            said = CommandLine(ctr, options).errand(_PROBE_S).ask("version").text
            found = _SERVER.search(said)
            version = found[1] if found else ""
        except OperationFailed as error:
            reason, advice = f"no containerd answers at {socket}: {error}", _START_ADVICE
    unenforced = {**reasons, **{key: text for key, text in cgroups.unenforced.items() if key in settings}}
    return EngineStatus(
        name=name,
        usable=not reason,
        version=version,
        endpoint=f"unix://{socket}",
        reason=reason,
        advice=advice,
        operations=tuple(sorted(operations)),
        settings=tuple(sorted(settings - set(cgroups.unenforced))),
        inapplicable=tuple(sorted(inapplicable)),
        details={
            "namespace": NAMESPACE,
            "cgroup": f"v{cgroups.version} (cgroupfs)",
            SERVICES_NETWORK: HOST,
            NETWORK_CHOICE: " ".join(NETWORKS),
            UNNAMED_VOLUMES: "yes",
            CAPABILITIES_WITHHELD: " ".join(
                daemon_processes.unavailable_capabilities(daemon_processes.MACHINE_CAPABILITIES)
            ),
            **{f"operation.{operation}": text for operation, text in lacks.items()},
            **{f"setting.{setting}": text for setting, text in unenforced.items()},
        },
    )
