"""Where containers are reached under engines that make no networks: in the host's own, and nowhere else."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from bench_worker.engines.base import OperationFailed

if TYPE_CHECKING:
    from bench_worker.engines.base import Container

HOST: Final = "host"
LOOPBACK: Final = "127.0.0.1"


def address_of(container: Container) -> str:
    """Return the loopback's address for a container in the host's network; raise the failure ``refused`` else."""
    if container.settings.network == HOST:
        return LOOPBACK
    now_ns = monotonic_ns()
    text = f"{container.name} has no address that is reached from this host: its network is not the host's"
    raise OperationFailed("refused", text, start_ns=now_ns, end_ns=now_ns)
