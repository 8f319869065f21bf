"""containerd's API on its Unix socket: where that is, whether it answers, and what its failures mean.

The engine works in a namespace of its own; each call names it in a header, and what other namespaces hold stays
invisible.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from google.protobuf.empty_pb2 import Empty

from bench_common.requirements import CAPABILITIES_WITHHELD, NETWORK_CHOICE, SERVICES_NETWORK, UNNAMED_VOLUMES
from bench_worker.engines import daemon_processes
from bench_worker.engines.base import HOST, PROBE_S, OperationFailed, unavailable_advice
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.grpc import ERROR_KINDS, CallSequence, GrpcChannel
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.spec import NETWORKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench_worker.engines.base import Engine, EngineStatus

NAMESPACE: Final = "weighbridge"
VARIABLE: Final = "CONTAINERD_ADDRESS"
SNAPSHOTTER: Final = "overlayfs"
"""What keeps the file systems of images and containers: containerd's default."""

_PACKAGE: Final = "containerd.services"
_SOCKETS: Final = ("/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock")
"""containerd's own default, and the socket of the one that dockerd starts where there is no other."""
_LEASE_S: Final = 3600.0
_CLEANUP_S: Final = 20.0
_KINDS: Final = (("timeout", re.compile(r"deadline exceeded", re.IGNORECASE)), *ERROR_KINDS)
"""containerd's messages say more than its codes: of most failures that is UNKNOWN."""
_START_ADVICE: Final = (
    "start it (`systemctl start containerd`, or `script/docker-engine start`), or set CONTAINERD_ADDRESS to its "
    "socket"
)


class ContainerdApi:
    """One namespace of the containerd at the socket `path`."""

    def __init__(self, path: str, namespace: str = NAMESPACE) -> None:
        self.socket, self.namespace = path, namespace
        self._channel = GrpcChannel(path, _PACKAGE, {"containerd-namespace": namespace})

    def calls(self, timeout_s: float, metadata: Sequence[tuple[str, str]] = ()) -> CallSequence:
        """Return an operation that has to finish within `timeout_s`."""
        return CallSequence(self._channel, timeout_s, _KINDS, metadata)

    @contextmanager
    def lease(self, timeout_s: float) -> Iterator[tuple[str, str]]:
        """Keep what is made meanwhile from containerd's garbage collector: give the header that calls need for that.

        A lease that its worker does not live to delete expires by itself. Raises `OperationFailed`.
        """
        name = f"weighbridge-{secrets.token_hex(8)}"
        expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + _LEASE_S))
        labels = {"containerd.io/gc.expire": expiry}
        self.calls(timeout_s).call(
            "leases.v1.Leases/Create", messages.CreateLeaseRequest(id=name, labels=labels), Empty
        )
        try:
            yield "containerd-lease", name
        finally:
            with suppress(OperationFailed):
                self.calls(_CLEANUP_S).do("leases.v1.Leases/Delete", messages.DeleteLeaseRequest(id=name))

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()


def address(place: str = "") -> str:
    """Return containerd's socket: that at `place`, that which the environment names, or the first default one."""
    named = place.removeprefix("unix://") or os.environ.get(VARIABLE)
    return named or next((path for path in _SOCKETS if os.path.exists(path)), _SOCKETS[0])  # noqa: PTH110


def probe_containerd(engine: type[Engine], socket: str) -> EngineStatus:
    """Ask the containerd at `socket` for its version; never raises, within `PROBE_S`."""
    cgroups = Cgroups.detect(swap_limit=False)
    reason, version = "", ""
    api = ContainerdApi(socket)
    try:
        version = api.calls(PROBE_S).call("version.v1.Version/Version", Empty(), messages.VersionResponse).version
    except OperationFailed as error:
        reason = f"no containerd answers at {socket}: {error}"
    finally:
        api.close()
    return engine.status(
        f"unix://{socket}",
        version=version,
        reason=reason,
        advice=unavailable_advice(reason, _START_ADVICE) if reason else "",
        unenforced=cgroups.unenforced,
        details={
            "namespace": NAMESPACE,
            "storage_driver": SNAPSHOTTER,
            "cgroup": f"v{cgroups.version} (cgroupfs)",
            SERVICES_NETWORK: HOST,
            NETWORK_CHOICE: " ".join(NETWORKS),
            UNNAMED_VOLUMES: "yes",
            CAPABILITIES_WITHHELD: " ".join(
                daemon_processes.unavailable_capabilities(daemon_processes.MACHINE_CAPABILITIES)
            ),
        },
    )
