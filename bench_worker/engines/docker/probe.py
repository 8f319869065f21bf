"""Finds out whether a Docker Engine can be used here, and which limits this host would let it enforce.

Saves containers and lets them go on through Docker's API, which has it among its experimental features.

A checkpoint lies in the container's own directory and goes with it.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import docker.errors
import requests

from bench_common.errors import EngineUnavailable
from bench_common.requirements import CAPABILITIES_WITHHELD, ENGINE_MANAGED_STORAGE
from bench_worker.engines import daemon_processes
from bench_worker.engines.base import EngineStatus
from bench_worker.engines.docker import http as docker_http
from bench_worker.engines.docker import settings as docker_settings
from bench_worker.engines.docker.errors import root_cause
from bench_worker.engines.oci import runtime as oci_runtime
from bench_worker.engines.oci.runtime import OPERATIONS as SAVING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_worker.engines.docker.http import DockerHttp


def checkpoint_name(ordinal: int) -> str:
    """Return what a container's checkpoint with this ordinal is called."""
    return f"weighbridge-{ordinal}"


def save_checkpoint(wire: DockerHttp, identity: str, ordinal: int) -> None:
    """Save a container and end its processes."""
    wire.post("containers", identity, "checkpoints", body={"CheckpointID": checkpoint_name(ordinal), "Exit": True})


def restore_checkpoint(wire: DockerHttp, identity: str, ordinal: int) -> None:
    """Let a saved container go on."""
    wire.post("containers", identity, "start", checkpoint=checkpoint_name(ordinal))


def unavailable_reason(info: Mapping[str, Any], *, here: bool) -> str:
    """Return why an engine that gave this `info` cannot save containers; nothing where it can, as far as one sees.

    An engine that is not on this host has a CRIU of its own, which nobody here can ask.
    """
    if not info.get("ExperimentalBuild"):
        return 'the daemon was started without its experimental features ({"experimental": true} in daemon.json)'
    return oci_runtime.unavailable_reason(str(info.get("DefaultRuntime") or "")) if here else ""


PROBE_TIMEOUT_S: Final = 4.5
"""For both steps of a probe, so that it ends within its five seconds; a slow host's engine takes some of them."""

_START = "start it (`systemctl start docker`, or `script/docker-engine`), or point DOCKER_HOST at one that runs"
_ADVICE = (
    ("Permission denied", "run as root, or join the socket's group (`usermod -aG docker $USER`, then log in again)"),
    ("No such file or directory", f"install Docker (`apt-get install docker.io`) and {_START}"),
    ("Connection refused", _START),
    ("no answer in", "wait until the machine has less to do, or look into the engine's own log"),
)

_NEEDED: Final = {
    "memory_bytes": (("MemoryLimit",), "this host's kernel cannot limit memory"),
    "cpus": (("CpuCfsPeriod", "CpuCfsQuota"), "this host's kernel cannot limit CPU time (CFS quota)"),
    "cpuset": (("CPUSet",), "this host's kernel cannot pin a container to CPUs"),
}
"""What `docker info` must say for a setting to be more than a wish: Docker itself drops it with a warning only."""


_ABSENT: Final = {
    "rootfs": "it starts containers from images alone; use an OCI runtime",
    "files": "`docker create` has no option for it; the engine docker has a call",
}
"""Why settings are missing that an engine of this kind does not have."""


def failed_status(name: str, address: str, error: BaseException) -> EngineStatus:
    """Return the status of an engine that does not answer at `address`: why not, and what to do."""
    if isinstance(error, EngineUnavailable):
        reason, advice = str(error), "set DOCKER_HOST to a Docker Engine's socket, or unset it for the usual one"
    else:
        cause = root_cause(error)
        if slow := re.search(r"Read timed out\. \(read timeout=(\d+(?:\.\d)?)", cause):
            cause = f"no answer in {slow[1]} s, though something listens there"
        reason = f"no Docker Engine answers at {address}: {cause}"
        advice = next((text for sign, text in _ADVICE if sign in cause), _START)
    return EngineStatus(name, usable=False, endpoint=address, reason=reason, advice=advice)


