"""Calls containerd's own API, over gRPC on its socket, for the little that ``ctr`` cannot do or cannot do well.

Services and messages are those of containerd's ``api/services``; messages are given by their fields' numbers there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bench_worker.engines.containerd.tasks import KINDS
from bench_worker.engines.cri_ground import failures
from bench_worker.engines.grpc import Channel, Reply
from bench_worker.engines.protobuf import pack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_worker.engines.protobuf import Value

_NAMESPACE: Final = "containerd-namespace"
"""The header that says whose containers are meant."""
_WORDS: Final = (("timeout", re.compile(r"deadline exceeded", re.IGNORECASE)), *KINDS)
"""What containerd's words mean, which tell more than its codes: of most failures that is UNKNOWN."""


class ContainerdApi:
    """The containerd at the socket `path`, as far as one namespace of it is concerned."""

    def __init__(self, path: str, namespace: str) -> None:
        self._channel = Channel(path, {_NAMESPACE: namespace})

    def call(self, method: str, fields: Mapping[int, Value], *, timeout_s: float) -> Reply:
        """Call a method such as ``containers.v1.Containers/Get``; raise `OperationFailed`."""
        with failures(_WORDS):
            return self._channel.call(f"/containerd.services.{method}", pack(fields), timeout_s=timeout_s)

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()
