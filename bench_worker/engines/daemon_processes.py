"""The daemon processes of engines, and the capabilities that they can give to containers.

Engines that are driven differently (Docker by its API or by its client) share one daemon, so its processes are
declared once. A container has no capability (capabilities(7)) that the process which starts it cannot pass on: in a
container, or a virtual machine of some providers, that is less than all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench_common.treatment import CAPABILITIES
from bench_worker.engines.base import CompanionDaemon, DaemonProcesses

OWN_CAPABILITIES: Final = "self"
"""This process: containers that it starts have at most its capabilities."""
MACHINE_CAPABILITIES: Final = "1"
"""The first process of this machine: containers of a daemon have at most its capabilities."""

_BOUNDING: Final = "CapBnd:"


def unavailable_capabilities(process: str, proc: Path = Path("/proc")) -> list[str]:
    """Return the capabilities outside a process's bounding set; empty where it cannot be read.

    `process` is `OWN_CAPABILITIES` or `MACHINE_CAPABILITIES`.
    """
    try:
        lines = (proc / process / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        if line.startswith(_BOUNDING):
            mask = int(line.split()[1], 16)
            return [name for number, name in enumerate(CAPABILITIES) if not mask >> number & 1]
    return []


CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"

NO_DAEMON: Final = DaemonProcesses()
"""For an engine whose program ends before its containers do."""

_SHIMS: Final = frozenset({"containerd-shim"})
"""``containerd-shim``, ``containerd-shim-runc-v2`` and their kin: the kernel keeps the first 15 letters."""
_GVISOR: Final = frozenset({"runsc-sandbox", "runsc-gofer"})
"""gVisor's kernel of a container, and its file server."""
_NETWORK: Final = frozenset({"docker-proxy", "rootlesskit", "vpnkit", "slirp4netns", "pasta"})


def docker_daemon(endpoint: str) -> DaemonProcesses | None:
    """Return the own processes of the Docker Engine at ``unix:///PATH``; None for one beyond a network."""
    if not endpoint.startswith("unix://"):
        return None
    socket = "/" + endpoint.removeprefix("unix://").lstrip("/")
    usual = socket in ("/var/run/docker.sock", "/run/docker.sock")
    return DaemonProcesses(
        names=frozenset({"dockerd", "containerd"}) | _NETWORK,
        sockets=(socket,),
        # For a socket made by systemd, the listening process is systemd.
        pid_files=("/var/run/docker.pid",) if usual else (),
        companion_daemons=(CompanionDaemon("containerd", "--containerd", CONTAINERD_SOCKET),),
        shims=_SHIMS,
        sandboxes=_GVISOR,
    )


def containerd_daemon(socket: str = CONTAINERD_SOCKET) -> DaemonProcesses:
    """Return the processes of the containerd that listens on `socket`."""
    return DaemonProcesses(names=frozenset({"containerd"}), sockets=(socket,), shims=_SHIMS, sandboxes=_GVISOR)


def podman_daemon(socket: str | None = None) -> DaemonProcesses:
    """Return podman's processes: its service at `socket`, if there is one, and the monitor of each container."""
    return DaemonProcesses(
        names=frozenset({"podman", "netavark", "aardvark-dns"}) | _NETWORK,
        sockets=() if socket is None else (socket,),
        roots=("podman",),
        shims=frozenset({"conmon"}),
        sandboxes=_GVISOR,
    )


def cri_daemon(socket: str) -> DaemonProcesses:
    """Return the processes behind the CRI socket: containerd with its shims, or CRI-O with its monitors."""
    return DaemonProcesses(
        names=frozenset({"containerd", "crio"}),
        sockets=(socket,),
        shims=_SHIMS | frozenset({"conmon"}),
        sandboxes=_GVISOR,
    )


def gvisor_processes(state: str) -> DaemonProcesses:
    """Return the processes that gVisor adds to each container whose runtime keeps its state in a directory."""
    return DaemonProcesses(sandboxes=_GVISOR, state=state)
