"""Calls containerd's own API, over gRPC on its socket, for the little that ``ctr`` cannot do or cannot do well.

Services and messages are those of containerd's ``api/services``; messages are given by their fields' numbers there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.containerd_tasks import KINDS
from bench_worker.engines.grpc_channel import CallFailed, Channel, Reply
from bench_worker.engines.protobuf import pack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_worker.engines.protobuf import Value

_NAMESPACE: Final = "containerd-namespace"
"""The header that says whose containers are meant."""
_BY_CODE: Final = {4: "timeout", 14: "unreachable"}
"""What gRPC's codes DEADLINE_EXCEEDED and UNAVAILABLE mean; of all others the words tell more."""
_WORDS: Final = (("timeout", re.compile(r"deadline exceeded", re.IGNORECASE)), *KINDS)


class ContainerdApi:
    """The containerd at the socket `path`, as far as one namespace of it is concerned."""

    def __init__(self, path: str, namespace: str) -> None:
        self._channel = Channel(path, {_NAMESPACE: namespace})

    def call(self, method: str, fields: Mapping[int, Value], *, timeout_s: float) -> Reply:
        """Call a method such as ``containers.v1.Containers/Get``; raise `OperationFailed`."""
        try:
            return self._channel.call(f"/containerd.services.{method}", pack(fields), timeout_s=timeout_s)
        except CallFailed as error:
            words = str(error)
            by_words = next((kind for kind, pattern in _WORDS if pattern.search(words)), "engine")
            kind = _BY_CODE.get(error.code, by_words)
            raise OperationFailed(kind, words, start_ns=error.start_ns, end_ns=error.end_ns) from error

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()
