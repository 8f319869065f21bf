"""Finds a CRI socket and asks what is behind it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from bench_common.capability import (
    CAPABILITIES_WITHHELD,
    GRACE_STEP,
    NETWORK_CHOICE,
    SERVICES_NETWORK,
    UNNAMED_VOLUMES,
)
from bench_worker.engines import processes_of
from bench_worker.engines.base import EngineStatus
from bench_worker.engines.cri.messages import RUNTIME
from bench_worker.engines.grpc import CallFailed, Channel
from bench_worker.engines.host_network import HOST
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.protobuf import MalformedMessage, text, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "CONTAINER_RUNTIME_ENDPOINT"
"""The variable of ``crictl`` and of the kubelet's tools."""
_SOCKETS: Final = ("/run/crio/crio.sock", "/run/containerd/containerd.sock", "/run/cri-dockerd.sock")
_PROBE_S: Final = 3.0
_UNIMPLEMENTED: Final = 12
_ADVICE: Final = (
    "start CRI-O, or containerd with its CRI plugin (take `cri` out of disabled_plugins in its config.toml), "
    "or name a socket in CONTAINER_RUNTIME_ENDPOINT"
)


def address() -> str:
    """Return the socket that the environment names, or the first of the usual ones that there is."""
    named = os.environ.get(VARIABLE, "").removeprefix("unix://")
    return named or next((path for path in _SOCKETS if os.path.exists(path)), _SOCKETS[1])  # noqa: PTH110


def look(
    name: str,
    *,
    operations: frozenset[str],
    settings: frozenset[str],
    inapplicable: frozenset[str],
    reasons: Mapping[str, str],
    lacks: Mapping[str, str],
) -> EngineStatus:
    """Ask for the version; never raises, within `_PROBE_S`."""
    path = address()
    cgroups = Cgroups.look(swap_limit=False)
    channel = Channel(path)
    reason, version, runtime = "", "", ""
    try:
        said = unpack(channel.call(f"{RUNTIME}Version", b"", timeout_s=_PROBE_S).message)
        runtime, version = text(said, 2), text(said, 3)
    except CallFailed as error:
        missing = (
            "it does not speak the CRI (its plugin is disabled)"
            if error.code == _UNIMPLEMENTED
            else _why(error, path)
        )
        reason = f"no CRI answers at {path}: {missing}"
    except MalformedMessage as error:
        reason = f"what answers at {path} is no CRI: {error}"
    finally:
        channel.close()
    unenforced = {**reasons, **{key: why for key, why in cgroups.unenforced.items() if key in settings}}
    return EngineStatus(
        name=name,
        usable=not reason,
        version=f"{runtime} {version}".strip(),
        endpoint=f"unix://{path}",
        reason=reason,
        advice=_ADVICE if reason else "",
        operations=tuple(sorted(operations)),
        settings=tuple(sorted(settings - set(cgroups.unenforced))),
        inapplicable=tuple(sorted(inapplicable)),
        details={
            SERVICES_NETWORK: HOST,
            NETWORK_CHOICE: "host",
            UNNAMED_VOLUMES: "yes",
            CAPABILITIES_WITHHELD: " ".join(processes_of.withheld(processes_of.MACHINE)),
            GRACE_STEP: "1",
            "cgroup": f"v{cgroups.version}",
            **{f"operation.{operation}": why for operation, why in lacks.items()},
            **{f"setting.{setting}": why for setting, why in unenforced.items()},
        },
    )


def _why(error: CallFailed, path: str) -> str:
    return str(error).removeprefix(f"{path}: ")