def status_from(
    name: str,
    address: str,
    info: Mapping[str, Any],
    swap_bytes: int,
    operations: frozenset[str],
    settings: frozenset[str],
    sys: Path | None = None,
    unsaved: str = "",
) -> EngineStatus:
    """Return the status that `docker info` gives; `swap_bytes` is the host's swap space, 0 where there is none.

    `sys` is the host's ``/sys``, None where the engine is on another host; `unsaved` says why no container can be
    saved, or nothing.
    """
    unenforced = {
        setting: reason
        for setting, (switches, reason) in _NEEDED.items()
        if not all(info.get(switch) for switch in switches)
    }
    if swap_bytes and not info.get("SwapLimit") and "memory_bytes" not in unenforced:
        unenforced["memory_bytes"] = (
            "this host has swap and its kernel cannot limit it: a container would go on in swap, not at its limit "
            "(`swapoff -a`, or boot with swapaccount=1)"
        )
    unenforced |= {
        key: reason for key, reason in docker_settings.unenforced(info, sys=sys).items() if key in settings
    }
    details = {
        "storage_driver": str(info.get("Driver", "")),
        "log_driver": str(info.get("LoggingDriver", "")),
        "cgroup": f"v{info.get('CgroupVersion', '1')} ({info.get('CgroupDriver', '')})",
        "runtime": str(info.get("DefaultRuntime", "")),
        "runtimes": ", ".join(sorted(map(str, info.get("Runtimes") or ()))),
        "root": str(info.get("DockerRootDir", "")),
        "stop.grace_step_s": "1",
        "stats.interval_s": "1",
    }
    details[ENGINE_MANAGED_STORAGE] = "data containers, directories of their own"
    if sys is not None:
        details[CAPABILITIES_WITHHELD] = " ".join(
            daemon_processes.unavailable_capabilities(daemon_processes.MACHINE_CAPABILITIES)
        )
    absent = {setting: reason for setting, reason in _ABSENT.items() if setting not in settings}
    details |= {f"setting.{setting}": reason for setting, reason in (absent | unenforced).items()}
    details |= {f"operation.{operation}": unsaved for operation in sorted(SAVING & operations) if unsaved}
    warnings = [str(warning) for warning in info.get("Warnings") or ()]
    if warnings:
        details["warnings"] = "; ".join(warnings)
    linux = info.get("OSType", "linux") == "linux"
    return EngineStatus(
        name=name,
        usable=linux,
        version=str(info.get("ServerVersion", "")),
        endpoint=address,
        reason="" if linux else f"it runs {info.get('OSType')} containers",
        advice="" if linux else "point DOCKER_HOST at an engine for Linux containers",
        operations=tuple(sorted(operations - (SAVING if unsaved else frozenset()))),
        settings=tuple(sorted(settings - set(unenforced))),
        details=details,
    )


def probe_docker(
    name: str,
    address: str,
    operations: frozenset[str],
    settings: frozenset[str],
    unable_to_save: Callable[..., str] = unavailable_reason,
) -> EngineStatus:
    """Ask the engine at `address` about itself; never raises, within `PROBE_TIMEOUT_S`.

    `unable_to_save` says of its info why no container can be saved, as `docker_checkpoint.trouble` does.
    """
    began = time.monotonic()
    try:
        client = docker_http.connect(1, PROBE_TIMEOUT_S, address)
        try:
            with docker_http.timed_request(PROBE_TIMEOUT_S - (time.monotonic() - began)):
                info = client.info()
        finally:
            client.close()
    except (EngineUnavailable, docker.errors.DockerException, requests.RequestException, OSError) as error:
        return failed_status(name, address, error)
    here = docker_http.socket_path(address) is not None
    swap_bytes, sys = (_swap_bytes(), Path("/sys")) if here else (0, None)
    unsaved = unable_to_save(info, here=here)
    return status_from(name, address, info, swap_bytes, operations, settings, sys, unsaved)


def _swap_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
        for line in file:
            name, _, value = line.partition(":")
            if name == "SwapTotal":
                return int(value.split()[0]) * 1024
    return 0
